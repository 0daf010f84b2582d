// SPDX-License-Identifier: Apache-2.0
/* Packets as datagrams: what is staged arrives, byte for byte, with and without the offloads. */
#include <arpa/inet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "memory/guard.h"
#include "network.h"
#include "port/address.h"
#include "roce/udp.h"
#include "roce/udp_state.h"

enum { QP = 0x123456, SENDER = 0x654321, PATIENCE_MS = 10000 };

static struct vb_udp *udp;
static uint8_t payload[1 << 20];
static struct {
    uint32_t qp_num, psn, count;
} fault;

static void take_fault(void *argument, uint32_t qp_num, uint32_t psn)
{
    (void)argument;
    fault.qp_num = qp_num;
    fault.psn = psn;
    ++fault.count;
}

static uint32_t outgoing; /* of link-local and multicast packets */

static uint32_t interface_of(void *argument, const struct vb_path *path)
{
    (void)argument, (void)path;
    return outgoing;
}

static void open_without(unsigned without)
{
    struct vb_udp_config config = {
        .without = without, .loop = true, .fault = take_fault, .interface = interface_of};

    CHECK_EQ(vb_roce_udp_open(&config, &udp), 0);
}

static struct vb_path path_to(const char *from, const char *to)
{
    struct vb_path path = {.mtu = 4096, .traffic_class = 0x6a, .hop_limit = 33};

    network_gid(from, path.sgid);
    network_gid(to, path.dgid);
    path.source_port = vb_roce_udp_source_port(udp, 0xc0de);
    return path;
}

static struct vb_packet packet_on(const struct vb_path *path, uint32_t psn, uint8_t *from,
                                  uint32_t length)
{
    struct vb_packet packet = {.path = path,
                               .qp_num = SENDER,
                               .header_length = VB_BTH,
                               .pad = -length & 3,
                               .payload_length = length,
                               .piece_count = length ? 1 : 0,
                               .piece = {{from, length}}};
    struct vb_bth bth = {
        .opcode = 4, .pad = packet.pad, .pkey = 0xffff, .dest_qp = QP, .psn = psn, .fecn = true};

    vb_wire_bth_write(packet.header, &bth);
    return packet;
}

static bool wait_readable(int ms)
{
    struct pollfd readable = {.fd = vb_roce_udp_fd(udp), .events = POLLIN};

    return poll(&readable, 1, ms) == 1;
}

/* The next arrival, however busy the machine is. */
static bool arrives(struct vb_arrival *arrival)
{
    while (!vb_roce_udp_next(udp, arrival)) {
        if (!wait_readable(PATIENCE_MS))
            return false;
        vb_roce_udp_receive(udp);
    }
    return true;
}

static void expect(uint32_t psn, const uint8_t *bytes, uint32_t length)
{
    struct vb_arrival arrival;
    struct vb_bth bth;

    CHECK(arrives(&arrival));
    bth = vb_wire_bth_read(arrival.bytes);
    CHECK_EQ(bth.dest_qp, QP);
    CHECK_EQ(bth.psn, psn);
    CHECK_EQ(arrival.length, VB_BTH + length + (-length & 3));
    CHECK(memcmp(arrival.bytes + VB_BTH, bytes, length) == 0);
}

static void expect_nothing(void)
{
    struct vb_arrival arrival;

    usleep(1000);
    vb_roce_udp_receive(udp);
    CHECK(!vb_roce_udp_next(udp, &arrival));
}

static void stage(const struct vb_packet *packet)
{
    if (!vb_roce_udp_has_room(udp))
        CHECK_EQ(vb_roce_udp_flush(udp), 0);
    CHECK(vb_roce_udp_has_room(udp));
    vb_roce_udp_stage(udp, packet);
}

