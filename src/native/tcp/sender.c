// SPDX-License-Identifier: Apache-2.0
/*
 * A TCP sender: it chooses segments, and updates window and state by acknowledgements and the
 * timer. sim/tcp.c calls it.
 */
#include "tcp/sender.h"

#include <errno.h>
#include <math.h>

void vb_tcp_sender_open(struct vb_tcp_sender *sender, const struct vb_tcp_config *config,
                        enum vb_tcp_kind kind, uint64_t bytes)
{
    *sender = (struct vb_tcp_sender){
        .bytes = bytes,
        .segments = (bytes + config->mss - 1) / config->mss,
        .window = config->initial_window,
        .threshold = INFINITY,
        .timed = VB_TCP_NONE,
        .deadline = VB_TCP_NEVER,
    };
    vb_tcp_control_open(&sender->control, kind);
    vb_tcp_round_trip_open(&sender->round_trip, config);
}

void vb_tcp_sender_close(struct vb_tcp_sender *sender)
{
    vb_tcp_board_free(&sender->board);
    if (sender->stream)
        vb_tcp_stream_free(sender->stream);
}

/* ---- out ------------------------------------------------------------------------------------- */

static bool sender_has_room(const struct vb_tcp_sender *sender)
{
    return (double)sender->board.pipe + 1 <= sender->window;
}

static bool may_send_new(const struct vb_tcp_sender *sender, const struct vb_tcp_config *config)
{
    uint64_t taken = (sender->board.next - sender->board.first + 1) * config->mss;

    if (sender->stream)
        return vb_tcp_stream_has_segment(sender->stream, config->mss, sender->board.first);
    return sender->board.next < sender->segments && taken <= config->window;
}

bool vb_tcp_sender_has_more(struct vb_tcp_sender *sender, const struct vb_tcp_config *config)
{
    bool lost = vb_tcp_board_lost(&sender->board) != VB_TCP_NONE;

    if (!lost && !may_send_new(sender, config))
        return false;
    if (sender_has_room(sender) || (lost && sender->resend_first))
        return true;
    sender->full = sender->board.next;
    return false;
}

/* After an idle time of an RTO a stream begins with its initial window again (RFC 5681, 4.1). */
static void sender_restart(struct vb_tcp_sender *sender, const struct vb_tcp_config *config,
                           uint64_t now)
{
    bool idle = sender->board.first == sender->board.next;

    if (idle && sender->window > config->initial_window &&
        now - sender->sent_at > sender->round_trip.timeout)
        sender->window = config->initial_window;
}

static int send_new(struct vb_tcp_sender *sender, uint64_t now, struct vb_tcp_segment *segment)
{
    sender->sent_at = now;
    segment->number = sender->board.next;
    segment->reduced = sender->reduced; /* on new data only (RFC 3168, 6.1.5) */
    sender->reduced = false;
    if (sender->timed == VB_TCP_NONE) {
        sender->timed = segment->number;
        sender->timed_at = now;
    }
    return vb_tcp_board_send(&sender->board);
}

/* A retransmission ends the measurement of a round trip (RFC 6298, 3: Karn's algorithm). */
static void sender_send_again(struct vb_tcp_sender *sender, uint64_t lost,
                              struct vb_tcp_segment *segment)
{
    segment->number = lost;
    segment->again = true;
    sender->resend_first = false;
    sender->timed = VB_TCP_NONE;
    ++sender->resent;
    if (sender->state == VB_TCP_RECOVERY)
        sender->deadline = VB_TCP_NEVER; /* the timer is restarted (RFC 6675, 6) */
    vb_tcp_board_resend(&sender->board, lost);
}

static int sender_set_length(const struct vb_tcp_sender *sender, const struct vb_tcp_config *config,
                             bool is_new, struct vb_tcp_segment *segment)
{
    if (sender->stream && is_new)
        return vb_tcp_stream_cut(sender->stream, config->mss, sender->board.first, segment);
    if (sender->stream) {
        vb_tcp_stream_recall(sender->stream, segment);
        return 0;
    }
    segment->last = segment->number + 1 == sender->segments;
    segment->length =
        segment->last ? (uint32_t)(sender->bytes - segment->number * config->mss) : config->mss;
    return 0;
}

