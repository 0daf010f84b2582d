// SPDX-License-Identifier: Apache-2.0
/*
 * The table of RNR timer codes (IBA table 45). The packet engine and the direct carrier wait by it.
 */
#include "hca/delays.h"

/* In units of 10 us; code 0 is the longest. */
static const uint32_t rnr_timer[32] = {
    65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,    32,
    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024,  1536,
    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
};

uint64_t vb_rnr_delay(uint8_t code)
{
    return rnr_timer[code & 31] * 10000ull;
}
