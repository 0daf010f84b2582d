// SPDX-License-Identifier: Apache-2.0
/*
 * The queries of a device with an Ethernet and an InfiniBand port: what each port says of itself,
 * the GIDs and P_Keys of both, why a query is refused, and that a forked child gets no answer.
 */
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dropin/verbena.h"
#include "pair.h"

int ibv_query_port_speed(struct ibv_context *context, uint32_t port_num, uint64_t *port_speed);

enum { LID = 0x18, LMC = 3 };

static struct ibv_context *context;

static void expect_why(int error, const char *reason)
{
    char why[512];

    CHECK(verbena_why(context, error, why, sizeof(why)) > 0);
    if (strcmp(why, reason) != 0) {
        fprintf(stderr, "%s\n", why);
        CHECK(!"the reason");
    }
}

/* ---- numbers ----------------------------------------------------------------------------------
 */

static void the_device_counts_its_ports(void)
{
    struct ibv_device_attr device;
    struct ibv_device_attr_ex extended;

    CHECK_EQ(ibv_query_device(context, &device), 0);
    CHECK_EQ(ibv_query_device_ex(context, NULL, &extended), 0);
    CHECK_EQ(device.phys_port_cnt, 2);
    CHECK_EQ(extended.orig_attr.phys_port_cnt, 2);
    CHECK_EQ(extended.phys_port_cnt_ex, 2);
}

/* The shortest answer is struct ibv_device_attr, and the first byte behind each size stays. */
static void the_answer_has_the_callers_size(void)
{
    const struct verbs_context *verbs = verbs_get_ctx(context);
    struct ibv_device_attr_ex whole;
    uint8_t bytes[sizeof(whole) + 8];

    memset(&whole, 0, sizeof(whole));
    CHECK_EQ(verbs->query_device_ex(context, NULL, &whole, sizeof(whole)), 0);
    CHECK_EQ(verbs->query_device_ex(context, NULL, (void *)bytes, sizeof(whole.orig_attr) - 1),
             EINVAL);
    for (size_t size = sizeof(whole.orig_attr); size < sizeof(bytes); ++size) {
        size_t filled = size < sizeof(whole) ? size : sizeof(whole);

        memset(bytes, 0xa5, sizeof(bytes));
        CHECK_EQ(verbs->query_device_ex(context, NULL, (void *)bytes, size), 0);
        CHECK_EQ(memcmp(bytes, &whole, filled), 0);
        CHECK(size == filled || bytes[size - 1] == 0);
        CHECK_EQ(bytes[size], 0xa5);
    }
}

static void the_ports_are_as_they_were_asked_for(void)
{
    struct ibv_port_attr ethernet, infiniband;
    uint64_t speed = 0;

    CHECK_EQ(ibv_query_port(context, 1, &ethernet), 0);
    CHECK_EQ(ibv_query_port(context, 2, &infiniband), 0);
    CHECK_EQ(ethernet.link_layer, IBV_LINK_LAYER_ETHERNET);
    CHECK_EQ(infiniband.link_layer, IBV_LINK_LAYER_INFINIBAND);
    CHECK(ethernet.gid_tbl_len == 256 && infiniband.gid_tbl_len == 1);
    CHECK(ethernet.pkey_tbl_len == 32 && infiniband.pkey_tbl_len == 32);
    CHECK(ethernet.lid == 0 && ethernet.sm_lid == 0 && ethernet.lmc == 0);
    CHECK(infiniband.lid == LID && infiniband.sm_lid == LID && infiniband.lmc == LMC);
    CHECK(ethernet.flags == IBV_QPF_GRH_REQUIRED && infiniband.flags == 0);
    CHECK(ethernet.active_mtu == IBV_MTU_4096 && infiniband.active_mtu == IBV_MTU_4096);
    CHECK(ethernet.state == IBV_PORT_ACTIVE && infiniband.state == IBV_PORT_ACTIVE);
    CHECK(ethernet.phys_state == 5 && infiniband.phys_state == 5); /* LinkUp */
    CHECK(ethernet.max_vl_num == 1 && infiniband.max_vl_num == 1); /* VL0 */
    CHECK_EQ(ibv_query_port_speed(context, 2, &speed), 0);
    CHECK_EQ(speed, 1000);
}

