// SPDX-License-Identifier: Apache-2.0
/*
 * The CRC-32 of Ethernet and of the ICRC (polynomial 0x04C11DB7, least significant bit first), as
 * fast as the CPU computes it. icrc.h and the senders of packets call it, from any thread.
 *
 * Argument and result are the running register, so that a packet in pieces is summed piece by
 * piece: begin with VB_CRC32_START, give each call what the one before returned, and complement the
 * last result (zlib's crc32 complements on both sides of each call). Any length and alignment is
 * allowed; no bytes leave the register as it is.
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

/*
 * An implementation, which needs certain instructions. Tests and measurements compare them; all
 * others call the functions above.
 */
struct vb_crc32_way {
    const char *name;
    uint32_t (*sum)(uint32_t crc, const void *bytes, size_t n);
    uint32_t (*copy)(uint32_t crc, void *to, const void *from, size_t n);
};

/*
 * The implementations that this CPU can run: number 0 is the one in use, the last is "table", and
 * NULL follows.
 */
const struct vb_crc32_way *vb_wire_crc32_way(size_t number);

#endif
