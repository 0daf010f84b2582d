// SPDX-License-Identifier: Apache-2.0
/*
 * Deregistering a region costs no more where there are thousands of QPs and CQs that never carried
 * a request, and closing the device is linear in what is open. Processor time, of this thread.
 */
#include <stdlib.h>
#include <time.h>

#include "pair.h"

enum { MANY = 8000, ROUNDS = 200 };

static double seconds(void)
{
    struct timespec now;

    CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double time_of_a_region(struct pair *pair)
{
    double start = seconds();

    for (int i = 0; i < ROUNDS; ++i) {
        struct ibv_mr *mr = ibv_reg_mr(pair->pd, pair->memory, 64, IBV_ACCESS_LOCAL_WRITE);

        CHECK(mr);
        CHECK_EQ(ibv_dereg_mr(mr), 0);
    }
    return (seconds() - start) / ROUNDS;
}

struct many {
    struct ibv_cq *cq[MANY];
    struct ibv_qp *qp[MANY];
    struct ibv_mr *mr[MANY];
};

static void make_many(struct pair *pair, struct many *many)
{
    for (int i = 0; i < MANY; ++i) {
        many->cq[i] = ibv_create_cq(pair->context, 1, NULL, NULL, 0);
        many->qp[i] = pair_qp_on(pair, ibv_cq_ex_to_cq(pair->cq));
        many->mr[i] = ibv_reg_mr(pair->pd, pair->memory, 64, IBV_ACCESS_LOCAL_WRITE);
        CHECK(many->cq[i] && many->mr[i]);
    }
}

/* The device is closed; a program may still destroy what it had made. */
static void destroy_late(struct pair *pair, struct many *many)
{
    for (int i = 0; i < MANY; ++i) {
        CHECK_EQ(ibv_destroy_qp(many->qp[i]), 0);
        CHECK_EQ(ibv_destroy_cq(many->cq[i]), 0);
        CHECK_EQ(ibv_dereg_mr(many->mr[i]), 0);
    }
    CHECK_EQ(ibv_destroy_qp(pair->qp[0]), 0);
    CHECK_EQ(ibv_destroy_qp(pair->qp[1]), 0);
    CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(pair->cq)), 0);
    CHECK_EQ(ibv_dereg_mr(pair->mr), 0);
    CHECK_EQ(ibv_dealloc_pd(pair->pd), 0);
    free(many);
}

/* 800 us and 4 s, once. */
static void regions_and_closing(void)
{
    struct many *many = calloc(1, sizeof(*many));
    struct pair pair;
    double alone, among_many, start;

    CHECK(many);
    pair_open(&pair);
    alone = time_of_a_region(&pair);
    make_many(&pair, many);
    among_many = time_of_a_region(&pair);
    if (among_many > 10 * alone + 20e-6)
        fprintf(stderr, "%g us alone, %g us among many\n", alone * 1e6, among_many * 1e6);
    CHECK(among_many <= 10 * alone + 20e-6);
    start = seconds();
    CHECK_EQ(ibv_close_device(pair.context), 0);
    CHECK(seconds() - start < 0.6);
    destroy_late(&pair, many);
}

int main(void)
{
    RUN(regions_and_closing);
    return 0;
}
