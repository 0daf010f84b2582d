// SPDX-License-Identifier: Apache-2.0
/*
 * Forwarding tables of simulated switches (event/table.h): what a table says against the rows that
 * it was set from, equal blocks of several switches, tables that change, and numbers of hosts with
 * more than 16 bits.
 */
#include "check.h"
#include "event/switch.h"
#include "starved.h"
#include "wire/bytes.h"

enum { PORTS = 48, TARGETS = 1000, WIDTH = 3, SWITCHES = 4 };

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

static void table_is(const struct vb_world_switch *sw, int32_t rows[][WIDTH], uint32_t targets)
{
    for (uint32_t i = 0; i < targets; ++i) {
        uint32_t entry = vb_world_table_entry(&sw->table, i), set = entry - VB_WORLD_PORT_SET,
                 n = 0;

        while (n < WIDTH && rows[i][n] >= 0)
            ++n;
        if (n < 2) {
            CHECK_EQ(entry, n ? rows[i][0] : VB_WORLD_NO_PORT);
            continue;
        }
        CHECK_EQ(sw->table.set[set + 1] - sw->table.set[set], n);
        for (uint32_t k = 0; k < n; ++k)
            CHECK_EQ(sw->table.member[sw->table.set[set] + k], rows[i][k]);
    }
    CHECK_EQ(vb_world_table_entry(&sw->table, targets), VB_WORLD_NO_PORT);
    CHECK_EQ(vb_world_table_entry(&sw->table, UINT32_MAX), VB_WORLD_NO_PORT);
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
        table_is(fixture.sw[0], rows, lengths[i]);
    }
    vb_world_destroy(fixture.world);
}

static void equal_blocks_are_stored_once(void)
{
    static int32_t rows[TARGETS][WIDTH];
    const uint32_t blocks = (TARGETS + VB_WORLD_BLOCK - 1) / VB_WORLD_BLOCK;
    struct fixture fixture;

    routes_open(&fixture);
    fill(rows, TARGETS, 0);
    for (int i = 0; i < SWITCHES; ++i)
        CHECK_EQ(vb_world_set_routes(fixture.world, fixture.sw[i], rows[0], TARGETS, WIDTH), 0);
    CHECK(fixture.world->blocks.count <= blocks);
    fill(rows, TARGETS, 1);
    CHECK_EQ(vb_world_set_routes(fixture.world, fixture.sw[0], rows[0], TARGETS, WIDTH), 0);
    table_is(fixture.sw[0], rows, TARGETS);
    fill(rows, TARGETS, 0);
    table_is(fixture.sw[1], rows, TARGETS); /* the others keep theirs */
    for (int i = 0; i < SWITCHES; ++i)
        CHECK_EQ(vb_world_set_routes(fixture.world, fixture.sw[i], rows[0], 0, WIDTH), 0);
    CHECK_EQ(fixture.world->blocks.count, 0);
    vb_world_destroy(fixture.world);
}

/* Many different blocks, so that the chains grow; then half of them go. */
static void changing_tables_leave_nothing_behind(void)
{
    static int32_t row[64 * VB_WORLD_BLOCK];
    struct fixture fixture;

    routes_open(&fixture);
    for (uint32_t round = 0; round < 40; ++round) {
        for (uint32_t i = 0; i < 64 * VB_WORLD_BLOCK; ++i)
            row[i] = (int32_t)(vb_world_mix(i + (uint64_t)round % 10 * 1000000) % PORTS);
        CHECK_EQ(vb_world_set_routes(fixture.world, fixture.sw[round % SWITCHES], row,
                                     64 * VB_WORLD_BLOCK, 1),
                 0);
        for (uint32_t i = 0; i < 64 * VB_WORLD_BLOCK; ++i)
            CHECK_EQ(vb_world_table_entry(&fixture.sw[round % SWITCHES]->table, i), row[i]);
    }
    CHECK(fixture.world->blocks.count <= SWITCHES * 64);
    CHECK(fixture.world->blocks.count > 64);
    vb_world_destroy(fixture.world);
    CHECK_EQ(starved_blocks(), 0);
}

/*
 * However often the chains grow, each block is found again, and freed with its last user. With
 * these numbers the first and the last chain have blocks whenever they grow.
 */
static void many_blocks_are_found_again(void)
{
    enum { BLOCKS = 2000 };
    static int32_t row[BLOCKS * VB_WORLD_BLOCK];
    struct fixture fixture;

    routes_open(&fixture);
    for (uint32_t i = 0; i < BLOCKS * VB_WORLD_BLOCK; ++i)
        row[i] = (int32_t)(vb_world_mix(i + 5000000) % PORTS);
    for (int i = 0; i < 2; ++i) {
        CHECK_EQ(vb_world_set_routes(fixture.world, fixture.sw[i], row, BLOCKS * VB_WORLD_BLOCK, 1),
                 0);
        CHECK_EQ(fixture.world->blocks.count, BLOCKS);
    }
    for (int i = 0; i < 2; ++i)
        CHECK_EQ(vb_world_set_routes(fixture.world, fixture.sw[i], row, 0, 1), 0);
    CHECK_EQ(fixture.world->blocks.count, 0);
    vb_world_destroy(fixture.world);
    CHECK_EQ(starved_blocks(), 0);
}

