// SPDX-License-Identifier: Apache-2.0
/*
 * What the direct carrier tells of itself: counters, here and asked of other processes, its peers
 * and how it copies to them, connections whose other end is not there, and why a peer refused.
 */
#include <pthread.h>
#include <unistd.h>

#include "check.h"
#include "direct/connection.h"
#include "direct/query.h"
#include "direct/refused.h"
#include "direct/tally.h"
#include "end.h"
#include "hca/text.h"

enum { TEXT = 16 << 10, SLOTS = 2 };

static char told[TEXT];

static bool tells(const char *part)
{
    if (!strstr(told, part))
        fprintf(stderr, "%s\n has no %s\n", told, part);
    return strstr(told, part) != NULL;
}

static void describe(struct end *end)
{
    int length = vb_direct_describe(end->direct, "\"more\":1", told, sizeof(told));

    CHECK_EQ(length, strlen(told));
    CHECK(tells(",\"more\":1}"));
}

static void finish(struct end *end, struct vb_qp *qp, enum ibv_wr_opcode opcode, uint32_t length)
{
    CHECK_EQ(end_post(end, qp, opcode, length), 0);
    CHECK_EQ(end_wait(end->cq, 20).status, IBV_WC_SUCCESS);
}

/* ---- counters -------------------------------------------------------------------------------- */

static uint64_t numbers[16];
static int names;

static void note_number(const char *part, const char *name, uint64_t value)
{
    CHECK(strcmp(part, "direct") == 0 && *name);
    numbers[names++] = value;
}

static void counters_are(struct end *end, const char *wanted)
{
    struct vb_text text = {told, sizeof(told), 0};

    vb_direct_counters_describe(end->direct, &text);
    if (strcmp(told, wanted) != 0)
        fprintf(stderr, "%s\n, not %s\n", told, wanted);
    CHECK(strcmp(told, wanted) == 0);
}

