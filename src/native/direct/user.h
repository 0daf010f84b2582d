// SPDX-License-Identifier: Apache-2.0
/*
 * Whether the process at the other end of a socket is of this user. Both sides of a connection ask
 * before they send a descriptor, since any user may bind the name of a slot.
 */
#ifndef VB_DIRECT_USER_H
#define VB_DIRECT_USER_H

#include <stdbool.h>
#include <sys/types.h>

/* `pid` is in this process's PID namespace, 0 where the other process is not visible in that. */
bool vb_direct_same_user(int socket, pid_t *pid);
/* 0, or -EACCES. */
int vb_direct_check_user(int socket);

#endif
