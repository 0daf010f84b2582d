// SPDX-License-Identifier: Apache-2.0
/*
 * The replies that the responder owes: responses of READs and atomics, acknowledgements, NAKs and
 * congestion notifications. They are noted while packets come in, made when the carrier asks for
 * packets, and sent in the order of PSNs (IBA 9.7.5.1). READs and atomics are kept for repetition.
 * All calls are made under the engine's lock.
 */
#ifndef VB_TRANSPORT_REPLIES_H
#define VB_TRANSPORT_REPLIES_H

#include "transport/transport.h"

/* Makes the next response packet; false: nothing is owed. */
bool vb_engine_replies_next(struct vb_endpoint *ep, struct vb_packet *packet);

/* Are there READs or atomics to be answered? */
static inline bool vb_engine_replies_due(const struct vb_replies *replies)
{
    return replies->next != replies->end;
}

/* The same, or parts of them again? */
static inline bool vb_engine_replies_pending(const struct vb_replies *replies)
{
    return vb_engine_replies_due(replies) || replies->repeats;
}

/* Is anything owed? */
static inline bool vb_engine_replies_owed(const struct vb_replies *replies)
{
    return vb_engine_replies_pending(replies) || replies->nak || replies->ack || replies->cnp;
}

/*
 * Makes room for as many READs and atomics as the QP's max_dest_rd_atomic says; the room never
 * shrinks. -ENOMEM.
 */
int vb_engine_replies_fit(struct vb_endpoint *ep);

/* An acknowledgement of everything that was carried out is owed. */
void vb_engine_replies_owe_ack(struct vb_endpoint *ep);
/*
 * If the last response told of no credits and there are receive requests now, the requester may
 * wait for them: the last acknowledgement is owed once more (IBA 9.7.7.2.5). A receive request that
 * is posted at the instant of that response is missed; the requester finds it by its limited
 * request.
 */
void vb_engine_replies_tell_credits(struct vb_endpoint *ep);
/*
 * A duplicate at `psn` is to be acknowledged, but not beyond a later READ or atomic, for which the
 * requester may ask again.
 */
void vb_engine_replies_owe_duplicate_ack(struct vb_endpoint *ep, uint32_t psn);
/* A NAK for the expected PSN is owed, in place of an acknowledgement. */
void vb_engine_replies_owe_nak(struct vb_endpoint *ep, enum vb_aeth_kind kind, uint8_t value);
/* A sequence NAK is owed: the expected packet is missing. No other NAK is sent until it comes. */
void vb_engine_replies_owe_sequence_nak(struct vb_endpoint *ep);
/* A congestion notification is owed: the network marked a packet of the peer (connections that
 * adapt). */
void vb_engine_replies_owe_cnp(struct vb_endpoint *ep);
/* The packet that the NAK would ask for has come. */
void vb_engine_replies_cancel_nak(struct vb_endpoint *ep);

/* Are max_dest_rd_atomic READs and atomics not answered yet? Then no further one may come. */
bool vb_engine_replies_full(const struct vb_endpoint *ep);
/* Adds a new READ or atomic to be answered. Not to be called when they are full. */
void vb_engine_replies_add(struct vb_endpoint *ep, const struct vb_record *record);
/* The kept record among whose packets `psn` is, and the index of that packet; NULL: none. */
const struct vb_record *vb_engine_replies_find(const struct vb_endpoint *ep, uint32_t psn,
                                               uint32_t *index);
/*
 * Answers a record again: `count` packets from `index` on, or all from there on if the connection
 * does not adapt.
 */
void vb_engine_replies_repeat(struct vb_endpoint *ep, const struct vb_record *record,
                              uint32_t index, uint32_t count, uint64_t now);
/* Nothing is owed any more. */
void vb_engine_replies_drop(struct vb_endpoint *ep);

/* A READ response cannot be given: the QP fails with this evidence (responder.c). */
void vb_engine_responder_fail_read(struct vb_endpoint *ep, uint32_t psn,
                                   struct vb_evidence *evidence);

#endif
