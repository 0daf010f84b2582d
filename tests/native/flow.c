// SPDX-License-Identifier: Apache-2.0
#include "flow.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "network.h"
#include "wire/opcode.h"

struct flow flow_open(void)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct flow flow = {.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    int tos = 0x28, probe = IP_PMTUDISC_PROBE;
    socklen_t size = sizeof(from);

    CHECK(flow.fd >= 0);
    CHECK_EQ(setsockopt(flow.fd, IPPROTO_IP, IP_TOS, &tos, sizeof(tos)), 0);
    CHECK_EQ(setsockopt(flow.fd, IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof(probe)), 0);
    CHECK_EQ(bind(flow.fd, (struct sockaddr *)&from, sizeof(from)), 0);
    CHECK_EQ(getsockname(flow.fd, (struct sockaddr *)&from, &size), 0);
    flow.port = ntohs(from.sin_port);
    return flow;
}

void flow_close(struct flow *flow)
{
    close(flow->fd);
    flow->fd = -1;
}

void flow_send(const struct flow *flow, uint32_t dest_qp, uint32_t psn)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(VB_ROCE_PORT),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct vb_icrc_flow way = {.source_port = flow->port, .target_port = VB_ROCE_PORT};
    struct vb_bth bth = {.opcode = VB_OP_SEND_ONLY, .dest_qp = dest_qp, .psn = psn};
    uint8_t packet[VB_BTH + 16 + VB_ICRC] = {0};
    const uint32_t length = VB_BTH + 16;
    uint32_t crc;

    network_gid("127.0.0.1", way.source);
    network_gid("127.0.0.1", way.target);
    vb_wire_bth_write(packet, &bth);
    crc = vb_wire_icrc_with(vb_wire_icrc_start_udp(&way, length), (struct vb_icrc_unseen){0, true});
    vb_wire_icrc_write(packet + length, vb_wire_icrc_transport(crc, packet, length));
    CHECK_EQ(sendto(flow->fd, packet, sizeof(packet), 0, (struct sockaddr *)&to, sizeof(to)),
             sizeof(packet));
}

uint32_t flow_count(struct vb_udp *udp)
{
    struct vb_arrival arrival;
    uint32_t count = 0;

    while (vb_roce_udp_receive(udp))
        while (vb_roce_udp_next(udp, &arrival))
            ++count;
    return count;
}
