// SPDX-License-Identifier: Apache-2.0
/* Keys of memory regions: nobody can guess one, and there are as many as ever. */
#include <time.h>

#include "check.h"
#include "fabric.h"

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

/* Each of the 24 unknown bits is set in about half of the keys, and in a random half. */
static void look_random(const uint32_t *keys)
{
    for (int bit = 0; bit < 24; ++bit) {
        int set = 0, changes = 0;

        for (int i = 0; i < SOME; ++i) {
            set += keys[i] >> bit & 1;
            changes += i && ((keys[i] ^ keys[i - 1]) >> bit & 1);
        }
        CHECK(set > SOME * 2 / 5 && set < SOME * 3 / 5); /* over 6 standard deviations */
        CHECK(changes > SOME * 2 / 5 && changes < SOME * 3 / 5);
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
        look_random(keys[side]);
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

/* Every number but 0 exactly once, however full; what is returned is found again. */
static void entries_are_given_out_once(void)
{
    struct vb_random random = {.key = {5}};
    struct vb_keys keys = {0};
    uint8_t *seen = calloc(VB_MAX_MR, 1);
    double before = processor_seconds();
    uint32_t index;

    CHECK(seen);
    for (uint32_t i = 1; i < VB_MAX_MR; ++i) {
        CHECK_EQ(vb_keys_take(&keys, &random, &index), 0);
        CHECK(index && index < VB_MAX_MR && !seen[index]);
        CHECK(keys.window >= 1 << 16 && (keys.window == VB_MAX_MR || keys.window >= i));
        seen[index] = 1;
    }
    CHECK_EQ(vb_keys_take(&keys, &random, &index), -ENOMEM);
    vb_keys_return(&keys, 4711);
    CHECK_EQ(vb_keys_take(&keys, &random, &index), 0);
    CHECK_EQ(index, 4711);
    printf("  %.0f ns each, up to the last\n", (processor_seconds() - before) * 1e9 / VB_MAX_MR);
    vb_keys_free(&keys);
    free(seen);
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

int main(void)
{
    RUN(the_generator_is_siphash);
    RUN(keys_look_random_and_are_distinct);
    RUN(the_same_seed_gives_the_same_keys);
    RUN(a_stale_key_names_nothing);
    RUN(a_region_whose_access_alone_changes_keeps_its_key);
    RUN(key_zero_names_nothing);
    RUN(entries_are_given_out_once);
    RUN(a_million_registrations);
    return 0;
}
