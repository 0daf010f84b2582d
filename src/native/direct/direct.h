// SPDX-License-Identifier: Apache-2.0
/*
 * The direct carrier: both ends of a connection are on this host, in one process or in two. The
 * host (host/host.c) opens one for its adapter.
 *
 * Each process claims slots (slot.h); a slot names a socket on which its service thread answers
 * peers. Two processes that connect exchange their segments (peer.h), and from then on the poster's
 * own thread carries requests out in the peer's memory (requester.c). The service thread sleeps
 * unless a peer comes, dies, or asks for help.
 */
#ifndef VB_DIRECT_DIRECT_H
#define VB_DIRECT_DIRECT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "direct/counters.h"
#include "direct/later.h"
#include "direct/other_build.h"
#include "direct/peer.h"
#include "direct/query.h"
#include "hca/adapter.h"
#include "hca/host_calls.h"
#include "lock/mutex.h"
#include "port/address.h"

/* How a peer's own memory is reached; what the environment may force. */
enum vb_way { VB_WAY_ANY = 0, VB_WAY_SHARED, VB_WAY_CMA, VB_WAY_BOUNCE };

/* A port has changed, in a live fabric; called by the service thread. */
typedef void vb_direct_event_fn(void *argument, uint8_t port_num, enum ibv_event_type type);

struct vb_direct_config {
    struct vb_adapter *adapter; /* the host's, whose ports have their addresses */
    enum vb_way force;          /* VB_WAY_ANY: probe */
    vb_direct_count_fn *count;  /* NULL: questions for counters get no answer */
    bool manages;               /* the first slot is the host's slot 0 */
    vb_direct_event_fn *event;  /* may be NULL */
    void *event_argument;
};

extern const struct vb_carrier vb_direct_carrier;
extern const struct vb_carrier vb_direct_fabric_carrier; /* of connections in a live fabric */

/* The retry thread's work (retry.h). */
struct vb_retry {
    struct vb_mutex mutex;
    pthread_cond_t work; /* the thread sleeps here */
    pthread_cond_t left; /* those sleep here who wait until it has no hand on a QP */
    bool idle;           /* it sleeps until it is woken; else it looks again by itself */
    struct vb_qp *first;
    _Atomic bool any;      /* is there a first? Who polls looks at it without the mutex */
    _Atomic bool hurried;  /* a request waits for less than its shortest pause */
    struct vb_qp *current; /* being served, outside the mutex */
    bool looks;            /* after calls that wait (vb_vigils_look) */
    bool stopping;
    pthread_t thread;
};

struct vb_direct {
    struct vb_adapter *adapter;
    enum vb_way force;
    vb_direct_count_fn *count;
    bool manages;
    vb_direct_event_fn *event;
    void *event_argument;
    uint32_t slots[VB_MAX_SLOTS];
    int listeners[VB_MAX_SLOTS];
    _Atomic uint32_t slot_count;
    uint64_t probe[2]; /* what a peer reads and writes to see whether it can */

    struct vb_mutex connect_mutex; /* one handshake at a time; the service thread never takes it */
    atomic_bool has_connected_all; /* vb_direct_peer_connect_all */
    uint32_t silent_slot;          /* its process did not answer: it may be stopped */
    uint64_t silent_until;         /* ns */
    struct vb_mutex peers_mutex;
    struct vb_peer *peers;
    struct vb_other_build
        other_builds[VB_OTHER_BUILDS]; /* under peers_mutex, as `other_build_next` */
    uint32_t other_build_next;
    struct vb_mutex serve_mutex; /* held while a peer's bounce job is carried out */
    struct vb_mutex links_mutex;
    struct link *links; /* sockets that the service thread watches (service.c) */
    struct vb_peer self_peer;

    int epoll_fd;
    int wake_fd;
    int spare_fd; /* closed for a moment, to refuse a connection when no descriptor is left */
    struct vb_mutex spare_mutex; /* protects spare_fd: no handshake here may take its number */
    atomic_bool stopping;
    pthread_t thread;
    struct vb_retry retry;
    struct vb_later later;
    struct vb_direct_counts counts; /* of queue pairs that have ended */
};

/* Negative errno: -ENOMEM, -EMFILE, -EUSERS (every slot of the host is taken) or what the system
 * said. */
int vb_direct_open(const struct vb_direct_config *config, struct vb_direct **direct);
void vb_direct_close(struct vb_direct *direct);

/* In a forked child: closes the descriptors through which peers would take it for its parent. */
void vb_direct_abandon(struct vb_direct *direct);

/* JSON about slots, heap and peers, and `more` as its last member; returns the length as snprintf
 * does. */
int vb_direct_describe(struct vb_direct *direct, const char *more, char *json, size_t size);

/* Of an adapter that a host opened. */
static inline struct vb_direct *vb_direct_of(const struct vb_adapter *adapter)
{
    return adapter->direct;
}

/* ---- a part of a vb_host_calls' calls (hca/host_calls.h) ---- */

/* A queue pair's number begins with one of this process's slots: the first QP in a block of the
 * table that has no slot yet claims one for it. */
int vb_direct_number(struct vb_direct *direct, uint32_t index, uint32_t *qp_num);
/* INIT to RTR, of a connected QP: finds the peer. 0 also if it is not there yet; -EPROTONOSUPPORT:
 * it is of another build (other_build.h). */
int vb_direct_connect(struct vb_qp *qp);
/* Of any QP, whatever its carrier. */
void vb_direct_disconnect(struct vb_qp *qp);
void vb_direct_attend(struct vb_qp *qp);
void vb_direct_progress(struct vb_cq *cq);

/* Is this address one of the host's own, by its GID or by its LID? */
bool vb_direct_is_local(struct vb_direct *direct, const struct ibv_ah_attr *ah);

uint64_t vb_direct_now(void);                               /* ns, monotonic */
uint64_t vb_direct_clock(const struct vb_adapter *adapter); /* vb_host_calls.now: the same */

/* How long a poster waits for a peer's help, in ns. A peer that is stopped (SIGSTOP, a debugger)
 * must not stop the poster: after this the request waits in its queue. */
enum { VB_DIRECT_PATIENCE = 20 * 1000 * 1000 };

#endif