static void queue_pairs_that_are_gone_stay_counted(void)
{
    const char *wanted = "\"direct\":{\"sends\":1,\"writes\":3,\"reads\":2,\"atomics\":1,"
                         "\"flushes\":0,\"datagrams\":0,\"payload_sent\":292,\"payload_read\":64,"
                         "\"lost\":0,\"waits_for_receive\":0,\"waits_for_peer\":0}";
    const uint64_t told_numbers[] = {1, 3, 2, 1, 292, 64};
    struct vb_qp *qp[2];
    struct end end;

    end_open(&end, (struct end_options){0});
    qp[0] = end_add_qp(&end);
    qp[1] = end_add_qp(&end);
    end_ready(qp[0], qp[1]);
    end_ready(qp[1], qp[0]);
    end.peer = (struct end_card){qp[1]->number, end.mr->ibv.rkey, (uintptr_t)end.memory};
    end_post_recv(&end, qp[1], 3);
    CHECK_EQ(end_post(&end, qp[0], IBV_WR_SEND, 100), 0);
    end_wait(end.cq, 20);
    end_wait(end.cq, 20);
    for (int i = 0; i < 3; ++i)
        finish(&end, qp[i % 2], IBV_WR_RDMA_WRITE, 64);
    for (int i = 0; i < 2; ++i)
        finish(&end, qp[0], IBV_WR_RDMA_READ, 32);
    finish(&end, qp[1], IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
    counters_are(&end, wanted);
    CHECK_EQ(vb_qp_destroy(qp[0]), 0);
    counters_are(&end, wanted);
    vb_direct_tell_counters(end.direct, note_number);
    CHECK_EQ(names, sizeof(told_numbers) / sizeof(told_numbers[0]));
    CHECK_EQ(memcmp(numbers, told_numbers, sizeof(told_numbers)), 0);
    end_close(&end);
}

/* A thread in which a queue pair is made or ends, for so long. */
struct holder {
    struct vb_adapter *adapter;
    atomic_int holds;
    int milliseconds;
};

static void *hold_lifetime(void *of)
{
    struct holder *holder = of;

    vb_lock_take(&holder->adapter->lifetime);
    atomic_store(&holder->holds, 1);
    usleep(1000u * (unsigned)holder->milliseconds);
    vb_lock_release(&holder->adapter->lifetime);
    return NULL;
}

static uint64_t counted_while_held(struct end *end, int milliseconds)
{
    struct holder holder = {.adapter = end->direct->adapter, .milliseconds = milliseconds};
    pthread_t thread;

    CHECK_EQ(pthread_create(&thread, NULL, hold_lifetime, &holder), 0);
    while (!atomic_load(&holder.holds))
        usleep(100);
    names = 0;
    memset(numbers, 0, sizeof(numbers));
    vb_direct_tell_counters(end->direct, note_number);
    pthread_join(thread, NULL);
    return numbers[0];
}

/* Whoever asks waits for the sum, a second at most: then it is that of the queue pairs that ended.
 */
static void the_sum_is_waited_for(void)
{
    struct vb_qp *qp[2];
    struct end end;

    end_open(&end, (struct end_options){0});
    qp[0] = end_add_qp(&end);
    qp[1] = end_add_qp(&end);
    end_ready(qp[0], qp[1]);
    end_ready(qp[1], qp[0]);
    end.peer = (struct end_card){qp[1]->number, end.mr->ibv.rkey, (uintptr_t)end.memory};
    for (int i = 0; i < 3; ++i)
        finish(&end, qp[0], IBV_WR_RDMA_WRITE, 64);
    finish(&end, qp[1], IBV_WR_RDMA_WRITE, 64);
    CHECK_EQ(vb_qp_destroy(qp[1]), 0);
    CHECK_EQ(counted_while_held(&end, 150), 4);
    CHECK_EQ(counted_while_held(&end, 1500), 1);
    CHECK_EQ(counted_while_held(&end, 0), 4);
    end_close(&end);
}

struct asked {
    uint32_t slot[SLOTS], device[SLOTS];
    int answers[SLOTS];
    char text[SLOTS][TEXT];
};

/* Other processes of this user may answer, too. */
static void note_answer(void *with, uint32_t device, const char *json)
{
    struct asked *asked = with;
    uint32_t slot;

    CHECK_EQ(sscanf(json, "{\"slot\":%u,", &slot), 1);
    for (int i = 0; i < SLOTS; ++i)
        if (slot == asked->slot[i]) {
            asked->device[i] = device;
            ++asked->answers[i];
            snprintf(asked->text[i], TEXT, "%s", json);
        }
}

static void writes(int socket)
{
    struct end end;

    end_open(&end, (struct end_options){0});
    end_connect(&end, end_add_qp(&end), socket);
    for (int i = 0; i < 5; ++i)
        finish(&end, end.qp, IBV_WR_RDMA_WRITE, 200);
    CHECK_EQ(write(socket, &end.direct->slots[0], 4), 4);
    end_meet(socket);
    end_meet(socket);
    end_close(&end);
}

/* Each process that has the device open answers once, this one too. */
static void processes_are_asked_for_their_counters(void)
{
    static struct asked asked;
    struct end end;
    int socket;
    pid_t child = end_spawn("writes", &socket);

    end_open(&end, (struct end_options){0});
    end_connect(&end, end_add_qp(&end), socket);
    finish(&end, end.qp, IBV_WR_RDMA_READ, 10);
    CHECK_EQ(read(socket, &asked.slot[1], 4), 4);
    end_meet(socket);
    asked.slot[0] = end.direct->slots[0];
    for (int tries = 0; tries < 50 && !(asked.answers[0] && asked.answers[1]); ++tries) {
        memset(asked.answers, 0, sizeof(asked.answers)); /* on a busy machine an answer is late */
        vb_direct_query_counters(note_answer, &asked);
    }
    for (int i = 0; i < SLOTS; ++i) {
        CHECK_EQ(asked.answers[i], 1);
        CHECK_EQ(asked.device[i], end.direct->adapter->self.header->device);
    }
    snprintf(told, sizeof(told), "%s", asked.text[0]);
    CHECK(tells("\"writes\":0,") && tells("\"reads\":1,") && tells("\"payload_read\":10,"));
    CHECK_EQ(told[strlen(told) - 1], '}');
    snprintf(told, sizeof(told), "%s", asked.text[1]);
    CHECK(tells("\"writes\":5,") && tells("\"reads\":0,") && tells("\"payload_sent\":1000,"));
    end_meet(socket);
    end_kill(child, socket);
    end_close(&end);
}

/* ---- peers ----------------------------------------------------------------------------------- */

/* Its QP fails when it is told to, and it keeps the record of a refusal. */
static void fails_later(int socket)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct vb_evidence kept = {.side = VB_SIDE_RESPONDER, .psn = 5, .length = 123};
    struct end end;

    end_open(&end, (struct end_options){.in_heap = true});
    end_connect(&end, end_add_qp(&end), socket);
    kept.qp_num = end.peer.qp_num;
    kept.peer_qp_num = end.qp->number;
    vb_evidence_put(&end.host->adapter.self, &kept);
    end_meet(socket);
    end_meet(socket);
    CHECK_EQ(vb_qp_modify(end.qp, &attr, IBV_QP_STATE), 0);
    end_meet(socket);
    end_meet(socket);
    attr.qp_state = IBV_QPS_RESET;
    CHECK_EQ(vb_qp_modify(end.qp, &attr, IBV_QP_STATE), 0);
    end_meet(socket);
    end_meet(socket);
    end_close(&end);
}

