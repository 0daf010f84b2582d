// SPDX-License-Identifier: Apache-2.0
/*
 * What the processes of this user that have the device open have counted, asked of each process's
 * service thread over the socket of its slot. The caller needs no device of its own. A process
 * answers whatever its build, and one that is stopped is left out.
 */
#ifndef VB_DIRECT_QUERY_H
#define VB_DIRECT_QUERY_H

#include <stdint.h>

struct vb_adapter;
struct vb_text;

/* Adds the members of a JSON object: all that the adapter's carriers have counted. */
typedef void vb_direct_count_fn(struct vb_adapter *adapter, struct vb_text *text);

/* `device` is the number in the name of the process's device. `json` has an object with a member
 * for each part, as vb_host_counters makes it. */
typedef void vb_direct_answer(void *with, uint32_t device, const char *json);

/* Calls `each` with the answer of every device that a process has open, one after another. */
void vb_direct_query_counters(vb_direct_answer *each, void *with);

/* The service thread's part: answers on a connection whose first message asked. `slot` is the first
 * one of the process. */
void vb_direct_query_answer(struct vb_adapter *adapter, vb_direct_count_fn *count, uint32_t slot,
                            int socket);

#endif
