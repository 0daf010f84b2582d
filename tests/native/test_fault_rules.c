// SPDX-License-Identifier: Apache-2.0
/* The text of fault rules: what it means, and which word an error points at. */
#include "check.h"
#include "port/wrap/fault_rules.h"
#include "wire/headers.h"
#include "wire/opcode.h"

#include <stdio.h>

static struct vb_fault_rules parsed(const char *text)
{
    struct vb_fault_rules rules;
    char error[256] = "";

    if (vb_fault_parse(text, &rules, error, sizeof(error))) {
        fprintf(stderr, "%s: %s\n", text, error);
        exit(1);
    }
    return rules;
}

static void expect_error(const char *text, const char *word, const char *advice)
{
    struct vb_fault_rules rules;
    char error[512] = "", quoted[128];

    snprintf(quoted, sizeof(quoted), "\"%s\": ", word);
    CHECK_EQ(vb_fault_parse(text, &rules, error, sizeof(error)), -EINVAL);
    if (strncmp(error, quoted, strlen(quoted)) != 0 || !strstr(error, advice)) {
        fprintf(stderr, "%s gives: %s\nexpected: %s… %s\n", text, error, quoted, advice);
        exit(1);
    }
}

static void test_no_rules(void)
{
    CHECK_EQ(parsed(NULL).count, 0);
    CHECK_EQ(parsed("").count, 0);
    CHECK_EQ(parsed(" ; ;; ").count, 0);
}

static void test_a_rule_and_what_is_left_out(void)
{
    struct vb_fault_rules rules = parsed("drop");
    const struct vb_fault_rule *rule = &rules.rule[0];

    CHECK_EQ(rules.count, 1);
    CHECK_EQ(rule->action, VB_FAULT_DROP);
    CHECK_EQ(rule->directions, 1 << VB_WRAP_OUT);
    CHECK(rule->chance == UINT64_C(1) << 32);
    CHECK(!rule->has_qp && !rule->has_psn && !rule->opcodes.constrained);
    CHECK_EQ(rule->nth + rule->every + rule->limit, 0);
    CHECK_EQ(rules.hold, VB_FAULT_HOLD);
}

static void test_all_that_can_be_said(void)
{
    struct vb_fault_rules rules =
        parsed("seed 0x2a; hold 64;drop 0.5% dir=in qp=0x12 psn=10-20 nth=3 every=4 limit=5;"
               "delay 1.5ms-2ms dir=both;reorder by=3 within=20us; duplicate copies=2;"
               "corrupt at=12 icrc=good; truncate to=28");
    const struct vb_fault_rule *rule = rules.rule;

    CHECK_EQ(rules.count, 6);
    CHECK_EQ(rules.seed, 42);
    CHECK_EQ(rules.hold, 64);
    CHECK_EQ(rule[0].directions, 1 << VB_WRAP_IN);
    CHECK_EQ(rule[0].qp, 0x12);
    CHECK(rule[0].psn_first == 10 && rule[0].psn_last == 20);
    CHECK(rule[0].nth == 3 && rule[0].every == 4 && rule[0].limit == 5);
    CHECK_EQ(rule[0].chance, (UINT64_C(1) << 32) / 200);
    CHECK(rule[1].delay_least == 1500000 && rule[1].delay_most == 2000000);
    CHECK_EQ(rule[1].directions, 3);
    CHECK(rule[2].by == 3 && rule[2].within == 20000);
    CHECK_EQ(rule[3].copies, 2);
    CHECK(rule[4].has_offset && rule[4].offset == 12 && rule[4].good_icrc);
    CHECK(rule[5].has_length && rule[5].length == 28 && !rule[5].good_icrc);
}

static void test_words_of_a_rule_are_kept(void)
{
    struct vb_fault_rules rules = parsed("drop 1% ;  delay 2ms  opcode=read ");

    CHECK(strncmp(rules.text + rules.rule[1].text, "delay 2ms  opcode=read;",
                  rules.rule[1].text_length) == 0);
    CHECK_EQ(rules.rule[1].text_length, strlen("delay 2ms  opcode=read"));
    CHECK_EQ(rules.rule[0].text_length, strlen("drop 1%"));
}

static void test_an_error_points_at_the_word(void)
{
    expect_error("drp 1%", "drp", "a rule begins with drop");
    expect_error("drop 1%; drop 101%", "101%", "from 0% to 100%");
    expect_error("drop 1 %", "1", "neither a chance (1%)");
    expect_error("drop %", "%", "chance");
    expect_error("drop opcod=ack", "opcod=ack", "drop takes dir, qp, psn, opcode");
    expect_error("drop opcode=ack,sned", "opcode=ack,sned", "\"sned\" is no opcode");
    expect_error("drop opcode=", "opcode=", "is no opcode");
    expect_error("drop opcode=256", "opcode=256", "is no opcode");
    expect_error("drop by=3", "by=3", "drop takes");
    expect_error("reorder by=0", "by=0", "from 1 to");
    expect_error("drop qp=0x1000000", "qp=0x1000000", "24 bits");
    expect_error("drop psn=5-", "psn=5-", "24 bits");
    expect_error("drop psn=-5", "psn=-5", "24 bits");
    expect_error("drop dir=up", "dir=up", "out, in or both");
    expect_error("delay", "delay", "how long?");
    expect_error("delay 2", "2", "as in 2ms");
    expect_error("delay 61s", "61s", "up to 60s");
    expect_error("delay 5ms-1ms", "5ms-1ms", "range");
    expect_error("delay 2ms 3ms", "3ms", "neither");
    expect_error("delay 0ms", "0ms", "a delay is");
    expect_error("truncate to=11", "to=11", "12 or more");
    expect_error("corrupt icrc=bad", "icrc=bad", "icrc=good");
    expect_error("seed", "seed", "a number is missing");
    expect_error("seed x", "x", "seed is a number");
    expect_error("seed 99999999999999999999", "99999999999999999999", "seed is a number");
    expect_error("seed 1 drop 1%", "drop", "\";\"");
    expect_error("hold 0", "0", "from 1 to 65536");
}

