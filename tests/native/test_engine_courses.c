// SPDX-License-Identifier: Apache-2.0
/*
 * Random requests of several connections over channels with faults, and what came of them: the
 * courses of the packet engine. A course is the hash of every packet with its time, every
 * completion, the memory of both sides and all counters. A change of any rule moves it: the test
 * prints what it found, and a change that is meant puts that into the table.
 */
#include <malloc.h>

#include "check.h"
#include "event/mix.h"
#include "fabric.h"
#include "starved.h"
#include "wire/opcode.h"

enum { QPS_MOST = 6, REGION = 1 << 18, ELEMENTS = 3, RECEIVES = 8, BTH = 12, SEEDS = 3 };

#define MS 1000000ull

#define OP(opcode) (1u << (opcode))

enum {
    WRITES = OP(IBV_WR_RDMA_WRITE),
    SENDS = OP(IBV_WR_SEND) | OP(IBV_WR_SEND_WITH_IMM) | OP(IBV_WR_RDMA_WRITE_WITH_IMM),
    READS = OP(IBV_WR_RDMA_READ),
    ATOMICS = OP(IBV_WR_ATOMIC_FETCH_AND_ADD) | OP(IBV_WR_ATOMIC_CMP_AND_SWP) |
        OP(IBV_WR_ATOMIC_WRITE),
    ALL = WRITES | SENDS | READS | ATOMICS | OP(IBV_WR_FLUSH),
};

struct course {
    const char *name;
    struct fabric_options faults;
    enum ibv_qp_type type;
    int mtu;
    uint32_t qps, requests, under_way; /* of each side of each connection */
    uint32_t opcodes, longest;
    uint32_t patience;  /* a receive is posted before each so many-th event; 0: soon enough */
    uint64_t cut, mend; /* ns: between the two, all packets are lost; 0: never */
    uint8_t timeout, retry_cnt, rnr_retry;
    uint32_t resets;   /* a connection is made anew before each so many-th event; 0: none is */
    bool srq, damages; /* some packets arrive with a wrong bit in the BTH */
    /* what came of it: */
    uint64_t ended; /* microseconds, of all seeds together */
    uint32_t packets, failed;
    uint64_t hash;
};

struct end {
    struct vb_qp *qp;
    uint32_t posted, completed, receives;
};

static struct fabric fabric;
static struct course course;
static struct end end[QPS_MOST][2];
static uint64_t hash;
static uint32_t failed;

static void see(uint64_t value)
{
    hash = vb_world_mix(hash * 31 + value);
}

static uint32_t draw(uint32_t below)
{
    return (uint32_t)((uint64_t)fabric_random(&fabric) * below >> 32);
}

/* Sees each packet as it enters the channel, without addresses and keys, which runs differ in. */
static enum verdict rule(struct fabric *of, struct flight *flight)
{
    struct vb_bth bth = vb_wire_bth_read(flight->bytes);
    uint64_t since = of->now - MS;

    see(of->now);
    see((uint64_t)flight->from << 63 | (uint64_t)bth.opcode << 48 | bth.psn);
    see(bth.dest_qp | (uint64_t)bth.ack_request << 32 | (uint64_t)flight->reason << 40 |
        (uint64_t)bth.solicited << 48 | (uint64_t)bth.pad << 52);
    see(flight->length | (uint64_t)flight->virtual_payload << 32);
    if (vb_opcodes[bth.opcode].flags & VB_OPCODE_AETH)
        see(flight->bytes[VB_BTH] | (uint64_t)flight->bytes[VB_BTH + 3] << 8);
    if (course.damages && draw(40) == 0)
        flight->bytes[draw(BTH)] ^= (uint8_t)(1 << draw(8));
    return course.cut && since >= course.cut && since < course.mend ? LOSE : PASS;
}

/* ---- posting --------------------------------------------------------------------------------- */

