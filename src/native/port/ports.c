// SPDX-License-Identifier: Apache-2.0
/*
 * Reads which devices and ports the environment asks for (ports.h). The texts are those of the
 * options of `verbena run`, which Python has checked; a program may also be started without it.
 */
#include "port/ports.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LID_MOST = 0xbfff, LMC_MOST = 7 }; /* beyond are multicast LIDs (IBA 4.1.3) */

/* ---- numbers and P_Keys ---- */

/* One number, hexadecimal with 0x in front; `end` is behind it. */
static bool ports_take_number(const char *at, unsigned most, unsigned *value, const char **end)
{
    bool is_hex = at[0] == '0' && (at[1] == 'x' || at[1] == 'X');
    const char *digits = is_hex ? at + 2 : at;
    size_t length = strspn(digits, is_hex ? "0123456789abcdefABCDEF" : "0123456789");

    if (!length || length > 5)
        return false;
    *value = (unsigned)strtoul(digits, NULL, is_hex ? 16 : 10);
    *end = digits + length;
    return *value <= most;
}

int vb_port_pkeys_parse(const char *text, char between, uint16_t pkeys[VB_MAX_PKEYS])
{
    uint16_t found[VB_MAX_PKEYS] = {VB_PKEY_DEFAULT};
    const char *at = text && *text ? text : NULL;
    unsigned value;

    for (int i = 0; at; ++i) {
        if (i == VB_MAX_PKEYS || !ports_take_number(at, UINT16_MAX, &value, &at) ||
            !vb_pkey_is_valid((uint16_t)value) || (*at && *at != between))
            return -EINVAL;
        found[i] = (uint16_t)value;
        at = *at ? at + 1 : NULL;
    }
    memcpy(pkeys, found, sizeof(found));
    return 0;
}

/* ---- one port ---- */

static bool take_lid(const char *value, struct vb_port_setting *port)
{
    unsigned lid;

    if (!port->infiniband || !ports_take_number(value, LID_MOST, &lid, &value) || !lid || *value)
        return false;
    port->lid = (uint16_t)lid;
    return true;
}

static bool take_lmc(const char *value, struct vb_port_setting *port)
{
    unsigned lmc;

    if (!port->infiniband || !ports_take_number(value, LMC_MOST, &lmc, &value) || *value)
        return false;
    port->lmc = (uint8_t)lmc;
    return true;
}

static bool take_netdev(const char *value, struct vb_port_setting *port)
{
    if (port->infiniband || !*value || strlen(value) >= sizeof(port->netdev))
        return false;
    strcpy(port->netdev, value);
    return true;
}

static bool take_pkeys(const char *value, struct vb_port_setting *port)
{
    return *value && !vb_port_pkeys_parse(value, '+', port->pkeys);
}

static bool take_word(const char *word, struct vb_port_setting *port)
{
    static const struct {
        const char *name;
        bool (*take)(const char *value, struct vb_port_setting *port);
    } words[] = {
        {"lid=", take_lid}, {"lmc=", take_lmc}, {"netdev=", take_netdev}, {"pkeys=", take_pkeys}};

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); ++i)
        if (strncmp(word, words[i].name, strlen(words[i].name)) == 0)
            return words[i].take(word + strlen(words[i].name), port);
    return false;
}

/* `text` is changed. Without a setting each InfiniBand port of the host has other LIDs. */
static bool take_port(char *text, unsigned unit, const struct vb_port_setting *usual,
                      struct vb_port_setting *port)
{
    const char *word = strsep(&text, ",");

    *port = *usual;
    port->infiniband = strcmp(word, "infiniband") == 0;
    if (!port->infiniband && strcmp(word, "ethernet") != 0)
        return false;
    port->lid = port->lmc = 0;
    if (port->infiniband)
        port->netdev[0] = '\0';
    while ((word = strsep(&text, ",")) != NULL) /* "": a comma too many */
        if (!take_word(word, port))
            return false;
    if (port->infiniband && !port->lid)
        port->lid = (uint16_t)(unit << port->lmc);
    return !(port->lid & ((1u << port->lmc) - 1));
}

/* ---- all of them ---- */

static bool overlap(const struct vb_port_setting *one, const struct vb_port_setting *other)
{
    uint8_t lmc = one->lmc > other->lmc ? one->lmc : other->lmc;

    return one->infiniband && other->infiniband && (one->lid ^ other->lid) >> lmc == 0;
}

