// SPDX-License-Identifier: Apache-2.0
/*
 * InfiniBand's congestion control at the source (IBA A10): each notification moves the connection
 * up a table of gaps between packets, a timer moves it down again. The table belongs to the whole
 * channel adapter, how fast a connection moves in it to its service level.
 */
#ifndef VB_SIM_CCT_H
#define VB_SIM_CCT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    VB_CCT_ENTRIES = 128,
    VB_CCT_LEVELS = 16,
    VB_CCT_MULTIPLIER_BITS = 14,
    VB_CCT_LOG = 13, /* events that CongestionLog of a channel adapter has room for */
};

/* What CACongestionSetting has for a service level. */
struct vb_cct_level {
    uint64_t timer;   /* ps after which the index falls by one (CCTI_Timer * 1.024 us) */
    uint8_t increase; /* CCTI_Increase: steps for each notification */
    uint8_t min;      /* CCTI_Min: where the index begins, and what it does not fall below */
    uint8_t trigger;  /* Trigger_Threshold: an index that is logged when reached; 0: none is */
};

struct vb_cct_config {
    /* A shift (2 bits) and a multiplier: the injection rate delay is a packet's time, shifted to
     * the right and multiplied. */
    uint16_t entry[VB_CCT_ENTRIES];
    uint32_t limit; /* CCTI_Limit: the last index used */
    struct vb_cct_level level[VB_CCT_LEVELS];
};

struct vb_cct {
    uint32_t index; /* below the level's `min`: as `min` */
    uint64_t falls_at;
};

/* True: the index has come to the level's trigger. */
bool vb_sim_cct_notice(struct vb_cct *state, const struct vb_cct_config *config, uint32_t level,
                       uint64_t now);
/* The rate now, as a part of the line's. */
double vb_sim_cct_rate(struct vb_cct *state, const struct vb_cct_config *config, uint32_t level,
                       uint64_t now);

#endif
