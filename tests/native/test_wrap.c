// SPDX-License-Identifier: Apache-2.0
/* What each fault does to the packets that pass, both ways, as a port sees it. */
#include "check.h"
#include "rules.h"
#include "wire/opcode.h"
#include "wrap/frame.h"
#include "wrap/wrap.h"

enum { PAYLOAD = 100, MS = 1000000 };

static const struct vb_wrap_frame facts = {.source_port = 0xc123, .ip_id = 9};
static const struct vb_path path = {.sgid = {[10] = 0xff, 0xff, 10, 0, 0, 1},
                                    .dgid = {[10] = 0xff, 0xff, 10, 0, 0, 2},
                                    .source_port = 0xc001,
                                    .mtu = 1024,
                                    .hop_limit = 64};
static uint8_t payload[PAYLOAD];

static void setup(struct vb_wrap *wrap, const char *rules)
{
    char error[256] = "";

    for (int i = 0; i < PAYLOAD; ++i)
        payload[i] = (uint8_t)i;
    vb_wrap_init(wrap);
    if (vb_wrap_set_fault(wrap, rules_records(rules), error, sizeof(error))) {
        fprintf(stderr, "%s: %s\n", rules, error);
        exit(1);
    }
}

static struct vb_packet packet_of(uint32_t qp_num, uint32_t psn)
{
    struct vb_packet packet = {.path = &path,
                               .qp_num = qp_num,
                               .header_length = VB_BTH,
                               .payload_length = PAYLOAD,
                               .piece_count = 2,
                               .piece = {{payload, 60}, {payload + 60, PAYLOAD - 60}}};

    vb_wire_bth_write(packet.header, &(struct vb_bth){.opcode = VB_OP_SEND_ONLY, .psn = psn});
    return packet;
}

static uint32_t psn_of(const struct vb_wrap_out *out)
{
    return vb_wire_bth_read(out->packet->header).psn;
}

/* The packets that leave, as a port would send them: those that are due first. */
static unsigned drain(struct vb_wrap *wrap, uint64_t now, uint32_t *psns)
{
    struct vb_wrap_out out;
    unsigned count = 0;

    while (vb_wrap_due_out(wrap, now, &out)) {
        psns[count++] = psn_of(&out);
        vb_wrap_sent(wrap, &out, 0, 0, now);
    }
    return count;
}

static unsigned offer(struct vb_wrap *wrap, uint32_t qp_num, uint32_t psn, uint64_t now,
                      uint32_t *psns)
{
    struct vb_packet packet = packet_of(qp_num, psn);
    unsigned count = drain(wrap, now, psns);
    struct vb_wrap_out out;

    if (vb_wrap_outgoing(wrap, &packet, now, &out)) {
        psns[count++] = psn_of(&out);
        vb_wrap_sent(wrap, &out, 0, 0, now);
    }
    return count + drain(wrap, now, psns + count);
}

/* The PSNs that leave when 0 … count - 1 are offered in one instant, as text. */
static const char *order_of(struct vb_wrap *wrap, uint32_t count)
{
    static char text[512];
    uint32_t psns[64];
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t psn = 0; psn < count; ++psn) {
        unsigned left = offer(wrap, 1, psn, 0, psns);

        for (unsigned i = 0; i < left; ++i)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%u ", psns[i]);
    }
    return text;
}

static void expect_order(const char *rules, uint32_t count, const char *expected)
{
    struct vb_wrap wrap;
    const char *order;

    setup(&wrap, rules);
    order = order_of(&wrap, count);
    if (strcmp(order, expected) != 0) {
        fprintf(stderr, "%s: %s, not %s\n", rules, order, expected);
        exit(1);
    }
    vb_wrap_fini(&wrap);
}

static struct vb_arrival arrival_of(uint8_t *bytes, uint32_t psn, const uint8_t *grh)
{
    struct vb_arrival arrival = {.bytes = bytes, .length = VB_BTH + PAYLOAD, .grh = grh};

    vb_wire_bth_write(bytes,
                      &(struct vb_bth){.opcode = VB_OP_SEND_ONLY, .psn = psn, .dest_qp = 18});
    memcpy(bytes + VB_BTH, payload, PAYLOAD);
    memcpy(arrival.sgid, path.dgid, 16);
    memcpy(arrival.dgid, path.sgid, 16);
    return arrival;
}

