// SPDX-License-Identifier: Apache-2.0
/*
 * Queue pairs and processes that end on the RoCE port take nothing with them: neither what they
 * have just posted, nor packets for others that the kernel gave to their socket.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "direct/slot.h"
#include "flow.h"
#include "host/host.h"
#include "network.h"
#include "roce/bpf.h"
#include "roce/state.h"
#include "station.h"

enum { MOST = 100, BYTES = 64 };

static struct station here;
static const struct station_route home;

/* ---- what was posted ---- */

/* One ibv_post_send; without a completion, which a program that ends does not wait for. */
static void post_at_once(struct station *station, struct vb_qp *qp, int count)
{
    struct ibv_sge sge = {(uintptr_t)station->memory, BYTES, station->mr->ibv.lkey};
    struct ibv_send_wr requests[MOST] = {{0}}, *bad;

    for (int i = 0; i < count; ++i)
        requests[i] = (struct ibv_send_wr){.opcode = IBV_WR_SEND,
                                           .sg_list = &sge,
                                           .num_sge = 1,
                                           .next = i + 1 < count ? &requests[i + 1] : NULL};
    CHECK_EQ(vb_post_send(qp, requests, &bad), 0);
}

static void expect_messages(struct station *station, int count)
{
    for (int i = 0; i < count; ++i) {
        struct ibv_wc wc = station_wait(station->cq, 5);

        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ(wc.byte_len, BYTES);
    }
}

static void open_pair(struct vb_qp *pair[2], int receives)
{
    struct station_card cards[2];

    station_open(&here, NULL);
    for (int i = 0; i < 2; ++i) {
        pair[i] = station_qp(&here, IBV_QPT_UC);
        cards[i] = station_card(&here, pair[i]);
    }
    for (int i = 0; i < 2; ++i)
        station_connect(&here, pair[i], &cards[1 - i], home);
    for (int i = 0; i < receives; ++i)
        station_post_recv(&here, pair[1], STATION_BYTES / 2, BYTES);
}

static void reset(struct vb_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

    CHECK_EQ(vb_qp_modify(qp, &attr, IBV_QP_STATE), 0);
}

static void destroy(struct vb_qp *qp)
{
    CHECK_EQ(vb_qp_destroy(qp), 0);
}

/* Requests that come in numbers wait a moment for more, to leave in one system call. */
static void many_leave_before(void (*end)(struct vb_qp *qp), int count)
{
    struct vb_qp *pair[2];

    open_pair(pair, count);
    post_at_once(&here, pair[0], count);
    end(pair[0]);
    expect_messages(&here, count);
    station_close(&here);
}

static void test_what_waits_for_more(void)
{
    static const int counts[] = {1, 9, 20, MOST};

    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); ++i) {
        many_leave_before(destroy, counts[i]);
        many_leave_before(reset, counts[i]);
    }
}

static atomic_bool is_held;

static void *hold_the_lock(void *argument)
{
    struct vb_roce *roce = argument;

    vb_roce_enter(roce);
    atomic_store(&is_held, true);
    usleep(20000);
    vb_roce_leave(roce);
    return NULL;
}

/* As the port's thread has it while the device is new: it makes the reuseport program. */
static void test_what_waits_for_the_lock(void)
{
    struct vb_qp *pair[2];
    pthread_t holder;

    open_pair(pair, 1);
    atomic_store(&is_held, false);
    CHECK_EQ(pthread_create(&holder, NULL, hold_the_lock, here.host->roce), 0);
    while (!atomic_load(&is_held))
        usleep(100);
    post_at_once(&here, pair[0], 1);
    destroy(pair[0]);
    expect_messages(&here, 1);
    CHECK_EQ(pthread_join(holder, NULL), 0);
    station_close(&here);
}

static void swap(int socket, const struct station_card *mine, struct station_card *theirs)
{
    CHECK_EQ(write(socket, mine, sizeof(*mine)), sizeof(*mine));
    CHECK_EQ(read(socket, theirs, sizeof(*theirs)), sizeof(*theirs));
}

/* A device and a queue pair, connected to the one at the socket's other end. */
static struct vb_qp *open_end(int socket)
{
    struct station_card mine, theirs;
    struct vb_qp *qp;

    station_open(&here, NULL);
    qp = station_qp(&here, IBV_QPT_UC);
    mine = station_card(&here, qp);
    swap(socket, &mine, &theirs);
    station_connect(&here, qp, &theirs, home);
    return qp;
}

/* A process of its own, which ends with the device open (end_at_exit). */
static void be_sender(int socket, int count)
{
    struct vb_qp *qp = open_end(socket);

    CHECK_EQ(read(socket, &(char){0}, 1), 1);
    post_at_once(&here, qp, count);
    vb_roce_end(here.host->roce);
    _exit(0);
}

static pid_t start_sender(int count, int *socket)
{
    int ends[2];
    pid_t pid;

    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        be_sender(ends[1], count);
    }
    close(ends[1]);
    *socket = ends[0];
    return pid;
}

