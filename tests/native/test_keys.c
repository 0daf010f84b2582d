// SPDX-License-Identifier: Apache-2.0
/* Keys of memory regions: nobody can guess one, and there are as many as ever. */
#include <time.h>

#include "check.h"
#include "fabric.h"
#include "memory/heap.h"
#include "starved.h"

enum { SOME = 1000, MANY = 1 << 20 };

static struct fabric fabric;

static struct vb_mr *reg(int side)
{
    struct side *s = &fabric.side[side];
    struct vb_mr *mr;

    CHECK_EQ(vb_mr_reg(s->pd, s->memory, 64, 0, IBV_ACCESS_LOCAL_WRITE, &mr), 0);
    CHECK(mr->ibv.rkey == mr->ibv.lkey && mr->ibv.rkey >> 8);
    return mr;
}

static double processor_seconds(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

static int compare(const void *left, const void *right)
{
    const uint32_t *a = left, *b = right;

    return (*a > *b) - (*a < *b);
}

/*
 * Each of the 32 bits is set in about so much of the keys, half, and changes as often, from one to
 * the next. `wide` is for what was given just after the window had doubled: its upper half is free
 * then and its lower one half full, so that one bit of the index is set in two thirds.
 */
static void look_random(const uint32_t *keys, bool wide)
{
    int least = wide ? SOME / 4 : SOME * 2 / 5;

    for (int bit = 0; bit < 32; ++bit) {
        int set = 0, changes = 0;

        for (int i = 0; i < SOME; ++i) {
            set += keys[i] >> bit & 1;
            changes += i && ((keys[i] ^ keys[i - 1]) >> bit & 1);
        }
        CHECK(set > least && set < SOME - least); /* over 5 standard deviations away */
        CHECK(changes > least && changes < SOME - least);
    }
}

static void keys_look_random_and_are_distinct(void)
{
    uint32_t keys[2][SOME];

    for (uint64_t side = 0; side < 2; ++side) {
        fabric_open(&fabric, (struct fabric_options){.seed = 1});
        for (int i = 0; i < SOME; ++i)
            keys[side][i] = reg((int)side)->ibv.rkey;
        fabric_close(&fabric);
        look_random(keys[side], false);
    }
    CHECK(memcmp(keys[0], keys[1], sizeof(keys[0])) != 0); /* their seeds differ */
    for (int side = 0; side < 2; ++side) {
        qsort(keys[side], SOME, sizeof(keys[0][0]), compare);
        for (int i = 1; i < SOME; ++i)
            CHECK(keys[side][i] >> 8 != keys[side][i - 1] >> 8);
    }
}

/* A simulated run is the same for the same seed. */
static void the_same_seed_gives_the_same_keys(void)
{
    uint32_t keys[2][10];

    for (int run = 0; run < 2; ++run) {
        fabric_open(&fabric, (struct fabric_options){.seed = 1});
        for (int i = 0; i < 10; ++i)
            keys[run][i] = reg(0)->ibv.rkey;
        fabric_close(&fabric);
    }
    CHECK_EQ(memcmp(keys[0], keys[1], sizeof(keys[0])), 0);
}

static void a_stale_key_names_nothing(void)
{
    struct vb_view *view;
    const struct vb_mr_shared *entry;

    fabric_open(&fabric, (struct fabric_options){.seed = 1});
    view = &fabric.side[0].adapter.self;
    for (int i = 0; i < 20000; ++i) {
        struct vb_mr *mr = reg(0);
        uint32_t old = mr->ibv.rkey, pd = fabric.side[0].pd->number;

        CHECK_EQ(vb_mr_check(view, pd, old, 0, 64, 0, &entry), VB_CHECK_OK);
        CHECK_EQ(
            vb_mr_rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, fabric.side[0].memory, 64, 0),
            0);
        CHECK(mr->ibv.rkey >> 8 != old >> 8); /* all of it is new */
        CHECK_EQ(mr->ibv.lkey, mr->ibv.rkey);
        CHECK_EQ(
            vb_mr_check(view, pd, mr->ibv.rkey, (uintptr_t)fabric.side[0].memory, 64, 0, &entry),
            VB_CHECK_OK);
        CHECK_EQ(vb_mr_check(view, pd, old, 0, 64, 0, &entry), VB_CHECK_KEY);
        old = mr->ibv.rkey;
        CHECK_EQ(vb_mr_dereg(mr), 0);
        CHECK_EQ(vb_mr_check(view, pd, old, 0, 64, 0, &entry), VB_CHECK_KEY);
        mr = reg(0);
        CHECK(mr->ibv.rkey != old);
        CHECK_EQ(vb_mr_dereg(mr), 0);
    }
    fabric_close(&fabric);
}

