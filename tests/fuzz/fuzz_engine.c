// SPDX-License-Identifier: Apache-2.0
/*
 * A fuzzing target: the engine's receive function, between connections under way. The input is a
 * row of steps: a packet of any bytes or of a likely form, a request of the connection's own, time
 * that passes, a bit that flips in a packet under way.
 *
 * Each step's first byte: bits 0 to 2 what it is, 3 the side, 4 and 5 which connection.
 */
#include "check.h"
#include "forge.h"

enum step_kind { RAW, REQUEST, RESPONSE, SEND, RECEIVE, STEPS, TIME, FLIP };

enum { STEPS_MOST = 200 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct world world;
static bool opened;

/* Exactly as long as the packet: a sanitizer sees who reads beyond. */
static void hand(int side, const struct forged *forged)
{
    struct fabric *fabric = &world.fabric;
    uint8_t *exact = malloc(forged->length + !forged->length);
    struct vb_arrival arrival = {.bytes = exact, .length = forged->length, .hop_limit = 64};

    CHECK(exact);
    memcpy(exact, forged->bytes, forged->length);
    memcpy(arrival.sgid, fabric->side[!side].gid, 16);
    memcpy(arrival.dgid, fabric->side[side].gid, 16);
    arrival.sgid[15] ^= forged->stranger ? 0x40 : 0;
    vb_engine_receive(fabric->side[side].engine, &arrival, fabric->now);
    free(exact);
}

static void send_one(struct input *input, struct vb_qp *qp)
{
    static const enum ibv_wr_opcode kinds[] = {IBV_WR_SEND,
                                               IBV_WR_SEND_WITH_IMM,
                                               IBV_WR_RDMA_WRITE,
                                               IBV_WR_RDMA_WRITE_WITH_IMM,
                                               IBV_WR_RDMA_READ,
                                               IBV_WR_RDMA_READ,
                                               IBV_WR_ATOMIC_FETCH_AND_ADD,
                                               IBV_WR_ATOMIC_CMP_AND_SWP};
    struct ibv_send_wr wr = {.opcode = kinds[take8(input) % 8]};
    int peer = !fabric_side_of(&world.fabric, qp);
    uint32_t offset = take8(input) * 8u, length = take8(input) * 8u;

    if (qp->ibv.qp_type == IBV_QPT_UD)
        return;
    if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
        wr.wr.atomic.remote_addr = forge_address(input, &world, peer) & ~7ull;
        wr.wr.atomic.rkey = forge_key(input, &world, peer);
        length = 8;
    } else {
        wr.wr.rdma.remote_addr = forge_address(input, &world, peer);
        wr.wr.rdma.rkey = forge_key(input, &world, peer);
    }
    world_send(&world, qp, &wr, offset, length);
}

/* It stays a packet to its own connection: that is what an ICRC lets pass of a peer's own. */
static void flip(struct input *input)
{
    struct flight *flight = world.fabric.flights;
    uint32_t at = take8(input), bit = take8(input) % 8;
    struct vb_bth bth;

    if (!flight)
        return;
    bth = vb_bth_read(flight->bytes);
    flight->bytes[at % flight->length] ^= (uint8_t)(1u << bit);
    vb_put24(flight->bytes + 5, bth.dest_qp);
}

static void step(struct input *input)
{
    uint8_t what = take8(input);
    int side = what >> 3 & 1;
    struct vb_qp *qp = world.victim[what >> 4 & 3][side];
    struct forged forged = {.length = 0};

    switch ((enum step_kind)(what & 7)) {
    case RAW:
        forge_raw(input, qp, &forged);
        hand(side, &forged);
        break;
    case REQUEST:
    case RESPONSE:
        forge_packet(input, &world, qp, (what & 7) == RESPONSE, &forged);
        hand(side, &forged);
        break;
    case SEND:
        send_one(input, qp);
        break;
    case RECEIVE:
        world_receive(&world, qp, take8(input) * 8u, take8(input) * 4u);
        break;
    case STEPS:
        for (uint32_t n = take8(input) % 32; n && fabric_step(&world.fabric);)
            --n;
        break;
    case TIME:
        fabric_run(&world.fabric, 1ull << take8(input) % 28);
        break;
    case FLIP:
        flip(input);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};

    if (!opened)
        world_open(&world);
    opened = true;
    world_begin(&world);
    for (int n = 0; input.left && n < STEPS_MOST; ++n) {
        step(&input);
        world_check(&world);
    }
    world_end(&world);
    return 0;
}
