// SPDX-License-Identifier: Apache-2.0
/*
 * The contents of the devices' files below /sys and /dev, which tree.c asks for once in a process.
 * Names and formats are those of Linux' Documentation/ABI/stable/sysfs-class-infiniband. A
 * counter's file has the sum of all processes of this user that have the device open
 * (host/device_counters.h). Nobody counts by port: the first port's files have everything.
 */
#include "preload/paths/contents.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "host/device_counters.h"
#include "port/gid.h"
#include "port/ports.h"
#include "preload/paths/cpus.h"
#include "preload/paths/fabric/question.h"
#include "preload/paths/tree.h"

struct file {
    const char *name; /* below the folder */
    const char *text;
};

static const struct file device_files[] = {
    {"node_type", "1: CA\n"},
    {"fw_ver", VB_FIRMWARE "\n"},
    {"hca_type", "verbena\n"},
    {"hw_rev", "0x0\n"},
    {"board_id", "verbena\n"},
    {"device/numa_node", "-1\n"},
    {"device/vendor", "0xffff\n"},
    {"device/device", "0x0000\n"},
    {"device/uevent", "DRIVER=verbena\n"},
};

static const struct file port_files[] = {
    {"rate", VB_PORT_RATE "\n"},
    {"sm_sl", "0\n"},
    {"cap_mask", VB_PORT_CAP_MASK "\n"},
    {"hw_counters/lifespan", "10\n"},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- files of a folder ----------------------------------------------------------------------- */

struct folder {
    struct vb_tree *tree;
    char path[96];
};

__attribute__((format(printf, 2, 3))) static struct folder folder_at(struct vb_tree *tree,
                                                                     const char *format, ...)
{
    struct folder folder = {.tree = tree};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(folder.path, sizeof folder.path, format, arguments);
    va_end(arguments);
    return folder;
}

static bool add_node(const struct folder *to, const char *name, enum vb_node_kind kind,
                     const char *text)
{
    char path[sizeof to->path + 64];
    snprintf(path, sizeof path, "%s/%s", to->path, name);
    return vb_preload_tree_add(to->tree, path, kind, text);
}

/* Adds a file whose text is made of `format`. */
__attribute__((format(printf, 3, 4))) static bool
add_file(const struct folder *to, const char *name, const char *format, ...)
{
    char *text;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0)
        return false;
    bool added = add_node(to, name, VB_NODE_FILE, text);
    free(text);
    return added;
}

static bool add_files(const struct folder *to, const struct file *files, size_t count)
{
    bool added = true;
    for (size_t i = 0; added && i < count; i++)
        added = add_node(to, files[i].name, VB_NODE_FILE, files[i].text);
    return added;
}

/* ---- a port ---------------------------------------------------------------------------------- */

/* A counter's text is its device and its number, of which claim.c makes the value. */
static bool add_counters(const struct folder *to, unsigned device, unsigned number)
{
    enum vb_node_kind kind = number == 1 ? VB_NODE_COUNTER : VB_NODE_FILE;
    char name[VB_DEVICE_COUNTER_NAME], text[32];
    bool added = true;
    for (size_t n = 0; added && vb_host_device_counter_name(n, name); n++) {
        snprintf(text, sizeof text, "%u %zu", device, n);
        added = add_node(to, name, kind, kind == VB_NODE_FILE ? "0\n" : text);
    }
    return added;
}

static const char *netdev_of(const struct vb_port_setting *port)
{
    return port->netdev[0] ? port->netdev : NULL;
}

/* As it is when the program first looks. */
static bool add_state(const struct folder *to, const struct vb_port_setting *port)
{
    bool active = port->infiniband || vb_port_is_active(netdev_of(port));
    return add_file(to, "state", active ? "4: ACTIVE\n" : "1: DOWN\n") &&
           add_file(to, "phys_state", active ? "5: LinkUp\n" : "3: Disabled\n");
}

static bool add_link_layer(const struct folder *to, const struct vb_port_setting *port)
{
    return add_file(to, "link_layer", port->infiniband ? "InfiniBand\n" : "Ethernet\n") &&
           add_file(to, "lid", "0x%x\n", port->lid) &&
           add_file(to, "sm_lid", "0x%x\n", port->lid) &&
           add_file(to, "lid_mask_count", "%u\n", port->lmc);
}

static bool add_pkeys(const struct folder *to, const struct vb_port_setting *port)
{
    char name[32];
    bool added = true;
    for (int i = 0; added && i < VB_MAX_PKEYS; i++) {
        snprintf(name, sizeof name, "pkeys/%d", i);
        added = add_file(to, name, "0x%04x\n", port->pkeys[i]);
    }
    return added;
}

