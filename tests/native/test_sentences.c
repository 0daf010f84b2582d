// SPDX-License-Identifier: Apache-2.0
/* What the core says of records that a test fills: which facts of a record choose which words. */
#include "check.h"
#include "hca/checks.h"
#include "hca/hca.h"
#include "hca/sentences.h"

static const char *said(unsigned of, const struct vb_evidence *e)
{
    static char out[2000];
    struct vb_text text = {out, sizeof(out), 0};

    out[0] = '\0';
    vb_sentence_say(&text, of, e);
    CHECK_EQ(text.length, strlen(out));
    return out;
}

static void expect_words(unsigned of, const struct vb_evidence *e, const char *words, bool there)
{
    const char *text = said(of, e);

    if ((strstr(text, words) != NULL) != there)
        fprintf(stderr, "%s is %sin: %s\n", words, there ? "not " : "", text);
    CHECK_EQ(strstr(text, words) != NULL, there);
}

/* ---- a request by packets that was not answered ---- */

/* Three attempts, and an acknowledgement of earlier ones at their beginning. */
static const struct vb_evidence unanswered = {
    .check = VB_CHECK_NO_ANSWER,
    .wr_opcode = IBV_WR_RDMA_WRITE,
    .qp_num = 0x11,
    .peer_qp_num = 0x22,
    .has_psns = 1,
    .length = 1000,
    .timeouts = 3,
    .microseconds = 1000,
    .silence = VB_HEARD_ACK,
    .heard_us = 900,
    .heard_psn = 77,
    .psn = 78,
};

static void expect_heard_since(struct vb_evidence e, bool heard)
{
    expect_words(VB_CHECK_NO_ANSWER, &e, "did not answer PSN 78", !heard);
    expect_words(VB_CHECK_NO_ANSWER, &e, "answered, but PSN 78 did not get through", heard);
    expect_words(VB_CHECK_NO_ANSWER | VB_SENTENCE_ADVICE, &e, "It answered before", !heard);
}

static void what_was_heard_since_tells_whether_the_peer_is_there(void)
{
    struct vb_evidence e = unanswered;

    expect_heard_since(e, false);
    e.heard_us = 500; /* half of the time */
    expect_heard_since(e, false);
    e.heard_us = 499;
    expect_heard_since(e, true);
    e = unanswered;
    e.naks = 1;
    expect_heard_since(e, true);
    e = unanswered;
    e.not_ready = 1;
    expect_heard_since(e, true);
    e = unanswered;
    e.beyond = 1;
    expect_heard_since(e, true);
    e = unanswered;
    e.silence = VB_HEARD_NOTHING;
    e.heard_us = 0;
    expect_words(VB_CHECK_NO_ANSWER, &e, "nothing was ever heard from it", true);
    expect_words(VB_CHECK_NO_ANSWER | VB_SENTENCE_ADVICE, &e, "It does not exist", true);
}

static void expect_too_long(struct vb_evidence e, bool may_be)
{
    expect_words(VB_CHECK_NO_ANSWER | VB_SENTENCE_ADVICE, &e, "a smaller path_mtu", may_be);
}

static void long_packets_may_be_what_is_lost(void)
{
    struct vb_evidence e = unanswered;

    expect_too_long(e, true);
    e.length = 257;
    expect_too_long(e, true);
    e.length = 256; /* every path carries it */
    expect_too_long(e, false);
    e = unanswered;
    e.beyond = 3; /* of each attempt's response the last came, which is short */
    expect_too_long(e, true);
    e.beyond = 4;
    expect_too_long(e, false);
    e.naks = 1;
    expect_too_long(e, true);
    e.beyond = 5;
    expect_too_long(e, false);
    e.not_ready = 1;
    expect_too_long(e, true);
    e = unanswered;
    e.has_psns = 0;
    expect_too_long(e, false);
}

static void a_peer_that_expects_another_psn_is_no_long_packet(void)
{
    static const enum vb_heard other[] = {VB_HEARD_ACK_UNSENT, VB_HEARD_SEQUENCE_NAK_UNSENT};
    struct vb_evidence e = unanswered;

    for (int i = 0; i < 2; ++i) {
        e.silence = (uint8_t)other[i];
        expect_too_long(e, false);
        expect_words(VB_CHECK_NO_ANSWER, &e, "which this QP never sent", true);
        expect_words(VB_CHECK_NO_ANSWER | VB_SENTENCE_ADVICE, &e, "first PSN", true);
    }
    e.peer_qp_num = e.qp_num;
    expect_words(VB_CHECK_NO_ANSWER | VB_SENTENCE_ADVICE, &e, "it is connected to itself", true);
    e.silence = VB_HEARD_SEQUENCE_NAK;
    expect_words(VB_CHECK_NO_ANSWER, &e, "which this QP never sent", false);
}

static void attempts_are_all_that_failed(void)
{
    struct vb_evidence e = unanswered;

    e.naks = 4;
    e.not_ready = 5;
    expect_words(VB_CHECK_NO_ANSWER, &e, "given up after 12 attempts", true);
    expect_words(VB_CHECK_NO_ANSWER, &e, "3 timeouts, 4 sequence errors, 5 RNR NAKs", true);
}

