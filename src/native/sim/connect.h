// SPDX-License-Identifier: Apache-2.0
/*
 * The port of an adapter that is plugged into a host of a simulated fabric (jack.h): the packet
 * engine between the queue pairs of ordinary verbs objects and packets that carry their bytes.
 *
 * There is no thread and no clock of its own. Who posts sends what may leave; everything else
 * happens in the world's events; who polls a completion queue in vain lets time go on.
 */
#ifndef VB_SIM_CONNECT_H
#define VB_SIM_CONNECT_H

#include <stddef.h>

#include "hca/adapter.h"
#include "port/address.h"
#include "sim/congestion.h"
#include "sim/jack.h"
#include "transport/timer.h"
#include "wrap/wrap.h"

struct vb_connect {
    struct vb_adapter adapter;
    struct vb_jack *jack;
    struct vb_plug plug;
    struct vb_engine *engine;
    struct vb_qp *held;               /* their packets wait for credits: the engine makes no more */
    struct vb_qp *attended;           /* requests that wait, or queues to flush */
    struct vb_timers paced;           /* of all connections (connect_state.h) */
    uint8_t telemetry;                /* enum vb_letter_telemetry, of the packet that leaves… */
    const struct vb_sim_trail *trail; /* …and what it brings back */
    struct vb_wrap wrap;              /* faults; after new rules, vb_sim_connect_wrapped */
    uint64_t leave_at;                /* of the packet that leaves (vb_letter) */
    uint64_t damaged;                 /* packets that came with a wrong ICRC */
};

/*
 * `heap`: memory for applications, or NULL; it stays the caller's. -EPROTO: the two sides are not
 * of one version; -EBUSY: an adapter is plugged in there; -ENOMEM, or what the system said.
 */
int vb_sim_connect_open(struct vb_jack *jack, struct vb_heap *heap, struct vb_connect **connect);
/* After the last QP is gone. */
void vb_sim_connect_close(struct vb_connect *connect);

static inline struct vb_connect *vb_sim_connect_of(const struct vb_adapter *adapter)
{
    return (struct vb_connect *)((char *)(uintptr_t)adapter - offsetof(struct vb_connect, adapter));
}

/* The next event of its world, if it is not after `until` (ps): as vb_jack_calls.step. With `until`
 * 0 it counts as a poll in vain. */
int vb_sim_connect_step(struct vb_connect *connect, uint64_t until);
uint64_t vb_sim_connect_now(const struct vb_connect *connect); /* ps */

/* There are new fault rules, and packets that were held may be due. */
void vb_sim_connect_wrapped(struct vb_connect *connect);

/* JSON as vb_roce_counters has it, and as vb_host_describe. Length as snprintf. */
int vb_sim_connect_counters(const struct vb_connect *connect, char *json, size_t size);
int vb_sim_connect_describe(struct vb_connect *connect, const char *device, char *json,
                            size_t size);

#endif
