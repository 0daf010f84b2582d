// SPDX-License-Identifier: Apache-2.0
#include "forge.h"

#include "transport/transport.h"

/* Bits of a structured packet's second byte. */
enum {
    ANY_OPCODE = 1 << 0,
    ASKS = 1 << 1,
    WRONG_PKEY = 1 << 2,
    STRANGER = 1 << 3,
    WRONG_VERSION = 1 << 4,
    CUT = 1 << 5,
    SOLICITED = 1 << 6,
    FAR = 1 << 7, /* any PSN */
};

enum { QKEY = 17 }; /* fabric.c's */

void forge_raw(struct input *input, const struct vb_qp *to, struct forged *forged)
{
    uint8_t how = take8(input);
    uint32_t length = take8(input);
    struct vb_bth bth;

    for (forged->length = 0; forged->length < length; ++forged->length)
        forged->bytes[forged->length] = take8(input);
    forged->stranger = how & 1;
    if (length < VB_BTH)
        return;
    bth = vb_wire_bth_read(forged->bytes);
    bth.dest_qp = to->number;
    bth.pkey = 0xffff;
    bth.version = 0;
    if (how & 2)
        vb_wire_bth_write(forged->bytes, &bth);
    else
        forged->stranger = true; /* its own connection is what a peer may harm, no other's */
}

uint64_t forge_address(struct input *input, const struct world *world, int side)
{
    const uint8_t *bytes = world->arena[side].bytes;
    uint8_t kind = take8(input);
    uint64_t offset = take16(input) % ZONE;

    switch (kind % 6) {
    case 0:
    case 1:
        return (uintptr_t)bytes + OPEN_AT + offset;
    case 2:
        return (uintptr_t)bytes + FIXED_AT + offset;
    case 3:
        return (uintptr_t)world->fabric.side[side].memory + offset;
    case 4:
        return (uintptr_t)bytes + OPEN_AT - offset;
    default:
        return (uint64_t)take32(input) << 32 | take32(input);
    }
}

uint32_t forge_key(struct input *input, const struct world *world, int side)
{
    const struct arena *arena = &world->arena[side];
    uint8_t kind = take8(input);

    switch (kind % 6) {
    case 0:
    case 1:
        return arena->open->ibv.rkey;
    case 2:
        return arena->fixed->ibv.rkey;
    case 3:
        return world->fabric.side[side].mr->ibv.rkey;
    case 4:
        return arena->open->ibv.rkey ^ 1u << kind / 6 % 32;
    default:
        return take32(input);
    }
}

uint32_t forge_srq(struct input *input, const struct world *world)
{
    uint8_t kind = take8(input);

    switch (kind % 8) {
    case 0:
        return world->other_srq->srq_num;
    case 1:
        return world->xrc_srq->srq_num ^ 1u << kind / 8 % 24;
    case 2:
        return take32(input) & VB_QPN_MASK;
    default:
        return world->xrc_srq->srq_num;
    }
}

static uint32_t message_length(struct input *input)
{
    uint8_t kind = take8(input);

    if (kind < 0xc0)
        return (uint32_t)kind * 8;
    return kind == 0xff ? take32(input) : take16(input);
}

static uint32_t expected_psn(const struct vb_qp *to, bool response)
{
    if (!to->endpoint)
        return 0;
    return response ? to->endpoint->requester.una : to->endpoint->responder.epsn;
}

static struct vb_bth header(struct input *input, const struct vb_qp *to, bool response,
                            uint8_t flags)
{
    static const uint8_t bases[] = {VB_TRANSPORT_RC, VB_TRANSPORT_UC, VB_TRANSPORT_UD};
    uint8_t opcode = take8(input), base = to->endpoint ? to->endpoint->base : VB_TRANSPORT_UD;
    uint32_t psn = expected_psn(to, response);

    if (response && !(flags & ANY_OPCODE))
        opcode = (uint8_t)(VB_OP_READ_RESPONSE_FIRST + opcode % 6);
    if (!(flags & ANY_OPCODE))
        opcode = (uint8_t)(base | (opcode & VB_OP_MASK));
    else if (opcode & 0x80)
        opcode = (uint8_t)(bases[opcode % 3] | (take8(input) & VB_OP_MASK));
    psn += flags & FAR ? take32(input) : (uint32_t)(int8_t)take8(input);
    return (struct vb_bth){
        .opcode = opcode,
        .solicited = flags & SOLICITED,
        .migrated = true,
        .version = flags & WRONG_VERSION ? 1 : 0,
        .pkey = flags & WRONG_PKEY ? take16(input) : 0xffff,
        .dest_qp = to->number,
        .ack_request = flags & ASKS,
        .psn = psn & VB_PSN_MASK,
    };
}

