// SPDX-License-Identifier: Apache-2.0
/*
 * Which identifications are believed of whom, counted out over all of them, and the algebra behind
 * the claim that one to three flipped bits never pass (roce/ids.h).
 */
#include <errno.h>
#include <stdlib.h>

#include "check.h"
#include "roce/icrc_start.h"
#include "roce/ids.h"
#include "wire/opcode.h"

static const struct vb_ids_pair pair = {1, 2};
static const uint64_t ms = 1000000;
static struct vb_ids ids;

static struct vb_ids_doubt numbered(uint16_t id, uint32_t content, uint64_t now)
{
    return (struct vb_ids_doubt){.pair = pair,
                                 .unseen = {id, true},
                                 .content = content,
                                 .length = 1036,
                                 .reliable = true,
                                 .now = now,
                                 .earliest = now};
}

static struct vb_ids_doubt datagram(uint16_t id, uint32_t content, uint64_t now)
{
    struct vb_ids_doubt doubt = numbered(id, content, now);

    doubt.reliable = false;
    return doubt;
}

/* What a doubt can change: its sender and its flow. */
static void restore(const struct vb_ids *kept, const struct vb_ids_doubt *doubt)
{
    struct vb_ids_flow *flow = vb_roce_ids_flow(&ids, doubt->pair, doubt->source_port);

    memcpy(ids.sender, kept->sender, sizeof(ids.sender));
    memcpy((char *)&ids + ((char *)flow - (char *)&ids),
           (const char *)kept + ((char *)flow - (char *)&ids), sizeof(*flow));
    memcpy(ids.remembered, kept->remembered, sizeof(ids.remembered));
    ids.placed = kept->placed;
}

/* A reader that keeps what is doubted for as long as it takes: how many packets it delivers now. */
static unsigned delivered(const struct vb_ids_doubt *doubt)
{
    struct vb_ids_flow *flow = vb_roce_ids_flow(&ids, doubt->pair, doubt->source_port);
    enum vb_ids_verdict verdict = vb_roce_ids_check(&ids, flow, doubt);

    if (verdict == VB_IDS_CONFIRMS) {
        flow->unconfirmed = 0;
        CHECK_EQ(vb_roce_ids_check(&ids, flow, doubt), VB_IDS_RIGHT);
        return 2;
    }
    flow->unconfirmed = verdict == VB_IDS_DOUBTED;
    return verdict == VB_IDS_RIGHT;
}

static unsigned delivered_of(uint16_t port, uint16_t id, uint64_t now)
{
    static uint32_t content;
    struct vb_ids_doubt doubt = numbered(id, ++content, now);

    doubt.source_port = port;
    return delivered(&doubt);
}

static bool believes(uint16_t id, uint64_t now)
{
    return delivered_of(0, id, now) > 0;
}

static void note_placed(uint16_t id, uint64_t now)
{
    vb_roce_ids_note_placed(&ids, pair, 0, id, now);
}

static void note_some_placed(uint64_t now)
{
    for (int i = 0; i < 4; ++i)
        note_placed(0, now);
}

enum { NONE_FOLLOWS = 1 << 16 };

/* Of all 2^17 values that a reader cannot see, those with which a packet of that flow would be
 * believed next: at once, or confirmed by one with the identification `next` behind it. */
static unsigned count_believed_before(uint16_t port, uint32_t next, uint64_t now)
{
    static struct vb_ids kept;
    unsigned count = 0;

    kept = ids;
    for (uint32_t value = 0; value < 1 << 17; ++value) {
        struct vb_ids_doubt doubt = numbered((uint16_t)value, ~value, now);
        bool passes;

        doubt.unseen.dont_fragment = value >> 16;
        doubt.source_port = port;
        passes = delivered(&doubt);
        if (!passes && next != NONE_FOLLOWS)
            passes = delivered_of(port, (uint16_t)next, now) == 2;
        count += passes;
        restore(&kept, &doubt);
    }
    ids = kept;
    return count;
}

static unsigned count_believed_of(uint16_t port, uint64_t now)
{
    return count_believed_before(port, NONE_FOLLOWS, now);
}

