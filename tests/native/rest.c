// SPDX-License-Identifier: Apache-2.0
#include "rest.h"

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

/* Up by one whenever the thread leaves a processor. */
static long switches_of(pid_t pid, const char *thread)
{
    char path[300], line[200];
    long switches = 0, count;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/task/%s/status", (int)pid, thread);
    file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "voluntary_ctxt_switches: %ld", &count) == 1 ||
            sscanf(line, "nonvoluntary_ctxt_switches: %ld", &count) == 1)
            switches += count;
    if (file)
        fclose(file);
    return switches;
}

/* User and system time in clock ticks: of one that never leaves its processor. */
static long ticks_of(pid_t pid, const char *thread)
{
    char path[300];
    long user = 0, system = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", (int)pid, thread);
    file = fopen(path, "r");
    if (!file)
        return 0;
    CHECK_EQ(fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user,
                    &system),
             2);
    fclose(file);
    return user + system;
}

static long activity_of(pid_t pid)
{
    char path[40];
    struct dirent *entry;
    long activity = 0;
    DIR *threads;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    threads = opendir(path);
    CHECK(threads);
    while ((entry = readdir(threads)))
        if (entry->d_name[0] != '.' && atol(entry->d_name) != syscall(SYS_gettid))
            activity += switches_of(pid, entry->d_name) + ticks_of(pid, entry->d_name);
    closedir(threads);
    return activity;
}

static long activity(const pid_t *pids, int count)
{
    long all = 0;

    for (int i = 0; i < count; ++i)
        all += activity_of(pids[i]);
    return all;
}

bool rest_comes(const pid_t *pids, int count, unsigned seconds, int tries)
{
    for (int i = 0; i < tries; ++i) {
        long before = activity(pids, count);

        sleep(seconds);
        if (activity(pids, count) == before)
            return true;
    }
    return false;
}
