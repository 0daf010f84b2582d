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

/* Records that Python made: hexadecimal numbers, each with a space behind it. */
struct vb_number_reader {
    const char *at; /* the next character */
    bool damaged;   /* a number was missing or out of bounds; `at` stays there */
};

/* Reads the next number. If there is none, or it is out of bounds, the record is damaged and the
 * result is `least`. */
uint64_t vb_memory_number_take(struct vb_number_reader *reader, uint64_t least, uint64_t most);

/* The variable's size in bytes; 0: it is not set, or is not understood, of which a line on stderr
 * tells. Allocates nothing, so that an allocator may call it. */
size_t vb_memory_number_size_of_variable(const char *variable);

#endif
