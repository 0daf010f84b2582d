// SPDX-License-Identifier: Apache-2.0
/*
 * Packet-hops per wall second of the simulated fabric, with the whole packet engine: one packet,
 * data or acknowledgement, over one link is one hop. W1: 64 senders into one host. W2, W3, W4: a
 * random permutation on a k-ary fat-tree, k = 8, 16, 32. 1 MiB for each flow, 100 Gb/s, 1 us for
 * each link. Not a part of the test-suite:
 *   cmake --build BUILD --target bench_fabric && BUILD/bench/bench_fabric [W1|W2|W3|W4] [MiB]
 * [lanes]
 */
#include <inttypes.h>
#include <stdbool.h>
#include <time.h>

#include "check.h"
#include "event/switch.h"
#include "routes.h"
#include "sim/sim.h"

struct tree {
    uint32_t k, half, hosts, edges, aggregations, cores;
    uint32_t *host, *edge, *aggregation, *core; /* nodes */
};

static struct vb_sim *sim;
static struct vb_world *world;
static bool lanes;

static double seconds(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static struct vb_world_switch *new_switch(uint32_t ports)
{
    struct vb_world_switch_config config = {.ports = ports};
    struct vb_world_switch *sw;

    if (lanes) {
        config.lanes = 2;
        for (int i = 0; i < 2; ++i) {
            config.lane[i].flow =
                (struct vb_world_lane_config){.flow_control = VB_WORLD_CREDITS, .room = 64 << 10};
            config.tables.low[i] = (struct vb_world_arbiter_entry){(uint8_t)i, 64};
        }
        config.tables.low_count = 2;
    }
    CHECK_EQ(vb_world_switch_create(&config, &sw), 0);
    return sw;
}

static uint32_t add_switch(uint32_t ports)
{
    uint32_t node;

    CHECK_EQ(vb_world_add_switch(world, new_switch(ports), &node), 0);
    return node;
}

static void connect(uint32_t a, uint32_t a_port, uint32_t b, uint32_t b_port)
{
    struct vb_world_link link = {.rate = 100000000000, .delay = 1000000};

    CHECK_EQ(vb_world_connect(world, a, a_port, b, b_port, &link), 0);
}

static void open_world(void)
{
    struct vb_sim_config config = vb_sim_defaults();

    config.framing = VB_SIM_BARE;
    CHECK_EQ(vb_sim_create(&config, &sim), 0);
    world = vb_sim_world(sim);
}

static void set_routes(uint32_t node, const int32_t *ports, uint32_t hosts)
{
    CHECK_EQ(vb_world_set_routes(world, world->node[node].sw, ports, hosts, 1), 0);
}

static void one_switch(uint32_t hosts)
{
    int32_t *ports = malloc(hosts * sizeof(*ports));
    uint32_t node, sw;

    open_world();
    sw = add_switch(hosts);
    for (uint32_t i = 0; i < hosts; ++i) {
        CHECK_EQ(vb_sim_add_host(sim, &node), 0);
        connect(node, 0, sw, i);
        ports[i] = (int32_t)i;
    }
    set_routes(sw, ports, hosts);
    free(ports);
}

static uint32_t *nodes(uint32_t count)
{
    uint32_t *made = malloc(count * sizeof(*made));

    CHECK(made);
    return made;
}

/* Ports 0 to k/2 - 1 go down, the others up; a core switch has one for each pod. */
static void wire_tree(const struct tree *tree)
{
    uint32_t half = tree->half;

    for (uint32_t h = 0; h < tree->hosts; ++h)
        connect(tree->host[h], 0, tree->edge[h / half], h % half);
    for (uint32_t e = 0; e < tree->edges; ++e)
        for (uint32_t up = 0; up < half; ++up)
            connect(tree->edge[e], half + up, tree->aggregation[e / half * half + up], e % half);
    for (uint32_t a = 0; a < tree->aggregations; ++a)
        for (uint32_t up = 0; up < half; ++up)
            connect(tree->aggregation[a], half + up, tree->core[a % half * half + up], a / half);
}

/* d-mod-k: the way up is told by the target's number. */
static void route_tree(const struct tree *tree)
{
    uint32_t half = tree->half;
    int32_t *ports = malloc(tree->hosts * sizeof(*ports));

    for (uint32_t e = 0; e < tree->edges; ++e) {
        for (uint32_t h = 0; h < tree->hosts; ++h)
            ports[h] = (int32_t)(h / half == e ? h % half : half + h % half);
        set_routes(tree->edge[e], ports, tree->hosts);
    }
    for (uint32_t a = 0; a < tree->aggregations; ++a) {
        for (uint32_t h = 0; h < tree->hosts; ++h)
            ports[h] =
                (int32_t)(h / half / half == a / half ? h / half % half : half + h / half % half);
        set_routes(tree->aggregation[a], ports, tree->hosts);
    }
    for (uint32_t c = 0; c < tree->cores; ++c) {
        for (uint32_t h = 0; h < tree->hosts; ++h)
            ports[h] = (int32_t)(h / half / half);
        set_routes(tree->core[c], ports, tree->hosts);
    }
    free(ports);
}

static uint32_t fat_tree(uint32_t k)
{
    uint32_t half = k / 2;
    struct tree tree = {.k = k,
                        .half = half,
                        .hosts = k * half * half,
                        .edges = k * half,
                        .aggregations = k * half,
                        .cores = half * half};

    open_world();
    tree.host = nodes(tree.hosts);
    tree.edge = nodes(tree.edges);
    tree.aggregation = nodes(tree.aggregations);
    tree.core = nodes(tree.cores);
    for (uint32_t i = 0; i < tree.hosts; ++i)
        CHECK_EQ(vb_sim_add_host(sim, &tree.host[i]), 0);
    for (uint32_t i = 0; i < tree.edges; ++i)
        tree.edge[i] = add_switch(k);
    for (uint32_t i = 0; i < tree.aggregations; ++i)
        tree.aggregation[i] = add_switch(k);
    for (uint32_t i = 0; i < tree.cores; ++i)
        tree.core[i] = add_switch(k);
    wire_tree(&tree);
    route_tree(&tree);
    free(tree.host);
    free(tree.edge);
    free(tree.aggregation);
    free(tree.core);
    return tree.hosts;
}

static uint32_t random_below(uint32_t limit)
{
    static uint64_t state = 88172645463325252ull;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32) % limit;
}

