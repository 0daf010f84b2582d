// SPDX-License-Identifier: Apache-2.0
/* Multicast groups: who may be in them, and whom a datagram to one reaches, directly and by
 * packets, in this process and in others. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "end.h"
#include "network.h"
#include "starved.h"
#include "station.h"

enum { GRH = 40, LENGTH = 100 };

static const char *const ipv4_group = "239.7.8.9", *const ipv6_group = "ff0e::7:8";

static void gid_of(const char *address, uint8_t gid[16])
{
    network_gid(address, gid);
}

static struct vb_qp *new_qp(struct end *end, enum ibv_qp_type type, uint32_t flags)
{
    struct ibv_qp_init_attr_ex attr = {.qp_type = type,
                                       .pd = &end->pd->ibv,
                                       .send_cq = &end->cq->ibv,
                                       .recv_cq = &end->cq->ibv,
                                       .cap = {4, 4, 1, 1, 0},
                                       .comp_mask = IBV_QP_INIT_ATTR_CREATE_FLAGS,
                                       .create_flags = flags};
    struct vb_qp *qp;
    int error = vb_qp_create(end->context, &attr, &qp);

    errno = -error;
    return error ? NULL : qp;
}

static void open_end(struct end *end)
{
    end_open(end, (struct end_options){.type = IBV_QPT_UD});
}

/* ---- the table ---- */

static void the_rules_are_the_kernels(void)
{
    uint8_t group[16], other[16], unicast[16];
    struct vb_qp *qp, *rc;
    struct end end;

    gid_of(ipv4_group, group);
    gid_of(ipv6_group, other);
    gid_of("10.1.2.3", unicast);
    open_end(&end);
    qp = new_qp(&end, IBV_QPT_UD, 0);
    rc = new_qp(&end, IBV_QPT_RC, 0);
    CHECK_EQ(vb_multicast_attach(rc, group), -EINVAL);
    CHECK_EQ(vb_multicast_attach(qp, unicast), -EINVAL);
    CHECK_EQ(vb_multicast_detach(qp, group), -EINVAL);
    CHECK_EQ(vb_multicast_attach(qp, group), 0);
    CHECK_EQ(vb_multicast_attach(qp, group), 0); /* twice is once */
    CHECK_EQ(vb_multicast_attach(qp, other), 0);
    CHECK_EQ(vb_multicast_detach(rc, group), -EINVAL);
    CHECK_EQ(vb_qp_destroy(qp), -EBUSY);
    CHECK_EQ(vb_multicast_detach(qp, group), 0);
    CHECK_EQ(vb_multicast_detach(qp, group), -EINVAL);
    CHECK_EQ(vb_qp_destroy(qp), -EBUSY);
    CHECK_EQ(vb_multicast_detach(qp, other), 0);
    CHECK_EQ(vb_qp_destroy(qp), 0);
    CHECK(!new_qp(&end, IBV_QPT_RC, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) && errno == EINVAL);
    end_close(&end);
}

static void the_limits_are_those_reported(void)
{
    struct vb_qp *qp[VB_GROUP_QPS + 1];
    uint32_t members[VB_GROUP_QPS];
    uint8_t group[16];
    struct end end;

    open_end(&end);
    gid_of(ipv4_group, group);
    for (int i = 0; i <= VB_GROUP_QPS; ++i) {
        qp[i] = new_qp(&end, IBV_QPT_UD, 0);
        CHECK_EQ(vb_multicast_attach(qp[i], group), i < VB_GROUP_QPS ? 0 : -ENOMEM);
    }
    CHECK_EQ(vb_multicast_members(&end.direct->adapter->self, group, members), VB_GROUP_QPS);
    CHECK_EQ(vb_multicast_detach(qp[7], group), 0);
    CHECK_EQ(vb_multicast_attach(qp[VB_GROUP_QPS], group), 0);
    CHECK_EQ(vb_qp_destroy(qp[7]), 0);
    for (uint16_t i = 1; i <= VB_MAX_GROUPS; ++i) {
        group[14] = (uint8_t)(i >> 8);
        group[15] = (uint8_t)i;
        group[13] = 99;
        CHECK_EQ(vb_multicast_attach(qp[0], group), i < VB_MAX_GROUPS ? 0 : -ENOMEM);
    }
    group[14] = 0;
    group[15] = 1;
    CHECK_EQ(vb_multicast_detach(qp[0], group), 0);
    group[15] = 200; /* one that is there; then one more */
    CHECK_EQ(vb_multicast_members(&end.direct->adapter->self, group, members), 1);
    group[13] = 98;
    CHECK_EQ(vb_multicast_attach(qp[1], group), 0);
    end_close(&end); /* with all that is attached */
}

