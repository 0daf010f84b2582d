// SPDX-License-Identifier: Apache-2.0
/*
 * Threads that share queue pairs, completion queues and regions, and a region or queue pair that
 * goes away while others use it. Each test counts what went in and what came out.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "check.h"
#include "end.h"
#include "loopback.h"

enum { THREADS = 4, EACH = 3000 };

static struct loopback loop;

static void start(pthread_t *threads, int count, void *(*work)(void *))
{
    for (int i = 0; i < count; ++i)
        CHECK_EQ(pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i), 0);
}

static void join(pthread_t *threads, int count)
{
    for (int i = 0; i < count; ++i)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

/* Of memory[1]: the region itself may be closed while a thread still writes there. */
static uint32_t target_rkey;

static void open_loop(enum ibv_qp_type type)
{
    loopback_open(&loop, type);
    loopback_connect(loop.qp[0], loop.qp[1], 7);
    loopback_connect(loop.qp[1], loop.qp[0], 7);
    target_rkey = loop.mr[1]->ibv.rkey;
}

static int post_write(uint64_t wr_id, uint32_t offset, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)loop.memory[0] + offset, length, loop.mr[0]->ibv.lkey};
    struct ibv_send_wr wr = {.wr_id = wr_id,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;

    wr.wr.rdma.remote_addr = (uintptr_t)loop.memory[1] + offset;
    wr.wr.rdma.rkey = target_rkey;
    return vb_post_send(loop.qp[0], &wr, &bad);
}

static int post_send(const void *data, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)data, length, 0};
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};
    struct ibv_send_wr *bad;

    return vb_post_send(loop.qp[0], &wr, &bad);
}

static void post_recv(uint32_t place)
{
    struct ibv_sge sge = {(uintptr_t)loop.memory[1] + place * 8, 8, loop.mr[1]->ibv.lkey};
    struct ibv_recv_wr wr = {.wr_id = place, .sg_list = &sge, .num_sge = 1}, *bad;

    CHECK_EQ(vb_post_recv(loop.qp[1], &wr, &bad), 0);
}

/* ---- one queue pair, one completion queue, all threads post and poll ---- */

static _Atomic uint8_t completed[THREADS * EACH];

static void take_some(void)
{
    struct ibv_wc wc[4];
    int n = vb_cq_poll(loop.cq[0], 4, wc);

    CHECK(n >= 0);
    for (int i = 0; i < n; ++i) {
        CHECK_EQ(wc[i].status, IBV_WC_SUCCESS);
        CHECK_EQ(atomic_fetch_add(&completed[wc[i].wr_id], 1), 0);
    }
}

static void *post_and_poll(void *argument)
{
    uint64_t first = (uint64_t)(intptr_t)argument * EACH;

    for (uint64_t i = 0; i < EACH; ++i) {
        while (post_write(first + i, (uint32_t)(intptr_t)argument * 64, 64) == -ENOMEM)
            take_some();
        take_some();
    }
    return NULL;
}

static void each_request_of_several_posters_completes_once(void)
{
    pthread_t threads[THREADS];
    uint64_t end;

    open_loop(IBV_QPT_RC);
    start(threads, THREADS, post_and_poll);
    join(threads, THREADS);
    end = vb_direct_now() + 100000000;
    while (vb_direct_now() < end)
        take_some();
    for (int i = 0; i < THREADS * EACH; ++i)
        CHECK_EQ(completed[i], 1);
    loopback_close(&loop);
}

/* ---- the lock's usual thread changes ---- */

enum { TURNS = 1000 };
static _Atomic uint32_t turn;

static void *send_in_turn(void *argument)
{
    for (uint32_t mine = (uint32_t)(intptr_t)argument; mine < TURNS; mine += 2) {
        uint64_t number = mine;

        while (atomic_load(&turn) != mine)
            sched_yield();
        while (post_send(&number, 8) == -ENOMEM) {
            struct ibv_wc wc;
            vb_cq_poll(loop.cq[0], 1, &wc);
        }
        atomic_store(&turn, mine + 1);
    }
    return NULL;
}

