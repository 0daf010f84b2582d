// SPDX-License-Identifier: Apache-2.0
/*
 * Sending. Packets of one flow that follow each other and are equal in size make a train, which is
 * one message with UDP_SEGMENT; the last one may be shorter. The ICRC is computed when a packet
 * joins its train, because it covers the place in it (udp.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "memory/guard.h"
#include "port/gid.h"
#include "port/roce/start.h"
#include "port/roce/udp_state.h"

enum {
    PACKETS = 256,
    TRAINS = 128,
    VECTORS = 1024,
    BURST_BYTES = 128 << 10, /* staged at once: what the ICRC has read is still in the cache */
    TRAIN_PACKETS = 64,      /* UDP_MAX_SEGMENTS of the oldest kernels */
    TRAIN_BYTES = 65507,     /* a datagram's length field, less the headers */
    CONTROL_BYTES = 160,
    LARGEST_PACKET = VB_HEADERS_MAX + 4096 + 4,
};

struct staged {
    uint8_t header[VB_HEADERS_MAX];
    uint8_t tail[4 + VB_ICRC]; /* pad and ICRC */
    uint32_t qp_num;
    uint16_t header_length;
    uint16_t length; /* BTH to the last pad byte */
    uint8_t pad;
    bool is_kept;
    uint16_t vector, vector_count; /* header, pieces, tail */
};

struct train {
    struct vb_path path;
    struct vb_icrc_flow flow;
    uint16_t first, count; /* packets */
    uint16_t size;         /* of each datagram but the last */
    uint32_t bytes;
    bool closed;  /* its last packet was shorter */
    bool single;  /* its packets go one by one, each with identification 0… */
    bool refused; /* …because the system refused the whole as invalid: the batch, or the address */
};

union control {
    struct cmsghdr align;
    char room[CONTROL_BYTES];
};

struct vb_udp_out {
    uint32_t packets, vectors, bytes;
    uint32_t next_train, trains;
    bool blocked;
    struct vb_start start;
    uint32_t kept; /* bytes of payload in `keep` */
    uint8_t *keep; /* payload that has to wait */
    struct staged packet[PACKETS];
    struct train train[TRAINS];
    struct iovec vector[VECTORS];
    struct mmsghdr message[TRAINS];
    union vb_socket_address to[TRAINS];
    union control control[TRAINS];
};

int vb_udp_out_open(struct vb_udp *udp)
{
    udp->out = calloc(1, sizeof(*udp->out));
    if (!udp->out)
        return -ENOMEM;
    udp->out->keep = malloc(BURST_BYTES + LARGEST_PACKET);
    return udp->out->keep ? 0 : -ENOMEM;
}

void vb_udp_out_close(struct vb_udp *udp)
{
    if (udp->out)
        free(udp->out->keep);
    free(udp->out);
}

/* ---- addresses ---- */

static bool is_scoped(const uint8_t gid[16])
{
    return gid[0] == 0xff || (gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80) ||
           (vb_gid_is_ipv4(gid) && (gid[12] & 0xf0) == 0xe0);
}

static uint32_t interface_of(const struct vb_udp *udp, const struct vb_path *path)
{
    if (!is_scoped(path->dgid) || !udp->config.interface)
        return 0;
    return udp->config.interface(udp->config.argument, path->sgid_index);
}

/* False: no datagram can go there from here. */
static bool write_address(const struct vb_udp *udp, const struct vb_path *path,
                          union vb_socket_address *to, socklen_t *size)
{
    memset(to, 0, sizeof(*to));
    if (vb_gid_is_ipv4(path->sgid) != vb_gid_is_ipv4(path->dgid))
        return false;
    to->ipv4.sin_port = htons(udp->port);
    if (udp->ipv6) {
        to->any.sa_family = AF_INET6;
        memcpy(&to->ipv6.sin6_addr, path->dgid, 16);
        to->ipv6.sin6_scope_id = interface_of(udp, path);
        if (!vb_gid_is_ipv4(path->dgid))
            to->ipv6.sin6_flowinfo = htonl(path->flow_label);
        *size = sizeof(to->ipv6);
        return true;
    }
    to->any.sa_family = AF_INET;
    memcpy(&to->ipv4.sin_addr, path->dgid + 12, 4);
    *size = sizeof(to->ipv4);
    return vb_gid_is_ipv4(path->dgid);
}

