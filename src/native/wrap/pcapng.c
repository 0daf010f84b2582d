// SPDX-License-Identifier: Apache-2.0
/* Writes the blocks of pcapng.h. capture.c and capture_file.c call it. */
#include "wrap/pcapng.h"

#include <string.h>

enum {
    OPTION_END = 0,
    OPTION_COMMENT = 1,
    SHB_APPLICATION = 4,
    IDB_NAME = 2,
    IDB_RESOLUTION = 9,
    EPB_FLAGS = 2,
    NANOSECONDS = 9,
    OPTION_HEADER = 4,
};

static size_t padded(size_t length)
{
    return (length + 3) & ~(size_t)3;
}

static uint8_t *pcapng_put(uint8_t *at, const void *value, size_t length)
{
    memcpy(at, value, length);
    memset(at + length, 0, padded(length) - length);
    return at + padded(length);
}

static uint8_t *put_u32(uint8_t *at, uint32_t value)
{
    return pcapng_put(at, &value, sizeof(value));
}

static uint8_t *put_pair(uint8_t *at, uint16_t first, uint16_t second)
{
    memcpy(at, &first, sizeof(first));
    memcpy(at + sizeof(first), &second, sizeof(second));
    return at + OPTION_HEADER;
}

static uint8_t *put_option(uint8_t *at, uint16_t code, const void *value, size_t length)
{
    return pcapng_put(put_pair(at, code, (uint16_t)length), value, length);
}

/* Type and length stand first, the length once more at the end. */
static size_t close_block(uint8_t *at, uint32_t type, const uint8_t *end)
{
    uint32_t length = (uint32_t)(end - at) + 4;

    put_u32(put_u32(at, type), length);
    put_u32(at + length - 4, length);
    return length;
}

size_t vb_wrap_pcapng_section(uint8_t *at, const char *application)
{
    static const uint64_t unknown_length = UINT64_MAX;
    uint8_t *p = put_u32(at + 8, VB_PCAPNG_MAGIC);

    p = put_pair(p, 1, 0); /* version 1.0 */
    p = pcapng_put(p, &unknown_length, sizeof(unknown_length));
    p = put_option(p, SHB_APPLICATION, application, strlen(application));
    return close_block(at, VB_PCAPNG_SECTION, put_pair(p, OPTION_END, 0));
}

size_t vb_wrap_pcapng_interface(uint8_t *at, enum vb_pcapng_link link, const char *name)
{
    static const uint8_t resolution = NANOSECONDS;
    uint8_t *p = put_u32(put_pair(at + 8, (uint16_t)link, 0), 0); /* no limit of length */

    p = put_option(p, IDB_NAME, name, strlen(name));
    p = put_option(p, IDB_RESOLUTION, &resolution, sizeof(resolution));
    return close_block(at, VB_PCAPNG_INTERFACE, put_pair(p, OPTION_END, 0));
}

size_t vb_wrap_pcapng_packet(uint8_t *at, const struct vb_pcapng_packet *packet)
{
    const char *comment = packet->comment ? packet->comment : "";
    uint32_t flags = packet->direction;
    uint8_t *p = put_u32(at + 8, 0); /* the first interface */

    p = put_u32(p, (uint32_t)(packet->time >> 32));
    p = put_u32(p, (uint32_t)packet->time);
    p = put_u32(p, packet->captured);
    p = put_u32(p, packet->length) + packet->captured;
    memset(p, 0, padded(packet->captured) - packet->captured);
    p += padded(packet->captured) - packet->captured;
    p = put_option(p, EPB_FLAGS, &flags, sizeof(flags));
    if (*comment)
        p = put_option(p, OPTION_COMMENT, comment, strlen(comment));
    return close_block(at, VB_PCAPNG_PACKET, put_pair(p, OPTION_END, 0));
}

size_t vb_wrap_pcapng_filler(uint8_t *at, size_t length, uint32_t packets)
{
    memset(at + 8, 0, length - VB_PCAPNG_LEAST);
    put_u32(at + length - 8, packets);
    return close_block(at, VB_PCAPNG_FILLER, at + length - 4);
}

uint32_t vb_wrap_pcapng_filled(const uint8_t *end)
{
    uint32_t packets;

    memcpy(&packets, end - 8, sizeof(packets));
    return packets;
}
