// SPDX-License-Identifier: Apache-2.0
/* The variant CRC (vcrc.h) by tables of eight bytes a step. verbena.wire calls it. */
#include "wire/vcrc.h"

#include <pthread.h>
#include <string.h>

enum { POLYNOMIAL = 0xd008 }; /* x^16 + x^12 + x^3 + x + 1, x^15 in bit 0 */

/* tables[k][b] is the register after byte b and k zero bytes, from an empty register. */
static uint16_t tables[8][256];
static pthread_once_t tables_made = PTHREAD_ONCE_INIT;

static void vcrc_make_tables(void)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        unsigned crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        tables[0][byte] = (uint16_t)crc;
    }
    for (int k = 1; k < 8; k++)
        for (unsigned byte = 0; byte < 256; byte++) {
            unsigned before = tables[k - 1][byte];
            tables[k][byte] = (uint16_t)(before >> 8 ^ tables[0][before & 0xff]);
        }
}

static unsigned eight(unsigned crc, const uint8_t *at)
{
    return tables[7][(at[0] ^ crc) & 0xff] ^ tables[6][at[1] ^ crc >> 8] ^ tables[5][at[2]] ^
           tables[4][at[3]] ^ tables[3][at[4]] ^ tables[2][at[5]] ^ tables[1][at[6]] ^
           tables[0][at[7]];
}

uint16_t vb_wire_vcrc(const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    unsigned crc = 0xffff;

    pthread_once(&tables_made, vcrc_make_tables);
    for (; n >= 8; n -= 8, at += 8)
        crc = eight(crc, at);
    for (; n > 0; n--)
        crc = crc >> 8 ^ tables[0][(crc ^ *at++) & 0xff];
    return (uint16_t)~crc;
}
