// SPDX-License-Identifier: Apache-2.0
/* Processes that lack descriptors, that are stopped, or whose memory is gone. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "direct/slot.h"
#include "end.h"
#include "entries.h"
#include "memory/heap.h"

static void limit_descriptors(rlim_t count)
{
    struct rlimit limit;

    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = count;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* ---- too few descriptors to open ---- */

static void an_open_that_fails_leaves_nothing_open(void)
{
    const struct vb_host_config config = {.direct_only = true};
    struct vb_host *host;
    int before = entries(DESCRIPTORS), first = dup(0), error = -EMFILE, failures = 0;

    close(first);
    for (rlim_t room = 0; error; ++room) {
        limit_descriptors((rlim_t)first + room);
        error = vb_host_open(&config, &host);
        limit_descriptors(1024);
        if (!error)
            break;
        CHECK_EQ(error, -EMFILE);
        CHECK_EQ(entries(DESCRIPTORS), before);
        ++failures;
    }
    CHECK(failures >= 4);
    vb_host_close(host);
    CHECK_EQ(entries(DESCRIPTORS), before);
}

/* ---- as many queue pairs as there are ---- */

#if !defined(__SANITIZE_ADDRESS__) && !defined(VERBENA_SANITIZE_THREADS)

static void limit_addresses(rlim_t bytes)
{
    struct rlimit limit;

    CHECK_EQ(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

/* A small segment stands for a large one: what each could do without must not take all of it. */
static void connected_queue_pairs_leave_room_for_others(void)
{
    struct end end;
    struct vb_cq *cq;
    size_t count;

    limit_addresses(6ull << 30);
    end_open(&end, (struct end_options){0});
    limit_addresses(RLIM_INFINITY);
    count = vb_memory_heap_size(end.direct->adapter->segment) / VB_STAGE_SLOTS / VB_STAGE_BYTES;
    CHECK(count >= 4096 && count < VB_MAX_QP);
    for (size_t i = 0; i < count; ++i) {
        struct vb_qp *qp = end_add_qp(&end);

        end_ready(qp, qp);
    }
    CHECK_EQ(vb_cq_create(end.context, 1024, NULL, NULL, &cq), 0);
    CHECK_EQ(vb_cq_destroy(cq), 0);
    end_close(&end);
}

#else

static void connected_queue_pairs_leave_room_for_others(void)
{
    /* a sanitizer's own addresses are beyond every limit */
}

#endif

/* ---- too few descriptors for a peer ---- */

static void visits(int socket)
{
    struct end end;

    end_open(&end, (struct end_options){0});
    end_connect(&end, end_add_qp(&end), socket);
    CHECK_EQ(end_post(&end, end.qp, IBV_WR_RDMA_WRITE, 64), 0);
    CHECK_EQ(end_wait(end.cq, 2).status, IBV_WC_RETRY_EXC_ERR);
    end_meet(socket);
    end_connect(&end, end_add_qp(&end), socket);
    CHECK_EQ(end_post(&end, end.qp, IBV_WR_RDMA_WRITE, 64), 0);
    CHECK_EQ(end_wait(end.cq, 2).status, IBV_WC_SUCCESS);
    end_meet(socket);
}

static double processor_seconds(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

static void use_up_descriptors(void)
{
    int last = dup(0);

    limit_descriptors((rlim_t)last + 1);
    CHECK(dup(0) < 0 && errno == EMFILE);
    limit_descriptors((rlim_t)last);
    close(last);
}

static void a_process_without_descriptors_refuses_peers_and_does_not_spin(void)
{
    struct end end;
    double before;
    int socket;
    pid_t visitor;

    end_open(&end, (struct end_options){0});
    visitor = end_spawn("visits", &socket);
    use_up_descriptors();
    before = processor_seconds();
    end_connect(&end, end_add_qp(&end), socket);
    end_meet(socket);
    CHECK(processor_seconds() - before < 0.1);
    limit_descriptors(1024);
    end_connect(&end, end_add_qp(&end), socket);
    end_meet(socket);
    end_kill(visitor, socket);
    end_close(&end);
}

/* Connects as often as it can until it is killed. */
static void knocks(int socket)
{
    struct end end;

    end_open(&end, (struct end_options){0});
    end_connect(&end, end_add_qp(&end), socket);
    for (;;)
        close(vb_direct_slot_connect(end.peer.qp_num / VB_QPS_PER_SLOT));
}

/* The service thread frees its spare descriptor for an instant to refuse a connection. */
static void a_refusal_lends_its_descriptor_to_no_other_thread(void)
{
    struct end_card card;
    struct vb_peer *peer;
    struct end end;
    int socket;
    pid_t child;

    end_open(&end, (struct end_options){0});
    card.qp_num = end_add_qp(&end)->number;
    child = end_spawn("knocks", &socket);
    use_up_descriptors();
    CHECK_EQ(write(socket, &card, sizeof(card)), sizeof(card));
    CHECK_EQ(read(socket, &card, sizeof(card)), sizeof(card));
    CHECK_EQ(write(socket, "x", 1), 1);
    for (uint64_t until = vb_direct_now() + 500000000; vb_direct_now() < until;)
        CHECK_EQ(vb_direct_peer_reach(end.direct, card.qp_num, &peer), -EMFILE);
    limit_descriptors(1024);
    end_kill(child, socket);
    end_close(&end);
}

/* ---- another user's connections ---- */

enum { NOBODY = 65534, CONNECTIONS = 40 };

static uint32_t slot_of(const struct end *end)
{
    return end->qp->number / VB_QPS_PER_SLOT;
}

static void connect_and_stay(uint32_t slot, int socket)
{
    CHECK_EQ(setuid(NOBODY), 0);
    for (int i = 0; i < CONNECTIONS; ++i)
        CHECK(vb_direct_slot_connect(slot) >= 0);
    end_meet(socket);
    pause();
}

static void another_user_takes_no_descriptors(void)
{
    int ends[2], before;
    struct end end;
    pid_t child;

    end_open(&end, (struct end_options){0});
    end_add_qp(&end);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    before = entries(DESCRIPTORS);
    child = fork();
    if (!child)
        connect_and_stay(slot_of(&end), ends[1]);
    end_meet(ends[0]);
    usleep(50000); /* the service thread sees them all */
    CHECK(has_entries_soon(DESCRIPTORS, before));
    close(ends[1]);
    end_kill(child, ends[0]);
    end_close(&end);
}

/* ---- a stopped peer ---- */

static void waits(int socket)
{
    struct end end;

    end_open(&end, (struct end_options){0});
    end_connect(&end, end_add_qp(&end), socket);
    end_meet(socket);
    end_connect(&end, end_add_qp(&end), socket);
    end_meet(socket);
}

static double seconds_since(uint64_t start)
{
    return (double)(vb_direct_now() - start) / 1e9;
}

/* Stops the peer before this end has met it: connecting must give up, and so must a request. */
static void a_stopped_peer_holds_nobody_up(void)
{
    struct end_card card = {0};
    struct vb_qp *qp, other = {0};
    struct end end;
    uint64_t start;
    int socket;
    pid_t child = end_spawn("waits", &socket);

    end_open(&end, (struct end_options){0});
    CHECK_EQ(read(socket, &card, sizeof(card)), sizeof(card));
    kill(child, SIGSTOP);
    usleep(20000);
    qp = end_add_qp(&end);
    other.number = card.qp_num;
    start = vb_direct_now();
    end_ready(qp, &other);
    CHECK(seconds_since(start) < 10);
    start = vb_direct_now();
    CHECK_EQ(end_post(&end, qp, IBV_WR_RDMA_WRITE, 8), 0);
    CHECK_EQ(end_wait(end.cq, 1).status, IBV_WC_RETRY_EXC_ERR);
    CHECK(seconds_since(start) < 10); /* while it is stopped */
    kill(child, SIGCONT);
    end_kill(child, socket);
    end_close(&end);
}

/* Both have met: a WRITE is carried out, as an adapter does while its host's processes sleep. */
static void a_peer_that_stops_later_is_written_to(void)
{
    struct end end;
    int socket;
    pid_t child = end_spawn("waits", &socket);

    end_open(&end, (struct end_options){0});
    end_connect(&end, end_add_qp(&end), socket);
    kill(child, SIGSTOP);
    CHECK_EQ(end_post(&end, end.qp, IBV_WR_RDMA_WRITE, 8), 0);
    CHECK_EQ(end_wait(end.cq, 1).status, IBV_WC_SUCCESS);
    kill(child, SIGCONT);
    end_meet(socket);
    end_connect(&end, end_add_qp(&end), socket);
    CHECK_EQ(end_post(&end, end.qp, IBV_WR_RDMA_WRITE, 8), 0);
    CHECK_EQ(end_wait(end.cq, 1).status, IBV_WC_SUCCESS);
    end_meet(socket);
    end_kill(child, socket);
    end_close(&end);
}

/* ---- registered memory that is gone ---- */

static void unmaps_half(int socket)
{
    struct end end;

    end_open(&end, (struct end_options){.force = VB_WAY_BOUNCE});
    end_connect(&end, end_add_qp(&end), socket);
    CHECK_EQ(munmap(end.memory + END_BYTES / 2, END_BYTES / 2), 0);
    end_meet(socket);
    end_meet(socket); /* alive */
}

static void memory_that_is_gone_is_an_error_for_the_requester_alone(enum vb_way way)
{
    struct end end;
    int socket;
    pid_t child = end_spawn("unmaps_half", &socket);

    end_open(&end, (struct end_options){.force = way});
    end_connect(&end, end_add_qp(&end), socket);
    end_meet(socket);
    CHECK_EQ(end_post(&end, end.qp, IBV_WR_RDMA_WRITE, END_BYTES), 0);
    CHECK_EQ(end_wait(end.cq, 2).status, IBV_WC_REM_OP_ERR);
    end_meet(socket);
    end_kill(child, socket);
    end_close(&end);
}

static void memory_that_is_gone_fails_a_cross_process_copy(void)
{
    memory_that_is_gone_is_an_error_for_the_requester_alone(VB_WAY_CMA);
}

static void memory_that_is_gone_fails_the_bounce_ring(void)
{
    memory_that_is_gone_is_an_error_for_the_requester_alone(VB_WAY_BOUNCE);
}

static bool play_role(int argc, char **argv)
{
    int socket;

    if ((socket = end_role(argc, argv, "visits")) >= 0)
        visits(socket);
    else if ((socket = end_role(argc, argv, "knocks")) >= 0)
        knocks(socket);
    else if ((socket = end_role(argc, argv, "waits")) >= 0)
        waits(socket);
    else if ((socket = end_role(argc, argv, "unmaps_half")) >= 0)
        unmaps_half(socket);
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    if (play_role(argc, argv))
        return 0;
    alarm(60); /* a hang is a failure */
    limit_descriptors(1024);
    RUN(an_open_that_fails_leaves_nothing_open);
    RUN(connected_queue_pairs_leave_room_for_others);
    RUN(a_process_without_descriptors_refuses_peers_and_does_not_spin);
    RUN(a_refusal_lends_its_descriptor_to_no_other_thread);
    if (geteuid() == 0) /* only root can become another user */
        RUN(another_user_takes_no_descriptors);
    RUN(a_stopped_peer_holds_nobody_up);
    RUN(a_peer_that_stops_later_is_written_to);
    RUN(memory_that_is_gone_fails_a_cross_process_copy);
    RUN(memory_that_is_gone_fails_the_bounce_ring);
    return 0;
}
