// SPDX-License-Identifier: Apache-2.0
/*
 * Names and formats are those of Linux' Documentation/ABI/stable/sysfs-class-infiniband. The
 * counters there are the device's, of all its users. Each process counts what it sends for itself
 * alone, and nobody adds that up: zero is what they say.
 */
#include "preload/paths/contents.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "port/gid.h"
#include "port/ports.h"
#include "preload/paths/cpus.h"
#include "preload/paths/tree.h"

#define DEVICE   "/sys/class/infiniband/" VB_DEVICE_NAME "/"
#define PORT     DEVICE "ports/%u/"
#define UVERBS   "/sys/class/infiniband_verbs/" VB_UVERBS_NAME "/"
#define DEV_NODE "/dev/infiniband/" VB_UVERBS_NAME

#define STRING(number)  STRING_(number)
#define STRING_(number) #number

struct entry {
    const char *path;
    enum vb_node_kind kind;
    const char *text;
};

static const struct entry constants[] = {
    {"/sys/class", VB_NODE_PASSAGE, NULL},
    {"/sys", VB_NODE_PASSAGE, NULL},
    {"/dev", VB_NODE_PASSAGE, NULL},
    {"/sys/class/infiniband", VB_NODE_SHARED, NULL},
    {"/sys/class/infiniband_verbs", VB_NODE_SHARED, NULL},
    {"/dev/infiniband", VB_NODE_SHARED, NULL},

    {DEVICE "node_type", VB_NODE_FILE, "1: CA\n"},
    {DEVICE "fw_ver", VB_NODE_FILE, VB_FIRMWARE "\n"},
    {DEVICE "hca_type", VB_NODE_FILE, "verbena\n"},
    {DEVICE "hw_rev", VB_NODE_FILE, "0x0\n"},
    {DEVICE "board_id", VB_NODE_FILE, "verbena\n"},
    {DEVICE "uevent", VB_NODE_FILE, "NAME=" VB_DEVICE_NAME "\n"},
    {DEVICE "device/numa_node", VB_NODE_FILE, "-1\n"},
    {DEVICE "device/vendor", VB_NODE_FILE, "0xffff\n"},
    {DEVICE "device/device", VB_NODE_FILE, "0x0000\n"},
    {DEVICE "device/uevent", VB_NODE_FILE, "DRIVER=verbena\n"},
    {DEVICE "device/net", VB_NODE_DIR, NULL},

    {UVERBS "ibdev", VB_NODE_FILE, VB_DEVICE_NAME "\n"},
    {UVERBS "abi_version", VB_NODE_FILE, "1\n"},
    {UVERBS "dev", VB_NODE_FILE, STRING(VB_UVERBS_MAJOR) ":" STRING(VB_UVERBS_MINOR) "\n"},
    {UVERBS "device", VB_NODE_LINK, DEVICE "device"},
    {"/sys/class/infiniband_verbs/abi_version", VB_NODE_FILE, "6\n"},
    {DEV_NODE, VB_NODE_DEVICE, NULL},
};

static const struct {
    const char *name, *text;
} port_constants[] = {
    {"rate", VB_PORT_RATE "\n"},
    {"sm_sl", "0\n"},
    {"cap_mask", VB_PORT_CAP_MASK "\n"},
    {"hw_counters/lifespan", "10\n"},
};

static const char *const zero_counters[] = {
    "counters/VL15_dropped",
    "counters/excessive_buffer_overrun_errors",
    "counters/link_downed",
    "counters/link_error_recovery",
    "counters/local_link_integrity_errors",
    "counters/multicast_rcv_packets",
    "counters/multicast_xmit_packets",
    "counters/port_rcv_constraint_errors",
    "counters/port_rcv_data",
    "counters/port_rcv_errors",
    "counters/port_rcv_packets",
    "counters/port_rcv_remote_physical_errors",
    "counters/port_rcv_switch_relay_errors",
    "counters/port_xmit_constraint_errors",
    "counters/port_xmit_data",
    "counters/port_xmit_discards",
    "counters/port_xmit_packets",
    "counters/port_xmit_wait",
    "counters/symbol_error",
    "counters/unicast_rcv_packets",
    "counters/unicast_xmit_packets",
    "hw_counters/link_downed",
    "hw_counters/rcvd_pkts",
    "hw_counters/sent_pkts",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Adds a file whose text is made of `format`. */
__attribute__((format(printf, 3, 4))) static bool add_file(struct vb_tree *tree, const char *path,
                                                           const char *format, ...)
{
    char *text;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0)
        return false;
    bool added = vb_preload_tree_add(tree, path, VB_NODE_FILE, text);
    free(text);
    return added;
}

static bool add_constants(struct vb_tree *tree)
{
    for (size_t i = 0; i < COUNT(constants); i++)
        if (!vb_preload_tree_add(tree, constants[i].path, constants[i].kind, constants[i].text))
            return false;
    return true;
}

/* A file of a port. */
static bool add_of_port(struct vb_tree *tree, unsigned number, const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, PORT "%s", number, name);
    return vb_preload_tree_add(tree, path, VB_NODE_FILE, text);
}

static bool add_port_constants(struct vb_tree *tree, unsigned number)
{
    for (size_t i = 0; i < COUNT(port_constants); i++)
        if (!add_of_port(tree, number, port_constants[i].name, port_constants[i].text))
            return false;
    for (size_t i = 0; i < COUNT(zero_counters); i++)
        if (!add_of_port(tree, number, zero_counters[i], "0\n"))
            return false;
    return true;
}