static unsigned count_believed(uint64_t now)
{
    return count_believed_of(0, now);
}

/* One of 2^32 random differences stands for each, and one for what the packet itself says. */
static void fewer_than_one_in_2_to_the_28_of(uint16_t port, uint64_t now)
{
    CHECK(count_believed_of(port, now) + 1 < 16);
}

static void fewer_than_one_in_2_to_the_28(uint64_t now)
{
    fewer_than_one_in_2_to_the_28_of(0, now);
}

static void test_one_of_which_nothing_is_known(void)
{
    ids = (struct vb_ids){0};
    CHECK_EQ(count_believed(5), 0);
}

static void test_one_that_says_its_places(void)
{
    ids = (struct vb_ids){0};
    note_placed(0, 5);
    CHECK(vb_roce_ids_is_noted(&ids, pair));
    CHECK_EQ(count_believed(5), 0);
    for (int i = 0; i < 3; ++i) { /* damaged ones, which a counter could explain */
        CHECK(!believes((uint16_t)(300 + i), 6));
        CHECK(!vb_roce_ids_is_noted(&ids, pair));
    }
    note_placed(17, 7);
    CHECK_EQ(count_believed(8), 0);
}

static void test_one_that_counts(void)
{
    ids = (struct vb_ids){0};
    CHECK(!believes(65534, 0));
    fewer_than_one_in_2_to_the_28(0);
    CHECK(believes(65535, 0));
    for (uint32_t id = 0; id < 70000; ++id) {
        CHECK(believes((uint16_t)id, 0));
        if (id % 4000 == 0)
            fewer_than_one_in_2_to_the_28(0);
    }
    CHECK(!believes(20000, 0)); /* far off */
    fewer_than_one_in_2_to_the_28(0);
    CHECK(believes((uint16_t)70001, 0)); /* what went before is not forgotten */
    CHECK(believes((uint16_t)70000, 0)); /* and came late */
}

/* ---- flows that overtake each other ---- */

enum { PACKETS_OF_RUN = 64, PORTS = 0xc000 };

static struct {
    unsigned sent, delivered, worst; /* worst: values that would have been believed, at most */
} flown;

/*
 * Linux gives each flow its turn (fq_codel) when the packets have their identifications: a run of
 * 64 for each of them, one packet of each in turn. At the beginning of runs it is counted what is
 * believed.
 */
static void fly(uint32_t flows, uint32_t runs, uint16_t *next, bool look)
{
    memset(&flown, 0, sizeof(flown));
    for (uint32_t n = 0; n < runs * PACKETS_OF_RUN * flows; ++n) {
        uint32_t flow = n % flows, i = n / flows % PACKETS_OF_RUN, run = n / flows / PACKETS_OF_RUN;
        uint16_t id = (uint16_t)(*next + (run * flows + flow) * PACKETS_OF_RUN + i);
        unsigned count = look && flow % (flows - 1) == 0 && i < 4
                             ? count_believed_before((uint16_t)(PORTS + flow), id, 0)
                             : 0;

        flown.worst = count > flown.worst ? count : flown.worst;
        ++flown.sent;
        flown.delivered += delivered_of((uint16_t)(PORTS + flow), id, 0);
    }
    *next = (uint16_t)(*next + runs * flows * PACKETS_OF_RUN);
}

/* None is dropped, whatever the distance, and at no time would 16 values of 2^32 be believed. */
static void test_flows_that_overtake_each_other(void)
{
    static const uint32_t flows[] = {2, 8, 64};

    for (int i = 0; i < 3; ++i) {
        uint16_t next = 60000;

        ids = (struct vb_ids){0};
        fly(flows[i], 8, &next, true);
        CHECK_EQ(flown.delivered, flown.sent);
        CHECK(flown.worst > 8);
        CHECK(flown.worst + 1 < 16);
        printf("%u flows: %u of 2^32\n", flows[i], flown.worst + 1);
    }
}

