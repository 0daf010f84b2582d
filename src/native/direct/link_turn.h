// SPDX-License-Identifier: Apache-2.0
/*
 * The rates of links in a live fabric. What a queue pair sends over links that have a rate waits
 * until the time of its bytes is over on each of them (struct vb_fabric_meter). A request reserves
 * its time piece by piece, so that several senders share a link. All functions need the QP's send
 * lock.
 */
#ifndef VB_DIRECT_LINK_TURN_H
#define VB_DIRECT_LINK_TURN_H

#include <stdbool.h>
#include <stdint.h>

struct ibv_send_wr;
struct vb_connection;
struct vb_fabric_flow;

/* Zeros: nothing was sent yet. Times are in 1/64 ns. */
struct vb_link_turn {
    uint64_t due;     /* when the time that was reserved last is over */
    uint64_t left;    /* bytes of the present request for which none is reserved yet */
    bool is_begun;    /* there is a present request */
    bool is_response; /* its bytes come from the peer: a READ */
};

/* Has the QP to wait before it carries this request out? Then the request waits as for a rate. */
bool vb_direct_link_turn_waits(struct vb_connection *to, struct vb_fabric_flow *flow,
                               const struct ibv_send_wr *wr);

#endif
