// SPDX-License-Identifier: Apache-2.0
/* A fuzzing target: any text as the rules of faults (docs/faults.md). */
#include <stdlib.h>
#include <string.h>

#include "port/wrap/fault_rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_rule(const struct vb_fault_rules *rules, const struct vb_fault_rule *rule)
{
    static const uint8_t header[12] = {4};

    require(rule->action < VB_FAULT_ACTIONS && rule->directions < 1 << VB_WRAP_DIRECTIONS);
    require(rule->chance <= 1ull << 32 && rule->delay_least <= rule->delay_most);
    require(rule->text + (size_t)rule->text_length < strlen(rules->text) + 1);
    require(vb_fault_verb(rule->action) && vb_fault_participle(rule->action));
    vb_fault_has_opcode(&rule->opcodes, header, sizeof(header));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vb_fault_rules rules;
    char error[200] = "";
    char *text = malloc(size + 1);

    require(text != NULL);
    memcpy(text, data, size);
    text[size] = 0;
    if (vb_fault_parse(text, &rules, error, sizeof(error))) {
        require(error[0] && memchr(error, 0, sizeof(error)));
    } else {
        require(rules.count <= VB_FAULT_RULES && rules.hold <= VB_FAULT_HOLD_MOST);
        for (uint32_t i = 0; i < rules.count; ++i)
            check_rule(&rules, &rules.rule[i]);
    }
    free(text);
    return 0;
}
