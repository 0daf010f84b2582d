// SPDX-License-Identifier: Apache-2.0
/*
 * UC and UD flows, as far as they differ from RC. Their packets are not acknowledged, so packets
 * under way are counted, and a flow ends when there is none. The packet engine makes one datagram
 * at a time (vb_engine_datagram); the UD queue pairs of a host are served round robin. host.c and
 * flows.c call this.
 */
#include <errno.h>

#include "sim/state.h"
#include "wire/opcode.h"

static const uint64_t BASE = 1 << 20; /* an address, for all datagrams */

void vb_sim_datagrams_add(struct vb_sim_qp *qp)
{
    if (qp->unposted)
        vb_sim_nic_queue_add(&vb_sim_qp_host(qp)->datagrams, &qp->nic);
}

/* False: the engine refuses it, which does not happen for a flow that was checked. */
static bool datagrams_make(struct vb_sim_qp *qp, uint32_t length)
{
    struct vb_sim_share *share = vb_sim_qp_host(qp)->share;
    struct ibv_sge sge = {BASE, length, VB_SIM_KEY};
    struct ibv_send_wr wr = {
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = IBV_WR_SEND,
        .wr.ud = {.remote_qpn = qp->shared.dest_qp_num, .remote_qkey = VB_SIM_QKEY}};
    struct vb_outcome outcome;

    share->path =
        (struct vb_path){.mtu = share->sim->config.mtu, .sl = share->sim->flow[qp->flow].level};
    vb_engine_datagram(&qp->qp, &wr, &share->path, &share->packet, &outcome);
    ++qp->qp.sq_next; /* the PSN of the next one */
    return outcome.status == IBV_WC_SUCCESS;
}

struct vb_sim_qp *vb_sim_datagrams_next(struct vb_sim_host *host)
{
    struct vb_sim *sim = host->sim;
    struct vb_sim_qp *qp;
    uint64_t message, length;

    if (!host->datagrams)
        return NULL;
    qp = vb_sim_qp_of_nic(host->datagrams->next);
    vb_sim_datagrams_remove(qp);
    message = sim->flow[qp->flow].message;
    length = message < qp->unposted ? message : qp->unposted;
    if (!datagrams_make(qp, (uint32_t)length)) {
        host->nic.part->error = -EINVAL;
        return NULL;
    }
    qp->unposted -= length;
    qp->sent = !qp->unposted;
    vb_sim_datagrams_add(qp);
    return qp;
}

/* ---- what is under way ----------------------------------------------------------------------- */

struct vb_sim_qp *vb_sim_unreliable_sender(const struct vb_sim *sim,
                                           const struct vb_world_packet *packet)
{
    struct vb_qp *found;
    uint32_t host;

    switch (packet->header[0] & VB_TRANSPORT_MASK) {
    case VB_TRANSPORT_UD:
        host = vb_world_host_of(sim->world, packet->source);
        found = vb_engine_find(sim->host[host]->engine,
                               vb_wire_deth_read(packet->header + VB_BTH).source_qp);
        return found ? vb_sim_qp_of(found) : NULL;
    case VB_TRANSPORT_UC:
        host = vb_world_host_of(sim->world, packet->target);
        found = vb_engine_find(sim->host[host]->engine, vb_wire_get24(packet->header + 5));
        return found ? sim->ends[vb_sim_qp_of(found)->flow].qp[0] : NULL;
    default:
        return NULL; /* a congestion notification */
    }
}

void vb_sim_unreliable_check_end(struct vb_sim_qp *qp)
{
    struct vb_world_partition *part = vb_sim_qp_host(qp)->nic.part;

    /* In an event of its own, since the caller may still use the queue pair. */
    if (qp->sent && !qp->in_flight)
        vb_world_call(part, part->now, VB_SIM_CALL_END, qp->flow);
}

/* Losses of multicast and flooded packets are computed at the flow's end: a lost copy may have been
 * for several members, or for none. */
static void datagrams_lose(struct vb_sim_flow *flow, const struct vb_world_packet *packet,
                           uint64_t bytes)
{
    if (!flow->to_group && !(packet->flags & VB_WORLD_FLOODED))
        flow->lost += bytes;
}

void vb_sim_unreliable_end(struct vb_sim_qp *qp)
{
    struct vb_sim *sim = vb_sim_qp_host(qp)->sim;
    struct vb_sim_flow *flow = &sim->flow[qp->flow];
    uint64_t all = flow->bytes;

    if (flow->to_group)
        all *= vb_sim_group_receivers(sim, flow->target, flow->source);
    flow->lost = all > flow->done ? all - flow->done : 0;
    vb_sim_flow_end(sim, flow, flow->lost ? VB_FLOW_INCOMPLETE : VB_FLOW_DONE);
}

void vb_sim_unreliable_arrived(struct vb_sim_host *host, const struct vb_world_packet *packet,
                               uint64_t accepted)
{
    struct vb_sim *sim = host->sim;
    struct vb_sim_qp *qp = vb_sim_unreliable_sender(sim, packet);
    struct vb_sim_flow *flow;

    if (!qp)
        return;
    flow = &sim->flow[qp->flow];
    flow->done += accepted;
    flow->finish = host->nic.part->now;
    datagrams_lose(flow, packet, packet->payload - accepted);
    --qp->in_flight;
    vb_sim_unreliable_check_end(qp);
}

void vb_sim_unreliable_copied(struct vb_sim *sim, const struct vb_world_packet *packet)
{
    struct vb_sim_qp *qp = vb_sim_unreliable_sender(sim, packet);

    if (qp)
        ++qp->in_flight;
}

void vb_sim_unreliable_dropped(struct vb_sim *sim, const struct vb_world_packet *packet)
{
    struct vb_sim_qp *qp = vb_sim_unreliable_sender(sim, packet);

    if (!qp)
        return;
    datagrams_lose(&sim->flow[qp->flow], packet, packet->payload);
    --qp->in_flight;
    vb_sim_unreliable_check_end(qp);
}
