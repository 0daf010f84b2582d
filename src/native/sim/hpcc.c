// SPDX-License-Identifier: Apache-2.0
/*
 * HPCC's window. nic.c calls it. Two successive acknowledgements whose packets had the same route
 * give the utilisation of its busiest link.
 */
#include "sim/hpcc.h"

static const double BITS_PS = 8e12; /* bits in a byte, by picoseconds in a second */
static const double LEAST = 1e-3;   /* of the line's rate */

static double full(const struct vb_hpcc_config *config, double line)
{
    return line * (double)config->base_rtt / BITS_PS;
}

void vb_sim_hpcc_start(struct vb_hpcc *state, const struct vb_hpcc_config *config, double line)
{
    state->window = state->reference = full(config, line);
}

static bool is_same_way(const struct vb_world_telemetry *a, const struct vb_world_telemetry *b)
{
    if (a->hops != b->hops)
        return false;
    for (uint32_t i = 0; i < a->hops; ++i)
        if (a->hop[i].port != b->hop[i].port || a->hop[i].at <= b->hop[i].at)
            return false;
    return true;
}

/* MeasureInflight of the paper. */
static void hpcc_measure(struct vb_hpcc *state, const struct vb_hpcc_config *config,
                         const struct vb_world_telemetry *telemetry)
{
    double trip = (double)config->base_rtt, most = 0, since = trip;

    for (uint32_t i = 0; i < telemetry->hops; ++i) {
        const struct vb_world_telemetry_hop *now = &telemetry->hop[i], *then = &state->last.hop[i];
        double rate = (double)now->rate, time = (double)(now->at - then->at);
        double queue = now->queue < then->queue ? now->queue : then->queue;
        double used = queue * BITS_PS / (rate * trip) +
                      (double)(now->sent - then->sent) * BITS_PS / (time * rate);

        if (used <= most)
            continue;
        most = used;
        since = time;
    }
    if (since > trip)
        since = trip;
    state->used += since / trip * (most - state->used);
}

/* ComputeWind of the paper. */
static void hpcc_follow(struct vb_hpcc *state, const struct vb_hpcc_config *config, double line,
                        bool newer)
{
    bool cuts = state->used >= config->target || state->stage >= config->stages;
    double most = full(config, line), least = most * LEAST;

    state->window =
        config->add + (cuts ? state->reference * config->target / state->used : state->reference);
    if (state->window > most)
        state->window = most;
    if (state->window < least)
        state->window = least;
    if (!newer)
        return;
    state->stage = cuts ? 0 : state->stage + 1;
    state->reference = state->window;
}

void vb_sim_hpcc_acknowledged(struct vb_hpcc *state, const struct vb_hpcc_config *config,
                              double line, const struct vb_world_telemetry *telemetry, uint64_t now)
{
    bool newer = telemetry->sent_at >= state->update_at;

    if (is_same_way(telemetry, &state->last) && telemetry->hops) {
        hpcc_measure(state, config, telemetry);
        if (state->used > 0)
            hpcc_follow(state, config, line, newer);
    }
    state->last = *telemetry;
    if (newer)
        state->update_at = now;
}

uint32_t vb_sim_hpcc_packets(const struct vb_hpcc *state, uint32_t bytes, uint32_t most)
{
    double packets = state->window / bytes + 1;

    if (!most)
        most = 1;
    return packets < most ? (uint32_t)packets : most;
}

double vb_sim_hpcc_rate(const struct vb_hpcc *state, const struct vb_hpcc_config *config)
{
    return state->window * BITS_PS / (double)config->base_rtt;
}
