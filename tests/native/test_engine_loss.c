// SPDX-License-Identifier: Apache-2.0
/* Loss, duplicates and reordering, over seeds: every byte arrives once, atomics are exact. */
#include "check.h"
#include "fabric.h"

enum {
    REQUESTS = 60,
    SLOT = 8192,      /* of the region, for each request */
    COUNTER = 800000, /* where the atomics go */
    IN_FLIGHT = 12,
};

static struct fabric fabric;
static struct vb_qp *qp[2];

struct expected {
    enum ibv_wr_opcode opcode;
    uint32_t length;
    uint64_t offset; /* in both regions */
};

static struct expected requests[2][REQUESTS];
static uint32_t posted[2], completed[2], received[2];
static uint64_t sums[2]; /* added by side i to the counter of the other */

static uint8_t byte_of(int side, uint32_t request, uint32_t i)
{
    return (uint8_t)(side * 91 + request * 37 + i * 11 + (i >> 7));
}

static void choose(int side, uint32_t n)
{
    static const enum ibv_wr_opcode kinds[] = {IBV_WR_SEND,
                                               IBV_WR_RDMA_WRITE,
                                               IBV_WR_RDMA_READ,
                                               IBV_WR_SEND_WITH_IMM,
                                               IBV_WR_RDMA_WRITE_WITH_IMM,
                                               IBV_WR_ATOMIC_FETCH_AND_ADD,
                                               IBV_WR_ATOMIC_WRITE,
                                               IBV_WR_FLUSH};
    struct expected *request = &requests[side][n];

    request->opcode = kinds[fabric_random(&fabric) % 8];
    request->length = fabric_random(&fabric) % (SLOT - 8);
    if (fabric_random(&fabric) % 4 == 0)
        request->length = fabric_random(&fabric) % 64;
    if (request->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || request->opcode == IBV_WR_ATOMIC_WRITE)
        request->length = 8;
}

/* Side 0 uses even slots, side 1 odd ones: each is the source at one and the target at the other.
 */
static uint64_t slot_of(int side, uint32_t n)
{
    return (uint64_t)((n % (IN_FLIGHT * 2)) * 2 + (uint32_t)side) * SLOT;
}

static void fill(int owner, int side, uint32_t n)
{
    uint8_t *at = fabric.side[owner].memory + slot_of(side, n);

    memset(fabric.side[!owner].memory + slot_of(side, n), 0xee, SLOT);
    for (uint32_t i = 0; i < requests[side][n].length; ++i)
        at[i] = byte_of(side, n, i);
}