static void two_threads_that_alternate_keep_the_order(void)
{
    pthread_t threads[2];
    struct ibv_wc wc;

    open_loop(IBV_QPT_RC);
    for (uint32_t i = 0; i < LOOPBACK_DEPTH; ++i)
        post_recv(i);
    start(threads, 2, send_in_turn);
    for (uint64_t i = 0; i < TURNS; ++i) {
        CHECK_EQ(loopback_poll(loop.cq[1], &wc), 0);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ(*(uint64_t *)(loop.memory[1] + wc.wr_id * 8), i);
        post_recv((uint32_t)wc.wr_id);
    }
    join(threads, 2);
    loopback_close(&loop);
}

/* ---- objects made and destroyed in several threads ---- */

static void make_and_destroy(void)
{
    struct ibv_qp_init_attr_ex attr = {
        .qp_type = IBV_QPT_RC, .pd = &loop.pd->ibv, .cap = {4, 4, 1, 1, 0}};
    struct vb_qp *a, *b;
    struct vb_cq *cq;
    struct vb_mr *mr;
    struct ibv_wc wc;

    CHECK_EQ(vb_cq_create(loop.context, 8, NULL, NULL, &cq), 0);
    attr.send_cq = attr.recv_cq = &cq->ibv;
    CHECK_EQ(vb_qp_create(loop.context, &attr, &a), 0);
    CHECK_EQ(vb_qp_create(loop.context, &attr, &b), 0);
    CHECK_EQ(vb_mr_reg(loop.pd, loop.memory[0], 64, 0, IBV_ACCESS_LOCAL_WRITE, &mr), 0);
    loopback_connect(a, b, 7);
    loopback_connect(b, a, 7);
    CHECK_EQ(vb_qp_destroy(b), 0);
    CHECK_EQ(vb_cq_poll(cq, 1, &wc), 0);
    CHECK_EQ(vb_mr_dereg(mr), 0);
    CHECK_EQ(vb_qp_destroy(a), 0);
    CHECK_EQ(vb_cq_destroy(cq), 0);
}

static void *make_for_a_while(void *argument)
{
    (void)argument;
    for (int i = 0; i < 300; ++i)
        make_and_destroy();
    return NULL;
}

static void objects_come_and_go_in_several_threads(void)
{
    pthread_t threads[THREADS];

    open_loop(IBV_QPT_RC);
    start(threads, THREADS, make_for_a_while);
    for (int i = 0; i < 2000; ++i) {
        struct ibv_wc wc;

        CHECK_EQ(post_write(0, 0, 8), 0);
        CHECK_EQ(loopback_poll(loop.cq[0], &wc), 0);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    }
    join(threads, THREADS);
    loopback_close(&loop);
}

/* ---- a sleeper ---- */

enum { WAKES = 1500 };

static void *answer_wakes(void *argument)
{
    struct end *end = argument;

    for (int i = 0; i < WAKES; ++i) {
        struct ibv_wc wc;
        struct vb_cq *cq;

        vb_cq_arm(end->cq, false);
        while (vb_cq_poll(end->cq, 1, &wc) != 1) {
            CHECK_EQ(vb_channel_wait(end->channel, 0, &cq), 0);
            ++cq->ibv.comp_events_completed;
            vb_cq_arm(end->cq, false);
        }
    }
    return NULL;
}

static void wait_until_taken(struct end *end, uint32_t i)
{
    uint64_t limit = vb_direct_now() + 3000000000ull;

    while (atomic_load(&end->cq->shared->head) <= i) {
        CHECK(vb_direct_now() < limit);
        sched_yield();
    }
}

