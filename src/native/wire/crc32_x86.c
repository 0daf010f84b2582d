// SPDX-License-Identifier: Apache-2.0
/*
 * CRC-32 by carry-less multiplication, for four generations of x86-64 (crc32_fold.h explains the
 * arithmetic). crc32.c asks for the ways once. A function is called only where its instructions
 * are.
 */
#include "wire/crc32_ways.h"

#if defined(__x86_64__)

#include <stdbool.h>

#include "wire/crc32.h"
#include "wire/crc32_fold.h"

/*
 * Each implementation is one function over the bytes that are left. It is inlined twice, for a sum
 * and for a copy that is summed; `copy` is a constant in each.
 */
struct left {
    const uint8_t *from;
    uint8_t *to;
    size_t n;
};

FOLD_128 void advance(struct left *left, size_t n, bool copy)
{
    left->from += n;
    if (copy)
        left->to += n;
    left->n -= n;
}

FOLD_128 __m128i take_16(struct left *left, bool copy)
{
    __m128i block = load(left->from);

    if (copy)
        _mm_storeu_si128((void *)left->to, block);
    advance(left, 16, copy);
    return block;
}

/* The last bytes, fewer than 16. A copy is read back, so that the stored bytes are summed. */
FOLD_128 __m128i take_few(struct left *left, bool copy)
{
    if (!copy)
        return load_few(left->from, left->n);
    memcpy(left->to, left->from, left->n);
    return load_few(left->to, left->n);
}

FOLD_128 __m128i fold_blocks(__m128i block, struct left *left, bool copy)
{
    while (left->n >= 16)
        block = fold_128(block, take_16(left, copy));
    return block;
}

/* ---- SSE and PCLMULQDQ: four blocks of 16 bytes a step -------------------------------------- */

FOLD_128 __m128i pclmul_many(uint32_t crc, struct left *left, bool copy)
{
    const __m128i by = lanes(FOLD_HIGH_512, FOLD_LOW_512);
    __m128i a = _mm_xor_si128(take_16(left, copy), _mm_cvtsi32_si128((int)crc));
    __m128i b = take_16(left, copy), c = take_16(left, copy), d = take_16(left, copy);

    while (left->n >= 64) {
        a = _mm_xor_si128(fold(a, by), take_16(left, copy));
        b = _mm_xor_si128(fold(b, by), take_16(left, copy));
        c = _mm_xor_si128(fold(c, by), take_16(left, copy));
        d = _mm_xor_si128(fold(d, by), take_16(left, copy));
    }
    a = fold(a, lanes(FOLD_HIGH_384, FOLD_LOW_384));
    b = fold(b, lanes(FOLD_HIGH_256, FOLD_LOW_256));
    return _mm_xor_si128(_mm_xor_si128(a, b), fold_128(c, d));
}

FOLD_128 uint32_t pclmul(uint32_t crc, struct left left, bool copy)
{
    __m128i block;

    if (left.n < 16)
        return sum_of_few(crc, take_few(&left, copy), left.n);
    if (left.n >= 64)
        block = pclmul_many(crc, &left, copy);
    else
        block = _mm_xor_si128(take_16(&left, copy), _mm_cvtsi32_si128((int)crc));
    block = fold_blocks(block, &left, copy);
    if (left.n > 0)
        block = fold_tail(block, take_few(&left, copy), left.n);
    return reduce(block);
}

/* ---- AVX2 and VPCLMULQDQ: four blocks of 32 bytes a step ------------------------------------ */

#define FOLD_256 __attribute__((target("avx2,vpclmulqdq,pclmul"), always_inline)) static inline

FOLD_256 __m256i fold_2(__m256i blocks, uint64_t high, uint64_t low)
{
    __m256i by = _mm256_broadcastsi128_si256(lanes(high, low));

    return _mm256_xor_si256(_mm256_clmulepi64_epi128(blocks, by, 0x00),
                            _mm256_clmulepi64_epi128(blocks, by, 0x11));
}

FOLD_256 __m256i take_32(struct left *left, bool copy)
{
    __m256i blocks = _mm256_loadu_si256((const void *)left->from);

    if (copy)
        _mm256_storeu_si256((void *)left->to, blocks);
    advance(left, 32, copy);
    return blocks;
}

FOLD_256 __m256i next_2(__m256i blocks, uint64_t high, uint64_t low, struct left *left, bool copy)
{
    return _mm256_xor_si256(fold_2(blocks, high, low), take_32(left, copy));
}

