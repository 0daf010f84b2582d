// SPDX-License-Identifier: Apache-2.0
/* Queue pairs over the RoCE port while faults harm their packets: every byte arrives. */
#include <unistd.h>

#include "check.h"
#include "rules.h"
#include "station.h"
#include "wrap/wrap.h"

#define FILE_NAME "faults.pcapng"

enum { LENGTH = 200003, ROUNDS = 4 };

static struct station here;
static struct vb_qp *pair[2];
static struct station_card cards[2];

static void open_pair(const char *rules, const char *file)
{
    struct vb_capture_config capture = {.path = file,
                                        .epoch = vb_wrap_capture_epoch_of_monotonic()};
    struct vb_host_config config = {
        .packets_only = true,
        .roce = {.fault = rules_records(rules), .capture = file ? &capture : NULL}};

    station_open(&here, &config);
    for (int i = 0; i < 2; ++i) {
        pair[i] = station_qp(&here, IBV_QPT_RC);
        cards[i] = station_card(&here, pair[i]);
    }
    for (int i = 0; i < 2; ++i)
        station_connect(&here, pair[i], &cards[1 - i], (struct station_route){.timeout = 11});
}

static void fill(uint8_t seed)
{
    for (uint32_t i = 0; i < LENGTH; ++i)
        here.memory[i] = (uint8_t)(i * 7 + (i >> 8) + seed);
    memset(here.memory + STATION_BYTES / 2, 0, LENGTH);
}

static void expect_arrival(void)
{
    CHECK(memcmp(here.memory, here.memory + STATION_BYTES / 2, LENGTH) == 0);
}

static void carry_out(const char *rules)
{
    char text[1024];

    printf("%s\n", rules);
    fflush(stdout);
    open_pair(rules, NULL);
    for (uint8_t round = 0; round < ROUNDS; ++round) {
        fill(round);
        station_post(&here, pair[0], IBV_WR_RDMA_WRITE, LENGTH, &cards[1]);
        CHECK_EQ(station_wait(here.cq, 20).status, IBV_WC_SUCCESS);
        expect_arrival();
        memset(here.memory, 0, LENGTH);
        station_post(&here, pair[1], IBV_WR_RDMA_READ, LENGTH, &cards[0]);
        CHECK_EQ(station_wait(here.cq, 20).status, IBV_WC_SUCCESS);
        expect_arrival();
        fill((uint8_t)(round + 100));
        station_post_recv(&here, pair[1], STATION_BYTES / 2, LENGTH);
        station_post(&here, pair[0], IBV_WR_SEND, LENGTH, &cards[1]);
        for (int i = 0; i < 2; ++i)
            CHECK_EQ(station_wait(here.cq, 20).status, IBV_WC_SUCCESS);
        expect_arrival();
    }
    vb_wrap_fault_text(vb_roce_wrap(here.host->roce), text, sizeof(text));
    printf("%s", text);
    station_close(&here);
}

static void test_faults(void)
{
    carry_out("drop 1%; seed 3");
    carry_out("drop 5%; seed 4");
    carry_out("drop 2% dir=in");
    carry_out("duplicate 10% copies=2");
    carry_out("reorder 5% by=3");
    carry_out("delay 100us");
    carry_out("delay 20us dir=in");
    carry_out("corrupt 2%; truncate 2%");
    carry_out("corrupt 2% dir=in");
    /* Where a flipped bit looks like another IPv4 identification (roce/ids.h). */
    carry_out("corrupt 10% at=173; corrupt 10% at=1834");
    carry_out("drop opcode=ack every=3; drop opcode=read-response every=50");
}

static void test_captured(void)
{
    unlink(FILE_NAME);
    open_pair("drop 2%; duplicate 1%; corrupt 1%; delay 50us 1%; reorder 1%", FILE_NAME);
    fill(1);
    station_post(&here, pair[0], IBV_WR_RDMA_WRITE, LENGTH, &cards[1]);
    CHECK_EQ(station_wait(here.cq, 20).status, IBV_WC_SUCCESS);
    expect_arrival();
    CHECK_EQ(vb_wrap_capture_lost(vb_roce_wrap(here.host->roce)->capture), 0);
    station_close(&here);
}

int main(void)
{
    RUN(test_captured);
    RUN(test_faults);
    return 0;
}
