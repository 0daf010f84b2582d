// SPDX-License-Identifier: Apache-2.0
/*
 * Which devices and ports the environment asks for. VERBENA_PORTS has the ports of a device, with a
 * semicolon between, and the devices, with a slash between:
 *
 *   VERBENA_PORTS="ethernet,netdev=eth0;infiniband,lid=8,lmc=2,pkeys=0xffff+0x8001/ethernet"
 *
 * Without it a device has one port of VERBENA_LINK_LAYER. VERBENA_DEVICES is the number of devices;
 * those that VERBENA_PORTS does not describe are as the last that it does. VERBENA_NETDEV and
 * VERBENA_PKEYS hold for the ports that have no such setting of their own. libibverbs and the
 * preloaded sysfs files both read the variables here, so that they agree.
 */
#ifndef VB_PORT_PORTS_H
#define VB_PORT_PORTS_H

#include <net/if.h>

#include "hca/adapter_port.h"
#include "port/gid.h"

struct vb_port_setting {
    bool infiniband;
    uint8_t lmc;
    uint16_t lid; /* 0: Ethernet */
    uint16_t pkeys[VB_MAX_PKEYS];
    char netdev[IF_NAMESIZE]; /* "": every interface */
};

/* The ports of one device. */
struct vb_port_settings {
    uint8_t device; /* the number in its name, from 0 */
    uint8_t count;
    struct vb_port_setting port[VB_MAX_PORTS];
};

struct vb_device_settings {
    uint8_t count;
    struct vb_port_settings device[VB_MAX_DEVICES];
};

enum vb_port_trouble { VB_BAD_PORTS = 1 << 0, VB_BAD_PKEYS = 1 << 1, VB_BAD_DEVICES = 1 << 2 };

/* The first device with one Ethernet port that has every interface, in the default partition. */
void vb_port_ports_usual(struct vb_port_settings *settings);
/* Reads the variables. One that is not understood is ignored, and returned as a bit. */
unsigned vb_port_devices_read(struct vb_device_settings *settings);
/* True: no port of the device sends packets. */
bool vb_port_ports_are_infiniband(const struct vb_port_settings *settings);

/* Numbers with `between` between them; fills all entries, those without a number with 0. -EINVAL:
 * nothing has changed. NULL and "" stand for the default partition alone. */
int vb_port_pkeys_parse(const char *text, char between, uint16_t pkeys[VB_MAX_PKEYS]);

#endif
