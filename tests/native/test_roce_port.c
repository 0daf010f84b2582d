// SPDX-License-Identifier: Apache-2.0
/* Queue pairs over the RoCE port: who makes the progress, who sleeps, and what ends badly. */
#include <netinet/in.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "hca/counters.h"
#include "network.h"
#include "roce/state.h"
#include "station.h"

static struct station here;
static struct vb_qp *pair[2]; /* of this process, connected to each other */
static struct station_card cards[2];

static const struct station_route home;
static const struct station_route patient = {.timeout = 20}; /* 4 s before a packet goes again */

static void open_pair_as(const struct vb_host_config *config, enum ibv_qp_type type,
                         struct station_route route)
{
    station_open(&here, config);
    for (int i = 0; i < 2; ++i) {
        pair[i] = station_qp(&here, type);
        cards[i] = station_card(&here, pair[i]);
    }
    for (int i = 0; i < 2; ++i)
        station_connect(&here, pair[i], &cards[1 - i], route);
}

static void open_pair(enum ibv_qp_type type, struct station_route route)
{
    open_pair_as(NULL, type, route);
}

static void fill(uint32_t length)
{
    for (uint32_t i = 0; i < length; ++i)
        here.memory[i] = (uint8_t)(i * 7 + (i >> 8));
    memset(here.memory + STATION_BYTES / 2, 0, length);
}

static bool has_arrived(uint32_t length)
{
    return memcmp(here.memory, here.memory + STATION_BYTES / 2, length) == 0;
}

static struct vb_counters counted(void)
{
    struct vb_roce *roce = here.host->roce;
    struct vb_counters counters;

    vb_roce_enter(roce);
    counters = *vb_engine_counters(vb_roce_engine(roce));
    vb_roce_leave(roce);
    return counters;
}

static void expect(struct ibv_wc wc, enum ibv_wc_opcode opcode)
{
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.opcode, opcode);
}

static void requests_are_carried_out(const char *address, enum ibv_mtu mtu)
{
    const uint32_t length = 300001;

    open_pair(IBV_QPT_RC, (struct station_route){.from = address, .to = address, .mtu = mtu});
    CHECK(pair[0]->endpoint && pair[1]->endpoint);
    fill(length);
    station_post(&here, pair[0], IBV_WR_RDMA_WRITE, length, &cards[1]);
    expect(station_wait(here.cq, 5), IBV_WC_RDMA_WRITE);
    CHECK(has_arrived(length));
    memset(here.memory, 0, length);
    station_post(&here, pair[1], IBV_WR_RDMA_READ, length, &cards[0]);
    expect(station_wait(here.cq, 5), IBV_WC_RDMA_READ);
    CHECK(has_arrived(length) && here.memory[300] != 0);
    fill(8000);
    station_post_recv(&here, pair[1], STATION_BYTES / 2, 8000);
    station_post(&here, pair[0], IBV_WR_SEND, 8000, &cards[1]);
    station_wait(here.cq, 5);
    station_wait(here.cq, 5);
    CHECK(has_arrived(8000));
    CHECK_EQ(vb_roce_udp_counter(vb_roce_udp(here.host->roce), VB_UDP_BAD_ICRC), 0);
    station_close(&here);
}

static void test_requests(void)
{
    requests_are_carried_out("127.0.0.1", IBV_MTU_4096);
    requests_are_carried_out("127.0.0.1", IBV_MTU_256);
    requests_are_carried_out("fd00::1", IBV_MTU_1024);
}

static void test_unreliable(void)
{
    open_pair(IBV_QPT_UC, home);
    fill(50000);
    station_post_recv(&here, pair[1], STATION_BYTES / 2, 50000);
    station_post(&here, pair[0], IBV_WR_SEND, 50000, &cards[1]);
    station_wait(here.cq, 5);
    station_wait(here.cq, 5);
    CHECK(has_arrived(50000));
    station_close(&here);
}

