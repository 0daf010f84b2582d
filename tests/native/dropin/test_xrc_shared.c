// SPDX-License-Identifier: Apache-2.0
/*
 * An XRC domain that three processes share: this one sends, `keeper` has the target QPs, and
 * `taker` the SRQs that the requests name.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

enum { BYTES = 100000, WR = 8, TARGETS = 64, DEATHS = 30 };

static const char *path;

/* ---- what the processes tell each other ---- */

enum command {
    NEW_TARGET,   /* keeper: a QP for the sender with this number; answers with its own */
    TARGET_STATE, /* keeper: of the one with this number */
    NEW_SRQ,      /* taker: in the shared domain (1), or another (0); answers with its number */
    POST,         /* taker: a receive of that many bytes */
    RECEIVE,      /* taker: answers with the next completion */
    COUNT,        /* taker: how many completions there are, all good */
    DROP_SRQ,     /* taker */
    NEW_SENDER,   /* another sender: a QP; answers with its number */
    CONNECT,      /* …to the target QP of that number */
    SEND_ON,      /* …sends to the SRQ of that number until it is killed, and answers nothing */
};

struct message {
    enum command command;
    uint32_t number;
    uint32_t status, qp_num, byte_len;
    uint8_t first, last; /* of the bytes received */
};

struct process {
    pid_t pid;
    int socket;
};

static void tell(const struct process *process, enum command command, uint32_t number)
{
    struct message message = {.command = command, .number = number};

    CHECK_EQ(write(process->socket, &message, sizeof(message)), sizeof(message));
}

static struct message ask(const struct process *process, enum command command, uint32_t number)
{
    struct message message;

    tell(process, command, number);
    CHECK_EQ(read(process->socket, &message, sizeof(message)), sizeof(message));
    return message;
}

/* ---- a process ---- */

struct own {
    struct pair pair; /* device, domain, CQ; its QPs are not used */
    struct ibv_xrcd *xrcd;
    struct ibv_srq *srq;
    uint8_t *memory;
    struct ibv_mr *mr;
    struct ibv_qp *sender;
    struct ibv_qp *target[TARGETS];
    int targets;
};

static struct own own;

static struct ibv_xrcd *open_domain(int fd)
{
    struct ibv_xrcd_init_attr attr = {.comp_mask =
                                          IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                      .fd = fd,
                                      .oflags = O_CREAT};
    struct ibv_xrcd *xrcd = ibv_open_xrcd(own.pair.context, &attr);

    CHECK(xrcd);
    return xrcd;
}

static void open_own(void)
{
    int fd = open(path, O_RDONLY);

    CHECK(fd >= 0);
    pair_open(&own.pair);
    own.memory = calloc(1, BYTES);
    own.mr = ibv_reg_mr(own.pair.pd, own.memory, BYTES,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(own.mr);
    own.xrcd = open_domain(fd);
    close(fd);
}

static uint32_t new_target(uint32_t sender)
{
    struct ibv_qp_init_attr_ex attr = {
        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = own.xrcd};
    struct ibv_qp *made = ibv_create_qp_ex(own.pair.context, &attr);

    CHECK(made && own.targets < TARGETS);
    pair_connect(&own.pair, made, sender);
    own.target[own.targets++] = made;
    return made->qp_num;
}

static uint32_t state_of(uint32_t qp_num)
{
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;

    for (int i = 0; i < own.targets; ++i)
        if (own.target[i]->qp_num == qp_num) {
            CHECK_EQ(ibv_query_qp(own.target[i], &attr, IBV_QP_STATE, &init), 0);
            return attr.qp_state;
        }
    return UINT32_MAX;
}

static uint32_t new_srq(bool shared)
{
    struct ibv_srq_init_attr_ex attr = {
        .attr = {.max_wr = WR, .max_sge = 1},
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                     IBV_SRQ_INIT_ATTR_CQ,
        .srq_type = IBV_SRQT_XRC,
        .pd = own.pair.pd,
        .xrcd = own.xrcd,
        .cq = ibv_cq_ex_to_cq(own.pair.cq),
    };
    FILE *file = shared ? NULL : tmpfile();
    uint32_t number;

    if (file) {
        attr.xrcd = open_domain(fileno(file));
        fclose(file);
    }
    own.srq = ibv_create_srq_ex(own.pair.context, &attr);
    CHECK(own.srq);
    CHECK_EQ(ibv_get_srq_num(own.srq, &number), 0);
    return number;
}

static void post(uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)own.memory, length, own.mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

    CHECK_EQ(ibv_post_srq_recv(own.srq, &wr, &bad), 0);
}

