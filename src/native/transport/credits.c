// SPDX-License-Identifier: Apache-2.0
/*
 * The codes of table 44 (IBA 9.7.7.2.5): 0, 1, and from 2 on alternately a power of two and one and
 * a half times that power.
 */
#include "transport/credits.h"

uint32_t vb_engine_credits_decode(uint8_t code)
{
    uint32_t power;

    if (code < 2)
        return code;
    power = 1u << (code / 2);
    return code & 1 ? power + power / 2 : power;
}

uint8_t vb_engine_credits_encode(uint32_t count)
{
    unsigned log;

    if (count < 2)
        return (uint8_t)count;
    if (count >= 32768)
        return 30;
    log = 31 - (unsigned)__builtin_clz(count);
    return (uint8_t)(2 * log + (count >> (log - 1) & 1));
}
