// SPDX-License-Identifier: Apache-2.0
/*
 * The service thread: answers peers, notices their deaths and helps with memory that only this
 * process reaches. It waits for no peer and for no lock that a poster may hold while it waits for
 * one; so two processes that wait for each other's service threads always get their answers.
 */
#ifndef VB_DIRECT_SERVICE_H
#define VB_DIRECT_SERVICE_H

#include "direct/direct.h"

/* On failure the listeners are closed too. */
int vb_direct_service_start(struct vb_direct *direct);
void vb_direct_service_stop(struct vb_direct *direct);
/* In a forked child, which has no such thread: closes its copies of the descriptors. */
void vb_direct_service_abandon(struct vb_direct *direct);

/* A listening socket (peer NULL), or a connection to a peer: its reference passes to the watch. */
int vb_direct_service_watch(struct vb_direct *direct, int socket, struct vb_peer *peer);

#endif
