// SPDX-License-Identifier: Apache-2.0
#include "fabric.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "check.h"
#include "hca/sentences.h"
#include "memory/heap.h"
#include "wire/opcode.h"

enum {
    EVERY_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
        IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_FLUSH_GLOBAL,
    LATENCY = 2000,
    REGION = 1 << 20,
    BATCH = 64,
};

static const size_t SEGMENT_SIZE = 4ull << 30;

uint32_t fabric_random(struct fabric *fabric)
{
    fabric->random ^= fabric->random >> 12;
    fabric->random ^= fabric->random << 25;
    fabric->random ^= fabric->random >> 27;
    return (uint32_t)((fabric->random * 0x2545f4914f6cdd1dull) >> 32);
}

static bool happens(struct fabric *fabric, double probability)
{
    return probability > 0 && fabric_random(fabric) < probability * 4294967296.0;
}

/* ---- the port ------------------------------------------------------------------------------ */

static struct side *side_of(const struct vb_adapter *adapter)
{
    return (struct side *)((char *)(uintptr_t)adapter - offsetof(struct side, adapter));
}

static int port_number(struct vb_adapter *adapter, uint32_t index, uint32_t *qp_num)
{
    *qp_num = (uint32_t)(100 + side_of(adapter)->index) * VB_QPS_PER_SLOT + index;
    return 0;
}

static struct vb_path path_to(struct side *side, const uint8_t *dgid, int mtu)
{
    struct vb_path path = {.mtu = (uint16_t)mtu, .hop_limit = 64, .source_port = 0xc000};

    if (side->fabric->options.mark_at)
        path.traffic_class = 2; /* ECT(0) */

    memcpy(path.sgid, side->gid, 16);
    memcpy(path.dgid, dgid, 16);
    return path;
}

static void send_packet(struct fabric *fabric, int from, const struct vb_packet *packet);

static int carrier_execute(struct vb_qp *qp, const struct ibv_send_wr *wr,
                           struct vb_outcome *outcome)
{
    struct side *side = side_of(qp->context->adapter);
    const struct vb_ah *ah = (const struct vb_ah *)wr->wr.ud.ah;
    struct vb_path path = path_to(side, ah->attr.grh.dgid.raw, 1024);
    struct vb_packet packet;

    CHECK_EQ(vb_engine_datagram(qp, wr, &path, &packet, outcome), 0);
    if (packet.header_length)
        send_packet(side->fabric, side->index, &packet);
    return 0;
}

/* What the engine had begun is over when its lock is free. */
static void carrier_settle(struct vb_qp *qp)
{
    struct side *side = side_of(qp->context->adapter);

    pthread_mutex_lock(&side->fabric->lock);
    pthread_mutex_unlock(&side->fabric->lock);
}

static void carrier_kick(struct vb_qp *qp)
{
    struct side *side = side_of(qp->context->adapter);

    pthread_mutex_lock(&side->fabric->lock);
    vb_engine_attend(side->engine, qp, side->fabric->now);
    pthread_mutex_unlock(&side->fabric->lock);
}

static int carry(struct vb_qp *qp)
{
    struct side *side = side_of(qp->context->adapter);
    struct vb_path path =
        path_to(side, qp->verbs->attr.ah_attr.grh.dgid.raw, 128 << qp->verbs->attr.path_mtu);

    int error;

    pthread_mutex_lock(&side->fabric->lock);
    error = vb_engine_connect(side->engine, qp, &path);
    pthread_mutex_unlock(&side->fabric->lock);
    return error;
}

static void forget(struct vb_qp *qp)
{
    struct side *side = side_of(qp->context->adapter);

    pthread_mutex_lock(&side->fabric->lock);
    vb_engine_disconnect(side->engine, qp);
    pthread_mutex_unlock(&side->fabric->lock);
}

static const struct hand_calls calls = {
    .number = port_number,
    .execute = carrier_execute,
    .doorbell = carrier_kick,
    .settle = carrier_settle,
    .carry = carry,
    .forget = forget,
};

/* ---- the channel --------------------------------------------------------------------------- */

static struct flight *new_flight(struct fabric *fabric)
{
    struct flight *flight = fabric->free;

    if (flight)
        fabric->free = flight->next;
    else
        flight = malloc(sizeof(*flight));
    CHECK(flight);
    return flight;
}