static void a_port_that_is_none_is_refused_with_a_reason(void)
{
    static const char *const reasons[] = {"ports count from 1 and the device has 2: 0 is none",
                                          "ports count from 1 and the device has 2: 3 is none"};
    struct ibv_port_attr port;
    uint64_t speed;

    for (int i = 0; i < 2; ++i) {
        CHECK_EQ(ibv_query_port(context, (uint8_t)(3 * i), &port), EINVAL);
        expect_why(EINVAL, reasons[i]);
        CHECK_EQ(ibv_query_port_speed(context, (uint32_t)(3 * i), &speed), EINVAL);
        expect_why(EINVAL, reasons[i]);
    }
}

/* ---- clocks -----------------------------------------------------------------------------------
 */

static void the_clock_is_told_if_it_is_asked_for(void)
{
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    struct timespec before, after;
    long raw;

    clock_gettime(CLOCK_MONOTONIC, &before);
    CHECK_EQ(ibv_query_rt_values_ex(context, &values), 0);
    clock_gettime(CLOCK_MONOTONIC, &after);
    raw = values.raw_clock.tv_nsec;
    CHECK(values.raw_clock.tv_sec == 0);
    CHECK(raw >= before.tv_sec * 1000000000 + before.tv_nsec);
    CHECK(raw <= after.tv_sec * 1000000000 + after.tv_nsec);
    values = (struct ibv_values_ex){.raw_clock = {3, 4}};
    CHECK_EQ(ibv_query_rt_values_ex(context, &values), 0);
    CHECK(values.raw_clock.tv_sec == 3 && values.raw_clock.tv_nsec == 4);
    for (int bit = 1; bit < 32; ++bit) {
        values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK | 1u << bit;
        CHECK_EQ(ibv_query_rt_values_ex(context, &values), EINVAL);
    }
}

/* ---- GIDs -------------------------------------------------------------------------------------
 */

static int type_of(uint8_t port_num, unsigned int index, unsigned int *type)
{
    int (*query)(struct ibv_context *, uint8_t, unsigned int, unsigned int *);
    void *found = dlvsym(RTLD_DEFAULT, "ibv_query_gid_type", "IBVERBS_PRIVATE_34");

    CHECK(found);
    memcpy(&query, &found, sizeof(query));
    return query(context, port_num, index, type);
}

/* One table of both ports, with entries of any size that is enough. */
static void the_table_has_the_gids_of_both_ports(void)
{
    enum { MOST = 300, LARGER = sizeof(struct ibv_gid_entry) + 8 };
    static uint8_t bytes[MOST * LARGER];
    struct ibv_gid_entry all[MOST], one, none = {0};
    ssize_t count = ibv_query_gid_table(context, all, MOST, 0);

    CHECK(count >= 4 && count < MOST);
    for (ssize_t i = 0; i < count; ++i) {
        bool last = i == count - 1;

        CHECK_EQ(all[i].port_num, last ? 2 : 1);
        CHECK_EQ(all[i].gid_index, last ? 0 : i);
        CHECK_EQ(all[i].gid_type, last ? IBV_GID_TYPE_IB : IBV_GID_TYPE_ROCE_V2);
        CHECK_EQ(ibv_query_gid_ex(context, all[i].port_num, all[i].gid_index, &one, 0), 0);
        CHECK_EQ(memcmp(&one, &all[i], sizeof(one)), 0);
    }
    for (ssize_t most = 0; most < count; ++most)
        CHECK_EQ(ibv_query_gid_table(context, all, (size_t)most, 0), -EINVAL);
    memset(bytes, 0xa5, sizeof(bytes));
    CHECK_EQ(_ibv_query_gid_table(context, (void *)bytes, MOST, 0, LARGER), count);
    for (ssize_t i = 0; i < count; ++i) {
        CHECK_EQ(memcmp(bytes + i * LARGER, &all[i], sizeof(one)), 0);
        CHECK_EQ(memcmp(bytes + i * LARGER + sizeof(one), &none, LARGER - sizeof(one)), 0);
    }
    CHECK_EQ(bytes[count * LARGER], 0xa5);
    CHECK_EQ(_ibv_query_gid_table(context, all, MOST, 0, sizeof(one) - 1), -EINVAL);
    CHECK_EQ(_ibv_query_gid_ex(context, 2, 0, &one, 0, sizeof(one) - 1), EINVAL);
    CHECK_EQ(_ibv_query_gid_ex(context, 2, 0, (void *)bytes, 0, LARGER), 0);
    CHECK_EQ(memcmp(bytes + sizeof(one), &none, LARGER - sizeof(one)), 0);
}

