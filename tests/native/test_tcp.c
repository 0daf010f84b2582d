// SPDX-License-Identifier: Apache-2.0
/* A TCP sender and receiver over an array, with a clock that the test sets. */
#include "check.h"
#include "starved.h"
#include "tcp/receiver.h"
#include "tcp/sender.h"

#define MS 1000000000ull /* picoseconds */

static struct vb_tcp_config config;
static struct vb_tcp_sender sender;
static struct vb_tcp_receiver receiver;
static uint64_t now;

static void open_stream(enum vb_tcp_kind kind, uint64_t segments)
{
    now = 0;
    vb_tcp_sender_open(&sender, &config, kind, segments * config.mss);
    vb_tcp_receiver_open(&receiver, kind);
}

static void close_stream(void)
{
    vb_tcp_sender_close(&sender);
    vb_tcp_receiver_close(&receiver);
}

static struct vb_tcp_segment next_segment(void)
{
    struct vb_tcp_segment segment;

    CHECK(vb_tcp_sender_has_more(&sender, &config));
    CHECK_EQ(vb_tcp_sender_next(&sender, &config, now, &segment), 0);
    return segment;
}

/* All that may leave; how many. */
static uint32_t send_all(struct vb_tcp_segment *segment)
{
    uint32_t count = 0;

    while (vb_tcp_sender_has_more(&sender, &config))
        segment[count++] = next_segment();
    return count;
}

static int deliver(const struct vb_tcp_segment *segment, bool marked, struct vb_tcp_ack ack[2])
{
    return vb_tcp_receiver_take(&receiver, &config, segment, marked, now, ack);
}

static void answer(const struct vb_tcp_segment *segment, bool marked)
{
    struct vb_tcp_ack ack[2];
    int acks = deliver(segment, marked, ack);

    CHECK(acks >= 0);
    for (int i = 0; i < acks; ++i)
        vb_tcp_sender_acked(&sender, &config, &ack[i], now);
}

/* A round trip of a millisecond: those whose bit is set in `lost` do not come. */
static uint32_t round_trip(uint64_t lost, bool marked)
{
    struct vb_tcp_segment segment[64];
    uint32_t count = send_all(segment);

    now += MS;
    for (uint32_t i = 0; i < count; ++i)
        if (!(lost >> i & 1))
            answer(&segment[i], marked);
    return count;
}

/* ---- windows --------------------------------------------------------------------------------- */

static void the_settings_are_those_documented(void)
{
    const struct vb_tcp_config usual = vb_tcp_defaults();

    CHECK(usual.mss == 1460 && usual.initial_window == 10 && usual.window == 16 << 20);
    CHECK(usual.first_rto == 0 && usual.least_rto == 200 * MS && usual.most_rto == 60000 * MS);
    CHECK(usual.retries == 15 && usual.ack_delay == 0 && usual.dctcp_gain == 1.0 / 16);
    CHECK(!usual.ecn);
}

static void slow_start_doubles_the_window(void)
{
    config = vb_tcp_defaults();
    open_stream(VB_TCP_RENO, 1000);
    CHECK_EQ(round_trip(0, false), 10);
    CHECK_EQ(round_trip(0, false), 20);
    CHECK_EQ(round_trip(0, false), 40);
    CHECK_EQ(sender.round_trip.smoothed, MS);
    close_stream();
}

static void a_window_that_is_not_used_does_not_grow(void)
{
    struct vb_tcp_segment segment;

    config = vb_tcp_defaults();
    open_stream(VB_TCP_RENO, 1000);
    for (int i = 0; i < 100; ++i) {
        segment = next_segment();
        now += MS;
        answer(&segment, false);
    }
    CHECK_EQ((uint64_t)sender.window, 10);
    close_stream();
}

static void the_receiver_s_window_is_kept_to(void)
{
    struct vb_tcp_segment segment[64];

    config = vb_tcp_defaults();
    config.window = 4 * config.mss + 100;
    open_stream(VB_TCP_RENO, 1000);
    CHECK_EQ(send_all(segment), 4);
    close_stream();
}