static void test_datagrams(void)
{
    struct ibv_ah_attr address;
    struct vb_ah *ah;
    struct ibv_wc wc;

    open_pair(IBV_QPT_UD, home);
    address = station_address(&here, home);
    CHECK_EQ(vb_ah_create(here.pd, &address, &ah), 0);
    fill(1000);
    station_post_recv(&here, pair[1], STATION_BYTES / 2 - 40, 4096);
    {
        struct ibv_sge sge = {(uintptr_t)here.memory, 1000, here.mr->ibv.lkey};
        struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1}, *bad;

        wr.wr.ud.ah = &ah->ibv;
        wr.wr.ud.remote_qpn = pair[1]->number;
        wr.wr.ud.remote_qkey = 0x1234;
        CHECK_EQ(vb_post_send(pair[0], &wr, &bad), 0);
    }
    wc = station_wait(here.cq, 5);
    expect(wc, IBV_WC_RECV);
    CHECK_EQ(wc.byte_len, 1040);
    CHECK_EQ(wc.src_qp, pair[0]->number);
    CHECK(has_arrived(1000));
    station_close(&here);
}

/* Nobody polls: the port's thread receives, answers and wakes. */
static void test_sleeper(void)
{
    open_pair(IBV_QPT_RC, home);
    fill(5000);
    for (int i = 0; i < 20; ++i) {
        station_post(&here, pair[0], IBV_WR_RDMA_WRITE, 5000, &cards[1]);
        expect(station_sleep(&here, 5), IBV_WC_RDMA_WRITE);
    }
    CHECK(has_arrived(5000));
    station_close(&here);
}

/* Half a second in which the thread is not woken: soon, but what comes late may come first. */
static bool thread_rests(void)
{
    for (int i = 0; i < 20; ++i) {
        uint64_t wakeups = vb_roce_wakeups(here.host->roce);

        usleep(500000);
        if (vb_roce_wakeups(here.host->roce) == wakeups)
            return true;
    }
    return false;
}

/* What all threads cost: test_roce_idle. */
static void test_idle(void)
{
    open_pair(IBV_QPT_RC, home);
    station_post(&here, pair[0], IBV_WR_RDMA_WRITE, 100, &cards[1]);
    station_wait(here.cq, 5);
    CHECK(thread_rests());
    station_close(&here);
}

static bool polls_without_wakeups(void)
{
    struct vb_roce *roce;
    uint64_t wakeups, begin, end;
    unsigned done = 0;

    open_pair(IBV_QPT_RC, home);
    roce = here.host->roce;
    for (int i = 0; i < 100; ++i) {
        station_post(&here, pair[0], IBV_WR_RDMA_WRITE, 64, &cards[1]);
        station_wait(here.cq, 5);
    }
    wakeups = vb_roce_wakeups(roce);
    begin = vb_roce_now();
    do {
        station_post(&here, pair[0], IBV_WR_RDMA_WRITE, 64, &cards[1]);
        station_wait(here.cq, 5);
        end = vb_roce_now();
        ++done;
    } while (end - begin < 200000000 || done < 1000);
    wakeups = vb_roce_wakeups(roce) - wakeups;
    printf("%u writes in %.2f s by one thread to itself, %llu wake-ups\n", done,
           (double)(end - begin) / 1e9, (unsigned long long)wakeups);
    station_close(&here);
    return wakeups < 2 * (end - begin) / 1000000;
}

/* The thread looks about once a millisecond and does nothing else, but where the poller is kept
 * from its processor by others. */
static void test_polling_program(void)
{
    bool quiet = false;

    for (int i = 0; i < 10 && !quiet; ++i)
        quiet = polls_without_wakeups();
    CHECK(quiet);
}

/* ---- counters ---- */

static char description[1 << 14];
static unsigned counters_told;

static void expect_in_its_part(const char *part, const char *name, uint64_t value)
{
    char member[96];
    const char *at, *end;

    snprintf(member, sizeof(member), "\"%s\":{", part);
    at = strstr(description, member);
    CHECK(at && value);
    end = strchr(at, '}');
    snprintf(member, sizeof(member), "\"%s\":", name);
    at = strstr(at, member);
    CHECK(at && at < end);
    ++counters_told;
}

/* Each counter that is not 0 is told once, with the part that it belongs to. */
static void test_counters(void)
{
    unsigned described = 0;

    open_pair(IBV_QPT_RC, home);
    station_post(&here, pair[0], IBV_WR_RDMA_WRITE, 3000, &cards[1]);
    station_wait(here.cq, 5);
    CHECK(vb_roce_describe(here.host->roce, description, sizeof(description)) > 0);
    for (const char *at = description; (at = strstr(at, "\":")); at += 2)
        described += at[2] >= '1' && at[2] <= '9';
    counters_told = 0;
    vb_roce_tell_counters(here.host->roce, &here.host->adapter, expect_in_its_part);
    CHECK(described > 4);
    CHECK_EQ(counters_told, described);
    station_close(&here);
}

