// SPDX-License-Identifier: Apache-2.0
/*
 * Updating a port's GID table from the host's addresses (address.h). A netlink socket reports
 * changes.
 */
#include "port/address.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hca/adapter.h"
#include "lock/mutex.h"
#include "memory/descriptor.h"

/* Entry 0 stands for one of those from 2 on, and 1 is made from the GUID (port/gid.h). */
enum { CHOSEN, OF_GUID, FIRST_ADDRESS };
enum { ANY_PORT = 9 }; /* for questions about routes: nothing is sent there */

struct vb_addresses {
    int netlink_fd;
    const char *netdev; /* the only interface that counts, or NULL */
    unsigned unit;      /* vb_port_unit */
    struct vb_mutex mutex;
    int count;
    bool active;
    bool used[VB_GID_MAX];
    struct vb_gid gids[VB_GID_MAX];
    uint16_t mtus[VB_GID_MAX]; /* path MTUs of their interfaces; 0: none */
};

/* ---- MTUs ---- */

/* The longest headers around a payload: IPv6, UDP, BTH, RETH-sized and atomic headers, ICRC. */
enum { LONGEST_HEADERS = 96, SMALLEST_MTU = 256, LARGEST_MTU = 4096 };

uint16_t vb_port_path_mtu(uint32_t interface_mtu)
{
    for (uint32_t mtu = LARGEST_MTU; mtu >= SMALLEST_MTU; mtu /= 2)
        if (mtu + LONGEST_HEADERS <= interface_mtu)
            return (uint16_t)mtu;
    return 0;
}

/* ---- the table ---- */

static bool is_same(const struct vb_gid *left, const struct vb_gid *right)
{
    return left->ndev_ifindex == right->ndev_ifindex && left->type == right->type &&
           memcmp(left->raw, right->raw, sizeof(left->raw)) == 0;
}

static bool has_entry(const struct vb_addresses *addresses, const struct vb_gid *gid)
{
    for (int i = FIRST_ADDRESS; i < VB_GID_MAX; ++i)
        if (addresses->used[i] && is_same(&addresses->gids[i], gid))
            return true;
    return false;
}

static bool address_is_in(const struct vb_gid *gid, const struct vb_gid *table, int count)
{
    for (int i = FIRST_ADDRESS; i < count; ++i)
        if (is_same(gid, &table[i]))
            return true;
    return false;
}

static bool drop_those_gone(struct vb_addresses *addresses, const struct vb_gid *fresh, int count)
{
    bool changed = false;

    for (int i = FIRST_ADDRESS; i < addresses->count; ++i) {
        if (!addresses->used[i] || address_is_in(&addresses->gids[i], fresh, count))
            continue;
        addresses->used[i] = false;
        changed = true;
    }
    return changed;
}

static void address_add_entry(struct vb_addresses *addresses, const struct vb_gid *gid)
{
    int index = FIRST_ADDRESS;

    while (index < VB_GID_MAX && addresses->used[index])
        ++index;
    if (index == VB_GID_MAX)
        return;
    addresses->used[index] = true;
    addresses->gids[index] = *gid;
}

static bool merge(struct vb_addresses *addresses, const struct vb_gid *fresh, int count)
{
    bool changed = drop_those_gone(addresses, fresh, count);

    if (!address_is_in(&addresses->gids[CHOSEN], fresh,
                       count)) /* otherwise it keeps its index too */
        addresses->gids[CHOSEN] = fresh[CHOSEN];
    addresses->gids[OF_GUID] = fresh[OF_GUID]; /* its interface may be another now */
    addresses->used[CHOSEN] = addresses->used[OF_GUID] = true;
    for (int i = FIRST_ADDRESS; i < count; ++i) {
        if (has_entry(addresses, &fresh[i]))
            continue;
        address_add_entry(addresses, &fresh[i]);
        changed = true;
    }
    addresses->count = VB_GID_MAX;
    while (!addresses->used[addresses->count - 1])
        --addresses->count;
    return changed;
}

