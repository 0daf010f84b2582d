// SPDX-License-Identifier: Apache-2.0
/*
 * The variant CRC (IBA 7.8.2): 16 bits over a packet as it is on one link, from the LRH to the
 * ICRC, or to the end of a raw packet's payload. Its low byte is sent first. verbena.wire calls it
 * for InfiniBand packets, from any thread.
 */
#ifndef VB_WIRE_VCRC_H
#define VB_WIRE_VCRC_H

#include <stddef.h>
#include <stdint.h>

uint16_t vb_wire_vcrc(const void *bytes, size_t n);

#endif
