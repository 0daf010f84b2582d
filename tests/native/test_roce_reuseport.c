// SPDX-License-Identifier: Apache-2.0
/* Processes that share port 4791: each gets its own packets and no other's, whoever comes or dies.
 */
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "direct/message.h"
#include "flow.h"
#include "host/host.h"
#include "network.h"
#include "port/gid.h"
#include "roce/reuseport.h"
#include "roce/state.h"
#include "roce/udp.h"

enum { MEMBERS = 4, FIRST_SLOT = 0x700, STRANGER_SLOT = 0xabc, PSNS = 1 << 16 };

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- a member, which is a process ---- */

struct report {
    uint32_t packets, repeated, foreign, members;
    bool met;
    uint64_t counts[VB_REUSEPORT_COUNTS];
};

struct member {
    pid_t pid;
    int socket;
    uint32_t slot;
    int udp; /* -1, or a descriptor of its socket on the port */
};

struct terms {
    uint32_t slot;
    bool no_program;
    atomic_bool *in_hand;
};

struct inside {
    uint32_t slot;
    atomic_bool *in_hand; /* NULL, or set while it holds datagrams that it has not dealt with */
    struct vb_udp *udp;
    struct vb_reuseport *reuseport;
    struct report report;
    uint8_t seen[PSNS];
};

static void meet(void *argument)
{
    struct inside *in = argument;

    in->report.met = true;
}

static void deliver(void *argument, const struct vb_arrival *arrival, uint64_t now)
{
    struct inside *in = argument;
    struct vb_bth bth = vb_wire_bth_read(arrival->bytes);

    (void)now;
    in->report.foreign += bth.dest_qp >> VB_SLOT_BITS != in->slot;
    in->report.repeated += in->seen[bth.psn % PSNS]++ != 0;
    CHECK(vb_wire_gid_is_ipv4(arrival->sgid) && arrival->sgid[12] == 127);
    CHECK_EQ(arrival->traffic_class, 0x28);
    ++in->report.packets;
}

static void receive(struct inside *in)
{
    struct vb_arrival arrival;

    if (in->in_hand)
        atomic_store(in->in_hand, true);
    while (vb_roce_udp_receive(in->udp))
        while (vb_roce_udp_next(in->udp, &arrival))
            if (vb_roce_reuseport_takes(in->reuseport, &arrival, now_ns()))
                deliver(in, &arrival, now_ns());
    if (in->in_hand)
        atomic_store(in->in_hand, false);
}

static void open_member(struct inside *in, bool with_program)
{
    struct vb_udp_config udp = {.prepare = with_program ? vb_roce_reuseport_prepare : NULL};
    struct vb_reuseport_config config = {
        .no_program = !with_program, .deliver = deliver, .met = meet, .argument = in};

    CHECK_EQ(vb_roce_udp_open(&udp, &in->udp), 0);
    config.group = vb_roce_udp_fd(in->udp);
    CHECK_EQ(getrandom(&config.instance, sizeof(config.instance), 0), sizeof(config.instance));
    CHECK_EQ(vb_roce_reuseport_open(&config, &in->reuseport), 0);
    CHECK_EQ(vb_roce_reuseport_add_slot(in->reuseport, in->slot, now_ns()), 0);
}

static int patience_ms(const struct inside *in)
{
    uint64_t deadline = vb_roce_reuseport_deadline(in->reuseport), now = now_ns();

    if (deadline == UINT64_MAX)
        return -1;
    return deadline <= now ? 0 : (int)((deadline - now) / 1000000 + 1);
}

static void tell(struct inside *in, int socket)
{
    for (int i = 0; i < VB_REUSEPORT_COUNTS; ++i)
        in->report.counts[i] = vb_roce_reuseport_counter(in->reuseport, i);
    in->report.members = vb_roce_reuseport_members(in->reuseport);
    CHECK_EQ(write(socket, &in->report, sizeof(in->report)), sizeof(in->report));
}

/* A descriptor of its own socket for its parent, who then sees what it did not come to. */
static void hand_over(int socket, int udp)
{
    struct vb_message message = {0};

    CHECK_EQ(vb_direct_message_send(socket, &message, &udp, 1, true), 0);
}

