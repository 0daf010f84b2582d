// SPDX-License-Identifier: Apache-2.0
/*
 * Damaged packets through the port's own sockets: no flipped bit that the ICRC covers is delivered,
 * whatever identifications the sender's packets can have; and what is cut on the wire arrives.
 */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "flow.h"
#include "network.h"
#include "roce/udp.h"
#include "wire/opcode.h"

enum { QP = 0x123456, PORT = 40001, PATIENCE_MS = 10000, LONGEST = VB_HEADERS_MAX + 4096 };
enum { UDP_NO_CHECK6_TX_OPTION = 101, UDP_LEVEL = 17 };
enum { IPV4_HEADER = 20, UDP_HEADER = 8, ETHERNET_HEADER = 14 };

static struct vb_udp *udp;
static uint64_t time_now;

static uint64_t read_clock(void)
{
    return time_now;
}

static void open_port(void)
{
    struct vb_udp_config config = {.clock = read_clock};

    CHECK_EQ(vb_roce_udp_open(&config, &udp), 0);
}

/* ---- a sender whose packets are made here ---- */

struct sender {
    int fd;
    struct vb_icrc_flow flow;
    bool ipv6;
};

static void bind_to(int fd, bool ipv6, const char *from)
{
    struct sockaddr_in ipv4 = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(PORT)};

    inet_pton(ipv6 ? AF_INET6 : AF_INET, from,
              ipv6 ? (void *)&address.sin6_addr : (void *)&ipv4.sin_addr);
    CHECK_EQ(
        bind(fd, ipv6 ? (void *)&address : (void *)&ipv4, ipv6 ? sizeof(address) : sizeof(ipv4)),
        0);
}

static struct sender open_sender(const char *from, const char *to)
{
    struct sender sender = {.ipv6 = strchr(from, ':') != NULL,
                            .flow = {.source_port = PORT, .target_port = VB_ROCE_PORT}};
    int none = 1;

