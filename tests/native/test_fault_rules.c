// SPDX-License-Identifier: Apache-2.0
/* Records of fault rules: what they mean, that damage is refused, and which packets opcodes choose.
 */
#include "check.h"
#include "rules.h"
#include "wire/headers.h"
#include "wire/opcode.h"
#include "wrap/fault_rules.h"

#include <stdio.h>

enum { RECORDS_MOST = 4096 };

static const char ALL[] =
    "seed 0x2a; hold 64;drop 0.5% dir=in qp=0x12 psn=10-20 nth=3 every=4 limit=5;"
    "delay 1.5ms-2ms dir=both;reorder by=3 within=20us; duplicate copies=2;"
    "corrupt at=12 icrc=good; truncate to=28";

static struct vb_fault_rules rules_of(const char *words)
{
    struct vb_fault_rules rules;
    char error[256] = "";

    if (vb_wrap_fault_read(rules_records(words), &rules, error, sizeof(error))) {
        fprintf(stderr, "%s: %s\n", words, error);
        exit(1);
    }
    return rules;
}

static void expect_error(const char *records, const char *advice)
{
    struct vb_fault_rules rules;
    char error[512] = "";

    CHECK_EQ(vb_wrap_fault_read(records, &rules, error, sizeof(error)), -EINVAL);
    if (!strstr(error, advice)) {
        fprintf(stderr, "%s gives: %s\nexpected: %s\n", records, error, advice);
        exit(1);
    }
}

static void test_no_rules(void)
{
    struct vb_fault_rules rules;

    CHECK_EQ(vb_wrap_fault_read(NULL, &rules, NULL, 0), 0);
    CHECK(rules.count == 0 && rules.seed == 1 && rules.hold == VB_FAULT_HOLD);
    CHECK_EQ(vb_wrap_fault_read("", &rules, NULL, 0), 0);
    CHECK_EQ(rules.count, 0);
    CHECK_EQ(rules_of(" ; ;; ").count, 0);
}

static void test_a_rule_and_what_is_left_out(void)
{
    struct vb_fault_rules rules = rules_of("drop");
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
    struct vb_fault_rules rules = rules_of(ALL);
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
    struct vb_fault_rules rules = rules_of("drop 1% ;  delay 2ms  opcode=read ");

    CHECK(strncmp(rules.text + rules.rule[1].text, "delay 2ms  opcode=read;",
                  rules.rule[1].text_length) == 0);
    CHECK_EQ(rules.rule[1].text_length, strlen("delay 2ms  opcode=read"));
    CHECK_EQ(rules.rule[0].text_length, strlen("drop 1%"));
}

/* ---- damage ---- */

static void test_words_are_no_records(void)
{
    expect_error("drop 1%", "character 0 of 7");
    expect_error("|", "damaged at character 0");
    expect_error("1 1 400 0 ", "damaged"); /* no words */
    expect_error("!\"dorp\": a rule begins with…|dorp", "damaged");
}

static void test_another_version_is_named(void)
{
    expect_error("2 1 400 0 |", "another version of Verbena");
    expect_error("ffffffffffffffff |", "another version");
    expect_error("10000000000000001 1 400 0 |", "damaged"); /* of 17 digits */
}

static void test_each_missing_end_is_noticed(void)
{
    const char *records = rules_records(ALL);
    size_t numbers = (size_t)(strchr(records, '|') - records);
    char damaged[RECORDS_MOST];

    for (size_t length = 0; length < numbers; ++length) {
        snprintf(damaged, sizeof(damaged), "%.*s%s", (int)length, records, records + numbers);
        expect_error(damaged, "damaged at character");
    }
    for (const char *end = records; (end = strchr(end, ' ')) && end < records + numbers; ++end) {
        snprintf(damaged, sizeof(damaged), "%.*s 0%s", (int)(end - records), records, end);
        expect_error(damaged, "damaged at character"); /* a number too many */
    }
}

/* "drop" with one of its numbers, counted from the version's, 0, replaced. */
static void expect_refused(int place, const char *number)
{
    const char *records = rules_records("drop"), *at = records;
    char changed[RECORDS_MOST];

    for (int i = 0; i < place; ++i)
        at = strchr(at, ' ') + 1;
    snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - records), records, number,
             strchr(at, ' '));
    expect_error(changed, "damaged");
}

