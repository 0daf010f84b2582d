// SPDX-License-Identifier: Apache-2.0
/*
 * Captures of links of a simulated fabric, as pcapng files. The Python binding starts them; they
 * end with the fabric.
 */
#ifndef VB_SIM_CAPTURE_H
#define VB_SIM_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>

struct vb_sim;
struct vb_sim_capture;

/*
 * Captures both directions of the link at this port from now on: the first `bytes` of each frame
 * (vb_capture_config), with the time of its arrival at the end of the link. Frames are RoCE v2 or
 * TCP, or InfiniBand's from the LRH to the VCRC; flows' payload is zeros. Packets that leave by
 * this port are outbound. The file is overwritten. Errors are those of vb_wrap_capture_open and
 * vb_world_add_tap (vb_wrap_capture_problem).
 */
int vb_sim_capture(struct vb_sim *sim, uint32_t node, uint32_t port, const char *path,
                   uint32_t bytes, bool infiniband);
/* The number of packets that could not be written, in all captures. */
uint64_t vb_sim_captures_lost(const struct vb_sim *sim);
void vb_sim_captures_free(struct vb_sim *sim);

#endif
