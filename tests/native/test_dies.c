// SPDX-License-Identifier: Apache-2.0
/*
 * A process that dies at a certain instant of a request: test_kill.c finds instants by chance,
 * these are the ones that matter, each made by hand.
 */
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "direct/peer.h"
#include "direct/requester.h"
#include "direct/responder.h"
#include "end.h"
#include "hca/lock.h"
#include "loopback.h"

static void die(void)
{
    kill(getpid(), SIGKILL);
}

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

static void victim_open(struct end *end, int socket, struct end_options options)
{
    end_open(end, options);
    end_connect(end, end_add_qp(end), socket);
    end_meet(socket);
}

static bool readable(int fd, int milliseconds)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};

    return poll(&one, 1, milliseconds) == 1;
}

/* ---- after the entry, before the wake-up ---- */

static const struct end_options with_channel = {.channel = true};

static void before_the_wake_up(int socket)
{
    struct end end;

    victim_open(&end, socket, (struct end_options){0});
    end.qp->verbs->connection->peer->socket =
        -1; /* the wake-up goes nowhere, as if it had not been reached */
    CHECK_EQ(end_post(&end, end.qp, IBV_WR_SEND, 8), 0);
    die();
}

static void a_sleeper_wakes_though_the_sender_died_before_the_wake_up(void)
{
    struct pair pair;

    open_pair(&pair, "before_the_wake_up", with_channel);
    end_post_recv(&pair.end, pair.end.qp, 1);
    vb_cq_arm(pair.end.cq, false);
    end_meet(pair.socket);
    CHECK(readable(pair.end.channel->ibv.fd, 3000));
    CHECK_EQ(end_wait(pair.end.cq, 1).status, IBV_WC_SUCCESS);
    close_pair(&pair);
}

/* ---- the sleeper's peer just dies ---- */

static void asleep(int socket)
{
    struct vb_cq *cq;
    struct end end;

    victim_open(&end, socket, with_channel);
    vb_cq_arm(end.cq, false);
    end_meet(socket);
    vb_channel_wait(end.channel, 0, &cq);
}

static void a_sleeper_wakes_when_its_peer_is_killed(void)
{
    struct pair pair;

    open_pair(&pair, "asleep", with_channel);
    end_post_recv(&pair.end, pair.end.qp, 1);
    vb_cq_arm(pair.end.cq, false);
    end_meet(pair.socket);
    end_meet(pair.socket);
    kill(pair.victim, SIGKILL);
    CHECK(readable(pair.end.channel->ibv.fd, 3000));
    CHECK_EQ(end_wait(pair.end.cq, 1).status, IBV_WC_WR_FLUSH_ERR);
    close_pair(&pair);
}

static void a_sender_to_a_sleeper_that_is_killed_gets_its_error(void)
{
    struct pair pair;

    open_pair(&pair, "asleep", (struct end_options){0});
    end_meet(pair.socket);
    end_meet(pair.socket);
    CHECK_EQ(end_post(&pair.end, pair.end.qp, IBV_WR_SEND, 8), 0); /* waits: no receive there */
    kill(pair.victim, SIGKILL);
    CHECK_EQ(end_wait(pair.end.cq, 3).status, IBV_WC_RETRY_EXC_ERR);
    close_pair(&pair);
}

/* Its queue is still there to look at, and nobody has said yet that its process is not. */
static void who_has_died_is_not_unready(void)
{
    struct pair pair;
    siginfo_t ended;

    open_pair(&pair, "asleep", (struct end_options){0});
    end_meet(pair.socket);
    end_meet(pair.socket);
    pair.end.qp->terms.rnr_retry = 1;
    pthread_mutex_lock(
        &pair.end.direct->links_mutex.mutex); /* the service thread notices nothing */
    kill(pair.victim, SIGKILL);
    CHECK_EQ(waitid(P_PID, (id_t)pair.victim, &ended, WEXITED | WNOWAIT), 0);
    CHECK_EQ(end_post(&pair.end, pair.end.qp, IBV_WR_SEND, 8), 0);
    CHECK_EQ(end_wait(pair.end.cq, 3).status, IBV_WC_RETRY_EXC_ERR);
    pthread_mutex_unlock(&pair.end.direct->links_mutex.mutex);
    close_pair(&pair);
}