/* One flow again, whose packets follow the last of all. */
static void test_flows_in_order_again(void)
{
    uint16_t next = 0;

    ids = (struct vb_ids){0};
    fly(16, 4, &next, false);
    CHECK_EQ(delivered_of(PORTS + 3, next, 0), 1);
    CHECK_EQ(delivered_of(PORTS + 5, (uint16_t)(next + 1), 0), 1);
    fewer_than_one_in_2_to_the_28_of(PORTS + 3, 0);
    fewer_than_one_in_2_to_the_28_of(PORTS + 9, 0);
}

/* A packet that does not follow is unconfirmed in its place, and what was expected is still
 * believed. */
static void test_one_that_is_not_confirmed(void)
{
    ids = (struct vb_ids){0};
    CHECK_EQ(delivered_of(1, 10, 0), 0);
    CHECK_EQ(delivered_of(1, 11, 0), 2);
    CHECK_EQ(delivered_of(1, 30000, 0), 0);
    fewer_than_one_in_2_to_the_28_of(1, 0);
    CHECK_EQ(delivered_of(1, 40000, 0), 0);
    CHECK_EQ(delivered_of(2, 40001, 0), 0); /* of another flow */
    CHECK_EQ(delivered_of(1, 30001, 0), 0); /* of one that was thrown away */
    CHECK_EQ(delivered_of(1, 12, 0), 1);
    CHECK_EQ(delivered_of(2, 40003, 0), 2); /* one was lost between */
}

/* The counter passes 0 while flows overtake each other. */
static void test_a_run_that_begins_with_zero(void)
{
    ids = (struct vb_ids){0};
    for (uint16_t id = 65000; id < 65010; ++id)
        delivered_of(1, id, 0);
    vb_roce_ids_note_placed(&ids, pair, 2, 0, 0);
    CHECK(!vb_roce_ids_is_noted(&ids, pair));
    CHECK_EQ(delivered_of(1, 65010, 0), 1);
}

/*
 * Linux' counter moves by less than one for each tick of silence. A connection's packet is asked
 * for again where that leads too far, so no more are believed than without.
 */
static void test_silence(void)
{
    ids = (struct vb_ids){0};
    believes(10, 0);
    CHECK(believes(11, 0));
    CHECK(believes(11 + 7, 7 * ms));
    CHECK_EQ(count_believed(3600000 * ms), 8);
    fewer_than_one_in_2_to_the_28_of(0, 3600000 * ms);
    CHECK(!believes(18 + 100, 100 * ms));
    CHECK(believes(18 + 101, 100 * ms)); /* which comes instead */
}

/* ---- datagrams, which nobody sends again ---- */

enum { UNSPENT = 1024, MOST = 4096 };

static unsigned datagram_arrives(uint16_t id, uint64_t now, uint64_t earliest)
{
    static uint32_t content;
    struct vb_ids_doubt doubt = datagram(id, ++content, now);

    doubt.earliest = earliest;
    return delivered(&doubt);
}

/* A sender whose counter is at 11 and has moved by all that its clock allowed: it has jumped from
 * far away. */
static void spend_all(void)
{
    ids = (struct vb_ids){0};
    CHECK_EQ(datagram_arrives(11 - UNSPENT - 2, 0, 0), 1);
    CHECK_EQ(datagram_arrives(10, 0, 0), 1);
    CHECK_EQ(datagram_arrives(11, 0, 0), 1);
}

/* With the next one that follows, and the one that was lost. */
static void test_silence_before_a_datagram(void)
{
    spend_all();
    CHECK_EQ(datagram_arrives(11 + 8, 0, 0), 0);
    spend_all();
    CHECK_EQ(datagram_arrives(11 + 2 + 100, 100 * ms, 100 * ms), 1);
    CHECK_EQ(datagram_arrives(113 + 2 + 200 + 1, 300 * ms, 300 * ms), 0);
    spend_all();
    CHECK_EQ(datagram_arrives(11 + 2 + 4095, 4095 * ms, 4095 * ms), 1);
}

/* The first datagram may have been delayed by any time. */
static void test_a_jump_behind_the_first_datagram(void)
{
    ids = (struct vb_ids){0};
    CHECK_EQ(datagram_arrives(10, 0, 0), 1);
    CHECK_EQ(datagram_arrives(10 + 2 + UNSPENT, 0, 0), 1);
    ids = (struct vb_ids){0};
    CHECK_EQ(datagram_arrives(10, 0, 0), 1);
    CHECK_EQ(datagram_arrives(10 + 2 + UNSPENT + 1, 0, 0), 0);
}

