// SPDX-License-Identifier: Apache-2.0
/*
 * Flows of every kind over fabrics that mark, drop and pause, with each congestion control, and
 * what came of them: the courses of simulated hosts. A course is the hash of all flows at many
 * times, of counters, and of the packets that captures have written. A change of any rule moves it:
 * the test prints what it found, and a change that is meant puts that into the table.
 */
#include <malloc.h>
#include <unistd.h>

#include "check.h"
#include "dcqcn_sets.h"
#include "event/switch.h"
#include "hca/counters.h"
#include "routes.h"
#include "sim/capture.h"
#include "sim/state.h"
#include "starved.h"
#include "yard.h"

enum { HOSTS = 5, STEPS = 40, CAPTURES = 2, FLOWS_MOST = 64, SNAP = 200 };

#define US 1000000ull

static const uint64_t GBPS = 1000000000;

static struct vb_sim *sim;
static struct vb_world *world;
static uint64_t hash, chance;
static char folder[] = "/tmp/verbena-flows-XXXXXX";
static char path[CAPTURES][64];
static uint32_t captures;

static void see(uint64_t value)
{
    hash = vb_world_mix(hash * 31 + value);
}

static uint32_t draw(uint32_t below)
{
    return (uint32_t)((vb_world_splitmix(&chance) >> 32) * below >> 32);
}

/* ---- building -------------------------------------------------------------------------------- */

static void capture(uint32_t node, uint32_t port, uint32_t bytes)
{
    snprintf(path[captures], sizeof(path[0]), "%s/%u.pcapng", folder, captures);
    CHECK_EQ(vb_sim_capture(sim, node, port, path[captures++], bytes, false), 0);
}

/* A switch is node 0, and host i is at its port i; the links of the last host are slow, and lose
 * some packets with `errors`. */
static void star(struct vb_sim_config config, struct vb_world_switch_config sw, double errors)
{
    int32_t routes[HOSTS];
    uint32_t node;

    captures = 0;
    chance = 3;
    config.seed = 5;
    sw.ports = HOSTS;
    CHECK_EQ(vb_sim_create(&config, &sim), 0);
    world = vb_sim_world(sim);
    yard_switch(world, &sw);
    for (uint32_t i = 0; i < HOSTS; ++i) {
        const struct vb_world_link link = {.rate = i == HOSTS - 1 ? 40 * GBPS : 100 * GBPS,
                                           .delay = US / 2 + i * 1000,
                                           .bit_error_rate = i == HOSTS - 1 ? errors : 0};

        CHECK_EQ(vb_sim_add_host(sim, &node), 0);
        CHECK_EQ(vb_world_connect(world, node, 0, 0, i, &link), 0);
        routes[i] = (int32_t)i;
    }
    CHECK_EQ(vb_world_set_routes(world, world->node[0].sw, routes, HOSTS, 1), 0);
}

static struct vb_sim_flow draw_flow(void)
{
    static const uint8_t opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND};
    uint32_t source = draw(HOSTS);

    return (struct vb_sim_flow){.source = source,
                                .target = (source + 1 + draw(HOSTS - 1)) % HOSTS,
                                .bytes = 1 + draw(120000),
                                .start = draw(60) * US,
                                .message = 1 + draw(40000),
                                .depth = (uint8_t)(1 + draw(6)),
                                .opcode = opcodes[draw(3)],
                                .level = (uint8_t)draw(3),
                                .back_level = (uint8_t)draw(3)};
}

static void add(const struct vb_sim_flow *flow, uint64_t count,
                const struct vb_sim_dependency *after, uint64_t afters)
{
    uint64_t bad;

    CHECK_EQ(vb_sim_check_flows(sim, flow, count, &bad), 0);
    CHECK_EQ(vb_sim_add_flows(sim, flow, count, after, afters), 0);
}

