// SPDX-License-Identifier: Apache-2.0
/*
 * The host's calls for its adapter (hca/host_calls.h), and its opening and closing: adapter,
 * ports, capture, the direct carrier, RoCE.
 */
#include "host/host.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "direct/later.h"
#include "direct/retry.h"
#include "direct/tally.h"
#include "hca/gone.h"
#include "hca/text.h"
#include "host/capture_direct.h"
#include "host/carriers.h"
#include "memory/heap.h"
#include "port/fabric.h"

/* The RoCE carrier gets each slot that the direct carrier has claimed. */
static int share_slots(struct vb_host *host)
{
    int error;

    while (host->roce && host->slots < atomic_load(&host->direct->slot_count)) {
        error = vb_roce_add_slot(host->roce, host->direct->slots[host->slots]);
        if (error)
            return error; /* asked for again with the next queue pair */
        ++host->slots;
    }
    return 0;
}

static int host_number(struct vb_adapter *adapter, uint32_t index, uint32_t *qp_num)
{
    struct vb_host *host = vb_host_of(adapter);
    int error = vb_direct_number(host->direct, index, qp_num);

    return error ? error : share_slots(host);
}

static void host_progress(struct vb_cq *cq)
{
    struct vb_host *host = vb_host_of(cq->context->adapter);

    if (host->roce)
        vb_roce_progress(host->roce);
    vb_direct_progress(cq);
}

static void host_take_arrived(struct vb_adapter *adapter)
{
    struct vb_host *host = vb_host_of(adapter);

    if (host->roce)
        vb_roce_take_arrived(host->roce);
}

static int host_join(struct vb_qp *qp, const uint8_t group[16])
{
    struct vb_host *host = vb_host_of(qp->context->adapter);

    vb_direct_peer_connect_all(host->direct); /* senders to the group look among the processes that
                                                 they are connected to */
    return host->roce ? vb_roce_join(host->roce, qp, group) : 0;
}

static void host_leave(struct vb_adapter *adapter, const uint8_t group[16])
{
    struct vb_host *host = vb_host_of(adapter);

    if (host->roce)
        vb_roce_leave_group(host->roce, group);
}

static void host_armed(struct vb_cq *cq)
{
    struct vb_host *host = vb_host_of(cq->context->adapter);

    if (host->roce)
        vb_roce_armed(host->roce);
}

static const struct vb_host_calls port = {
    .number = host_number,
    .connect = vb_host_connect,
    .disconnect = vb_host_disconnect,
    .attend = vb_direct_attend,
    .progress = host_progress,
    .take_arrived = host_take_arrived,
    .join = host_join,
    .leave = host_leave,
    .armed = host_armed,
    .now = vb_direct_clock,
    .release_later = vb_direct_later_release,
    .look = vb_direct_retry_look,
};

/* ---- the adapter ---- */

static int create_segment(struct vb_heap **segment)
{
    size_t size = vb_memory_heap_within_space(
        vb_memory_heap_is_checked() ? VB_SEGMENT_CHECKED : VB_SEGMENT_SIZE, VB_SEGMENT_PARTS);

    return size < VB_SEGMENT_LEAST ? -ENOMEM : vb_memory_heap_create(size, segment);
}

static bool mapping_changes(struct vb_watcher *watcher, uintptr_t at, size_t n,
                            enum vb_mapping change)
{
    struct vb_host *host = (struct vb_host *)((char *)watcher - offsetof(struct vb_host, watcher));

    return vb_gone_mapping(&host->adapter, at, n, change);
}

static int create_adapter(struct vb_host *host, struct vb_heap *heap, struct vb_heap *segment)
{
    uint64_t words[2]; /* the instance, and the seed of its keys */

    if (getrandom(words, sizeof(words), 0) != sizeof(words))
        return -EIO;
    return vb_adapter_create(segment, heap, &port, (uint32_t)words[0] | (VB_ARM_ANY + 1), words[1],
                             &host->adapter);
}

static int host_open_adapter(struct vb_host *host, const struct vb_host_config *config)
{
    struct vb_heap *segment;
    int error = create_segment(&segment);

    if (error)
        return error;
    error = create_adapter(host, config->heap, segment);
    if (error) {
        vb_memory_heap_destroy(segment);
        host->adapter.segment = NULL;
        return error;
    }
    host->adapter.self.header->watched = vb_memory_watch_is_on();
    host->watcher.changed = mapping_changes;
    vb_memory_watch_add(&host->watcher);
    return 0;
}

