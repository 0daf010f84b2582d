// SPDX-License-Identifier: Apache-2.0
/*
 * What the devices are called and how the host's addresses become the GIDs of their ports.
 * libibverbs.so.1 and the preloaded sysfs files both take these values from here, so that they
 * agree.
 */
#ifndef VB_PORT_GID_H
#define VB_PORT_GID_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "hca/layout.h"
#include "wire/headers.h"
#include <string.h>

#define VB_DEVICE_NAME  "verbena" /* the device's number stands behind it, … */
#define VB_UVERBS_NAME  "uverbs"  /* …and behind this */
#define VB_UVERBS_MAJOR 231       /* Linux' major number of the InfiniBand class devices */
#define VB_UVERBS_MINOR 192       /* of uverbs0; the others follow */

enum { VB_MAX_DEVICES = 8 };

/*
 * A port of a device among all ports that the devices of a host may have, counted from 1. Every
 * process of the host has the same devices, so the number stands for the same port in all of them.
 */
static inline unsigned vb_port_unit(unsigned device, unsigned port_num)
{
    return device * VB_MAX_PORTS + port_num;
}

/* What ibv_query_port and ibv_query_device say in numbers and sysfs in words. */
#define VB_FIRMWARE      VERBENA_VERSION
#define VB_PORT_RATE     "100 Gb/sec (4X EDR)" /* active_width 2 (4X), active_speed 32 (EDR) */
#define VB_PORT_CAP_MASK "0x00010000"          /* IBV_PORT_CM_SUP */

/* Readers of sysfs count the GIDs before they have a table: no more than this many are offered. */
#define VB_GID_MAX 256

/* The kernel's numbers, as ibv_query_gid_type() returns them. */
enum vb_gid_type {
    VB_GID_ROCE_V1 = 0, /* InfiniBand's own: the device's GIDs on Ethernet are all v2 */
    VB_GID_ROCE_V2 = 1,
};

struct vb_gid {
    uint8_t raw[16];
    uint32_t ndev_ifindex; /* 0 when the host has no interface that is up */
    char ndev[IF_NAMESIZE];
    enum vb_gid_type type;
};

/*
 * Fills `table` with the GIDs of the port `unit` and returns how many, at most `capacity`; or
 * -errno.
 *   0      the address from which packets most likely reach another host, once more, since many
 *          programs know no other index: IPv4 before IPv6, link-local and then loopback last; as 1
 *          where the host has no address
 *   1      fe80::/64 and the port's GUID, on the port's own interface: no packet goes from it
 *   2 …    each address of each interface that is up, by ifindex and then by address; loopback
 *          interfaces come last
 * All are RoCE v2: there are no packets of v1.
 * The same interfaces and addresses give the same table in every process. With `netdev` only that
 * interface counts; NULL: all do.
 */
int vb_port_gid_table(const char *netdev, unsigned unit, struct vb_gid *table, int capacity);

/* The only GID of an InfiniBand port, whose prefix no subnet manager has set: fe80::/64 and the
 * port's GUID. */
struct vb_gid vb_port_gid_infiniband(unsigned unit);

/* Is this interface, which may be named with the label of an address, the one? NULL: each is. */
bool vb_port_is_netdev(const char *netdev, const char *name);

/*
 * The port is up while an interface that has an address and is no loopback has its carrier; where
 * there is only loopback, it counts.
 */
bool vb_port_is_active(const char *netdev);

/* A device's EUI-64, in host order: the same in all processes of a host, locally administered. It
 * is also the GUID of the device's port 1. */
uint64_t vb_port_device_guid(unsigned device);

#endif