static void add_flow(uint32_t source, uint32_t target, uint64_t bytes)
{
    struct vb_sim_flow flow = {
        .source = source, .target = target, .bytes = bytes, .opcode = IBV_WR_RDMA_WRITE};

    CHECK_EQ(vb_sim_add_flows(sim, &flow, 1, NULL, 0), 0);
}

/* Nobody sends to itself (Sattolo's shuffle makes one cycle). */
static void permutation(uint32_t hosts, uint64_t bytes)
{
    uint32_t *to = nodes(hosts);

    for (uint32_t i = 0; i < hosts; ++i)
        to[i] = i;
    for (uint32_t i = hosts - 1; i; --i) {
        uint32_t j = random_below(i), kept = to[i];

        to[i] = to[j];
        to[j] = kept;
    }
    for (uint32_t i = 0; i < hosts; ++i)
        add_flow(i, to[i], bytes);
    free(to);
}

static uint64_t hops(void)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < world->ports; ++i)
        sum += world->port[i].traffic.packets;
    return sum;
}

static void run(const char *name, double set_up)
{
    char text[200];
    double begin = seconds(CLOCK_MONOTONIC), used = seconds(CLOCK_PROCESS_CPUTIME_ID), end;
    const struct vb_sim_flow *flow;
    uint64_t count, last = 0;
    const char *wrong;
    int why = vb_world_run(world, VB_WORLD_NEVER, UINT64_MAX);

    end = seconds(CLOCK_MONOTONIC);
    used = seconds(CLOCK_PROCESS_CPUTIME_ID) - used;
    CHECK(why == VB_WORLD_END_EMPTY);
    wrong = vb_world_check(world, true, text, sizeof(text));
    if (wrong)
        fprintf(stderr, "%s\n", wrong);
    CHECK(!wrong);
    flow = vb_sim_flows(sim, &count);
    for (uint64_t i = 0; i < count; ++i) {
        CHECK_EQ(flow[i].state, VB_FLOW_DONE);
        last = flow[i].finish > last ? flow[i].finish : last;
    }
    printf("%s: %9" PRIu64 " hops, %9" PRIu64 " events, %6.3f s (set up %.3f s): %6.2f M hops/s "
           "(%.2f of processor time), %.2f events/hop; the last flow ended at %.3f us\n",
           name, hops(), world->partition->events, end - begin, set_up,
           (double)hops() / (end - begin) / 1e6, (double)hops() / used / 1e6,
           (double)world->partition->events / (double)hops(), (double)last / 1e6);
    vb_sim_destroy(sim);
}

static void measure(const char *name, uint64_t bytes)
{
    double begin = seconds(CLOCK_MONOTONIC);

    if (strcmp(name, "W1") == 0) {
        one_switch(65);
        for (uint32_t i = 1; i <= 64; ++i)
            add_flow(i, 0, bytes);
    } else {
        permutation(fat_tree(strcmp(name, "W2") == 0   ? 8
                             : strcmp(name, "W3") == 0 ? 16
                                                       : 32),
                    bytes);
    }
    run(name, seconds(CLOCK_MONOTONIC) - begin);
}

int main(int argc, char **argv)
{
    uint64_t bytes = (uint64_t)(argc > 2 ? atoi(argv[2]) : 1) << 20;

    lanes = argc > 3;
    if (argc > 1) {
        measure(argv[1], bytes);
        return 0;
    }
    measure("W1", bytes);
    measure("W2", bytes);
    measure("W3", bytes);
    return 0;
}
