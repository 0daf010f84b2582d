// SPDX-License-Identifier: Apache-2.0
/*
 * Packets between two processes over loopback with ICRC on both sides and the payload placed, but
 * no protocol except a window: what the UDP layer alone allows. Pinned to two cores; not a part of
 * the test-suite. Arguments: `without` as a number (udp.h), 0 when left out.
 *
 *     cc -O3 -D_GNU_SOURCE -Isrc/native -o build/bench_roce_udp \
 *         tests/native/bench/bench_roce_udp.c build/n/src/native/libverbena_core.a -pthread &&
 *         build/bench_roce_udp
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "roce/reuseport.h"
#include "roce/udp.h"

enum { MIB = 1 << 20, WINDOW = 1 * MIB, ACK_BYTES = 64 << 10, PINGS = 200000, ROUNDS = 5 };

static struct vb_udp *udp;
static struct vb_path path;
static uint32_t slots[2] = {0x321, 0x654};
static int me;
static uint8_t *region;

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void pin(int core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static void nothing(void *argument, const struct vb_arrival *arrival, uint64_t now)
{
    (void)argument, (void)arrival, (void)now;
}

static void open_side(unsigned without)
{
    struct vb_udp_config config = {.without = without, .prepare = vb_roce_reuseport_prepare};
    struct vb_reuseport_config selection = {.instance = (uint64_t)getpid(), .deliver = nothing};
    struct vb_reuseport *reuseport;
    struct vb_arrival arrival;
    double end;

    if (vb_roce_udp_open(&config, &udp))
        exit(1);
    selection.group = vb_roce_udp_fd(udp);
    if (vb_roce_reuseport_open(&selection, &reuseport) ||
        vb_roce_reuseport_add_slot(reuseport, slots[me], 1))
        exit(1);
    memset(path.sgid + 10, 0xff, 2);
    path.sgid[12] = 127;
    path.sgid[15] = 1;
    memcpy(path.dgid, path.sgid, 16);
    path.source_port = vb_roce_udp_source_port(udp, me ? 0xc111 : 0xc222);
    path.hop_limit = 64;
    /* Until the program knows both. */
    for (end = seconds() + 0.5; seconds() < end; usleep(1000)) {
        while (vb_roce_udp_receive(udp))
            while (vb_roce_udp_next(udp, &arrival))
                vb_roce_reuseport_takes(reuseport, &arrival, (uint64_t)(seconds() * 1e9));
        vb_roce_reuseport_serve(reuseport, (uint64_t)(seconds() * 1e9));
    }
}

static void stage(const uint8_t *from, uint32_t length, uint32_t psn, bool first)
{
    struct vb_packet packet = {.path = &path,
                               .qp_num = slots[me] << 12 | 1,
                               .header_length = first ? VB_BTH + VB_RETH : VB_BTH,
                               .payload_length = length,
                               .piece_count = length ? 1 : 0,
                               .piece = {{from, length}}};
    struct vb_bth bth = {
        .opcode = 7, .pkey = 0xffff, .dest_qp = slots[1 - me] << 12 | 1, .psn = psn & 0xffffff};

    vb_wire_bth_write(packet.header, &bth);
    vb_roce_udp_stage(udp, &packet);
}

static void flush(void)
{
    while (vb_roce_udp_flush(udp))
        ;
}

/* ---- one way ---- */

static void receive_all(uint64_t total, size_t span)
{
    uint64_t got = 0, acked = 0;
    struct vb_arrival arrival;

    while (got < total) {
        if (!vb_roce_udp_receive(udp))
            continue;
        while (vb_roce_udp_next(udp, &arrival)) {
            uint32_t headers = vb_wire_bth_read(arrival.bytes).psn & 1 ? VB_BTH + VB_RETH : VB_BTH;
            uint32_t length = arrival.length - headers;

            memcpy(region + got % span, arrival.bytes + headers, length);
            got += length;
            if (got - acked >= ACK_BYTES || got >= total) {
                acked = got;
                stage(NULL, 0, (uint32_t)(got >> 10), false);
                flush();
            }
        }
    }
}

static uint64_t read_acks(uint64_t acked)
{
    struct vb_arrival arrival;

    if (!vb_roce_udp_receive(udp))
        return acked;
    while (vb_roce_udp_next(udp, &arrival)) {
        uint64_t low = vb_wire_bth_read(arrival.bytes).psn;
        uint64_t full = (acked >> 10 & ~0xffffffull) | low;

        if (full < acked >> 10)
            full += 1 << 24;
        acked = full << 10;
    }
    return acked;
}

static void send_all(uint64_t total, size_t span, uint32_t mtu)
{
    uint64_t sent = 0, acked = 0;

    while (acked < total) {
        while (sent < total && sent - acked + mtu <= WINDOW && vb_roce_udp_has_room(udp)) {
            bool first = sent % MIB == 0;

            stage(region + sent % span, mtu, first, first);
            sent += mtu;
        }
        flush();
        acked = read_acks(acked);
    }
}

static void one_way(uint32_t mtu, size_t span, const char *what)
{
    double results[ROUNDS];
    const uint64_t total = 1ull << 31;

    for (int round = 0; round < ROUNDS; ++round) {
        double begin = seconds();

        if (me)
            receive_all(total, span);
        else
            send_all(total, span, mtu);
        results[round] = (double)total / (seconds() - begin) / 1e9;
    }
    if (me)
        return;
    for (int i = 0; i < ROUNDS; ++i)
        for (int j = i + 1; j < ROUNDS; ++j)
            if (results[j] < results[i]) {
                double swap = results[i];
                results[i] = results[j];
                results[j] = swap;
            }
    printf("path MTU %4u, %s: %.2f GB/s (%.2f to %.2f)\n", mtu, what, results[ROUNDS / 2],
           results[0], results[ROUNDS - 1]);
}

/* ---- ping-pong ---- */

static void await_one(void)
{
    struct vb_arrival arrival;

    for (;;) {
        while (!vb_roce_udp_receive(udp))
            ;
        if (vb_roce_udp_next(udp, &arrival))
            return;
    }
}

static void ping_pong(void)
{
    double begin = seconds();

    for (int i = 0; i < PINGS; ++i) {
        if (me)
            await_one();
        stage(region, 8, 0, false);
        flush();
        if (!me)
            await_one();
    }
    if (!me)
        printf("8 bytes, half round trip: %.2f us\n", (seconds() - begin) / PINGS / 2 * 1e6);
}

int main(int argc, char **argv)
{
    const size_t large = 256 * MIB;
    char token = 0;
    int ends[2];
    pid_t child;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        return 1;
    child = fork();

    me = child == 0;
    if (me)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(me);
    region = mmap(NULL, large, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(region, me + 1, large);
    open_side(argc > 1 ? (unsigned)atoi(argv[1]) : 0);
    setlinebuf(stdout);
    if (write(ends[me], &token, 1) != 1 || read(ends[me], &token, 1) != 1)
        return 1;
    if (argc > 2) {
        for (int i = 0; i < 4; ++i)
            one_way((uint32_t)atoi(argv[2]), MIB, "hot");
        return 0;
    }
    ping_pong();
    one_way(1024, MIB, "hot");
    one_way(4096, MIB, "hot");
    one_way(1024, large, "cold");
    one_way(4096, large, "cold");
    if (!me) {
        waitpid(child, NULL, 0);
        for (int i = 0; i < VB_UDP_COUNTS; ++i)
            printf("%s %llu\n", vb_roce_udp_counter_name(i),
                   (unsigned long long)vb_roce_udp_counter(udp, i));
    }
    return 0;
}
