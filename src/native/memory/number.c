// SPDX-License-Identifier: Apache-2.0
/* The parser of numbers in VERBENA_* variables (number.h). */
#include "memory/number.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where the number ends; NULL: there is none, or it is too large. */
static const char *number_digits(const char *text, uint64_t *number)
{
    const char *at = text;
    uint64_t value = 0;

    for (; *at >= '0' && *at <= '9'; ++at)
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return NULL;
    *number = value;
    return at == text ? NULL : at;
}

bool vb_memory_number_parse(const char *text, uint64_t *number)
{
    uint64_t value;
    const char *end = number_digits(text, &value);

    if (!end || *end)
        return false;
    *number = value;
    return true;
}

bool vb_memory_number_parse_size(const char *text, uint64_t *number)
{
    static const char units[] = "KkMmGg";
    uint64_t value;
    const char *end = number_digits(text, &value);
    const char *unit = end && *end ? strchr(units, *end) : NULL;
    unsigned shift = unit ? 10 * (unsigned)((unit - units) / 2 + 1) : 0;

    if (!end || end[unit != NULL] || value > UINT64_MAX >> shift)
        return false;
    *number = value << shift;
    return true;
}

uint64_t vb_memory_number_take(struct vb_number_reader *reader, uint64_t least, uint64_t most)
{
    size_t digits = strspn(reader->at, "0123456789abcdef");
    uint64_t value = strtoull(reader->at, NULL, 16);

    reader->damaged |=
        !digits || digits > 16 || reader->at[digits] != ' ' || value < least || value > most;
    if (reader->damaged)
        return least;
    reader->at += digits + 1;
    return value;
}

size_t vb_memory_number_size_of_variable(const char *variable)
{
    const char *text = getenv(variable);
    uint64_t size = 0;
    char line[256];
    int length;

    if (!text || !*text || (vb_memory_number_parse_size(text, &size) && size && size <= SIZE_MAX))
        return (size_t)size;
    length = snprintf(line, sizeof(line),
                      "verbena: %.15s[%d]: %s=%.64s is not a size and ignored: write a number of "
                      "bytes, or of KiB, MiB or GiB with K, M or G behind it, as 64M\n",
                      program_invocation_short_name, (int)getpid(), variable, text);
    (void)!write(STDERR_FILENO, line, (size_t)length); /* where nobody listens, nothing helps */
    return 0;
}
