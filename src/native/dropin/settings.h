// SPDX-License-Identifier: Apache-2.0
/* What the environment asks for. */
#ifndef VB_DROPIN_SETTINGS_H
#define VB_DROPIN_SETTINGS_H

#include "port/direct/direct.h"

enum vb_log_level { VB_LOG_ERRORS, VB_LOG_INFO, VB_LOG_DEBUG };

struct vb_settings {
    enum vb_log_level log; /* VERBENA_LOG=errors|info|debug */
    enum vb_way copy;      /* VERBENA_COPY=shared|cma|bounce */
    unsigned spin_us;      /* VERBENA_SPIN_US: before a thread sleeps on a completion channel */
    unsigned part_id;      /* VERBENA_PART_ID: what query_device says */
};

/* Read once; a value that is not understood is reported and left out. */
const struct vb_settings *vb_settings(void);

/* A line on stderr, if VERBENA_LOG asks for this level. errno stays. */
void vb_log(enum vb_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