    network_gid(from, sender.flow.source);
    network_gid(to, sender.flow.target);
    sender.fd = socket(sender.ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(sender.fd >= 0);
    /* As soft-RoCE and adapters send: the UDP checksum is zero, and damages nothing. */
    if (sender.ipv6)
        CHECK_EQ(setsockopt(sender.fd, UDP_LEVEL, UDP_NO_CHECK6_TX_OPTION, &none, sizeof(none)), 0);
    bind_to(sender.fd, sender.ipv6, from);
    return sender;
}

static void throw(const struct sender *sender, const uint8_t *bytes, uint32_t length)
{
    struct sockaddr_in ipv4 = {.sin_family = AF_INET, .sin_port = htons(VB_ROCE_PORT)};
    struct sockaddr_in6 ipv6 = {.sin6_family = AF_INET6, .sin6_port = htons(VB_ROCE_PORT)};

    memcpy(&ipv4.sin_addr, sender->flow.target + 12, 4);
    memcpy(&ipv6.sin6_addr, sender->flow.target, 16);
    CHECK_EQ(sendto(sender->fd, bytes, length, 0, sender->ipv6 ? (void *)&ipv6 : (void *)&ipv4,
                    sender->ipv6 ? sizeof(ipv6) : sizeof(ipv4)),
             length);
}

/* Any packet of an opcode; `length` without the ICRC, which is made for this identification. */
static void make(const struct sender *sender, uint8_t *bytes, uint8_t opcode, uint32_t psn,
                 uint32_t length, uint16_t id)
{
    struct vb_bth bth = {.opcode = opcode, .pkey = 0xffff, .dest_qp = QP, .psn = psn};
    uint32_t start = vb_wire_icrc_start_udp(&sender->flow, length);

    for (uint32_t i = VB_BTH; i < length; ++i)
        bytes[i] = (uint8_t)(i * 2654435761u >> 20);
    vb_wire_bth_write(bytes, &bth);
    if (!sender->ipv6)
        start = vb_wire_icrc_with(start, (struct vb_icrc_unseen){id, true});
    vb_wire_icrc_write(bytes + length, vb_wire_icrc_transport(start, bytes, length));
}

static uint32_t delivered(const struct sender *sender, uint8_t opcode, uint32_t psn,
                          uint32_t length, uint16_t id)
{
    uint8_t bytes[LONGEST + VB_ICRC];

    make(sender, bytes, opcode, psn, length, id);
    throw(sender, bytes, length + VB_ICRC);
    return flow_count(udp);
}

/* ---- one bit ---- */

/* Each bit of the packet and of its ICRC in turn. Byte 4 of the BTH is not covered: a packet in
 * which it alone is changed is undamaged, and may be delivered. */
static void flip_each_bit(const struct sender *sender, uint8_t opcode, uint32_t length, uint16_t id)
{
    uint8_t bytes[LONGEST + VB_ICRC];

    make(sender, bytes, opcode, 7, length, id);
    for (uint32_t bit = 0; bit < (length + VB_ICRC) * 8; ++bit) {
        uint32_t count;

        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        throw(sender, bytes, length + VB_ICRC);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        count = flow_count(udp);
        CHECK(count == 0 || bit / 8 == VB_BTH_SEGMENT_AT);
    }
}

/* What a packet has behind its BTH differs in length alone, as far as a CRC is concerned. */
static const struct {
    uint8_t opcode;
    uint32_t length;
} packets[] = {
    {VB_TRANSPORT_RC | VB_OP_ACKNOWLEDGE, VB_BTH + VB_AETH},
    {VB_TRANSPORT_RC | VB_OP_SEND_ONLY, VB_BTH},
    {VB_TRANSPORT_RC | VB_OP_WRITE_MIDDLE, VB_BTH + 1024},
    {VB_TRANSPORT_RC | VB_OP_WRITE_FIRST, VB_BTH + VB_RETH + 2048},
    {VB_TRANSPORT_UC | VB_OP_SEND_LAST, VB_BTH + 232},
    {VB_TRANSPORT_UD | VB_OP_SEND_ONLY, VB_BTH + VB_DETH + 300},
};
enum { PACKETS = sizeof(packets) / sizeof(*packets) };

/* A sender of which nothing is known, and one that has sent right packets before. */
static void test_one_bit_of_ours(void)
{
    for (size_t i = 0; i < PACKETS; ++i)
        for (int known = 0; known < 2; ++known) {
            struct sender sender = open_sender("10.1.0.1", "10.1.0.1");

            open_port();
            CHECK_EQ(known ? delivered(&sender, 4, 1, VB_BTH + 8, 0) : 0, known);
            flip_each_bit(&sender, packets[i].opcode, packets[i].length, 0);
            CHECK_EQ(delivered(&sender, packets[i].opcode, 7, packets[i].length, 0), 1);
            vb_roce_udp_close(udp);
            close(sender.fd);
        }
}

static void test_one_bit_over_ipv6(void)
{
    struct sender sender = open_sender("fd00::1", "fd00::1");

    open_port();
    for (size_t i = 0; i < PACKETS; ++i) {
        CHECK_EQ(delivered(&sender, packets[i].opcode, 7, packets[i].length, 0), 1);
        flip_each_bit(&sender, packets[i].opcode, packets[i].length, 0);
    }
    vb_roce_udp_close(udp);
    close(sender.fd);
}

/* ---- a sender that counts, as Linux' driver ---- */

static void test_one_bit_of_one_that_counts(void)
{
    for (size_t i = 0; i < PACKETS; ++i) {
        struct sender sender = open_sender("10.1.0.1", "10.1.0.1");

        open_port();
        delivered(&sender, 4, 1, VB_BTH + 8, 50557);
        CHECK_EQ(delivered(&sender, 4, 2, VB_BTH + 8, 50558), 2);
        flip_each_bit(&sender, packets[i].opcode, packets[i].length, 50559);
        CHECK_EQ(delivered(&sender, packets[i].opcode, 7, packets[i].length, 50560), 1);
        vb_roce_udp_close(udp);
        close(sender.fd);
    }
}

/* The first packet waits for the next one; then whatever Linux' counter does is followed. */
static void test_one_that_counts(void)
{
    struct sender sender = open_sender("10.1.0.1", "10.1.0.1");
    uint16_t id = 65530;

    open_port();
    CHECK_EQ(delivered(&sender, 4, 0, VB_BTH + 8, id), 0);
    CHECK_EQ(delivered(&sender, 4, 0, VB_BTH + 8, ++id), 2); /* sent again */
    for (uint32_t psn = 1; psn < 1000; ++psn)
        CHECK_EQ(delivered(&sender, 4, psn, VB_BTH + 8, ++id), 1);
    CHECK_EQ(delivered(&sender, 4, 1000, VB_BTH + 8, id += 7), 1); /* six were lost */
    time_now += 1000000000;
    CHECK_EQ(delivered(&sender, 4, 1001, VB_BTH + 8, id += 1000), 0); /* a second of silence */
    CHECK_EQ(delivered(&sender, 4, 1001, VB_BTH + 8, ++id), 2);       /* sent again */
    CHECK_EQ(delivered(&sender, 4, 1002, VB_BTH + 8, id += 3000), 0); /* to other processes */
    CHECK_EQ(delivered(&sender, 4, 1002, VB_BTH + 8, id += 3000), 1); /* the same again */
    CHECK_EQ(delivered(&sender, 4, 1003, VB_BTH + 8, ++id), 1);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_BAD_ICRC), 1);
    vb_roce_udp_close(udp);
    close(sender.fd);
}

