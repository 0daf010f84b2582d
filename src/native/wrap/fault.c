// SPDX-License-Identifier: Apache-2.0
/* Applies fault rules to one packet after the other (fault.h). wrap.c calls it under its mutex. */
#include "wrap/fault.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "hca/random.h"
#include "wire/headers.h"

static const char *const participles[VB_FAULT_ACTIONS] = {"dropped", "duplicated", "reordered",
                                                          "delayed", "corrupted",  "truncated"};

struct state {
    uint64_t random;
    struct vb_fault_count count;
};

struct vb_fault {
    struct vb_fault_rules rules;
    struct state state[VB_FAULT_RULES];
    uint64_t no_room;
};

int vb_wrap_fault_create(const struct vb_fault_rules *rules, struct vb_fault **fault)
{
    struct vb_fault *made = calloc(1, sizeof(*made));

    if (!made)
        return -ENOMEM;
    made->rules = *rules;
    for (uint32_t i = 0; i < rules->count; ++i) {
        uint64_t place = i;

        made->state[i].random = rules->seed ^ vb_random_mix(&place);
    }
    *fault = made;
    return 0;
}

void vb_wrap_fault_destroy(struct vb_fault *fault)
{
    free(fault);
}

static bool fault_in_range(uint32_t psn, uint32_t first, uint32_t last)
{
    return ((psn - first) & VB_PSN_MASK) <= ((last - first) & VB_PSN_MASK);
}

static bool matches(const struct vb_fault_rule *rule, const struct vb_fault_view *view)
{
    if (!(rule->directions >> view->direction & 1) || (rule->has_qp && rule->qp != view->qp_num))
        return false;
    if (view->length < VB_BTH)
        return !rule->has_psn && !rule->opcodes.constrained;
    if (rule->has_psn &&
        !fault_in_range(vb_wire_bth_read(view->bytes).psn, rule->psn_first, rule->psn_last))
        return false;
    return vb_wrap_fault_has_opcode(&rule->opcodes, view->bytes, view->length);
}

/*
 * Does the rule act on this match? A random number is drawn at each match, also where something
 * else decides, so that the numbers depend on the matches alone.
 */
static bool decides(const struct vb_fault_rule *rule, struct state *state)
{
    uint64_t number = ++state->count.matched;
    bool lucky = vb_random_mix(&state->random) >> 32 < rule->chance;

    if (rule->limit && state->count.acted == rule->limit)
        return false;
    if ((rule->nth && number != rule->nth) || (rule->every && number % rule->every))
        return false;
    return lucky;
}

static uint64_t greater(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void add_delay(const struct vb_fault_rule *rule, uint64_t random,
                      struct vb_fault_effect *effect)
{
    effect->delay += rule->delay_least + random % (rule->delay_most - rule->delay_least + 1);
}

static void act(const struct vb_fault_rule *rule, uint64_t random, struct vb_fault_effect *effect)
{
    effect->acted = rule;
    switch (rule->action) {
    case VB_FAULT_DROP:
        effect->drop = true;
        break;
    case VB_FAULT_DUPLICATE:
        effect->copies += rule->copies;
        break;
    case VB_FAULT_REORDER:
        effect->by = (uint32_t)greater(effect->by, rule->by);
        effect->within = greater(effect->within, rule->within);
        break;
    case VB_FAULT_DELAY:
        add_delay(rule, random, effect);
        break;
    case VB_FAULT_CORRUPT:
        effect->corrupt = true;
        effect->has_offset = rule->has_offset;
        effect->offset = rule->offset;
        effect->corrupt_icrc_good = rule->good_icrc;
        break;
    default:
        effect->truncate = true;
        effect->has_length = rule->has_length;
        effect->length = rule->length;
        effect->truncate_icrc_good = rule->good_icrc;
    }
}

bool vb_wrap_fault_apply(struct vb_fault *fault, const struct vb_fault_view *view,
                         struct vb_fault_effect *effect)
{
    bool acted = false;

    for (uint32_t i = 0; i < fault->rules.count && !(acted && effect->drop); ++i) {
        const struct vb_fault_rule *rule = &fault->rules.rule[i];
        struct state *state = &fault->state[i];

        if (!matches(rule, view) || !decides(rule, state))
            continue;
        if (!acted)
            *effect = (struct vb_fault_effect){0};
        acted = true;
        ++state->count.acted;
        effect->random ^= vb_random_mix(&state->random);
        act(rule, effect->random, effect);
    }
    return acted;
}

void vb_wrap_fault_no_room(struct vb_fault *fault)
{
    ++fault->no_room;
}

const struct vb_fault_rules *vb_wrap_fault_rules(const struct vb_fault *fault)
{
    return &fault->rules;
}

struct vb_fault_count vb_wrap_fault_count(const struct vb_fault *fault, uint32_t rule)
{
    return fault->state[rule].count;
}

/* ---- text ---- */

static char *room(char *text, size_t size, size_t used)
{
    return used < size ? text + used : NULL;
}

static size_t left(size_t size, size_t used)
{
    return used < size ? size - used : 0;
}

int vb_wrap_rules_text(const struct vb_fault *fault, char *text, size_t size)
{
    const struct vb_fault_rules *rules = &fault->rules;
    size_t used = 0;

    if (size)
        *text = '\0';
    for (uint32_t i = 0; i < rules->count; ++i) {
        const struct vb_fault_rule *rule = &rules->rule[i];
        const struct vb_fault_count *count = &fault->state[i].count;

        used +=
            (size_t)snprintf(room(text, size, used), left(size, used),
                             "%.*s: matched %" PRIu64 ", acted %" PRIu64 "\n", rule->text_length,
                             rules->text + rule->text, count->matched, count->acted);
    }
    if (fault->no_room)
        used += (size_t)snprintf(room(text, size, used), left(size, used),
                                 "no room to hold, passed unharmed: %" PRIu64 "\n", fault->no_room);
    return (int)used;
}

int vb_wrap_fault_note(const struct vb_fault *fault, const struct vb_fault_rule *rule, char *text,
                       size_t size)
{
    return snprintf(text, size, "%s by the fault rule: %.*s", participles[rule->action],
                    rule->text_length, fault->rules.text + rule->text);
}
