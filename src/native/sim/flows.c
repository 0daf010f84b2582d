// SPDX-License-Identifier: Apache-2.0
/*
 * Flows: checks, start, requests and end. Each has a connection of its own, which is made when the
 * flow starts and destroyed when its last request has completed. The Python binding adds flows;
 * host.c calls this for events and completions.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim/host_inside.h"
#include "sim/state.h"
#include "sim/tcp.h"

enum { MESSAGE_MAX = 1 << 30, FIRST_FLOWS = 64 };

static const uint64_t BASE = 1 << 20; /* an address, for all requests */

/* ---- adding flows ---------------------------------------------------------------------------- */

static enum ibv_qp_type flows_type_of(const struct vb_sim_flow *flow)
{
    return flow->type ? flow->type : IBV_QPT_RC;
}

static uint64_t message_max(const struct vb_sim *sim, const struct vb_sim_flow *flow)
{
    return flows_type_of(flow) == IBV_QPT_UD ? sim->config.mtu : MESSAGE_MAX;
}

/* A packet with the route of the flow, where there is one. */
static struct vb_world_packet flow_like_packet(const struct vb_sim *sim,
                                               const struct vb_sim_flow *flow)
{
    return (struct vb_world_packet){.source = vb_sim_address(sim->host[flow->source], flow->path),
                                    .target = vb_sim_address(sim->host[flow->target], flow->path),
                                    .level_marks = (uint8_t)(flow->level << 4)};
}

/* Checks the routes in both directions. Those of groups are checked in Python (groups.py). */
static int check_routes(const struct vb_sim *sim, const struct vb_sim_flow *flow)
{
    uint32_t from = sim->host[flow->source]->nic.node;
    int error;

    if (flow->to_group)
        return 0;
    if (!vb_sim_same_link_layer(sim->host[flow->source], sim->host[flow->target]))
        return -EHOSTUNREACH;
    error = vb_world_reaches(sim->world, from, vb_sim_address(sim->host[flow->target], flow->path));
    return error ? error
                 : vb_world_reaches(sim->world, sim->host[flow->target]->nic.node,
                                    vb_sim_address(sim->host[flow->source], flow->path));
}