static void add_field(struct msghdr *header, int level, int type, const void *value, size_t size)
{
    struct cmsghdr *field =
        (struct cmsghdr *)((char *)header->msg_control + header->msg_controllen);

    field->cmsg_level = level;
    field->cmsg_type = type;
    field->cmsg_len = CMSG_LEN(size);
    memcpy(CMSG_DATA(field), value, size);
    header->msg_controllen += CMSG_SPACE(size);
}

static void add_ipv4_fields(struct msghdr *header, const struct vb_path *path, uint32_t interface)
{
    struct in_pktinfo source = {.ipi_ifindex = (int)interface};
    int tos = path->traffic_class, ttl = path->hop_limit;

    memcpy(&source.ipi_spec_dst, path->sgid + 12, 4);
    add_field(header, IPPROTO_IP, IP_PKTINFO, &source, sizeof(source));
    add_field(header, IPPROTO_IP, IP_TOS, &tos, sizeof(tos));
    if (ttl)
        add_field(header, IPPROTO_IP, IP_TTL, &ttl, sizeof(ttl));
}

static void add_ipv6_fields(struct msghdr *header, const struct vb_path *path, uint32_t interface)
{
    struct in6_pktinfo source = {.ipi6_ifindex = interface};
    int tclass = path->traffic_class, hops = path->hop_limit;

    memcpy(&source.ipi6_addr, path->sgid, 16);
    add_field(header, IPPROTO_IPV6, IPV6_PKTINFO, &source, sizeof(source));
    add_field(header, IPPROTO_IPV6, IPV6_TCLASS, &tclass, sizeof(tclass));
    if (hops)
        add_field(header, IPPROTO_IPV6, IPV6_HOPLIMIT, &hops, sizeof(hops));
}

/* The message's address and fields; `segment` 0: one datagram. */
static bool address_message(const struct vb_udp *udp, const struct vb_path *path, uint16_t segment,
                            union vb_socket_address *to, union control *control,
                            struct msghdr *header)
{
    uint32_t interface = interface_of(udp, path);

    memset(header, 0, sizeof(*header));
    header->msg_control = control->room;
    header->msg_name = to;
    if (!write_address(udp, path, to, &header->msg_namelen))
        return false;
    if (vb_gid_is_ipv4(path->dgid))
        add_ipv4_fields(header, path, interface);
    else
        add_ipv6_fields(header, path, interface);
    if (segment)
        add_field(header, VB_SOL_UDP, VB_UDP_SEGMENT, &segment, sizeof(segment));
    return true;
}

/* ---- packets ---- */

static struct vb_icrc_flow flow_of(const struct vb_udp *udp, const struct vb_path *path)
{
    struct vb_icrc_flow flow = {.source_port = vb_udp_sender(udp, path->source_port).port,
                                .target_port = udp->port};

    memcpy(flow.source, path->sgid, 16);
    memcpy(flow.target, path->dgid, 16);
    return flow;
}

/*
 * `crc`: the register before the BTH. Where the payload's memory has gone since the engine looked,
 * the sum is wrong, and the system refuses the packet (EFAULT).
 */
VB_GUARDED static int write_icrc(uint32_t crc, const struct staged *packet,
                                 const struct iovec *vector, uint8_t *icrc)
{
    crc = vb_icrc_transport(crc, packet->header, packet->header_length);
    for (uint16_t i = 1; i + 1 < packet->vector_count; ++i)
        crc = vb_crc32(crc, vector[i].iov_base, vector[i].iov_len);
    vb_icrc_write(icrc, vb_crc32(crc, packet->tail, packet->pad));
    return 0;
}

/* Fills `to` and its vectors: header, pieces, pad with ICRC. Returns how many vectors. */
static uint16_t lay_out(const struct vb_packet *from, struct staged *to, struct iovec *vector)
{
    uint16_t count = 0;

    memcpy(to->header, from->header, from->header_length);
    memset(to->tail, 0, sizeof(to->tail));
    to->qp_num = from->qp_num;
    to->pad = from->pad;
    to->is_kept = false;
    to->header_length = from->header_length;
    to->length = (uint16_t)(from->header_length + from->payload_length + from->pad);
    vector[count++] = (struct iovec){to->header, to->header_length};
    for (uint32_t i = 0; i < from->piece_count; ++i)
        if (from->piece[i].length)
            vector[count++] =
                (struct iovec){(void *)(uintptr_t)from->piece[i].bytes, from->piece[i].length};
    vector[count++] = (struct iovec){to->tail, (size_t)to->pad + VB_ICRC};
    to->vector_count = count;
    return count;
}

