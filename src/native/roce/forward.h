// SPDX-License-Identifier: Apache-2.0
/*
 * Packets that reached the wrong process of this host are forwarded to the owner of their slot,
 * over the abstract Unix socket that is named after the slot. reuseport.c calls this under the
 * carrier's lock. Only processes of one user forward for each other.
 *
 * The sockets are SOCK_SEQPACKET: a datagram socket would queue ten messages by default
 * (net.unix.max_dgram_qlen), these queue as many as the buffer holds. What an owner takes no more
 * of waits here, in its order, up to 16 MiB for one owner and 64 MiB for all. So an owner that is
 * busy or stopped loses nothing before that.
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
/* In a forked child: only closes its copies of the descriptors. */
void vb_roce_forward_abandon(struct vb_forward *forward);

/*
 * From now on other processes can forward this slot's packets here. -EADDRINUSE: another process
 * holds the socket's name.
 */
int vb_roce_forward_accept(struct vb_forward *forward, uint32_t slot);
/*
 * Forwards a packet to the owner of the slot, now or as soon as it takes more: 0, -ENOENT (no
 * process owns the slot), -EAGAIN (too much waits already), -EACCES (another user's process owns
 * it).
 */
int vb_roce_forward_send(struct vb_forward *forward, uint32_t slot,
                         const struct vb_arrival *arrival, uint64_t now);

/*
 * Readable when vb_roce_forward_serve has something to deliver or to send, or a dead process's
 * connection to close. At the deadline (UINT64_MAX: none) it tries to connect again.
 */
int vb_roce_forward_fd(const struct vb_forward *forward);
uint64_t vb_roce_forward_deadline(const struct vb_forward *forward);
void vb_roce_forward_serve(struct vb_forward *forward, uint64_t now);
/* Before a process ends: sends what waits, as far as its owners take it. False: all has left. */
bool vb_roce_forward_push(struct vb_forward *forward, uint64_t now);

#endif
