// SPDX-License-Identifier: Apache-2.0
/*
 * Garbage in shared memory. A hostile peer writes random values over each field of the structures
 * that it shares with this process, in its own segment and in this one's, while both work. Requests
 * may end in any way, or not at all; this process goes on, and in the end its queue pairs work.
 *
 * Left out is what docs/security.md names: locks, for which one waits, the addresses in this
 * process's own table of regions, and those that a peer asks the service thread to copy. An
 * argument is how many seconds to go on for (scripts/fuzz.sh).
 */
#include <pthread.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "direct/connection.h"
#include "end.h"
#include "network.h"

enum { REQUESTS = 60, PARTS = 32 };

/* What one round is about. */
struct round {
    uint64_t seed;
    bool regions; /* the hostile side changes its regions, and does nothing else */
    bool goes_on;
};

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* ---- what there is to spoil ---- */

struct part {
    uint8_t *at;
    size_t size;
};

struct parts {
    struct part part[PARTS];
    uint32_t count;
};

static void add(struct parts *parts, void *at, size_t size)
{
    CHECK(parts->count < PARTS);
    parts->part[parts->count++] = (struct part){at, size};
}

/* From one member up to another one. */
#define ADD(parts, entry, from, to)                                                                \
    add(parts, (uint8_t *)(entry) + offsetof(__typeof__(*(entry)), from),                          \
        offsetof(__typeof__(*(entry)), to) - offsetof(__typeof__(*(entry)), from))
#define ADD_FROM(parts, entry, from)                                                               \
    add(parts, (uint8_t *)(entry) + offsetof(__typeof__(*(entry)), from),                          \
        sizeof(*(entry)) - offsetof(__typeof__(*(entry)), from))

static void add_queue_pair(struct parts *parts, struct vb_view *view, struct vb_qp_shared *qp)
{
    ADD(parts, qp, state, sq_lock);
    ADD(parts, qp, state, sq_lock);
    ADD(parts, qp, rq_posted, rq_lock);
    ADD_FROM(parts, qp, rq_taken);
    if (qp->srq == 0)
        for (uint32_t i = 0; i < 3; ++i) /* what is taken next */
            add(parts, vb_rq_wqe(view, qp, atomic_load(&qp->rq_taken) + i), VB_LINE);
}

static void add_shared_queue(struct parts *parts, struct vb_view *view, struct vb_srq_shared *srq)
{
    ADD(parts, srq, wqes, posted);
    ADD(parts, srq, posted, lock);
    ADD_FROM(parts, srq, taken);
    add(parts, vb_srq_order_at(view, srq, 0), VB_LINE);
    add(parts, vb_srq_wqe(view, srq, 0), (size_t)8 * VB_LINE);
}

static void add_segment(struct parts *parts, struct vb_view *view, struct vb_qp_shared *qp)
{
    struct vb_cq_shared *cq = vb_view_cq(view, qp->recv_cq);

    add_queue_pair(parts, view, qp);
    if (qp->srq)
        add_shared_queue(parts, view, vb_view_srq(view, qp->srq - 1));
    ADD(parts, cq, ring, lock);
    ADD_FROM(parts, cq, tail);
    add(parts, vb_cqe_at(view, cq, 0), (size_t)16 * VB_LINE);
    ADD(parts, view->header, magic, atomic_lock);
    add(parts, view->evidence, 8 * sizeof(*view->evidence));
    add(parts, view->group, sizeof(*view->group));
}

static void add_own_region(struct parts *parts, const struct end *end)
{
    add(parts, &end->direct->adapter->self.mr[end->mr->index], sizeof(struct vb_mr_shared));
}

/* A key, its domain and what it allows; not where the memory is. */
static void add_region_of(struct parts *parts, const struct end *end)
{
    struct vb_mr_shared *region =
        vb_mr_entry(&end->qp->verbs->connection->peer->view, end->peer.rkey);

    ADD(parts, region, key, iova);
    ADD_FROM(parts, region, access);
}

/* ---- the hostile side ---- */

static uint64_t garbage(uint64_t was, uint64_t *random)
{
    uint64_t drawn = next_random(random);

    switch (drawn % 8) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX;
    case 2:
        return was ^ 1ull << drawn / 8 % 64;
    case 3:
        return was + drawn / 8 % 64 - 32;
    case 4:
        return drawn / 8 % 256;
    default:
        return next_random(random) >> next_random(random) % 64;
    }
}

/* Four bytes, or eight; where, and what was there. */
struct spoilt {
    uint8_t *at;
    uint64_t was;
    bool wide;
};

static void put(const struct spoilt *spoilt, uint64_t value)
{
    if (spoilt->wide)
        __atomic_store_n((uint64_t *)(void *)spoilt->at, value, __ATOMIC_RELAXED);
    else
        __atomic_store_n((uint32_t *)(void *)spoilt->at, (uint32_t)value, __ATOMIC_RELAXED);
}

static struct spoilt spoil(const struct parts *parts, uint64_t *random)
{
    const struct part *part = &parts->part[next_random(random) % parts->count];
    uint64_t word = next_random(random) % (part->size / 4);
    struct spoilt spoilt = {.at = part->at + 4 * word};

