// SPDX-License-Identifier: Apache-2.0
/*
 * What the environment asks of this library. The variables are read once, at the first question;
 * `verbena run` sets them and has checked its options before.
 */
#ifndef VB_DROPIN_SETTINGS_H
#define VB_DROPIN_SETTINGS_H

#include <stdbool.h>

#include "host/host.h"

enum vb_which_carrier { VB_CARRIER_AUTO, VB_CARRIER_DIRECT, VB_CARRIER_ROCE };
enum vb_log_level { VB_LOG_ERRORS, VB_LOG_INFO, VB_LOG_COUNTERS, VB_LOG_DEBUG };

struct vb_settings {
    enum vb_log_level log;         /* VERBENA_LOG=errors|info|counters|debug */
    bool pair;                     /* VERBENA_COMMAND=run|pair: which command started the program */
    bool explain;                  /* VERBENA_LOG is set: a line for each failure */
    enum vb_way copy;              /* VERBENA_COPY=shared|cma|bounce */
    enum vb_which_carrier carrier; /* VERBENA_CARRIER=direct|roce */
    struct vb_device_settings devices; /* VERBENA_DEVICES, _PORTS, _LINK_LAYER, _NETDEV, _PKEYS */
    bool infiniband;                   /* no port of any device sends packets */
    const char *fabric;     /* VERBENA_FABRIC: a live fabric that has the device; or NULL */
    unsigned spin_us;       /* VERBENA_SPIN_US: before a thread sleeps on a completion channel */
    unsigned part_id;       /* VERBENA_PART_ID: what query_device says */
    const char *fault;      /* VERBENA_FAULT: rules as records, which are right; or NULL */
    const char *capture;    /* VERBENA_CAPTURE: a file; or NULL */
    unsigned capture_bytes; /* VERBENA_CAPTURE_BYTES: of each packet; 0: all */
    bool capture_direct;    /* VERBENA_CAPTURE_DIRECT=yes: what goes without packets too */
    bool manages;           /* VERBENA_MANAGES=yes, of the agent: its QPs 0 and 1 are the host's */
};

/* Returns the settings. A value that is not understood was reported on stderr and ignored. */
const struct vb_settings *vb_dropin_settings(void);

/* Writes a line to stderr, with the process's name and number, if VERBENA_LOG asks for this level.
 * errno stays. */
void vb_dropin_log(enum vb_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
