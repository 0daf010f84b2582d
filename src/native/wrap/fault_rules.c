// SPDX-License-Identifier: Apache-2.0
/*
 * Reads and checks the records of fault rules (fault_rules.h). dropin calls it once for each
 * device, and wrap.c for each new set of rules. A record that is damaged is refused as a whole.
 */
#include "wrap/fault_rules.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/number.h"
#include "wire/headers.h"

#define ALWAYS  (UINT64_C(1) << 32)
#define LONGEST UINT64_C(60000000000) /* ns */

enum { LARGEST_PACKET = VB_HEADERS_MAX + 4096 + 3, MOST_COPIES = 16 };

static bool take_bool(struct vb_number_reader *reader)
{
    return vb_memory_number_take(reader, 0, 1);
}

static uint32_t take_32(struct vb_number_reader *reader, uint32_t least, uint32_t most)
{
    return (uint32_t)vb_memory_number_take(reader, least, most);
}

static void read_opcodes(struct vb_number_reader *reader, struct vb_fault_opcodes *opcodes)
{
    opcodes->constrained = take_bool(reader);
    for (int i = 0; i < 4; ++i)
        opcodes->set[i] = vb_memory_number_take(reader, 0, UINT64_MAX);
    opcodes->answers =
        (uint8_t)vb_memory_number_take(reader, 0, VB_FAULT_ACK | VB_FAULT_RNR | VB_FAULT_NAK);
}

/* `text`: the length of the text behind all records. */
static void read_rule(struct vb_number_reader *reader, uint32_t text, struct vb_fault_rule *rule)
{
    rule->action = (enum vb_fault_action)vb_memory_number_take(reader, 0, VB_FAULT_ACTIONS - 1);
    rule->text = (uint16_t)vb_memory_number_take(reader, 0, text);
    rule->text_length = (uint16_t)vb_memory_number_take(reader, 0, text - rule->text);
    rule->directions = (uint8_t)vb_memory_number_take(reader, 1, (1 << VB_WRAP_DIRECTIONS) - 1);
    rule->has_qp = take_bool(reader);
    rule->qp = take_32(reader, 0, VB_QPN_MASK);
    rule->has_psn = take_bool(reader);
    rule->psn_first = take_32(reader, 0, VB_PSN_MASK);
    rule->psn_last = take_32(reader, 0, VB_PSN_MASK);
    read_opcodes(reader, &rule->opcodes);
    rule->chance = vb_memory_number_take(reader, 0, ALWAYS);
    rule->nth = vb_memory_number_take(reader, 0, UINT32_MAX);
    rule->every = vb_memory_number_take(reader, 0, UINT32_MAX);
    rule->limit = vb_memory_number_take(reader, 0, UINT32_MAX);
    rule->delay_least = vb_memory_number_take(reader, 0, LONGEST);
    rule->delay_most = vb_memory_number_take(reader, rule->delay_least, LONGEST);
    rule->by = take_32(reader, 1, VB_FAULT_HOLD_MOST);
    rule->within = vb_memory_number_take(reader, 0, LONGEST);
    rule->copies = take_32(reader, 1, MOST_COPIES);
    rule->has_offset = take_bool(reader);
    rule->offset = take_32(reader, 0, LARGEST_PACKET - 1);
    rule->has_length = take_bool(reader);
    rule->length = take_32(reader, rule->has_length ? VB_BTH : 0, LARGEST_PACKET);
    rule->good_icrc = take_bool(reader);
}

int vb_wrap_fault_read(const char *records, struct vb_fault_rules *rules, char *error, size_t size)
{
    const char *words = records ? strchr(records, '|') : NULL;
    uint32_t length = words ? (uint32_t)strnlen(words + 1, VB_FAULT_TEXT) : 0;
    struct vb_number_reader reader = {records, !words || length == VB_FAULT_TEXT};

    *rules = (struct vb_fault_rules){.seed = 1, .hold = VB_FAULT_HOLD};
    if (!records || !*records)
        return 0;
    if (vb_memory_number_take(&reader, 0, UINT64_MAX) != VB_FAULT_VERSION && !reader.damaged) {
        snprintf(error, size, "are of another version of Verbena, which started the program");
        return -EINVAL;
    }
    rules->seed = vb_memory_number_take(&reader, 0, UINT64_MAX);
    rules->hold = take_32(&reader, 1, VB_FAULT_HOLD_MOST);
    rules->count = take_32(&reader, 0, VB_FAULT_RULES);
    for (uint32_t i = 0; i < rules->count && !reader.damaged; ++i)
        read_rule(&reader, length, &rules->rule[i]);
    if (reader.damaged || reader.at != words) {
        snprintf(error, size,
                 "are damaged at character %zu of %zu; they are made by `verbena run`, `verbena "
                 "env` or Python, and not by hand",
                 (size_t)(reader.at - records), strlen(records));
        return -EINVAL;
    }
    memcpy(rules->text, words + 1, length);
    return 0;
}