static uint32_t destination_qp(const uint8_t *header)
{
    return vb_bth_read(header).dest_qp;
}

/*
 * One train has one sender and one receiver: a host delivers a train that was not cut as a whole,
 * to the process that its first packet is for.
 */
static bool may_join(const struct vb_udp *udp, const struct train *train,
                     const struct vb_packet *packet, uint32_t size)
{
    const struct staged *first = &udp->out->packet[train->first];

    return !train->closed && !train->single && train->count < TRAIN_PACKETS &&
           size <= train->size && train->bytes + size <= TRAIN_BYTES &&
           first->qp_num == packet->qp_num &&
           destination_qp(first->header) == destination_qp(packet->header) &&
           memcmp(&train->path, packet->path, sizeof(train->path)) == 0;
}

static struct train *train_for(struct vb_udp *udp, const struct vb_packet *packet, uint32_t size)
{
    struct vb_udp_out *out = udp->out;
    struct train *train = out->trains > out->next_train ? &out->train[out->trains - 1] : NULL;

    if (train && !vb_udp_lacks(udp, VB_UDP_WITHOUT_SEGMENTATION) &&
        may_join(udp, train, packet, size))
        return train;
    train = &out->train[out->trains++];
    memset(train, 0, sizeof(*train));
    train->path = *packet->path;
    train->flow = flow_of(udp, packet->path);
    train->first = (uint16_t)out->packets;
    train->size = (uint16_t)size;
    return train;
}

bool vb_udp_has_room(const struct vb_udp *udp)
{
    const struct vb_udp_out *out = udp->out;

    return !out->blocked && out->bytes < BURST_BYTES && out->packets < PACKETS &&
           out->trains < TRAINS && out->vectors + VB_PIECES + 2 <= VECTORS;
}

struct vb_udp_seen vb_udp_stage(struct vb_udp *udp, const struct vb_packet *packet)
{
    struct vb_udp_out *out = udp->out;
    struct staged *to = &out->packet[out->packets];
    struct iovec *vector = &out->vector[out->vectors];
    uint32_t size = packet->header_length + packet->payload_length + packet->pad + VB_ICRC;
    struct train *train = train_for(udp, packet, size);

    to->vector = (uint16_t)out->vectors;
    out->vectors += lay_out(packet, to, vector);
    write_icrc(vb_start_udp(&out->start, &train->flow, train->count, to->length), to, vector,
               to->tail + to->pad);
    ++out->packets;
    ++train->count;
    train->bytes += size;
    train->closed = size < train->size;
    out->bytes += size;
    return (struct vb_udp_seen){train->flow.source_port, (uint16_t)(train->count - 1)};
}

void vb_udp_spoil(struct vb_udp *udp, uint32_t icrc_flip)
{
    struct staged *packet = &udp->out->packet[udp->out->packets - 1];
    uint8_t *icrc = packet->tail + packet->pad;

    vb_icrc_write(icrc, vb_icrc_read(icrc) ^ icrc_flip);
}

/* ---- flushing ---- */

/* What an error means for the packets that it met. */
static enum vb_udp_count name_of(int error)
{
    switch (error) {
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EADDRNOTAVAIL:
    case ENODEV:
    case ENXIO:
    case EINVAL: /* what Linux says of a source address that is not the host's */
        return VB_UDP_DROP_NO_ROUTE;
    case EPERM:
    case EACCES:
        return VB_UDP_DROP_FORBIDDEN;
    case EMSGSIZE:
        return VB_UDP_DROP_TOO_LONG;
    case EFAULT:
        return VB_UDP_DROP_FAULT;
    case EAFNOSUPPORT:
        return VB_UDP_DROP_ADDRESS;
    default:
        return VB_UDP_DROP_OTHER;
    }
}

static bool is_passing(int error)
{
    return error == EAGAIN || error == ENOBUFS || error == ENOMEM;
}

static void report_fault(struct vb_udp *udp, const struct staged *packet)
{
    if (udp->config.fault)
        udp->config.fault(udp->config.argument, packet->qp_num, vb_bth_read(packet->header).psn);
}

