// SPDX-License-Identifier: Apache-2.0
/*
 * What Linux' rdma_rxe sends when its timer expires: packets that had come already, and sometimes
 * under other PSNs than before (transport/early.h).
 */
#include "check.h"
#include "fabric.h"
#include "wire/opcode.h"

enum { MTU = 1024 };

static struct fabric fabric;
static struct vb_qp *qp[2];
static uint32_t begin_psn;
static const struct vb_counters *counters;

static void begin(void)
{
    struct qp_options options = fabric_defaults();

    fabric_open(&fabric, (struct fabric_options){.seed = 1, .engine = {.adapts = true}});
    fabric_pair(&fabric, options, qp);
    begin_psn = options.psn[0];
    counters = fabric_counters(&fabric, 1);
    memset(fabric.side[1].memory, 0, 8 * MTU);
}

/* A packet to side 1's QP; `number` counts from the first PSN, `fill` is each byte of its payload,
 * and a First or Only announces `total` bytes. */
static void send(uint8_t operation, uint32_t number, uint32_t total, uint8_t fill, bool asks)
{
    uint8_t bytes[FABRIC_BYTES_MAX];
    struct vb_bth bth = {.opcode = operation,
                         .pkey = 0xffff,
                         .dest_qp = qp[1]->number,
                         .ack_request = asks,
                         .psn = (begin_psn + number) & 0xffffff};
    struct vb_reth reth = {(uintptr_t)fabric.side[1].memory, fabric.side[1].mr->ibv.rkey, total};
    uint32_t header = vb_opcodes[operation].header_length;

    memset(bytes, fill, sizeof(bytes));
    vb_wire_bth_write(bytes, &bth);
    if (vb_opcodes[operation].flags & VB_OPCODE_RETH)
        vb_wire_reth_write(bytes + VB_BTH, &reth);
    fabric_inject(&fabric, 1, bytes, header + (fill ? MTU : 0));
    fabric_run(&fabric, 100000);
}

static const struct logged *last_answer(void)
{
    for (uint32_t i = fabric.logged; i-- > 0;)
        if (fabric.log[i].from == 1)
            return &fabric.log[i];
    return NULL;
}

static void acknowledged_is(uint32_t number)
{
    CHECK_EQ(last_answer()->bth.psn, (begin_psn + number) & 0xffffff);
    CHECK_EQ(last_answer()->syndrome >> 5, VB_AETH_ACK);
    CHECK_EQ(vb_qp_state(qp[1]), IBV_QPS_RTS);
}

/* A message of two packets, and two packets of one of three. */
static void two_messages(void)
{
    begin();
    send(VB_OP_WRITE_FIRST, 0, 2 * MTU, 1, false);
    send(VB_OP_WRITE_LAST, 1, 0, 2, true);
    send(VB_OP_WRITE_FIRST, 2, 3 * MTU, 3, false);
    send(VB_OP_WRITE_MIDDLE, 3, 0, 4, false);
    acknowledged_is(1);
}

static void the_second_message_ends_at(uint32_t number)
{
    send(VB_OP_WRITE_LAST, number, 0, 5, true);
    acknowledged_is(number);
    for (uint32_t i = 0; i < 3; ++i)
        CHECK_EQ(fabric.side[1].memory[i * MTU], 3 + i);
    fabric_close(&fabric);
}

/* Nothing of the first message is left to be sent, and that is sent as an empty packet. */
static void an_empty_packet_takes_a_psn(void)
{
    two_messages();
    send(VB_OP_WRITE_ONLY, 2, 0, 0, true);
    CHECK_EQ(counters->renumbered, 1);
    send(VB_OP_WRITE_FIRST, 3, 3 * MTU, 3, false);
    send(VB_OP_WRITE_MIDDLE, 4, 0, 4, false);
    the_second_message_ends_at(5);
}

/* That was not answered in time, so the whole message comes again in its place. */
static void a_whole_message_takes_its_place(void)
{
    two_messages();
    send(VB_OP_WRITE_ONLY, 2, 0, 0, true);
    for (int twice = 0; twice < 2; ++twice) {
        send(VB_OP_WRITE_FIRST, 2, 2 * MTU, 1, false);
        send(VB_OP_WRITE_LAST, 3, 0, 2, true);
        CHECK_EQ(counters->renumbered, 2);
    }
    send(VB_OP_WRITE_FIRST, 4, 3 * MTU, 3, false);
    send(VB_OP_WRITE_MIDDLE, 5, 0, 4, false);
    the_second_message_ends_at(6);
}

/* What was kept early has the old numbers. */
static void early_packets_are_forgotten(void)
{
    two_messages();
    send(VB_OP_WRITE_FIRST, 5, 2 * MTU, 9, false);
    CHECK_EQ(counters->packets_held, 1);
    send(VB_OP_WRITE_ONLY, 2, 0, 0, true);
    the_second_message_ends_at(5);
}

/* A program may send empty messages, and they may come twice. */
static void an_empty_message_that_comes_twice(void)
{
    begin();
    send(VB_OP_WRITE_ONLY, 0, 0, 0, true);
    send(VB_OP_WRITE_FIRST, 1, 2 * MTU, 3, false);
    send(VB_OP_WRITE_ONLY, 0, 0, 0, true);
    send(VB_OP_WRITE_LAST, 2, 0, 4, true);
    send(VB_OP_WRITE_ONLY, 3, 0, 0, true);
    send(VB_OP_WRITE_ONLY, 3, 0, 0, true);
    send(VB_OP_WRITE_ONLY, 0, 0, 0, true);
    acknowledged_is(3);
    CHECK_EQ(counters->renumbered, 0);
    CHECK_EQ(counters->duplicate_requests, 3);
    fabric_close(&fabric);
}

/* Who goes back sends much that had come before what is missing: that needs no second NAK. */
static void going_back_brings_no_naks(void)
{
    begin();
    send(VB_OP_WRITE_FIRST, 0, 4 * MTU, 1, false);
    send(VB_OP_WRITE_MIDDLE, 2, 0, 3, false);
    CHECK_EQ(counters->nak_sequence_sent, 1);
    for (int i = 0; i < 5; ++i)
        send(VB_OP_WRITE_FIRST, 0, 4 * MTU, 1, false);
    CHECK_EQ(counters->nak_sequence_sent, 1);
    send(VB_OP_WRITE_FIRST, 0, 4 * MTU, 1, true); /* one that asks has not heard it */
    CHECK_EQ(counters->nak_sequence_sent, 2);
    fabric_close(&fabric);
}

int main(void)
{
    RUN(an_empty_packet_takes_a_psn);
    RUN(a_whole_message_takes_its_place);
    RUN(early_packets_are_forgotten);
    RUN(an_empty_message_that_comes_twice);
    RUN(going_back_brings_no_naks);
    return 0;
}
