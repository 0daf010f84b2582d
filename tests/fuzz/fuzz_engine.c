// SPDX-License-Identifier: Apache-2.0
/*
 * A fuzzing target: the engine's receive function, between connections under way. The input is a
 * row of steps: a packet of any bytes or of a likely form, a request of the connection's own, time
 * that passes, a bit that flips in a packet under way.
 *
 * Each step's first byte: bits 0 to 2 what it is, 3 the side, 4 and 5 which connection; 6: the
 * packet comes to the multicast group, 7: but with one queue pair's number; 7 alone: the connection
 * is XRC's.
 */
#include "check.h"
#include "forge.h"

enum step_kind { RAW, REQUEST, RESPONSE, SEND, RECEIVE, STEPS, TIME, FLIP };

enum { ATOMIC_WRITES = 0xe0, FLUSHES = 0xf0 }; /* from here on */
enum { STEPS_MOST = 200, TO_GROUP = 1 << 6, TO_ONE = 1 << 7, QKEY = 17 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct world world;
static bool opened;

/* Exactly as long as the packet: a sanitizer sees who reads beyond. */
static void hand(int side, uint8_t what, struct forged *forged)
{
    struct fabric *fabric = &world.fabric;
    uint8_t *exact = malloc(forged->length + !forged->length);
    struct vb_arrival arrival = {.bytes = exact, .length = forged->length, .hop_limit = 64};

    CHECK(exact);
    if ((what & TO_GROUP) && !(what & TO_ONE) && forged->length >= VB_BTH)
        vb_wire_put24(forged->bytes + 5, VB_MULTICAST_QPN);
    memcpy(exact, forged->bytes, forged->length);
    memcpy(arrival.sgid, fabric->side[!side].gid, 16);
    memcpy(arrival.dgid, what & TO_GROUP ? world_group : fabric->side[side].gid, 16);
    arrival.sgid[15] ^= forged->stranger ? 0x40 : 0;
    vb_engine_receive(fabric->side[side].engine, &arrival, fabric->now);
    free(exact);
}

/* To the peer or the group, by the right number, the group's or any, with the right key or not. */
static void send_datagram(struct input *input, struct vb_qp *qp)
{
    int side = fabric_side_of(&world.fabric, qp);
    uint8_t how = take8(input);
    struct ibv_send_wr wr = {.opcode = how & 1 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND};
    uint32_t offset = take8(input) * 8u, length = take8(input) * 8u;

    wr.wr.ud.ah = &world.ah[side][how >> 1 & 1]->ibv;
    wr.wr.ud.remote_qpn = how & 4   ? VB_MULTICAST_QPN
                          : how & 8 ? take32(input) & VB_QPN_MASK
                                    : world.victim[VICTIM_UD][!side]->number;
    wr.wr.ud.remote_qkey = how & 16 ? take32(input) : QKEY;
    wr.send_flags = how & 32 ? IBV_SEND_SOLICITED : 0;
    world_send(&world, qp, &wr, offset, length);
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
    uint8_t kind = take8(input);
    struct ibv_send_wr wr = {.opcode = kind < ATOMIC_WRITES ? kinds[kind % 8]
                                       : kind < FLUSHES     ? IBV_WR_ATOMIC_WRITE
                                                            : IBV_WR_FLUSH};
    int peer = !fabric_side_of(&world.fabric, qp);
    uint32_t offset = take8(input) * 8u, length = take8(input) * 8u;

    if (qp->type == IBV_QPT_UD) {
        send_datagram(input, qp);
        return;
    }
    if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
        wr.wr.atomic.remote_addr = forge_address(input, &world, peer) & ~7ull;
        wr.wr.atomic.rkey = forge_key(input, &world, peer);
        length = 8;
    } else {
        wr.wr.rdma.remote_addr = forge_address(input, &world, peer);
        wr.wr.rdma.rkey = forge_key(input, &world, peer);
    }
    if (wr.opcode == IBV_WR_ATOMIC_WRITE) {
        wr.wr.rdma.remote_addr &= ~7ull;
        length = 8;
    }
    if (wr.opcode == IBV_WR_FLUSH) {
        wr.wr.flush.type = kind & 3 ? kind & 3 : IBV_FLUSH_GLOBAL;
        wr.wr.flush.level = kind >> 2 & 1;
        wr.wr.flush.length = length;
    }
    if (qp->type == IBV_QPT_XRC_SEND)
        wr.qp_type.xrc.remote_srqn = forge_srq(input, &world);
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
    bth = vb_wire_bth_read(flight->bytes);
    flight->bytes[at % flight->length] ^= (uint8_t)(1u << bit);
    vb_wire_put24(flight->bytes + 5, bth.dest_qp);
}

static void step(struct input *input)
{
    uint8_t what = take8(input);
    int side = what >> 3 & 1;
    bool xrc = (what & (TO_GROUP | TO_ONE)) == TO_ONE;
    struct vb_qp *qp = world.victim[xrc ? VICTIM_XRC : what >> 4 & 3][side];
    struct forged forged = {.length = 0};

    switch ((enum step_kind)(what & 7)) {
    case RAW:
        forge_raw(input, world_real(qp), &forged);
        hand(side, what, &forged);
        break;
    case REQUEST:
    case RESPONSE:
        forge_packet(input, &world, world_real(qp), (what & 7) == RESPONSE, &forged);
        hand(side, what, &forged);
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
