// SPDX-License-Identifier: Apache-2.0
/*
 * Sending. roce.c stages packets and flushes them, under the carrier's lock; vb_roce_udp_send sends
 * one from any thread.
 *
 * Packets of one flow that follow each other and are equal in size join a batch (udp.h), of which
 * the last one may be shorter. The ICRC is computed when a packet joins its batch, as over IPv4 it
 * covers the number of the segment, which the receiver reads in the packet (ids.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hca/adapter.h"
#include "port/gid.h"
#include "port/packet.h"
#include "roce/icrc_start.h"
#include "roce/ids.h"
#include "roce/udp_state.h"

/*
 * So much is staged before a flush, so that what was copied is still in the cache: two full batches
 * with a path MTU of 1024 to 4096. A third, short one would cost the system as much as a full one.
 */
enum { BURST_BYTES = 120 << 10 };

enum {
    PACKETS = 256,
    BATCHES = 128,
    BATCH_PACKETS = 64, /* UDP_MAX_SEGMENTS of the oldest kernels; VB_BTH_SEGMENT can say as many */
    BATCH_BYTES = 65507, /* the most that IPv4's length field leaves for UDP's payload */
    CONTROL_BYTES = 160,
    LARGEST_PACKET = VB_HEADERS_MAX + 4096 + VB_ICRC,
};

/*
 * A packet in vb_udp_out.bytes, where they stand one behind the other: from BTH to pad, then the
 * ICRC.
 */
struct staged {
    uint32_t at;
    uint32_t qp_num;
    uint16_t length; /* without the ICRC */
};

struct batch {
    struct vb_path path;
    struct vb_icrc_flow flow;
    uint16_t first, count; /* packets */
    uint16_t size;         /* of each datagram but the last */
    uint32_t bytes;
    bool closed;  /* no other packet may join, as the last one is shorter */
    bool single;  /* its packets are sent one by one, each with identification 0 */
    bool refused; /* the system refused the batch as invalid; if its packets pass alone, batches are
                     not supported */
};

union control {
    struct cmsghdr align;
    char room[CONTROL_BYTES];
};

struct vb_udp_out {
    uint32_t packets, used; /* of `bytes` */
    uint32_t next_batch, batches;
    bool blocked;
    uint8_t *icrc; /* of the packet that was staged last; NULL: it could not be */
    struct vb_icrc_starts starts;
    struct staged packet[PACKETS];
    struct batch batch[BATCHES];
    struct iovec vector[BATCHES];
    struct mmsghdr message[BATCHES];
    union vb_socket_address to[BATCHES];
    union control control[BATCHES];
    uint8_t bytes[BURST_BYTES + LARGEST_PACKET];
};

int vb_roce_udp_out_open(struct vb_udp *udp)
{
    udp->out = calloc(1, sizeof(*udp->out));
    return udp->out ? 0 : -ENOMEM;
}

void vb_roce_udp_out_close(struct vb_udp *udp)
{
    free(udp->out);
}

/* ---- addresses ---- */

static bool is_scoped(const uint8_t gid[16])
{
    return vb_wire_gid_is_multicast(gid) || (gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80);
}

static uint32_t udp_send_interface_of(const struct vb_udp *udp, const struct vb_path *path)
{
    if (!is_scoped(path->dgid) || !udp->config.interface)
        return 0;
    return udp->config.interface(udp->config.argument, path);
}

