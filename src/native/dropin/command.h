// SPDX-License-Identifier: Apache-2.0
/*
 * A context's cmd_fd. libibverbs' is the kernel's, through which it gives commands; ours commands
 * nothing, but it can be told whose it is: contexts with duplicates of one descriptor, which is
 * what ibv_import_device makes, have one identity.
 */
#ifndef VB_DROPIN_COMMAND_H
#define VB_DROPIN_COMMAND_H

#include <stdint.h>

/* A new one, or -errno. */
int vb_dropin_command_open(void);

/* Whose it is, 0 if it is none of ours; of another process' it is one that no context here has. */
uint64_t vb_dropin_command_identity(int fd);

#endif
