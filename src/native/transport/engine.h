// SPDX-License-Identifier: Apache-2.0
/*
 * The packet engine: InfiniBand's transport between an adapter's queues and packets (DESIGN: hca).
 *
 * Sans-I/O: it opens nothing, reads no clock and allocates nothing per packet. A port, live or
 * simulated, feeds it arrivals, takes packets out of it, and comes back at its deadline. Time is in
 * nanoseconds from any origin and never goes back. Calls on one engine exclude each other by the
 * port's lock; the engine takes a QP's sq_lock inside that, never the other way round: whoever
 * holds an sq_lock must not call it.
 */
#ifndef VB_TRANSPORT_ENGINE_H
#define VB_TRANSPORT_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "hca/adapter.h"
#include "hca/carrier.h"
#include "hca/host_calls.h"
#include "hca/packet.h"

struct vb_endpoint;
struct vb_engine;
struct vb_qp;

struct vb_engine_config {
    bool virtual_payload;  /* lengths without bytes: nothing is read or placed */
    uint32_t window_bytes; /* per QP in flight at most; 0: 1 MiB */
    uint32_t ack_bytes;    /* an acknowledgement is asked for at least this often; 0: 256 KiB */
    uint32_t burst;        /* packets of one QP before the next one's turn; 0: 64 */
    /*
     * Go-back-0, as early RoCE adapters: after a loss a message begins anew, and its window is as
     * long as it is. No peer on a wire understands it: both ends must have it.
     */
    bool restart;
    /*
     * For a network of unknown speed: connections share a congestion window for each peer address,
     * packets that overtake others are kept, what is lost is sent again by itself, and marks of
     * congestion are answered. Otherwise the window is what the configuration says, whatever is
     * lost. Simulated flows have none of it.
     */
    bool adapts;
};

int vb_engine_create(struct vb_adapter *adapter, const struct vb_engine_config *config,
                     struct vb_engine **engine);
void vb_engine_destroy(struct vb_engine *engine);

/*
 * Is this address one of the port's own, or, of port 0, one of any port's? Asked within
 * vb_engine_receive: of the sender of a multicast packet, which may be a QP that wants no copy of
 * its own, and of where a datagram was sent to, if the adapter has several ports. Without such a
 * function no sender is the host itself, and every datagram came to the right port.
 */
typedef bool vb_is_own_fn(void *context, uint8_t port_num, const uint8_t gid[16]);
void vb_engine_set_own(struct vb_engine *engine, vb_is_own_fn *is_own, void *context);

/* INIT to RTR: the QP's packets go along `path`; called again, along another one. -ENOMEM. */
int vb_engine_connect(struct vb_engine *engine, struct vb_qp *qp, const struct vb_path *path);
/*
 * The same for a simulated flow's queue pair, which is not connected yet and has no rate limit of
 * its own. `ep` is zeroed memory of the caller's, in use until vb_engine_disconnect; the engine
 * must not be one that adapts.
 */
int vb_engine_connect_in(struct vb_engine *engine, struct vb_qp *qp, const struct vb_path *path,
                         struct vb_endpoint *ep);
/* To RESET, or destroyed. After it the engine holds nothing of the QP. */
void vb_engine_disconnect(struct vb_engine *engine, struct vb_qp *qp);
/* Requests were posted, or the QP's state or attributes changed. */
void vb_engine_attend(struct vb_engine *engine, struct vb_qp *qp, uint64_t now);

/*
 * A port that limits a connection's rate: while it is held, vb_engine_next has no requests of it,
 * nor answers to READs and atomics, nor an acknowledgement that is to follow those.
 */
void vb_engine_hold(struct vb_qp *qp, bool held);

/* The adapter's QP with this number, or NULL. */
struct vb_qp *vb_engine_find(const struct vb_engine *engine, uint32_t qp_num);

void vb_engine_receive(struct vb_engine *engine, const struct vb_arrival *arrival, uint64_t now);
/* What vb_engine_next found: no packet, one after which nothing more is ready, or one of several.
 */
enum vb_next { VB_NEXT_NONE = 0, VB_NEXT_LAST, VB_NEXT_MORE };

/*
 * The next packet to send, responses before requests. After VB_NEXT_LAST the port need not ask
 * again until it has called another function of the engine, and may after VB_NEXT_MORE find that
 * none was ready after all. What the packet points to stays until another function than this one is
 * called for the engine: by then, with the port's lock held all the while, it has been sent. (UC
 * requests complete only then; until they have, the deadline is now.)
 */
enum vb_next vb_engine_next(struct vb_engine *engine, struct vb_packet *packet, uint64_t now);
/*
 * If a request is ready, it is the next packet, before responses: what a peer waits for leaves
 * before the acknowledgement of what it sent, which nobody waits for.
 */
void vb_engine_answer_first(struct vb_engine *engine);
/* When vb_engine_expire has something to do; UINT64_MAX: never. */
uint64_t vb_engine_deadline(const struct vb_engine *engine);
/*
 * Does what is due, and returns the deadline. Where nothing is, that costs two comparisons: a port
 * calls this without asking for the deadline first.
 */
uint64_t vb_engine_expire(struct vb_engine *engine, uint64_t now);

/*
 * One datagram of a UD QP, under its sq_lock and without the engine's lock. 0: `packet` is to be
 * sent along `path`, or `outcome` tells an error (then packet->header_length is 0).
 */
int vb_engine_datagram(struct vb_qp *qp, const struct ibv_send_wr *wr, const struct vb_path *path,
                       struct vb_packet *packet, struct vb_outcome *outcome);

/* Under the engine's lock, or approximately without it. */
const struct vb_counters *vb_engine_counters(const struct vb_engine *engine);

/* What a carrier by packets answers to vb_carrier.note and .is_loop. */
void vb_engine_note(const struct vb_qp *qp, struct vb_evidence *evidence);
bool vb_engine_is_loop(const struct vb_qp *qp);

#endif
