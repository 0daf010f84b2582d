// SPDX-License-Identifier: Apache-2.0
/*
 * A call that succeeds leaves errno as it was. C promises nothing of the kind, but programs print
 * errno where a read ended early, as ibv_rc_pingpong does.
 */
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pair.h"

enum { MARK = 12345, TURNS = 20000 };

static struct pair pair;
static int changed;

static void note(const char *call)
{
    if (errno == MARK)
        return;
    if (++changed < 20)
        printf("%s leaves %s\n", call, strerror(errno));
}

/* Of a call with a value, which the caller checks; and of one without. */
#define KEEPS(call)                                                                                \
    __extension__({                                                                                \
        errno = MARK;                                                                              \
        __auto_type value_ = (call);                                                               \
        note(#call);                                                                               \
        value_;                                                                                    \
    })
#define KEEPS_VOID(call)                                                                           \
    do {                                                                                           \
        errno = MARK;                                                                              \
        call;                                                                                      \
        note(#call);                                                                               \
    } while (0)

static void opening(void)
{
    int count;
    struct ibv_device **list = KEEPS(ibv_get_device_list(&count));

    CHECK(list && count > 0);
    CHECK(KEEPS(ibv_get_device_name(list[0])));
    CHECK(KEEPS(ibv_get_device_guid(list[0])) != 0);
    KEEPS(ibv_get_device_index(list[0]));
    CHECK_EQ(KEEPS(ibv_fork_init()), 0);
    pair.context = KEEPS(ibv_open_device(list[0]));
    CHECK(pair.context);
    KEEPS_VOID(ibv_free_device_list(list));
}

static void asking(void)
{
    struct ibv_device_attr device;
    struct ibv_device_attr_ex device_ex;
    struct ibv_port_attr port;
    struct ibv_gid_entry entries[16];
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    union ibv_gid gid;
    __be16 pkey;

    CHECK_EQ(KEEPS(ibv_query_device(pair.context, &device)), 0);
    CHECK_EQ(KEEPS(ibv_query_device_ex(pair.context, NULL, &device_ex)), 0);
    CHECK_EQ(KEEPS(ibv_query_port(pair.context, 1, &port)), 0);
    CHECK_EQ(KEEPS(ibv_query_gid(pair.context, 1, 0, &gid)), 0);
    CHECK(KEEPS(ibv_query_gid_table(pair.context, entries, 16, 0)) > 0);
    CHECK_EQ(KEEPS(ibv_query_gid_ex(pair.context, 1, 1, entries, 0)), 0);
    CHECK_EQ(KEEPS(ibv_query_pkey(pair.context, 1, 0, &pkey)), 0);
    CHECK_EQ(KEEPS(ibv_get_pkey_index(pair.context, 1, pkey)), 0);
    CHECK_EQ(KEEPS(ibv_query_rt_values_ex(pair.context, &values)), 0);
}

static void regions(void)
{
    void *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_mr *mr = KEEPS(ibv_reg_mr(pair.pd, page, 8192, IBV_ACCESS_LOCAL_WRITE));
    struct ibv_mw *mw;

    CHECK(mr);
    CHECK_EQ(KEEPS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, pair.pd, NULL, 0, 0)), 0);
    CHECK_EQ(KEEPS(ibv_dereg_mr(mr)), 0);
    mr = KEEPS(ibv_reg_mr_iova(pair.pd, page, 8192, 4096, IBV_ACCESS_LOCAL_WRITE));
    CHECK(mr);
    CHECK_EQ(KEEPS(ibv_dereg_mr(mr)), 0);
    mw = KEEPS(ibv_alloc_mw(pair.pd, IBV_MW_TYPE_2));
    CHECK(mw);
    CHECK_EQ(KEEPS(ibv_dealloc_mw(mw)), 0);
    munmap(page, 8192);
}

static void receive_queues(void)
{
    struct ibv_srq_init_attr wanted = {.attr = {8, 1, 0}};
    struct ibv_srq *srq = KEEPS(ibv_create_srq(pair.pd, &wanted));
    struct ibv_sge sge = pair_sge(&pair);
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    struct ibv_srq_attr attr = {.srq_limit = 1};

    CHECK(srq);
    CHECK_EQ(KEEPS(ibv_post_srq_recv(srq, &wr, &bad)), 0);
    CHECK_EQ(KEEPS(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT)), 0);
    CHECK_EQ(KEEPS(ibv_query_srq(srq, &attr)), 0);
    CHECK_EQ(KEEPS(ibv_destroy_srq(srq)), 0);
}

static void addresses_and_groups(void)
{
    struct ibv_ah_attr address = pair_address(&pair);
    struct ibv_ah *ah = KEEPS(ibv_create_ah(pair.pd, &address));
    struct ibv_qp *ud = KEEPS(pair_qp(&pair, IBV_QPT_UD, IBV_QP_EX_WITH_SEND));
    union ibv_gid group = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 239, [13] = 1, [15] = 9}};

    CHECK(ah && ud);
    CHECK_EQ(KEEPS(ibv_attach_mcast(ud, &group, 0)), 0);
    CHECK_EQ(KEEPS(ibv_detach_mcast(ud, &group, 0)), 0);
    CHECK_EQ(KEEPS(ibv_destroy_qp(ud)), 0);
    CHECK_EQ(KEEPS(ibv_destroy_ah(ah)), 0);
}