static int take_over(int socket)
{
    struct vb_message message;
    int fds[VB_MESSAGE_FDS];

    CHECK_EQ(vb_direct_message_receive(socket, &message, fds), 0);
    CHECK(fds[0] >= 0 && fds[1] < 0);
    return fds[0];
}

/* Serves until its parent says 'q'; 'r' asks for a report. */
static void be_member(struct terms terms, int socket)
{
    static struct inside in;
    char order = 0;

    in.slot = terms.slot;
    in.in_hand = terms.in_hand;
    open_member(&in, !terms.no_program);
    if (in.in_hand)
        hand_over(socket, vb_roce_udp_fd(in.udp));
    tell(&in, socket);
    while (order != 'q') {
        struct pollfd fds[] = {{vb_roce_udp_fd(in.udp), POLLIN, 0},
                               {vb_roce_reuseport_fd(in.reuseport), POLLIN, 0},
                               {socket, POLLIN, 0}};

        CHECK(poll(fds, 3, patience_ms(&in)) >= 0);
        receive(&in);
        vb_roce_reuseport_serve(in.reuseport, now_ns());
        if (!fds[2].revents)
            continue;
        if (read(socket, &order, 1) != 1)
            break;
        if (order == 'r')
            tell(&in, socket);
    }
    vb_roce_udp_close(in.udp);
    vb_roce_reuseport_close(in.reuseport);
    _exit(0);
}

static struct report hear(const struct member *member)
{
    struct report report;

    CHECK_EQ(read(member->socket, &report, sizeof(report)), sizeof(report));
    return report;
}

static struct report ask(const struct member *member)
{
    CHECK_EQ(write(member->socket, "r", 1), 1);
    return hear(member);
}

static struct member start_as(struct terms terms)
{
    struct member member = {.slot = terms.slot, .udp = -1};
    int ends[2];

    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    member.pid = fork();
    CHECK(member.pid >= 0);
    if (member.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        be_member(terms, ends[1]);
    }
    close(ends[1]);
    member.socket = ends[0];
    if (terms.in_hand)
        member.udp = take_over(member.socket);
    hear(&member);
    return member;
}

static struct member start(uint32_t slot)
{
    return start_as((struct terms){.slot = slot});
}

/* With its socket in member.udp too; `in_hand` is in memory that is shared. */
static struct member start_watched(uint32_t slot, atomic_bool *in_hand)
{
    return start_as((struct terms){.slot = slot, .in_hand = in_hand});
}

static void stop(struct member *member)
{
    int status;

    CHECK_EQ(write(member->socket, "q", 1), 1);
    CHECK_EQ(waitpid(member->pid, &status, 0), member->pid);
    CHECK_EQ(status, 0);
    close(member->socket);
    member->socket = -1;
}

static void kill_member(struct member *member)
{
    CHECK_EQ(kill(member->pid, SIGKILL), 0);
    CHECK_EQ(waitpid(member->pid, NULL, 0), member->pid);
    close(member->socket);
    member->socket = -1;
}

/* ---- what is sent to them ---- */

static struct flow sender = {.fd = -1};

/* Another flow: where the kernel chooses by the flow, another member. */
static void new_flow(void)
{
    if (sender.fd >= 0)
        flow_close(&sender);
    sender = flow_open();
}

static void send_packet(uint32_t slot, uint32_t psn)
{
    flow_send(&sender, slot << VB_SLOT_BITS | (psn & 0xfff), psn);
}

static void pause_ms(unsigned count)
{
    usleep(count * 1000);
}

static uint64_t rebuilds(const struct member *member)
{
    return ask(member).counts[VB_REUSEPORT_REBUILDS];
}

/* Until a rebuild since `before` (of each) found so many. A socket of -1 is one that has gone. */
static void await_rebuild(const struct member *members, const uint64_t *before, int count,
                          uint32_t expected)
{
    for (int i = 0; i < 200; ++i) {
        for (int m = 0; m < count; ++m) {
            struct report report = {0};

            if (members[m].socket >= 0)
                report = ask(&members[m]);
            if (report.members == expected && report.counts[VB_REUSEPORT_REBUILDS] > before[m])
                return;
        }
        pause_ms(10);
    }
    CHECK(!"no rebuild found as many members as there are");
}

