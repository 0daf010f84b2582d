// SPDX-License-Identifier: Apache-2.0
/*
 * The way to one process of this host that owns a slot: a connection to its abstract socket, and
 * the packets that wait until that takes more. forward.c keeps the queues, and says when to try
 * again.
 *
 * What waits leaves in its order. It is dropped when no process has the slot any more: the queue
 * pairs for which it was meant are gone.
 */
#ifndef VB_ROCE_FORWARD_QUEUE_H
#define VB_ROCE_FORWARD_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "hca/packet.h"

/* What comes with a packet, before its bytes. Of one host, so in its byte order. */
struct vb_forward_header {
    uint8_t sgid[16], dgid[16];
    uint32_t flow_label;
    uint8_t traffic_class, hop_limit;
    uint8_t reserved[2];
};

struct vb_forward_kept;

struct vb_forward_queue {
    uint32_t slot;
    int fd;        /* -1: not connected */
    uint64_t used; /* when it was last needed, in sends of all queues */
    struct vb_forward_kept *first, *last;
    uint64_t kept; /* bytes that wait */
};

static inline bool vb_roce_forward_queue_waits(const struct vb_forward_queue *queue)
{
    return queue->first != NULL;
}

/* Now: 0, -EAGAIN (the owner takes no more for now), -EPIPE (the connection has ended). */
int vb_roce_forward_queue_send(const struct vb_forward_queue *queue,
                               const struct vb_arrival *arrival);
/* Later, behind what waits already. -ENOMEM. */
int vb_roce_forward_queue_keep(struct vb_forward_queue *queue, const struct vb_arrival *arrival);
/* What waits, as far as the owner takes it: returned as by vb_roce_forward_queue_send. */
int vb_roce_forward_queue_drain(struct vb_forward_queue *queue);
/* Drops what waits. */
void vb_roce_forward_queue_clear(struct vb_forward_queue *queue);

#endif
