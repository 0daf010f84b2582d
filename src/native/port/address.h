// SPDX-License-Identifier: Apache-2.0
/*
 * The port's GID table as the host's addresses come and go. An address that stays keeps its index,
 * an index that became free is given to the next new address; until then its entry is empty.
 *
 * The table may be read from any thread, also while it is updated.
 */
#ifndef VB_PORT_ADDRESS_H
#define VB_PORT_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "port/gid.h"

struct vb_adapter;
struct vb_addresses;

/*
 * The table of the port `unit` begins as vb_port_gid_table has it; `netdev` stays the caller's.
 * -ENOMEM, or what the system said. An interface that does not exist has no addresses; it may come
 * later.
 */
int vb_port_addresses_open(const char *netdev, unsigned unit, struct vb_addresses **addresses);
/* A table that no address of the host stands behind, and that stays as it is: `count` entries, of
 * which 0 is that of 2 and 1 is made from a GUID; for packets of this path MTU. The port is up.
 * -ENOMEM. */
int vb_port_addresses_fixed(const struct vb_gid *table, int count, uint16_t mtu,
                            struct vb_addresses **addresses);
/* Another table and MTU for one that vb_port_addresses_fixed has made. A GID of zeros is an empty
 * entry. */
void vb_port_addresses_set(struct vb_addresses *addresses, const struct vb_gid *table, int count,
                           uint16_t mtu);
void vb_port_addresses_close(struct vb_addresses *addresses);
void vb_port_addresses_abandon(struct vb_addresses *addresses);

/* Readable when addresses or interfaces changed. -1 without netlink: the table stays as it is. */
int vb_port_addresses_fd(const struct vb_addresses *addresses);

/* What vb_port_addresses_update found. */
enum vb_address_change {
    VB_GIDS_CHANGED = 1 << 0,   /* IBV_EVENT_GID_CHANGE */
    VB_PORT_CAME_UP = 1 << 1,   /* IBV_EVENT_PORT_ACTIVE */
    VB_PORT_WENT_DOWN = 1 << 2, /* IBV_EVENT_PORT_ERR */
};

unsigned vb_port_addresses_update(struct vb_addresses *addresses);

/* One more than the last index in use. */
int vb_port_addresses_count(struct vb_addresses *addresses);
/* False where the entry is empty, or beyond the table. */
bool vb_port_addresses_get(struct vb_addresses *addresses, int index, struct vb_gid *gid);
/* Is the GID in the table, by an address or made from the GUID? */
bool vb_port_addresses_has(struct vb_addresses *addresses, const uint8_t gid[16]);
/* The same of the tables of all ports. */
bool vb_port_addresses_any_has(const struct vb_adapter *adapter, const uint8_t gid[16]);
/* The same of one port's; 0 stands for all of them (vb_is_own_fn). */
bool vb_port_addresses_port_has(const struct vb_adapter *adapter, uint8_t port_num,
                                const uint8_t gid[16]);
/* The same for a GID that an interface with this name has as its address; "": any interface. */
bool vb_port_addresses_any_has_on(const struct vb_adapter *adapter, const uint8_t gid[16],
                                  const char *netdev);
/* vb_port_addresses_unit of a GID that begins as link-local ones do. */
unsigned vb_port_addresses_guid_unit(const struct vb_adapter *adapter, const uint8_t gid[16]);
/* Is it a GID of the adapter, or one that is made from the GUID of another device of this host? */
bool vb_port_addresses_host_has(const struct vb_adapter *adapter, const uint8_t gid[16]);
/* The first index of this RoCE v2 GID that an address stands behind; -1: it is not the host's. */
int vb_port_addresses_find(struct vb_addresses *addresses, const uint8_t gid[16]);

/* As vb_port_is_active said when the table was last read. */
bool vb_port_addresses_active(struct vb_addresses *addresses);
/* The path MTU, 256 to 4096, that the interface behind a GID allows; 0: none, or it is gone. */
uint16_t vb_port_addresses_mtu(struct vb_addresses *addresses, int index);
/* The port's: the least of all interfaces that have an address and are no loopback; of the loopback
 * where it is alone. */
uint16_t vb_port_addresses_port_mtu(struct vb_addresses *addresses);

/*
 * The largest path MTU (256 to 4096) whose packets fit an interface's MTU, which counts the IP
 * header: room for every extended header is left, as Linux does. 0: none fits.
 */
uint16_t vb_port_path_mtu(uint32_t interface_mtu);

/*
 * Can packets go from one GID to another, and with which path MTU at most? `interface`: of the
 * source, for link-local addresses. 0; -EADDRNOTAVAIL: the source is not the host's;
 * -ENETUNREACH, -EHOSTUNREACH: no route; -EAFNOSUPPORT: IPv4 to IPv6; -EMSGSIZE: the route's MTU is
 * too small. Whether the next hop answers (ARP, neighbour discovery) shows only when packets go.
 */
int vb_port_route(const uint8_t source[16], const uint8_t destination[16], uint32_t interface,
                  uint16_t *mtu);

/* The port (vb_port_unit) whose GUID the GID is made from, also if no such port exists; 0: the GID
 * is made from no GUID of this host. It is inline since each datagram asks. */
static inline unsigned vb_port_addresses_unit(const struct vb_adapter *adapter,
                                              const uint8_t gid[16])
{
    return gid[0] == 0xfe ? vb_port_addresses_guid_unit(adapter, gid) : 0;
}

#endif