/* Ordered by arrival. Most come last, so the search begins there only for the late ones' sake. */
static void launch(struct fabric *fabric, struct flight *flight)
{
    struct flight **at = &fabric->flights;

    while (*at &&
           ((*at)->at < flight->at || ((*at)->at == flight->at && (*at)->order < flight->order)))
        at = &(*at)->next;
    flight->next = *at;
    *at = flight;
}

static struct logged *note(struct fabric *fabric, const struct flight *flight, bool lost)
{
    struct logged *entry = &fabric->log[fabric->logged++ % FABRIC_LOG];
    struct vb_aeth aeth;

    *entry = (struct logged){.at = fabric->now,
                             .from = flight->from,
                             .lost = lost,
                             .reason = flight->reason,
                             .bth = vb_wire_bth_read(flight->bytes)};
    if (vb_opcodes[entry->bth.opcode].flags & VB_OPCODE_AETH) {
        aeth = vb_wire_aeth_read(flight->bytes + VB_BTH);
        entry->syndrome = (uint8_t)(aeth.kind << 5 | aeth.value);
        entry->msn = aeth.msn;
    }
    return entry;
}

static struct flight *copy_of(struct fabric *fabric, const struct flight *flight)
{
    struct flight *copy = new_flight(fabric);

    *copy = *flight;
    return copy;
}

static uint64_t lateness(struct fabric *fabric, uint64_t latency)
{
    uint64_t late = fabric->options.late;

    return late ? fabric_random(fabric) % late : latency / 2 + fabric_random(fabric) % latency;
}

/* When its last bit has left. */
static uint64_t serialise(struct fabric *fabric, const struct flight *flight)
{
    uint64_t bytes = flight->length + flight->virtual_payload + FABRIC_OVERHEAD;

    fabric->link_bytes[flight->from] += bytes;
    if (!fabric->options.gbps)
        return fabric->now;
    fabric->free_at[flight->from] = fabric->now + bytes * 8 / fabric->options.gbps;
    return fabric->free_at[flight->from];
}

/* False: its queue was full. Otherwise the packet leaves it at flight->at. */
static bool pass_bottleneck(struct fabric *fabric, struct flight *flight)
{
    const struct fabric_options *options = &fabric->options;
    uint64_t bytes = flight->length + flight->virtual_payload + FABRIC_OVERHEAD;
    uint64_t *clear = &fabric->clear_at[flight->from], waiting;

    if (*clear < flight->at)
        *clear = flight->at;
    waiting = (*clear - flight->at) * options->bottleneck_mbps / 8000;
    if (waiting + bytes > options->queue)
        return false;
    if (options->mark_at && waiting > options->mark_at && flight->traffic_class & 3)
        flight->traffic_class |= 3;
    *clear += bytes * 8000 / options->bottleneck_mbps;
    flight->at = *clear;
    return true;
}

static void enter_channel(struct fabric *fabric, struct flight *flight)
{
    enum verdict verdict = fabric->rule ? fabric->rule(fabric, flight) : PASS;
    uint64_t latency = fabric->options.latency ? fabric->options.latency : LATENCY;
    bool lost = verdict == LOSE || happens(fabric, fabric->options.loss);

    flight->at = serialise(fabric, flight);
    if (fabric->options.bottleneck_mbps)
        lost |= !pass_bottleneck(fabric, flight);
    flight->at += latency;
    flight->order = fabric->order++;
    note(fabric, flight, lost);
    if (lost) {
        flight->next = fabric->free;
        fabric->free = flight;
        return;
    }
    if (verdict == TWICE || happens(fabric, fabric->options.duplicate)) {
        struct flight *copy = copy_of(fabric, flight);

        copy->at += 1 + fabric_random(fabric) % latency;
        copy->order = fabric->order++;
        launch(fabric, copy);
    }
    if (verdict == LATE || happens(fabric, fabric->options.reorder))
        flight->at += lateness(fabric, latency);
    launch(fabric, flight);
}