static enum ibv_wr_opcode draw_opcode(void)
{
    for (;;) {
        uint32_t opcode = draw(16);

        if (course.opcodes & 1u << opcode)
            return opcode;
    }
}

static uint32_t fill_elements(int side, struct ibv_sge *sge, uint32_t length)
{
    uint32_t count = 0;

    for (; length || !count; ++count) {
        uint32_t part = count == ELEMENTS - 1 ? length : draw(length + 1);

        sge[count] = (struct ibv_sge){(uintptr_t)fabric.side[side].memory + draw(REGION / 2), part,
                                      fabric.side[side].mr->ibv.lkey};
        length -= part;
    }
    return count;
}

static uint32_t draw_length(enum ibv_wr_opcode opcode)
{
    if (OP(opcode) & ATOMICS)
        return 8;
    return draw(3) ? draw(course.longest) : draw(64);
}

static void post(int side, struct end *at)
{
    struct ibv_sge sge[ELEMENTS];
    enum ibv_wr_opcode opcode = draw_opcode();
    uint32_t length = draw_length(opcode);
    struct ibv_send_wr wr = fabric_request(&fabric, side, opcode,
                                           REGION / 2 + draw(REGION / 4) / 8 * 8),
                       *bad;

    wr.wr_id = at->posted++;
    wr.imm_data = draw(1000);
    if (draw(4) == 0 && opcode != IBV_WR_RDMA_WRITE)
        wr.send_flags |= IBV_SEND_SOLICITED;
    if (draw(6) == 0 && course.type == IBV_QPT_RC)
        wr.send_flags |= IBV_SEND_FENCE;
    wr.sg_list = sge;
    wr.num_sge = (int)fill_elements(side, sge, length);
    if (OP(opcode) & ATOMICS) {
        sge[0].length = 8;
        wr.num_sge = 1;
    }
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
        wr.wr.atomic.compare_add = draw(4);
    if (opcode == IBV_WR_FLUSH)
        wr.wr.flush.length = length;
    CHECK_EQ(vb_post_staged(at->qp, &wr, &bad), 0);
}

static void post_receive(int side, struct end *at)
{
    struct ibv_sge sge[ELEMENTS];
    struct ibv_recv_wr wr = {.wr_id = at->receives++, .sg_list = sge}, *bad;

    wr.num_sge = (int)fill_elements(side, sge, course.longest);
    CHECK_EQ(at->qp->srq ? vb_srq_post_recv(at->qp->srq, &wr, &bad)
                         : vb_post_recv(at->qp, &wr, &bad),
             0);
}

