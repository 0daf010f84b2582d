// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the list of online CPUs from sysfs and converts it into a mask (cpus.h).
 */
#include "preload/paths/cpus.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads one range of the list, "5" or "5-7". Returns what follows it, or NULL if it is not a range.
 */
static const char *next_range(const char *at, unsigned long *first, unsigned long *last)
{
    char *end;
    *first = *last = strtoul(at, &end, 10);
    if (end == at)
        return NULL;
    if (*end == '-') {
        at = end + 1;
        *last = strtoul(at, &end, 10);
    }
    if (end == at || *last < *first || *last >= VB_CPUS_MAX)
        return NULL;
    return end + (*end == ',');
}

static void print_mask(const uint32_t *words, int highest, char *mask, size_t size)
{
    size_t at = 0;
    for (int i = highest; i >= 0 && at < size; i--)
        at += (size_t)snprintf(mask + at, size - at, "%08x%s", words[i], i ? "," : "");
}

int vb_preload_cpu_mask(const char *list, char *mask, size_t size)
{
    uint32_t words[VB_CPUS_MAX / 32] = {0};
    unsigned long first, last = 0;
    do {
        list = next_range(list, &first, &last);
        if (!list)
            return -EINVAL;
        for (unsigned long cpu = first; cpu <= last; cpu++)
            words[cpu / 32] |= UINT32_C(1) << cpu % 32;
    } while (*list);
    print_mask(words, (int)(last / 32), mask, size); /* the list ascends */
    return 0;
}

int vb_preload_online_cpus(struct vb_cpus *cpus)
{
    FILE *file = fopen("/sys/devices/system/cpu/online", "re");
    if (!file)
        return -errno;
    const char *line = fgets(cpus->list, sizeof cpus->list, file);
    fclose(file);
    if (!line)
        return -EIO;
    cpus->list[strcspn(cpus->list, "\n")] = '\0';
    return vb_preload_cpu_mask(cpus->list, cpus->mask, sizeof cpus->mask);
}
