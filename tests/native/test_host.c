// SPDX-License-Identifier: Apache-2.0
/*
 * The host's device as a whole: why it has no packets, what it counts under which names, whom it
 * tells that something goes directly, and what is left of one that could not be opened.
 */
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "host/device_counters.h"
#include "host/host.h"
#include "loopback.h"
#include "network.h"
#include "roce/state.h"
#include "starved.h"
#include "station.h"
#include "wrap/capture.h"

enum { JSON = 1 << 16 };

static char json[JSON];

/* Packets of another process may come between two descriptions, and are counted in the second. */
static void describe(const struct vb_host_config *config)
{
    struct vb_host *host;
    int length, again, tries = 0;

    CHECK_EQ(vb_host_open(config, &host), 0);
    do {
        length = vb_host_describe(host, json, sizeof(json));
        CHECK_EQ(length, strlen(json));
        CHECK(json[0] == '{' && json[length - 1] == '}');
        again = vb_host_describe(host, NULL, 0);
    } while (again > length && ++tries < 20);
    CHECK_EQ(again, length);
    vb_host_close(host);
}

static void expect_reason(const char *reason)
{
    char member[512];

    snprintf(member, sizeof(member), "\"roce\":{\"reason\":\"%s\"}", reason);
    CHECK(strstr(json, member));
}

