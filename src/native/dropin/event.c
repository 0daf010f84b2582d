// SPDX-License-Identifier: Apache-2.0
/* Completion channels and asynchronous events. */
#include "abi/calls.h"
#include "dropin/context.h"
#include "dropin/export.h"
#include "dropin/settings.h"

VB_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct vb_context *core = vb_core(context);
    struct vb_channel *channel;
    int error;

    if (!core)
        return vb_failed_null(context, "ibv_create_comp_channel", -VB_ERROR_FORKED);
    error = vb_channel_create(core, &channel);
    return error ? vb_failed_null(context, "ibv_create_comp_channel", error) : &channel->ibv;
}

VB_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    struct ibv_context *context = channel->context; /* read when the object is gone */

    if (!vb_core(context))
        return vb_bury(context, channel);
    return vb_result(context, "ibv_destroy_comp_channel",
                     vb_channel_destroy((struct vb_channel *)channel));
}

VB_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
                               void **cq_context)
{
    struct vb_cq *found;
    int error = -VB_ERROR_FORKED;

    if (vb_core(channel->context))
        error = vb_channel_wait((struct vb_channel *)channel, vb_settings()->spin_us, &found);
    if (error) {
        errno = -error;
        return -1;
    }
    *cq = &found->ibv;
    *cq_context = found->ibv.cq_context;
    return 0;
}

VB_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += count;
    pthread_cond_signal(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}

VB_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    struct vb_context *core = vb_core(context);
    int error = core ? vb_event_get(core, event) : -VB_ERROR_FORKED;

    if (!error)
        return 0;
    errno = -error;
    return -1;
}

/* NULL for an event of the port or the device: nobody waits for its acknowledgement. */
static struct ibv_context *context_of(const struct ibv_async_event *event)
{
    switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
        return event->element.cq->context;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        return event->element.qp->context;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        return event->element.srq->context;
    default:
        return NULL;
    }
}

VB_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
    struct ibv_context *context = context_of(event);
    struct vb_context *core = context ? vb_core(context) : NULL;

    if (core)
        vb_event_ack(core, event);
}
