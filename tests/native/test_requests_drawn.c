// SPDX-License-Identifier: Apache-2.0
/*
 * Random requests, good and bad, between two queue pairs of one adapter, and what came of them: the
 * courses of the adapter without packets. A course is the hash of what calls return, of completions
 * and of what explains them, of events and states, and of the bytes that were moved. A change of
 * any rule moves it: the test prints what it found, and a change that is meant puts that into the
 * table.
 */
#include <fcntl.h>
#include <malloc.h>

#include "check.h"
#include "event/mix.h"
#include "loopback.h"

enum { STEPS = 2000, ELEMENTS = 4, GRH = 40, QKEY = 17, REGIONS = 3 };
/*
 * A port's path MTU is 1024 to 4096, as its interface's MTU is: all ports carry a datagram of four
 * short elements, and none one with a long element.
 */
enum { SHORT_ELEMENT = 256, LONG_ELEMENT = 4097 };

static struct loopback loop;
static enum ibv_qp_type type;
static uint64_t hash, chance;
static uint64_t completions[2],
    events; /* hashes of their own: an error's end takes a thread's time */
static uint32_t failures, received;
static struct vb_mr *region[2][REGIONS]; /* of each end's memory: all of it, parts, little access */
static struct vb_ah *ah;

static void add(uint64_t *to, uint64_t value)
{
    *to = vb_world_mix(*to * 31 + value);
}

static void see(uint64_t value)
{
    add(&hash, value);
}

static uint32_t draw(uint32_t below)
{
    return (uint32_t)((vb_world_mix(chance += VB_WORLD_GOLDEN) >> 32) * below >> 32);
}

/* ---- objects --------------------------------------------------------------------------------- */

static void add_regions(int end)
{
    uint8_t *memory = loop.memory[end];

    region[end][0] = loop.mr[end];
    CHECK_EQ(vb_mr_reg(loop.pd, memory + 1024, 8192, 0x5000 + (uintptr_t)memory % 4096,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &region[end][1]),
             0);
    CHECK_EQ(vb_mr_reg(loop.pd, memory, LOOPBACK_BYTES / 2, (uintptr_t)memory,
                       IBV_ACCESS_REMOTE_READ, &region[end][2]),
             0);
}

static void connect_both(void)
{
    loopback_connect(loop.qp[0], loop.qp[1], 0);
    loopback_connect(loop.qp[1], loop.qp[0], 0);
}