static bool add_gid_value(const struct folder *to, const char *name, const uint8_t raw[16])
{
    char text[8 * 5 + 1];
    for (int i = 0; i < 8; i++)
        snprintf(text + 5 * i, 6, "%02x%02x%c", raw[2 * i], raw[2 * i + 1], i < 7 ? ':' : '\n');
    return add_node(to, name, VB_NODE_FILE, text);
}

static bool add_gid(const struct folder *to, int index, const struct vb_gid *gid)
{
    char name[32];
    snprintf(name, sizeof name, "gids/%d", index);
    if (!add_gid_value(to, name, gid->raw))
        return false;
    snprintf(name, sizeof name, "gid_attrs/types/%d", index);
    if (!add_file(to, name, gid->type == VB_GID_ROCE_V1 ? "IB/RoCE v1\n" : "RoCE v2\n"))
        return false;
    snprintf(name, sizeof name, "gid_attrs/ndevs/%d", index);
    return gid->ndev_ifindex == 0 || add_file(to, name, "%s\n", gid->ndev);
}

/* The port's own interface, as a link to what the kernel says about it. */
static bool add_ndev(const struct folder *device, const struct vb_gid *gid)
{
    char name[32], target[64];
    if (gid->ndev_ifindex == 0)
        return true;
    snprintf(name, sizeof name, "device/net/%s", gid->ndev);
    snprintf(target, sizeof target, "/sys/class/net/%s", gid->ndev);
    return add_node(device, name, VB_NODE_LINK, target);
}

static bool add_gids(const struct folder *device, const struct folder *to, unsigned unit,
                     const struct vb_port_setting *port)
{
    struct vb_gid only;
    if (port->infiniband) {
        only = vb_port_gid_infiniband(unit);
        return add_gid(to, 0, &only);
    }
    struct vb_gid *table = calloc(VB_GID_MAX, sizeof *table);
    int count = table ? vb_port_gid_table(netdev_of(port), unit, table, VB_GID_MAX) : -1;
    bool added = count > 0 && add_ndev(device, &table[0]);
    for (int i = 0; added && i < count; i++)
        added = add_gid(to, i, &table[i]);
    free(table);
    return added;
}

/* A line is a kind, a path, and for a device the number of its port. */
static bool add_line(struct vb_tree *tree, char *line)
{
    enum vb_node_kind kind = *line == 'u'   ? VB_NODE_UMAD
                             : *line == 'i' ? VB_NODE_ISSM
                                            : VB_NODE_LIVE;
    char *path = line + 2, *number = strchr(path, ' ');
    if (number)
        *number++ = '\0';
    return vb_preload_tree_add(tree, path, kind, number);
}

/* Linux has umadN for RoCE ports, too (rdma_cap_ib_mad). The agent answers for the first device. */
static bool add_umad(struct vb_tree *tree, unsigned number)
{
    struct folder class = folder_at(tree, "/sys/class/infiniband_mad");
    char path[64];
    snprintf(path, sizeof path, "umad%u/ibdev", number - 1);
    bool added =
        add_file(&class, "abi_version", "5\n") && add_file(&class, path, VB_DEVICE_NAME "0\n");
    snprintf(path, sizeof path, "umad%u/port", number - 1);
    added = added && add_file(&class, path, "%u\n", number);
    snprintf(path, sizeof path, "umad%u/dev", number - 1);
    added = added && add_file(&class, path, "231:%u\n", number - 1);
    snprintf(path, sizeof path, "u /dev/infiniband/umad%u %u", number - 1, number);
    return added && add_line(tree, path);
}

static bool add_port(const struct folder *device, const struct vb_port_settings *settings,
                     unsigned number)
{
    const struct vb_port_setting *port = &settings->port[number - 1];
    struct folder to = folder_at(device->tree, "%s/ports/%u", device->path, number);
    return add_files(&to, port_files, COUNT(port_files)) &&
           add_counters(&to, settings->device, number) && add_state(&to, port) &&
           add_link_layer(&to, port) && add_pkeys(&to, port) &&
           add_gids(device, &to, vb_port_unit(settings->device, number), port) &&
           (settings->device || port->infiniband || add_umad(device->tree, number));
}

/* ---- a device -------------------------------------------------------------------------------- */

static bool add_guid(const struct folder *to, const char *name, uint64_t guid)
{
    return add_file(to, name, "%04x:%04x:%04x:%04x\n", (unsigned)(guid >> 48),
                    (unsigned)(guid >> 32 & 0xffff), (unsigned)(guid >> 16 & 0xffff),
                    (unsigned)(guid & 0xffff));
}

static bool add_identity(const struct folder *to, unsigned device)
{
    uint64_t guid = vb_port_device_guid(device);
    char host[65] = "localhost";
    gethostname(host, sizeof host - 1);
    return add_guid(to, "node_guid", guid) && add_guid(to, "sys_image_guid", guid) &&
           add_file(to, "node_desc", "%s " VB_DEVICE_NAME "%u\n", host, device) &&
           add_file(to, "uevent", "NAME=" VB_DEVICE_NAME "%u\n", device);
}

