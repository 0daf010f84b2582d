// SPDX-License-Identifier: Apache-2.0
#include "subject.h"

#include "check.h"
#include "memory/heap.h"
#include "transport/transport.h"

enum {
    SCRATCH = 8 << 20,
    DEPTH = 256,
    EVERY_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
        IBV_ACCESS_REMOTE_ATOMIC,
};

static const size_t SEGMENT_SIZE = 4ull << 30;

/* ---- the port ------------------------------------------------------------------------------ */

static struct subject *subject_of(const struct vb_adapter *adapter)
{
    return (struct subject *)((char *)(uintptr_t)adapter - offsetof(struct subject, adapter));
}

static int connection_of(const struct subject *subject, uint32_t qp_num)
{
    for (int i = 0; i < subject->captured->connection_count; ++i)
        if (subject->captured->connections[i].qp_num[subject->side] == qp_num)
            return i;
    CHECK(!"such a queue pair");
    return -1;
}

static struct vb_path path_of(const struct subject *subject, uint32_t qp_num)
{
    const struct connection *connection =
        &subject->captured->connections[connection_of(subject, qp_num)];
    struct vb_path path = {
        .mtu = (uint16_t)connection->mtu, .source_port = connection->source_port, .hop_limit = 64};

    memcpy(path.sgid, connection->gid[subject->side], 16);
    memcpy(path.dgid, connection->gid[!subject->side], 16);
    return path;
}

static void keep(struct subject *subject, const struct vb_packet *packet)
{
    struct sent *sent;

    if (subject->sent_count == subject->sent_room) {
        subject->sent_room = subject->sent_room ? subject->sent_room * 2 : 64;
        subject->sent = realloc(subject->sent, subject->sent_room * sizeof(*sent));
        CHECK(subject->sent);
    }
    sent = &subject->sent[subject->sent_count++];
    sent->connection = connection_of(subject, packet->qp_num);
    sent->flags = vb_opcodes[packet->header[0]].flags;
    sent->length = packet->header_length;
    memcpy(sent->bytes, packet->header, packet->header_length);
    for (uint32_t i = 0; i < packet->piece_count; ++i) {
        CHECK(sent->length + packet->piece[i].length + packet->pad <= SUBJECT_BYTES_MAX);
        memcpy(sent->bytes + sent->length, packet->piece[i].bytes, packet->piece[i].length);
        sent->length += packet->piece[i].length;
    }
    memset(sent->bytes + sent->length, 0, packet->pad);
    sent->length += packet->pad;
}

/* The QP's place in the table is its number: the test says which comes next. */
static int port_number(struct vb_adapter *adapter, uint32_t index, uint32_t *qp_num)
{
    (void)adapter;
    *qp_num = index;
    return 0;
}

static int carrier_execute(struct vb_qp *qp, const struct ibv_send_wr *wr,
                           struct vb_outcome *outcome)
{
    struct subject *subject = subject_of(qp->context->adapter);
    struct vb_path path = path_of(subject, qp->number);
    struct vb_packet packet;

    CHECK_EQ(vb_engine_datagram(qp, wr, &path, &packet, outcome), 0);
    CHECK(packet.header_length);
    keep(subject, &packet);
    return 0;
}

static void carrier_kick(struct vb_qp *qp)
{
    struct subject *subject = subject_of(qp->context->adapter);

    vb_engine_attend(subject->engine, qp, subject->now);
}

static int carry(struct vb_qp *qp)
{
    struct subject *subject = subject_of(qp->context->adapter);
    struct vb_path path = path_of(subject, qp->number);

    return vb_engine_connect(subject->engine, qp, &path);
}

static void forget(struct vb_qp *qp)
{
    vb_engine_disconnect(subject_of(qp->context->adapter)->engine, qp);
}

static const struct hand_calls calls = {
    .number = port_number,
    .execute = carrier_execute,
    .doorbell = carrier_kick,
    .settle = vb_settled_at_once,
    .carry = carry,
    .forget = forget,
};

void subject_drain(struct subject *subject)
{
    struct vb_packet packet;

    while (vb_engine_next(subject->engine, &packet, subject->now))
        keep(subject, &packet);
    if (vb_engine_deadline(subject->engine) == 0) /* UC: what has left is done */
        vb_engine_expire(subject->engine, subject->now);
}