/* ---- what was refused ---- */

static _Atomic uint64_t told_lines, told_packets; /* the device's thread tells, too */

static void tell_line(void *argument, const char *line)
{
    static const char name[] = "receive_bad_icrc +";
    const char *at = strstr(line, name);

    (void)argument;
    told_packets += at ? strtoul(at + strlen(name), NULL, 10) : 0;
    ++told_lines;
}

/* Packets but for their ICRC. */
static void throw_garbage(unsigned count)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(VB_ROCE_PORT),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    uint8_t bytes[32] = {4};

    CHECK(fd >= 0);
    while (count--)
        CHECK_EQ(sendto(fd, bytes, sizeof(bytes), 0, (struct sockaddr *)&to, sizeof(to)),
                 sizeof(bytes));
    close(fd);
}

/* Once a second at most, whether this program polls or not, the log has a line. */
static void refusals_are_told(bool polls)
{
    const struct vb_host_config config = {.packets_only = true, .roce = {.log = tell_line}};
    uint64_t begun = vb_roce_now(), end;

    told_lines = told_packets = 0;
    open_pair_as(&config, IBV_QPT_RC, home);
    for (unsigned thrown = 3; thrown <= 4; ++thrown) {
        throw_garbage(thrown == 3 ? 3 : 1);
        for (end = vb_roce_now() + 10000000000; told_packets < thrown;) {
            CHECK(vb_roce_now() < end);
            station_post(&here, pair[0], IBV_WR_RDMA_WRITE, 64, &cards[1]);
            if (polls)
                station_wait(here.cq, 5);
            else
                station_sleep(&here, 5);
        }
    }
    CHECK_EQ(told_packets, 4);
    CHECK(told_lines >= 2 && (told_lines - 1) * 1000000000 <= vb_roce_now() - begun);
    station_close(&here);
}

static void test_a_log(void)
{
    refusals_are_told(true);
    refusals_are_told(false);
}

/* ---- two processes ---- */

struct other {
    pid_t pid;
    int socket;
    struct station_card card;
};

static void swap_cards(int socket, const struct station_card *mine, struct station_card *theirs)
{
    CHECK_EQ(write(socket, mine, sizeof(*mine)), sizeof(*mine));
    CHECK_EQ(read(socket, theirs, sizeof(*theirs)), sizeof(*theirs));
}

static void meet(int socket)
{
    char token = 0;

    CHECK_EQ(write(socket, &token, 1), 1);
    CHECK_EQ(read(socket, &token, 1), 1);
}

static struct vb_qp *join_as(const struct vb_host_config *config, int socket,
                             struct station_card *card, struct station_route route)
{
    struct vb_qp *qp;
    struct station_card mine;

    station_open(&here, config);
    qp = station_qp(&here, IBV_QPT_RC);
    mine = station_card(&here, qp);
    swap_cards(socket, &mine, card);
    station_connect(&here, qp, card, route);
    meet(socket);
    return qp;
}

static struct vb_qp *join(int socket, struct station_card *card, struct station_route route)
{
    return join_as(NULL, socket, card, route);
}

/* A target whose memory is gone, as its thread finds. */
static void be_target_without_memory(int socket)
{
    struct station_card card;

    join(socket, &card, home);
    munmap(here.memory, STATION_BYTES);
    meet(socket);
    meet(socket); /* still there */
    pause();
}

/* A target: it polls for a while if it is told to, and then does nothing until it is killed. */
static void be_target(int socket, unsigned poll_ms)
{
    struct station_card card;
    uint64_t end;
    struct ibv_wc wc;

    join(socket, &card, home);
    end = vb_roce_now() + poll_ms * 1000000ull;
    while (vb_roce_now() < end)
        vb_cq_poll(here.cq, 1, &wc);
    meet(socket);
    pause();
}

enum { WITHOUT_MEMORY = -1 };

