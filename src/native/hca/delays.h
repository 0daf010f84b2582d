// SPDX-License-Identifier: Apache-2.0
/*
 * The transport's times in nanoseconds, from the codes that packets and attributes carry. The
 * packet engine and the direct carrier wait by them, so that both fail after the same time.
 */
#ifndef VB_HCA_DELAYS_H
#define VB_HCA_DELAYS_H

#include <stdint.h>

/* How long a sender waits after an RNR NAK with this timer code (IBA table 45). */
uint64_t vb_rnr_delay(uint8_t code);

/* Local ACK timeout: the least time without an answer (IBA 9.7.6.1.3). Code 0 means for ever. */
static inline uint64_t vb_ack_timeout(uint8_t code)
{
    return 4096ull << (code & 31);
}

#endif
