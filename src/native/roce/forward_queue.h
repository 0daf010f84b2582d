// SPDX-License-Identifier: Apache-2.0
/*
 * The queue of packets for one other process of this host, which owns a slot: a connection to its
 * abstract socket, and the packets that wait until that takes more. forward.c has the queues and
 * says when to try again. Packets leave in their order. They are dropped when no process has the
 * slot any more, as the queue pairs are gone for which they were meant.
 */
#ifndef VB_ROCE_FORWARD_QUEUE_H
#define VB_ROCE_FORWARD_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "hca/packet.h"

/*
 * What precedes a forwarded packet's bytes, in the host's byte order, as both ends are on one host.
 */
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
    uint64_t used; /* when a packet was last sent to it: the number of that send among those of all
                      queues */
    struct vb_forward_kept *first, *last;
    uint64_t kept; /* bytes of the packets that wait */
};

static inline bool vb_roce_forward_queue_waits(const struct vb_forward_queue *queue)
{
    return queue->first != NULL;
}

/*
 * Sends a packet at once: 0, -EAGAIN (the owner takes no more for now), -EPIPE (the connection has
 * ended).
 */
int vb_roce_forward_queue_send(const struct vb_forward_queue *queue,
                               const struct vb_arrival *arrival);
/* Keeps a packet behind those that wait. -ENOMEM. */
int vb_roce_forward_queue_keep(struct vb_forward_queue *queue, const struct vb_arrival *arrival);
/* Sends what waits, as far as the owner takes it. Returns as vb_roce_forward_queue_send. */
int vb_roce_forward_queue_drain(struct vb_forward_queue *queue);
/* Drops what waits. */
void vb_roce_forward_queue_clear(struct vb_forward_queue *queue);

#endif