/* Of the CQ, and by the thread's sleep on its channel. */
static void complete_one(struct ibv_cq *cq)
{
    struct ibv_wc wc;

    for (int i = 0; i < TURNS; ++i) {
        int count = KEEPS(ibv_poll_cq(cq, 1, &wc));

        if (count) {
            CHECK_EQ(count, 1);
            CHECK_EQ(wc.status, IBV_WC_SUCCESS);
            return;
        }
        usleep(100);
    }
    CHECK(!"a completion");
}

static void post_and_poll(struct ibv_qp *qp, struct ibv_cq *cq)
{
    struct ibv_sge sge = pair_sge(&pair);
    struct ibv_send_wr *bad, wr = pair_write(&pair, &sge);
    struct ibv_recv_wr *bad_recv, recv = {.sg_list = &sge, .num_sge = 1};
    struct ibv_wc wc;

    for (int i = 0; i < 1000; ++i) /* the port looks for packets, and finds none */
        CHECK_EQ(KEEPS(ibv_poll_cq(cq, 1, &wc)), 0);
    CHECK_EQ(KEEPS(ibv_post_recv(qp, &recv, &bad_recv)), 0);
    for (int i = 0; i < 20; ++i) {
        CHECK_EQ(KEEPS(ibv_post_send(qp, &wr, &bad)), 0);
        complete_one(cq);
    }
}

static void await_event(struct ibv_qp *qp, struct ibv_comp_channel *channel, struct ibv_cq *cq)
{
    struct ibv_sge sge = pair_sge(&pair);
    struct ibv_send_wr *bad, wr = pair_write(&pair, &sge);
    struct ibv_cq *from;
    void *context;

    CHECK_EQ(KEEPS(ibv_req_notify_cq(cq, 0)), 0);
    CHECK_EQ(KEEPS(ibv_post_send(qp, &wr, &bad)), 0);
    CHECK_EQ(KEEPS(ibv_get_cq_event(channel, &from, &context)), 0);
    KEEPS_VOID(ibv_ack_cq_events(from, 1));
    complete_one(cq);
}

static void await_flush(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_qp_init_attr init;

    CHECK_EQ(KEEPS(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init)), 0);
    attr.qp_state = IBV_QPS_ERR;
    CHECK_EQ(KEEPS(ibv_modify_qp(qp, &attr, IBV_QP_STATE)), 0);
    attr.qp_state = IBV_QPS_RESET;
    CHECK_EQ(KEEPS(ibv_modify_qp(qp, &attr, IBV_QP_STATE)), 0);
}

static void connections(void)
{
    struct ibv_comp_channel *channel = KEEPS(ibv_create_comp_channel(pair.context));
    struct ibv_cq *cq = KEEPS(ibv_create_cq(pair.context, 64, NULL, channel, 0));
    struct ibv_qp *qp = pair_qp_on(&pair, cq), *peer = pair_qp_on(&pair, cq);

    CHECK(channel && cq);
    CHECK_EQ(KEEPS(ibv_resize_cq(cq, 100)), 0);
    KEEPS_VOID(pair_connect(&pair, qp, peer->qp_num));
    KEEPS_VOID(pair_connect(&pair, peer, qp->qp_num));
    post_and_poll(qp, cq);
    await_event(qp, channel, cq);
    await_flush(qp);
    CHECK_EQ(KEEPS(ibv_destroy_qp(qp)), 0);
    CHECK_EQ(KEEPS(ibv_destroy_qp(peer)), 0);
    CHECK_EQ(KEEPS(ibv_destroy_cq(cq)), 0);
    CHECK_EQ(KEEPS(ibv_destroy_comp_channel(channel)), 0);
}

static void domains(void)
{
    struct ibv_td *td = KEEPS(ibv_alloc_td(pair.context, &(struct ibv_td_init_attr){0}));
    struct ibv_xrcd_init_attr wanted = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = 0100};
    struct ibv_xrcd *xrcd = KEEPS(ibv_open_xrcd(pair.context, &wanted));

    CHECK(td && xrcd);
    CHECK_EQ(KEEPS(ibv_close_xrcd(xrcd)), 0);
    CHECK_EQ(KEEPS(ibv_dealloc_td(td)), 0);
}

static void ending(void)
{
    CHECK_EQ(KEEPS(ibv_dereg_mr(pair.mr)), 0);
    CHECK_EQ(KEEPS(ibv_destroy_cq(ibv_cq_ex_to_cq(pair.cq))), 0);
    CHECK_EQ(KEEPS(ibv_dealloc_pd(pair.pd)), 0);
    CHECK_EQ(KEEPS(ibv_close_device(pair.context)), 0);
}

int main(void)
{
    struct ibv_cq_init_attr_ex cq = {.cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS};

    alarm(60);
    opening();
    pair.pd = KEEPS(ibv_alloc_pd(pair.context));
    pair.cq = KEEPS(ibv_create_cq_ex(pair.context, &cq));
    pair.mr = KEEPS(ibv_reg_mr(pair.pd, pair.memory, PAIR_BYTES,
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    CHECK(pair.pd && pair.cq && pair.mr);
    asking();
    regions();
    receive_queues();
    addresses_and_groups();
    domains();
    connections();
    ending();
    CHECK_EQ(changed, 0);
    return 0;
}