/* ---- losses ---------------------------------------------------------------------------------- */

static void a_loss_halves_the_window_once(void)
{
    struct vb_tcp_segment segment;

    config = vb_tcp_defaults();
    open_stream(VB_TCP_RENO, 1000);
    round_trip(0, false);
    CHECK_EQ(round_trip(1 << 2 | 1 << 5, false), 20);
    CHECK_EQ(sender.state, VB_TCP_RECOVERY);
    CHECK_EQ((uint64_t)sender.window, 9); /* half of the 18 that were under way */
    segment = next_segment();
    CHECK_EQ(segment.number, 12);
    CHECK(segment.again);
    segment = next_segment();
    CHECK_EQ(segment.number, 15);
    CHECK_EQ(sender.resent, 2);
    CHECK_EQ(sender.timeouts, 0);
    close_stream();
}

/* Three later ones tell of a loss, two only of another order (RFC 6675: DupThresh). */
static void a_segment_that_is_late_is_not_lost(void)
{
    struct vb_tcp_segment segment[64];

    config = vb_tcp_defaults();
    open_stream(VB_TCP_RENO, 10);
    CHECK_EQ(send_all(segment), 10);
    answer(&segment[1], false);
    answer(&segment[2], false);
    CHECK(!vb_tcp_sender_has_more(&sender, &config));
    answer(&segment[0], false);
    CHECK_EQ(sender.board.first, 3);
    CHECK_EQ(sender.state, VB_TCP_OPEN);
    answer(&segment[4], false);
    answer(&segment[5], false);
    CHECK_EQ(sender.state, VB_TCP_OPEN);
    answer(&segment[6], false);
    CHECK_EQ(next_segment().number, 3);
    close_stream();
}

/* The stream comes whole, whatever is lost, and nothing is sent without need. */
static void all_of_it_comes(enum vb_tcp_kind kind)
{
    uint32_t lost = 0, rounds = 0;

    config = vb_tcp_defaults();
    open_stream(kind, 500);
    while (!vb_tcp_sender_is_done(&sender)) {
        struct vb_tcp_segment segment[600];
        uint32_t count = send_all(segment);

        now += MS;
        for (uint32_t i = 0; i < count; ++i)
            if ((segment[i].number * 7 + rounds) % 11 == 0)
                ++lost;
            else
                answer(&segment[i], false);
        if (now >= sender.deadline || !count) {
            now = sender.deadline;
            CHECK(vb_tcp_sender_expire(&sender, &config, now));
        }
        CHECK(++rounds < 1000);
    }
    CHECK_EQ(receiver.next, 500);
    CHECK_EQ(receiver.runs, 0);
    CHECK_EQ(sender.board.pipe, 0);
    CHECK(lost > 20);
    CHECK(sender.resent >= lost);
    CHECK(sender.timeouts || sender.resent == lost);
    close_stream();
}

static void the_timer_backs_off_and_gives_up(void)
{
    struct vb_tcp_segment segment[64];
    uint64_t before = 0;

    config = vb_tcp_defaults();
    config.retries = 4;
    open_stream(VB_TCP_RENO, 100);
    CHECK_EQ(send_all(segment), 10);
    for (int i = 0; i < 4; ++i) {
        CHECK_EQ(sender.deadline - before, (200ull << i) * MS); /* RFC 6298, 5.5 */
        before = now = sender.deadline;
        CHECK(vb_tcp_sender_expire(&sender, &config, now));
        CHECK_EQ(send_all(segment), 1);
        CHECK_EQ(segment[0].number, 0);
    }
    CHECK(!vb_tcp_sender_expire(&sender, &config, sender.deadline));
    CHECK_EQ(sender.timeouts, 4);
    CHECK_EQ((uint64_t)sender.threshold, 5); /* set once */
    close_stream();
}

