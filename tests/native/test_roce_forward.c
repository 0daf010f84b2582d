// SPDX-License-Identifier: Apache-2.0
/*
 * Packets between the processes of one host (roce/forward.h): an owner that is slow, new, or
 * one of many gets every packet, in its order. Both ends are in this process, and time is a number.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"
#include "roce/forward.h"
#include "wire/headers.h"

enum {
    PORT = 9,
    SLOT = 0x321,
    MANY = 12000,     /* more than a connection holds (8 MB), with what each costs the kernel */
    LARGE = 1024,     /* bytes of a packet */
    OWNERS = 300,     /* more than are remembered */
    WAYS = 300,       /* processes that forward: more than an owner lets wait to be accepted */
    KEPT = 16 << 20,  /* bytes for one owner */
    MOST = 1000000000 /* ns: the last instant of a test */
};

/* One end that receives, for all its slots. */
struct owner {
    struct vb_forward *forward;
    uint32_t came;
    uint32_t next[VB_SLOTS]; /* PSN */
};

static struct owner owner;

static void note(void *argument, const struct vb_arrival *arrival, uint64_t now)
{
    struct owner *at = argument;
    struct vb_bth bth = vb_wire_bth_read(arrival->bytes);

    (void)now;
    CHECK_EQ(bth.psn, at->next[bth.dest_qp >> VB_SLOT_BITS]++);
    CHECK_EQ(arrival->flow_label, 0x12345);
    CHECK_EQ(arrival->traffic_class, 0x28);
    ++at->came;
}

static void refuse(void *argument, const struct vb_arrival *arrival, uint64_t now)
{
    (void)argument, (void)arrival, (void)now;
    CHECK(!"a packet came to who has only sent");
}

static struct vb_forward *open_sender(void)
{
    struct vb_forward *sender;

    CHECK_EQ(vb_roce_forward_open(PORT, refuse, NULL, &sender), 0);
    return sender;
}

static void open_owner(void)
{
    memset(&owner, 0, sizeof(owner));
    CHECK_EQ(vb_roce_forward_open(PORT, note, &owner, &owner.forward), 0);
}

static void open_owner_of_slot(void)
{
    open_owner();
    CHECK_EQ(vb_roce_forward_accept(owner.forward, SLOT), 0);
}

static void close_both(struct vb_forward *sender)
{
    vb_roce_forward_close(sender);
    vb_roce_forward_close(owner.forward);
}

static int send_one(struct vb_forward *sender, uint32_t slot, uint32_t psn, uint64_t now)
{
    struct vb_bth bth = {.opcode = 4, .dest_qp = slot << VB_SLOT_BITS, .psn = psn};
    uint8_t packet[LARGE] = {0};
    struct vb_arrival arrival = {
        .bytes = packet, .length = LARGE, .flow_label = 0x12345, .traffic_class = 0x28};

    vb_wire_bth_write(packet, &bth);
    return vb_roce_forward_send(sender, slot, &arrival, now);
}

/* Both ends' turns until so many packets have come, from `now` on in steps of a millisecond. */
static void serve_until(struct vb_forward *sender, uint32_t count, uint64_t now)
{
    for (; owner.came < count && now < MOST; now += 1000000) {
        vb_roce_forward_serve(sender, now);
        for (int i = 0; i < 4; ++i)
            vb_roce_forward_serve(owner.forward, now);
    }
    CHECK_EQ(owner.came, count);
}

static void test_an_owner_that_is_busy(void)
{
    struct vb_forward *sender = open_sender();

    open_owner_of_slot();
    for (uint32_t psn = 0; psn < MANY; ++psn)
        CHECK_EQ(send_one(sender, SLOT, psn, 0), 0);
    CHECK_EQ(vb_roce_forward_deadline(sender),
             UINT64_MAX); /* it is woken by the owner, not by time */
    serve_until(sender, MANY, 0);
    close_both(sender);
}

/* The bound is for who never takes anything; others do not pay for it. */
static void test_an_owner_that_is_stopped(void)
{
    struct vb_forward *sender = open_sender(), *stopped = open_sender();
    uint32_t taken = 0;

    open_owner();
    CHECK_EQ(vb_roce_forward_accept(stopped, SLOT), 0);
    CHECK_EQ(vb_roce_forward_accept(owner.forward, SLOT + 1), 0);
    while (send_one(sender, SLOT, taken, 0) == 0 && taken < 10 * MANY)
        ++taken;
    CHECK(taken * LARGE >= KEPT);
    CHECK(taken < 2 * (KEPT + (8 << 20)) / LARGE);
    CHECK_EQ(send_one(sender, SLOT, taken, 0), -EAGAIN);
    CHECK_EQ(send_one(sender, SLOT + 1, 0, 0), 0);
    serve_until(sender, 1, 0);
    /* It dies: what was kept for it has no reader, and its slot no owner. */
    vb_roce_forward_close(stopped);
    for (uint64_t now = 0; now < MOST / 4; now += 1000000)
        vb_roce_forward_serve(sender, now);
    CHECK_EQ(vb_roce_forward_deadline(sender), UINT64_MAX);
    CHECK_EQ(send_one(sender, SLOT, 0, MOST), -ENOENT);
    close_both(sender);
}

