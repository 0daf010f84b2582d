// SPDX-License-Identifier: Apache-2.0
/*
 * DCQCN's settings, for tests of simulated hosts: those of the paper, and an adapter's defaults.
 * They are the values of _world_congestion.pxi, which has them for worlds: test_dcqcn_sets.py.
 */
#ifndef VB_TESTS_DCQCN_SETS_H
#define VB_TESTS_DCQCN_SETS_H

#include "sim/dcqcn.h"

static inline struct vb_dcqcn_config dcqcn_paper(void)
{
    return (struct vb_dcqcn_config){
        .gain = 1.0 / 256,
        .alpha_interval = 55000000,
        .raise_interval = 55000000,
        .raise_bytes = 10000000,
        .fast_steps = 5,
        .add_rate = 40e6,
        .fast_add_rate = 200e6,
        .least_rate = 40e6,
        .least_factor = 0.5,
        .cut_interval = 0,
        .target_clamped = true,
    };
}

static inline struct vb_dcqcn_config dcqcn_adapter(void)
{
    return (struct vb_dcqcn_config){
        .gain = 5.0 / 1024, /* DCE_TCP_G 1019 of 1024 */
        .alpha_interval = 1000000,
        .raise_interval = 300000000,
        .raise_bytes = 32767 * 64,
        .fast_steps = 1,
        .add_rate = 5e6,
        .fast_add_rate = 50e6,
        .least_rate = 1e6,
        .least_factor = 0.5,
        .cut_interval = 4000000,
        .target_clamped = false,
    };
}

#endif