/* Half of the flows are for the last host. */
static void add_flows(uint32_t count)
{
    struct vb_sim_flow flow[FLOWS_MOST];

    for (uint32_t i = 0; i < count; ++i) {
        flow[i] = draw_flow();
        if (i % 2 && flow[i].source != HOSTS - 1)
            flow[i].target = HOSTS - 1;
    }
    add(flow, count, NULL, 0);
}

static void add_unreliable_flows(uint32_t count, uint32_t groups)
{
    struct vb_sim_flow flow[FLOWS_MOST];

    for (uint32_t i = 0; i < count; ++i) {
        flow[i] = draw_flow();
        flow[i].opcode = IBV_WR_SEND;
        flow[i].type = i % 2 ? IBV_QPT_UC : IBV_QPT_UD;
        if (flow[i].type == IBV_QPT_UC)
            continue;
        flow[i].message = 1 + draw(1024);
        flow[i].management = draw(4) == 0;
        if (groups && draw(2)) {
            flow[i].target = draw(groups);
            flow[i].to_group = true;
        }
    }
    add(flow, count, NULL, 0);
}

static void add_streams(uint32_t count)
{
    struct vb_sim_flow flow[FLOWS_MOST];

    for (uint32_t i = 0; i < count; ++i) {
        flow[i] = draw_flow();
        flow[i].type = VB_SIM_FLOW_TCP;
        flow[i].opcode = (uint8_t)(i % VB_TCP_KINDS);
        if (i % 2 && flow[i].source != HOSTS - 1)
            flow[i].target = HOSTS - 1;
    }
    add(flow, count, NULL, 0);
}

/* ---- running --------------------------------------------------------------------------------- */

static void see_flows(void)
{
    uint64_t count;
    const struct vb_sim_flow *flow = vb_sim_flows(sim, &count);

    for (uint64_t i = 0; i < count; ++i) {
        see(flow[i].start);
        see(flow[i].finish);
        see(flow[i].done);
        see(flow[i].lost);
        see(vb_sim_flow_done(sim, &flow[i]));
        for (int end = 0; end < 2; ++end) {
            see(flow[i].end[end].resent | (uint64_t)flow[i].end[end].marked << 32);
            see(flow[i].end[end].notices);
        }
        see(flow[i].waits);
        see(flow[i].state | (uint64_t)flow[i].status << 8);
    }
    see(vb_sim_flows_left(sim));
}

static void see_hosts(void)
{
    for (uint32_t i = 0; i < HOSTS; ++i) {
        const uint64_t *counter = (const uint64_t *)vb_sim_host_counters(sim, i);
        const struct vb_sim_cct_log *log = vb_sim_host_cct_log(sim, i);

        for (uint32_t j = 0; j < VB_COUNTER_COUNT; ++j)
            see(counter[j]);
        see(log ? log->events : 0);
        for (uint32_t j = 0; log && j < VB_CCT_LOG; ++j)
            see(log->event[j].at + log->event[j].flow);
    }
    for (uint32_t i = 0; i < world->ports; ++i) {
        see(world->port[i].traffic.bytes);
        see(world->port[i].traffic.queued_max);
        see(world->port[i].traffic.marked);
        see(world->port[i].traffic.dropped[VB_WORLD_DROP_FULL]);
        see(world->port[i].reserved_rate + world->port[i].reserved_buffer);
    }
    see(sim->table.slots - sim->table.free_slots);
    see(world->partition->events);
}

/* The packets of a pcapng file (enhanced packet blocks); its head has the version of Verbena. */
static void see_capture(const char *name)
{
    FILE *file = fopen(name, "rb");
    uint32_t head[2], word;

    CHECK(file);
    while (fread(head, sizeof(head), 1, file) == 1) {
        see(head[0]);
        for (uint32_t i = sizeof(head); i < head[1]; i += sizeof(word)) {
            CHECK_EQ(fread(&word, sizeof(word), 1, file), 1);
            if (head[0] == 6)
                see(word);
        }
    }
    fclose(file);
    CHECK_EQ(unlink(name), 0);
}

