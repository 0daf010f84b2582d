// SPDX-License-Identifier: Apache-2.0
/*
 * What each counter file of sysfs is the sum of (device_counters.h). A request that goes directly
 * counts as a packet that was sent and received, as both ends are on this device; READs, atomics
 * and FLUSHes count as two for their responses. Bytes are those of payloads.
 */
#include "host/device_counters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "direct/counters.h"
#include "direct/query.h"
#include "hca/counters.h"

enum { TERMS = 11 }; /* one more than the longest sum has: NULL ends each */

#define DIRECT_PACKETS                                                                             \
    "direct.sends", "direct.writes", "direct.datagrams", "direct.reads", "direct.reads",           \
        "direct.atomics", "direct.atomics", "direct.flushes", "direct.flushes"

#define DIRECT_PAYLOAD "direct.payload_sent", "direct.payload_read"

static const struct device_counter {
    const char *file;
    unsigned divisor; /* 4 where the unit is four bytes */
    const char *terms[TERMS];
} kernels[] = {
    {"counters/port_xmit_packets", 1, {"engine.packets_sent", DIRECT_PACKETS}},
    {"counters/port_rcv_packets", 1, {"engine.packets_received", DIRECT_PACKETS}},
    {"counters/unicast_xmit_packets", 1, {"engine.packets_sent", DIRECT_PACKETS}},
    {"counters/unicast_rcv_packets", 1, {"engine.packets_received", DIRECT_PACKETS}},
    {"counters/port_xmit_data", 4, {"engine.payload_sent", DIRECT_PAYLOAD}},
    {"counters/port_rcv_data", 4, {"engine.payload_received", DIRECT_PAYLOAD}},
    {"counters/port_rcv_errors",
     1,
     {"engine.drop_malformed", "udp.receive_bad_icrc", "udp.receive_bad_length"}},
    {"counters/multicast_rcv_packets", 1, {0}},
    {"counters/multicast_xmit_packets", 1, {0}},
    {"counters/VL15_dropped", 1, {0}},
    {"counters/excessive_buffer_overrun_errors", 1, {0}},
    {"counters/link_downed", 1, {0}},
    {"counters/link_error_recovery", 1, {0}},
    {"counters/local_link_integrity_errors", 1, {0}},
    {"counters/port_rcv_constraint_errors", 1, {"engine.drop_pkey"}},
    {"counters/port_rcv_remote_physical_errors", 1, {0}},
    {"counters/port_rcv_switch_relay_errors", 1, {0}},
    {"counters/port_xmit_constraint_errors", 1, {0}},
    {"counters/port_xmit_discards",
     1,
     {"udp.send_no_route", "udp.send_forbidden", "udp.send_too_long", "udp.send_fault",
      "udp.send_address", "udp.send_other_error"}},
    {"counters/port_xmit_wait", 1, {0}},
    {"counters/symbol_error", 1, {0}},
    {"hw_counters/sent_pkts", 1, {"engine.packets_sent"}},
    {"hw_counters/rcvd_pkts", 1, {"engine.packets_received"}},
    {"hw_counters/duplicate_request", 1, {"engine.duplicate_requests"}},
    {"hw_counters/out_of_seq_request", 1, {"engine.nak_sequence_sent", "engine.drop_after_nak"}},
    {"hw_counters/rcvd_rnr_err", 1, {"engine.nak_rnr_received"}},
    {"hw_counters/send_rnr_err", 1, {"engine.nak_rnr_sent"}},
    {"hw_counters/rcvd_seq_err", 1, {"engine.nak_sequence_received"}},
    {"hw_counters/ack_deferred", 1, {0}},
    {"hw_counters/retry_exceeded_err", 1, {"engine.retries_exhausted"}},
    {"hw_counters/retry_rnr_exceeded_err", 1, {"engine.rnr_retries_exhausted"}},
    {"hw_counters/completer_retry_err", 1, {"engine.timeouts", "engine.lost_responses"}},
    {"hw_counters/send_err", 1, {0}},
    {"hw_counters/link_downed", 1, {0}},
    {"hw_counters/rdma_sends", 1, {"direct.sends", "direct.datagrams"}},
    {"hw_counters/rdma_recvs", 1, {"direct.sends", "direct.datagrams"}},
};

enum { KERNELS = sizeof(kernels) / sizeof(*kernels) };

/* Verbena's own counters, behind the kernel's. */
static const char *own_name(size_t n, const char **part)
{
    *part = n < VB_DIRECT_COUNTER_COUNT ? "direct" : "engine";
    if (n < VB_DIRECT_COUNTER_COUNT)
        return vb_direct_counter_names[n];
    n -= VB_DIRECT_COUNTER_COUNT;
    return n < VB_COUNTER_COUNT ? vb_counter_names[n].name : NULL;
}

bool vb_host_device_counter_name(size_t n, char name[VB_DEVICE_COUNTER_NAME])
{
    const char *part, *own = n < KERNELS ? kernels[n].file : own_name(n - KERNELS, &part);

    if (!own)
        return false;
    if (n < KERNELS)
        snprintf(name, VB_DEVICE_COUNTER_NAME, "%s", own);
    else
        snprintf(name, VB_DEVICE_COUNTER_NAME, "hw_counters/%s_%s", part, own);
    return true;
}

/* Of a term as "engine.packets_sent"; 0 where the process's build has no such counter. */
static uint64_t term_in(const char *json, const char *term)
{
    const char *dot = strchr(term, '.'), *at;
    char quoted[VB_DEVICE_COUNTER_NAME];

    snprintf(quoted, sizeof(quoted), "\"%.*s\":{", (int)(dot - term), term);
    at = strstr(json, quoted);
    snprintf(quoted, sizeof(quoted), "\"%s\":", dot + 1);
    at = at ? strstr(at, quoted) : NULL;
    return at ? strtoull(at + strlen(quoted), NULL, 10) : 0;
}

struct summing {
    const struct device_counter *of;
    unsigned device;
    uint64_t sum;
};

static void add_answer(void *with, uint32_t device, const char *json)
{
    struct summing *summing = with;

    for (size_t i = 0; device == summing->device && i < TERMS && summing->of->terms[i]; ++i)
        summing->sum += term_in(json, summing->of->terms[i]);
}

uint64_t vb_host_device_counter(unsigned device, size_t n)
{
    char term[VB_DEVICE_COUNTER_NAME] = "";
    struct device_counter own = {.divisor = 1, .terms = {term}};
    struct summing summing = {.of = n < KERNELS ? &kernels[n] : &own, .device = device};
    const char *part, *name = n < KERNELS ? NULL : own_name(n - KERNELS, &part);

    if (name)
        snprintf(term, sizeof(term), "%s.%s", part, name);
    else if (n >= KERNELS)
        return 0;
    if (summing.of->terms[0])
        vb_direct_query_counters(add_answer, &summing);
    return summing.sum / summing.of->divisor;
}
