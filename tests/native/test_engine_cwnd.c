// SPDX-License-Identifier: Apache-2.0
/*
 * The congestion window's arithmetic and turns, call by call, over connections that a test makes by
 * hand: the expected numbers are those of RFC 5681, RFC 6298 and cwnd.h, worked out here.
 */
#include <unistd.h>

#include "check.h"
#include "hca/qp.h"
#include "starved.h"
#include "transport/cwnd.h"
#include "transport/recovery.h"

enum { MTU = 1000, BURST = 8, MEMBERS = 3, US = 1000, MS = 1000 * US, TIMEOUT = 14 };

static const uint64_t most = VB_CWND_MOST;
static struct vb_engine engine;
static struct vb_program_endpoint members[MEMBERS];
static struct vb_qp qp;
static struct vb_recovery recovery;
static const uint8_t addresses[2][16] = {{1}, {2}};

static struct vb_endpoint *member(int i)
{
    return &members[i].endpoint;
}

static struct vb_cwnd *cwnd_of(int i)
{
    return members[i].share.cwnd;
}

/* `joined` connections to one address, whose window is the returned one. */
static struct vb_cwnd *begin(int joined)
{
    memset(&engine, 0, sizeof(engine));
    memset(members, 0, sizeof(members));
    memset(&recovery, 0, sizeof(recovery));
    engine.config.adapts = true;
    engine.config.burst = BURST;
    engine.config.ack_bytes = 1;
    vb_engine_ready_init(&engine.requesting);
    qp.terms.timeout = TIMEOUT;
    for (int i = 0; i < MEMBERS; ++i) {
        member(i)->engine = &engine;
        member(i)->qp = &qp;
        member(i)->path.mtu = MTU;
        member(i)->share = &members[i].share;
        members[i].share.short_psn = 1 << 20;
    }
    for (int i = 0; i < joined; ++i)
        CHECK_EQ(vb_engine_cwnd_join(member(i), addresses[0]), 0);
    return cwnd_of(0);
}

static void finish(void)
{
    for (int i = 0; i < MEMBERS; ++i)
        vb_engine_cwnd_leave(member(i));
    CHECK(engine.cwnds == NULL);
}

/* So many packets of this connection are in flight. */
static void fly(int i, uint32_t packets)
{
    member(i)->requester.next_psn = member(i)->requester.una + packets;
    vb_engine_cwnd_note(member(i));
}

/* ---- who shares a window --------------------------------------------------------------------- */

static void connections_to_one_address_share_a_window(void)
{
    struct vb_cwnd *first = begin(2), *other;

    CHECK(first && cwnd_of(1) == first && engine.cwnds == first);
    CHECK_EQ(first->members, 2);
    CHECK_EQ(first->window, 64 << 10);
    CHECK_EQ(first->threshold, most);
    CHECK(!vb_engine_cwnd_was_cut(first));
    CHECK_EQ(first->least_timeout, 200 * US);
    CHECK_EQ(memcmp(first->dgid, addresses[0], 16), 0);
    CHECK_EQ(vb_engine_cwnd_join(member(2), addresses[1]), 0);
    other = cwnd_of(2);
    CHECK(other != first);
    CHECK_EQ(other->members, 1);
    CHECK(engine.cwnds == other && other->next == first);

    /* the same address again, then the other one */
    members[1].share.recovery = &recovery;
    recovery.behind = 7;
    CHECK_EQ(vb_engine_cwnd_join(member(1), addresses[0]), 0);
    CHECK(cwnd_of(1) == first);
    CHECK_EQ(first->members, 2);
    CHECK_EQ(recovery.behind, 0);
    CHECK_EQ(vb_engine_cwnd_join(member(1), addresses[1]), 0);
    CHECK(cwnd_of(1) == other);
    CHECK_EQ(first->members, 1);
    CHECK_EQ(other->members, 2);

    /* an address without a connection has no window, wherever it is in the list */
    vb_engine_cwnd_leave(member(0));
    CHECK(engine.cwnds == other && !other->next && !cwnd_of(0));
    CHECK_EQ(vb_engine_cwnd_join(member(0), addresses[0]), 0);
    CHECK(engine.cwnds->next == other);
    vb_engine_cwnd_leave(member(1));
    CHECK(engine.cwnds->next == other);
    vb_engine_cwnd_leave(member(2));
    CHECK(engine.cwnds == cwnd_of(0) && !engine.cwnds->next);
    vb_engine_cwnd_leave(member(0));
    vb_engine_cwnd_leave(member(0));
    finish();
}

