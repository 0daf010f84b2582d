// SPDX-License-Identifier: Apache-2.0
/*
 * A carrier takes a QP's requests to the other end. The host chooses it for each QP at INIT to RTR
 * (vb_host_calls.connect), and nothing else asks which one it is; before that, and after a reset, a
 * QP has `vb_uncarried`. Each call may be made from any thread.
 *
 * There are two kinds. A carrier with `execute` works in the thread that posts a request (direct).
 * A carrier without it takes requests from the send queue by itself, and `doorbell` says that there
 * are some (the packet engine: roce, sim).
 */
#ifndef VB_HCA_CARRIER_H
#define VB_HCA_CARRIER_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/verbs.h"

struct vb_evidence;
struct vb_qp;
struct vb_qp_shared;

/* How a request ended. */
struct vb_outcome {
    enum ibv_wc_status status;
    uint32_t byte_len;
    uint32_t evidence; /* id of the record behind an error, 0 if none */
};

struct vb_carrier {
    /*
     * Carries one request out, under the QP's sq_lock. 0: it has ended as `outcome` says. -EAGAIN:
     * it waits (receiver not ready, peer not there), and vb_host_calls.progress tries it again.
     */
    int (*execute)(struct vb_qp *qp, const struct ibv_send_wr *wr, struct vb_outcome *outcome);
    /*
     * Says that the QP has new requests or another state. NULL where there is `execute`. Called
     * without the sq_lock: the carrier takes the engine's lock, calls vb_engine_attend and sends
     * what is ready.
     */
    void (*doorbell)(struct vb_qp *qp);
    /*
     * Returns when every request that had begun, by this QP or towards it, has ended. Called after
     * vb_barrier_everywhere.
     */
    void (*settle)(struct vb_qp *qp);
    /* The same without waiting: true if no such request is in progress. */
    bool (*quiet)(struct vb_qp *qp);
    /*
     * Waits for the requests that the peer had begun when this was called. The caller carries out
     * a request of this QP, under its sq_lock. False: that takes long, and the caller tries again
     * later, since the peer may be waiting for this QP in the same way. NULL: the engine's lock,
     * which the caller holds, keeps all of them out.
     */
    bool (*settle_peer)(struct vb_qp *qp);
    /* The queue pair at the other end, where this process can read it, else NULL. May be NULL. */
    const struct vb_qp_shared *(*other_end)(const struct vb_qp *qp);
    /* Adds to the evidence of a failed request what the carrier alone knows. May be NULL. */
    void (*note)(const struct vb_qp *qp, struct vb_evidence *evidence);
    /*
     * Is a QP whose destination has its own number connected to itself? A peer on another host may
     * have the same number. NULL: the QP is compared with `other_end`.
     */
    bool (*is_loop)(const struct vb_qp *qp);
    /* Sends requests to the new address vector from now on, in SQD. With an error, for an address
     * that leads nowhere, nothing has changed. NULL: the address does not matter. */
    int (*move)(struct vb_qp *qp);
    /*
     * Sends the posted requests that wait for the network device alone, and acknowledgements of
     * what the program has received, before a QP in RTS fails, is reset or destroyed. Called
     * without the sq_lock. May be NULL.
     */
    void (*send_posted)(struct vb_qp *qp);
};

extern const struct vb_carrier vb_uncarried;

/* `settle` and `quiet` of a carrier that has nothing under way between two of its calls. */
void vb_settled_at_once(struct vb_qp *qp);
bool vb_always_quiet(struct vb_qp *qp);

#endif
