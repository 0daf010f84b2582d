// SPDX-License-Identifier: Apache-2.0
/*
 * SENDs of 64 bytes by RoCE over loopback, both ends in one process, each completed before the next
 * is posted. It measures nothing itself: callgrind counts the instructions and the calls of each
 * function between the marks that begin and end the second part. Not a part of the test-suite.
 *
 *     cmake --build build/native-tests --target bench_roce_post
 *     unshare --net sh -c 'ip link set lo up; valgrind --tool=callgrind --fair-sched=yes \
 *         --separate-threads=yes --toggle-collect="measured*"
 * build/native-tests/bench/bench_roce_post'
 */
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "hca/counters.h"
#include "station.h"

enum { BYTES = 64, AHEAD = 16, WARM = 200, COUNT = 2000 };

static struct station here;
static struct vb_qp *near, *far;

static void send_one(uint32_t bytes)
{
    struct ibv_sge sge = {(uintptr_t)here.memory, bytes, here.mr->ibv.lkey};
    struct ibv_send_wr wr = {
        .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;

    CHECK_EQ(vb_post_send(near, &wr, &bad), 0);
}

static void take(int completions)
{
    struct ibv_wc wc;

    while (completions) {
        int got = vb_cq_poll(here.cq, 1, &wc);

        CHECK(got >= 0);
        if (got)
            CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        completions -= got;
    }
}

static inline void exchange(int count)
{
    for (int i = 0; i < count; ++i) {
        station_post_recv(&here, far, STATION_BYTES / 2, BYTES);
        send_one(BYTES);
        take(2);
    }
}

static void warm_up(int count)
{
    exchange(count);
}

__attribute__((noinline, noclone)) static void measured(int count)
{
    exchange(count);
}

int main(void)
{
    struct station_card a, b;

    station_open(&here, NULL);
    near = station_qp(&here, IBV_QPT_RC);
    far = station_qp(&here, IBV_QPT_RC);
    a = station_card(&here, near);
    b = station_card(&here, far);
    station_connect(&here, near, &b, (struct station_route){.timeout = 20});
    station_connect(&here, far, &a, (struct station_route){.timeout = 20});
    for (int i = 0; i < AHEAD; ++i) /* so that posting one more is no news to the sender */
        station_post_recv(&here, far, STATION_BYTES / 2, BYTES);
    warm_up(WARM);
    measured(COUNT);
    printf("%d SENDs of %d bytes\n", COUNT, BYTES);
    station_close(&here);
    return 0;
}
