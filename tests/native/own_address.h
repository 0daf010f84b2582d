// SPDX-License-Identifier: Apache-2.0
/*
 * Memory whose addresses stay free once it is unmapped. Tests use it that unmap memory under a
 * region and expect an error: the device's threads map memory of their own (a buffer of 128 KiB, or
 * what AddressSanitizer keeps for a thread), and the kernel would give them the addresses that have
 * just become free. A request to such a region then finds memory, and succeeds.
 */
#ifndef VB_TESTS_OWN_ADDRESS_H
#define VB_TESTS_OWN_ADDRESS_H

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

/* More than all threads of a test map after it; only addresses, no memory. */
enum { OWN_ADDRESS_ROOM = 64 << 20 };

/*
 * `bytes` of whole pages, to be unmapped by the caller. A page that nobody can read lies on each
 * side, and room that is free lies beyond both. The kernel takes the highest free addresses that
 * are enough (the lowest, where the stack is unlimited), so a mapping that fits between the two
 * pages goes into the room; a mapping that does not fit into the room does not fit between them
 * either.
 */
static inline uint8_t *own_address_map(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = OWN_ADDRESS_ROOM;
    uint8_t *low = mmap(NULL, room + page + bytes + page + room, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint8_t *at = low + room + page;

    CHECK(low != MAP_FAILED);
    CHECK_EQ(mprotect(at, bytes, PROT_READ | PROT_WRITE), 0);
    CHECK_EQ(munmap(low, room), 0);
    CHECK_EQ(munmap(at + bytes + page, room), 0);
    return at;
}

#endif
