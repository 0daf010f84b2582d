// SPDX-License-Identifier: Apache-2.0
/*
 * munmap, mmap, mremap, mprotect and shmdt: the calls by which a program takes memory away, or the
 * right to write to it. Verbena learns of each before it happens, so that arrived data can be put
 * into receive buffers there while they exist, and no request touches what is mapped there later
 * (hca/gone.h).
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/types.h> /* off64_t */
#include <unistd.h>

#include "memory/watch.h"
#include "preload/paths/next.h"
#include "preload/paths/watch/mappings.h"
#include "preload/paths/watch/watch.h"

__attribute__((constructor)) static void begin(void)
{
    if (verbena_watch_begin)
        verbena_watch_begin();
}

/* Reports memory that may be protected, or may move. Returns true if a region is there. */
static bool mappings_report(const void *at, size_t n)
{
    return verbena_mapping && verbena_mapping(at, n, VB_MAPPING_PROTECTED);
}

/* Reports memory that will be unmapped or replaced. Returns true if a region is there; the caller
 * then reports what happened (mappings_went). */
static bool goes(const void *at, size_t n)
{
    return n && verbena_mapping && verbena_mapping(at, n, VB_MAPPING_GOES);
}

static void mappings_went(bool reported, const void *at, size_t n, bool really)
{
    if (reported)
        verbena_mapping(at, n, really ? VB_MAPPING_WENT : VB_MAPPING_STAYED);
}

int vb_preload_watched_munmap(munmap_call *next, void *at, size_t length)
{
    bool reported = goes(at, length);
    int result = next(at, length);

    mappings_went(reported, at, length, result == 0);
    return result;
}

VB_EXPORT int munmap(void *at, size_t length)
{
    return vb_preload_watched_munmap(VB_NEXT(munmap), at, length);
}

void vb_preload_watched_mprotect(const void *at, size_t length, int protection)
{
    if (!(protection & PROT_WRITE))
        mappings_report(at, length);
}

VB_EXPORT int mprotect(void *at, size_t length, int protection)
{
    vb_preload_watched_mprotect(at, length, protection);
    return VB_NEXT(mprotect)(at, length, protection);
}

VB_EXPORT int pkey_mprotect(void *at, size_t length, int protection, int key)
{
    mappings_report(at, length);
    return VB_NEXT(pkey_mprotect)(at, length, protection, key);
}

void *vb_preload_watched_mmap(mmap_call *next, void *at, size_t length, int protection, int flags,
                              int fd, off_t offset)
{
    bool reported = (flags & MAP_FIXED) && goes(at, length);
    void *result = next(at, length, protection, flags, fd, offset);

    mappings_went(reported, at, length, result != MAP_FAILED);
    return result;
}

VB_EXPORT void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
    return vb_preload_watched_mmap(VB_NEXT(mmap), at, length, protection, flags, fd, offset);
}

VB_ALIAS(mmap64, mmap);

/* ---- mremap ---- */

static size_t whole_pages(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return (n + page - 1) & ~(page - 1);
}

/* The pages move to another address, and replace what is there. */
static void *mappings_move(mremap_call *next, void *at, size_t length, size_t wanted, int flags,
                           void *target)
{
    bool fixed = flags & MREMAP_FIXED, reported = goes(at, length);
    bool reported_target = fixed && goes(target, wanted);
    void *result = next(at, length, wanted, flags, target);

    mappings_went(reported, at, length, result != MAP_FAILED);
    mappings_went(reported_target, target, wanted, result != MAP_FAILED);
    return result;
}

static void *mappings_shrink(mremap_call *next, void *at, size_t length, size_t wanted, int flags)
{
    uint8_t *tail = (uint8_t *)at + whole_pages(wanted);
    size_t rest = (uint8_t *)at + whole_pages(length) - tail;
    bool reported = wanted && goes(tail, rest);
    void *result = next(at, length, wanted, flags, NULL);

    mappings_went(reported, tail, rest, result != MAP_FAILED);
    return result;
}

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

void *vb_preload_watched_mremap(mremap_call *next, void *at, size_t length, size_t wanted,
                                int flags, void *target)
{
    void *grown;

    if (!mappings_report(at, length) && !(flags & MREMAP_FIXED))
        return next(at, length, wanted, flags, target);
    if (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP))
        return mappings_move(next, at, length, wanted, flags, target);
    if (wanted <= length)
        return mappings_shrink(next, at, length, wanted, flags);
    if (!length || !(flags & MREMAP_MAYMOVE)) /* a second mapping of the same, or none that moves */
        return next(at, length, wanted, flags, target);
    grown = next(at, length, wanted, flags & ~MREMAP_MAYMOVE, target);
    return grown != MAP_FAILED ? grown : mappings_move(next, at, length, wanted, flags, NULL);
}

/* The C library's mremap is variadic; this passes the optional argument always. */
static void *next_mremap(void *at, size_t length, size_t wanted, int flags, void *target)
{
    return VB_NEXT(mremap)(at, length, wanted, flags, target);
}

VB_EXPORT void *mremap(void *at, size_t length, size_t wanted, int flags, ...)
{
    void *target = NULL;
    va_list more;

    va_start(more, flags);
    if (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP))
        target = va_arg(more, void *);
    va_end(more);
    return vb_preload_watched_mremap(next_mremap, at, length, wanted, flags, target);
}

/* ---- shmdt ---- */

/* What is read of a line of /proc/self/maps. */
struct mapping {
    uintptr_t low, high;
    unsigned long offset, inode;
    char device[16];
};

/* Returns where the segment that was attached at `at` ends, which is behind all of its mappings
 * that follow each other, or `at` if nothing is there. */
static uintptr_t end_of_segment(uintptr_t at)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    struct mapping line, first = {0};
    uintptr_t end = at;
    char text[512];

    while (maps && fgets(text, sizeof(text), maps)) {
        if (sscanf(text, "%" SCNxPTR "-%" SCNxPTR " %*s %lx %15s %lu", &line.low, &line.high,
                   &line.offset, line.device, &line.inode) != 5 ||
            line.low < end)
            continue;
        if (line.low == at)
            first = line;
        if (line.low != end || line.inode != first.inode || strcmp(line.device, first.device) ||
            line.offset != line.low - at)
            break;
        end = line.high;
    }
    if (maps)
        fclose(maps);
    return end;
}

int vb_preload_watched_shmdt(shmdt_call *next, const void *at)
{
    uintptr_t end = verbena_mapping ? end_of_segment((uintptr_t)at) : (uintptr_t)at;
    bool reported = goes(at, end - (uintptr_t)at);
    int result = next(at);

    mappings_went(reported, at, end - (uintptr_t)at, result == 0);
    return result;
}

VB_EXPORT int shmdt(const void *at)
{
    return vb_preload_watched_shmdt(VB_NEXT(shmdt), at);
}