static void end_well(pid_t pid)
{
    int status;

    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

static void receive_from_one_that_ends(int count)
{
    int socket;
    pid_t pid = start_sender(count, &socket);
    struct vb_qp *qp = open_end(socket);

    for (int i = 0; i < count; ++i)
        station_post_recv(&here, qp, STATION_BYTES / 2, BYTES);
    CHECK_EQ(write(socket, "", 1), 1);
    expect_messages(&here, count);
    end_well(pid);
    close(socket);
    station_close(&here);
}

static void test_a_process_that_ends(void)
{
    for (int i = 0; i < 10; ++i)
        receive_from_one_that_ends(20);
    receive_from_one_that_ends(1);
}

/* ---- what is others' ---- */

enum {
    PSNS = 1 << 22,
    WINDOW = 400, /* at once: what the socket between two processes takes by default */
    PASSERS_BY = 1000,
    FAILURES = 150,   /* before the stream has used all of its numbers */
    DESCRIPTORS = 64, /* more than a device needs */
};

/* A process with a stream of packets to it: a member of the port's group, without an engine. */
struct reader {
    struct vb_udp *udp;
    struct vb_reuseport *reuseport;
    struct ledger *ledger;
};

/* Shared by the processes of this test. */
struct ledger {
    atomic_bool opens, ends, sends;
    uint32_t slot;
    _Atomic uint32_t came;
    uint8_t seen[PSNS];
};

static struct ledger *ledger;

static void open_ledger(void)
{
    ledger = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(ledger != MAP_FAILED);
}

static void note(void *argument, const struct vb_arrival *arrival, uint64_t now)
{
    uint32_t psn = vb_wire_bth_read(arrival->bytes).psn % PSNS;

    (void)argument, (void)now;
    CHECK_EQ(ledger->seen[psn]++, 0);
    atomic_fetch_add(&ledger->came, 1);
}

static void open_reader(struct reader *reader)
{
    struct vb_udp_config udp = {.prepare = vb_roce_reuseport_prepare};
    struct vb_reuseport_config config = {.deliver = note};

    CHECK_EQ(vb_roce_udp_open(&udp, &reader->udp), 0);
    config.group = vb_roce_udp_fd(reader->udp);
    CHECK_EQ(getrandom(&config.instance, sizeof(config.instance), 0), sizeof(config.instance));
    CHECK_EQ(vb_roce_reuseport_open(&config, &reader->reuseport), 0);
    CHECK(vb_direct_slot_claim(0, &ledger->slot) >= 0); /* no other process takes it */
    CHECK_EQ(vb_roce_reuseport_add_slot(reader->reuseport, ledger->slot, vb_roce_now()), 0);
}

static bool is_question(const struct vb_arrival *arrival)
{
    return vb_wire_bth_read(arrival->bytes).dest_qp < 1 << VB_SLOT_BITS;
}

/* It is too busy to say who it is: others have its packets, and forward them. */
static void be_reader(void)
{
    struct vb_arrival arrival;
    struct reader reader;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    open_reader(&reader);
    atomic_store(&ledger->opens, true);
    while (!atomic_load(&ledger->ends)) {
        struct pollfd fds[] = {{vb_roce_udp_fd(reader.udp), POLLIN, 0},
                               {vb_roce_reuseport_fd(reader.reuseport), POLLIN, 0}};

        CHECK(poll(fds, 2, 1) >= 0);
        while (vb_roce_udp_receive(reader.udp))
            while (vb_roce_udp_next(reader.udp, &arrival))
                if (!is_question(&arrival) &&
                    vb_roce_reuseport_takes(reader.reuseport, &arrival, vb_roce_now()))
                    note(NULL, &arrival, 0);
        vb_roce_reuseport_serve(reader.reuseport, vb_roce_now());
    }
    _exit(0);
}

static pid_t start_reader(void)
{
    pid_t pid;

    memset(ledger, 0, sizeof(*ledger));
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        be_reader();
    while (!atomic_load(&ledger->opens))
        usleep(100);
    return pid;
}

/* False: packets are missing that were sent. */
static bool await_until_under_way(uint32_t sent, uint32_t most)
{
    uint64_t until = vb_roce_now() + 10000000000;

    while (sent - atomic_load(&ledger->came) > most)
        if (vb_roce_now() > until)
            return false;
    return true;
}

/* As fast as they come in, in flows that change: where the program knows no socket for them, the
 * kernel chooses by the flow. `argument`: how many were lost. */
static void *stream(void *argument)
{
    uint32_t *lost = argument, sent = 0;

    while (atomic_load(&ledger->sends) && sent < PSNS && *lost == 0) {
        struct flow flow = flow_open();

        for (int i = 0; i < WINDOW; ++i)
            flow_send(&flow, ledger->slot << VB_SLOT_BITS, sent++);
        flow_close(&flow);
        if (!await_until_under_way(sent, WINDOW))
            *lost = sent - atomic_load(&ledger->came);
    }
    if (*lost == 0 && !await_until_under_way(sent, 0))
        *lost = sent - atomic_load(&ledger->came);
    return NULL;
}

/* A stream to a process that reads it, and the thread that sends it. */
struct streaming {
    pid_t reader;
    pthread_t sender;
    uint32_t lost;
};

static void begin_stream(struct streaming *streaming)
{
    atomic_store(&ledger->sends, true);
    CHECK_EQ(pthread_create(&streaming->sender, NULL, stream, &streaming->lost), 0);
}

/* Every packet came, and the reader ends well. */
static void end_stream(struct streaming *streaming)
{
    atomic_store(&ledger->sends, false);
    CHECK_EQ(pthread_join(streaming->sender, NULL), 0);
    printf("%u of %u packets are missing\n", streaming->lost,
           atomic_load(&ledger->came) + streaming->lost);
    CHECK_EQ(streaming->lost, 0);
    atomic_store(&ledger->ends, true);
    end_well(streaming->reader);
    munmap(ledger, sizeof(*ledger));
}

static struct vb_udp *open_udp(void)
{
    struct vb_udp_config config = {.prepare = vb_roce_reuseport_prepare};
    struct vb_udp *udp;

    CHECK_EQ(vb_roce_udp_open(&config, &udp), 0);
    return udp;
}

static void send_number(uint32_t count)
{
    struct flow flow = flow_open();

    for (uint32_t psn = 0; psn < count; ++psn)
        flow_send(&flow, ledger->slot << VB_SLOT_BITS, psn);
    flow_close(&flow);
}

/* The program sends all to the first. What is in its socket stays, and the rest has another way. */
static void test_a_socket_that_leaves_the_port(void)
{
    struct vb_udp *first = open_udp(), *second = open_udp();
    struct sock_filter program[VB_BPF_MAX];
    unsigned length = vb_roce_bpf_make(NULL, 0, 0, program);

    open_ledger();
    ledger->slot = 1;
    CHECK_EQ(vb_roce_bpf_attach(vb_roce_udp_fd(first), program, length), 0);
    send_number(10);
    CHECK_EQ(vb_roce_udp_leave_port(first), 0);
    send_number(20);
    CHECK_EQ(flow_count(first), 10);
    CHECK_EQ(flow_count(second), 20);
    vb_roce_udp_close(first);
    vb_roce_udp_close(second);
    munmap(ledger, sizeof(*ledger));
}

static struct vb_host *open_host(void)
{
    struct vb_host_config config = {.packets_only = true};
    struct vb_host *host;

    CHECK_EQ(vb_host_open(&config, &host), 0);
    return host;
}

/* Its program gives the reader's packets to the member with its own index, which is the next
 * newcomer's as well. */
static void make_the_program(void)
{
    struct vb_host *host = open_host();
    uint64_t rebuilds = 0;

    for (int i = 0; i < 500 && !rebuilds; ++i) {
        usleep(10000);
        vb_roce_enter(host->roce);
        rebuilds = vb_roce_reuseport_counter(host->roce->reuseport, VB_REUSEPORT_REBUILDS);
        vb_roce_leave(host->roce);
    }
    CHECK(rebuilds > 0);
    vb_host_close(host);
}

/* All packets of a stream go through processes that have nothing to do with it, and end. */
static void test_a_stream_beside_processes_that_come_and_go(void)
{
    struct streaming streaming = {0};

    open_ledger();
    streaming.reader = start_reader();
    make_the_program();
    begin_stream(&streaming);
    for (int i = 0; i < PASSERS_BY; ++i)
        vb_host_close(open_host());
    end_stream(&streaming);
}

static int next_descriptor(void)
{
    int fd = dup(0);

    CHECK(fd >= 0);
    close(fd);
    return fd;
}

/* A process with too few descriptors for the device, one more each time, until it has enough. */
static void be_one_that_fails(void)
{
    struct vb_host_config config = {.packets_only = true};
    struct vb_host *host;
    struct rlimit limit;
    int failed = 0, next = next_descriptor();

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int more = 0; failed < FAILURES; more = (more + 1) % DESCRIPTORS) {
        limit.rlim_cur = (rlim_t)(next + more);
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
        if (vb_host_open(&config, &host)) {
            ++failed;
            continue;
        }
        vb_host_close(host);
        more = DESCRIPTORS - 1; /* from the beginning */
    }
    _exit(0);
}

/* The same with processes that fail to open the device, each a step later than the one before. */
static void test_a_stream_beside_devices_that_fail_to_open(void)
{
    struct streaming streaming = {0};
    pid_t failing;

    open_ledger();
    streaming.reader = start_reader();
    make_the_program();
    failing = fork();
    CHECK(failing >= 0);
    if (failing == 0)
        be_one_that_fails();
    begin_stream(&streaming);
    end_well(failing);
    end_stream(&streaming);
}

int main(void)
{
    network_enter();
    setlinebuf(stdout);
    signal(SIGPIPE, SIG_IGN);
    RUN(test_what_waits_for_more);
    RUN(test_what_waits_for_the_lock);
    RUN(test_a_process_that_ends);
    RUN(test_a_socket_that_leaves_the_port);
    RUN(test_a_stream_beside_processes_that_come_and_go);
    RUN(test_a_stream_beside_devices_that_fail_to_open);
    return 0;
}
