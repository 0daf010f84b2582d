// SPDX-License-Identifier: Apache-2.0
/*
 * The check of memory from ibv_alloc_buf, for the calls that register it.
 */
#ifndef VB_DROPIN_BUFFER_H
#define VB_DROPIN_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct ibv_buf;
struct ibv_pd;

/* Does the range lie in the buffer, and is the buffer of this protection domain? */
bool vb_dropin_buffer_covers(const struct ibv_buf *buffer, const struct ibv_pd *pd,
                             const void *addr, size_t length);

#endif
