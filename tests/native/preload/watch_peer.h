// SPDX-License-Identifier: Apache-2.0
/* The library that plays libibverbs.so.1 for test_freed_blocks.c: what was reported to it. */
#ifndef VB_TESTS_PRELOAD_WATCH_PEER_H
#define VB_TESTS_PRELOAD_WATCH_PEER_H

#include <stdbool.h>
#include <stddef.h>

#define WATCH_PEER_EXPORT __attribute__((visibility("default")))

enum { WATCH_PEER_REPORTS = 16 };

struct watch_peer_report {
    const void *at;
    size_t n;
    int change;
};

struct watch_peer {
    bool concerned; /* what each report is answered */
    unsigned count;
    struct watch_peer_report reports[WATCH_PEER_REPORTS];
    void (*within)(void); /* called once, in the next report; NULL: nothing */
};

WATCH_PEER_EXPORT struct watch_peer *watch_peer(void);
/* A region is there from now on. */
WATCH_PEER_EXPORT void watch_peer_region(const void *at, size_t n);
/* The library frees a block of its own. */
WATCH_PEER_EXPORT void watch_peer_free(void *block);

#endif
