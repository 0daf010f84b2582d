// SPDX-License-Identifier: Apache-2.0
/*
 * Compares the PSN of a packet with that of the one that is due, as the responder (responder.c) and
 * the completer (completer.c) will when the packets before it have come to them.
 */
#include "transport/coming.h"

#include "hca/qp.h"
#include "transport/requester.h"
#include "transport/transport.h"
#include "wire/opcode.h"

static const uint32_t COMING_KNOWN = 1u << 31;

static bool coming_is_response(const struct vb_opcode *opcode)
{
    return opcode->flags & VB_OPCODE_RESPONSE;
}

bool vb_engine_takes_in_order(uint8_t opcode)
{
    const struct vb_opcode *of = &vb_opcodes[opcode];
    uint32_t transport = opcode & VB_TRANSPORT_MASK;

    if (!of->name || (transport != VB_TRANSPORT_RC && transport != VB_TRANSPORT_XRC))
        return false;
    return !coming_is_response(of) || of->flags & VB_OPCODE_PAYLOAD;
}

static uint32_t coming_later(uint32_t psn, uint32_t coming)
{
    bool is_later = coming & COMING_KNOWN && vb_wire_psn_diff(coming & VB_PSN_MASK, psn) > 0;

    return is_later ? coming & VB_PSN_MASK : psn;
}

/* Go-back-0: the responder, too, goes back, so what it expects may be earlier than before. */
static uint32_t expected_request(const struct vb_endpoint *ep, const struct vb_coming *coming)
{
    if (VB_UNLIKELY(ep->engine->config.restart && coming->request & COMING_KNOWN))
        return coming->request & VB_PSN_MASK;
    return coming_later(ep->responder.epsn, coming->request);
}

/* A READ has as many PSNs as its response has packets. */
static uint32_t coming_psns(const struct vb_endpoint *ep, const struct vb_opcode *opcode,
                            const uint8_t *bytes)
{
    const uint8_t *extended = bytes + VB_BTH + (opcode->flags & VB_OPCODE_XRCETH ? VB_XRCETH : 0);

    if (!(opcode->flags & VB_OPCODE_READ))
        return 1;
    return vb_engine_packets_of(vb_wire_reth_read(extended).length, ep->path.mtu);
}

/* The message under way is expected from its beginning, after a loss or because it comes again. */
static VB_COLD void coming_restart(struct vb_coming *coming, int32_t ahead, uint32_t psn)
{
    if (coming->message && (ahead > 0 || psn == (coming->message & VB_PSN_MASK)))
        coming->request = coming->message;
}

static bool will_take_request(struct vb_endpoint *ep, const struct vb_opcode *opcode,
                              const uint8_t *bytes, struct vb_coming *coming)
{
    uint32_t psn = vb_wire_get24(bytes + 9);
    int32_t ahead = vb_wire_psn_diff(psn, expected_request(ep, coming));

    if (VB_UNLIKELY(ahead)) {
        if (VB_UNLIKELY(ep->engine->config.restart))
            coming_restart(coming, ahead, psn);
        return false;
    }
    if (opcode->flags & VB_OPCODE_FIRST)
        coming->message = COMING_KNOWN | psn;
    coming->request = COMING_KNOWN | vb_engine_psn_add(psn, coming_psns(ep, opcode, bytes));
    if (opcode->flags & VB_OPCODE_LAST)
        coming->message = 0;
    return true;
}

/* Is this the first packet of a READ's response that is missing from `from` on? */
static bool coming_is_missing(struct vb_endpoint *ep, uint32_t from, uint32_t psn)
{
    for (uint32_t at = ep->qp->sq_next; at != ep->requester.begun; ++at) {
        const struct vb_sq_wqe *wqe = vb_engine_sq_at(ep->qp, at);
        uint32_t end = vb_engine_psn_add(wqe->first_psn, wqe->packets);

        if (!vb_engine_is_read_or_atomic(&wqe->wr) || vb_wire_psn_diff(end, from) <= 0)
            continue;
        return psn == (vb_wire_psn_diff(from, wqe->first_psn) > 0 ? from : wqe->first_psn);
    }
    return false;
}

static bool will_take_response(struct vb_endpoint *ep, const uint8_t *bytes,
                               struct vb_coming *coming)
{
    uint32_t psn = vb_wire_get24(bytes + 9);
    uint32_t from = coming_later(ep->requester.una, coming->response);

    if (!coming_is_missing(ep, from, psn))
        return false;
    coming->response = COMING_KNOWN | vb_engine_psn_add(psn, 1);
    return true;
}

bool vb_engine_will_take(struct vb_qp *qp, const uint8_t *bytes, struct vb_coming *coming)
{
    const struct vb_opcode *opcode = &vb_opcodes[bytes[0]];

    if (!qp->endpoint)
        return false;
    return coming_is_response(opcode) ? will_take_response(qp->endpoint, bytes, coming)
                                      : will_take_request(qp->endpoint, opcode, bytes, coming);
}
