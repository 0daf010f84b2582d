// SPDX-License-Identifier: Apache-2.0
/*
 * Makes of a request that was carried out without packets those that it would have been
 * (capture_message.h). host/capture_direct.c calls it.
 */
#include "wrap/capture_message.h"

#include "wrap/capture_comment.h"

#include <string.h>

#include "wire/headers.h"

enum { NAK_TEXT = 128 };

/* The operations of a message's packets, by their place in it. */
struct sequence {
    bool known;
    uint8_t first, middle, last, only;
};

static const struct sequence requests[] = {
    [IBV_WR_SEND] = {true, VB_OP_SEND_FIRST, VB_OP_SEND_MIDDLE, VB_OP_SEND_LAST, VB_OP_SEND_ONLY},
    [IBV_WR_SEND_WITH_IMM] = {true, VB_OP_SEND_FIRST, VB_OP_SEND_MIDDLE, VB_OP_SEND_LAST_IMM,
                              VB_OP_SEND_ONLY_IMM},
    [IBV_WR_SEND_WITH_INV] = {true, VB_OP_SEND_FIRST, VB_OP_SEND_MIDDLE, VB_OP_SEND_LAST_INVALIDATE,
                              VB_OP_SEND_ONLY_INVALIDATE},
    [IBV_WR_RDMA_WRITE] = {true, VB_OP_WRITE_FIRST, VB_OP_WRITE_MIDDLE, VB_OP_WRITE_LAST,
                           VB_OP_WRITE_ONLY},
    [IBV_WR_RDMA_WRITE_WITH_IMM] = {true, VB_OP_WRITE_FIRST, VB_OP_WRITE_MIDDLE,
                                    VB_OP_WRITE_LAST_IMM, VB_OP_WRITE_ONLY_IMM},
    [IBV_WR_RDMA_READ] = {true, 0, 0, 0, VB_OP_READ_REQUEST},
    [IBV_WR_ATOMIC_CMP_AND_SWP] = {true, 0, 0, 0, VB_OP_COMPARE_SWAP},
    [IBV_WR_ATOMIC_FETCH_AND_ADD] = {true, 0, 0, 0, VB_OP_FETCH_ADD},
    [IBV_WR_FLUSH] = {true, 0, 0, 0, VB_OP_FLUSH},
    [IBV_WR_ATOMIC_WRITE] = {true, 0, 0, 0, VB_OP_ATOMIC_WRITE},
};

static const struct sequence read_responses = {true, VB_OP_READ_RESPONSE_FIRST,
                                               VB_OP_READ_RESPONSE_MIDDLE, VB_OP_READ_RESPONSE_LAST,
                                               VB_OP_READ_RESPONSE_ONLY};

struct writer {
    struct vb_capture *capture;
    const struct vb_capture_message *message;
    uint64_t now;
    uint16_t source_port;
    /* where the next packet's payload begins */
    uint32_t piece, offset;
};

static bool capture_message_is_reliable(const struct vb_capture_message *message)
{
    return message->transport == VB_TRANSPORT_RC || message->transport == VB_TRANSPORT_XRC;
}

/* ---- one packet ---- */

static struct vb_bth bth_of(const struct vb_capture_message *message, uint8_t opcode, uint32_t psn,
                            uint32_t payload, bool is_response)
{
    uint32_t flags = vb_opcodes[opcode].flags;
    bool ends = (flags & VB_OPCODE_LAST) && !is_response;

    return (struct vb_bth){
        .opcode = opcode,
        .solicited =
            ends && message->solicited && (flags & VB_OPCODE_SEND || flags & VB_OPCODE_IMM),
        .migrated = true,
        .pad = (uint8_t)(-payload & 3),
        .pkey = message->pkey ? message->pkey : 0xffff,
        .dest_qp = is_response ? message->qp_num : message->dest_qp_num,
        .ack_request = ends && capture_message_is_reliable(message),
        .psn = psn & VB_PSN_MASK,
    };
}