static bool is_lost(const struct end *at)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;

    CHECK_EQ(vb_qp_query(at->qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state == IBV_QPS_ERR;
}

static void post_more(uint64_t event)
{
    for (uint32_t i = 0; i < course.qps; ++i)
        for (int side = 0; side < 2; ++side) {
            struct end *at = &end[i][side];

            if (is_lost(at))
                continue;
            while (at->posted < course.requests && at->posted - at->completed < course.under_way)
                post(side, at);
            if (course.patience && event % course.patience == 0)
                post_receive(side, at);
        }
}

/* ---- completions ----------------------------------------------------------------------------- */

static struct end *end_of(int side, uint32_t number)
{
    for (uint32_t i = 0; i < course.qps; ++i)
        if (end[i][side].qp->number == number)
            return &end[i][side];
    CHECK(false);
    return NULL;
}

static void see_completion(const struct ibv_wc *wc)
{
    see(fabric.now);
    see(wc->wr_id | (uint64_t)wc->status << 32 | (uint64_t)wc->qp_num << 40);
    if (wc->status) {
        ++failed;
        return;
    }
    see(wc->opcode | (uint64_t)wc->byte_len << 32);
    see(wc->wc_flags & IBV_WC_WITH_IMM ? wc->imm_data : 0);
}

static void poll_all(void)
{
    struct ibv_wc wc;

    for (int side = 0; side < 2; ++side) {
        while (fabric_poll(fabric.side[side].send_cq, &wc)) {
            ++end_of(side, wc.qp_num)->completed;
            see_completion(&wc);
        }
        while (fabric_poll(fabric.side[side].recv_cq, &wc)) {
            see_completion(&wc);
            if (!course.patience && !wc.status)
                post_receive(side, end_of(side, wc.qp_num));
        }
    }
}

static bool is_over(void)
{
    for (uint32_t i = 0; i < course.qps; ++i)
        for (int side = 0; side < 2; ++side)
            if (end[i][side].completed < course.requests && !is_lost(&end[i][side]))
                return false;
    return true;
}

/* ---- one course ------------------------------------------------------------------------------ */

static struct qp_options options_of_course(void)
{
    struct qp_options options = fabric_defaults();

    options.type = course.type;
    options.mtu = course.mtu;
    options.timeout = course.timeout;
    options.retry_cnt = course.retry_cnt;
    options.rnr_retry = course.rnr_retry;
    options.srq[1] = course.srq;
    return options;
}

/* Whatever is under way, and with other PSNs. */
static void make_anew(uint64_t event)
{
    struct qp_options options = options_of_course();
    struct end *pair = end[draw(course.qps)];

    options.psn[0] = (uint32_t)(event * 7919 & 0xffffff);
    options.psn[1] = (uint32_t)(event * 104729 & 0xffffff);
    for (int side = 0; side < 2; ++side) {
        fabric_set_state(pair[side].qp, IBV_QPS_RESET);
        pair[side].completed = pair[side].posted;
    }
    for (int side = 0; side < 2; ++side)
        fabric_ready(&fabric, pair[side].qp, pair[!side].qp->number, &options);
    for (int i = 0; i < 2 * RECEIVES; ++i)
        post_receive(i % 2, &pair[i % 2]);
}

static void open_course(void)
{
    struct fabric_options faults = course.faults;
    struct qp_options options = options_of_course();
    struct vb_qp *qp[2];

    faults.memory = REGION;
    fabric_open(&fabric, faults);
    fabric.rule = rule;
    memset(end, 0, sizeof(end));
    for (uint32_t i = 0; i < course.qps; ++i) {
        options.psn[0] -= 1000 * i;
        fabric_pair(&fabric, options, qp);
        end[i][0].qp = qp[0];
        end[i][1].qp = qp[1];
        for (int j = 0; j < 2 * RECEIVES; ++j)
            post_receive(j % 2, &end[i][j % 2]);
    }
    for (int side = 0; side < 2; ++side)
        for (uint32_t i = 0; i < REGION; ++i)
            fabric.side[side].memory[i] = (uint8_t)vb_world_mix(i + (uint64_t)side * REGION);
}

static void see_memory_and_counters(void)
{
    for (int side = 0; side < 2; ++side) {
        const uint64_t *counter = (const uint64_t *)fabric_counters(&fabric, side);

        for (uint32_t i = 0; i < REGION; i += 8) {
            uint64_t word;

            memcpy(&word, fabric.side[side].memory + i, 8);
            see(word);
        }
        for (uint32_t i = 0; i < VB_COUNTER_COUNT; ++i)
            see(counter[i]);
        while (fabric_has_event(&fabric, side)) {
            struct ibv_async_event event;

            CHECK_EQ(vb_event_get(fabric.side[side].context, &event), 0);
            see(event.event_type);
            vb_event_ack(fabric.side[side].context, &event);
        }
    }
}

/* What a course does not say: three connections that are busy both ways, with all opcodes. */
static struct course filled_in(struct course of)
{
    of.type = of.type ? of.type : IBV_QPT_RC;
    of.mtu = of.mtu ? of.mtu : 1024;
    of.qps = of.qps ? of.qps : 3;
    of.requests = of.requests ? of.requests : 100;
    of.under_way = of.under_way ? of.under_way : 10;
    of.opcodes = of.opcodes ? of.opcodes : ALL;
    of.longest = of.longest ? of.longest : 9000;
    of.timeout = of.timeout ? of.timeout : 8;
    of.retry_cnt = of.retry_cnt ? of.retry_cnt : 7;
    of.rnr_retry = of.rnr_retry ? of.rnr_retry : 7;
    return of;
}

/* One run with this seed; the hash goes on from the last run's. */
static void run_course(void)
{
    open_course();
    for (uint64_t event = 0; !is_over(); ++event) {
        if (course.resets && event % course.resets == course.resets - 1)
            make_anew(event);
        post_more(event);
        if (!fabric_step(&fabric) && !course.patience)
            break;
        poll_all();
        CHECK(fabric.now < 100000 * MS);
    }
    fabric_run(&fabric, 3000 * MS); /* timers that are kept for a while */
    poll_all();
    see_memory_and_counters();
}

static bool goes_as_it_went(const struct course *of)
{
    uint32_t packets = 0;
    uint64_t ended = 0;
    long blocks = starved_blocks();
    bool same;

    hash = failed = 0;
    course = filled_in(*of);
    for (int i = 0; i < SEEDS; ++i, course.faults.seed += 1000) {
        run_course();
        packets += fabric.logged;
        ended += fabric.now / 1000;
        fabric_close(&fabric);
        CHECK_EQ(starved_blocks(), blocks);
    }
    same = hash == of->hash && ended == of->ended && packets == of->packets && failed == of->failed;
    if (!same)
        printf("%s: .ended = %llu, .packets = %u, .failed = %u, .hash = 0x%llx\n", of->name,
               (unsigned long long)ended, packets, failed, (unsigned long long)hash);
    return same;
}

#define RESULT(ended_, packets_, failed_, hash_)                                                   \
    .ended = ended_, .packets = packets_, .failed = failed_, .hash = hash_

#define LOSES  .loss = 0.03, .duplicate = 0.02, .reorder = 0.03
#define ADAPTS .engine = {.adapts = true}

static const struct course courses[] = {
    {.name = "nothing is lost",
     .faults = {.seed = 1, .gbps = 10},
     RESULT(9004652, 5660, 0, 0x725db95a46891fe)},
    {.name = "packets are lost",
     .faults = {.seed = 2, LOSES},
     RESULT(9010769, 9404, 0, 0x1b826bb596e4e746)},
    {.name = "both adapt",
     .faults = {.seed = 3, LOSES, ADAPTS},
     RESULT(9004733, 6566, 0, 0x97c7ec8f056bb17d)},
    {.name = "both adapt on a longer way",
     .faults = {.seed = 4, LOSES, ADAPTS, .latency = 300000, .gbps = 5},
     RESULT(9141909, 8116, 0, 0x283246a939758a67)},
    {.name = "a peer that keeps nothing",
     .faults = {.seed = 5, LOSES, ADAPTS, .plain_peer = true},
     RESULT(9010737, 8422, 0, 0x1eae272246fdd360)},
    {.name = "a bottleneck",
     .faults = {.seed = 6, ADAPTS, .bottleneck_mbps = 200, .queue = 30000},
     RESULT(9106797, 8488, 0, 0x384f08fc6b2fa046)},
    {.name = "a bottleneck that marks",
     .faults = {.seed = 7, ADAPTS, .bottleneck_mbps = 500, .queue = 60000, .mark_at = 10000},
     RESULT(9040931, 8555, 0, 0xd5246b1add7b3295)},
    {.name = "much is late",
     .faults = {.seed = 8, ADAPTS, .reorder = 0.3, .late = 30000, .duplicate = 0.1},
     RESULT(9006742, 7689, 0, 0xbc7730063553cc1e)},
    {.name = "messages begin anew",
     .faults = {.seed = 9, .loss = 0.01, .engine = {.restart = true}},
     RESULT(9004344, 6463, 0, 0x8aece1e4ac0303cb)},
    {.name = "small windows",
     .faults = {.seed = 10, LOSES, .engine = {.window_bytes = 8192, .ack_bytes = 3000, .burst = 2}},
     RESULT(9011987, 7965, 0, 0x331032e89b6b3f2d)},
    {.name = "small windows that adapt",
     .faults = {.seed = 11,
                LOSES,
                .engine = {.window_bytes = 9000, .ack_bytes = 4000, .burst = 3, .adapts = true}},
     RESULT(9003893, 6433, 0, 0x88704d4d68b7f677)},
    {.name = "receives that come late",
     .opcodes = SENDS | READS,
     .patience = 40,
     .faults = {.seed = 12, .loss = 0.01},
     RESULT(9020725, 12935, 0, 0xceeae38f03cd12f3)},
    {.name = "receives that come late to a shared queue, both adapt",
     .opcodes = SENDS | WRITES,
     .patience = 30,
     .srq = true,
     .faults = {.seed = 13, .loss = 0.01, ADAPTS},
     RESULT(9006582, 10671, 0, 0xbb92dabb99e76a73)},
    {.name = "receives that come too late",
     .opcodes = SENDS | WRITES,
     .patience = 300,
     .rnr_retry = 2,
     .faults = {.seed = 14},
     RESULT(9028284, 1196, 180, 0x554446b8041f4d3e)},
    {.name = "an outage without end",
     .retry_cnt = 3,
     .cut = MS / 50,
     .mend = 1000000 * MS,
     .faults = {.seed = 15},
     RESULT(9015642, 1712, 324, 0x4080d79203638924)},
    {.name = "an outage without end, both adapt",
     .retry_cnt = 2,
     .cut = MS / 50,
     .mend = 1000000 * MS,
     .faults = {.seed = 16, ADAPTS},
     RESULT(9015642, 1651, 324, 0xffcef41a5723ea25)},
    {.name = "an outage, both adapt",
     .timeout = 14,
     .cut = MS / 5,
     .mend = 90 * MS,
     .faults = {.seed = 17, ADAPTS, .latency = 30000, .gbps = 10},
     RESULT(9412642, 7742, 0, 0xbf07a8b1c057af5d)},
    {.name = "a short outage",
     .cut = MS / 8,
     .mend = MS / 2,
     .faults = {.seed = 18, ADAPTS, .gbps = 10},
     RESULT(9008309, 6757, 0, 0x42e55ac8b2cb1e38)},
    {.name = "wrong bits",
     .damages = true,
     .faults = {.seed = 19},
     RESULT(9006473, 4677, 127, 0x7f413ff6d43848ab)},
    {.name = "wrong bits, both adapt",
     .damages = true,
     .faults = {.seed = 20, ADAPTS},
     RESULT(9012767, 3371, 207, 0xf932c1d65a0a6be0)},
    {.name = "READs and atomics in small packets",
     .mtu = 256,
     .opcodes = READS | ATOMICS,
     .faults = {.seed = 21, LOSES},
     RESULT(9013157, 22033, 0, 0xed559e6ce0b25823)},
    {.name = "READs and atomics in small packets, both adapt",
     .mtu = 256,
     .opcodes = READS | ATOMICS,
     .faults = {.seed = 22, LOSES, ADAPTS},
     RESULT(9004723, 10560, 0, 0x3cd94a5099e4694c)},
    {.name = "long messages, both adapt",
     .mtu = 4096,
     .opcodes = ALL,
     .longest = 50000,
     .faults = {.seed = 23, LOSES, ADAPTS, .gbps = 20},
     RESULT(9009619, 10555, 0, 0x3b4b705e382a827c)},
    {.name = "no bytes, a short queue",
     .qps = 6,
     .opcodes = WRITES | READS,
     .longest = 50000,
     .faults = {.seed = 24,
                .bottleneck_mbps = 1000,
                .queue = 20000,
                .engine = {.virtual_payload = true, .adapts = true}},
     RESULT(9363812, 102454, 0, 0x21034ec3cd5d676c)},
    {.name = "READs that are asked for again and again",
     .mtu = 256,
     .opcodes = READS | ATOMICS,
     .longest = 20000,
     .requests = 200,
     .faults = {.seed = 31, .loss = 0.08, .duplicate = 0.3, .reorder = 0.2, .late = 40000},
     RESULT(9031697, 89019, 324, 0x8bdc1af34d0316e7)},
    {.name = "READs that are asked for again and again, both adapt",
     .mtu = 256,
     .opcodes = READS | ATOMICS,
     .longest = 20000,
     .requests = 200,
     .faults = {.seed = 32, .loss = 0.08, .duplicate = 0.3, .reorder = 0.2, .late = 40000, ADAPTS},
     RESULT(9037083, 58858, 0, 0xc07cae854cb0e5a4)},
    {.name = "one connection that loses much",
     .qps = 1,
     .requests = 300,
     .under_way = 30,
     .faults = {.seed = 33, .loss = 0.15, .duplicate = 0.1, .reorder = 0.1, ADAPTS},
     RESULT(9030104, 8883, 0, 0x2e7de9b5295809c1)},
    {.name = "six connections to a peer that keeps nothing",
     .qps = 6,
     .requests = 150,
     .faults = {.seed = 34,
                .loss = 0.02,
                .latency = 80000,
                .bottleneck_mbps = 800,
                .queue = 40000,
                .plain_peer = true,
                ADAPTS},
     RESULT(9190583, 28027, 0, 0xe419a63ef6df6183)},
    {.name = "few retries and many losses",
     .retry_cnt = 1,
     .rnr_retry = 1,
     .patience = 12,
     .faults = {.seed = 35, .loss = 0.2, .latency = 100000},
     RESULT(9012339, 791, 369, 0xbe3abbbfe5c73bfb)},
    {.name = "few retries and many losses, both adapt",
     .retry_cnt = 1,
     .rnr_retry = 1,
     .patience = 12,
     .faults = {.seed = 36, .loss = 0.25, .latency = 100000, ADAPTS},
     RESULT(9028960, 518, 470, 0x1c7bdd4707bedb21)},
    {.name = "connections that are made anew",
     .requests = 300,
     .resets = 150,
     .faults = {.seed = 41, LOSES},
     RESULT(9010674, 25413, 0, 0x6b2d42114cb99eb4)},
    {.name = "connections that are made anew, both adapt",
     .requests = 300,
     .resets = 100,
     .faults = {.seed = 42, LOSES, ADAPTS},
     RESULT(9004585, 14893, 0, 0xa40e7df2446181e)},
    {.name = "connections that are made anew at a bottleneck",
     .qps = 5,
     .requests = 400,
     .resets = 80,
     .faults = {.seed = 43,
                .loss = 0.05,
                .latency = 50000,
                .bottleneck_mbps = 300,
                .queue = 20000,
                ADAPTS},
     RESULT(9204359, 20308, 0, 0xe1d4d22dc0e72a1c)},
    {.name = "unreliable connections",
     .type = IBV_QPT_UC,
     .opcodes = WRITES | SENDS,
     .faults = {.seed = 25, LOSES},
     RESULT(9003000, 6622, 0, 0xf4ed48c0844e7cc6)},
    {.name = "unreliable connections without receives",
     .type = IBV_QPT_UC,
     .opcodes = SENDS,
     .patience = 50,
     .faults = {.seed = 26, LOSES, ADAPTS},
     RESULT(9003000, 6507, 0, 0x7ae41bff9edea532)},
};

static void connections_go_as_they_went(void)
{
    bool same = true;

    for (size_t i = 0; i < sizeof(courses) / sizeof(courses[0]); ++i)
        same &= goes_as_it_went(&courses[i]);
    CHECK(same);
}

int main(void)
{
    mallopt(M_PERTURB, 0x5a); /* what was not written is not 0 */
    RUN(connections_go_as_they_went);
    return 0;
}