/* What is unconfirmed comes before what confirms it, and nothing of it is counted as damaged. */
static void test_one_that_is_confirmed(void)
{
    struct sender sender = open_sender("10.1.0.1", "10.1.0.1");
    uint8_t bytes[LONGEST + VB_ICRC];
    struct vb_arrival arrival;

    open_port();
    for (uint32_t psn = 1; psn <= 3; ++psn) {
        make(&sender, bytes, 4, psn, VB_BTH + 8, (uint16_t)(300 + psn));
        throw(&sender, bytes, VB_BTH + 8 + VB_ICRC);
    }
    for (uint32_t psn = 1; psn <= 3; ++psn) {
        while (!vb_roce_udp_next(udp, &arrival))
            CHECK(vb_roce_udp_receive(udp));
        CHECK_EQ(vb_wire_bth_read(arrival.bytes).psn, psn);
        CHECK_EQ(arrival.length, VB_BTH + 8);
        CHECK(!arrival.doubted);
        CHECK_EQ(vb_roce_udp_last(udp).ip_id, 300 + psn);
    }
    CHECK_EQ(flow_count(udp), 0);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_RECEIVED), 3);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_BAD_ICRC), 0);
    CHECK_EQ(vb_roce_udp_deadline(udp), UINT64_MAX);
    vb_roce_udp_close(udp);
    close(sender.fd);
}

/* What is not confirmed is refused: soon, or when the flow's next packet says otherwise. */
static void test_one_that_is_not_confirmed(void)
{
    struct sender sender = open_sender("10.1.0.1", "10.1.0.1");

    open_port();
    CHECK_EQ(delivered(&sender, 4, 1, VB_BTH + 8, 300), 0);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_BAD_ICRC), 0);
    CHECK_EQ(vb_roce_udp_deadline(udp), time_now + 2000000);
    vb_roce_udp_expire(udp, time_now + 1999999);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_BAD_ICRC), 0);
    vb_roce_udp_expire(udp, time_now + 2000000);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_BAD_ICRC), 1);
    CHECK_EQ(vb_roce_udp_deadline(udp), UINT64_MAX);
    CHECK_EQ(delivered(&sender, 4, 2, VB_BTH + 8, 301), 1); /* it speaks for this one still */
    CHECK_EQ(delivered(&sender, 4, 3, VB_BTH + 8, 9000), 0);
    CHECK_EQ(delivered(&sender, 4, 4, VB_BTH + 8, 302), 1);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_BAD_ICRC), 2);
    for (uint16_t id = 1000; id < 1200; ++id) /* more than there is room for */
        CHECK_EQ(delivered(&sender, 4, id, VB_BTH + 8, (uint16_t)(id * 7)), 0);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_BAD_ICRC), 2 + 199);
    vb_roce_udp_close(udp);
    close(sender.fd);
}

/* A datagram is not sent again. */
static void test_datagrams_of_one_that_counts(void)
{
    struct sender sender = open_sender("10.1.0.1", "10.1.0.1");
    uint8_t opcode = VB_TRANSPORT_UD | VB_OP_SEND_ONLY;

    open_port();
    for (uint16_t id = 400; id < 500; ++id)
        CHECK_EQ(delivered(&sender, opcode, id, VB_BTH + VB_DETH + 8, id), 1);
    time_now += 60000000000;
    CHECK_EQ(delivered(&sender, opcode, 1, VB_BTH + VB_DETH + 8, 40000), 1);
    vb_roce_udp_close(udp);
    close(sender.fd);
}

/*
 * A reader that comes late does not know when a datagram came, but not before the socket was empty
 * the last time: the counter can have moved for all of that time.
 */