/* False: no datagram can be sent there by this socket. */
static bool write_address(const struct vb_udp *udp, const struct vb_path *path,
                          union vb_socket_address *to, socklen_t *size)
{
    memset(to, 0, sizeof(*to));
    if (vb_wire_gid_is_ipv4(path->sgid) != vb_wire_gid_is_ipv4(path->dgid))
        return false;
    to->ipv4.sin_port = htons(udp->port);
    if (udp->ipv6) {
        to->any.sa_family = AF_INET6;
        memcpy(&to->ipv6.sin6_addr, path->dgid, 16);
        to->ipv6.sin6_scope_id = udp_send_interface_of(udp, path);
        if (!vb_wire_gid_is_ipv4(path->dgid))
            to->ipv6.sin6_flowinfo = htonl(path->flow_label);
        *size = sizeof(to->ipv6);
        return true;
    }
    to->any.sa_family = AF_INET;
    memcpy(&to->ipv4.sin_addr, path->dgid + 12, 4);
    *size = sizeof(to->ipv4);
    return vb_wire_gid_is_ipv4(path->dgid);
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

/*
 * Writes the message's address and control messages. `segment`: the size of each datagram of a
 * batch; 0: it is one datagram.
 */
static bool address_message(const struct vb_udp *udp, const struct vb_path *path, uint16_t segment,
                            union vb_socket_address *to, union control *control,
                            struct msghdr *header)
{
    uint32_t interface = udp_send_interface_of(udp, path);

    memset(header, 0, sizeof(*header));
    header->msg_control = control->room;
    header->msg_name = to;
    if (!write_address(udp, path, to, &header->msg_namelen))
        return false;
    if (vb_wire_gid_is_ipv4(path->dgid))
        add_ipv4_fields(header, path, interface);
    else
        add_ipv6_fields(header, path, interface);
    if (segment)
        add_field(header, VB_SOL_UDP, VB_UDP_SEGMENT, &segment, sizeof(segment));
    return true;
}

/* ---- packets ---- */

static struct vb_icrc_flow udp_send_flow_of(const struct vb_udp *udp, const struct vb_path *path)
{
    struct vb_icrc_flow flow = {.source_port = vb_roce_udp_sender(udp, path->source_port).port,
                                .target_port = udp->port};

    memcpy(flow.source, path->sgid, 16);
    memcpy(flow.target, path->dgid, 16);
    return flow;
}

static void report_fault(struct vb_udp *udp, const struct vb_packet *packet)
{
    vb_roce_udp_count(udp, VB_UDP_DROP_FAULT, 1);
    if (udp->config.fault)
        udp->config.fault(udp->config.argument, packet->qp_num,
                          vb_wire_bth_read(packet->header).psn);
}

static uint32_t destination_qp(const uint8_t *header)
{
    return vb_wire_bth_read(header).dest_qp;
}

/*
 * One batch has one sending and one receiving QP: a host delivers a batch that was not cut as a
 * whole, and to the process that its first packet is for.
 */
static bool may_join(const struct vb_udp_out *out, const struct batch *batch,
                     const struct vb_packet *packet, uint32_t size)
{
    const struct staged *first = &out->packet[batch->first];

    return !batch->closed && !batch->single && batch->count < BATCH_PACKETS &&
           size <= batch->size && batch->bytes + size <= BATCH_BYTES &&
           first->qp_num == packet->qp_num &&
           destination_qp(out->bytes + first->at) == destination_qp(packet->header) &&
           memcmp(&batch->path, packet->path, sizeof(batch->path)) == 0;
}

static struct batch *batch_for(struct vb_udp *udp, const struct vb_packet *packet, uint32_t size)
{
    struct vb_udp_out *out = udp->out;
    struct batch *batch = out->batches > out->next_batch ? &out->batch[out->batches - 1] : NULL;