/* With one that is stopped, the number of members that it finds is not certain. */
static void await_own_rebuild(const struct member *member)
{
    for (int i = 0; i < 200 && rebuilds(member) == 0; ++i)
        pause_ms(10);
    CHECK(ask(member).members > MEMBERS);
}

/* Until it has so many packets, all of them its own, each once. */
static struct report await_packets(const struct member *member, uint32_t count)
{
    struct report report = ask(member);

    for (int i = 0; i < 200 && report.packets < count; ++i) {
        pause_ms(10);
        report = ask(member);
    }
    CHECK_EQ(report.packets, count);
    CHECK_EQ(report.foreign, 0);
    CHECK_EQ(report.repeated, 0);
    return report;
}

static void start_four(struct member members[MEMBERS])
{
    for (uint32_t i = 0; i < MEMBERS; ++i)
        members[i] = start(FIRST_SLOT + i * 0x111);
    await_rebuild(&members[MEMBERS - 1], &(uint64_t){0}, 1, MEMBERS);
}

/* ---- tests ---- */

static void test_each_gets_its_own(void)
{
    struct member members[MEMBERS];
    uint64_t strays[MEMBERS];

    start_four(members);
    for (int i = 0; i < MEMBERS; ++i)
        strays[i] = ask(&members[i]).counts[VB_REUSEPORT_STRAYS];
    for (uint32_t psn = 0; psn < 500; ++psn) {
        if (psn % 50 == 0)
            new_flow();
        for (int i = 0; i < MEMBERS; ++i)
            send_packet(members[i].slot, psn);
    }
    for (int i = 0; i < MEMBERS; ++i)
        CHECK_EQ(await_packets(&members[i], 500).counts[VB_REUSEPORT_STRAYS], strays[i]);
    for (int i = 0; i < MEMBERS; ++i)
        stop(&members[i]);
}

/* In the middle of their traffic, at each place in the group. */
static void test_one_is_killed(void)
{
    for (int victim = 0; victim < MEMBERS; ++victim) {
        struct member members[MEMBERS];
        uint64_t before[MEMBERS];

        start_four(members);
        for (int i = 0; i < MEMBERS; ++i)
            before[i] = rebuilds(&members[i]);
        for (uint32_t psn = 0; psn < 1000; ++psn) {
            if (psn % 100 == 0)
                new_flow();
            if (psn == 300)
                kill_member(&members[victim]);
            if (psn % 50 == 0)
                pause_ms(1);
            for (int i = 0; i < MEMBERS; ++i)
                send_packet(members[i].slot, psn);
        }
        for (int i = 0; i < MEMBERS; ++i)
            if (i != victim)
                await_packets(&members[i], 1000);
        /* The index of the one that moved has been learned. */
        await_rebuild(members, before, MEMBERS, MEMBERS - 1);
        for (int i = 0; i < MEMBERS; ++i)
            if (i != victim)
                stop(&members[i]);
    }
}

/* A member that leaves in order leaves a program behind in which it is not. */
static void test_one_leaves(void)
{
    struct member members[MEMBERS];
    uint64_t before[MEMBERS];

    start_four(members);
    for (int i = 0; i < MEMBERS; ++i)
        before[i] = rebuilds(&members[i]);
    stop(&members[0]);
    await_rebuild(members, before, MEMBERS, MEMBERS - 1);
    new_flow();
    for (uint32_t psn = 0; psn < 300; ++psn)
        for (int i = 1; i < MEMBERS; ++i)
            send_packet(members[i].slot, psn);
    for (int i = 1; i < MEMBERS; ++i)
        CHECK_EQ(await_packets(&members[i], 300).counts[VB_REUSEPORT_STRAYS], 0);
    for (int i = 1; i < MEMBERS; ++i)
        stop(&members[i]);
}

/*
 * Two stay and have traffic while others come, and go in order or not. A member that is late with
 * its answer is not in the program for a moment, and others get its packets meanwhile. Where such a
 * one is killed, what waits in its socket dies with it, as every socket's content does, and so does
 * what it had in hand. So every packet is accounted for: it arrived, or died with a guest.
 */