static bool is_ready(struct vb_forward *forward)
{
    struct epoll_event event;
    int epoll = epoll_create1(EPOLL_CLOEXEC), count;

    CHECK(epoll >= 0);
    event = (struct epoll_event){.events = EPOLLIN};
    CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, vb_roce_forward_fd(forward), &event), 0);
    count = epoll_wait(epoll, &event, 1, 0);
    close(epoll);
    return count > 0;
}

/* Who keeps packets sleeps until the owner takes some. */
static void test_sleep_beside_an_owner_that_is_busy(void)
{
    struct vb_forward *sender = open_sender();

    open_owner_of_slot();
    for (uint32_t psn = 0; psn < MANY; ++psn)
        CHECK_EQ(send_one(sender, SLOT, psn, 0), 0);
    CHECK(!is_ready(sender));
    for (int i = 0; i < 200; ++i)
        vb_roce_forward_serve(owner.forward, 0);
    CHECK(is_ready(sender));
    serve_until(sender, MANY, 0);
    CHECK(!is_ready(sender));
    close_both(sender);
}

/* Before a process ends. */
static void test_push(void)
{
    struct vb_forward *sender = open_sender();
    int turns = 0;

    open_owner_of_slot();
    for (uint32_t psn = 0; psn < MANY; ++psn)
        CHECK_EQ(send_one(sender, SLOT, psn, 0), 0);
    for (; vb_roce_forward_push(sender, 0); ++turns) {
        CHECK(turns < MANY);
        vb_roce_forward_serve(owner.forward, 0);
    }
    CHECK(turns > 0);
    vb_roce_forward_close(sender);
    for (int i = 0; i < MANY && owner.came < MANY; ++i)
        vb_roce_forward_serve(owner.forward, 0);
    CHECK_EQ(owner.came, MANY);
    vb_roce_forward_close(owner.forward);
}

/* A slot that nobody had an instant ago. */
static void test_an_owner_that_has_just_come(void)
{
    struct vb_forward *sender = open_sender();

    open_owner();
    CHECK_EQ(send_one(sender, SLOT, 0, 0), -ENOENT);
    CHECK_EQ(vb_roce_forward_accept(owner.forward, SLOT), 0);
    CHECK_EQ(send_one(sender, SLOT, 0, 0), 0);
    serve_until(sender, 1, 0);
    /* Another process has the slot after it. */
    vb_roce_forward_close(owner.forward);
    CHECK_EQ(send_one(sender, SLOT, 0, 0), -ENOENT);
    open_owner_of_slot();
    CHECK_EQ(send_one(sender, SLOT, 0, 0), 0);
    serve_until(sender, 1, 0);
    close_both(sender);
}

/* In one instant, and each comes again when others have taken its place. */
static void test_many_owners(void)
{
    struct vb_forward *sender = open_sender();

    open_owner();
    for (uint32_t i = 0; i < OWNERS; ++i)
        CHECK_EQ(vb_roce_forward_accept(owner.forward, SLOT + i), 0);
    for (uint32_t psn = 0; psn < 3; ++psn)
        for (uint32_t i = 0; i < OWNERS; ++i)
            CHECK_EQ(send_one(sender, SLOT + i, psn, 0), 0);
    serve_until(sender, 3 * OWNERS, 0);
    close_both(sender);
}

/* Behind packets for all slots, of which nobody has any. */
static void test_an_owner_among_forged_slots(void)
{
    struct vb_forward *sender = open_sender();

    open_owner_of_slot();
    for (uint32_t slot = 1; slot < VB_SLOTS; ++slot)
        if (slot != SLOT)
            CHECK_EQ(send_one(sender, slot, 0, 0), -ENOENT);
    CHECK_EQ(send_one(sender, SLOT, 0, 0), 0);
    serve_until(sender, 1, 0);
    close_both(sender);
}

/* Two whose slots have one remainder by any power of two up to 2048, in turn. */
static void test_owners_in_turn(void)
{
    struct vb_forward *sender = open_sender();

    open_owner_of_slot();
    CHECK_EQ(vb_roce_forward_accept(owner.forward, SLOT + 2048), 0);
    for (uint32_t psn = 0; psn < 1000; ++psn)
        for (uint32_t i = 0; i < 2; ++i)
            CHECK_EQ(send_one(sender, SLOT + i * 2048, psn, 0), 0);
    serve_until(sender, 2000, 0);
    close_both(sender);
}