static void a_gid_that_is_none_is_refused_with_a_reason(void)
{
    char reason[256];
    struct ibv_gid_entry entries[256];
    ssize_t count = ibv_query_gid_table(context, entries, 256, 0) - 1; /* of the first port */
    unsigned int type = 7;
    union ibv_gid gid;

    CHECK_EQ(ibv_query_gid(context, 2, 256, &gid), -1);
    expect_why(EINVAL, "port 2 has no GID index 256: it has 1 entries (gid_tbl_len), and "
                       "`verbena devices` lists those in use");
    CHECK_EQ(type_of(3, 0, &type), -1);
    expect_why(EINVAL, "ports count from 1 and the device has 2: 3 is none");
    memset(&gid, 0xa5, sizeof(gid));
    CHECK_EQ(ibv_query_gid(context, 1, 255, &gid), 0); /* empty */
    CHECK(!gid.global.subnet_prefix && !gid.global.interface_id);
    errno = 0;
    CHECK_EQ(type_of(1, 255, &type), -1);
    CHECK(errno == ENODATA && type == 7);
    snprintf(reason, sizeof(reason),
             "GID index 255 is empty, as those beyond %zd are: the end of the table, for who "
             "looks through it; `verbena devices` lists those in use",
             count - 1);
    expect_why(ENODATA, reason);
    CHECK_EQ(type_of(1, 0, &type), 0);
    CHECK_EQ(type, 1); /* RoCE v2, as in sysfs */
    CHECK_EQ(type_of(2, 0, &type), 0);
    CHECK_EQ(type, 0);
}

/* ---- partitions -------------------------------------------------------------------------------
 */

static void each_port_has_its_partitions(void)
{
    static const uint16_t wanted[2][3] = {{0xffff, 0x8001, 0}, {0x8002, 0xffff, 0x7003}};
    static const char *const reason =
        "port %d has no P_Key index %d: ports count from 1 to 2, and each has 0 to 31 "
        "(pkey_tbl_len)";
    static const struct {
        uint8_t port_num;
        int index;
    } none[] = {{0, 0}, {3, 0}, {1, 32}, {2, 32}};
    __be16 pkey = 0;
    char why[256];

    for (uint8_t port = 1; port <= 2; ++port) {
        for (int index = 0; index < 32; ++index) {
            uint16_t key = index < 3 ? wanted[port - 1][index] : 0;

            CHECK_EQ(ibv_query_pkey(context, port, index, &pkey), 0);
            CHECK_EQ(be16toh(pkey), key);
            if (key)
                CHECK_EQ(ibv_get_pkey_index(context, port, pkey), index);
        }
        errno = 0;
        CHECK_EQ(ibv_get_pkey_index(context, port, htobe16(0x7fff)), -1);
        CHECK_EQ(errno, ENOENT);
    }
    for (size_t i = 0; i < sizeof(none) / sizeof(*none); ++i) {
        CHECK_EQ(ibv_query_pkey(context, none[i].port_num, none[i].index, &pkey), -1);
        CHECK_EQ(errno, EINVAL);
        snprintf(why, sizeof(why), reason, none[i].port_num, none[i].index);
        expect_why(EINVAL, why);
    }
    CHECK_EQ(ibv_query_pkey(context, 1, -1, &pkey), -1);
    CHECK_EQ(ibv_get_pkey_index(context, 3, htobe16(0xffff)), -1);
    CHECK_EQ(errno, EINVAL);
}

/* ---- violations -------------------------------------------------------------------------------
 */

static struct ibv_qp *datagram_qp(struct ibv_pd *pd, struct ibv_cq *cq, uint8_t port, uint16_t pkey)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_UD};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = port, .pkey_index = pkey, .qkey = 0x11};

    CHECK(qp);
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
             0);
    attr.qp_state = IBV_QPS_RTR;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    return qp;
}

static void send_datagram(struct ibv_qp *qp, const struct ibv_qp *to, uint8_t port, uint32_t qkey)
{
    struct ibv_ah_attr address = {.port_num = port, .dlid = LID, .is_global = port == 1};
    struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_wc wc;

    CHECK_EQ(ibv_query_gid(context, 1, 1, &address.grh.dgid), 0);
    address.grh.sgid_index = port == 1;
    wr.wr.ud.ah = ibv_create_ah(qp->pd, &address);
    wr.wr.ud.remote_qpn = to->qp_num;
    wr.wr.ud.remote_qkey = qkey;
    CHECK(wr.wr.ud.ah);
    CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
    while (ibv_poll_cq(qp->send_cq, 1, &wc) == 0)
        ;
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_destroy_ah(wr.wr.ud.ah), 0);
}