static bool add_cpus(const struct folder *to)
{
    struct vb_cpus cpus;
    if (vb_preload_online_cpus(&cpus))
        return true; /* a host without /sys/devices/system/cpu: programs live without the files */
    return add_file(to, "device/local_cpulist", "%s\n", cpus.list) &&
           add_file(to, "device/local_cpus", "%s\n", cpus.mask);
}

/* The character device, and what says which device it is of. */
static bool add_uverbs(const struct folder *device, unsigned number)
{
    struct folder class =
        folder_at(device->tree, "/sys/class/infiniband_verbs/" VB_UVERBS_NAME "%u", number);
    struct folder dev = folder_at(device->tree, "/dev/infiniband");
    char target[sizeof device->path + 8], name[16];
    snprintf(target, sizeof target, "%s/device", device->path);
    snprintf(name, sizeof name, VB_UVERBS_NAME "%u", number);
    return add_file(&class, "ibdev", VB_DEVICE_NAME "%u\n", number) &&
           add_file(&class, "abi_version", "1\n") &&
           add_file(&class, "dev", "%d:%u\n", VB_UVERBS_MAJOR, VB_UVERBS_MINOR + number) &&
           add_node(&class, "device", VB_NODE_LINK, target) &&
           add_node(&dev, name, VB_NODE_DEVICE, NULL);
}

static bool add_device(struct vb_tree *tree, const struct vb_port_settings *settings)
{
    struct folder to =
        folder_at(tree, "/sys/class/infiniband/" VB_DEVICE_NAME "%u", settings->device);
    bool added = add_files(&to, device_files, COUNT(device_files)) &&
                 add_node(&to, "device/net", VB_NODE_DIR, NULL) &&
                 add_identity(&to, settings->device) && add_cpus(&to) &&
                 add_uverbs(&to, settings->device);
    for (unsigned number = 1; added && number <= settings->count; number++)
        added = add_port(&to, settings, number);
    return added;
}

/* ---- a host of a fabric ---------------------------------------------------------------------- */

enum { FABRIC_LIST = 128 << 10 };

/* The fabric's process lists its files, which replace those that say the same of other ports. */
static bool add_fabric(struct vb_tree *tree)
{
    struct vb_fabric_question question = {.role = VB_FABRIC_TREE, .attached = -1};
    char *list = malloc(FABRIC_LIST), *rest = list;
    size_t length;
    if (!list)
        return false;
    if (vb_preload_fabric_ask(&question, list, FABRIC_LIST - 1, &length))
        length = 0; /* it has been said why: the program finds no port */
    list[length] = '\0';
    bool added = true;
    for (char *line; added && (line = strsep(&rest, "\n"));)
        added = !line[0] || !line[1] || add_line(tree, line);
    free(list);
    return added;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* The ABI versions are those of Linux' rdma_user_cm.h; librdmacm knows two places for them. */
static bool add_manager(struct vb_tree *tree)
{
    return vb_preload_tree_add(tree, "/dev/infiniband/rdma_cm", VB_NODE_RDMA_CM, NULL) &&
           vb_preload_tree_add(tree, "/sys/class/misc", VB_NODE_SHARED, NULL) &&
           vb_preload_tree_add(tree, "/sys/class/misc/rdma_cm/abi_version", VB_NODE_FILE, "4\n") &&
           vb_preload_tree_add(tree, "/sys/class/infiniband_ucma/abi_version", VB_NODE_FILE, "4\n");
}

static bool add_classes(struct vb_tree *tree)
{
    return vb_preload_tree_add(tree, "/sys", VB_NODE_PASSAGE, NULL) &&
           vb_preload_tree_add(tree, "/sys/class", VB_NODE_PASSAGE, NULL) &&
           vb_preload_tree_add(tree, "/dev", VB_NODE_PASSAGE, NULL) &&
           vb_preload_tree_add(tree, "/sys/class/infiniband", VB_NODE_SHARED, NULL) &&
           vb_preload_tree_add(tree, "/sys/class/infiniband_verbs", VB_NODE_SHARED, NULL) &&
           vb_preload_tree_add(tree, "/sys/class/infiniband_verbs/abi_version", VB_NODE_FILE,
                               "6\n") &&
           vb_preload_tree_add(tree, "/dev/infiniband", VB_NODE_SHARED, NULL) && add_manager(tree);
}

/* The library reads the same settings, and complains of those that are not understood. */
bool vb_preload_contents_add(struct vb_tree *tree)
{
    struct vb_device_settings settings;
    const char *complaint;
    bool added = add_classes(tree);
    vb_port_devices_read(&settings, &complaint);
    for (int i = 0; added && i < settings.count; i++)
        added = add_device(tree, &settings.device[i]);
    return added && (!vb_preload_fabric_is_set() || add_fabric(tree));
}
