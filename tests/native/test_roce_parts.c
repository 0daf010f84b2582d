// SPDX-License-Identifier: Apache-2.0
/*
 * Parts of the RoCE carrier by themselves, without a port: the UDP source port of a flow, who
 * receives, packets that wait to be confirmed, and packets that wait for another process.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "roce/forward_queue.h"
#include "roce/polling.h"
#include "roce/roce.h"
#include "roce/unconfirmed.h"

/* ---- source ports -----------------------------------------------------------------------------
 */

/*
 * Of the flow label, or, where that is 0, of both QP numbers (IBA annex A17; as rdma-core's
 * rdma_flow_label_to_udp_sport and rdma_calc_flow_label, by another program).
 */
static void a_source_port_is_made_of_the_flow(void)
{
    static const struct {
        uint32_t flow_label, qp_num, dest_qp_num;
        uint16_t port;
    } cases[] = {
        {0x1, 0x7, 0x9, 0xc001},           {0x3fff, 0x7, 0x9, 0xffff},
        {0x4000, 0x7, 0x9, 0xc001},        {0xfffff, 0x7, 0x9, 0xffc0},
        {0xabcde, 0x7, 0x9, 0xfcf4},       {0x100000, 0x123, 0x456, 0xedd1},
        {0x0, 0x123, 0x456, 0xedd1},       {0x0, 0x456, 0x123, 0xedd1},
        {0x0, 0xffffff, 0xfffffe, 0xff12}, {0x0, 0x11, 0x654321, 0xf57f},
        {0x0, 0x1, 0x1, 0xc001},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); ++i)
        CHECK_EQ(vb_roce_source_port(cases[i].flow_label, cases[i].qp_num, cases[i].dest_qp_num),
                 cases[i].port);
}

/* ---- who receives -----------------------------------------------------------------------------
 */

static struct vb_roce_polling polling;
static int ends[2]; /* the socket that is looked at, and one that sends to it */

static void begin_polling(void)
{
    polling = (struct vb_roce_polling){0};
    vb_roce_polling_init(&polling);
    CHECK_EQ(polling.pause, 50000);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
}

static void end_polling(void)
{
    close(ends[0]);
    close(ends[1]);
}

static bool look(unsigned polls, uint64_t received, uint64_t now)
{
    while (polls--)
        vb_roce_polling_count(&polling);
    return vb_roce_polling_look(&polling, ends[0], received, now);
}

/* From 64 polls after a CQ was armed on: a program that goes to sleep may poll a few times. */
static void a_program_that_polls_receives(void)
{
    begin_polling();
    CHECK(!look(0, 0, 1000));
    CHECK(!look(64, 0, 2000));
    CHECK(look(1, 0, 3000));
    CHECK(!vb_roce_polling_arm(&polling)); /* the socket is watched */
    CHECK(!look(64, 0, 200000));
    CHECK(look(1, 0, 300000));
    atomic_store(&polling.unwatched, true);
    CHECK(vb_roce_polling_arm(&polling));
    CHECK(!look(0, 0, 300001)); /* before the last look has run out */
    end_polling();
}

/* A look holds for 50 us, and twice as long after each that finds somebody, up to 1 ms. */
static void a_look_holds_for_a_while(void)
{
    static const uint64_t pauses[] = {100000, 200000, 400000, 800000, 1000000, 1000000};
    uint64_t now = 5000;

    begin_polling();
    CHECK(!look(0, 0, now));
    CHECK_EQ(polling.pause, 50000);
    for (int i = 0; i < 6; ++i) {
        CHECK(look(100, 0, now));
        CHECK_EQ(polling.pause, pauses[i]);
        CHECK_EQ(polling.valid_until, now + pauses[i]);
        CHECK(look(0, 0, now + pauses[i] - 1)); /* nobody has polled, and it still holds */
        now += pauses[i];
    }
    CHECK(!look(0, 0, now));
    CHECK_EQ(polling.pause, 50000);
    CHECK(look(1, 0, now + 1));
    end_polling();
}

/* Where a datagram waits and nothing was received, the thread receives for 1 ms. */
static void a_datagram_that_waits_is_not_left_to_programs(void)
{
    uint64_t now = 5000;

    begin_polling();
    CHECK(look(100, 7, now));
    CHECK_EQ(send(ends[1], "x", 1, 0), 1);
    now = polling.valid_until;
    CHECK(look(100, 8, now)); /* something was received */
    now = polling.valid_until;
    CHECK(!look(100, 8, now));
    CHECK(!look(100, 8, now + 999999));
    CHECK(look(100, 8, now + 1000000));
    now = polling.valid_until;
    CHECK_EQ(recv(ends[0], &(char){0}, 1, 0), 1);
    CHECK(look(100, 8, now)); /* nothing waits */
    end_polling();
}