static void host_close_adapter(struct vb_host *host)
{
    struct vb_heap *segment = host->adapter.segment;

    vb_memory_watch_remove(&host->watcher);
    vb_adapter_destroy(&host->adapter);
    vb_memory_heap_destroy(segment);
}

enum { LARGEST_MTU = 4096 };

static int open_port(const struct vb_port_setting *setting, unsigned unit,
                     struct vb_adapter_port *port)
{
    struct vb_gid gid;

    port->infiniband = setting->infiniband;
    if (port->in_fabric)
        return vb_port_fabric_update(port);
    memcpy(port->pkeys, setting->pkeys, sizeof(port->pkeys));
    port->lid = setting->lid;
    port->lmc = setting->lmc;
    if (!port->infiniband)
        return vb_port_addresses_open(setting->netdev[0] ? setting->netdev : NULL, unit,
                                      &port->addresses);
    gid = vb_port_gid_infiniband(unit);
    return vb_port_addresses_fixed(&gid, 1, LARGEST_MTU, &port->addresses);
}

/* Peers read it as soon as they are connected, so it is written before. */
static void share_port(struct vb_adapter *adapter, const struct vb_port_setting *setting,
                       const struct vb_adapter_port *port)
{
    struct vb_port_shared *shared = &adapter->self.header->port[port->number - 1];

    shared->infiniband = port->infiniband;
    shared->identity = port->in_fabric ? port->in_fabric->identity : 0;
    shared->lid = port->lid;
    shared->lmc = port->lmc;
    memcpy(shared->netdev, setting->netdev, sizeof(shared->netdev));
}

static int open_fabric(struct vb_host *host, const struct vb_host_config *config)
{
    char sentence[VB_FABRIC_SENTENCE]; /* whoever asked for the fabric has had it */

    return config->fabric ? vb_port_fabric_open(&host->adapter.fabric, sentence) : 0;
}

static int open_ports(struct vb_adapter *adapter, const struct vb_host_config *config)
{
    struct vb_port_settings usual;
    const struct vb_port_settings *settings = config->ports ? config->ports : &usual;
    int error = 0;

    vb_port_ports_usual(&usual);
    adapter->self.header->device = settings->device;
    adapter->port_count = settings->count;
    for (uint32_t i = 0; adapter->fabric && i < adapter->fabric->port_count; ++i)
        adapter->ports[i].in_fabric = &adapter->fabric->ports[i];
    for (int i = 0; i < adapter->port_count && !error; ++i) {
        error = open_port(&settings->port[i], vb_port_unit(settings->device, i + 1u),
                          &adapter->ports[i]);
        share_port(adapter, &settings->port[i], &adapter->ports[i]);
    }
    return error;
}

static void close_ports(struct vb_adapter *adapter)
{
    for (int i = 0; i < adapter->port_count; ++i)
        if (adapter->ports[i].addresses)
            vb_port_addresses_close(adapter->ports[i].addresses);
}

/* ---- counters ---- */

/* Also called by the service thread, which runs while the RoCE carrier is opened and closed. */
static void host_count(struct vb_adapter *adapter, struct vb_text *text)
{
    struct vb_host *host = vb_host_of(adapter);

    vb_direct_counters_describe(adapter->direct, text);
    vb_text_add(text, ",");
    vb_lock_take(&host->counting);
    vb_roce_counters(host->roce, adapter, text);
    vb_lock_release(&host->counting);
}

static void set_roce(struct vb_host *host, struct vb_roce *roce)
{
    vb_lock_take(&host->counting);
    host->roce = roce;
    vb_lock_release(&host->counting);
}

/* ---- open and close, one after another ---- */

static int open_roce(struct vb_host *host, const struct vb_host_config *config)
{
    struct vb_roce_config roce = config->roce;
    struct vb_roce *opened;

    if (config->direct_only)
        return 0;
    roce.adapter = &host->adapter;
    roce.loop = config->packets_only;
    host->roce_error = vb_roce_open(&roce, &opened);
    if (!host->roce_error) {
        set_roce(host, opened);
        host->roce_error = share_slots(host);
    }
    return config->packets_only ? host->roce_error : 0;
}

static int open_direct(struct vb_host *host, const struct vb_host_config *config)
{
    const struct vb_direct_config direct = {.adapter = &host->adapter,
                                            .force = config->copies,
                                            .count = host_count,
                                            .event = config->fabric_event,
                                            .event_argument = config->fabric_argument,
                                            .manages = config->manages};

    return vb_direct_open(&direct, &host->direct);
}

