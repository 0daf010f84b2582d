// SPDX-License-Identifier: Apache-2.0
/*
 * The attachments of programs' HCAs to a world, and how time passes while programs wait. The Python
 * binding of the world calls this; protocol.h has what an HCA and its attachment say to each other.
 * A world and its attachments are used by one thread.
 */
#ifndef VB_SIM_ATTACHMENT_H
#define VB_SIM_ATTACHMENT_H

#include "sim/addresses.h"
#include "sim/nic.h"
#include "sim/protocol.h"

struct vb_sim;

/*
 * Makes the hosts that are the ports of the page those of a program. The caller has written what
 * the page says of the ports, none of which has another attachment. The attachment is freed with
 * the world, and with it a page that is `at_once`, which calloc has made; also on failure. -ENOMEM.
 */
int vb_sim_attach(struct vb_sim *sim, struct vb_sim_page *page,
                  struct vb_sim_attachment **attachment);

/*
 * Called when a program's port joins a multicast group or leaves it. It sets the switches' ports of
 * the group (vb_world_switch_set_group) and names the group. -EHOSTUNREACH: the port cannot reach
 * another member; -ENOMEM: also, there are too many groups. Leaving a group that the port is not in
 * does nothing.
 */
typedef int vb_sim_group_change(void *context, const uint8_t gid[16], uint32_t host, bool joins);

/*
 * The number of the group of this GID that the host can reach; UINT16_MAX, unknown to switches:
 * none. If it reaches none, a host with one port gets the first group of the GID, since joining
 * that says why it fails.
 */
uint16_t vb_sim_program_group_number(const struct vb_sim *sim, const uint8_t gid[16],
                                     uint32_t host);

/*
 * vb_world_run, which also ends, with VB_WORLD_END_EVENTS, when a descriptor has become readable.
 * With VB_WORLD_NEVER the time stays that of the last event.
 */
int vb_sim_advance(struct vb_sim *sim, uint64_t until, uint64_t events);

#endif