static void what_came_is_not_sent_again_after_a_timeout(void)
{
    struct vb_tcp_segment segment[64];

    config = vb_tcp_defaults();
    open_stream(VB_TCP_RENO, 10);
    CHECK_EQ(round_trip(1 | 1 << 8 | 1 << 9, false), 10);
    CHECK_EQ(next_segment().number, 0); /* and this one is lost too */
    now = sender.deadline;
    CHECK(vb_tcp_sender_expire(&sender, &config, now));
    CHECK_EQ(send_all(segment), 1);
    answer(&segment[0], false);
    CHECK_EQ(sender.board.first, 8);
    CHECK_EQ(send_all(segment), 2);
    CHECK_EQ(segment[0].number, 8);
    close_stream();
}

static void a_measured_round_trip_sets_the_timer(void)
{
    config = vb_tcp_defaults();
    config.least_rto = 1;
    config.first_rto = 1000 * MS;
    open_stream(VB_TCP_RENO, 1000);
    CHECK_EQ(sender.round_trip.timeout, 1000 * MS);
    round_trip(0, false);
    CHECK_EQ(sender.round_trip.timeout, 3 * MS); /* SRTT + 4 * SRTT / 2 */
    close_stream();
}

/* What has come makes the count of timeouts begin anew. */
static void the_timer_gives_up_after_so_many_in_a_row(void)
{
    struct vb_tcp_segment segment[64];

    config = vb_tcp_defaults();
    config.retries = 2;
    open_stream(VB_TCP_RENO, 100);
    for (int i = 0; i < 5; ++i) {
        CHECK(send_all(segment) >= 1);
        for (int expired = 0; expired < 2; ++expired) {
            now = sender.deadline;
            CHECK(vb_tcp_sender_expire(&sender, &config, now));
            CHECK_EQ(send_all(segment), 1);
        }
        answer(&segment[0], false);
    }
    CHECK_EQ(sender.timeouts, 10);
    close_stream();
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void a_board_without_memory_says_so(void)
{
    struct vb_tcp_segment segment;

    config = vb_tcp_defaults();
    open_stream(VB_TCP_RENO, 1000);
    starved_after(0);
    CHECK_EQ(vb_tcp_sender_next(&sender, &config, now, &segment), -ENOMEM);
    CHECK(starved_end());
    CHECK_EQ(round_trip(0, false), 10);
    starved_after(0); /* of a board of 16 */
    for (int i = 0; i < 16; ++i)
        next_segment();
    CHECK_EQ(vb_tcp_sender_next(&sender, &config, now, &segment), -ENOMEM);
    CHECK(starved_end());
    CHECK_EQ(sender.board.next, 26);
    CHECK_EQ(next_segment().number, 26);
    close_stream();
}

static void a_receiver_without_memory_says_so(void)
{
    struct vb_tcp_segment segment = {.length = 1460};
    struct vb_tcp_ack ack[2];

    config = vb_tcp_defaults();
    open_stream(VB_TCP_RENO, 1000);
    for (uint64_t run = 0; run < 5; ++run) {
        segment.number = 2 + 2 * run;
        starved_after(0);
        CHECK_EQ(deliver(&segment, false, ack), run % 4 ? 1 : -ENOMEM);
        if (starved_end())
            CHECK_EQ(deliver(&segment, false, ack), 1);
        CHECK_EQ(receiver.runs, run + 1);
    }
    close_stream();
}

/* ---- acknowledgements ------------------------------------------------------------------------ */

static void every_second_segment_is_acknowledged(void)
{
    struct vb_tcp_segment segment = {.length = 1460};
    struct vb_tcp_ack ack[2];

    config = vb_tcp_defaults();
    config.ack_delay = 40 * MS;
    open_stream(VB_TCP_RENO, 1000);
    CHECK_EQ(deliver(&segment, false, ack), 0);
    CHECK_EQ(receiver.deadline, 40 * MS);
    ++segment.number;
    CHECK_EQ(deliver(&segment, false, ack), 1);
    CHECK_EQ(ack[0].next, 2);
    CHECK_EQ(receiver.deadline, VB_TCP_NEVER);
    segment.number = 3; /* out of order: at once (RFC 5681, 4.2) */
    CHECK_EQ(deliver(&segment, false, ack), 1);
    CHECK_EQ(ack[0].next, 2);
    CHECK_EQ(ack[0].blocks, 1);
    segment.number = 2; /* a gap is filled: at once */
    CHECK_EQ(deliver(&segment, false, ack), 1);
    CHECK_EQ(ack[0].next, 4);
    segment.number = 4;
    CHECK_EQ(deliver(&segment, false, ack), 0);
    vb_tcp_receiver_expire(&receiver, ack);
    CHECK_EQ(ack[0].next, 5);
    close_stream();
}

static void blocks_are_the_latest_first(void)
{
    static const uint64_t numbers[] = {2, 4, 8, 6, 5, 9, 2};
    struct vb_tcp_segment segment = {.length = 1460};
    struct vb_tcp_ack ack[2];

    config = vb_tcp_defaults();
    open_stream(VB_TCP_RENO, 1000);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); ++i) {
        segment.number = numbers[i];
        CHECK_EQ(deliver(&segment, false, ack), 1);
    }
    CHECK_EQ(receiver.runs, 3); /* 2, 4 to 6, 8 and 9 */
    CHECK_EQ(ack[0].blocks, 3);
    CHECK_EQ(ack[0].block[0].begin, 2);
    CHECK_EQ(ack[0].block[1].begin, 8);
    CHECK_EQ(ack[0].block[1].end, 10);
    CHECK_EQ(ack[0].block[2].begin, 4);
    CHECK_EQ(ack[0].block[2].end, 7);
    close_stream();
}