static void fields_arrive(const char *address, uint32_t flow_label)
{
    struct vb_path path = path_to(address, address);
    struct vb_packet packet;
    struct vb_arrival arrival;

    path.flow_label = flow_label;
    packet = packet_on(&path, 7, payload + 3, 21);
    stage(&packet);
    CHECK_EQ(vb_roce_udp_flush(udp), 0);
    CHECK(arrives(&arrival));
    CHECK(memcmp(arrival.sgid, path.sgid, 16) == 0);
    CHECK(memcmp(arrival.dgid, path.dgid, 16) == 0);
    CHECK_EQ(arrival.traffic_class, 0x6a);
    CHECK_EQ(arrival.hop_limit, 33);
    CHECK_EQ(arrival.flow_label, flow_label);
    CHECK_EQ(arrival.length, VB_BTH + 24);
    CHECK(memcmp(arrival.bytes + VB_BTH, payload + 3, 21) == 0);
}

/* Packets that are staged until there is no more room; with `apart` each has another source port.
 */
static int staged_at_most(uint32_t length, bool apart)
{
    struct vb_path path = path_to("10.1.0.1", "10.1.0.1");
    int count = 0;

    for (; vb_roce_udp_has_room(udp) && count < 1000; ++count) {
        struct vb_packet packet = packet_on(&path, (uint32_t)count, payload, length);

        vb_roce_udp_stage(udp, &packet);
        path.source_port ^= apart;
    }
    CHECK_EQ(vb_roce_udp_flush(udp), 0);
    CHECK(vb_roce_udp_has_room(udp));
    for (int i = 0; i < count; ++i)
        expect((uint32_t)i, payload, length);
    return count;
}

static void test_room(void)
{
    open_without(0);
    CHECK_EQ(staged_at_most(8, false), 256);
    CHECK_EQ(staged_at_most(8, true), 128);
    CHECK_EQ(staged_at_most(4096, false), ((120 << 10) + 4111) / 4112);
    vb_roce_udp_close(udp);
}

static void test_fields(void)
{
    open_without(0);
    fields_arrive("127.0.0.5", 0);
    fields_arrive("10.1.0.1", 0);
    fields_arrive("fd00::1", 0x54321);
    vb_roce_udp_close(udp);
}

/* Where there is no IPv6 at all. */
static void test_ipv4_alone(void)
{
    struct vb_path path;
    struct vb_packet packet;

    open_without(VB_UDP_WITHOUT_IPV6);
    fields_arrive("10.1.0.1", 0);
    path = path_to("fd00::1", "fd00::1");
    packet = packet_on(&path, 1, payload, 4);
    stage(&packet);
    CHECK_EQ(vb_roce_udp_flush(udp), 0);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_DROP_ADDRESS), 1);
    expect_nothing();
    vb_roce_udp_close(udp);
}

/* Of every length, so that trains begin and end everywhere; two pieces each. */
static void many_arrive(const char *address)
{
    struct vb_path path = path_to(address, address);
    static const uint32_t lengths[] = {4096, 4096, 4096, 100, 100, 1, 0, 4096, 4096, 77};
    enum { LENGTHS = sizeof(lengths) / sizeof(*lengths), ROUNDS = 20 };

    for (uint32_t i = 0; i < ROUNDS * LENGTHS; ++i) {
        struct vb_packet packet = packet_on(&path, i, payload + i, lengths[i % LENGTHS]);

        if (packet.payload_length > 50) {
            packet.piece[0].length = 50;
            packet.piece[1] = (struct vb_piece){NULL, 0};
            packet.piece[2] = (struct vb_piece){payload + i + 50, packet.payload_length - 50};
            packet.piece_count = 3;
        }
        stage(&packet);
    }
    CHECK_EQ(vb_roce_udp_flush(udp), 0);
    for (uint32_t i = 0; i < ROUNDS * LENGTHS; ++i)
        expect(i, payload + i, lengths[i % LENGTHS]);
    expect_nothing();
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_BAD_ICRC), 0);
}

static void test_batches(void)
{
    for (unsigned without = 0; without < 8; ++without) {
        uint64_t calls;

        open_without(without);
        many_arrive("10.1.0.1");
        many_arrive("fd00::1");
        calls = vb_roce_udp_counter(udp, VB_UDP_SENT_CALLS);
        CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_SENT), 400);
        if (without == 0)
            CHECK(calls < 100);
        if (without == (VB_UDP_WITHOUT_GSO | VB_UDP_WITHOUT_MMSG))
            CHECK_EQ(calls, 400);
        vb_roce_udp_close(udp);
    }
}

