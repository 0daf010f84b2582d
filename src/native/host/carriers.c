// SPDX-License-Identifier: Apache-2.0
/* The choice of a carrier for each queue pair, and the table of carriers (carriers.h). */
#include "host/carriers.h"

#include "direct/connection.h"
#include "direct/requester.h"
#include "hca/ah.h"
#include "host/capture_direct.h"
#include "host/host.h"
#include "port/gid.h"

static struct vb_host *carriers_of(const struct vb_qp *qp)
{
    return vb_host_of(qp->context->adapter);
}

/* Does what the QP sends to this address go direct? An InfiniBand port sends no packets. */
static bool is_direct(struct vb_host *host, const struct vb_qp *qp, const struct ibv_ah_attr *ah)
{
    if (VB_UNLIKELY(vb_qp_port(qp)->infiniband))
        return !(ah->is_global && vb_wire_gid_is_multicast(ah->grh.dgid.raw)) || !host->roce;
    if (host->packets_only)
        return false;
    return !host->roce || vb_direct_is_local(host->direct, ah);
}

/* ---- who wants to know that something went direct ---- */

/* Once for each listener. */
static VB_COLD void tell_direct(struct vb_host *host)
{
    void (*went_direct)(void) = atomic_load(&host->went_direct);

    if (went_direct && !atomic_flag_test_and_set(&host->called))
        went_direct();
}

void vb_host_tell_direct(struct vb_host *host, void (*went_direct)(void))
{
    if (atomic_exchange(&host->went_direct, went_direct) != went_direct)
        atomic_flag_clear(&host->called);
    if (atomic_load(&host->has_direct))
        tell_direct(host);
}

/* ---- direct connections ---- */

/* Where what goes directly is captured. */
static int execute_captured(struct vb_qp *qp, const struct ibv_send_wr *wr,
                            struct vb_outcome *outcome)
{
    return vb_host_capture_direct_execute(carriers_of(qp)->capture, qp, wr, outcome);
}

static const struct vb_carrier captured = {
    .execute = execute_captured,
    .settle = vb_direct_settle,
    .quiet = vb_direct_quiet,
    .other_end = vb_direct_other_end,
    .settle_peer = vb_direct_settle_peer,
};

/* ---- packets ---- */

static void settle_packets(struct vb_qp *qp)
{
    struct vb_host *host = carriers_of(qp);

    vb_direct_settle(qp);
    if (host->roce)
        vb_roce_settle(host->roce);
}

static bool are_packets_quiet(struct vb_qp *qp)
{
    struct vb_host *host = carriers_of(qp);

    return vb_direct_quiet(qp) && (!host->roce || vb_roce_quiet(host->roce));
}

static void carriers_doorbell(struct vb_qp *qp)
{
    vb_roce_doorbell(carriers_of(qp)->roce, qp);
}

static int carriers_move(struct vb_qp *qp)
{
    return vb_roce_connect(carriers_of(qp)->roce, qp);
}

static void carriers_send_posted(struct vb_qp *qp)
{
    vb_roce_send_posted(carriers_of(qp)->roce, qp);
}

static const struct vb_carrier packets = {
    .doorbell = carriers_doorbell,
    .note = vb_engine_note,
    .is_loop = vb_engine_is_loop,
    .settle = settle_packets,
    .quiet = are_packets_quiet,
    .move = carriers_move,
    .send_posted = carriers_send_posted,
};

/* ---- datagrams: each goes as its address handle says ---- */

/* Both ways to a group: by one packet to all other hosts, and directly to this one's, to which that
 * does not come back then (vb_roce_config.loop). */
static VB_COLD int execute_group(struct vb_qp *qp, const struct ibv_send_wr *wr,
                                 struct vb_outcome *outcome)
{
    struct vb_host *host = carriers_of(qp);
    bool by_packets = host->roce && !vb_qp_port(qp)->infiniband;

    outcome->status = IBV_WC_SUCCESS;
    if (by_packets)
        vb_roce_datagram(host->roce, qp, wr, outcome);
    if ((by_packets && host->packets_only) || outcome->status != IBV_WC_SUCCESS)
        return 0;
    if (host->capture && !by_packets)
        return vb_host_capture_direct_execute(host->capture, qp, wr, outcome);
    return vb_direct_execute(qp, wr, outcome);
}

static int execute_datagram(struct vb_qp *qp, const struct ibv_send_wr *wr,
                            struct vb_outcome *outcome)
{
    const struct ibv_ah_attr *ah = &((const struct vb_ah *)wr->wr.ud.ah)->attr;
    struct vb_host *host = carriers_of(qp);

    if (is_direct(host, qp, ah)) {
        if (VB_UNLIKELY(atomic_load_explicit(&host->went_direct, memory_order_relaxed)))
            tell_direct(host);
        if (VB_UNLIKELY(host->capture))
            return vb_host_capture_direct_execute(host->capture, qp, wr, outcome);
        return vb_direct_execute(qp, wr, outcome);
    }
    if (VB_UNLIKELY(vb_wire_gid_is_multicast(ah->grh.dgid.raw)))
        return execute_group(qp, wr, outcome);
    return vb_roce_datagram(host->roce, qp, wr, outcome);
}

static const struct vb_carrier datagrams = {
    .execute = execute_datagram,
    .settle = settle_packets,
    .quiet = are_packets_quiet,
    .settle_peer = vb_direct_settle_peer,
};

/* ---- which one a QP has ---- */

static int connect_directly(struct vb_host *host, struct vb_qp *qp)
{
    int error;

    atomic_store(&host->has_direct, true);
    tell_direct(host);
    error = vb_direct_connect(qp);
    if (!error)
        vb_qp_set_carrier(qp, host->capture          ? &captured
                              : host->adapter.fabric ? &vb_direct_fabric_carrier
                                                     : &vb_direct_carrier);
    return error;
}

int vb_host_connect(struct vb_qp *qp)
{
    struct vb_host *host = carriers_of(qp);
    int error;

    if (host->capture)
        vb_host_capture_direct_connect(host->capture, qp);
    if (!vb_qp_connected_type(qp->type)) {
        vb_qp_set_carrier(qp, &datagrams);
        return 0;
    }
    if (is_direct(host, qp, &qp->verbs->attr.ah_attr))
        return connect_directly(host, qp);
    error = vb_roce_connect(host->roce, qp);
    if (!error)
        vb_qp_set_carrier(qp, &packets);
    return error;
}

void vb_host_disconnect(struct vb_qp *qp)
{
    struct vb_host *host = carriers_of(qp);

    vb_direct_disconnect(qp);
    if (host->roce)
        vb_roce_disconnect(host->roce, qp);
    vb_qp_set_carrier(qp, &vb_uncarried);
}
