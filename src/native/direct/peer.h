// SPDX-License-Identifier: Apache-2.0
/*
 * A peer: another process's adapter, as this process reaches it. A peer is made by the handshake
 * and freed with its last reference. `gone` says that its process has ended.
 */
#ifndef VB_DIRECT_PEER_H
#define VB_DIRECT_PEER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "direct/bounce.h"
#include "hca/layout.h"
#include "lock/mutex.h"

struct vb_direct;

/* A channel of the peer's that this process may wake. */
struct vb_peer_channel {
    uint32_t serial;
    int write_fd, read_fd; /* the reading end is kept so that a write never raises SIGPIPE */
};

enum { VB_PEER_CHANNELS = 64 };

struct vb_peer {
    struct vb_peer *next;
    atomic_bool gone;
    bool self;
    _Atomic uint32_t refs;
    _Atomic uint32_t links; /* connections to it: two, if both sides began one at a time */
    uint32_t instance;
    uint32_t slots[VB_MAX_SLOTS]; /* in the order of its QP table, 0 where unknown */
    pid_t pid;                    /* in this process's PID namespace, 0 if not visible there */
    _Atomic int socket;           /* messages to the peer's service thread */
    int retired;                  /* that of the connection which ended first; -1: none has */
    struct vb_view view;
    uint64_t segment_size;
    uint8_t *heap; /* its heap file, mapped; NULL if it has none or it cannot be */
    uint64_t heap_size;
    bool cma;      /* its own memory is reached by cross-process copy */
    int cma_error; /* why not */
    struct vb_bounce bounce;
    struct vb_mutex mutex;        /* channels */
    struct vb_mutex bounce_mutex; /* held while the peer's answer is waited for */
    struct vb_peer_channel channels[VB_PEER_CHANNELS];
    unsigned channel_next; /* the entry to reuse */
};

/* Finds the process behind a QP number, connecting to it if need be, and takes a reference. NULL:
 * there is none. */
struct vb_peer *vb_direct_peer_find(struct vb_direct *direct, uint32_t qp_num);
/*
 * The same; why not: -ECONNREFUSED: no process has the number; -EAGAIN: it does not answer;
 * -EACCES: another user's; -EPROTONOSUPPORT: another build (other_build.h); -EPIPE: it ended the
 * handshake; or what the system says.
 */
int vb_direct_peer_reach(struct vb_direct *direct, uint32_t qp_num, struct vb_peer **peer);
/* The same among the peers that this process is connected to already. */
struct vb_peer *vb_direct_peer_find_known(struct vb_direct *direct, uint32_t qp_num);
/*
 * Connects to every process of the host that has the device open now. The first call does it: a
 * process that comes later and joins a group connects to this one.
 */
void vb_direct_peer_connect_all(struct vb_direct *direct);
/*
 * All peers of this process, itself first, with a reference each; returns their number. The caller
 * frees the array. 0: there is no memory.
 */
uint32_t vb_direct_peer_hold_all(struct vb_direct *direct, struct vb_peer ***peers);

/* Is the QP number one of the peer's? */
bool vb_direct_peer_has(const struct vb_peer *peer, uint32_t qp_num);
void vb_direct_peer_put(struct vb_direct *direct, struct vb_peer *peer);

/* The QP's entry in the peer's table, NULL if the number is not one of its own. */
struct vb_qp_shared *vb_direct_peer_qp(struct vb_peer *peer, uint32_t qp_num);
uint32_t vb_direct_peer_qp_index(const struct vb_peer *peer, const struct vb_qp_shared *qp);

#endif
