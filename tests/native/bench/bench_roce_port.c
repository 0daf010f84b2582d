// SPDX-License-Identifier: Apache-2.0
/*
 * The RoCE port with its engine, over loopback between two processes on two cores: 8-byte WRITEs
 * back and forth, 8-byte messages a second, and 1 MiB WRITEs. Not a part of the test-suite.
 *
 *     cc -O3 -D_GNU_SOURCE -Isrc/native -Itests/native -o build/bench_roce_port \
 *         tests/native/bench/bench_roce_port.c build/n/tests/native/libverbena_test_support.a \
 *         build/n/src/native/libverbena_core.a -pthread && unshare -n sh -c \
 *         'ip link set lo up; build/bench_roce_port'
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "hca/counters.h"
#include "station.h"

enum { HALF = STATION_BYTES / 2, PINGS = 50000, SMALL = 300000, LARGE = 2048 };

static struct station here;
static struct station_card peer;
static int me;

static double seconds(void)
{
    return (double)vb_roce_now() / 1e9;
}

static void post(struct vb_qp *qp, uint32_t length, bool signaled)
{
    struct ibv_sge sge = {(uintptr_t)here.memory, length, here.mr->ibv.lkey};
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .send_flags = signaled ? IBV_SEND_SIGNALED : 0};
    struct ibv_send_wr *bad;

    wr.wr.rdma.remote_addr = peer.addr + HALF;
    wr.wr.rdma.rkey = peer.rkey;
    CHECK_EQ(vb_post_send(qp, &wr, &bad), 0);
}

/* The one before has arrived, so its buffer is free. */
static void post_number(struct vb_qp *qp, uint32_t number)
{
    memcpy(here.memory, &number, sizeof(number));
    post(qp, 8, true);
}

static void ping_pong(struct vb_qp *qp)
{
    volatile uint32_t *mine = (volatile uint32_t *)(here.memory + HALF);
    double begin = seconds();
    struct ibv_wc wc;

    for (uint32_t i = 1; i <= PINGS; ++i) {
        if (!me)
            post_number(qp, i);
        while (*mine != i)
            vb_cq_poll(here.cq, 1, &wc);
        if (me)
            post_number(qp, i);
    }
    if (!me)
        printf("WRITE 8 bytes, half round trip: %.2f us\n", (seconds() - begin) / PINGS / 2 * 1e6);
}

static void stream(struct vb_qp *qp, uint32_t length, uint32_t count, uint32_t depth)
{
    double begin = seconds(), took;
    uint32_t posted = 0, done = 0;
    struct ibv_wc wc[16];

    while (done < count) {
        int got;

        while (posted < count && posted - done < depth) {
            post(qp, length, true);
            ++posted;
        }
        got = vb_cq_poll(here.cq, 16, wc);
        for (int i = 0; i < got; ++i)
            CHECK_EQ(wc[i].status, IBV_WC_SUCCESS);
        done += (uint32_t)got;
    }
    took = seconds() - begin;
    printf("WRITE %u bytes: %.2f GB/s, %.2f M/s\n", length, (double)length * count / took / 1e9,
           count / took / 1e6);
}

static void drain(void)
{
    struct ibv_wc wc;

    for (double end = seconds() + 0.05; seconds() < end;)
        vb_cq_poll(here.cq, 1, &wc);
}

static void serve(int socket)
{
    struct ibv_wc wc;
    char token;

    while (recv(socket, &token, 1, MSG_DONTWAIT) < 0)
        for (int i = 0; i < 1000; ++i)
            vb_cq_poll(here.cq, 1, &wc);
}

static void run(int socket, enum ibv_mtu mtu)
{
    struct vb_qp *qp;
    struct station_card mine;

    station_open(&here, NULL);
    qp = station_qp(&here, IBV_QPT_RC);
    mine = station_card(&here, qp);
    CHECK_EQ(write(socket, &mine, sizeof(mine)), sizeof(mine));
    CHECK_EQ(read(socket, &peer, sizeof(peer)), sizeof(peer));
    station_connect(&here, qp, &peer, (struct station_route){.mtu = mtu, .timeout = 14});
    CHECK_EQ(write(socket, "", 1), 1);
    CHECK_EQ(read(socket, &mine, 1), 1);
    if (!me)
        printf("path MTU %u\n", 128u << mtu);
    ping_pong(qp);
    drain();
    if (me) {
        serve(socket);
    } else {
        const struct vb_counters *counters;

        stream(qp, 8, SMALL, 64);
        stream(qp, HALF, LARGE, 16);
        stream(qp, HALF, LARGE, 16);
        counters = vb_engine_counters(vb_roce_engine(here.host->roce));
        printf("resent %llu, timeouts %llu\n", (unsigned long long)counters->packets_resent,
               (unsigned long long)counters->timeouts);
        CHECK_EQ(write(socket, "", 1), 1);
    }
    station_close(&here);
}

int main(void)
{
    int ends[2];
    pid_t child;

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    setlinebuf(stdout);
    child = fork();
    me = child == 0;
    if (me)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    run(ends[me], IBV_MTU_4096);
    run(ends[me], IBV_MTU_1024);
    if (!me)
        waitpid(child, NULL, 0);
    return 0;
}
