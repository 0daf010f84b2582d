// SPDX-License-Identifier: Apache-2.0
/*
 * Opens a device's adapter as the environment asks, and says on stderr what that cannot give.
 * device.c calls this for the first context of a device.
 */
#include "dropin/adapter.h"

#include <errno.h>
#include <string.h>

#include "dropin/settings.h"
#include "host/capture_direct.h"
#include "memory/process_heap.h"
#include "wrap/capture.h"
#include "wrap/wrap.h"

/* ---- complaints ---- */

/* Faults and captures need packets, so their absence is an error only where one was asked for. */
static void say_without_packets(int error)
{
    const struct vb_settings *settings = vb_dropin_settings();

    vb_dropin_log(settings->fault || (settings->capture && !settings->capture_direct)
                      ? VB_LOG_ERRORS
                      : VB_LOG_INFO,
                  "no RoCE (%s): only processes on this host are reached, without packets",
                  error == -EADDRINUSE ? VB_ROCE_PORT_IS_TAKEN : strerror(-error));
}

static void say_without_faults(void)
{
    vb_dropin_log(
        VB_LOG_ERRORS,
        "a peer on this host is reached directly, without packets: VERBENA_FAULT (verbena run "
        "--fault) does nothing to it; VERBENA_CARRIER=roce on both sides makes packets");
}

static void say_without_capture(void)
{
    vb_dropin_log(
        VB_LOG_ERRORS,
        "a peer on this host is reached directly, without packets: VERBENA_CAPTURE (verbena run "
        "--capture) shows nothing of it; --capture-direct does, and VERBENA_CARRIER=roce on both "
        "sides makes packets");
}

static void say_without_both(void)
{
    say_without_faults();
    say_without_capture();
}

/* What to call when the first connection or datagram goes direct, or NULL. Where no port sends
 * packets, settings.c has complained already. */
static void (*complaint_when_direct(const struct vb_settings *settings))(void)
{
    bool is_captured = settings->capture && !settings->capture_direct;

    if (settings->infiniband)
        return NULL;
    if (settings->fault && is_captured)
        return say_without_both;
    if (is_captured)
        return say_without_capture;
    return settings->fault ? say_without_faults : NULL;
}

static bool can_capture(const struct vb_capture_config *config)
{
    struct vb_capture *capture;
    int error = vb_wrap_capture_open(config, &capture);

    if (error)
        vb_dropin_log(VB_LOG_ERRORS, "nothing is captured into %s: %s", config->path,
                      vb_wrap_capture_problem(error));
    else
        vb_wrap_capture_close(capture);
    return !error;
}

/* Packets and direct requests are captured through two handles of one file; one line is enough. */
static void say_not_written(int error)
{
    static atomic_flag was_said = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&was_said))
        vb_dropin_log(VB_LOG_ERRORS,
                      "packets are missing in the capture %s: %s. The program goes on without them",
                      vb_dropin_settings()->capture, vb_wrap_capture_problem(error));
}

/* ---- the log ---- */

static void adapter_log_refusals(void *argument, const char *line)
{
    (void)argument;
    vb_dropin_log(VB_LOG_DEBUG, "packets refused: %s", line);
}

static void log_overdue(const char *line)
{
    vb_dropin_log(VB_LOG_ERRORS, "%s", line);
}

static void log_counter(const char *part, const char *name, uint64_t value)
{
    vb_dropin_log(VB_LOG_COUNTERS, "counted: %s.%s %llu", part, name, (unsigned long long)value);
}

void vb_dropin_adapter_log_counters(struct vb_host *closing)
{
    if (closing && vb_dropin_settings()->log >= VB_LOG_COUNTERS)
        vb_host_tell_counters(closing, log_counter);
}

/* ---- opening ---- */

static struct vb_host_config adapter_config_of(const struct vb_port_settings *ports)
{
    const struct vb_settings *settings = vb_dropin_settings();
    bool is_infiniband = vb_port_ports_are_infiniband(ports);

    return (struct vb_host_config){
        .heap = vb_memory_process_heap(),
        .ports = ports,
        .copies = settings->copy,
        .roce = {.log = settings->log >= VB_LOG_DEBUG ? adapter_log_refusals : NULL,
                 .fault = settings->fault},
        .packets_only = settings->carrier == VB_CARRIER_ROCE && !is_infiniband,
        .direct_only = settings->carrier == VB_CARRIER_DIRECT || is_infiniband,
        .went_direct = complaint_when_direct(settings),
        .fabric = settings->fabric,
        .manages = settings->manages && ports->device == 0,
    };
}

/* After the host is open. */
static void log_from(struct vb_host *host)
{
    if (host->roce && vb_roce_wrap(host->roce)->capture)
        vb_wrap_capture_tell(vb_roce_wrap(host->roce)->capture, say_not_written);
    if (host->capture)
        vb_host_capture_direct_tell(host->capture, say_not_written);
    if (vb_dropin_settings()->explain)
        host->adapter.tell = log_overdue;
    if (host->roce_error)
        say_without_packets(host->roce_error);
}

int vb_dropin_adapter_open(const struct vb_port_settings *ports, vb_port_event *event,
                           void *argument, struct vb_host **host)
{
    const struct vb_settings *settings = vb_dropin_settings();
    const struct vb_capture_config capture = {.path = settings->capture,
                                              .bytes = settings->capture_bytes,
                                              .epoch = vb_wrap_capture_epoch_of_monotonic()};
    struct vb_host_config config = adapter_config_of(ports);
    int error;

    config.roce.event = config.fabric_event = event;
    config.roce.argument = config.fabric_argument = argument;
    if (settings->capture && can_capture(&capture)) {
        config.roce.capture = &capture;
        config.capture_direct = settings->capture_direct ? &capture : NULL;
    }
    if (!config.heap)
        vb_dropin_log(VB_LOG_INFO, "no shared memory for applications (%s): copies take longer",
                      strerror(errno));
    error = vb_host_open(&config, host);
    if (!error)
        log_from(*host);
    return error;
}
