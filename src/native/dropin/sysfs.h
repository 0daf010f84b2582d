// SPDX-License-Identifier: Apache-2.0
/*
 * Where sysfs is, and reading a file of it: two calls that libibverbs exports and device.c uses.
 */
#ifndef VB_DROPIN_SYSFS_H
#define VB_DROPIN_SYSFS_H

#include <stddef.h>

/* "/sys", or what SYSFS_PATH says. */
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *text, size_t size);

#endif