/* Its sends complete where nobody sleeps, its receives where the other thread does. */
static void a_thread_that_sleeps_misses_no_completion(void)
{
    struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_RC, .cap = {8, 8, 1, 1, 0}};
    struct vb_qp *from, *to;
    struct vb_cq *sends;
    struct end end;
    pthread_t sleeper;

    end_open(&end, (struct end_options){.channel = true});
    CHECK_EQ(vb_cq_create(end.context, 64, NULL, NULL, &sends), 0);
    attr.pd = &end.pd->ibv;
    attr.send_cq = &sends->ibv;
    attr.recv_cq = &end.cq->ibv;
    CHECK_EQ(vb_qp_create(end.context, &attr, &from), 0);
    CHECK_EQ(vb_qp_create(end.context, &attr, &to), 0);
    loopback_connect(from, to, 7);
    loopback_connect(to, from, 7);
    CHECK_EQ(pthread_create(&sleeper, NULL, answer_wakes, &end), 0);
    for (uint32_t i = 0; i < WAKES; ++i) {
        end_post_recv(&end, to, i);
        CHECK_EQ(end_post(&end, from, IBV_WR_SEND, 8), 0);
        end_wait(sends, 3);
        wait_until_taken(&end, i);
    }
    CHECK_EQ(pthread_join(sleeper, NULL), 0);
    end_close(&end);
}

/* ---- a region is withdrawn while others write into it ---- */

static bool stays(const uint8_t *memory, size_t length, uint8_t pattern)
{
    uint64_t end = vb_direct_now() + 300000;

    do
        for (size_t i = 0; i < length; ++i)
            if (memory[i] != pattern)
                return false;
    while (vb_direct_now() < end);
    return true;
}

/* Afterwards the memory is the program's alone: no byte of it changes. */
static void withdraw_and_watch(struct vb_mr *mr, uint8_t *memory)
{
    CHECK_EQ(vb_mr_dereg(mr), 0);
    memset(memory, 0x5a, END_BYTES);
    CHECK(stays(memory, END_BYTES, 0x5a));
}

static void *write_until_refused(void *argument)
{
    struct ibv_wc wc = {0};

    (void)argument;
    while (wc.status == IBV_WC_SUCCESS) {
        CHECK_EQ(post_write(0, 0, LOOPBACK_BYTES), 0);
        CHECK_EQ(loopback_poll(loop.cq[0], &wc), 0);
    }
    CHECK_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
    return NULL;
}

static void no_byte_moves_after_a_region_is_closed_under_a_thread(void)
{
    for (int i = 0; i < 40; ++i) {
        pthread_t writer;

        open_loop(IBV_QPT_RC);
        start(&writer, 1, write_until_refused);
        usleep(200 + i * 37 % 500);
        withdraw_and_watch(loop.mr[1], loop.memory[1]);
        join(&writer, 1);
        loopback_close(&loop);
    }
}

static void open_way(struct end *end, const char *way)
{
    static const struct {
        const char *name;
        struct end_options options;
    } ways[] = {
        {"shared mapping", {.in_heap = true}},
        {"cross-process copy", {.force = VB_WAY_CMA}},
        {"bounce ring", {.force = VB_WAY_BOUNCE}},
    };

    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); ++i)
        if (strcmp(way, ways[i].name) == 0)
            end_open(end, ways[i].options);
}

enum { WITHDRAWALS = 25 };

/* The other process: one queue pair after the other, each until its request is refused. */
static void writes_until_refused(int socket, const char *way)
{
    struct end end;

    open_way(&end, way);
    for (int i = 0; i < WITHDRAWALS; ++i) {
        struct vb_qp *qp = end_add_qp(&end);
        struct ibv_wc wc = {0};

        end_connect(&end, qp, socket);
        while (wc.status == IBV_WC_SUCCESS) {
            CHECK_EQ(end_post(&end, qp, IBV_WR_RDMA_WRITE, END_BYTES), 0);
            wc = end_wait(end.cq, 5);
        }
        CHECK_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
        end_meet(socket);
        CHECK_EQ(vb_qp_destroy(qp), 0);
    }
    end_meet(socket);
    end_close(&end);
}

