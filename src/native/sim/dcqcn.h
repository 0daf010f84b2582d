// SPDX-License-Identifier: Apache-2.0
/*
 * DCQCN's reaction point (Zhu et al., SIGCOMM 2015): a sender cuts its rate at each notification,
 * by as much as it has had notifications lately, and raises it with time and bytes. What its
 * timers would have done is worked out when the rate is next asked for: it needs no events.
 */
#ifndef VB_SIM_DCQCN_H
#define VB_SIM_DCQCN_H

#include <stdbool.h>
#include <stdint.h>

struct vb_dcqcn_config {
    double gain;             /* g: how fast alpha follows */
    uint64_t alpha_interval; /* ps without a notification after which alpha falls */
    uint64_t raise_interval; /* ps; the timer T */
    uint64_t raise_bytes;    /* the byte counter B */
    uint32_t fast_steps;     /* F: steps of fast recovery */
    double add_rate;         /* bits/s by which the target rises when time or bytes are due */
    double fast_add_rate;    /* bits/s by which it rises when both are due */
    double least_rate;       /* bits/s */
    double least_factor;     /* a cut leaves at least this part of the rate */
    uint64_t cut_interval;   /* ps between cuts */
    bool target_clamped;     /* each cut sets the target, not only the first after a raise */
};

/* The values of the paper, and those that ConnectX adapters come with. */
struct vb_dcqcn_config vb_sim_dcqcn_paper(void);
struct vb_dcqcn_config vb_sim_dcqcn_adapter(void);

struct vb_dcqcn {
    double rate, target; /* bits/s; rate 0: never notified, the line's rate */
    double alpha;
    uint64_t alpha_at, raise_at; /* when their timers expire next */
    uint64_t bytes_left;         /* of the byte counter */
    uint64_t cut_at;
    uint32_t time_steps, byte_steps;
    bool raised;
};

void vb_sim_dcqcn_notice(struct vb_dcqcn *state, const struct vb_dcqcn_config *config, double line,
                         uint64_t now);
/* So many bytes were sent. */
void vb_sim_dcqcn_sent(struct vb_dcqcn *state, const struct vb_dcqcn_config *config, double line,
                       uint32_t bytes, uint64_t now);
/* The rate now, in bits/s. */
double vb_sim_dcqcn_rate(struct vb_dcqcn *state, const struct vb_dcqcn_config *config, double line,
                         uint64_t now);

#endif
