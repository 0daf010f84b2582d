// SPDX-License-Identifier: Apache-2.0
/* The sums of all queue pairs' counters, as JSON and for the log (tally.h). */
#include "direct/tally.h"

#include <inttypes.h>
#include <pthread.h>
#include <time.h>

#include "direct/connection.h"
#include "direct/direct.h"

enum { PATIENCE_S = 1 };

/* No queue pair ends while this is held. A program that exits may have left it held for good. */
static bool hold_queue_pairs(struct vb_adapter *adapter)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    return vb_lock_take_until(&adapter->lifetime, &until);
}

static void add_queue_pairs(const struct vb_adapter *adapter, struct vb_direct_counts *sum)
{
    for (uint32_t i = 0; i < adapter->qp_pool.next; ++i) {
        const struct vb_qp *qp = __atomic_load_n(&adapter->qps[i], __ATOMIC_ACQUIRE);
        const struct vb_connection *to = qp ? vb_direct_connection_of(qp) : NULL;

        if (to)
            vb_direct_counts_add(&to->counts, sum);
    }
}

static void sum_up(struct vb_direct *direct, struct vb_direct_counts *sum)
{
    bool held = hold_queue_pairs(direct->adapter);

    *sum = (struct vb_direct_counts){0};
    vb_direct_counts_add(&direct->counts, sum);
    if (!held)
        return;
    add_queue_pairs(direct->adapter, sum);
    vb_lock_release(&direct->adapter->lifetime);
}

void vb_direct_counters_describe(struct vb_direct *direct, struct vb_text *text)
{
    struct vb_direct_counts sum;

    sum_up(direct, &sum);
    vb_text_add(text, "\"direct\":{");
    for (int i = 0; i < VB_DIRECT_COUNTER_COUNT; ++i)
        vb_text_add(text, "%s\"%s\":%" PRIu64, i ? "," : "", vb_direct_counter_names[i],
                    ((uint64_t *)&sum)[i]);
    vb_text_add(text, "}");
}

void vb_direct_tell_counters(struct vb_direct *direct,
                             void (*tell)(const char *part, const char *name, uint64_t value))
{
    struct vb_direct_counts sum;

    sum_up(direct, &sum);
    for (int i = 0; i < VB_DIRECT_COUNTER_COUNT; ++i)
        if (((uint64_t *)&sum)[i])
            tell("direct", vb_direct_counter_names[i], ((uint64_t *)&sum)[i]);
}
