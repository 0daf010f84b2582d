// SPDX-License-Identifier: Apache-2.0
#include "rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const lines[] = {
#include "rules.inc"
};

const char *rules_records(const char *words)
{
    if (!*words)
        return "";
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); ++i)
        if (strcmp(strchr(lines[i], '|') + 1, words) == 0)
            return lines[i];
    fprintf(stderr, "add to tests/native/rules.py, and run it: %s\n", words);
    exit(1);
}