/* ---- a request of a shared queue in hand ---- */

static void with_a_shared_request(int socket)
{
    struct vb_taken taken;
    struct end end;

    victim_open(&end, socket, (struct end_options){0});
    vb_sq_lock(end.qp);
    CHECK_EQ(vb_direct_take_recv(end.qp->verbs->connection, &taken), 0);
    die();
}

static const struct end_options with_srq = {.srq_wr = 16};

static void a_shared_request_in_hand_is_flushed(void)
{
    struct pair pair;

    open_pair(&pair, "with_a_shared_request", with_srq);
    end_post_recv(&pair.end, pair.end.qp, 41);
    end_meet(pair.socket);
    CHECK_EQ(end_wait(pair.end.cq, 3).wr_id, 41);
    CHECK_EQ(pair.end.srq->free_count, pair.end.srq->max_wr);
    close_pair(&pair);
}

/* ---- datagrams: the receive queue's lock is held ---- */

static void lock_datagrams(struct end *end, struct vb_connection *to)
{
    *to = (struct vb_connection){.qp = end->qp, .target = to};
    to->peer = vb_direct_peer_find(end->direct, end->peer.qp_num);
    CHECK(to->peer != NULL);
    to->remote = vb_direct_peer_qp(to->peer, end->peer.qp_num);
    to->rq_seen = atomic_load(&to->remote->rq_taken);
    CHECK(vb_word_lock_unless(&to->remote->rq_lock, VB_RANK_RECEIVE, end->direct->adapter->instance,
                              &to->peer->gone));
}

static void with_a_datagram(int socket)
{
    struct vb_taken taken;
    struct vb_connection to;
    struct end end;

    victim_open(&end, socket, (struct end_options){.type = IBV_QPT_UD});
    lock_datagrams(&end, &to);
    CHECK_EQ(vb_direct_take_recv(&to, &taken), 0);
    end_meet(socket);
    die();
}

static struct vb_ah *address_of_self(struct end *end)
{
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1};
    struct vb_ah *ah;

    loopback_gid(end->direct, to.grh.dgid.raw);
    CHECK_EQ(vb_ah_create(end->pd, &to, &ah), 0);
    return ah;
}

static void send_datagram(struct end *end, struct vb_ah *ah, uint32_t qp_num, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)end->memory, length, end->mr->ibv.lkey};
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1}, *bad;

    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud.ah = &ah->ibv;
    wr.wr.ud.remote_qpn = qp_num;
    wr.wr.ud.remote_qkey = 17;
    vb_post_send(end->qp, &wr, &bad);
}

static void after_a_death_with_a_datagram(struct end_options options, int requests)
{
    struct pair pair;

    options.type = IBV_QPT_UD;
    open_pair(&pair, "with_a_datagram", options);
    for (int i = 0; i < requests; ++i)
        end_post_recv(&pair.end, pair.end.qp, 50 + (uint64_t)i);
    end_meet(pair.socket);
    end_meet(pair.socket);
    for (int i = 0; i < requests; ++i)
        send_datagram(&pair.end, address_of_self(&pair.end), pair.end.qp->number, 8);
    for (int i = 0; i < 2 * requests; ++i) /* as many sends as receives */
        end_wait(pair.end.cq, 3);
    close_pair(&pair);
}

static void a_datagram_in_hand_costs_no_request(void)
{
    after_a_death_with_a_datagram((struct end_options){0}, 2);
}

static void a_datagram_in_hand_costs_no_shared_request(void)
{
    after_a_death_with_a_datagram((struct end_options){.srq_wr = 16}, 2);
}

/* ---- locks ---- */

static void with_the_shared_queue(int socket)
{
    struct end end;

    victim_open(&end, socket, (struct end_options){0});
    CHECK(vb_word_try(
        &end.qp->verbs->connection->peer->view.srq[end.qp->verbs->connection->remote->srq - 1].lock,
        VB_RANK_SRQ, end.direct->adapter->instance));
    die();
}

