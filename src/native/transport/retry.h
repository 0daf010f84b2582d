// SPDX-License-Identifier: Apache-2.0
/*
 * The requester's retries: what follows when something is lost, late or refused, how often it is
 * tried again, and how it ends. The completer and the engine's timers call this, all under sq_lock.
 * Without a congestion window the requester goes back; with one, single packets are sent again
 * (mend.h).
 */
#ifndef VB_TRANSPORT_RETRY_H
#define VB_TRANSPORT_RETRY_H

#include "transport/transport.h"

/* A packet was acknowledged: the retry counts start again (IBA 9.7.6.1.3). */
void vb_engine_retry_progress(struct vb_endpoint *ep, uint64_t now);
/* A sequence NAK: the responder misses the first unanswered packet. */
void vb_engine_retry_sequence(struct vb_endpoint *ep, uint64_t now);
/* A sequence NAK for a later packet, while a response before that is missing here. */
void vb_engine_retry_sequence_ahead(struct vb_endpoint *ep, uint32_t psn, uint64_t now);
/* A response of a READ or atomic is missing. */
void vb_engine_retry_lost_response(struct vb_endpoint *ep, uint64_t now);
/*
 * An acknowledgement came to a connection that recovers. That it was no NAK may mean that only the
 * packets that were sent again have arrived.
 */
void vb_engine_retry_acknowledged(struct vb_endpoint *ep, uint64_t now);
/* The last response of a part that was asked for again has come, and more of the READ is missing.
 */
void vb_engine_retry_answered_part(struct vb_endpoint *ep, uint64_t now);
/* A response came that is not the missing one: the peer is at work, and the timer starts again. */
void vb_engine_retry_heard(struct vb_endpoint *ep, uint64_t now);
/* Starts the local ACK timeout. */
void vb_engine_retry_start_timer(struct vb_endpoint *ep, uint64_t now);
/* RNR NAK: the responder has no receive request. Nothing is sent until its timer has expired. */
void vb_engine_retry_not_ready(struct vb_endpoint *ep, uint8_t timer_code, uint64_t now);
/* The endpoint's retry timer has expired. */
void vb_engine_retry_expired(struct vb_endpoint *ep, uint64_t now);
/* The first unanswered request ends with this status and evidence. */
void vb_engine_retry_refuse(struct vb_endpoint *ep, enum ibv_wc_status status,
                            struct vb_evidence *evidence);

#endif