/* An owner that is stopped accepts no connection, and the kernel keeps 129 of them. */
static void test_many_that_forward(void)
{
    static struct vb_forward *senders[WAYS];
    uint64_t now = 0;

    open_owner_of_slot();
    for (uint32_t i = 0; i < WAYS; ++i) {
        senders[i] = open_sender();
        CHECK_EQ(send_one(senders[i], SLOT, 0, 0), 0);
        memset(owner.next, 0, sizeof(owner.next));
    }
    for (; owner.came < WAYS && now < MOST; now += 1000000) {
        for (uint32_t i = 0; i < WAYS; ++i)
            if (vb_roce_forward_deadline(senders[i]) <= now)
                vb_roce_forward_serve(senders[i], now);
        owner.next[SLOT] = 0;
        vb_roce_forward_serve(owner.forward, now);
    }
    CHECK_EQ(owner.came, WAYS);
    for (uint32_t i = 0; i < WAYS; ++i)
        vb_roce_forward_close(senders[i]);
    vb_roce_forward_close(owner.forward);
}

/* ---- without descriptors ---- */

static struct rlimit before;

/* Nothing more can be opened, and nothing that is open is closed. */
static void leave_no_descriptors(void)
{
    struct rlimit limit;
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC);

    CHECK(next >= 0);
    close(next);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = (struct rlimit){(rlim_t)next, before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void leave_descriptors(void)
{
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* Its only connection is needed for what waits there. */
static void test_a_sender_without_descriptors(void)
{
    struct vb_forward *sender = open_sender();

    open_owner_of_slot();
    CHECK_EQ(vb_roce_forward_accept(owner.forward, SLOT + 1), 0);
    for (uint32_t psn = 0; psn < MANY; ++psn)
        CHECK_EQ(send_one(sender, SLOT, psn, 0), 0);
    leave_no_descriptors();
    for (uint32_t psn = 0; psn < 100; ++psn)
        CHECK_EQ(send_one(sender, SLOT + 1, psn, 0), 0);
    vb_roce_forward_serve(sender, 10000000);
    CHECK(vb_roce_forward_deadline(sender) < 100000000);
    leave_descriptors();
    serve_until(sender, MANY + 100, 0);
    close_both(sender);
}

/* It has one, which serves one owner after the other. */
static void test_a_sender_with_one_descriptor(void)
{
    struct vb_forward *sender = open_sender();

    open_owner();
    for (uint32_t i = 0; i < 3; ++i)
        CHECK_EQ(vb_roce_forward_accept(owner.forward, SLOT + i), 0);
    CHECK_EQ(send_one(sender, SLOT, 0, 0), 0);
    leave_no_descriptors();
    for (uint32_t psn = 0; psn < 20; ++psn)
        for (uint32_t i = 0; i < 3; ++i)
            CHECK_EQ(send_one(sender, SLOT + i, psn + (i == 0), 0), 0);
    CHECK_EQ(vb_roce_forward_deadline(sender), UINT64_MAX); /* nothing is kept */
    leave_descriptors();
    serve_until(sender, 61, 0);
    close_both(sender);
}

/* What it was sent by then is taken, and what comes later comes by another connection. */
static void test_an_owner_without_descriptors(void)
{
    struct vb_forward *sender = open_sender();

    open_owner_of_slot();
    for (uint32_t psn = 0; psn < 100; ++psn)
        CHECK_EQ(send_one(sender, SLOT, psn, 0), 0);
    leave_no_descriptors();
    for (int i = 0; i < 4; ++i)
        vb_roce_forward_serve(owner.forward, 0);
    CHECK_EQ(owner.came, 100);
    leave_descriptors();
    for (uint32_t psn = 100; psn < 200; ++psn)
        CHECK_EQ(send_one(sender, SLOT, psn, 0), 0);
    serve_until(sender, 200, 0);
    close_both(sender);
}

int main(void)
{
    const struct rlimit enough = {4096, 4096};

    signal(SIGPIPE, SIG_IGN);
    if (setrlimit(RLIMIT_NOFILE, &enough)) {
        printf("a process may not have 4096 descriptors here; ulimit -n 4096 allows them\n");
        return 77;
    }
    RUN(test_an_owner_that_is_busy);
    RUN(test_an_owner_that_is_stopped);
    RUN(test_sleep_beside_an_owner_that_is_busy);
    RUN(test_push);
    RUN(test_an_owner_that_has_just_come);
    RUN(test_many_owners);
    RUN(test_an_owner_among_forged_slots);
    RUN(test_owners_in_turn);
    RUN(test_many_that_forward);
    RUN(test_a_sender_without_descriptors);
    RUN(test_a_sender_with_one_descriptor);
    RUN(test_an_owner_without_descriptors);
    return 0;
}
