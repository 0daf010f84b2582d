// SPDX-License-Identifier: Apache-2.0
/*
 * Which IPv4 identifications a sender can have used. udp_receive.c asks this of every packet over
 * IPv4: the ICRC covers the identification and no socket shows it, so a packet is undamaged only if
 * its ICRC is right with an identification that can be.
 *
 * A packet's place is in its own bytes: 0, or what the six reserved bits of BTH byte 4 say. Verbena
 * writes there which segment of its batch a packet is (udp.h), and Linux numbers the segments so,
 * with "don't fragment" (DF) set. Such a packet needs nothing that is learnt, and its check is the
 * whole CRC. Byte 4 is not in the ICRC (IBA 9.8), so a flipped bit in it is the same as that bit
 * flipped in the identification: no one to three flipped bits pass, as with a header that is seen.
 *
 * Others count: Linux' rdma_rxe has one counter for all packets from an address to another, and
 * lets it jump by up to one per timer tick while it is silent. Its flows (UDP source ports)
 * overtake each other, as Linux' fq_codel gives each its turn after the packets have their
 * identifications; within a flow the order holds. So what was believed last is kept here of each
 * sender and of each flow, and believed are the few of the 2^16 identifications that follow either
 * (ids.c), and of datagrams one more for each millisecond of the sender's silence. With DF set no
 * single flipped bit of a packet up to 4,500 bytes looks like another identification; two or more
 * pass as random damage does.
 *
 * A packet that has an identification, but none that is expected, is unconfirmed: its reader keeps
 * it (unconfirmed.h). If the flow's next packet follows it, both are right, since two
 * identifications agree. So is one whose bytes came before under another identification: damage
 * does not repeat itself.
 *
 * All calls are under the caller's lock, like those of udp.h.
 */
#ifndef VB_ROCE_IDS_H
#define VB_ROCE_IDS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/headers.h"
#include "wire/icrc.h"

enum { VB_IDS_SENDERS = 256, VB_IDS_SETS = 32, VB_IDS_WAYS = 8, VB_IDS_REMEMBERED = 64 };

/* How a sender numbers its packets. */
enum vb_ids_kind {
    VB_IDS_UNKNOWN,
    VB_IDS_SEGMENTS, /* by the place in the batch, as ours does; or always 0 */
    VB_IDS_COUNTS,
};

struct vb_ids_pair {
    uint32_t source, target;
};

struct vb_ids_seen {
    struct vb_icrc_unseen unseen;
    uint64_t when; /* ns */
};

struct vb_ids_sender {
    struct vb_ids_pair pair;
    struct vb_ids_seen believed; /* the furthest; when the last one came */
    uint8_t kind;                /* enum vb_ids_kind */
    uint8_t doubts;              /* since a packet was believed */
    uint8_t placed;              /* of one that counts: packets that were right as they say */
};

/* What one sender sends from one UDP port, and its last packet that was not believed. */
struct vb_ids_flow {
    struct vb_ids_pair pair;
    struct vb_icrc_unseen believed; /* the furthest */
    bool is_known;                  /* there is one */
    uint8_t unconfirmed; /* its reader's: which packet is kept (unconfirmed.h); 0: none */
    uint16_t source_port;
    uint64_t used; /* the last of `uses` */
    struct vb_icrc_unseen doubted;
    bool is_doubted; /* there is one */
};

/* The bytes of one that was not believed, and its identification. */
struct vb_ids_remembered {
    struct vb_ids_pair pair;
    uint32_t content, length;
    uint16_t id, source_port;
};

struct vb_ids {
    struct vb_ids_pair placed; /* its last packets were right as they say; 0: none */
    unsigned next_remembered;
    struct vb_ids_remembered remembered[VB_IDS_REMEMBERED]; /* of all flows */
    uint64_t uses;
    bool counts;                                       /* there is, or was, a sender that counts */
    struct vb_ids_sender sender[VB_IDS_SENDERS];       /* by a hash: a later one takes the place */
    struct vb_ids_flow flow[VB_IDS_SETS][VB_IDS_WAYS]; /* by a hash, the one used last stays */
};

/* A packet that is not right as it says. */
struct vb_ids_doubt {
    struct vb_ids_pair pair;
    struct vb_icrc_unseen unseen; /* what would make it right */
    uint32_t content; /* the register at its end, with the identification that it says */
    uint32_t length;
    uint16_t source_port;
    bool reliable; /* who sent it sends it again */
    uint64_t now;
    uint64_t earliest; /* it has not come before: a reader that is late finds it later than that */
};

/* What a packet's bytes say of its identification. */
static inline uint16_t vb_roce_ids_segment(const uint8_t *bth)
{
    return bth[VB_BTH_SEGMENT_AT] & VB_BTH_SEGMENT;
}

/* It is forgotten when other flows need its place. */
struct vb_ids_flow *vb_roce_ids_flow(struct vb_ids *ids, struct vb_ids_pair pair,
                                     uint16_t source_port);
void vb_roce_ids_note_placed(struct vb_ids *ids, struct vb_ids_pair pair, uint16_t source_port,
                             uint16_t id, uint64_t now);

/* A packet of this pair was right as it says; `id` is what it said. Nothing for most packets. */
static inline bool vb_roce_ids_is_noted(const struct vb_ids *ids, struct vb_ids_pair pair)
{
    return ids->placed.source == pair.source && ids->placed.target == pair.target;
}

enum vb_ids_verdict {
    VB_IDS_WRONG,
    VB_IDS_RIGHT,
    VB_IDS_DOUBTED,  /* it is to be unconfirmed */
    VB_IDS_CONFIRMS, /* the unconfirmed one is right; then this one is to be asked about again */
};

/* Can it have been sent like this? `flow` is the packet's. */
enum vb_ids_verdict vb_roce_ids_check(struct vb_ids *ids, struct vb_ids_flow *flow,
                                      const struct vb_ids_doubt *doubt);

#endif