/* What a receiver on the wire sees of a flow: a lane's port, and always the same one. */
static void test_source_ports(void)
{
    uint16_t first, other;

    open_without(0);
    first = vb_roce_udp_source_port(udp, 0xc123);
    other = vb_roce_udp_source_port(udp, 0xc124);
    CHECK_EQ(first, 0xc123);
    CHECK(other != first);
    CHECK_EQ(vb_roce_udp_source_port(udp, 0xc123), first);
    /* Another flow in the same lane leaves from its port. */
    CHECK_EQ(vb_roce_udp_source_port(udp, 0xc133), first);
    vb_roce_udp_close(udp);
}

static int take_port(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    CHECK_EQ(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void test_taken_source_port(void)
{
    int fd = take_port(0xc123);
    uint16_t port;

    open_without(0);
    port = vb_roce_udp_source_port(udp, 0xc123);
    CHECK(port != 0xc123 && port >= 0xc000 && port % VB_UDP_SOURCES == 3);
    fields_arrive("10.1.0.1", 0);
    vb_roce_udp_close(udp);
    close(fd);
}

/* A path whose port is no lane's goes from 4791, with the ICRC of that. */
static void test_without_lanes(void)
{
    struct vb_path path;
    struct vb_packet packet;

    open_without(0);
    path = path_to("10.1.0.1", "10.1.0.1");
    path.source_port = VB_ROCE_PORT;
    packet = packet_on(&path, 5, payload, 64);
    stage(&packet);
    CHECK_EQ(vb_roce_udp_flush(udp), 0);
    expect(5, payload, 64);
    vb_roce_udp_close(udp);
}

static void try_to_send(const char *from, const char *to, uint32_t length, unsigned packets)
{
    struct vb_path path = path_to(from, to);

    for (unsigned i = 0; i < packets; ++i) {
        struct vb_packet packet = packet_on(&path, i, payload, length);

        stage(&packet);
    }
    CHECK_EQ(vb_roce_udp_flush(udp), 0);
}

/* A packet that cannot be sent is counted by name, and what comes after it is sent. */
static void test_drops(void)
{
    open_without(0);
    try_to_send("10.1.0.1", "192.0.2.1", 8, 1);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_DROP_NO_ROUTE), 1);
    try_to_send("10.99.0.1", "10.1.0.1", 8, 1);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_DROP_NO_ROUTE), 2);
    try_to_send("10.99.0.1", "10.1.0.1", 8, 5);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_DROP_NO_ROUTE), 7);
    try_to_send("fd00::1", "10.1.0.1", 8, 1);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_DROP_ADDRESS), 1);
    CHECK(network_run("ip link set lo mtu 1500"));
    try_to_send("10.1.0.1", "10.1.0.1", 4096, 3);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_DROP_TOO_LONG), 3);
    try_to_send("10.1.0.1", "10.1.0.1", 1024, 3);
    CHECK(network_run("ip link set lo mtu 65536"));
    for (uint32_t i = 0; i < 3; ++i)
        expect(i, payload, 1024);
    expect_nothing();
    /* None of that was the fault of batches. */
    CHECK(!vb_roce_udp_lacks(udp, VB_UDP_WITHOUT_GSO));
    many_arrive("10.1.0.1");
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_DROP_NO_ROUTE), 7);
    vb_roce_udp_close(udp);
}

static void expect_counters(uint64_t calls, uint64_t sent, uint64_t split)
{
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_SENT_CALLS), calls);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_SENT), sent);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_SPLIT), split);
}

/* Packets of these lengths leave from the path's port. */
static void send_lengths(const struct vb_path *path, const uint32_t *lengths, uint32_t count)
{
    for (uint32_t i = 0; i < count; ++i) {
        struct vb_packet packet = packet_on(path, i, payload + i, lengths[i]);

        stage(&packet);
    }
    CHECK_EQ(vb_roce_udp_flush(udp), 0);
    for (uint32_t i = 0; i < count; ++i)
        expect(i, payload + i, lengths[i]);
    expect_nothing();
}

/*
 * Linux refuses batches of a socket that sends no checksums, as older kernels refuse them on an
 * interface that computes none. The packets are then sent one by one, and no batch is made again.
 */