static struct other start_target(int poll_ms)
{
    struct other other;
    int ends[2];

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    other.pid = fork();
    CHECK(other.pid >= 0);
    if (other.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        if (poll_ms == WITHOUT_MEMORY)
            be_target_without_memory(ends[1]);
        else
            be_target(ends[1], (unsigned)poll_ms);
        _exit(1);
    }
    close(ends[1]);
    other.socket = ends[0];
    return other;
}

static void end_target(struct other *other)
{
    kill(other->pid, SIGKILL);
    CHECK_EQ(waitpid(other->pid, NULL, 0), other->pid);
    close(other->socket);
}

/* The target's thread answers for a program that is busy elsewhere. */
static void test_passive_target(void)
{
    struct other other = start_target(0);
    struct vb_qp *qp = join(other.socket, &other.card, home);

    meet(other.socket);
    for (int i = 0; i < 100; ++i) {
        station_post(&here, qp, IBV_WR_RDMA_WRITE, 10000, &other.card);
        expect(station_wait(here.cq, 5), IBV_WC_RDMA_WRITE);
    }
    station_close(&here);
    end_target(&other);
}

static void targets_memory_is_gone(enum ibv_wr_opcode opcode)
{
    struct other other = start_target(WITHOUT_MEMORY);
    struct vb_qp *qp = join(other.socket, &other.card, home);
    uint32_t length = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : 10000;

    meet(other.socket);
    station_post(&here, qp, opcode, length, &other.card);
    CHECK_EQ(station_wait(here.cq, 5).status, IBV_WC_REM_OP_ERR);
    meet(other.socket);
    station_close(&here);
    end_target(&other);
}

static void own_memory_is_gone(enum ibv_wr_opcode opcode)
{
    struct other other = start_target(0);
    struct vb_qp *qp = join(other.socket, &other.card, home);

    meet(other.socket);
    munmap(here.memory, STATION_BYTES);
    station_post(&here, qp, opcode, 10000, &other.card);
    CHECK_EQ(station_wait(here.cq, 5).status, IBV_WC_LOC_PROT_ERR);
    station_close(&here);
    end_target(&other);
}

static void test_memory_that_is_gone(void)
{
    targets_memory_is_gone(IBV_WR_RDMA_WRITE);
    targets_memory_is_gone(IBV_WR_ATOMIC_FETCH_AND_ADD);
    own_memory_is_gone(IBV_WR_RDMA_WRITE);
    own_memory_is_gone(IBV_WR_RDMA_READ);
    targets_memory_is_gone(IBV_WR_RDMA_READ);
}

/* From one who polls to the thread: within a millisecond or so, and without a packet sent again. */
static void test_takeover(void)
{
    struct other other = start_target(50);
    struct vb_qp *qp = join(other.socket, &other.card, patient);
    uint64_t longest = 0;

    for (int i = 0; i < 400; ++i) {
        uint64_t begin = vb_roce_now();

        station_post(&here, qp, IBV_WR_RDMA_WRITE, 8, &other.card);
        expect(station_wait(here.cq, 10), IBV_WC_RDMA_WRITE);
        if (vb_roce_now() - begin > longest)
            longest = vb_roce_now() - begin;
        if (i == 300)
            usleep(60000);
    }
    printf("longest of 400 writes while the target goes from polling to sleeping: %.2f ms\n",
           (double)longest / 1e6);
    CHECK_EQ(counted().timeouts, 0);
    station_close(&here);
    end_target(&other);
}

/* Nobody polls here either: the thread's timer ends the request. */
static void test_killed_peer(void)
{
    struct other other = start_target(0);
    struct station_route route = {.timeout = 8};
    struct vb_qp *qp = join(other.socket, &other.card, route);
    struct ibv_wc wc;

    meet(other.socket);
    end_target(&other);
    station_post(&here, qp, IBV_WR_RDMA_WRITE, 10000, &other.card);
    wc = station_sleep(&here, 5);
    CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
    CHECK_EQ(vb_qp_state(qp), IBV_QPS_ERR);
    station_close(&here);
}

/* ---- what goes wrong at once ---- */

static int refusal(const char *from, const char *to, enum ibv_mtu mtu)
{
    struct vb_qp *qp = station_qp(&here, IBV_QPT_RC);
    struct station_card nobody = {0x123456, 0, 0};
    int error = station_to_rtr(&here, qp, &nobody,
                               (struct station_route){.from = from, .to = to, .mtu = mtu});

    CHECK(error == 0 || vb_qp_state(qp) == IBV_QPS_INIT);
    CHECK_EQ(vb_qp_destroy(qp), 0);
    return error;
}