/* What it had in flight is in flight no more, and it holds up nobody. */
static void who_leaves_takes_its_bytes_along(void)
{
    struct vb_cwnd *cwnd = begin(3);

    fly(0, 5);
    fly(1, 7);
    CHECK_EQ(cwnd->in_flight, 12 * MTU);
    vb_engine_cwnd_take_turn(member(1));
    CHECK(cwnd->served == member(1));
    vb_engine_cwnd_time(member(1), 7, 5);
    CHECK(cwnd->timed == member(1));
    vb_engine_ready_add(&cwnd->waiting, &member(1)->requesting);
    vb_engine_ready_add(&cwnd->waiting, &member(2)->requesting);
    vb_engine_cwnd_leave(member(1));
    CHECK_EQ(cwnd->in_flight, 5 * MTU);
    CHECK_EQ(cwnd->answered, 7 * MTU);
    CHECK_EQ(member(1)->in_flight, 0);
    CHECK_EQ(cwnd->members, 2);
    CHECK(cwnd->timed == NULL);
    CHECK(!vb_engine_ready_has(&member(1)->requesting));
    CHECK(cwnd->served == member(2)); /* the next one that waited has its turn */
    CHECK(vb_engine_ready_first(&engine.requesting) == &member(2)->requesting);
    vb_engine_ready_remove(&member(2)->requesting);
    vb_engine_cwnd_leave(member(0));
    CHECK(cwnd->served == member(2));
    CHECK_EQ(vb_engine_cwnd_join(member(0), addresses[0]), 0);
    vb_engine_cwnd_leave(member(2)); /* nobody waits */
    CHECK(cwnd->served == NULL);
    finish();
}

static void a_window_that_has_no_memory_is_not_joined(void)
{
    long blocks = starved_blocks();
    struct vb_cwnd *cwnd = begin(2);

    starved_after(0);
    CHECK_EQ(vb_engine_cwnd_join(member(2), addresses[0]), 0); /* it is there */
    CHECK_EQ(vb_engine_cwnd_join(member(2), addresses[1]), -ENOMEM);
    CHECK(starved_end());
    CHECK(cwnd_of(2) == cwnd); /* it has the one that it had */
    CHECK_EQ(cwnd->members, 3);
    CHECK(engine.cwnds == cwnd && !cwnd->next);
    finish();
    CHECK_EQ(starved_blocks(), blocks);
}

/* ---- bytes in flight ------------------------------------------------------------------------- */

static void bytes_in_flight_are_whole_packets(void)
{
    static const struct {
        uint32_t packets, early;
        uint8_t probes;
        bool not_ready, short_ones;
        uint32_t bytes;
    } rows[] = {
        {0, 0, 0, false, false, 0},       {1, 0, 0, false, false, MTU},
        {9, 0, 0, false, false, 9 * MTU}, {9, 0, 1, false, false, 9 * MTU},
        {9, 0, 2, false, false, MTU},     {0, 0, 2, false, false, 0},
        {9, 4, 0, false, false, 5 * MTU}, {9, 9, 0, false, false, 0},
        {9, 10, 0, false, false, 0},      {9, 4, 2, false, false, MTU},
        {9, 9, 2, false, false, 0},       {9, 0, 0, true, false, 0},
        {9, 0, 0, false, true, 9 * 256},  {9, 0, 3, false, true, 256},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        struct vb_cwnd *cwnd = begin(2);
        struct vb_requester *r = &member(0)->requester;

        fly(1, 3);
        fly(0, 20);
        if (rows[i].early)
            members[0].share.recovery = &recovery;
        recovery.early_answer.count = rows[i].early;
        member(0)->probes = rows[i].probes & 15;
        r->rnr_wait = rows[i].not_ready;
        r->una = 0xfffff0; /* PSNs wrap */
        r->next_psn = (r->una + rows[i].packets) & 0xffffff;
        members[0].share.short_psn = rows[i].short_ones ? r->una : r->una + 1;
        vb_engine_cwnd_note(member(0));
        CHECK_EQ(member(0)->in_flight, rows[i].bytes);
        CHECK_EQ(cwnd->in_flight, rows[i].bytes + 3 * MTU);
        CHECK_EQ(cwnd->answered, 20 * MTU - rows[i].bytes);
        CHECK_EQ(vb_engine_cwnd_behind_all(cwnd), 23 * MTU);
        finish();
    }
}

static void what_was_in_flight_is_drained_when_it_is_answered(void)
{
    struct vb_cwnd *cwnd = begin(1);
    uint64_t timeout;

    cwnd->answered = 100;
    cwnd->heard_at = 5 * MS;
    timeout = vb_engine_cwnd_timeout(cwnd);
    CHECK(vb_engine_cwnd_is_draining(cwnd, 101, 5 * MS + timeout - 1));
    CHECK(!vb_engine_cwnd_is_draining(cwnd, 101, 5 * MS + timeout));
    CHECK(!vb_engine_cwnd_is_draining(cwnd, 100, 5 * MS));
    finish();
}

