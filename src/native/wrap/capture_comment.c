// SPDX-License-Identifier: Apache-2.0
/* The sentences that stand in a captured packet's comment (capture_comment.h). */
#include "wrap/capture_comment.h"

#include <stdio.h>

#include "hca/delays.h"
#include "wire/opcode.h"

/* NULL: the packet is sent for the first time. */
static const char *packet_reason_text(enum vb_packet_reason reason)
{
    static const char *const texts[] = {
        [VB_PACKET_NEW] = NULL,
        [VB_PACKET_AFTER_TIMEOUT] = "retransmitted: no acknowledgement within the timeout",
        [VB_PACKET_AFTER_SEQUENCE_NAK] =
            "retransmitted: the responder missed a packet (NAK: PSN sequence error)",
        [VB_PACKET_AFTER_RNR] = "retransmitted: the responder had no receive request (RNR NAK)",
        [VB_PACKET_AFTER_LOST_RESPONSE] = "retransmitted: a response is missing (implied NAK)",
        [VB_PACKET_REPLAYED_RESPONSE] = "sent again: the requester repeated its request",
        [VB_PACKET_PROBE] = "probe: no answer for a few round trips",
    };

    return (size_t)reason < sizeof(texts) / sizeof(*texts) ? texts[reason] : NULL;
}

/* ---- what was sent --------------------------------------------------------------------------- */

static bool capture_comment_is_reliable(const struct vb_packet *packet)
{
    uint8_t transport = packet->header[0] & VB_TRANSPORT_MASK;

    return transport == VB_TRANSPORT_RC || transport == VB_TRANSPORT_XRC;
}

/*
 * The key of a QP's packet: its PSN, with a bit that separates responses, which have PSNs of their
 * own.
 */
static uint32_t key_of(const struct vb_packet *packet)
{
    bool is_response = vb_opcodes[packet->header[0]].flags & VB_OPCODE_RESPONSE;

    return vb_wire_bth_read(packet->header).psn | (uint32_t)is_response << 24;
}

static uint32_t capture_comment_place_of(const struct vb_packet *packet)
{
    return (key_of(packet) + (key_of(packet) >> 24) * (VB_CAPTURE_SENT / 2) +
            packet->qp_num * 0x9e3779b1u) %
           VB_CAPTURE_SENT;
}

static bool is_of(const struct vb_capture_sent *sent, const struct vb_packet *packet)
{
    return sent->frame && sent->qp_num == packet->qp_num && sent->key == key_of(packet);
}

void vb_wrap_capture_note_sent(struct vb_capture_sent sent[VB_CAPTURE_SENT],
                               const struct vb_packet *packet, uint32_t frame)
{
    struct vb_capture_sent *at = &sent[capture_comment_place_of(packet)];

    if (!capture_comment_is_reliable(packet) || !frame)
        return;
    if (packet->reason == VB_PACKET_NEW)
        *at = (struct vb_capture_sent){packet->qp_num, key_of(packet), frame, 1};
    else if (is_of(at, packet))
        ++at->times;
}

bool vb_wrap_comment_again(const struct vb_capture_sent sent[VB_CAPTURE_SENT],
                           const struct vb_packet *packet, char *words, size_t size)
{
    static const char *const missing[] = {
        [VB_PACKET_NEW] = "",
        [VB_PACKET_AFTER_TIMEOUT] = ": PSN %u is not acknowledged",
        [VB_PACKET_AFTER_SEQUENCE_NAK] = ": PSN %u was missing",
        [VB_PACKET_AFTER_RNR] = ": PSN %u was refused",
        [VB_PACKET_AFTER_LOST_RESPONSE] = ": PSN %u is missing",
        [VB_PACKET_REPLAYED_RESPONSE] = "",
        [VB_PACKET_PROBE] = ": PSN %u is not acknowledged",
    };
    enum vb_packet_reason reason = (enum vb_packet_reason)packet->reason;
    const struct vb_capture_sent *at = &sent[capture_comment_place_of(packet)];
    const char *text = packet_reason_text(reason);
    size_t used;

    if (!text)
        return false;
    if (reason == VB_PACKET_PROBE && packet->unanswered_us)
        used = (size_t)snprintf(words, size, "probe: no answer for %u us", packet->unanswered_us);
    else
        used = (size_t)snprintf(words, size, "%s", text);
    if (used < size)
        used += (size_t)snprintf(words + used, size - used, missing[reason], packet->missing_psn);
    if (used < size && is_of(at, packet))
        snprintf(words + used, size - used, "%s attempt %u, the original is frame %u",
                 *missing[reason] ? "," : ":", at->times + 1, at->frame);
    return true;
}

/* ---- NAKs ------------------------------------------------------------------------------------ */

static const char *nak_text(uint8_t code)
{
    switch (code) {
    case VB_NAK_PSN_SEQUENCE:
        return "NAK: PSN sequence error: PSN %u is missing";
    case VB_NAK_INVALID_REQUEST:
        return "NAK: invalid request: PSN %u is refused";
    case VB_NAK_REMOTE_ACCESS:
        return "NAK: remote access error: PSN %u is refused";
    case VB_NAK_REMOTE_OPERATION:
        return "NAK: remote operational error: PSN %u cannot be carried out";
    default:
        return "NAK: a reserved code: PSN %u is refused";
    }
}

bool vb_wrap_comment_nak(const uint8_t *bytes, size_t length, char *words, size_t size)
{
    struct vb_aeth aeth;
    uint32_t psn;

    if (length < VB_BTH + VB_AETH || (bytes[0] & ~VB_TRANSPORT_MASK & 0xff) != VB_OP_ACKNOWLEDGE)
        return false;
    aeth = vb_wire_aeth_read(bytes + VB_BTH);
    psn = vb_wire_bth_read(bytes).psn;
    if (aeth.kind == VB_AETH_RNR)
        snprintf(words, size, "RNR NAK: no receive request for PSN %u: again after %g ms", psn,
                 (double)vb_rnr_delay(aeth.value) / 1e6);
    else if (aeth.kind == VB_AETH_NAK)
        snprintf(words, size, nak_text(aeth.value), psn);
    return aeth.kind == VB_AETH_RNR || aeth.kind == VB_AETH_NAK;
}