static void a_region_whose_access_alone_changes_keeps_its_key(void)
{
    struct vb_mr *mr;
    uint32_t key;

    fabric_open(&fabric, (struct fabric_options){.seed = 1});
    mr = reg(0);
    key = mr->ibv.rkey;
    CHECK_EQ(vb_mr_rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ), 0);
    CHECK_EQ(mr->ibv.rkey, key);
    fabric_close(&fabric);
}

static void key_zero_names_nothing(void)
{
    const struct vb_mr_shared *entry;

    fabric_open(&fabric, (struct fabric_options){.seed = 1});
    for (uint32_t key = 0; key < 256; ++key)
        CHECK_EQ(vb_mr_check(&fabric.side[0].adapter.self, fabric.side[0].pd->number, key, 0, 0, 0,
                             &entry),
                 VB_CHECK_KEY);
    fabric_close(&fabric);
}

/* Every number but 0 at most once, half of them; what is returned can be taken again. */
static void entries_are_given_out_once(void)
{
    struct vb_random random = {.key = {5}};
    struct vb_keys keys = {.entries = VB_MR_ENTRIES};
    uint8_t *seen = calloc(VB_MR_ENTRIES, 1);
    double before = processor_seconds();
    uint32_t index;

    CHECK(seen);
    for (uint32_t i = 1; i <= VB_MAX_MR; ++i) {
        CHECK_EQ(vb_keys_take(&keys, &random, &index), 0);
        CHECK(index && index < keys.window && !seen[index]);
        CHECK(keys.window >= 1 << 16 && keys.window >= 2 * i);
        seen[index] = 1;
    }
    CHECK_EQ(vb_keys_take(&keys, &random, &index), -ENOMEM);
    vb_keys_return(&keys, index);
    CHECK_EQ(vb_keys_take(&keys, &random, &index), 0);
    CHECK_EQ(vb_keys_take(&keys, &random, &index), -ENOMEM);
    printf("  %.0f ns each, up to the last\n", (processor_seconds() - before) * 1e9 / VB_MAX_MR);
    vb_keys_free(&keys);
    free(seen);
}

/* As where the system limits the size of files. */
static void half_of_a_small_table_is_given_out(void)
{
    struct vb_random random = {.key = {6}};
    struct vb_keys keys = {.entries = 2 * VB_MR_WINDOW};
    uint32_t index;

    for (uint32_t i = 0; i < VB_MR_WINDOW; ++i) {
        CHECK_EQ(vb_keys_take(&keys, &random, &index), 0);
        CHECK(index < keys.entries);
    }
    CHECK_EQ(vb_keys_take(&keys, &random, &index), -ENOMEM);
    vb_keys_free(&keys);
}

/* Keys that were given in each window, and no two with one name. */
static void look_random_in_all_windows(struct vb_mr **mr)
{
    uint8_t *seen = calloc(VB_MR_ENTRIES, 1);
    uint32_t keys[SOME];

    CHECK(seen);
    for (int i = 0; i < MANY; ++i)
        CHECK_EQ(seen[mr[i]->ibv.rkey >> 8]++, 0);
    free(seen);
    for (int first = 0; first + SOME <= MANY; first += MANY / 64) {
        for (int i = 0; i < SOME; ++i)
            keys[i] = mr[first + i]->ibv.rkey;
        look_random(keys, true);
    }
}

