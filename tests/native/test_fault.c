// SPDX-License-Identifier: Apache-2.0
/* Which packets the rules choose, and that the same seed chooses the same ones. */
#include "check.h"
#include "rules.h"
#include "wire/headers.h"
#include "wire/opcode.h"
#include "wrap/fault.h"

#include <stdio.h>

static struct vb_fault *made(const char *text)
{
    struct vb_fault_rules rules;
    struct vb_fault *fault;
    char error[256];

    CHECK_EQ(vb_wrap_fault_read(rules_records(text), &rules, error, sizeof(error)), 0);
    CHECK_EQ(vb_wrap_fault_create(&rules, &fault), 0);
    return fault;
}

static bool meets(struct vb_fault *fault, enum vb_wrap_direction direction, uint32_t qp,
                  uint8_t opcode, uint32_t psn, struct vb_fault_effect *effect)
{
    uint8_t header[VB_HEADERS_MAX] = {0};
    struct vb_bth bth = {.opcode = opcode, .psn = psn};

    vb_wire_bth_write(header, &bth);
    header[VB_BTH] = 0x1f;
    return vb_wrap_fault_apply(
        fault, &(struct vb_fault_view){direction, qp, header, vb_opcodes[opcode].header_length},
        effect);
}

static bool drops(struct vb_fault *fault, uint32_t psn)
{
    struct vb_fault_effect effect;

    return meets(fault, VB_WRAP_OUT, 1, VB_OP_SEND_ONLY, psn, &effect) && effect.drop;
}

static void test_direction(void)
{
    struct vb_fault *fault = made("drop dir=in");
    struct vb_fault_effect effect;

    CHECK(!meets(fault, VB_WRAP_OUT, 1, VB_OP_SEND_ONLY, 0, &effect));
    CHECK(meets(fault, VB_WRAP_IN, 1, VB_OP_SEND_ONLY, 0, &effect) && effect.drop);
    vb_wrap_fault_destroy(fault);
    fault = made("drop dir=both");
    CHECK(meets(fault, VB_WRAP_OUT, 1, VB_OP_SEND_ONLY, 0, &effect));
    CHECK(meets(fault, VB_WRAP_IN, 1, VB_OP_SEND_ONLY, 0, &effect));
    vb_wrap_fault_destroy(fault);
}

static void test_qp_and_opcode(void)
{
    struct vb_fault *fault = made("drop qp=18 opcode=ack");
    struct vb_fault_effect effect;

    CHECK(!meets(fault, VB_WRAP_OUT, 17, VB_OP_ACKNOWLEDGE, 0, &effect));
    CHECK(!meets(fault, VB_WRAP_OUT, 18, VB_OP_SEND_ONLY, 0, &effect));
    CHECK(meets(fault, VB_WRAP_OUT, 18, VB_OP_ACKNOWLEDGE, 0, &effect));
    vb_wrap_fault_destroy(fault);
}

static void test_psn_range_wraps(void)
{
    struct vb_fault *fault = made("drop psn=0xfffffe-1");

    CHECK(!drops(fault, 0xfffffd));
    CHECK(drops(fault, 0xfffffe) && drops(fault, 0xffffff) && drops(fault, 0) && drops(fault, 1));
    CHECK(!drops(fault, 2));
    vb_wrap_fault_destroy(fault);
}

static void test_nth_every_limit(void)
{
    struct vb_fault *nth = made("drop nth=3"), *every = made("drop every=4 limit=2");

    for (uint32_t i = 1; i <= 20; ++i) {
        CHECK_EQ(drops(nth, i), i == 3);
        CHECK_EQ(drops(every, i), i == 4 || i == 8);
    }
    CHECK_EQ(vb_wrap_fault_count(every, 0).matched, 20);
    CHECK_EQ(vb_wrap_fault_count(every, 0).acted, 2);
    vb_wrap_fault_destroy(nth);
    vb_wrap_fault_destroy(every);
}

static unsigned dropped_of(const char *text, unsigned packets)
{
    struct vb_fault *fault = made(text);
    unsigned count = 0;

    for (uint32_t i = 0; i < packets; ++i)
        count += drops(fault, i);
    vb_wrap_fault_destroy(fault);
    return count;
}

static void test_chances(void)
{
    const unsigned packets = 100000;
    unsigned tenth = dropped_of("drop 10%; seed 3", packets);

    CHECK_EQ(dropped_of("drop 0%", packets), 0);
    CHECK_EQ(dropped_of("drop 100%", packets), packets);
    CHECK(tenth > 9500 && tenth < 10500); /* more than five standard deviations */
}

/* Bit i: the i-th packet is dropped. */
static uint64_t choices(const char *text)
{
    struct vb_fault *fault = made(text);
    uint64_t bits = 0;

    for (uint32_t i = 0; i < 64; ++i)
        bits |= (uint64_t)drops(fault, i) << i;
    vb_wrap_fault_destroy(fault);
    return bits;
}