enum { GUESTS = 6, ROUNDS = 8, IN_HAND_MOST = 8 /* datagrams in one vb_roce_udp_receive */ };

struct storm {
    struct member hosts[2];
    uint32_t sent;     /* to each host */
    uint32_t died[2];  /* in guests' sockets */
    uint32_t in_hand;  /* at most so many more, of both hosts */
    atomic_bool *hand; /* of each guest */
};

static void send_some(struct storm *storm)
{
    for (int packets = 0; packets < 20; ++packets, ++storm->sent)
        for (int i = 0; i < 2; ++i)
            send_packet(storm->hosts[i].slot, storm->sent);
}

/* This program's descriptor has kept the socket of a guest that is dead. */
static void count_what_died(struct storm *storm, int udp)
{
    uint8_t packet[256];
    ssize_t length;

    while ((length = recv(udp, packet, sizeof(packet), MSG_DONTWAIT)) >= VB_BTH)
        for (int i = 0; i < 2; ++i)
            storm->died[i] +=
                vb_wire_bth_read(packet).dest_qp >> VB_SLOT_BITS == storm->hosts[i].slot;
    CHECK(length < 0);
}

static void kill_guest(struct storm *storm, struct member *guest, const atomic_bool *in_hand)
{
    kill_member(guest);
    count_what_died(storm, guest->udp);
    storm->in_hand += atomic_load(in_hand) ? IN_HAND_MOST : 0;
}

static void run_round(struct storm *storm, uint32_t round)
{
    struct member guests[GUESTS];

    new_flow();
    for (uint32_t i = 0; i < GUESTS; ++i) {
        guests[i] = start_watched(0x100 + round * GUESTS + i, &storm->hand[i]);
        send_some(storm);
    }
    for (uint32_t i = 0; i < GUESTS; ++i) {
        if ((i + round) % 2)
            kill_guest(storm, &guests[i], &storm->hand[i]);
        else
            stop(&guests[i]);
        close(guests[i].udp);
        send_some(storm);
    }
}

static uint32_t missing(const struct storm *storm, int host, const struct report *report)
{
    CHECK_EQ(report->foreign, 0);
    CHECK_EQ(report->repeated, 0);
    CHECK(report->packets + storm->died[host] <= storm->sent);
    return storm->sent - report->packets - storm->died[host];
}

static void await_all(const struct storm *storm)
{
    uint32_t missed = UINT32_MAX;

    for (int tries = 0; tries < 200 && missed > storm->in_hand; ++tries) {
        struct report reports[2] = {ask(&storm->hosts[0]), ask(&storm->hosts[1])};

        missed = missing(storm, 0, &reports[0]) + missing(storm, 1, &reports[1]);
        pause_ms(missed ? 10 : 0);
    }
    printf("storm: of 2 x %u packets %u and %u died with guests, and %u of %u in hand\n",
           storm->sent, storm->died[0], storm->died[1], missed, storm->in_hand);
    CHECK(missed <= storm->in_hand);
}