static bool add_guid(struct vb_tree *tree, const char *path)
{
    uint64_t guid = vb_port_device_guid();
    return add_file(tree, path, "%04x:%04x:%04x:%04x\n", (unsigned)(guid >> 48),
                    (unsigned)(guid >> 32 & 0xffff), (unsigned)(guid >> 16 & 0xffff),
                    (unsigned)(guid & 0xffff));
}

static bool add_identity(struct vb_tree *tree)
{
    char host[65] = "localhost";
    gethostname(host, sizeof host - 1);
    return add_guid(tree, DEVICE "node_guid") && add_guid(tree, DEVICE "sys_image_guid") &&
           add_file(tree, DEVICE "node_desc", "%s %s\n", host, VB_DEVICE_NAME);
}

static bool add_cpus(struct vb_tree *tree)
{
    struct vb_cpus cpus;
    if (vb_preload_online_cpus(&cpus))
        return true; /* a host without /sys/devices/system/cpu: programs live without the files */
    return add_file(tree, DEVICE "device/local_cpulist", "%s\n", cpus.list) &&
           add_file(tree, DEVICE "device/local_cpus", "%s\n", cpus.mask);
}

static bool add_gid_value(struct vb_tree *tree, const char *path, const uint8_t raw[16])
{
    char text[8 * 5 + 1];
    for (int i = 0; i < 8; i++)
        snprintf(text + 5 * i, 6, "%02x%02x%c", raw[2 * i], raw[2 * i + 1], i < 7 ? ':' : '\n');
    return vb_preload_tree_add(tree, path, VB_NODE_FILE, text);
}

static bool add_gid(struct vb_tree *tree, unsigned number, int index, const struct vb_gid *gid)
{
    char path[128];
    snprintf(path, sizeof path, PORT "gids/%d", number, index);
    if (!add_gid_value(tree, path, gid->raw))
        return false;
    snprintf(path, sizeof path, PORT "gid_attrs/types/%d", number, index);
    const char *type = gid->type == VB_GID_ROCE_V1 ? "IB/RoCE v1\n" : "RoCE v2\n";
    if (!vb_preload_tree_add(tree, path, VB_NODE_FILE, type))
        return false;
    snprintf(path, sizeof path, PORT "gid_attrs/ndevs/%d", number, index);
    return gid->ndev_ifindex == 0 || add_file(tree, path, "%s\n", gid->ndev);
}

/* The port's own interface, as a link to what the kernel says about it. */
static bool add_ndev(struct vb_tree *tree, const struct vb_gid *gid)
{
    char path[128], target[128];
    if (gid->ndev_ifindex == 0)
        return true;
    snprintf(path, sizeof path, DEVICE "device/net/%s", gid->ndev);
    snprintf(target, sizeof target, "/sys/class/net/%s", gid->ndev);
    return vb_preload_tree_add(tree, path, VB_NODE_LINK, target);
}

static const char *netdev_of(const struct vb_port_setting *port)
{
    return port->netdev[0] ? port->netdev : NULL;
}

/* As it is when the program first looks. */
static bool add_state(struct vb_tree *tree, unsigned number, const struct vb_port_setting *port)
{
    bool active = port->infiniband || vb_port_is_active(netdev_of(port));
    return add_of_port(tree, number, "state", active ? "4: ACTIVE\n" : "1: DOWN\n") &&
           add_of_port(tree, number, "phys_state", active ? "5: LinkUp\n" : "3: Disabled\n");
}

static bool add_link_layer(struct vb_tree *tree, unsigned number,
                           const struct vb_port_setting *port)
{
    char lid[16], lmc[16];
    snprintf(lid, sizeof lid, "0x%x\n", port->lid);
    snprintf(lmc, sizeof lmc, "%u\n", port->lmc);
    return add_of_port(tree, number, "link_layer",
                       port->infiniband ? "InfiniBand\n" : "Ethernet\n") &&
           add_of_port(tree, number, "lid", lid) && add_of_port(tree, number, "sm_lid", lid) &&
           add_of_port(tree, number, "lid_mask_count", lmc);
}

static bool add_pkeys(struct vb_tree *tree, unsigned number, const struct vb_port_setting *port)
{
    char path[128];
    bool added = true;
    for (int i = 0; added && i < VB_MAX_PKEYS; i++) {
        snprintf(path, sizeof path, PORT "pkeys/%d", number, i);
        added = add_file(tree, path, "0x%04x\n", port->pkeys[i]);
    }
    return added;
}

static bool add_gids(struct vb_tree *tree, unsigned number, const struct vb_port_setting *port)
{
    struct vb_gid only;
    if (port->infiniband) {
        only = vb_port_gid_infiniband(number);
        return add_gid(tree, number, 0, &only);
    }
    struct vb_gid *table = calloc(VB_GID_MAX, sizeof *table);
    int count = table ? vb_port_gid_table_of(netdev_of(port), number, table, VB_GID_MAX) : -1;
    bool added = count > 0 && add_ndev(tree, &table[0]);
    for (int i = 0; added && i < count; i++)
        added = add_gid(tree, number, i, &table[i]);
    free(table);
    return added;
}

/* The same settings as the library has, which complains of those that are not understood. */
static bool add_ports(struct vb_tree *tree)
{
    struct vb_port_settings settings;
    bool added = true;
    vb_port_ports_read(&settings);
    for (unsigned number = 1; added && number <= settings.count; number++) {
        const struct vb_port_setting *port = &settings.port[number - 1];
        added = add_port_constants(tree, number) && add_state(tree, number, port) &&
                add_link_layer(tree, number, port) && add_pkeys(tree, number, port) &&
                add_gids(tree, number, port);
    }
    return added;
}

bool vb_preload_contents_add(struct vb_tree *tree)
{
    return add_constants(tree) && add_identity(tree) && add_cpus(tree) && add_ports(tree);
}
