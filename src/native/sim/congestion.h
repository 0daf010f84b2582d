// SPDX-License-Identifier: Apache-2.0
/*
 * Congestion control of a sender. Each connection has a struct vb_rate. nic.c calls this for
 * packets and notifications; it returns the rate at which the connection may send.
 */
#ifndef VB_SIM_CONGESTION_H
#define VB_SIM_CONGESTION_H

#include "sim/cct.h"
#include "sim/dcqcn.h"
#include "sim/hpcc.h"
#include "wire/headers.h"

enum vb_congestion_kind {
    VB_CONGESTION_NONE = 0,
    VB_CONGESTION_DCQCN,
    VB_CONGESTION_CCT,
    VB_CONGESTION_HPCC,
};

struct vb_congestion {
    enum vb_congestion_kind kind;
    uint64_t notice_interval; /* ps between a connection's notifications; 0: one for each mark */
    union {
        struct vb_dcqcn_config dcqcn;
        struct vb_cct_config cct;
        struct vb_hpcc_config hpcc;
    };
};

struct vb_rate {
    union {
        struct vb_dcqcn dcqcn;
        struct vb_cct cct;
        struct vb_hpcc *hpcc; /* NULL: a UC or UD connection, which has no telemetry */
    };
};

enum { VB_CNP = VB_BTH + VB_CNP_RESERVED };
static const uint32_t VB_CONGESTION_NOTICE = UINT32_MAX;

/*
 * A packet of this service level was sent. Returns the connection's rate in bits/s. Not for
 * VB_CONGESTION_NONE.
 */
double vb_sim_congestion_sent(const struct vb_congestion *congestion, struct vb_rate *rate,
                              uint32_t level, double line, uint32_t bytes, uint64_t now);
/* A notification arrived. True: InfiniBand logs the event (vb_cct_level.trigger). */
bool vb_sim_congestion_notice(const struct vb_congestion *congestion, struct vb_rate *rate,
                              uint32_t level, double line, uint64_t now);
/* A marked packet arrived: is a notification due? `noticed_at` is the time of the last one. */
bool vb_sim_congestion_is_notice_due(const struct vb_congestion *congestion, uint64_t *noticed_at,
                                     uint64_t now);
/*
 * Writes a CNP: a notification if `psn` is VB_CONGESTION_NOTICE. READ responses are not
 * acknowledged, so HPCC's telemetry of the packet with this PSN returns to the responder in a CNP,
 * too, which is no congestion notification.
 */
void vb_sim_congestion_write_cnp(uint8_t bytes[VB_CNP], uint16_t pkey, uint32_t dest_qp,
                                 uint32_t psn);
bool vb_sim_congestion_is_read_data(uint8_t opcode);
/* Does a packet carry telemetry back: an acknowledgement, or such a CNP? */
bool vb_sim_congestion_brings_telemetry(uint8_t opcode);

#endif
