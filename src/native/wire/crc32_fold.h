// SPDX-License-Identifier: Apache-2.0
/*
 * CRC-32 by carry-less multiplication: the steps on sixteen bytes, for crc32_x86.c. All of it is
 * inlined into functions that may use these instructions.
 *
 * Sixteen bytes in a vector register are a polynomial whose x^127 is bit 0 of byte 0, in the order
 * in which the CRC takes them. Let a message begin with the block B, followed by d bits. Modulo the
 * CRC's polynomial P it is congruent to the message without B in which B * x^d mod P is added (XOR)
 * to the block d bits further on. With B = high * x^64 + low that is two products of 64 bits: high
 * * (x^(64+d) mod P) + low * (x^d mod P).
 *
 * In this bit order a product of two lanes comes out multiplied by x, so the constants are for one
 * power less: FOLD_HIGH_d is x^(63+d) mod P and FOLD_LOW_d is x^(d-1) mod P, each with x^31 in bit
 * 32 of its lane and x^0 in bit 63.
 */
#ifndef VB_WIRE_CRC32_FOLD_H
#define VB_WIRE_CRC32_FOLD_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define FOLD_HIGH_128  0x65673b4600000000ull
#define FOLD_LOW_128   0x9ba54c6f00000000ull
#define FOLD_HIGH_256  0x9570d49500000000ull
#define FOLD_LOW_256   0x01b5fd1d00000000ull
#define FOLD_HIGH_384  0x69ccfc0d00000000ull
#define FOLD_LOW_384   0x2a28386200000000ull
#define FOLD_HIGH_512  0x653d982200000000ull
#define FOLD_LOW_512   0xcad38e8f00000000ull
#define FOLD_HIGH_768  0x759fc69d00000000ull
#define FOLD_LOW_768   0x101a233100000000ull
#define FOLD_HIGH_1024 0x7d657a1000000000ull
#define FOLD_LOW_1024  0x7406fa9500000000ull
#define FOLD_HIGH_1536 0x67f7947600000000ull
#define FOLD_LOW_1536  0xc56d949600000000ull
#define FOLD_HIGH_2048 0x7cc8e1e700000000ull
#define FOLD_LOW_2048  0x03f9f86300000000ull
#define FOLD_HIGH_4096 0xe4e4561000000000ull
#define FOLD_LOW_4096  0xc78c44a100000000ull

#define FOLD_128 __attribute__((target("pclmul,ssse3,sse4.1"), always_inline)) static inline

FOLD_128 __m128i lanes(uint64_t first, uint64_t second)
{
    return _mm_set_epi64x((long long)second, (long long)first);
}

FOLD_128 __m128i fold(__m128i block, __m128i by)
{
    return _mm_xor_si128(_mm_clmulepi64_si128(block, by, 0x00),
                         _mm_clmulepi64_si128(block, by, 0x11));
}

FOLD_128 __m128i fold_128(__m128i block, __m128i next)
{
    return _mm_xor_si128(fold(block, lanes(FOLD_HIGH_128, FOLD_LOW_128)), next);
}

/*
 * block * x^32 mod P, the register. First to 96 bits, w = A * x^32 + B, by x^96 mod P (given as
 * x^95, with x^31 in bit 0). The quotient of A * x^32 by P is exactly the upper half of A * mu with
 * mu = floor(x^96 / P), since A has 64 bits (Barrett; polynomials do not carry). mu / x has 64 bits
 * and gives the quotient in place. The remainder is what quotient * P leaves below x^32.
 */
FOLD_128 uint32_t reduce(__m128i block)
{
    const __m128i power_96 = lanes(0xccaa009eull, 0);
    const __m128i mu_and_p = lanes(0xb4e5b025f7011641ull, 0x1db710641ull);
    __m128i w =
        _mm_xor_si128(_mm_clmulepi64_si128(block, power_96, 0x00), _mm_srli_si128(block, 8));
    __m128i quotient = _mm_clmulepi64_si128(w, mu_and_p, 0x00);
    __m128i rest = _mm_clmulepi64_si128(quotient, mu_and_p, 0x10);

    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(w, rest), 2);
}

/* Masks for pshufb: numbers of bytes; 0x80 gives a zero byte. */
static const uint8_t slide[48] = {
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
};

FOLD_128 __m128i load(const void *at)
{
    return _mm_loadu_si128(at);
}

/* Moves the block's first n bytes to its end, behind zeros. */
FOLD_128 __m128i to_end(__m128i block, size_t n)
{
    return _mm_shuffle_epi8(block, load(slide + n));
}

/* Moves all but the block's first n bytes to its begin, before zeros. */
FOLD_128 __m128i to_begin(__m128i block, size_t n)
{
    return _mm_shuffle_epi8(block, load(slide + 16 + n));
}

/* Folds a block into the n < 16 bytes behind it, with which `tail` begins. */
FOLD_128 __m128i fold_tail(__m128i block, __m128i tail, size_t n)
{
    __m128i last = _mm_or_si128(to_begin(block, n), to_end(tail, n));

    return fold_128(to_end(block, n), last);
}

/*
 * The register after a message of n < 16 bytes, with which `tail` begins; its other bytes are
 * zeros.
 */
FOLD_128 uint32_t sum_of_few(uint32_t crc, __m128i tail, size_t n)
{
    __m128i block = _mm_xor_si128(tail, _mm_cvtsi32_si128((int)crc));
    uint32_t beyond = n < 4 ? crc >> 8 * n : 0; /* bytes of the register beyond the message */

    return reduce(to_end(block, n)) ^ beyond;
}

static inline uint64_t load_64(const uint8_t *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof(value));
    return value;
}

static inline uint32_t load_32(const uint8_t *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof(value));
    return value;
}

/* Loads n < 16 bytes and zeros, and touches no byte behind them. */
FOLD_128 __m128i load_few(const uint8_t *at, size_t n)
{
    if (n >= 8) /* the shift is by 8 to 64 bits, so it is done in two steps */
        return lanes(load_64(at), load_64(at + n - 8) >> 1 >> (127 - 8 * n));
    if (n >= 4)
        return lanes(load_32(at) | (uint64_t)load_32(at + n - 4) << 8 * (n - 4), 0);
    if (n == 0)
        return _mm_setzero_si128();
    return lanes(at[0] | (uint32_t)at[n / 2] << 8 * (n / 2) | (uint32_t)at[n - 1] << 8 * (n - 1),
                 0);
}

#endif
