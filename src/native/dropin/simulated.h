// SPDX-License-Identifier: Apache-2.0
/*
 * Devices of hosts on a simulated fabric. They are in no list: the Python binding of the world
 * makes them by verbena_plug, and opens them like any device. One thread uses a world.
 */
#ifndef VB_DROPIN_SIMULATED_H
#define VB_DROPIN_SIMULATED_H

#include <stdbool.h>
#include <stdint.h>

struct ibv_device;
struct vb_sim_hca;
struct vb_simulated;

/* Returns NULL for a device of the list. */
struct vb_simulated *vb_dropin_simulated_of(const struct ibv_device *device);
uint64_t vb_dropin_simulated_guid(const struct vb_simulated *simulated);

/* Returns the device's adapter, which the first context makes and the last closes. Errors are those
 * of vb_sim_hca_open. */
int vb_dropin_simulated_open(struct vb_simulated *simulated, struct vb_sim_hca **hca);
void vb_dropin_simulated_close(struct vb_simulated *simulated);

#endif