/* ---- growth ---------------------------------------------------------------------------------- */

/* `acknowledged` of the bytes in flight. It grows only where at least half of it was in use. */
static void the_window_grows_by_what_is_acknowledged(void)
{
    static const struct {
        uint64_t window, threshold, acked;
        uint32_t packets, acknowledged;
        bool late;
        uint64_t grown, rest;
    } rows[] = {
        {20 * MTU, 100 * MTU, 0, 10, 4, false, 24 * MTU, 0}, /* slow start */
        {20 * MTU + 1, 100 * MTU, 0, 10, 4, false, 20 * MTU + 1, 0},
        {20 * MTU, 20 * MTU + 1, 0, 10, 4, false, 24 * MTU, 0},
        {20 * MTU, 20 * MTU, 0, 10, 4, false, 20 * MTU, 4 * MTU}, /* congestion avoidance */
        {20 * MTU, 20 * MTU, 15 * MTU, 10, 4, false, 20 * MTU, 19 * MTU},
        {20 * MTU, 20 * MTU, 16 * MTU, 10, 4, false, 21 * MTU, 0},
        {20 * MTU, 20 * MTU, 19 * MTU, 10, 4, false, 21 * MTU, 3 * MTU},
        {20 * MTU, 100 * MTU, 0, 10, 4, true, 20 * MTU, 0},
        {20 * MTU, 20 * MTU, 19 * MTU, 10, 4, true, 20 * MTU, 19 * MTU},
        {20 * MTU, 100 * MTU, 0, 10, 0, false, 20 * MTU, 0},
        {8 * MTU, 100 * MTU, 0, 10, 10, false, 18 * MTU, 0},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        struct vb_cwnd *cwnd = begin(1);

        fly(0, rows[i].packets);
        cwnd->window = rows[i].window;
        cwnd->threshold = rows[i].threshold;
        cwnd->acked = rows[i].acked;
        cwnd->late = rows[i].late;
        member(0)->requester.una += rows[i].acknowledged;
        vb_engine_cwnd_acknowledged(member(0), member(0)->requester.una, 5);
        CHECK_EQ(cwnd->window, rows[i].grown);
        CHECK_EQ(cwnd->acked, rows[i].rest);
        finish();
    }
}

static void a_window_has_an_end(void)
{
    struct vb_cwnd *cwnd = begin(1);

    fly(0, 4);
    cwnd->in_flight = most;
    cwnd->window = most;
    cwnd->threshold = 2 * most;
    member(0)->requester.una += 4;
    vb_engine_cwnd_acknowledged(member(0), 4, 5);
    CHECK_EQ(cwnd->window, most);
    cwnd->in_flight = 4 * MTU;
    finish();
}

/* ---- round trips ----------------------------------------------------------------------------- */

/* A packet with the PSN 5 that asked at `sent`, and an acknowledgement of `psn`. */
static void answer(struct vb_cwnd *cwnd, uint32_t psn, uint64_t sent, uint64_t now)
{
    member(0)->requester.una = member(0)->requester.next_psn = 5;
    cwnd->timed = NULL;
    vb_engine_cwnd_time(member(0), 5, sent);
    CHECK_EQ(cwnd->timed_psn, 5);
    CHECK_EQ(cwnd->timed_at, sent);
    CHECK(!cwnd->timed_in_doubt);
    vb_engine_cwnd_acknowledged(member(0), psn, now);
}

/* RFC 6298: the first sample, and an eighth and a quarter of each other one's difference. */
static void round_trips_are_smoothed(void)
{
    struct vb_cwnd *cwnd = begin(1);

    answer(cwnd, 5, 100, 100 + 8000);
    CHECK_EQ(cwnd->round_trip, 8000);
    CHECK_EQ(cwnd->deviation, 4000);
    CHECK_EQ(cwnd->shortest, 8000);
    answer(cwnd, 6, 100, 100 + 16000);
    CHECK_EQ(cwnd->deviation, 4000 - 1000 + 2000);
    CHECK_EQ(cwnd->round_trip, 8000 - 1000 + 2000);
    CHECK_EQ(cwnd->shortest, 8000);
    answer(cwnd, 5, 100, 100 + 1000);
    CHECK_EQ(cwnd->deviation, 5000 - 1250 + 2000);
    CHECK_EQ(cwnd->round_trip, 9000 - 1125 + 125);
    CHECK_EQ(cwnd->shortest, 1000);
    answer(cwnd, 4, 100, 100 + 1000); /* it says nothing about PSN 5 */
    CHECK(cwnd->timed == member(0));
    CHECK_EQ(cwnd->round_trip, 8000);
    answer(cwnd, 5, 100, 100); /* a coarse clock */
    CHECK_EQ(cwnd->shortest, 1);
    answer(cwnd, 5, 100, 50);
    CHECK_EQ(cwnd->shortest, 1);
    finish();
}