void subject_arrival(struct subject *subject, const struct recorded *packet)
{
    const struct connection *connection = &subject->captured->connections[packet->connection];
    uint8_t *exact = malloc(packet->length);
    struct vb_arrival arrival = {.bytes = exact, .length = packet->length, .hop_limit = 64};

    CHECK(exact);
    memcpy(exact, packet->bytes, packet->length);
    memcpy(arrival.sgid, connection->gid[packet->from], 16);
    memcpy(arrival.dgid, connection->gid[!packet->from], 16);
    subject->now += 1000;
    vb_engine_receive(subject->engine, &arrival, subject->now);
    free(exact);
    subject_drain(subject);
}

/* ---- memory -------------------------------------------------------------------------------- */

uint8_t *subject_scratch(struct subject *subject, uint32_t length)
{
    uint8_t *at = subject->scratch + subject->scratch_used;

    subject->scratch_used += (length + 63) & ~63u;
    CHECK(subject->scratch_used <= SCRATCH);
    return at;
}

struct region *subject_region(struct subject *subject, uint32_t key, uint64_t addr, uint32_t length)
{
    for (int i = 0; i < subject->region_count; ++i) {
        struct region *region = &subject->regions[i];

        if (region->key == key && addr >= region->low && addr + length <= region->high)
            return region;
    }
    return NULL;
}

static void note_range(struct subject *subject, uint32_t key, uint64_t low, uint64_t high)
{
    struct region *region = subject->regions;

    while (region != subject->regions + subject->region_count && region->key != key)
        ++region;
    if (region == subject->regions + subject->region_count) {
        CHECK(++subject->region_count <= SUBJECT_REGIONS);
        *region = (struct region){.key = key, .low = low, .high = high};
    }
    region->low = low < region->low ? low : region->low;
    region->high = high > region->high ? high : region->high;
}

/* As a registration would do it, but with the capture's key. */
static void place(struct subject *subject, struct region *region)
{
    struct vb_mr_shared *entry = vb_mr_entry(&subject->adapter.self, region->key);
    uint64_t length = region->high - region->low;

    region->memory = calloc(1, length);
    region->known = calloc(1, length);
    CHECK(region->memory && region->known && entry->key == 0);
    entry->pd = subject->pd->number;
    entry->iova = region->low;
    entry->length = length;
    entry->addr = (uintptr_t)region->memory;
    entry->access = EVERY_ACCESS;
    atomic_store(&entry->key, region->key);
}

/* Everything that the other side reaches for. */
static void place_regions(struct subject *subject)
{
    for (uint32_t i = 0; i < subject->captured->count; ++i) {
        const struct recorded *packet = &subject->captured->packets[i];
        const struct vb_reth *reth = &packet->fields.reth;
        const struct vb_atomiceth *atomic = &packet->fields.atomic;

        if (packet->from == subject->side)
            continue;
        if ((packet->flags & VB_OPCODE_RETH) && reth->length)
            note_range(subject, reth->rkey, reth->addr, reth->addr + reth->length);
        if (packet->flags & VB_OPCODE_ATOMICETH)
            note_range(subject, atomic->rkey, atomic->addr, atomic->addr + 8);
    }
    for (int i = 0; i < subject->region_count; ++i)
        place(subject, &subject->regions[i]);
}

/* ---- queue pairs --------------------------------------------------------------------------- */

static enum ibv_qp_type type_of(const struct connection *connection)
{
    switch (connection->transport) {
    case VB_TRANSPORT_RC:
        return IBV_QPT_RC;
    case VB_TRANSPORT_UC:
        return IBV_QPT_UC;
    default:
        CHECK_EQ(connection->transport, VB_TRANSPORT_UD);
        return IBV_QPT_UD;
    }
}

static void modify(struct vb_qp *qp, struct ibv_qp_attr *attr, enum ibv_qp_state state, int mask)
{
    attr->qp_state = state;
    CHECK_EQ(vb_qp_modify(qp, attr, IBV_QP_STATE | mask), 0);
}