/* ---- out ---- */

static void test_nothing_configured_is_the_same_packet(void)
{
    struct vb_packet packet = packet_of(1, 5);
    struct vb_wrap_out out;
    struct vb_wrap wrap;

    setup(&wrap, "");
    CHECK(!vb_wrap_is_active(&wrap));
    CHECK(vb_wrap_outgoing(&wrap, &packet, 0, &out));
    CHECK(out.packet == &packet && out.icrc_flip == 0 && !out.held);
    CHECK(vb_wrap_deadline(&wrap) == UINT64_MAX);
    vb_wrap_fini(&wrap);
}

static void test_drop(void)
{
    expect_order("drop every=3", 7, "0 1 3 4 6 ");
}

static void test_duplicate(void)
{
    expect_order("duplicate nth=2", 3, "0 1 1 2 ");
    expect_order("duplicate nth=2 copies=3", 3, "0 1 1 1 1 2 ");
}

static void test_reorder(void)
{
    expect_order("reorder nth=2", 4, "0 2 1 3 ");
    expect_order("reorder nth=2 by=3", 6, "0 2 3 4 1 5 ");
    expect_order("reorder nth=2 by=2; reorder nth=3 by=2", 6, "0 3 1 4 2 5 ");
}

static void test_reorder_counts_packets_of_its_qp(void)
{
    struct vb_wrap wrap;
    uint32_t psns[8];

    setup(&wrap, "reorder nth=1 by=2");
    CHECK_EQ(offer(&wrap, 1, 10, 0, psns), 0);
    CHECK_EQ(offer(&wrap, 2, 20, 0, psns), 1);
    CHECK_EQ(offer(&wrap, 2, 21, 0, psns), 1);
    CHECK_EQ(offer(&wrap, 1, 11, 0, psns), 1);
    CHECK_EQ(offer(&wrap, 1, 12, 0, psns), 2);
    CHECK(psns[0] == 12 && psns[1] == 10);
    vb_wrap_fini(&wrap);
}

static void test_reorder_does_not_wait_for_ever(void)
{
    struct vb_wrap wrap;
    uint32_t psns[8];

    setup(&wrap, "reorder nth=1 within=5ms");
    CHECK_EQ(offer(&wrap, 1, 1, 7, psns), 0);
    CHECK_EQ(vb_wrap_deadline(&wrap), 5 * MS + 7);
    CHECK_EQ(drain(&wrap, 5 * MS + 6, psns), 0);
    CHECK_EQ(drain(&wrap, 5 * MS + 7, psns), 1);
    CHECK(vb_wrap_deadline(&wrap) == UINT64_MAX);
    vb_wrap_fini(&wrap);
}

static void test_delay_keeps_the_order(void)
{
    struct vb_wrap wrap;
    uint32_t psns[8];

    setup(&wrap, "delay 2ms");
    for (uint32_t psn = 0; psn < 5; ++psn)
        CHECK_EQ(offer(&wrap, 1, psn, psn < 3 ? 0 : MS, psns), 0);
    CHECK_EQ(vb_wrap_deadline(&wrap), 2 * MS);
    CHECK_EQ(drain(&wrap, 2 * MS - 1, psns), 0);
    CHECK_EQ(drain(&wrap, 2 * MS, psns), 3);
    CHECK(psns[0] == 0 && psns[1] == 1 && psns[2] == 2);
    CHECK_EQ(vb_wrap_deadline(&wrap), 3 * MS);
    CHECK_EQ(drain(&wrap, 10 * MS, psns), 2);
    CHECK(psns[0] == 3 && psns[1] == 4);
    vb_wrap_fini(&wrap);
}

static void test_a_delayed_packet_is_a_copy(void)
{
    struct vb_packet packet = packet_of(1, 3);
    struct vb_wrap_out out;
    struct vb_wrap wrap;
    uint8_t before[PAYLOAD];

    setup(&wrap, "delay 2ms");
    memcpy(before, payload, PAYLOAD);
    packet.reason = VB_PACKET_AFTER_RNR;
    packet.missing_psn = 2;
    packet.unanswered_us = 70;
    CHECK(!vb_wrap_outgoing(&wrap, &packet, 0, &out));
    memset(payload, 0, PAYLOAD);
    memset(&packet, 0, sizeof(packet));
    CHECK(vb_wrap_due_out(&wrap, 2 * MS, &out));
    CHECK_EQ(psn_of(&out), 3);
    CHECK_EQ(out.packet->payload_length, PAYLOAD);
    CHECK_EQ(out.packet->reason, VB_PACKET_AFTER_RNR);
    CHECK_EQ(out.packet->missing_psn, 2);
    CHECK_EQ(out.packet->unanswered_us, 70);
    CHECK_EQ(out.packet->qp_num, 1);
    CHECK(memcmp(out.packet->piece[0].bytes, before, PAYLOAD) == 0);
    CHECK(memcmp(out.packet->path, &path, sizeof(path)) == 0);
    vb_wrap_sent(&wrap, &out, 0, 0, 0);
    vb_wrap_fini(&wrap);
}

