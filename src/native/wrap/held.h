// SPDX-License-Identifier: Apache-2.0
/*
 * Packets that fault rules hold back or change: copies, as the engine's own do not stay. wrap.c has
 * a pool for each set of rules, whose memory is allocated at once. Calls exclude each other by
 * wrap.c's mutex.
 */
#ifndef VB_WRAP_HELD_H
#define VB_WRAP_HELD_H

#include "hca/packet.h"
#include "wrap/fault_rules.h"

enum { VB_HELD_BYTES = VB_HEADERS_MAX + 4096 + 8, VB_NOTE = 160 };

struct vb_held {
    /* the packet */
    enum vb_wrap_direction direction;
    uint32_t qp_num; /* ours */
    uint32_t header_length, length;
    uint32_t virtual_payload; /* payload bytes without contents (vb_piece) */
    uint32_t icrc_flip;       /* bits of its ICRC that are wrong */
    uint8_t pad, reason;
    uint32_t missing_psn, unanswered_us; /* as in vb_packet */
    uint16_t source_port, ip_id;         /* on the way in */
    bool may_fragment;
    struct vb_arrival arrival;
    struct vb_path path; /* on the way out */
    uint8_t grh[VB_GRH];
    struct vb_packet packet; /* made from the above by vb_wrap_held_packet */
    char note[VB_NOTE];      /* what a capture says of it */
    /* fields of the pool */
    struct vb_held_pool *pool;
    struct vb_held *next,
        *previous; /* in the list of free entries, or of those that wait for later packets */
    uint64_t due, order;
    uint32_t place; /* its place in the heap */
    uint32_t by;
    uint8_t bytes[VB_HELD_BYTES];
};

struct vb_held_pool;

/* -ENOMEM. */
int vb_wrap_held_create(uint32_t room, struct vb_held_pool **pool);
void vb_wrap_held_destroy(struct vb_held_pool *pool);

/* An entry to fill in, or NULL: all are taken. */
struct vb_held *vb_wrap_held_take(struct vb_held_pool *pool);
void vb_wrap_held_give_back(struct vb_held *held);
/* No entry is taken. */
bool vb_wrap_held_is_empty(const struct vb_held_pool *pool);

/* The packet is popped at `due`, or after `by` (if not 0) more packets of its QP have passed. */
void vb_wrap_held_push(struct vb_held *held, uint64_t due, uint32_t by);
/* A packet of this QP has passed. */
void vb_wrap_held_passed(struct vb_held_pool *pool, enum vb_wrap_direction direction,
                         uint32_t qp_num);
/*
 * Takes out the packet that is due first, and packets of one instant in the order pushed; NULL:
 * none is due.
 */
struct vb_held *vb_wrap_held_pop(struct vb_held_pool *pool, enum vb_wrap_direction direction,
                                 uint64_t now);
/* When the first packet is due; UINT64_MAX: none is held. */
uint64_t vb_wrap_held_deadline(const struct vb_held_pool *pool);
/* When the last packet of this direction is due; 0: none is held. */
uint64_t vb_wrap_held_last(const struct vb_held_pool *pool, enum vb_wrap_direction direction);
/* All packets become due at once. */
void vb_wrap_held_release(struct vb_held_pool *pool);

/* False: the packet does not fit. */
bool vb_wrap_held_copy_packet(struct vb_held *held, const struct vb_packet *packet);
bool vb_wrap_held_copy_arrival(struct vb_held *held, const struct vb_arrival *arrival);
void vb_wrap_held_copy(struct vb_held *held, const struct vb_held *from);
/* The packet as a carrier sends it. It stays as long as `held`. */
const struct vb_packet *vb_wrap_held_packet(struct vb_held *held);
const struct vb_arrival *vb_wrap_held_arrival(struct vb_held *held);

/* Flips one bit of one byte; the ICRC stays as it was, or is that of the new bytes. */
void vb_wrap_held_corrupt(struct vb_held *held, uint32_t offset, unsigned bit, bool good_icrc);
/* `length`: what is left at most, from the BTH. */
void vb_wrap_held_truncate(struct vb_held *held, uint32_t length, bool good_icrc);

#endif