static void withdraw_under(const char *way)
{
    char role[64];
    struct end end;
    int socket;
    pid_t writer;

    open_way(&end, way);
    snprintf(role, sizeof(role), "writes/%s", way);
    writer = end_spawn(role, &socket);
    for (int i = 0; i < WITHDRAWALS; ++i) {
        struct vb_qp *qp = end_add_qp(&end);

        end_connect(&end, qp, socket);
        usleep(200 + i * 37 % 400);
        withdraw_and_watch(end.mr, end.memory);
        CHECK_EQ(vb_mr_reg(end.pd, end.memory, END_BYTES, (uintptr_t)end.memory,
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &end.mr),
                 0);
        end_meet(socket);
        CHECK_EQ(vb_qp_destroy(qp), 0);
    }
    end_meet(socket);
    end_kill(writer, socket);
    end_close(&end);
}

static void no_byte_moves_after_a_region_is_closed_under_a_process(void)
{
    withdraw_under("shared mapping");
    withdraw_under("cross-process copy");
    withdraw_under("bounce ring");
}

/* ---- a queue pair is destroyed while messages come in ---- */

static void sends_until_refused(int socket)
{
    struct end end;

    end_open(&end, (struct end_options){0});
    for (int i = 0; i < WITHDRAWALS; ++i) {
        struct vb_qp *qp = end_add_qp(&end);
        struct ibv_wc wc = {0};

        end_connect(&end, qp, socket);
        while (wc.status == IBV_WC_SUCCESS) {
            CHECK_EQ(end_post(&end, qp, IBV_WR_SEND, 1024), 0);
            wc = end_wait(end.cq, 5);
        }
        CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
        end_meet(socket);
        CHECK_EQ(vb_qp_destroy(qp), 0);
    }
    end_meet(socket);
    end_close(&end);
}

static void take_for_a_while(struct end *end, struct vb_qp *qp, unsigned us)
{
    uint64_t until = vb_direct_now() + us * 1000ull;
    struct ibv_wc wc;

    for (int i = 0; i < END_DEPTH; ++i)
        end_post_recv(end, qp, 0);
    while (vb_direct_now() < until)
        if (vb_cq_poll(end->cq, 1, &wc) == 1)
            end_post_recv(end, qp, 0);
}

static void no_byte_moves_after_a_qp_is_destroyed(void)
{
    struct ibv_wc wc;
    struct end end;
    int socket;
    pid_t sender;

    end_open(&end, (struct end_options){0});
    sender = end_spawn("sends", &socket);
    for (int i = 0; i < WITHDRAWALS; ++i) {
        struct vb_qp *qp = end_add_qp(&end);

        end_connect(&end, qp, socket);
        take_for_a_while(&end, qp, 200 + (unsigned)i * 37 % 400);
        CHECK_EQ(vb_qp_destroy(qp), 0);
        CHECK_EQ(vb_cq_poll(end.cq, 1, &wc), 0);
        memset(end.memory, 0x5a, END_BYTES);
        CHECK(stays(end.memory, END_BYTES, 0x5a));
        end_meet(socket);
    }
    end_meet(socket);
    end_kill(sender, socket);
    end_close(&end);
}

/* ---- the program's descriptors are its own, whoever comes and goes ---- */

static void comes_and_goes(int socket)
{
    end_meet(socket);
    for (int i = 0; i < 30; ++i) {
        struct end end;

        end_open(&end, (struct end_options){0});
        end_connect(&end, end_add_qp(&end), socket);
        end_close(&end);
    }
}

static atomic_bool enough;