static uint32_t interface_mtu(int fd, const struct vb_gid *gid)
{
    struct ifreq request = {0};

    /* By its number: an interface may have been renamed. */
    if (!if_indextoname(gid->ndev_ifindex, request.ifr_name))
        return 0;
    return ioctl(fd, SIOCGIFMTU, &request) == 0 ? (uint32_t)request.ifr_mtu : 0;
}

static void read_mtus(struct vb_addresses *addresses)
{
    int fd = vb_memory_descriptor_raise(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));

    for (int i = 0; i < addresses->count && fd >= 0; ++i)
        if (addresses->used[i])
            addresses->mtus[i] = vb_port_path_mtu(interface_mtu(fd, &addresses->gids[i]));
    if (fd >= 0)
        close(fd);
}

static int read_host(struct vb_addresses *addresses, unsigned *changes)
{
    struct vb_gid *fresh = calloc(VB_GID_MAX, sizeof(*fresh));
    int count =
        fresh ? vb_port_gid_table(addresses->netdev, addresses->unit, fresh, VB_GID_MAX) : -ENOMEM;
    bool active = vb_port_is_active(addresses->netdev);

    *changes = 0;
    if (count >= 0) {
        vb_lock_take(&addresses->mutex);
        if (merge(addresses, fresh, count))
            *changes |= VB_GIDS_CHANGED;
        read_mtus(addresses);
        if (active != addresses->active)
            *changes |= active ? VB_PORT_CAME_UP : VB_PORT_WENT_DOWN;
        addresses->active = active;
        vb_lock_release(&addresses->mutex);
    }
    free(fresh);
    return count < 0 ? count : 0;
}

/* ---- news ---- */

