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
 * (ids.c), and of datagrams one more for each millisecond in which the counter could have moved and
 * did not, since the network may have delayed the packet before. With DF set no single flipped bit
 * of a packet up to 4,500 bytes looks like another identification; two or more pass as random
 * damage does.
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
    VB_IDS_SEGMENTS, /* by the segment's number in its batch, as Verbena and Linux do; or always 0
                      */
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
    struct vb_ids_seen believed; /* the highest that was believed, and when the last packet came */
    uint16_t unspent;            /* ticks of its clock by which the counter did not move */
    uint8_t kind;                /* enum vb_ids_kind */
    uint8_t doubts;              /* packets that were not believed since one was */
    uint8_t placed; /* of a sender that counts: packets in a row whose ICRC held as they say */
};

/*
 * A flow, which is what one sender sends from one UDP port, with its last packet that was not
 * believed.
 */
struct vb_ids_flow {
    struct vb_ids_pair pair;
    struct vb_icrc_unseen believed; /* the highest that was believed */
    bool is_known;                  /* there is one */
    uint8_t unconfirmed; /* for unconfirmed.c: the place of the packet that is kept, counted from 1;
                            0: none */
    uint16_t source_port;
    uint64_t used; /* the last of `uses` */
    struct vb_icrc_unseen doubted;
    bool is_doubted; /* there is one */
};

/*
 * What is remembered of a packet that was not believed: a CRC of its bytes, and its identification.
 */
struct vb_ids_remembered {
    struct vb_ids_pair pair;
    uint32_t content, length;
    uint16_t id, source_port;
};

struct vb_ids {
    struct vb_ids_pair placed; /* a sender whose last packets' ICRCs held as they say; 0: none */
    unsigned next_remembered;
    struct vb_ids_remembered remembered[VB_IDS_REMEMBERED]; /* of all flows */
    uint64_t uses;
    bool counts; /* there is, or was, a sender that counts */
    bool shared; /* other processes of this host get packets that are not seen here */
    struct vb_ids_sender
        sender[VB_IDS_SENDERS]; /* by a hash: a later sender replaces an earlier one */
    struct vb_ids_flow flow[VB_IDS_SETS][VB_IDS_WAYS]; /* by a hash: the flow that was used longest
                                                          ago is replaced */
};

/* A packet whose ICRC does not hold with the identification that it says. */
struct vb_ids_doubt {
    struct vb_ids_pair pair;
    struct vb_icrc_unseen unseen; /* the identification with which it would hold */
    uint32_t content; /* the ICRC's register at its end, with the identification that it says */
    uint32_t length;
    uint16_t source_port;
    bool reliable; /* the sender sends it again if it is not believed */
    uint64_t now;
    uint64_t earliest; /* the earliest time at which it can have come: the reader may be late */
};

/* The identification that a packet's own bytes say: the number of its segment (VB_BTH_SEGMENT). */
static inline uint16_t vb_roce_ids_segment(const uint8_t *bth)
{
    return bth[VB_BTH_SEGMENT_AT] & VB_BTH_SEGMENT;
}

/* The flow's entry, new or known. It is replaced when other flows need the place. */
struct vb_ids_flow *vb_roce_ids_flow(struct vb_ids *ids, struct vb_ids_pair pair,
                                     uint16_t source_port);
void vb_roce_ids_note_placed(struct vb_ids *ids, struct vb_ids_pair pair, uint16_t source_port,
                             uint16_t id, uint64_t now);

/*
 * Was the last packet of this pair noted already, as for most packets? Else
 * vb_roce_ids_note_placed.
 */
static inline bool vb_roce_ids_is_noted(const struct vb_ids *ids, struct vb_ids_pair pair)
{
    return ids->placed.source == pair.source && ids->placed.target == pair.target;
}

enum vb_ids_verdict {
    VB_IDS_WRONG,
    VB_IDS_RIGHT,
    VB_IDS_DOUBTED,  /* it is to be kept until the flow's next packet confirms it (unconfirmed.h) */
    VB_IDS_CONFIRMS, /* the flow's unconfirmed packet is right; after it this one is to be checked
                        again */
};

/* Can its sender have used that identification? `flow` is the packet's. */
enum vb_ids_verdict vb_roce_ids_check(struct vb_ids *ids, struct vb_ids_flow *flow,
                                      const struct vb_ids_doubt *doubt);

#endif
