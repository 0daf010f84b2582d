// SPDX-License-Identifier: Apache-2.0
/*
 * Receiving: datagrams are read in batches, cut into the packets that UDP_GRO joined, and checked.
 * roce.c calls it under the port's lock. A packet is handed on only if its ICRC holds (ids.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hca/adapter.h"
#include "port/gid.h"
#include "roce/icrc_start.h"
#include "roce/ids.h"
#include "roce/udp_state.h"
#include "roce/unconfirmed.h"
#include "wire/opcode.h"

enum { BUFFERS = 8, BUFFER_BYTES = 65536, CONTROL_BYTES = 256 };
enum { FLOW_LABEL = 0xfffff };

union control {
    struct cmsghdr align;
    char room[CONTROL_BYTES];
};

/*
 * The buffer that is being cut into packets: where the next one begins, and what all have in
 * common.
 */
struct cursor {
    const uint8_t *at;
    uint32_t left;
    uint32_t segment;
    bool ipv4;
    bool
        doubted; /* the last packet's ICRC would hold with an identification that is not believed */
    uint16_t id; /* the last packet's identification (IPv4) */
    struct vb_unconfirmed
        *confirmed; /* the packet that the last one confirmed, to be delivered before it; or NULL */
    struct vb_ids_pair pair;
    struct vb_icrc_flow flow;
    struct vb_arrival common;
};

struct vb_udp_in {
    int wanted; /* buffers in the next call: one while datagrams come singly, as recvmsg is faster
                 */
    int filled, next;
    struct vb_icrc_starts starts;
    struct cursor cursor;
    struct vb_ids ids;
    uint64_t empty_at; /* when the socket was empty last; kept while a sender counts (ids.h) */
    struct vb_unconfirmed_store unconfirmed;
    struct mmsghdr messages[BUFFERS];
    struct iovec parts[BUFFERS];
    union vb_socket_address from[BUFFERS];
    union control controls[BUFFERS];
    uint8_t *bytes;
};

int vb_roce_udp_in_open(struct vb_udp *udp)
{
    struct vb_udp_in *in = calloc(1, sizeof(*in));

    udp->in = in;
    if (!in)
        return -ENOMEM;
    in->wanted = 1;
    in->bytes = aligned_alloc(64, (size_t)BUFFERS * BUFFER_BYTES);
    if (!in->bytes)
        return -ENOMEM;
    for (int i = 0; i < BUFFERS; ++i) {
        struct msghdr *header = &in->messages[i].msg_hdr;

        in->parts[i].iov_base = in->bytes + (size_t)i * BUFFER_BYTES;
        in->parts[i].iov_len = BUFFER_BYTES;
        header->msg_iov = &in->parts[i];
        header->msg_iovlen = 1;
        header->msg_name = &in->from[i];
        header->msg_control = in->controls[i].room;
    }
    return 0;
}

void vb_roce_udp_in_close(struct vb_udp *udp)
{
    if (udp->in) {
        free(udp->in->bytes);
        free(udp->in->unconfirmed.places);
    }
    free(udp->in);
}

static uint64_t time_of(const struct vb_udp *udp)
{
    return udp->config.clock ? udp->config.clock() : 0;
}

static int receive_one(struct vb_udp *udp)
{
    struct mmsghdr *message = &udp->in->messages[0];
    ssize_t length = recvmsg(udp->fd, &message->msg_hdr, MSG_DONTWAIT);

    if (length < 0)
        return -1;
    message->msg_len = (unsigned)length;
    return 1;
}

static int receive_some(struct vb_udp *udp, int wanted)
{
    int count;

    if (wanted == 1)
        return receive_one(udp);
    count = recvmmsg(udp->fd, udp->in->messages, (unsigned)wanted, MSG_DONTWAIT, NULL);
    if (count < 0 && errno == ENOSYS) {
        atomic_fetch_or(&udp->without, VB_UDP_WITHOUT_MMSG);
        return receive_one(udp);
    }
    return count;
}

/* Twice as many buffers while all are filled, half as many when fewer than half are. */
static void adapt(struct vb_udp *udp, int count)
{
    struct vb_udp_in *in = udp->in;

    if (vb_roce_udp_lacks(udp, VB_UDP_WITHOUT_MMSG))
        in->wanted = 1;
    else if (count == in->wanted && in->wanted < BUFFERS)
        in->wanted *= 2;
    else if (count < in->wanted / 2)
        in->wanted /= 2;
}

