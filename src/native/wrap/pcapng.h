// SPDX-License-Identifier: Apache-2.0
/*
 * Blocks of a pcapng file (draft-ietf-opsawg-pcapng). capture.c and capture_file.c write them into
 * memory, in the host's byte order. Each function returns the block's length, a multiple of four.
 */
#ifndef VB_WRAP_PCAPNG_H
#define VB_WRAP_PCAPNG_H

#include <stddef.h>
#include <stdint.h>

enum {
    VB_PCAPNG_MAGIC = 0x1a2b3c4d,
    VB_PCAPNG_SECTION = 0x0a0d0d0a,
    VB_PCAPNG_INTERFACE = 1,
    VB_PCAPNG_PACKET = 6,
    VB_PCAPNG_LEAST = 12,        /* an empty block */
    VB_PCAPNG_FILLER_LEAST = 16, /* the least filler, which contains a number */
    VB_PCAPNG_PACKET_FIXED = 32  /* a packet block without data and options */
};

#define VB_PCAPNG_FILLER 0x80766265u /* a type for local use: readers skip it */

/* epb_flags, bits 1:0. */
enum vb_pcapng_direction { VB_PCAPNG_INBOUND = 1, VB_PCAPNG_OUTBOUND = 2 };

/*
 * Link types of tcpdump.org. Wireshark reads InfiniBand packets, from the LRH to the VCRC, as
 * records of ERF (Endace's format), whose header has 16 bytes.
 */
enum vb_pcapng_link { VB_PCAPNG_ETHERNET = 1, VB_PCAPNG_ERF = 197 };

struct vb_pcapng_packet {
    uint64_t time; /* ns since 1970 */
    uint32_t captured, length;
    enum vb_pcapng_direction direction;
    const char *comment; /* NULL or empty: none */
};

size_t vb_wrap_pcapng_section(uint8_t *at, const char *application);
/* Times are in nanoseconds. */
size_t vb_wrap_pcapng_interface(uint8_t *at, enum vb_pcapng_link link, const char *name);
/* The captured bytes must be at `at` + 28 already. */
size_t vb_wrap_pcapng_packet(uint8_t *at, const struct vb_pcapng_packet *packet);
/*
 * A block of `length` bytes, at least VB_PCAPNG_FILLER_LEAST, that readers skip. It ends with a
 * number (how many packets stand before it), which vb_wrap_pcapng_filled reads from the filler's
 * end.
 */
size_t vb_wrap_pcapng_filler(uint8_t *at, size_t length, uint32_t packets);
uint32_t vb_wrap_pcapng_filled(const uint8_t *end);

#endif