/* ---- unconfirmed packets ----------------------------------------------------------------------
 */

static struct vb_unconfirmed_store store;
static struct vb_ids_flow flows[VB_UNCONFIRMED_PLACES + 1];

static struct vb_unconfirmed *put(struct vb_ids_flow *flow)
{
    struct vb_unconfirmed *at = vb_roce_unconfirmed_next(&store, 100);

    CHECK(at && !at->flow);
    vb_roce_unconfirmed_put(&store, at, flow);
    CHECK(vb_roce_unconfirmed_find(&store, flow) == at);
    return at;
}

static void each_flow_has_its_unconfirmed_packet(void)
{
    struct vb_unconfirmed *at[VB_UNCONFIRMED_PLACES];

    CHECK(!vb_roce_unconfirmed_oldest(&store));
    CHECK(!vb_roce_unconfirmed_find(&store, &flows[0]));
    CHECK(!vb_roce_unconfirmed_next(&store, VB_UNCONFIRMED_BYTES + 1));
    CHECK(vb_roce_unconfirmed_next(&store, VB_UNCONFIRMED_BYTES));
    for (int i = 0; i < VB_UNCONFIRMED_PLACES; ++i) {
        at[i] = put(&flows[i]);
        CHECK_EQ(store.count, i + 1);
        CHECK(vb_roce_unconfirmed_oldest(&store) == at[0]);
    }
    for (int i = 0; i < VB_UNCONFIRMED_PLACES; ++i)
        CHECK(vb_roce_unconfirmed_find(&store, &flows[i]) == at[i]);
    /* All places are taken: the next one is the oldest's. */
    CHECK(vb_roce_unconfirmed_next(&store, 100) == at[0] && at[0]->flow == &flows[0]);
    vb_roce_unconfirmed_free(&store, at[0]);
    CHECK(!vb_roce_unconfirmed_find(&store, &flows[0]));
    CHECK_EQ(flows[0].unconfirmed, 0);
    CHECK(vb_roce_unconfirmed_oldest(&store) == at[1]);
    CHECK(put(&flows[VB_UNCONFIRMED_PLACES]) == at[0]);
    CHECK(vb_roce_unconfirmed_oldest(&store) == at[1]);
    vb_roce_unconfirmed_free(&store, at[2]);
    CHECK(vb_roce_unconfirmed_oldest(&store) == at[1]);
    vb_roce_unconfirmed_free(&store, at[1]);
    CHECK(vb_roce_unconfirmed_oldest(&store) == at[3]);
    for (int i = 3; i < VB_UNCONFIRMED_PLACES; ++i)
        vb_roce_unconfirmed_free(&store, at[i]);
    CHECK(vb_roce_unconfirmed_oldest(&store) == at[0]);
    vb_roce_unconfirmed_free(&store, at[0]);
    CHECK(!vb_roce_unconfirmed_oldest(&store));
    CHECK_EQ(store.count, 0);
    free(store.places);
}

/* The table of flows gives an old flow's entry to a new one (ids.c), whose packet may be elsewhere.
 */
static void an_entry_that_is_another_flows_now_keeps_its_packet(void)
{
    struct vb_ids_flow flow = {0};
    struct vb_unconfirmed *first, *second;

    store = (struct vb_unconfirmed_store){0};
    first = put(&flow);
    flow = (struct vb_ids_flow){0};
    CHECK(!vb_roce_unconfirmed_find(&store, &flow));
    second = put(&flow);
    CHECK(second != first);
    vb_roce_unconfirmed_free(&store, first);
    CHECK(vb_roce_unconfirmed_find(&store, &flow) == second);
    second->flow = &flows[0]; /* as if the place had been given away since */
    CHECK(!vb_roce_unconfirmed_find(&store, &flow));
    free(store.places);
}

/* ---- packets for another process --------------------------------------------------------------
 */

enum { PACKET = 1000 };

static struct vb_arrival arrival_of(uint8_t number, uint8_t bytes[PACKET])
{
    struct vb_arrival arrival = {.bytes = bytes,
                                 .length = PACKET - number,
                                 .flow_label = 0xabc00u + number,
                                 .traffic_class = (uint8_t)(number + 1),
                                 .hop_limit = (uint8_t)(number + 2)};