static void the_peer_is_told_of(struct end *end, pid_t child, enum vb_way force)
{
    char pid[40];

    describe(end);
    snprintf(pid, sizeof(pid), "\"pid\":%d,", (int)child);
    CHECK(tells(pid));
    CHECK(tells(force == VB_WAY_BOUNCE ? "\"shared_memory\":false" : "\"shared_memory\":true"));
    CHECK(tells(force == VB_WAY_BOUNCE ? "bounce ring" : "cross-process copy"));
    CHECK_EQ(strstr(told, "VERBENA_COPY=bounce asks for it") != NULL, force == VB_WAY_BOUNCE);
    CHECK(tells("\"deserted\":[]"));
}

static void the_record_is_found(struct end *end)
{
    struct vb_evidence refused = {
        .qp_num = end->qp->number, .peer_qp_num = end->peer.qp_num, .psn = 5};
    struct vb_evidence seen = {0};

    CHECK(vb_direct_find_refusal(end->direct, &refused, &seen));
    CHECK_EQ(seen.length, 123);
    refused.psn = 6;
    CHECK(!vb_direct_find_refusal(end->direct, &refused, &seen));
    refused.psn = 5;
    refused.qp_num += 1; /* no QP of this process: nothing says that its peer is here */
    CHECK(!vb_direct_find_refusal(end->direct, &refused, &seen));
    refused.qp_num -= 1;
    refused.peer_qp_num = 0;
    CHECK(!vb_direct_find_refusal(end->direct, &refused, &seen));
}

static void peers_are_described(enum vb_way force)
{
    char why[100];
    struct end end;
    int socket;
    pid_t child = end_spawn("fails_later", &socket);

    end_open(&end, (struct end_options){.force = force});
    end_connect(&end, end_add_qp(&end), socket);
    finish(&end, end.qp, IBV_WR_RDMA_WRITE, 10);
    end_meet(socket);
    the_peer_is_told_of(&end, child, force);
    the_record_is_found(&end);
    end_meet(socket);
    end_meet(socket);
    describe(&end);
    CHECK(tells("\"deserted\":[]")); /* nothing waits */
    end_post_recv(&end, end.qp, 4);
    describe(&end);
    snprintf(why, sizeof(why),
             "\"deserted\":[{\"qp_num\":%u,\"why\":\"QP 0x%x is connected to QP 0x%x,",
             end.qp->number, end.qp->number, end.peer.qp_num);
    CHECK(tells(why));
    CHECK(tells(" in ERR"));
    end_meet(socket);
    end_meet(socket);
    describe(&end);
    CHECK(tells(why));
    CHECK(tells(" in RESET"));
    end_meet(socket);
    end_kill(child, socket);
    end_close(&end);
}

static void peers_and_their_ends_are_described(void)
{
    peers_are_described(VB_WAY_ANY);
    peers_are_described(VB_WAY_BOUNCE);
}

/* What is said of a request without a peer has nothing of the peer that the QP had before. */
static void an_earlier_peer_is_not_told_of(void)
{
    struct vb_evidence seen;
    struct vb_qp *qp[2];
    struct ibv_wc wc;
    struct end end;

    end_open(&end, (struct end_options){0});
    for (int i = 0; i < 2; ++i)
        qp[i] = end_add_qp(&end);
    end_ready(qp[0], qp[1]);
    end_ready(qp[1], qp[0]);
    end.peer = (struct end_card){qp[1]->number, end.mr->ibv.rkey, (uintptr_t)end.memory};
    finish(&end, qp[0], IBV_WR_RDMA_WRITE, 64);
    end_post_recv(&end, qp[1], 1);
    end.peer.rkey += 1;
    for (int life = 0; life < 2; ++life) {
        CHECK_EQ(end_post(&end, qp[0], IBV_WR_RDMA_WRITE, 64), 0);
        do
            wc = end_wait(end.cq, 20);
        while (wc.qp_num != qp[0]->number); /* the other one's receive request is flushed */
        CHECK_EQ(wc.status, life ? IBV_WC_RETRY_EXC_ERR : IBV_WC_REM_ACCESS_ERR);
        CHECK(vb_evidence_get(&end.host->adapter.self, wc.vendor_err, &seen));
        CHECK_EQ(seen.rq_room, life ? 0 : END_DEPTH);
        CHECK_EQ(seen.rq_used, !life);
        vb_qp_reset(qp[0]);
        end_ready(qp[0], &(struct vb_qp){.number = qp[0]->number ^ 0xfff000}); /* nobody's */
    }
    end_close(&end);
}

int main(int argc, char **argv)
{
    static const struct end_play plays[] = {
        {"writes", writes},
        {"fails_later", fails_later},
    };

    if (end_play(argc, argv, plays, sizeof(plays) / sizeof(plays[0])))
        return 0;
    alarm(60); /* a hang is a failure */
    RUN(queue_pairs_that_are_gone_stay_counted);
    RUN(the_sum_is_waited_for);
    RUN(processes_are_asked_for_their_counters);
    RUN(an_earlier_peer_is_not_told_of);
    RUN(peers_and_their_ends_are_described);
    return 0;
}
