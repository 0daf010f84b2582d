// SPDX-License-Identifier: Apache-2.0
#include "common.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

void check(bool good, const char *what)
{
    if (!good)
        fail("%s: %s", what, strerror(errno));
}

void check_result(int error, const char *what)
{
    if (error)
        fail("%s: %s", what, strerror(error));
}

/* ---- the device ---------------------------------------------------------------------------- */

static struct ibv_context *open_first_device(void)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    struct ibv_context *context;

    if (!devices || !devices[0])
        fail("no RDMA device: start me by `verbena run`");
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

    check_result(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | extra),
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
    check_result(posix_memalign(&side.memory, 4096, size), "posix_memalign");
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

    check_result(ibv_destroy_qp(side->qp), "ibv_destroy_qp");
    check_result(ibv_destroy_cq(side->cq), "ibv_destroy_cq");
    if (channel)
        check_result(ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
    check_result(ibv_dereg_mr(side->mr), "ibv_dereg_mr");
    check_result(ibv_dealloc_pd(side->pd), "ibv_dealloc_pd");
    check(ibv_close_device(side->context) == 0, "ibv_close_device");
    free(side->memory);
    close(side->socket);
}

/* ---- exchanging addresses ------------------------------------------------------------------ */

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
    int made, error;

    snprintf(service, sizeof(service), "%d", TCP_PORT);
    error = getaddrinfo(server, service, &wanted, &found);
    if (error)
        fail("%s: %s", server, gai_strerror(error));
    made = socket(AF_INET, SOCK_STREAM, 0);
    check(made >= 0 && connect(made, found->ai_addr, found->ai_addrlen) == 0, "connect");
    freeaddrinfo(found);
    return made;
}

static void exchange(int socket, const void *mine, void *theirs, size_t n)
{
    ssize_t got;

    check(send(socket, mine, n, 0) == (ssize_t)n, "send");
    got = recv(socket, theirs, n, MSG_WAITALL);
    check(got >= 0, "recv");
    if ((size_t)got < n)
        fail("the peer has ended");
}

/* The GID of an IPv4 address: ::ffff:a.b.c.d. */
static union ibv_gid mapped(struct in_addr address)
{
    union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};

    memcpy(gid.raw + 12, &address, sizeof(address));
    return gid;
}

/* How well the peer is reached from this GID: best from the address that has reached it by TCP, and
 * hardly from a link-local one. RoCE v1 has no IP addresses and passes no router. */
static int merit(const struct ibv_gid_entry *entry, const union ibv_gid *ours)
{
    if (entry->port_num != PORT)
        return -1;
    if (entry->gid_type != IBV_GID_TYPE_ROCE_V2)
        return 0;
    if (memcmp(&entry->gid, ours, sizeof(*ours)) == 0)
        return 3;
    return entry->gid.raw[0] == 0xfe ? 1 : 2;
}

/* Which entry of the port's GID table to use differs from host to host, so it is looked up. */
static struct ibv_gid_entry choose_gid(struct side *side)
{
    struct ibv_gid_entry entries[GIDS];
    ssize_t count = ibv_query_gid_table(side->context, entries, GIDS, 0), best = 0;
    struct sockaddr_in here;
    socklen_t length = sizeof(here);
    union ibv_gid ours;

    if (count <= 0)
        fail("the device has no GID: has an interface of this host an address?");
    check(getsockname(side->socket, (struct sockaddr *)&here, &length) == 0, "getsockname");
    ours = mapped(here.sin_addr);
    for (ssize_t i = 1; i < count; ++i)
        if (merit(&entries[i], &ours) > merit(&entries[best], &ours))
            best = i;
    return entries[best];
}

void meet(struct side *side, const char *server)
{
    struct address mine = {
        .qp_num = side->qp->qp_num,
        .psn = 0,
        .addr = (uintptr_t)side->memory,
        .rkey = side->mr->rkey,
    };

    struct ibv_gid_entry chosen;

    side->socket = server ? connect_to(server) : accept_one();
    chosen = choose_gid(side);
    side->gid_index = (uint8_t)chosen.gid_index;
    mine.gid = chosen.gid;
    exchange(side->socket, &mine, &side->peer, sizeof(mine));
}

void rendezvous(struct side *side)
{
    char mine = 0, theirs;

    exchange(side->socket, &mine, &theirs, 1);
}

/* ---- the queue pair ------------------------------------------------------------------------ */

/* Ready to receive: says who the peer is. */
static void to_rtr(struct side *side)
{
    const struct address *peer = &side->peer;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer->qp_num,
        .rq_psn = peer->psn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1,
                    .port_num = PORT,
                    .grh = {.dgid = peer->gid, .sgid_index = side->gid_index, .hop_limit = 64}},
    };
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

    check_result(ibv_modify_qp(side->qp, &attr, mask), "ibv_modify_qp to RTR");
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
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
               IBV_QP_MAX_QP_RD_ATOMIC;

    check_result(ibv_modify_qp(qp, &attr, mask), "ibv_modify_qp to RTS");
}

void connect_rc(struct side *side)
{
    to_rtr(side);
    to_rts(side->qp);
    rendezvous(side); /* nothing is sent before the peer can receive */
}

bool poll_once(struct side *side, struct ibv_wc *wc)
{
    int n = ibv_poll_cq(side->cq, 1, wc);

    if (n < 0)
        fail("ibv_poll_cq: %d: the CQ is in error, or closed", n); /* errno is not set */
    if (n == 1 && wc->status != IBV_WC_SUCCESS)
        fail("a request failed: %s", ibv_wc_status_str(wc->status));
    return n == 1;
}

struct ibv_wc completion(struct side *side)
{
    struct ibv_wc wc;

    while (!poll_once(side, &wc))
        ;
    return wc;
}
