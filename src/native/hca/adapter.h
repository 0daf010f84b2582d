// SPDX-License-Identifier: Apache-2.0
/*
 * The adapter: the software HCA of a process, or of a host of a simulated fabric, and the contexts
 * that are opened on it. Every file of this room has it in hand. What peers may read and write of
 * it lies in the segment (layout.h); the rest is here and private.
 */
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
struct vb_fabric;
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
 * A pool of the numbers 0 to limit - 1. A number is in use from vb_pool_take until vb_pool_return.
 * Numbers are used again in the order in which they were returned; while some were never used, a
 * returned number is used again only after `resting` others were returned behind it.
 */
struct vb_pool {
    _Atomic uint32_t next;
    uint32_t limit;
    uint32_t resting;
    uint32_t free_first; /* where the oldest returned number is in the ring `free` */
    uint32_t free_count;
    uint32_t free_room; /* entries of `free`, a power of two */
    uint32_t *free;
};

int vb_pool_take(struct vb_pool *pool, uint32_t *number);
void vb_pool_return(struct vb_pool *pool, uint32_t number);

enum { VB_LOST_KINDS = 12 };

struct vb_adapter {
    struct vb_view self;
    uint32_t instance;
    bool barriers;    /* the kernel has membarrier, so biased locks may have a privileged thread */
    atomic_bool gone; /* never set: the `gone` of those who wait for a lock of their own segment */
    const struct vb_host_calls *calls;
    struct vb_direct *direct; /* the direct carrier; NULL on a simulated host */
    struct vb_fabric *fabric; /* the live fabric that the ports are in (port/fabric.h), or NULL */
    const struct vb_engine *engine; /* the packet engine, or NULL */
    struct vb_heap *segment;        /* the tables and rings that peers map */
    struct vb_heap *heap;           /* memory for the program's buffers; may be NULL */
    struct vb_mutex mutex;          /* protects the pools and tables below; docs/locks.md has all */
    struct vb_mutex groups;         /* protects the multicast groups (multicast.h) */
    struct vb_mutex lifetime;       /* while it is held no QP is freed */
    struct vb_mutex xrc;            /* while it is held no XRC SRQ is freed */
    struct vb_pool qp_pool, cq_pool, srq_pool, pd_pool;
    struct vb_keys keys;        /* of memory regions */
    struct vb_range *ranges;    /* of regions whose memory may be unmapped (gone.h) */
    struct vb_mutex gone_mutex; /* protects `ranges`; its holders neither free memory nor wait */
    struct vb_qp **qps;         /* by table index; NULL: the entry is free */
    uint64_t *live;             /* a bit for each QP that may carry requests (vb_qp_set_live) */
    struct vb_cq **cqs;
    struct vb_srq **srqs;
    struct vb_adapter_port ports[VB_MAX_PORTS];
    uint8_t port_count;
    void (*tell)(const char *line);    /* writes a line of the log; NULL: there is no log */
    atomic_bool told_without_log;      /* where a live fabric loses packets, which is told once */
    struct vb_vigil *vigils;           /* threads that wait in a call (vigil.h); under `mutex` */
    atomic_bool logged_datagram;       /* the log has a line about a datagram without a receive */
    _Atomic uint64_t completions_lost; /* but those that the packet engine counts */
    _Atomic uint64_t lost[VB_LOST_KINDS]; /* lost datagrams by cause, of the direct carrier */
    uint32_t channel_serial;
    struct vb_random random; /* makes keys; under `mutex` */
    struct vb_mutex binding; /* protects `windows` and what each is bound to */
    struct vb_mw *windows;
    uint8_t *zeros, *sink; /* what null regions read and write; NULL before the first of them */
    size_t dm_used;        /* bytes of device memory in use; under `mutex` */
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
    void (*release)(struct vb_object *object); /* destroys it when its context is closed */
    bool kept; /* its memory is not freed with it, since the program has it (vb_context_end) */
};

struct vb_context {
    struct ibv_context *ibv;
    struct vb_adapter *adapter;
    bool closing;          /* the program acknowledges no more events */
    int async_fd;          /* semaphore eventfd: one count per queued event */
    struct vb_mutex mutex; /* protects events and objects */
    pthread_cond_t acked;
    struct vb_event *events;   /* events that are not read yet, oldest first */
    struct vb_event *unacked;  /* events that are read and not acknowledged */
    struct vb_object *objects; /* the program's objects, newest first */
    struct vb_declines declines;
    void (*on_error)(void); /* called when a completion with error is polled; may be NULL */
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
