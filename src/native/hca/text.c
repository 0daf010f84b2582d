// SPDX-License-Identifier: Apache-2.0
/*
 * Text that is added piece by piece to a buffer of the caller's. What does not fit is counted and
 * left out, as snprintf does.
 */
#include "hca/text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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
    if ((size_t)wrote >= text->left) /* the piece was cut, and ends with its zero */
        wrote = text->left ? (int)text->left - 1 : 0;
    text->at += wrote;
    text->left -= (size_t)wrote;
}

void vb_text_fill(struct vb_text *text, const char *format, vb_text_value *value, const void *of)
{
    const char *open, *close;

    while ((open = strchr(format, '{')) && (close = strchr(open, '}'))) {
        bool as = close - open > 2 && close[-2] == ':';

        vb_text_add(text, "%.*s", (int)(open - format), format);
        value(text, open + 1, (size_t)(close - open - (as ? 3 : 1)), as ? close[-1] : '\0', of);
        format = close + 1;
    }
    vb_text_add(text, "%s", format);
}
