// SPDX-License-Identifier: Apache-2.0
#include "hca/ah.h"

#include <errno.h>
#include <stdlib.h>

static void ah_release(struct vb_object *object)
{
    vb_ah_destroy((struct vb_ah *)((char *)object - offsetof(struct vb_ah, object)));
}

int vb_ah_create(struct vb_pd *pd, const struct ibv_ah_attr *attr, struct vb_ah **ah)
{
    struct vb_ah *made;

    if (attr->port_num != 1 || !attr->is_global)
        return vb_decline(
            pd->context, -EINVAL,
            "port_num is {0} and is_global is {1}: the port is 1, and RoCE needs a GID "
            "(is_global 1, grh.dgid, grh.sgid_index)",
            attr->port_num, attr->is_global);
    made = calloc(1, sizeof(*made));
    if (!made)
        return -ENOMEM;
    made->pd = pd;
    made->attr = *attr;
    made->ibv.context = pd->context->ibv;
    made->ibv.pd = &pd->ibv;
    vb_pd_use(pd);
    vb_object_add(pd->context, &made->object, ah_release);
    *ah = made;
    return 0;
}

int vb_ah_destroy(struct vb_ah *ah)
{
    vb_object_remove(ah->pd->context, &ah->object);
    vb_pd_drop(ah->pd);
    vb_object_free(&ah->object, ah);
    return 0;
}
