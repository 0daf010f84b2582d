// SPDX-License-Identifier: Apache-2.0
/*
 * The calls about completion channels and asynchronous events. The core queues the events; this
 * adds the reason of a QP's error to the log.
 */
#include <stdio.h>

#include "abi/calls.h"
#include "dropin/context.h"
#include "dropin/export.h"
#include "dropin/settings.h"
#include "dropin/verbena.h"

VB_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct vb_channel *channel;
    int error = VB_IF_OPEN(context, vb_channel_create(vb_dropin_core(context), &channel));

    return error ? vb_dropin_failed_null(context, "ibv_create_comp_channel", error) : &channel->ibv;
}

VB_DESTROY(VB_EXPORT int, ibv_destroy_comp_channel, "ibv_destroy_comp_channel", ibv_comp_channel,
           vb_channel, vb_channel_destroy)

VB_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
                               void **cq_context)
{
    struct vb_cq *found;
    int error = -VB_ERROR_FORKED;

    if (vb_dropin_core(channel->context))
        error =
            vb_channel_wait((struct vb_channel *)channel, vb_dropin_settings()->spin_us, &found);
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
    vb_lock_abi_take(&cq->mutex, VB_RANK_CQ_ACKS);
    cq->comp_events_completed += count;
    pthread_cond_signal(&cq->cond);
    vb_lock_abi_release(&cq->mutex);
}

/* Returns the id of the evidence about what put the event's QP in ERR, and 0 for events that mean
 * no error. */
static uint32_t cause_of(const struct ibv_async_event *event)
{
    const struct vb_qp *qp;

    if (event->event_type != IBV_EVENT_QP_FATAL && event->event_type != IBV_EVENT_QP_REQ_ERR &&
        event->event_type != IBV_EVENT_QP_ACCESS_ERR)
        return 0;
    qp = vb_qp_of(event->element.qp);
    return atomic_load(&(qp->verbs->real ? qp->verbs->real : qp)
                            ->shared->failed); /* `real`: the XRC target QP behind a handle of it */
}

VB_EXPORT int verbena_event_text(const struct ibv_async_event *event, char *text, size_t size)
{
    uint32_t cause = cause_of(event);

    if (event->event_type == IBV_EVENT_CQ_ERR)
        return snprintf(text, size,
                        "it overran: it has room for %d completions and one more came; create it "
                        "as long as all that can complete between two polls",
                        event->element.cq->cqe);
    return cause ? vb_dropin_completion_text(event->element.qp->context, cause, text, size) : 0;
}

/* Logs the reason. The event is not acknowledged yet, so that its element still exists. */
static void log_cause(const struct ibv_async_event *event)
{
    bool of_cq = event->event_type == IBV_EVENT_CQ_ERR;
    char text[1024];

    if (vb_dropin_settings()->explain && verbena_event_text(event, text, sizeof(text)))
        vb_dropin_log(VB_LOG_ERRORS, "%s 0x%x: event: %s: %s", of_cq ? "CQ" : "QP",
                      of_cq ? event->element.cq->handle : event->element.qp->qp_num,
                      ibv_event_type_str(event->event_type), text);
}

VB_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    struct vb_context *core = vb_dropin_core(context);
    int error = core ? vb_event_get(core, event) : -VB_ERROR_FORKED;

    if (!error) {
        log_cause(event);
        return 0;
    }
    errno = -error;
    return -1;
}

/* Returns NULL for an event of the port or the device: no call waits for its acknowledgement. */
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
    struct vb_context *core = context ? vb_dropin_core(context) : NULL;

    if (core)
        vb_event_ack(core, event);
}
