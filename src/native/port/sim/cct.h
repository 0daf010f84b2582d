// SPDX-License-Identifier: Apache-2.0
/*
 * InfiniBand's congestion control at the source (IBA A10): each notification moves the connection
 * up a table of gaps between packets, a timer moves it down again.
 */
#ifndef VB_PORT_SIM_CCT_H
#define VB_PORT_SIM_CCT_H

#include <stdint.h>

enum { VB_CCT_ENTRIES = 128 };

struct vb_cct_config {
    double gap[VB_CCT_ENTRIES]; /* the injection rate delay, in packet times */
    uint32_t limit;             /* CCTI_Limit: the last index used */
    uint32_t increase;          /* CCTI_Increase: steps for each notification */
    uint64_t timer;             /* ps after which the index falls by one (CCTI_Timer * 1.024 us) */
};

struct vb_cct {
    uint32_t index;
    uint64_t falls_at;
};

void vb_cct_notice(struct vb_cct *state, const struct vb_cct_config *config, uint64_t now);
/* The rate now, as a part of the line's. */
double vb_cct_rate(struct vb_cct *state, const struct vb_cct_config *config, uint64_t now);

#endif