static void *open_and_look(void *argument)
{
    (void)argument;
    while (!atomic_load(&enough)) {
        int ends[2];
        char byte = 0;

        CHECK_EQ(pipe(ends), 0);
        CHECK_EQ(write(ends[1], "p", 1), 1);
        sched_yield();
        CHECK_EQ(read(ends[0], &byte, 1), 1);
        CHECK_EQ(byte, 'p');
        CHECK_EQ(close(ends[0]), 0);
        CHECK_EQ(close(ends[1]), 0);
    }
    return NULL;
}

static void a_visitor_closes_no_descriptor_of_the_program(void)
{
    pthread_t looker;
    struct end end;
    int socket;
    pid_t visitor;

    end_open(&end, (struct end_options){0});
    visitor = end_spawn("comes_and_goes", &socket);
    end_meet(socket);
    start(&looker, 1, open_and_look);
    for (int i = 0; i < 30; ++i) {
        struct vb_qp *qp = end_add_qp(&end);

        end_connect(&end, qp, socket);
        CHECK_EQ(vb_qp_destroy(qp), 0);
    }
    atomic_store(&enough, true);
    join(&looker, 1);
    end_kill(visitor, socket);
    end_close(&end);
}

/* ---- the service thread looks at every object when a peer dies ---- */

static void dies_connected(int socket)
{
    struct end end;

    end_open(&end, (struct end_options){0});
    end_connect(&end, end_add_qp(&end), socket);
    kill(getpid(), SIGKILL);
}

static void *make_queues(void *argument)
{
    struct end *end = argument;
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct vb_srq *srq;
    struct vb_cq *cq;

    while (!atomic_load(&enough)) {
        CHECK_EQ(vb_cq_create(end->context, 4, NULL, end->channel, &cq), 0);
        CHECK_EQ(vb_srq_create(end->context, end->pd, &attr, &srq), 0);
        CHECK_EQ(vb_srq_destroy(srq), 0);
        CHECK_EQ(vb_cq_destroy(cq), 0);
    }
    return NULL;
}

static void objects_are_made_while_peers_die(void)
{
    struct end end;
    pthread_t maker;

    end_open(&end, (struct end_options){.channel = true});
    atomic_store(&enough, false);
    CHECK_EQ(pthread_create(&maker, NULL, make_queues, &end), 0);
    for (int i = 0; i < 60; ++i) {
        struct vb_qp *qp = end_add_qp(&end);
        int socket;
        pid_t visitor = end_spawn("dies_connected", &socket);

        end_connect(&end, qp, socket);
        end_kill(visitor, socket);
        CHECK_EQ(vb_qp_destroy(qp), 0);
    }
    atomic_store(&enough, true);
    join(&maker, 1);
    end_close(&end);
}

static bool play_role(int argc, char **argv)
{
    int socket;

    if ((socket = end_role(argc, argv, "sends")) >= 0)
        sends_until_refused(socket);
    else if ((socket = end_role(argc, argv, "dies_connected")) >= 0)
        dies_connected(socket);
    else if ((socket = end_role(argc, argv, "comes_and_goes")) >= 0)
        comes_and_goes(socket);
    else if (argc == 3 && strncmp(argv[1], "writes/", 7) == 0)
        writes_until_refused(atoi(argv[2]), argv[1] + 7);
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    if (play_role(argc, argv))
        return 0;
    alarm(90); /* a hang is a failure */
    RUN(each_request_of_several_posters_completes_once);
    RUN(two_threads_that_alternate_keep_the_order);
    RUN(objects_come_and_go_in_several_threads);
    RUN(a_thread_that_sleeps_misses_no_completion);
    RUN(no_byte_moves_after_a_region_is_closed_under_a_thread);
    RUN(no_byte_moves_after_a_region_is_closed_under_a_process);
    RUN(no_byte_moves_after_a_qp_is_destroyed);
    RUN(a_visitor_closes_no_descriptor_of_the_program);
    RUN(objects_are_made_while_peers_die);
    return 0;
}