static void test_storm(void)
{
    struct storm storm = {.hosts = {start(FIRST_SLOT), start(FIRST_SLOT + 1)}};

    storm.hand = mmap(NULL, GUESTS * sizeof(*storm.hand), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(storm.hand != MAP_FAILED);
    for (uint32_t round = 0; round < ROUNDS; ++round)
        run_round(&storm, round);
    await_all(&storm);
    CHECK_EQ(munmap(storm.hand, GUESTS * sizeof(*storm.hand)), 0);
    stop(&storm.hosts[0]);
    stop(&storm.hosts[1]);
}

/* Where no program is attached, all that reaches the wrong process is forwarded. */
static void test_without_program(void)
{
    struct member members[3];
    uint64_t forwarded = 0;

    for (uint32_t i = 0; i < 3; ++i)
        members[i] = start_as((struct terms){.slot = FIRST_SLOT + i, .no_program = true});
    for (uint32_t psn = 0; psn < 300; ++psn) {
        if (psn % 10 == 0)
            new_flow();
        for (int i = 0; i < 3; ++i)
            send_packet(members[i].slot, psn);
    }
    for (int i = 0; i < 3; ++i)
        forwarded += await_packets(&members[i], 300).counts[VB_REUSEPORT_FORWARDED];
    CHECK(forwarded > 100);
    for (int i = 0; i < 3; ++i)
        stop(&members[i]);
}

/* A process that is stopped answers nobody; the others do not wait for it, and its packets do. */
static void test_one_is_stopped(void)
{
    struct member members[MEMBERS], late;

    start_four(members);
    kill(members[1].pid, SIGSTOP);
    late = start(STRANGER_SLOT);
    /* Before that, the kernel may choose the one that is stopped for the late one's packets. */
    await_own_rebuild(&late);
    new_flow();
    for (uint32_t psn = 0; psn < 200; ++psn) {
        for (int i = 0; i < MEMBERS; ++i)
            send_packet(members[i].slot, psn);
        send_packet(late.slot, psn);
    }
    await_packets(&late, 200);
    await_packets(&members[0], 200);
    await_packets(&members[2], 200);
    await_packets(&members[3], 200);
    kill(members[1].pid, SIGCONT);
    await_packets(&members[1], 200);
    for (int i = 0; i < MEMBERS; ++i)
        stop(&members[i]);
    stop(&late);
}

static void await_first_rebuild(struct member *member)
{
    for (int i = 0; i < 500 && rebuilds(member) == 0; ++i)
        pause_ms(10);
}

/* Whose slot is in no program yet: whoever made the program forwards its packets, and none goes to
 * a process that is stopped, whatever the flow. */
static void test_one_is_stopped_and_one_unknown(void)
{
    struct member members[2] = {start(FIRST_SLOT), start(FIRST_SLOT + 1)}, maker, unknown;

    await_rebuild(&members[1], &(uint64_t){0}, 1, 2);
    kill(members[0].pid, SIGSTOP);
    maker = start(STRANGER_SLOT);
    await_first_rebuild(&maker);
    unknown = start_as((struct terms){.slot = STRANGER_SLOT + 1, .no_program = true});
    for (uint32_t psn = 0; psn < 200; ++psn) {
        new_flow();
        send_packet(unknown.slot, psn);
    }
    await_packets(&unknown, 200);
    kill(members[0].pid, SIGCONT);
    stop(&members[0]);
    stop(&members[1]);
    stop(&maker);
    stop(&unknown);
}

/* Whoever was too busy to answer in time is in the program as soon as it answers, before a packet
 * of its has gone elsewhere. */
static void test_a_late_answer_counts(void)
{
    struct member members[2] = {start(FIRST_SLOT), start(FIRST_SLOT + 1)}, late;
    uint64_t before;

    await_rebuild(&members[1], &(uint64_t){0}, 1, 2);
    kill(members[1].pid, SIGSTOP);
    late = start(STRANGER_SLOT);
    await_first_rebuild(&late);
    pause_ms(300); /* and what it wanted meanwhile */
    before = rebuilds(&late);
    kill(members[1].pid, SIGCONT);
    await_rebuild(&late, &before, 1, 3);
    CHECK_EQ(ask(&members[0]).counts[VB_REUSEPORT_STRAYS], 0);
    stop(&members[0]);
    stop(&members[1]);
    stop(&late);
}

/* The identifications of a sender that counts tell less then (roce/ids.h). */
static void test_who_is_not_alone_hears_of_it(void)
{
    struct member members[2] = {start(FIRST_SLOT)};

    await_rebuild(members, &(uint64_t){0}, 1, 1);
    CHECK(!ask(&members[0]).met);
    members[1] = start(FIRST_SLOT + 1);
    await_rebuild(&members[1], &(uint64_t){0}, 1, 2);
    CHECK(ask(&members[0]).met);
    CHECK(ask(&members[1]).met);
    stop(&members[0]);
    stop(&members[1]);
}

/* Packets for a slot that nobody has are dropped, and do not keep the members busy. */
static void test_nobody_has_the_slot(void)
{
    struct member member = start(FIRST_SLOT);
    struct report before, after;

    await_rebuild(&member, &(uint64_t){0}, 1, 1);
    new_flow();
    before = ask(&member);
    for (uint32_t psn = 0; psn < 2000; ++psn) {
        send_packet(STRANGER_SLOT, psn);
        if (psn % 20 == 0)
            pause_ms(2);
    }
    pause_ms(50);
    after = ask(&member);
    CHECK_EQ(after.counts[VB_REUSEPORT_DROP_ABSENT] - before.counts[VB_REUSEPORT_DROP_ABSENT],
             2000);
    CHECK(after.counts[VB_REUSEPORT_REBUILDS] - before.counts[VB_REUSEPORT_REBUILDS] < 12);
    stop(&member);
}

/* ---- a whole port, which ends while packets for another process wait in its socket ---- */

static sem_t stands, goes_on;

static void stand_still(void *argument, uint8_t port_num, enum ibv_event_type type)
{
    (void)argument, (void)port_num, (void)type;
    sem_post(&stands);
    sem_wait(&goes_on);
}

static void await_members(struct vb_roce *roce, unsigned count)
{
    unsigned found = 0;

    for (int i = 0; i < 1000 && found != count; ++i) {
        pause_ms(10);
        vb_roce_enter(roce);
        found = vb_roce_reuseport_members(roce->reuseport);
        vb_roce_leave(roce);
    }
    CHECK_EQ(found, count);
}

/* Without the group's program the kernel chooses by the flow. */
static void reuseport_no_more(struct vb_roce *roce)
{
    int none = 0;

    CHECK_EQ(setsockopt(vb_roce_udp_fd(roce->udp), SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &none,
                        sizeof(none)),
             0);
}

/* Its thread does nothing any more: it stands still until it has been told to end. */
static void test_a_port_that_ends_forwards_what_waits(void)
{
    struct vb_host_config config = {.packets_only = true, .roce = {.event = stand_still}};
    struct member member = start(FIRST_SLOT);
    struct vb_host *host;

    await_rebuild(&member, &(uint64_t){0}, 1, 1);
    sem_init(&stands, 0, 0);
    sem_init(&goes_on, 0, 0);
    CHECK_EQ(vb_host_open(&config, &host), 0);
    CHECK_EQ(vb_roce_add_slot(host->roce, STRANGER_SLOT), 0);
    await_members(host->roce, 2);
    CHECK(network_run("ip addr add 127.0.0.9/8 dev lo"));
    CHECK_EQ(sem_wait(&stands), 0);
    reuseport_no_more(host->roce);
    for (uint32_t psn = 0; psn < 200; ++psn) {
        if (psn % 10 == 0)
            new_flow();
        send_packet(member.slot, psn);
    }
    CHECK(ask(&member).packets < 200); /* some wait elsewhere */
    atomic_store(&host->roce->stopping, true);
    sem_post(&goes_on);
    sem_post(&goes_on); /* whatever else has changed */
    vb_host_close(host);
    await_packets(&member, 200);
    stop(&member);
}

static void test_another_user(void)
{
    struct member member;
    int status;
    pid_t pid;

    if (geteuid() != 0 || access("/proc/self/uid_map", F_OK)) {
        printf("not root: no process of another user\n");
        return;
    }
    member = start(FIRST_SLOT);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct vb_udp_config config = {.prepare = vb_roce_reuseport_prepare};
        struct vb_udp *udp;

        if (setuid(1000))
            _exit(0); /* the user namespace has no other user */
        _exit(vb_roce_udp_open(&config, &udp) == -EADDRINUSE ? 0 : 1);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    stop(&member);
}

int main(void)
{
    network_enter();
    signal(SIGPIPE, SIG_IGN);
    RUN(test_each_gets_its_own);
    RUN(test_one_is_killed);
    RUN(test_one_leaves);
    RUN(test_storm);
    RUN(test_without_program);
    RUN(test_one_is_stopped);
    RUN(test_one_is_stopped_and_one_unknown);
    RUN(test_a_late_answer_counts);
    RUN(test_who_is_not_alone_hears_of_it);
    RUN(test_nobody_has_the_slot);
    RUN(test_a_port_that_ends_forwards_what_waits);
    RUN(test_another_user);
    return 0;
}