/* A copy that leaves later tells a capture what the first one does. */
static void test_a_duplicate_keeps_its_reason(void)
{
    struct vb_packet packet = packet_of(1, 3);
    struct vb_wrap_out out;
    struct vb_wrap wrap;

    setup(&wrap, "duplicate; delay 2ms");
    packet.reason = VB_PACKET_PROBE;
    packet.missing_psn = 2;
    packet.unanswered_us = 70;
    CHECK(!vb_wrap_outgoing(&wrap, &packet, 0, &out));
    for (int i = 0; i < 2; ++i) {
        CHECK(vb_wrap_due_out(&wrap, 2 * MS, &out));
        CHECK_EQ(out.packet->reason, VB_PACKET_PROBE);
        CHECK_EQ(out.packet->missing_psn, 2);
        CHECK_EQ(out.packet->unanswered_us, 70);
        vb_wrap_sent(&wrap, &out, 0, 0, 0);
    }
    vb_wrap_fini(&wrap);
}

/* A full room: packets pass at once, unharmed and counted. */
static void test_no_room(void)
{
    struct vb_wrap wrap;
    uint32_t psns[8];
    char text[256];

    setup(&wrap, "delay 2ms; hold 2");
    CHECK_EQ(offer(&wrap, 1, 0, 0, psns), 0);
    CHECK_EQ(offer(&wrap, 1, 1, 0, psns), 0);
    CHECK_EQ(offer(&wrap, 1, 2, 0, psns), 1);
    CHECK_EQ(psns[0], 2);
    vb_wrap_fault_text(&wrap, text, sizeof(text));
    CHECK(strstr(text, "acted 3\n") && strstr(text, "passed unharmed: 1\n"));
    CHECK_EQ(drain(&wrap, 2 * MS, psns), 2);
    CHECK_EQ(offer(&wrap, 1, 3, 2 * MS, psns), 0);
    vb_wrap_fini(&wrap);
}

/* ---- changed bytes ---- */

static void bytes_of(const struct vb_packet *packet, uint8_t *to, uint32_t *length)
{
    memcpy(to, packet->header, packet->header_length);
    *length = packet->header_length;
    for (uint32_t i = 0; i < packet->piece_count; ++i) {
        memcpy(to + *length, packet->piece[i].bytes, packet->piece[i].length);
        *length += packet->piece[i].length;
    }
    memset(to + *length, 0, packet->pad);
    *length += packet->pad;
}

/* The ICRC as the frame's writer has it, without and with the mistake. */
static void icrc_of(const struct vb_packet *packet, uint32_t flip, uint8_t icrc[4])
{
    uint8_t bytes[512];
    struct vb_frame frame = {.icrc_flip = flip, .source_port = 1};
    uint32_t length, whole;
    uint8_t buffer[1024];
    size_t size;

    memcpy(frame.sgid, path.sgid, 16);
    memcpy(frame.dgid, path.dgid, 16);
    bytes_of(packet, bytes, &length);
    vb_wrap_frame_add(&frame, bytes, length);
    size = vb_wrap_frame_write(&frame, buffer, sizeof(buffer), &whole);
    CHECK_EQ(size, whole);
    memcpy(icrc, buffer + size - 4, 4);
}

static unsigned bits_that_differ(const struct vb_packet *a, const struct vb_packet *b)
{
    uint8_t left[512], right[512];
    uint32_t left_length, right_length;
    unsigned bits = 0;

    bytes_of(a, left, &left_length);
    bytes_of(b, right, &right_length);
    CHECK_EQ(left_length, right_length);
    for (uint32_t i = 0; i < left_length; ++i)
        bits += (unsigned)__builtin_popcount(left[i] ^ right[i]);
    return bits;
}