int vb_roce_udp_receive(struct vb_udp *udp)
{
    struct vb_udp_in *in = udp->in;
    int before = errno, count;

    for (int i = 0; i < in->wanted; ++i) {
        in->messages[i].msg_hdr.msg_namelen = sizeof(in->from[i]);
        in->messages[i].msg_hdr.msg_controllen = CONTROL_BYTES;
    }
    do
        count = receive_some(udp, in->wanted);
    while (count < 0 && errno == EINTR);
    errno = before; /* ibv_poll_cq, which leads here, leaves errno alone */
    adapt(udp, count < 0 ? 0 : count);
    if (VB_UNLIKELY(in->ids.counts) && count <= 0)
        in->empty_at = time_of(udp);
    in->filled = count < 0 ? 0 : count;
    in->next = 0;
    in->cursor.left = 0;
    if (in->filled)
        vb_roce_udp_count(udp, VB_UDP_RECEIVED_CALLS, 1);
    return in->filled;
}

/* ---- what came with a datagram ---- */

static int udp_receive_number(const struct cmsghdr *field)
{
    int value;

    memcpy(&value, CMSG_DATA(field), sizeof(value));
    return value;
}

static void read_ipv4_field(const struct cmsghdr *field, struct cursor *cursor)
{
    struct in_pktinfo info;

    if (field->cmsg_type == IP_PKTINFO) {
        memcpy(&info, CMSG_DATA(field), sizeof(info));
        vb_wire_gid_of_ipv4(&info.ipi_addr, cursor->flow.target);
    } else if (field->cmsg_type == IP_TOS) {
        cursor->common.traffic_class = *CMSG_DATA(field);
    } else if (field->cmsg_type == IP_TTL) {
        cursor->common.hop_limit = (uint8_t)udp_receive_number(field);
    }
}

static void read_ipv6_field(const struct cmsghdr *field, struct cursor *cursor)
{
    struct in6_pktinfo info;

    if (field->cmsg_type == IPV6_PKTINFO) {
        memcpy(&info, CMSG_DATA(field), sizeof(info));
        memcpy(cursor->flow.target, &info.ipi6_addr, 16);
    } else if (field->cmsg_type == IPV6_TCLASS) {
        cursor->common.traffic_class = (uint8_t)udp_receive_number(field);
    } else if (field->cmsg_type == IPV6_HOPLIMIT) {
        cursor->common.hop_limit = (uint8_t)udp_receive_number(field);
    } else if (field->cmsg_type == VB_IPV6_FLOWINFO) {
        cursor->common.flow_label = ntohl((uint32_t)udp_receive_number(field)) & FLOW_LABEL;
    }
}

static void read_fields(struct msghdr *header, struct cursor *cursor)
{
    for (struct cmsghdr *field = CMSG_FIRSTHDR(header); field; field = CMSG_NXTHDR(header, field)) {
        if (field->cmsg_level == IPPROTO_IP)
            read_ipv4_field(field, cursor);
        else if (field->cmsg_level == IPPROTO_IPV6)
            read_ipv6_field(field, cursor);
        else if (field->cmsg_level == VB_SOL_UDP && field->cmsg_type == VB_UDP_GRO)
            cursor->segment = (uint32_t)udp_receive_number(field);
    }
}

static void read_source(const union vb_socket_address *from, struct vb_icrc_flow *flow)
{
    flow->source_port = ntohs(from->ipv4.sin_port);
    if (from->any.sa_family == AF_INET)
        vb_wire_gid_of_ipv4(&from->ipv4.sin_addr, flow->source);
    else
        memcpy(flow->source, &from->ipv6.sin6_addr, 16);
}

/* The byte order does not matter, as the addresses are only compared. */
static struct vb_ids_pair pair_of(const struct vb_icrc_flow *flow)
{
    struct vb_ids_pair pair;

    memcpy(&pair.source, flow->source + 12, sizeof(pair.source));
    memcpy(&pair.target, flow->target + 12, sizeof(pair.target));
    return pair;
}

static void open_buffer(struct vb_udp *udp, int index)
{
    struct vb_udp_in *in = udp->in;
    struct mmsghdr *message = &in->messages[index];
    struct cursor *cursor = &in->cursor;

    memset(cursor, 0, sizeof(*cursor));
    cursor->at = in->parts[index].iov_base;
    cursor->left = message->msg_len;
    cursor->segment = message->msg_len;
    cursor->flow.target_port = udp->port;
    read_source(&in->from[index], &cursor->flow);
    read_fields(&message->msg_hdr, cursor);
    if (cursor->segment == 0)
        cursor->segment = cursor->left;
    cursor->ipv4 = vb_wire_gid_is_ipv4(cursor->flow.target);
    cursor->pair = pair_of(&cursor->flow);
    memcpy(cursor->common.sgid, cursor->flow.source, 16);
    memcpy(cursor->common.dgid, cursor->flow.target, 16);
}