static void the_lock_of_a_shared_queue_is_released(void)
{
    struct ibv_srq_attr limit = {.srq_limit = 1};
    struct pair pair;

    open_pair(&pair, "with_the_shared_queue", with_srq);
    end_meet(pair.socket);
    CHECK_EQ(vb_srq_modify(pair.end.srq, &limit, IBV_SRQ_LIMIT), 0); /* takes the lock */
    close_pair(&pair);
}

static void with_the_atomics(int socket)
{
    struct end end;

    victim_open(&end, socket, (struct end_options){0});
    CHECK(vb_word_try(&end.qp->verbs->connection->peer->view.header->atomic_lock, VB_RANK_ATOMIC,
                      end.direct->adapter->instance));
    end_meet(socket);
    pause();
}

/* Its atomics are carried out by the owner's service thread, which also notices deaths. */
static void adds_by_the_ring(int socket)
{
    struct end end;

    victim_open(&end, socket, (struct end_options){.force = VB_WAY_BOUNCE});
    end.qp->terms.timeout = 0; /* for ever: the owner may be late */
    CHECK_EQ(end_post(&end, end.qp, IBV_WR_ATOMIC_FETCH_AND_ADD, 8), 0);
    CHECK_EQ(end_wait(end.cq, 4).status, IBV_WC_SUCCESS);
    end_meet(socket);
}

static void the_lock_of_atomics_is_released(void)
{
    struct pair pair;
    int other;
    pid_t adder;

    open_pair(&pair, "with_the_atomics", (struct end_options){0});
    end_meet(pair.socket);
    end_meet(pair.socket);
    adder = end_spawn("adds_by_the_ring", &other);
    end_connect(&pair.end, end_add_qp(&pair.end), other);
    end_meet(other);
    usleep(20000); /* the ring's request is at the lock */
    kill(pair.victim, SIGKILL);
    CHECK(readable(other, 3000));
    CHECK_EQ(pair.end.memory[0], 1);
    end_kill(adder, other);
    close_pair(&pair);
}

/* ---- several at once ---- */

static void sends_for_ever(int socket)
{
    struct end end;
    struct ibv_wc wc;

    victim_open(&end, socket, (struct end_options){0});
    for (;;) {
        end_post(&end, end.qp, IBV_WR_SEND, 8);
        vb_cq_poll(end.cq, 1, &wc);
    }
}

enum { VICTIMS = 4, ROUNDS = 5 };

static unsigned flushed(struct end *end, double seconds)
{
    uint64_t until = vb_direct_now() + (uint64_t)(seconds * 1e9);
    unsigned count = 0;
    struct ibv_wc wc;

    while (vb_direct_now() < until && count < VICTIMS * END_DEPTH)
        if (vb_cq_poll(end->cq, 1, &wc) == 1)
            ++count;
    return count;
}

static void kill_several(void)
{
    struct end end;
    pid_t victims[VICTIMS];
    int sockets[VICTIMS];

    end_open(&end, (struct end_options){0});
    for (int i = 0; i < VICTIMS; ++i) {
        struct vb_qp *qp = end_add_qp(&end);

        victims[i] = end_spawn("sends_for_ever", &sockets[i]);
        end_connect(&end, qp, sockets[i]);
        for (int n = 0; n < END_DEPTH; ++n)
            end_post_recv(&end, qp, 0);
    }
    for (int i = 0; i < VICTIMS; ++i)
        end_meet(sockets[i]);
    usleep(500);
    for (int i = 0; i < VICTIMS; ++i)
        kill(victims[i], SIGKILL);
    CHECK_EQ(flushed(&end, 3), VICTIMS * END_DEPTH);
    for (int i = 0; i < VICTIMS; ++i)
        end_kill(victims[i], sockets[i]);
    end_close(&end);
}

static void several_senders_into_one_queue_are_killed_at_once(void)
{
    for (int i = 0; i < ROUNDS; ++i)
        kill_several();
}