static void test_refusals(void)
{
    station_open(&here, NULL);
    CHECK_EQ(refusal("127.0.0.1", "127.0.0.1", IBV_MTU_4096), 0);
    CHECK_EQ(refusal("10.99.0.1", "127.0.0.1", IBV_MTU_1024), -EINVAL); /* index 255 */
    CHECK_EQ(refusal("10.3.0.1", "192.0.2.1", IBV_MTU_1024), -ENETUNREACH);
    CHECK_EQ(refusal("fd00::1", "10.3.0.1", IBV_MTU_1024), -EAFNOSUPPORT);
    CHECK_EQ(refusal("10.3.0.1", "10.3.0.2", IBV_MTU_1024), 0);
    CHECK_EQ(refusal("10.3.0.1", "10.3.0.2", IBV_MTU_2048), -EMSGSIZE);
    station_close(&here);
}

static _Atomic unsigned raised[64];

static void count_event(void *argument, uint8_t port_num, enum ibv_event_type type)
{
    (void)argument, (void)port_num;
    ++raised[type];
}

static bool is_raised(enum ibv_event_type type)
{
    for (int i = 0; i < 200 && !raised[type]; ++i)
        usleep(10000);
    return raised[type] != 0;
}

static void test_events(void)
{
    struct vb_host_config config = {.packets_only = true, .roce = {.event = count_event}};

    station_open(&here, &config);
    CHECK(network_run("ip addr add 10.3.0.7/24 dev va"));
    CHECK(is_raised(IBV_EVENT_GID_CHANGE));
    CHECK(!raised[IBV_EVENT_PORT_ERR]);
    CHECK(network_run("ip link set vb down"));
    CHECK(is_raised(IBV_EVENT_PORT_ERR));
    CHECK(network_run("ip link set vb up"));
    CHECK(is_raised(IBV_EVENT_PORT_ACTIVE));
    station_close(&here);
}

static sem_t stands, goes_on;

static void stand_still(void *argument, uint8_t port_num, enum ibv_event_type type)
{
    (void)argument, (void)port_num, (void)type;
    sem_post(&stands);
    sem_wait(&goes_on);
}

/*
 * The thread is slow, and a program that has armed its CQ and looks once more takes the datagram
 * that was to wake it, and then sleeps: the acknowledgement has left all the same.
 */
static void test_a_last_look(void)
{
    struct vb_host_config config = {.packets_only = true, .roce = {.event = stand_still}};
    struct pollfd readable = {.events = POLLIN};
    struct ibv_wc wc;

    sem_init(&goes_on, 0, 0);
    open_pair_as(&config, IBV_QPT_RC, patient);
    CHECK(thread_rests());
    CHECK(network_run("ip addr add 10.3.0.8/24 dev va"));
    CHECK_EQ(sem_wait(&stands), 0);
    vb_cq_arm(here.cq, false);
    station_post(&here, pair[0], IBV_WR_RDMA_WRITE, 100, &cards[1]);
    while (counted().packets_received == 0)
        CHECK_EQ(vb_cq_poll(here.cq, 1, &wc), 0);
    CHECK_EQ(sem_post(&goes_on), 0);
    readable.fd = here.channel->ibv.fd;
    CHECK_EQ(poll(&readable, 1, 3000), 1); /* before the packet would go again */
    expect(station_wait(here.cq, 5), IBV_WC_RDMA_WRITE);
    sem_post(&goes_on); /* whatever else has changed at the interface */
    station_close(&here);
}

/* Bytes of the datagrams that wait in this process's socket. */
static unsigned mail(void)
{
    FILE *table = fopen("/proc/self/net/udp6", "r");
    unsigned waiting, found = 0;
    unsigned long inode;
    struct stat socket;
    char line[256];

    CHECK(table);
    CHECK_EQ(fstat(vb_roce_udp_fd(here.host->roce->udp), &socket), 0);
    while (fgets(line, sizeof(line), table))
        if (sscanf(line, "%*s %*s %*s %*s %*x:%x %*s %*s %*s %*s %lu", &waiting, &inode) == 2 &&
            inode == socket.st_ino)
            found = waiting;
    fclose(table);
    return found;
}

