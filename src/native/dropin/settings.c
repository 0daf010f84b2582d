// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the variables of the environment, and complains of those that cannot take effect. All
 * other files of this library ask vb_dropin_settings(). Python checks the same values
 * (src/verbena/launch.py), but programs may be started without it.
 */
#include "dropin/settings.h"

#include <errno.h>
#include <net/if.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory/number.h"
#include "port/fabric.h"
#include "wrap/capture.h"

enum { NAME_MOST = 15 }; /* as in /proc/PID/comm */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct vb_settings settings;

static void write_line(const char *format, va_list arguments)
{
    char line[1536];
    size_t length;
    int error = errno;

    /* The name and the pid tell apart the programs of a terminal. A fork changes the pid. */
    length = (size_t)snprintf(line, sizeof(line), "verbena: %.*s[%d]: ", NAME_MOST,
                              program_invocation_short_name, (int)getpid());
    vsnprintf(line + length, sizeof(line) - length - 1, format, arguments);
    length = strlen(line);
    line[length++] = '\n';
    if (write(STDERR_FILENO, line, length) < 0)
        errno = error;
}

static void complain(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    write_line(format, arguments);
    va_end(arguments);
}

/* Writes the words as "a, b or c" into `line`, and returns it. */
static const char *listed(const char *const *words, char *line, size_t size)
{
    size_t length = 0;

    for (int i = 0; words[i] && length < size; ++i)
        length += (size_t)snprintf(line + length, size - length, "%s%s",
                                   !i             ? ""
                                   : words[i + 1] ? ", "
                                                  : " or ",
                                   words[i]);
    return line;
}

/* Returns the index of the variable's value in a list of words, or `fallback` if it is not set. */
static int choice(const char *variable, const char *const *words, int fallback)
{
    const char *value = getenv(variable);
    char list[128];

    if (!value || !*value)
        return fallback;
    for (int i = 0; words[i]; ++i)
        if (strcmp(value, words[i]) == 0)
            return i;
    complain("%s=%s is not understood and ignored; it may be %s", variable, value,
             listed(words, list, sizeof(list)));
    return fallback;
}

static unsigned settings_number(const char *variable, unsigned least, unsigned most, const char *of)
{
    const char *value = getenv(variable);
    uint64_t parsed;

    if (!value || !*value)
        return 0;
    if (!vb_memory_number_parse(value, &parsed) || parsed < least || parsed > most) {
        complain("%s=%s is not a number of %s from %u to %u and ignored", variable, value, of,
                 least, most);
        return 0;
    }
    return (unsigned)parsed;
}

static const char *text(const char *variable)
{
    const char *value = getenv(variable);

    return value && *value ? strdup(value) : NULL;
}

static void look_for_interface(const char *name)
{
    const char *asked = getenv("VERBENA_NETDEV");
    bool is_own = *name && (!asked || strcmp(asked, name) != 0) && strcmp(name, "/") != 0;

    if (*name && !if_nametoindex(name))
        complain("%s=%s: there is no such interface now, so the device has no GIDs of "
                 "addresses; `ip link` lists them",
                 is_own ? "VERBENA_PORTS: netdev" : "VERBENA_NETDEV", is_own ? name : asked);
}

static void look_at_devices(void)
{
    const char *last = "";

    settings.infiniband = true;
    for (int i = 0; i < settings.devices.count; ++i) {
        const struct vb_port_settings *device = &settings.devices.device[i];

        settings.infiniband &= vb_port_ports_are_infiniband(device);
        for (int port = 0; port < device->count; ++port) {
            if (strcmp(device->port[port].netdev, last) != 0) /* one line for all of --devices */
                look_for_interface(device->port[port].netdev);
            last = device->port[port].netdev;
        }
    }
}

/* There are no records, or they are of other values: a variable was set by hand. */
static void settings_refuse_unparsed(void)
{
    static const char *const of[][2] = {{"VERBENA_PORTS", "--port"},
                                        {"VERBENA_DEVICES", "--devices"},
                                        {"VERBENA_PKEYS", "--pkeys"}};
    const char *records = getenv("VERBENA_PORT_RECORDS");

    if (records && *records) {
        complain("the port settings of `verbena env` no longer fit VERBENA_PORTS, VERBENA_DEVICES, "
                 "VERBENA_PKEYS and VERBENA_LINK_LAYER, so there is one device with the default "
                 "port; run `verbena env` again, or start the program with `verbena run`");
        return;
    }
    for (size_t i = 0; i < sizeof(of) / sizeof(*of); ++i)
        if (getenv(of[i][0]) && *getenv(of[i][0]))
            complain("%s is ignored: this program does not read its words itself; start it with "
                     "`verbena run`, as verbena run %s, or set them by `verbena env %s`",
                     of[i][0], of[i][1], of[i][1]);
}

/* Without its fabric the program has no device. */
static void read_fabric(void)
{
    char sentence[VB_FABRIC_SENTENCE];

    settings.infiniband = true;
    settings.devices.count = !vb_port_fabric_look(&settings.devices.device[0], sentence);
    if (!settings.devices.count)
        complain("there is no device: %s", sentence);
}

static void read_devices(void)
{
    static const char *const layers[] = {"ethernet", "infiniband", NULL};
    const char *complaint;

    settings.fabric = text("VERBENA_FABRIC");
    if (settings.fabric) {
        read_fabric();
        return;
    }
    choice("VERBENA_LINK_LAYER", layers, 0); /* complains; vb_port_devices_read has read it */
    if (!vb_port_devices_read(&settings.devices, &complaint))
        settings_refuse_unparsed();
    if (complaint)
        complain("%s", complaint);
    look_at_devices();
}

