// SPDX-License-Identifier: Apache-2.0
/* A simulated switch with hosts, into which a test plugs adapters. */
#ifndef VB_TESTS_STAR_H
#define VB_TESTS_STAR_H

#include <stdint.h>

struct vb_sim_attachment;
struct vb_sim;

struct star {
    struct vb_sim *sim;
};

/* Cables of so many bits per second and ps. */
void star_open(struct star *star, uint32_t hosts, uint64_t rate, uint64_t delay);
void star_close(struct star *star);
struct vb_sim_attachment *star_attachment(struct star *star, uint32_t host);
uint64_t star_now(const struct star *star); /* ps */

#endif
