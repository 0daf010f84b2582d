// SPDX-License-Identifier: Apache-2.0
/* Sums of the direct carrier's counters, and their names (counters.h). */
#include "direct/counters.h"

const char *const vb_direct_counter_names[VB_DIRECT_COUNTER_COUNT] = {
#define X(name, meaning) #name,
    VB_DIRECT_COUNTERS(X)
#undef X
};

void vb_direct_counts_add(const struct vb_direct_counts *from, struct vb_direct_counts *to)
{
    const uint64_t *source = (const uint64_t *)from;
    uint64_t *sum = (uint64_t *)to;

    for (int i = 0; i < VB_DIRECT_COUNTER_COUNT; ++i)
        __atomic_fetch_add(&sum[i], __atomic_load_n(&source[i], __ATOMIC_RELAXED),
                           __ATOMIC_RELAXED);
}

void vb_direct_counts_move(struct vb_direct_counts *from, struct vb_direct_counts *to)
{
    vb_direct_counts_add(from, to);
    *from = (struct vb_direct_counts){0};
}