static void test_a_seed_decides(void)
{
    CHECK(choices("drop 50%; seed 7") == choices("seed 7; drop 50%"));
    CHECK(choices("drop 50%; seed 7") != choices("drop 50%; seed 8"));
    CHECK(choices("drop 50%") == choices("drop 50%"));
    /* written down: another version gives the same */
    CHECK(choices("drop 50%; seed 7") == UINT64_C(0xd8640ad3d19d7ad3));
}

static void test_each_rule_has_its_own_numbers(void)
{
    CHECK(choices("drop 50%; seed 7") == choices("drop 50%; delay 1ms 20%; seed 7"));
    CHECK(choices("drop 50%; seed 7") != choices("delay 1ms 20%; drop 50%; seed 7"));
}

static void test_other_packets_do_not_change_choices(void)
{
    struct vb_fault *fault = made("drop 50% opcode=send; seed 7");
    struct vb_fault_effect effect;
    uint64_t bits = 0;

    for (uint32_t i = 0; i < 64; ++i) {
        CHECK(!meets(fault, VB_WRAP_OUT, 1, VB_OP_ACKNOWLEDGE, i, &effect));
        bits |= (uint64_t)drops(fault, i) << i;
    }
    CHECK(bits == choices("drop 50%; seed 7"));
    vb_wrap_fault_destroy(fault);
}

static void test_rules_stand_in_a_row(void)
{
    struct vb_fault *fault = made("drop nth=1; delay 2ms; delay 3ms; duplicate; reorder by=4;"
                                  "corrupt; truncate to=20 icrc=good");
    struct vb_fault_effect effect;

    CHECK(drops(fault, 0));
    CHECK_EQ(vb_wrap_fault_count(fault, 1).matched, 0);
    CHECK(meets(fault, VB_WRAP_OUT, 1, VB_OP_SEND_ONLY, 1, &effect));
    CHECK(!effect.drop && effect.corrupt && !effect.corrupt_icrc_good);
    CHECK(effect.truncate && effect.truncate_icrc_good && effect.length == 20);
    CHECK_EQ(effect.delay, 5000000);
    CHECK_EQ(effect.copies, 1);
    CHECK_EQ(effect.by, 4);
    CHECK_EQ(effect.acted->action, VB_FAULT_TRUNCATE);
    vb_wrap_fault_destroy(fault);
}

static void test_a_delay_stays_in_its_range(void)
{
    struct vb_fault *fault = made("delay 1us-2us");
    uint64_t least = UINT64_MAX, most = 0;
    struct vb_fault_effect effect;

    for (uint32_t i = 0; i < 1000; ++i) {
        CHECK(meets(fault, VB_WRAP_OUT, 1, VB_OP_SEND_ONLY, i, &effect));
        least = effect.delay < least ? effect.delay : least;
        most = effect.delay > most ? effect.delay : most;
    }
    CHECK(least >= 1000 && least < 1100 && most <= 2000 && most > 1900);
    vb_wrap_fault_destroy(fault);
}

static void test_a_packet_shorter_than_a_bth(void)
{
    struct vb_fault *any = made("drop dir=in"), *some = made("drop dir=in opcode=send");
    uint8_t bytes[VB_BTH - 1] = {VB_OP_SEND_ONLY};
    struct vb_fault_view view = {VB_WRAP_IN, 0, bytes, sizeof(bytes)};
    struct vb_fault_effect effect;

    CHECK(vb_wrap_fault_apply(any, &view, &effect));
    CHECK(!vb_wrap_fault_apply(some, &view, &effect));
    vb_wrap_fault_destroy(any);
    vb_wrap_fault_destroy(some);
}

static void test_counters_as_text(void)
{
    static const char expected[] = "drop nth=2: matched 3, acted 1\n"
                                   "delay 1ms opcode=read: matched 0, acted 0\n"
                                   "no room to hold, passed unharmed: 1\n";
    struct vb_fault *fault = made("drop nth=2; delay 1ms opcode=read; seed 5");
    char text[256];

    for (uint32_t i = 0; i < 3; ++i)
        drops(fault, i);
    vb_wrap_fault_no_room(fault);
    CHECK_EQ(vb_wrap_rules_text(fault, text, sizeof(text)), strlen(expected));
    CHECK(strcmp(text, expected) == 0);
    CHECK_EQ(vb_wrap_rules_text(fault, text, 10), strlen(expected));
    CHECK(strcmp(text, "drop nth=") == 0);
    CHECK_EQ(vb_wrap_rules_text(fault, NULL, 0), strlen(expected));
    vb_wrap_fault_destroy(fault);
}

int main(void)
{
    RUN(test_direction);
    RUN(test_qp_and_opcode);
    RUN(test_psn_range_wraps);
    RUN(test_nth_every_limit);
    RUN(test_chances);
    RUN(test_a_seed_decides);
    RUN(test_each_rule_has_its_own_numbers);
    RUN(test_other_packets_do_not_change_choices);
    RUN(test_rules_stand_in_a_row);
    RUN(test_a_delay_stays_in_its_range);
    RUN(test_a_packet_shorter_than_a_bth);
    RUN(test_counters_as_text);
    return 0;
}