static void drop(struct vb_udp *udp, const struct train *train, enum vb_udp_count why)
{
    vb_udp_count(udp, why, train->count);
    if (why == VB_UDP_DROP_FAULT)
        report_fault(udp, &udp->out->packet[train->first]);
}

/*
 * Gives packet `id` of a train identification 0. A CRC is linear: what changes in the header
 * changes the ICRC by an amount that does not depend on the payload, which may be unreadable by
 * now.
 */
static void renumber(struct vb_udp_out *out, const struct train *train, uint16_t id)
{
    static const uint8_t zeros[LARGEST_PACKET];
    struct staged *packet = &out->packet[train->first + id];
    uint8_t *icrc = packet->tail + packet->pad;
    uint32_t change = vb_start_udp(&out->start, &train->flow, id, packet->length) ^
                      vb_start_udp(&out->start, &train->flow, 0, packet->length);

    change = vb_crc32(change, zeros, packet->length);
    vb_icrc_write(icrc, vb_icrc_read(icrc) ^ change);
}

/* From now on its packets go one by one. */
static void split(struct vb_udp *udp, struct train *train)
{
    vb_udp_count(udp, VB_UDP_SPLIT, 1);
    train->single = true;
    for (uint16_t i = 1; i < train->count; ++i)
        renumber(udp->out, train, i);
}

/* A train's head, which is all of it but where it was split. */
static bool write_message(struct vb_udp *udp, uint32_t index)
{
    struct vb_udp_out *out = udp->out;
    const struct train *train = &out->train[index];
    struct msghdr *header = &out->message[index].msg_hdr;
    const struct staged *first = &out->packet[train->first];
    const struct staged *last = &out->packet[train->first + (train->single ? 1 : train->count) - 1];
    bool is_batch = train->count > 1 && !train->single;

    if (!address_message(udp, &train->path, is_batch ? train->size : 0, &out->to[index],
                         &out->control[index], header))
        return false;
    header->msg_iov = &out->vector[first->vector];
    header->msg_iovlen = (size_t)(last->vector + last->vector_count - first->vector);
    return true;
}

static int send_messages(struct vb_udp *udp, int fd, uint32_t first, uint32_t count)
{
    struct mmsghdr *message = &udp->out->message[first];
    int sent;

    vb_udp_count(udp, VB_UDP_SENT_CALLS, 1);
    if (count > 1 && !vb_udp_lacks(udp, VB_UDP_WITHOUT_BATCHES)) {
        sent = sendmmsg(fd, message, count, MSG_DONTWAIT);
        if (sent >= 0 || errno != ENOSYS)
            return sent < 0 ? -errno : sent;
        atomic_fetch_or(&udp->without, VB_UDP_WITHOUT_BATCHES);
    }
    return sendmsg(fd, &message->msg_hdr, MSG_DONTWAIT) < 0 ? -errno : 1;
}

/* The messages from `first` on that one call can send. */
static uint32_t run_of(struct vb_udp *udp, uint32_t first, int fd)
{
    const struct vb_udp_out *out = udp->out;
    uint32_t count = 0;

    while (first + count < out->trains && !out->train[first + count].single &&
           vb_udp_sender(udp, out->train[first + count].path.source_port).fd == fd &&
           write_message(udp, first + count))
        ++count;
    return count;
}

/* The head of the train has gone, or is dropped. */
static void advance(struct vb_udp_out *out, struct train *train)
{
    if (train->single && train->count > 1) {
        ++train->first;
        --train->count;
    } else {
        ++out->next_train;
    }
}

/* The head of train `index` met an error. 0: it was dealt with. */
static int fail(struct vb_udp *udp, uint32_t index, int error)
{
    struct vb_udp_out *out = udp->out;
    struct train *train = &out->train[index];
    struct train head = *train;

    if (is_passing(error)) {
        vb_udp_count(udp, VB_UDP_POSTPONED, 1);
        return -EAGAIN;
    }
    if (train->count > 1 && !train->single) {
        /* Older kernels cut no batches for an interface without checksum offload. */
        train->refused = error == EIO || error == EINVAL || error == EOPNOTSUPP;
        split(udp, train);
        return 0;
    }
    head.count = 1;
    drop(udp, &head, name_of(error));
    advance(out, train);
    return 0;
}