/* As on a line: one bit is another, and the ICRC is that of what was sent. */
static void test_corrupt_flips_a_bit_and_leaves_the_icrc(void)
{
    struct vb_wrap wrap;

    setup(&wrap, "corrupt");
    for (uint32_t psn = 0; psn < 500; ++psn) {
        struct vb_packet packet = packet_of(1, psn);
        uint8_t before[4], after[4], computed[4];
        struct vb_wrap_out out;

        CHECK(vb_wrap_outgoing(&wrap, &packet, 0, &out));
        CHECK_EQ(bits_that_differ(&packet, out.packet), 1);
        icrc_of(&packet, 0, before);
        icrc_of(out.packet, out.icrc_flip, after);
        icrc_of(out.packet, 0, computed);
        CHECK(memcmp(before, after, 4) == 0);
        CHECK(memcmp(computed, after, 4) != 0);
        vb_wrap_sent(&wrap, &out, 0, 0, 0);
    }
    CHECK_EQ(payload[7], 7);
    vb_wrap_fini(&wrap);
}

/* Each byte may be the one, but for byte 4 of the BTH, which the ICRC does not cover. */
static void test_corrupt_reaches_each_byte(void)
{
    for (uint32_t length = 0; length < 9; ++length) {
        bool reached[9] = {false};
        struct vb_wrap wrap;

        setup(&wrap, "corrupt dir=in icrc=good");
        for (int round = 0; round < 500; ++round) {
            const uint8_t bytes[9] = {0};
            struct vb_arrival arrival = {.bytes = bytes, .length = length};
            struct vb_wrap_in in;
            int bits = 0;

            CHECK(vb_wrap_incoming(&wrap, &arrival, &facts, 0, &in));
            CHECK_EQ(in.arrival->length, length);
            for (uint32_t i = 0; i < length; ++i) {
                bits += __builtin_popcount(in.arrival->bytes[i]);
                reached[i] |= in.arrival->bytes[i];
            }
            CHECK_EQ(bits, length > 0);
            vb_wrap_received(&wrap, &in, NULL, 0);
        }
        for (uint32_t i = 0; i < length; ++i)
            CHECK_EQ(reached[i], i != 4);
        vb_wrap_fini(&wrap);
    }
}

/* What is left is anything from the BTH to one byte less than there was. */
static void test_truncate_leaves_each_length(void)
{
    bool left[VB_BTH + 9] = {false};
    struct vb_wrap wrap;

    setup(&wrap, "truncate dir=in icrc=good");
    for (uint32_t length = 0; length < VB_BTH + 9; ++length)
        for (int round = 0; round < 300; ++round) {
            const uint8_t bytes[VB_BTH + 9] = {0};
            struct vb_arrival arrival = {.bytes = bytes, .length = length};
            struct vb_wrap_in in;

            CHECK(vb_wrap_incoming(&wrap, &arrival, &facts, 0, &in));
            if (length <= VB_BTH)
                CHECK_EQ(in.arrival->length, length);
            else
                CHECK(in.arrival->length >= VB_BTH && in.arrival->length < length);
            if (length == VB_BTH + 8)
                left[in.arrival->length] = true;
            vb_wrap_received(&wrap, &in, NULL, 0);
        }
    for (uint32_t i = VB_BTH; i < VB_BTH + 8; ++i)
        CHECK(left[i]);
    vb_wrap_fini(&wrap);
}

/* A packet that no copy has room for passes unharmed, is counted, and takes no room. */
static void test_a_packet_that_is_too_long(void)
{
    static const uint8_t bytes[VB_HEADERS_MAX + 4096 + 9];
    struct vb_arrival arrival = {.bytes = bytes, .length = sizeof(bytes)};
    struct vb_packet packet = packet_of(1, 0);
    struct vb_wrap_out out;
    struct vb_wrap_in in;
    struct vb_wrap wrap;
    char text[256];

    setup(&wrap, "hold 1; corrupt dir=both");
    for (int i = 0; i < 3; ++i) {
        CHECK(vb_wrap_incoming(&wrap, &arrival, &facts, 0, &in));
        CHECK(in.arrival == &arrival && !in.held);
        vb_wrap_received(&wrap, &in, NULL, 0);
    }
    packet.payload_length = VB_HEADERS_MAX + 4096 + 9;
    packet.piece[1] = (struct vb_piece){bytes, packet.payload_length - 60};
    CHECK(vb_wrap_outgoing(&wrap, &packet, 0, &out));
    CHECK(out.packet == &packet && !out.held);
    vb_wrap_sent(&wrap, &out, 0, 0, 0);
    CHECK(vb_wrap_fault_text(&wrap, text, sizeof(text)) > 0);
    CHECK(strstr(text, "acted 4\n") && strstr(text, "passed unharmed: 4\n"));
    packet = packet_of(1, 0);
    CHECK(vb_wrap_outgoing(&wrap, &packet, 0, &out)); /* there is room */
    CHECK(out.held);
    vb_wrap_sent(&wrap, &out, 0, 0, 0);
    vb_wrap_fini(&wrap);
}

