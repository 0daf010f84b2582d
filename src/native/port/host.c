// SPDX-License-Identifier: Apache-2.0
#include "port/host.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hca/ah.h"
#include "port/capture_direct.h"
#include "port/direct/retry.h"

static struct vb_host *of(const struct vb_qp *qp)
{
    return vb_host_of(qp->context->adapter);
}

/* Does what goes to this address go direct? */
static bool is_direct(struct vb_host *host, const struct ibv_ah_attr *ah)
{
    if (host->packets_only)
        return false;
    return !host->roce || vb_direct_is_local(host->direct, ah);
}

/* Once for each listener. */
static VB_COLD void tell_direct(struct vb_host *host)
{
    void (*went_direct)(void) = atomic_load(&host->went_direct);

    if (went_direct && !atomic_flag_test_and_set(&host->told))
        went_direct();
}

void vb_host_tell_direct(struct vb_host *host, void (*went_direct)(void))
{
    if (atomic_exchange(&host->went_direct, went_direct) != went_direct)
        atomic_flag_clear(&host->told);
    if (atomic_load(&host->has_direct))
        tell_direct(host);
}

/* The RoCE port is told of each slot that the direct port has claimed. */
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

static int number(struct vb_adapter *adapter, uint32_t index, uint32_t *qp_num)
{
    int error = vb_direct_port.number(adapter, index, qp_num);

    return error ? error : share_slots(vb_host_of(adapter));
}

static int connect_qp(struct vb_qp *qp)
{
    struct vb_host *host = of(qp);

    if (host->capture)
        vb_capture_direct_connect(host->capture, qp);
    if (vb_qp_connected_type(qp->type) && !qp->by_packets && is_direct(host, &qp->attr.ah_attr)) {
        atomic_store(&host->has_direct, true);
        tell_direct(host);
        return vb_direct_port.connect(qp);
    }
    return host->roce ? vb_roce_connect(host->roce, qp) : 0;
}

static void disconnect(struct vb_qp *qp)
{
    struct vb_host *host = of(qp);

    vb_direct_port.disconnect(qp);
    if (host->roce)
        vb_roce_disconnect(host->roce, qp);
}

/*
 * To a group: by one packet to all other hosts, and directly to this one's, to which it does not
 * come back then (vb_roce_config.loop).
 */
static VB_COLD int execute_group(struct vb_qp *qp, const struct ibv_send_wr *wr,
                                 struct vb_outcome *outcome)
{
    struct vb_host *host = of(qp);

    outcome->status = IBV_WC_SUCCESS;
    if (host->roce)
        vb_roce_datagram(host->roce, qp, wr, outcome);
    if (host->packets_only || outcome->status != IBV_WC_SUCCESS)
        return 0;
    if (host->capture && !host->roce)
        return vb_capture_direct_execute(host->capture, qp, wr, outcome);
    return vb_direct_port.execute(qp, wr, outcome);
}

static const struct ibv_ah_attr *ah_of(const struct ibv_send_wr *wr)
{
    return &((const struct vb_ah *)wr->wr.ud.ah)->attr;
}

static bool to_group(const struct ibv_send_wr *wr)
{
    return vb_gid_is_multicast(ah_of(wr)->grh.dgid.raw);
}

static bool goes_direct(struct vb_host *host, struct vb_qp *qp, const struct ibv_send_wr *wr)
{
    if (VB_LIKELY(qp->type != IBV_QPT_UD))
        return true;
    if (!is_direct(host, ah_of(wr)))
        return false;
    if (VB_UNLIKELY(atomic_load_explicit(&host->went_direct, memory_order_relaxed)))
        tell_direct(host);
    return true;
}

/* Only those come here that are not carried by packets, and datagrams. */
static int execute(struct vb_qp *qp, const struct ibv_send_wr *wr, struct vb_outcome *outcome)
{
    struct vb_host *host = of(qp);

    if (VB_LIKELY(goes_direct(host, qp, wr)))
        return vb_direct_port.execute(qp, wr, outcome);
    if (VB_UNLIKELY(to_group(wr)))
        return execute_group(qp, wr, outcome);
    return vb_roce_datagram(host->roce, qp, wr, outcome);
}

/* In its place where what goes direct is captured. */
static int execute_captured(struct vb_qp *qp, const struct ibv_send_wr *wr,
                            struct vb_outcome *outcome)
{
    struct vb_host *host = of(qp);

    if (goes_direct(host, qp, wr))
        return vb_capture_direct_execute(host->capture, qp, wr, outcome);
    if (to_group(wr))
        return execute_group(qp, wr, outcome);
    return vb_roce_datagram(host->roce, qp, wr, outcome);
}

