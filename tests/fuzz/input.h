// SPDX-License-Identifier: Apache-2.0
/* A fuzzer's bytes as a row of choices; after their end every choice is 0. */
#ifndef VB_TESTS_FUZZ_INPUT_H
#define VB_TESTS_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>

struct input {
    const uint8_t *at;
    size_t left;
};

static inline uint8_t take8(struct input *input)
{
    if (!input->left)
        return 0;
    --input->left;
    return *input->at++;
}

static inline uint16_t take16(struct input *input)
{
    uint16_t low = take8(input);

    return (uint16_t)(low | take8(input) << 8);
}

static inline uint32_t take32(struct input *input)
{
    uint32_t low = take16(input);

    return low | (uint32_t)take16(input) << 16;
}

#endif
