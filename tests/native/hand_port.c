// SPDX-License-Identifier: Apache-2.0
#include "hand_port.h"

#include "transport/engine.h"

static const struct hand_port *hand_port_of(const struct vb_qp *qp)
{
    const char *port = (const char *)qp->context->adapter->calls;

    return (const struct hand_port *)(port - offsetof(struct hand_port, port));
}

static int hand_port_connect(struct vb_qp *qp)
{
    const struct hand_port *hand = hand_port_of(qp);
    int error = hand->packets.move(qp);

    if (!error)
        vb_qp_set_carrier(qp, vb_qp_connected_type(qp->type) ? &hand->packets : &hand->datagrams);
    return error;
}

static void hand_port_disconnect(struct vb_qp *qp)
{
    hand_port_of(qp)->forget(qp);
    vb_qp_set_carrier(qp, &vb_uncarried);
}

static void hand_port_attend(struct vb_qp *qp)
{
    (void)qp;
}

static void hand_port_progress(struct vb_cq *cq)
{
    (void)cq;
}

void hand_port_make(struct hand_port *hand, const struct hand_calls *calls)
{
    *hand = (struct hand_port){
        .port = {.number = calls->number,
                 .connect = hand_port_connect,
                 .disconnect = hand_port_disconnect,
                 .attend = hand_port_attend,
                 .progress = hand_port_progress},
        .packets = {.doorbell = calls->doorbell,
                    .note = vb_engine_note,
                    .is_loop = vb_engine_is_loop,
                    .settle = calls->settle,
                    .quiet = vb_always_quiet,
                    .move = calls->carry},
        .datagrams = {.execute = calls->execute, .settle = calls->settle, .quiet = vb_always_quiet},
        .forget = calls->forget,
    };
}
