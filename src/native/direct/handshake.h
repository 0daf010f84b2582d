// SPDX-License-Identifier: Apache-2.0
/*
 * The handshake of two processes: each sends the other its segment and heap as descriptors. The
 * process that connects says hello first, and the service thread of the other one answers.
 */
#ifndef VB_DIRECT_HANDSHAKE_H
#define VB_DIRECT_HANDSHAKE_H

#include "direct/direct.h"
#include "direct/message.h"

/* Says hello on a connected socket, or answers one. */
int vb_direct_hello_send(struct vb_direct *direct, int socket, enum vb_message_type type);
/* Answers a hello of another layout: which build this is, and no descriptors. */
void vb_direct_hello_decline(struct vb_direct *direct, int socket);

/*
 * The peer that a hello describes: the one that is known already, or a new one in the list. Takes
 * over `fds`. The caller gets a reference. -EPROTONOSUPPORT: another build with another layout,
 * which is noted (other_build.h); -EPROTO: no hello; -EACCES: another user's process; -ENOMEM.
 */
int vb_direct_hello_accept(struct vb_direct *direct, int socket, const struct vb_message *message,
                           int fds[VB_MESSAGE_FDS], struct vb_peer **peer);

#endif