static uint8_t *write_request_headers(const struct vb_capture_message *message, uint32_t flags,
                                      uint8_t *at)
{
    if (flags & VB_OPCODE_DETH) {
        vb_wire_deth_write(at, &(struct vb_deth){message->qkey, message->qp_num});
        at += VB_DETH;
    }
    if (flags & VB_OPCODE_XRCETH) {
        vb_wire_xrceth_write(at, message->srq_num);
        at += VB_XRCETH;
    }
    if (flags & VB_OPCODE_FETH) {
        vb_wire_feth_write(at, &message->flush);
        at += VB_FETH;
    }
    if (flags & VB_OPCODE_RETH) {
        vb_wire_reth_write(at, &(struct vb_reth){message->addr, message->rkey, message->length});
        at += VB_RETH;
    }
    if (flags & VB_OPCODE_ATOMICETH) {
        vb_wire_atomiceth_write(at, &(struct vb_atomiceth){message->addr, message->rkey,
                                                           message->swap_add, message->compare});
        at += VB_ATOMICETH;
    }
    return at;
}

static uint8_t *write_other_headers(const struct vb_capture_message *message, uint32_t flags,
                                    uint8_t *at)
{
    struct vb_aeth aeth = {(uint8_t)message->answer, message->answer_value, message->msn};

    if (message->answer == VB_AETH_ACK)
        aeth.value = VB_CREDITS_UNLIMITED;
    if (flags & VB_OPCODE_AETH) {
        vb_wire_aeth_write(at, &aeth);
        at += VB_AETH;
    }
    if (flags & VB_OPCODE_ATOMICACKETH) {
        vb_wire_put64(at, message->original);
        at += VB_ATOMICACKETH;
    }
    if (flags & VB_OPCODE_IMM) {
        memcpy(at, &message->imm, VB_IMM);
        at += VB_IMM;
    }
    if (flags & VB_OPCODE_IETH) {
        vb_wire_put32(at, message->invalidate_rkey);
        at += VB_IETH;
    }
    return at;
}

/* Adds the next `length` bytes of the payload to the frame. */
static void capture_message_add_payload(struct writer *writer, struct vb_frame *frame,
                                        uint32_t length)
{
    const struct vb_capture_message *message = writer->message;

    while (length && writer->piece < message->piece_count) {
        const struct vb_piece *piece = &message->piece[writer->piece];
        uint32_t left = piece->length - writer->offset;
        uint32_t part = left < length ? left : length;

        vb_wrap_frame_add(frame, piece->bytes ? piece->bytes + writer->offset : NULL, part);
        length -= part;
        writer->offset += part;
        if (writer->offset == piece->length) {
            ++writer->piece;
            writer->offset = 0;
        }
    }
}

static void capture_message_address(const struct writer *writer, bool is_response,
                                    struct vb_frame *frame)
{
    const struct vb_path *path = writer->message->path;

    memcpy(frame->sgid, is_response ? path->dgid : path->sgid, sizeof(frame->sgid));
    memcpy(frame->dgid, is_response ? path->sgid : path->dgid, sizeof(frame->dgid));
    frame->flow_label = path->flow_label;
    frame->traffic_class = path->traffic_class;
    frame->hop_limit = path->hop_limit;
    frame->source_port = writer->source_port;
}

/*
 * Writes a request's packet; its comment says in which frame of the file it was before, if it is
 * sent again.
 */
static void capture_message_write_request(const struct writer *writer, const uint8_t *header,
                                          uint32_t length, const struct vb_frame *frame)
{
    const struct vb_capture_message *message = writer->message;
    struct vb_packet packet = {.path = message->path,
                               .qp_num = message->qp_num,
                               .header_length = (uint16_t)length,
                               .reason = (uint8_t)message->reason,
                               .missing_psn = message->psn};

    memcpy(packet.header, header, length);
    vb_wrap_capture_outgoing(writer->capture, &packet, frame, message->note, writer->now);
}

static void write_response(const struct writer *writer, const uint8_t *header, uint32_t length,
                           const struct vb_frame *frame)
{
    char nak[NAK_TEXT];
    bool is_nak = vb_wrap_comment_nak(header, length, nak, sizeof(nak));

    vb_wrap_capture_frame(writer->capture, frame, VB_WRAP_IN, is_nak ? nak : NULL, writer->now);
}

static void write_packet(struct writer *writer, uint8_t operation, uint32_t psn, uint32_t payload,
                         bool is_response)
{
    static const uint8_t zeros[3];
    const struct vb_capture_message *message = writer->message;
    uint8_t opcode = (uint8_t)(message->transport | operation);
    struct vb_bth bth = bth_of(message, opcode, psn, payload, is_response);
    uint8_t header[VB_HEADERS_MAX], *end;
    struct vb_frame frame = {0};
    uint32_t length;

    capture_message_address(writer, is_response, &frame);
    vb_wire_bth_write(header, &bth);
    end = write_request_headers(message, vb_opcodes[opcode].flags, header + VB_BTH);
    end = write_other_headers(message, vb_opcodes[opcode].flags, end);
    length = (uint32_t)(end - header);
    vb_wrap_frame_add(&frame, header, length);
    capture_message_add_payload(writer, &frame, payload);
    vb_wrap_frame_add(&frame, zeros, bth.pad);
    if (is_response)
        write_response(writer, header, length, &frame);
    else
        capture_message_write_request(writer, header, length, &frame);
}