static void test_a_datagram_that_is_read_late(void)
{
    enum { MS = 1000000, UNSPENT = 1024 };
    struct sender sender = open_sender("10.1.0.1", "10.1.0.1");
    uint8_t opcode = VB_TRANSPORT_UD | VB_OP_SEND_ONLY, bytes[LONGEST + VB_ICRC];
    const uint32_t length = VB_BTH + VB_DETH + 8;
    uint16_t id = 400;

    open_port();
    for (int i = 0; i < 3; ++i)
        CHECK_EQ(delivered(&sender, opcode, 1, length, ++id), 1);
    CHECK_EQ(delivered(&sender, opcode, 1, length, id += UNSPENT), 1); /* what it had not spent */
    make(&sender, bytes, opcode, 2, length, ++id);
    throw(&sender, bytes, length + VB_ICRC);
    time_now += 3000ull * MS; /* more than is kept of what it has not spent */
    CHECK_EQ(flow_count(udp), 1);
    CHECK_EQ(delivered(&sender, opcode, 3, length, id += 2990), 1);
    vb_roce_udp_close(udp);
    close(sender.fd);
}

/* ---- batches that are cut on the way ---- */

static int open_tap(void)
{
    struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_IP));

    CHECK(fd >= 0);
    CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    return fd;
}

/* The next RoCE packet's place as its IPv4 header has it and as its BTH says it, DF being set. */
static uint16_t place_on_the_wire(int tap)
{
    for (;;) {
        uint8_t frame[65536], *ip = frame + ETHERNET_HEADER, *at = ip + IPV4_HEADER + UDP_HEADER;
        struct sockaddr_ll from = {0};
        socklen_t size = sizeof(from);

        CHECK(recvfrom(tap, frame, sizeof(frame), 0, (struct sockaddr *)&from, &size) > 0);
        if (from.sll_pkttype == PACKET_OUTGOING ||
            vb_wire_get16(ip + IPV4_HEADER + 2) != VB_ROCE_PORT)
            continue;
        CHECK_EQ(vb_wire_get16(ip + 6), 0x4000);
        CHECK_EQ(at[VB_BTH_SEGMENT_AT] & VB_BTH_SEGMENT, vb_wire_get16(ip + 4));
        return vb_wire_get16(ip + 4);
    }
}

static void stage_batch(uint32_t count)
{
    struct vb_path path = {.mtu = 1024, .hop_limit = 64};
    static uint8_t payload[1024];

    network_gid("10.1.0.1", path.sgid);
    network_gid("10.1.0.1", path.dgid);
    path.source_port = vb_roce_udp_source_port(udp, 0xc0de);
    for (uint32_t i = 0; i < count; ++i) {
        struct vb_packet packet = {.path = &path,
                                   .header_length = VB_BTH,
                                   .payload_length = sizeof(payload),
                                   .piece_count = 1,
                                   .piece = {{payload, sizeof(payload)}}};
        struct vb_bth bth = {.opcode = 7, .pkey = 0xffff, .dest_qp = QP, .psn = i, .becn = i % 2};

        vb_wire_bth_write(packet.header, &bth);
        CHECK_EQ(vb_roce_udp_stage(udp, &packet).ip_id, i);
    }
    CHECK_EQ(vb_roce_udp_flush(udp), 0);
}

/* Where neither an adapter nor GRO puts the pieces together, each stands for itself. */
static void test_a_batch_is_cut(void)
{
    enum { COUNT = 60 };
    struct vb_arrival arrival;
    struct pollfd readable;
    int tap;

    CHECK(network_run("ip link set lo gso_max_segs 1"));
    open_port();
    tap = open_tap();
    stage_batch(COUNT);
    for (uint32_t i = 0; i < COUNT; ++i)
        CHECK_EQ(place_on_the_wire(tap), i);
    readable = (struct pollfd){.fd = vb_roce_udp_fd(udp), .events = POLLIN};
    for (uint32_t psn = 0; psn < COUNT; ++psn) {
        while (!vb_roce_udp_next(udp, &arrival)) {
            CHECK_EQ(poll(&readable, 1, PATIENCE_MS), 1);
            vb_roce_udp_receive(udp);
        }
        CHECK_EQ(vb_wire_bth_read(arrival.bytes).psn, psn);
    }
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_BAD_ICRC), 0);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_SPLIT), 0);
    close(tap);
    vb_roce_udp_close(udp);
    CHECK(network_run("ip link set lo gso_max_segs 65535"));
}

int main(void)
{
    network_enter();
    CHECK(network_run("ip addr add 10.1.0.1/24 dev lo && ip addr add fd00::1/64 dev lo nodad"));
    network_await("fd00::1", NULL);
    RUN(test_one_bit_of_ours);
    RUN(test_one_bit_over_ipv6);
    RUN(test_one_bit_of_one_that_counts);
    RUN(test_one_that_counts);
    RUN(test_one_that_is_confirmed);
    RUN(test_one_that_is_not_confirmed);
    RUN(test_datagrams_of_one_that_counts);
    RUN(test_a_datagram_that_is_read_late);
    RUN(test_a_batch_is_cut);
    return 0;
}
