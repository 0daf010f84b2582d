// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include "check.h"
#include "transport/transport.h"

enum { HONEST_BYTES = 8192, MESSAGE = 3000, DEPTH = 16, CANARY = 0x5a, OPEN = 0x33, HONEST = 0x77 };
enum {
    EVERY_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_FLUSH_GLOBAL
};
enum outcome { UNUSED, PENDING, OF_SRQ, ENDED };

const uint8_t world_group[16] = {0xff, 0x0e, [15] = 7};

/* ---- what stays ---- */

static void open_arena(struct arena *arena, struct side *side)
{
    arena->bytes = malloc(ARENA);
    CHECK(arena->bytes);
    memset(arena->bytes, CANARY, ARENA);
    CHECK_EQ(vb_pd_alloc(side->context, &arena->pd), 0);
    CHECK_EQ(vb_mr_reg(arena->pd, arena->bytes + OPEN_AT, ZONE, (uintptr_t)arena->bytes + OPEN_AT,
                       EVERY_ACCESS, &arena->open),
             0);
    CHECK_EQ(vb_mr_reg(arena->pd, arena->bytes + FIXED_AT, ZONE, (uintptr_t)arena->bytes + FIXED_AT,
                       IBV_ACCESS_REMOTE_READ, &arena->fixed),
             0);
    CHECK_EQ(vb_cq_create(side->context, 4 * FABRIC_DEPTH, NULL, NULL, &arena->cq), 0);
}

static struct vb_ah *make_ah(struct arena *arena, const uint8_t gid[16])
{
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};
    struct vb_ah *ah;

    memcpy(attr.grh.dgid.raw, gid, 16);
    CHECK_EQ(vb_ah_create(arena->pd, &attr, &ah), 0);
    return ah;
}

void world_open(struct world *world)
{
    struct fabric *fabric = &world->fabric;

    fabric_open(fabric, (struct fabric_options){.seed = 1, .memory = HONEST_BYTES});
    fabric_pair(fabric, fabric_defaults(), world->honest);
    CHECK_EQ(vb_xrcd_open(fabric->side[1].context, 2, -1, &world->xrcd), 0);
    CHECK_EQ(vb_xrcd_open(fabric->side[1].context, 4, -1, &world->other_xrcd), 0);
    for (int i = 0; i < 2; ++i) {
        open_arena(&world->arena[i], &fabric->side[i]);
        memset(fabric->side[i].memory, HONEST, HONEST_BYTES);
        world->ah[i][0] = make_ah(&world->arena[i], fabric->side[!i].gid);
        world->ah[i][1] = make_ah(&world->arena[i], world_group);
    }
}

/* ---- one input ---- */

static struct vb_qp *make(struct world *world, int side, enum ibv_qp_type type, bool srq)
{
    struct arena *arena = &world->arena[side];
    struct ibv_qp_init_attr_ex attr = {.qp_type = type,
                                       .pd = &arena->pd->ibv,
                                       .send_cq = &arena->cq->ibv,
                                       .recv_cq = &arena->cq->ibv,
                                       .srq = srq ? &arena->srq->ibv : NULL,
                                       .cap = {DEPTH, DEPTH, 4, 4, 64}};
    struct vb_qp *qp;

    CHECK_EQ(vb_qp_create(world->fabric.side[side].context, &attr, &qp), 0);
    return qp;
}

static struct qp_options options_of(enum ibv_qp_type type)
{
    struct qp_options options = fabric_defaults();

    options.type = type;
    options.mtu = WORLD_MTU;
    options.retry_cnt = 3;
    options.rnr_retry = 3;
    options.min_rnr_timer = 12; /* 0.64 ms: an input may wait for long */
    return options;
}

static struct vb_srq *make_xrc_srq(struct world *world, struct vb_xrcd *xrcd)
{
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = DEPTH, .max_sge = 4}};
    struct arena *arena = &world->arena[1];
    struct vb_srq *srq;

    CHECK_EQ(
        vb_srq_create_xrc(world->fabric.side[1].context, arena->pd, xrcd, arena->cq, &attr, &srq),
        0);
    return srq;
}

