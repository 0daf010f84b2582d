// SPDX-License-Identifier: Apache-2.0
/*
 * Several cores of a computer in turns of a few cycles. The Python binding calls it when more than
 * one core is awake. The memory is sequentially consistent: each load and each store is done at
 * once, in one order that all cores see. An instruction that loads and stores one place without
 * LOCK does so in two steps, between which other cores may have their turns.
 */
#pragma once

#include "cpu/cpu.h"

struct vb_cpu_turns {
    uint64_t random;  /* the state of the generator, not 0 */
    uint32_t longest; /* a core gets fewer cycles than these beyond the next one; 1 or more */
};

/*
 * Runs the core that is furthest behind, the first of equal ones, up to a random number of cycles
 * beyond the next one (an instruction at least), and so on: `most` instructions of all together,
 * and none from the cycle `until` on. Comes back when one stops or a bus call has set its `pause`;
 * `last` is its place. All stores have been done then.
 */
enum vb_cpu_stop vb_cpu_run_turns(struct vb_cpu_turns *turns, struct vb_cpu *const *cpu,
                                  uint32_t cpus, uint64_t most, uint64_t until, uint32_t *last);
