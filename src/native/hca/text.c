// SPDX-License-Identifier: Apache-2.0
#include "hca/text.h"

#include <stdarg.h>
#include <stdio.h>

void vb_text_add(struct vb_text *text, const char *format, ...)
{
    va_list values;
    int wrote;

    va_start(values, format);
    wrote = vsnprintf(text->at, text->left, format, values);
    va_end(values);
    if (wrote < 0)
        return;
    text->length += wrote;
    if ((size_t)wrote >= text->left) /* a cut piece is ended: the next one writes over its end */
        wrote = text->left ? (int)text->left - 1 : 0;
    text->at += wrote;
    text->left -= (size_t)wrote;
}