static void make_xrc(struct world *world)
{
    struct qp_options from = options_of(IBV_QPT_XRC_SEND), to = options_of(IBV_QPT_XRC_RECV);
    struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_XRC_RECV, .xrcd = &world->xrcd->ibv};
    struct vb_qp **qp = world->victim[VICTIM_XRC];

    world->xrc_srq = make_xrc_srq(world, world->xrcd);
    world->other_srq = make_xrc_srq(world, world->other_xrcd);
    qp[0] = make(world, 0, IBV_QPT_XRC_SEND, false);
    CHECK_EQ(vb_qp_create(world->fabric.side[1].context, &attr, &qp[1]), 0);
    fabric_ready(&world->fabric, qp[1], qp[0]->number, &to);
    fabric_ready(&world->fabric, qp[0], qp[1]->number, &from);
}

static void make_pair(struct world *world, enum victim which, enum ibv_qp_type type, bool srq)
{
    struct qp_options options = options_of(type);
    struct vb_qp **qp = world->victim[which];

    qp[0] = make(world, 0, type, srq);
    qp[1] = make(world, 1, type, srq);
    fabric_ready(&world->fabric, qp[0], qp[1]->number, &options);
    fabric_ready(&world->fabric, qp[1], qp[0]->number, &options);
}

void world_begin(struct world *world)
{
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = DEPTH, .max_sge = 4}};

    memset(world->outcome, UNUSED, world->posted);
    world->posted = 0;
    world->fabric.logged = 0;
    for (int i = 0; i < 2; ++i) {
        /* What a packet carries must not look like what it must not overwrite. */
        memset(world->arena[i].bytes + OPEN_AT, OPEN, ZONE);
        CHECK_EQ(vb_srq_create(world->fabric.side[i].context, world->arena[i].pd, &srq,
                               &world->arena[i].srq),
                 0);
    }
    make_pair(world, VICTIM_RC, IBV_QPT_RC, false);
    make_pair(world, VICTIM_SRQ, IBV_QPT_RC, true);
    make_pair(world, VICTIM_UC, IBV_QPT_UC, false);
    make_pair(world, VICTIM_UD, IBV_QPT_UD, false);
    make_xrc(world);
    for (int i = 0; i < 2; ++i)
        CHECK_EQ(vb_multicast_attach(world->victim[VICTIM_UD][i], world_group), 0);
}

static struct ibv_sge element(const struct arena *arena, uint32_t offset, uint32_t length)
{
    return (struct ibv_sge){(uintptr_t)arena->bytes + OPEN_AT + offset, length,
                            arena->open->ibv.lkey};
}

bool world_send(struct world *world, struct vb_qp *qp, struct ibv_send_wr *wr, uint32_t offset,
                uint32_t length)
{
    struct arena *arena = &world->arena[fabric_side_of(&world->fabric, qp)];
    struct ibv_sge sge = element(arena, offset, length);
    struct ibv_send_wr *bad;

    wr->wr_id = world->posted;
    wr->sg_list = &sge;
    wr->num_sge = 1;
    wr->send_flags |= IBV_SEND_SIGNALED;
    if (world->posted == WORLD_REQUESTS || vb_post_staged(qp, wr, &bad))
        return false;
    world->outcome[world->posted++] = PENDING;
    return true;
}

bool world_receive(struct world *world, struct vb_qp *qp, uint32_t offset, uint32_t length)
{
    struct arena *arena = &world->arena[fabric_side_of(&world->fabric, qp)];
    struct ibv_sge sge = element(arena, offset, length);
    struct ibv_recv_wr wr = {.wr_id = world->posted, .sg_list = &sge, .num_sge = 1}, *bad;
    struct vb_srq *srq = qp->verbs->real ? world->xrc_srq : qp->srq;

    if (world->posted == WORLD_REQUESTS ||
        (srq ? vb_srq_post_recv(srq, &wr, &bad) : vb_post_recv(qp, &wr, &bad)))
        return false;
    world->outcome[world->posted++] = srq ? OF_SRQ : PENDING;
    return true;
}

/* ---- what must be so ---- */

static bool is_all(const uint8_t *at, size_t length, uint8_t value)
{
    return length == 0 || (at[0] == value && memcmp(at, at + 1, length - 1) == 0);
}