static int open_netlink(void)
{
    struct sockaddr_nl address = {.nl_family = AF_NETLINK,
                                  .nl_groups =
                                      RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
    int fd = vb_memory_descriptor_raise(
        socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));

    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* What a message says does not matter: the table is read anew. True: there was one. */
static bool address_drain(int fd)
{
    uint8_t message[8192];
    bool any = false;
    ssize_t length;

    do {
        length = recv(fd, message, sizeof(message), MSG_DONTWAIT);
        any |= length > 0 || (length < 0 && errno == ENOBUFS);
    } while (length > 0 || (length < 0 && (errno == ENOBUFS || errno == EINTR)));
    return any;
}

unsigned vb_port_addresses_update(struct vb_addresses *addresses)
{
    unsigned changes = 0;

    if (addresses->netlink_fd >= 0 && address_drain(addresses->netlink_fd))
        read_host(addresses, &changes);
    return changes;
}

/* ---- open and close ---- */

int vb_port_addresses_open(const char *netdev, unsigned unit, struct vb_addresses **addresses)
{
    struct vb_addresses *made = calloc(1, sizeof(*made));
    unsigned changes;
    int error;

    if (!made)
        return -ENOMEM;
    made->netdev = netdev;
    made->unit = unit;
    vb_lock_init(&made->mutex, VB_RANK_ADDRESSES);
    /* Before the table is read: what changes in between is news. */
    made->netlink_fd = open_netlink();
    error = read_host(made, &changes);
    if (error) {
        vb_port_addresses_close(made);
        return error;
    }
    *addresses = made;
    return 0;
}

int vb_port_addresses_fixed(const struct vb_gid *table, int count, uint16_t mtu,
                            struct vb_addresses **addresses)
{
    struct vb_addresses *made = calloc(1, sizeof(*made));

    if (!made)
        return -ENOMEM;
    vb_lock_init(&made->mutex, VB_RANK_ADDRESSES);
    made->netlink_fd = -1;
    made->active = true;
    vb_port_addresses_set(made, table, count, mtu);
    *addresses = made;
    return 0;
}

void vb_port_addresses_set(struct vb_addresses *addresses, const struct vb_gid *table, int count,
                           uint16_t mtu)
{
    static const uint8_t none[16];

    vb_lock_take(&addresses->mutex);
    for (int i = 0; i < count; ++i) {
        addresses->used[i] = memcmp(table[i].raw, none, sizeof(none)) != 0;
        addresses->gids[i] = table[i];
        addresses->mtus[i] = mtu;
    }
    addresses->count = count;
    vb_lock_release(&addresses->mutex);
}

void vb_port_addresses_abandon(struct vb_addresses *addresses)
{
    if (addresses->netlink_fd >= 0)
        close(addresses->netlink_fd);
}

void vb_port_addresses_close(struct vb_addresses *addresses)
{
    vb_port_addresses_abandon(addresses);
    vb_lock_destroy(&addresses->mutex);
    free(addresses);
}

int vb_port_addresses_fd(const struct vb_addresses *addresses)
{
    return addresses->netlink_fd;
}

/* ---- questions ---- */

int vb_port_addresses_count(struct vb_addresses *addresses)
{
    int count;

    vb_lock_take(&addresses->mutex);
    count = addresses->count;
    vb_lock_release(&addresses->mutex);
    return count;
}

bool vb_port_addresses_get(struct vb_addresses *addresses, int index, struct vb_gid *gid)
{
    bool found;

    vb_lock_take(&addresses->mutex);
    found = index >= 0 && index < addresses->count && addresses->used[index];
    if (found)
        *gid = addresses->gids[index];
    vb_lock_release(&addresses->mutex);
    return found;
}

int vb_port_addresses_find(struct vb_addresses *addresses, const uint8_t gid[16])
{
    int found = -1;

    vb_lock_take(&addresses->mutex);
    for (int i = FIRST_ADDRESS; i < addresses->count && found < 0; ++i)
        if (addresses->used[i] && memcmp(addresses->gids[i].raw, gid, 16) == 0)
            found = i;
    vb_lock_release(&addresses->mutex);
    return found;
}

bool vb_port_addresses_has(struct vb_addresses *addresses, const uint8_t gid[16])
{
    bool found = false;

    vb_lock_take(&addresses->mutex);
    for (int i = 0; i < addresses->count && !found; ++i)
        found = addresses->used[i] && memcmp(addresses->gids[i].raw, gid, 16) == 0;
    vb_lock_release(&addresses->mutex);
    return found;
}

bool vb_port_addresses_any_has(const struct vb_adapter *adapter, const uint8_t gid[16])
{
    for (int i = 0; i < adapter->port_count; ++i)
        if (vb_port_addresses_has(adapter->ports[i].addresses, gid))
            return true;
    return false;
}

bool vb_port_addresses_port_has(const struct vb_adapter *adapter, uint8_t port_num,
                                const uint8_t gid[16])
{
    return port_num ? vb_port_addresses_has(adapter->ports[port_num - 1].addresses, gid)
                    : vb_port_addresses_any_has(adapter, gid);
}

/* The GID that is made from the port's GUID. It does not change. */
static const uint8_t *guid_gid(const struct vb_addresses *addresses)
{
    return addresses->gids[addresses->count > OF_GUID ? OF_GUID : CHOSEN].raw;
}

static uint64_t guid_of(const uint8_t gid[16])
{
    uint64_t guid;

    memcpy(&guid, gid + 8, sizeof(guid));
    return be64toh(guid);
}

unsigned vb_port_addresses_guid_unit(const struct vb_adapter *adapter, const uint8_t gid[16])
{
    const uint8_t *own = guid_gid(adapter->ports[0].addresses);
    uint64_t unit = guid_of(gid) - guid_of(own) + vb_port_unit(adapter->self.header->device, 1);

    if (memcmp(gid, own, 8) != 0 || unit > vb_port_unit(VB_MAX_DEVICES, 0))
        return 0;
    return (unsigned)unit;
}

bool vb_port_addresses_host_has(const struct vb_adapter *adapter, const uint8_t gid[16])
{
    return vb_port_addresses_any_has(adapter, gid) || vb_port_addresses_unit(adapter, gid);
}

static bool has_on(struct vb_addresses *addresses, const uint8_t gid[16], const char *netdev)
{
    bool found = false;

    vb_lock_take(&addresses->mutex);
    for (int i = 0; i < addresses->count && !found; ++i)
        found = addresses->used[i] && memcmp(addresses->gids[i].raw, gid, 16) == 0 &&
                (!*netdev || vb_port_is_netdev(netdev, addresses->gids[i].ndev));
    vb_lock_release(&addresses->mutex);
    return found;
}

bool vb_port_addresses_any_has_on(const struct vb_adapter *adapter, const uint8_t gid[16],
                                  const char *netdev)
{
    for (int i = 0; i < adapter->port_count; ++i)
        if (has_on(adapter->ports[i].addresses, gid, netdev))
            return true;
    return false;
}

bool vb_port_addresses_active(struct vb_addresses *addresses)
{
    bool active;

    vb_lock_take(&addresses->mutex);
    active = addresses->active;
    vb_lock_release(&addresses->mutex);
    return active;
}

uint16_t vb_port_addresses_mtu(struct vb_addresses *addresses, int index)
{
    uint16_t mtu = 0;

    vb_lock_take(&addresses->mutex);
    if (index >= 0 && index < addresses->count && addresses->used[index])
        mtu = addresses->mtus[index];
    vb_lock_release(&addresses->mutex);
    return mtu;
}

static bool is_loopback(const struct vb_gid *gid)
{
    return strcmp(gid->ndev, "lo") == 0;
}

uint16_t vb_port_addresses_port_mtu(struct vb_addresses *addresses)
{
    uint16_t least = 0, loopback = 0;

    vb_lock_take(&addresses->mutex);
    for (int i = FIRST_ADDRESS; i < addresses->count; ++i) {
        uint16_t mtu = addresses->used[i] ? addresses->mtus[i] : 0;

        if (mtu && is_loopback(&addresses->gids[i]))
            loopback = mtu;
        else if (mtu && (!least || mtu < least))
            least = mtu;
    }
    vb_lock_release(&addresses->mutex);
    return least ? least : loopback ? loopback : LARGEST_MTU;
}

/* ---- routes ---- */

union socket_address {
    struct sockaddr any;
    struct sockaddr_in ipv4;
    struct sockaddr_in6 ipv6;
};

static socklen_t port_address_of(const uint8_t gid[16], uint32_t interface,
                                 union socket_address *to)
{
    memset(to, 0, sizeof(*to));
    if (vb_wire_gid_is_ipv4(gid)) {
        to->ipv4.sin_family = AF_INET;
        memcpy(&to->ipv4.sin_addr, gid + 12, 4);
        return sizeof(to->ipv4);
    }
    to->ipv6.sin6_family = AF_INET6;
    memcpy(&to->ipv6.sin6_addr, gid, 16);
    if (IN6_IS_ADDR_LINKLOCAL(&to->ipv6.sin6_addr))
        to->ipv6.sin6_scope_id = interface;
    return sizeof(to->ipv6);
}

/* Connecting sends nothing: it only looks for a route, and keeps the route's MTU. */
static int connect_route(int fd, const uint8_t source[16], const uint8_t destination[16],
                         uint32_t interface)
{
    union socket_address from, to;
    socklen_t size = port_address_of(source, interface, &from);

    port_address_of(destination, interface, &to);
    to.ipv4.sin_port = htons(ANY_PORT);
    if (bind(fd, &from.any, size) || connect(fd, &to.any, size))
        return -errno;
    return 0;
}

static int route_mtu(int fd, bool ipv4, uint16_t *mtu)
{
    int bytes = 0;
    socklen_t size = sizeof(bytes);

    if (getsockopt(fd, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_MTU : IPV6_MTU, &bytes, &size))
        return -errno;
    *mtu = vb_port_path_mtu((uint32_t)bytes);
    return *mtu ? 0 : -EMSGSIZE;
}

int vb_port_route(const uint8_t source[16], const uint8_t destination[16], uint32_t interface,
                  uint16_t *mtu)
{
    bool ipv4 = vb_wire_gid_is_ipv4(destination);
    int fd, error;

    if (vb_wire_gid_is_ipv4(source) != ipv4)
        return -EAFNOSUPPORT;
    fd =
        vb_memory_descriptor_raise(socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd < 0)
        return -errno;
    error = connect_route(fd, source, destination, interface);
    if (!error)
        error = route_mtu(fd, ipv4, mtu);
    close(fd);
    return error;
}
