// SPDX-License-Identifier: Apache-2.0
#include "port/sim/cct.h"

/* What the timer did up to now. */
static void catch_up(struct vb_cct *state, const struct vb_cct_config *config, uint64_t now)
{
    while (state->index && state->falls_at <= now) {
        --state->index;
        state->falls_at += config->timer;
    }
}

void vb_cct_notice(struct vb_cct *state, const struct vb_cct_config *config, uint64_t now)
{
    catch_up(state, config, now);
    if (!state->index)
        state->falls_at = now + config->timer;
    state->index += config->increase;
    if (state->index > config->limit)
        state->index = config->limit;
}

double vb_cct_rate(struct vb_cct *state, const struct vb_cct_config *config, uint64_t now)
{
    catch_up(state, config, now);
    return 1 / (1 + config->gap[state->index]);
}