/* ---- packets ---- */

enum { SHORTEST = VB_BTH + VB_ICRC };

/* Is it sent again when it is lost? XRC's packets are, as RC's. */
static bool udp_receive_is_reliable(const uint8_t *bth)
{
    uint8_t transport = bth[0] & VB_TRANSPORT_MASK;

    return transport == VB_TRANSPORT_RC || transport == VB_TRANSPORT_XRC;
}

static void udp_receive_refuse(struct vb_udp *udp, const struct vb_arrival *arrival,
                               struct vb_udp_seen seen)
{
    vb_roce_udp_count(udp, VB_UDP_BAD_ICRC, 1);
    if (udp->config.refused)
        udp->config.refused(udp->config.argument, arrival, seen);
}

/* ---- unconfirmed packets ---- */

/* Longer than the turns of other flows on a busy link, and short for a packet that must be sent
 * again. */
enum { UNCONFIRMED_NS = 2000000 };

static void throw_away(struct vb_udp *udp, struct vb_unconfirmed *at)
{
    vb_roce_unconfirmed_free(&udp->in->unconfirmed, at);
    udp_receive_refuse(udp, &at->arrival, (struct vb_udp_seen){at->source_port, at->id});
}

static void throw_away_of(struct vb_udp *udp, const struct vb_ids_flow *flow)
{
    struct vb_unconfirmed *at = vb_roce_unconfirmed_find(&udp->in->unconfirmed, flow);

    if (at)
        throw_away(udp, at);
}

/* Keeps a packet until the next one of its flow confirms it. False: it cannot be kept. */
static bool keep_unconfirmed(struct vb_udp *udp, const uint8_t *bytes,
                             const struct vb_ids_doubt *doubt, struct vb_ids_flow *flow)
{
    struct vb_unconfirmed_store *store = &udp->in->unconfirmed;
    struct vb_unconfirmed *at = vb_roce_unconfirmed_next(store, doubt->length + VB_ICRC);

    if (!at)
        return false;
    if (at->flow)
        throw_away(udp, at);
    memcpy(at->bytes, bytes, doubt->length + VB_ICRC);
    at->arrival = udp->in->cursor.common;
    at->arrival.bytes = at->bytes;
    at->arrival.length = doubt->length;
    at->arrival.doubted = udp->in->cursor.doubted;
    at->until = doubt->now + UNCONFIRMED_NS;
    at->source_port = doubt->source_port;
    at->id = doubt->unseen.id;
    vb_roce_unconfirmed_put(store, at, flow);
    return true;
}

void vb_roce_udp_share(struct vb_udp *udp)
{
    udp->in->ids.shared = true;
}

uint64_t vb_roce_udp_deadline(const struct vb_udp *udp)
{
    const struct vb_unconfirmed *at = vb_roce_unconfirmed_oldest(&udp->in->unconfirmed);

    return at ? at->until : UINT64_MAX;
}

void vb_roce_udp_expire(struct vb_udp *udp, uint64_t now)
{
    struct vb_unconfirmed *at;

    while ((at = vb_roce_unconfirmed_oldest(&udp->in->unconfirmed)) && at->until <= now)
        throw_away(udp, at);
}

/* Gives the unconfirmed packet, and goes back to the one that confirmed it, which is next. */
static VB_COLD void take_confirmed(struct vb_udp *udp, struct vb_arrival *arrival, uint32_t length)
{
    struct cursor *cursor = &udp->in->cursor;

    *arrival = cursor->confirmed->arrival;
    arrival->doubted = false;
    cursor->id = cursor->confirmed->id;
    vb_roce_unconfirmed_free(&udp->in->unconfirmed, cursor->confirmed);
    cursor->confirmed = NULL;
    cursor->at -= length;
    cursor->left += length;
}

/* ---- is it a packet? ---- */

enum holds { HOLDS, HOLDS_NOT, IS_UNCONFIRMED };

/*
 * Over IPv4: would the ICRC hold with another identification, and can the sender have used that
 * one?
 */