static void send_packet(struct fabric *fabric, int from, const struct vb_packet *packet)
{
    struct flight *flight = new_flight(fabric);

    CHECK(packet->header_length <= VB_HEADERS_MAX);
    flight->from = from;
    flight->reason = packet->reason;
    flight->traffic_class = packet->path->traffic_class;
    flight->virtual_payload = 0;
    memcpy(flight->sgid, packet->path->sgid, 16);
    memcpy(flight->dgid, packet->path->dgid, 16);
    memcpy(flight->bytes, packet->header, packet->header_length);
    flight->length = packet->header_length;
    for (uint32_t i = 0; i < packet->piece_count; ++i) {
        if (!packet->piece[i].bytes) {
            flight->virtual_payload += packet->piece[i].length;
            continue;
        }
        CHECK(flight->length + packet->piece[i].length + 3 <= FABRIC_BYTES_MAX);
        memcpy(flight->bytes + flight->length, packet->piece[i].bytes, packet->piece[i].length);
        flight->length += packet->piece[i].length;
    }
    CHECK_EQ(flight->length - packet->header_length + flight->virtual_payload,
             packet->payload_length);
    if (!flight->virtual_payload) {
        memset(flight->bytes + flight->length, 0, packet->pad);
        flight->length += packet->pad;
        CHECK_EQ(flight->length % 4, 0);
    }
    enter_channel(fabric, flight);
}

static void arrive(struct fabric *fabric, const struct flight *flight)
{
    /* Exactly as long as the packet: a sanitizer sees who reads beyond. */
    uint8_t *bytes = malloc(flight->length ? flight->length : 1);
    struct vb_arrival arrival = {.bytes = bytes,
                                 .length = flight->length,
                                 .virtual_payload = flight->virtual_payload,
                                 .traffic_class = flight->traffic_class,
                                 .hop_limit = 64};

    CHECK(bytes);
    memcpy(bytes, flight->bytes, flight->length);
    memcpy(arrival.sgid, flight->sgid, 16);
    memcpy(arrival.dgid, flight->dgid, 16);
    vb_engine_receive(fabric->side[!flight->from].engine, &arrival, fabric->now);
    free(bytes);
}

void fabric_inject(struct fabric *fabric, int to, const uint8_t *bytes, uint32_t length)
{
    struct flight flight = {.from = !to, .length = length};

    CHECK(length <= sizeof(flight.bytes));
    memcpy(flight.bytes, bytes, length);
    memcpy(flight.sgid, fabric->side[!to].gid, 16);
    memcpy(flight.dgid, fabric->side[to].gid, 16);
    arrive(fabric, &flight);
}

unsigned fabric_carry(struct fabric *fabric, int from, uint64_t now)
{
    static struct vb_packet packet[BATCH];
    unsigned count = 0;

    while (count < BATCH && vb_engine_next(fabric->side[from].engine, &packet[count], now))
        ++count;
    for (unsigned i = 0; i < count; ++i) {
        struct vb_arrival arrival = {.bytes = packet[i].header,
                                     .length = packet[i].header_length,
                                     .virtual_payload = packet[i].payload_length};

        memcpy(arrival.sgid, packet[i].path->sgid, 16);
        memcpy(arrival.dgid, packet[i].path->dgid, 16);
        vb_engine_receive(fabric->side[!from].engine, &arrival, now);
    }
    return count;
}

/* ---- time ---------------------------------------------------------------------------------- */

static bool transmit(struct fabric *fabric, int side)
{
    struct vb_packet packet;
    bool any = false;

    for (int i = 0; i < BATCH && fabric->free_at[side] <= fabric->now &&
                    vb_engine_next(fabric->side[side].engine, &packet, fabric->now);
         ++i) {
        any = true;
        send_packet(fabric, side, &packet);
    }
    return any;
}

static uint64_t deadline(const struct fabric *fabric)
{
    uint64_t a = vb_engine_deadline(fabric->side[0].engine);
    uint64_t b = vb_engine_deadline(fabric->side[1].engine);

    return a < b ? a : b;
}

static uint64_t next_time(const struct fabric *fabric)
{
    uint64_t due = deadline(fabric);

    for (int i = 0; i < 2; ++i) /* a link that is free again may have more to take */
        if (fabric->free_at[i] > fabric->now && fabric->free_at[i] < due)
            due = fabric->free_at[i];
    return fabric->flights && fabric->flights->at < due ? fabric->flights->at : due;
}

