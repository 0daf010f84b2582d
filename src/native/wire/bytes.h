// SPDX-License-Identifier: Apache-2.0
/*
 * Reads and writes numbers in network order at any alignment. Every room that looks into packets
 * calls these; the caller has checked the bounds.
 */
#ifndef VB_WIRE_BYTES_H
#define VB_WIRE_BYTES_H

#include <stdint.h>
#include <string.h>

static inline uint16_t vb_wire_get16(const uint8_t *at)
{
    uint16_t value;

    memcpy(&value, at, sizeof(value));
    return __builtin_bswap16(value);
}

static inline uint32_t vb_wire_get24(const uint8_t *at)
{
    return (uint32_t)at[0] << 16 | (uint32_t)at[1] << 8 | at[2];
}

static inline uint32_t vb_wire_get32(const uint8_t *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof(value));
    return __builtin_bswap32(value);
}

static inline uint64_t vb_wire_get64(const uint8_t *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof(value));
    return __builtin_bswap64(value);
}

static inline void vb_wire_put16(uint8_t *at, uint16_t value)
{
    value = __builtin_bswap16(value);
    memcpy(at, &value, sizeof(value));
}

static inline void vb_wire_put24(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 16);
    at[1] = (uint8_t)(value >> 8);
    at[2] = (uint8_t)value;
}

static inline void vb_wire_put32(uint8_t *at, uint32_t value)
{
    value = __builtin_bswap32(value);
    memcpy(at, &value, sizeof(value));
}

static inline void vb_wire_put64(uint8_t *at, uint64_t value)
{
    value = __builtin_bswap64(value);
    memcpy(at, &value, sizeof(value));
}

#endif