static void refused_batches(const char *address)
{
    static const uint32_t lengths[] = {64, 64, 64, 64, 8};
    struct vb_path path;

    open_without(0);
    path = path_to(address, address);
    send_lengths(&path, lengths, 5);
    expect_counters(1, 5, 0);
    CHECK_EQ(setsockopt(vb_roce_udp_sender(udp, path.source_port).fd, SOL_SOCKET, SO_NO_CHECK,
                        &(int){1}, sizeof(int)),
             0);
    send_lengths(&path, lengths, 1);
    expect_counters(2, 6, 0);
    CHECK(!vb_roce_udp_lacks(udp, VB_UDP_WITHOUT_GSO));
    send_lengths(&path, lengths, 5);
    expect_counters(2 + 6, 11, 1);
    CHECK(vb_roce_udp_lacks(udp, VB_UDP_WITHOUT_GSO));
    send_lengths(&path, lengths, 5);
    expect_counters(8 + 1, 16, 1); /* in one sendmmsg */
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_DROP_NO_ROUTE), 0);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_BAD_ICRC), 0);
    vb_roce_udp_close(udp);
}

static void test_refused_batches(void)
{
    refused_batches("10.1.0.1");
}

/* Memory that is gone fails its own packet alone. */
static void test_fault(void)
{
    const uint32_t length = 1024;
    uint8_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct vb_path path;

    memset(&fault, 0, sizeof(fault));
    vb_memory_guard_start();
    open_without(0);
    path = path_to("10.1.0.1", "10.1.0.1");
    munmap(page, 4096);
    for (uint32_t i = 0; i < 5; ++i) {
        struct vb_packet packet = packet_on(&path, i, i == 2 ? page : payload + i, length);

        stage(&packet);
    }
    CHECK_EQ(vb_roce_udp_flush(udp), 0);
    CHECK_EQ(fault.count, 1);
    CHECK_EQ(fault.qp_num, SENDER);
    CHECK_EQ(fault.psn, 2);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_DROP_FAULT), 1);
    for (uint32_t i = 0; i < 5; ++i)
        if (i != 2)
            expect(i, payload + i, length);
    expect_nothing();
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_BAD_ICRC), 0);
    vb_roce_udp_close(udp);
    vb_memory_guard_stop();
}

/* What is staged no longer depends on the program's memory. */
static void test_copy(void)
{
    uint8_t bytes[256], before[256];
    struct vb_path path;
    struct vb_packet packet;

    memset(bytes, 0x5a, sizeof(bytes));
    memcpy(before, bytes, sizeof(before));
    open_without(0);
    path = path_to("10.1.0.1", "10.1.0.1");
    packet = packet_on(&path, 1, bytes, sizeof(bytes));
    stage(&packet);
    memset(bytes, 0xa5, sizeof(bytes));
    CHECK_EQ(vb_roce_udp_flush(udp), 0);
    expect(1, before, sizeof(before));
    vb_roce_udp_close(udp);
}

static void test_alone(void)
{
    struct vb_path path;
    struct vb_packet packet;

    open_without(0);
    path = path_to("fd00::1", "fd00::1");
    packet = packet_on(&path, 9, payload, 333);
    CHECK_EQ(vb_roce_udp_send(udp, &packet), 0);
    expect(9, payload, 333);
    vb_roce_udp_close(udp);
}

/* What is kept of a QP that goes does not leave any more. */
static void test_forget(void)
{
    struct vb_path path;

    open_without(0);
    path = path_to("10.1.0.1", "10.1.0.1");
    for (uint32_t i = 0; i < 6; ++i) {
        struct vb_packet packet = packet_on(&path, i, payload, 64);

        packet.qp_num = i % 2 ? SENDER : SENDER + 1;
        stage(&packet);
    }
    vb_roce_udp_forget(udp, SENDER + 1);
    CHECK_EQ(vb_roce_udp_flush(udp), 0);
    for (uint32_t i = 1; i < 6; i += 2)
        expect(i, payload, 64);
    expect_nothing();
    vb_roce_udp_close(udp);
}