static bool has_packets(const struct vb_qp *qp)
{
    return qp->by_packets || qp->type == IBV_QPT_UD;
}

static void settle(struct vb_qp *qp)
{
    struct vb_host *host = of(qp);

    vb_direct_port.settle(qp);
    if (host->roce && has_packets(qp))
        vb_roce_settle(host->roce);
}

static bool quiet(struct vb_qp *qp)
{
    struct vb_host *host = of(qp);

    return vb_direct_port.quiet(qp) &&
           (!host->roce || !has_packets(qp) || vb_roce_quiet(host->roce));
}

static bool settle_peer(struct vb_qp *qp)
{
    return vb_direct_port.settle_peer(qp);
}

static void attend(struct vb_qp *qp)
{
    vb_direct_port.attend(qp);
}

static void progress(struct vb_cq *cq)
{
    struct vb_host *host = vb_host_of(cq->context->adapter);

    if (host->roce)
        vb_roce_progress(host->roce);
    vb_direct_port.progress(cq);
}

static void kick(struct vb_qp *qp)
{
    vb_roce_kick(of(qp)->roce, qp);
}

static void send_posted(struct vb_qp *qp)
{
    vb_roce_send_posted(of(qp)->roce, qp);
}

static int join(struct vb_qp *qp, const uint8_t group[16])
{
    struct vb_host *host = of(qp);

    vb_direct_port.join(qp, group);
    return host->roce ? vb_roce_join(host->roce, qp, group) : 0;
}

static void leave(struct vb_adapter *adapter, const uint8_t group[16])
{
    struct vb_host *host = vb_host_of(adapter);

    if (host->roce)
        vb_roce_leave_group(host->roce, group);
}

static void armed(struct vb_cq *cq)
{
    struct vb_host *host = vb_host_of(cq->context->adapter);

    if (host->roce)
        vb_roce_armed(host->roce);
}

static const struct vb_port port = {
    .number = number,
    .connect = connect_qp,
    .disconnect = disconnect,
    .execute = execute,
    .settle = settle,
    .quiet = quiet,
    .settle_peer = settle_peer,
    .attend = attend,
    .progress = progress,
    .kick = kick,
    .send_posted = send_posted,
    .join = join,
    .leave = leave,
    .armed = armed,
    .now = vb_direct_clock,
    .release_later = vb_later_release,
    .look = vb_retry_look,
};

static int open_roce(struct vb_host *host, const struct vb_host_config *config)
{
    struct vb_roce_config roce = config->roce;

    if (config->direct_only)
        return 0;
    roce.adapter = &host->direct->adapter;
    roce.addresses = host->direct->addresses;
    roce.loop = config->packets_only;
    host->roce_error = vb_roce_open(&roce, &host->roce);
    if (!host->roce_error)
        host->roce_error = share_slots(host);
    return config->packets_only ? host->roce_error : 0;
}

static int open_capture(struct vb_host *host, const struct vb_capture_config *config)
{
    if (!config)
        return 0;
    host->port.execute = execute_captured;
    return vb_capture_direct_open(config, &host->capture);
}

static int open_direct(struct vb_host *host, const struct vb_host_config *config)
{
    struct vb_direct_config direct = config->direct;

    direct.port = &host->port;
    direct.whole = host;
    return vb_direct_open(&direct, &host->direct);
}

int vb_host_open(const struct vb_host_config *config, struct vb_host **host)
{
    struct vb_host *made = calloc(1, sizeof(*made));
    int error;

    if (!made)
        return -ENOMEM;
    made->packets_only = config->packets_only;
    made->port = port;
    error = open_capture(made, config->capture_direct);
    atomic_init(&made->went_direct, config->went_direct);
    if (!error)
        error = open_direct(made, config);
    if (error) {
        vb_capture_direct_close(made->capture);
        free(made);
        return error;
    }
    error = open_roce(made, config);
    if (error)
        vb_host_close(made);
    else
        *host = made;
    return error;
}

enum { ROCE_JSON = 8192 }; /* about 80 counters, each with its name and 20 digits at most */

static const char *why_no_packets(const struct vb_host *host)
{
    switch (host->roce_error) {
    case 0:
        return host->direct->adapter.lid ? "VERBENA_LINK_LAYER=infiniband has none"
                                         : "VERBENA_PORT=direct asks for it";
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

void vb_host_close(struct vb_host *host)
{
    if (host->roce)
        vb_roce_close(host->roce);
    vb_direct_close(host->direct);
    vb_capture_direct_close(host->capture);
    free(host);
}

void vb_host_abandon(struct vb_host *host)
{
    if (host->roce)
        vb_roce_abandon(host->roce);
    vb_direct_abandon(host->direct);
    vb_capture_direct_close(host->capture);
    host->capture = NULL;
}