/* The longest that a copy has room for. */
static void test_a_packet_that_just_fits(void)
{
    static const uint8_t bytes[VB_HEADERS_MAX + 4096 + 8];
    struct vb_arrival arrival = {.bytes = bytes, .length = sizeof(bytes)};
    struct vb_packet packet = packet_of(1, 0);
    struct vb_wrap_out out;
    struct vb_wrap_in in;
    struct vb_wrap wrap;

    setup(&wrap, "corrupt dir=both icrc=good");
    CHECK(vb_wrap_incoming(&wrap, &arrival, &facts, 0, &in));
    CHECK(in.held && in.arrival->length == sizeof(bytes));
    vb_wrap_received(&wrap, &in, NULL, 0);
    packet.pad = 2;
    packet.payload_length = (uint32_t)sizeof(bytes) - VB_BTH - packet.pad;
    packet.piece_count = 1;
    packet.piece[0] = (struct vb_piece){bytes, packet.payload_length};
    CHECK(vb_wrap_outgoing(&wrap, &packet, 0, &out));
    CHECK(out.held && out.packet->payload_length == packet.payload_length);
    CHECK(out.packet->pad == 2);
    vb_wrap_sent(&wrap, &out, 0, 0, 0);
    vb_wrap_fini(&wrap);
}

/* When the last of what is held on its way out leaves, whatever waits on its way in. */
static void test_when_the_last_leaves(void)
{
    uint8_t bytes[VB_BTH + PAYLOAD];
    struct vb_arrival arrival;
    struct vb_wrap_in in;
    struct vb_wrap wrap;
    uint32_t psns[8];

    setup(&wrap, "delay 2ms nth=1; delay 6ms nth=2; delay 4ms nth=3; delay 9ms dir=in");
    CHECK_EQ(vb_wrap_last_out(&wrap), 0);
    arrival = arrival_of(bytes, 1, NULL);
    CHECK(!vb_wrap_incoming(&wrap, &arrival, &facts, 0, &in));
    CHECK_EQ(vb_wrap_last_out(&wrap), 0);
    CHECK_EQ(vb_wrap_deadline(&wrap), 9 * MS);
    for (uint32_t psn = 0; psn < 3; ++psn)
        CHECK_EQ(offer(&wrap, 1, psn, 0, psns), 0);
    CHECK_EQ(vb_wrap_last_out(&wrap) | 1, 6 * MS | 1);
    CHECK_EQ(vb_wrap_deadline(&wrap), 2 * MS);
    vb_wrap_release(&wrap);
    CHECK_EQ(vb_wrap_last_out(&wrap), 1);
    CHECK_EQ(vb_wrap_deadline(&wrap), 0);
    CHECK_EQ(drain(&wrap, 0, psns), 3);
    CHECK(psns[0] == 0 && psns[1] == 1 && psns[2] == 2); /* as they came */
    CHECK_EQ(vb_wrap_last_out(&wrap), 0);
    CHECK(vb_wrap_due_in(&wrap, 0, &in));
    vb_wrap_received(&wrap, &in, NULL, 0);
    CHECK_EQ(vb_wrap_deadline(&wrap), UINT64_MAX);
    vb_wrap_fini(&wrap);
}

