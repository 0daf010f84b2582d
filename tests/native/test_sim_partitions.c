// SPDX-License-Identifier: Apache-2.0
/*
 * A world that several threads run, each a part of its nodes, is to the bit the world that one
 * thread runs: flows, ports, counters of adapters, samples and captures at many times. The worlds
 * have rings of switches, with each flow control and each congestion control. The number of events
 * may differ: a port learns at other times of credits on their way, and looks again in vain.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "dcqcn_sets.h"
#include "event/sample.h"
#include "hca/counters.h"
#include "routes.h"
#include "sim/capture.h"
#include "sim/state.h"
#include "yard.h"

enum { SWITCHES = 6, EACH = 3, HOSTS = SWITCHES * EACH, STEPS = 60, FLOWS = 60 };

#define US 1000000ull

static const uint64_t GBPS = 1000000000;

static struct vb_sim *sim;
static struct vb_world *world;
static uint64_t hash, chance;
static char path[] = "/tmp/verbena-partitions-XXXXXX";

static void see(uint64_t value)
{
    hash = vb_world_mix(hash * 31 + value);
}

static uint32_t draw(uint32_t below)
{
    return (uint32_t)((vb_world_splitmix(&chance) >> 32) * below >> 32);
}

/* ---- building -------------------------------------------------------------------------------- */

/* The switches are nodes 0 to SWITCHES - 1; ports EACH and EACH + 1 lead around the ring. */
static void connect_ring(double errors)
{
    int32_t routes[HOSTS];

    for (uint32_t i = 0; i < SWITCHES; ++i) {
        const struct vb_world_link link = {
            .rate = 100 * GBPS, .delay = US / 2 + i * 1000, .bit_error_rate = i ? 0 : errors};

        CHECK_EQ(vb_world_connect(world, i, EACH, (i + 1) % SWITCHES, EACH + 1, &link), 0);
    }
    for (uint32_t i = 0; i < SWITCHES; ++i) {
        for (uint32_t h = 0; h < HOSTS; ++h) {
            uint32_t ahead = (h / EACH + SWITCHES - i) % SWITCHES;

            routes[h] = (int32_t)(!ahead ? h % EACH : ahead <= SWITCHES / 2 ? EACH : EACH + 1);
        }
        CHECK_EQ(vb_world_set_routes(world, world->node[i].sw, routes, HOSTS, 1), 0);
    }
}

static void open_ring(struct vb_sim_config config, struct vb_world_switch_config sw, double errors)
{
    uint32_t node;

    chance = 7;
    config.seed = 11;
    sw.ports = EACH + 2;
    CHECK_EQ(vb_sim_create(&config, &sim), 0);
    world = vb_sim_world(sim);
    world->worth_a_thread = 0;
    for (uint32_t i = 0; i < SWITCHES; ++i)
        yard_switch(world, &sw);
    for (uint32_t i = 0; i < HOSTS; ++i) {
        const struct vb_world_link link = {.rate = (i % 4 ? 100 : 40) * GBPS,
                                           .delay = US / 2 + i * 100};

        CHECK_EQ(vb_sim_add_host(sim, &node), 0);
        CHECK_EQ(vb_world_connect(world, node, 0, i / EACH, i % EACH, &link), 0);
    }
    connect_ring(errors);
}

static void add_flows(uint8_t type)
{
    static const uint8_t opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND};
    struct vb_sim_flow flow[FLOWS];
    struct vb_sim_dependency after[] = {{0, 1}, {1, 2}, {3, 2}};

    for (uint32_t i = 0; i < FLOWS; ++i) {
        uint32_t source = draw(HOSTS);

        flow[i] = (struct vb_sim_flow){
            .source = source,
            .target = (source + 1 + draw(HOSTS - 1)) % HOSTS,
            .bytes = 1 + draw(200000),
            .start = world->now + draw(40) * US,
            .message = type == IBV_QPT_UD ? 1 + draw(1024) : 1 + draw(60000),
            .depth = (uint8_t)(1 + draw(6)),
            .opcode = type == IBV_QPT_RC ? opcodes[draw(3)] : IBV_WR_SEND,
            .type = type,
            .level = (uint8_t)draw(3),
            .back_level = (uint8_t)draw(3),
        };
        if (i && i < 3)
            flow[i].start = draw(3) * US;
        if (i % 3 == 0)
            flow[i].target = source ? 0 : 1;
    }
    CHECK_EQ(vb_sim_add_flows(sim, flow, FLOWS, after, 3), 0);
}