static void bring_up(struct subject *subject, const struct connection *connection, struct vb_qp *qp)
{
    enum ibv_qp_type type = type_of(connection);
    struct ibv_qp_attr attr = {
        .port_num = 1,
        .qp_access_flags = EVERY_ACCESS,
        .qkey = 0x11111111, /* what the programs take */
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = connection->qp_num[!subject->side],
        .rq_psn = connection->first_psn[!subject->side],
        .sq_psn = connection->first_psn[subject->side],
        .max_dest_rd_atomic = 16,
        .max_rd_atomic = 16,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .ah_attr = {.is_global = 1, .port_num = 1},
    };
    int rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, rts = IBV_QP_SQ_PSN;

    if (type == IBV_QPT_UD)
        rtr = 0;
    if (type == IBV_QPT_RC) {
        rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    modify(qp, &attr, IBV_QPS_INIT,
           IBV_QP_PKEY_INDEX | IBV_QP_PORT |
               (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
    modify(qp, &attr, IBV_QPS_RTR, rtr);
    modify(qp, &attr, IBV_QPS_RTS, rts);
    if (type == IBV_QPT_RC)
        qp->endpoint->requester.unlimited = true; /* as if the peer had said so: a choice */
}

static void add_qp(struct subject *subject, int n, bool with_srq)
{
    const struct connection *connection = &subject->captured->connections[n];
    struct ibv_qp_init_attr_ex init = {
        .qp_type = type_of(connection),
        .pd = &subject->pd->ibv,
        .send_cq = &subject->send_cq->ibv,
        .recv_cq = &subject->recv_cq->ibv,
        .srq = with_srq ? &subject->srq->ibv : NULL,
        .cap = {DEPTH, DEPTH, 1, 2, 64},
    };
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1};

    CHECK(connection->qp_num[0] && connection->qp_num[1]);
    subject->adapter.qp_pool.next = connection->qp_num[subject->side];
    CHECK_EQ(vb_qp_create(subject->context, &init, &subject->qp[n]), 0);
    CHECK_EQ(subject->qp[n]->number, connection->qp_num[subject->side]);
    bring_up(subject, connection, subject->qp[n]);
    memcpy(to.grh.dgid.raw, connection->gid[!subject->side], 16);
    CHECK_EQ(vb_ah_create(subject->pd, &to, &subject->ah[n]), 0);
}

void subject_open(struct subject *subject, const struct captured *captured, int side, bool with_srq)
{
    struct vb_engine_config config = {0};
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = DEPTH, .max_sge = 2}};

    memset(subject, 0, sizeof(*subject));
    subject->captured = captured;
    subject->side = side;
    CHECK_EQ(vb_memory_heap_create(SEGMENT_SIZE, &subject->segment), 0);
    hand_port_make(&subject->port, &calls);
    CHECK_EQ(
        vb_adapter_create(subject->segment, NULL, &subject->port.port, 4711, 99, &subject->adapter),
        0);
    CHECK_EQ(vb_engine_create(&subject->adapter, &config, &subject->engine), 0);
    CHECK_EQ(vb_context_open(&subject->adapter, &subject->ibv, &subject->context), 0);
    CHECK_EQ(vb_pd_alloc(subject->context, &subject->pd), 0);
    CHECK_EQ(vb_cq_create(subject->context, 4 * DEPTH, NULL, NULL, &subject->send_cq), 0);
    CHECK_EQ(vb_cq_create(subject->context, 4 * DEPTH, NULL, NULL, &subject->recv_cq), 0);
    CHECK_EQ(vb_srq_create(subject->context, subject->pd, &srq, &subject->srq), 0);
    subject->scratch = calloc(1, SCRATCH);
    CHECK(subject->scratch);
    CHECK_EQ(vb_mr_reg(subject->pd, subject->scratch, SCRATCH, (uintptr_t)subject->scratch,
                       EVERY_ACCESS, &subject->mr),
             0);
    place_regions(subject);
    for (int i = 0; i < captured->connection_count; ++i)
        add_qp(subject, i, with_srq);
}

void subject_close(struct subject *subject)
{
    vb_context_close(subject->context);
    vb_engine_destroy(subject->engine);
    vb_adapter_destroy(&subject->adapter);
    vb_memory_heap_destroy(subject->segment);
    for (int i = 0; i < subject->region_count; ++i) {
        free(subject->regions[i].memory);
        free(subject->regions[i].known);
    }
    free(subject->scratch);
    free(subject->sent);
}
