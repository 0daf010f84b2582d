// SPDX-License-Identifier: Apache-2.0
/*
 * The HCA of a program on a simulated host, with up to two ports (attachment.h): the packet engine
 * between the queue pairs of ordinary verbs objects and packets that carry their bytes.
 *
 * It has no thread and no clock. A thread that posts also sends what may leave; everything else
 * happens in the world's events; who polls a completion queue in vain lets time go on.
 */
#ifndef VB_SIM_HCA_H
#define VB_SIM_HCA_H

#include <stddef.h>

#include "hca/adapter.h"
#include "port/address.h"
#include "sim/attachment.h"
#include "sim/congestion.h"
#include "transport/timer.h"
#include "wrap/wrap.h"

struct vb_sim_hca {
    struct vb_adapter adapter;
    struct vb_sim_attachment *attachment;
    struct vb_sim_hca_calls calls;
    struct vb_engine *engine;
    struct vb_qp *held;     /* their packets wait for credits: the engine makes no more */
    struct vb_qp *attended; /* requests that wait, or queues to flush */
    struct vb_timers paced; /* of all connections (hca_state.h) */
    uint8_t telemetry_mode; /* enum vb_sim_telemetry_mode of the packet that leaves */
    const struct vb_world_telemetry *telemetry; /* what the packet that leaves brings back */
    struct vb_wrap wrap;                        /* faults; after new rules, vb_sim_hca_wrapped */
    uint64_t leave_at;                          /* of the packet that leaves (vb_sim_wire_packet) */
    uint64_t damaged;                           /* packets that came with a wrong ICRC */
};

/*
 * `heap`: memory for applications, or NULL; it stays the caller's. -EPROTO: the two sides are not
 * of one version; -EBUSY: an adapter is plugged in there; -ENOMEM, or what the system said.
 */
int vb_sim_hca_open(struct vb_sim_attachment *attachment, struct vb_heap *heap,
                    struct vb_sim_hca **hca);
/* Called after the last QP is gone. */
void vb_sim_hca_close(struct vb_sim_hca *hca);

static inline struct vb_sim_hca *vb_sim_hca_of(const struct vb_adapter *adapter)
{
    return (struct vb_sim_hca *)((char *)(uintptr_t)adapter - offsetof(struct vb_sim_hca, adapter));
}

/* The next event of its world, if it is not after `until` (ps): as vb_sim_attachment_calls.step.
 * With `until` 0 it counts as a poll in vain. */
int vb_sim_hca_step(struct vb_sim_hca *hca, uint64_t until);
uint64_t vb_sim_hca_now(const struct vb_sim_hca *hca); /* ps */

/* There are new fault rules, and packets that were held may be due. */
void vb_sim_hca_wrapped(struct vb_sim_hca *hca);

/* JSON as vb_roce_counters has it, and as vb_host_describe. Length as snprintf. */
int vb_sim_hca_counters(const struct vb_sim_hca *hca, char *json, size_t size);
int vb_sim_hca_describe(struct vb_sim_hca *hca, const char *device, char *json, size_t size);

#endif
