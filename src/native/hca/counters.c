// SPDX-License-Identifier: Apache-2.0
/*
 * The names of the packet engine's counters, in the order of struct vb_counters. Who shows counters
 * (verbena_describe, Python, sysfs) reads them from here.
 */
#include "hca/counters.h"

const struct vb_counter_name vb_counter_names[] = {
#define X(name, meaning) {#name, meaning},
    VB_COUNTERS(X)
#undef X
};

_Static_assert(sizeof(vb_counter_names) / sizeof(*vb_counter_names) == VB_COUNTER_COUNT,
               "a name for each");