/*
 * As a Linux guest on a busy machine sent them: an emulator delayed the second by 223 ms. The
 * counter's clock ran meanwhile, which the third shows at once.
 */
static void test_a_jump_behind_a_delayed_datagram(void)
{
    spend_all();
    CHECK_EQ(datagram_arrives(12, 223 * ms, 223 * ms), 1);
    CHECK_EQ(datagram_arrives(13 + 58, 224 * ms, 224 * ms), 1);
    CHECK_EQ(datagram_arrives(72 + 164, 225 * ms, 225 * ms), 1);
    CHECK_EQ(datagram_arrives(237 + 10, 225 * ms, 225 * ms), 0);
}

/* What is not used up counts for a second; a packet that comes late takes nothing. */
static void test_ticks_that_are_left(void)
{
    spend_all();
    for (uint16_t i = 1; i <= 4; ++i)
        CHECK_EQ(datagram_arrives(11 + i, i * 900 * ms, i * 900 * ms), 1);
    CHECK_EQ(datagram_arrives(14, 3600 * ms, 3600 * ms), 1);
    CHECK_EQ(datagram_arrives(15 + 2 + UNSPENT + 1, 3600 * ms, 3600 * ms), 0);
    CHECK_EQ(datagram_arrives(15 + 2 + UNSPENT, 3600 * ms, 3600 * ms), 1);
}

static unsigned count_datagrams_believed(uint64_t now)
{
    static struct vb_ids kept;
    unsigned count = 0;

    kept = ids;
    for (uint32_t id = 0; id < 1 << 16; ++id) {
        struct vb_ids_doubt doubt = datagram((uint16_t)id, ~id, now);

        count += delivered(&doubt);
        restore(&kept, &doubt);
    }
    return count;
}

/* So many of 2^16 as docs/roce.md says; behind the last one there may be one more, of its flow. */
static void test_how_many_datagrams_are_believed(void)
{
    spend_all();
    CHECK(count_datagrams_believed(0) < 16);
    CHECK_EQ(datagram_arrives(12, 1500 * ms, 1500 * ms), 1);
    CHECK_EQ(count_datagrams_believed(1500 * ms), UNSPENT + 2 + 1);
    CHECK_EQ(count_datagrams_believed(5500 * ms), MOST + 2 + 1);
    CHECK_EQ(count_datagrams_believed(5596 * ms), 1 << 16);
}

/* Other processes get what moves the counter: an answer of a connection manager comes once. */
static void test_datagrams_between_other_processes_packets(void)
{
    spend_all();
    ids.shared = true;
    for (uint32_t i = 1; i < 100; ++i)
        CHECK_EQ(datagram_arrives((uint16_t)(11 + 5000 * i), i * ms, i * ms), 1);
}

/* Two datagrams, 40 ms apart: the first was read that late, and so its sender was not silent for
 * what the reader takes for no time at all. */
static unsigned behind_one_read_late(uint64_t earliest)
{
    spend_all();
    CHECK_EQ(datagram_arrives(12, 40 * ms, earliest), 1);
    CHECK_EQ(datagram_arrives(13, 40 * ms, earliest), 1);
    return datagram_arrives(13 + 40, 40 * ms + ms / 10, 40 * ms);
}

static void test_a_datagram_behind_one_that_was_read_late(void)
{
    CHECK_EQ(behind_one_read_late(0), 1);
    CHECK_EQ(behind_one_read_late(40 * ms), 1);
    spend_all();
    CHECK_EQ(datagram_arrives(11 + 2 + 40, 40 * ms + ms / 10, ms), 1);
}

static void test_the_same_again(void)
{
    struct vb_ids_doubt doubt = numbered(100, 77, 0);

    ids = (struct vb_ids){0};
    CHECK_EQ(delivered(&doubt), 0);
    doubt.unseen.id = 9000;
    doubt.content = 78;
    CHECK_EQ(delivered(&doubt), 0);
    doubt.unseen.id = 20000;
    doubt.length = 1040;
    CHECK_EQ(delivered(&doubt), 0);
    doubt.length = 1036;
    CHECK_EQ(delivered(&doubt), 1);
    doubt.unseen.id = 30000;
    doubt.source_port = 1;
    CHECK_EQ(delivered(&doubt), 0);
}

