// SPDX-License-Identifier: Apache-2.0
/*
 * Packets that came before a missing one (transport/gap.h): which are kept, when the missing one is
 * asked for, and how long the wait for the next one is, by what became of the last ones. A test
 * here is the responder, and the endpoint has what gap.c looks at alone.
 */
#include "check.h"
#include "transport/cwnd.h"
#include "transport/gap.h"

enum { STORE = 1024, PSNS = 1 << 24, ROUNDS = 4000, SPAN = 64, MOST = 8000000 };

static struct vb_engine engine;
static struct vb_endpoint endpoint;
static struct vb_share share;
static struct vb_cwnd cwnd;
static struct vb_recovery recovery;
static struct vb_gap gap;

static void begin(void)
{
    memset(&engine, 0, sizeof(engine));
    memset(&cwnd, 0, sizeof(cwnd));
    memset(&recovery, 0, sizeof(recovery));
    memset(&gap, 0, sizeof(gap));
    share = (struct vb_share){.cwnd = &cwnd, .recovery = &recovery};
    endpoint = (struct vb_endpoint){.engine = &engine, .share = &share};
    CHECK_EQ(vb_engine_gap_open_store(&engine), 0);
    CHECK_EQ(vb_engine_timer_join(&engine.timers, &recovery.timer, VB_TIMER_RECOVERY), 0);
}

static void end(void)
{
    vb_engine_timer_leave(&engine.timers, &recovery.timer);
    vb_engine_timers_free(&engine.timers);
    vb_engine_gap_close_store(&engine);
}

static bool hold(uint32_t psn, uint32_t length, uint64_t now)
{
    static uint8_t bytes[VB_HEADERS_MAX + 4096 + 1];
    struct vb_arrival arrival = {.bytes = bytes, .length = length, .grh = bytes};
    struct vb_incoming in = {.engine = &engine,
                             .endpoint = &endpoint,
                             .arrival = &arrival,
                             .bth = {.psn = psn},
                             .now = now};

    memset(bytes, (int)psn, sizeof(bytes));
    return vb_engine_gap_hold(&endpoint, &gap, psn - 1, &in);
}

/* Takes out the packet and gives its room back. */
static bool take(uint32_t psn)
{
    struct vb_held *held = vb_engine_gap_take(&endpoint, &gap, psn);

    if (!held)
        return false;
    CHECK_EQ(held->psn, psn);
    CHECK(held->arrival.bytes == held->bytes && !held->arrival.grh);
    for (uint32_t i = 0; i < held->arrival.length; ++i)
        CHECK_EQ(held->bytes[i], (uint8_t)psn);
    vb_engine_gap_release(&engine, held);
    return true;
}

/* ---- what is kept ---------------------------------------------------------------------------- */

static uint64_t state = 9;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

/* In any order each packet is kept once, and those before what is taken are dropped. */
static void each_packet_is_kept_once(void)
{
    bool kept[SPAN] = {false};
    uint64_t first = PSNS - SPAN / 2, held = 0, count = 0;

    begin();
    for (int round = 0; round < ROUNDS; ++round) {
        uint32_t at = draw(SPAN), psn = (uint32_t)(first + at) % PSNS;

        if (draw(3)) {
            hold(psn, 1 + draw(60), 5);
            held += !kept[at];
            kept[at] = true;
        } else if (draw(20) == 0) {
            vb_engine_gap_forget(&engine, &gap);
            memset(kept, 0, sizeof(kept));
            CHECK(!gap.open);
        } else {
            at /= 1 + draw(8);
            CHECK_EQ(take((uint32_t)(first + at) % PSNS), kept[at]);
            memset(kept, 0, at + 1);
        }
        count = 0;
        for (int i = 0; i < SPAN; ++i)
            count += kept[i];
        CHECK_EQ(gap.count, count);
        CHECK_EQ(engine.counters.packets_held, held);
    }
    end();
}

/* As many packets as the engine has room for, whatever became of earlier ones. */
static void the_room_is_used_again(void)
{
    begin();
    for (uint64_t round = 0; round < 4; ++round) {
        for (uint32_t psn = 0; psn < STORE + 3; ++psn)
            hold(psn, 10, 5);
        CHECK_EQ(gap.count, STORE);
        CHECK_EQ(engine.counters.packets_held, (round + 1) * STORE);
        if (round == 1) { /* all but the last are dropped for it */
            CHECK(take(STORE - 1));
        } else if (round == 2) {
            for (uint32_t psn = 0; psn < STORE; ++psn)
                CHECK(take(psn));
        } else {
            vb_engine_gap_forget(&engine, &gap);
        }
        CHECK(!gap.first && gap.count == 0);
    }
    end();
}

static void the_longest_packet_is_kept(void)
{
    begin();
    hold(7, VB_HEADERS_MAX + 4096, 5);
    hold(8, VB_HEADERS_MAX + 4096 + 1, 5);
    CHECK_EQ(gap.count, 1);
    CHECK(take(7) && !take(8));
    end();
}