static void receive(struct message *answer)
{
    struct ibv_wc wc;

    pair_poll(&own.pair, &wc);
    answer->status = wc.status;
    answer->qp_num = wc.qp_num;
    answer->byte_len = wc.byte_len;
    if (wc.status == IBV_WC_SUCCESS && wc.byte_len) {
        answer->first = own.memory[0];
        answer->last = own.memory[wc.byte_len - 1];
    }
}

static uint32_t count_received(void)
{
    uint32_t count = 0;
    struct ibv_wc wc;

    while (ibv_poll_cq(ibv_cq_ex_to_cq(own.pair.cq), 1, &wc) == 1) {
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        ++count;
    }
    return count;
}

static void post_send(struct ibv_qp *qp, uint32_t srq, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)own.memory, length, own.mr->lkey};
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .qp_type.xrc.remote_srqn = srq};
    struct ibv_send_wr *bad;

    CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
}

static uint32_t new_sender_here(void)
{
    own.sender = pair_qp(&own.pair, IBV_QPT_XRC_SEND, IBV_QP_EX_WITH_SEND);
    CHECK(own.sender);
    return own.sender->qp_num;
}

static void send_on(uint32_t srq)
{
    for (;;) {
        struct ibv_wc wc;

        post_send(own.sender, srq, BYTES);
        pair_poll(&own.pair, &wc);
    }
}

static void obey(struct message *message)
{
    switch (message->command) {
    case NEW_TARGET:
        message->number = new_target(message->number);
        break;
    case TARGET_STATE:
        message->number = state_of(message->number);
        break;
    case NEW_SRQ:
        message->number = new_srq(message->number);
        break;
    case POST:
        post(message->number);
        break;
    case RECEIVE:
        receive(message);
        break;
    case COUNT:
        message->number = count_received();
        break;
    case DROP_SRQ:
        CHECK_EQ(ibv_destroy_srq(own.srq), 0);
        break;
    case NEW_SENDER:
        message->number = new_sender_here();
        break;
    case CONNECT:
        pair_connect(&own.pair, own.sender, message->number);
        break;
    case SEND_ON:
        send_on(message->number);
    }
}

static struct process start(void)
{
    struct process made;
    struct message message;
    int ends[2];

    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    made.pid = fork();
    CHECK(made.pid >= 0);
    made.socket = ends[0];
    if (made.pid) {
        close(ends[1]);
        return made;
    }
    close(ends[0]);
    open_own();
    while (read(ends[1], &message, sizeof(message)) == sizeof(message)) {
        obey(&message);
        CHECK_EQ(write(ends[1], &message, sizeof(message)), sizeof(message));
    }
    exit(0); /* with all that is open */
}

static void end(struct process *process)
{
    int status;

    close(process->socket);
    CHECK_EQ(waitpid(process->pid, &status, 0), process->pid);
    CHECK_EQ(status, 0);
}

/* ---- the sender ---- */

static struct process keeper, taker;

struct sender {
    struct ibv_qp *qp;
    uint32_t target;
};

static struct sender new_sender(void)
{
    struct sender made = {.qp = pair_qp(&own.pair, IBV_QPT_XRC_SEND, IBV_QP_EX_WITH_SEND)};

    CHECK(made.qp);
    made.target = ask(&keeper, NEW_TARGET, made.qp->qp_num).number;
    pair_connect(&own.pair, made.qp, made.target);
    return made;
}

static void send_to(const struct sender *sender, uint32_t srq, uint32_t length)
{
    post_send(sender->qp, srq, length);
}

static enum ibv_wc_status sent(void)
{
    struct ibv_wc wc;

    pair_poll(&own.pair, &wc);
    return wc.status;
}

static void arrives(const struct sender *sender, uint32_t srq, uint32_t length)
{
    struct message got;

    own.memory[0] = (uint8_t)(length + sender->target);
    own.memory[length - 1] = (uint8_t)(3 * length);
    ask(&taker, POST, BYTES);
    send_to(sender, srq, length);
    CHECK_EQ(sent(), IBV_WC_SUCCESS);
    got = ask(&taker, RECEIVE, 0);
    CHECK_EQ(got.status, IBV_WC_SUCCESS);
    CHECK_EQ(got.qp_num, sender->target);
    CHECK_EQ(got.byte_len, length);
    CHECK_EQ(got.first, own.memory[0]);
    CHECK_EQ(got.last, own.memory[length - 1]);
}

static void failed(const struct sender *sender, enum ibv_wc_status status)
{
    CHECK_EQ(sent(), status);
    CHECK_EQ(ask(&keeper, TARGET_STATE, sender->target).number, IBV_QPS_ERR);
}