/* What anyone may send to the port. */
static void test_garbage(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(VB_ROCE_PORT)};
    int fd = take_port(40000); /* the ICRC covers it: the same result each time */

    open_without(0);
    inet_pton(AF_INET, "10.1.0.1", &to.sin_addr);
    for (size_t length = 0; length < 70; ++length)
        CHECK_EQ(sendto(fd, payload, length, 0, (struct sockaddr *)&to, sizeof(to)), length);
    expect_nothing();
    for (int i = 0; i < 10; ++i)
        expect_nothing();
    /* Multiples of 4 from 16 on are packets but for their ICRC; an empty datagram is nothing. */
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_BAD_ICRC), 14);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_BAD_LENGTH), 55);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_RECEIVED), 0);
    fields_arrive("10.1.0.1", 0);
    vb_roce_udp_close(udp);
    close(fd);
}

/* Two sockets on the port, as two processes have them: each that joined gets a copy. */
static void multicast(const char *from, const char *to)
{
    struct vb_udp *other, *first;
    struct vb_path path;
    struct vb_packet packet;
    uint8_t group[16];

    network_gid(to, group);
    open_without(0);
    other = udp;
    open_without(0);
    first = udp;
    path = path_to(from, to);
    packet = packet_on(&path, 3, payload, 40);
    CHECK_EQ(vb_roce_udp_send(first, &packet), 0);
    expect_nothing();
    CHECK_EQ(vb_roce_udp_join(first, group, outgoing), 0);
    CHECK_EQ(vb_roce_udp_join(first, group, outgoing), -EADDRINUSE);
    CHECK_EQ(vb_roce_udp_join(other, group, outgoing), 0);
    CHECK_EQ(vb_roce_udp_send(first, &packet), 0);
    expect(3, payload, 40);
    udp = other;
    expect(3, payload, 40);
    CHECK_EQ(vb_roce_udp_leave(other, group, outgoing), 0);
    CHECK_EQ(vb_roce_udp_leave(other, group, outgoing), -EADDRNOTAVAIL);
    CHECK_EQ(vb_roce_udp_send(first, &packet), 0);
    expect_nothing();
    udp = first;
    expect(3, payload, 40);
    vb_roce_udp_close(first);
    vb_roce_udp_close(other);
}

static void test_multicast(void)
{
    CHECK(network_run("ip link add va type veth peer name vb && ip link set vb up && "
                      "ip link set va up && ip addr add 10.5.0.1/24 dev va && "
                      "ip addr add fd05::1/64 dev va nodad"));
    network_await("fd05::1", NULL);
    outgoing = if_nametoindex("va");
    multicast("10.5.0.1", "239.1.2.3");
    multicast("fd05::1", "ff05::1:3");
    outgoing = 0;
}

/* Of fe80::/10, which says nothing of the interface; packets to all others go as routes say. */
static void test_link_local(void)
{
    CHECK(network_run("ip addr add fe80::5/64 dev va nodad && ip addr add febf::5/64 dev va nodad "
                      "&& ip addr add fec0::5/64 dev va nodad"));
    network_await("fe80::5", "va");
    network_await("febf::5", "va");
    network_await("fec0::5", NULL);
    open_without(0);
    outgoing = if_nametoindex("va");
    fields_arrive("fe80::5", 0x12345);
    fields_arrive("febf::5", 0x12345);
    outgoing = 0x7777; /* no interface's */
    fields_arrive("fec0::5", 0x12345);
    fields_arrive("fd05::1", 0x12345);
    fields_arrive("10.5.0.1", 0);
    outgoing = 0;
    vb_roce_udp_close(udp);
}

/* What a capture or a fault says of packets. */
static void test_spoiled(void)
{
    struct vb_path path;
    struct vb_packet packet;
    struct vb_udp_seen sent;

    open_without(0);
    path = path_to("10.1.0.1", "10.1.0.1");
    for (uint32_t i = 0; i < 3; ++i) {
        packet = packet_on(&path, i, payload, 64);
        sent = vb_roce_udp_stage(udp, &packet);
        CHECK_EQ(sent.ip_id, i);
        CHECK_EQ(sent.source_port, path.source_port);
        if (i == 1)
            vb_roce_udp_damage_icrc(udp, 0x80000001);
    }
    CHECK_EQ(vb_roce_udp_flush(udp), 0);
    expect(0, payload, 64);
    expect(2, payload, 64);
    CHECK_EQ(vb_roce_udp_last(udp).ip_id, 2);
    CHECK_EQ(vb_roce_udp_last(udp).source_port, path.source_port);
    expect_nothing();
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_BAD_ICRC), 1);
    vb_roce_udp_close(udp);
}

