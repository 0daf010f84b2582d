// SPDX-License-Identifier: Apache-2.0
/* Lane arbitration: shares by weight, precedence of the high table, its limit. */
#include "check.h"
#include "event/arbiter.h"

enum { ROUNDS = 12000, PACKET = 4096 };

struct shares {
    uint32_t of[4];
};

static struct shares run(const struct vb_world_arbiter_tables *tables, uint32_t ready,
                         uint32_t bytes)
{
    struct vb_world_arbiter arbiter;
    uint32_t each[16];
    struct shares shares = {{0}};

    CHECK_EQ(vb_world_arbiter_init(&arbiter, tables), 0);
    for (int i = 0; i < 16; ++i)
        each[i] = bytes;
    for (int i = 0; i < ROUNDS; ++i) {
        int lane = vb_world_arbiter_pick(&arbiter, ready, each);

        CHECK(lane >= 0 && lane < 4);
        ++shares.of[lane];
    }
    vb_world_arbiter_free(&arbiter);
    return shares;
}

static void shares_follow_weights(void)
{
    struct vb_world_arbiter_tables tables = {.low = {{0, 64}, {1, 128}}, .low_count = 2};
    struct shares shares = run(&tables, 3, PACKET);

    CHECK_EQ(shares.of[0], ROUNDS / 3);
    CHECK_EQ(shares.of[1], ROUNDS * 2 / 3);
}

/* A weight less than a packet is overdrawn: with a memory the shares are exact all the same. */
static void a_memory_makes_small_weights_exact(void)
{
    struct vb_world_arbiter_tables tables = {
        .low = {{0, 10}, {1, 30}, {2, 60}}, .low_count = 3, .remembers = true};
    struct shares shares = run(&tables, 7, PACKET);

    for (int i = 0; i < 3; ++i)
        CHECK(abs((int)shares.of[i] - (int)(ROUNDS * tables.low[i].weight / 100)) <= 2);
    tables.remembers = false;
    shares = run(&tables, 7, PACKET);
    CHECK_EQ(shares.of[0], ROUNDS / 3); /* IBA 7.6.9.2: each entry sends a packet in its turn */
}

static void without_limit_the_high_table_takes_all(void)
{
    struct vb_world_arbiter_tables tables = {.high = {{1, 1}},
                                             .high_count = 1,
                                             .low = {{0, 255}},
                                             .low_count = 1,
                                             .high_limit = VB_WORLD_ARBITER_NO_LIMIT};
    struct shares shares = run(&tables, 3, PACKET);

    CHECK_EQ(shares.of[1], ROUNDS);
    CHECK_EQ(run(&tables, 1, PACKET).of[0], ROUNDS); /* what it leaves is the low one's */
}

static void the_limit_gives_the_low_table_its_chance(void)
{
    struct vb_world_arbiter_tables tables = {
        .high = {{1, 64}}, .high_count = 1, .low = {{0, 64}}, .low_count = 1, .high_limit = 3};

    CHECK_EQ(run(&tables, 3, PACKET).of[0], ROUNDS / 4); /* after 3 * 4096 bytes */
    tables.high_limit = 0;
    CHECK_EQ(run(&tables, 3, PACKET).of[0], ROUNDS / 2); /* after each packet */
}

/* Whoever is served for the limit's sake pays as all do: each table keeps its own shares. */
static void each_table_keeps_its_shares_beside_the_other(void)
{
    struct vb_world_arbiter_tables tables = {
        .high = {{0, 64}, {1, 128}}, .high_count = 2, .low = {{2, 64}, {3, 192}}, .low_count = 2};
    struct shares shares = run(&tables, 0xf, PACKET);

    CHECK_EQ(shares.of[0], ROUNDS / 6);
    CHECK_EQ(shares.of[1], ROUNDS / 3);
    CHECK_EQ(shares.of[2], ROUNDS / 8);
    CHECK_EQ(shares.of[3], ROUNDS * 3 / 8);
    tables.high_limit = 5; /* after five packets of the high one */
    shares = run(&tables, 0xf, PACKET);
    CHECK_EQ(shares.of[2] + shares.of[3], ROUNDS / 6);
    CHECK_EQ(shares.of[2], ROUNDS / 24);
    shares = run(&tables, 0xc, PACKET); /* the low one alone */
    CHECK_EQ(shares.of[2], ROUNDS / 4);
}

/* While the high table has nothing its limit is whole again. */
static void the_limit_begins_anew_with_each_low_packet(void)
{
    struct vb_world_arbiter_tables tables = {
        .high = {{1, 255}}, .high_count = 1, .low = {{0, 64}}, .low_count = 1, .high_limit = 2};
    static const uint8_t ready[] = {3, 1, 3, 3, 3, 3, 3}, picked[] = {1, 0, 1, 1, 0, 1, 1};
    struct vb_world_arbiter arbiter;
    uint32_t bytes[16] = {PACKET, PACKET};

    CHECK_EQ(vb_world_arbiter_init(&arbiter, &tables), 0);
    for (size_t i = 0; i < sizeof(ready); ++i)
        CHECK_EQ(vb_world_arbiter_pick(&arbiter, ready[i], bytes), picked[i]);
    /* With nothing in the low one, the high one goes on beyond it, and the limit begins anew. */
    for (int i = 0; i < 5; ++i)
        CHECK_EQ(vb_world_arbiter_pick(&arbiter, 2, bytes), 1);
    vb_world_arbiter_free(&arbiter);
}

static void an_entry_without_weight_is_skipped(void)
{
    struct vb_world_arbiter_tables tables = {.low = {{0, 0}, {1, 1}}, .low_count = 2};
    struct vb_world_arbiter arbiter;
    uint32_t bytes[16] = {PACKET, PACKET};

    CHECK_EQ(run(&tables, 3, PACKET).of[1], ROUNDS);
    CHECK_EQ(vb_world_arbiter_init(&arbiter, &tables), 0);
    CHECK_EQ(vb_world_arbiter_pick(&arbiter, 1, bytes), VB_WORLD_ARBITER_NONE);
    vb_world_arbiter_free(&arbiter);
}

int main(void)
{
    RUN(shares_follow_weights);
    RUN(a_memory_makes_small_weights_exact);
    RUN(without_limit_the_high_table_takes_all);
    RUN(the_limit_gives_the_low_table_its_chance);
    RUN(each_table_keeps_its_shares_beside_the_other);
    RUN(the_limit_begins_anew_with_each_low_packet);
    RUN(an_entry_without_weight_is_skipped);
    return 0;
}
