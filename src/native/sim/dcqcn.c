// SPDX-License-Identifier: Apache-2.0
/*
 * DCQCN's reaction point. congestion.c calls it for packets sent and for notifications. The two
 * timers have no events: each call first computes their expiries since the last call.
 */
#include "sim/dcqcn.h"

static uint32_t dcqcn_smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Fast recovery, additive increase or hyper increase; each halves the distance to the target. */
static void raise_rate(struct vb_dcqcn *state, const struct vb_dcqcn_config *config, double line)
{
    uint32_t both = dcqcn_smaller(state->time_steps, state->byte_steps);
    uint32_t either = state->time_steps > state->byte_steps ? state->time_steps : state->byte_steps;

    if (both >= config->fast_steps)
        state->target += config->fast_add_rate * (both - config->fast_steps + 1);
    else if (either >= config->fast_steps)
        state->target += config->add_rate;
    if (state->target > line)
        state->target = line;
    state->rate = (state->rate + state->target) / 2;
    state->raised = true;
    if (line - state->rate < config->least_rate / 1024)
        state->rate = 0; /* the line's rate: no limit, and nothing is counted */
}

/* Applies the expiries of the timers up to now. */
static void dcqcn_catch_up(struct vb_dcqcn *state, const struct vb_dcqcn_config *config,
                           double line, uint64_t now)
{
    while (state->alpha_at <= now && state->alpha > 1e-9) {
        state->alpha *= 1 - config->gain;
        state->alpha_at += config->alpha_interval;
    }
    if (state->alpha_at <= now)
        state->alpha_at = now + config->alpha_interval;
    while (state->rate > 0 && state->raise_at <= now) {
        ++state->time_steps;
        state->raise_at += config->raise_interval;
        raise_rate(state, config, line);
    }
}

static void dcqcn_restart(struct vb_dcqcn *state, const struct vb_dcqcn_config *config,
                          uint64_t now)
{
    state->time_steps = state->byte_steps = 0;
    state->bytes_left = config->raise_bytes;
    state->raise_at = now + config->raise_interval;
    state->alpha_at = now + config->alpha_interval;
}

static void dcqcn_cut(struct vb_dcqcn *state, const struct vb_dcqcn_config *config)
{
    double factor = 1 - state->alpha / 2;

    if (factor < config->least_factor)
        factor = config->least_factor;
    if (state->raised || config->target_clamped)
        state->target = state->rate;
    state->raised = false;
    state->rate *= factor;
    if (state->rate < config->least_rate)
        state->rate = config->least_rate;
}

void vb_sim_dcqcn_notice(struct vb_dcqcn *state, const struct vb_dcqcn_config *config, double line,
                         uint64_t now)
{
    if (!state->cut_at) {
        state->alpha = 1;
        state->alpha_at = now + config->alpha_interval;
    }
    if (state->cut_at && now < state->cut_at + config->cut_interval)
        return;
    dcqcn_catch_up(state, config, line, now);
    if (state->rate <= 0) {
        state->rate = line;
        state->raised = true;
    }
    dcqcn_cut(state, config);
    state->alpha = (1 - config->gain) * state->alpha + config->gain;
    dcqcn_restart(state, config, now);
    state->cut_at = now ? now : 1;
}

void vb_sim_dcqcn_sent(struct vb_dcqcn *state, const struct vb_dcqcn_config *config, double line,
                       uint32_t bytes, uint64_t now)
{
    if (state->rate <= 0)
        return;
    dcqcn_catch_up(state, config, line, now);
    if (bytes < state->bytes_left) {
        state->bytes_left -= bytes;
        return;
    }
    state->bytes_left = config->raise_bytes;
    ++state->byte_steps;
    raise_rate(state, config, line);
}

double vb_sim_dcqcn_rate(struct vb_dcqcn *state, const struct vb_dcqcn_config *config, double line,
                         uint64_t now)
{
    if (state->rate <= 0)
        return line;
    dcqcn_catch_up(state, config, line, now);
    return state->rate > 0 ? state->rate : line;
}
