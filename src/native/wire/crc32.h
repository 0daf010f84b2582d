// SPDX-License-Identifier: Apache-2.0
/*
 * The CRC-32 of Ethernet and of the ICRC (polynomial 0x04C11DB7, least significant bit first), at
 * the CPU's speed.
 *
 * What goes in and comes out is the running register, so that a packet in pieces is summed piece by
 * piece: begin with VB_CRC32_START, hand each piece what the one before returned, complement the
 * last (zlib's crc32 complements on both sides of each call). Any length, any alignment; no bytes
 * leave the register as it is. Safe in any number of threads.
 */
#ifndef VB_WIRE_CRC32_H
#define VB_WIRE_CRC32_H

#include <stddef.h>
#include <stdint.h>

#define VB_CRC32_START      0xffffffffu
#define VB_CRC32_POLYNOMIAL 0xedb88320u /* x^31 in bit 0; x^32 is implied */

uint32_t vb_wire_crc32(uint32_t crc, const void *bytes, size_t n);

/*
 * Copies and sums in one pass. The sum is that of the bytes stored, even if somebody writes to
 * `from` meanwhile. `to` and `from` must not overlap; the order of the stores is not promised.
 */
uint32_t vb_wire_crc32_copy(uint32_t crc, void *to, const void *from, size_t n);

/* A way to do it. Ways are what tests and measurements compare; others call the above. */
struct vb_crc32_way {
    const char *name;
    uint32_t (*sum)(uint32_t crc, const void *bytes, size_t n);
    uint32_t (*copy)(uint32_t crc, void *to, const void *from, size_t n);
};

/* The ways that this CPU knows: number 0 is the one in use, the last is "table"; NULL after it. */
const struct vb_crc32_way *vb_wire_crc32_way(size_t number);

#endif