    spoilt.wide = (uintptr_t)spoilt.at % 8 == 0 && 4 * word + 8 <= part->size && word % 4 != 2;
    memcpy(&spoilt.was, spoilt.at, spoilt.wide ? 8 : 4);
    put(&spoilt, garbage(spoilt.was, random));
    return spoilt;
}

static const enum ibv_wr_opcode opcodes[] = {
    IBV_WR_SEND,      IBV_WR_SEND_WITH_IMM,        IBV_WR_RDMA_WRITE,    IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_INV,
};

static void try_receive(struct end *end)
{
    struct ibv_sge sge[2] = {{(uintptr_t)end->memory, 512, end->mr->ibv.lkey},
                             {(uintptr_t)end->memory + 512, 4096, end->mr->ibv.lkey}};
    struct ibv_recv_wr wr = {.wr_id = 5, .sg_list = sge, .num_sge = end->srq ? 1 : 2}, *bad;

    if (end->srq)
        vb_srq_post_recv(end->srq, &wr, &bad);
    else
        vb_post_recv(end->qp, &wr, &bad);
}

/*
 * Of a peer whose table of regions is spoilt only what its own threads have no part in: they go by
 * that table, as it is their own, for a SEND's payload that they place and for what they are asked
 * to copy.
 */
static void try_request(struct end *end, bool one_sided, uint64_t *random)
{
    static const uint32_t lengths[] = {16, 8, 100, 512};
    uint64_t drawn = next_random(random);
    enum ibv_wr_opcode opcode = opcodes[drawn % (sizeof(opcodes) / sizeof(*opcodes))];
    bool is_write = opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;

    if (one_sided && !is_write)
        opcode = IBV_WR_RDMA_READ;
    end_post(end, end->qp, opcode,
             opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : lengths[drawn / 64 % 4]);
}

static void poll_some(struct end *end)
{
    struct ibv_wc wc[8];

    vb_cq_poll(end->cq, 8, wc);
}

static bool is_told(int socket)
{
    char token;

    return recv(socket, &token, 1, MSG_DONTWAIT) == 1;
}

static void spoil_until_told(struct end *end, const struct round *round, int socket)
{
    struct parts parts = {0};
    uint64_t random = round->seed;

    if (round->regions) {
        add_own_region(&parts, end);
    } else {
        add_segment(&parts, &end->direct->adapter->self, end->qp->shared);
        add_segment(&parts, &end->qp->verbs->connection->peer->view,
                    end->qp->verbs->connection->remote);
        add_region_of(&parts, end);
    }
    while (!is_told(socket)) {
        struct spoilt spoilt[2] = {spoil(&parts, &random), spoil(&parts, &random)};

        if (!round->regions) {
            try_receive(end);
            try_request(end, false, &random);
            poll_some(end);
        }
        usleep(next_random(&random) % 200);
        for (int i = 1; i >= 0 && (round->regions || next_random(&random) % 8); --i)
            put(&spoilt[i], spoilt[i].was);
    }
}

/* ---- a lock that garbage was written over ---- */

/* An offset that is garbage may lead to the lock in the header, for which both sides would wait. */
struct mender {
    pthread_t thread;
    atomic_bool ends;
    _Atomic uint32_t *lock;
};

static void *mend(void *of)
{
    struct mender *mender = of;
    uint32_t seen = 0, now;

    for (; !atomic_load(&mender->ends); seen = now) {
        usleep(20000);
        now = atomic_load(mender->lock);
        if (now && now == seen)
            atomic_store(mender->lock, 0);
    }
    return NULL;
}

static void start_mending(struct mender *mender, struct end *end)
{
    mender->lock = &end->direct->adapter->self.header->atomic_lock;
    atomic_store(&mender->ends, false);
    CHECK_EQ(pthread_create(&mender->thread, NULL, mend, mender), 0);
}

static void stop_mending(struct mender *mender)
{
    atomic_store(&mender->ends, true);
    pthread_join(mender->thread, NULL);
}

/* ---- a round ---- */

static void begin(struct end *end, int socket)
{
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = 32, .max_sge = 1}};

    CHECK_EQ(vb_cq_create(end->context, 256, NULL, end->channel, &end->cq), 0);
    if (end->options.srq_wr)
        CHECK_EQ(vb_srq_create(end->context, end->pd, &srq, &end->srq), 0);
    end_connect(end, end_add_qp(end), socket);
    for (int i = 0; i < 16; ++i)
        try_receive(end);
    CHECK_EQ(end_post(end, end->qp, IBV_WR_RDMA_WRITE, 64), 0); /* now they have met */
    CHECK_EQ(end_wait(end->cq, 10).status, IBV_WC_SUCCESS);
    end_meet(socket);
}

static void finish(struct end *end, int socket)
{
    end_meet(socket); /* from here on nothing changes */
    CHECK_EQ(vb_qp_destroy(end->qp), 0);
    if (end->srq)
        CHECK_EQ(vb_srq_destroy(end->srq), 0);
    CHECK_EQ(vb_cq_destroy(end->cq), 0);
    end->srq = NULL;
    end_meet(socket);
}