static int take_port(void)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(VB_ROCE_PORT)};
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    CHECK_EQ(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void the_description_says_why_there_are_no_packets(void)
{
    struct vb_port_settings ports = {
        .count = 2,
        .port = {{.infiniband = true, .lid = 1, .pkeys = {0xffff}}, {.pkeys = {0xffff}}}};
    struct vb_host_config direct = {.direct_only = true}, broken = {.roce = {.fault = "x"}};
    struct vb_host *host;
    int fd;

    describe(&direct);
    expect_reason("VERBENA_CARRIER=direct asks for it");
    direct.ports = &ports; /* one of which could send packets */
    describe(&direct);
    expect_reason("VERBENA_CARRIER=direct asks for it");
    ports.count = 1;
    describe(&direct);
    expect_reason("an InfiniBand port has none (VERBENA_LINK_LAYER, VERBENA_PORTS)");
    fd = take_port();
    describe(&(struct vb_host_config){0});
    expect_reason(VB_ROCE_PORT_IS_TAKEN);
    CHECK_EQ(vb_host_open(&(struct vb_host_config){.packets_only = true}, &host), -EADDRINUSE);
    close(fd);
    describe(&broken);
    expect_reason(strerror(EINVAL));
    broken.packets_only = true;
    CHECK_EQ(vb_host_open(&broken, &host), -EINVAL);
}

static void the_description_says_who_is_reached_by_packets(void)
{
    describe(&(struct vb_host_config){0});
    CHECK(strstr(json, "\"roce\":{\"udp_port\":4791,\"local_peers\":false,\"counters\":{"));
    describe(&(struct vb_host_config){.packets_only = true});
    CHECK(strstr(json, "\"roce\":{\"udp_port\":4791,\"local_peers\":true,\"counters\":{"));
}

/* ---- counters ---------------------------------------------------------------------------------
 */

/* Whether all that are told one by one are in `json`, and how many there are. */
static unsigned told;
static bool all_found;

static void look_for_told(const char *part, const char *name, uint64_t value)
{
    char member[128];
    const char *at;

    CHECK(value);
    ++told;
    snprintf(member, sizeof(member), "\"%s\":{", part);
    at = strstr(json, member);
    snprintf(member, sizeof(member), "\"%s\":%llu", name, (unsigned long long)value);
    at = at ? strstr(at, member) : NULL;
    all_found &= at && (at[strlen(member)] == ',' || at[strlen(member)] == '}');
}

static unsigned counters_above_0(void)
{
    unsigned count = 0;

    for (const char *at = json; *at; ++at)
        count += *at == ':' && at[1] >= '1' && at[1] <= '9';
    return count;
}

/*
 * The length of the counters in `json`, which are those that are told one by one. Threads of the
 * host may count between the two, so both are looked at until they agree.
 */
static int told_as_written(struct vb_host *host)
{
    int length;

    for (int tries = 0;; ++tries) {
        length = vb_host_counters(host, json, sizeof(json));
        CHECK_EQ(length, strlen(json));
        told = 0;
        all_found = true;
        vb_host_tell_counters(host, look_for_told);
        if (all_found && told == counters_above_0())
            return length;
        CHECK(tries < 100);
    }
}

static void carry_out(struct station *station, struct vb_qp *qp, enum ibv_wr_opcode opcode,
                      uint32_t length, const struct station_card *peer)
{
    station_post(station, qp, opcode, length, peer);
    CHECK_EQ(station_wait(station->cq, 5).status, IBV_WC_SUCCESS);
}

/* Two queue pairs of one device. */
static void open_pair(struct station *station, const struct vb_host_config *config,
                      struct vb_qp *pair[2], struct station_card cards[2])
{
    station_open(station, config);
    for (int i = 0; i < 2; ++i) {
        pair[i] = station_qp(station, IBV_QPT_RC);
        cards[i] = station_card(station, pair[i]);
    }
    for (int i = 0; i < 2; ++i)
        station_connect(station, pair[i], &cards[1 - i], (struct station_route){0});
}

static void counters_are_told_at_once_and_one_by_one(void)
{
    static const char *const carriers[] = {"\"direct\":{\"sends\":0,\"writes\":1,",
                                           "\"direct\":{\"sends\":0,\"writes\":0,"};
    struct station station;
    struct station_card cards[2];
    struct vb_qp *pair[2];

    for (int packets_only = 0; packets_only < 2; ++packets_only) {
        struct vb_host_config config = {.packets_only = packets_only};
        int length;

        open_pair(&station, &config, pair, cards);
        carry_out(&station, pair[0], IBV_WR_RDMA_WRITE, 5000, &cards[1]);
        length = told_as_written(station.host);
        CHECK(strncmp(json, "{", 1) == 0 && strstr(json, carriers[packets_only]) == json + 1);
        CHECK(strcmp(json + length - 2, "}}") == 0);
        CHECK_EQ(strstr(json, "\"packets_sent\":0,") == NULL, packets_only);
        station_close(&station);
    }
}

/* The files of sysfs that are not 0 after what was done; all others are. */
struct file {
    const char *name;
    uint64_t value;
};

static void expect_files(const struct file *files, size_t count)
{
    char name[VB_DEVICE_COUNTER_NAME], other[VB_DEVICE_COUNTER_NAME];
    size_t n, found = 0;

    for (n = 0; vb_host_device_counter_name(n, name); ++n) {
        uint64_t value = 0;

        for (size_t i = 0; i < count; ++i)
            if (strcmp(files[i].name, name) == 0) {
                value = files[i].value;
                ++found;
            }
        CHECK_EQ(vb_host_device_counter(0, n), value);
        CHECK_EQ(vb_host_device_counter(1, n), 0); /* which nobody has open */
        for (size_t i = 0; i < n; ++i)
            CHECK(vb_host_device_counter_name(i, other) && strcmp(name, other) != 0);
    }
    CHECK_EQ(found, count);
    CHECK(!vb_host_device_counter_name(n + 1, name));
    CHECK_EQ(vb_host_device_counter(0, n), 0);
}

static void what_goes_directly_counts_as_the_packets_it_would_be(void)
{
    static const struct file files[] = {
        /* a SEND, 2 WRITEs, and 1 READ and 3 atomics, which have responses */
        {"counters/port_xmit_packets", 3 + 2 * 4},
        {"counters/port_rcv_packets", 3 + 2 * 4},
        {"counters/unicast_xmit_packets", 3 + 2 * 4},
        {"counters/unicast_rcv_packets", 3 + 2 * 4},
        {"counters/port_xmit_data", (120 + 2 * 4000 + 400) / 4},
        {"counters/port_rcv_data", (120 + 2 * 4000 + 400) / 4},
        {"hw_counters/rdma_sends", 1},
        {"hw_counters/rdma_recvs", 1},
        {"hw_counters/direct_sends", 1},
        {"hw_counters/direct_writes", 2},
        {"hw_counters/direct_reads", 1},
        {"hw_counters/direct_atomics", 3},
        {"hw_counters/direct_payload_sent", 8120},
        {"hw_counters/direct_payload_read", 400},
    };
    const struct vb_host_config config = {0};
    struct station station;
    struct station_card cards[2];
    struct vb_qp *pair[2];

    open_pair(&station, &config, pair, cards);
    expect_files(NULL, 0);
    station_post_recv(&station, pair[1], 8192, 120);
    carry_out(&station, pair[0], IBV_WR_SEND, 120, &cards[1]);
    CHECK_EQ(station_wait(station.cq, 5).status, IBV_WC_SUCCESS); /* the other end's */
    for (int i = 0; i < 2; ++i)
        carry_out(&station, pair[0], IBV_WR_RDMA_WRITE, 4000, &cards[1]);
    carry_out(&station, pair[1], IBV_WR_RDMA_READ, 400, &cards[0]);
    for (int i = 0; i < 3; ++i)
        carry_out(&station, pair[0], IBV_WR_ATOMIC_FETCH_AND_ADD, 8, &cards[1]);
    expect_files(files, sizeof(files) / sizeof(*files));
    station_close(&station);
}

static void packets_count_as_what_they_are(void)
{
    static const struct file files[] = {
        /* a WRITE of 3 packets, and its acknowledgement */
        {"counters/port_xmit_packets", 4},
        {"counters/port_rcv_packets", 4},
        {"counters/unicast_xmit_packets", 4},
        {"counters/unicast_rcv_packets", 4},
        {"counters/port_xmit_data", 3000 / 4},
        {"counters/port_rcv_data", 3000 / 4},
        {"hw_counters/sent_pkts", 4},
        {"hw_counters/rcvd_pkts", 4},
        {"hw_counters/engine_packets_sent", 4},
        {"hw_counters/engine_packets_received", 4},
        {"hw_counters/engine_payload_sent", 3000},
        {"hw_counters/engine_payload_received", 3000},
        {"hw_counters/engine_acks_sent", 1},
        {"hw_counters/engine_acks_received", 1},
    };
    struct station station;
    struct station_card cards[2];
    struct vb_qp *pair[2];

    open_pair(&station, NULL, pair, cards);
    carry_out(&station, pair[0], IBV_WR_RDMA_WRITE, 3000, &cards[1]);
    expect_files(files, sizeof(files) / sizeof(*files));
    station_close(&station);
}

/* ---- who is told ------------------------------------------------------------------------------
 */

static int first_called, second_called;

static void first_listener(void)
{
    ++first_called;
}

static void second_listener(void)
{
    ++second_called;
}

static void each_listener_is_told_once_of_what_goes_directly(void)
{
    struct vb_host_config config = {.went_direct = first_listener};
    struct station station;
    struct station_card cards[2];
    struct vb_qp *pair[2];

    station_open(&station, &config);
    CHECK_EQ(first_called, 0);
    vb_host_tell_direct(station.host, first_listener);
    CHECK_EQ(first_called, 0);
    station_close(&station);
    open_pair(&station, &config, pair, cards);
    CHECK_EQ(first_called, 1);
    vb_host_tell_direct(station.host, first_listener);
    CHECK_EQ(first_called, 1);
    vb_host_tell_direct(station.host, second_listener); /* something goes directly already */
    CHECK_EQ(second_called, 1);
    vb_host_tell_direct(station.host, NULL);
    carry_out(&station, pair[0], IBV_WR_RDMA_WRITE, 100, &cards[1]);
    CHECK(first_called == 1 && second_called == 1);
    station_close(&station);
    config.packets_only = true;
    open_pair(&station, &config, pair, cards);
    carry_out(&station, pair[0], IBV_WR_RDMA_WRITE, 100, &cards[1]);
    CHECK(first_called == 1 && second_called == 1);
    station_close(&station);
}

/* ---- the end of a connection ------------------------------------------------------------------
 */

/* Nobody changes the queue pair's state: its error alone flushes what was posted to receive. */
static void the_receives_of_a_failed_connection_are_flushed(void)
{
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    struct station station;
    struct station_card cards[2];
    struct vb_qp *pair[2];

    for (int packets_only = 0; packets_only < 2; ++packets_only) {
        const struct vb_host_config config = {.packets_only = packets_only};

        station_open(&station, &config);
        for (int i = 0; i < 2; ++i) {
            pair[i] = station_qp(&station, IBV_QPT_RC);
            cards[i] = station_card(&station, pair[i]);
        }
        for (int i = 0; i < 2; ++i)
            station_connect(&station, pair[i], &cards[1 - i], (struct station_route){.timeout = 8});
        CHECK_EQ(vb_qp_modify(pair[1], &reset, IBV_QP_STATE), 0);
        station_post_recv(&station, pair[0], 0, 64);
        station_post_recv(&station, pair[0], 64, 64);
        station_post(&station, pair[0], IBV_WR_RDMA_WRITE, 100, &cards[1]);
        CHECK_EQ(station_wait(station.cq, 10).status, IBV_WC_RETRY_EXC_ERR);
        for (int i = 0; i < 2; ++i)
            CHECK_EQ(station_wait(station.cq, 10).status, IBV_WC_WR_FLUSH_ERR);
        station_close(&station);
    }
}

static bool is_quiet(struct vb_qp *qp)
{
    return vb_qp_carrier(qp)->quiet(qp);
}

static _Atomic int stage; /* 1: the port's lock is held; 2: it is about to be released */

static void *hold_the_port(void *argument)
{
    struct vb_roce *roce = argument;

    vb_roce_enter(roce);
    stage = 1;
    usleep(50000);
    stage = 2;
    vb_roce_leave(roce);
    return NULL;
}

/* What goes by packets is quiet when no thread works in the port; who settles waits for that. */
static void check_packets_wait_for_the_port(struct vb_qp *qp, struct vb_roce *roce)
{
    pthread_t thread;

    stage = 0;
    CHECK_EQ(pthread_create(&thread, NULL, hold_the_port, roce), 0);
    while (!stage)
        usleep(100);
    CHECK(!is_quiet(qp));
    vb_qp_carrier(qp)->settle(qp);
    CHECK_EQ(stage, 2);
    pthread_join(thread, NULL);
}

static void a_carrier_is_quiet_while_nobody_works_in_it(void)
{
    static const struct vb_host_config configs[] = {
        {0}, {.packets_only = true}, {.direct_only = true}};
    struct station station;
    struct station_card cards[2];
    struct vb_qp *pair[2], *datagrams;

    for (size_t i = 0; i < sizeof(configs) / sizeof(*configs); ++i) {
        open_pair(&station, &configs[i], pair, cards);
        datagrams = station_qp(&station, IBV_QPT_UD);
        station_connect(&station, datagrams, NULL, (struct station_route){0});
        for (int tries = 0; !is_quiet(pair[0]) || !is_quiet(datagrams); ++tries) {
            CHECK(tries < 1000); /* the port's thread takes short turns */
            usleep(10000);
        }
        if (station.host->roce)
            check_packets_wait_for_the_port(datagrams, station.host->roce);
        if (configs[i].packets_only)
            check_packets_wait_for_the_port(pair[0], station.host->roce);
        station_close(&station);
    }
}

/* Who arms a CQ may sleep: it counts as one that does not poll, and the thread receives. */
static void who_arms_a_queue_leaves_packets_to_the_thread(void)
{
    struct vb_host_config config = {.packets_only = true};
    struct vb_roce_polling *polling;
    struct station station;
    struct station_card cards[2];
    struct vb_qp *pair[2];
    struct ibv_wc wc;

    open_pair(&station, &config, pair, cards);
    polling = &station.host->roce->polling;
    for (int polls = 0; polls < 100; ++polls)
        CHECK_EQ(vb_cq_poll(station.cq, 1, &wc), 0);
    CHECK(polling->polls - polling->armed_at >= 100);
    atomic_store(&polling->unwatched, true);
    vb_cq_arm(station.cq, false);
    CHECK_EQ(polling->armed_at, polling->polls);
    CHECK(!atomic_load(&polling->unwatched));
    station_close(&station);
    config = (struct vb_host_config){.direct_only = true}; /* there is none */
    open_pair(&station, &config, pair, cards);
    vb_cq_arm(station.cq, false);
    station_close(&station);
}

/* ---- without memory ---------------------------------------------------------------------------
 */

static int next_descriptor(void)
{
    int fd = dup(STDERR_FILENO);

    close(fd);
    return fd;
}

/* Each allocation fails once: nothing is left of a device that could not be opened. */
static void open_starved(struct vb_host_config *config)
{
    long before = starved_blocks();
    int next = next_descriptor();

    for (int allocation = 0;; ++allocation) {
        struct vb_host *host = NULL;
        int error;

        starved_after(allocation);
        error = vb_host_open(config, &host);
        if (!starved_end()) {
            CHECK_EQ(error, 0);
            vb_host_close(host);
            CHECK(allocation > 3);
            break;
        }
        CHECK(error == -ENOMEM || (!config->direct_only && !error));
        if (!error) {
            CHECK_EQ(host->roce_error, -ENOMEM);
            vb_host_close(host);
        }
        CHECK_EQ(starved_blocks(), before);
        CHECK_EQ(next_descriptor(), next);
    }
    CHECK_EQ(starved_blocks(), before);
    CHECK_EQ(next_descriptor(), next);
}

static void nothing_is_left_of_a_device_without_memory(void)
{
    char name[] = "/tmp/verbena-host-XXXXXX";
    struct vb_capture_config capture = {.path = name};

    close(mkstemp(name));
    unlink(name);
    open_starved(&(struct vb_host_config){.direct_only = true});
    open_starved(&(struct vb_host_config){.direct_only = true, .capture_direct = &capture});
    open_starved(&(struct vb_host_config){0});
    unlink(name);
}

int main(void)
{
    network_enter();
    alarm(120);
    RUN(the_description_says_why_there_are_no_packets);
    RUN(the_description_says_who_is_reached_by_packets);
    RUN(counters_are_told_at_once_and_one_by_one);
    RUN(what_goes_directly_counts_as_the_packets_it_would_be);
    RUN(packets_count_as_what_they_are);
    RUN(each_listener_is_told_once_of_what_goes_directly);
    RUN(the_receives_of_a_failed_connection_are_flushed);
    RUN(a_carrier_is_quiet_while_nobody_works_in_it);
    RUN(who_arms_a_queue_leaves_packets_to_the_thread);
    RUN(nothing_is_left_of_a_device_without_memory);
    return 0;
}
