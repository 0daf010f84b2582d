// SPDX-License-Identifier: Apache-2.0
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

/* Nothing of it was said: each InfiniBand port has other LIDs. */
static uint16_t usual_lid(const struct vb_port_setting *port, unsigned number)
{
    return (uint16_t)(number << port->lmc);
}

/* `text` is changed. */
static bool take_port(char *text, unsigned number, const struct vb_port_setting *usual,
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
        port->lid = usual_lid(port, number);
    return !(port->lid & ((1u << port->lmc) - 1));
}

/* ---- all of them ---- */

static bool overlap(const struct vb_port_setting *one, const struct vb_port_setting *other)
{
    uint8_t lmc = one->lmc > other->lmc ? one->lmc : other->lmc;

    return one->infiniband && other->infiniband && (one->lid ^ other->lid) >> lmc == 0;
}

/* `text` is changed. */
static bool take_ports(char *text, const struct vb_port_setting *usual,
                       struct vb_port_settings *settings)
{
    struct vb_port_settings found = {0};
    char *next = text;

    while (next) {
        char *port = strsep(&next, ";");

        if (found.count == VB_MAX_PORTS ||
            !take_port(port, found.count + 1u, usual, &found.port[found.count]))
            return false;
        ++found.count;
    }
    if (found.count == VB_MAX_PORTS && overlap(&found.port[0], &found.port[1]))
        return false;
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

unsigned vb_port_ports_read(struct vb_port_settings *settings)
{
    const char *ports = variable("VERBENA_PORTS"), *layer = variable("VERBENA_LINK_LAYER");
    struct vb_port_setting *first = &settings->port[0];
    unsigned trouble = 0;
    char *copy;

    vb_port_ports_usual(settings);
    ports_read_netdev(first);
    if (vb_port_pkeys_parse(variable("VERBENA_PKEYS"), ',', first->pkeys))
        trouble |= VB_BAD_PKEYS;
    if (layer && strcmp(layer, "infiniband") == 0) {
        first->infiniband = true;
        first->lid = usual_lid(first, 1);
    }
    copy = ports ? strdup(ports) : NULL;
    if (copy) {
        struct vb_port_setting usual = *first;

        if (!take_ports(copy, &usual, settings))
            trouble |= VB_BAD_PORTS;
    }
    free(copy);
    return trouble;
}

bool vb_port_ports_are_infiniband(const struct vb_port_settings *settings)
{
    for (int i = 0; i < settings->count; ++i)
        if (!settings->port[i].infiniband)
            return false;
    return true;
}
