// SPDX-License-Identifier: Apache-2.0
/*
 * Data packets per second of two packet engines that hand packets to each other on one core, with
 * virtual payload, acknowledgements included; and how often they allocate meanwhile. Not a part of
 * the test-suite: `make bench` runs it.
 *   bench_engine [WRITE|SEND|READ BYTES]
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "fabric.h"

enum { LENGTH = 1 << 16, DEPTH = 64, ROUNDS = 5 };

static unsigned long allocations;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *at, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *at, size_t size);

void *__wrap_malloc(size_t size)
{
    ++allocations;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    ++allocations;
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *at, size_t size)
{
    ++allocations;
    return __real_realloc(at, size);
}

static struct fabric fabric;
static struct vb_qp *qp[2];

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void post(enum ibv_wr_opcode opcode, uint32_t length)
{
    CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, opcode, 0), 0, length), 0);
    if (opcode == IBV_WR_SEND)
        fabric_post_recv(&fabric, qp[1], 0, 0, length);
}

static double rate(enum ibv_wr_opcode opcode, uint32_t length, double duration)
{
    const struct vb_counters *sent = fabric_counters(&fabric, opcode == IBV_WR_RDMA_READ);
    uint64_t before = sent->packets_sent;
    double start = seconds(), end;
    uint64_t now = fabric.now;
    struct ibv_wc wc[DEPTH];
    unsigned open = 0;

    do {
        for (int i = 0; i < 100; ++i) {
            now += 1000;
            for (; open < DEPTH; ++open)
                post(opcode, length);
            fabric_carry(&fabric, 0, now);
            fabric_carry(&fabric, 1, now);
            open -= (unsigned)vb_cq_poll(fabric.side[0].send_cq, DEPTH, wc);
            vb_cq_poll(fabric.side[1].recv_cq, DEPTH, wc);
        }
        end = seconds();
    } while (end - start < duration);
    while (open) {
        fabric_carry(&fabric, 0, now);
        fabric_carry(&fabric, 1, now);
        open -= (unsigned)vb_cq_poll(fabric.side[0].send_cq, DEPTH, wc);
        vb_cq_poll(fabric.side[1].recv_cq, DEPTH, wc);
    }
    fabric.now = now;
    return (double)(sent->packets_sent - before) / (end - start);
}

static void measure(const char *name, enum ibv_wr_opcode opcode, uint32_t length)
{
    unsigned long before;
    double best = 0;

    rate(opcode, length, 0.05);
    before = allocations;
    for (int i = 0; i < ROUNDS; ++i) {
        double now = rate(opcode, length, 0.2);

        best = now > best ? now : best;
    }
    printf("%-6s %6u bytes: %6.2f M data packets/s, %lu allocations\n", name, length, best / 1e6,
           allocations - before);
}

static const struct {
    const char *name;
    enum ibv_wr_opcode opcode;
    uint32_t length;
} measured[] = {
    {"WRITE", IBV_WR_RDMA_WRITE, LENGTH}, {"WRITE", IBV_WR_RDMA_WRITE, 8},
    {"SEND", IBV_WR_SEND, LENGTH},        {"SEND", IBV_WR_SEND, 8},
    {"READ", IBV_WR_RDMA_READ, LENGTH},
};

static bool is_wanted(int count, char **words, const char *name, uint32_t length)
{
    return count < 3 || (strcmp(words[1], name) == 0 && (uint32_t)atol(words[2]) == length);
}

int main(int count, char **words)
{
    struct fabric_options options = {.engine = {.virtual_payload = true}};
    struct qp_options connection = fabric_defaults();

    connection.mtu = 4096;
    connection.timeout = 0;
    connection.rd_atomic = connection.dest_rd_atomic = 16;
    fabric_open(&fabric, options);
    fabric_pair(&fabric, connection, qp);
    for (size_t i = 0; i < sizeof(measured) / sizeof(*measured); ++i)
        if (is_wanted(count, words, measured[i].name, measured[i].length))
            measure(measured[i].name, measured[i].opcode, measured[i].length);
    fabric_close(&fabric);
    return 0;
}