static void expect_violations(uint8_t port_num, uint32_t qkeys, uint32_t pkeys)
{
    struct ibv_port_attr port;

    CHECK_EQ(ibv_query_port(context, port_num, &port), 0);
    CHECK_EQ(port.qkey_viol_cntr, qkeys);
    CHECK_EQ(port.bad_pkey_cntr, pkeys);
}

/* Datagrams with a wrong Q_Key, and with a P_Key that the receiver does not have. */
static void each_port_counts_its_violations(void)
{
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
    struct ibv_qp *qp[2][2];

    CHECK(pd && cq);
    for (uint8_t port = 1; port <= 2; ++port)
        for (uint16_t i = 0; i < 2; ++i)
            qp[port - 1][i] = datagram_qp(pd, cq, port, i);
    send_datagram(qp[0][0], qp[0][0], 1, 0x12);
    expect_violations(1, 1, 0);
    expect_violations(2, 0, 0);
    send_datagram(qp[1][0], qp[1][0], 2, 0x12);
    send_datagram(qp[1][0], qp[1][0], 2, 0x13);
    send_datagram(qp[1][0], qp[1][1], 2, 0x11);
    expect_violations(1, 1, 0);
    expect_violations(2, 2, 1);
    for (int i = 0; i < 4; ++i)
        CHECK_EQ(ibv_destroy_qp(qp[i / 2][i % 2]), 0);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

/* ---- what the readers of a CQ say of a datagram -----------------------------------------------
 */

enum { SOURCE_BITS = 6, TARGET_BITS = 3, GRH = 40, LENGTH = 24 };

static uint8_t room[GRH + LENGTH];

static void send_by_lid(struct ibv_qp *qp, const struct ibv_qp *to, struct ibv_mr *mr)
{
    struct ibv_ah_attr address = {
        .port_num = 2, .dlid = LID + TARGET_BITS, .src_path_bits = SOURCE_BITS};
    struct ibv_sge sge = {(uintptr_t)room, LENGTH, mr->lkey};
    struct ibv_sge all = {(uintptr_t)room, sizeof(room), mr->lkey};
    struct ibv_recv_wr *bad_recv, recv = {.wr_id = 8, .sg_list = &all, .num_sge = 1};
    struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_SEND_WITH_IMM,
                                   .imm_data = htobe32(0x12345678),
                                   .sg_list = &sge,
                                   .num_sge = 1};

    CHECK_EQ(ibv_post_recv(qp, &recv, &bad_recv), 0);
    wr.wr.ud.ah = ibv_create_ah(qp->pd, &address);
    wr.wr.ud.remote_qpn = to->qp_num;
    wr.wr.ud.remote_qkey = 0x11;
    CHECK(wr.wr.ud.ah);
    CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
    CHECK_EQ(ibv_destroy_ah(wr.wr.ud.ah), 0);
}

/* Those of what was not asked for give 0; ibv_create_cq_ex has refused the flags of some. */
static void expect_no_more(struct ibv_cq_ex *cq)
{
    struct ibv_wc_tm_info tag = {~0ull, ~0u};

    CHECK_EQ(ibv_wc_read_completion_ts(cq), 0);
    CHECK_EQ(ibv_wc_read_completion_wallclock_ns(cq), 0);
    CHECK_EQ(ibv_wc_read_cvlan(cq), 0);
    CHECK_EQ(ibv_wc_read_flow_tag(cq), 0);
    ibv_wc_read_tm_info(cq, &tag);
    CHECK(tag.tag == 0 && tag.priv == 0);
}

