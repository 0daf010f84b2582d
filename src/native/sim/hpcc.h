// SPDX-License-Identifier: Apache-2.0
/*
 * HPCC's sender (Li et al., SIGCOMM 2019): each acknowledgement carries the telemetry of a packet's
 * route, and the window follows the utilisation of the busiest link. nic.c calls this.
 */
#ifndef VB_SIM_HPCC_H
#define VB_SIM_HPCC_H

#include <stdbool.h>
#include <stdint.h>

#include "event/telemetry.h"

enum {
    VB_HPCC_BYTES = 42
}; /* bytes of telemetry in a packet or acknowledgement, as for five hops */

struct vb_hpcc_config {
    uint64_t base_rtt; /* ps (T): the round trip without queues */
    double target;     /* eta: utilisation of the busiest link */
    double add;        /* W_AI, bytes */
    uint32_t stages;   /* maxStage: additive steps before the next multiplicative one */
};

struct vb_hpcc {
    double window;    /* bytes (W); 0: no packet was sent yet */
    double reference; /* W_c */
    double used;      /* U */
    uint32_t stage;
    uint64_t update_at; /* W_c is updated by telemetry of packets sent after this time */
    struct vb_world_telemetry last;     /* of the last acknowledgement */
    struct vb_world_telemetry received; /* of the last packet that arrived, for acknowledgements */
};

/* Sets the window to the bandwidth-delay product of a link of `line` bits/s. */
void vb_sim_hpcc_start(struct vb_hpcc *state, const struct vb_hpcc_config *config, double line);
/* An acknowledgement carried this telemetry. */
void vb_sim_hpcc_acknowledged(struct vb_hpcc *state, const struct vb_hpcc_config *config,
                              double line, const struct vb_world_telemetry *telemetry,
                              uint64_t now);
/* The window in packets of `bytes` each, rounded up, between 1 and `most`. */
uint32_t vb_sim_hpcc_packets(const struct vb_hpcc *state, uint32_t bytes, uint32_t most);
/* The window per base round trip, in bits/s. */
double vb_sim_hpcc_rate(const struct vb_hpcc *state, const struct vb_hpcc_config *config);

#endif
