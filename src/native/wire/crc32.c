// SPDX-License-Identifier: Apache-2.0
/* CRC-32 by tables, and the choice of the fastest way that the CPU offers (crc32.h). */
#include "wire/crc32.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "wire/crc32_ways.h"

/* ---- tables: eight bytes a step (slicing, as Kounavis and Berry described it) --------------- */

/* tables[k][b] is the register after byte b and k zero bytes, from an empty register. */
static uint32_t tables[8][256];
static pthread_once_t tables_made = PTHREAD_ONCE_INIT;

static void crc32_make_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? VB_CRC32_POLYNOMIAL : 0);
        tables[0][byte] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t before = tables[k - 1][byte];
            tables[k][byte] = before >> 8 ^ tables[0][before & 0xff];
        }
}

static inline uint32_t table_eight(uint32_t crc, uint64_t bytes)
{
    uint64_t value = bytes ^ crc;

    return tables[7][value & 0xff] ^ tables[6][value >> 8 & 0xff] ^ tables[5][value >> 16 & 0xff] ^
           tables[4][value >> 24 & 0xff] ^ tables[3][value >> 32 & 0xff] ^
           tables[2][value >> 40 & 0xff] ^ tables[1][value >> 48 & 0xff] ^ tables[0][value >> 56];
}

static inline uint32_t table_one(uint32_t crc, uint8_t byte)
{
    return crc >> 8 ^ tables[0][(crc ^ byte) & 0xff];
}

static uint32_t table_sum(uint32_t crc, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;

    for (; n >= 8; n -= 8, at += 8) {
        uint64_t eight;
        memcpy(&eight, at, sizeof(eight));
        crc = table_eight(crc, eight);
    }
    for (; n > 0; n--)
        crc = table_one(crc, *at++);
    return crc;
}

static uint32_t table_copy(uint32_t crc, void *to, const void *from, size_t n)
{
    const uint8_t *source = from;
    uint8_t *target = to;

    for (; n >= 8; n -= 8, source += 8, target += 8) {
        uint64_t eight;
        memcpy(&eight, source, sizeof(eight));
        memcpy(target, &eight, sizeof(eight));
        crc = table_eight(crc, eight);
    }
    for (; n > 0; n--) {
        uint8_t byte = *source++;
        *target++ = byte;
        crc = table_one(crc, byte);
    }
    return crc;
}

static const struct vb_crc32_way table_way = {"table", table_sum, table_copy};

/* ---- the way of this CPU -------------------------------------------------------------------- */

const struct vb_crc32_way *vb_wire_crc32_way(size_t number)
{
    const struct vb_crc32_way *ways[VB_CRC32_CPU_WAYS + 1];
    size_t count = vb_wire_crc32_cpu_ways(ways);

    pthread_once(&tables_made, crc32_make_tables);
    ways[count++] = &table_way;
    return number < count ? ways[number] : NULL;
}

/*
 * The fastest implementation, which the first call finds. It is a property of the CPU, so all
 * threads store the same.
 */
static _Atomic(const struct vb_crc32_way *) way_in_use;

static const struct vb_crc32_way *crc32_find_way(void)
{
    const struct vb_crc32_way *way = vb_wire_crc32_way(0);

    atomic_store_explicit(&way_in_use, way, memory_order_release);
    return way;
}

static inline const struct vb_crc32_way *crc32_way(void)
{
    const struct vb_crc32_way *found = atomic_load_explicit(&way_in_use, memory_order_acquire);

    return __builtin_expect(found != NULL, 1) ? found : crc32_find_way();
}

uint32_t vb_wire_crc32(uint32_t crc, const void *bytes, size_t n)
{
    return crc32_way()->sum(crc, bytes, n);
}

uint32_t vb_wire_crc32_copy(uint32_t crc, void *to, const void *from, size_t n)
{
    return crc32_way()->copy(crc, to, from, n);
}
