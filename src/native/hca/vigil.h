// SPDX-License-Identifier: Apache-2.0
/*
 * Threads that wait in ibv_get_cq_event for an event that cannot come, because the program has
 * armed no CQ of the channel. channel.c calls these around its wait; they do nothing where there is
 * no log. After a second the host's thread looks at those who wait (vb_host_calls.look). A vigil
 * lies on the stack of its thread and is in the adapter's list, under its mutex, while the thread
 * waits.
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
    bool logged;
};

void vb_vigil_begin(struct vb_vigil *vigil, const struct vb_channel *channel);
void vb_vigil_end(struct vb_vigil *vigil);
/* Writes a line about each wait of a second or more on a channel none of whose CQs is armed. False:
 * every wait has had its line, so that no further look is needed. Called by the host's thread. */
bool vb_vigils_look(struct vb_adapter *adapter, uint64_t now);

#endif
