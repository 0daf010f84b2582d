// SPDX-License-Identifier: Apache-2.0
/* The rates of links in a live fabric (link_turn.h). */
#include "direct/link_turn.h"

#include <stdatomic.h>

#include "direct/flow.h"
#include "direct/retry.h"

#define UNITS_OF_NS 64ull
#define UNITS_OF_MS (1000 * 1000 * UNITS_OF_NS)

enum {
    PIECE = 16 << 10, /* bytes: senders share a link in pieces of this */
    HEADERS = 30,     /* bytes of a packet beside its payload: LRH, BTH, AETH or DETH, CRCs */
};

/* A request leaves so much before its time is over: a wait costs more, and the rate holds, since
 * the next one waits for so much more. */
#define SLACK (4000 * UNITS_OF_NS)
/* What a sender that was woken late makes up for, as VB_PACE_LATE. */
#define MOST_LATE (20 * UNITS_OF_MS)
/* A meter that is further ahead was overwritten by a program. */
#define MOST_AHEAD (60 * 1000 * UNITS_OF_MS)

/* Reserves time for so many bytes, not before `from`, and returns its end. */
static uint64_t link_turn_reserve(struct vb_fabric_meter *meter, uint64_t from, uint64_t bytes)
{
    uint32_t rate = atomic_load_explicit(&meter->rate, memory_order_relaxed);
    uint64_t clear = atomic_load_explicit(&meter->clear, memory_order_relaxed), end;

    if (!rate)
        return from;
    do
        end = (clear > from && clear - from < MOST_AHEAD ? clear : from) +
              bytes * 8 * 1000 * 1000 * UNITS_OF_NS / rate;
    while (!atomic_compare_exchange_weak(&meter->clear, &clear, end));
    return end;
}

/* Reserves the next piece of the present request on all links of its way. */
static void link_turn_next(struct vb_link_turn *turn, const struct vb_fabric *fabric,
                           struct vb_fabric_flow *flow)
{
    uint64_t from = turn->due, piece = turn->left < PIECE ? turn->left : PIECE;

    for (int i = 0; i < VB_FABRIC_METERS; ++i) {
        uint32_t number =
            atomic_load_explicit(&flow->meters[turn->is_response][i], memory_order_relaxed);
        uint64_t end;

        if (!number || number > fabric->meter_count)
            break;
        end = link_turn_reserve(&fabric->meters[number - 1], from, piece);
        if (end > turn->due)
            turn->due = end;
    }
    turn->left -= piece;
    __atomic_store_n(&flow->waited[turn->is_response],
                     flow->waited[turn->is_response] + (turn->due - from) / UNITS_OF_NS,
                     __ATOMIC_RELAXED);
}

/* A request that was in the queue before its predecessor was done makes up for a late wake-up. */
static void link_turn_begin(struct vb_link_turn *turn, const struct vb_qp *qp,
                            const struct ibv_send_wr *wr, uint64_t now)
{
    bool was_queued = qp->sq_next != qp->sq_posted;
    uint64_t least = was_queued && now > MOST_LATE ? now - MOST_LATE : now, length, packets;

    packets = vb_direct_flow_packets(qp, wr, &length);
    turn->left = length + packets * HEADERS;
    turn->is_response = wr->opcode == IBV_WR_RDMA_READ;
    turn->is_begun = true;
    if (turn->due < least)
        turn->due = least;
}

VB_COLD bool vb_direct_link_turn_waits(struct vb_connection *to, struct vb_fabric_flow *flow,
                                       const struct ibv_send_wr *wr)
{
    struct vb_direct *direct = vb_direct_connection_direct(to);
    uint64_t now = vb_direct_now() * UNITS_OF_NS;
    struct vb_link_turn *turn = &to->turn;
    bool is_first = !turn->is_begun;

    if (is_first)
        link_turn_begin(turn, to->qp, wr, now);
    while (turn->left && turn->due <= now + SLACK)
        link_turn_next(turn, direct->adapter->fabric, flow);
    if (turn->due <= now + SLACK) {
        turn->is_begun = false;
        return false;
    }
    to->qp->wait.reason = VB_WAIT_RATE;
    if (is_first)
        vb_direct_retry_hurry(direct);
    return true;
}
