// SPDX-License-Identifier: Apache-2.0
/*
 * The packet engine: InfiniBand's transport between an adapter's queues and its packets (IBA 9). A
 * carrier, live or simulated, hands it the packets that arrive, takes packets out of it, and calls
 * it again at its deadline. The engine opens nothing, reads no clock and allocates nothing for a
 * packet (sans I/O). Time is in nanoseconds from any origin and never goes back.
 *
 * Calls on one engine exclude each other by the carrier's lock. The engine takes a QP's sq_lock
 * inside that lock: whoever holds an sq_lock must not call the engine.
 */
#ifndef VB_TRANSPORT_ENGINE_H
#define VB_TRANSPORT_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "hca/adapter.h"
#include "hca/carrier.h"
#include "hca/host_calls.h"
#include "hca/packet.h"
#include "transport/config.h"

struct vb_endpoint;
struct vb_engine;
struct vb_qp;

int vb_engine_create(struct vb_adapter *adapter, const struct vb_engine_config *config,
                     struct vb_engine **engine);
void vb_engine_destroy(struct vb_engine *engine);

/* Without such a function no sender is the host itself, and every datagram came to the right port.
 */
void vb_engine_set_own(struct vb_engine *engine, vb_is_own_fn *is_own, void *context);

/*
 * At INIT to RTR: the QP's packets go along `path`. Another call changes the path. Returns -ENOMEM,
 * or -EINVAL for an MTU that is no path MTU.
 */
int vb_engine_connect(struct vb_engine *engine, struct vb_qp *qp, const struct vb_path *path);
/*
 * The same for a simulated flow's queue pair, which is not connected yet and has no rate limit of
 * its own. `ep` is zeroed memory of the caller's, in use until vb_engine_disconnect; the engine
 * must not be one that adapts.
 */
int vb_engine_connect_in(struct vb_engine *engine, struct vb_qp *qp, const struct vb_path *path,
                         struct vb_endpoint *ep);
/* The QP goes to RESET or is destroyed. Afterwards the engine holds nothing of it. */
void vb_engine_disconnect(struct vb_engine *engine, struct vb_qp *qp);
/* To be called, without the QP's sq_lock, after requests were posted or its state or attributes
 * changed. */
void vb_engine_attend(struct vb_engine *engine, struct vb_qp *qp, uint64_t now);

/*
 * For a carrier that limits a connection's rate: while the QP is held, vb_engine_next returns no
 * requests of it, no answers to READs and atomics, and no acknowledgement that has to follow those.
 */
void vb_engine_hold(struct vb_qp *qp, bool held);

/* The adapter's QP with this number, or NULL. */
struct vb_qp *vb_engine_find(const struct vb_engine *engine, uint32_t qp_num);

void vb_engine_receive(struct vb_engine *engine, const struct vb_arrival *arrival, uint64_t now);
/* What vb_engine_next found: no packet, one after which nothing more is ready, or one of several.
 */
enum vb_next { VB_NEXT_NONE = 0, VB_NEXT_LAST, VB_NEXT_MORE };

/*
 * The next packet to send, responses before requests. After VB_NEXT_LAST the carrier need not
 * ask again until it has called another function of the engine; after VB_NEXT_MORE a further call
 * may still return VB_NEXT_NONE. What the packet points to stays until another function than this
 * one is called for the engine: the carrier has sent it by then, and holds its lock all the while.
 * (UC requests complete only then; until they have, the deadline is now.)
 */
enum vb_next vb_engine_next(struct vb_engine *engine, struct vb_packet *packet, uint64_t now);
/*
 * If a request is ready, it will be the next packet, before responses: a peer waits for the
 * request, and nobody waits for the acknowledgement of what the peer sent.
 */
void vb_engine_answer_first(struct vb_engine *engine);
/* When vb_engine_expire has something to do; UINT64_MAX: never. */
uint64_t vb_engine_deadline(const struct vb_engine *engine);
/*
 * Does what is due, and returns the deadline. If nothing is due, that costs two comparisons: a
 * carrier calls this without asking for the deadline first.
 */
uint64_t vb_engine_expire(struct vb_engine *engine, uint64_t now);

/*
 * Makes one datagram of a UD QP, under its sq_lock and without the engine's lock. Returns 0:
 * `packet` is to be sent along `path`, or packet->header_length is 0 and `outcome` has the error.
 */
int vb_engine_datagram(struct vb_qp *qp, const struct ibv_send_wr *wr, const struct vb_path *path,
                       struct vb_packet *packet, struct vb_outcome *outcome);

/* Without the engine's lock the values are approximate. */
const struct vb_counters *vb_engine_counters(const struct vb_engine *engine);

/* vb_carrier.note and .is_loop of a carrier that uses the engine. */
void vb_engine_note(const struct vb_qp *qp, struct vb_evidence *evidence);
bool vb_engine_is_loop(const struct vb_qp *qp);

#endif
