// SPDX-License-Identifier: Apache-2.0
/*
 * What leaves a host, byte for byte: the ICRC covers the IP identification, which the kernel
 * chooses. A receiving socket would forgive a wrong guess, so this looks at the frames.
 */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "network.h"
#include "roce/udp.h"

enum { ETHERNET = 14, IPV4 = 20, IPV6 = 40, UDP = 8, SENDER = 5, PATIENCE_MS = 10000 };

static struct vb_udp *udp;
static int tap;
static uint8_t payload[8192];
static uint8_t frame[1 << 17];

static void open_tap(void)
{
    struct sockaddr_ll address = {.sll_family = AF_PACKET,
                                  .sll_protocol = htons(ETH_P_ALL),
                                  .sll_ifindex = (int)if_nametoindex("vb")};

    tap = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
    CHECK(tap >= 0);
    CHECK_EQ(bind(tap, (struct sockaddr *)&address, sizeof(address)), 0);
}

static bool is_roce(const uint8_t *ip, bool ipv6)
{
    const uint8_t *header = ip + (ipv6 ? IPV6 : IPV4);

    return ip[ipv6 ? 6 : 9] == 17 && vb_wire_get16(header + 2) == VB_ROCE_PORT;
}

/* The IP header of the next RoCE packet on the wire. */
static const uint8_t *next_packet(bool ipv6)
{
    struct pollfd readable = {.fd = tap, .events = POLLIN};

    while (poll(&readable, 1, PATIENCE_MS) == 1) {
        ssize_t length = recv(tap, frame, sizeof(frame), 0);
        uint16_t type = vb_wire_get16(frame + 12);

        CHECK(length > ETHERNET);
        if (type == (ipv6 ? ETHERTYPE_IPV6 : ETHERTYPE_IP) && is_roce(frame + ETHERNET, ipv6))
            return frame + ETHERNET;
    }
    CHECK(!"a packet on the wire");
    return NULL;
}

static void check_icrc(const uint8_t *ip, bool ipv6)
{
    const uint8_t *header = ip + (ipv6 ? IPV6 : IPV4), *bth = header + UDP;
    uint32_t length = vb_wire_get16(header + 4) - UDP - VB_ICRC;
    uint32_t crc =
        ipv6 ? vb_wire_icrc_start_ipv6(ip, header) : vb_wire_icrc_start_ipv4(ip, IPV4, header);

    CHECK(vb_wire_icrc_transport(crc, bth, length) == vb_wire_icrc_read(bth + length));
}

static void expect(uint32_t psn, uint16_t id)
{
    const uint8_t *ip = next_packet(false);

    CHECK_EQ(vb_wire_bth_read(ip + IPV4 + UDP).psn, psn);
    CHECK_EQ(vb_wire_get16(ip + 4), id);
    CHECK_EQ(vb_wire_get16(ip + 6), 0x4000); /* DF, no fragment */
    CHECK_EQ(ip[1], 0x6a);
    CHECK_EQ(ip[8], 33);
    CHECK(vb_wire_get16(ip + IPV4) >= 0xc000);
    check_icrc(ip, false);
}

static struct vb_path path_to(const char *from, const char *to)
{
    struct vb_path path = {.mtu = 1024, .traffic_class = 0x6a, .hop_limit = 33};

    network_gid(from, path.sgid);
    network_gid(to, path.dgid);
    path.source_port = vb_roce_udp_source_port(udp, 0xc0de);
    return path;
}

static void stage(const struct vb_path *path, uint32_t psn, const uint8_t *bytes, uint32_t length)
{
    struct vb_packet packet = {.path = path,
                               .qp_num = SENDER,
                               .header_length = VB_BTH,
                               .pad = -length & 3,
                               .payload_length = length,
                               .piece_count = 1,
                               .piece = {{bytes, length}}};
    struct vb_bth bth = {.opcode = 7, .pad = packet.pad, .dest_qp = 1, .psn = psn, .becn = true};

    vb_wire_bth_write(packet.header, &bth);
    vb_roce_udp_stage(udp, &packet);
}

static void open_udp(void)
{
    struct vb_udp_config config = {0};

    CHECK_EQ(vb_roce_udp_open(&config, &udp), 0);
}

/* Cut into segments: numbered from 0 on. */
static void test_batch(void)
{
    struct vb_path path;

    open_udp();
    path = path_to("10.4.0.1", "10.4.0.2");
    for (uint32_t psn = 0; psn < 20; ++psn)
        stage(&path, psn, payload + psn, psn == 19 ? 77 : 1024);
    CHECK_EQ(vb_roce_udp_flush(udp), 0);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_SENT_CALLS), 1);
    for (uint32_t psn = 0; psn < 20; ++psn)
        expect(psn, (uint16_t)psn);
    vb_roce_udp_close(udp);
}

static void test_single(void)
{
    struct vb_path path;

    open_udp();
    path = path_to("10.4.0.1", "10.4.0.2");
    for (uint32_t i = 0; i < 5; ++i) {
        stage(&path, i, payload, 4 + i * 8);
        CHECK_EQ(vb_roce_udp_flush(udp), 0);
        expect(i, 0);
    }
    vb_roce_udp_close(udp);
}

/* A batch that had to be split has other numbers, and other ICRCs. */
static void test_split(void)
{
    enum { TOO_LONG = 2048, COUNT = 9 };
    struct vb_path path;

    open_udp();
    path = path_to("10.4.0.1", "10.4.0.2");
    for (uint32_t psn = 0; psn < COUNT; ++psn)
        stage(&path, psn, payload + psn, psn + 1 < COUNT ? TOO_LONG : 1024);
    CHECK_EQ(vb_roce_udp_flush(udp), 0);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_SPLIT), 1);
    CHECK_EQ(vb_roce_udp_counter(udp, VB_UDP_DROP_TOO_LONG), COUNT - 1);
    expect(COUNT - 1, 0);
    vb_roce_udp_close(udp);
}

static void test_ipv6(void)
{
    struct vb_path path;

    open_udp();
    path = path_to("fd04::1", "fd04::2");
    path.flow_label = 0xabcde;
    for (uint32_t psn = 0; psn < 10; ++psn)
        stage(&path, psn, payload + psn, 1024);
    CHECK_EQ(vb_roce_udp_flush(udp), 0);
    for (uint32_t psn = 0; psn < 10; ++psn) {
        const uint8_t *ip = next_packet(true);

        CHECK_EQ(vb_wire_bth_read(ip + IPV6 + UDP).psn, psn);
        CHECK_EQ(vb_wire_get32(ip), 0x66aabcde);
        check_icrc(ip, true);
    }
    vb_roce_udp_close(udp);
}

/* An interface that cuts no batches: the kernel does it before it. */
int main(void)
{
    network_enter();
    CHECK(network_run("ip link add va type veth peer name vb && ip link set va gso_max_segs 1 && "
                      "ip addr add 10.4.0.1/24 dev va && ip addr add fd04::1/64 dev va nodad && "
                      "ip link set vb up && ip link set va up && "
                      "ip neigh add 10.4.0.2 lladdr 02:00:00:00:00:02 dev va && "
                      "ip neigh add fd04::2 lladdr 02:00:00:00:00:02 dev va"));
    network_await("fd04::1", NULL);
    for (size_t i = 0; i < sizeof(payload); ++i)
        payload[i] = (uint8_t)(i * 13);
    open_tap();
    RUN(test_batch);
    RUN(test_single);
    RUN(test_split);
    RUN(test_ipv6);
    return 0;
}