static void check_endpoint(const struct vb_endpoint *ep)
{
    const struct vb_requester *requester = &ep->requester;
    const struct vb_replies *replies = &ep->replies;

    CHECK(vb_wire_psn_diff(requester->next_psn, requester->una) >= 0);
    CHECK(vb_wire_psn_diff(requester->fresh_psn, requester->next_psn) >= 0);
    CHECK(replies->count - replies->next <= VB_MAX_RD_ATOMIC);
    CHECK(replies->end - replies->next <= replies->count - replies->next);
}

static void check_victims(const struct world *world)
{
    for (int which = 0; which < VICTIMS; ++which)
        for (int i = 0; i < 2; ++i) {
            const struct vb_qp *qp = world_real(world->victim[which][i]);

            if (qp->endpoint)
                check_endpoint(qp->endpoint);
        }
}

void world_check(const struct world *world)
{
    for (int i = 0; i < 2; ++i) {
        const uint8_t *bytes = world->arena[i].bytes;

        CHECK(is_all(bytes, OPEN_AT, CANARY));
        CHECK(is_all(bytes + OPEN_AT + ZONE, ARENA - OPEN_AT - ZONE, CANARY));
        CHECK(is_all(world->fabric.side[i].memory, HONEST_BYTES, HONEST));
    }
    check_victims(world);
}

/* ---- its end ---- */

static void collect(struct world *world)
{
    struct ibv_async_event event;
    struct ibv_wc wc;

    for (int i = 0; i < 2; ++i) {
        while (fabric_poll(world->arena[i].cq, &wc)) {
            CHECK(wc.wr_id < world->posted);
            CHECK(world->outcome[wc.wr_id] != ENDED);
            world->outcome[wc.wr_id] = ENDED;
        }
        while (fabric_has_event(&world->fabric, i)) {
            CHECK_EQ(vb_event_get(world->fabric.side[i].context, &event), 0);
            vb_event_ack(world->fabric.side[i].context, &event);
        }
    }
}

static void end_victims(struct world *world)
{
    for (int which = 0; which < VICTIMS; ++which)
        for (int i = 0; i < 2; ++i)
            fabric_set_state(world->victim[which][i], IBV_QPS_ERR);
    fabric_run(&world->fabric, 1000000000);
    collect(world);
    for (uint32_t n = 0; n < world->posted; ++n)
        CHECK(world->outcome[n] != PENDING);
    for (int i = 0; i < 2; ++i) {
        CHECK_EQ(vb_qp_destroy(world->victim[VICTIM_UD][i]), -EBUSY);
        CHECK_EQ(vb_multicast_detach(world->victim[VICTIM_UD][i], world_group), 0);
    }
    for (int which = 0; which < VICTIMS; ++which)
        for (int i = 0; i < 2; ++i)
            CHECK_EQ(vb_qp_destroy(world->victim[which][i]), 0);
    for (int i = 0; i < 2; ++i)
        CHECK_EQ(vb_srq_destroy(world->arena[i].srq), 0);
    CHECK_EQ(vb_srq_destroy(world->xrc_srq), 0);
    CHECK_EQ(vb_srq_destroy(world->other_srq), 0);
}

static void carry_one(struct world *world, int from)
{
    struct fabric *fabric = &world->fabric;
    struct vb_qp *const *qp = world->honest;
    uint8_t *source = fabric->side[from].memory, *target = fabric->side[!from].memory;
    struct ibv_send_wr wr = fabric_request(fabric, from, IBV_WR_SEND, 0);
    struct ibv_wc wc;

    memset(source, 1 + from, MESSAGE);
    fabric_post_recv(fabric, qp[!from], 1, MESSAGE, MESSAGE);
    CHECK_EQ(fabric_post(fabric, qp[from], wr, 0, MESSAGE), 0);
    CHECK_EQ(fabric_wait(fabric, fabric->side[from].send_cq).status, IBV_WC_SUCCESS);
    wc = fabric_wait(fabric, fabric->side[!from].recv_cq);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.byte_len, MESSAGE);
    CHECK(is_all(target + MESSAGE, MESSAGE, (uint8_t)(1 + from)));
    memset(source, HONEST, MESSAGE);
    memset(target + MESSAGE, HONEST, MESSAGE);
}

void world_end(struct world *world)
{
    world_check(world);
    end_victims(world);
    carry_one(world, 0);
    carry_one(world, 1);
}
