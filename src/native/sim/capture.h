// SPDX-License-Identifier: Apache-2.0
/*
 * Captures of links of a simulated fabric, as pcapng files. The Python binding begins them; they
 * end with the fabric.
 */
#ifndef VB_SIM_CAPTURE_H
#define VB_SIM_CAPTURE_H

#include <stdint.h>

struct vb_sim;
struct vb_sim_capture;

/*
 * From now on both directions of the link at this port: RoCE v2 frames, and those of TCP, whose
 * payload is zeros, of each the first `bytes` (vb_capture_config), at the time at which they come
 * to the end of the link. An earlier capture in the file is overwritten. What leaves by this port
 * is outbound. Errors as vb_wrap_capture_open and vb_world_add_tap have them
 * (vb_wrap_capture_problem).
 */
int vb_sim_capture(struct vb_sim *sim, uint32_t node, uint32_t port, const char *path,
                   uint32_t bytes);
/* Packets that could not be written, of all captures. */
uint64_t vb_sim_captures_lost(const struct vb_sim *sim);
void vb_sim_captures_free(struct vb_sim *sim);

#endif
