// SPDX-License-Identifier: Apache-2.0
/*
 * A TCP sender of one stream, whose length is known. sim/tcp.c asks it for segments, gives it
 * acknowledgements, and calls it at its deadline.
 */
#ifndef VB_TCP_SENDER_H
#define VB_TCP_SENDER_H

#include "tcp/board.h"
#include "tcp/control.h"
#include "tcp/round_trip.h"
#include "tcp/segment.h"

/*
 *              mark                        all that was sent has come
 *   OPEN ───────────────► REDUCED ─────────────────────────────────────► OPEN
 *   OPEN, REDUCED ──loss──► RECOVERY ──all that was sent then has come──► OPEN
 *   any ──timer──► LOSS ──all that was sent then has come──► OPEN
 */
enum vb_tcp_state {
    VB_TCP_OPEN = 0,
    VB_TCP_REDUCED,  /* the window shrank because of a mark, and does so once in a round trip */
    VB_TCP_RECOVERY, /* what is lost is sent again (RFC 6675) */
    VB_TCP_LOSS,     /* the timer has expired, and the window begins anew */
};

struct vb_tcp_sender {
    struct vb_tcp_board board;
    struct vb_tcp_control control;
    struct vb_tcp_round_trip round_trip;
    uint64_t bytes, segments;  /* of the stream */
    double window, threshold;  /* cwnd, ssthresh: segments */
    uint64_t recover;          /* the state ends when all before this segment have come */
    uint64_t full;             /* when the window was full last, this segment was next */
    uint64_t timed, timed_at;  /* the segment whose round trip is measured; VB_TCP_NONE */
    uint64_t deadline;         /* of the timer; VB_TCP_NEVER */
    uint32_t resent, timeouts; /* segments sent again; times that the timer expired */
    uint32_t in_vain; /* times that the timer expired since the last acknowledgement of new data */
    uint8_t state;    /* enum vb_tcp_state */
    bool owed;        /* one lost segment goes whatever the window is (RFC 6675, 4.3) */
    bool reduced;     /* the receiver is to be told (CWR) */
};

void vb_tcp_sender_open(struct vb_tcp_sender *sender, const struct vb_tcp_config *config,
                        enum vb_tcp_kind kind, uint64_t bytes);
void vb_tcp_sender_close(struct vb_tcp_sender *sender);
/* May a segment leave? */
bool vb_tcp_sender_has_more(struct vb_tcp_sender *sender, const struct vb_tcp_config *config);
/* Called after vb_tcp_sender_has_more: the segment is sent now. -ENOMEM. */
int vb_tcp_sender_next(struct vb_tcp_sender *sender, const struct vb_tcp_config *config,
                       uint64_t now, struct vb_tcp_segment *segment);
void vb_tcp_sender_acked(struct vb_tcp_sender *sender, const struct vb_tcp_config *config,
                         const struct vb_tcp_ack *ack, uint64_t now);
/* The deadline has come. False: it has given up. */
bool vb_tcp_sender_expire(struct vb_tcp_sender *sender, const struct vb_tcp_config *config,
                          uint64_t now);

static inline bool vb_tcp_sender_is_done(const struct vb_tcp_sender *sender)
{
    return sender->board.first == sender->segments;
}

/* Bytes that were acknowledged. */
static inline uint64_t vb_tcp_sender_done(const struct vb_tcp_sender *sender,
                                          const struct vb_tcp_config *config)
{
    return vb_tcp_sender_is_done(sender) ? sender->bytes : sender->board.first * config->mss;
}

#endif
