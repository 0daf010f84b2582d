// SPDX-License-Identifier: Apache-2.0
/*
 * A peer that does not answer: stopped by a signal or a debugger, or gone before it was met. Calls
 * return, requests end within their timeout, and what was left to tell is told.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "direct/connection.h"
#include "direct/handshake.h"
#include "direct/notice.h"
#include "direct/responder.h"
#include "direct/slot.h"
#include "end.h"
#include "hca/sentences.h"
#include "loopback.h"

enum { LARGE = 60000, SOON = 10 }; /* seconds: not for ever, on whatever machine */

static const struct end_options by_the_ring = {.force = VB_WAY_BOUNCE};

/* A survivor and a victim that runs this program in `role`, both connected. */
struct pair {
    struct end end;
    pid_t victim;
    int socket;
};

static void open_pair(struct pair *pair, const char *role, struct end_options options)
{
    end_open(&pair->end, options);
    pair->victim = end_spawn(role, &pair->socket);
    end_connect(&pair->end, end_add_qp(&pair->end), pair->socket);
}

static void close_pair(struct pair *pair)
{
    end_kill(pair->victim, pair->socket);
    end_close(&pair->end);
}

static void stop(const struct pair *pair)
{
    int status;

    kill(pair->victim, SIGSTOP);
    CHECK_EQ(waitpid(pair->victim, &status, WUNTRACED), pair->victim);
    CHECK(WIFSTOPPED(status));
}

static double seconds_since(uint64_t start)
{
    return (double)(vb_direct_now() - start) / 1e9;
}

/* ---- the bounce ring's other end is stopped ---- */

static void waits(int socket)
{
    struct end end;

    end_open(&end, (struct end_options){0});
    end_connect(&end, end_add_qp(&end), socket);
    memset(end.memory, 5, END_BYTES);
    end_meet(socket);
    end_meet(socket);
}

static void expect_text(const struct end *end, uint32_t vendor_err, const char *part)
{
    char text[1024] = "";

    CHECK(vb_evidence_text(&end->direct->adapter->self, vendor_err, text, sizeof(text)) > 0);
    CHECK(strstr(text, part));
}

static void a_request_by_the_ring_ends_within_its_timeout(void)
{
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                                 IBV_WR_ATOMIC_FETCH_AND_ADD};

    for (size_t i = 0; i < sizeof(opcodes) / sizeof(*opcodes); ++i) {
        uint32_t length = opcodes[i] == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : LARGE;
        struct pair pair;
        struct ibv_wc wc;
        uint64_t start;

        open_pair(&pair, "waits", by_the_ring);
        end_meet(pair.socket);
        stop(&pair);
        start = vb_direct_now();
        CHECK_EQ(end_post(&pair.end, pair.end.qp, opcodes[i], length), 0);
        CHECK(seconds_since(start) < SOON);
        wc = end_wait(pair.end.cq, 2);
        CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
        expect_text(&pair.end, wc.vendor_err, "did not do its part of the copy in time");
        start = vb_direct_now();
        CHECK_EQ(vb_mr_dereg(pair.end.mr), 0);
        CHECK_EQ(vb_qp_destroy(pair.end.qp), 0);
        CHECK(seconds_since(start) < SOON);
        close_pair(&pair);
    }
}

