// SPDX-License-Identifier: Apache-2.0
/*
 * The comments of captured packets: why a packet is sent again, which frame it was first, and what
 * a NAK means.
 */
#include "bare_packet.h"
#include "check.h"
#include "wire/opcode.h"
#include "wrap/capture_comment.h"

enum { QP = 0x111, PSN = 0xfffffe };

static struct vb_capture_sent sent[VB_CAPTURE_SENT];

static void expect_again(const struct vb_packet *packet, const char *expected)
{
    char words[256] = "";
    bool again = vb_wrap_comment_again(sent, packet, words, sizeof words);

    CHECK_EQ(again, *expected != '\0');
    if (strcmp(words, expected) != 0)
        fprintf(stderr, "%s\nexpected: %s\n", words, expected);
    CHECK(strcmp(words, expected) == 0);
}

static const struct {
    enum vb_packet_reason reason;
    uint32_t unanswered;
    const char *alone, *original;
} reasons[] = {
    {VB_PACKET_NEW, 0, "", ""},
    {VB_PACKET_AFTER_TIMEOUT, 0,
     "retransmitted: no acknowledgement within the timeout: PSN 40 is not acknowledged", ","},
    {VB_PACKET_AFTER_SEQUENCE_NAK, 0,
     "retransmitted: the responder missed a packet (NAK: PSN sequence error): PSN 40 was missing",
     ","},
    {VB_PACKET_AFTER_RNR, 0,
     "retransmitted: the responder had no receive request (RNR NAK): PSN 40 was refused", ","},
    {VB_PACKET_AFTER_LOST_RESPONSE, 0,
     "retransmitted: a response is missing (implied NAK): PSN 40 is missing", ","},
    {VB_PACKET_REPLAYED_RESPONSE, 0, "sent again: the requester repeated its request", ":"},
    {VB_PACKET_PROBE, 0, "probe: no answer for a few round trips: PSN 40 is not acknowledged", ","},
    {VB_PACKET_PROBE, 420, "probe: no answer for 420 us: PSN 40 is not acknowledged", ","},
    {(enum vb_packet_reason)7, 0, "", ""},
    {(enum vb_packet_reason)200, 0, "", ""},
};

static void test_why_a_packet_is_sent_again(void)
{
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        struct vb_packet first = packet_of(QP, VB_OP_SEND_ONLY, 7, VB_PACKET_NEW);
        struct vb_packet again = packet_of(QP, VB_OP_SEND_ONLY, 7, reasons[i].reason);
        char expected[256];

        memset(sent, 0, sizeof sent);
        again.unanswered_us = reasons[i].unanswered;
        expect_again(&again, reasons[i].alone);
        vb_wrap_capture_note_sent(sent, &first, 0); /* it could not be written */
        expect_again(&again, reasons[i].alone);
        vb_wrap_capture_note_sent(sent, &first, 12);
        for (unsigned attempt = 2; attempt < 5 && *reasons[i].alone; attempt++) {
            snprintf(expected, sizeof expected, "%s%s attempt %u, the original is frame 12",
                     reasons[i].alone, reasons[i].original, attempt);
            expect_again(&again, expected);
            vb_wrap_capture_note_sent(sent, &again, 12 + attempt);
        }
    }
}

/* Another QP's packet, another PSN, or a response with the PSN of a request was not that one. */
static void test_which_packet_was_sent_before(void)
{
    static const struct {
        uint32_t qp, psn;
        uint8_t opcode;
        bool same;
    } all[] = {
        {QP, 7, VB_OP_SEND_ONLY, true},
        {QP, 7, VB_OP_WRITE_ONLY, true},
        {QP + 1, 7, VB_OP_SEND_ONLY, false},
        {QP, 8, VB_OP_SEND_ONLY, false},
        {QP, 7 + VB_CAPTURE_SENT, VB_OP_SEND_ONLY, false},
        {QP + VB_CAPTURE_SENT, 7, VB_OP_SEND_ONLY, false},
        {QP, 7, VB_OP_ACKNOWLEDGE, false},
    };

    for (int from = 0; from < 7; from++)
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            struct vb_packet first =
                packet_of(all[from].qp, all[from].opcode, all[from].psn, VB_PACKET_NEW);
            struct vb_packet again =
                packet_of(all[i].qp, all[i].opcode, all[i].psn, VB_PACKET_REPLAYED_RESPONSE);
            bool same =
                all[from].qp == all[i].qp && all[from].psn == all[i].psn &&
                (all[from].opcode == VB_OP_ACKNOWLEDGE) == (all[i].opcode == VB_OP_ACKNOWLEDGE);

            memset(sent, 0, sizeof sent);
            vb_wrap_capture_note_sent(sent, &first, 3);
            expect_again(&again, same ? "sent again: the requester repeated its request: attempt "
                                        "2, the original is frame 3"
                                      : "sent again: the requester repeated its request");
        }
}