static int run(void)
{
    int end = VB_WORLD_END_TIME;
    char text[200];

    for (uint32_t step = 0; step < STEPS && end == VB_WORLD_END_TIME; ++step) {
        end = vb_world_run(world, world->now + 5 * US, UINT64_MAX);
        see_flows();
    }
    if (end == VB_WORLD_END_TIME)
        end = vb_world_run(world, VB_WORLD_NEVER, UINT64_MAX);
    CHECK(!vb_world_check(world, true, text, sizeof(text)));
    see(world->now);
    see_flows();
    see_hosts();
    CHECK_EQ(vb_sim_captures_lost(sim), 0);
    return end;
}

/* ---- courses: congestion --------------------------------------------------------------------- */

static struct vb_world_switch_config marking(void)
{
    return (struct vb_world_switch_config){
        .buffer = 150000, .mark = {5000, 40000, 0.3}, .fecn = 20000};
}

static void without_control(void)
{
    struct vb_sim_config config = vb_sim_defaults();

    config.framing = VB_SIM_BARE;
    config.timeout = 4;
    config.nic.doorbell = 300000;
    config.nic.receive_latency = 200000;
    config.nic.bus_rate = 150 * GBPS;
    star(config, (struct vb_world_switch_config){.buffer = 60000}, 1e-6);
    add_flows(40);
}

static void a_message_begins_anew(void)
{
    struct vb_sim_config config = vb_sim_defaults();

    config.mtu = 1024;
    config.timeout = 5;
    config.engine.restart = true;
    config.engine.ack_bytes = 4096;
    star(config, (struct vb_world_switch_config){.buffer = 100000}, 5e-7);
    add_flows(20);
}

static void few_retries(void)
{
    struct vb_sim_config config = vb_sim_defaults();

    config.mtu = 2048;
    config.timeout = 3;
    config.retry_cnt = 1;
    config.rd_atomic = 1;
    config.hop_limit = 9;
    star(config, (struct vb_world_switch_config){.buffer = 40000}, 1e-6);
    CHECK_EQ(vb_world_set_link(world, 0, 2, false, 30 * US), 0);
    CHECK_EQ(vb_world_set_link(world, 0, 2, true, 45 * US), 0);
    capture(0, 2, SNAP);
    add_flows(40);
}

static struct vb_sim_config controlled(enum vb_congestion_kind kind)
{
    struct vb_sim_config config = vb_sim_defaults();

    config.timeout = 6;
    config.nic.congestion.kind = kind;
    return config;
}

static void dcqcn_of_the_paper(void)
{
    struct vb_sim_config config = controlled(VB_CONGESTION_DCQCN);

    config.nic.congestion.dcqcn = dcqcn_paper();
    star(config, marking(), 0);
    capture(0, HOSTS - 1, SNAP);
    add_flows(40);
    add_unreliable_flows(10, 0);
}

static void dcqcn_of_adapters(void)
{
    struct vb_sim_config config = controlled(VB_CONGESTION_DCQCN);

    config.nic.congestion.dcqcn = dcqcn_adapter();
    config.nic.congestion.notice_interval = 0;
    config.nic.notice_level = 6;
    config.nic.receive_latency = 100000;
    star(config, marking(), 3e-7);
    add_flows(40);
}

static void congestion_control_tables(void)
{
    struct vb_sim_config config = controlled(VB_CONGESTION_CCT);
    struct vb_world_switch_config sw = yard_lanes(2, VB_WORLD_CREDITS, 32 << 10);

    config.framing = VB_SIM_INFINIBAND;
    config.nic.congestion.notice_interval = 0;
    config.nic.congestion.cct = (struct vb_cct_config){.entry = {0, 1, 3, 7, 15}, .limit = 4};
    for (uint32_t i = 0; i < VB_CCT_LEVELS; ++i)
        config.nic.congestion.cct.level[i] =
            (struct vb_cct_level){.timer = 20 * US, .increase = 1, .trigger = 2};
    sw.fecn = 8000;
    sw.fecn_at = VB_WORLD_FECN_OUTPUT;
    star(config, sw, 0);
    add_flows(40);
}

