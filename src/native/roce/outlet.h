// SPDX-License-Identifier: Apache-2.0
/*
 * The way to one process of this host that owns a slot: a connection to its abstract socket, and
 * the packets that wait until that takes more. forward.c keeps the outlets, and says when to try
 * again.
 *
 * What waits leaves in its order. It is dropped when no process has the slot any more: the queue
 * pairs for which it was meant are gone.
 */
#ifndef VB_ROCE_OUTLET_H
#define VB_ROCE_OUTLET_H

#include <stdbool.h>
#include <stdint.h>

#include "hca/packet.h"

/* What comes with a packet, before its bytes. Of one host, so in its byte order. */
struct vb_letter {
    uint8_t sgid[16], dgid[16];
    uint32_t flow_label;
    uint8_t traffic_class, hop_limit;
    uint8_t reserved[2];
};

struct vb_kept_letter;

struct vb_outlet {
    uint32_t slot;
    int fd;        /* -1: not connected */
    uint64_t used; /* when it was last needed, in sends of all outlets */
    struct vb_kept_letter *first, *last;
    uint64_t kept; /* bytes that wait */
};

static inline bool vb_roce_outlet_waits(const struct vb_outlet *outlet)
{
    return outlet->first != NULL;
}

/* Now: 0, -EAGAIN (the owner takes no more for now), -EPIPE (the connection has ended). */
int vb_roce_outlet_send(const struct vb_outlet *outlet, const struct vb_arrival *arrival);
/* Later, behind what waits already. -ENOMEM. */
int vb_roce_outlet_keep(struct vb_outlet *outlet, const struct vb_arrival *arrival);
/* What waits, as far as the owner takes it: returned as by vb_roce_outlet_send. */
int vb_roce_outlet_drain(struct vb_outlet *outlet);
/* Drops what waits. */
void vb_roce_outlet_clear(struct vb_outlet *outlet);

#endif
