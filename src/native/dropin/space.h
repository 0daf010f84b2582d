// SPDX-License-Identifier: Apache-2.0
/* What to do where a limit on the process's memory (`ulimit -v`, `ulimit -d`) keeps the device from
 * opening. For vb_dropin_open_remedy. */
#ifndef VB_DROPIN_SPACE_H
#define VB_DROPIN_SPACE_H

#include <stdbool.h>

struct vb_space_text {
    char text[512];
};

/*
 * A sentence with the limit that suffices, and with the one that suffices beside the smallest heap;
 * false: such limits are not the reason. To be called after the device could not be opened, when
 * what it had is gone but for the process's heap.
 */
bool vb_dropin_space_remedy(struct vb_space_text *to);

#endif