/* ---- marks ----------------------------------------------------------------------------------- */

static void a_mark_halves_the_window_once_in_a_round_trip(void)
{
    config = vb_tcp_defaults();
    config.ecn = true;
    open_stream(VB_TCP_RENO, 1000);
    CHECK_EQ(round_trip(0, true), 10);
    CHECK_EQ((uint64_t)sender.window, 5);
    CHECK_EQ(sender.state, VB_TCP_REDUCED);
    CHECK(receiver.echo);
    CHECK_EQ(round_trip(0, false), 5); /* the first says CWR */
    CHECK(!receiver.echo);
    CHECK_EQ((uint64_t)sender.window, 5);
    CHECK_EQ(sender.resent, 0);
    close_stream();
}

/* RFC 3168, 6.1.2: a second CWR would end the echo of a mark that nobody has heard of. */
static void the_receiver_is_told_once_of_a_reduction(void)
{
    const struct vb_tcp_ack late = {.next = 10, .echo = true};

    config = vb_tcp_defaults();
    config.ecn = true;
    open_stream(VB_TCP_RENO, 1000);
    CHECK_EQ(round_trip(0, true), 10);
    CHECK(next_segment().reduced);
    vb_tcp_sender_acked(&sender, &config, &late, now);
    CHECK_EQ(sender.state, VB_TCP_REDUCED);
    CHECK(!next_segment().reduced);
    now = sender.deadline;
    CHECK(vb_tcp_sender_expire(&sender, &config, now));
    CHECK(sender.reduced);
    close_stream();
}

static void without_ecn_a_mark_is_nothing(void)
{
    config = vb_tcp_defaults();
    open_stream(VB_TCP_CUBIC, 1000);
    CHECK_EQ(round_trip(0, true), 10);
    CHECK(!receiver.echo);
    CHECK_EQ(round_trip(1, true), 20);
    CHECK_EQ(sender.state, VB_TCP_RECOVERY);
    CHECK(!sender.reduced);
    close_stream();
}

/* RFC 9438, 4.8: K is 0, and W_max the window with which congestion avoidance begins. */
static void cubic_begins_at_its_top_after_a_timeout(void)
{
    const struct vb_tcp_growth growth = {.window = 70, .acked = 1, .round_trip = MS, .now = MS};
    struct vb_tcp_control control;

    vb_tcp_control_open(&control, VB_TCP_CUBIC);
    CHECK_EQ((uint64_t)(vb_tcp_control_lost(&control, 100) + 0.5), 70);
    vb_tcp_control_grown(&control, &growth);
    CHECK_EQ((uint64_t)control.cubic.most, 100);
    CHECK(control.cubic.period > 4.2 && control.cubic.period < 4.3); /* cube root of 30 / 0.4 */
    CHECK_EQ((uint64_t)(vb_tcp_control_timed_out(&control, 100) + 0.5), 70);
    vb_tcp_control_grown(&control, &growth);
    CHECK_EQ((uint64_t)control.cubic.most, 70);
    CHECK(control.cubic.period <= 0);
}

