// SPDX-License-Identifier: Apache-2.0
/* A fuzzing target: any text as records of fault rules (wrap/fault_rules.h). */
#include <stdlib.h>
#include <string.h>

#include "wrap/fault.h"

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
    require(rule->delay_most <= 60ull * 1000000000 && rule->copies <= 16);
    require(!rule->has_length || rule->length >= 12);
    require(rule->text + (size_t)rule->text_length < strlen(rules->text) + 1);
    vb_wrap_fault_has_opcode(&rule->opcodes, header, sizeof(header));
}

/* A packet meets the rules, and their words are told. */
static void judge(const struct vb_fault_rules *rules)
{
    static const uint8_t header[12] = {4};
    struct vb_fault_view view = {VB_WRAP_OUT, 1, header, sizeof(header)};
    struct vb_fault *fault;
    struct vb_fault_effect effect;
    char told[256];

    require(vb_wrap_fault_create(rules, &fault) == 0);
    if (vb_wrap_fault_apply(fault, &view, &effect))
        require(vb_wrap_fault_note(fault, effect.acted, told, sizeof(told)) > 0);
    require(vb_wrap_rules_text(fault, told, sizeof(told)) >= 0);
    vb_wrap_fault_destroy(fault);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vb_fault_rules rules;
    char error[200] = "";
    char *text = malloc(size + 1);

    require(text != NULL);
    memcpy(text, data, size);
    text[size] = 0;
    if (vb_wrap_fault_read(text, &rules, error, sizeof(error))) {
        require(error[0] && memchr(error, 0, sizeof(error)));
    } else {
        require(rules.count <= VB_FAULT_RULES && rules.hold <= VB_FAULT_HOLD_MOST);
        for (uint32_t i = 0; i < rules.count; ++i)
            check_rule(&rules, &rules.rule[i]);
        judge(&rules);
    }
    free(text);
    return 0;
}
