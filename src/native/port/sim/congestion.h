// SPDX-License-Identifier: Apache-2.0
/* A sender's reaction to congestion, for each connection: which rate it may send at. */
#ifndef VB_PORT_SIM_CONGESTION_H
#define VB_PORT_SIM_CONGESTION_H

#include "port/sim/cct.h"
#include "port/sim/dcqcn.h"
#include "port/sim/hpcc.h"

enum vb_congestion_kind {
    VB_CONGESTION_NONE = 0,
    VB_CONGESTION_DCQCN,
    VB_CONGESTION_CCT,
    VB_CONGESTION_HPCC,
};

struct vb_congestion {
    enum vb_congestion_kind kind;
    uint64_t notice_interval; /* ps between notifications of one connection */
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
        struct vb_hpcc *hpcc;
    };
};

#endif
