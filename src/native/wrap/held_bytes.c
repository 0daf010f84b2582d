// SPDX-License-Identifier: Apache-2.0
/*
 * The bytes of a held packet: copied in, changed by a rule, and given out as a packet again
 * (held.h). wrap.c calls it under its mutex.
 */
#include <string.h>

#include "wire/crc32.h"
#include "wire/opcode.h"
#include "wrap/held.h"

bool vb_wrap_held_copy_packet(struct vb_held *held, const struct vb_packet *packet)
{
    uint32_t length = packet->header_length;

    if (packet->header_length + packet->payload_length + packet->pad > VB_HELD_BYTES)
        return false;
    held->direction = VB_WRAP_OUT;
    held->qp_num = packet->qp_num;
    held->header_length = packet->header_length;
    held->path = *packet->path;
    held->reason = packet->reason;
    held->missing_psn = packet->missing_psn;
    held->unanswered_us = packet->unanswered_us;
    held->virtual_payload = 0;
    memcpy(held->bytes, packet->header, packet->header_length);
    for (uint32_t i = 0; i < packet->piece_count; ++i) {
        const struct vb_piece *piece = &packet->piece[i];

        if (!piece->bytes) {
            held->virtual_payload += piece->length;
        } else {
            memcpy(held->bytes + length, piece->bytes, piece->length);
            length += piece->length;
        }
    }
    if (!held->virtual_payload) {
        memset(held->bytes + length, 0, packet->pad);
        length += packet->pad;
    }
    held->pad = packet->pad;
    held->length = length;
    return true;
}

bool vb_wrap_held_copy_arrival(struct vb_held *held, const struct vb_arrival *arrival)
{
    if (arrival->length > VB_HELD_BYTES)
        return false;
    held->direction = VB_WRAP_IN;
    held->qp_num = arrival->length < VB_BTH ? 0 : vb_wire_bth_read(arrival->bytes).dest_qp;
    held->header_length = 0;
    held->length = arrival->length;
    held->virtual_payload = arrival->virtual_payload;
    held->pad = 0;
    held->arrival = *arrival;
    memcpy(held->bytes, arrival->bytes, arrival->length);
    if (arrival->grh)
        memcpy(held->grh, arrival->grh, VB_GRH);
    return true;
}

void vb_wrap_held_copy(struct vb_held *held, const struct vb_held *from)
{
    held->direction = from->direction;
    held->qp_num = from->qp_num;
    held->header_length = from->header_length;
    held->length = from->length;
    held->virtual_payload = from->virtual_payload;
    held->icrc_flip = from->icrc_flip;
    held->pad = from->pad;
    held->reason = from->reason;
    held->missing_psn = from->missing_psn;
    held->unanswered_us = from->unanswered_us;
    held->source_port = from->source_port;
    held->ip_id = from->ip_id;
    held->may_fragment = from->may_fragment;
    held->path = from->path;
    held->arrival = from->arrival;
    memcpy(held->grh, from->grh, VB_GRH);
    memcpy(held->note, from->note, VB_NOTE);
    memcpy(held->bytes, from->bytes, from->length);
}

static uint32_t held_bytes_smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* What is left of the packet after a rule cut it: headers first, then payload, then pad. */
const struct vb_packet *vb_wrap_held_packet(struct vb_held *held)
{
    struct vb_packet *packet = &held->packet;
    uint32_t header = held_bytes_smaller(held->header_length, held->length);
    uint32_t rest = held->length - header;

    packet->path = &held->path;
    packet->qp_num = held->qp_num;
    packet->header_length = (uint16_t)header;
    packet->reason = held->reason;
    packet->missing_psn = held->missing_psn;
    packet->unanswered_us = held->unanswered_us;
    memcpy(packet->header, held->bytes, header);
    if (held->virtual_payload) {
        packet->pad = held->pad;
        packet->payload_length = held->virtual_payload;
        packet->piece[0] = (struct vb_piece){NULL, held->virtual_payload};
    } else {
        packet->pad = held->pad;
        packet->payload_length = rest - held->pad;
        packet->piece[0] = (struct vb_piece){held->bytes + header, packet->payload_length};
    }
    packet->piece_count = packet->payload_length ? 1 : 0;
    return packet;
}

const struct vb_arrival *vb_wrap_held_arrival(struct vb_held *held)
{
    held->arrival.bytes = held->bytes;
    held->arrival.length = held->length;
    held->arrival.virtual_payload = held->virtual_payload;
    held->arrival.grh = held->arrival.grh ? held->grh : NULL;
    return &held->arrival;
}

/*
 * What flipping these bits does to the ICRC. A CRC is linear: the change does not depend on the
 * other bytes. The BTH's fifth byte does not count (IBA 9.8).
 */
static uint32_t icrc_change(const struct vb_held *held, uint32_t offset, uint8_t bits)
{
    static const uint8_t zeros[VB_HELD_BYTES];

    return offset == 4
               ? 0
               : vb_wire_crc32(vb_wire_crc32(0, &bits, 1), zeros, held->length - offset - 1);
}

void vb_wrap_held_corrupt(struct vb_held *held, uint32_t offset, unsigned bit, bool good_icrc)
{
    uint8_t bits = (uint8_t)(1 << bit % 8);

    if (offset >= held->length)
        return;
    held->bytes[offset] ^= bits;
    if (!good_icrc)
        held->icrc_flip ^= icrc_change(held, offset, bits);
}

void vb_wrap_held_truncate(struct vb_held *held, uint32_t length, bool good_icrc)
{
    uint32_t cut;

    if (length >= held->length + held->virtual_payload)
        return;
    if (held->virtual_payload && length > held->length) {
        held->virtual_payload = length - held->length;
        held->pad = 0;
    } else {
        cut = held->length - held_bytes_smaller(length, held->length);
        held->virtual_payload = 0;
        held->pad = (uint8_t)(held->pad - held_bytes_smaller(held->pad, cut));
        held->length -= cut;
    }
    held->icrc_flip = good_icrc ? 0 : 0x5a5a5a5a;
}