static uint8_t *put_request(struct input *input, const struct world *world, int side,
                            uint32_t flags, uint8_t *at)
{
    if (flags & VB_OPCODE_FETH) {
        vb_wire_put32(at, take8(input));
        at += VB_FETH;
    }
    if (flags & VB_OPCODE_RETH) {
        struct vb_reth reth = {.addr = forge_address(input, world, side)};

        reth.rkey = forge_key(input, world, side);
        reth.length = message_length(input);
        vb_wire_reth_write(at, &reth);
        at += VB_RETH;
    }
    if (flags & VB_OPCODE_ATOMICETH) {
        struct vb_atomiceth atomic = {.addr = forge_address(input, world, side)};

        atomic.rkey = forge_key(input, world, side);
        atomic.swap_add = take8(input);
        atomic.compare = take8(input);
        vb_wire_atomiceth_write(at, &atomic);
        at += VB_ATOMICETH;
    }
    return at;
}

static uint8_t *put_answer(struct input *input, uint32_t flags, uint8_t *at)
{
    if (flags & VB_OPCODE_AETH) {
        *at = take8(input);
        vb_wire_put24(at + 1, take8(input));
        at += VB_AETH;
    }
    return at;
}

/* In the order of the wire; those that the engine does not know are any bytes. */
static uint8_t *put_extended(struct input *input, const struct world *world, int side,
                             const struct vb_opcode *opcode, uint8_t *bytes)
{
    uint8_t *at = bytes + VB_BTH, *end = bytes + opcode->header_length;

    if (opcode->flags & VB_OPCODE_DETH) {
        struct vb_deth deth = {.qkey = QKEY ^ take8(input), .source_qp = take16(input)};

        vb_wire_deth_write(at, &deth);
        at += VB_DETH;
    }
    if (opcode->flags & VB_OPCODE_XRCETH) {
        vb_wire_xrceth_write(at, forge_srq(input, world));
        at += VB_XRCETH;
    }
    if (!(opcode->flags & VB_OPCODE_RDETH)) {
        at = put_request(input, world, side, opcode->flags, at);
        at = put_answer(input, opcode->flags, at);
    }
    while (at < end)
        *at++ = take8(input);
    return end;
}

static uint32_t payload_length(struct input *input)
{
    uint8_t kind = take8(input);

    if (kind < 0x80)
        return (uint32_t)kind;
    return kind < 0xf0 ? WORLD_MTU : WORLD_MTU - 8 + kind % 16;
}

void forge_packet(struct input *input, const struct world *world, const struct vb_qp *to,
                  bool response, struct forged *forged)
{
    uint8_t flags = take8(input);
    struct vb_bth bth = header(input, to, response, flags);
    const struct vb_opcode *opcode = &vb_opcodes[bth.opcode];
    uint8_t *at = forged->bytes + VB_BTH;
    uint32_t payload = 0, cut;

    if (opcode->name)
        at = put_extended(input, world, fabric_side_of(&world->fabric, to), opcode, forged->bytes);
    if ((opcode->flags & VB_OPCODE_PAYLOAD) || (flags & ANY_OPCODE))
        payload = payload_length(input);
    bth.pad = flags & CUT ? take8(input) & 3 : -payload & 3;
    vb_wire_bth_write(forged->bytes, &bth);
    memset(at, 0xa5, payload + bth.pad);
    forged->length = (uint32_t)(at - forged->bytes) + payload + bth.pad;
    forged->stranger = flags & STRANGER;
    cut = flags & CUT ? take8(input) : 0;
    forged->length -= cut < forged->length ? cut : forged->length;
}
