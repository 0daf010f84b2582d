// SPDX-License-Identifier: Apache-2.0
/*
 * What a captured packet says in its comment: why it is sent again, and in what frame of the file
 * it stood first; and what a NAK means. For capture.c, and capture_message.c.
 */
#ifndef VB_WRAP_CAPTURE_COMMENT_H
#define VB_WRAP_CAPTURE_COMMENT_H

#include <stddef.h>

#include "hca/packet.h"

enum { VB_CAPTURE_SENT = 8192 }; /* a power of two: more than a connection has under way */

/* The packets that were sent last; of two in one place, the later one. All zeros: none. */
struct vb_capture_sent {
    uint32_t qp_num, key;
    uint32_t frame; /* the first time; 0: nothing is here */
    uint32_t times;
};

/* Of a connection's packet that has just been written as that frame of the file. */
void vb_wrap_capture_note_sent(struct vb_capture_sent sent[VB_CAPTURE_SENT],
                               const struct vb_packet *packet, uint32_t frame);

/* Why the packet is sent again; false: it is not. Before vb_wrap_capture_note_sent. */
bool vb_wrap_comment_again(const struct vb_capture_sent sent[VB_CAPTURE_SENT],
                           const struct vb_packet *packet, char *words, size_t size);

/* `bytes`: from the BTH on. False: it is no NAK. */
bool vb_wrap_comment_nak(const uint8_t *bytes, size_t length, char *words, size_t size);

#endif
