// SPDX-License-Identifier: Apache-2.0
/*
 * The comment of a captured packet: why it is sent again, and which frame of the file it was first;
 * and what a NAK means. capture.c and capture_message.c call it. What was sent is protected by
 * capture.c's mutex.
 */
#ifndef VB_WRAP_CAPTURE_COMMENT_H
#define VB_WRAP_CAPTURE_COMMENT_H

#include <stddef.h>

#include "hca/packet.h"

enum { VB_CAPTURE_SENT = 8192 }; /* a power of two: more than a connection has under way */

/*
 * An entry of the table of packets that were sent last, by a hash: a later packet replaces an
 * earlier one. All zeros: it is empty.
 */
struct vb_capture_sent {
    uint32_t qp_num, key;
    uint32_t frame; /* the packet's first frame in the file; 0: the entry is empty */
    uint32_t times;
};

/* Notes that a connection's packet was written as that frame of the file. */
void vb_wrap_capture_note_sent(struct vb_capture_sent sent[VB_CAPTURE_SENT],
                               const struct vb_packet *packet, uint32_t frame);

/*
 * Writes why the packet is sent again; false: it is not. To be called before
 * vb_wrap_capture_note_sent.
 */
bool vb_wrap_comment_again(const struct vb_capture_sent sent[VB_CAPTURE_SENT],
                           const struct vb_packet *packet, char *words, size_t size);

/* Writes what a NAK means; false: it is none. `bytes` begin with the BTH. */
bool vb_wrap_comment_nak(const uint8_t *bytes, size_t length, char *words, size_t size);

#endif