static void one_packet_is_timed_at_once(void)
{
    struct vb_cwnd *cwnd = begin(2);

    member(0)->requester.next_psn = 9;
    vb_engine_cwnd_time(member(0), 9, 10);
    vb_engine_cwnd_time(member(0), 10, 20);
    vb_engine_cwnd_time(member(1), 9, 30);
    CHECK_EQ(cwnd->timed_psn, 9);
    CHECK(cwnd->timed == member(0));
    CHECK_EQ(cwnd->timed_at, 10);
    vb_engine_cwnd_untime(member(1));
    CHECK(cwnd->timed == member(0));
    vb_engine_cwnd_doubt(member(1));
    CHECK(!cwnd->timed_in_doubt);
    vb_engine_cwnd_acknowledged(member(1), 9, 40);
    CHECK(cwnd->timed == member(0));
    vb_engine_cwnd_doubt(member(0));
    vb_engine_cwnd_doubt(member(1));
    CHECK(cwnd->timed_in_doubt);
    vb_engine_cwnd_untime(member(0));
    CHECK(cwnd->timed == NULL);
    vb_engine_cwnd_time(member(0), 11, 60);
    CHECK(!cwnd->timed_in_doubt);
    finish();
}

/* Karn's algorithm: after a probe an answer tells no round trip, and doubts end with one that does.
 */
static void an_answer_after_a_probe_is_doubtful(void)
{
    struct vb_cwnd *cwnd = begin(1);

    for (int i = 1; i <= 14; ++i) {
        cwnd->timed = member(0);
        cwnd->timed_at = 0;
        cwnd->timed_psn = 0;
        cwnd->timed_in_doubt = true;
        vb_engine_cwnd_acknowledged(member(0), 3, 9000);
        CHECK_EQ(cwnd->doubtful, i < 12 ? i : 12);
        CHECK_EQ(cwnd->round_trip, 0);
        CHECK(cwnd->timed == NULL);
    }
    answer(cwnd, 5, 100, 8100);
    CHECK_EQ(cwnd->doubtful, 0);
    finish();
}

/*
 * What a packet waits in queues beyond the way's own time counts, beside what the way leaves of the
 * local ACK timeout, or beside the way where that is longer: a quarter of it is late, and half of
 * it too much for the window.
 */
static void long_delays_are_heeded(void)
{
    const uint64_t timeout = 4096ull << TIMEOUT;
    const struct {
        uint64_t way, most;
    } lengths[] = {
        {8, timeout - 8},
        {timeout / 4, timeout / 4 * 3},
        {timeout / 2 - 8, timeout / 2 + 8},
        {timeout / 2, timeout / 2},
        {timeout * 2, timeout * 2},
    };
    static const struct {
        bool in_doubt;
        uint8_t probes, code;
        bool heeds;
    } ways[] = {
        {false, 0, TIMEOUT, true}, {true, 1, TIMEOUT, false}, /* it may be the probe's answer */
        {true, 2, TIMEOUT, true},                        /* and that of two is late in any case */
        {true, 3, TIMEOUT, true},  {false, 0, 0, false}, /* no local ACK timeout */
    };

    for (size_t way = 0; way < sizeof(ways) / sizeof(ways[0]); ++way)
        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); ++i)
            for (int part = 0; part < 5; ++part) {
                const uint64_t most = lengths[i].most;
                const uint64_t queued[] = {0, most / 4, most / 4 + 1, most / 2, most / 2 + 1};
                struct vb_cwnd *cwnd = begin(1);

                cwnd->shortest = cwnd->round_trip = lengths[i].way;
                cwnd->timed = member(0);
                cwnd->timed_in_doubt = ways[way].in_doubt;
                member(0)->probes = ways[way].probes & 15;
                qp.terms.timeout = ways[way].code;
                vb_engine_cwnd_acknowledged(member(0), 0, lengths[i].way + queued[part]);
                CHECK_EQ(cwnd->late, ways[way].heeds && part > 1);
                CHECK_EQ(engine.counters.window_cuts, ways[way].heeds && part > 3);
                CHECK_EQ(cwnd->shortest, lengths[i].way);
                finish();
            }
}

/*
 * If the first round trip that is measured is longer than the local ACK timeout, nothing was lost
 * before, and the window opens as at first. A later one says nothing of that.
 */