static uint64_t strays(void)
{
    return vb_roce_reuseport_counter(here.host->roce->reuseport, VB_REUSEPORT_STRAYS);
}

/* WRITEs until the kernel gives the peer its packets without a detour through this process, whose
 * thread would have to forward them. */
static void write_until_direct(struct vb_qp *qp, struct station_card *target)
{
    uint64_t before;

    do {
        before = strays();
        station_post(&here, qp, IBV_WR_RDMA_WRITE, 100, target);
        expect(station_sleep(&here, 5), IBV_WC_RDMA_WRITE);
        usleep(5000);
    } while (strays() != before);
}

/*
 * The thread comes late, as on a busy host: its timer has expired, and the answer waits in the
 * socket. The answer counts, and nothing is sent again.
 */
static void test_an_answer_before_a_late_timer(void)
{
    struct vb_host_config config = {.packets_only = true, .roce = {.event = stand_still}};
    struct other other = start_target(0);
    struct vb_qp *qp = join_as(&config, other.socket, &other.card, home);
    struct vb_counters first, counters;
    unsigned before;

    meet(other.socket);
    write_until_direct(qp, &other.card);
    first = counted();
    sem_init(&goes_on, 0, 0);
    CHECK(network_run("ip addr add 10.3.0.9/24 dev va"));
    CHECK_EQ(sem_wait(&stands), 0);
    before = mail();
    station_post(&here, qp, IBV_WR_RDMA_WRITE, 100, &other.card);
    usleep(300000);
    for (int i = 0; i < 1000 && mail() == before; ++i) /* the target may be late, too */
        usleep(10000);
    CHECK_EQ(sem_post(&goes_on), 0);
    expect(station_sleep(&here, 5), IBV_WC_RDMA_WRITE);
    counters = counted();
    CHECK_EQ(counters.timeouts, first.timeouts);
    CHECK_EQ(counters.packets_resent, first.packets_resent);
    sem_post(&goes_on);
    station_close(&here);
    end_target(&other);
}

/* Small buffers for what is sent: of the sockets that have a lane's port. */
static void narrow_lanes(void)
{
    for (int fd = 3; fd < 256; ++fd) {
        struct sockaddr_in6 address = {0};
        socklen_t size = sizeof(address);

        if (getsockname(fd, (struct sockaddr *)&address, &size) == 0 &&
            address.sin6_family == AF_INET6 && ntohs(address.sin6_port) >= 0xc000)
            CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){1}, sizeof(int)), 0);
    }
}

/*
 * What a slow link took no more of leaves later, and then what was posted meanwhile. By UC, which
 * has no timer, to a host that says nothing.
 */
static void test_slow_link(void)
{
    enum { WRITES = 100, LENGTH = 10000 };
    const struct station_route away = {.from = "10.3.0.1", .to = "10.3.0.2"};
    const struct station_card nobody = {0x123456, 0, 0};
    struct vb_qp *qp;
    uint32_t last;

    if (!network_run("tc qdisc add dev va root tbf rate 400mbit burst 100kb limit 100mb")) {
        printf("no slow link here: tc knows no tbf\n");
        return;
    }
    CHECK(network_run("ip neigh replace 10.3.0.2 lladdr 02:00:00:00:00:02 dev va"));
    station_open(&here, NULL);
    qp = station_qp(&here, IBV_QPT_UC);
    station_connect(&here, qp, &nobody, away);
    narrow_lanes();
    CHECK(thread_rests());
    for (int i = 0; i < WRITES; ++i)
        station_post(&here, qp, IBV_WR_RDMA_WRITE, LENGTH, &nobody);
    last = vb_cq_taken(here.cq) + WRITES - 1;
    for (int i = 0; i < 500 && !vb_cq_has_entry_at(here.cq, last); ++i) /* nobody polls */
        usleep(10000);
    CHECK(vb_cq_has_entry_at(here.cq, last));
    for (int i = 0; i < WRITES; ++i)
        expect(station_wait(here.cq, 5), IBV_WC_RDMA_WRITE);
    CHECK(vb_roce_udp_counter(vb_roce_udp(here.host->roce), VB_UDP_POSTPONED) > 0);
    station_close(&here);
    CHECK(network_run("tc qdisc del dev va root"));
}

