// SPDX-License-Identifier: Apache-2.0
/*
 * The host's port: direct to peers on this host, by RoCE packets to all others. Which way a
 * connection goes is decided at INIT to RTR, and a datagram's by its address handle: direct if the
 * destination GID is one of the host's own, both ways if it is a multicast group's.
 */
#ifndef VB_PORT_HOST_H
#define VB_PORT_HOST_H

#include "port/direct/direct.h"
#include "port/roce/roce.h"

/* Of -EADDRINUSE. */
#define VB_ROCE_PORT_IS_TAKEN                                                                      \
    "UDP port 4791 is taken, by another user's process, the kernel's soft-RoCE driver, or a "      \
    "process of this user that is stopped or too slow to answer (who: ss -ulnpe 'sport = :4791')"

struct vb_host_config {
    struct vb_direct_config direct; /* `port` and `whole` are filled in */
    struct vb_roce_config roce;     /* `adapter`, `addresses` and `loop` are filled in */
    bool packets_only;              /* peers on this host are reached by packets too */
    bool direct_only;               /* and no others */
    const struct vb_capture_config *capture_direct; /* what goes direct; NULL: it is not captured */
    void (*went_direct)(void); /* called when the first request or connection does; may be NULL */
};

struct vb_host {
    struct vb_direct *direct;
    struct vb_roce *roce; /* NULL: port 4791 could not be had… */
    int roce_error;       /* …because of this; only peers on this host are reached */
    bool packets_only;
    uint32_t slots;                    /* of direct's that the RoCE port knows */
    struct vb_capture_direct *capture; /* NULL: what goes direct is not captured */
    struct vb_port port;               /* the adapter's */
    void (*_Atomic went_direct)(void);
    atomic_flag told;       /* it was called */
    atomic_bool has_direct; /* a connection goes direct, or did */
};

/* As vb_direct_open; with `packets_only` also what vb_roce_open returns. */
int vb_host_open(const struct vb_host_config *config, struct vb_host **host);
void vb_host_close(struct vb_host *host);

/*
 * Another `went_direct` from now on, or none: called at once if a connection goes direct already,
 * and otherwise at the next one or at the next datagram. Calls of this must not overlap.
 */
void vb_host_tell_direct(struct vb_host *host, void (*went_direct)(void));
void vb_host_abandon(struct vb_host *host);

static inline struct vb_host *vb_host_of(struct vb_adapter *adapter)
{
    return vb_direct_of(adapter)->config.whole;
}

/* JSON about slots, heap, peers and the RoCE port; returns the length as snprintf does. */
int vb_host_describe(struct vb_host *host, char *json, size_t size);

#endif