static void test_each_number_has_bounds(void)
{
    static const struct {
        int place;
        const char *number;
    } wrong[] = {
        {1, "10000000000000000"},
        {1, "-1"},
        {1, "0x1"},
        {1, "A"},
        {2, "0"},
        {2, "10001"},
        {3, "21"},
        {3, "2"}, /* rules */
        {4, "6"},
        {5, "5"},
        {5, "1"},
        {6, "5"}, /* words */
        {7, "0"},
        {7, "4"},
        {8, "2"},
        {9, "1000000"},
        {10, "2"},
        {11, "1000000"},
        {12, "1000000"},
        {13, "2"},
        {18, "8"},
        {19, "100000001"},
        {20, "100000000"},
        {21, "100000000"},
        {22, "100000000"},
        {23, "1"}, /* above most */
        {24, "df8475801"},
        {25, "0"},
        {25, "10001"},
        {26, "df8475801"},
        {27, "0"},
        {27, "11"},
        {28, "2"},
        {29, "1043"},
        {30, "2"},
        {30, "1"},
        {31, "1044"},
        {32, "2"},
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); ++i)
        expect_refused(wrong[i].place, wrong[i].number);
}

static void test_numbers_stand_between_single_spaces(void)
{
    const char *records = rules_records("drop");
    char changed[RECORDS_MOST];

    expect_refused(20, "");
    expect_refused(20, "g");
    for (const char *at = records; (at = strchr(at, ' ')); ++at) {
        snprintf(changed, sizeof(changed), "%s", records);
        changed[at - records] = '\t';
        expect_error(changed, "damaged");
    }
}

/* The text, and with it the words of each rule, are those of the first. */
static void test_more_rules_than_there_is_room_for(void)
{
    const char *records = rules_records("drop"), *rule = strstr(records, " 1 0 0 ") + 3;
    int length = (int)(strchr(records, '|') - rule);
    struct vb_fault_rules rules;
    char many[RECORDS_MOST];

    for (unsigned count = VB_FAULT_RULES; count <= VB_FAULT_RULES + 1; ++count) {
        size_t used = (size_t)snprintf(many, sizeof(many), "1 1 400 %x ", count);

        for (unsigned i = 0; i < count; ++i)
            used += (size_t)snprintf(many + used, sizeof(many) - used, "%.*s", length, rule);
        snprintf(many + used, sizeof(many) - used, "|drop");
        if (count == VB_FAULT_RULES)
            CHECK_EQ(vb_wrap_fault_read(many, &rules, NULL, 0), 0);
        else
            expect_error(many, "damaged at character 8");
    }
}

static void test_words_that_are_too_long(void)
{
    struct vb_fault_rules rules;
    char records[2 * VB_FAULT_TEXT] = "1 1 400 0 |";
    size_t begin = strlen(records);

    memset(records + begin, ' ', VB_FAULT_TEXT - 1);
    CHECK_EQ(vb_wrap_fault_read(records, &rules, NULL, 0), 0);
    records[begin + VB_FAULT_TEXT - 1] = ' ';
    expect_error(records, "damaged at character 0");
}

static void test_an_error_fits_any_buffer(void)
{
    struct vb_fault_rules rules;
    char error[300];

    for (size_t size = 0; size < 200; ++size) {
        memset(error, 'x', sizeof(error));
        CHECK_EQ(vb_wrap_fault_read("drop", &rules, error, size), -EINVAL);
        CHECK_EQ(error[size], 'x');
        CHECK(size == 0 || memchr(error, '\0', size));
    }
}

/* ---- opcodes ---- */

static bool has(const char *name, uint8_t opcode, uint8_t syndrome)
{
    uint8_t header[VB_HEADERS_MAX] = {opcode};
    struct vb_fault_rules rules;
    char words[64];

    snprintf(words, sizeof(words), "drop opcode=%s", name);
    rules = rules_of(words);
    header[VB_BTH] = syndrome;
    return vb_wrap_fault_has_opcode(&rules.rule[0].opcodes, header,
                                    vb_opcodes[opcode].header_length);
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
    RUN(test_words_are_no_records);
    RUN(test_another_version_is_named);
    RUN(test_each_missing_end_is_noticed);
    RUN(test_each_number_has_bounds);
    RUN(test_numbers_stand_between_single_spaces);
    RUN(test_more_rules_than_there_is_room_for);
    RUN(test_words_that_are_too_long);
    RUN(test_an_error_fits_any_buffer);
    RUN(test_classes_of_requests);
    RUN(test_classes_of_responses);
    RUN(test_kinds_of_acknowledge);
    RUN(test_own_names);
    return 0;
}
