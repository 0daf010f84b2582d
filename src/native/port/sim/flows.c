// SPDX-License-Identifier: Apache-2.0
/* Flows: each a connection that carries its requests and is gone when they have ended. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "port/sim/state.h"

enum { MESSAGE_MAX = 1 << 30, FIRST_FLOWS = 64 };

static const uint64_t BASE = 1 << 20; /* an address, for all requests */

/* ---- taking them in -------------------------------------------------------------------------- */

static bool is_good(const struct vb_sim *sim, const struct vb_sim_flow *flow)
{
    return flow->source < sim->hosts && flow->target < sim->hosts && flow->source != flow->target &&
           flow->bytes && flow->start >= sim->world->now && flow->level < 16 &&
           flow->depth <= VB_SIM_FLOW_DEPTH_MAX && flow->message <= MESSAGE_MAX &&
           (flow->opcode == IBV_WR_RDMA_WRITE || flow->opcode == IBV_WR_RDMA_READ);
}

/* There, and back for the acknowledgements. */
static int check_way(const struct vb_sim *sim, const struct vb_sim_flow *flow)
{
    int error = vb_world_reaches(sim->world, sim->host[flow->source]->node, flow->target);

    return error ? error
                 : vb_world_reaches(sim->world, sim->host[flow->target]->node, flow->source);
}

