// SPDX-License-Identifier: Apache-2.0
/*
 * Early requests of a connection that adapts: keeping them, asking for the missing one by a
 * sequence NAK, carrying them out. The last part recognizes the renumbered messages of rdma_rxe.
 */
#include "transport/early.h"

#include "hca/qp_states.h"
#include "transport/gap.h"
#include "transport/recovery.h"
#include "transport/replies.h"
#include "transport/responder.h"
#include "transport/retry.h"

/* After a NAK of another kind, RNR included, the requester sends all again from that packet on. */
void vb_engine_early_keep(const struct vb_incoming *in)
{
    struct vb_endpoint *ep = in->endpoint;
    struct vb_recovery *recovery = vb_engine_recovery_get(ep, in->now);

    if (!recovery || (ep->responder.nak_sent && !recovery->early.told))
        ++in->engine->counters.drop_after_nak;
    else if (vb_engine_gap_hold(ep, &recovery->early, ep->responder.epsn, in))
        vb_engine_replies_owe_sequence_nak(ep);
}

VB_COLD void vb_engine_early_ask(const struct vb_incoming *in)
{
    struct vb_endpoint *ep = in->endpoint;
    struct vb_recovery *recovery = vb_engine_recovery_get(ep, in->now);

    if (recovery && !ep->responder.nak_sent && vb_engine_gap_seen(ep, &recovery->early, in->now))
        vb_engine_replies_owe_sequence_nak(ep);
}

enum { RENUMBERED_MOST = 129 }; /* the most packets that rdma_rxe has in flight */

/* By how many packets the message is renumbered; 0: it is a duplicate. */
static uint32_t renumbered_by(const struct vb_incoming *in)
{
    const struct vb_responder *r = &in->endpoint->responder;
    uint32_t behind = vb_engine_psn_count(in->bth.psn, r->epsn);

    if (vb_engine_early_is_empty(in))
        return behind < vb_engine_psn_count(r->empty_psn, r->epsn);
    if (in->bth.psn != r->empty_psn || !(in->opcode->flags & VB_OPCODE_RETH))
        return 0;
    return vb_engine_packets_of(vb_wire_reth_read(in->extended).length, in->endpoint->path.mtu) - 1;
}

VB_COLD void vb_engine_early_renumber(const struct vb_incoming *in)
{
    struct vb_endpoint *ep = in->endpoint;
    struct vb_responder *r = &ep->responder;
    uint32_t by;

    if (!vb_engine_endpoint_adapts(ep) ||
        vb_engine_psn_count(in->bth.psn, r->epsn) > RENUMBERED_MOST)
        return;
    by = renumbered_by(in);
    if (by == 0)
        return;
    ++in->engine->counters.renumbered;
    if (vb_engine_recovery_of(ep)) /* the kept packets have the old PSNs */
        vb_engine_gap_forget(in->engine, &ep->share->recovery->early);
    r->nak_sent = false;
    vb_engine_replies_cancel_nak(ep);
    r->epsn = vb_engine_psn_add(r->epsn, by);
    if (vb_engine_early_is_empty(in)) {
        r->empty_psn = in->bth.psn;
        r->msn = vb_engine_psn_add(r->msn, 1);
    } else {
        r->empty_psn = vb_engine_psn_add(
            in->bth.psn, VB_PSN_MASK); /* it was sent whole: no other change follows */
    }
}

static bool serves(const struct vb_endpoint *ep)
{
    enum ibv_qp_state state = vb_qp_state(ep->qp);

    return state >= IBV_QPS_RTR && state <= IBV_QPS_SQE;
}

VB_COLD void vb_engine_early_serve(const struct vb_incoming *in, uint32_t missing)
{
    struct vb_endpoint *ep = in->endpoint;
    struct vb_gap *gap = &ep->share->recovery->early;
    struct vb_held *held;

    if (ep->responder.epsn == missing)
        return;
    while (serves(ep) && (held = vb_engine_gap_take(ep, gap, ep->responder.epsn)) != NULL) {
        struct vb_incoming early = *in;

        vb_engine_gap_read(held, &early);
        vb_engine_responder_receive(&early);
        vb_engine_gap_release(ep->engine, held);
    }
    if (!serves(ep))
        vb_engine_gap_forget(in->engine, gap);
    else if (gap->open && vb_engine_gap_closed(ep, gap, missing, in->now))
        vb_engine_replies_owe_sequence_nak(ep);
}

void vb_engine_early_overdue(struct vb_endpoint *ep, uint64_t now)
{
    struct vb_recovery *recovery = ep->share->recovery;

    if (serves(ep) && vb_engine_gap_expired(ep, &recovery->early, now))
        vb_engine_replies_owe_sequence_nak(ep);
    if (serves(ep) && vb_engine_gap_expired(ep, &recovery->early_answer, now))
        vb_engine_retry_lost_response(ep, now);
}