static void a_way_is_longer_than_the_timeout(void)
{
    const uint64_t timeout = 4096ull << TIMEOUT;

    for (uint64_t more = 0; more < 2; ++more)
        for (int known = 0; known < 2; ++known) {
            struct vb_cwnd *cwnd = begin(1);

            vb_engine_cwnd_expired(member(0), timeout, 1000);
            vb_engine_cwnd_silence(member(0), 1000 + 20 * MS);
            CHECK(cwnd->window < 64 << 10 && vb_engine_cwnd_was_cut(cwnd));
            cwnd->timed = member(0);
            cwnd->shortest = cwnd->round_trip = known ? timeout : 0;
            vb_engine_cwnd_acknowledged(member(0), 0, timeout + more);
            CHECK_EQ(vb_engine_cwnd_was_cut(cwnd), !more || known);
            CHECK_EQ(cwnd->window, more && !known ? 64 << 10 : 4 * MTU);
            CHECK_EQ(engine.counters.window_cuts, 1);
            finish();
        }
}

/* A window that cannot be smaller makes no queue, so that the way itself has become longer. */
static void a_way_becomes_longer(void)
{
    for (uint32_t more = 0; more < 2; ++more)
        for (int in_doubt = 0; in_doubt < 2; ++in_doubt) {
            struct vb_cwnd *cwnd = begin(1);
            bool longer = !more && !in_doubt;

            cwnd->window = 4 * MTU + more;
            cwnd->shortest = cwnd->round_trip = 8;
            cwnd->timed = member(0);
            cwnd->timed_in_doubt = in_doubt;
            member(0)->probes = 2;
            vb_engine_cwnd_acknowledged(member(0), 0, 4096ull << TIMEOUT);
            CHECK_EQ(cwnd->shortest, longer ? 4096ull << TIMEOUT : 8);
            finish();
        }
}

/* ---- cuts ------------------------------------------------------------------------------------ */

static void a_cut_leaves_a_part(void)
{
    static const struct {
        uint64_t window, threshold, in_flight, round_trip, shortest, left;
    } rows[] = {
        /* the first one: half of what was used, which is at least half of the window */
        {100 * MTU, 1ull << 40, 100 * MTU, 500, 500, 50 * MTU},
        {100 * MTU, 1ull << 40, 200 * MTU, 500, 500, 50 * MTU},
        {100 * MTU, 1ull << 40, 80 * MTU, 500, 500, 40 * MTU},
        {100 * MTU, 1ull << 40, 10 * MTU, 500, 500, 25 * MTU},
        {6 * MTU, 1ull << 40, 6 * MTU, 500, 500, 4 * MTU}, /* four packets at least */
        {9 * MTU, 1ull << 40, 9 * MTU, 500, 500, 9 * MTU / 2},
        /* a later one: nine tenths where there was no queue, and seven tenths where there was */
        {100 * MTU, 90 * MTU, 100 * MTU, 500, 400, 70 * MTU},
        {100 * MTU, 90 * MTU, 100 * MTU, 499, 400, 90 * MTU},
        {100 * MTU, 90 * MTU, 80 * MTU, 900, 400, 56 * MTU},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        struct vb_cwnd *cwnd = begin(1);

        cwnd->window = rows[i].window;
        cwnd->threshold = rows[i].threshold;
        cwnd->in_flight = rows[i].in_flight;
        cwnd->round_trip = rows[i].round_trip;
        cwnd->shortest = rows[i].shortest;
        cwnd->acked = 77;
        cwnd->before = 78;
        vb_engine_cwnd_cut(member(0), 1000);
        CHECK_EQ(cwnd->window, rows[i].left);
        CHECK_EQ(cwnd->threshold, rows[i].left);
        CHECK_EQ(cwnd->acked, 0);
        CHECK(cwnd->before <= 1);
        CHECK(vb_engine_cwnd_was_cut(cwnd));
        cwnd->in_flight = 0;
        finish();
    }
}

/* Within a round trip, and 50 us at least, there is one cut. */
static void one_cut_follows_from_one_round_trip(void)
{
    static const struct {
        uint64_t round_trip, deviation, pause;
    } rows[] = {
        {0, 0, 50 * US},
        {20 * US, 29 * US, 50 * US},
        {20 * US, 31 * US, 51 * US},
        {3 * MS, MS, 4 * MS},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        struct vb_cwnd *cwnd = begin(1);

        cwnd->round_trip = rows[i].round_trip;
        cwnd->deviation = rows[i].deviation;
        vb_engine_cwnd_cut(member(0), 1000);
        CHECK_EQ(cwnd->cut_until, 1000 + rows[i].pause);
        vb_engine_cwnd_cut(member(0), 1000 + rows[i].pause - 1);
        CHECK_EQ(engine.counters.window_cuts, 1);
        vb_engine_cwnd_cut(member(0), 1000 + rows[i].pause);
        CHECK_EQ(engine.counters.window_cuts, 2);
        finish();
    }
}