/* A UD queue pair has a Q_Key in place of a peer. */
static void ready_datagrams(struct vb_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};

    CHECK_EQ(vb_qp_modify(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
             0);
    attr.qp_state = IBV_QPS_RTR;
    CHECK_EQ(vb_qp_modify(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK_EQ(vb_qp_modify(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

static void make_ready(void)
{
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1}};

    if (type != IBV_QPT_UD) {
        connect_both();
        return;
    }
    ready_datagrams(loop.qp[0]);
    ready_datagrams(loop.qp[1]);
    if (ah)
        return;
    loopback_gid(loop.direct, attr.grh.dgid.raw);
    CHECK_EQ(vb_ah_create(loop.pd, &attr, &ah), 0);
}

static void open_all(void)
{
    loopback_open(&loop, type);
    CHECK_EQ(fcntl(loop.context->async_fd, F_SETFL, O_NONBLOCK), 0);
    ah = NULL;
    for (int end = 0; end < 2; ++end) {
        add_regions(end);
        for (int i = 0; i < LOOPBACK_BYTES; ++i)
            loop.memory[end][i] = (uint8_t)vb_world_mix((uint64_t)(i + end * LOOPBACK_BYTES));
    }
    make_ready();
}

/* ---- what is seen ---------------------------------------------------------------------------- */

/* Without keys and addresses, which runs differ in, and without the path MTU. */
static void add_evidence(uint64_t *to, uint32_t id)
{
    struct vb_evidence of;

    if (!vb_evidence_get(&loop.host->adapter.self, id, &of))
        return;
    add(to, of.check | (uint64_t)of.wr_opcode << 16 | (uint64_t)of.status << 32 |
                (uint64_t)of.next_state << 40 | (uint64_t)of.type << 48 | (uint64_t)of.side << 56);
    add(to, of.length);
    add(to, of.check == VB_CHECK_TOO_LONG ? 0 : of.mr_length);
    if (of.check != VB_CHECK_FLUSHED)
        add(to, of.access | (uint64_t)of.wanted << 32);
    add(to, of.sq_used | (uint64_t)of.sq_room << 16 | (uint64_t)of.rq_used << 32 |
                (uint64_t)of.rq_room << 48);
    add(to, of.timeout | (uint64_t)of.retry_cnt << 8 | (uint64_t)of.rnr_retry << 16 |
                (uint64_t)of.min_rnr_timer << 24 | (uint64_t)of.to_itself << 32);
}

static void add_completion(int end, const struct ibv_wc *wc)
{
    uint64_t *to = &completions[end];

    add(to, wc->wr_id << 8 | wc->status);
    add(to, wc->qp_num == loop.qp[end]->number);
    if (wc->status) {
        ++failures;
        add_evidence(to, wc->vendor_err);
        return;
    }
    add(to, wc->opcode | (uint64_t)wc->byte_len << 32);
    add(to, wc->wc_flags);
    if (wc->wc_flags & IBV_WC_WITH_IMM)
        add(to, wc->imm_data);
    received += wc->opcode == IBV_WC_RECV;
    if (type == IBV_QPT_UD && wc->opcode == IBV_WC_RECV)
        add(to, wc->src_qp == loop.qp[0]->number);
}

static enum ibv_qp_state state_of(int end)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;

    CHECK_EQ(vb_qp_query(loop.qp[end], &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
}

/* Has a queue pair in ERR flushed all of its requests? */
static bool is_flushed(int end)
{
    const struct vb_qp *qp = loop.qp[end];

    return state_of(end) != IBV_QPS_ERR ||
           (qp->sq_posted == qp->sq_next && qp->rq_posted == atomic_load(&qp->shared->rq_polled));
}

static void see_all(void)
{
    struct ibv_async_event event;
    struct ibv_wc wc;

    for (int end = 0; end < 2; ++end) {
        uint64_t until = vb_direct_now() + 3000000000;
        bool last;

        do {
            while (vb_cq_poll(loop.cq[end], 1, &wc) == 1)
                add_completion(end, &wc);
            last = is_flushed(end);
            CHECK(vb_direct_now() < until);
        } while (!last);
        see(state_of(end));
    }
    while (!vb_event_get(loop.context, &event)) {
        add(&events, event.event_type);
        vb_event_ack(loop.context, &event);
    }
}

/* Datagrams' headers have addresses of this machine. */
static void see_memory(void)
{
    for (int end = 0; end < 2; ++end)
        for (int i = 0; i < LOOPBACK_BYTES && type != IBV_QPT_UD; i += 8) {
            uint64_t word;

            memcpy(&word, loop.memory[end] + i, sizeof(word));
            see(word);
        }
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Mostly an element of the whole region; some do not fit, or have no such key. */
static struct ibv_sge draw_element(int end, uint32_t longest)
{
    uint32_t which = draw(40) ? 0 : draw(REGIONS);
    const struct vb_mr *mr = region[end][which];
    struct ibv_sge sge = {(uintptr_t)mr->ibv.addr + draw(LOOPBACK_BYTES / 4), draw(longest),
                          mr->ibv.lkey};

    if (which == 1)
        sge.addr = 0x5000 + (uintptr_t)loop.memory[end] % 4096 + draw(9000);
    if (draw(300) == 0)
        sge.lkey ^= 0xffffff00;
    if (draw(200) == 0)
        sge.addr += 3 * LOOPBACK_BYTES / 4;
    if (draw(8) == 0)
        sge.length = 0;
    return sge;
}

static int fill(int end, struct ibv_sge *sge, uint32_t longest)
{
    int count = (int)draw(ELEMENTS + 1);

    for (int i = 0; i < count; ++i)
        sge[i] = draw_element(end, longest);
    return count;
}

static enum ibv_wr_opcode draw_opcode(void)
{
    static const enum ibv_wr_opcode kinds[] = {
        IBV_WR_SEND,
        IBV_WR_SEND_WITH_IMM,
        IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_RDMA_READ,
        IBV_WR_RDMA_READ,
        IBV_WR_ATOMIC_FETCH_AND_ADD,
        IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_ATOMIC_WRITE,
        IBV_WR_FLUSH,
        IBV_WR_SEND_WITH_INV,
    };

    return type == IBV_QPT_UD ? kinds[draw(2)] : kinds[draw(sizeof(kinds) / sizeof(*kinds))];
}

static void aim(struct ibv_send_wr *wr)
{
    uint32_t which = draw(20) ? 0 : draw(REGIONS);
    const struct vb_mr *mr = region[1][which];
    uint64_t addr = (uintptr_t)mr->ibv.addr + draw(LOOPBACK_BYTES / 4) / 8 * 8 + !draw(60);

    if (draw(100) == 0)
        addr += 3 * LOOPBACK_BYTES / 4;
    if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
        wr->wr.atomic.remote_addr = addr;
        wr->wr.atomic.rkey = mr->ibv.rkey;
        wr->wr.atomic.compare_add = draw(3);
        wr->wr.atomic.swap = draw(100);
        return;
    }
    wr->wr.rdma.remote_addr = addr;
    wr->wr.rdma.rkey = draw(100) ? mr->ibv.rkey : mr->ibv.rkey ^ 0xffffff00;
    if (wr->opcode == IBV_WR_FLUSH) {
        wr->wr.flush.type = draw(10) ? IBV_FLUSH_GLOBAL : IBV_FLUSH_PERSISTENT;
        wr->wr.flush.level = draw(5) ? IBV_FLUSH_RANGE : IBV_FLUSH_MR;
        wr->wr.flush.length = draw(5000);
    }
}

static void aim_datagram(struct ibv_send_wr *wr)
{
    wr->wr.ud.ah = &ah->ibv;
    wr->wr.ud.remote_qpn = loop.qp[1]->number;
    wr->wr.ud.remote_qkey = draw(15) ? QKEY : QKEY + 1;
}

static void post_send(uint64_t step)
{
    static const unsigned flags[] = {IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, IBV_SEND_FENCE};
    struct ibv_sge sge[ELEMENTS];
    struct ibv_send_wr wr = {.wr_id = step, .sg_list = sge, .opcode = draw_opcode()}, *bad = NULL;

    for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); ++i)
        wr.send_flags |= draw(i ? 4 : 8) ? i ? 0 : flags[i] : i ? flags[i] : 0;
    wr.imm_data = draw(1000);
    wr.num_sge = fill(0, sge, type == IBV_QPT_UD ? SHORT_ELEMENT : 2500);
    if (type == IBV_QPT_UD && wr.num_sge && draw(20) == 0)
        sge[0].length = LONG_ELEMENT;
    if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
        wr.opcode == IBV_WR_ATOMIC_WRITE) {
        sge[0] = (struct ibv_sge){(uintptr_t)loop.memory[0] + draw(100), draw(20) ? 8 : 4,
                                  loop.mr[0]->ibv.lkey};
        wr.num_sge = 1;
    }
    if (draw(12) == 0) {
        wr.send_flags |= IBV_SEND_INLINE;
        for (int i = 0; i < wr.num_sge; ++i) {
            sge[i].addr = (uintptr_t)loop.memory[0] + draw(1000);
            sge[i].length = draw(20);
        }
    }
    if (type == IBV_QPT_UD)
        aim_datagram(&wr);
    else
        aim(&wr);
    if (wr.opcode == IBV_WR_SEND_WITH_INV)
        wr.invalidate_rkey = region[1][1]->ibv.rkey;
    see((uint64_t)vb_post_send(loop.qp[0], &wr, &bad));
    see(bad != NULL);
}

static void post_receive(uint64_t step)
{
    struct ibv_sge sge[ELEMENTS];
    struct ibv_recv_wr wr = {.wr_id = step, .sg_list = sge}, *bad = NULL;

    wr.num_sge = fill(1, sge, 5000);
    see((uint64_t)vb_post_recv(loop.qp[1], &wr, &bad));
    see(bad != NULL);
}

static void start_again(void)
{
    struct ibv_qp_attr attr = {.qp_state = draw(2) ? IBV_QPS_RESET : IBV_QPS_ERR};

    for (int end = 0; end < 2; ++end)
        see((uint64_t)vb_qp_modify(loop.qp[end], &attr, IBV_QP_STATE));
    see_all();
    attr.qp_state = IBV_QPS_RESET;
    for (int end = 0; end < 2; ++end)
        see((uint64_t)vb_qp_modify(loop.qp[end], &attr, IBV_QP_STATE));
    see_all();
    make_ready();
}

static bool has_failed(void)
{
    return state_of(0) != IBV_QPS_RTS || state_of(1) != IBV_QPS_RTS;
}

static void run(enum ibv_qp_type of)
{
    type = of;
    hash = failures = received = 0;
    completions[0] = completions[1] = events = 0;
    chance = 9;
    open_all();
    for (uint64_t step = 0; step < STEPS; ++step) {
        if (draw(4))
            post_receive(step);
        post_send(step);
        see_all();
        if (has_failed() && draw(2))
            start_again();
    }
    see_memory();
    see(completions[0]);
    see(completions[1]);
    see(events);
    loopback_close(&loop);
}

struct course {
    enum ibv_qp_type type;
    uint32_t failures, received; /* what came of it */
    uint64_t hash;
};

static const struct course courses[] = {
    {IBV_QPT_RC, 1788, 164, 0x8157faa88d638b4a},
    {IBV_QPT_UC, 37, 190, 0xe4d8f8d9899d75fb},
    {IBV_QPT_UD, 610, 999, 0xbcdd23249dfabe5f},
};

static void requests_go_as_they_went(void)
{
    bool differs = false;

    for (size_t i = 0; i < sizeof(courses) / sizeof(courses[0]); ++i) {
        const struct course *wanted = &courses[i];

        run(wanted->type);
        if (failures != wanted->failures || received != wanted->received || hash != wanted->hash) {
            printf("    type %d: %u, %u, 0x%llx\n", wanted->type, failures, received,
                   (unsigned long long)hash);
            differs = true;
        }
    }
    CHECK(!differs);
}

int main(void)
{
    mallopt(M_PERTURB, 0x5a); /* what was not written is not 0 */
    RUN(requests_go_as_they_went);
    return 0;
}