    memset(arrival.sgid, number + 3, sizeof(arrival.sgid));
    memset(arrival.dgid, number + 4, sizeof(arrival.dgid));
    memset(bytes, number + 5, PACKET);
    return arrival;
}

static void expect_forwarded(int fd, uint8_t number)
{
    struct {
        struct vb_forward_header head;
        uint8_t bytes[PACKET];
    } got, none = {0};
    ssize_t length = recv(fd, &got, sizeof(got), MSG_DONTWAIT);

    CHECK_EQ(length, sizeof(got.head) + PACKET - number);
    CHECK_EQ(got.head.flow_label, 0xabc00u + number);
    CHECK_EQ(got.head.traffic_class, number + 1);
    CHECK_EQ(got.head.hop_limit, number + 2);
    for (int i = 0; i < 16; ++i)
        CHECK(got.head.sgid[i] == number + 3 && got.head.dgid[i] == number + 4);
    CHECK_EQ(memcmp(got.head.reserved, none.head.reserved, sizeof(got.head.reserved)), 0);
    for (int i = 0; i < PACKET - number; ++i)
        CHECK_EQ(got.bytes[i], number + 5);
}

static void packets_wait_in_their_order(void)
{
    struct vb_forward_queue queue = {.fd = -1};
    uint8_t bytes[PACKET];
    struct vb_arrival arrival;
    uint64_t kept = 0;
    int pair[2], sent = 0;

    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    CHECK_EQ(fcntl(pair[0], F_SETFL, 0), 0); /* it would wait, if it were not told not to */
    queue.fd = pair[0];
    CHECK(!vb_roce_forward_queue_waits(&queue));
    CHECK_EQ(vb_roce_forward_queue_drain(&queue), 0);
    arrival = arrival_of(100, bytes);
    while (vb_roce_forward_queue_send(&queue, &arrival) == 0)
        ++sent;
    CHECK(sent > 0);
    CHECK_EQ(vb_roce_forward_queue_send(&queue, &arrival), -EAGAIN);
    for (uint8_t number = 0; number < 3; ++number) {
        arrival = arrival_of(number, bytes);
        CHECK_EQ(vb_roce_forward_queue_keep(&queue, &arrival), 0);
        CHECK(queue.kept >= kept + PACKET - number);
        kept = queue.kept;
    }
    CHECK_EQ(vb_roce_forward_queue_drain(&queue), -EAGAIN);
    CHECK_EQ(queue.kept, kept);
    while (sent--)
        expect_forwarded(pair[1], 100);
    CHECK_EQ(vb_roce_forward_queue_drain(&queue), 0);
    CHECK(!vb_roce_forward_queue_waits(&queue));
    CHECK_EQ(queue.kept, 0);
    for (uint8_t number = 0; number < 3; ++number)
        expect_forwarded(pair[1], number);
    CHECK_EQ(recv(pair[1], bytes, 1, MSG_DONTWAIT), -1);
    for (uint8_t number = 0; number < 2; ++number) { /* one by one, from an empty queue */
        arrival = arrival_of(number, bytes);
        CHECK_EQ(vb_roce_forward_queue_keep(&queue, &arrival), 0);
        CHECK_EQ(vb_roce_forward_queue_drain(&queue), 0);
        expect_forwarded(pair[1], number);
    }
    CHECK_EQ(vb_roce_forward_queue_keep(&queue, &arrival), 0);
    close(pair[1]);
    CHECK_EQ(vb_roce_forward_queue_drain(&queue), -EPIPE);
    CHECK_EQ(vb_roce_forward_queue_send(&queue, &arrival), -EPIPE);
    CHECK(vb_roce_forward_queue_waits(&queue));
    vb_roce_forward_queue_clear(&queue);
    CHECK(!vb_roce_forward_queue_waits(&queue));
    CHECK_EQ(queue.kept, 0);
    close(pair[0]);
}

int main(void)
{
    alarm(60);
    RUN(a_source_port_is_made_of_the_flow);
    RUN(a_program_that_polls_receives);
    RUN(a_look_holds_for_a_while);
    RUN(a_datagram_that_waits_is_not_left_to_programs);
    RUN(each_flow_has_its_unconfirmed_packet);
    RUN(an_entry_that_is_another_flows_now_keeps_its_packet);
    RUN(packets_wait_in_their_order);
    return 0;
}
