// SPDX-License-Identifier: Apache-2.0
/*
 * Packets that came before one that is missing. An engine whose configuration asks for it keeps
 * them until that one comes, and waits a little before it says that it is lost: as long as the
 * way to that peer has shown that packets overtake each other by. The responder keeps requests so,
 * the completer responses. The memory is the engine's, and what finds no room is dropped.
 */
#ifndef VB_TRANSPORT_GAP_H
#define VB_TRANSPORT_GAP_H

#include "transport/transport.h"

struct vb_held {
    struct vb_held *next;
    uint32_t psn;
    uint64_t at; /* when it came */
    struct vb_arrival arrival;
    uint8_t bytes[VB_HEADERS_MAX + 4096];
};

/* 0, or -ENOMEM. */
int vb_engine_gap_open_store(struct vb_engine *engine);
void vb_engine_gap_close_store(struct vb_engine *engine);

/*
 * A packet beyond the one that is missing. True: the wait for that one is over, and it is to be
 * asked for; true once only.
 */
bool vb_engine_gap_hold(struct vb_endpoint *ep, struct vb_gap *gap, const struct vb_incoming *in);
/* The same without a packet to keep. */
bool vb_engine_gap_seen(struct vb_endpoint *ep, struct vb_gap *gap, uint64_t now);
/* What was asked for has not come, though what was sent later was answered: it is lost again. */
void vb_engine_gap_lost_again(struct vb_gap *gap, uint64_t now);
/* The endpoint's timer is due. True: the wait is over; once. */
bool vb_engine_gap_expired(struct vb_endpoint *ep, struct vb_gap *gap, uint64_t now);
/* The kept packet with this PSN, and none before it is kept any more; NULL: it has not come. */
struct vb_held *vb_engine_gap_take(struct vb_endpoint *ep, struct vb_gap *gap, uint32_t psn);
/* As it came in; `in` is another packet of the connection's. */
void vb_engine_gap_read(const struct vb_held *held, struct vb_incoming *in);
void vb_engine_gap_release(struct vb_engine *engine, struct vb_held *held);
/*
 * What was missing at `psn` has come, and all that could be taken was: nothing is missing, or the
 * next. True: the wait for that one is over as well.
 */
bool vb_engine_gap_closed(struct vb_endpoint *ep, struct vb_gap *gap, uint32_t psn, uint64_t now);
/* A packet came again: after it was asked for in vain, it was only late. */
void vb_engine_gap_duplicate(struct vb_endpoint *ep, struct vb_gap *gap, uint32_t psn);
/* Nothing is kept any more. */
void vb_engine_gap_forget(struct vb_engine *engine, struct vb_gap *gap);

#endif