/* A peer on this host goes direct unless packets are asked for. */
static void test_ways(void)
{
    struct vb_host_config config = {.packets_only = false};

    station_open(&here, &config);
    for (int i = 0; i < 2; ++i) {
        pair[i] = station_qp(&here, IBV_QPT_RC);
        cards[i] = station_card(&here, pair[i]);
    }
    for (int i = 0; i < 2; ++i)
        station_connect(&here, pair[i], &cards[1 - i], home);
    CHECK(!pair[0]->endpoint);
    fill(5000);
    station_post(&here, pair[0], IBV_WR_RDMA_WRITE, 5000, &cards[1]);
    expect(station_wait(here.cq, 5), IBV_WC_RDMA_WRITE);
    CHECK(has_arrived(5000));
    CHECK_EQ(vb_roce_udp_counter(vb_roce_udp(here.host->roce), VB_UDP_SENT), 0);
    station_close(&here);
}

static int move_to(struct vb_qp *qp, struct station_route route)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .ah_attr = station_address(&here, route)};

    CHECK_EQ(vb_qp_modify(qp, &attr, IBV_QP_STATE), 0);
    return vb_qp_modify(qp, &attr, IBV_QP_STATE | IBV_QP_AV);
}

static void back_to_rts(struct vb_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};

    CHECK_EQ(vb_qp_modify(qp, &attr, IBV_QP_STATE), 0);
}

/* In SQD a connection moves to other addresses, if there is a way; else it stays where it was. */
static void test_move(void)
{
    const struct station_route other = {.from = "10.3.0.1", .to = "10.3.0.1"};
    const struct station_route nowhere = {.from = "10.3.0.1", .to = "fd00::1"};
    struct ibv_qp_attr attr;
    struct ibv_wc wc;

    open_pair(IBV_QPT_RC, home);
    CHECK_EQ(move_to(pair[0], nowhere), -EAFNOSUPPORT);
    CHECK_EQ(vb_qp_query(pair[0], &attr, 0, NULL), 0);
    CHECK_EQ(attr.ah_attr.grh.dgid.raw[12], 127);
    back_to_rts(pair[0]);
    fill(5000);
    station_post(&here, pair[0], IBV_WR_RDMA_WRITE, 5000, &cards[1]);
    expect(station_wait(here.cq, 5), IBV_WC_RDMA_WRITE);
    CHECK_EQ(move_to(pair[0], other), 0);
    back_to_rts(pair[0]);
    station_post(&here, pair[0], IBV_WR_RDMA_WRITE, 5000, &cards[1]);
    for (uint64_t end = vb_roce_now() + 5000000000; counted().drop_source == 0;) {
        CHECK_EQ(vb_cq_poll(here.cq, 1, &wc), 0); /* the other end is still at home */
        CHECK(vb_roce_now() < end);
    }
    CHECK_EQ(move_to(pair[1], other), 0);
    back_to_rts(pair[1]);
    expect(station_wait(here.cq, 5), IBV_WC_RDMA_WRITE);
    CHECK(has_arrived(5000));
    station_close(&here);
}

int main(void)
{
    network_enter();
    CHECK(network_run("ip addr add fd00::1/64 dev lo nodad && "
                      "ip link add va type veth peer name vb && ip link set vb up && "
                      "ip link set va up && ip addr add 10.3.0.1/24 dev va"));
    network_await("fd00::1", NULL);
    setlinebuf(stdout);
    RUN(test_requests);
    RUN(test_unreliable);
    RUN(test_datagrams);
    RUN(test_sleeper);
#ifndef VERBENA_SANITIZE_THREADS /* they count wake-ups and milliseconds */
    RUN(test_idle);
    RUN(test_polling_program);
#else
    (void)test_idle;
    (void)test_polling_program;
#endif
    RUN(test_counters);
    RUN(test_a_log);
    RUN(test_passive_target);
    RUN(test_memory_that_is_gone);
    RUN(test_takeover);
    RUN(test_killed_peer);
    RUN(test_refusals);
    RUN(test_events);
    sem_init(&stands, 0, 0);
    RUN(test_a_last_look);
    RUN(test_an_answer_before_a_late_timer);
    RUN(test_slow_link);
    RUN(test_ways);
    RUN(test_move);
    return 0;
}