static void an_expired_timeout_is_one_cut_in_its_time(void)
{
    struct vb_cwnd *cwnd = begin(1);

    vb_engine_cwnd_expired(member(0), 2 * MS, 1000);
    CHECK_EQ(engine.counters.window_cuts, 1);
    CHECK_EQ(cwnd->cut_until, 1000 + 2 * MS);
    vb_engine_cwnd_expired(member(0), 9 * MS, 999 + 2 * MS);
    CHECK_EQ(engine.counters.window_cuts, 1);
    CHECK_EQ(cwnd->cut_until, 1000 + 2 * MS);
    vb_engine_cwnd_expired(member(0), 10 * US, 1000 + 2 * MS);
    CHECK_EQ(engine.counters.window_cuts, 2);
    CHECK_EQ(cwnd->cut_until, 1000 + 2 * MS + 50 * US); /* the round trip's is longer */
    finish();
}

/* As small as it can be after 20 ms without a word, and as before when the peer was only late. */
static void a_silence_is_taken_back(void)
{
    struct vb_cwnd *cwnd = begin(1);

    cwnd->heard_at = 7;
    cwnd->acked = 3;
    vb_engine_cwnd_silence(member(0), 7 + 20 * MS - 1);
    CHECK_EQ(cwnd->window, 64 << 10);
    vb_engine_cwnd_silence(member(0), 7 + 20 * MS);
    CHECK_EQ(cwnd->window, 4 * MTU);
    CHECK_EQ(cwnd->threshold, 32 << 10);
    CHECK_EQ(cwnd->before, 64 << 10);
    CHECK_EQ(cwnd->acked, 0);
    vb_engine_cwnd_silence(member(0), 7 + 40 * MS); /* the second time changes nothing */
    CHECK_EQ(cwnd->before, 64 << 10);
    CHECK_EQ(cwnd->threshold, 32 << 10);
    vb_engine_cwnd_restore(cwnd);
    CHECK_EQ(cwnd->window, 64 << 10);
    CHECK_EQ(cwnd->before, 0);
    cwnd->window = 4 * MTU + 1;
    vb_engine_cwnd_silence(member(0), 7 + 20 * MS);
    CHECK_EQ(cwnd->window, 4 * MTU);
    cwnd->window = 90 * MTU; /* it has grown meanwhile */
    vb_engine_cwnd_restore(cwnd);
    CHECK_EQ(cwnd->window, 90 * MTU);
    CHECK_EQ(cwnd->before, 0);
    finish();
}

/* ---- the time until a probe ------------------------------------------------------------------ */

static void the_timeout_follows_the_round_trip(void)
{
    static const struct {
        uint64_t round_trip, deviation, least;
        bool cut;
        uint8_t doubtful;
        uint64_t timeout;
    } rows[] = {
        {0, 0, 200 * US, false, 0, 50 * MS},
        {0, 0, 200 * US, true, 0, 50 * MS},
        {0, 0, 200 * US, false, 2, 200 * MS},
        {0, 0, 200 * US, false, 5, 1000 * MS}, /* a second at most */
        {20 * US, 5 * US, 200 * US, false, 0, 200 * US},
        {20 * US, 5 * US, 200 * US, true, 0, 40 * US}, /* RFC 8985 */
        {20 * US, 6 * US, 200 * US, true, 0, 44 * US},
        {20 * US, 5 * US, 201 * US, true, 0, 201 * US},
        {100 * US, 5 * US, 200 * US, true, 0, 200 * US},
        {99 * US, 5 * US, 200 * US, true, 0, 198 * US},
        {300 * US, 40 * US, 200 * US, false, 0, 460 * US},
        {300 * US, 40 * US, 200 * US, false, 3, 8 * 460 * US},
        {300 * US, 40 * US, 9 * MS, false, 0, 9 * MS},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        struct vb_cwnd cwnd = {
            .round_trip = rows[i].round_trip,
            .deviation = rows[i].deviation,
            .least_timeout = rows[i].least,
            .threshold = rows[i].cut ? 5 * MTU : most,
            .doubtful = rows[i].doubtful,
        };

        CHECK_EQ(vb_engine_cwnd_timeout(&cwnd), rows[i].timeout);
    }
}

/* The window may fill queues with half a round trip where that is long (longest_queue). */
static void the_time_of_an_answer_is_what_was_measured(void)
{
    static const struct {
        uint64_t round_trip, shortest;
        uint8_t doubtful;
        uint64_t time;
    } rows[] = {
        {0, 0, 0, 0}, /* nothing is known */
        {0, 0, 1, 100 * MS},
        {0, 0, 3, 400 * MS},
        {90 * US, 20 * US, 0, 30 * US},
        {80 * MS, 80 * MS, 0, 120 * MS},
        {90 * MS, 80 * MS, 11, 120 * MS},
        {90 * MS, 80 * MS, 12, 120 * MS}, /* doubts are of losses, too */
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        struct vb_cwnd cwnd = {
            .round_trip = rows[i].round_trip,
            .shortest = rows[i].shortest,
            .doubtful = rows[i].doubtful,
        };

        CHECK_EQ(vb_engine_cwnd_answer_time(&cwnd), rows[i].time);
    }
}

