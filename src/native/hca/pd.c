// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>

#include "hca/mr.h"
#include "hca/users.h"

static void pd_release(struct vb_object *object)
{
    struct vb_pd *pd = (struct vb_pd *)((char *)object - offsetof(struct vb_pd, object));

    atomic_store(&pd->users, 0);
    vb_pd_dealloc(pd);
}

int vb_pd_alloc(struct vb_context *context, struct vb_pd **pd)
{
    struct vb_adapter *adapter = context->adapter;
    struct vb_pd *made = calloc(1, sizeof(*made));
    int error;

    if (!made)
        return -ENOMEM;
    pthread_mutex_lock(&adapter->mutex);
    error = vb_pool_take(&adapter->pd_pool, &made->number);
    pthread_mutex_unlock(&adapter->mutex);
    if (error) {
        free(made);
        return error;
    }
    made->context = context;
    made->ibv.context = context->ibv;
    made->ibv.handle = made->number;
    vb_object_add(context, &made->object, pd_release);
    *pd = made;
    return 0;
}

int vb_pd_dealloc(struct vb_pd *pd)
{
    struct vb_adapter *adapter = pd->context->adapter;

    if (atomic_load(&pd->users))
        return vb_decline_busy_pd(pd);
    vb_object_remove(pd->context, &pd->object);
    pthread_mutex_lock(&adapter->mutex);
    vb_pool_return(&adapter->pd_pool, pd->number);
    pthread_mutex_unlock(&adapter->mutex);
    free(pd);
    return 0;
}
