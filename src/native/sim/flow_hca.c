// SPDX-License-Identifier: Apache-2.0
/*
 * Adapters and queue pairs of flows. They have no segment: the tables that peers of a real adapter
 * would map are common to all hosts, or are in the queue pair's memory. sim.c makes hosts here, and
 * flows.c and groups.c make queue pairs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hca/event.h"
#include "sim/inside.h"
#include "sim/state.h"

enum {
    COMPLETIONS = 1 << 14, /* room for the completions of one call of an engine */
    RECEIVES = 256,        /* of a queue pair: more than a flow's depth */
    FIRST_QPS = 8,
};

/* ---- common to all hosts --------------------------------------------------------------------- */

/* One memory region of all addresses, with all rights. */
static void open_memory(struct vb_sim *sim)
{
    struct vb_mr_shared *mr = &sim->mr[VB_SIM_KEY >> 8];

    mr->pd = sim->pd.number;
    mr->length = UINT64_MAX;
    mr->access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                 IBV_ACCESS_REMOTE_ATOMIC;
    atomic_store(&mr->key, VB_SIM_KEY);
    atomic_store(&sim->header->mr_mask, VB_SIM_KEY >> 8);
}

/* A receive request with room for any message. */
static void open_receive(struct vb_sim *sim)
{
    sim->receive->num_sge = 1;
    sim->receive->length = sim->receive->sge[0].length = UINT32_MAX;
    sim->receive->sge[0].addr = 0;
    sim->receive->sge[0].lkey = VB_SIM_KEY;
}

static void fill_adapter(const struct vb_sim_share *share, struct vb_adapter *adapter)
{
    struct vb_sim *sim = share->sim;

    adapter->self = (struct vb_view){.base = (uint8_t *)sim->receive, /* the ring's offset is 0 */
                                     .size = UINT64_MAX,
                                     .header = sim->header,
                                     .mr = sim->mr,
                                     .mr_last = VB_SIM_KEY >> 8,
                                     .evidence = share->evidence};
    adapter->instance = VB_ARM_ANY + 1;
    adapter->barriers = sim->barriers;
    adapter->calls = &vb_sim_port_calls;
    vb_adapter_open_locks(adapter);
}

static void fill_context(struct vb_context *context, struct vb_adapter *adapter)
{
    context->adapter = adapter;
    context->closing = true; /* there is no reader of events */
    context->async_fd = -1;
    vb_lock_init(&context->mutex, VB_RANK_CONTEXT);
    vb_lock_init(&context->declines.mutex, VB_RANK_DECLINES);
    pthread_cond_init(&context->acked, NULL);
}

static void *allocate_lines(size_t size)
{
    void *made = NULL;

    if (posix_memalign(&made, VB_LINE, size))
        return NULL;
    return memset(made, 0, size);
}

/* ---- common to the hosts of a partition ------------------------------------------------------ */

/* Their flows share a completion queue, which has an adapter of its own. */
static int make_cq(struct vb_sim_share *share)
{
    struct vb_cqe *ring = calloc(COMPLETIONS, sizeof(*ring));

    share->cq = allocate_lines(sizeof(*share->cq));
    share->cq_shared = allocate_lines(sizeof(*share->cq_shared));
    fill_adapter(share, &share->cq_adapter);
    fill_context(&share->cq_context, &share->cq_adapter);
    share->cq_adapter.self.base = (uint8_t *)ring; /* the ring's offset is 0 */
    if (!ring || !share->cq || !share->cq_shared)
        return -ENOMEM;
    share->cq->context = &share->cq_context;
    share->cq->shared = share->cq_shared;
    share->cq->ring = ring;
    share->cq->mask = share->cq_shared->mask = COMPLETIONS - 1;
    if (!share->sim->barriers)
        vb_biased_forbid(&share->cq_shared->lock, share->cq_adapter.instance);
    return 0;
}

static void empty_adapter(struct vb_adapter *adapter, struct vb_context *context)
{
    vb_event_drop_all(context);
    pthread_cond_destroy(&context->acked);
    vb_lock_destroy(&context->declines.mutex);
    vb_lock_destroy(&context->mutex);
    vb_adapter_close_locks(adapter);
}

static void share_destroy(struct vb_sim_share *share)
{
    if (share->cq_adapter.calls)
        empty_adapter(&share->cq_adapter, &share->cq_context);
    free(share->cq_adapter.self.base); /* the ring */
    free(share->cq);
    free(share->cq_shared);
    free(share->evidence);
    vb_sim_slab_close(&share->slab);
    free(share);
}