/* After a needless probe the next one waits for one and a half times as long, 20 ms at most. Each
 * round trip takes a part of that back, until it is 200 us again. */
static void a_needless_probe_makes_the_next_one_later(void)
{
    struct vb_cwnd *cwnd = begin(1);
    uint64_t before;

    vb_engine_cwnd_late(cwnd, 100 * US);
    CHECK_EQ(cwnd->least_timeout, 200 * US);
    vb_engine_cwnd_late(cwnd, 400 * US);
    CHECK_EQ(cwnd->least_timeout, 600 * US);
    vb_engine_cwnd_late(cwnd, 300 * US);
    CHECK_EQ(cwnd->least_timeout, 600 * US);
    vb_engine_cwnd_late(cwnd, 14 * MS);
    CHECK_EQ(cwnd->least_timeout, 20 * MS);
    vb_engine_cwnd_late(cwnd, 13 * MS);
    CHECK_EQ(cwnd->least_timeout, 20 * MS);
    answer(cwnd, 5, 100, 200);
    CHECK_EQ(cwnd->least_timeout, 20 * MS - (19800 * US + 1023) / 1024);
    do {
        before = cwnd->least_timeout;
        answer(cwnd, 5, 100, 200);
    } while (cwnd->least_timeout < before);
    CHECK_EQ(cwnd->least_timeout, 200 * US);
    finish();
}

/* ---- turns ----------------------------------------------------------------------------------- */

static bool is_ready(int i)
{
    for (struct vb_link *at = engine.requesting.head.next; at != &engine.requesting.head;
         at = at->next)
        if (at == &member(i)->requesting)
            return true;
    return false;
}

static bool is_first_to_wait(struct vb_cwnd *cwnd, int i)
{
    return vb_engine_ready_first(&cwnd->waiting) == &member(i)->requesting;
}

static void wait(int i)
{
    vb_engine_ready_remove(&member(i)->requesting);
    vb_engine_cwnd_wait(member(i));
}

static void leave_all(void)
{
    for (int i = 0; i < MEMBERS; ++i)
        vb_engine_ready_remove(&member(i)->requesting);
    finish();
}

/* Those who wait are woken one at a time, in the order in which they came, once there is room. */
static void one_waits_for_another(void)
{
    struct vb_cwnd *cwnd = begin(3);

    cwnd->window = 10 * MTU;
    fly(0, 10);
    CHECK(vb_engine_cwnd_is_closed(member(1)));
    wait(1);
    wait(2);
    CHECK(!is_ready(1) && !is_ready(2) && is_first_to_wait(cwnd, 1));
    member(0)->requester.una += 1;
    cwnd->turn = 5;
    vb_engine_cwnd_note(member(0));
    CHECK(is_ready(1) && !is_ready(2));
    CHECK(cwnd->served == member(1) && cwnd->awake);
    CHECK_EQ(cwnd->turn, 0);
    CHECK(!vb_engine_cwnd_is_closed(member(1)));
    CHECK(vb_engine_cwnd_is_closed(member(2))); /* it is the other's turn */
    vb_engine_cwnd_note(member(0));             /* who was woken has not sent yet */
    CHECK(!is_ready(2));
    vb_engine_ready_remove(&member(1)->requesting);
    vb_engine_cwnd_rest(member(1)); /* and has nothing to send */
    CHECK(is_ready(2) && cwnd->served == member(2));
    vb_engine_cwnd_rest(member(1)); /* it is not its turn */
    CHECK(cwnd->served == member(2));
    vb_engine_cwnd_rest(member(2));
    CHECK(cwnd->served == NULL); /* nobody is left */
    wait(1);                     /* and there is room */
    CHECK(is_ready(1) && cwnd->served == member(1));
    leave_all();
}

/* Amid its turn a connection waits as the first, and goes on with it. */
static void who_is_amid_its_turn_waits_as_the_first(void)
{
    struct vb_cwnd *cwnd = begin(3);

    cwnd->window = 10 * MTU;
    fly(0, 10);
    vb_engine_cwnd_take_turn(member(1));
    CHECK_EQ(cwnd->turn, 1);
    vb_engine_cwnd_take_turn(member(1));
    CHECK_EQ(cwnd->turn, 2);
    wait(2);
    wait(1);
    CHECK(!cwnd->awake);
    CHECK(is_first_to_wait(cwnd, 1));
    member(0)->requester.una += 10;
    vb_engine_cwnd_note(member(0));
    CHECK(is_ready(1) && !is_ready(2) && cwnd->awake);
    CHECK_EQ(cwnd->turn, 2);
    vb_engine_cwnd_take_turn(member(2)); /* another sends: its own turn begins */
    CHECK_EQ(cwnd->turn, 1);
    CHECK(cwnd->served == member(2));
    leave_all();
}

