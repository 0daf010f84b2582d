// SPDX-License-Identifier: Apache-2.0
/*
 * The counters of the device as sysfs shows them: the sum over the running processes of this user
 * that have it open. The names below counters/ are the kernel's, those below hw_counters/ are
 * soft-RoCE's (drivers/infiniband/sw/rxe/rxe_hw_counters.c) and Verbena's own.
 */
#ifndef VB_HOST_DEVICE_COUNTERS_H
#define VB_HOST_DEVICE_COUNTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VB_DEVICE_COUNTER_NAME = 64 };

/* The n-th file's name, as "counters/port_xmit_data"; false: there are no more. */
bool vb_host_device_counter_name(size_t n, char name[VB_DEVICE_COUNTER_NAME]);
/* Its value now, for the device of that number. Asks every process, some 50 us each. */
uint64_t vb_host_device_counter(unsigned device, size_t n);

#endif
