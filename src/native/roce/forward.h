// SPDX-License-Identifier: Apache-2.0
/*
 * Packets that reached the wrong process of this host, on their way to the right one: over the
 * abstract socket that is named after the slot, with what came with them. Only processes of the
 * same user do that for each other.
 *
 * SOCK_SEQPACKET: a datagram socket would queue ten messages by default (net.unix.max_dgram_qlen),
 * these as many as the buffer holds. What an owner takes no more of waits here, in its order, up to
 * 16 MiB for one owner and 64 MiB for all: an owner that is busy, or stopped, loses nothing before.
 */
#ifndef VB_ROCE_FORWARD_H
#define VB_ROCE_FORWARD_H

#include <stdbool.h>
#include <stdint.h>

#include "hca/packet.h"

struct vb_forward;

typedef void vb_forwarded_fn(void *argument, const struct vb_arrival *arrival, uint64_t now);

int vb_roce_forward_open(uint16_t port, vb_forwarded_fn *deliver, void *argument,
                         struct vb_forward **forward);
void vb_roce_forward_close(struct vb_forward *forward);
/* In a forked child. */
void vb_roce_forward_abandon(struct vb_forward *forward);

/* Packets for this slot may be sent here. -EADDRINUSE: another process holds the name. */
int vb_roce_forward_accept(struct vb_forward *forward, uint32_t slot);
/*
 * To the owner of the slot, now or as soon as it takes more: 0, -ENOENT (there is none), -EAGAIN
 * (too much waits already), -EACCES (the slot's name is another user's).
 */
int vb_roce_forward_send(struct vb_forward *forward, uint32_t slot,
                         const struct vb_arrival *arrival, uint64_t now);

/* Readable when vb_roce_forward_serve has something to deliver or to send, or a connection of a
 * dead process's to close; it also has at the deadline (UINT64_MAX: none). */
int vb_roce_forward_fd(const struct vb_forward *forward);
uint64_t vb_roce_forward_deadline(const struct vb_forward *forward);
void vb_roce_forward_serve(struct vb_forward *forward, uint64_t now);
/* Before a process ends: what waits leaves, as far as its owners take it. False: all has left. */
bool vb_roce_forward_push(struct vb_forward *forward, uint64_t now);

#endif
