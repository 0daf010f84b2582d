// SPDX-License-Identifier: Apache-2.0
/*
 * DCQCN's reaction point (Zhu et al., SIGCOMM 2015): a sender cuts its rate at each notification,
 * by a fraction that follows the frequency of notifications (alpha), and raises it by a timer and a
 * byte counter. The timers have no events: each call computes their expiries first.
 */
#ifndef VB_SIM_DCQCN_H
#define VB_SIM_DCQCN_H

#include <stdbool.h>
#include <stdint.h>

struct vb_dcqcn_config {
    double gain;             /* g */
    uint64_t alpha_interval; /* ps without a notification after which alpha decreases */
    uint64_t raise_interval; /* ps; the timer T */
    uint64_t raise_bytes;    /* the byte counter B */
    uint32_t fast_steps;     /* F: steps of fast recovery */
    double add_rate;         /* bits/s (R_AI): additive increase of the target */
    double fast_add_rate;    /* bits/s (R_HAI): hyper increase */
    double least_rate;       /* bits/s */
    double least_factor;     /* a cut leaves at least this fraction of the rate */
    uint64_t cut_interval;   /* ps: the least time between cuts */
    bool target_clamped;     /* each cut sets the target, and not only the first after a raise */
};

struct vb_dcqcn {
    double rate, target; /* bits/s; rate 0: the line's rate */
    double alpha;
    uint64_t alpha_at, raise_at;     /* ps: the next expiries of the timers */
    uint64_t bytes_left;             /* of the byte counter */
    uint64_t cut_at;                 /* ps: the last cut; 0: none */
    uint32_t time_steps, byte_steps; /* raises by the timer and by bytes since the last cut */
    bool raised;                     /* since the last cut */
};

/* A notification arrived. `line`: the port's rate in bits/s. */
void vb_sim_dcqcn_notice(struct vb_dcqcn *state, const struct vb_dcqcn_config *config, double line,
                         uint64_t now);
/* So many bytes were sent. */
void vb_sim_dcqcn_sent(struct vb_dcqcn *state, const struct vb_dcqcn_config *config, double line,
                       uint32_t bytes, uint64_t now);
/* The rate now, in bits/s. */
double vb_sim_dcqcn_rate(struct vb_dcqcn *state, const struct vb_dcqcn_config *config, double line,
                         uint64_t now);

#endif
