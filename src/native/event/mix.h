// SPDX-License-Identifier: Apache-2.0
/*
 * The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): each bit of the result depends on all
 * bits of the argument. The world's random numbers, ECMP's hash, packet spraying and detours use
 * it. One multiplication is not enough for a hash: flows whose numbers follow a pattern, as those
 * of shifts and of several connections of one pair do, then share ways more often than by chance.
 */
#ifndef VB_EVENT_MIX_H
#define VB_EVENT_MIX_H

#include <stdint.h>

/* What SplitMix64 adds to its state for each number: 2^64 divided by the golden ratio. */
#define VB_WORLD_GOLDEN 0x9e3779b97f4a7c15ull

static inline uint64_t vb_world_mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

#endif
