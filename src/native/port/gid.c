// SPDX-License-Identifier: Apache-2.0
/* Names, GUIDs and GIDs made from the host's interfaces and addresses (gid.h). */
#include "port/gid.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory/descriptor.h"

/* ---- the GUID ------------------------------------------------------------------------------ */

static ssize_t gid_read_text(const char *path, char *text, size_t size)
{
    int fd = vb_memory_descriptor_raise(open(path, O_RDONLY | O_CLOEXEC));
    if (fd < 0)
        return -errno;
    ssize_t length = read(fd, text, size - 1);
    close(fd);
    if (length < 0)
        return -EIO;
    text[length] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return (ssize_t)strlen(text);
}

/* A new image carries an empty or "uninitialized" machine-id until its first boot. */
static bool is_machine_id(const char *text)
{
    return strlen(text) >= 32 && strspn(text, "0123456789abcdef") >= 32;
}

static void host_identity(char *text, size_t size)
{
    if (gid_read_text("/etc/machine-id", text, size) > 0 && is_machine_id(text))
        return;
    if (gid_read_text("/proc/sys/kernel/random/boot_id", text, size) > 0)
        return;
    text[0] = '\0';
}

/* FNV-1a, then a finaliser that spreads every input bit; machine-id(5) asks not to show it raw. */
static uint64_t hash(const char *salt, const char *text)
{
    uint64_t h = 0xcbf29ce484222325;
    for (const char *p = salt; *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3;
    for (const char *p = text; *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3;
    h = (h ^ h >> 33) * 0xff51afd7ed558ccd;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53;
    return h ^ h >> 33;
}

static uint64_t unit_guid(unsigned unit)
{
    char identity[64];
    host_identity(identity, sizeof identity);
    uint64_t guid = hash("verbena node GUID", identity);
    guid &= ~(UINT64_C(0x01) << 56); /* not a group */
    guid |= UINT64_C(0x02) << 56;    /* locally administered */
    return guid + unit - 1;
}

uint64_t vb_port_device_guid(unsigned device)
{
    return unit_guid(vb_port_unit(device, 1));
}

/* ---- the GIDs ------------------------------------------------------------------------------ */

struct address {
    struct vb_gid gid;
    bool loopback;
};

/* Whether `from` can be a GID. ::1 cannot: InfiniBand reserves it (IBTA 1, 4.1.1). */
static bool gid_from_address(const struct sockaddr *from, uint8_t raw[16])
{
    if (!from)
        return false;
    if (from->sa_family == AF_INET) {
        vb_wire_gid_of_ipv4(&((const struct sockaddr_in *)from)->sin_addr, raw);
        return true;
    }
    if (from->sa_family != AF_INET6)
        return false;
    const struct in6_addr *ipv6 = &((const struct sockaddr_in6 *)from)->sin6_addr;
    memcpy(raw, ipv6, sizeof *ipv6);
    return !IN6_IS_ADDR_LOOPBACK(ipv6) && !IN6_IS_ADDR_UNSPECIFIED(ipv6);
}

bool vb_port_is_netdev(const char *netdev, const char *name)
{
    size_t length = strcspn(name, ":"); /* without the label of a second address */
    return !netdev || (strlen(netdev) == length && memcmp(netdev, name, length) == 0);
}

static bool gid_convert(const char *netdev, const struct ifaddrs *from, struct address *to)
{
    memset(to, 0, sizeof *to);
    if (!vb_port_is_netdev(netdev, from->ifa_name))
        return false;
    if (!(from->ifa_flags & IFF_UP) || !gid_from_address(from->ifa_addr, to->gid.raw))
        return false;
    to->gid.type = VB_GID_ROCE_V2;
    to->gid.ndev_ifindex = if_nametoindex(from->ifa_name);
    snprintf(to->gid.ndev, sizeof to->gid.ndev, "%.*s", (int)strcspn(from->ifa_name, ":"),
             from->ifa_name);
    to->loopback = from->ifa_flags & IFF_LOOPBACK;
    return to->gid.ndev_ifindex != 0; /* 0: the interface went away in between */
}

static int by_interface_then_address(const void *left, const void *right)
{
    const struct address *a = left, *b = right;
    if (a->loopback != b->loopback)
        return a->loopback - b->loopback;
    if (a->gid.ndev_ifindex != b->gid.ndev_ifindex)
        return a->gid.ndev_ifindex < b->gid.ndev_ifindex ? -1 : 1;
    return memcmp(a->gid.raw, b->gid.raw, sizeof a->gid.raw);
}

/* The host's addresses in table order; the caller frees `*found`. Returns how many, or -errno. */
static int host_addresses(const char *netdev, struct address **found)
{
    struct ifaddrs *list;
    if (getifaddrs(&list))
        return -errno;
    size_t room = 0, count = 0;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next)
        room++;
    *found = calloc(room + 1, sizeof **found);
    for (const struct ifaddrs *i = list; *found && i; i = i->ifa_next)
        count += gid_convert(netdev, i, &(*found)[count]);
    freeifaddrs(list);
    if (!*found)
        return -ENOMEM;
    qsort(*found, count, sizeof **found, by_interface_then_address);
    return (int)count;
}

/* fe80::/64 and the GUID, on the port's interface: that of the first address, if there is one. */
static struct vb_gid link_local(enum vb_gid_type type, unsigned unit, const struct address *first)
{
    struct vb_gid gid = {.raw = {0xfe, 0x80}, .type = type};
    uint64_t guid = unit_guid(unit);
    for (int i = 0; i < 8; i++)
        gid.raw[8 + i] = (uint8_t)(guid >> (56 - 8 * i));
    if (first) {
        gid.ndev_ifindex = first->gid.ndev_ifindex;
        memcpy(gid.ndev, first->gid.ndev, sizeof gid.ndev);
    }
    return gid;
}

struct vb_gid vb_port_gid_infiniband(unsigned unit)
{
    return link_local(VB_GID_ROCE_V1, unit, NULL);
}

/* How likely packets from here reach another host: the less, the better. */
static int reach(const struct address *address)
{
    const struct in6_addr *ipv6 = (const struct in6_addr *)address->gid.raw;
    if (address->loopback)
        return 3;
    if (IN6_IS_ADDR_LINKLOCAL(ipv6))
        return 2;
    return !IN6_IS_ADDR_V4MAPPED(ipv6);
}

/* For programs that know no other index: packets must be able to go from it (port/gid.h). */
static struct vb_gid choose_first(const struct address *addresses, int count, unsigned unit)
{
    const struct address *best = addresses;
    for (int i = 1; i < count; i++)
        if (reach(&addresses[i]) < reach(best))
            best = &addresses[i];
    return count ? best->gid : link_local(VB_GID_ROCE_V2, unit, NULL);
}

int vb_port_gid_table(const char *netdev, unsigned unit, struct vb_gid *table, int capacity)
{
    struct address *addresses = NULL;
    int found = host_addresses(netdev, &addresses);
    if (found < 0)
        return found;
    int count = 0;
    if (count < capacity)
        table[count++] = choose_first(addresses, found, unit);
    if (count < capacity)
        table[count++] = link_local(VB_GID_ROCE_V2, unit, found ? addresses : NULL);
    for (int i = 0; i < found && count < capacity; i++)
        table[count++] = addresses[i].gid;
    free(addresses);
    return count;
}

/* ---- the port's state ---------------------------------------------------------------------- */

static bool has_address(const struct ifaddrs *interface)
{
    return interface->ifa_addr && (interface->ifa_addr->sa_family == AF_INET ||
                                   interface->ifa_addr->sa_family == AF_INET6);
}

bool vb_port_is_active(const char *netdev)
{
    bool others = false, running = false, loopback = false;
    struct ifaddrs *list;
    if (getifaddrs(&list))
        return true;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        if (!has_address(i) || !vb_port_is_netdev(netdev, i->ifa_name))
            continue;
        if (i->ifa_flags & IFF_LOOPBACK) {
            loopback |= (i->ifa_flags & IFF_UP) != 0;
            continue;
        }
        others = true;
        running |= (i->ifa_flags & IFF_UP) && (i->ifa_flags & IFF_RUNNING);
    }
    freeifaddrs(list);
    return others ? running : loopback;
}