/* Requests and responses of a connection do not displace each other, half the table of each. */
static void test_as_many_packets_as_are_under_way(void)
{
    const uint8_t opcodes[] = {VB_OP_SEND_ONLY, VB_OP_READ_RESPONSE_MIDDLE};

    memset(sent, 0, sizeof sent);
    for (uint32_t i = 0; i < VB_CAPTURE_SENT; i++) {
        struct vb_packet packet =
            packet_of(QP, opcodes[i % 2], (PSN + i / 2) & VB_PSN_MASK, VB_PACKET_NEW);

        vb_wrap_capture_note_sent(sent, &packet, i + 1);
    }
    for (uint32_t i = 0; i < VB_CAPTURE_SENT; i++) {
        struct vb_packet packet =
            packet_of(QP, opcodes[i % 2], (PSN + i / 2) & VB_PSN_MASK, VB_PACKET_REPLAYED_RESPONSE);
        char expected[128];

        snprintf(expected, sizeof expected,
                 "sent again: the requester repeated its request: attempt 2, the original is "
                 "frame %u",
                 i + 1);
        expect_again(&packet, expected);
    }
}

static void test_only_connections_are_remembered(void)
{
    static const struct {
        enum vb_transport transport;
        bool remembered;
    } all[] = {{VB_TRANSPORT_RC, true},
               {VB_TRANSPORT_XRC, true},
               {VB_TRANSPORT_UC, false},
               {VB_TRANSPORT_UD, false}};

    for (int i = 0; i < 4; i++) {
        const uint8_t opcode = (uint8_t)(all[i].transport | VB_OP_SEND_ONLY);
        struct vb_packet first = packet_of(QP, opcode, 7, VB_PACKET_NEW);
        struct vb_packet again = packet_of(QP, opcode, 7, VB_PACKET_REPLAYED_RESPONSE);

        memset(sent, 0, sizeof sent);
        vb_wrap_capture_note_sent(sent, &first, 3);
        expect_again(&again, all[i].remembered
                                 ? "sent again: the requester repeated its request: attempt 2, the "
                                   "original is frame 3"
                                 : "sent again: the requester repeated its request");
    }
}

static void test_comments_fit_their_room(void)
{
    struct vb_packet first = packet_of(QP, VB_OP_SEND_ONLY, 7, VB_PACKET_NEW);
    struct vb_packet again = packet_of(QP, VB_OP_SEND_ONLY, 7, VB_PACKET_AFTER_RNR);
    char whole[256] = "", words[256];

    memset(sent, 0, sizeof sent);
    vb_wrap_capture_note_sent(sent, &first, 12);
    CHECK(vb_wrap_comment_again(sent, &again, whole, sizeof whole));
    for (size_t size = 1; size < strlen(whole) + 3; size++) {
        const size_t length = size - 1 < strlen(whole) ? size - 1 : strlen(whole);

        memset(words, '#', sizeof words);
        CHECK(vb_wrap_comment_again(sent, &again, words, size));
        CHECK_EQ(strlen(words), length);
        CHECK(memcmp(words, whole, length) == 0 && words[length + 1] == '#');
    }
}

static const struct {
    enum vb_aeth_kind kind;
    uint8_t value;
    const char *words; /* NULL: no NAK */
} naks[] = {
    {VB_AETH_ACK, 0, NULL},
    {VB_AETH_ACK, 31, NULL},
    {VB_AETH_RESERVED, 1, NULL},
    {VB_AETH_RNR, 0, "RNR NAK: no receive request for PSN 9: again after 655.36 ms"},
    {VB_AETH_RNR, 1, "RNR NAK: no receive request for PSN 9: again after 0.01 ms"},
    {VB_AETH_RNR, 31, "RNR NAK: no receive request for PSN 9: again after 491.52 ms"},
    {VB_AETH_NAK, 0, "NAK: PSN sequence error: PSN 9 is missing"},
    {VB_AETH_NAK, 1, "NAK: invalid request: PSN 9 is refused"},
    {VB_AETH_NAK, 2, "NAK: remote access error: PSN 9 is refused"},
    {VB_AETH_NAK, 3, "NAK: remote operational error: PSN 9 cannot be carried out"},
    {VB_AETH_NAK, 4, "NAK: a reserved code: PSN 9 is refused"},
};

static void test_what_a_nak_means(void)
{
    static const uint8_t opcodes[] = {VB_OP_ACKNOWLEDGE, VB_TRANSPORT_XRC | VB_OP_ACKNOWLEDGE,
                                      VB_OP_ATOMIC_ACKNOWLEDGE, VB_OP_SEND_ONLY};

    for (size_t i = 0; i < 4 * (sizeof naks / sizeof *naks); i++)
        for (uint32_t length = VB_BTH; length <= VB_BTH + VB_AETH; length++) {
            uint8_t bytes[VB_BTH + VB_AETH];
            const char *expected = i % 4 < 2 && length == sizeof bytes ? naks[i / 4].words : NULL;
            char words[128] = "nothing";

            vb_wire_bth_write(bytes, &(struct vb_bth){.opcode = opcodes[i % 4], .psn = 9});
            vb_wire_aeth_write(bytes + VB_BTH,
                               &(struct vb_aeth){(uint8_t)naks[i / 4].kind, naks[i / 4].value, 1});
            CHECK_EQ(vb_wrap_comment_nak(bytes, length, words, sizeof words), expected != NULL);
            if (expected && strcmp(words, expected) != 0)
                fprintf(stderr, "%s\nexpected: %s\n", words, expected);
            CHECK(strcmp(words, expected ? expected : "nothing") == 0);
        }
}

int main(void)
{
    RUN(test_why_a_packet_is_sent_again);
    RUN(test_which_packet_was_sent_before);
    RUN(test_as_many_packets_as_are_under_way);
    RUN(test_only_connections_are_remembered);
    RUN(test_comments_fit_their_room);
    RUN(test_what_a_nak_means);
    return 0;
}