FOLD_256 __m256i avx2_lines(__m256i a, struct left *left, bool copy)
{
    __m256i b = take_32(left, copy), c = take_32(left, copy), d = take_32(left, copy);

    while (left->n >= 128) {
        a = next_2(a, FOLD_HIGH_1024, FOLD_LOW_1024, left, copy);
        b = next_2(b, FOLD_HIGH_1024, FOLD_LOW_1024, left, copy);
        c = next_2(c, FOLD_HIGH_1024, FOLD_LOW_1024, left, copy);
        d = next_2(d, FOLD_HIGH_1024, FOLD_LOW_1024, left, copy);
    }
    a = _mm256_xor_si256(fold_2(a, FOLD_HIGH_768, FOLD_LOW_768),
                         fold_2(b, FOLD_HIGH_512, FOLD_LOW_512));
    c = _mm256_xor_si256(fold_2(c, FOLD_HIGH_256, FOLD_LOW_256), d);
    return _mm256_xor_si256(a, c);
}

FOLD_256 __m128i avx2_many(uint32_t crc, struct left *left, bool copy)
{
    __m256i first = _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)crc));
    __m256i blocks = _mm256_xor_si256(take_32(left, copy), first);

    if (left->n >= 96)
        blocks = avx2_lines(blocks, left, copy);
    while (left->n >= 32)
        blocks = next_2(blocks, FOLD_HIGH_256, FOLD_LOW_256, left, copy);
    return fold_128(_mm256_castsi256_si128(blocks), _mm256_extracti128_si256(blocks, 1));
}

FOLD_256 uint32_t avx2(uint32_t crc, struct left left, bool copy)
{
    __m128i block;

    if (left.n < 16)
        return sum_of_few(crc, take_few(&left, copy), left.n);
    if (left.n >= 32)
        block = avx2_many(crc, &left, copy);
    else
        block = _mm_xor_si128(take_16(&left, copy), _mm_cvtsi32_si128((int)crc));
    block = fold_blocks(block, &left, copy);
    if (left.n > 0)
        block = fold_tail(block, take_few(&left, copy), left.n);
    return reduce(block);
}

/* ---- AVX-512 and VPCLMULQDQ: four blocks of 64 bytes a step --------------------------------- */

#define AVX512   "avx512f,avx512bw,avx512vl,avx2,vpclmulqdq,pclmul,bmi2"
#define FOLD_512 __attribute__((target(AVX512), always_inline)) static inline

enum { XOR_OF_THREE = 0x96 }; /* the truth table of vpternlog for a ^ b ^ c */

FOLD_512 __m512i fold_4(__m512i blocks, uint64_t high, uint64_t low, __m512i next)
{
    __m512i by = _mm512_broadcast_i32x4(lanes(high, low));

    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(blocks, by, 0x00),
                                     _mm512_clmulepi64_epi128(blocks, by, 0x11), next,
                                     XOR_OF_THREE);
}

FOLD_512 __m512i take_64(struct left *left, bool copy)
{
    __m512i blocks = _mm512_loadu_si512(left->from);

    if (copy)
        _mm512_storeu_si512(left->to, blocks);
    advance(left, 64, copy);
    return blocks;
}

FOLD_512 __m512i next_4(__m512i blocks, struct left *left, bool copy)
{
    return fold_4(blocks, FOLD_HIGH_2048, FOLD_LOW_2048, take_64(left, copy));
}

/* Folds four lines of 64 bytes into one. */
FOLD_512 __m512i join_lines(__m512i a, __m512i b, __m512i c, __m512i d)
{
    d = fold_4(a, FOLD_HIGH_1536, FOLD_LOW_1536, d);
    d = fold_4(b, FOLD_HIGH_1024, FOLD_LOW_1024, d);
    return fold_4(c, FOLD_HIGH_512, FOLD_LOW_512, d);
}

FOLD_512 __m512i avx512_lines(__m512i a, __m512i b, __m512i c, __m512i d, struct left *left,
                              bool copy)
{
    while (left->n >= 256) {
        a = next_4(a, left, copy);
        b = next_4(b, left, copy);
        c = next_4(c, left, copy);
        d = next_4(d, left, copy);
    }
    return join_lines(a, b, c, d);
}