/* ---- one message ---- */

static uint32_t capture_message_packets_of(const struct vb_capture_message *message)
{
    uint32_t mtu = message->path->mtu;

    return message->length > mtu ? (message->length - 1) / mtu + 1 : 1;
}

static void write_sequence(struct writer *writer, const struct sequence *sequence, uint32_t count,
                           bool is_response)
{
    const struct vb_capture_message *message = writer->message;
    uint32_t left = message->length;

    for (uint32_t i = 0; i < count; ++i) {
        uint32_t payload = left < message->path->mtu ? left : message->path->mtu;
        uint8_t operation = count == 1       ? sequence->only
                            : i == 0         ? sequence->first
                            : i == count - 1 ? sequence->last
                                             : sequence->middle;

        write_packet(writer, operation, message->psn + i, payload, is_response);
        left -= payload;
    }
}

static bool capture_message_is_atomic(const struct vb_capture_message *message)
{
    return message->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
           message->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Does the request carry no payload? An ATOMIC WRITE does, as a WRITE. */
static bool has_no_payload(const struct vb_capture_message *message)
{
    return message->opcode == IBV_WR_RDMA_READ || message->opcode == IBV_WR_FLUSH ||
           capture_message_is_atomic(message);
}

static bool is_answered_by_empty_read(const struct vb_capture_message *message)
{
    return message->opcode == IBV_WR_ATOMIC_WRITE || message->opcode == IBV_WR_FLUSH;
}

static void write_answer(struct writer *writer, uint32_t count)
{
    const struct vb_capture_message *message = writer->message;
    bool is_ack = message->answer == VB_AETH_ACK;

    if (is_ack && message->opcode == IBV_WR_RDMA_READ)
        write_sequence(writer, &read_responses, count, true);
    else if (is_ack && is_answered_by_empty_read(message))
        write_packet(writer, VB_OP_READ_RESPONSE_ONLY, message->psn, 0, true);
    else if (is_ack && capture_message_is_atomic(message))
        write_packet(writer, VB_OP_ATOMIC_ACKNOWLEDGE, message->psn, 0, true);
    else
        write_packet(writer, VB_OP_ACKNOWLEDGE, message->psn + (is_ack ? count - 1 : 0), 0, true);
}

/* The UDP source port by the rule of annex A17, where the path has none. */
static uint16_t source_port_of(const struct vb_capture_message *message)
{
    uint64_t hash = (uint64_t)message->qp_num * message->dest_qp_num;

    if (message->path->source_port)
        return message->path->source_port;
    hash ^= hash >> 20;
    hash ^= hash >> 40;
    return (uint16_t)(0xc000 | ((hash & 0x3fff) ^ (hash >> 14 & 0x3f)));
}

static bool capture_message_is_possible(const struct vb_capture_message *message)
{
    size_t opcode = (size_t)message->opcode;
    uint8_t only;

    if (opcode >= sizeof(requests) / sizeof(*requests) || !requests[opcode].known)
        return false;
    only = (uint8_t)(message->transport | requests[opcode].only);
    return vb_opcodes[only].name && message->path->mtu &&
           (message->transport != VB_TRANSPORT_UD || capture_message_packets_of(message) == 1);
}

uint32_t vb_wrap_capture_message(struct vb_capture *capture,
                                 const struct vb_capture_message *message, uint64_t now)
{
    struct writer writer = {.capture = capture, .message = message, .now = now};
    uint32_t count;

    if (!capture_message_is_possible(message))
        return 0;
    writer.source_port = source_port_of(message);
    count = has_no_payload(message) && message->opcode != IBV_WR_RDMA_READ
                ? 1
                : capture_message_packets_of(message);
    if (has_no_payload(message))
        write_packet(&writer, requests[message->opcode].only, message->psn, 0, false);
    else
        write_sequence(&writer, &requests[message->opcode], count, false);
    if (capture_message_is_reliable(message) && !message->unanswered)
        write_answer(&writer, count);
    return count;
}