static void test_too_many_rules_and_too_long_a_text(void)
{
    struct vb_fault_rules rules;
    char text[2 * VB_FAULT_TEXT] = "", error[128];

    for (int i = 0; i < VB_FAULT_RULES; ++i)
        strcat(text, "drop;");
    CHECK_EQ(parsed(text).count, VB_FAULT_RULES);
    strcat(text, "drop");
    expect_error(text, "drop", "more than 32 rules");
    memset(text, ' ', VB_FAULT_TEXT);
    text[VB_FAULT_TEXT] = '\0';
    CHECK_EQ(vb_fault_parse(text, &rules, error, sizeof(error)), -EINVAL);
    CHECK(strstr(error, "more than 2047 characters"));
    text[VB_FAULT_TEXT - 1] = '\0';
    CHECK_EQ(vb_fault_parse(text, &rules, error, sizeof(error)), 0);
}

static void test_an_error_fits_any_buffer(void)
{
    struct vb_fault_rules rules;
    char error[300];

    for (size_t size = 0; size < 200; ++size) {
        memset(error, 'x', sizeof(error));
        CHECK_EQ(vb_fault_parse("drop opcode=nonsense", &rules, error, size), -EINVAL);
        CHECK_EQ(error[size], 'x');
        CHECK(size == 0 || memchr(error, '\0', size));
    }
}

/* ---- opcodes ---- */

static bool has(const char *name, uint8_t opcode, uint8_t syndrome)
{
    struct vb_fault_opcodes opcodes = {0};
    uint8_t header[VB_HEADERS_MAX] = {opcode};

    CHECK(vb_fault_add_opcode(&opcodes, name, strlen(name)));
    header[VB_BTH] = syndrome;
    return vb_fault_has_opcode(&opcodes, header, vb_opcodes[opcode].header_length);
}

enum { RC = VB_TRANSPORT_RC, UD = VB_TRANSPORT_UD, XRC = VB_TRANSPORT_XRC };
enum { ACK = 0x1f, RNR = 0x2e, NAK = 0x60 };

static void test_classes_of_requests(void)
{
    CHECK(has("send", RC | VB_OP_SEND_ONLY_INVALIDATE, 0));
    CHECK(has("send", UD | VB_OP_SEND_ONLY, 0));
    CHECK(!has("send", RC | VB_OP_WRITE_ONLY, 0));
    CHECK(has("write", XRC | VB_OP_WRITE_LAST_IMM, 0));
    CHECK(has("read", RC | VB_OP_READ_REQUEST, 0));
    CHECK(!has("read", RC | VB_OP_READ_RESPONSE_ONLY, 0));
    CHECK(has("atomic", RC | VB_OP_FETCH_ADD, 0));
    CHECK(!has("atomic", RC | VB_OP_ATOMIC_ACKNOWLEDGE, 0));
    CHECK(has("request", RC | VB_OP_READ_REQUEST, 0));
    CHECK(!has("request", RC | VB_OP_ACKNOWLEDGE, ACK));
    CHECK(!has("request", VB_TRANSPORT_CNP | 1, 0));
}

static void test_classes_of_responses(void)
{
    CHECK(has("read-response", RC | VB_OP_READ_RESPONSE_MIDDLE, 0));
    CHECK(!has("read-response", RC | VB_OP_ACKNOWLEDGE, ACK));
    CHECK(has("atomic-response", RC | VB_OP_ATOMIC_ACKNOWLEDGE, ACK));
    CHECK(has("response", RC | VB_OP_READ_RESPONSE_MIDDLE, 0));
    CHECK(has("response", RC | VB_OP_ACKNOWLEDGE, NAK));
    CHECK(has("cnp", VB_TRANSPORT_CNP | 1, 0));
}

static void test_kinds_of_acknowledge(void)
{
    const uint8_t op = RC | VB_OP_ACKNOWLEDGE;

    CHECK(has("ack", op, ACK) && !has("ack", op, NAK) && !has("ack", op, RNR));
    CHECK(has("nak", op, NAK) && !has("nak", op, ACK));
    CHECK(has("rnr", op, RNR) && !has("rnr", op, NAK));
    CHECK(has("0x11", op, NAK) && has("17", op, ACK));
    CHECK(has("rc-acknowledge", op, RNR));
    CHECK(!has("ack", RC | VB_OP_ATOMIC_ACKNOWLEDGE, ACK));
}

static void test_own_names(void)
{
    CHECK(has("rc-send-only-with-immediate", RC | VB_OP_SEND_ONLY_IMM, 0));
    CHECK(!has("rc-send-only", XRC | VB_OP_SEND_ONLY, 0));
}

int main(void)
{
    RUN(test_no_rules);
    RUN(test_a_rule_and_what_is_left_out);
    RUN(test_all_that_can_be_said);
    RUN(test_words_of_a_rule_are_kept);
    RUN(test_an_error_points_at_the_word);
    RUN(test_too_many_rules_and_too_long_a_text);
    RUN(test_an_error_fits_any_buffer);
    RUN(test_classes_of_requests);
    RUN(test_classes_of_responses);
    RUN(test_kinds_of_acknowledge);
    RUN(test_own_names);
    return 0;
}
