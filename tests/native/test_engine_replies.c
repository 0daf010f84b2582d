// SPDX-License-Identifier: Apache-2.0
/*
 * READs that are asked for again while others are being answered. The model is a run of PSNs that
 * are owed: a request for some packet lets the run begin there if it began later, and go on to the
 * end of that READ if it ended sooner.
 */
#include "check.h"
#include "fabric.h"
#include "transport/replies.h"

enum { MTU = 256, ROOM = 4, ROUNDS = 20000, MOST_PACKETS = 5 };

static struct fabric fabric;
static struct vb_endpoint *ep;

static uint32_t draw(uint32_t below)
{
    return fabric_random(&fabric) % below;
}

/* ---- the model ------------------------------------------------------------------------------- */

struct asked {
    uint64_t begin, end; /* PSNs that never wrap */
};

static struct {
    struct asked asked[ROOM]; /* the last READs, the oldest first */
    uint32_t kept;
    uint64_t begin, end; /* the run; empty: nothing is owed */
    uint64_t anew;       /* an answer began here that is not the READ's beginning */
    uint64_t never;      /* the first PSN that was never answered */
} model;

static void model_ask_again(const struct asked *asked, uint64_t at)
{
    if (model.begin == model.end) {
        model.begin = model.anew = at;
        model.end = asked->end;
        return;
    }
    if (at < model.begin)
        model.begin = model.anew = at;
    if (asked->end > model.end)
        model.end = asked->end;
}

static void model_add(uint32_t packets)
{
    uint64_t from = model.kept ? model.asked[model.kept - 1].end : 0xfffff0;

    if (model.kept == ROOM) {
        if (model.begin < model.end && model.begin < model.asked[0].end)
            model.begin = model.asked[0].end; /* it has to be asked for again */
        memmove(model.asked, model.asked + 1, sizeof(model.asked) - sizeof(model.asked[0]));
        --model.kept;
    }
    model.asked[model.kept++] = (struct asked){from, from + packets};
    if (model.begin == model.end)
        model.begin = from;
    model.end = from + packets;
}

static uint32_t model_unanswered(void)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < model.kept; ++i)
        count += model.asked[i].end > model.never;
    return count;
}

static const struct asked *model_of(uint64_t psn)
{
    for (uint32_t i = 0; i < model.kept; ++i)
        if (psn >= model.asked[i].begin && psn < model.asked[i].end)
            return &model.asked[i];
    return NULL;
}

static uint8_t kind_at(uint64_t psn)
{
    const struct asked *asked = model_of(psn);
    bool first = psn == asked->begin || psn == model.anew, last = psn + 1 == asked->end;

    if (first)
        return last ? VB_OP_READ_RESPONSE_ONLY : VB_OP_READ_RESPONSE_FIRST;
    return last ? VB_OP_READ_RESPONSE_LAST : VB_OP_READ_RESPONSE_MIDDLE;
}

/* ---- the replies ----------------------------------------------------------------------------- */

static void add(void)
{
    uint32_t packets = 1 + draw(MOST_PACKETS);
    struct vb_record record = {.kind = VB_RECORD_READ,
                               .addr = (uintptr_t)fabric.side[1].memory,
                               .rkey = fabric.side[1].mr->ibv.rkey,
                               .pd = fabric.side[1].pd->number,
                               .length = packets * MTU - draw(MTU)};

    CHECK_EQ(vb_engine_replies_full(ep), model_unanswered() == ROOM);
    if (vb_engine_replies_full(ep))
        return;
    model_add(packets);
    record.psn = (uint32_t)model.asked[model.kept - 1].begin & VB_PSN_MASK;
    vb_engine_replies_add(ep, &record);
}

/* Also for PSNs that no kept READ has. */
static void ask_again(void)
{
    uint64_t first = model.asked[0].begin, last = model.asked[model.kept - 1].end;
    uint64_t psn = first - 2 + draw((uint32_t)(last - first) + 4);
    const struct asked *asked = model_of(psn);
    const struct vb_record *record;
    uint32_t index;

    record = vb_engine_replies_find(ep, (uint32_t)psn & VB_PSN_MASK, &index);
    CHECK_EQ(record != NULL, asked != NULL);
    if (!record || psn >= model.never)
        return;
    CHECK_EQ(record->psn, asked->begin & VB_PSN_MASK);
    CHECK_EQ(index, psn - asked->begin);
    model_ask_again(asked, psn);
    vb_engine_replies_repeat(ep, record, index, draw(4), fabric.now);
}

static void answer(void)
{
    struct vb_packet packet;
    struct vb_bth bth;

    CHECK_EQ(vb_engine_replies_due(&ep->replies), model.begin < model.end);
    if (model.begin == model.end)
        return;
    memset(&packet, 0, sizeof(packet));
    CHECK(vb_engine_replies_next(ep, &packet));
    bth = vb_wire_bth_read(packet.header);
    CHECK_EQ(bth.psn, model.begin & VB_PSN_MASK);
    CHECK_EQ(bth.opcode & 0x1f, kind_at(model.begin));
    if (model.anew == model.begin)
        model.anew = UINT64_MAX;
    if (++model.begin > model.never)
        model.never = model.begin;
}

static void what_is_asked_for_again_is_answered_in_one_run(void)
{
    struct qp_options options = fabric_defaults();
    struct vb_qp *qp[2];

    options.mtu = MTU;
    options.dest_rd_atomic = ROOM;
    fabric_open(&fabric, (struct fabric_options){.seed = 5});
    fabric_pair(&fabric, options, qp);
    ep = qp[1]->endpoint;
    model.anew = UINT64_MAX;
    model.never = 0xfffff0;
    add();
    for (int round = 0; round < ROUNDS; ++round)
        switch (draw(7)) {
        case 0:
            add();
            break;
        case 1:
            ask_again();
            break;
        default:
            answer();
        }
    CHECK(model.never > 0xfffff0 + 1000);
    fabric_close(&fabric);
}

int main(void)
{
    RUN(what_is_asked_for_again_is_answered_in_one_run);
    return 0;
}