static struct end_options options_of(int number)
{
    static const struct end_options all[] = {
        {.in_heap = true},
        {.in_heap = true, .srq_wr = 32},
        {.channel = true},
        {.force = VB_WAY_BOUNCE},
    };

    return all[number % 4];
}

/* What end_open has made for one use only. */
static void open_end(struct end *end, int number)
{
    end_open(end, options_of(number));
    if (end->srq)
        CHECK_EQ(vb_srq_destroy(end->srq), 0);
    CHECK_EQ(vb_cq_destroy(end->cq), 0);
    end->srq = NULL;
}

/* What is written before a peer is met, and what the next round needs. */
static void restore(struct vb_segment_header *header, const struct vb_segment_header *was)
{
    memcpy(header, was, offsetof(__typeof__(*was), evidence_next));
    memcpy(header->port, was->port, sizeof(header->port));
    header->mr_mask = was->mr_mask;
    header->watched = was->watched;
    header->device = was->device;
}

static void is_hostile(int socket)
{
    struct mender mender;
    struct round round;
    struct end end;
    int number;

    CHECK_EQ(read(socket, &number, sizeof(number)), sizeof(number));
    open_end(&end, number);
    start_mending(&mender, &end);
    while (read(socket, &round, sizeof(round)) == sizeof(round) && round.goes_on) {
        struct vb_segment_header own = *end.direct->adapter->self.header, theirs;
        struct vb_mr_shared region;

        begin(&end, socket);
        region = *vb_mr_entry(&end.qp->verbs->connection->peer->view, end.peer.rkey);
        theirs = *end.qp->verbs->connection->peer->view.header;
        spoil_until_told(&end, &round, socket);
        restore(end.direct->adapter->self.header, &own);
        restore(end.qp->verbs->connection->peer->view.header, &theirs);
        *vb_mr_entry(&end.qp->verbs->connection->peer->view, end.peer.rkey) = region;
        finish(&end, socket);
    }
    stop_mending(&mender);
    end_meet(socket);
}

static void work(struct end *end, const struct round *round)
{
    uint64_t random = ~round->seed, until;

    for (int i = 0; i < REQUESTS; ++i) {
        try_receive(end);
        try_request(end, round->regions, &random);
        if (end->channel)
            vb_cq_arm(end->cq, i % 2);
        until = vb_direct_now() + 300000;
        do
            poll_some(end);
        while (vb_direct_now() < until);
    }
}

static void still_works(struct end *end)
{
    struct vb_qp *pair[2];

    CHECK_EQ(vb_cq_create(end->context, 256, NULL, NULL, &end->cq), 0);
    pair[0] = end_add_qp(end);
    pair[1] = end_add_qp(end);
    end_ready(pair[0], pair[1]);
    end_ready(pair[1], pair[0]);
    end_post_recv(end, pair[1], 3);
    CHECK_EQ(end_post(end, pair[0], IBV_WR_SEND, 512), 0);
    for (int i = 0; i < 2; ++i)
        CHECK_EQ(end_wait(end->cq, 20).status, IBV_WC_SUCCESS);
}

static int survive(int number, double seconds, uint64_t *random)
{
    struct round round = {.goes_on = true};
    uint64_t until = vb_direct_now() + (uint64_t)(seconds * 1e9);
    int socket, rounds = 0;
    pid_t child = end_spawn("is_hostile", &socket);
    struct mender mender;
    struct end end;

    CHECK_EQ(write(socket, &number, sizeof(number)), sizeof(number));
    open_end(&end, number);
    start_mending(&mender, &end);
    for (; vb_direct_now() < until; ++rounds) {
        round.seed = next_random(random);
        round.regions = rounds % 3 == 2 && end.options.force != VB_WAY_BOUNCE;
        CHECK_EQ(write(socket, &round, sizeof(round)), sizeof(round));
        begin(&end, socket);
        work(&end, &round);
        CHECK_EQ(write(socket, "x", 1), 1);
        finish(&end, socket);
    }
    round.goes_on = false;
    CHECK_EQ(write(socket, &round, sizeof(round)), sizeof(round));
    end_meet(socket);
    end_kill(child, socket);
    stop_mending(&mender);
    still_works(&end);
    end_close(&end);
    return rounds;
}

int main(int argc, char **argv)
{
    static const struct end_play plays[] = {{"is_hostile", is_hostile}};
    double seconds = argc == 2 ? atof(argv[1]) : 5;
    uint64_t random = argc == 2 ? vb_direct_now() : 0x9e3779b97f4a7c15ull;

    if (end_play(argc, argv, plays, 1))
        return 0;
    network_enter(); /* a number that is garbage leads to no other process of the host */
    alarm((unsigned)(60 + 2 * seconds));
    printf("seed %llx\n", (unsigned long long)random);
    for (int number = 0; number < 4; ++number)
        printf("ok way %d: %d rounds\n", number, survive(number, seconds / 4, &random));
    return 0;
}
