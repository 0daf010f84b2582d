// SPDX-License-Identifier: Apache-2.0
/*
 * The host's CPUs in the two notations of sysfs, for the devices' local_cpus files. contents.c
 * calls this.
 */
#ifndef VB_PRELOAD_PATHS_CPUS_H
#define VB_PRELOAD_PATHS_CPUS_H

#include <stddef.h>

#define VB_CPUS_MAX 8192 /* the most that Linux can be built for */

struct vb_cpus {
    char list[4096];                 /* "0-3,8" */
    char mask[VB_CPUS_MAX / 32 * 9]; /* "0000010f": groups of 32 CPUs with commas, highest first */
};

/* Reads which CPUs are online. Returns 0 or -errno. */
int vb_preload_online_cpus(struct vb_cpus *cpus);

/* Converts a list into a mask. Returns 0, or -EINVAL if it is not a list. */
int vb_preload_cpu_mask(const char *list, char *mask, size_t size);

#endif