static int flows_reserve(struct vb_sim *sim, uint64_t count)
{
    uint64_t room = sim->flow_room ? sim->flow_room : FIRST_FLOWS;
    struct vb_sim_flow *grown;
    union vb_sim_ends *ends;

    if (sim->flows + count > INT32_MAX)
        return -ENOMEM;
    while (room < sim->flows + count)
        room *= 2;
    if (room == sim->flow_room)
        return 0;
    grown = realloc(sim->flow, room * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    sim->flow = grown;
    ends = realloc(sim->ends, room * sizeof(*ends));
    if (!ends)
        return -ENOMEM;
    memset(ends + sim->flow_room, 0, (room - sim->flow_room) * sizeof(*ends));
    sim->ends = ends;
    sim->flow_room = room;
    return 0;
}

static void flows_append(struct vb_sim *sim, const struct vb_sim_flow *given)
{
    struct vb_sim_flow *flow = &sim->flow[sim->flows];

    *flow = (struct vb_sim_flow){
        .source = given->source,
        .target = given->target,
        .bytes = given->bytes,
        .start = given->start,
        .finish = VB_WORLD_NEVER,
        .reserve = given->reserve,
        .buffer = given->buffer,
        .message = given->message ? given->message : message_max(sim, given),
        .level = given->level,
        .back_level = given->back_level,
        .depth = given->depth ? given->depth : 1,
        .opcode = given->opcode,
        .type = (uint8_t)flows_type_of(given),
        .to_group = given->to_group,
        .management = given->management,
        .path = given->path,
        .pkey = given->pkey,
        .successor = VB_WORLD_NONE,
    };
    if (flow->type != VB_SIM_FLOW_TCP) {
        flow->end[0].qp = vb_sim_qp_number(sim->host[flow->source]);
        flow->end[1].qp =
            flow->to_group ? VB_MULTICAST_QPN : vb_sim_qp_number(sim->host[flow->target]);
    }
    ++sim->flows;
}

int vb_sim_check_flows(const struct vb_sim *sim, const struct vb_sim_flow *flows, uint64_t count,
                       uint64_t *bad)
{
    for (*bad = 0; *bad < count; ++*bad) {
        int error = check_routes(sim, &flows[*bad]);

        if (error)
            return error;
    }
    return 0;
}

/* Schedules the start of flows without predecessors. */
static int flows_schedule(struct vb_sim *sim, uint64_t first)
{
    int error = 0;

    for (uint64_t i = first; i < sim->flows && !error; ++i) {
        const struct vb_sim_flow *flow = &sim->flow[i];
        struct vb_world_partition *part = sim->host[flow->source]->nic.part;

        if (!flow->waits)
            vb_world_call(part, flow->start, VB_SIM_CALL_START, (uint32_t)i);
        error = part->error;
    }
    return error;
}

/* The world cannot be divided if a flow has state that several hosts, or switches, change. */
static void flows_keep_undivided(struct vb_sim *sim, uint64_t first)
{
    bool is_whole = sim->world->is_undivided;

    for (uint64_t i = first; i < sim->flows && !is_whole; ++i)
        is_whole = sim->flow[i].type != IBV_QPT_RC || sim->flow[i].reserve || sim->flow[i].buffer;
    if (is_whole == sim->world->is_undivided)
        return;
    sim->world->is_undivided = true;
    sim->world->is_divided_anew = true;
}

int vb_sim_add_flows(struct vb_sim *sim, const struct vb_sim_flow *flows, uint64_t count,
                     const struct vb_sim_dependency *after, uint64_t afters)
{
    uint64_t first = sim->flows;

    if (flows_reserve(sim, count) || vb_sim_dependencies_reserve(sim, afters))
        return -ENOMEM;
    for (uint64_t i = 0; i < count; ++i)
        flows_append(sim, &flows[i]);
    vb_sim_dependencies_add(sim, after, afters, (uint32_t)first);
    flows_keep_undivided(sim, first);
    return flows_schedule(sim, first);
}

/* ---- running flows --------------------------------------------------------------------------- */

/* The last message of a flow with successors has immediate data, for a receive completion. */
static enum ibv_wr_opcode opcode_of(const struct vb_sim_flow *flow, bool last)
{
    if (!last || flow->successor == VB_WORLD_NONE)
        return flow->opcode;
    switch (flow->opcode) {
    case IBV_WR_SEND:
        return IBV_WR_SEND_WITH_IMM;
    case IBV_WR_RDMA_WRITE:
        return IBV_WR_RDMA_WRITE_WITH_IMM;
    default:
        return flow->opcode;
    }
}

/* Takes the flow's next message. */
static struct ibv_send_wr flows_next_request(const struct vb_sim_flow *flow, uint32_t number,
                                             struct vb_sim_qp *qp, struct ibv_sge *sge)
{
    uint64_t length = flow->message < qp->unposted ? flow->message : qp->unposted;
    bool last = length == qp->unposted;

    *sge = (struct ibv_sge){BASE, (uint32_t)length, VB_SIM_KEY};
    qp->unposted -= length;
    return (struct ibv_send_wr){.wr_id = number,
                                .sg_list = sge,
                                .num_sge = 1,
                                .opcode = opcode_of(flow, last),
                                .send_flags = IBV_SEND_SIGNALED,
                                .wr.rdma = {BASE, VB_SIM_KEY}};
}

static void flows_post(struct vb_sim *sim, uint32_t number, struct vb_sim_qp *qp)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = flows_next_request(&sim->flow[number], number, qp, &sge), *bad;

    if (vb_post_send(&qp->qp, &wr, &bad))
        vb_sim_qp_host(qp)->nic.part->error = -ENOMEM;
}

/* Posts as many messages as a list, whose doorbell is rung once. */
static void flows_post_list(struct vb_sim *sim, uint32_t number, struct vb_sim_qp *qp,
                            uint32_t count)
{
    struct ibv_send_wr wr[VB_SIM_FLOW_DEPTH_MAX], *bad;
    struct ibv_sge sge[VB_SIM_FLOW_DEPTH_MAX];
    uint32_t made = 0;

    for (; made < count && qp->unposted; ++made) {
        wr[made] = flows_next_request(&sim->flow[number], number, qp, &sge[made]);
        if (made)
            wr[made - 1].next = &wr[made];
    }
    if (made && vb_post_send(&qp->qp, wr, &bad))
        vb_sim_qp_host(qp)->nic.part->error = -ENOMEM;
}

/* Posts messages in the place of completed ones, in lists as long as the host's programs make. */
static void flows_post_owed(struct vb_sim *sim, uint32_t number, struct vb_sim_qp *qp)
{
    uint32_t batch = qp->nic.nic->inside->config.batch;
    uint32_t retired = atomic_load_explicit(&qp->qp.sq_retired, memory_order_relaxed);
    struct vb_inside_qp *own = qp->nic.inside;

    while (own->owed >= batch || (own->owed && qp->qp.sq_posted == retired)) {
        uint32_t count = own->owed < batch ? own->owed : batch;

        own->owed -= count;
        flows_post_list(sim, number, qp, count);
        if (!qp->unposted)
            own->owed = 0;
    }
}

