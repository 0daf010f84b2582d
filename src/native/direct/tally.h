// SPDX-License-Identifier: Apache-2.0
/*
 * The sums of what a device's queue pairs have counted directly (counters.h). The host calls this,
 * in any thread; a QP may count at the same time.
 */
#ifndef VB_DIRECT_TALLY_H
#define VB_DIRECT_TALLY_H

#include <stdint.h>

#include "hca/text.h"

struct vb_direct;

/* A member `"direct":{...}` of a JSON object, with all of them. */
void vb_direct_counters_describe(struct vb_direct *direct, struct vb_text *text);
/* Calls `tell` with each that is not 0. */
void vb_direct_tell_counters(struct vb_direct *direct,
                             void (*tell)(const char *part, const char *name, uint64_t value));

#endif
