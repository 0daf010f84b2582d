// SPDX-License-Identifier: Apache-2.0
/*
 * Address handles (ibv_create_ah, ibv_destroy_ah), and the check of an address vector that they
 * share with modify_qp. An address handle belongs to its protection domain and changes no more once
 * it is made.
 */
#include "hca/ah.h"

#include <errno.h>
#include <stdlib.h>

static void ah_release(struct vb_object *object)
{
    vb_ah_destroy((struct vb_ah *)((char *)object - offsetof(struct vb_ah, object)));
}

static VB_COLD int decline_port(struct vb_context *context, uint32_t port_num)
{
    if (context->adapter->port_count == 1)
        return vb_decline(context, -EINVAL,
                          "the address's port_num is {0}, and the device's port is 1", port_num);
    return vb_decline(context, -EINVAL,
                      "the address's port_num is {0}, and the device's ports are 1 to {1}",
                      port_num, context->adapter->port_count);
}

int vb_ah_check(struct vb_context *context, const struct ibv_ah_attr *attr)
{
    const struct vb_adapter_port *port = vb_adapter_port(context->adapter, attr->port_num);

    if (!port)
        return decline_port(context, attr->port_num);
    if (attr->is_global)
        return 0;
    if (!port->infiniband)
        return vb_decline(context, -EINVAL,
                          "the address has no GID (is_global is 0), and RoCE needs a GID: set "
                          "is_global, grh.dgid and grh.sgid_index; many programs have an option "
                          "for the GID index (ibv_rc_pingpong: -g 1), and `verbena run "
                          "--link-layer infiniband` offers a port with LIDs");
    if (attr->dlid)
        return 0;
    return vb_decline(context, -EINVAL,
                      "the address has neither a GID (is_global is 0) nor a LID (dlid is 0, which "
                      "is reserved): the port's LID is {0}",
                      port->lid);
}

int vb_ah_create(struct vb_pd *pd, const struct ibv_ah_attr *attr, struct vb_ah **ah)
{
    struct vb_ah *made;
    int error;

    error = vb_ah_check(pd->context, attr);
    if (error)
        return error;
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