static void a_request_that_may_wait_for_ever_is_carried_out_later(void)
{
    struct pair pair;
    struct ibv_wc wc;
    uint64_t start;

    open_pair(&pair, "waits", by_the_ring);
    end_meet(pair.socket);
    pair.end.qp->terms.timeout = 0;
    stop(&pair);
    CHECK_EQ(end_post(&pair.end, pair.end.qp, IBV_WR_RDMA_READ, LARGE), 0);
    CHECK_EQ(end_post(&pair.end, pair.end.qp, IBV_WR_ATOMIC_FETCH_AND_ADD, 8), 0);
    start = vb_direct_now();
    while (seconds_since(start) < 0.2)
        CHECK_EQ(vb_cq_poll(pair.end.cq, 1, &wc), 0);
    kill(pair.victim, SIGCONT);
    CHECK_EQ(end_wait(pair.end.cq, 2).status, IBV_WC_SUCCESS);
    CHECK_EQ(pair.end.memory[LARGE - 1], 5);
    CHECK_EQ(end_wait(pair.end.cq, 2).status, IBV_WC_SUCCESS);
    pair.end.qp->terms.timeout = 8;
    /* the atomic was carried out once */
    CHECK_EQ(end_post(&pair.end, pair.end.qp, IBV_WR_RDMA_READ, 8), 0);
    CHECK_EQ(end_wait(pair.end.cq, 2).status, IBV_WC_SUCCESS);
    CHECK_EQ(pair.end.memory[0], 6);
    close_pair(&pair);
}

/* Stops this process once it has tried in vain, and lets the peer go on after it. */
static pid_t start_pause(pid_t victim, int begin)
{
    pid_t parent = getpid(), pauser = fork();
    char token;

    CHECK(pauser >= 0);
    if (pauser)
        return pauser;
    if (read(begin, &token, 1) == 1) {
        usleep(40000); /* the first attempt has failed */
        kill(parent, SIGSTOP);
        usleep(800000); /* longer than all retries */
        kill(parent, SIGCONT);
        usleep(30000);
    }
    kill(victim, SIGCONT);
    _exit(0);
}

/* A machine that is paused, or so busy that nobody is run: the time is over, and nobody was tried.
 */
static void time_in_which_nobody_ran_uses_up_no_retries(void)
{
    int begin[2];
    struct pair pair;
    pid_t pauser;

    open_pair(&pair, "waits", by_the_ring);
    end_meet(pair.socket);
    pair.end.qp->terms.timeout = 14; /* 67 ms */
    stop(&pair);
    CHECK_EQ(pipe(begin), 0);
    pauser = start_pause(pair.victim, begin[0]);
    CHECK_EQ(write(begin[1], "x", 1), 1);
    CHECK_EQ(end_post(&pair.end, pair.end.qp, IBV_WR_RDMA_READ, LARGE), 0);
    CHECK_EQ(end_wait(pair.end.cq, 5).status, IBV_WC_SUCCESS);
    CHECK_EQ(pair.end.memory[LARGE - 1], 5);
    CHECK_EQ(waitpid(pauser, NULL, 0), pauser);
    close(begin[0]);
    close(begin[1]);
    close_pair(&pair);
}

/* Of a shared queue: the request that was taken is kept for the message that waits. */
static void waits_with_srq(int socket)
{
    struct end end;

    end_open(&end, (struct end_options){.srq_wr = 4});
    end_connect(&end, end_add_qp(&end), socket);
    end_post_recv(&end, end.qp, 21);
    end_post_recv(&end, end.qp, 22);
    end_meet(socket);
    CHECK_EQ(end_wait(end.cq, 10).wr_id, 21);
    CHECK_EQ(end_wait(end.cq, 10).wr_id, 22);
    end_meet(socket);
}

static void a_shared_receive_is_taken_once(void)
{
    struct pair pair;

    open_pair(&pair, "waits_with_srq", by_the_ring);
    end_meet(pair.socket);
    pair.end.qp->terms.timeout = 0;
    stop(&pair);
    CHECK_EQ(end_post(&pair.end, pair.end.qp, IBV_WR_SEND, 1000), 0);
    CHECK_EQ(end_post(&pair.end, pair.end.qp, IBV_WR_SEND, 1000), 0);
    usleep(100000);
    kill(pair.victim, SIGCONT);
    CHECK_EQ(end_wait(pair.end.cq, 2).status, IBV_WC_SUCCESS);
    CHECK_EQ(end_wait(pair.end.cq, 2).status, IBV_WC_SUCCESS);
    end_meet(pair.socket);
    close_pair(&pair);
}