    if (batch && !vb_roce_udp_lacks(udp, VB_UDP_WITHOUT_GSO) && may_join(out, batch, packet, size))
        return batch;
    batch = &out->batch[out->batches++];
    memset(batch, 0, sizeof(*batch));
    batch->path = *packet->path;
    batch->flow = udp_send_flow_of(udp, packet->path);
    batch->first = (uint16_t)out->packets;
    batch->size = (uint16_t)size;
    return batch;
}

bool vb_roce_udp_has_room(const struct vb_udp *udp)
{
    const struct vb_udp_out *out = udp->out;

    return !out->blocked && out->used < BURST_BYTES && out->packets < PACKETS &&
           out->batches < BATCHES;
}

_Static_assert(BATCH_PACKETS <= VB_BTH_SEGMENT + 1, "every place can be written");

/* The bits are XORed and not set, as a fault rule may have flipped them. */
static void change_segment(struct vb_udp_out *out, const struct staged *packet, uint16_t by)
{
    if (packet->length >= VB_BTH)
        out->bytes[packet->at + VB_BTH_SEGMENT_AT] ^= (uint8_t)by;
}

/* The number of the segment in its batch, which over IPv4 is the packet's identification. */
static uint16_t udp_send_segment_of(const struct batch *batch, uint16_t index)
{
    return batch->single || !vb_wire_gid_is_ipv4(batch->flow.target) ? 0 : index;
}

static void add_icrc(struct vb_udp_out *out, const struct batch *batch, uint16_t id,
                     const struct staged *packet)
{
    uint8_t *bytes = out->bytes + packet->at;
    uint32_t start = vb_roce_icrc_start(&out->starts, &batch->flow, id, packet->length);

    vb_wire_icrc_write(bytes + packet->length,
                       vb_wire_icrc_transport(start, bytes, packet->length));
}

/* Copies and sums in one pass: the register is that of the bytes stored. See memory/guard.h. */
VB_GUARDED static int copy_summed(uint32_t *crc, uint8_t *to, const uint8_t *from, size_t n)
{
    *crc = vb_wire_crc32_copy(*crc, to, from, n);
    return vb_memory_guard_passed();
}

static int stage_piece(const struct vb_piece *piece, uint8_t *to, uint32_t *crc)
{
    int error;

    if (VB_LIKELY(vb_memory_guard_holds()))
        return copy_summed(crc, to, piece->bytes, piece->length);
    error = vb_memory_guarded_read(to, piece->bytes, piece->length);
    if (!error)
        *crc = vb_wire_crc32(*crc, to, piece->length);
    return error;
}

/* Payload and pad, behind the header; `crc` goes on from there. */
static int stage_payload(const struct vb_packet *packet, uint8_t *to, uint32_t *crc)
{
    for (uint32_t i = 0; i < packet->piece_count; ++i) {
        int error = stage_piece(&packet->piece[i], to, crc);

        if (VB_UNLIKELY(error))
            return error;
        to += packet->piece[i].length;
    }
    memset(to, 0, packet->pad);
    *crc = vb_wire_crc32(*crc, to, packet->pad);
    return 0;
}

/*
 * The packet is copied, so that it is what its ICRC says whatever the program does meanwhile, and
 * so that the system is given a batch in one piece: many small ones cost it more than the copy.
 */
struct vb_udp_seen vb_roce_udp_stage(struct vb_udp *udp, const struct vb_packet *packet)
{
    struct vb_udp_out *out = udp->out;
    struct staged *to = &out->packet[out->packets];
    uint16_t length = (uint16_t)(packet->header_length + packet->payload_length + packet->pad);
    uint32_t size = length + VB_ICRC, crc;
    struct batch *batch = batch_for(udp, packet, size);
    uint16_t segment = udp_send_segment_of(batch, batch->count);
    uint8_t *bytes = out->bytes + out->used;

