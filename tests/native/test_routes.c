// SPDX-License-Identifier: Apache-2.0
/*
 * Forwarding tables of simulated switches (event/table.h): what a table says against the rows that
 * it was set from, and addresses with more than 16 bits. tests/sim/test_forwarding.py tests how
 * Python makes tables.
 */
#include "check.h"
#include "event/switch.h"
#include "routes.h"
#include "wire/bytes.h"

enum { PORTS = 48, TARGETS = 1000, WIDTH = 3, SWITCHES = 1 };

static const struct vb_world_host_calls no_hosts;

struct fixture {
    struct vb_world *world;
    struct vb_world_switch *sw[SWITCHES];
};

static void routes_open(struct fixture *fixture)
{
    struct vb_world_switch_config config = {.ports = PORTS};
    uint32_t node;

    CHECK_EQ(vb_world_create(1, &no_hosts, NULL, &fixture->world), 0);
    for (int i = 0; i < SWITCHES; ++i) {
        CHECK_EQ(vb_world_switch_create(&config, &fixture->sw[i]), 0);
        CHECK_EQ(vb_world_add_switch(fixture->world, fixture->sw[i], &node), 0);
    }
}

/* Up to WIDTH ports of a target; `salt` makes different tables. */
static void fill(int32_t rows[][WIDTH], uint32_t targets, uint32_t salt)
{
    for (uint32_t i = 0; i < targets; ++i)
        for (uint32_t k = 0; k < WIDTH; ++k)
            rows[i][k] = k < (i + salt) % (WIDTH + 1) ? (int32_t)((i * 7 + k + salt) % PORTS) : -1;
}

static void table_is(const struct vb_world *world, const struct vb_world_switch *sw,
                     int32_t rows[][WIDTH], uint32_t targets)
{
    const struct vb_world_table *table = &sw->table;

    for (uint32_t i = 0; i < targets; ++i) {
        uint32_t entry = vb_world_table_entry(world->blocks, table, i + 1),
                 set = entry - VB_WORLD_PORT_SET, n = 0;

        while (n < WIDTH && rows[i][n] >= 0)
            ++n;
        if (n < 2) {
            CHECK_EQ(entry, n ? rows[i][0] : VB_WORLD_NO_PORT);
            continue;
        }
        CHECK_EQ(table->set[set + 1] - table->set[set], n);
        for (uint32_t k = 0; k < n; ++k)
            CHECK_EQ(table->member[table->set[set] + k], rows[i][k]);
    }
    CHECK_EQ(vb_world_table_entry(world->blocks, table, 0), VB_WORLD_NO_PORT);
    CHECK_EQ(vb_world_table_entry(world->blocks, table, targets + 1), VB_WORLD_NO_PORT);
    CHECK_EQ(vb_world_table_entry(world->blocks, table, UINT32_MAX), VB_WORLD_NO_PORT);
}

static void a_table_has_what_was_set(void)
{
    static int32_t rows[TARGETS][WIDTH];
    static const uint32_t lengths[] = {
        0, 1, VB_WORLD_BLOCK - 1, VB_WORLD_BLOCK, VB_WORLD_BLOCK + 1, TARGETS};
    struct fixture fixture;

    routes_open(&fixture);
    for (uint32_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); ++i) {
        fill(rows, lengths[i], i);
        CHECK_EQ(vb_world_set_routes(fixture.world, fixture.sw[0], rows[0], lengths[i], WIDTH), 0);
        table_is(fixture.world, fixture.sw[0], rows, lengths[i]);
    }
    vb_world_destroy(fixture.world);
}

/* ---- hosts beyond 65,536 --------------------------------------------------------------------- */

struct seen {
    struct vb_world *world;
    uint32_t host, source, count;
};

static void take(void *context, uint32_t host, uint32_t packet)
{
    struct seen *seen = context;

    seen->host = host;
    seen->source = vb_world_packet_at(seen->world->partition, packet)->source;
    ++seen->count;
    vb_world_pool_give(&seen->world->partition->pool, packet);
}

static void ignore(void *context, uint32_t host)
{
    (void)context;
    (void)host;
}