static struct vb_world_switch_config lossy(void)
{
    return (struct vb_world_switch_config){
        .buffer = 60000, .mark = {5000, 30000, 0.5}, .fecn = 20000, .fecn_rate = 2};
}

static struct vb_sim_config reacting(enum vb_congestion_kind kind)
{
    struct vb_sim_config config = vb_sim_defaults();

    config.timeout = 4;
    config.nic.congestion.kind = kind;
    config.nic.congestion.notice_interval = 0;
    if (kind == VB_CONGESTION_DCQCN)
        config.nic.congestion.dcqcn = dcqcn_adapter();
    if (kind == VB_CONGESTION_HPCC)
        config.nic.congestion.hpcc =
            (struct vb_hpcc_config){.base_rtt = 10 * US, .target = 0.95, .stages = 5, .add = 80};
    return config;
}

static void queues_with_losses(void)
{
    open_ring(reacting(VB_CONGESTION_DCQCN), lossy(), 1e-7);
}

static void credits(void)
{
    open_ring(reacting(VB_CONGESTION_NONE), yard_lanes(3, VB_WORLD_CREDITS, 32768), 0);
}

static void pauses(void)
{
    open_ring(reacting(VB_CONGESTION_DCQCN), yard_pauses(true), 1e-8);
}

static void windows_by_telemetry(void)
{
    open_ring(reacting(VB_CONGESTION_HPCC), yard_pauses(false), 0);
}

static void slow_adapters(void)
{
    struct vb_sim_config config = reacting(VB_CONGESTION_NONE);

    config.nic.doorbell = 300000;
    config.nic.bus_rate = 60 * GBPS;
    config.nic.receive_latency = 700000;
    open_ring(config, lossy(), 0);
}

/* ---- running --------------------------------------------------------------------------------- */

static void see_world(void)
{
    uint64_t count;
    const struct vb_sim_flow *flow = vb_sim_flows(sim, &count);

    for (uint64_t i = 0; i < count; ++i) {
        see(flow[i].finish ^ vb_sim_flow_done(sim, &flow[i]) << 20 ^ flow[i].lost);
        see(flow[i].state | (uint64_t)flow[i].status << 8);
        for (int end = 0; end < 2; ++end)
            see(flow[i].end[end].resent | (uint64_t)flow[i].end[end].marked << 20 |
                (uint64_t)flow[i].end[end].notices << 40);
    }
    for (uint32_t i = 0; i < world->ports; ++i) {
        struct vb_world_port_counters traffic = vb_world_traffic(world, &world->port[i]);
        const uint64_t *counter = (const uint64_t *)&traffic;

        for (size_t j = 0; j < sizeof(traffic) / sizeof(*counter); ++j)
            see(counter[j]);
    }
    for (uint32_t i = 0; i < HOSTS; ++i) {
        const uint64_t *counter = (const uint64_t *)vb_sim_host_counters(sim, i);

        for (uint32_t j = 0; j < VB_COUNTER_COUNT; ++j)
            see(counter[j]);
    }
    see(world->now);
    see(vb_world_sums(world).in_use);
}

static void see_file(void)
{
    FILE *file = fopen(path, "rb");
    int byte;

    CHECK(file != NULL);
    while ((byte = fgetc(file)) != EOF)
        see((uint64_t)byte);
    fclose(file);
}

static void see_samples(uint32_t number)
{
    const struct vb_world_sampler *sampler = world->sampler[number];

    see(sampler->rows);
    for (uint64_t i = 0; i < sampler->rows * sampler->queues; ++i)
        see(sampler->sample[i].bytes | (uint64_t)sampler->sample[i].credits << 32);
}

/* ---- the system's threads -------------------------------------------------------------------- */

