// SPDX-License-Identifier: Apache-2.0
/*
 * Random numbers from a seed, the same for the same seed. They are unpredictable for who does not
 * know the seed, however many others he has seen: peers see keys of memory regions and must not be
 * able to guess more of them. The caller lets one thread at a time take numbers.
 */
#ifndef VB_HCA_RANDOM_H
#define VB_HCA_RANDOM_H

#include <stdint.h>

struct vb_random {
    uint64_t key[2];
    uint64_t count; /* of numbers taken */
};

/* SipHash-2-4 of the next count (Aumasson and Bernstein, 2012). */
uint64_t vb_random_next(struct vb_random *random);

/* SplitMix64, for what nobody has to guess: a counter and a mix of its bits, so any seed will do.
 */
static inline uint64_t vb_random_mix(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

#endif
