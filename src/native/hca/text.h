// SPDX-License-Identifier: Apache-2.0
/*
 * Text that is added piece by piece to a buffer of the caller's. `length` counts also what found no
 * room, as snprintf's result does. No piece is ever cut in a way that leaves the buffer without its
 * final zero.
 */
#ifndef VB_HCA_TEXT_H
#define VB_HCA_TEXT_H

#include <stddef.h>

struct vb_text {
    char *at;
    size_t left;
    int length; /* of all pieces, also of what had no room */
};

void vb_text_add(struct vb_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Adds what the name between braces stands for; `as` is the letter behind its colon, or 0. */
typedef void vb_text_value(struct vb_text *text, const char *name, size_t length, char as,
                           const void *of);
/* Adds the format with each {name} and {name:letter} replaced by what `value` says of it. */
void vb_text_fill(struct vb_text *text, const char *format, vb_text_value *value, const void *of);

#endif
