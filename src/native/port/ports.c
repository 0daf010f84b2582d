// SPDX-License-Identifier: Apache-2.0
/*
 * Reads and checks the records of devices and ports (ports.h), which Python makes
 * (src/verbena/_ports.py). Records that are damaged, or were made of other values than the
 * variables have, are refused as a whole.
 */
#include "port/ports.h"

#include <stdlib.h>
#include <string.h>

#include "memory/number.h"

enum { VERSION = 1, LID_MOST = 0xbfff, LMC_MOST = 7 }; /* beyond are multicast LIDs (IBA 4.1.3) */

static const char *ports_variable(const char *name)
{
    const char *value = getenv(name);

    return value ? value : "";
}

/* ---- the records ---- */

static void ports_read_netdev(struct vb_number_reader *reader, struct vb_port_setting *port)
{
    size_t length = strcspn(reader->at, ",");

    reader->damaged |= reader->at[length] != ',' || length >= sizeof(port->netdev);
    if (reader->damaged)
        return;
    memcpy(port->netdev, reader->at, length);
    reader->at += length + 1;
}

static void ports_read_port(struct vb_number_reader *reader, const char *netdev,
                            struct vb_port_setting *port)
{
    uint64_t pkeys;

    port->infiniband = vb_memory_number_take(reader, 0, 1);
    port->lid = (uint16_t)vb_memory_number_take(reader, port->infiniband, LID_MOST);
    port->lmc = (uint8_t)vb_memory_number_take(reader, 0, LMC_MOST);
    pkeys = vb_memory_number_take(reader, 1, VB_MAX_PKEYS);
    for (uint64_t i = 0; i < pkeys; ++i)
        port->pkeys[i] = (uint16_t)vb_memory_number_take(reader, 1, UINT16_MAX);
    ports_read_netdev(reader, port);
    if (!port->infiniband && !port->netdev[0])
        strcpy(port->netdev, netdev);
}

static void ports_read_devices(struct vb_number_reader *reader, const char *netdev,
                               struct vb_device_settings *settings)
{
    vb_memory_number_take(reader, VERSION, VERSION);
    settings->count = (uint8_t)vb_memory_number_take(reader, 1, VB_MAX_DEVICES);
    for (uint8_t i = 0; i < settings->count; ++i) {
        struct vb_port_settings *device = &settings->device[i];

        device->device = i;
        device->count = (uint8_t)vb_memory_number_take(reader, 1, VB_MAX_PORTS);
        for (int port = 0; port < device->count; ++port)
            ports_read_port(reader, netdev, &device->port[port]);
    }
}

/* Returns what is behind the values that the records were made of, or NULL: others are set. */
static const char *ports_behind_words(const char *at)
{
    static const char *const names[] = {"VERBENA_PORTS", "VERBENA_DEVICES", "VERBENA_PKEYS",
                                        "VERBENA_LINK_LAYER"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); ++i) {
        const char *value = ports_variable(names[i]);
        size_t length = strlen(value);

        if (*at != '|' || strncmp(at + 1, value, length) != 0)
            return NULL;
        at += length + 1;
    }
    return at;
}

/* ---- all of it ---- */

void vb_port_ports_usual(struct vb_port_settings *settings)
{
    *settings = (struct vb_port_settings){.count = 1, .port = {{.pkeys = {VB_PKEY_DEFAULT}}}};
}

bool vb_port_devices_read(struct vb_device_settings *settings, const char **complaint)
{
    struct vb_device_settings found = {0};
    struct vb_number_reader reader = {ports_variable("VERBENA_PORT_RECORDS"), false};
    struct vb_port_setting *usual = &settings->device[0].port[0];
    const char *netdev = ports_variable("VERBENA_NETDEV"), *rest;

    /* A name that is too long is no interface's; it must not become another one by being cut. */
    if (strlen(netdev) >= sizeof(usual->netdev))
        netdev = "/";
    ports_read_devices(&reader, netdev, &found);
    rest = reader.damaged ? NULL : ports_behind_words(reader.at);
    *complaint = rest && *rest == '!' ? rest + 1 : NULL;
    *settings = found;
    if (rest)
        return true;
    *settings = (struct vb_device_settings){.count = 1};
    vb_port_ports_usual(&settings->device[0]);
    usual->infiniband = strcmp(ports_variable("VERBENA_LINK_LAYER"), "infiniband") == 0;
    usual->lid = usual->infiniband;
    if (!usual->infiniband)
        strcpy(usual->netdev, netdev);
    return false;
}

bool vb_port_ports_are_infiniband(const struct vb_port_settings *settings)
{
    for (int i = 0; i < settings->count; ++i)
        if (!settings->port[i].infiniband)
            return false;
    return true;
}
