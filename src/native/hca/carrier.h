// SPDX-License-Identifier: Apache-2.0
/*
 * A carrier takes a QP's requests to the other end. A QP has one from INIT to RTR until it is
 * reset or destroyed; its port chooses it (vb_host_calls.connect), and nothing else asks which one
 * it is. Before that it has `vb_uncarried`, which has nothing under way.
 *
 * Two kinds of work are possible. Where `execute` is there, the thread that posts a request carries
 * it out (direct). Where it is not, the carrier takes requests from the send queue by itself,
 * and `doorbell` tells it that there are some (the packet engine: roce, sim).
 *
 * Each call may be made from any thread.
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
     * Carries one request out, under the QP's sq_lock. 0: it ended as `outcome` says. -EAGAIN: it
     * waits (receiver not ready, peer not there); vb_host_calls.progress tries again.
     */
    int (*execute)(struct vb_qp *qp, const struct ibv_send_wr *wr, struct vb_outcome *outcome);
    /*
     * NULL where there is `execute`. The QP has new requests, or another state. Called without its
     * sq_lock: the carrier takes the engine's lock, calls vb_engine_attend and sends what is ready.
     */
    void (*doorbell)(struct vb_qp *qp);
    /*
     * After vb_barrier_everywhere: returns when no request that had begun, by this QP or towards
     * it, is still under way.
     */
    void (*settle)(struct vb_qp *qp);
    /* The same asked without waiting; true: none is. */
    bool (*quiet)(struct vb_qp *qp);
    /*
     * NULL: nothing of the peer's is under way while the engine's lock is held. From within a
     * request of this QP, under its sq_lock: waits for what its peer had begun when this was
     * called. False: that takes long, try again later (the peer may wait for this QP in the same
     * way).
     */
    bool (*settle_peer)(struct vb_qp *qp);
    /* May be NULL. The queue pair at the other end where this process can look at it, else NULL. */
    const struct vb_qp_shared *(*other_end)(const struct vb_qp *qp);
    /* May be NULL. A request of this QP has failed: adds what the carrier alone knows about it. */
    void (*note)(const struct vb_qp *qp, struct vb_evidence *evidence);
    /*
     * NULL: it is compared with `other_end`. The QP's destination has its own number: is it this
     * QP? A peer on another host may have the same number.
     */
    bool (*is_loop)(const struct vb_qp *qp);
    /* NULL: there is one way only. SQD: requests go to the new address vector from now on. An
     * address that leads nowhere is an error, and nothing has changed. */
    int (*move)(struct vb_qp *qp);
    /*
     * May be NULL. The QP, in RTS, is about to be reset or destroyed: what was posted to it, and
     * waits for the port alone, is sent before this returns. Called without its sq_lock.
     */
    void (*send_posted)(struct vb_qp *qp);
};

extern const struct vb_carrier vb_uncarried;

/* `settle` and `quiet` of a carrier that has nothing under way between two of its calls. */
void vb_settled_at_once(struct vb_qp *qp);
bool vb_always_quiet(struct vb_qp *qp);

#endif