static void datagrams_for_ever(int socket)
{
    struct vb_ah *ah;
    struct ibv_wc wc;
    struct end end;

    victim_open(&end, socket, (struct end_options){.type = IBV_QPT_UD});
    ah = address_of_self(&end);
    for (uint32_t turn = 0;; ++turn) {
        send_datagram(&end, ah, end.peer.qp_num, turn % 2 ? 8 : 900);
        vb_cq_poll(end.cq, 1, &wc);
    }
}

/* How many receive requests complete until a while brings no more. */
static unsigned received(struct end *end)
{
    const uint64_t while_ns = 20000000;
    uint64_t until = vb_direct_now() + while_ns;
    unsigned count = 0;
    struct ibv_wc wc;

    while (vb_direct_now() < until)
        while (vb_cq_poll(end->cq, 1, &wc) == 1) {
            count += wc.opcode & IBV_WC_RECV ? 1 : 0;
            until = vb_direct_now() + while_ns;
        }
    return count;
}

/* All share one receive queue; what the dead left of it is used up by this process's own sends. */
static void kill_datagram_senders(struct end_options options, unsigned us)
{
    unsigned count;
    struct end end;
    pid_t victims[VICTIMS];
    int sockets[VICTIMS];

    options.type = IBV_QPT_UD;
    end_open(&end, options);
    end_add_qp(&end);
    for (int i = 0; i < VICTIMS; ++i) {
        victims[i] = end_spawn("datagrams_for_ever", &sockets[i]);
        end_connect(&end, end.qp, sockets[i]);
    }
    for (int n = 0; n < END_DEPTH; ++n)
        end_post_recv(&end, end.qp, 0);
    for (int i = 0; i < VICTIMS; ++i)
        end_meet(sockets[i]);
    usleep(us);
    for (int i = 0; i < VICTIMS; ++i)
        end_kill(victims[i], sockets[i]);
    count = received(&end);
    for (int tries = 0; count < END_DEPTH && tries < 200; ++tries) { /* a death is noticed later */
        for (unsigned i = count; i < END_DEPTH; ++i)
            send_datagram(&end, address_of_self(&end), end.qp->number, 8);
        count += received(&end);
    }
    CHECK_EQ(count, END_DEPTH);
    for (int tries = 0; atomic_load(&end.qp->shared->rq_lock) && tries < 5000; ++tries)
        usleep(1000); /* nor need it be noticed by now where every datagram has come */
    CHECK_EQ(atomic_load(&end.qp->shared->rq_lock), 0);
    end_close(&end);
}

static void senders_of_datagrams_are_killed_at_once(void)
{
    for (unsigned i = 0; i < 2 * ROUNDS; ++i) {
        kill_datagram_senders((struct end_options){0}, i * 29 % 90);
        kill_datagram_senders((struct end_options){.srq_wr = END_DEPTH}, i * 31 % 90);
    }
}

static const struct end_play roles[] = {
    {"before_the_wake_up", before_the_wake_up},       {"asleep", asleep},
    {"with_a_shared_request", with_a_shared_request}, {"with_a_datagram", with_a_datagram},
    {"with_the_shared_queue", with_the_shared_queue}, {"with_the_atomics", with_the_atomics},
    {"adds_by_the_ring", adds_by_the_ring},           {"sends_for_ever", sends_for_ever},
    {"datagrams_for_ever", datagrams_for_ever},
};

int main(int argc, char **argv)
{
    if (end_play(argc, argv, roles, sizeof(roles) / sizeof(*roles)))
        return 0;
    alarm(60); /* a hang is a failure */
    RUN(a_sleeper_wakes_when_its_peer_is_killed);
    RUN(a_sender_to_a_sleeper_that_is_killed_gets_its_error);
    RUN(who_has_died_is_not_unready);
    RUN(a_shared_request_in_hand_is_flushed);
    RUN(a_datagram_in_hand_costs_no_request);
    RUN(the_lock_of_a_shared_queue_is_released);
    RUN(several_senders_into_one_queue_are_killed_at_once);
    RUN(a_datagram_in_hand_costs_no_shared_request);
    RUN(senders_of_datagrams_are_killed_at_once);
    RUN(a_sleeper_wakes_though_the_sender_died_before_the_wake_up);
    RUN(the_lock_of_atomics_is_released);
    return 0;
}
