// SPDX-License-Identifier: Apache-2.0
/* Retries of the requester: how often, how long, and how it ends. All under sq_lock. */
#ifndef VB_TRANSPORT_RETRY_H
#define VB_TRANSPORT_RETRY_H

#include "transport/transport.h"

/* Something was acknowledged: all retries are there again (IBA 9.7.6.1.3). */
void vb_engine_retry_progress(struct vb_endpoint *ep, uint64_t now);
/* The responder misses the first unanswered packet, and has said so. */
void vb_engine_retry_sequence(struct vb_endpoint *ep, uint64_t now);
/* It misses a later one, while a response before that is missing here. */
void vb_engine_retry_sequence_ahead(struct vb_endpoint *ep, uint32_t psn, uint64_t now);
/* Part of a READ's or atomic's response is missing. */
void vb_engine_retry_lost_response(struct vb_endpoint *ep, uint64_t now);
/* An acknowledgement came, and no NAK, to who recovers: what was sent again may be all that has
 * arrived. */
void vb_engine_retry_acknowledged(struct vb_endpoint *ep, uint64_t now);
/* The end has come of a READ's part that was asked for again, and more of it is missing. */
void vb_engine_retry_answered_part(struct vb_endpoint *ep, uint64_t now);
/* The peer is at work, if not on what is missing. */
void vb_engine_retry_heard(struct vb_endpoint *ep, uint64_t now);
/* The local ACK timeout begins. */
void vb_engine_retry_start_timer(struct vb_endpoint *ep, uint64_t now);
/* The responder has no receive request: silence for as long as its timer code says. */
void vb_engine_retry_not_ready(struct vb_endpoint *ep, uint8_t timer_code, uint64_t now);
/* The QP's timer is due. */
void vb_engine_retry_expired(struct vb_endpoint *ep, uint64_t now);
/* The first unanswered request ends with this status. */
void vb_engine_retry_refuse(struct vb_endpoint *ep, enum ibv_wc_status status,
                            struct vb_evidence *evidence);

#endif
