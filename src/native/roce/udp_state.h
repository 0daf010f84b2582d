// SPDX-License-Identifier: Apache-2.0
/*
 * The state behind udp.h, for udp.c, udp_send.c and udp_receive.c. It is the caller's lock that
 * protects it, but for what is atomic, and the sources, which any thread opens.
 */
#ifndef VB_ROCE_UDP_STATE_H
#define VB_ROCE_UDP_STATE_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "lock/mutex.h"
#include "roce/udp.h"

/* Constants of Linux that are missing in some C libraries' headers. */
enum {
    VB_SOL_UDP = 17,
    VB_UDP_NO_CHECK6_RX = 102,
    VB_UDP_SEGMENT = 103,
    VB_UDP_GRO = 104,
    VB_IPV6_FLOWINFO = 11,
    VB_IPV6_MULTICAST_ALL = 29,
    VB_IPV6_FLOWINFO_SEND = 33,
};

struct vb_udp_source {
    _Atomic int fd; /* -1: not opened */
    uint16_t port;
};

union vb_socket_address {
    struct sockaddr any;
    struct sockaddr_in ipv4;
    struct sockaddr_in6 ipv6;
};

struct vb_udp {
    struct vb_udp_config config;
    uint16_t port;
    bool ipv6; /* the sockets carry both versions */
    _Atomic unsigned
        without; /* enum vb_udp_without: as configured, and what the system was found to lack */
    int fd;
    struct vb_mutex sources_mutex; /* held while a source is opened */
    struct vb_udp_source sources[VB_UDP_SOURCES];
    struct vb_udp_in *in;
    struct vb_udp_out *out;
    _Atomic uint64_t counts[VB_UDP_COUNTS];
};

int vb_roce_udp_in_open(struct vb_udp *udp);
void vb_roce_udp_in_close(struct vb_udp *udp);
int vb_roce_udp_out_open(struct vb_udp *udp);
void vb_roce_udp_out_close(struct vb_udp *udp);

/* The descriptor that sends for this source port, and the port that it is bound to. */
struct vb_sender {
    int fd;
    uint16_t port;
};

static inline struct vb_sender vb_roce_udp_sender(const struct vb_udp *udp, uint16_t source_port)
{
    const struct vb_udp_source *source = &udp->sources[source_port % VB_UDP_SOURCES];
    int fd = atomic_load_explicit(&source->fd, memory_order_acquire);

    if (fd >= 0 && source->port == source_port)
        return (struct vb_sender){fd, source_port};
    return (struct vb_sender){udp->fd, udp->port};
}

static inline bool vb_roce_udp_lacks(const struct vb_udp *udp, unsigned what)
{
    return atomic_load_explicit(&udp->without, memory_order_relaxed) & what;
}

static inline void vb_roce_udp_count(struct vb_udp *udp, enum vb_udp_count which, uint64_t n)
{
    atomic_fetch_add_explicit(&udp->counts[which], n, memory_order_relaxed);
}

/* The same for counters that change under the caller's lock alone, without an atomic addition. */
static inline void vb_roce_udp_tally(struct vb_udp *udp, enum vb_udp_count which)
{
    uint64_t count = atomic_load_explicit(&udp->counts[which], memory_order_relaxed);

    atomic_store_explicit(&udp->counts[which], count + 1, memory_order_relaxed);
}

#endif
