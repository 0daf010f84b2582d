// SPDX-License-Identifier: Apache-2.0
/*
 * The UDP sockets: opened, given their options, bound, and closed. roce.c opens them once for a
 * device. The receiving socket is a member of the port's reuseport group before its first
 * datagram.
 */
#include "roce/udp.h"

#include <errno.h>
#include <linux/filter.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory/descriptor.h"
#include "port/gid.h"
#include "roce/udp_state.h"

enum { WANTED_BYTES = 16 << 20 };

static int udp_set(int fd, int level, int option, int value)
{
    return setsockopt(fd, level, option, &value, sizeof(value)) ? -errno : 0;
}

/*
 * The buffer is as large as the system's limit allows; with CAP_NET_ADMIN the limit does not count.
 */
static void raise_buffer(int fd, int option, int forced)
{
    if (udp_set(fd, SOL_SOCKET, forced, WANTED_BYTES))
        udp_set(fd, SOL_SOCKET, option, WANTED_BYTES);
}

static int udp_new_socket(bool ipv6)
{
    int fd = vb_memory_descriptor_raise(
        socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int error = fd < 0 ? -errno : 0;

    if (!error && ipv6)
        error = udp_set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (!error)
        return fd;
    if (fd >= 0)
        close(fd);
    return error;
}

static int bind_any(int fd, bool ipv6, uint16_t port)
{
    union vb_socket_address address = {.any.sa_family = ipv6 ? AF_INET6 : AF_INET};
    socklen_t size = ipv6 ? sizeof(address.ipv6) : sizeof(address.ipv4);

    /* The port is at the same place in both. */
    address.ipv4.sin_port = htons(port);
    return bind(fd, &address.any, size) ? -errno : 0;
}

/* ---- the receiving socket ---- */

/*
 * The control messages with which each datagram is received. Where a kernel lacks an option its
 * field stays 0.
 */
static void ask_for_fields(int fd, bool ipv6)
{
    udp_set(fd, IPPROTO_IP, IP_RECVTOS, 1);
    udp_set(fd, IPPROTO_IP, IP_RECVTTL, 1);
    /* A group's datagrams are received only by sockets that joined it. */
    udp_set(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0);
    if (!ipv6) {
        udp_set(fd, IPPROTO_IP, IP_PKTINFO, 1);
        return;
    }
    udp_set(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1); /* for IPv4 as well: mapped addresses */
    udp_set(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
    udp_set(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
    udp_set(fd, IPPROTO_IPV6, VB_IPV6_FLOWINFO, 1);
    udp_set(fd, IPPROTO_IPV6, VB_IPV6_MULTICAST_ALL, 0);
    /* Soft-RoCE and most adapters send no checksum; the ICRC covers more. */
    udp_set(fd, VB_SOL_UDP, VB_UDP_NO_CHECK6_RX, 1);
}

/*
 * DF is set, and the path MTU that ICMP messages tell is ignored (PROBE): a forged one must not
 * shorten it.
 */
static void forbid_fragments(int fd, bool ipv6)
{
    udp_set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
    if (ipv6)
        udp_set(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
    if (ipv6)
        udp_set(fd, IPPROTO_IPV6, VB_IPV6_FLOWINFO_SEND, 1);
}

/* The sending socket's option counts, and for both IP versions that of the socket's own family. */
static void set_loop(const struct vb_udp *udp, int fd)
{
    udp_set(fd, IPPROTO_IP, IP_MULTICAST_LOOP, udp->config.loop);
    if (udp->ipv6)
        udp_set(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, udp->config.loop);
}

static void prepare_receiver(struct vb_udp *udp, int fd)
{
    ask_for_fields(fd, udp->ipv6);
    forbid_fragments(fd, udp->ipv6);
    set_loop(udp, fd);
    raise_buffer(fd, SO_RCVBUF, SO_RCVBUFFORCE);
    raise_buffer(fd, SO_SNDBUF, SO_SNDBUFFORCE);
    if (!vb_roce_udp_lacks(udp, VB_UDP_WITHOUT_GRO) && udp_set(fd, VB_SOL_UDP, VB_UDP_GRO, 1))
        atomic_fetch_or(&udp->without, VB_UDP_WITHOUT_GRO);
    /* A kernel that does not know this option would send a batch as one datagram. */
    if (udp_set(fd, VB_SOL_UDP, VB_UDP_SEGMENT, 0))
        atomic_fetch_or(&udp->without, VB_UDP_WITHOUT_GSO);
}

static int try_receiver(struct vb_udp *udp, bool with_program)
{
    int fd = udp_new_socket(udp->ipv6), error;

    if (fd < 0)
        return fd;
    error = udp_set(fd, SOL_SOCKET, SO_REUSEPORT, 1);
    if (!error && with_program)
        error = udp->config.prepare(fd);
    if (!error) {
        prepare_receiver(udp, fd);
        error = bind_any(fd, udp->ipv6, udp->port);
    }
    if (!error)
        return fd;
    close(fd);
    return error;
}

/*
 * Linux lets a socket that has a program be the first of a reuseport group, and one without a
 * program join a group.
 */
static int open_receiver(struct vb_udp *udp)
{
    int fd = udp->config.prepare ? try_receiver(udp, true) : -EADDRINUSE;

    return fd >= 0 ? fd : try_receiver(udp, false);
}

/* ---- sources ---- */

/* Nothing is ever read from a source: a filter drops what arrives, so that it takes no memory. */
static void drop_incoming(int fd)
{
    struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
    struct sock_fprog program = {.len = 1, .filter = &drop};

    setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

enum { LOWEST_PORT = 0xc000, PORT_TRIES = 64 };

/* The port modulo the number of sources tells the source. */
static int open_source(struct vb_udp *udp, struct vb_udp_source *source, uint16_t wanted)
{
    int fd = udp_new_socket(udp->ipv6), error = fd;
    uint16_t port = wanted | LOWEST_PORT;

    if (fd < 0)
        return fd;
    for (int i = 0; i < PORT_TRIES; ++i, port = (uint16_t)(port + VB_UDP_SOURCES) | LOWEST_PORT) {
        error = bind_any(fd, udp->ipv6, port);
        if (error != -EADDRINUSE)
            break;
    }
    if (error) {
        close(fd);
        return error;
    }
    drop_incoming(fd);
    forbid_fragments(fd, udp->ipv6);
    set_loop(udp, fd);
    raise_buffer(fd, SO_SNDBUF, SO_SNDBUFFORCE);
    source->port = port;
    atomic_store(&source->fd, fd);
    return 0;
}

/*
 * The port of some open source; without one that of the receiving socket, which can send as well.
 */
static uint16_t another_port(const struct vb_udp *udp)
{
    for (int i = 0; i < VB_UDP_SOURCES; ++i)
        if (atomic_load(&udp->sources[i].fd) >= 0)
            return udp->sources[i].port;
    return udp->port;
}

uint16_t vb_roce_udp_source_port(struct vb_udp *udp, uint16_t wanted)
{
    struct vb_udp_source *source = &udp->sources[wanted % VB_UDP_SOURCES];
    uint16_t port;

    vb_lock_take(&udp->sources_mutex);
    if (atomic_load(&source->fd) >= 0 || open_source(udp, source, wanted) == 0)
        port = source->port;
    else
        port = another_port(udp);
    vb_lock_release(&udp->sources_mutex);
    return port;
}

/* ---- open and close ---- */

static bool has_ipv6(void)
{
    int fd = udp_new_socket(true);

    if (fd < 0)
        return false;
    close(fd);
    return true;
}

static int udp_open_parts(struct vb_udp *udp)
{
    int error = vb_roce_udp_in_open(udp);

    if (!error)
        error = vb_roce_udp_out_open(udp);
    if (error)
        return error;
    udp->fd = open_receiver(udp);
    return udp->fd < 0 ? udp->fd : 0;
}

int vb_roce_udp_open(const struct vb_udp_config *config, struct vb_udp **udp)
{
    struct vb_udp *made = calloc(1, sizeof(*made));
    int error;

    if (!made)
        return -ENOMEM;
    made->config = *config;
    made->port = config->port ? config->port : VB_ROCE_PORT;
    made->without = config->without;
    made->ipv6 = !(config->without & VB_UDP_WITHOUT_IPV6) && has_ipv6();
    made->fd = -1;
    for (int i = 0; i < VB_UDP_SOURCES; ++i)
        made->sources[i].fd = -1;
    vb_lock_init(&made->sources_mutex, VB_RANK_SOURCES);
    error = udp_open_parts(made);
    if (error) {
        vb_roce_udp_close(made);
        return error;
    }
    *udp = made;
    return 0;
}

enum { DISCARD_PORT = 9 }; /* RFC 863: nothing is sent from it */

/*
 * A socket that becomes connected leaves its reuseport group (Linux' udp_lib_rehash): from then on
 * it receives its peer's datagrams only.
 */
int vb_roce_udp_leave_port(struct vb_udp *udp)
{
    union vb_socket_address peer = {
        .ipv4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(peer.ipv4);

    if (udp->ipv6) {
        peer.ipv6 = (struct sockaddr_in6){.sin6_family = AF_INET6,
                                          .sin6_addr.s6_addr = {[10] = 0xff, 0xff, 127, 0, 0, 1}};
        size = sizeof(peer.ipv6);
    }
    peer.ipv4.sin_port = htons(DISCARD_PORT); /* at the same place in both */
    return connect(udp->fd, &peer.any, size) ? -errno : 0;
}

void vb_roce_udp_abandon(struct vb_udp *udp)
{
    for (int i = 0; i < VB_UDP_SOURCES; ++i)
        if (udp->sources[i].fd >= 0)
            close(udp->sources[i].fd);
    if (udp->fd >= 0)
        close(udp->fd);
}

void vb_roce_udp_close(struct vb_udp *udp)
{
    vb_roce_udp_abandon(udp);
    vb_roce_udp_in_close(udp);
    vb_roce_udp_out_close(udp);
    vb_lock_destroy(&udp->sources_mutex);
    free(udp);
}

/* ---- multicast ---- */

static int change_membership(struct vb_udp *udp, const uint8_t group[16], uint32_t interface,
                             int option)
{
    struct group_req request = {.gr_interface = interface};
    bool ipv4 = vb_wire_gid_is_ipv4(group);
    union vb_socket_address address = {.any.sa_family = ipv4 ? AF_INET : AF_INET6};

    if (ipv4)
        memcpy(&address.ipv4.sin_addr, group + 12, 4);
    else
        memcpy(&address.ipv6.sin6_addr, group, 16);
    memcpy(&request.gr_group, &address, sizeof(address));
    return setsockopt(udp->fd, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, option, &request, sizeof(request))
               ? -errno
               : 0;
}

int vb_roce_udp_join(struct vb_udp *udp, const uint8_t group[16], uint32_t interface)
{
    return change_membership(udp, group, interface, MCAST_JOIN_GROUP);
}

int vb_roce_udp_leave(struct vb_udp *udp, const uint8_t group[16], uint32_t interface)
{
    return change_membership(udp, group, interface, MCAST_LEAVE_GROUP);
}

int vb_roce_udp_fd(const struct vb_udp *udp)
{
    return udp->fd;
}

uint64_t vb_roce_udp_counter(const struct vb_udp *udp, enum vb_udp_count which)
{
    return atomic_load_explicit(&udp->counts[which], memory_order_relaxed);
}

const char *vb_roce_udp_counter_name(enum vb_udp_count which)
{
    static const char *const names[VB_UDP_COUNTS] = {
        [VB_UDP_SENT] = "sent",
        [VB_UDP_SENT_CALLS] = "send_calls",
        [VB_UDP_RECEIVED] = "received",
        [VB_UDP_RECEIVED_CALLS] = "receive_calls",
        [VB_UDP_DROP_NO_ROUTE] = "send_no_route",
        [VB_UDP_DROP_FORBIDDEN] = "send_forbidden",
        [VB_UDP_DROP_TOO_LONG] = "send_too_long",
        [VB_UDP_DROP_FAULT] = "send_fault",
        [VB_UDP_DROP_ADDRESS] = "send_address",
        [VB_UDP_DROP_OTHER] = "send_other_error",
        [VB_UDP_BAD_LENGTH] = "receive_bad_length",
        [VB_UDP_BAD_ICRC] = "receive_bad_icrc",
        [VB_UDP_POSTPONED] = "send_postponed",
        [VB_UDP_SPLIT] = "send_split",
    };

    return which < VB_UDP_COUNTS ? names[which] : NULL;
}