static bool is_postponed(const struct vb_path *path)
{
    for (uint32_t i = 0; i < 100000; ++i) {
        struct vb_packet packet = packet_on(path, i, payload, 1024);

        if (!vb_roce_udp_has_room(udp) && vb_roce_udp_flush(udp) == -EAGAIN)
            return true;
        vb_roce_udp_stage(udp, &packet);
    }
    return false;
}

static void drain(void)
{
    struct vb_arrival arrival;

    while (wait_readable(1000))
        while (vb_roce_udp_receive(udp))
            while (vb_roce_udp_next(udp, &arrival))
                ;
}

/* A slow link: nothing is lost here, it only waits. */
static void test_postponed(void)
{
    struct vb_path path;
    uint32_t waited = 0;
    uint64_t calls;

    if (!network_run("tc qdisc add dev lo root tbf rate 400mbit burst 100kb limit 100mb")) {
        printf("no slow link here: tc knows no tbf\n");
        return;
    }
    open_without(0);
    path = path_to("10.1.0.1", "10.1.0.1");
    CHECK(is_postponed(&path));
    memset(payload, 0xee, sizeof(payload)); /* the packets have their own copies by now */
    CHECK(vb_roce_udp_counter(udp, VB_UDP_POSTPONED) > 0);
    CHECK(!vb_roce_udp_has_room(udp));
    for (; vb_roce_udp_flush(udp) == -EAGAIN && waited < 5000; ++waited)
        usleep(1000);
    CHECK(waited < 5000);
    CHECK(vb_roce_udp_has_room(udp));
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_DROP_OTHER), 0);
    drain();
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_BAD_ICRC), 0);
    /* What waits of a QP that goes keeps the room of no other. */
    CHECK(is_postponed(&path));
    vb_roce_udp_forget(udp, SENDER + 1);
    CHECK(!vb_roce_udp_has_room(udp));
    vb_roce_udp_forget(udp, SENDER);
    CHECK(vb_roce_udp_has_room(udp));
    calls = vb_roce_udp_counter(udp, VB_UDP_SENT_CALLS);
    CHECK_EQ(vb_roce_udp_flush(udp), 0);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_SENT_CALLS), calls);
    vb_roce_udp_close(udp);
    CHECK(network_run("tc qdisc del dev lo root"));
}

static void test_path_mtu(void)
{
    static const uint32_t expected[][2] = {{300, 0},     {352, 256},   {576, 256},
                                           {1119, 512},  {1120, 1024}, {1500, 1024},
                                           {4191, 2048}, {4200, 4096}, {65536, 4096}};

    for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); ++i)
        CHECK_EQ(vb_port_path_mtu(expected[i][0]), expected[i][1]);
}

int main(void)
{
    network_enter();
    CHECK(network_run("ip addr add 10.1.0.1/24 dev lo && ip addr add fd00::1/64 dev lo nodad"));
    network_await("fd00::1", NULL);
    for (size_t i = 0; i < sizeof(payload); ++i)
        payload[i] = (uint8_t)(i * 2654435761u >> 24);
    RUN(test_fields);
    RUN(test_ipv4_alone);
    RUN(test_batches);
    RUN(test_room);
    RUN(test_source_ports);
    RUN(test_taken_source_port);
    RUN(test_without_lanes);
    RUN(test_drops);
    RUN(test_refused_batches);
    RUN(test_fault);
    RUN(test_copy);
    RUN(test_alone);
    RUN(test_forget);
    RUN(test_garbage);
    RUN(test_multicast);
    RUN(test_link_local);
    RUN(test_spoiled);
    RUN(test_postponed);
    RUN(test_path_mtu);
    return 0;
}
