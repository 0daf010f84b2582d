// SPDX-License-Identifier: Apache-2.0
#include "watch_peer.h"

#include <stdint.h>
#include <stdlib.h>

#include "memory/watch.h"

struct watch_peer *watch_peer(void)
{
    static struct watch_peer peer;

    return &peer;
}

void watch_peer_region(const void *at, size_t n)
{
    vb_memory_watch_range((uintptr_t)at, n);
}

void watch_peer_free(void *block)
{
    free(block);
    __asm__ volatile(""); /* the call is not this function's end, and so has its address */
}

WATCH_PEER_EXPORT int verbena_mapping(const void *at, size_t n, int change)
{
    struct watch_peer *peer = watch_peer();
    void (*within)(void) = peer->within;

    if (peer->count < WATCH_PEER_REPORTS)
        peer->reports[peer->count++] = (struct watch_peer_report){at, n, change};
    peer->within = NULL;
    if (within)
        within();
    return peer->concerned;
}

WATCH_PEER_EXPORT const void *verbena_watch_map(void)
{
    return vb_memory_watch_map();
}