/* A network that doubles packets doubles damaged ones. */
static void test_a_doubled_one(void)
{
    struct vb_ids_doubt doubt = numbered(100, 77, 0);

    ids = (struct vb_ids){0};
    note_placed(0, 0);
    for (int i = 0; i < 3; ++i)
        CHECK(!delivered(&doubt));
}

/* An address that another host has now. */
static void test_a_change_of_habit(void)
{
    int dropped = 0;

    ids = (struct vb_ids){0};
    note_placed(0, 0);
    for (uint16_t id = 500; !believes(id, 0); ++id)
        ++dropped;
    CHECK_EQ(dropped, 3);
    note_some_placed(0);
    CHECK(vb_roce_ids_is_noted(&ids, pair));
    CHECK_EQ(count_believed(0), 0);
}

static void test_a_counter_passes_zero(void)
{
    ids = (struct vb_ids){0};
    believes(65534, 0);
    CHECK(believes(65535, 0));
    note_placed(0, 0);
    CHECK(!vb_roce_ids_is_noted(&ids, pair));
    CHECK(believes(1, 0));
}

/* An engine in hardware that has 1 in all packets, and fragments. */
static void test_one_number_for_all(void)
{
    struct vb_ids_doubt doubt = numbered(1, 5, 0);

    ids = (struct vb_ids){0};
    doubt.unseen.dont_fragment = false;
    CHECK(!delivered(&doubt));
    for (int i = 0; i < 5; ++i)
        CHECK(delivered(&doubt));
    fewer_than_one_in_2_to_the_28(0);
}

/* ---- flipped bits ---- */

enum { MTU = 4096, LONGEST = VB_HEADERS_MAX + MTU, BITS = (LONGEST + VB_ICRC + 24) * 8 };

static uint8_t packet[LONGEST + VB_ICRC];
/* x^n modulo the CRC's polynomial, x^0 in bit 31, for each bit from the last on; and sorted. */
static uint32_t powers[BITS], sorted[BITS];

static int compare(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return (left > right) - (left < right);
}

static void make_powers(void)
{
    uint32_t power = 0x80000000u;

    for (int n = 0; n < BITS; ++n) {
        powers[n] = sorted[n] = power;
        power = power & 1 ? power >> 1 ^ VB_CRC32_POLYNOMIAL : power >> 1;
    }
    qsort(sorted, BITS, sizeof(*sorted), compare);
}

static bool is_power(uint32_t value)
{
    return bsearch(&value, sorted, BITS, sizeof(value), compare) != NULL;
}

/*
 * Three bits, x^a + x^b + x^c = x^c (x^i + x^j + 1), look undamaged if 1 + x^i is a power, too; two
 * do if a power comes twice. Neither happens within the longest packet with its headers.
 */
static void test_no_sum_of_three_powers_is_zero(void)
{
    for (int n = 1; n < BITS; ++n) {
        CHECK(sorted[n] != sorted[n - 1]);
        CHECK(!is_power(powers[n] ^ powers[0]));
    }
}

/* What the receiver compares: the register less what the ICRC says. */
static uint32_t difference(const struct vb_icrc_flow *flow, uint32_t length)
{
    struct vb_icrc_starts starts = {0};
    uint16_t id = vb_wire_icrc_is_ipv4(flow) ? vb_roce_ids_segment(packet) : 0;

    return vb_wire_icrc_transport(vb_roce_icrc_start(&starts, flow, id, length), packet, length) ^
           vb_wire_icrc_read(packet + length);
}

/* The power of a bit of the packet: of the stream's last bit it is x^0, and of a place's bit that
 * of the same bit of the identification's low byte, which is 23 bytes before the BTH. */