/* ---- a peer that this end has not met ---- */

static void sends_and_waits(int socket)
{
    struct end end;

    end_open(&end, (struct end_options){0});
    end_connect(&end, end_add_qp(&end), socket);
    end_meet(socket);
    CHECK_EQ(end_post(&end, end.qp, IBV_WR_SEND, 8), 0);
    CHECK_EQ(end_wait(end.cq, 3).status, IBV_WC_SUCCESS);
    end_meet(socket);
    end_meet(socket);
}

/* As when the peer was not there yet at RTR: it comes later, and this end never sends. */
static void unmeet(struct vb_qp *qp)
{
    vb_sq_lock(qp);
    vb_direct_connection_close(qp);
    vb_sq_unlock(qp);
}

static bool event_within(struct end *end, enum ibv_event_type type, int milliseconds)
{
    struct pollfd one = {.fd = end->context->async_fd, .events = POLLIN};
    struct ibv_async_event event;

    while (poll(&one, 1, milliseconds) == 1) {
        CHECK_EQ(vb_event_get(end->context, &event), 0);
        vb_event_ack(end->context, &event);
        if (event.event_type == type)
            return true;
    }
    return false;
}

static void a_receivers_peer_dies_without_having_been_met(void)
{
    struct pair pair;

    open_pair(&pair, "sends_and_waits", (struct end_options){0});
    unmeet(pair.end.qp);
    end_post_recv(&pair.end, pair.end.qp, 1);
    end_post_recv(&pair.end, pair.end.qp, 2);
    end_meet(pair.socket);
    end_meet(pair.socket);
    CHECK_EQ(end_wait(pair.end.cq, 3).status, IBV_WC_SUCCESS);
    kill(pair.victim, SIGKILL);
    CHECK_EQ(end_wait(pair.end.cq, 3).status, IBV_WC_WR_FLUSH_ERR);
    CHECK(event_within(&pair.end, IBV_EVENT_QP_FATAL, 3000));
    close_pair(&pair);
}

static void a_peer_that_comes_later_is_adopted(void)
{
    struct pair pair;
    struct vb_peer *peer;
    uint64_t start;

    open_pair(&pair, "sends_and_waits", (struct end_options){0});
    peer = pair.end.qp->verbs->connection->peer;
    CHECK(peer != NULL);
    unmeet(pair.end.qp);
    vb_direct_connections_attend(pair.end.direct, peer); /* what a hello does */
    start = vb_direct_now();
    while (!vb_direct_connection_peer(pair.end.qp))
        CHECK(seconds_since(start) < SOON);
    CHECK(vb_direct_connection_peer(pair.end.qp) == peer);
    end_post_recv(&pair.end, pair.end.qp, 1);
    end_meet(pair.socket);
    end_meet(pair.socket);
    CHECK_EQ(end_wait(pair.end.cq, 3).status, IBV_WC_SUCCESS);
    close_pair(&pair);
}

static void holds_its_queue(int socket)
{
    struct end end;

    end_open(&end, (struct end_options){0});
    end_connect(&end, end_add_qp(&end), socket);
    vb_sq_lock(end.qp);
    end_meet(socket);
    usleep(300000); /* as in the middle of a long copy */
    vb_sq_unlock(end.qp);
    end_meet(socket);
}

static void dereg_waits_for_a_peer_that_was_not_met(void)
{
    struct pair pair;
    uint64_t start;

    open_pair(&pair, "holds_its_queue", (struct end_options){0});
    unmeet(pair.end.qp);
    end_meet(pair.socket);
    start = vb_direct_now();
    CHECK_EQ(vb_mr_dereg(pair.end.mr), 0);
    CHECK(seconds_since(start) > 0.2);
    close_pair(&pair);
}

/* Whatever would wake the peer stops the process, before the kernel has done it. */
static void stop_this(int number)
{
    (void)number;
    kill(getpid(), SIGSTOP);
}

