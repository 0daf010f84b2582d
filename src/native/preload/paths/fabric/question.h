// SPDX-License-Identifier: Apache-2.0
/*
 * Questions of a program to the process of the fabric to whose host it is attached
 * (src/verbena/subnet_process; VERBENA_FABRIC and VERBENA_HOST, which `verbena run --fabric` sets).
 * Each question is a connection of its own, so there is no state that threads or forked children
 * would share. A connection of a device stays open as the device's descriptor.
 */
#ifndef VB_PRELOAD_PATHS_FABRIC_QUESTION_H
#define VB_PRELOAD_PATHS_FABRIC_QUESTION_H

#include <stdbool.h>

#include "port/fabric_question.h"

/* Whether this program is attached to a host of a fabric. */
bool vb_preload_fabric_is_set(void);

/* Asks, and copies at most `room` bytes of the answer; `length` is how many there are. 0, or
 * -errno; a sentence of the process is printed once. */
int vb_preload_fabric_ask(const struct vb_fabric_question *question, void *answer, size_t room,
                          size_t *length);

/* Opens a device: the connection, or -errno. */
int vb_preload_fabric_open(const struct vb_fabric_question *question, int flags);

#endif