static void count_sent(struct vb_udp *udp, uint32_t first, int messages)
{
    struct vb_udp_out *out = udp->out;
    uint64_t packets = 0;

    for (int i = 0; i < messages; ++i) {
        struct train *train = &out->train[first + (uint32_t)i];

        packets += train->single ? 1 : train->count;
        if (train->refused)
            atomic_fetch_or(&udp->without, VB_UDP_WITHOUT_SEGMENTATION);
        advance(out, train);
    }
    vb_udp_count(udp, VB_UDP_SENT, packets);
}

static int send_next(struct vb_udp *udp)
{
    struct vb_udp_out *out = udp->out;
    uint32_t first = out->next_train;
    int fd = vb_udp_sender(udp, out->train[first].path.source_port).fd;
    uint32_t count;
    int sent;

    if (out->train[first].single)
        count = write_message(udp, first) ? 1 : 0;
    else
        count = run_of(udp, first, fd);
    if (count == 0)
        return fail(udp, first, EAFNOSUPPORT);
    do
        sent = send_messages(udp, fd, first, count);
    while (sent == -EINTR);
    if (sent < 0)
        return fail(udp, first, -sent);
    count_sent(udp, first, sent);
    return 0;
}

/* Once: a program may do what it likes with the memory of a packet that counts as sent. */
static void keep_packet(struct vb_udp_out *out, struct staged *packet)
{
    if (packet->is_kept)
        return;
    packet->is_kept = true;
    for (uint16_t i = 1; i + 1 < packet->vector_count; ++i) {
        struct iovec *piece = &out->vector[packet->vector + i];

        memcpy(out->keep + out->kept, piece->iov_base, piece->iov_len);
        piece->iov_base = out->keep + out->kept;
        out->kept += (uint32_t)piece->iov_len;
    }
}

static void keep(struct vb_udp_out *out)
{
    for (uint32_t i = out->next_train; i < out->trains; ++i)
        for (uint16_t p = 0; p < out->train[i].count; ++p)
            keep_packet(out, &out->packet[out->train[i].first + p]);
}

static void reset(struct vb_udp_out *out)
{
    out->packets = out->vectors = out->bytes = out->kept = 0;
    out->trains = out->next_train = 0;
}

int vb_udp_flush(struct vb_udp *udp)
{
    struct vb_udp_out *out = udp->out;
    int error = 0;

    while (!error && out->next_train < out->trains)
        error = send_next(udp);
    out->blocked = error != 0;
    if (error)
        keep(out);
    else
        reset(out);
    return error;
}

void vb_udp_forget(struct vb_udp *udp, uint32_t qp_num)
{
    struct vb_udp_out *out = udp->out;
    uint32_t kept = out->next_train;

    for (uint32_t i = out->next_train; i < out->trains; ++i)
        if (out->packet[out->train[i].first].qp_num != qp_num)
            out->train[kept++] = out->train[i];
    out->trains = kept;
    if (out->next_train == out->trains) {
        reset(out);
        out->blocked = false;
    }
}

/* ---- one packet, from any thread ---- */

static int send_alone(struct vb_udp *udp, const struct vb_path *path, struct msghdr *header)
{
    int fd = vb_udp_sender(udp, path->source_port).fd;
    ssize_t sent;

    do
        sent = sendmsg(fd, header, MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? errno : 0;
}

int vb_udp_send(struct vb_udp *udp, const struct vb_packet *packet)
{
    struct iovec vector[VB_PIECES + 2];
    struct staged laid;
    struct vb_icrc_flow flow;
    union vb_socket_address to;
    union control control;
    struct msghdr header;
    int error = EAFNOSUPPORT;

    if (address_message(udp, packet->path, 0, &to, &control, &header)) {
        header.msg_iov = vector;
        header.msg_iovlen = lay_out(packet, &laid, vector);
        flow = flow_of(udp, packet->path);
        write_icrc(vb_start_udp(&(struct vb_start){0}, &flow, 0, laid.length), &laid, vector,
                   laid.tail + laid.pad);
        error = send_alone(udp, packet->path, &header);
    }
    if (is_passing(error))
        return -EAGAIN;
    vb_udp_count(udp, error ? name_of(error) : VB_UDP_SENT, 1);
    return error == EFAULT ? -EFAULT : 0;
}
