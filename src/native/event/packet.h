// SPDX-License-Identifier: Apache-2.0
/*
 * A packet of the simulated fabric. Packets lie in one array, a cache line each, and are named by
 * their index in it. All files of event and sim use them.
 *
 * An address is a LID on InfiniBand, and on Ethernet the lower 24 bits of an address of 10.0.0.0/8,
 * which are also the last three bytes of the port's MAC address. Unless Python has assigned others,
 * a host's address is its number + 1 on both. Group n has the multicast LID 0xc000 + n.
 */
#ifndef VB_EVENT_PACKET_H
#define VB_EVENT_PACKET_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/headers.h"

enum {
    VB_WORLD_HEADER = 38, /* bytes: those of a TCP acknowledgement with three SACK blocks */
    VB_WORLD_LANES = 16,  /* virtual lanes, or traffic classes */
    VB_WORLD_HOSTS = (1 << 24) - 2, /* the addresses of 10.0.0.0/8 (sim/attachment.h) */
    VB_WORLD_PERMISSIVE = 0xffff,   /* the LID of directed-route SMPs (IBA 4.1.3) */
};

_Static_assert((int)VB_WORLD_HEADER >= (int)(VB_BTH + VB_RETH + VB_IMM),
               "the longest headers of a flow's packet: flows send no atomics");

/* The fields of a TCP packet's header (sim/tcp.c): their offsets. Switches look at some of them. */
enum vb_world_tcp_field {
    /* byte 0 is 0, which as an opcode of a BTH is of no unreliable transport */
    VB_WORLD_TCP_FLOW_TOP = 1, /* 1 byte: the upper bits of the flow's number */
    VB_WORLD_TCP_FLAGS = 4,    /* 1 byte; its top bit is FECN, as in a BTH */
    VB_WORLD_TCP_FLOW = 5,     /* 3 bytes, where a BTH has the destination QP */
    VB_WORLD_TCP_NUMBER = 8,   /* 6 bytes */
    VB_WORLD_TCP_BLOCKS = 14,  /* up to three blocks of 8 bytes */
};

static const uint32_t VB_WORLD_NONE = UINT32_MAX;

enum vb_world_mark {
    VB_WORLD_CE = 1,         /* congestion experienced: a switch marked it (RFC 3168) */
    VB_WORLD_TO_GROUP = 2,   /* its target is a multicast group */
    VB_WORLD_COPY = 4,       /* it waits in a lane, and its keeper is in the input's buffer */
    VB_WORLD_MANAGEMENT = 8, /* it goes on VL15, where there is one */
};

enum vb_world_flag {
    VB_WORLD_HAS_BYTES = 1, /* a program sent it: sim/attachment.h has its bytes */
    VB_WORLD_RESERVED = 2,  /* it may use the buffer that its flow has reserved */
    VB_WORLD_FLOODED = 4,   /* a switch had no route for it: only its target's host takes it */
    VB_WORLD_TCP = 8,       /* a segment of a TCP connection */
    VB_WORLD_DETOUR = 16,   /* it has not reached the intermediate group yet (detour.h) */
};

struct vb_world_packet {
    union {
        uint64_t at;         /* on a link: when it arrives at the end */
        struct {             /* in a queue of a switch with lanes, or a keeper */
            uint32_t keeper; /* of a copy (VB_WORLD_COPY): the packet that keeps its room */
            uint16_t input;  /* the port by which it entered its switch */
        };
    };
    union {
        uint32_t next;   /* in its list */
        uint32_t copies; /* of a keeper, which is in no list: the number that has not left */
    };
    uint32_t source : 24;     /* an address */
    uint32_t lane : 8;        /* of the link by which it came */
    uint32_t target : 24;     /* an address, or a multicast group */
    uint32_t level_marks : 8; /* service level or priority in the high half, enum vb_world_mark */
    uint16_t bytes;           /* on the wire, with preamble and gap */
    uint16_t payload;
    uint8_t header[VB_WORLD_HEADER]; /* a BTH and what follows it, or enum vb_world_tcp_field */
    uint8_t flags;                   /* enum vb_world_flag */
    uint8_t hops;                    /* the hop limit that is left; 0: the world has none */
};

_Static_assert(sizeof(struct vb_world_packet) == 64, "a packet is one line");

/*
 * The memory of all packets: reserved addresses, of which pages are used as packets are taken for
 * the first time. Partitions take packets from it and give them back in batches, since a packet is
 * mostly given back in another partition than it was taken in.
 */
struct vb_world_packets {
    struct vb_world_packet *packet;
    uint32_t room;
    uint32_t made; /* packets that were ever taken */
    uint64_t full; /* the first of a list of free batches, and a number that each change adds to */
};

enum { VB_WORLD_BATCH = 64 };

/* The free packets of a partition, linked by `next`. */
struct vb_world_pool {
    struct vb_world_packet *packet; /* vb_world_packets.packet */
    struct vb_world_packets *all;
    uint32_t free, count; /* the list from which packets are taken; it is shorter than a batch */
    uint32_t spare;       /* a batch, or VB_WORLD_NONE */
    int64_t in_use;       /* packets that were taken here, less those that were given back here */
};

/* -ENOMEM. */
int vb_world_packets_open(struct vb_world_packets *packets);
void vb_world_packets_close(struct vb_world_packets *packets);
void vb_world_pool_open(struct vb_world_pool *pool, struct vb_world_packets *packets);
/* Gives all free packets to another pool. */
void vb_world_pool_close(struct vb_world_pool *pool, struct vb_world_pool *heir);

/* Gets a batch into `free`, which is empty. False: no memory. */
bool vb_world_pool_fill(struct vb_world_pool *pool);
/* Takes the batch out of `free`. */
void vb_world_pool_put_aside(struct vb_world_pool *pool);

/* Returns VB_WORLD_NONE without memory. Packets never move in memory. */
static inline uint32_t vb_world_pool_take(struct vb_world_pool *pool)
{
    uint32_t taken;

    if (__builtin_expect(pool->free == VB_WORLD_NONE, 0) && !vb_world_pool_fill(pool))
        return VB_WORLD_NONE;
    taken = pool->free;
    pool->free = pool->packet[taken].next;
    --pool->count;
    ++pool->in_use;
    return taken;
}

/* The packet that is given back last is taken first, while its line is in the cache. */
static inline void vb_world_pool_give(struct vb_world_pool *pool, uint32_t number)
{
    pool->packet[number].next = pool->free;
    pool->free = number;
    --pool->in_use;
    if (__builtin_expect(++pool->count == VB_WORLD_BATCH, 0))
        vb_world_pool_put_aside(pool);
}

#endif
