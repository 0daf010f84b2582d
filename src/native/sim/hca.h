// SPDX-License-Identifier: Apache-2.0
/*
 * The HCA of a program on a simulated host, with up to two ports (protocol.h): the packet engine
 * between the queue pairs of ordinary verbs objects and packets that carry their bytes.
 *
 * It has no thread and no clock. Posting sends the packets that may leave; everything else happens
 * in events of the fabric, and polling an empty completion queue lets them be handled.
 */
#ifndef VB_SIM_HCA_H
#define VB_SIM_HCA_H

#include <stddef.h>

#include "hca/adapter.h"
#include "hca/cq.h"
#include "hca/qp.h"
#include "port/address.h"
#include "sim/protocol.h"
#include "transport/coming.h"
#include "wrap/wrap.h"

struct vb_sim_hca {
    struct vb_adapter adapter;
    struct vb_sim_attachment *attachment;
    struct vb_sim_page *page;
    struct vb_engine *engine;
    struct vb_qp *attended; /* QPs with requests that wait, or queues to flush */
    struct vb_wrap wrap;    /* fault rules; vb_sim_hca_wrapped is called after a change */
    uint64_t leave_at;      /* of the packet that is sent (vb_sim_wire_packet) */
    uint64_t damaged;       /* packets that arrived with a wrong ICRC */
    uint64_t looked_at;     /* the time at which `polls` and `arms` are valid */
    uint32_t polls, arms;   /* empty polls since a CQ was armed; how often one was armed */
    uint32_t patience;      /* the one for which they are */
    bool serving;           /* the turn is for an event */
    bool is_stale;          /* the states of ports are unknown until the next turn */
    bool traced;            /* the packet in hand has telemetry */
};

/*
 * `heap`: memory for applications, which the caller frees; or NULL. -EPROTO: the two sides have
 * different versions; -EBUSY: the attachment has an HCA; -ENOMEM, or an error of the system.
 */
int vb_sim_hca_open(struct vb_sim_attachment *attachment, struct vb_heap *heap,
                    struct vb_sim_hca **hca);
/* Called after the last QP is gone. */
void vb_sim_hca_close(struct vb_sim_hca *hca);

/* A queue pair's connection to the adapter of its port: vb_verbs_qp.port_data, while the QP has a
 * carrier. */
struct vb_sim_hca_qp {
    struct vb_sim_qp_number number;
    bool waits_for_bell; /* the adapter has not seen the doorbell yet */
    bool saw_bell;       /* of datagrams: it has, and they are not all sent yet */
    uint32_t posted;     /* the number of requests that POSTED has told the world of */
    uint32_t told;       /* of those, how many are in the adapter */
    uint32_t sent;       /* of datagrams where the port `counts`: the first request not sent yet */
    uint32_t flying;     /* so many packets of these are in the adapter, until LEFT */
    uint8_t *bells;      /* where the port `counts`, of each place in the send queue: is its request
                            the last one of a POSTED? */
    struct vb_coming coming; /* there, too */
};

static inline struct vb_sim_hca *vb_sim_hca_of(const struct vb_adapter *adapter)
{
    return (struct vb_sim_hca *)((char *)(uintptr_t)adapter - offsetof(struct vb_sim_hca, adapter));
}

static inline struct vb_sim_hca *vb_sim_hca_of_qp(const struct vb_qp *qp)
{
    return vb_sim_hca_of(qp->context->adapter);
}

static inline struct vb_sim_hca_qp *vb_sim_hca_qp_of(const struct vb_qp *qp)
{
    return qp->verbs->port_data;
}

/* A packet has left the adapter, so its request is complete. */
void vb_sim_hca_left(struct vb_sim_hca *hca, struct vb_qp *qp);
/* The requests of one POSTED are in the adapter. */
void vb_sim_hca_told(struct vb_qp *qp);
/* VB_SIM_STEP. With `until` 0 it counts as an empty poll. */
int vb_sim_hca_step(struct vb_sim_hca *hca, uint64_t until);
uint64_t vb_sim_hca_now(const struct vb_sim_hca *hca); /* ps */
/* ps: when a completion that the HCA writes now is in memory. It does not know by which port one
 * comes, so the slower one counts. */
uint64_t vb_sim_hca_written(const struct vb_sim_hca *hca);

/* Fault rules have changed, so packets that were held may be due. */
void vb_sim_hca_wrapped(struct vb_sim_hca *hca);

/* JSON in the form of vb_roce_counters, and of vb_host_describe. They return as snprintf does. */
int vb_sim_hca_counters(const struct vb_sim_hca *hca, char *json, size_t size);
int vb_sim_hca_describe(struct vb_sim_hca *hca, const char *device, char *json, size_t size);

/* ---- hca_turns.c, for hca.c ---- */

/* Gives the turn away; what the world appends waits. -EPIPE: the world has ended. */
int vb_sim_hca_give_turn(struct vb_sim_hca *hca);
/* Appends a message. */
struct vb_sim_message *vb_sim_hca_post(struct vb_sim_hca *hca, enum vb_sim_message_kind kind);
/* Ends a call of the program, unless the world has given the turn for an event. */
void vb_sim_hca_end_call(struct vb_sim_hca *hca);
/* Asks the world what the page's question says, and returns its answer, or -EPIPE. */
int vb_sim_hca_ask(struct vb_sim_hca *hca, enum vb_sim_question_kind kind);
/* Takes messages of the kinds before `end`. Not under a QP's sq_lock. */
void vb_sim_hca_take(struct vb_sim_hca *hca, enum vb_sim_message_kind end);
/* vb_sim_attachment.serve */
void vb_sim_hca_serve(void *hca);
/*
 * Sends a packet, unless a fault rule holds it; `qp` and `flags` as of VB_SIM_SEND. Returns 1; 0:
 * it has not left; -EFAULT: the payload could not be read, and the packet is lost.
 */
int vb_sim_hca_emit(struct vb_sim_hca *hca, const struct vb_packet *packet,
                    struct vb_sim_qp_number qp, uint8_t flags);
/* Sends what may be sent. */
void vb_sim_hca_pump(struct vb_sim_hca *hca);
/* Sends the packets that fault rules hold, each when it is due. */
void vb_sim_hca_send_held(struct vb_sim_hca *hca);
/* Of struct vb_host_calls. The caller of the first may hold the QP's sq_lock. */
void vb_sim_hca_attend(struct vb_qp *qp);
void vb_sim_hca_progress(struct vb_cq *cq);
void vb_sim_hca_armed(struct vb_cq *cq);
void vb_sim_hca_readable(struct vb_context *context, int fd);
/* The QP is attended no more. */
void vb_sim_hca_unattend(struct vb_sim_hca *hca, struct vb_qp *gone);

#endif
