// SPDX-License-Identifier: Apache-2.0
/*
 * What a user can do when a device cannot be opened. device.c and failures.c ask for it.
 */
#ifndef VB_DROPIN_REMEDY_H
#define VB_DROPIN_REMEDY_H

#include <stddef.h>

enum { VB_REMEDY_SIZE = 512 };

/* Writes a sentence that says what to do, or else the name of the error; `error` is negative. */
void vb_dropin_open_remedy(int error, char *text, size_t size);

#endif
