// SPDX-License-Identifier: Apache-2.0
/*
 * SipHash-2-4 as a generator of random numbers. Keys of memory regions come from it, under the
 * adapter's mutex.
 */
#include "hca/random.h"

static uint64_t rotate(uint64_t word, unsigned bits)
{
    return word << bits | word >> (64 - bits);
}

static void mix(uint64_t v[4], unsigned rounds)
{
    while (rounds--) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32) + v[3];
        v[2] += v[1];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

static void random_take_in(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    mix(v, 2);
    v[0] ^= word;
}

uint64_t vb_random_next(struct vb_random *random)
{
    const uint64_t *key = random->key;
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575ull, key[1] ^ 0x646f72616e646f6dull,
                     key[0] ^ 0x6c7967656e657261ull, key[1] ^ 0x7465646279746573ull};

    random_take_in(v, random->count++);
    random_take_in(v, 8ull << 56); /* the length of what was taken in */
    v[2] ^= 0xff;
    mix(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
