// SPDX-License-Identifier: Apache-2.0
/*
 * InfiniBand's congestion control table at a sender. congestion.c calls it for packets sent and for
 * notifications. The timer has no events: each call first computes its expiries since the last
 * call.
 */
#include "sim/cct.h"

/* Applies the expiries of the timer up to now. */
static void cct_catch_up(struct vb_cct *state, const struct vb_cct_level *level, uint64_t now)
{
    while (state->index > level->min && state->falls_at <= now) {
        --state->index;
        state->falls_at += level->timer;
    }
    if (state->index < level->min)
        state->index = level->min;
}

bool vb_sim_cct_notice(struct vb_cct *state, const struct vb_cct_config *config, uint32_t level,
                       uint64_t now)
{
    const struct vb_cct_level *set = &config->level[level];
    uint32_t before;

    cct_catch_up(state, set, now);
    before = state->index;
    if (before == set->min)
        state->falls_at = now + set->timer;
    state->index += set->increase;
    if (state->index > config->limit)
        state->index = config->limit;
    return before < set->trigger && state->index >= set->trigger;
}

/* In packet times. */
static double cct_injection_delay(uint16_t entry)
{
    uint32_t shift = entry >> VB_CCT_MULTIPLIER_BITS;

    return (double)(entry & ((1 << VB_CCT_MULTIPLIER_BITS) - 1)) / (1 << shift);
}

double vb_sim_cct_rate(struct vb_cct *state, const struct vb_cct_config *config, uint32_t level,
                       uint64_t now)
{
    cct_catch_up(state, &config->level[level], now);
    return 1 / (1 + cct_injection_delay(config->entry[state->index]));
}