static void a_datagram_is_read_as_it_is_polled(void)
{
    struct ibv_cq_init_attr_ex attr = {.cqe = 8, .wc_flags = IBV_WC_STANDARD_FLAGS};
    struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &attr);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_mr *mr = ibv_reg_mr(pd, room, sizeof(room), IBV_ACCESS_LOCAL_WRITE);
    struct ibv_qp *qp = datagram_qp(pd, ibv_cq_ex_to_cq(cq), 2, 0);
    struct ibv_poll_cq_attr poll = {0};
    struct ibv_wc wc;
    int got;

    CHECK(mr);
    for (int i = 0; i < 2; ++i) { /* first polled, then read */
        send_by_lid(qp, qp, mr);
        if (i)
            break;
        while (ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc) == 0)
            ;
    }
    while ((got = ibv_start_poll(cq, &poll)) == ENOENT)
        ;
    CHECK_EQ(got, 0);
    CHECK(cq->status == IBV_WC_SUCCESS && cq->wr_id == 8 && wc.wr_id == 8);
    CHECK(ibv_wc_read_opcode(cq) == IBV_WC_RECV && wc.opcode == IBV_WC_RECV);
    CHECK(ibv_wc_read_byte_len(cq) == sizeof(room) && wc.byte_len == sizeof(room));
    CHECK(ibv_wc_read_imm_data(cq) == htobe32(0x12345678) && wc.imm_data == htobe32(0x12345678));
    CHECK(ibv_wc_read_qp_num(cq) == qp->qp_num && wc.qp_num == qp->qp_num);
    CHECK(ibv_wc_read_src_qp(cq) == qp->qp_num && wc.src_qp == qp->qp_num);
    CHECK(ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_IMM && wc.wc_flags == IBV_WC_WITH_IMM);
    CHECK(ibv_wc_read_slid(cq) == LID + SOURCE_BITS && wc.slid == LID + SOURCE_BITS);
    CHECK_EQ(ibv_wc_read_sl(cq), wc.sl);
    CHECK(ibv_wc_read_dlid_path_bits(cq) == TARGET_BITS && wc.dlid_path_bits == TARGET_BITS);
    CHECK_EQ(ibv_wc_read_vendor_err(cq), 0);
    expect_no_more(cq);
    ibv_end_poll(cq);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

/* ---- in a forked child ------------------------------------------------------------------------
 */

static void expect_nothing_in_the_child(void)
{
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    struct ibv_device_attr_ex device;
    struct ibv_gid_entry entry;
    struct ibv_port_attr port;
    union ibv_gid gid;
    uint64_t speed;
    unsigned type;
    __be16 pkey;

    CHECK_EQ(ibv_query_device_ex(context, NULL, &device), 0);
    CHECK(device.phys_port_cnt_ex == 1 && device.orig_attr.phys_port_cnt == 1);
    CHECK_EQ(ibv_query_rt_values_ex(context, &values), ENODEV);
    CHECK_EQ(ibv_query_port(context, 1, &port), ENODEV);
    CHECK_EQ(ibv_query_port_speed(context, 1, &speed), ENODEV);
    CHECK_EQ(ibv_query_gid_ex(context, 1, 0, &entry, 0), ENODEV);
    CHECK_EQ(ibv_query_gid_table(context, &entry, 1, 0), -ENODEV);
    errno = 0;
    CHECK(ibv_query_gid(context, 1, 0, &gid) == -1 && errno == ENODEV);
    errno = 0;
    CHECK(type_of(1, 0, &type) == -1 && errno == ENODEV);
    errno = 0;
    CHECK(ibv_query_pkey(context, 1, 0, &pkey) == -1 && errno == ENODEV);
    errno = 0;
    CHECK(ibv_get_pkey_index(context, 1, htobe16(0xffff)) == -1 && errno == ENODEV);
}

static void a_forked_child_gets_no_answer(void)
{
    pid_t child = fork();
    int status;

    CHECK(child >= 0);
    if (child == 0) {
        expect_nothing_in_the_child();
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

/* The records are what Python makes of a VERBENA_PORTS that asks for this. */
static void ask_for_two_ports(void)
{
    CHECK_EQ(unsetenv("VERBENA_CARRIER"), 0);
    CHECK_EQ(setenv("VERBENA_PORT_RECORDS",
                    "1 1 2 0 0 0 2 ffff 8001 lo,1 18 3 3 8002 ffff 7003 ,||||", 1),
             0);
}

int main(void)
{
    struct ibv_gid_entry entry;

    alarm(60);
    ask_for_two_ports();
    context = pair_open_device();
    if (ibv_query_gid_ex(context, 1, 2, &entry, 0)) {
        printf("loopback has no address; `ip link set lo up` gives it one\n");
        return 77;
    }
    RUN(the_device_counts_its_ports);
    RUN(the_answer_has_the_callers_size);
    RUN(the_ports_are_as_they_were_asked_for);
    RUN(a_port_that_is_none_is_refused_with_a_reason);
    RUN(the_clock_is_told_if_it_is_asked_for);
    RUN(the_table_has_the_gids_of_both_ports);
    RUN(a_gid_that_is_none_is_refused_with_a_reason);
    RUN(each_port_has_its_partitions);
    RUN(each_port_counts_its_violations);
    RUN(a_datagram_is_read_as_it_is_polled);
    RUN(a_forked_child_gets_no_answer);
    CHECK_EQ(ibv_close_device(context), 0);
    return 0;
}
