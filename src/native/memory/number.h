// SPDX-License-Identifier: Apache-2.0
/*
 * Numbers that users write into VERBENA_* variables. The drop-in library's settings, the process's
 * heap and the preload library of --shared-heap parse theirs here. A text that has a number only at
 * its beginning, as "64X", is refused.
 */
#ifndef VB_MEMORY_NUMBER_H
#define VB_MEMORY_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decimal digits and nothing else; false: the text is something else, or the number is too large.
 */
bool vb_memory_number_parse(const char *text, uint64_t *number);
/* The same, or with K, M or G behind it (KiB, MiB, GiB). */
bool vb_memory_number_parse_size(const char *text, uint64_t *number);

/* The variable's size in bytes; 0: it is not set, or is not understood, of which a line on stderr
 * tells. Allocates nothing, so that an allocator may call it. */
size_t vb_memory_number_size_of_variable(const char *variable);

#endif