static bool hold_behind(uint32_t missing, uint32_t psn)
{
    static uint8_t bytes[16];
    struct vb_arrival arrival = {.bytes = bytes, .length = sizeof(bytes)};
    struct vb_incoming in = {.engine = &engine,
                             .endpoint = &endpoint,
                             .arrival = &arrival,
                             .bth = {.psn = psn % PSNS},
                             .now = 5};

    return vb_engine_gap_hold(&endpoint, &gap, missing, &in);
}

/* It is asked for all the same: what a stranger sends may be the first that shows a loss. */
static void what_is_far_ahead_is_not_kept(void)
{
    const uint32_t missing = PSNS - 10;

    begin();
    CHECK(hold_behind(missing, missing + (1 << 16)));
    CHECK(!hold_behind(missing, missing + (1 << 16) + 1));
    CHECK_EQ(gap.count, 1);
    end();
    begin();
    CHECK(hold_behind(missing, missing + (1 << 16) + 1));
    CHECK_EQ(gap.count, 0);
    CHECK(!vb_engine_gap_closed(&endpoint, &gap, missing, 6));
    CHECK(!gap.open);
    end();
}

/* After a second nobody sends what comes before it. */
static void what_is_old_is_forgotten(void)
{
    const uint64_t second = 1000000000;

    begin();
    hold(9, 10, 5);
    hold(5, 10, 7);
    hold(7, 10, 9);
    vb_engine_gap_forget_old(&engine, &gap, 7 + second);
    CHECK_EQ(gap.count, 3);
    CHECK(gap.open);
    vb_engine_gap_forget_old(&engine, &gap, 7 + second + 1);
    CHECK_EQ(gap.count, 0);
    CHECK(!gap.open);
    vb_engine_gap_forget_old(&engine, &gap, 9 * second);
    hold(5, 10, 7);
    CHECK(vb_engine_gap_closed(&endpoint, &gap, 3, 7 + second));
    CHECK(!vb_engine_gap_closed(&endpoint, &gap, 3, 7 + second + 1));
    CHECK(!gap.open && !gap.first);
    end();
}

/* ---- the wait -------------------------------------------------------------------------------- */

/* It is over once, by a packet, by what was only seen, or by the timer. */
static void the_missing_packet_is_asked_for_once(void)
{
    for (int by = 0; by < 3; ++by)
        for (uint64_t now = 1999; now <= 2001; ++now) {
            bool over = now >= 2000, told;

            begin();
            cwnd.patience = 1000;
            CHECK(!vb_engine_gap_expired(&endpoint, &gap, 900)); /* nothing is missing */
            CHECK(!hold(5, 10, 1000));
            CHECK_EQ(recovery.timer.due, 2000);
            CHECK(!hold(6, 10, 1500)); /* it does not wait longer for that */
            CHECK_EQ(recovery.timer.due, 2000);
            told = by == 0   ? hold(7, 10, now)
                   : by == 1 ? vb_engine_gap_seen(&endpoint, &gap, now)
                             : vb_engine_gap_expired(&endpoint, &gap, now);
            CHECK_EQ(told, over);
            CHECK_EQ(hold(8, 10, 2500), !over);
            CHECK(!vb_engine_gap_expired(&endpoint, &gap, 9000));
            vb_engine_gap_lost_again(&gap, 3000);
            CHECK(!vb_engine_gap_seen(&endpoint, &gap, 3999));
            CHECK(vb_engine_gap_seen(&endpoint, &gap, 4000));
            CHECK(!vb_engine_gap_seen(&endpoint, &gap, 4001));
            end();
        }
}

/* A timer that is due earlier stays: it serves other things, too. */
static void an_earlier_timer_stays(void)
{
    begin();
    cwnd.patience = 1000;
    vb_engine_timer_set(&engine.timers, &recovery.timer, 1700);
    CHECK(!hold(5, 10, 1000));
    CHECK_EQ(recovery.timer.due, 1700);
    end();
}

/* Without experience nobody waits. */
static void at_first_there_is_no_wait(void)
{
    begin();
    CHECK(hold(5, 10, 1000));
    CHECK_EQ(recovery.timer.due, VB_NEVER);
    end();
}

/* ---- what is learned ------------------------------------------------------------------------- */

/* The missing packet 4 came so long after 5, without being asked for. */
static void was_late(uint64_t lateness, uint32_t before, uint32_t after)
{
    begin();
    cwnd.patience = before;
    CHECK(!hold(5, 10, 1000));
    CHECK(take(5));
    CHECK(!vb_engine_gap_closed(&endpoint, &gap, 4, 1000 + lateness));
    CHECK_EQ(cwnd.patience, after);
    CHECK(!gap.open && !gap.asked);
    end();
}

