// SPDX-License-Identifier: Apache-2.0
/*
 * The bytes of a socket's stream, whose length is not known before its end: how they are cut into
 * segments of different lengths. sender.c asks it in place of the fixed length of a flow. Offsets
 * count the stream's bytes from 0.
 *
 * A segment that is not full waits while another one that is not full is unacknowledged (RFC 1122,
 * 4.2.3.4, with Minshall's modification, as Linux), unless TCP_NODELAY is set. The end of the
 * stream is a flag of its last segment, which is empty if all bytes have left before.
 */
#ifndef VB_TCP_STREAM_H
#define VB_TCP_STREAM_H

#include "tcp/segment.h"

struct vb_tcp_stream {
    uint64_t *begin;       /* ring: the offset of the first byte of each segment */
    uint32_t room;         /* a power of two, or 0 */
    uint64_t next;         /* the number of segments that were cut */
    uint64_t written, cut; /* bytes: that the program has written, and that are in segments */
    uint64_t acked;        /* SND.UNA */
    uint64_t edge;         /* SND.UNA + SND.WND: bytes from here on may not be sent yet */
    uint64_t small; /* 1 more than the number of the last segment that is not full; 0: none */
    bool no_delay;  /* TCP_NODELAY */
    bool ended;     /* the program writes no more */
    bool has_end;   /* the last segment that was cut has the end */
};

void vb_tcp_stream_free(struct vb_tcp_stream *stream);
/* May a new segment be cut? `first` is the first segment that is not acknowledged. */
bool vb_tcp_stream_has_segment(const struct vb_tcp_stream *stream, uint32_t mss, uint64_t first);
/* Cuts it: sets number, length and last. -ENOMEM. */
int vb_tcp_stream_cut(struct vb_tcp_stream *stream, uint32_t mss, uint64_t first,
                      struct vb_tcp_segment *segment);
/* Sets length and last of a segment that was cut, and is not acknowledged. */
void vb_tcp_stream_recall(const struct vb_tcp_stream *stream, struct vb_tcp_segment *segment);
/* The offset at which a segment begins, or at which the next one will. One that was acknowledged
 * long ago begins somewhere before SND.UNA. */
uint64_t vb_tcp_stream_offset(const struct vb_tcp_stream *stream, uint64_t segment);
/* All segments before `first` are acknowledged, and the receiver has room for `window` bytes. */
void vb_tcp_stream_acked(struct vb_tcp_stream *stream, uint64_t first, uint64_t window);
/* Are there bytes that only a closed window keeps from leaving? */
bool vb_tcp_stream_is_shut(const struct vb_tcp_stream *stream, uint64_t first);
/* Is the whole stream with its end acknowledged? */
bool vb_tcp_stream_is_done(const struct vb_tcp_stream *stream, uint64_t first);

#endif
