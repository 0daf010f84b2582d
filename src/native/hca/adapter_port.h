// SPDX-License-Identifier: Apache-2.0
/*
 * The ports of an adapter, which count from 1. The host (host) or the simulated one (sim)
 * fills them in before the first context is open; nothing of them but the GID table, which has its
 * own lock, changes after that, and in a live fabric LID, LMC and P_Keys. Everything that a port
 * number leads to is read through here.
 */
#ifndef VB_HCA_ADAPTER_PORT_H
#define VB_HCA_ADAPTER_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include "hca/layout.h"

struct vb_addresses;   /* port/address.h */
struct vb_fabric_port; /* port/fabric.h */

enum { VB_PKEY_DEFAULT = 0xffff };

struct vb_adapter_port {
    uint8_t number;
    bool infiniband;                  /* the link layer: InfiniBand, or else Ethernet (RoCE) */
    uint8_t lmc;                      /* an InfiniBand port has 2^lmc LIDs from `lid` on */
    uint16_t lid;                     /* its first LID; 0 on an Ethernet port */
    uint16_t pkeys[VB_MAX_PKEYS];     /* a QP's pkey_index names an entry; 0: it is empty */
    struct vb_addresses *addresses;   /* its GID table, state and MTU; may be NULL (simulated) */
    struct vb_fabric_port *in_fabric; /* its record in a live fabric; NULL: it is in none */
};

/* One port, Ethernet, in the default partition. */
static inline void vb_adapter_ports_default(struct vb_adapter_port ports[VB_MAX_PORTS])
{
    for (int i = 0; i < VB_MAX_PORTS; ++i)
        ports[i] = (struct vb_adapter_port){.number = (uint8_t)(i + 1), .pkeys = {VB_PKEY_DEFAULT}};
}

/* All P_Keys but those of partition 0 (IBA 10.9.1.1). */
static inline bool vb_pkey_is_valid(uint16_t pkey)
{
    return pkey & 0x7fff;
}

/* Do two P_Keys name one partition, and at least one of them full membership (IBA 10.9.3)? */
static inline bool vb_pkeys_match(uint16_t one, uint16_t other)
{
    return ((one ^ other) & 0x7fff) == 0 && ((one | other) & 0x8000);
}

/* Why two P_Keys do not match. */
static inline const char *vb_pkeys_differ(uint16_t one, uint16_t other)
{
    return (one ^ other) & 0x7fff ? "two partitions" : "two limited members of one partition";
}

#endif