static int open_capture(struct vb_host *host, const struct vb_host_config *config)
{
    return config->capture_direct
               ? vb_host_capture_direct_open(config->capture_direct, &host->capture)
               : 0;
}

/* What is open, in the reverse order. */
static void host_close_parts(struct vb_host *host)
{
    struct vb_roce *roce = host->roce;

    set_roce(host, NULL);
    if (roce)
        vb_roce_close(roce);
    if (host->direct)
        vb_direct_close(host->direct);
    vb_host_capture_direct_close(host->capture);
    close_ports(&host->adapter);
    if (host->adapter.fabric)
        vb_port_fabric_close(host->adapter.fabric);
    if (host->adapter.segment)
        host_close_adapter(host);
    vb_lock_destroy(&host->counting);
}

static int host_open_parts(struct vb_host *host, const struct vb_host_config *config)
{
    int error = host_open_adapter(host, config);

    if (!error)
        error = open_fabric(host, config);
    if (!error)
        error = open_ports(&host->adapter, config);
    if (!error)
        error = open_capture(host, config);
    if (!error)
        error = open_direct(host, config);
    if (!error)
        error = open_roce(host, config);
    return error;
}

int vb_host_open(const struct vb_host_config *config, struct vb_host **host)
{
    struct vb_host *made = calloc(1, sizeof(*made));
    int error;

    if (!made)
        return -ENOMEM;
    vb_lock_init(&made->counting, VB_RANK_COUNTING);
    made->packets_only = config->packets_only;
    atomic_init(&made->went_direct, config->went_direct);
    error = host_open_parts(made, config);
    if (!error) {
        *host = made;
        return 0;
    }
    host_close_parts(made);
    free(made);
    return error;
}

enum { ROCE_JSON = 8192 }; /* about 80 counters, each with its name and 20 digits at most */

static bool is_infiniband(const struct vb_adapter *adapter)
{
    for (int i = 0; i < adapter->port_count; ++i)
        if (!adapter->ports[i].infiniband)
            return false;
    return true;
}

static const char *why_no_packets(const struct vb_host *host)
{
    switch (host->roce_error) {
    case 0:
        return is_infiniband(&host->adapter)
                   ? "an InfiniBand port has none (VERBENA_LINK_LAYER, VERBENA_PORTS)"
                   : "VERBENA_CARRIER=direct asks for it";
    case -EADDRINUSE:
        return VB_ROCE_PORT_IS_TAKEN;
    default:
        return strerror(-host->roce_error);
    }
}

int vb_host_describe(struct vb_host *host, char *json, size_t size)
{
    char roce[ROCE_JSON], counters[ROCE_JSON - 100];

    if (host->roce && vb_roce_describe(host->roce, counters, sizeof(counters)) > 0)
        snprintf(roce, sizeof(roce), "\"roce\":{\"udp_port\":%d,\"local_peers\":%s,%s}",
                 VB_ROCE_PORT, host->packets_only ? "true" : "false", counters);
    else
        snprintf(roce, sizeof(roce), "\"roce\":{\"reason\":\"%s\"}", why_no_packets(host));
    return vb_direct_describe(host->direct, roce, json, size);
}

int vb_host_counters(struct vb_host *host, char *json, size_t size)
{
    struct vb_text text = {json, size, 0};

    vb_text_add(&text, "{");
    host_count(&host->adapter, &text);
    vb_text_add(&text, "}");
    return text.length;
}

void vb_host_tell_counters(struct vb_host *host, vb_tell_counter *tell)
{
    vb_direct_tell_counters(host->direct, tell);
    vb_roce_tell_counters(host->roce, &host->adapter, tell);
}

void vb_host_close(struct vb_host *host)
{
    host_close_parts(host);
    free(host);
}

void vb_host_abandon(struct vb_host *host)
{
    if (host->roce)
        vb_roce_abandon(host->roce);
    vb_direct_abandon(host->direct);
    for (int i = 0; i < host->adapter.port_count; ++i)
        vb_port_addresses_abandon(host->adapter.ports[i].addresses);
    if (host->adapter.fabric)
        vb_port_fabric_abandon(host->adapter.fabric);
    vb_host_capture_direct_close(host->capture);
    host->capture = NULL;
}