static void hpcc(void)
{
    struct vb_sim_config config = controlled(VB_CONGESTION_HPCC);

    config.nic.congestion.hpcc =
        (struct vb_hpcc_config){.base_rtt = 5 * US, .target = 0.95, .add = 2000, .stages = 5};
    star(config, (struct vb_world_switch_config){.buffer = 150000}, 2e-7);
    add_flows(40);
    add_unreliable_flows(6, 0);
}

/* Two hosts with InfiniBand, of which the others are no peers. */
static void two_framings(void)
{
    struct vb_sim_config config = vb_sim_defaults();
    struct vb_sim_flow flow;
    uint64_t bad;

    config.mtu = 256;
    star(config, marking(), 0);
    CHECK_EQ(vb_sim_set_framing(sim, 1, VB_SIM_INFINIBAND), 0);
    CHECK_EQ(vb_sim_set_framing(sim, 2, VB_SIM_INFINIBAND), 0);
    CHECK_EQ(vb_sim_set_framing(sim, HOSTS, VB_SIM_BARE), -EINVAL);
    for (uint32_t i = 0; i < 30; ++i) {
        flow = draw_flow();
        bool is_peer =
            (flow.source == 1 || flow.source == 2) == (flow.target == 1 || flow.target == 2);

        CHECK_EQ(vb_sim_check_flows(sim, &flow, 1, &bad), is_peer ? 0 : -EHOSTUNREACH);
        if (is_peer)
            CHECK_EQ(vb_sim_add_flows(sim, &flow, 1, NULL, 0), 0);
    }
}

/* ---- courses: other flows -------------------------------------------------------------------- */

static void streams(uint64_t jitter, bool ecn)
{
    struct vb_sim_config config = vb_sim_defaults();

    config.tcp.first_rto = 300 * US;
    config.tcp.least_rto = 200 * US;
    config.tcp.most_rto = 2000 * US;
    config.tcp.ack_delay = ecn ? 40 * US : 0;
    config.tcp.ecn = ecn;
    config.tcp.window = 1 << 17;
    config.tcp_jitter = jitter;
    config.hop_limit = ecn ? 12 : 0;
    star(config, (struct vb_world_switch_config){.buffer = 30000, .mark = {4000, 15000, 0.5}},
         1e-7);
    capture(0, HOSTS - 1, SNAP);
    capture(0, 0, 128);
    add_streams(24);
    add_flows(6);
}

static void tcp_streams(void)
{
    streams(VB_SIM_JITTER_AUTO, false);
}

static void tcp_streams_with_marks(void)
{
    streams(3 * US, true);
}

static void tcp_streams_without_jitter(void)
{
    streams(0, true);
}

static void unreliable_flows_and_groups(void)
{
    const uint32_t members[] = {0, 2, 4}, others[] = {1, 3};
    const uint16_t ports[] = {0, 1, 2, 3, 4};
    struct vb_sim_config config = vb_sim_defaults();
    struct vb_world_switch_config sw = yard_pauses(false);
    uint32_t group;

    sw.management = 4000;
    sw.lane[2].alpha = 0.2;
    config.nic.doorbell = 200000;
    star(config, sw, 1e-6);
    CHECK_EQ(vb_sim_add_group(sim, members, 3, &group), 0);
    CHECK_EQ(vb_world_switch_set_group(world->node[0].sw, group, ports, HOSTS), 0);
    CHECK_EQ(vb_sim_add_group(sim, others, 2, &group), 0);
    CHECK_EQ(vb_world_switch_set_group(world->node[0].sw, group, ports, HOSTS), 0);
    capture(0, 2, SNAP);
    add_unreliable_flows(40, 2);
}

