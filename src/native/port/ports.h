// SPDX-License-Identifier: Apache-2.0
/*
 * Which devices and ports the environment asks for. Python parses VERBENA_PORTS, VERBENA_DEVICES,
 * VERBENA_PKEYS and VERBENA_LINK_LAYER (src/verbena/_ports.py), and VERBENA_PORT_RECORDS has the
 * result for this library:
 *
 *   1 1 2 0 0 0 1 ffff eth0,1 8 2 2 ffff 8001 ,|ethernet,netdev=eth0;infiniband,...|||
 *
 * that is its version and the number of devices; for each device the number of its ports; for each
 * port whether it is InfiniBand, its LID, its LMC, the number of its P_Keys, these, and its
 * interface; behind them the values of the four variables, and "!" and what to complain of, if
 * anything is wrong in them. libibverbs and the preloaded sysfs files both read this here, so that
 * they agree.
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
    uint64_t guid;  /* the node's, in a live fabric; 0: vb_port_device_guid has it */
    uint8_t device; /* the number in its name, from 0 */
    uint8_t count;
    struct vb_port_setting port[VB_MAX_PORTS];
};

struct vb_device_settings {
    uint8_t count;
    struct vb_port_settings device[VB_MAX_DEVICES];
};

/* The first device with one Ethernet port that has every interface, in the default partition. */
void vb_port_ports_usual(struct vb_port_settings *settings);
/*
 * Reads the records. Without them, or if they were made of other values, there is one port of
 * VERBENA_LINK_LAYER, and the result is false. VERBENA_NETDEV holds for the Ethernet ports without
 * an interface of their own. `complaint` is what is wrong in the variables, or NULL.
 */
bool vb_port_devices_read(struct vb_device_settings *settings, const char **complaint);
/* True: no port of the device sends packets. */
bool vb_port_ports_are_infiniband(const struct vb_port_settings *settings);

#endif
