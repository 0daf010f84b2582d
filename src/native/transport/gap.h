// SPDX-License-Identifier: Apache-2.0
/*
 * Packets that came before a missing one. An engine that adapts keeps them until the missing packet
 * comes, and waits before it takes that packet for lost: as long as packets to this peer address
 * have been seen to overtake each other. The responder (early.h) keeps requests here, the completer
 * responses. The room belongs to the engine; a packet that finds none is dropped.
 */
#ifndef VB_TRANSPORT_GAP_H
#define VB_TRANSPORT_GAP_H

#include "transport/transport.h"

struct vb_held {
    struct vb_held *next;
    uint32_t psn;
    uint64_t at; /* time of arrival */
    struct vb_arrival arrival;
    uint8_t bytes[VB_HEADERS_MAX + 4096];
};

/* 0, or -ENOMEM. */
int vb_engine_gap_open_store(struct vb_engine *engine);
void vb_engine_gap_close_store(struct vb_engine *engine);

/*
 * Keeps a packet that came before the one that is missing at `missing`. True: the wait for the
 * missing one is over, and the caller asks for it. That is returned only once. A packet that is far
 * ahead is not kept: it is more likely of an earlier connection of the same queue pairs.
 */
bool vb_engine_gap_hold(struct vb_endpoint *ep, struct vb_gap *gap, uint32_t missing,
                        const struct vb_incoming *in);
/* Drops all kept packets if one is there for so long that what is before it no longer comes. */
void vb_engine_gap_forget_old(struct vb_engine *engine, struct vb_gap *gap, uint64_t now);
/* The same, without keeping a packet. */
bool vb_engine_gap_seen(struct vb_endpoint *ep, struct vb_gap *gap, uint64_t now);
/* The packet that was asked for was lost again: one that was sent later has been answered. */
void vb_engine_gap_lost_again(struct vb_gap *gap, uint64_t now);
/* The recovery timer has expired. True, only once: the wait is over. */
bool vb_engine_gap_expired(struct vb_endpoint *ep, struct vb_gap *gap, uint64_t now);
/* Takes out the kept packet with this PSN, and drops those before it. NULL: it has not come. */
struct vb_held *vb_engine_gap_take(struct vb_endpoint *ep, struct vb_gap *gap, uint32_t psn);
/* Makes `in`, a copy of another packet of the connection, the kept packet as it came in. */
void vb_engine_gap_read(const struct vb_held *held, struct vb_incoming *in);
void vb_engine_gap_release(struct vb_engine *engine, struct vb_held *held);
/*
 * The packet that was missing at `psn` has come, and all kept ones that follow it were taken. If
 * another packet is missing now, true says that the wait for that one is over as well.
 */
bool vb_engine_gap_closed(struct vb_endpoint *ep, struct vb_gap *gap, uint32_t psn, uint64_t now);
/* A packet came twice. If it had been asked for, it was only late, and later waits are longer. */
void vb_engine_gap_duplicate(struct vb_endpoint *ep, struct vb_gap *gap, uint32_t psn);
/* Drops all kept packets. */
void vb_engine_gap_forget(struct vb_engine *engine, struct vb_gap *gap);

#endif
