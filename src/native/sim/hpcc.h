// SPDX-License-Identifier: Apache-2.0
/*
 * HPCC's sender (Li et al., SIGCOMM 2019): each acknowledgement tells what the links of the way had
 * sent and queued when the packet passed, and the window follows the busiest of them.
 */
#ifndef VB_SIM_HPCC_H
#define VB_SIM_HPCC_H

#include <stdbool.h>
#include <stdint.h>

#include "event/telemetry.h"

enum { VB_HPCC_BYTES = 42 }; /* of telemetry in packets and acknowledgements: five hops */

struct vb_hpcc_config {
    uint64_t base_rtt; /* T, ps: without queues */
    double target;     /* eta: utilisation of the busiest link */
    double add;        /* W_AI, bytes */
    uint32_t stages;   /* maxStage: additive steps before the next multiplicative one */
};

struct vb_hpcc {
    double window;    /* W, bytes; 0: nothing was sent yet */
    double reference; /* W_c */
    double used;      /* U */
    uint32_t stage;
    uint64_t update_at;             /* told of a packet sent since, the reference follows again */
    struct vb_world_telemetry last; /* of the last acknowledgement */
    struct vb_world_telemetry received; /* of the last packet that came, for acknowledgements */
};

/* The window that fills a link of `line` bits/s for a round trip. */
void vb_sim_hpcc_start(struct vb_hpcc *state, const struct vb_hpcc_config *config, double line);
/* The peer tells of a packet that it got. */
void vb_sim_hpcc_acknowledged(struct vb_hpcc *state, const struct vb_hpcc_config *config,
                              double line, const struct vb_world_telemetry *telemetry,
                              uint64_t now);
/* The packets of so many bytes that may be under way: those that its window begins. */
uint32_t vb_sim_hpcc_packets(const struct vb_hpcc *state, uint32_t bytes, uint32_t most);
/* bits/s: the window in a round trip. */
double vb_sim_hpcc_rate(const struct vb_hpcc *state, const struct vb_hpcc_config *config);

#endif
