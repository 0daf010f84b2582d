// SPDX-License-Identifier: Apache-2.0
/*
 * A packet as an Ethernet frame: RoCE v2 (IBA annex A17) with the headers around it. capture.c and
 * the simulation's capture fill in a vb_frame. The pieces must stay until the frame is written.
 */
#ifndef VB_WRAP_FRAME_H
#define VB_WRAP_FRAME_H

#include "hca/packet.h"

enum {
    VB_FRAME_FRONT = 14 + 40 + 8, /* Ethernet, the longer IP header, UDP */
    VB_FRAME_PIECES = VB_PIECES + 2
};

struct vb_frame {
    uint8_t sgid[16], dgid[16];
    uint32_t flow_label;
    uint8_t traffic_class;
    uint8_t hop_limit;    /* 0: 64, as by default in Linux */
    uint16_t source_port; /* UDP */
    uint16_t ip_id;       /* IPv4 */
    bool may_fragment;    /* IPv4: DF is not set */
    uint32_t icrc_flip;   /* bits of the ICRC that are to be wrong */
    const uint8_t *icrc;  /* the four bytes, as they came; NULL: they are computed */
    uint32_t piece_count;
    struct vb_piece piece[VB_FRAME_PIECES]; /* from the BTH to the last pad byte */
};

/*
 * Writes the frame's first bytes, at most `room`, and returns how many; `*length` is that of the
 * whole frame. Writing ends before a virtual payload, which has a length and no bytes.
 */
size_t vb_wrap_frame_write(const struct vb_frame *frame, uint8_t *to, size_t room,
                           uint32_t *length);

/* Appends a piece, unless it is empty. */
void vb_wrap_frame_add(struct vb_frame *frame, const uint8_t *bytes, uint32_t length);

#endif