/* RFC 8257: alpha is the part of marked segments, smoothed; the window shrinks by half of it. */
static void dctcp_shrinks_by_the_part_of_marks(void)
{
    struct vb_tcp_control control;

    vb_tcp_control_open(&control, VB_TCP_DCTCP);
    CHECK_EQ((uint64_t)vb_tcp_control_marked(&control, 40), 20); /* alpha begins with 1 */
    vb_tcp_dctcp_acked(&control.dctcp, 1.0 / 16, 1, false, 1, 10);
    CHECK(control.dctcp.alpha > 0.937 && control.dctcp.alpha < 0.938); /* 15/16 */
    for (uint64_t at = 10; at < 4000; at += 10) { /* windows of ten, of which two are marked */
        vb_tcp_dctcp_acked(&control.dctcp, 1.0 / 16, 2, true, at - 8, at + 10);
        vb_tcp_dctcp_acked(&control.dctcp, 1.0 / 16, 8, false, at + 1, at + 10);
    }
    CHECK(control.dctcp.alpha > 0.199 && control.dctcp.alpha < 0.201);
    CHECK_EQ((uint64_t)(vb_tcp_control_marked(&control, 40) + 0.5), 36);
    CHECK_EQ((uint64_t)vb_tcp_control_lost(&control, 40), 20); /* as Reno */
}

/* At one window of segments in flight, marks never stop it, and once in a round trip shrink it. */
static void dctcp_goes_on_while_all_is_marked(void)
{
    config = vb_tcp_defaults();
    open_stream(VB_TCP_DCTCP, 200);
    while (!vb_tcp_sender_is_done(&sender))
        CHECK(round_trip(0, true) >= 1);
    CHECK(now < 110 * MS); /* two in a round trip are the fewest */
    CHECK_EQ(sender.timeouts + sender.resent, 0);
    close_stream();
}

static void dctcp_tells_of_each_change(void)
{
    struct vb_tcp_segment segment = {.length = 1460};
    struct vb_tcp_ack ack[2];

    config = vb_tcp_defaults();
    config.ack_delay = 40 * MS;
    open_stream(VB_TCP_DCTCP, 1000);
    CHECK_EQ(deliver(&segment, false, ack), 0);
    ++segment.number;
    CHECK_EQ(deliver(&segment, true, ack), 1); /* for the one before (RFC 8257, 3.2) */
    CHECK_EQ(ack[0].next, 1);
    CHECK(!ack[0].echo);
    ++segment.number;
    CHECK_EQ(deliver(&segment, true, ack), 1);
    CHECK_EQ(ack[0].next, 3);
    CHECK(ack[0].echo);
    close_stream();
}

/* ---- CUBIC ----------------------------------------------------------------------------------- */

/* RFC 9438, 4.2: back at W_max after K = cbrt(0.3 W_max / 0.4) seconds. */
static void cubic_comes_back_after_its_period(void)
{
    struct vb_tcp_cubic cubic;
    double window = 1000, prior = window;
    uint64_t second = 1000 * MS, round = 100 * MS;

    vb_tcp_cubic_open(&cubic);
    window = vb_tcp_cubic_reduced(&cubic, window);
    CHECK_EQ((uint64_t)(window + 0.5), 700);
    for (uint64_t at = 0; at <= 9 * second + 9 * round / 10; at += round) {
        struct vb_tcp_growth growth = {window, window, round, at};

        if (at == 4 * second)
            CHECK(window > 946 && window < 949); /* 1000 - 0.4 * 5.086^3 */
        window = vb_tcp_cubic_grown(&cubic, &growth);
    }
    CHECK(window > prior - 5 && window < prior + 5);
    CHECK(vb_tcp_cubic_reduced(&cubic, 800) > 559 && cubic.most < 800); /* fast convergence */
}

