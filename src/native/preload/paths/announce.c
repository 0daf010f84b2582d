// SPDX-License-Identifier: Apache-2.0
/*
 * Nobody should have to wonder why a machine seems to have an RDMA device, or why a program that
 * was told to run over one did not.
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
#include "preload/paths/announce.h"
#include "preload/paths/next.h"

#ifdef __GLIBC__
/* Programs also look for the manager and do without: those succeed. */
static void say_manager(int status, void *unused)
{
    (void)unused;
    if (status)
        dprintf(STDERR_FILENO,
                "verbena: %s looked for the connection manager (/dev/infiniband/rdma_cm, as "
                "librdmacm does), which Verbena does not offer: have it exchange addresses over "
                "TCP, if it can\n",
                program_invocation_short_name);
}

/* Where nothing came near a network, as in a listing of files, there is nothing to tell. */
static void say_unused(int status, void *unused)
{
    (void)unused;
    if (status == 0 && vb_port_run_note_is_set(VB_NOTE_NETWORK) &&
        !vb_port_run_note_is_set(VB_NOTE_DEVICE))
        dprintf(STDERR_FILENO,
                "verbena: %s used TCP and never looked for " VB_DEVICE_NAME
                ": programs that can use both may have to be told (docs/running.md)\n",
                program_invocation_short_name);
}
#endif

__attribute__((constructor)) static void announce(void)
{
    const char *level = getenv("VERBENA_LOG");
    if (level && (strcmp(level, "info") == 0 || strcmp(level, "debug") == 0))
        dprintf(STDERR_FILENO,
                "verbena: pid %d (%s) sees " VB_DEVICE_NAME " below /sys/class/infiniband and "
                "/dev/infiniband\n",
                (int)getpid(), program_invocation_short_name);
#ifdef __GLIBC__
    if (vb_port_run_note_is_first())
        on_exit(say_unused, NULL);
#endif
}

void vb_preload_announce_missing(const char *path)
{
    static atomic_bool noted;
    if (errno != ENOENT || strcmp(path, "/dev/infiniband/rdma_cm") != 0 ||
        atomic_exchange(&noted, true))
        return;
#ifdef __GLIBC__
    on_exit(say_manager, NULL);
    errno = ENOENT;
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