/* ---- direct ---- */

static struct vb_ah *make_ah(struct end *end, const uint8_t gid[16])
{
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1}};
    struct vb_ah *ah;

    memcpy(attr.grh.dgid.raw, gid, 16);
    CHECK_EQ(vb_ah_create(end->pd, &attr, &ah), 0);
    return ah;
}

static void send_as(struct end *end, struct vb_qp *qp, struct vb_ah *ah, uint32_t qpn,
                    uint32_t qkey)
{
    struct ibv_sge sge = {(uintptr_t)end->memory + 4096, LENGTH, end->mr->ibv.lkey};
    struct ibv_send_wr wr = {.wr_id = 7,
                             .opcode = IBV_WR_SEND,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;

    wr.wr.ud.ah = &ah->ibv;
    wr.wr.ud.remote_qpn = qpn;
    wr.wr.ud.remote_qkey = qkey;
    memset(end->memory + 4096, 0x3c, LENGTH);
    CHECK_EQ(vb_post_send(qp, &wr, &bad), 0);
}

static void send_to_group(struct end *end, struct vb_qp *qp, const uint8_t gid[16])
{
    send_as(end, qp, make_ah(end, gid), VB_MULTICAST_QPN, 17);
}

/* The completions now there: whether the send's is among them, and which receives' (wr_id bits). */
static unsigned poll_all(struct end *end)
{
    unsigned got = 0;
    struct ibv_wc wc;

    while (vb_cq_poll(end->cq, 1, &wc) == 1) {
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        if (wc.opcode & IBV_WC_RECV)
            CHECK_EQ(wc.byte_len, GRH + LENGTH);
        got |= 1u << wc.wr_id;
    }
    return got;
}

static void members_in_the_senders_process(void)
{
    enum { SENT = 1 << 7 };
    struct vb_qp *qp[4];
    uint8_t group[16];
    struct vb_ah *ah;
    struct end end;
    long before;

    open_end(&end);
    gid_of(ipv6_group, group);
    for (unsigned i = 0; i < 4; ++i) {
        qp[i] = new_qp(&end, IBV_QPT_UD, i == 3 ? IBV_QP_CREATE_BLOCK_SELF_MCAST_LB : 0);
        end_ready(qp[i], NULL);
        for (int n = 0; n < 2; ++n)
            end_post_recv(&end, qp[i], i);
        if (i != 2)
            CHECK_EQ(vb_multicast_attach(qp[i], group), 0);
    }
    send_to_group(&end, qp[0], group);
    CHECK_EQ(poll_all(&end), SENT | 1 << 0 | 1 << 1 | 1 << 3); /* itself too */
    CHECK_EQ(end.memory[GRH + LENGTH - 1], 0x3c);
    CHECK_EQ(memcmp(end.memory + 24, group, 16), 0); /* the header says for whom it was */
    send_to_group(&end, qp[3], group);
    CHECK_EQ(poll_all(&end), SENT | 1 << 0 | 1 << 1);
    end_post_recv(&end, qp[0], 0);
    end_post_recv(&end, qp[1], 1);
    send_as(&end, qp[2], make_ah(&end, group), VB_MULTICAST_QPN, 18);
    send_as(&end, qp[2], make_ah(&end, group), qp[0]->number, 17);
    group[15] ^= 1;
    send_to_group(&end, qp[2], group);
    group[15] ^= 1;
    CHECK_EQ(poll_all(&end), SENT);
    CHECK_EQ(vb_multicast_detach(qp[0], group), 0);
    ah = make_ah(&end, group);
    before = starved_blocks();
    send_as(&end, qp[2], ah, VB_MULTICAST_QPN, 17);
    CHECK_EQ(poll_all(&end), SENT | 1 << 1 | 1 << 3);
    CHECK_EQ(starved_blocks(), before); /* nothing of a datagram stays */
    end_close(&end);
}

static void play_member(int socket)
{
    uint8_t group[16];
    struct vb_qp *qp;
    struct end end;

    open_end(&end);
    gid_of(ipv6_group, group);
    qp = new_qp(&end, IBV_QPT_UD, 0);
    end_ready(qp, NULL);
    end_post_recv(&end, qp, 3);
    end_meet(socket); /* it is there and in no group */
    end_meet(socket);
    CHECK_EQ(vb_multicast_attach(qp, group), 0);
    end_meet(socket);
    CHECK_EQ(end_wait(end.cq, 10).wr_id, 3);
    CHECK_EQ(end.memory[GRH + LENGTH - 1], 0x3c);
    end_meet(socket);
    end_close(&end);
}

/* Who is there first, and who has sent before, makes no difference. */
static void members_in_other_processes(void)
{
    for (int order = 0; order < 4; ++order) {
        bool after = order & 1, sent_before = order & 2;
        uint8_t group[16];
        struct vb_qp *qp;
        struct end end;
        int sockets[2], status;
        pid_t children[2];

        gid_of(ipv6_group, group);
        for (int i = 0; i < 2 && after; ++i) {
            children[i] = end_spawn("member", &sockets[i]);
            end_meet(sockets[i]);
        }
        open_end(&end);
        qp = new_qp(&end, IBV_QPT_UD, 0);
        end_ready(qp, NULL);
        if (sent_before)
            send_to_group(&end, qp, group);
        for (int i = 0; i < 2 && !after; ++i) {
            children[i] = end_spawn("member", &sockets[i]);
            end_meet(sockets[i]);
        }
        for (int i = 0; i < 2; ++i) {
            end_meet(sockets[i]);
            end_meet(sockets[i]);
        }
        send_to_group(&end, qp, group);
        for (int i = 0; i < 2; ++i) {
            end_meet(sockets[i]);
            CHECK_EQ(waitpid(children[i], &status, 0), children[i]);
            CHECK_EQ(status, 0);
            close(sockets[i]);
        }
        send_to_group(&end, qp, group); /* to nobody */
        end_close(&end);
    }
}

/* ---- packets ---- */

static void ready(struct station *station, struct vb_qp *qp)
{
    station_connect(station, qp, NULL, (struct station_route){0});
}

static void send_by(struct station *station, struct vb_qp *qp, struct ibv_ah_attr attr,
                    uint32_t qpn)
{
    struct ibv_sge sge = {(uintptr_t)station->memory, LENGTH, station->mr->ibv.lkey};
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1}, *bad;
    struct vb_ah *ah;

    CHECK_EQ(vb_ah_create(station->pd, &attr, &ah), 0);
    wr.wr.ud.ah = &ah->ibv;
    wr.wr.ud.remote_qpn = qpn;
    wr.wr.ud.remote_qkey = 0x1234;
    memset(station->memory, 0x77, LENGTH);
    CHECK_EQ(vb_post_send(qp, &wr, &bad), 0);
    CHECK_EQ(vb_ah_destroy(ah), 0);
}

