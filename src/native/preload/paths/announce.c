// SPDX-License-Identifier: Apache-2.0
/*
 * Lines on stderr that explain why the machine seems to have an RDMA device, and why a program that
 * was started over Verbena did not use it. A constructor and an exit handler write them.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "port/gid.h"
#include "port/run_note.h"
#include "preload/paths/next.h"

#ifdef __GLIBC__
/* A program that used no network, such as ls, has nothing to do with devices. */
static void say_unused(int status, void *unused)
{
    (void)unused;
    if (status == 0 && vb_port_run_note_is_set(VB_NOTE_NETWORK) &&
        !vb_port_run_note_is_set(VB_NOTE_DEVICE))
        dprintf(STDERR_FILENO,
                "verbena: %s used TCP and never looked for " VB_DEVICE_NAME "0: "
                "programs that can use both may have to be told (docs/running.md)\n",
                program_invocation_short_name);
}
#endif

__attribute__((constructor)) static void announce(void)
{
    const char *level = getenv("VERBENA_LOG");
    if (level && (strcmp(level, "info") == 0 || strcmp(level, "debug") == 0))
        dprintf(STDERR_FILENO,
                "verbena: pid %d (%s) sees " VB_DEVICE_NAME "0 below /sys/class/infiniband and "
                "/dev/infiniband\n",
                (int)getpid(), program_invocation_short_name);
#ifdef __GLIBC__
    if (vb_port_run_note_is_first())
        on_exit(say_unused, NULL);
#endif
}

VB_EXPORT int socket(int domain, int type, int protocol)
{
    static atomic_bool noted;
    bool network = domain == AF_INET || domain == AF_INET6;
    if (network && (type & 0xf) == SOCK_STREAM && !atomic_exchange(&noted, true))
        vb_port_run_note_set(VB_NOTE_NETWORK);
    return VB_NEXT(socket)(domain, type, protocol);
}
