// SPDX-License-Identifier: Apache-2.0
/*
 * Which ports the environment asks for, with their settings:
 *
 *   VERBENA_PORTS="ethernet,netdev=eth0;infiniband,lid=8,lmc=2,pkeys=0xffff+0x8001"
 *
 * or one port of VERBENA_LINK_LAYER. What a port does not say of itself is VERBENA_NETDEV's and
 * VERBENA_PKEYS'. Both libibverbs and the preloaded sysfs files read it here, so that they agree.
 */
#ifndef VB_PORT_PORTS_H
#define VB_PORT_PORTS_H

#include <net/if.h>

#include "hca/adapter_port.h"

struct vb_port_setting {
    bool infiniband;
    uint8_t lmc;
    uint16_t lid; /* 0: Ethernet */
    uint16_t pkeys[VB_MAX_PKEYS];
    char netdev[IF_NAMESIZE]; /* "": every interface */
};

struct vb_port_settings {
    uint8_t count;
    struct vb_port_setting port[VB_MAX_PORTS];
};

enum vb_port_trouble { VB_BAD_PORTS = 1 << 0, VB_BAD_PKEYS = 1 << 1 };

/* One Ethernet port with every interface, in the default partition. */
void vb_port_ports_usual(struct vb_port_settings *settings);
/* Of the environment; variables that are not understood are left out, and returned as bits. */
unsigned vb_port_ports_read(struct vb_port_settings *settings);
/* No port sends packets. */
bool vb_port_ports_are_infiniband(const struct vb_port_settings *settings);

/* Numbers with `between` between them; fills all entries, those without a number with 0. -EINVAL:
 * nothing has changed. NULL and "" stand for the default partition alone. */
int vb_port_pkeys_parse(const char *text, char between, uint16_t pkeys[VB_MAX_PKEYS]);

#endif