/* One switch whose table has 200,000 destinations; a few of them have hosts. */
static void a_packet_finds_a_host_beyond_16_bits(void)
{
    static const uint32_t linked[] = {0, 65535, 65536, 131071, 199999};
    enum { HOSTS = 200000, LINKED = sizeof(linked) / sizeof(linked[0]) };
    static const struct vb_world_host_calls calls = {.arrive = take, .ready = ignore};
    static int32_t row[HOSTS];
    struct vb_world_link link = {.rate = 100000000000, .delay = 1000};
    struct vb_world_switch_config config = {.ports = LINKED};
    struct vb_world_switch *sw;
    struct seen seen = {0};
    uint32_t node[LINKED], any, center;

    CHECK_EQ(vb_world_create(1, &calls, &seen, &seen.world), 0);
    for (uint32_t i = 0; i < HOSTS; ++i)
        CHECK_EQ(vb_world_add_host(seen.world, &any), 0);
    CHECK_EQ(vb_world_switch_create(&config, &sw), 0);
    CHECK_EQ(vb_world_add_switch(seen.world, sw, &center), 0);
    memset(row, 0xff, sizeof(row));
    for (uint32_t i = 0; i < LINKED; ++i) {
        node[i] = linked[i]; /* hosts were added first */
        row[linked[i]] = (int32_t)i;
        CHECK_EQ(vb_world_connect(seen.world, node[i], 0, center, i, &link), 0);
    }
    CHECK_EQ(vb_world_set_routes(seen.world, sw, row, HOSTS, 1), 0);
    for (uint32_t from = 0; from < LINKED; ++from)
        for (uint32_t to = 0; to < LINKED; ++to) {
            uint32_t packet = vb_world_pool_take(&seen.world->partition->pool), before = seen.count;

            *vb_world_packet_at(seen.world->partition, packet) = (struct vb_world_packet){
                .source = linked[from] + 1, .target = linked[to] + 1, .bytes = 100};
            vb_world_send(seen.world->partition, node[from], packet);
            CHECK_EQ(vb_world_run(seen.world, VB_WORLD_NEVER, UINT64_MAX), VB_WORLD_END_EMPTY);
            CHECK_EQ(seen.count, before + 1);
            CHECK_EQ(seen.host, linked[to]);
            CHECK_EQ(seen.source, linked[from] + 1);
        }
    vb_world_destroy(seen.world);
}

/* The port of two by which the switch forwards; `qp` is what else distinguishes a flow. */
static uint32_t way_of(struct seen *seen, uint32_t source, uint32_t target, uint32_t qp)
{
    struct vb_world_packet packet = {.source = source + 1, .target = target + 1};

    vb_wire_put24(packet.header + 5, qp);
    return vb_world_switch_route(seen->world, seen->world->node[0].sw, 0, &packet);
}

/* Each bit of a flow's numbers decides: of flows that differ in it some go another way. */
static void each_bit_of_a_flow_chooses_its_way(void)
{
    enum { TARGETS_MANY = 1 << 18, FLOWS = 64 };
    static int32_t rows[TARGETS_MANY][2];
    const struct vb_world_switch_config config = {.ports = 2};
    struct vb_world_link link = {.rate = 100000000000, .delay = 1000};
    struct vb_world_switch *sw;
    struct seen seen = {0};
    uint32_t node;

    CHECK_EQ(vb_world_create(1, &no_hosts, NULL, &seen.world), 0);
    CHECK_EQ(vb_world_switch_create(&config, &sw), 0);
    CHECK_EQ(vb_world_add_switch(seen.world, sw, &node), 0);
    for (uint32_t i = 0; i < 2; ++i) {
        CHECK_EQ(vb_world_add_host(seen.world, &node), 0);
        CHECK_EQ(vb_world_connect(seen.world, node, 0, 0, i, &link), 0);
    }
    for (uint32_t i = 0; i < TARGETS_MANY; ++i)
        rows[i][1] = 1;
    CHECK_EQ(vb_world_set_routes(seen.world, sw, rows[0], TARGETS_MANY, 2), 0);
    for (uint32_t bit = 0; bit < 24; ++bit) {
        uint32_t other[3] = {0}; /* ways of flows that differ in source, target, QP number */

        for (uint32_t flow = 0; flow < FLOWS; ++flow) {
            uint32_t qp = flow * 1000003 % (1 << 24), way = way_of(&seen, 5, 9, qp);

            other[0] += way_of(&seen, 5 ^ 1u << bit, 9, qp) != way;
            other[1] += bit >= 18 || way_of(&seen, 5, 9 ^ 1u << bit, qp) != way;
            other[2] += way_of(&seen, 5, 9, qp ^ 1u << bit) != way;
        }
        CHECK(other[0] > FLOWS / 8 && other[1] > FLOWS / 8 && other[2] > FLOWS / 8);
    }
    vb_world_destroy(seen.world);
}

int main(void)
{
    RUN(a_table_has_what_was_set);
    RUN(a_packet_finds_a_host_beyond_16_bits);
    RUN(each_bit_of_a_flow_chooses_its_way);
    return 0;
}
