// SPDX-License-Identifier: Apache-2.0
/*
 * CRC-32 by the instructions of ARMv8, where the kernel says that the CPU has them. crc32.c asks
 * for the way once.
 */
#include "wire/crc32_ways.h"

#if defined(__aarch64__)

#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>

#include "wire/crc32.h"

enum { HAS_CRC32 = 1 << 7 }; /* HWCAP_CRC32 of the kernel's asm/hwcap.h */

/*
 * Inline assembler, as compilers differ in how these instructions are named and allowed for one
 * function.
 */
static inline uint32_t arm_eight(uint32_t crc, uint64_t bytes)
{
    __asm__(".arch_extension crc\n\tcrc32x %w0, %w0, %x1" : "+r"(crc) : "r"(bytes));
    return crc;
}

static inline uint32_t arm_one(uint32_t crc, uint8_t byte)
{
    __asm__(".arch_extension crc\n\tcrc32b %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)byte));
    return crc;
}

/*
 * CRC32X takes eight bytes. Each step needs the result before, so eight bytes take about three
 * cycles.
 */
static uint32_t arm_sum(uint32_t crc, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;

    for (; n >= 8; n -= 8, at += 8) {
        uint64_t eight;
        memcpy(&eight, at, sizeof(eight));
        crc = arm_eight(crc, eight);
    }
    for (; n > 0; n--)
        crc = arm_one(crc, *at++);
    return crc;
}

static uint32_t arm_copy(uint32_t crc, void *to, const void *from, size_t n)
{
    const uint8_t *source = from;
    uint8_t *target = to;

    for (; n >= 8; n -= 8, source += 8, target += 8) {
        uint64_t eight;
        memcpy(&eight, source, sizeof(eight));
        memcpy(target, &eight, sizeof(eight));
        crc = arm_eight(crc, eight);
    }
    for (; n > 0; n--) {
        uint8_t byte = *source++;
        *target++ = byte;
        crc = arm_one(crc, byte);
    }
    return crc;
}

static const struct vb_crc32_way arm_way = {"arm", arm_sum, arm_copy};

size_t vb_wire_crc32_cpu_ways(const struct vb_crc32_way *ways[])
{
    if (!(getauxval(AT_HWCAP) & HAS_CRC32))
        return 0;
    ways[0] = &arm_way;
    return 1;
}

#endif