static uint8_t marks_of(const struct vb_sim_flow *flow)
{
    return (uint8_t)((flow->to_group ? VB_WORLD_TO_GROUP : 0) |
                     (flow->management ? VB_WORLD_MANAGEMENT : 0));
}

/* The queue pair is end 0, the source, or end 1, the target, of that flow. */
static void flows_bind(struct vb_sim *sim, struct vb_sim_qp *qp, uint32_t number, uint32_t end)
{
    qp->flow = qp->nic.slot = number;
    qp->path = sim->flow[number].path & 127;
    qp->nic.generation = end;
    if (sim->flow[number].pkey)
        qp->shared.pkey = (uint16_t)(sim->flow[number].pkey | (end ? 0x8000 : 0));
    sim->ends[number].qp[end] = qp;
}

/* Makes the queue pair of the source. On -ENOMEM the caller destroys it, if there is one. */
static int flows_join(struct vb_sim *sim, uint32_t number, struct vb_sim_qp **source)
{
    const struct vb_sim_flow *flow = &sim->flow[number];
    uint32_t depth = flow->type == IBV_QPT_UD ? 0 : flow->depth;

    if (vb_sim_qp_create(sim->host[flow->source], flow->type, depth, flow->end[0].qp, source))
        return -ENOMEM;
    flows_bind(sim, *source, number, 0);
    (*source)->nic.marks = marks_of(flow) & 15;
    (*source)->unposted = flow->bytes;
    if (flow->to_group) {
        (*source)->shared.dest_qp_num = VB_MULTICAST_QPN;
        (*source)->nic.peer = flow->target;
        return 0;
    }
    if (flow->opcode == IBV_WR_RDMA_READ)
        (*source)->qp.terms.max_rd_atomic = sim->config.rd_atomic;
    return vb_sim_qp_connect(*source, sim->host[flow->target], flow->end[1].qp, flow->level);
}

/* The target has completions. */
static bool flows_receives(const struct vb_sim_flow *flow)
{
    return flow->opcode == IBV_WR_SEND || flow->successor != VB_WORLD_NONE;
}

void vb_sim_flow_open(struct vb_sim *sim, uint32_t number)
{
    const struct vb_sim_flow *flow = &sim->flow[number];
    struct vb_sim_host *host = sim->host[flow->target];
    struct vb_sim_qp *made;

    if (vb_sim_qp_create(host, flow->type, 0, flow->end[1].qp, &made)) {
        host->nic.part->error = -ENOMEM;
        return;
    }
    flows_bind(sim, made, number, 1);
    if (flow->opcode == IBV_WR_RDMA_READ)
        made->shared.max_dest_rd_atomic = sim->config.rd_atomic;
    if (flows_receives(flow)) {
        vb_sim_qp_receives(made);
        if (VB_UNLIKELY(made->nic.inside != NULL))
            vb_sim_inside_flow(host, number, true);
    }
    if (vb_sim_qp_connect(made, sim->host[flow->source], flow->end[0].qp, flow->back_level))
        host->nic.part->error = -ENOMEM;
    else if (flow->type != IBV_QPT_UD)
        vb_engine_attend(host->engine, &made->qp, vb_sim_ns(host));
}

void vb_sim_flow_close(struct vb_sim *sim, uint32_t number)
{
    struct vb_sim_qp *qp = sim->ends[number].qp[1];

    sim->ends[number].qp[1] = NULL;
    if (qp && VB_UNLIKELY(qp->nic.inside != NULL) && flows_receives(&sim->flow[number]))
        vb_sim_inside_flow(vb_sim_qp_host(qp), number, false);
    if (qp)
        vb_sim_qp_destroy(qp);
}

/* Has the target get its queue pair, before the first packet, which takes a link's delay. */
static void open_target(struct vb_sim *sim, uint32_t number)
{
    const struct vb_sim_flow *flow = &sim->flow[number];
    struct vb_world_partition *part = sim->host[flow->source]->nic.part;

    vb_world_tell(part, sim->host[flow->target]->nic.node, part->now + part->world->window,
                  VB_SIM_CALL_OPEN, number);
}

static struct vb_world_reservation reservation_of(const struct vb_sim_flow *flow)
{
    return (struct vb_world_reservation){.rate = flow->reserve, .buffer = flow->buffer};
}