static bool step(struct fabric *fabric)
{
    bool sent = transmit(fabric, 0);
    uint64_t then;

    sent |= transmit(fabric, 1);
    if (sent)
        return true;
    then = next_time(fabric);
    if (then == UINT64_MAX)
        return false;
    if (then > fabric->now)
        fabric->now = then;
    while (fabric->flights && fabric->flights->at <= fabric->now) {
        struct flight *flight = fabric->flights;

        fabric->flights = flight->next;
        arrive(fabric, flight);
        flight->next = fabric->free;
        fabric->free = flight;
    }
    for (int i = 0; i < 2; ++i)
        if (vb_engine_deadline(fabric->side[i].engine) <= fabric->now)
            vb_engine_expire(fabric->side[i].engine, fabric->now);
    return true;
}

bool fabric_step(struct fabric *fabric)
{
    bool more;

    pthread_mutex_lock(&fabric->lock);
    more = step(fabric);
    pthread_mutex_unlock(&fabric->lock);
    return more;
}

void fabric_run(struct fabric *fabric, uint64_t limit)
{
    uint64_t end = fabric->now + limit;

    for (;;) {
        bool sent = transmit(fabric, 0);

        sent |= transmit(fabric, 1);
        if (sent)
            continue;
        if (next_time(fabric) > end)
            break;
        fabric_step(fabric);
    }
    fabric->now = end;
}

bool fabric_poll(struct vb_cq *cq, struct ibv_wc *wc)
{
    return vb_cq_poll(cq, 1, wc) == 1;
}

struct ibv_wc fabric_wait(struct fabric *fabric, struct vb_cq *cq)
{
    uint64_t end = fabric->now + 100000000000ull;
    struct ibv_wc wc;

    while (!fabric_poll(cq, &wc)) {
        bool more = fabric_step(fabric);

        if (!more) { /* the last thing to happen may have made no packet */
            CHECK(fabric_poll(cq, &wc));
            break;
        }
        CHECK(fabric->now < end);
    }
    return wc;
}

/* ---- the sides ----------------------------------------------------------------------------- */

static void open_memory(struct fabric *fabric, struct side *side)
{
    size_t size = fabric->options.memory;

    side->memory = fabric->options.in_heap ? vb_memory_heap_alloc(side->heap, size, 64)
                                           : mmap(NULL, size, PROT_READ | PROT_WRITE,
                                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(side->memory && side->memory != MAP_FAILED);
    CHECK_EQ(
        vb_mr_reg(side->pd, side->memory, size, (uintptr_t)side->memory, EVERY_ACCESS, &side->mr),
        0);
}

static void open_side(struct fabric *fabric, int index)
{
    struct side *side = &fabric->side[index];
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = FABRIC_DEPTH, .max_sge = 4}};
    struct vb_engine_config engine = fabric->options.engine;

    engine.adapts &= !(index && fabric->options.plain_peer);
    side->fabric = fabric;
    side->index = index;
    side->gid[10] = side->gid[11] = 0xff;
    side->gid[12] = 10;
    side->gid[15] = (uint8_t)(index + 1);
    CHECK_EQ(vb_memory_heap_create(SEGMENT_SIZE, &side->segment), 0);
    CHECK_EQ(vb_memory_heap_create(64 << 20, &side->heap), 0);
    hand_port_make(&side->port, &calls);
    CHECK_EQ(vb_adapter_create(side->segment, side->heap, &side->port.port, 1000 + (uint32_t)index,
                               77 + (uint64_t)index, &side->adapter),
             0);
    CHECK_EQ(vb_engine_create(&side->adapter, &engine, &side->engine), 0);
    CHECK_EQ(vb_context_open(&side->adapter, &side->ibv, &side->context), 0);
    CHECK_EQ(fcntl(side->context->async_fd, F_SETFL, O_NONBLOCK), 0);
    CHECK_EQ(vb_pd_alloc(side->context, &side->pd), 0);
    CHECK_EQ(vb_cq_create(side->context, 4 * FABRIC_DEPTH, NULL, NULL, &side->send_cq), 0);
    CHECK_EQ(vb_cq_create(side->context, 4 * FABRIC_DEPTH, NULL, NULL, &side->recv_cq), 0);
    CHECK_EQ(vb_srq_create(side->context, side->pd, &srq, &side->srq), 0);
    open_memory(fabric, side);
}

void fabric_open(struct fabric *fabric, struct fabric_options options)
{
    memset(fabric, 0, sizeof(*fabric));
    if (!options.memory)
        options.memory = REGION;
    fabric->options = options;
    fabric->random = options.seed * 2 + 0x9e3779b97f4a7c15ull;
    fabric->now = 1000000;
    pthread_mutex_init(&fabric->lock, NULL);
    open_side(fabric, 0);
    open_side(fabric, 1);
}