int vb_tcp_sender_next(struct vb_tcp_sender *sender, const struct vb_tcp_config *config,
                       uint64_t now, struct vb_tcp_segment *segment)
{
    uint64_t lost = vb_tcp_board_lost(&sender->board);

    *segment = (struct vb_tcp_segment){0};
    if (sender->stream)
        sender_restart(sender, config, now);
    if (lost != VB_TCP_NONE)
        sender_send_again(sender, lost, segment);
    else if (send_new(sender, now, segment))
        return -ENOMEM;
    if (sender_set_length(sender, config, lost == VB_TCP_NONE, segment))
        return -ENOMEM;
    if (sender->deadline == VB_TCP_NEVER)
        sender->deadline = now + sender->round_trip.timeout;
    return 0;
}

/* ---- in -------------------------------------------------------------------------------------- */

/* FlightSize (RFC 5681), without segments of limited transmit. */
static double in_use(const struct vb_tcp_sender *sender)
{
    double flight = (double)(sender->board.next - sender->board.first);

    return flight < sender->window ? flight : sender->window;
}

static void sender_enter(struct vb_tcp_sender *sender, enum vb_tcp_state state)
{
    sender->state = (uint8_t)state;
    sender->recover = sender->board.next;
}

static bool has_ecn(const struct vb_tcp_sender *sender, const struct vb_tcp_config *config)
{
    return config->ecn || sender->control.kind == VB_TCP_DCTCP;
}

/* Enters recovery. A reduction for a loss also sets CWR, once (RFC 3168, 6.1.2). */
static void enter_recovery(struct vb_tcp_sender *sender, const struct vb_tcp_config *config)
{
    if (sender->state == VB_TCP_OPEN)
        sender->window = sender->threshold = vb_tcp_control_lost(&sender->control, in_use(sender));
    sender_enter(sender, VB_TCP_RECOVERY);
    sender->resend_first = true;
    sender->reduced = has_ecn(sender, config);
}

static void take_mark(struct vb_tcp_sender *sender)
{
    if (sender->state != VB_TCP_OPEN)
        return;
    sender->reduced = true;
    sender->window = sender->threshold = vb_tcp_control_marked(&sender->control, sender->window);
    sender_enter(sender, VB_TCP_REDUCED);
}

/*
 * Grows the window. Slow start counts bytes, up to two segments for an acknowledgement, or one
 * after a timeout (RFC 3465, 2.2 and 2.3). The caller knows that the window has limited the sender.
 */
static void sender_grow(struct vb_tcp_sender *sender, double acked, uint64_t now)
{
    struct vb_tcp_growth growth = {
        .acked = acked, .round_trip = sender->round_trip.smoothed, .now = now};

    if (sender->window < sender->threshold) {
        double most = sender->state == VB_TCP_LOSS ? 1 : 2;

        sender->window += acked < most ? acked : most;
        if (sender->window > sender->threshold)
            sender->window = sender->threshold;
        return;
    }
    growth.window = sender->window;
    sender->window = vb_tcp_control_grown(&sender->control, &growth);
}

static void sender_measure(struct vb_tcp_sender *sender, const struct vb_tcp_config *config,
                           uint64_t now)
{
    if (sender->timed == VB_TCP_NONE || sender->board.first <= sender->timed)
        return;
    vb_tcp_round_trip_add(&sender->round_trip, config, now - sender->timed_at);
    sender->timed = VB_TCP_NONE;
}

/* RFC 6298, 5.2 and 5.3. */
static void sender_restart_timer(struct vb_tcp_sender *sender, uint64_t now)
{
    bool idle = sender->board.first == sender->board.next;

    sender->deadline = idle ? VB_TCP_NEVER : now + sender->round_trip.timeout;
}