static void send_packet(struct station *station, struct vb_qp *qp, const char *from,
                        const char *group)
{
    send_by(station, qp,
            station_address(station, (struct station_route){.from = from, .to = group}),
            VB_MULTICAST_QPN);
}

static void check_received(struct station *station, struct ibv_wc wc)
{
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.wr_id, 9);
    CHECK_EQ(wc.byte_len, GRH + LENGTH);
    CHECK_EQ(station->memory[8192 + GRH + LENGTH - 1], 0x77);
    memset(station->memory + 8192, 0, GRH + LENGTH);
}

static void expect(struct station *station)
{
    check_received(station, station_wait(station->cq, 10));
}

static void expect_nothing(struct station *station)
{
    struct ibv_wc wc;

    for (uint64_t end = vb_roce_now() + 30000000; vb_roce_now() < end;)
        CHECK_EQ(vb_cq_poll(station->cq, 1, &wc), 0);
}

/* Two processes' adapters, as far as the network can tell. */
static void loop_between(const char *from, const char *address)
{
    static struct station station[2];
    struct vb_qp *qp[2];
    uint8_t group[16];

    gid_of(address, group);
    for (int i = 0; i < 2; ++i) {
        station_open(&station[i], NULL);
        qp[i] = station_qp(&station[i], IBV_QPT_UD);
        ready(&station[i], qp[i]);
        for (int n = 0; n < 4; ++n)
            station_post_recv(&station[i], qp[i], 8192, 4096);
    }
    send_packet(&station[0], qp[0], from, address);
    expect_nothing(&station[1]);
    CHECK_EQ(vb_multicast_attach(qp[1], group), 0);
    send_packet(&station[0], qp[0], from, address);
    expect(&station[1]);
    expect_nothing(&station[0]); /* it is in no group */
    CHECK_EQ(vb_multicast_attach(qp[0], group), 0);
    send_packet(&station[0], qp[0], from, address);
    expect(&station[0]);
    expect(&station[1]);
    expect_nothing(&station[1]); /* once */
    qp[0]->blocks_self = true;
    send_packet(&station[0], qp[0], from, address);
    expect(&station[1]);
    expect_nothing(&station[0]);
    CHECK_EQ(vb_multicast_detach(qp[1], group), 0);
    send_packet(&station[0], qp[0], from, address);
    expect_nothing(&station[1]);
    station_close(&station[0]);
    station_close(&station[1]);
}