/* VERBENA_FAULT_RECORDS is the records, "|" and the words that they were made of. Returns the
 * length of the records, or 0 if they were made of other words. */
static int length_of_records(const char *records, const char *words)
{
    size_t behind = strlen(words) + 1, length = records ? strlen(records) : 0;

    if (length < behind || records[length - behind] != '|' ||
        strcmp(records + length - behind + 1, words) != 0)
        return 0;
    return (int)(length - behind);
}

/*
 * Returns the records that Python made of the words (src/verbena/_fault_rules.py), or NULL. If a
 * word is wrong, Python wrote "!" and the complaint in place of the records.
 */
static const char *fault_rules(void)
{
    const char *words = getenv("VERBENA_FAULT"), *records = getenv("VERBENA_FAULT_RECORDS");
    struct vb_fault_rules rules;
    char error[256];
    int length;

    if (!words || !*words)
        return NULL;
    length = length_of_records(records, words);
    if (!length)
        complain("VERBENA_FAULT is ignored: this program does not read its words itself; start it "
                 "with `verbena run`, or set them by `verbena env --fault RULES`");
    else if (*records == '!')
        complain("VERBENA_FAULT is ignored: %.*s", length - 1, records + 1);
    else if (vb_wrap_fault_read(records, &rules, error, sizeof(error)))
        complain("VERBENA_FAULT is ignored: VERBENA_FAULT_RECORDS %s", error);
    else
        return strdup(records);
    return NULL;
}

/* Without packets some settings have no effect, which this says. */
static void forgo_packets(void)
{
    const char *ports = getenv("VERBENA_PORTS");
    const char *unheard = settings.carrier == VB_CARRIER_ROCE            ? "VERBENA_CARRIER=roce"
                          : settings.fault                               ? "VERBENA_FAULT"
                          : settings.capture && !settings.capture_direct ? "VERBENA_CAPTURE"
                                                                         : NULL;

    if (unheard)
        complain("%s: the port sends no packets, so %s has no effect%s",
                 settings.fabric ? "VERBENA_FABRIC"
                 : ports         ? "VERBENA_PORTS has InfiniBand alone"
                                 : "VERBENA_LINK_LAYER=infiniband",
                 unheard,
                 settings.capture ? "; VERBENA_CAPTURE_DIRECT=yes captures what goes without" : "");
    settings.carrier = VB_CARRIER_DIRECT;
}

/* Under VERBENA_LOG. The names are those of src/verbena/_variables.py. */
static void settings_tell_unknown(void)
{
    static const char known[] =
        " LOG CARRIER SPIN_US NETDEV LINK_LAYER PKEYS PORTS DEVICES PORT_RECORDS PART_ID "
        "SHARED_HEAP_MIN HEAP_SIZE COPY FAULT FAULT_RECORDS CAPTURE CAPTURE_DIRECT CAPTURE_BYTES "
        "COMMAND LIBRARY SIM RUN SANITIZE AGENT MANAGES FABRIC HOST RANK SIZE "
        "ADDRESS ";
    char name[32], word[34];

    for (char **each = environ; *each; ++each)
        if (sscanf(*each, "VERBENA_%31[^=]", name) == 1) {
            snprintf(word, sizeof(word), " %s ", name);
            if (!strstr(known, word))
                complain("VERBENA_%s is not known; `verbena run` names the nearest that is", name);
        }
}

static void read_settings(void)
{
    static const char *const levels[] = {"errors", "info", "counters", "debug", NULL};
    static const char *const ways[] = {"any", "shared", "cma", "bounce", NULL};
    static const char *const ports[] = {"auto", "direct", "roce", NULL};
    static const char *const commands[] = {"run", "pair", NULL};
    static const char *const answers[] = {"no", "yes", NULL};
    int level;

    level = choice("VERBENA_LOG", levels, -1);
    settings.explain = level >= 0;
    if (settings.explain)
        settings_tell_unknown();
    settings.log = level >= 0 ? (enum vb_log_level)level : VB_LOG_ERRORS;
    settings.pair = choice("VERBENA_COMMAND", commands, 0);
    settings.copy = (enum vb_way)choice("VERBENA_COPY", ways, VB_WAY_ANY);
    settings.carrier = (enum vb_which_carrier)choice("VERBENA_CARRIER", ports, VB_CARRIER_AUTO);
    read_devices();
    settings.spin_us = settings_number("VERBENA_SPIN_US", 0, 1000000, "microseconds");
    settings.part_id = settings_number("VERBENA_PART_ID", 0, UINT32_MAX, "a part");
    settings.fault = fault_rules();
    settings.capture = text("VERBENA_CAPTURE");
    settings.capture_bytes = settings_number("VERBENA_CAPTURE_BYTES", VB_CAPTURE_BYTES_LEAST,
                                             VB_CAPTURE_BYTES_MOST, "bytes");
    settings.capture_direct = choice("VERBENA_CAPTURE_DIRECT", answers, 0);
    settings.manages = choice("VERBENA_MANAGES", answers, 0);
    if (settings.infiniband)
        forgo_packets();
}

const struct vb_settings *vb_dropin_settings(void)
{
    pthread_once(&once, read_settings);
    return &settings;
}

void vb_dropin_log(enum vb_log_level level, const char *format, ...)
{
    va_list arguments;

    if (vb_dropin_settings()->log < level)
        return;
    va_start(arguments, format);
    write_line(format, arguments);
    va_end(arguments);
}
