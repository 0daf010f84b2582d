// SPDX-License-Identifier: Apache-2.0
/*
 * InfiniBand's congestion control at the source (IBA A10): each notification increases a
 * connection's index in a table of injection rate delays, and a timer decreases it. The table is
 * the channel adapter's; the increase and the timer are the service level's. congestion.c calls
 * this.
 */
#ifndef VB_SIM_CCT_H
#define VB_SIM_CCT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    VB_CCT_ENTRIES = 128,
    VB_CCT_LEVELS = 16,
    VB_CCT_MULTIPLIER_BITS = 14,
    VB_CCT_LOG = 13, /* entries of a channel adapter's CongestionLog */
};

/* The entry of CACongestionSetting for a service level. */
struct vb_cct_level {
    uint64_t timer;   /* ps after which the index is decremented (CCTI_Timer * 1.024 us) */
    uint8_t increase; /* CCTI_Increase: added for each notification */
    uint8_t min;      /* CCTI_Min: the first and the least index */
    uint8_t trigger;  /* Trigger_Threshold: reaching this index is logged; 0: never */
};

struct vb_cct_config {
    /* A shift (2 bits) and a multiplier: the injection rate delay is a packet's time, shifted to
     * the right by the one and multiplied by the other. */
    uint16_t entry[VB_CCT_ENTRIES];
    uint32_t limit; /* CCTI_Limit: the last index used */
    struct vb_cct_level level[VB_CCT_LEVELS];
};

struct vb_cct {
    uint32_t index;    /* less than `min` means `min` */
    uint64_t falls_at; /* ps: the next expiry of the timer */
};

/* A notification arrived. True: the index has reached the trigger. */
bool vb_sim_cct_notice(struct vb_cct *state, const struct vb_cct_config *config, uint32_t level,
                       uint64_t now);
/* The rate now, as a fraction of the line's. */
double vb_sim_cct_rate(struct vb_cct *state, const struct vb_cct_config *config, uint32_t level,
                       uint64_t now);

#endif