static VB_COLD enum holds weigh(struct vb_udp *udp, const uint8_t *at, uint32_t length,
                                uint32_t computed)
{
    struct cursor *cursor = &udp->in->cursor;
    struct vb_ids_doubt doubt = {.pair = cursor->pair,
                                 .unseen = {cursor->id, true},
                                 .content = computed,
                                 .length = length,
                                 .source_port = cursor->flow.source_port,
                                 .reliable = udp_receive_is_reliable(at),
                                 .now = time_of(udp)};
    struct vb_ids_flow *flow;
    enum vb_ids_verdict verdict;

    doubt.earliest = udp->in->empty_at ? udp->in->empty_at : doubt.now;
    if (vb_wire_icrc_explain(computed, vb_wire_icrc_read(at + length), length, &doubt.unseen))
        return HOLDS_NOT;
    flow = vb_roce_ids_flow(&udp->in->ids, doubt.pair, doubt.source_port);
    verdict = vb_roce_ids_check(&udp->in->ids, flow, &doubt);
    if (verdict == VB_IDS_CONFIRMS) {
        cursor->confirmed = vb_roce_unconfirmed_find(&udp->in->unconfirmed, flow);
        return HOLDS;
    }
    throw_away_of(udp, flow);
    if (verdict == VB_IDS_RIGHT) {
        cursor->id = doubt.unseen.id;
        return HOLDS;
    }
    cursor->doubted = doubt.reliable && doubt.unseen.dont_fragment;
    return verdict == VB_IDS_DOUBTED && keep_unconfirmed(udp, at, &doubt, flow) ? IS_UNCONFIRMED
                                                                                : HOLDS_NOT;
}

static enum holds icrc_holds(struct vb_udp *udp, const uint8_t *at, uint32_t length)
{
    struct vb_udp_in *in = udp->in;
    struct cursor *cursor = &in->cursor;
    uint32_t computed;

    cursor->doubted = false;
    cursor->id = vb_roce_ids_segment(at); /* over IPv6 nothing depends on it */
    computed = vb_wire_icrc_transport(
        vb_roce_icrc_start(&in->starts, &cursor->flow, cursor->id, length), at, length);
    if (VB_UNLIKELY(computed != vb_wire_icrc_read(at + length)))
        return cursor->ipv4 ? weigh(udp, at, length, computed) : HOLDS_NOT;
    if (VB_UNLIKELY(cursor->ipv4 && !vb_roce_ids_is_noted(&in->ids, cursor->pair)))
        vb_roce_ids_note_placed(&in->ids, cursor->pair, cursor->flow.source_port, cursor->id,
                                time_of(udp));
    return HOLDS;
}

static VB_COLD void refuse_this(struct vb_udp *udp, const uint8_t *at, uint32_t length)
{
    const struct cursor *cursor = &udp->in->cursor;
    struct vb_arrival arrival = cursor->common;

    arrival.bytes = at;
    arrival.length = length;
    arrival.doubted = cursor->doubted;
    udp_receive_refuse(udp, &arrival, (struct vb_udp_seen){cursor->flow.source_port, cursor->id});
}

static bool is_packet(struct vb_udp *udp, const uint8_t *at, uint32_t length)
{
    enum holds holds;

    if (length < SHORTEST || length % 4) {
        vb_roce_udp_count(udp, VB_UDP_BAD_LENGTH, 1);
        return false;
    }
    holds = icrc_holds(udp, at, length - VB_ICRC);
    if (VB_UNLIKELY(holds == HOLDS_NOT))
        refuse_this(udp, at, length - VB_ICRC);
    return holds == HOLDS;
}

/* The next segment of the open buffer; NULL: none is left. */
static const uint8_t *next_segment(struct cursor *cursor, uint32_t *length)
{
    const uint8_t *at = cursor->at;

    if (cursor->left == 0)
        return NULL;
    *length = cursor->left < cursor->segment ? cursor->left : cursor->segment;
    cursor->at += *length;
    cursor->left -= *length;
    return at;
}

bool vb_roce_udp_next(struct vb_udp *udp, struct vb_arrival *arrival)
{
    struct vb_udp_in *in = udp->in;
    const uint8_t *at;
    uint32_t length;

    for (;;) {
        while ((at = next_segment(&in->cursor, &length))) {
            if (!is_packet(udp, at, length))
                continue;
            vb_roce_udp_tally(udp, VB_UDP_RECEIVED);
            if (VB_UNLIKELY(in->cursor.confirmed != NULL)) {
                take_confirmed(udp, arrival, length);
                return true;
            }
            *arrival = in->cursor.common;
            arrival->bytes = at;
            arrival->length = length - VB_ICRC;
            return true;
        }
        if (in->next == in->filled)
            return false;
        open_buffer(udp, in->next++);
    }
}

struct vb_udp_seen vb_roce_udp_last(const struct vb_udp *udp)
{
    const struct cursor *cursor = &udp->in->cursor;

    return (struct vb_udp_seen){cursor->flow.source_port, cursor->id};
}