/* False: the flow does not start. */
static bool reserve_route(struct vb_sim *sim, struct vb_sim_flow *flow, struct vb_sim_qp *qp)
{
    struct vb_world_packet like = flow_like_packet(sim, flow);
    struct vb_world_reservation reservation = reservation_of(flow);
    int error;

    vb_wire_put24(like.header + 5, qp->shared.dest_qp_num);
    error =
        vb_world_reserve(sim->world, vb_sim_qp_host(qp)->nic.node, &like, &reservation, &qp->route);
    qp->has_buffer = flow->buffer != 0;
    if (error == -ENOMEM)
        vb_sim_whole(sim)->error = error;
    else if (error) /* also if the routes have changed since the flow was added */
        vb_sim_flow_end(sim, flow, VB_FLOW_REFUSED);
    return !error;
}

void vb_sim_flow_start(struct vb_sim *sim, uint32_t number)
{
    struct vb_sim_flow *flow = &sim->flow[number];
    struct vb_sim_qp *source = NULL;

    if (VB_UNLIKELY(flow->type == VB_SIM_FLOW_TCP)) {
        vb_sim_tcp_start(sim, number);
        return;
    }
    if (flows_join(sim, number, &source)) {
        if (source)
            vb_sim_qp_destroy(source);
        sim->host[flow->source]->nic.part->error = -ENOMEM;
        return;
    }
    if (!flow->to_group)
        open_target(sim, number);
    if ((flow->reserve || flow->buffer) && !reserve_route(sim, flow, source))
        return;
    flow->state = VB_FLOW_RUNNING;
    if (VB_UNLIKELY(source->nic.inside != NULL))
        vb_sim_inside_flow(vb_sim_qp_host(source), number, true);
    if (flow->type == IBV_QPT_UD) {
        vb_sim_doorbell(source);
        return;
    }
    if (VB_UNLIKELY(source->nic.inside != NULL)) {
        source->nic.inside->owed = flow->depth;
        flows_post_owed(sim, number, source);
        return;
    }
    for (uint32_t i = 0; i < flow->depth && source->unposted; ++i)
        flows_post(sim, number, source);
}

/* The target keeps its queue pair for a window, whether it is in this partition or not. */
void vb_sim_flow_end(struct vb_sim *sim, struct vb_sim_flow *flow, enum vb_flow_state state)
{
    struct vb_sim_qp *qp = vb_sim_flow_qp(sim, flow);
    struct vb_world_partition *part = sim->host[flow->source]->nic.part;
    struct vb_world_reservation reservation = reservation_of(flow);
    uint32_t number = (uint32_t)(flow - sim->flow);

    if (VB_UNLIKELY(qp->nic.inside != NULL) && flow->state == VB_FLOW_RUNNING)
        vb_sim_inside_flow(vb_sim_qp_host(qp), number, false);
    flow->state = (uint8_t)state;
    if (flow->finish == VB_WORLD_NEVER && state != VB_FLOW_REFUSED) /* UC and UD have set it */
        flow->finish = part->now;
    if (state == VB_FLOW_DONE || state == VB_FLOW_INCOMPLETE)
        vb_sim_dependencies_release(sim, flow);
    part->moved_at = part->now;
    ++sim->host[flow->source]->share->flows_ended;
    if (qp->route)
        vb_world_release(sim->world, qp->route, &reservation);
    qp->route = NULL;
    if (!flow->to_group)
        vb_world_tell(part, sim->host[flow->target]->nic.node, part->now + part->world->window,
                      VB_SIM_CALL_CLOSE, number);
    sim->ends[number].qp[0] = NULL;
    vb_sim_qp_destroy(qp);
}

/* RC: bytes of the first incomplete message that are acknowledged, or of a READ have arrived. */
static uint64_t acknowledged(const struct vb_sim_qp *qp)
{
    const struct vb_endpoint *ep = qp->qp.endpoint;
    const struct vb_sq_wqe *first;

    if (!ep || (int32_t)(ep->requester.begun - qp->qp.sq_next) <= 0)
        return 0; /* the first request has no PSN yet, or all are complete */
    first = &qp->qp.sq[qp->qp.sq_next & qp->qp.sq_mask];
    return (uint64_t)vb_engine_psn_count(first->first_psn, ep->requester.una) * ep->path.mtu;
}

uint64_t vb_sim_flow_done(const struct vb_sim *sim, const struct vb_sim_flow *flow)
{
    uint64_t part;

    if (flow->state != VB_FLOW_RUNNING || flow->type != IBV_QPT_RC)
        return flow->done;
    part = acknowledged(vb_sim_flow_qp(sim, flow));
    return part < flow->bytes - flow->done ? flow->done + part : flow->bytes;
}