static void trap_wakes(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmsg, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(rules) / sizeof(*rules), rules};

    signal(SIGSYS, stop_this);
    CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void stops_while_it_wakes(int socket)
{
    struct end end;

    end_open(&end, (struct end_options){0});
    end_connect(&end, end_add_qp(&end), socket);
    end_meet(socket);
    end_post(&end, end.qp, IBV_WR_SEND, 8); /* so it has met its peer */
    end_meet(socket);
    end_meet(socket);
    trap_wakes();
    end_post(&end, end.qp, IBV_WR_SEND, 8);
}

static void stops_after_its_datagram(int socket)
{
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1};
    struct ibv_sge sge = {.length = 8};
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1}, *bad;
    struct vb_ah *ah;
    struct end end;

    end_open(&end, (struct end_options){.type = IBV_QPT_UD});
    end_connect(&end, end_add_qp(&end), socket);
    loopback_gid(end.direct, to.grh.dgid.raw);
    CHECK_EQ(vb_ah_create(end.pd, &to, &ah), 0);
    sge.addr = (uintptr_t)end.memory;
    sge.lkey = end.mr->ibv.lkey;
    wr.wr.ud.ah = &ah->ibv;
    wr.wr.ud.remote_qpn = end.peer.qp_num;
    wr.wr.ud.remote_qkey = 17;
    end_meet(socket);
    vb_post_send(end.qp, &wr, &bad);
    end_meet(socket);
    end_meet(socket);
    trap_wakes();
    vb_post_send(end.qp, &wr, &bad);
}