static void test_text_without_room(void)
{
    static const char whole[] = "drop every=3: matched 0, acted 0\n";
    struct vb_wrap wrap;
    char text[8] = "before";

    setup(&wrap, "");
    CHECK_EQ(vb_wrap_fault_text(&wrap, text, sizeof(text)), 0);
    CHECK(strcmp(text, "") == 0);
    vb_wrap_fini(&wrap);
    setup(&wrap, "drop every=3");
    CHECK_EQ(vb_wrap_fault_text(&wrap, NULL, 0), strlen(whole));
    CHECK_EQ(vb_wrap_fault_text(&wrap, text, sizeof(text)), strlen(whole));
    CHECK(strcmp(text, "drop ev") == 0);
    vb_wrap_fini(&wrap);
}

static void test_corrupt_at_a_place_with_a_good_icrc(void)
{
    struct vb_packet packet = packet_of(1, 0);
    struct vb_wrap_out out;
    struct vb_wrap wrap;

    setup(&wrap, "corrupt at=20 icrc=good");
    CHECK(vb_wrap_outgoing(&wrap, &packet, 0, &out));
    CHECK_EQ(out.icrc_flip, 0);
    CHECK_EQ(__builtin_popcount(out.packet->piece[0].bytes[8] ^ payload[8]), 1);
    CHECK_EQ(bits_that_differ(&packet, out.packet), 1);
    vb_wrap_sent(&wrap, &out, 0, 0, 0);
    vb_wrap_fini(&wrap);
}

static void expect_length(const char *rules, uint32_t header, uint32_t payload_length, uint32_t pad,
                          bool good)
{
    struct vb_packet packet = packet_of(1, 0);
    struct vb_wrap_out out;
    struct vb_wrap wrap;

    setup(&wrap, rules);
    packet.payload_length = PAYLOAD - 2;
    packet.piece[1].length -= 2;
    packet.pad = 2;
    CHECK(vb_wrap_outgoing(&wrap, &packet, 0, &out));
    CHECK_EQ(out.packet->header_length, header);
    CHECK_EQ(out.packet->payload_length, payload_length);
    CHECK_EQ(out.packet->pad, pad);
    CHECK_EQ(out.icrc_flip == 0, good);
    vb_wrap_sent(&wrap, &out, 0, 0, 0);
    vb_wrap_fini(&wrap);
}

static void test_truncate(void)
{
    expect_length("truncate to=12", 12, 0, 0, false);
    expect_length("truncate to=50", 12, 38, 0, false);
    expect_length("truncate to=50 icrc=good", 12, 38, 0, true);
    expect_length("truncate to=111", 12, 98, 1, false); /* half of the pad */
    expect_length("truncate to=200 icrc=good", 12, 98, 2, true);
}

static void test_truncate_somewhere(void)
{
    struct vb_wrap wrap;

    setup(&wrap, "truncate");
    for (uint32_t psn = 0; psn < 200; ++psn) {
        struct vb_packet packet = packet_of(1, psn);
        struct vb_wrap_out out;

        CHECK(vb_wrap_outgoing(&wrap, &packet, 0, &out));
        CHECK_EQ(out.packet->header_length, VB_BTH);
        CHECK(out.packet->payload_length < PAYLOAD && out.icrc_flip);
        vb_wrap_sent(&wrap, &out, 0, 0, 0);
    }
    vb_wrap_fini(&wrap);
}

static void test_a_virtual_payload(void)
{
    struct vb_packet packet = packet_of(1, 4);
    struct vb_wrap_out out;
    struct vb_wrap wrap;

    setup(&wrap, "delay 1ms; corrupt; truncate to=32 nth=2");
    packet.piece_count = 1;
    packet.piece[0] = (struct vb_piece){NULL, PAYLOAD};
    for (int i = 0; i < 2; ++i)
        CHECK(!vb_wrap_outgoing(&wrap, &packet, 0, &out));
    for (int i = 0; i < 2; ++i) {
        CHECK(vb_wrap_due_out(&wrap, MS, &out));
        CHECK_EQ(out.packet->payload_length, i ? 20 : PAYLOAD);
        CHECK(!out.packet->piece[0].bytes && out.packet->piece_count == 1);
        CHECK(out.icrc_flip);
        vb_wrap_sent(&wrap, &out, 0, 0, 0);
    }
    vb_wrap_fini(&wrap);
}

/* ---- in ---- */