static void reserved_flows(void)
{
    struct vb_sim_flow flow[FLOWS_MOST];
    struct vb_sim_config config = vb_sim_defaults();

    config.timeout = 5;
    star(config, (struct vb_world_switch_config){.buffer = 120000}, 0);
    world->node[0].sw->reservable = 120000 - 10 * 140;
    add_flows(20);
    for (uint32_t i = 0; i < 20; ++i) {
        flow[i] = draw_flow();
        flow[i].start = 5 * US * i;
        flow[i].reserve = (1 + draw(12)) * GBPS;
        flow[i].message = 4096;
        flow[i].depth = 2;
        flow[i].buffer = i % 3 ? 20000 : 0;
    }
    add(flow, 20, NULL, 0);
}

/* A tree of flows, each of which begins some time after two others. */
static void flows_after_others(void)
{
    struct vb_sim_flow flow[30];
    struct vb_sim_dependency after[58];
    uint32_t count = 0;

    star(vb_sim_defaults(), (struct vb_world_switch_config){0}, 0);
    for (uint32_t i = 0; i < 30; ++i) {
        flow[i] = draw_flow();
        if (i % 4 == 3)
            flow[i].type = IBV_QPT_UC;
        if (i % 4 == 3)
            flow[i].opcode = IBV_WR_RDMA_WRITE;
        flow[i].start = i ? draw(3) * US : 0;
        for (uint32_t j = 1; j < 3 && j <= i; ++j)
            after[count++] = (struct vb_sim_dependency){(i - j) / j, i};
    }
    add(flow, 30, after, count);
}

struct course {
    const char *name;
    void (*make)(void);
    int end;
    uint64_t events, hash; /* what came of it */
};

#define COURSE(make, end, events, hash) {#make, make, end, events, hash}

static const struct course courses[] = {
    COURSE(without_control, 2, 15333, 0x23d39996553f084f),
    COURSE(a_message_begins_anew, 2, 9814, 0x50de28d903c5717),
    COURSE(few_retries, 2, 9755, 0xea4b0048165b3882),
    COURSE(dcqcn_of_the_paper, 2, 12014, 0x16064f14d582257c),
    COURSE(dcqcn_of_adapters, 2, 13455, 0xd030a501f1fe4aab),
    COURSE(congestion_control_tables, 2, 10660, 0x345268110cda7af0),
    COURSE(hpcc, 2, 12558, 0xe869d217cde39b1d),
    COURSE(two_framings, 2, 15510, 0x2098ac21d1f85e73),
    COURSE(tcp_streams, 2, 6822, 0xce6655f06d455346),
    COURSE(tcp_streams_with_marks, 2, 5791, 0x9b5a8eb617c403bd),
    COURSE(tcp_streams_without_jitter, 2, 5171, 0xd2779482528158c4),
    COURSE(unreliable_flows_and_groups, 2, 132323, 0xc908e94aaecce79e),
    COURSE(reserved_flows, 2, 8322, 0x873fb968cc8c40d),
    COURSE(flows_after_others, 2, 2004, 0x1bfad4b044bf9086),
};

static void flows_go_as_they_went(void)
{
    bool differs = false;

    CHECK(mkdtemp(folder));
    for (size_t i = 0; i < sizeof(courses) / sizeof(courses[0]); ++i) {
        const struct course *of = &courses[i];
        long blocks = starved_blocks();
        uint64_t events;
        int end;

        hash = 0;
        of->make();
        end = run();
        events = world->partition->events;
        vb_sim_destroy(sim);
        CHECK_EQ(starved_blocks(), blocks);
        for (uint32_t j = 0; j < captures; ++j)
            see_capture(path[j]);
        if (end != of->end || events != of->events || hash != of->hash) {
            printf("    COURSE(%s, %d, %llu, 0x%llx),\n", of->name, end, (unsigned long long)events,
                   (unsigned long long)hash);
            differs = true;
        }
    }
    CHECK_EQ(rmdir(folder), 0);
    CHECK(!differs);
}

int main(void)
{
    mallopt(M_PERTURB, 0x5a); /* what was not written is not 0 */
    RUN(flows_go_as_they_went);
    return 0;
}
