// SPDX-License-Identifier: Apache-2.0
/*
 * A TCP sender of a flow of a known length, or of a socket's stream. sim/tcp.c asks it for
 * segments, gives it acknowledgements, and calls it at its deadline.
 */
#ifndef VB_TCP_SENDER_H
#define VB_TCP_SENDER_H

#include "tcp/board.h"
#include "tcp/control.h"
#include "tcp/round_trip.h"
#include "tcp/segment.h"
#include "tcp/stream.h"

/*
 *   OPEN ──ECN echo──► REDUCED ──`recover` is acknowledged──► OPEN
 *   OPEN, REDUCED ──loss──► RECOVERY ──`recover` is acknowledged──► OPEN
 *   any ──timer──► LOSS ──`recover` is acknowledged──► OPEN
 */
enum vb_tcp_state {
    VB_TCP_OPEN = 0,
    VB_TCP_REDUCED,  /* the window was reduced by ECN, which happens once for each round trip (CWR)
                      */
    VB_TCP_RECOVERY, /* lost segments are retransmitted (RFC 6675) */
    VB_TCP_LOSS,     /* the timer has expired, and slow start begins again */
};

struct vb_tcp_sender {
    struct vb_tcp_board board;
    struct vb_tcp_control control;
    struct vb_tcp_round_trip round_trip;
    struct vb_tcp_stream *stream; /* of a socket; NULL: a flow, of a known length */
    uint64_t bytes, segments;     /* of a flow */
    double window, threshold;     /* cwnd, ssthresh: segments */
    uint64_t recover; /* the state ends when all segments before this one are acknowledged */
    uint64_t full;    /* SND.NXT when the window last limited the sender */
    uint64_t timed,
        timed_at;      /* the segment whose round trip is measured, or VB_TCP_NONE; when it left */
    uint64_t deadline; /* of the retransmission timer; or VB_TCP_NEVER */
    uint64_t sent_at;  /* when the last new segment left */
    uint32_t resent, timeouts; /* retransmissions, and expirations of the timer */
    uint32_t backoffs;         /* expirations since the last acknowledgement of new data */
    uint8_t state;             /* enum vb_tcp_state */
    bool resend_first;         /* a lost segment leaves whatever the window is (RFC 6675, 4.3) */
    bool reduced;              /* the next new segment has CWR */
};

void vb_tcp_sender_open(struct vb_tcp_sender *sender, const struct vb_tcp_config *config,
                        enum vb_tcp_kind kind, uint64_t bytes);
void vb_tcp_sender_close(struct vb_tcp_sender *sender);
/* Is there a segment that may be sent now? */
bool vb_tcp_sender_has_more(struct vb_tcp_sender *sender, const struct vb_tcp_config *config);
/* Makes the segment that is sent now, after vb_tcp_sender_has_more. -ENOMEM. */
int vb_tcp_sender_next(struct vb_tcp_sender *sender, const struct vb_tcp_config *config,
                       uint64_t now, struct vb_tcp_segment *segment);
void vb_tcp_sender_acked(struct vb_tcp_sender *sender, const struct vb_tcp_config *config,
                         const struct vb_tcp_ack *ack, uint64_t now);
/* The receiver's window is closed and nothing is in flight: the deadline is for a probe of it. */
bool vb_tcp_sender_is_shut(const struct vb_tcp_sender *sender);
/* Sets the deadline of a probe, unless there is one; after each change of stream or window. */
void vb_tcp_sender_watch(struct vb_tcp_sender *sender, uint64_t now);
/* The deadline has come. False: the sender gives up. True: of one that is shut, send a probe. */
bool vb_tcp_sender_expire(struct vb_tcp_sender *sender, const struct vb_tcp_config *config,
                          uint64_t now);

static inline bool vb_tcp_sender_is_done(const struct vb_tcp_sender *sender)
{
    return sender->board.first == sender->segments;
}

/* Acknowledged bytes. */
static inline uint64_t vb_tcp_sender_done(const struct vb_tcp_sender *sender,
                                          const struct vb_tcp_config *config)
{
    return vb_tcp_sender_is_done(sender) ? sender->bytes : sender->board.first * config->mss;
}

#endif