static void requests_reach_the_srq_of_a_third_process(void)
{
    uint32_t srq = ask(&taker, NEW_SRQ, true).number;
    struct sender a = new_sender(), b = new_sender();

    for (uint32_t length = 2; length <= BYTES; length *= 7) {
        arrives(&a, srq, length);
        arrives(&b, srq, length + 1);
    }
    ask(&taker, DROP_SRQ, 0);
}

static void the_receiver_is_waited_for(void)
{
    uint32_t srq = ask(&taker, NEW_SRQ, true).number;
    struct sender sender = new_sender();
    struct ibv_wc wc;

    send_to(&sender, srq, 10);
    for (int i = 0; i < 1000; ++i)
        CHECK_EQ(ibv_poll_cq(ibv_cq_ex_to_cq(own.pair.cq), 1, &wc), 0);
    ask(&taker, POST, BYTES);
    CHECK_EQ(sent(), IBV_WC_SUCCESS);
    CHECK_EQ(ask(&taker, RECEIVE, 0).byte_len, 10);
    ask(&taker, DROP_SRQ, 0);
}

/* Both ends of the connection fail; the SRQ serves others. */
static void what_does_not_fit_fails_the_target(void)
{
    uint32_t srq = ask(&taker, NEW_SRQ, true).number;
    struct sender sender = new_sender(), other = new_sender();
    struct message got;

    ask(&taker, POST, 100);
    send_to(&sender, srq, 101);
    failed(&sender, IBV_WC_REM_INV_REQ_ERR);
    got = ask(&taker, RECEIVE, 0);
    CHECK_EQ(got.status, IBV_WC_LOC_LEN_ERR);
    CHECK_EQ(got.qp_num, sender.target);
    arrives(&other, srq, 5000);
    ask(&taker, DROP_SRQ, 0);
}

static void another_domain_is_out_of_reach(void)
{
    uint32_t srq = ask(&taker, NEW_SRQ, false).number;
    struct sender sender = new_sender();

    ask(&taker, POST, BYTES);
    send_to(&sender, srq, 10);
    failed(&sender, IBV_WC_REM_INV_REQ_ERR);
    ask(&taker, DROP_SRQ, 0);
}

static void kill_process(const struct process *process)
{
    kill(process->pid, SIGKILL);
    CHECK_EQ(waitpid(process->pid, NULL, 0), process->pid);
    close(process->socket);
}

/* Wherever it was: what it had taken and not completed serves another, and nothing is lost. */
static void a_sender_dies(void)
{
    uint32_t srq = ask(&taker, NEW_SRQ, true).number, waiting = 0;
    struct sender last = new_sender();

    for (int i = 0; i < DEATHS; ++i) {
        struct process other = start();
        uint32_t qp_num = ask(&other, NEW_SENDER, 0).number;

        ask(&other, CONNECT, ask(&keeper, NEW_TARGET, qp_num).number);
        for (; waiting < WR; ++waiting)
            ask(&taker, POST, BYTES);
        tell(&other, SEND_ON, srq);
        usleep((useconds_t)(i * 37 % 500));
        kill_process(&other);
        waiting -= ask(&taker, COUNT, 0).number;
    }
    for (; waiting; --waiting) {
        send_to(&last, srq, 64);
        CHECK_EQ(sent(), IBV_WC_SUCCESS);
        CHECK_EQ(ask(&taker, RECEIVE, 0).status, IBV_WC_SUCCESS);
    }
    ask(&taker, DROP_SRQ, 0);
}

static void an_srq_that_is_gone_is_none(void)
{
    uint32_t srq = ask(&taker, NEW_SRQ, true).number;
    struct sender sender = new_sender(), last = new_sender();

    arrives(&sender, srq, 64);
    ask(&taker, DROP_SRQ, 0);
    send_to(&sender, srq, 64);
    failed(&sender, IBV_WC_REM_INV_REQ_ERR);
    srq = ask(&taker, NEW_SRQ, true).number;
    kill_process(&taker);
    send_to(&last, srq, 64);
    CHECK(sent() != IBV_WC_SUCCESS);
}

int main(void)
{
    char name[] = "/tmp/verbena-xrc-XXXXXX";
    int fd = mkstemp(name);

    CHECK(fd >= 0);
    close(fd);
    path = name;
    keeper = start();
    taker = start();
    open_own();
    RUN(requests_reach_the_srq_of_a_third_process);
    RUN(the_receiver_is_waited_for);
    RUN(what_does_not_fit_fails_the_target);
    RUN(another_domain_is_out_of_reach);
    RUN(a_sender_dies);
    RUN(an_srq_that_is_gone_is_none);
    end(&keeper);
    unlink(name);
    return 0;
}