/* 4.10: after slow start the window may be where the curve's top is; its period is then nothing. */
static void cubic_may_begin_at_the_top(void)
{
    struct vb_tcp_cubic cubic;
    struct vb_tcp_growth growth = {100, 100, 100 * MS, 5000 * MS};

    vb_tcp_cubic_open(&cubic);
    CHECK(vb_tcp_cubic_grown(&cubic, &growth) >= 100);
    CHECK(cubic.period <= 0 && cubic.most >= 100);
    vb_tcp_cubic_reduced(&cubic, 2);
    growth = (struct vb_tcp_growth){2, 2, 100 * MS, 6000 * MS};
    CHECK(vb_tcp_cubic_grown(&cubic, &growth) >= 2);
    CHECK(cubic.period <= 0);
}

/* ---- whole streams --------------------------------------------------------------------------- */

/*
 * A stream of 3000 segments over a path that loses, marks and reorders at random, and what came of
 * it. A change of any rule of sender or receiver moves these numbers: the test prints what it
 * found, and a change that is meant puts that here.
 */
struct course {
    enum vb_tcp_kind kind;
    uint64_t trip, ack_delay;        /* ps */
    uint32_t lost, marked, late;     /* one segment of so many; 0: none */
    uint32_t resent, timeouts, acks; /* and what came of it */
    uint64_t ended, smoothed;        /* microseconds */
    uint64_t windows;                /* their sum over the rounds, in thousandths */
};

static const struct course courses[] = {
    {VB_TCP_RENO, 1 * MS, 0, 0, 0, 0, 0, 0, 3000, 53000, 1000, 3340000},
    {VB_TCP_RENO, 1 * MS, 0, 150, 0, 20, 29, 1, 3000, 304290, 1000, 3169156},
    {VB_TCP_RENO, 20 * MS, 5 * MS, 12, 0, 30, 274, 38, 2081, 19061406, 22618, 4224868},
    {VB_TCP_RENO, 1 * MS, 5 * MS, 400, 60, 0, 10, 1, 1534, 397060, 1005, 3386895},
    {VB_TCP_RENO, 3 * MS, 0, 4, 8, 8, 1180, 843, 3143, 19853493, 3145, 6079589},
    {VB_TCP_CUBIC, 1 * MS, 0, 200, 0, 0, 14, 0, 3000, 184140, 1000, 3111822},
    {VB_TCP_CUBIC, 100 * MS, 0, 300, 500, 50, 12, 2, 3000, 20630120, 100001, 3116833},
    {VB_TCP_CUBIC, 500 * MS, 40 * MS, 700, 0, 0, 7, 0, 1590, 33030070, 500003, 3183892},
    {VB_TCP_CUBIC, 2 * MS, 1 * MS, 6, 20, 9, 665, 331, 2332, 8130214, 2506, 5892698},
    {VB_TCP_DCTCP, 1 * MS, 0, 0, 12, 0, 0, 0, 3000, 257000, 1000, 3122853},
    {VB_TCP_DCTCP, 2 * MS, 5 * MS, 250, 5, 40, 15, 7, 1881, 1214150, 2006, 3639293},
};

static bool chance(uint32_t *state, uint32_t of)
{
    *state = *state * 1664525 + 1013904223;
    return of && (*state >> 8) % of == 0;
}

static void reorder(struct vb_tcp_segment *segment, uint32_t count, uint32_t *state, uint32_t late)
{
    for (uint32_t i = 1; i < count; ++i)
        if (chance(state, late)) {
            struct vb_tcp_segment before = segment[i - 1];

            segment[i - 1] = segment[i];
            segment[i] = before;
        }
}

static uint32_t take_answers(const struct vb_tcp_segment *segment, bool marked, bool ack_lost)
{
    struct vb_tcp_ack ack[2];
    int acks = deliver(segment, marked, ack);

    CHECK(acks >= 0);
    for (int i = 0; i < acks && !ack_lost; ++i)
        vb_tcp_sender_acked(&sender, &config, &ack[i], now);
    return (uint32_t)acks;
}