static uint32_t threads_left = UINT32_MAX;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *context);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *context);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *context)
{
    if (!threads_left)
        return EAGAIN;
    --threads_left;
    return __real_pthread_create(thread, attributes, start, context);
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Halfway, flows come for which the world must not be divided. */
static uint64_t hash_of(void (*open)(void), uint32_t threads)
{
    const struct vb_world_sampled_queue queue[] = {{0, 0}, {1, 0}, {5, 0}};
    uint32_t sampler;

    hash = 0;
    open();
    world->threads = threads;
    CHECK_EQ(vb_world_add_sampler(world, queue, 3, 777777, 5, 1000, &sampler), 0);
    CHECK_EQ(vb_sim_capture(sim, 2, EACH, path, 200, false), 0);
    CHECK_EQ(vb_world_set_link(world, 1, EACH, false, 20 * US), 0);
    CHECK_EQ(vb_world_set_link(world, 1, EACH, true, 26 * US), 0);
    add_flows(IBV_QPT_RC);
    for (int step = 0; step < STEPS; ++step) {
        int end = vb_world_run(world, world->now + 2222222, UINT64_MAX);

        CHECK(end == VB_WORLD_END_TIME || end == VB_WORLD_END_EVENTS || end == VB_WORLD_END_EMPTY);
        see((uint64_t)end);
        see_world();
        if (step == 5) /* the tap and the dependencies of flows join three pairs of switches */
            CHECK_EQ(world->partitions, threads < SWITCHES - 3 ? threads : SWITCHES - 3);
        if (step == STEPS / 2)
            add_flows(IBV_QPT_UD);
    }
    CHECK_EQ(world->partitions, 1);
    see((uint64_t)vb_world_run(world, VB_WORLD_NEVER, UINT64_MAX));
    see_world();
    see_samples(sampler);
    vb_sim_destroy(sim);
    see_file();
    return hash;
}

static void threads_change_nothing(void)
{
    static void (*const worlds[])(void) = {queues_with_losses, credits, pauses,
                                           windows_by_telemetry, slow_adapters};
    static const uint32_t threads[] = {2, 3, 5, 8};
    uint64_t seen[sizeof(worlds) / sizeof(worlds[0])];
    int file = mkstemp(path);

    CHECK(file >= 0);
    close(file);
    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); ++i) {
        seen[i] = hash_of(worlds[i], 1);
        for (size_t j = 0; j < i; ++j)
            CHECK(seen[i] != seen[j]);
        for (size_t j = 0; j < sizeof(threads) / sizeof(threads[0]); ++j)
            CHECK_EQ(hash_of(worlds[i], threads[j]), seen[i]);
    }
    CHECK_EQ(unlink(path), 0);
}

/* A run to the end without a capture; `fork_at`: the step at which a child takes over. */
static uint64_t plain_hash(uint32_t threads, int fork_at)
{
    hash = 0;
    pauses();
    world->threads = threads;
    add_flows(IBV_QPT_RC);
    for (int step = 0; step < STEPS; ++step) {
        CHECK(vb_world_run(world, world->now + 2222222, UINT64_MAX) >= 0);
        see_world();
        if (step == fork_at && fork()) {
            int status;

            CHECK(wait(&status) > 0);
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
            fork_at = -1; /* and goes on itself */
        }
    }
    CHECK_EQ(world->partitions, threads);
    vb_sim_destroy(sim);
    if (fork_at >= 0) {
        uint64_t seen = hash;

        _exit(seen != plain_hash(1, -1));
    }
    return hash;
}

/* The child of a fork has the world, and none of its threads. */
static void a_child_runs_all_parts_itself(void)
{
    CHECK_EQ(plain_hash(3, 10), plain_hash(1, -1));
}

static void a_system_without_threads_runs_them_in_one(void)
{
    uint64_t expected = plain_hash(1, -1);

    for (threads_left = 0; threads_left < 2; ++threads_left) {
        uint32_t left = threads_left;

        CHECK_EQ(plain_hash(3, -1), expected);
        threads_left = left;
    }
    threads_left = UINT32_MAX;
}

int main(void)
{
    RUN(threads_change_nothing);
    RUN(a_child_runs_all_parts_itself);
    RUN(a_system_without_threads_runs_them_in_one);
    return 0;
}