/* It holds its queue, but touches no memory: nobody waits until it goes on, which may be never. */
static void nobody_waits_for(const char *role, enum ibv_qp_type type)
{
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    struct pair pair;
    uint64_t start;
    int status;

    open_pair(&pair, role, (struct end_options){.type = type, .channel = true});
    for (int i = 0; i < 3; ++i)
        end_post_recv(&pair.end, pair.end.qp, 1);
    end_meet(pair.socket);
    end_meet(pair.socket);
    CHECK_EQ(end_wait(pair.end.cq, 3).status, IBV_WC_SUCCESS);
    vb_cq_arm(pair.end.cq, false);
    end_meet(pair.socket);
    CHECK_EQ(waitpid(pair.victim, &status, WUNTRACED), pair.victim);
    CHECK(WIFSTOPPED(status));
    if (type == IBV_QPT_RC)
        CHECK(vb_biased_is_held(&vb_direct_other_end(pair.end.qp)->sq_lock));
    start = vb_direct_now();
    CHECK_EQ(end_wait(pair.end.cq, 3).status, IBV_WC_SUCCESS);
    CHECK_EQ(vb_qp_modify(pair.end.qp, &error, IBV_QP_STATE), 0);
    CHECK_EQ(end_wait(pair.end.cq, 3).status, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(vb_mr_dereg(pair.end.mr), 0);
    CHECK_EQ(vb_qp_destroy(pair.end.qp), 0);
    CHECK(seconds_since(start) < SOON);
    end_kill(pair.victim, pair.socket);
    end_close(&pair.end);
}

static void nobody_waits_for_a_peer_that_is_stopped_while_it_wakes(void)
{
    nobody_waits_for("stops_while_it_wakes", IBV_QPT_RC);
}

static void nobody_waits_for_a_sender_that_is_stopped_after_its_datagram(void)
{
    nobody_waits_for("stops_after_its_datagram", IBV_QPT_UD);
}

/* ---- what is left to tell ---- */

static void waits_for_an_event(int socket)
{
    struct end end;

    end_open(&end, (struct end_options){0});
    end_connect(&end, end_add_qp(&end), socket);
    end_meet(socket);
    CHECK(event_within(&end, IBV_EVENT_QP_REQ_ERR, 5000));
    end_meet(socket);
}

enum { MORE_THAN_A_SOCKET_HOLDS = 5000 };

static void a_full_socket_loses_no_event(void)
{
    struct pair pair;
    uint64_t start = vb_direct_now();

    open_pair(&pair, "waits_for_an_event", (struct end_options){0});
    end_meet(pair.socket);
    stop(&pair);
    for (int i = 0; i < MORE_THAN_A_SOCKET_HOLDS; ++i)
        vb_direct_notice_send(pair.end.direct, pair.end.qp->verbs->connection->peer,
                              VB_MSG_SRQ_NOTICE, 0);
    vb_direct_notify_qp_event(pair.end.direct, pair.end.qp->verbs->connection->peer,
                              pair.end.qp->verbs->connection->remote, IBV_EVENT_QP_REQ_ERR);
    CHECK(seconds_since(start) < SOON);
    CHECK(atomic_load(&pair.end.qp->verbs->connection->peer->view.header->notices_missed));
    kill(pair.victim, SIGCONT);
    end_meet(pair.socket);
    close_pair(&pair);
}

/* It has set the other's QP to ERR and told nobody. */
static void dies_before_it_tells(int socket)
{
    struct end end;

    end_open(&end, (struct end_options){0});
    end_connect(&end, end_add_qp(&end), socket);
    end_meet(socket);
    atomic_fetch_or(&end.qp->verbs->connection->remote->notices, 1u << IBV_EVENT_QP_ACCESS_ERR);
    atomic_store(&end.qp->verbs->connection->remote->state, IBV_QPS_ERR);
    kill(getpid(), SIGKILL);
}

static void an_event_outlives_its_cause(void)
{
    struct pair pair;

    open_pair(&pair, "dies_before_it_tells", (struct end_options){0});
    end_post_recv(&pair.end, pair.end.qp, 1);
    end_meet(pair.socket);
    CHECK(event_within(&pair.end, IBV_EVENT_QP_ACCESS_ERR, 3000));
    CHECK_EQ(end_wait(pair.end.cq, 3).status, IBV_WC_WR_FLUSH_ERR);
    close_pair(&pair);
}

static void a_late_notice_means_no_other_object(void)
{
    struct end end;

    end_open(&end, (struct end_options){0});
    vb_direct_notice_qp(end.direct, end_add_qp(&end)->index);
    vb_direct_notice_cq(end.direct, end.cq->index);
    CHECK(!event_within(&end, IBV_EVENT_QP_FATAL, 50));
    end_close(&end);
}

/* ---- two connections between the same two processes ---- */

static void meets_twice(int socket)
{
    struct vb_message message;
    int fds[VB_MESSAGE_FDS], other;
    struct end end;

    end_open(&end, (struct end_options){0});
    end_connect(&end, end_add_qp(&end), socket);
    other = vb_direct_slot_connect(end.peer.qp_num / VB_QPS_PER_SLOT);
    CHECK(other >= 0);
    CHECK_EQ(vb_direct_hello_send(end.direct, other, VB_MSG_HELLO), 0);
    CHECK_EQ(vb_direct_message_receive(other, &message, fds), 0);
    close(other);
    end_meet(socket);
    CHECK_EQ(end_post(&end, end.qp, IBV_WR_RDMA_READ, 8), 0);
    CHECK_EQ(end_wait(end.cq, 3).status, IBV_WC_SUCCESS);
    end_meet(socket);
    end_meet(socket);
}

static void a_peer_is_there_until_its_last_connection_ends(void)
{
    struct pair pair;

    open_pair(&pair, "meets_twice", (struct end_options){0});
    end_meet(pair.socket);
    end_meet(pair.socket);
    usleep(100000);
    CHECK_EQ(vb_qp_state(pair.end.qp), IBV_QPS_RTS);
    CHECK(!atomic_load(&pair.end.qp->verbs->connection->peer->gone));
    CHECK_EQ(end_post(&pair.end, pair.end.qp, IBV_WR_RDMA_WRITE, 8), 0);
    CHECK_EQ(end_wait(pair.end.cq, 3).status, IBV_WC_SUCCESS);
    close_pair(&pair);
}

/* ---- the barrier is forbidden after the adapter was opened ---- */

static void forbid_membarrier(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(rules) / sizeof(*rules), rules};

    CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

enum { POSTS = 2000 };

struct poster {
    struct end *end;
    pthread_t thread;
};

static void *post_many(void *argument)
{
    struct poster *poster = argument;
    struct ibv_wc wc;
    int done = 0;

    for (int posted = 0; posted < POSTS;) {
        if (end_post(poster->end, poster->end->qp, IBV_WR_ATOMIC_FETCH_AND_ADD, 8) == 0)
            ++posted;
        done += vb_cq_poll(poster->end->cq, 1, &wc) == 1;
    }
    return (void *)(intptr_t)done;
}

static void two_threads_without_a_barrier(int socket)
{
    struct poster posters[2];
    struct end end;

    end_open(&end, (struct end_options){0});
    end_connect(&end, end_add_qp(&end), socket);
    CHECK_EQ(end_post(&end, end.qp, IBV_WR_RDMA_READ, 8), 0); /* this thread is the usual one now */
    CHECK_EQ(end_wait(end.cq, 3).status, IBV_WC_SUCCESS);
    forbid_membarrier();
    for (int i = 0; i < 2; ++i) {
        posters[i].end = &end;
        CHECK_EQ(pthread_create(&posters[i].thread, NULL, post_many, &posters[i]), 0);
    }
    for (int i = 0; i < 2; ++i)
        pthread_join(posters[i].thread, NULL);
    end_meet(socket);
    end_meet(socket);
}

static void no_request_is_lost_without_a_barrier(void)
{
    struct pair pair;
    uint64_t count;

    open_pair(&pair, "two_threads_without_a_barrier", (struct end_options){0});
    memset(pair.end.memory, 0, 8);
    end_meet(pair.socket);
    memcpy(&count, pair.end.memory, sizeof(count));
    CHECK_EQ(count, 2 * POSTS);
    close_pair(&pair);
}

static const struct end_play roles[] = {
    {"waits", waits},
    {"waits_with_srq", waits_with_srq},
    {"sends_and_waits", sends_and_waits},
    {"holds_its_queue", holds_its_queue},
    {"stops_while_it_wakes", stops_while_it_wakes},
    {"stops_after_its_datagram", stops_after_its_datagram},
    {"waits_for_an_event", waits_for_an_event},
    {"dies_before_it_tells", dies_before_it_tells},
    {"meets_twice", meets_twice},
    {"two_threads_without_a_barrier", two_threads_without_a_barrier},
};

int main(int argc, char **argv)
{
    if (end_play(argc, argv, roles, sizeof(roles) / sizeof(*roles)))
        return 0;
    alarm(90); /* a hang is a failure */
    RUN(a_request_by_the_ring_ends_within_its_timeout);
    RUN(a_request_that_may_wait_for_ever_is_carried_out_later);
    RUN(time_in_which_nobody_ran_uses_up_no_retries);
    RUN(a_shared_receive_is_taken_once);
    RUN(a_receivers_peer_dies_without_having_been_met);
    RUN(a_peer_that_comes_later_is_adopted);
    RUN(dereg_waits_for_a_peer_that_was_not_met);
    RUN(nobody_waits_for_a_peer_that_is_stopped_while_it_wakes);
    RUN(nobody_waits_for_a_sender_that_is_stopped_after_its_datagram);
    RUN(a_full_socket_loses_no_event);
    RUN(an_event_outlives_its_cause);
    RUN(a_late_notice_means_no_other_object);
    RUN(a_peer_is_there_until_its_last_connection_ends);
    RUN(no_request_is_lost_without_a_barrier);
    return 0;
}
