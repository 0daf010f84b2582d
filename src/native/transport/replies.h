// SPDX-License-Identifier: Apache-2.0
/*
 * What the responder owes: noted while packets come in, sent when the port asks for packets, and
 * always in the order of PSNs (IBA 9.7.5.1). READs and atomics are kept for repetition.
 */
#ifndef VB_TRANSPORT_REPLIES_H
#define VB_TRANSPORT_REPLIES_H

#include "transport/transport.h"

/* The next response packet; false: nothing is owed. */
bool vb_engine_replies_next(struct vb_endpoint *ep, struct vb_packet *packet);

/* READs and atomics are to be answered… */
static inline bool vb_engine_replies_due(const struct vb_replies *replies)
{
    return replies->next != replies->end;
}

/* …or parts of them again. */
static inline bool vb_engine_replies_pending(const struct vb_replies *replies)
{
    return vb_engine_replies_due(replies) || replies->repeats;
}

static inline bool vb_engine_replies_owed(const struct vb_replies *replies)
{
    return vb_engine_replies_pending(replies) || replies->nak || replies->ack || replies->cnp;
}

/* Room for as many READs and atomics as the QP's max_dest_rd_atomic says; never less. -ENOMEM. */
int vb_engine_replies_fit(struct vb_endpoint *ep);

/* An acknowledgement of everything that was executed. */
void vb_engine_replies_owe_ack(struct vb_endpoint *ep);
/*
 * After an answer that told of no credits: there are receive requests now, and the requester may
 * wait for them. The last acknowledgement once more says so (IBA 9.7.7.2.5). A request that is
 * posted in the instant of that answer is missed; the requester then finds it by asking.
 */
void vb_engine_replies_tell_credits(struct vb_endpoint *ep);
/* Of a duplicate: not beyond a READ or atomic after it that the requester may be asking again. */
void vb_engine_replies_owe_duplicate_ack(struct vb_endpoint *ep, uint32_t psn);
void vb_engine_replies_owe_nak(struct vb_endpoint *ep, enum vb_aeth_kind kind, uint8_t value);
/* The expected packet is missing; nothing more is said until it comes. */
void vb_engine_replies_owe_sequence_nak(struct vb_endpoint *ep);
/* Of a connection that adapts: the network marked what the peer sent. */
void vb_engine_replies_owe_cnp(struct vb_endpoint *ep);
/* The packet that a NAK would ask for has come. */
void vb_engine_replies_cancel_nak(struct vb_endpoint *ep);

/* No further READ or atomic may come: max_dest_rd_atomic of them are not answered. */
bool vb_engine_replies_full(const struct vb_endpoint *ep);
/* A new READ or atomic, to be answered; not when they are full. */
void vb_engine_replies_add(struct vb_endpoint *ep, const struct vb_record *record);
/* The kept one in whose packets `psn` lies, and which of them it is; NULL: none. */
const struct vb_record *vb_engine_replies_find(const struct vb_endpoint *ep, uint32_t psn,
                                               uint32_t *index);
/* Answers that again: so many packets from `index` on, or all if the connection does not adapt. */
void vb_engine_replies_repeat(struct vb_endpoint *ep, const struct vb_record *record,
                              uint32_t index, uint32_t count, uint64_t now);
/* Nothing is owed any more. */
void vb_engine_replies_drop(struct vb_endpoint *ep);

/* A READ response cannot be given: the QP fails with this (responder.c). */
void vb_engine_responder_fail_read(struct vb_endpoint *ep, uint32_t psn,
                                   struct vb_evidence *evidence);

#endif