static uint32_t expire_both(bool idle)
{
    struct vb_tcp_ack ack;
    uint32_t acks = 0;

    if (idle && receiver.deadline < sender.deadline)
        now = receiver.deadline;
    if (receiver.deadline <= now) {
        vb_tcp_receiver_expire(&receiver, &ack);
        vb_tcp_sender_acked(&sender, &config, &ack, now);
        ++acks;
    } else if (idle) {
        now = sender.deadline;
    }
    if (sender.deadline <= now)
        CHECK(vb_tcp_sender_expire(&sender, &config, now));
    return acks;
}

static struct course follow(struct course of)
{
    struct vb_tcp_segment segment[200];
    uint32_t state = 1, count;
    double windows = 0;

    of.acks = 0;
    while (!vb_tcp_sender_is_done(&sender)) {
        count = send_all(segment);
        now += of.trip;
        reorder(segment, count, &state, of.late);
        for (uint32_t i = 0; i < count; ++i, now += MS / 100) {
            bool lost = chance(&state, of.lost), marked = chance(&state, of.marked);
            bool ack_lost = chance(&state, 2 * of.lost);

            if (!lost)
                of.acks += take_answers(&segment[i], marked, ack_lost);
        }
        if (!vb_tcp_sender_is_done(&sender))
            of.acks += expire_both(!count);
        windows += sender.window;
    }
    of.resent = sender.resent;
    of.timeouts = sender.timeouts;
    of.ended = now * 1000 / MS;
    of.smoothed = sender.round_trip.smoothed * 1000 / MS;
    of.windows = (uint64_t)(windows * 1000 + 0.5);
    return of;
}

static void streams_go_as_they_went(void)
{
    for (size_t i = 0; i < sizeof(courses) / sizeof(courses[0]); ++i) {
        const struct course *of = &courses[i];
        struct course went;

        config = vb_tcp_defaults();
        config.window = 150 * config.mss;
        config.least_rto = 2 * MS;
        config.first_rto = 300 * MS;
        config.most_rto = 700 * MS;
        config.ack_delay = of->ack_delay;
        config.ecn = of->marked;
        open_stream(of->kind, 3000);
        went = follow(*of);
        close_stream();
        printf("stream %zu: %u, %u, %u, %llu, %llu, %llu\n", i, went.resent, went.timeouts,
               went.acks, (unsigned long long)went.ended, (unsigned long long)went.smoothed,
               (unsigned long long)went.windows);
        CHECK_EQ(went.resent, of->resent);
        CHECK_EQ(went.timeouts, of->timeouts);
        CHECK_EQ(went.acks, of->acks);
        CHECK_EQ(went.ended, of->ended);
        CHECK_EQ(went.smoothed, of->smoothed);
        CHECK_EQ(went.windows, of->windows);
    }
}

int main(void)
{
    the_settings_are_those_documented();
    slow_start_doubles_the_window();
    a_window_that_is_not_used_does_not_grow();
    the_receiver_s_window_is_kept_to();
    a_loss_halves_the_window_once();
    a_segment_that_is_late_is_not_lost();
    all_of_it_comes(VB_TCP_RENO);
    all_of_it_comes(VB_TCP_CUBIC);
    all_of_it_comes(VB_TCP_DCTCP);
    the_timer_backs_off_and_gives_up();
    the_timer_gives_up_after_so_many_in_a_row();
    a_board_without_memory_says_so();
    a_receiver_without_memory_says_so();
    what_came_is_not_sent_again_after_a_timeout();
    a_measured_round_trip_sets_the_timer();
    every_second_segment_is_acknowledged();
    blocks_are_the_latest_first();
    a_mark_halves_the_window_once_in_a_round_trip();
    the_receiver_is_told_once_of_a_reduction();
    without_ecn_a_mark_is_nothing();
    cubic_begins_at_its_top_after_a_timeout();
    dctcp_shrinks_by_the_part_of_marks();
    dctcp_goes_on_while_all_is_marked();
    dctcp_tells_of_each_change();
    cubic_comes_back_after_its_period();
    cubic_may_begin_at_the_top();
    streams_go_as_they_went();
    return 0;
}
