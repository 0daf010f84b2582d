// SPDX-License-Identifier: Apache-2.0
/* Devices that are hosts of a simulated fabric: in no list, and found by who plugged them in. */
#ifndef VB_DROPIN_SIMULATED_H
#define VB_DROPIN_SIMULATED_H

#include <stdbool.h>
#include <stdint.h>

struct ibv_device;
struct vb_sim_hca;
struct vb_evidence;
struct vb_simulated;

/* NULL: the device is the process's own. */
struct vb_simulated *vb_dropin_simulated_of(const struct ibv_device *device);
uint64_t vb_dropin_simulated_guid(const struct vb_simulated *simulated);

/* Its adapter, which is made for the first context and gone with the last. As vb_sim_hca_open.
 */
int vb_dropin_simulated_open(struct vb_simulated *simulated, struct vb_sim_hca **hca);
void vb_dropin_simulated_close(struct vb_simulated *simulated);

/* What the responder kept, if it is a simulated host that is open in this process (device.c). */
bool vb_dropin_simulated_find_refusal(const struct vb_evidence *refused, struct vb_evidence *seen);

#endif
