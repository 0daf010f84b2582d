// SPDX-License-Identifier: Apache-2.0
/*
 * A context's cmd_fd. libibverbs' descriptor gives commands to the kernel; this one is a memory
 * file that only identifies the context. Contexts with duplicates of one descriptor, which
 * ibv_import_device makes, have one identity.
 */
#ifndef VB_DROPIN_COMMAND_H
#define VB_DROPIN_COMMAND_H

#include <stdint.h>

/* Returns a new descriptor, or -errno. */
int vb_dropin_command_open(void);

/* Returns the identity, or 0 for a file that is not such a descriptor. The descriptor of another
 * process has an identity that no context of this process has. */
uint64_t vb_dropin_command_identity(int fd);

#endif