static void without_memory_there_is_no_route_and_no_leak(void)
{
    static int32_t rows[TARGETS][WIDTH];
    int failed = 0;

    fill(rows, TARGETS, 0);
    for (int allocations = 0;; ++allocations) {
        struct fixture fixture;
        int error;

        routes_open(&fixture);
        starved_after(allocations);
        error = vb_world_set_routes(fixture.world, fixture.sw[0], rows[0], TARGETS, WIDTH);
        if (!starved_end()) {
            CHECK_EQ(error, 0);
            vb_world_destroy(fixture.world);
            break;
        }
        CHECK_EQ(error, -ENOMEM);
        CHECK_EQ(vb_world_table_entry(&fixture.sw[0]->table, 0), VB_WORLD_NO_PORT);
        CHECK_EQ(vb_world_set_routes(fixture.world, fixture.sw[0], rows[0], TARGETS, WIDTH), 0);
        table_is(fixture.sw[0], rows, TARGETS);
        vb_world_destroy(fixture.world);
        ++failed;
    }
    CHECK(failed > 10);
    CHECK_EQ(starved_blocks(), 0);
}

/* More destinations than there may be sets of ports; neighbours and others have equal rows. */
static void equal_rows_share_a_set_of_ports(void)
{
    enum { MANY = 40000 };
    static int32_t rows[MANY][WIDTH];
    struct fixture fixture;

    routes_open(&fixture);
    for (int32_t i = 0; i < MANY; ++i) {
        rows[i][0] = i % 5;
        rows[i][1] = i % 7 ? 5 + i % 2 : -1;
        rows[i][2] = i % 3 ? 7 : -1;
    }
    CHECK_EQ(vb_world_set_routes(fixture.world, fixture.sw[0], rows[0], MANY, WIDTH), 0);
    CHECK_EQ(fixture.sw[0]->table.sets, 5 * 2 * 2);
    table_is(fixture.sw[0], rows, MANY);
    vb_world_destroy(fixture.world);
}

static void too_many_sets_are_refused(void)
{
    static int32_t rows[VB_WORLD_PORT_SET][WIDTH];
    struct fixture fixture;

    routes_open(&fixture);
    for (uint32_t i = 0; i < VB_WORLD_PORT_SET; ++i) {
        rows[i][0] = (int32_t)(i % PORTS);
        rows[i][1] = (int32_t)(i / PORTS % PORTS);
        rows[i][2] = (int32_t)(i / PORTS / PORTS);
    }
    CHECK_EQ(
        vb_world_set_routes(fixture.world, fixture.sw[0], rows[0], VB_WORLD_PORT_SET - 1, WIDTH),
        0);
    CHECK_EQ(vb_world_set_routes(fixture.world, fixture.sw[0], rows[0], VB_WORLD_PORT_SET, WIDTH),
             -EINVAL);
    CHECK_EQ(vb_world_table_entry(&fixture.sw[0]->table, 0), VB_WORLD_NO_PORT);
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
    seen->source = vb_world_packet_at(seen->world, packet)->source;
    ++seen->count;
    vb_world_pool_give(&seen->world->pool, packet);
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
            uint32_t packet = vb_world_pool_take(&seen.world->pool), before = seen.count;

            *vb_world_packet_at(seen.world, packet) = (struct vb_world_packet){
                .source = linked[from], .target = linked[to], .bytes = 100};
            vb_world_send(seen.world, node[from], packet);
            CHECK_EQ(vb_world_run(seen.world, VB_WORLD_NEVER, UINT64_MAX), VB_WORLD_END_EMPTY);
            CHECK_EQ(seen.count, before + 1);
            CHECK_EQ(seen.host, linked[to]);
            CHECK_EQ(seen.source, linked[from]);
        }
    vb_world_destroy(seen.world);
}

/* The port of two by which the switch forwards; `qp` is what else distinguishes a flow. */
static uint32_t way_of(struct seen *seen, uint32_t source, uint32_t target, uint32_t qp)
{
    struct vb_world_packet packet = {.source = source, .target = target};

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
    RUN(equal_blocks_are_stored_once);
    RUN(changing_tables_leave_nothing_behind);
    RUN(many_blocks_are_found_again);
    RUN(without_memory_there_is_no_route_and_no_leak);
    RUN(equal_rows_share_a_set_of_ports);
    RUN(too_many_sets_are_refused);
    RUN(a_packet_finds_a_host_beyond_16_bits);
    RUN(each_bit_of_a_flow_chooses_its_way);
    return 0;
}