/* In processor time; the bounds are loose, for a sanitizer's sake. */
static void a_million_registrations(void)
{
    struct vb_mr **mr = malloc(MANY * sizeof(struct vb_mr *));
    const struct vb_mr_shared *entry;
    double start;

    CHECK(mr);
    fabric_open(&fabric, (struct fabric_options){.seed = 1});
    start = processor_seconds();
    for (int i = 0; i < MANY; ++i)
        mr[i] = reg(0);
    printf("  %.0f ns each\n", (processor_seconds() - start) * 1e9 / MANY);
    CHECK(processor_seconds() - start < 30);
    CHECK_EQ(fabric.side[0].adapter.keys.window, 1 << 22);
    look_random_in_all_windows(mr);
    for (int i = 0; i < MANY; ++i)
        CHECK_EQ(vb_mr_check(&fabric.side[0].adapter.self, fabric.side[0].pd->number,
                             mr[i]->ibv.rkey, 0, 64, 0, &entry),
                 VB_CHECK_OK);
    start = processor_seconds();
    for (int i = 0; i < MANY; ++i)
        CHECK_EQ(vb_mr_dereg(mr[i]), 0);
    printf("  %.0f ns each, to deregister\n", (processor_seconds() - start) * 1e9 / MANY);
    CHECK_EQ(fabric.side[0].adapter.keys.count, 2); /* 0, and the side's own region */
    fabric_close(&fabric);
    free(mr);
}

/* Test vector of SipHash's authors: key 00…0f, message 00…07. */
static void the_generator_is_siphash(void)
{
    struct vb_random random = {{0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull},
                               0x0706050403020100ull};

    CHECK(vb_random_next(&random) == 0x93f5f5799a932462ull);
    CHECK(vb_random_next(&random) != 0x93f5f5799a932462ull);
}

/* The window that is there goes on to give out entries, up to its last. */
static void without_memory_the_window_stays(void)
{
    struct vb_random random = {.key = {7}};
    struct vb_keys keys = {.entries = 8 * VB_MR_WINDOW};
    uint32_t index;

    for (int allocation = 0; allocation < 2; ++allocation) {
        starved_after(allocation);
        CHECK_EQ(vb_keys_take(&keys, &random, &index), -ENOMEM);
        CHECK(starved_end());
    }
    for (uint32_t i = 1; i < VB_MR_WINDOW; ++i) {
        starved_after(i == 1 ? 9 : 0);
        CHECK_EQ(vb_keys_take(&keys, &random, &index), 0);
        starved_end();
        CHECK_EQ(keys.window, VB_MR_WINDOW);
    }
    starved_after(0);
    CHECK_EQ(vb_keys_take(&keys, &random, &index), -ENOMEM);
    CHECK(starved_end());
    CHECK_EQ(vb_keys_take(&keys, &random, &index), 0);
    CHECK_EQ(keys.window, 2 * VB_MR_WINDOW);
    vb_keys_free(&keys);
}

/* A receive request that was looked at in one process's epoch is of no other process's: they are
 * far from each other, and none is 0, which stands for a request that was not looked at. */
static void the_epochs_of_adapters_are_apart(void)
{
    static const uint32_t instances[] = {1, 2, 3, 1u << 16, 1u << 31, (1u << 31) + 1, UINT32_MAX};
    enum { COUNT = sizeof(instances) / sizeof(instances[0]) };
    uint64_t epochs[COUNT];

    for (int i = 0; i < COUNT; ++i) {
        static struct hand_port port;
        static struct vb_adapter adapter;
        struct vb_heap *segment;

        CHECK_EQ(vb_memory_heap_create(4ull << 30, &segment), 0);
        CHECK_EQ(vb_adapter_create(segment, NULL, &port.port, instances[i], 7, &adapter), 0);
        epochs[i] = vb_mr_epoch(&adapter.self);
        CHECK(epochs[i] != 0);
        for (int j = 0; j < i; ++j) {
            uint64_t apart = epochs[i] > epochs[j] ? epochs[i] - epochs[j] : epochs[j] - epochs[i];

            CHECK(apart >= 1ull << 32);
        }
        vb_adapter_destroy(&adapter);
        vb_memory_heap_destroy(segment);
    }
}

int main(void)
{
    RUN(the_generator_is_siphash);
    RUN(keys_look_random_and_are_distinct);
    RUN(the_same_seed_gives_the_same_keys);
    RUN(a_stale_key_names_nothing);
    RUN(a_region_whose_access_alone_changes_keeps_its_key);
    RUN(key_zero_names_nothing);
    RUN(entries_are_given_out_once);
    RUN(half_of_a_small_table_is_given_out);
    RUN(without_memory_the_window_stays);
    RUN(a_million_registrations);
    RUN(the_epochs_of_adapters_are_apart);
    return 0;
}
