// SPDX-License-Identifier: Apache-2.0
#include "common.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void check(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- the device ---------------------------------------------------------------------------- */

static struct ibv_context *open_first_device(void)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    struct ibv_context *context;

    check(devices && devices[0], "no RDMA device: start me by `verbena run`");
    context = ibv_open_device(devices[0]);
    check(context, "ibv_open_device");
    ibv_free_device_list(devices);
    return context;
}

/* From INIT on, receives can be posted. A UD queue pair has a key in place of rights. */
static void to_init(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = PORT,
        .qkey = QKEY,
        .qp_access_flags =
            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
    };
    int extra = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;

    check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | extra) == 0,
          "ibv_modify_qp to INIT");
}

struct side open_side(enum ibv_qp_type type, size_t size, int access, bool with_channel)
{
    struct side side = {.context = open_first_device()};
    struct ibv_comp_channel *channel = NULL;
    struct ibv_qp_init_attr wanted = {
        .qp_type = type,
        .sq_sig_all = 1, /* every request has a completion */
        .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
    };

    side.pd = ibv_alloc_pd(side.context);
    check(side.pd, "ibv_alloc_pd");
    check(posix_memalign(&side.memory, 4096, size) == 0, "posix_memalign");
    memset(side.memory, 0, size);
    side.mr = ibv_reg_mr(side.pd, side.memory, size, IBV_ACCESS_LOCAL_WRITE | access);
    check(side.mr, "ibv_reg_mr");
    if (with_channel) {
        channel = ibv_create_comp_channel(side.context);
        check(channel, "ibv_create_comp_channel");
    }
    side.cq = ibv_create_cq(side.context, 32, NULL, channel, 0);
    check(side.cq, "ibv_create_cq");
    wanted.send_cq = wanted.recv_cq = side.cq;
    side.qp = ibv_create_qp(side.pd, &wanted);
    check(side.qp, "ibv_create_qp");
    to_init(side.qp);
    return side;
}

void close_side(struct side *side)
{
    struct ibv_comp_channel *channel = side->cq->channel;

    check(ibv_destroy_qp(side->qp) == 0, "ibv_destroy_qp");
    check(ibv_destroy_cq(side->cq) == 0, "ibv_destroy_cq");
    if (channel)
        check(ibv_destroy_comp_channel(channel) == 0, "ibv_destroy_comp_channel");
    check(ibv_dereg_mr(side->mr) == 0, "ibv_dereg_mr");
    check(ibv_dealloc_pd(side->pd) == 0, "ibv_dealloc_pd");
    check(ibv_close_device(side->context) == 0, "ibv_close_device");
    free(side->memory);
    close(side->socket);
}

/* ---- meeting the peer ---------------------------------------------------------------------- */

static int accept_one(void)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(TCP_PORT)};
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1, accepted;

    check(listener >= 0, "socket");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    check(bind(listener, (struct sockaddr *)&here, sizeof(here)) == 0, "bind");
    check(listen(listener, 1) == 0, "listen");
    accepted = accept(listener, NULL, NULL);
    check(accepted >= 0, "accept");
    close(listener);
    return accepted;
}

static int connect_to(const char *server)
{
    struct addrinfo wanted = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    char service[8];
    int made;

    snprintf(service, sizeof(service), "%d", TCP_PORT);
    check(getaddrinfo(server, service, &wanted, &found) == 0, server);
    made = socket(AF_INET, SOCK_STREAM, 0);
    check(made >= 0 && connect(made, found->ai_addr, found->ai_addrlen) == 0, "connect");
    freeaddrinfo(found);
    return made;
}

static void exchange(int socket, const void *mine, void *theirs, size_t n)
{
    check(send(socket, mine, n, 0) == (ssize_t)n, "send");
    check(recv(socket, theirs, n, MSG_WAITALL) == (ssize_t)n, "recv: the peer has ended");
}

void meet(struct side *side, const char *server)
{
    struct address mine = {
        .qp_num = side->qp->qp_num,
        .psn = 0,
        .addr = (uintptr_t)side->memory,
        .rkey = side->mr->rkey,
    };

    check(ibv_query_gid(side->context, PORT, GID_INDEX, &mine.gid) == 0, "ibv_query_gid");
    side->socket = server ? connect_to(server) : accept_one();
    exchange(side->socket, &mine, &side->peer, sizeof(mine));
}

void rendezvous(struct side *side)
{
    char mine = 0, theirs;

    exchange(side->socket, &mine, &theirs, 1);
}

/* ---- the queue pair ------------------------------------------------------------------------ */

/* Ready to receive: says who the peer is. */
static void to_rtr(struct ibv_qp *qp, const struct address *peer)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer->qp_num,
        .rq_psn = peer->psn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1,
                    .port_num = PORT,
                    .grh = {.dgid = peer->gid, .sgid_index = GID_INDEX, .hop_limit = 64}},
    };

    check(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
          "ibv_modify_qp to RTR");
}

/* Ready to send: how long to wait for an acknowledgement, and how often to try again. */
static void to_rts(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS,
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .max_rd_atomic = 1,
    };

    check(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                            IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
          "ibv_modify_qp to RTS");
}

void connect_rc(struct side *side)
{
    to_rtr(side->qp, &side->peer);
    to_rts(side->qp);
    rendezvous(side); /* nothing is sent before the peer can receive */
}

struct ibv_wc completion(struct side *side)
{
    struct ibv_wc wc;
    int n;

    while ((n = ibv_poll_cq(side->cq, 1, &wc)) == 0)
        ;
    check(n == 1, "ibv_poll_cq");
    if (wc.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "a request failed: %s\n", ibv_wc_status_str(wc.status));
        exit(1);
    }
    return wc;
}