static void a_late_packet_makes_waits_longer(void)
{
    was_late(10, 100, 100);
    was_late(66, 100, 100);
    was_late(68, 100, 102); /* half as much again */
    was_late(99, 100, 148);
    was_late(MOST / 3 * 2 + 1, MOST - 5, MOST - 5 + 4);
    was_late(MOST - 10, MOST - 5, MOST);
    was_late(MOST - 10, MOST, MOST);
}

/* Asks for packet 4, which comes after that time; 9 is still early when `another` is. */
static void ask_and_get(uint64_t after, bool another)
{
    uint32_t patience = cwnd.patience;
    uint64_t told_at = 1000 + patience;

    CHECK_EQ(hold(5, 10, 1000), patience == 0);
    if (another)
        hold(9, 10, 1000 + patience / 2);
    if (patience)
        CHECK(vb_engine_gap_seen(&endpoint, &gap, told_at));
    CHECK(take(5));
    CHECK(!vb_engine_gap_closed(&endpoint, &gap, 4, told_at + after));
    CHECK_EQ(cwnd.patience, patience - patience / 16);
    CHECK_EQ(gap.open, another);
}

static void a_lost_packet_makes_waits_shorter(void)
{
    begin();
    cwnd.patience = 1600;
    for (int i = 0; i < 5; ++i)
        ask_and_get(1, false);
    CHECK_EQ(cwnd.patience, 1600 - 100 - 93 - 87 - 82 - 77);
    cwnd.patience = 15;
    ask_and_get(1, false);
    CHECK_EQ(cwnd.patience, 15);
    end();
}

/* Of two missing packets the wait for the second began with the first packet after it. */
static void the_next_missing_packet_has_its_own_wait(void)
{
    for (int late = 0; late < 2; ++late) {
        begin();
        cwnd.patience = 1600;
        CHECK(!hold(5, 10, 1000));
        CHECK(!hold(9, 10, 2000));
        if (late)
            CHECK(vb_engine_gap_expired(&endpoint, &gap, 2600));
        CHECK(take(5));
        CHECK_EQ(vb_engine_gap_closed(&endpoint, &gap, 4, 2100 + late * 1600), late);
        CHECK_EQ(cwnd.patience, late ? 1500 : 1650); /* asked for, or late by 1100 */
        CHECK_EQ(vb_engine_gap_expired(&endpoint, &gap, 2000 + cwnd.patience - 1), false);
        CHECK_EQ(vb_engine_gap_expired(&endpoint, &gap, 2000 + cwnd.patience), !late);
        end();
    }
}

/*
 * A packet that was asked for and came twice was only late. It takes two such packets, or one soon
 * after another, until waits are longer.
 */
static void come_twice(uint64_t shortest, uint64_t after, uint32_t psn, uint8_t before,
                       uint8_t doubts, bool learns)
{
    uint32_t patience;

    begin();
    cwnd.shortest = shortest;
    cwnd.patience = 160;
    cwnd.doubts = before;
    ask_and_get(after, false);
    patience = cwnd.patience;
    CHECK_EQ(patience, 150);
    vb_engine_gap_duplicate(&endpoint, &gap, psn);
    CHECK_EQ(cwnd.doubts, doubts);
    CHECK_EQ(cwnd.patience, learns ? (160 + after) + (160 + after) / 2 : patience);
    vb_engine_gap_duplicate(&endpoint, &gap, psn); /* once is enough */
    CHECK_EQ(cwnd.doubts, doubts);
    end();
}

static void packets_that_come_twice_make_waits_longer(void)
{
    come_twice(1000, 40, 4, 0, 2, false);
    come_twice(1000, 40, 4, 1, 2, false); /* the packet that had been asked for took one off */
    come_twice(1000, 40, 4, 2, 3, true);
    come_twice(1000, 40, 4, 3, 4, true);
    come_twice(1000, 40, 4, 8, 9, true);
    come_twice(1000, 40, 4, 9, 8, true);  /* there are no more than that, or one above */
    come_twice(1000, 40, 5, 2, 1, false); /* another packet */
    come_twice(1000, 40, 3, 2, 1, false);
    come_twice(1000, 999, 4, 2, 3, true);
    come_twice(1000, 1000, 4, 2, 1, false); /* late enough to have been sent again */
    come_twice(0, 5000, 4, 2, 3, true);     /* nobody knows how long that takes */
}

int main(void)
{
    RUN(each_packet_is_kept_once);
    RUN(the_room_is_used_again);
    RUN(the_longest_packet_is_kept);
    RUN(what_is_far_ahead_is_not_kept);
    RUN(what_is_old_is_forgotten);
    RUN(the_missing_packet_is_asked_for_once);
    RUN(an_earlier_timer_stays);
    RUN(at_first_there_is_no_wait);
    RUN(a_late_packet_makes_waits_longer);
    RUN(a_lost_packet_makes_waits_shorter);
    RUN(the_next_missing_packet_has_its_own_wait);
    RUN(packets_that_come_twice_make_waits_longer);
    return 0;
}