/* ---- memory that is gone ---- */

static void memory_that_was_read_may_be_read_only(void)
{
    static const enum ibv_wr_opcode reads[] = {IBV_WR_RDMA_WRITE,    IBV_WR_RDMA_WRITE_WITH_IMM,
                                               IBV_WR_SEND,          IBV_WR_SEND_WITH_IMM,
                                               IBV_WR_SEND_WITH_INV, IBV_WR_ATOMIC_WRITE};
    static const enum ibv_wr_opcode writes[] = {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
                                                IBV_WR_ATOMIC_FETCH_AND_ADD};
    const unsigned mine = VB_CHECK_LOCAL_MEMORY_GONE, theirs = VB_CHECK_MEMORY_GONE;
    const char *read_only = "made read-only";

    for (size_t i = 0; i < sizeof(reads) / sizeof(*reads); ++i) {
        struct vb_evidence e = {.check = (uint16_t)mine, .wr_opcode = (uint16_t)reads[i]};

        expect_words(mine | VB_SENTENCE_ADVICE, &e, read_only, false);
        e.check = (uint16_t)theirs;
        expect_words(theirs | VB_SENTENCE_ADVICE, &e, read_only, true);
    }
    for (size_t i = 0; i < sizeof(writes) / sizeof(*writes); ++i) {
        struct vb_evidence e = {.check = (uint16_t)mine, .wr_opcode = (uint16_t)writes[i]};

        expect_words(mine | VB_SENTENCE_ADVICE, &e, read_only, true);
        e.check = (uint16_t)theirs;
        expect_words(theirs | VB_SENTENCE_ADVICE, &e, read_only, i > 0);
    }
}

/* ---- packets that break the protocol ---- */

static void expect_mtu(enum vb_check check, unsigned opcode, uint32_t count, bool may_be)
{
    const struct vb_evidence e = {
        .check = (uint16_t)check, .wr_opcode = (uint16_t)opcode, .count = count};

    expect_words(check | VB_SENTENCE_ADVICE, &e, "one path MTU", may_be);
}

static void payloads_that_are_cut_elsewhere_may_be_another_mtu(void)
{
    const uint32_t last = 15, atomic = 18; /* BTH opcodes of RC: READ response last, atomic ack */

    expect_mtu(VB_CHECK_BAD_RESPONSE, IBV_WR_RDMA_READ, last, true);
    expect_mtu(VB_CHECK_BAD_RESPONSE, IBV_WR_RDMA_READ, atomic, false);
    expect_mtu(VB_CHECK_BAD_RESPONSE, IBV_WR_ATOMIC_FETCH_AND_ADD, last, false);
    expect_mtu(VB_CHECK_BAD_LENGTH, IBV_WR_SEND, 0, true);
    expect_mtu(VB_CHECK_BAD_LENGTH, IBV_WR_RDMA_WRITE, 0, true);
    expect_mtu(VB_CHECK_BAD_LENGTH, IBV_WR_RDMA_READ, 0, false);
    expect_mtu(VB_CHECK_BAD_SEQUENCE, IBV_WR_SEND, 0, false);
}

/* ---- numbers ---- */

static void numbers_are_said_as_their_letters_want(void)
{
    struct vb_evidence e = {.check = VB_CHECK_QP_ACCESS,
                            .wr_opcode = IBV_WR_RDMA_READ,
                            .peer_qp_num = 0xabcd,
                            .wanted = IBV_ACCESS_REMOTE_READ};

    expect_words(VB_CHECK_QP_ACCESS, &e, "QP 0xabcd does not allow it", true);
    expect_words(VB_CHECK_QP_ACCESS, &e, "which are no write and no remote access", true);
    e.access = IBV_ACCESS_REMOTE_WRITE;
    expect_words(VB_CHECK_QP_ACCESS, &e, "no write and no remote access", false);
    e = (struct vb_evidence){
        .check = VB_CHECK_RECV_TOO_SHORT, .length = 140, .mr_length = 120, .type = IBV_QPT_UD};
    expect_words(VB_CHECK_RECV_TOO_SHORT, &e, "has 100 bytes, behind 40 of the GRH", true);
    e.type = IBV_QPT_RC;
    expect_words(VB_CHECK_RECV_TOO_SHORT, &e, "has 140 bytes and", true);
    e = (struct vb_evidence){
        .check = VB_CHECK_NO_ANSWER, .silence = VB_SILENCE_PKEY, .count = 0x7fff8001};
    expect_words(VB_CHECK_NO_ANSWER, &e, "P_Key, 0x7fff, as its own is 0x8001: ", true);
}

int main(void)
{
    RUN(what_was_heard_since_tells_whether_the_peer_is_there);
    RUN(long_packets_may_be_what_is_lost);
    RUN(a_peer_that_expects_another_psn_is_no_long_packet);
    RUN(attempts_are_all_that_failed);
    RUN(memory_that_was_read_may_be_read_only);
    RUN(payloads_that_are_cut_elsewhere_may_be_another_mtu);
    RUN(numbers_are_said_as_their_letters_want);
    return 0;
}
