// SPDX-License-Identifier: Apache-2.0
/*
 * What costs nothing while a process has one thread. To register for the kernel's memory barriers,
 * which each device does when it is opened, takes a grace period of RCU in a process with several
 * threads: 13 ms and 53 ms on a busy machine. A device that is opened later finds it done.
 */
#include "hca/biased_lock.h"

__attribute__((constructor)) static void one_thread_begin(void)
{
    vb_barrier_register(); /* where it is refused, the device will say so, or do without */
}
