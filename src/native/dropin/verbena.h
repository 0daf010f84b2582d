// SPDX-License-Identifier: Apache-2.0
/* What libibverbs.so.1 offers besides libibverbs' own calls, in the version node VERBENA_1. */
#ifndef VB_DROPIN_VERBENA_H
#define VB_DROPIN_VERBENA_H

#include <stddef.h>
#include <stdint.h>

struct ibv_context;

/* Zeroed memory that peers map; `align` 0 or a power of two. NULL and errno. */
void *verbena_heap_alloc(size_t size, size_t align);
void verbena_heap_free(void *p);
/* Usable bytes of an allocation, 0 for any other pointer. */
size_t verbena_heap_size(const void *p);

/*
 * The evidence behind an error completion (its vendor_err), in one or two sentences; returns
 * their length as snprintf does, 0 if none is kept.
 */
int verbena_explain(struct ibv_context *context, uint32_t vendor_err, char *text, size_t size);

/* JSON about the device's slot, its heap and its peers; length as snprintf, or -errno. */
int verbena_describe(struct ibv_context *context, char *json, size_t size);

#endif
