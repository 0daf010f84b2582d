// SPDX-License-Identifier: Apache-2.0
/*
 * The addresses of a host of a simulated fabric. The world and the HCA (hca.c) make them alike.
 * A host's number + 1 is in the last bytes of its GUID, its link-local GID and its IPv4 address in
 * 10.0.0.0/8, and is its LID unless it was given another.
 */
#ifndef VB_SIM_ADDRESSES_H
#define VB_SIM_ADDRESSES_H

#include <stdint.h>
#include <string.h>

#include "wire/bytes.h"

enum {
    VB_SIM_LID_MOST = 0xbfff, /* IBA 4.1.3: the last unicast LID */
    VB_SIM_IPV4_NETWORK = 10,
};

static inline uint64_t vb_sim_host_guid(uint32_t host)
{
    return UINT64_C(0x5642000000000000) | (host + 1);
}

static inline void vb_sim_gid_link_local(uint32_t host, uint8_t gid[16])
{
    memset(gid, 0, 16);
    gid[0] = 0xfe;
    gid[1] = 0x80;
    vb_wire_put64(gid + 8, vb_sim_host_guid(host));
}

static inline void vb_sim_gid_ipv4(uint32_t host, uint8_t gid[16])
{
    memset(gid, 0, 16);
    gid[10] = gid[11] = 0xff;
    vb_wire_put32(gid + 12, (uint32_t)VB_SIM_IPV4_NETWORK << 24 | (host + 1));
}

/* The host with this GID; UINT32_MAX: none. */
static inline uint32_t vb_sim_gid_host(const uint8_t gid[16])
{
    uint32_t host = (vb_wire_get32(gid + 12) & 0xffffff) - 1;
    uint8_t own[16];

    vb_sim_gid_ipv4(host, own);
    if (memcmp(gid, own, 16) == 0)
        return host;
    vb_sim_gid_link_local(host, own);
    return memcmp(gid, own, 16) == 0 ? host : UINT32_MAX;
}

#endif
