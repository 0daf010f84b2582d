// SPDX-License-Identifier: Apache-2.0
/* A packet in the simulated fabric: one cache line, in one growing array, named by its place. */
#ifndef VB_EVENT_PACKET_H
#define VB_EVENT_PACKET_H

#include <stdint.h>

#include "wire/headers.h"

enum {
    VB_SIM_HEADER = VB_BTH + VB_ATOMICETH, /* the longest headers of a packet that is simulated */
    VB_SIM_LANES = 16,                     /* virtual lanes, or traffic classes */
    VB_SIM_FLAGS_AT = 4,   /* the byte of the BTH whose reserved bits are enum vb_sim_flag */
    VB_SIM_HOPS_AT = 8,    /* the byte of the BTH whose seven reserved bits are the hop limit… */
    VB_SIM_HOPS_MAX = 127, /* …which IP's header has */
};

static const uint32_t VB_SIM_NONE = UINT32_MAX;

enum vb_sim_mark {
    VB_SIM_CE = 1,         /* congestion experienced: a switch marked it (RFC 3168) */
    VB_SIM_TO_GROUP = 2,   /* its target is a multicast group */
    VB_SIM_COPY = 4,       /* one of several, whose place in an input buffer is kept by another */
    VB_SIM_MANAGEMENT = 8, /* it goes on VL15, where there is one */
};

enum vb_sim_flag {
    VB_SIM_LETTER = 1,   /* a program's: there are bytes to it (jack.h) */
    VB_SIM_PROMISED = 2, /* its way keeps buffer for it */
    VB_SIM_FLOODED = 4,  /* a switch did not know the way: only its target's host may take it */
    VB_SIM_TCP = 8,      /* a segment of a TCP connection */
    VB_SIM_AROUND = 16,  /* it goes by way of a third group, and has not been there (detour.h) */
};

struct vb_sim_packet {
    uint64_t at;             /* when it arrives at the end of the link that it is on */
    uint32_t next;           /* in the list that it is in */
    uint16_t source, target; /* hosts */
    uint16_t bytes;          /* on the wire, with everything that takes time there */
    uint16_t payload;
    uint16_t input;      /* port of the switch that it is in, by which it came */
    uint8_t lane;        /* on the link by which it came */
    uint8_t level_marks; /* service level or priority in the high half, enum vb_sim_mark */
    uint8_t header[VB_SIM_HEADER];
};

_Static_assert(sizeof(struct vb_sim_packet) == 64, "a packet is one line");

struct vb_sim_pool {
    struct vb_sim_packet *packet;
    uint32_t free; /* the first that is free */
    uint32_t made, room;
    uint32_t in_use;
};

/* VB_SIM_NONE: no memory. Packets move in memory when the pool grows. */
uint32_t vb_world_sim_pool_grow(struct vb_sim_pool *pool);
void vb_world_sim_pool_free(struct vb_sim_pool *pool);

static inline uint32_t vb_world_sim_pool_take(struct vb_sim_pool *pool)
{
    uint32_t taken = pool->free;

    if (__builtin_expect(taken == VB_SIM_NONE, 0)) {
        taken = vb_world_sim_pool_grow(pool);
        if (taken == VB_SIM_NONE)
            return taken;
    } else {
        pool->free = pool->packet[taken].next;
    }
    ++pool->in_use;
    return taken;
}

/* The one given back last is taken next: an answer is made in the line of what it answers. */
static inline void vb_world_sim_pool_give(struct vb_sim_pool *pool, uint32_t number)
{
    pool->packet[number].next = pool->free;
    pool->free = number;
    --pool->in_use;
}

#endif
