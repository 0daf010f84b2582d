// SPDX-License-Identifier: Apache-2.0
/*
 * Slots: who owns which queue pair numbers on this host.
 *
 * A QP number is 12 bits of slot and 12 bits within it, so numbers are unique on the host, and the
 * slot alone leads to the process. A process holds a slot by having bound the abstract socket that
 * is named after it: the kernel grants a name once and takes it back when the process is gone,
 * however it ended. No file, no registry, nothing to clean.
 */
#ifndef VB_DIRECT_SLOT_H
#define VB_DIRECT_SLOT_H

#include <stdint.h>

/* Claims a free slot, searching from `start`; the listening socket, or -errno (-EUSERS: none). */
int vb_direct_slot_claim(uint32_t start, uint32_t *slot);
/* Claims slot 0, whose queue pairs 0 and 1 are the host's for management; -EADDRINUSE: another
 * process manages this host's connections. */
int vb_direct_slot_claim_management(void);

/* A socket connected to the process that holds the slot; -ECONNREFUSED when nobody does. */
int vb_direct_slot_connect(uint32_t slot);
/* Its two halves: a descriptor, or -errno; and the connection, whose failure closes it. */
int vb_direct_slot_socket(void);
int vb_direct_slot_connect_by(int fd, uint32_t slot);

#endif