static void packets_loop_to_this_hosts_members(void)
{
    loop_between("127.0.0.1", ipv4_group);
    loop_between("10.5.0.1", ipv4_group);
    loop_between("fd05::1", ipv6_group);
}

/* A host like others has both ways: nobody gets two copies. */
static void direct_and_packets_together_deliver_once(void)
{
    const struct vb_host_config both = {0};
    static struct station station[2];
    struct vb_qp *qp[2];
    uint8_t group[16];

    gid_of(ipv4_group, group);
    for (int i = 0; i < 2; ++i) {
        station_open(&station[i], &both);
        qp[i] = station_qp(&station[i], IBV_QPT_UD);
        ready(&station[i], qp[i]);
        CHECK_EQ(vb_multicast_attach(qp[i], group), 0);
        station_post_recv(&station[i], qp[i], 8192, 4096);
        station_post_recv(&station[i], qp[i], 8192, 4096);
    }
    qp[0]->blocks_self = true;
    send_packet(&station[0], qp[0], "10.5.0.1", ipv4_group);
    expect(&station[1]);
    expect_nothing(&station[1]);
    expect_nothing(&station[0]);
    CHECK_EQ(vb_roce_udp_counter(vb_roce_udp(station[0].host->roce), VB_UDP_SENT), 1);
    station_close(&station[0]);
    station_close(&station[1]);
}

/* An InfiniBand port sends no packets, whatever another port of its device does. */
static void group_of_infiniband(bool packets_only)
{
    const struct vb_port_settings ports = {
        .count = 2,
        .port = {{.infiniband = true, .lid = 1, .pkeys = {0xffff}}, {.pkeys = {0xffff}}}};
    const struct vb_host_config both = {.ports = &ports, .packets_only = packets_only};
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};
    static struct station station;
    struct vb_gid gid;
    struct vb_qp *qp;

    gid_of(ipv6_group, attr.grh.dgid.raw);
    station_open(&station, &both);
    CHECK(station.host->roce);
    CHECK(vb_port_addresses_get(station.host->adapter.ports[0].addresses, 0, &gid));
    qp = station_qp(&station, IBV_QPT_UD);
    ready(&station, qp);
    CHECK_EQ(vb_multicast_attach(qp, attr.grh.dgid.raw), 0);
    for (int n = 0; n < 3; ++n)
        station_post_recv(&station, qp, 8192, 4096);
    send_by(&station, qp, attr, VB_MULTICAST_QPN);
    expect(&station);
    expect_nothing(&station);
    memcpy(attr.grh.dgid.raw, gid.raw, 16); /* to itself alone */
    send_by(&station, qp, attr, qp->number);
    expect(&station);
    expect_nothing(&station);
    CHECK_EQ(vb_roce_udp_counter(vb_roce_udp(station.host->roce), VB_UDP_SENT), 0);
    station_close(&station);
}