static void test_incoming_delayed(void)
{
    uint8_t bytes[VB_BTH + PAYLOAD], grh[VB_GRH] = {1, 2, 3};
    struct vb_arrival arrival;
    struct vb_wrap_in in;
    struct vb_wrap wrap;

    setup(&wrap, "delay 1ms dir=in qp=18 nth=1");
    arrival = arrival_of(bytes, 6, grh);
    CHECK(!vb_wrap_incoming(&wrap, &arrival, &facts, 0, &in));
    memset(bytes, 0, sizeof(bytes));
    memset(grh, 0, sizeof(grh));
    CHECK(!vb_wrap_due_out(&wrap, MS, &(struct vb_wrap_out){0}));
    CHECK(!vb_wrap_due_in(&wrap, MS - 1, &in));
    CHECK(vb_wrap_due_in(&wrap, MS, &in));
    CHECK_EQ(vb_wire_bth_read(in.arrival->bytes).psn, 6);
    CHECK_EQ(in.arrival->length, VB_BTH + PAYLOAD);
    CHECK(memcmp(in.arrival->bytes + VB_BTH, payload, PAYLOAD) == 0);
    CHECK_EQ(in.arrival->grh[2], 3);
    CHECK_EQ(in.frame.source_port, facts.source_port);
    vb_wrap_received(&wrap, &in, NULL, MS);
    arrival = arrival_of(bytes, 7, NULL);
    CHECK(vb_wrap_incoming(&wrap, &arrival, &facts, MS, &in));
    CHECK(in.arrival == &arrival);
    vb_wrap_fini(&wrap);
}

/* An adapter drops what has a wrong ICRC; with a good one the engine has to cope with it. */
static void test_incoming_corrupted(void)
{
    uint8_t bytes[VB_BTH + PAYLOAD];
    struct vb_arrival arrival;
    struct vb_wrap_in in;
    struct vb_wrap wrap;

    arrival = arrival_of(bytes, 6, NULL);
    setup(&wrap, "hold 1; corrupt dir=in");
    for (int i = 0; i < 300; ++i) /* gives its room back */
        CHECK(!vb_wrap_incoming(&wrap, &arrival, &facts, 0, &in));
    vb_wrap_fini(&wrap);
    setup(&wrap, "truncate to=20 dir=in icrc=good");
    CHECK(vb_wrap_incoming(&wrap, &arrival, &facts, 0, &in));
    CHECK_EQ(in.arrival->length, 20);
    vb_wrap_received(&wrap, &in, NULL, 0);
    vb_wrap_fini(&wrap);
}

/* ---- at run time ---- */

static void test_new_rules_release_what_is_held(void)
{
    struct vb_wrap wrap;
    uint32_t psns[8];

    setup(&wrap, "delay 1s");
    for (uint32_t psn = 0; psn < 3; ++psn)
        CHECK_EQ(offer(&wrap, 1, psn, 0, psns), 0);
    CHECK_EQ(vb_wrap_set_fault(&wrap, rules_records("drop"), NULL, 0), 0);
    CHECK_EQ(vb_wrap_deadline(&wrap), 0);
    CHECK_EQ(offer(&wrap, 1, 3, 0, psns), 3);
    CHECK(psns[0] == 0 && psns[1] == 1 && psns[2] == 2);
    CHECK_EQ(vb_wrap_set_fault(&wrap, NULL, NULL, 0), 0);
    CHECK(!vb_wrap_is_active(&wrap));
    CHECK_EQ(offer(&wrap, 1, 4, 0, psns), 1);
    vb_wrap_fini(&wrap);
}

/* A port may still be sending a packet when its rules go. */
static void test_a_packet_in_hand_outlives_its_rules(void)
{
    struct vb_packet packet = packet_of(1, 3);
    struct vb_wrap_out out;
    struct vb_wrap wrap;

    setup(&wrap, "corrupt");
    CHECK(vb_wrap_outgoing(&wrap, &packet, 0, &out));
    CHECK_EQ(vb_wrap_set_fault(&wrap, "", NULL, 0), 0);
    CHECK(vb_wrap_is_active(&wrap));
    CHECK_EQ(out.packet->payload_length, PAYLOAD);
    vb_wrap_sent(&wrap, &out, 0, 0, 0);
    CHECK(!vb_wrap_is_active(&wrap));
    vb_wrap_fini(&wrap);
}

static void test_wrong_rules_change_nothing(void)
{
    struct vb_wrap wrap;
    char error[128];

    setup(&wrap, "drop every=2");
    CHECK_EQ(vb_wrap_set_fault(&wrap, "drop every=3", error, sizeof(error)), -EINVAL);
    CHECK(strstr(error, "damaged"));
    CHECK(strcmp(order_of(&wrap, 4), "0 2 ") == 0);
    vb_wrap_fini(&wrap);
}

