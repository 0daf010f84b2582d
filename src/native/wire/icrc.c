// SPDX-License-Identifier: Apache-2.0
/*
 * The ICRC's register before the BTH, and the arithmetic that finds the identification which a
 * socket does not show (icrc.h). The tables are made by the first call that needs them.
 */
#include "wire/icrc.h"

#include <errno.h>
#include <pthread.h>

#include "wire/headers.h"

enum { IPV4 = 20, IPV4_MAX = 60, IPV6 = 40, UDP = 8, UDP_PROTOCOL = 17 };
enum { DONT_FRAGMENT = 0x4000 };

/* ---- what stands before the BTH ------------------------------------------------------------- */

/*
 * Makes BTH byte 4 count as ones, four bytes ahead of it: 0xff * x^-32, which becomes 0xff after 32
 * bits.
 */
#define ONES_AT_BTH_4 0x0f6a70d9u

/* The register after the eight bytes of ones that stand for an LRH. */
#define AFTER_ONES 0xdebb20e3u

static uint32_t icrc_start(const uint8_t *bytes, uint32_t length)
{
    return vb_wire_crc32(AFTER_ONES, bytes, length) ^ ONES_AT_BTH_4;
}

static void mask_ipv4(uint8_t *ip)
{
    ip[1] = 0xff;                   /* type of service */
    ip[8] = 0xff;                   /* time to live */
    vb_wire_put16(ip + 10, 0xffff); /* checksum */
}

/* Traffic class, flow label and hop limit, of IPv6 and of a GRH. */
static void mask_ipv6(uint8_t *ip)
{
    ip[0] |= 0x0f;
    memset(ip + 1, 0xff, 3);
    ip[7] = 0xff;
}

static void mask_udp(uint8_t *udp)
{
    vb_wire_put16(udp + 6, 0xffff); /* checksum */
}

static void write_udp(uint8_t *at, const struct vb_icrc_flow *flow, uint32_t udp_length)
{
    vb_wire_put16(at, flow->source_port);
    vb_wire_put16(at + 2, flow->target_port);
    vb_wire_put16(at + 4, (uint16_t)udp_length);
    mask_udp(at);
}

static uint32_t start_udp_ipv4(const struct vb_icrc_flow *flow, uint32_t udp_length)
{
    uint8_t ip[IPV4 + UDP] = {0x45};

    vb_wire_put16(ip + 2, (uint16_t)(IPV4 + udp_length));
    ip[9] = UDP_PROTOCOL;
    memcpy(ip + 12, flow->source + 12, 4);
    memcpy(ip + 16, flow->target + 12, 4);
    mask_ipv4(ip);
    write_udp(ip + IPV4, flow, udp_length);
    return icrc_start(ip, sizeof(ip));
}

static uint32_t start_udp_ipv6(const struct vb_icrc_flow *flow, uint32_t udp_length)
{
    uint8_t ip[IPV6 + UDP];

    ip[0] = 0x60;
    vb_wire_put16(ip + 4, (uint16_t)udp_length);
    ip[6] = UDP_PROTOCOL;
    memcpy(ip + 8, flow->source, 16);
    memcpy(ip + 24, flow->target, 16);
    mask_ipv6(ip);
    write_udp(ip + IPV6, flow, udp_length);
    return icrc_start(ip, sizeof(ip));
}

bool vb_wire_icrc_is_ipv4(const struct vb_icrc_flow *flow)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    return memcmp(flow->target, mapped, sizeof(mapped)) == 0;
}

uint32_t vb_wire_icrc_start_udp(const struct vb_icrc_flow *flow, uint32_t length)
{
    const uint32_t udp_length = UDP + length + VB_ICRC;

    return vb_wire_icrc_is_ipv4(flow) ? start_udp_ipv4(flow, udp_length)
                                      : start_udp_ipv6(flow, udp_length);
}

uint32_t vb_wire_icrc_start_ipv4(const uint8_t *ip, uint32_t ip_length, const uint8_t *udp)
{
    uint8_t bytes[IPV4_MAX + UDP];

    memcpy(bytes, ip, ip_length);
    mask_ipv4(bytes);
    memcpy(bytes + ip_length, udp, UDP);
    mask_udp(bytes + ip_length);
    return icrc_start(bytes, ip_length + UDP);
}

uint32_t vb_wire_icrc_start_ipv6(const uint8_t *ip, const uint8_t *udp)
{
    uint8_t bytes[IPV6 + UDP];

    memcpy(bytes, ip, IPV6);
    mask_ipv6(bytes);
    memcpy(bytes + IPV6, udp, UDP);
    mask_udp(bytes + IPV6);
    return icrc_start(bytes, sizeof(bytes));
}

uint32_t vb_wire_icrc_start_grh(const uint8_t *grh)
{
    uint8_t bytes[VB_GRH];

    memcpy(bytes, grh, VB_GRH);
    mask_ipv6(bytes);
    return icrc_start(bytes, sizeof(bytes));
}