/* Folds the four blocks of a register into one, each by its distance to the last. */
FOLD_512 __m128i join_4(__m512i blocks)
{
    const __m512i by = _mm512_set_epi64(0, 0, FOLD_LOW_128, (long long)FOLD_HIGH_128, FOLD_LOW_256,
                                        (long long)FOLD_HIGH_256, FOLD_LOW_384, FOLD_HIGH_384);
    __m512i moved = _mm512_xor_si512(_mm512_clmulepi64_epi128(blocks, by, 0x00),
                                     _mm512_clmulepi64_epi128(blocks, by, 0x11));
    __m128i last = _mm512_extracti32x4_epi32(blocks, 3);
    __m256i half =
        _mm256_xor_si256(_mm512_castsi512_si256(moved), _mm512_extracti64x4_epi64(moved, 1));

    return _mm_ternarylogic_epi64(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1),
                                  last, XOR_OF_THREE);
}

FOLD_512 __m128i avx512_many(uint32_t crc, struct left *left, bool copy)
{
    __m512i first = _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc));
    __m512i blocks = _mm512_xor_si512(take_64(left, copy), first);

    if (left->n >= 192) {
        __m512i b = take_64(left, copy), c = take_64(left, copy), d = take_64(left, copy);
        blocks = avx512_lines(blocks, b, c, d, left, copy);
    }
    while (left->n >= 64)
        blocks = fold_4(blocks, FOLD_HIGH_512, FOLD_LOW_512, take_64(left, copy));
    return join_4(blocks);
}

/* The last bytes, fewer than 16, by a mask: bytes behind the end are not touched. */
FOLD_512 __m128i take_masked(struct left *left, bool copy)
{
    __mmask16 these = (__mmask16)_bzhi_u32(0xffff, (uint32_t)left->n);
    __m128i block = _mm_maskz_loadu_epi8(these, left->from);

    if (copy)
        _mm_mask_storeu_epi8(left->to, these, block);
    return block;
}

FOLD_512 uint32_t avx512(uint32_t crc, struct left left, bool copy)
{
    __m128i block;

    if (left.n < 16)
        return sum_of_few(crc, take_masked(&left, copy), left.n);
    if (left.n >= 64)
        block = avx512_many(crc, &left, copy);
    else
        block = _mm_xor_si128(take_16(&left, copy), _mm_cvtsi32_si128((int)crc));
    block = fold_blocks(block, &left, copy);
    if (left.n > 0)
        block = fold_tail(block, take_masked(&left, copy), left.n);
    return reduce(block);
}

/* ---- GFNI besides: eight lines of 64 bytes a step ------------------------------------------- */

/*
 * AMD's cores begin one carry-less multiplication in two cycles, whatever its width, and two
 * VGF2P8AFFINEQB in one. That instruction maps each byte by a matrix of 8 x 8 bits. Let w = x^512,
 * one line. The 32 polynomials x^i * w^j with i in 0..7 and j in {0, 1, 2, 4} are linearly
 * independent modulo P, so they express each x^i * w^8: a byte eight lines back is four bytes, of
 * its own column, 8, 7, 6 and 4 lines further on, each the product of the byte and a matrix. The
 * matrices come from solving those equations. (No four lines next to each other are independent.)
 * Five lines of eight go that way, three by multiplication at the same time.
 */
#define GFNI      AVX512 ",gfni"
#define FOLD_GFNI __attribute__((target(GFNI), always_inline)) static inline

#define AFFINE_8 0xcb7f87bd9225a828ull
#define AFFINE_7 0x735e94c010c85060ull
#define AFFINE_6 0xe839ca94503abfcdull
#define AFFINE_4 0x91e9a130609ba73cull

enum { RING = 8, RING_BYTES = RING * 64, RING_MIN = 2 * RING_BYTES };

FOLD_GFNI __m512i affine(__m512i line, uint64_t matrix)
{
    return _mm512_gf2p8affine_epi64_epi8(line, _mm512_set1_epi64((long long)matrix), 0);
}

FOLD_GFNI void add(__m512i *line, __m512i bytes)
{
    *line = _mm512_xor_si512(*line, bytes);
}

/* Line i is folded into the lines after it, and the line eight further on takes its place. */
FOLD_GFNI void ring_step(__m512i ring[RING], int i, __m512i next)
{
    __m512i line = ring[i];

    if (i < 3) {
        ring[i] = fold_4(line, FOLD_HIGH_4096, FOLD_LOW_4096, next);
        return;
    }
    add(&ring[(i + 4) % RING], affine(line, AFFINE_4));
    add(&ring[(i + 6) % RING], affine(line, AFFINE_6));
    add(&ring[(i + 7) % RING], affine(line, AFFINE_7));
    ring[i] = _mm512_xor_si512(affine(line, AFFINE_8), next);
}

