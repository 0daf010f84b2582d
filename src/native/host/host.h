// SPDX-License-Identifier: Apache-2.0
/*
 * A host: the process's adapter, its addresses, and what carries its queue pairs (carriers.h).
 * The drop-in opens one, as do tests.
 */
#ifndef VB_HOST_HOST_H
#define VB_HOST_HOST_H

#include "direct/direct.h"
#include "lock/mutex.h"
#include "memory/watch.h"
#include "port/ports.h"
#include "roce/roce.h"

/* Of -EADDRINUSE. */
#define VB_ROCE_PORT_IS_TAKEN                                                                      \
    "UDP port 4791 is taken, by another user's process, the kernel's soft-RoCE driver, or a "      \
    "process of this user that is stopped or too slow to answer (who: ss -ulnpe 'sport = :4791')"

/*
 * Address space for an adapter's tables and rings; pages are touched as objects are made. Below
 * valgrind it is less. Where address space is limited it is one of so many parts of that, as peers
 * map it too (memory/heap.c), and there is no device if that is less than the least: it would open,
 * and be too small to connect to any peer.
 */
#define VB_SEGMENT_SIZE    ((size_t)16 << 30)
#define VB_SEGMENT_CHECKED ((size_t)2 << 30)
#define VB_SEGMENT_LEAST   ((size_t)256 << 20)
enum { VB_SEGMENT_PARTS = 6 };

struct vb_host_config {
    struct vb_heap *heap; /* memory for applications, may be NULL; stays the caller's */
    /* The device's number and its ports, which stay the caller's; NULL: the first device, with one
     * Ethernet port. An InfiniBand port has one GID, which no interface stands behind, and reaches
     * this host alone. */
    const struct vb_port_settings *ports;
    enum vb_way copies;         /* how a peer's own memory is reached; VB_WAY_ANY: probe */
    struct vb_roce_config roce; /* `adapter`, `addresses` and `loop` are filled in */
    bool packets_only;          /* peers on this host are reached by packets too */
    bool direct_only;           /* and no others */
    bool manages;               /* its first two queue pairs are the host's QP 0 and QP 1 */
    const struct vb_capture_config *capture_direct; /* what goes direct; NULL: it is not captured */
    void (*went_direct)(void); /* called when the first request or connection does; may be NULL */
    bool fabric; /* the ports are a host's of a live fabric, which says what they are */
    vb_direct_event_fn *fabric_event; /* a port's state, LID or table has changed; may be NULL */
    void *fabric_argument;
};

struct vb_host {
    struct vb_adapter adapter;
    struct vb_watcher watcher; /* of memory that the adapter's regions stand for */
    struct vb_direct *direct;
    struct vb_roce *roce;     /* NULL: it could not be opened, and roce_error says why */
    int roce_error;           /* negative errno; only peers on this host are reached then */
    struct vb_mutex counting; /* `roce` comes and goes under it, for whoever asks for counters */
    bool packets_only;
    uint32_t slots;                    /* of direct's that the RoCE port knows */
    struct vb_capture_direct *capture; /* NULL: what goes direct is not captured */
    void (*_Atomic went_direct)(void);
    atomic_flag called;     /* `went_direct` was called */
    atomic_bool has_direct; /* a connection goes direct, or did */
};

/* Negative errno: -ENOMEM (also for address space), and what vb_direct_open returns; with
 * `packets_only` also what vb_roce_open does. */
int vb_host_open(const struct vb_host_config *config, struct vb_host **host);
void vb_host_close(struct vb_host *host);

/*
 * Another `went_direct` from now on, or none: called at once if a connection goes direct already,
 * and otherwise at the next one or at the next datagram. Calls of this must not overlap.
 */
void vb_host_tell_direct(struct vb_host *host, void (*went_direct)(void));
/* In a forked child: forgets the parent's adapter without touching what it shares with others. */
void vb_host_abandon(struct vb_host *host);

/* Of a host's adapter. */
static inline struct vb_host *vb_host_of(struct vb_adapter *adapter)
{
    return (struct vb_host *)((char *)adapter - offsetof(struct vb_host, adapter));
}

/* JSON about slots, heap, peers and the RoCE port; returns the length as snprintf does. */
int vb_host_describe(struct vb_host *host, char *json, size_t size);
/* All counters as a JSON object with a member for each part: "direct", then vb_roce_counters'.
 * Length as snprintf. */
int vb_host_counters(struct vb_host *host, char *json, size_t size);
/* Those that are not 0, one by one. */
void vb_host_tell_counters(struct vb_host *host, vb_tell_counter *tell);

#endif