uint32_t vb_wire_icrc_start_lrh(const uint8_t *lrh, const uint8_t *grh)
{
    uint8_t bytes[VB_LRH];

    if (grh) /* routers replace the LRH, so it counts as ones */
        return vb_wire_icrc_start_grh(grh);
    memcpy(bytes, lrh, sizeof(bytes));
    bytes[0] |= 0xf0; /* the virtual lane */
    return vb_wire_crc32(VB_CRC32_START, bytes, sizeof(bytes)) ^ ONES_AT_BTH_4;
}

/* ---- polynomials modulo the CRC's, x^0 in bit 31 as in the register ------------------------- */

#define X_TO_MINUS_32 0x5b358fd3u

static uint32_t divided_by_x(uint32_t a)
{
    return a & 0x80000000u ? (a ^ VB_CRC32_POLYNOMIAL) << 1 | 1 : a << 1;
}

/*
 * The product has 63 bits, with x^0 in bit 62. What is above x^31 is reduced as by four more bytes.
 */
static uint32_t multiply(uint32_t a, uint32_t b)
{
    static const uint8_t zeros[4];
    uint64_t product = 0;

    for (int bit = 0; bit < 32; bit++)
        product ^= ((uint64_t)b << bit) & -(uint64_t)(a >> bit & 1);
    return (uint32_t)(product >> 31) ^ vb_wire_crc32((uint32_t)product << 1, zeros, sizeof(zeros));
}

/*
 * back[0][n] is x^(-8n) and back[1][n] is x^(-8 * 256 * n): factors that move a register n, or 256
 * n, bytes back.
 */
static uint32_t back[2][256];
/*
 * The change of a start register by a value of the identification's two bytes and of the flags'
 * byte.
 */
static uint32_t unseen_byte[3][256];
/* The change of a start register by a value of BTH byte 4. */
static uint32_t bth_byte_4[256];
static pthread_once_t tables_made = PTHREAD_ONCE_INIT;

static void make_back(void)
{
    const uint32_t one = 0x80000000u;
    uint32_t step = one;

    for (int bit = 0; bit < 8; bit++)
        step = divided_by_x(step);
    for (int digit = 0; digit < 2; digit++) {
        uint32_t power = one;
        for (int n = 0; n < 256; n++, power = multiply(power, step))
            back[digit][n] = power;
        step = power;
    }
}

static void icrc_make_tables(void)
{
    uint8_t bytes[IPV4 - 4 + UDP] = {0};

    make_back();
    for (int at = 0; at < 3; at++, bytes[at - 1] = 0)
        for (int value = 0; value < 256; value++) {
            bytes[at] = (uint8_t)value;
            unseen_byte[at][value] = vb_wire_crc32(0, bytes, sizeof(bytes));
        }
    for (uint32_t value = 0; value < 256; value++)
        bth_byte_4[value] = multiply(value, X_TO_MINUS_32);
}

uint32_t vb_wire_icrc_mask(uint32_t start, uint8_t byte_4)
{
    pthread_once(&tables_made, icrc_make_tables);
    return start ^ bth_byte_4[byte_4];
}

/* ---- the identification --------------------------------------------------------------------- */

uint32_t vb_wire_icrc_with(uint32_t start, struct vb_icrc_unseen unseen)
{
    pthread_once(&tables_made, icrc_make_tables);
    return start ^ unseen_byte[0][unseen.id >> 8] ^ unseen_byte[1][unseen.id & 0xff] ^
           unseen_byte[2][unseen.dont_fragment ? DONT_FRAGMENT >> 8 : 0];
}

/*
 * The sum is linear: changing the four bytes of identification, flags and offset by `change` moves
 * the register at the packet's end by change * x^(8n), with n bytes from the first of the four on.
 */
int vb_wire_icrc_explain(uint32_t computed, uint32_t received, uint32_t length,
                         struct vb_icrc_unseen *unseen)
{
    enum { FROM_ID_TO_BTH = IPV4 - 4 + UDP, COULD_CHANGE = 0x0040ffff };
    const uint32_t bytes = FROM_ID_TO_BTH + length;

    if (computed == received)
        return 0;
    if (bytes > UINT16_MAX)
        return -EBADMSG;
    pthread_once(&tables_made, icrc_make_tables);
    uint32_t power = multiply(back[0][bytes & 0xff], back[1][bytes >> 8]);
    uint32_t change = multiply(computed ^ received, power); /* the first byte lowest */
    if (change & ~(uint32_t)COULD_CHANGE)
        return -EBADMSG;
    unseen->id ^= __builtin_bswap16((uint16_t)change);
    unseen->dont_fragment ^= change >> 22 & 1;
    return 0;
}

int vb_wire_icrc_check_ipv4(uint32_t start, const uint8_t *bth, uint32_t length,
                            struct vb_icrc_unseen *unseen)
{
    const uint32_t computed =
        vb_wire_icrc_transport(vb_wire_icrc_with(start, *unseen), bth, length);

    return vb_wire_icrc_explain(computed, vb_wire_icrc_read(bth + length), length, unseen);
}