/* Handles a receive completion: the last message of a flow with successors has immediate data. */
static void received(struct vb_sim_host *host, const struct vb_cqe *entry)
{
    struct vb_qp *found = host->adapter.qps[entry->qp];
    struct vb_sim_qp *qp;

    if (!found)
        return;
    qp = vb_sim_qp_of(found);
    vb_sim_qp_received(qp, entry);
    if (VB_UNLIKELY(qp->nic.inside != NULL) && !entry->status)
        vb_sim_inside_completed(host, qp->flow,
                                entry->flags & IBV_WC_WITH_IMM ? VB_SIM_TAKEN_LAST
                                                               : VB_SIM_TAKEN_RECEIVED);
    else if (!entry->status && (entry->flags & IBV_WC_WITH_IMM))
        vb_sim_dependencies_release(host->sim, &host->sim->flow[qp->flow]);
}

/* Handles a send completion. A UC flow ends only when none of its packets is under way. */
static void proceed(struct vb_sim *sim, uint32_t number, struct vb_sim_qp *qp)
{
    struct vb_sim_flow *flow = &sim->flow[number];

    if (vb_sim_is_unreliable(qp)) {
        qp->sent = !qp->unposted && qp->qp.sq_next == qp->qp.sq_posted;
        vb_sim_unreliable_check_end(qp);
    } else {
        flow->done += flow->message;
        if (flow->done >= flow->bytes) {
            flow->done = flow->bytes;
            vb_sim_flow_end(sim, flow, VB_FLOW_DONE);
            return;
        }
    }
    if (!qp->unposted)
        return;
    if (VB_UNLIKELY(qp->nic.inside != NULL)) {
        ++qp->nic.inside->owed;
        flows_post_owed(sim, number, qp);
        return;
    }
    flows_post(sim, number, qp);
}

void vb_sim_flow_taken(struct vb_sim *sim, uint32_t number, uint32_t what)
{
    struct vb_sim_flow *flow = &sim->flow[number];
    struct vb_sim_qp *qp;

    if (what == VB_SIM_TAKEN_LAST) {
        vb_sim_dependencies_release(sim, flow);
        return;
    }
    qp = sim->ends[number].qp[0];
    if (flow->state != VB_FLOW_RUNNING || !qp)
        return; /* it has failed meanwhile */
    atomic_fetch_add_explicit(&qp->qp.sq_retired, 1, memory_order_relaxed);
    proceed(sim, number, qp);
}

static void flows_complete(struct vb_sim_host *host, const struct vb_cqe *entry)
{
    struct vb_sim *sim = host->sim;
    uint32_t number = (uint32_t)entry->wr_id;
    struct vb_sim_flow *flow;
    struct vb_sim_qp *qp;

    if (VB_UNLIKELY(entry->kind == VB_CQE_RECV)) {
        received(host, entry);
        return;
    }
    flow = &sim->flow[number];
    if (flow->state != VB_FLOW_RUNNING)
        return; /* flushed after the failure that ended it */
    if (entry->status) {
        flow->status = entry->status;
        vb_sim_flow_end(sim, flow, VB_FLOW_FAILED);
        return;
    }
    qp = vb_sim_flow_qp(sim, flow);
    if (VB_UNLIKELY(qp->nic.inside != NULL)) {
        vb_sim_inside_completed(host, number, VB_SIM_TAKEN_SENT);
        return;
    }
    atomic_store_explicit(&qp->qp.sq_retired, entry->wqe + 1, memory_order_relaxed);
    proceed(sim, number, qp);
}

void vb_sim_flows_complete(struct vb_sim_host *host)
{
    struct vb_sim_share *share = host->share;

    while (share->completions != share->cq_shared->tail) {
        struct vb_cqe entry = share->cq->ring[share->completions++ & share->cq->mask];

        atomic_store_explicit(&share->cq_shared->head, share->completions, memory_order_relaxed);
        flows_complete(host, &entry);
    }
    if (VB_UNLIKELY(atomic_load_explicit(&share->cq_shared->error, memory_order_relaxed)))
        share->part->error = -EOVERFLOW;
}

void vb_sim_flows_free(struct vb_sim *sim)
{
    for (uint32_t i = 0; i < sim->hosts; ++i)
        vb_sim_host_empty(sim->host[i]);
    for (uint32_t i = 0; i < sim->table.slots; ++i)
        if (sim->table.qp[i]) {
            vb_sim_nic_close(sim->table.qp[i]);
            free(sim->table.qp[i]); /* struct vb_sim_program_qp */
        }
    free(sim->flow);
    free(sim->ends);
    free(sim->successor);
}