static void free_flights(struct flight *flight)
{
    while (flight) {
        struct flight *next = flight->next;

        free(flight);
        flight = next;
    }
}

void fabric_close(struct fabric *fabric)
{
    for (int i = 0; i < 2; ++i) {
        struct side *side = &fabric->side[i];

        vb_context_close(side->context);
        vb_engine_destroy(side->engine);
        vb_adapter_destroy(&side->adapter);
        vb_memory_heap_destroy(side->segment);
        if (!fabric->options.in_heap)
            munmap(side->memory, fabric->options.memory);
        vb_memory_heap_destroy(side->heap);
    }
    free_flights(fabric->flights);
    free_flights(fabric->free);
    pthread_mutex_destroy(&fabric->lock);
}

struct qp_options fabric_defaults(void)
{
    return (struct qp_options){
        .type = IBV_QPT_RC,
        .mtu = 1024,
        .timeout = 8,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .min_rnr_timer = 1,
        .rd_atomic = 4,
        .dest_rd_atomic = 4,
        .psn = {0xfffff0, 0x123456},
        .access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                  IBV_ACCESS_FLUSH_GLOBAL,
        .max_sge = 4,
        .depth = FABRIC_DEPTH,
    };
}

struct vb_qp *fabric_qp(struct fabric *fabric, int side, const struct qp_options *options)
{
    struct side *s = &fabric->side[side];
    struct ibv_qp_init_attr_ex attr = {
        .qp_type = options->type,
        .pd = &s->pd->ibv,
        .send_cq = &s->send_cq->ibv,
        .recv_cq = &s->recv_cq->ibv,
        .srq = options->srq[side] ? &s->srq->ibv : NULL,
        .cap = {options->depth, options->depth, options->max_sge, options->max_sge, 256}};
    struct vb_qp *qp;

    CHECK_EQ(vb_qp_create(s->context, &attr, &qp), 0);
    return qp;
}

int fabric_side_of(const struct fabric *fabric, const struct vb_qp *qp)
{
    return qp->context->adapter == &fabric->side[1].adapter;
}

static void modify(struct vb_qp *qp, struct ibv_qp_attr attr, int mask)
{
    CHECK_EQ(vb_qp_modify(qp, &attr, mask), 0);
}

void fabric_set_state(struct vb_qp *qp, enum ibv_qp_state state)
{
    modify(qp, (struct ibv_qp_attr){.qp_state = state}, IBV_QP_STATE);
}

