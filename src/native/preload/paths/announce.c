// SPDX-License-Identifier: Apache-2.0
/* Nobody should have to wonder why a machine seems to have an RDMA device. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "port/gid.h"

__attribute__((constructor)) static void announce(void)
{
    const char *level = getenv("VERBENA_LOG");
    if (level && (strcmp(level, "info") == 0 || strcmp(level, "debug") == 0))
        dprintf(STDERR_FILENO,
                "verbena: pid %d (%s) sees " VB_DEVICE_NAME " below /sys/class/infiniband and "
                "/dev/infiniband\n",
                (int)getpid(), program_invocation_short_name);
}
