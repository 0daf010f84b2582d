// SPDX-License-Identifier: Apache-2.0
/*
 * Telling the owner of a QP, CQ or SRQ what happened to it. The fact itself is a bit in the owner's
 * segment, so it outlives whoever set it and is gone with the object; the message only says where
 * to look, and may be left out when the owner has so many unread that it will look everywhere.
 */
#ifndef VB_DIRECT_NOTICE_H
#define VB_DIRECT_NOTICE_H

#include "direct/direct.h"
#include "direct/message.h"

/* The other side: bits are set already; wakes the owner to look at the object. */
void vb_direct_notice_send(struct vb_direct *direct, struct vb_peer *peer,
                           enum vb_message_type type, uint32_t object);

/* The owner's side: raises what the object's bits say. */
void vb_direct_notice_qp(struct vb_direct *direct, uint32_t index);
void vb_direct_notice_cq(struct vb_direct *direct, uint32_t index);
void vb_direct_notice_srq(struct vb_direct *direct, uint32_t index);
/* Looks everywhere when somebody could not say where. */
void vb_direct_notice_missed(struct vb_direct *direct);
/* Under adapter->mutex: looks everywhere (a peer died and may have said nothing). */
void vb_direct_notice_all(struct vb_direct *direct);

#endif