void fabric_to_rtr(struct vb_qp *qp, uint32_t other, const struct qp_options *options)
{
    struct side *side = side_of(qp->context->adapter);
    bool responds = options->type == IBV_QPT_RC || options->type == IBV_QPT_XRC_RECV;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = options->access,
        .qkey = 17,
        .path_mtu = (enum ibv_mtu)(__builtin_ctz((unsigned)options->mtu) - 7),
        .dest_qp_num = other,
        .rq_psn = options->psn[!side->index],
        .max_dest_rd_atomic = options->dest_rd_atomic,
        .min_rnr_timer = options->min_rnr_timer,
        .ah_attr = {.is_global = 1, .port_num = 1},
    };

    memcpy(attr.ah_attr.grh.dgid.raw, side->fabric->side[!side->index].gid, 16);
    modify(qp, attr,
           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
               (options->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
    attr.qp_state = IBV_QPS_RTR;
    modify(qp, attr,
           IBV_QP_STATE |
               (options->type == IBV_QPT_UD
                    ? 0
                    : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
               (responds ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
}

void fabric_to_rts(struct vb_qp *qp, const struct qp_options *options)
{
    struct side *side = side_of(qp->context->adapter);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .sq_psn = options->psn[side->index],
                               .timeout = options->timeout,
                               .retry_cnt = options->retry_cnt,
                               .rnr_retry = options->rnr_retry,
                               .max_rd_atomic = options->rd_atomic};

    bool requests = options->type == IBV_QPT_RC || options->type == IBV_QPT_XRC_SEND;

    modify(qp, attr,
           IBV_QP_STATE | IBV_QP_SQ_PSN | (options->type == IBV_QPT_XRC_RECV ? IBV_QP_TIMEOUT : 0) |
               (requests
                    ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                    : 0));
}

void fabric_ready(struct fabric *fabric, struct vb_qp *qp, uint32_t other,
                  const struct qp_options *options)
{
    (void)fabric;
    fabric_to_rtr(qp, other, options);
    fabric_to_rts(qp, options);
}

void fabric_pair(struct fabric *fabric, struct qp_options options, struct vb_qp *qp[2])
{
    qp[0] = fabric_qp(fabric, 0, &options);
    qp[1] = fabric_qp(fabric, 1, &options);
    fabric_ready(fabric, qp[0], qp[1]->number, &options);
    fabric_ready(fabric, qp[1], qp[0]->number, &options);
}

/* ---- requests ------------------------------------------------------------------------------ */

struct ibv_send_wr fabric_request(struct fabric *fabric, int side, enum ibv_wr_opcode opcode,
                                  uint64_t remote_offset)
{
    const struct side *peer = &fabric->side[!side];
    struct ibv_send_wr wr = {.wr_id = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};

    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = (uintptr_t)peer->memory + remote_offset;
        wr.wr.atomic.rkey = peer->mr->ibv.rkey;
    } else {
        wr.wr.rdma.remote_addr = (uintptr_t)peer->memory + remote_offset;
        wr.wr.rdma.rkey = peer->mr->ibv.rkey;
    }
    if (opcode == IBV_WR_FLUSH)
        wr.wr.flush.type = IBV_FLUSH_GLOBAL;
    return wr;
}

int fabric_post(struct fabric *fabric, struct vb_qp *qp, struct ibv_send_wr wr, uint64_t offset,
                uint32_t length)
{
    const struct side *side = &fabric->side[fabric_side_of(fabric, qp)];
    struct ibv_sge sge = {(uintptr_t)side->memory + offset, length, side->mr->ibv.lkey};
    struct ibv_send_wr *bad;

    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (wr.opcode == IBV_WR_FLUSH)
        wr.wr.flush.length = length;
    return vb_post_staged(qp, &wr, &bad);
}

void fabric_post_recv(struct fabric *fabric, struct vb_qp *qp, uint64_t id, uint64_t offset,
                      uint32_t length)
{
    const struct side *side = &fabric->side[fabric_side_of(fabric, qp)];
    struct ibv_sge sge = {(uintptr_t)side->memory + offset, length, side->mr->ibv.lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

    CHECK_EQ(qp->srq ? vb_srq_post_recv(qp->srq, &wr, &bad) : vb_post_recv(qp, &wr, &bad), 0);
}

/* ---- what was seen ------------------------------------------------------------------------- */

const struct vb_counters *fabric_counters(struct fabric *fabric, int side)
{
    return vb_engine_counters(fabric->side[side].engine);
}

const struct logged *fabric_find(const struct fabric *fabric, int from, int operation, uint32_t n)
{
    CHECK(fabric->logged <= FABRIC_LOG);
    for (uint32_t i = 0; i < fabric->logged; ++i) {
        const struct logged *entry = &fabric->log[i];

        if (entry->from == from &&
            (operation < 0 || (entry->bth.opcode & VB_OP_MASK) == operation) && n-- == 0)
            return entry;
    }
    return NULL;
}

uint32_t fabric_count(const struct fabric *fabric, int from, int operation)
{
    uint32_t n = 0;

    while (fabric_find(fabric, from, operation, n))
        ++n;
    return n;
}

void fabric_expect_text(struct fabric *fabric, int side, uint32_t vendor_err, const char *part)
{
    char text[1200] = "";

    CHECK(vb_evidence_text(&fabric->side[side].adapter.self, vendor_err, text, sizeof(text)) > 0);
    printf("  %s\n", text);
    if (!strstr(text, part))
        fprintf(stderr, "expected: %s\n", part);
    CHECK(strstr(text, part));
}

void fabric_expect_event(struct fabric *fabric, int side, enum ibv_event_type type)
{
    struct ibv_async_event event;

    CHECK_EQ(vb_event_get(fabric->side[side].context, &event), 0);
    CHECK_EQ(event.event_type, type);
    vb_event_ack(fabric->side[side].context, &event);
}

bool fabric_has_event(struct fabric *fabric, int side)
{
    return fabric->side[side].context->events != NULL;
}
