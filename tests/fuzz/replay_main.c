// SPDX-License-Identifier: Apache-2.0
/* Hands a fuzzing target the files named on the command line, without a fuzzer. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In memory of just the file's size: a sanitizer sees who reads beyond. */
static int replay(const char *path)
{
    static uint8_t room[1 << 20];
    FILE *file = fopen(path, "rb");
    uint8_t *exact;
    size_t size;

    if (!file) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    size = fread(room, 1, sizeof(room), file);
    fclose(file);
    exact = malloc(size + 1);
    if (!exact)
        return 1;
    memcpy(exact, room, size);
    printf("%s\n", path); /* the last one printed is the one that crashed */
    fflush(stdout);
    exact = realloc(exact, size + !size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    return 0;
}

int main(int count, char **paths)
{
    int failures = 0;

    for (int i = 1; i < count; ++i)
        failures += replay(paths[i]);
    return failures != 0;
}