/* A window that opens while nothing is in flight ends its probes (RFC 9293, 3.8.6.1). */
static void sender_take_window(struct vb_tcp_sender *sender, const struct vb_tcp_ack *ack,
                               uint64_t now)
{
    bool was_shut = vb_tcp_sender_is_shut(sender);

    vb_tcp_stream_acked(sender->stream, ack->next, ack->window);
    if (was_shut)
        sender->backoffs = 0; /* the receiver lives, whatever its window */
    if (was_shut && !vb_tcp_sender_is_shut(sender))
        sender->deadline = VB_TCP_NEVER;
    vb_tcp_sender_watch(sender, now);
}

/* The echoes of segments sent before a reduction are ignored: REDUCED ends with one sent after. */
static bool sender_has_ended(const struct vb_tcp_sender *sender)
{
    return sender->board.first >= sender->recover + (sender->state == VB_TCP_REDUCED);
}

void vb_tcp_sender_acked(struct vb_tcp_sender *sender, const struct vb_tcp_config *config,
                         const struct vb_tcp_ack *ack, uint64_t now)
{
    uint64_t before = sender->board.first;
    uint32_t acked = vb_tcp_board_acked(&sender->board, ack->next);
    bool marked = ack->echo && has_ecn(sender, config);

    for (uint32_t i = 0; i < ack->blocks; ++i)
        vb_tcp_board_sacked(&sender->board, ack->block[i].begin, ack->block[i].end);
    if (acked) {
        sender->backoffs = 0;
        sender_measure(sender, config, now);
        sender_restart_timer(sender, now);
    }
    if (sender->stream)
        sender_take_window(sender, ack, now);
    if (sender_has_ended(sender))
        sender->state = VB_TCP_OPEN;
    if (sender->control.kind == VB_TCP_DCTCP)
        vb_tcp_dctcp_acked(&sender->control.dctcp, config->dctcp_gain, acked, marked,
                           sender->board.first, sender->board.next);
    if (marked)
        take_mark(sender);
    if (sender->state <= VB_TCP_REDUCED && vb_tcp_board_lost(&sender->board) != VB_TCP_NONE)
        enter_recovery(sender, config);
    else if (acked && before < sender->full &&
             (sender->state == VB_TCP_OPEN || sender->state == VB_TCP_LOSS))
        sender_grow(sender, acked, now);
}

bool vb_tcp_sender_is_shut(const struct vb_tcp_sender *sender)
{
    return sender->stream && vb_tcp_stream_is_shut(sender->stream, sender->board.first);
}

void vb_tcp_sender_watch(struct vb_tcp_sender *sender, uint64_t now)
{
    if (sender->deadline == VB_TCP_NEVER && vb_tcp_sender_is_shut(sender))
        sender->deadline = now + sender->round_trip.timeout;
}

/* The interval of probes is that of retransmissions (RFC 9293, 3.8.6.1). */
static bool sender_probe(struct vb_tcp_sender *sender, const struct vb_tcp_config *config,
                         uint64_t now)
{
    if (sender->backoffs++ == config->retries)
        return false;
    vb_tcp_round_trip_back_off(&sender->round_trip, config);
    sender->deadline = now + sender->round_trip.timeout;
    return true;
}

bool vb_tcp_sender_expire(struct vb_tcp_sender *sender, const struct vb_tcp_config *config,
                          uint64_t now)
{
    if (vb_tcp_sender_is_shut(sender))
        return sender_probe(sender, config, now);
    /* ssthresh is reduced once, and not again when the timer backs off (RFC 5681, 3.1). */
    if (sender->state != VB_TCP_LOSS)
        sender->threshold = vb_tcp_control_timed_out(&sender->control, in_use(sender));
    if (sender->backoffs++ == config->retries)
        return false;
    ++sender->timeouts;
    sender->window = 1;
    sender->resend_first = false;
    sender->reduced = has_ecn(sender, config);
    sender->timed = VB_TCP_NONE;
    vb_tcp_board_lose_all(&sender->board);
    sender_enter(sender, VB_TCP_LOSS);
    vb_tcp_round_trip_back_off(&sender->round_trip, config);
    sender->deadline = now + sender->round_trip.timeout;
    return true;
}
