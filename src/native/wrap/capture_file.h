// SPDX-License-Identifier: Apache-2.0
/*
 * One pcapng file that several processes write, each of which may be killed at any instant.
 *
 * Linux looks for a fatal signal between the pages of a write(2), so a kill, and also an exit while
 * another thread writes, can cut one there; but what a write changes within one page of the file
 * is changed wholly or not at all. So the file is made of pages of 4096 bytes, and each page ends
 * with a filler, which readers skip, and which says how many packets stand before it. A packet is
 * added by one write from the filler's place to the end of the page: the packet's block and a
 * smaller filler. A packet that has no room there gets a new page. After each write the file is
 * whole.
 *
 * A block that fits no page (path MTU 4096) gets two new ones, aligned to two, by one write. Where
 * the page cache keeps such a pair together (large folios: new kernels, most file systems) this is
 * as good. Elsewhere a kill can leave the first page alone at the file's end; whoever opens or
 * writes the file next takes it away.
 *
 * A lock on the file (F_OFD_SETLK, which the kernel releases when its holder dies) makes writers
 * take turns. A network file system promises less: use a local one.
 */
#ifndef VB_WRAP_CAPTURE_FILE_H
#define VB_WRAP_CAPTURE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "wrap/pcapng.h"

enum {
    VB_CAPTURE_PAGE = 4096,
    VB_CAPTURE_PAIR = 2 * VB_CAPTURE_PAGE,
    VB_CAPTURE_BLOCK = VB_CAPTURE_PAIR - 16, /* the largest block */
};

/*
 * Opens the file, makes it if it is missing, and writes its first page, for Ethernet, if it is
 * empty. Returns the descriptor; -EINVAL: it is not a regular file; -EBADMSG: it has a content, and
 * not a capture's of ours; -ETIMEDOUT: somebody keeps it locked; or what the system said.
 */
int vb_wrap_capture_file_open(const char *path);

/* Empties the file but for its first page; errors as above, and then nothing is changed. */
int vb_wrap_capture_file_renew(const char *path, enum vb_pcapng_link link);

/*
 * Adds one packet's block; `*number` is the packet's in the file, from 1 on. Calls with one
 * descriptor exclude each other by the caller's lock. 0, -ETIMEDOUT (somebody keeps the file locked
 * for `patience` ms), -EBADMSG or what the system said; the file is whole in each case.
 */
int vb_wrap_capture_file_add(int fd, const void *block, size_t size, unsigned patience,
                             uint32_t *number);

/* Writes a file's first page: section, interface and filler block. */
void vb_wrap_capture_file_begin(uint8_t page[VB_CAPTURE_PAGE], enum vb_pcapng_link link);

#endif