static void a_group_of_an_infiniband_port_is_reached_directly(void)
{
    group_of_infiniband(false);
    group_of_infiniband(true);
}

static void a_group_is_joined_on_interfaces_that_come_later(void)
{
    static struct station station;
    uint64_t end = vb_roce_now() + 10000000000;
    uint8_t group[16], address[16];
    struct ibv_wc wc;
    struct vb_qp *qp;

    gid_of(ipv4_group, group);
    gid_of("10.6.0.1", address);
    station_open(&station, NULL);
    qp = station_qp(&station, IBV_QPT_UD);
    ready(&station, qp);
    CHECK_EQ(vb_multicast_attach(qp, group), 0);
    CHECK(network_run("ip link add vc type veth peer name vd && ip link set vc addrgenmode none && "
                      "ip link set vd addrgenmode none && ip link set vc up && "
                      "ip link set vd up"));
    usleep(100000); /* what the kernel tells of the links is over: the address alone is news */
    CHECK(network_run("ip addr add 10.6.0.1/24 dev vc"));
    while (vb_port_addresses_find(station.host->adapter.ports[0].addresses, address) < 0)
        CHECK(vb_roce_now() < end);
    station_post_recv(&station, qp, 8192, 4096);
    do { /* until the thread that has read the addresses has joined */
        CHECK(vb_roce_now() < end);
        send_packet(&station, qp, "10.6.0.1", ipv4_group);
        usleep(100000);
    } while (vb_cq_poll(station.cq, 1, &wc) == 0);
    check_received(&station, wc);
    station_close(&station);
}

static void a_group_too_many_for_the_system_is_refused(void)
{
    static struct station station;
    uint8_t group[16];
    int joined = 0, error;
    struct vb_qp *qp;

    gid_of(ipv4_group, group);
    station_open(&station, NULL);
    qp = station_qp(&station, IBV_QPT_UD);
    CHECK(network_run("echo 9 > /proc/sys/net/ipv4/igmp_max_memberships"));
    while ((error = vb_multicast_attach(qp, group)) == 0 && joined < 100) {
        ++joined;
        ++group[15];
    }
    CHECK_EQ(error, -ENOMEM);
    CHECK(joined > 1);
    CHECK_EQ(vb_multicast_detach(qp, group), -EINVAL); /* nothing of it is left */
    --group[15];
    CHECK_EQ(vb_multicast_detach(qp, group), 0);
    ++group[15];
    CHECK_EQ(vb_multicast_attach(qp, group), 0);
    station_close(&station);
}

int main(int argc, char **argv)
{
    static const struct end_play plays[] = {{"member", play_member}};

    if (end_play(argc, argv, plays, 1))
        return 0;
    network_enter();
    RUN(the_rules_are_the_kernels);
    RUN(the_limits_are_those_reported);
    RUN(members_in_the_senders_process);
    RUN(members_in_other_processes);
    /* The far end of the wire has no address of its own: what comes out there is nobody's. */
    CHECK(network_run("ip link add va type veth peer name vb && "
                      "ip link set vb addrgenmode none && ip link set vb up && ip link set va up "
                      "&& ip addr add 10.5.0.1/24 dev va && ip addr add 10.5.0.2/24 dev va && "
                      "ip addr add fd05::1/64 dev va nodad"));
    network_await("fd05::1", NULL);
    RUN(packets_loop_to_this_hosts_members);
    RUN(direct_and_packets_together_deliver_once);
    RUN(a_group_of_an_infiniband_port_is_reached_directly);
    RUN(a_group_is_joined_on_interfaces_that_come_later);
    RUN(a_group_too_many_for_the_system_is_refused);
    return 0;
}
