// SPDX-License-Identifier: Apache-2.0
/* The adapter of one process, the contexts opened on it, and the tables that both keep. */
#ifndef VB_HCA_ADAPTER_H
#define VB_HCA_ADAPTER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/verbs.h"
#include "hca/adapter_port.h"
#include "hca/decline.h"
#include "hca/keys.h"
#include "hca/layout.h"
#include "hca/random.h"
#include "lock/mutex.h"
#include "memory/ranges.h"

#define VB_LIKELY(x)   __builtin_expect(!!(x), 1)
#define VB_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define VB_COLD        __attribute__((cold, noinline)) /* keeps error paths out of the fast one */

struct vb_direct;
struct vb_engine;
struct vb_vigil;
struct vb_heap;
struct vb_host_calls;
struct vb_qp;
struct vb_cq;
struct vb_srq;
struct vb_mw;
struct vb_dm;

/*
 * Numbers 0 … limit-1, each given out once until it is returned. The one that was returned first is
 * given out first, and while there are unused ones, only when `resting` others were returned after
 * it.
 */
struct vb_pool {
    _Atomic uint32_t next;
    uint32_t limit;
    uint32_t resting;
    uint32_t free_first; /* the numbers in `free`, a ring, go on from here */
    uint32_t free_count;
    uint32_t free_room; /* a power of two */
    uint32_t *free;
};

int vb_pool_take(struct vb_pool *pool, uint32_t *number);
void vb_pool_return(struct vb_pool *pool, uint32_t number);

enum { VB_LOST_KINDS = 11 };

struct vb_adapter {
    struct vb_view self;
    uint32_t instance;
    bool barriers;    /* the kernel offers what biased locks need */
    atomic_bool gone; /* never set: what a waiter on an own lock looks at */
    const struct vb_host_calls *calls;
    struct vb_direct *direct;       /* what carries QPs between processes of this host, or NULL */
    const struct vb_engine *engine; /* the packet engine, where there is one */
    struct vb_heap *segment;        /* tables and rings */
    struct vb_heap *heap;           /* memory for applications; may be NULL */
    struct vb_mutex mutex;          /* the pools and tables below */
    struct vb_mutex groups;         /* multicast.h; taken before every other */
    struct vb_mutex lifetime; /* a QP stays while it is held; the port's threads never take it */
    struct vb_mutex xrc; /* an XRC SRQ stays while it is held; nothing is taken under it but the
                            locks of queues */
    struct vb_pool qp_pool, cq_pool, srq_pool, pd_pool;
    struct vb_keys keys;        /* of memory regions */
    struct vb_range *ranges;    /* of regions whose memory may go (gone.h), under… */
    struct vb_mutex gone_mutex; /* …this, with which nobody frees or waits */
    struct vb_qp **qps;         /* by table index; NULL where none is */
    uint64_t *live; /* a bit for each of these that may carry requests (vb_qp_set_live) */
    struct vb_cq **cqs;
    struct vb_srq **srqs;
    struct vb_adapter_port ports[VB_MAX_PORTS];
    uint8_t port_count;
    void (*tell)(const char *line); /* what a request waits for, for the log (overdue.h), or NULL */
    struct vb_vigil *vigils;        /* under `mutex`: threads that wait in a call (vigil.h) */
    atomic_bool told_datagram;      /* one that found no receive request */
    _Atomic uint64_t lost[VB_LOST_KINDS]; /* datagrams that went directly, by cause (lost.h) */
    uint32_t channel_serial;
    struct vb_random random; /* behind keys */
    struct vb_mutex binding; /* which windows there are, and what they are bound to */
    struct vb_mw *windows;
    uint8_t *zeros, *sink; /* what null regions read and write; NULL before the first */
    size_t dm_used;        /* bytes of device memory, under `mutex` */
    uint32_t dm_serial;
};

/* An index of one of the adapter's pools, under its mutex; negative errno where all are in use. */
int vb_adapter_take_index(struct vb_adapter *adapter, struct vb_pool *pool, uint32_t *index);
void vb_adapter_return_index(struct vb_adapter *adapter, struct vb_pool *pool, uint32_t index);
/* An index, and the number that the host gives it (vb_host_calls.number). */
int vb_adapter_take_number(struct vb_adapter *adapter, struct vb_pool *pool, uint32_t *index,
                           uint32_t *number);

struct vb_object {
    struct vb_object *next, **link;
    void (*release)(struct vb_object *object); /* for a context that is closed with it open */
    bool kept; /* its memory outlives it: the program holds it (vb_context_end) */
};

struct vb_context {
    struct ibv_context *ibv;
    struct vb_adapter *adapter;
    bool closing;          /* nobody will acknowledge events */
    int async_fd;          /* semaphore eventfd: one count per queued event */
    struct vb_mutex mutex; /* events and objects */
    pthread_cond_t acked;
    struct vb_event *events;   /* not read yet, oldest first */
    struct vb_event *unacked;  /* read, and their destroyers wait for the acknowledgement */
    struct vb_object *objects; /* what the program made, newest first */
    struct vb_declines declines;
    void (*on_error)(void); /* a completion with error is polled; NULL: nobody asks */
};

/*
 * `segment` and `heap` stay the caller's; `heap` may be NULL. Returns 0 or -ENOMEM.
 * `seed` feeds keys and must be unpredictable.
 */
int vb_adapter_create(struct vb_heap *segment, struct vb_heap *heap,
                      const struct vb_host_calls *port, uint32_t instance, uint64_t seed,
                      struct vb_adapter *adapter);
void vb_adapter_destroy(struct vb_adapter *adapter);
/* Its mutexes alone, for an adapter that is put together otherwise (sim). */
void vb_adapter_open_locks(struct vb_adapter *adapter);
void vb_adapter_close_locks(struct vb_adapter *adapter);

/* Fills `view` from a mapped segment; -EPROTO when it is not one that this build understands. */
int vb_view_open(struct vb_view *view, void *base, uint64_t size, uint64_t header_offset);

uint32_t vb_random(struct vb_adapter *adapter);

/* The port with this number, or NULL. */
static inline struct vb_adapter_port *vb_adapter_port(struct vb_adapter *adapter, uint32_t number)
{
    return number && number <= adapter->port_count ? &adapter->ports[number - 1] : NULL;
}

/* The size of a ring with room for n entries. */
static inline uint32_t vb_round_up_pow2(uint32_t n)
{
    return n <= 1 ? 1 : 1u << (32 - __builtin_clz(n - 1));
}

int vb_context_open(struct vb_adapter *adapter, struct ibv_context *ibv,
                    struct vb_context **context);
/* Releases whatever the program left open, in an order in which nothing is in use. */
void vb_context_close(struct vb_context *context);
/*
 * The same in two steps, for a program that may name them later. The first returns how many objects
 * were open: the memory of each is then the caller's to free, and a QP's staging with it. The
 * context only explains failures until the second.
 */
uint32_t vb_context_end(struct vb_context *context);
void vb_context_free(struct vb_context *context);

void vb_object_add(struct vb_context *context, struct vb_object *object,
                   void (*release)(struct vb_object *));
void vb_object_remove(struct vb_context *context, struct vb_object *object);
/* Frees `memory`, which the object is in, unless it is kept. */
void vb_object_free(struct vb_object *object, void *memory);

#endif