static int reserve(struct vb_sim *sim, uint64_t count)
{
    uint64_t room = sim->flow_room ? sim->flow_room : FIRST_FLOWS;
    struct vb_sim_flow *grown;
    uint32_t *order;

    if (sim->flows + count > UINT32_MAX)
        return -ENOMEM;
    while (room < sim->flows + count)
        room *= 2;
    if (room == sim->flow_room)
        return 0;
    grown = realloc(sim->flow, room * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    sim->flow = grown;
    order = realloc(sim->order, room * sizeof(*order));
    if (!order)
        return -ENOMEM;
    sim->order = order;
    sim->flow_room = room;
    return 0;
}

static int by_start(const void *a, const void *b, void *context)
{
    const struct vb_sim_flow *flow = context;
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    if (flow[left].start != flow[right].start)
        return flow[left].start < flow[right].start ? -1 : 1;
    return left < right ? -1 : left > right;
}

/* Flows mostly come in the order of their start. */
static void sort(struct vb_sim *sim)
{
    for (uint64_t i = 1; i < sim->order_count; ++i)
        if (sim->flow[sim->order[i - 1]].start > sim->flow[sim->order[i]].start) {
            qsort_r(sim->order, sim->order_count, sizeof(*sim->order), by_start, sim->flow);
            return;
        }
}

/* One event for the next start, whichever flow's it is. */
static void plan(struct vb_sim *sim)
{
    uint64_t at;

    if (sim->order_next == sim->order_count)
        return;
    at = sim->flow[sim->order[sim->order_next]].start;
    if (sim->flows_at <= at)
        return;
    sim->flows_at = at;
    vb_world_call(sim->world, at, VB_SIM_CALL_FLOWS, 0);
}

static void take_in(struct vb_sim *sim, const struct vb_sim_flow *given)
{
    struct vb_sim_flow *flow = &sim->flow[sim->flows];

    *flow = (struct vb_sim_flow){
        .source = given->source,
        .target = given->target,
        .bytes = given->bytes,
        .start = given->start,
        .finish = VB_SIM_NEVER,
        .message = given->message ? given->message : MESSAGE_MAX,
        .level = given->level,
        .depth = given->depth ? given->depth : 1,
        .opcode = given->opcode,
    };
    sim->order[sim->order_count++] = (uint32_t)sim->flows++;
    ++sim->flows_left;
    sim->world->is_quiet = false;
}

int vb_sim_add_flows(struct vb_sim *sim, const struct vb_sim_flow *flows, uint64_t count,
                     uint64_t *bad)
{
    int error = 0;

    for (*bad = 0; *bad < count; ++*bad) {
        error = is_good(sim, &flows[*bad]) ? check_way(sim, &flows[*bad]) : -EINVAL;
        if (error)
            return error;
    }
    if (reserve(sim, count))
        return -ENOMEM;
    sim->order_count -= sim->order_next;
    memmove(sim->order, sim->order + sim->order_next, sim->order_count * sizeof(*sim->order));
    sim->order_next = 0;
    for (uint64_t i = 0; i < count; ++i)
        take_in(sim, &flows[i]);
    sort(sim);
    plan(sim);
    return sim->world->error;
}

/* ---- running them ---------------------------------------------------------------------------- */

static void post(struct vb_sim *sim, uint32_t number, struct vb_sim_qp *qp)
{
    const struct vb_sim_flow *flow = &sim->flow[number];
    uint64_t length = flow->message < qp->unposted ? flow->message : qp->unposted;
    struct ibv_sge sge = {BASE, (uint32_t)length, vb_sim_key()};
    struct ibv_send_wr wr = {.wr_id = number,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = flow->opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {BASE, vb_sim_key()}},
                       *bad;

    qp->unposted -= length;
    if (vb_post_send(&qp->qp, &wr, &bad))
        sim->world->error = -ENOMEM;
}

static void fail_to_start(struct vb_sim *sim, struct vb_sim_qp *source, struct vb_sim_qp *target)
{
    if (source)
        vb_sim_qp_destroy(source);
    if (target)
        vb_sim_qp_destroy(target);
    sim->world->error = -ENOMEM;
}

/* A place for each READ that the target is to answer, where there are any. */
static void allow_reads(struct vb_sim *sim, struct vb_sim_qp *source, struct vb_sim_qp *target)
{
    source->qp.attr.max_rd_atomic = sim->config.rd_atomic;
    target->shared.max_dest_rd_atomic = sim->config.rd_atomic;
}

/* -ENOMEM, with what was made in `*source` and `*target`. */
static int join(struct vb_sim *sim, const struct vb_sim_flow *flow, struct vb_sim_qp **source,
                struct vb_sim_qp **target)
{
    if (vb_sim_qp_create(sim->host[flow->source], flow->depth, source) ||
        vb_sim_qp_create(sim->host[flow->target], 0, target))
        return -ENOMEM;
    if (flow->opcode == IBV_WR_RDMA_READ)
        allow_reads(sim, *source, *target);
    if (vb_sim_qp_connect(*source, *target, flow->level) ||
        vb_sim_qp_connect(*target, *source, flow->level))
        return -ENOMEM;
    return 0;
}

static void start(struct vb_sim *sim, uint32_t number)
{
    struct vb_sim_flow *flow = &sim->flow[number];
    struct vb_sim_qp *source = NULL, *target = NULL;

    if (join(sim, flow, &source, &target)) {
        fail_to_start(sim, source, target);
        return;
    }
    source->flow = target->flow = number;
    source->unposted = flow->bytes;
    flow->slot = source->slot;
    flow->state = VB_FLOW_RUNNING;
    vb_engine_attend(target->host->engine, &target->qp, vb_sim_ns(sim));
    for (uint32_t i = 0; i < flow->depth && source->unposted; ++i)
        post(sim, number, source);
}

void vb_sim_flows_start(struct vb_sim *sim)
{
    if (sim->flows_at != sim->world->now)
        return; /* another one came before it */
    sim->flows_at = VB_SIM_NEVER;
    while (sim->order_next < sim->order_count && !sim->world->error) {
        uint32_t number = sim->order[sim->order_next];

        if (sim->flow[number].start > sim->world->now)
            break;
        ++sim->order_next;
        start(sim, number);
    }
    plan(sim);
}

static void end(struct vb_sim *sim, struct vb_sim_flow *flow, enum vb_flow_state state)
{
    struct vb_sim_qp *qp = sim->qp[flow->slot];

    flow->state = (uint8_t)state;
    flow->finish = sim->world->now;
    sim->world->is_quiet = --sim->flows_left == 0;
    vb_sim_qp_destroy(qp->other);
    vb_sim_qp_destroy(qp);
}

static void complete(struct vb_sim *sim, const struct vb_cqe *entry)
{
    uint32_t number = (uint32_t)entry->wr_id;
    struct vb_sim_flow *flow = &sim->flow[number];
    struct vb_sim_qp *qp;

    if (flow->state != VB_FLOW_RUNNING)
        return; /* flushed after the failure that ended it */
    if (entry->status) {
        flow->status = entry->status;
        end(sim, flow, VB_FLOW_FAILED);
        return;
    }
    qp = sim->qp[flow->slot];
    atomic_store_explicit(&qp->qp.sq_retired, entry->wqe + 1, memory_order_relaxed);
    flow->done += flow->message;
    if (flow->done >= flow->bytes) {
        flow->done = flow->bytes;
        end(sim, flow, VB_FLOW_DONE);
    } else if (qp->unposted) {
        post(sim, number, qp);
    }
}

void vb_sim_flows_complete(struct vb_sim *sim)
{
    while (sim->completions != sim->cq_shared->tail) {
        struct vb_cqe entry = sim->cq->ring[sim->completions++ & sim->cq->mask];

        atomic_store_explicit(&sim->cq_shared->head, sim->completions, memory_order_relaxed);
        complete(sim, &entry);
    }
    if (VB_UNLIKELY(atomic_load_explicit(&sim->cq_shared->error, memory_order_relaxed)))
        sim->world->error = -EOVERFLOW;
}

void vb_sim_flows_free(struct vb_sim *sim)
{
    for (uint32_t i = 0; i < sim->slots; ++i)
        if (sim->qp[i])
            vb_sim_qp_destroy(sim->qp[i]);
    free(sim->flow);
    free(sim->order);
}
