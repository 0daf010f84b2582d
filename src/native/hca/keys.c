// SPDX-License-Identifier: Apache-2.0
/*
 * The window of the region table in which regions get random entries, as a bitmap of two levels.
 * mr.c calls it under the adapter's mutex.
 */
#include "hca/keys.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "hca/layout.h"

enum { WORD = 64, GUESSES = 8 };

static bool keys_is_set(const uint64_t *bits, uint32_t n)
{
    return bits[n / WORD] >> n % WORD & 1;
}

static void keys_put(uint64_t *bits, uint32_t n, bool value)
{
    uint64_t bit = 1ull << n % WORD;

    bits[n / WORD] = value ? bits[n / WORD] | bit : bits[n / WORD] & ~bit;
}

static void keys_mark(struct vb_keys *keys, uint32_t index, bool taken)
{
    keys_put(keys->taken, index, taken);
    keys_put(keys->full, index / WORD, keys->taken[index / WORD] == UINT64_MAX);
}

/* Grows a bitmap from one number of bits to another; the new bits are 0. */
static bool keys_extend(uint64_t **words, uint32_t from, uint32_t to)
{
    uint64_t *grown = realloc(*words, to / 8);

    if (!grown)
        return false;
    memset((uint8_t *)grown + from / 8, 0, (to - from) / 8);
    *words = grown;
    return true;
}

/* Doubles the window when half of it is in use. */
static int keys_widen(struct vb_keys *keys)
{
    uint32_t window = keys->window ? keys->window * 2 : VB_MR_WINDOW;

    if (window > keys->entries || keys->count < keys->window / 2)
        return 0;
    if (!keys_extend(&keys->taken, keys->window, window) ||
        !keys_extend(&keys->full, keys->window / WORD, window / WORD))
        return -ENOMEM;
    if (!keys->window) {
        keys_mark(keys, 0, true); /* key 0 stays invalid */
        keys->count = 1;
    }
    keys->window = window;
    return 0;
}

/* The first bit that is 0, from `n` on and then from 0 on. At least one of the `count` bits is 0.
 */
static uint32_t next_zero(const uint64_t *bits, uint32_t count, uint32_t n)
{
    uint32_t word = n / WORD;
    uint64_t zeros = ~bits[word] & ~0ull << n % WORD;

    while (!zeros) {
        word = (word + 1) % (count / WORD);
        zeros = ~bits[word];
    }
    return word * WORD + (uint32_t)__builtin_ctzll(zeros);
}

/* Chooses a free entry. Half of them are free, so a few guesses find one nearly always. */
static uint32_t keys_choose(const struct vb_keys *keys, struct vb_random *random)
{
    uint32_t guess = 0, word;

    for (int i = 0; i < GUESSES; ++i) {
        guess = (uint32_t)vb_random_next(random) & (keys->window - 1);
        if (!keys_is_set(keys->taken, guess))
            return guess;
    }
    word = next_zero(keys->full, keys->window / WORD, guess / WORD);
    return word * WORD + (uint32_t)__builtin_ctzll(~keys->taken[word]);
}

int vb_keys_take(struct vb_keys *keys, struct vb_random *random, uint32_t *index)
{
    int error = keys_widen(keys);

    if (error && !keys->window)
        return error;
    if (keys->count > keys->entries / 2 || keys->count == keys->window)
        return -ENOMEM;
    *index = keys_choose(keys, random);
    keys_mark(keys, *index, true);
    ++keys->count;
    return 0;
}

void vb_keys_return(struct vb_keys *keys, uint32_t index)
{
    keys_mark(keys, index, false);
    --keys->count;
}

uint32_t vb_keys_next(const struct vb_keys *keys, uint32_t index)
{
    while (index < keys->window) {
        uint64_t word = keys->taken[index / WORD] >> index % WORD;

        if (word)
            return index + (uint32_t)__builtin_ctzll(word);
        index = (index / WORD + 1) * WORD;
    }
    return keys->window;
}

void vb_keys_free(struct vb_keys *keys)
{
    free(keys->taken);
    free(keys->full);
}