/* Does no port so far have a LID of this one? */
static bool lids_are_free(const struct vb_device_settings *found,
                          const struct vb_port_setting *port)
{
    for (int device = 0; device < found->count; ++device)
        for (int i = 0; i < found->device[device].count; ++i)
            if (overlap(port, &found->device[device].port[i]))
                return false;
    return true;
}

/* The next port of the last device. `text` is changed. */
static bool ports_add_port(char *text, const struct vb_port_setting *usual,
                           struct vb_device_settings *found)
{
    struct vb_port_settings *device = &found->device[found->count - 1];
    struct vb_port_setting *port = &device->port[device->count];

    if (device->count == VB_MAX_PORTS ||
        !take_port(text, vb_port_unit(device->device, device->count + 1u), usual, port) ||
        !lids_are_free(found, port))
        return false;
    ++device->count;
    return true;
}

/* The next device, with the ports that `text` describes up to a slash. */
static bool ports_add_device(const char *text, const struct vb_port_setting *usual,
                             struct vb_device_settings *found)
{
    char *copy = found->count < VB_MAX_DEVICES ? strndup(text, strcspn(text, "/")) : NULL;
    char *next = copy;
    bool taken = copy != NULL;

    if (taken) {
        found->device[found->count].device = found->count;
        ++found->count;
    }
    while (taken && next)
        taken = ports_add_port(strsep(&next, ";"), usual, found);
    free(copy);
    return taken;
}

/* As many devices as `text` describes, and `least` at least. */
static bool take_devices(const char *text, unsigned least, const struct vb_port_setting *usual,
                         struct vb_device_settings *settings)
{
    struct vb_device_settings found = {0};
    const char *slash = text;

    while (slash || found.count < least) {
        if (!ports_add_device(text, usual, &found))
            return false;
        slash = strchr(text, '/');
        text = slash ? slash + 1 : text;
    }
    *settings = found;
    return true;
}

void vb_port_ports_usual(struct vb_port_settings *settings)
{
    *settings = (struct vb_port_settings){.count = 1, .port = {{.pkeys = {VB_PKEY_DEFAULT}}}};
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

/* A name that is too long is no interface's; it must not become another one by being cut. */
static void ports_read_netdev(struct vb_port_setting *port)
{
    const char *name = variable("VERBENA_NETDEV");

    if (name)
        strcpy(port->netdev, strlen(name) < sizeof(port->netdev) ? name : "/");
}

/* 0: the variable is not set. `described`: by VERBENA_PORTS. */
static bool read_count(unsigned described, unsigned *count)
{
    const char *devices = variable("VERBENA_DEVICES");

    *count = 0;
    return !devices || (ports_take_number(devices, VB_MAX_DEVICES, count, &devices) && !*devices &&
                        *count && *count >= described);
}

static unsigned count_slashes(const char *text)
{
    unsigned count = 0;

    for (; (text = strchr(text, '/')) != NULL; ++text)
        ++count;
    return count;
}

unsigned vb_port_devices_read(struct vb_device_settings *settings)
{
    const char *ports = variable("VERBENA_PORTS"), *layer = variable("VERBENA_LINK_LAYER");
    const char *one = layer && strcmp(layer, "infiniband") == 0 ? layer : "ethernet";
    struct vb_port_settings usual;
    unsigned trouble = 0, count;

    vb_port_ports_usual(&usual);
    ports_read_netdev(&usual.port[0]);
    if (vb_port_pkeys_parse(variable("VERBENA_PKEYS"), ',', usual.port[0].pkeys))
        trouble |= VB_BAD_PKEYS;
    if (!read_count(ports ? count_slashes(ports) + 1 : 1, &count)) {
        trouble |= VB_BAD_DEVICES;
        count = 0;
    }
    *settings = (struct vb_device_settings){.count = 1, .device = {usual}};
    if (ports && take_devices(ports, count, &usual.port[0], settings))
        return trouble;
    take_devices(one, count, &usual.port[0], settings);
    return ports ? trouble | VB_BAD_PORTS : trouble;
}

bool vb_port_ports_are_infiniband(const struct vb_port_settings *settings)
{
    for (int i = 0; i < settings->count; ++i)
        if (!settings->port[i].infiniband)
            return false;
    return true;
}
