// SPDX-License-Identifier: Apache-2.0
/*
 * How much of a link two packet engines make use of while it loses or reorders packets, in virtual
 * time and over seeds, as CSV. The same numbers on every machine.
 */
#include "check.h"
#include "fabric.h"

enum { SEEDS = 8, IN_FLIGHT = 16, GBPS = 25, LATENCY = 5000, LATEST = 20000 };

struct channel {
    const char *name;
    double loss, reorder;
};

struct workload {
    const char *name;
    enum ibv_wr_opcode opcode;
    uint32_t length;
    uint32_t requests; /* for each seed */
};

static const struct channel channels[] = {
    {"no loss", 0, 0},     {"0.1 % lost", 0.001, 0}, {"1 % lost", 0.01, 0},
    {"5 % lost", 0.05, 0}, {"1 % late", 0, 0.01},
};

static const struct workload workloads[] = {
    {"SEND 64 KiB", IBV_WR_SEND, 1 << 16, 100},
    {"WRITE 64 KiB", IBV_WR_RDMA_WRITE, 1 << 16, 100},
    {"READ 64 KiB", IBV_WR_RDMA_READ, 1 << 16, 100},
    {"SEND 4 KiB", IBV_WR_SEND, 1 << 12, 400},
    {"WRITE 4 KiB", IBV_WR_RDMA_WRITE, 1 << 12, 400},
    {"READ 4 KiB", IBV_WR_RDMA_READ, 1 << 12, 400},
    {"Fetch and add", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 400},
};

static struct fabric fabric;

struct result {
    uint64_t useful, sent, ns, requests;
};

static void post(struct vb_qp *qp[2], const struct workload *workload)
{
    if (workload->opcode == IBV_WR_SEND)
        fabric_post_recv(&fabric, qp[1], 0, 0, workload->length);
    CHECK_EQ(fabric_post(&fabric, qp[0], fabric_request(&fabric, 0, workload->opcode, 0), 0,
                         workload->length),
             0);
}

static void run(const struct workload *workload, const struct channel *channel, uint64_t seed,
                struct result *result)
{
    struct fabric_options options = {.seed = seed,
                                     .loss = channel->loss,
                                     .reorder = channel->reorder,
                                     .late = LATEST,
                                     .latency = LATENCY,
                                     .gbps = GBPS,
                                     .engine = {.virtual_payload = true, .adapts = true}};
    struct qp_options connection = fabric_defaults();
    uint32_t posted = 0, completed = 0;
    struct vb_qp *qp[2];
    struct ibv_wc wc;
    uint64_t start;

    connection.rd_atomic = connection.dest_rd_atomic = IN_FLIGHT;
    fabric_open(&fabric, options);
    fabric_pair(&fabric, connection, qp);
    start = fabric.now;
    while (completed < workload->requests) {
        for (; posted < workload->requests && posted - completed < IN_FLIGHT; ++posted)
            post(qp, workload);
        wc = fabric_wait(&fabric, fabric.side[0].send_cq);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        ++completed;
        while (fabric_poll(fabric.side[1].recv_cq, &wc))
            CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    }
    result->ns += fabric.now - start;
    result->requests += completed;
    result->useful += (uint64_t)completed * workload->length;
    result->sent += fabric.link_bytes[workload->opcode == IBV_WR_RDMA_READ];
    fabric_close(&fabric);
}

int main(void)
{
    printf("workload,channel,requests,useful,sent,ns\n");
    for (size_t w = 0; w < sizeof(workloads) / sizeof(*workloads); ++w)
        for (size_t c = 0; c < sizeof(channels) / sizeof(*channels); ++c) {
            struct result result = {0};

            for (uint64_t seed = 1; seed <= SEEDS; ++seed)
                run(&workloads[w], &channels[c], seed, &result);
            printf("%s,%s,%llu,%llu,%llu,%llu\n", workloads[w].name, channels[c].name,
                   (unsigned long long)result.requests, (unsigned long long)result.useful,
                   (unsigned long long)result.sent, (unsigned long long)result.ns);
        }
    return 0;
}