/* Faults and order over many packets: nothing is lost that no rule dropped, nothing twice. */
static void test_nothing_is_lost(void)
{
    enum { PACKETS = 5000 };
    static uint8_t seen[PACKETS];
    struct vb_wrap wrap;
    uint32_t psns[128];

    setup(&wrap, "delay 1us-30us 30%; reorder 20% by=5; reorder 5% by=2 within=3us; hold 100");
    for (uint32_t psn = 0; psn < PACKETS + 1; ++psn) {
        bool last = psn == PACKETS;
        uint64_t now = last ? UINT64_MAX - 1 : psn * UINT64_C(1000);
        unsigned left = last ? drain(&wrap, now, psns) : offer(&wrap, psn % 3, psn, now, psns);

        for (unsigned i = 0; i < left; ++i)
            ++seen[psns[i]];
    }
    for (int i = 0; i < PACKETS; ++i)
        CHECK_EQ(seen[i], 1);
    vb_wrap_fini(&wrap);
}

/* ---- threads ---- */

enum { THREADS = 3, ROUNDS = 20000 };

struct sender {
    struct vb_wrap *wrap;
    uint32_t qp_num;
    pthread_t thread;
};

static void *send_many(void *argument)
{
    struct sender *sender = argument;
    uint32_t psns[8192];

    for (uint32_t psn = 0; psn < ROUNDS; ++psn)
        offer(sender->wrap, sender->qp_num, psn, psn, psns);
    return NULL;
}

/* Datagrams are sent by any thread, and rules may change while they are. */
static void test_threads_and_new_rules(void)
{
    static const char *const rules[] = {"delay 10ns 20%; corrupt 10%; hold 50", "",
                                        "reorder 5%; duplicate 10%", "drop 50%"};
    struct sender senders[THREADS];
    struct vb_wrap wrap;
    uint32_t psns[8192];

    setup(&wrap, rules[0]);
    for (uint32_t i = 0; i < THREADS; ++i) {
        senders[i] = (struct sender){.wrap = &wrap, .qp_num = i};
        CHECK_EQ(pthread_create(&senders[i].thread, NULL, send_many, &senders[i]), 0);
    }
    for (int i = 0; i < 400; ++i)
        CHECK_EQ(vb_wrap_set_fault(&wrap, rules_records(rules[i % 4]), NULL, 0), 0);
    for (int i = 0; i < THREADS; ++i)
        pthread_join(senders[i].thread, NULL);
    CHECK_EQ(vb_wrap_set_fault(&wrap, NULL, NULL, 0), 0);
    while (drain(&wrap, UINT64_MAX - 1, psns))
        ;
    CHECK(!vb_wrap_is_active(&wrap));
    vb_wrap_fini(&wrap);
}

int main(void)
{
    RUN(test_nothing_configured_is_the_same_packet);
    RUN(test_drop);
    RUN(test_duplicate);
    RUN(test_reorder);
    RUN(test_reorder_counts_packets_of_its_qp);
    RUN(test_reorder_does_not_wait_for_ever);
    RUN(test_delay_keeps_the_order);
    RUN(test_a_delayed_packet_is_a_copy);
    RUN(test_a_duplicate_keeps_its_reason);
    RUN(test_no_room);
    RUN(test_corrupt_flips_a_bit_and_leaves_the_icrc);
    RUN(test_corrupt_reaches_each_byte);
    RUN(test_truncate_leaves_each_length);
    RUN(test_a_packet_that_is_too_long);
    RUN(test_a_packet_that_just_fits);
    RUN(test_when_the_last_leaves);
    RUN(test_text_without_room);
    RUN(test_corrupt_at_a_place_with_a_good_icrc);
    RUN(test_truncate);
    RUN(test_truncate_somewhere);
    RUN(test_a_virtual_payload);
    RUN(test_incoming_delayed);
    RUN(test_incoming_corrupted);
    RUN(test_new_rules_release_what_is_held);
    RUN(test_a_packet_in_hand_outlives_its_rules);
    RUN(test_wrong_rules_change_nothing);
    RUN(test_nothing_is_lost);
    RUN(test_threads_and_new_rules);
    return 0;
}