static uint32_t power_of(uint32_t length, uint32_t byte, uint32_t bit, bool ipv4)
{
    uint32_t last = (length + VB_ICRC) * 8 - 1;

    if (byte != VB_BTH_SEGMENT_AT)
        return powers[last - byte * 8 - bit];
    if (!ipv4 || !(VB_BTH_SEGMENT & 1 << bit))
        return 0;
    return powers[last + 23 * 8 - bit];
}

static void each_bit_is_a_power(const struct vb_icrc_flow *flow, uint8_t opcode, uint32_t length)
{
    bool ipv4 = vb_wire_icrc_is_ipv4(flow);
    uint32_t before;

    packet[0] = opcode;
    before = difference(flow, length);
    for (uint32_t bit = 0; bit < (length + VB_ICRC) * 8; ++bit) {
        packet[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK_EQ(difference(flow, length) ^ before, power_of(length, bit / 8, bit % 8, ipv4));
        packet[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

/*
 * So of every packet of every opcode up to the largest path MTU, whatever the identification, one
 * to three flipped bits make a difference: they add up to powers of different bits, none of which
 * is 0 but that of FECN and BECN, and over IPv6 of all of byte 4.
 */
static void test_each_bit_of_a_packet(void)
{
    static const uint32_t payloads[] = {0, 4, 256, 1024, MTU};
    struct vb_icrc_flow flow = {.source_port = 0xc123, .target_port = VB_ROCE_PORT};

    for (uint32_t i = 0; i < LONGEST; ++i)
        packet[i] = (uint8_t)(i * 2654435761u >> 13);
    for (int ipv4 = 0; ipv4 < 2; ++ipv4) {
        memset(flow.target + 10, ipv4 ? 0xff : 0x20, 2);
        for (unsigned opcode = 0; opcode < 256; ++opcode) {
            const struct vb_opcode *known = &vb_opcodes[opcode];

            if (known->name)
                each_bit_is_a_power(&flow, (uint8_t)opcode, known->header_length);
        }
        for (size_t i = 0; i < sizeof(payloads) / sizeof(*payloads); ++i)
            each_bit_is_a_power(&flow, VB_OP_WRITE_FIRST, VB_BTH + VB_RETH + payloads[i]);
    }
}

/* With DF set no identification explains a flipped bit, wherever it is; without, two of them do. */
static void test_no_identification_explains_a_flipped_bit(void)
{
    enum { AT_MOST = 4500 };
    unsigned without = 0;

    for (uint32_t byte = 0; byte < AT_MOST; ++byte)
        for (int bit = 0; bit < 8; ++bit) {
            struct vb_icrc_unseen unseen = {0, true};
            static uint8_t flipped[AT_MOST];

            flipped[byte] = (uint8_t)(1 << bit);
            if (vb_wire_icrc_explain(0, vb_wire_crc32(0, flipped, AT_MOST), AT_MOST, &unseen) ==
                0) {
                CHECK(!unseen.dont_fragment);
                CHECK(unseen.id > 1);
                ++without;
            }
            flipped[byte] = 0;
        }
    CHECK_EQ(without, 2);
}

int main(void)
{
    RUN(test_one_of_which_nothing_is_known);
    RUN(test_one_that_says_its_places);
    RUN(test_one_that_counts);
    RUN(test_flows_that_overtake_each_other);
    RUN(test_flows_in_order_again);
    RUN(test_one_that_is_not_confirmed);
    RUN(test_a_run_that_begins_with_zero);
    RUN(test_silence);
    RUN(test_silence_before_a_datagram);
    RUN(test_a_jump_behind_the_first_datagram);
    RUN(test_a_jump_behind_a_delayed_datagram);
    RUN(test_ticks_that_are_left);
    RUN(test_how_many_datagrams_are_believed);
    RUN(test_datagrams_between_other_processes_packets);
    RUN(test_a_datagram_behind_one_that_was_read_late);
    RUN(test_the_same_again);
    RUN(test_a_doubled_one);
    RUN(test_a_change_of_habit);
    RUN(test_a_counter_passes_zero);
    RUN(test_one_number_for_all);
    make_powers();
    RUN(test_no_sum_of_three_powers_is_zero);
    RUN(test_each_bit_of_a_packet);
    RUN(test_no_identification_explains_a_flipped_bit);
    return 0;
}