/* After a whole turn it waits behind those who wait; where nobody does, it goes on. */
static void a_turn_ends_after_its_packets(void)
{
    struct vb_cwnd *cwnd = begin(3);

    vb_engine_ready_add(&engine.requesting, &member(0)->requesting);
    for (int i = 0; i < BURST; ++i) {
        CHECK_EQ(cwnd->turn, i);
        vb_engine_cwnd_take_turn(member(0));
    }
    CHECK(cwnd->served == NULL && is_ready(0));
    cwnd->turn = 0;
    vb_engine_cwnd_take_turn(member(0));
    wait(1);
    wait(2);
    CHECK(!is_ready(1) && is_first_to_wait(cwnd, 1));
    for (int i = 1; i < BURST; ++i) {
        CHECK(is_ready(0));
        vb_engine_cwnd_take_turn(member(0));
    }
    CHECK(!is_ready(0) && is_ready(1) && !is_ready(2));
    CHECK(cwnd->served == member(1) && is_first_to_wait(cwnd, 2));
    vb_engine_ready_remove(&member(2)->requesting);
    CHECK(is_first_to_wait(cwnd, 0));
    leave_all();
}

/* In a scarce window a turn is a sixteenth of it, and one packet at least. */
static void turns_are_short_in_a_scarce_window(void)
{
    struct vb_cwnd *cwnd = begin(2);

    engine.config.ack_bytes = 256 << 10;
    for (uint32_t packets = 4; packets < 200; ++packets) {
        uint32_t turn = packets / 16 + 1 < BURST ? packets / 16 + 1 : BURST;

        cwnd->window = packets * MTU;
        CHECK(vb_engine_cwnd_is_scarce(member(0)));
        CHECK_EQ(vb_engine_cwnd_turn(member(0)), turn);
        for (uint32_t i = 0; i < BURST; ++i) {
            cwnd->served = member(0);
            cwnd->turn = i;
            CHECK_EQ(vb_engine_cwnd_ends_turn(member(0)), i + 1 >= turn);
            CHECK_EQ(vb_engine_cwnd_ends_turn(member(1)), turn == 1);
        }
    }
    cwnd->window = 150 * MTU;
    cwnd->turn = 0;
    cwnd->in_flight = 149 * MTU - 1;
    CHECK(!vb_engine_cwnd_ends_turn(member(0)));
    ++cwnd->in_flight; /* the packet fills the window */
    CHECK(vb_engine_cwnd_ends_turn(member(0)));
    cwnd->window = 4 * (256 << 10) - 1;
    CHECK(vb_engine_cwnd_is_scarce(member(0)));
    ++cwnd->window;
    CHECK(!vb_engine_cwnd_is_scarce(member(0)));
    CHECK_EQ(vb_engine_cwnd_turn(member(0)), BURST);
    CHECK(!vb_engine_cwnd_ends_turn(member(0)));
    cwnd->in_flight = 0;
    leave_all();
}

int main(void)
{
    alarm(60);
    RUN(connections_to_one_address_share_a_window);
    RUN(who_leaves_takes_its_bytes_along);
    RUN(a_window_that_has_no_memory_is_not_joined);
    RUN(bytes_in_flight_are_whole_packets);
    RUN(what_was_in_flight_is_drained_when_it_is_answered);
    RUN(the_window_grows_by_what_is_acknowledged);
    RUN(a_window_has_an_end);
    RUN(round_trips_are_smoothed);
    RUN(one_packet_is_timed_at_once);
    RUN(an_answer_after_a_probe_is_doubtful);
    RUN(long_delays_are_heeded);
    RUN(a_way_is_longer_than_the_timeout);
    RUN(a_way_becomes_longer);
    RUN(a_cut_leaves_a_part);
    RUN(one_cut_follows_from_one_round_trip);
    RUN(an_expired_timeout_is_one_cut_in_its_time);
    RUN(a_silence_is_taken_back);
    RUN(the_timeout_follows_the_round_trip);
    RUN(the_time_of_an_answer_is_what_was_measured);
    RUN(a_needless_probe_makes_the_next_one_later);
    RUN(one_waits_for_another);
    RUN(who_is_amid_its_turn_waits_as_the_first);
    RUN(a_turn_ends_after_its_packets);
    RUN(turns_are_short_in_a_scarce_window);
    return 0;
}