FOLD_GFNI __m128i gfni_many(uint32_t crc, struct left *left, bool copy)
{
    __m512i first = _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)), ring[RING];

#pragma GCC unroll 8
    for (int i = 0; i < RING; i++)
        ring[i] = take_64(left, copy);
    add(&ring[0], first);
#pragma GCC unroll 1
    while (left->n >= RING_BYTES) {
#pragma GCC unroll 8
        for (int i = 0; i < RING; i++)
            ring_step(ring, i, take_64(left, copy));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        ring[i + 4] = fold_4(ring[i], FOLD_HIGH_2048, FOLD_LOW_2048, ring[i + 4]);
    __m512i line = avx512_lines(ring[4], ring[5], ring[6], ring[7], left, copy);
    while (left->n >= 64)
        line = fold_4(line, FOLD_HIGH_512, FOLD_LOW_512, take_64(left, copy));
    return join_4(line);
}

FOLD_GFNI uint32_t gfni(uint32_t crc, struct left left, bool copy)
{
    __m128i block;

    if (left.n < RING_MIN)
        return avx512(crc, left, copy);
    block = fold_blocks(gfni_many(crc, &left, copy), &left, copy);
    if (left.n > 0)
        block = fold_tail(block, take_masked(&left, copy), left.n);
    return reduce(block);
}

/* ---- the four, by name ---------------------------------------------------------------------- */

#define DEFINE_WAY(way, isa)                                                                       \
    __attribute__((target(isa))) static uint32_t way##_sum(uint32_t crc, const void *bytes,        \
                                                           size_t n)                               \
    {                                                                                              \
        return way(crc, (struct left){bytes, NULL, n}, false);                                     \
    }                                                                                              \
                                                                                                   \
    __attribute__((target(isa))) static uint32_t way##_copy(uint32_t crc, void *to,                \
                                                            const void *from, size_t n)            \
    {                                                                                              \
        return way(crc, (struct left){from, to, n}, true);                                         \
    }                                                                                              \
                                                                                                   \
    static const struct vb_crc32_way way##_way = {#way, way##_sum, way##_copy};

DEFINE_WAY(pclmul, "pclmul,ssse3,sse4.1")
DEFINE_WAY(avx2, "avx2,vpclmulqdq,pclmul")
DEFINE_WAY(avx512, AVX512)
DEFINE_WAY(gfni, GFNI)

enum { PCLMUL = 1, SSE41 = 2, AVX2 = 4, VPCLMUL = 8, BW = 16, VL = 32, BMI2 = 64, AFFINE = 128 };
enum { AMD = 256, OTHERS = 512 }; /* which of the two with 64 bytes is the faster */
enum {
    FOR_16 = PCLMUL | SSE41,
    FOR_32 = FOR_16 | AVX2 | VPCLMUL,
    FOR_64 = FOR_32 | BW | VL | BMI2
};

static const struct {
    const struct vb_crc32_way *way;
    unsigned needs;
} x86_ways[] = {
    {&gfni_way, FOR_64 | AFFINE | AMD},
    {&avx512_way, FOR_64},
    {&gfni_way, FOR_64 | AFFINE | OTHERS},
    {&avx2_way, FOR_32},
    {&pclmul_way, FOR_16},
};

#define HAS(name, bit) (__builtin_cpu_supports(name) ? (bit) : 0u)

size_t vb_wire_crc32_cpu_ways(const struct vb_crc32_way *ways[])
{
    size_t count = 0;

    __builtin_cpu_init();
    const unsigned has = HAS("pclmul", PCLMUL) | HAS("sse4.1", SSE41) | HAS("avx2", AVX2) |
                         HAS("vpclmulqdq", VPCLMUL) | HAS("avx512bw", BW) | HAS("avx512vl", VL) |
                         HAS("bmi2", BMI2) | HAS("gfni", AFFINE) |
                         (__builtin_cpu_is("amd") ? AMD : OTHERS);
    for (size_t i = 0; i < sizeof(x86_ways) / sizeof(*x86_ways); i++)
        if ((x86_ways[i].needs & ~has) == 0)
            ways[count++] = x86_ways[i].way;
    return count;
}

#endif
