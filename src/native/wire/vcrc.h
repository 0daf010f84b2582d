// SPDX-License-Identifier: Apache-2.0
/*
 * The variant CRC (IBA 7.8.2): 16 bits over a packet as it is on one link, from the LRH to the
 * ICRC, or to the payload's end in a raw packet. Its two bytes stand low byte first.
 */
#ifndef VB_WIRE_VCRC_H
#define VB_WIRE_VCRC_H

#include <stddef.h>
#include <stdint.h>

uint16_t vb_wire_vcrc(const void *bytes, size_t n);

#endif