static int share_create(struct vb_sim *sim, struct vb_sim_share **share)
{
    struct vb_sim_share *made = calloc(1, sizeof(*made));
    int error = -ENOMEM;

    if (!made)
        return error;
    made->sim = sim;
    made->evidence = allocate_lines(VB_EVIDENCE_RECORDS * sizeof(*made->evidence));
    if (made->evidence)
        error = make_cq(made);
    if (error)
        share_destroy(made);
    else
        *share = made;
    return error;
}

/* Makes as many as there are partitions. */
static int make_shares(struct vb_sim *sim)
{
    uint32_t wanted = sim->world->partitions;
    struct vb_sim_share **grown = sim->share;
    int error = 0;

    if (wanted > sim->shares) {
        grown = realloc(sim->share, wanted * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        sim->share = grown;
    }
    while (sim->shares < wanted && !error) {
        error = share_create(sim, &grown[sim->shares]);
        sim->shares += !error;
    }
    for (uint32_t i = 0; i < wanted && !error; ++i)
        grown[i]->part = &sim->world->partition[i];
    return error;
}

/* A queue pair's completions go to the partition's queue. */
static void host_move(struct vb_sim_host *host)
{
    host->nic.part = vb_world_partition_of(host->sim->world, host->nic.node);
    host->share = host->sim->share[host->nic.part->number];
    host->adapter.self.evidence = host->share->evidence;
    for (uint32_t i = 0; i < host->adapter.qp_pool.limit; ++i)
        if (host->adapter.qps[i])
            host->adapter.qps[i]->send_cq = host->adapter.qps[i]->recv_cq = host->share->cq;
}

int vb_sim_divided(void *context)
{
    struct vb_sim *sim = context;
    int error = make_shares(sim);

    if (error)
        return error;
    for (uint32_t i = 0; i < sim->hosts; ++i)
        host_move(sim->host[i]);
    return 0;
}

/* ---- common to all hosts --------------------------------------------------------------------- */

int vb_sim_common_create(struct vb_sim *sim)
{
    sim->barriers = vb_barrier_register();
    sim->header = allocate_lines(sizeof(*sim->header));
    sim->mr = allocate_lines(((VB_SIM_KEY >> 8) + 1) * sizeof(*sim->mr));
    sim->receive = allocate_lines(sizeof(*sim->receive) + sizeof(sim->receive->sge[0]));
    if (!sim->header || !sim->mr || !sim->receive)
        return -ENOMEM;
    open_memory(sim);
    open_receive(sim);
    return make_shares(sim);
}

void vb_sim_common_destroy(struct vb_sim *sim)
{
    for (uint32_t i = 0; i < sim->shares; ++i)
        share_destroy(sim->share[i]);
    free(sim->share);
    free(sim->receive);
    free(sim->mr);
    free(sim->header);
    free(sim->table.qp);
    free(sim->table.free_slot);
}

/* ---- hosts ----------------------------------------------------------------------------------- */

int vb_sim_host_create(struct vb_sim *sim, struct vb_sim_host **host)
{
    struct vb_sim_host *made = calloc(1, sizeof(*made));
    struct vb_engine_config config = sim->config.engine;

    if (!made)
        return -ENOMEM;
    config.virtual_payload = true;
    made->sim = sim;
    made->timer_at = VB_WORLD_NEVER;
    made->share = sim->share[0];
    made->nic.part = sim->world->partition;
    made->late_first = made->held_first = VB_WORLD_NONE;
    made->nic.config = &sim->config.nic;
    made->flows.calls = &vb_sim_flow_calls;
    made->nic.user[0] = &made->flows;
    fill_adapter(made->share, &made->adapter);
    fill_context(&made->context, &made->adapter);
    if (vb_engine_create(&made->adapter, &config, &made->engine)) {
        empty_adapter(&made->adapter, &made->context);
        free(made);
        return -ENOMEM;
    }
    *host = made;
    return 0;
}

void vb_sim_host_empty(struct vb_sim_host *host)
{
    for (uint32_t i = 0; i < host->adapter.qp_pool.limit; ++i)
        if (host->adapter.qps[i]) {
            struct vb_sim_qp *qp = vb_sim_qp_of(host->adapter.qps[i]);

            free(qp->route);
            vb_sim_qp_destroy(qp);
        }
}

void vb_sim_host_destroy(struct vb_sim_host *host)
{
    vb_engine_destroy(host->engine);
    empty_adapter(&host->adapter, &host->context);
    vb_sim_groups_free(host);
    free(host->adapter.qps);
    free(host->log);
    free(host->own_config);
    vb_sim_inside_destroy(host->nic.inside);
    free(host);
}

/* ---- queue pairs ----------------------------------------------------------------------------- */

static int grow_table(struct vb_adapter *adapter, uint32_t index)
{
    uint32_t limit = adapter->qp_pool.limit ? adapter->qp_pool.limit : FIRST_QPS;
    struct vb_qp **grown;

    while (limit <= index)
        limit *= 2;
    if (limit > VB_MAX_QP)
        return -ENOMEM;
    if (limit == adapter->qp_pool.limit)
        return 0;
    grown = realloc(adapter->qps, limit * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    memset(grown + adapter->qp_pool.limit, 0, (limit - adapter->qp_pool.limit) * sizeof(*grown));
    adapter->qps = grown;
    adapter->qp_pool.limit = limit;
    return 0;
}

/*
 * Both halves of a number change with each queue pair. It has to be known before the queue pair is
 * made, since the flow's other end may be in another partition. A number is used again after all
 * others of the host. The first half, a slot of a real adapter, is neither 0 nor the last.
 */
uint32_t vb_sim_qp_number(struct vb_sim_host *host)
{
    uint32_t low, high;

    do {
        low = host->numbers % VB_QPS_PER_SLOT;
        high = (low + 1 + (host->numbers++ >> VB_SLOT_BITS)) % VB_SLOTS;
    } while (!high || high == VB_SLOTS - 1);
    return high << (24 - VB_SLOT_BITS) | low;
}

/* Puts the queue pair into the table, where vb_engine_find looks for its number. */
static int flow_hca_place(struct vb_sim_host *host, struct vb_qp *qp, uint32_t number)
{
    struct vb_adapter *adapter = &host->adapter;
    uint32_t index = number % VB_QPS_PER_SLOT;

    while (index < adapter->qp_pool.limit && adapter->qps[index])
        index += VB_QPS_PER_SLOT;
    if (grow_table(adapter, index))
        return -ENOMEM;
    qp->index = index;
    qp->number = number;
    adapter->qps[index] = qp;
    return 0;
}

/* The carrier of connected flows; datagrams have no send queue (datagrams.c). */
static const struct vb_carrier flow_carrier = {
    .doorbell = vb_sim_kick,
    .note = vb_engine_note,
    .settle = vb_settled_at_once,
    .quiet = vb_always_quiet,
};

static void fill_qp(struct vb_sim_qp *made, struct vb_sim_host *host, enum ibv_qp_type type)
{
    const struct vb_sim_config *config = &host->sim->config;
    struct vb_qp *qp = &made->qp;

    qp->context = &host->context;
    qp->pd = &host->sim->pd;
    qp->send_cq = qp->recv_cq = host->share->cq;
    qp->shared = &made->shared;
    qp->type = (uint8_t)type;
    qp->carrier = vb_qp_connected_type(type) ? &flow_carrier : &vb_uncarried;
    qp->terms.timeout = config->timeout;
    qp->terms.retry_cnt = config->retry_cnt;
    qp->terms.rnr_retry = 7;
    made->shared.type = (uint8_t)type;
    made->shared.qkey = VB_SIM_QKEY;
    made->shared.pkey = VB_PKEY_DEFAULT;
    made->shared.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    made->shared.established = 1; /* so that COMM_EST is not raised */
    atomic_store(&made->shared.state, IBV_QPS_RTS);
    if (!host->adapter.barriers)
        vb_biased_forbid(&made->shared.sq_lock, host->adapter.instance);
}

/* The offsets of a queue pair's parts in its memory, and the number of bytes. */
struct parts {
    size_t endpoint, queue, reaction, inside, bytes;
};

static bool has_reaction(const struct vb_sim_host *host)
{
    return host->nic.config->congestion.kind != VB_CONGESTION_NONE;
}

static struct parts parts_of(enum ibv_qp_type type, uint32_t depth, bool reaction, bool inside)
{
    struct parts parts = {.endpoint = sizeof(struct vb_sim_qp)};

    parts.queue = parts.endpoint + (vb_qp_connected_type(type) ? sizeof(struct vb_endpoint) : 0);
    parts.reaction = parts.queue + depth * (sizeof(struct vb_sq_wqe) + sizeof(struct ibv_sge));
    parts.inside = parts.reaction + (reaction ? sizeof(struct vb_nic_reaction) : 0);
    parts.bytes = parts.inside + (inside ? sizeof(struct vb_inside_qp) : 0);
    return parts;
}

uint64_t vb_sim_qp_bytes(void)
{
    return parts_of(IBV_QPT_RC, 1, true, false).bytes;
}

/* Sets up the send queue, with one scatter/gather element for each request. */
static void place_send_queue(struct vb_qp *qp, uint32_t depth, void *room)
{
    struct ibv_sge *sge = (struct ibv_sge *)((struct vb_sq_wqe *)room + depth);

    qp->cap.max_send_wr = depth;
    qp->cap.max_send_sge = 1;
    qp->sq_mask = depth - 1;
    qp->sq = room;
    for (uint32_t i = 0; i < depth; ++i)
        qp->sq[i].sge = &sge[i];
}

static void flow_hca_free_qp(struct vb_sim_qp *qp)
{
    const struct vb_sim_host *host = vb_sim_qp_host(qp);

    vb_sim_slab_give(
        &host->share->slab, qp,
        parts_of(qp->qp.type, qp->qp.cap.max_send_wr, has_reaction(host), host->nic.inside != NULL)
            .bytes);
}

int vb_sim_qp_create(struct vb_sim_host *host, enum ibv_qp_type type, uint32_t depth,
                     uint32_t number, struct vb_sim_qp **qp)
{
    uint32_t places = depth ? vb_round_up_pow2(depth) : 0;
    struct parts parts = parts_of(type, places, has_reaction(host), host->nic.inside != NULL);
    uint8_t *room = vb_sim_slab_take(&host->share->slab, parts.bytes);
    struct vb_sim_qp *made = (struct vb_sim_qp *)room;

    if (!made)
        return -ENOMEM;
    fill_qp(made, host, type);
    if (places)
        place_send_queue(&made->qp, places, room + parts.queue);
    made->nic.nic = &host->nic;
    made->nic.reaction_at = has_reaction(host) ? (uint16_t)parts.reaction : 0;
    if (host->nic.inside)
        made->nic.inside = (struct vb_inside_qp *)(room + parts.inside);
    if (vb_sim_nic_open(&made->nic, type == IBV_QPT_RC)) {
        flow_hca_free_qp(made);
        return -ENOMEM;
    }
    if (flow_hca_place(host, &made->qp, number)) {
        vb_sim_nic_close(&made->nic);
        flow_hca_free_qp(made);
        return -ENOMEM;
    }
    made->shared.qp_num = made->qp.number;
    *qp = made;
    return 0;
}

/* The endpoint follows the struct (parts_of). */
static struct vb_endpoint *endpoint_room(struct vb_sim_qp *qp)
{
    return (struct vb_endpoint *)(qp + 1);
}

int vb_sim_qp_connect(struct vb_sim_qp *qp, const struct vb_sim_host *other, uint32_t number,
                      uint8_t level)
{
    struct vb_path path = {
        .mtu = vb_sim_qp_host(qp)->sim->config.mtu, .hop_limit = 64, .sl = level};

    vb_sim_write_gid(path.sgid, vb_sim_qp_host(qp)->nic.number);
    vb_sim_write_gid(path.dgid, other->nic.number);
    qp->shared.dest_qp_num = number;
    qp->nic.peer = vb_sim_address(other, qp->path);
    if (!vb_qp_connected_type(qp->qp.type))
        return 0;
    return vb_engine_connect_in(vb_sim_qp_host(qp)->engine, &qp->qp, &path, endpoint_room(qp));
}

void vb_sim_qp_receives(struct vb_sim_qp *qp)
{
    qp->qp.cap.max_recv_wr = RECEIVES; /* all positions of the ring are the same request */
    qp->qp.cap.max_recv_sge = 1;
    qp->qp.rq_posted = RECEIVES;
    atomic_store(&qp->shared.rq_posted, RECEIVES);
}

void vb_sim_qp_received(struct vb_sim_qp *qp, const struct vb_cqe *entry)
{
    if (entry->status)
        return;
    atomic_store_explicit(&qp->shared.rq_polled, entry->wqe + 1, memory_order_relaxed);
    atomic_store_explicit(&qp->shared.rq_posted, ++qp->qp.rq_posted, memory_order_relaxed);
}

void vb_sim_qp_destroy(struct vb_sim_qp *qp)
{
    struct vb_sim_host *host = vb_sim_qp_host(qp);

    vb_sim_datagrams_remove(qp);
    vb_engine_disconnect(host->engine, &qp->qp);
    host->adapter.qps[qp->qp.index] = NULL;
    vb_sim_nic_close(&qp->nic);
    flow_hca_free_qp(qp);
}

/* ---- the port's calls ------------------------------------------------------------------------ */

static void flow_hca_nothing(struct vb_qp *qp)
{
    (void)qp;
}

static void no_progress(struct vb_cq *cq)
{
    (void)cq;
}

/* Queue pairs are made in RTS (vb_sim_qp_create), so no verb connects them. */
static int refuse_connect(struct vb_qp *qp)
{
    (void)qp;
    return -EOPNOTSUPP;
}

static int refuse_number(struct vb_adapter *adapter, uint32_t index, uint32_t *qp_num)
{
    (void)adapter;
    (void)index;
    (void)qp_num;
    return -EOPNOTSUPP;
}

const struct vb_host_calls vb_sim_port_calls = {
    .number = refuse_number,
    .connect = refuse_connect,
    .disconnect = flow_hca_nothing,
    .attend = flow_hca_nothing,
    .progress = no_progress,
};