static void post(int side)
{
    uint32_t n = posted[side]++;
    struct expected *request = &requests[side][n];
    struct ibv_send_wr wr = fabric_request(&fabric, side, request->opcode, slot_of(side, n));

    wr.wr_id = n;
    wr.imm_data = n;
    fill(request->opcode == IBV_WR_RDMA_READ ? !side : side, side, n);
    if (request->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = (uintptr_t)fabric.side[!side].memory + COUNTER;
        wr.wr.atomic.compare_add = 1 + n;
        sums[side] += 1 + n;
    }
    if (request->opcode == IBV_WR_SEND || request->opcode == IBV_WR_SEND_WITH_IMM)
        fabric_post_recv(&fabric, qp[!side], n, slot_of(side, n), SLOT);
    if (request->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
        fabric_post_recv(&fabric, qp[!side], n, 0, 0);
    CHECK_EQ(fabric_post(&fabric, qp[side], wr, slot_of(side, n), request->length), 0);
}

static void check_bytes(int side, uint32_t n)
{
    int target = requests[side][n].opcode == IBV_WR_RDMA_READ ? side : !side;
    const uint8_t *at = fabric.side[target].memory + slot_of(side, n);
    uint32_t moved = requests[side][n].opcode == IBV_WR_FLUSH ? 0 : requests[side][n].length;

    for (uint32_t i = 0; i < moved; ++i)
        CHECK_EQ(at[i], byte_of(side, n, i));
    if (moved < SLOT)
        CHECK_EQ(at[moved], 0xee);
}

static bool takes_receive(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
           opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static void poll_receives(int side)
{
    struct ibv_wc wc;

    while (fabric_poll(fabric.side[!side].recv_cq, &wc)) {
        while (!takes_receive(requests[side][received[side]].opcode))
            ++received[side];
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ(wc.wr_id, received[side]);
        CHECK_EQ(wc.byte_len, requests[side][received[side]].length);
        ++received[side];
    }
}

static void poll_sends(int side)
{
    struct ibv_wc wc;

    while (fabric_poll(fabric.side[side].send_cq, &wc)) {
        uint32_t n = completed[side]++;

        if (wc.status)
            fabric_expect_text(&fabric, side, wc.vendor_err, "(no error)");
        CHECK_EQ(wc.wr_id, n);
        poll_receives(side);
        if (takes_receive(requests[side][n].opcode))
            CHECK(received[side] > n);
        if (requests[side][n].opcode != IBV_WR_ATOMIC_FETCH_AND_ADD)
            check_bytes(side, n);
    }
}

static uint64_t run_one(struct fabric_options faults, struct qp_options options)
{
    uint64_t start;

    fabric_open(&fabric, faults);
    fabric_pair(&fabric, options, qp);
    memset(posted, 0, sizeof(posted));
    memset(completed, 0, sizeof(completed));
    memset(received, 0, sizeof(received));
    memset(sums, 0, sizeof(sums));
    for (uint32_t n = 0; n < REQUESTS; ++n) {
        choose(0, n);
        choose(1, n);
    }
    start = fabric.now;
    while (completed[0] < REQUESTS || completed[1] < REQUESTS) {
        for (int side = 0; side < 2; ++side)
            while (posted[side] < REQUESTS && posted[side] - completed[side] < IN_FLIGHT)
                post(side);
        CHECK(fabric_step(&fabric));
        CHECK(fabric.now - start < 60000000000ull);
        poll_sends(0);
        poll_sends(1);
    }
    for (int side = 0; side < 2; ++side) {
        uint64_t value;

        memcpy(&value, fabric.side[!side].memory + COUNTER, sizeof(value));
        CHECK_EQ(value, sums[side]);
    }
    start = fabric.now - start;
    fabric_run(&fabric, 10000000);
    CHECK(!fabric.flights);
    fabric_close(&fabric);
    return start;
}

static bool adapts;

static void run_late(double loss, double duplicate, double reorder, uint64_t late, const char *name)
{
    static const int mtus[] = {256, 1024, 4096};
    uint64_t total = 0;

    for (uint64_t seed = 0; seed < 12; ++seed) {
        struct fabric_options faults = {.seed = seed * 1001 + 7,
                                        .loss = loss,
                                        .duplicate = duplicate,
                                        .reorder = reorder,
                                        .late = late,
                                        .in_heap = seed & 1};
        struct qp_options options = fabric_defaults();

        options.mtu = mtus[seed % 3];
        options.srq[0] = options.srq[1] = seed % 4 == 3;
        options.rd_atomic = options.dest_rd_atomic = (uint8_t)(1 + seed % 4 * 5);
        faults.engine.adapts = adapts;
        faults.engine.window_bytes = seed % 2 ? 4096 : 0;
        faults.engine.ack_bytes = seed % 3 ? 2048 : 0;
        total += run_one(faults, options);
    }
    printf("  %s: %.3f ms each\n", name, (double)total / 12e6);
}

static void run_over_seeds(double loss, double duplicate, double reorder, const char *name)
{
    run_late(loss, duplicate, reorder, 0, name);
}

static void nothing_is_lost_or_done_twice(void)
{
    run_over_seeds(0, 0, 0, "perfect");
    run_over_seeds(0.001, 0, 0, "0.1 % loss");
    run_over_seeds(0.01, 0, 0, "1 % loss");
    run_over_seeds(0.05, 0, 0, "5 % loss");
    run_over_seeds(0, 0.05, 0, "5 % duplicates");
    run_over_seeds(0, 0, 0.02, "2 % late");
    run_over_seeds(0.01, 0.01, 0.01, "1 % each");
    run_late(0, 0, 0.01, 200000, "1 % up to 200 us late");
    run_late(0, 0, 0.2, 20000, "20 % up to 20 us late");
    run_late(0.01, 0.01, 0.02, 200000, "1 % lost, 1 % twice, 2 % very late");
}

/* With congestion windows, what comes early kept, and what is missing sent by itself. */
static void nothing_is_lost_where_connections_adapt(void)
{
    adapts = true;
    nothing_is_lost_or_done_twice();
    adapts = false;
}

int main(void)
{
    RUN(nothing_is_lost_or_done_twice);
    RUN(nothing_is_lost_where_connections_adapt);
    return 0;
}
