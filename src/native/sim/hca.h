// SPDX-License-Identifier: Apache-2.0
/*
 * The HCA of a program on a simulated host, with up to two ports (attachment.h): the packet engine
 * between the queue pairs of ordinary verbs objects and packets that carry their bytes.
 *
 * It has no thread and no clock. Posting sends the packets that may leave; everything else happens
 * in events of the fabric, and polling an empty completion queue lets them be handled.
 */
#ifndef VB_SIM_HCA_H
#define VB_SIM_HCA_H

#include <stddef.h>

#include "hca/adapter.h"
#include "port/address.h"
#include "sim/attachment.h"
#include "wrap/wrap.h"

struct vb_sim_hca {
    struct vb_adapter adapter;
    struct vb_sim_attachment *attachment;
    struct vb_sim_hca_calls calls;
    struct vb_engine *engine;
    struct vb_qp *attended; /* QPs with requests that wait, or queues to flush */
    struct vb_wrap wrap;    /* fault rules; vb_sim_hca_wrapped is called after a change */
    uint64_t leave_at;      /* of the packet that is sent (vb_sim_wire_packet) */
    uint64_t damaged;       /* packets that arrived with a wrong ICRC */
};

/*
 * `heap`: memory for applications, which the caller frees; or NULL. -EPROTO: the two sides have
 * different versions; -EBUSY: the attachment has an HCA; -ENOMEM, or an error of the system.
 */
int vb_sim_hca_open(struct vb_sim_attachment *attachment, struct vb_heap *heap,
                    struct vb_sim_hca **hca);
/* Called after the last QP is gone. */
void vb_sim_hca_close(struct vb_sim_hca *hca);

static inline struct vb_sim_hca *vb_sim_hca_of(const struct vb_adapter *adapter)
{
    return (struct vb_sim_hca *)((char *)(uintptr_t)adapter - offsetof(struct vb_sim_hca, adapter));
}

/* vb_sim_attachment_calls.step. With `until` 0 it counts as an empty poll. */
int vb_sim_hca_step(struct vb_sim_hca *hca, uint64_t until);
uint64_t vb_sim_hca_now(const struct vb_sim_hca *hca); /* ps */

/* Fault rules have changed, so packets that were held may be due. */
void vb_sim_hca_wrapped(struct vb_sim_hca *hca);

/* JSON in the form of vb_roce_counters, and of vb_host_describe. They return as snprintf does. */
int vb_sim_hca_counters(const struct vb_sim_hca *hca, char *json, size_t size);
int vb_sim_hca_describe(struct vb_sim_hca *hca, const char *device, char *json, size_t size);

#endif