    *to = (struct staged){out->used, packet->qp_num, length};
    memcpy(bytes, packet->header, packet->header_length);
    change_segment(out, to, segment);
    crc = vb_wire_icrc_transport(vb_roce_icrc_start(&out->starts, &batch->flow, segment, length),
                                 bytes, packet->header_length);
    out->icrc = NULL;
    if (VB_UNLIKELY(stage_payload(packet, bytes + packet->header_length, &crc))) {
        if (!batch->count)
            --out->batches;
        report_fault(udp, packet);
        return (struct vb_udp_seen){packet->path->source_port, 0};
    }
    out->icrc = bytes + length;
    vb_wire_icrc_write(out->icrc, crc);
    ++out->packets;
    out->used += size;
    ++batch->count;
    batch->bytes += size;
    batch->closed = size < batch->size;
    return (struct vb_udp_seen){batch->flow.source_port, segment};
}

void vb_roce_udp_damage_icrc(struct vb_udp *udp, uint32_t icrc_flip)
{
    uint8_t *icrc = udp->out->icrc;

    if (icrc)
        vb_wire_icrc_write(icrc, vb_wire_icrc_read(icrc) ^ icrc_flip);
}

/* ---- flushing ---- */

/* The counter for packets that an error of sendmsg(2) dropped. */
static enum vb_udp_count udp_send_name_of(int error)
{
    switch (error) {
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EADDRNOTAVAIL:
    case ENODEV:
    case ENXIO:
    case EINVAL: /* Linux' answer where the source address is not the host's */
        return VB_UDP_DROP_NO_ROUTE;
    case EPERM:
    case EACCES:
        return VB_UDP_DROP_FORBIDDEN;
    case EMSGSIZE:
        return VB_UDP_DROP_TOO_LONG;
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

/* The batch's packets are sent one by one from now on. */
static void udp_send_split(struct vb_udp *udp, struct batch *batch)
{
    vb_roce_udp_count(udp, VB_UDP_SPLIT, 1);
    for (uint16_t i = 1; i < batch->count; ++i) {
        const struct staged *packet = &udp->out->packet[batch->first + i];

        change_segment(udp->out, packet, udp_send_segment_of(batch, i));
        add_icrc(udp->out, batch, 0, packet);
    }
    batch->single = true;
}

/* Makes the next message of a batch: all of it, or one packet if it was split. */
static bool write_message(struct vb_udp *udp, uint32_t index)
{
    struct vb_udp_out *out = udp->out;
    const struct batch *batch = &out->batch[index];
    struct msghdr *header = &out->message[index].msg_hdr;
    const struct staged *first = &out->packet[batch->first];
    bool is_cut = batch->count > 1 && !batch->single;

    if (!address_message(udp, &batch->path, is_cut ? batch->size : 0, &out->to[index],
                         &out->control[index], header))
        return false;
    out->vector[index].iov_base = out->bytes + first->at;
    out->vector[index].iov_len = is_cut ? batch->bytes : (size_t)first->length + VB_ICRC;
    header->msg_iov = &out->vector[index];
    header->msg_iovlen = 1;
    return true;
}

static int send_messages(struct vb_udp *udp, int fd, uint32_t first, uint32_t count)
{
    struct mmsghdr *message = &udp->out->message[first];
    int sent;

    vb_roce_udp_count(udp, VB_UDP_SENT_CALLS, 1);
    if (count > 1 && !vb_roce_udp_lacks(udp, VB_UDP_WITHOUT_MMSG)) {
        sent = sendmmsg(fd, message, count, MSG_DONTWAIT);
        if (sent >= 0 || errno != ENOSYS)
            return sent < 0 ? -errno : sent;
        atomic_fetch_or(&udp->without, VB_UDP_WITHOUT_MMSG);
    }
    return sendmsg(fd, &message->msg_hdr, MSG_DONTWAIT) < 0 ? -errno : 1;
}

/* Makes the messages of the batches from `first` on that one call can send; returns how many. */
static uint32_t run_of(struct vb_udp *udp, uint32_t first, int fd)
{
    const struct vb_udp_out *out = udp->out;
    uint32_t count = 0;

    while (first + count < out->batches && !out->batch[first + count].single &&
           vb_roce_udp_sender(udp, out->batch[first + count].path.source_port).fd == fd &&
           write_message(udp, first + count))
        ++count;
    return count;
}

/* The batch's next message was sent, or is dropped. */
static void udp_send_advance(struct vb_udp_out *out, struct batch *batch)
{
    if (batch->single && batch->count > 1) {
        ++batch->first;
        --batch->count;
    } else {
        ++out->next_batch;
    }
}

/*
 * Sending the next message of batch `index` failed. 0: it is dropped or split; -EAGAIN: it is kept.
 */
static int udp_send_fail(struct vb_udp *udp, uint32_t index, int error)
{
    struct vb_udp_out *out = udp->out;
    struct batch *batch = &out->batch[index];

    if (is_passing(error)) {
        vb_roce_udp_count(udp, VB_UDP_POSTPONED, 1);
        return -EAGAIN;
    }
    if (batch->count > 1 && !batch->single) {
        /* Older kernels support no batches on an interface without checksum offload. */
        batch->refused = error == EIO || error == EINVAL || error == EOPNOTSUPP;
        udp_send_split(udp, batch);
        return 0;
    }
    vb_roce_udp_count(udp, udp_send_name_of(error), 1);
    udp_send_advance(out, batch);
    return 0;
}

static void udp_send_count_sent(struct vb_udp *udp, uint32_t first, int messages)
{
    struct vb_udp_out *out = udp->out;
    uint64_t packets = 0;

    for (int i = 0; i < messages; ++i) {
        struct batch *batch = &out->batch[first + (uint32_t)i];

        packets += batch->single ? 1 : batch->count;
        if (batch->refused)
            atomic_fetch_or(&udp->without, VB_UDP_WITHOUT_GSO);
        udp_send_advance(out, batch);
    }
    vb_roce_udp_count(udp, VB_UDP_SENT, packets);
}

static int udp_send_send_next(struct vb_udp *udp)
{
    struct vb_udp_out *out = udp->out;
    uint32_t first = out->next_batch;
    int fd = vb_roce_udp_sender(udp, out->batch[first].path.source_port).fd;
    uint32_t count;
    int sent;

    if (out->batch[first].single)
        count = write_message(udp, first) ? 1 : 0;
    else
        count = run_of(udp, first, fd);
    if (count == 0)
        return udp_send_fail(udp, first, EAFNOSUPPORT);
    do
        sent = send_messages(udp, fd, first, count);
    while (sent == -EINTR);
    if (sent < 0)
        return udp_send_fail(udp, first, -sent);
    udp_send_count_sent(udp, first, sent);
    return 0;
}

static void reset(struct vb_udp_out *out)
{
    out->packets = out->used = 0;
    out->batches = out->next_batch = 0;
}

int vb_roce_udp_flush(struct vb_udp *udp)
{
    struct vb_udp_out *out = udp->out;
    int before = errno, error = 0;

    while (!error && out->next_batch < out->batches)
        error = udp_send_send_next(udp);
    errno = before; /* ibv_post_send and ibv_poll_cq, which lead here, leave errno alone */
    out->blocked = error != 0;
    if (!error)
        reset(out);
    return error;
}

void vb_roce_udp_forget(struct vb_udp *udp, uint32_t qp_num)
{
    struct vb_udp_out *out = udp->out;
    uint32_t kept = out->next_batch;

    for (uint32_t i = out->next_batch; i < out->batches; ++i)
        if (out->packet[out->batch[i].first].qp_num != qp_num)
            out->batch[kept++] = out->batch[i];
    out->batches = kept;
    if (out->next_batch == out->batches) {
        reset(out);
        out->blocked = false;
    }
}

/* ---- one packet, from any thread ---- */

static int send_alone(struct vb_udp *udp, const struct vb_path *path, struct msghdr *header)
{
    int fd = vb_roce_udp_sender(udp, path->source_port).fd;
    ssize_t sent;

    do
        sent = sendmsg(fd, header, MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? errno : 0;
}

int vb_roce_udp_send(struct vb_udp *udp, const struct vb_packet *packet)
{
    uint8_t bytes[LARGEST_PACKET];
    struct iovec vector = {.iov_base = bytes};
    struct vb_icrc_flow flow;
    union vb_socket_address to;
    union control control;
    struct msghdr header;
    int length = vb_port_packet_write(packet, bytes), error = EAFNOSUPPORT;
    uint32_t start;

    if (length < 0) {
        report_fault(udp, packet);
        return -EFAULT;
    }
    if (address_message(udp, packet->path, 0, &to, &control, &header)) {
        flow = udp_send_flow_of(udp, packet->path);
        start = vb_roce_icrc_start(&(struct vb_icrc_starts){0}, &flow, 0, (uint32_t)length);
        vb_wire_icrc_write(bytes + length, vb_wire_icrc_transport(start, bytes, (uint32_t)length));
        vector.iov_len = (size_t)length + VB_ICRC;
        header.msg_iov = &vector;
        header.msg_iovlen = 1;
        error = send_alone(udp, packet->path, &header);
    }
    if (is_passing(error))
        return -EAGAIN;
    vb_roce_udp_count(udp, error ? udp_send_name_of(error) : VB_UDP_SENT, 1);
    return 0;
}
