// SPDX-License-Identifier: Apache-2.0
/*
 * A thread of the program's waits in ibv_get_cq_event for what the program itself forgot: it puts
 * these around its wait (hca/channel.c), which cost nothing without a log, and the port's thread
 * looks after a second (vb_host_calls.look). A vigil is the caller's, on its stack, and in the
 * adapter's list from its beginning to its end.
 */
#ifndef VB_HCA_VIGIL_H
#define VB_HCA_VIGIL_H

#include <stdbool.h>
#include <stdint.h>

struct vb_adapter;
struct vb_channel;

struct vb_vigil {
    struct vb_vigil *next;
    const struct vb_channel *channel;
    uint64_t since;
    bool told;
};

void vb_vigil_begin(struct vb_vigil *vigil, const struct vb_channel *channel);
void vb_vigil_end(struct vb_vigil *vigil);
/* By the port's thread: tells of ibv_get_cq_event on a channel none of whose CQs is armed. False:
 * nobody waits that was not told of. */
bool vb_vigils_look(struct vb_adapter *adapter, uint64_t now);

#endif
