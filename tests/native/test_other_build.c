// SPDX-License-Identifier: Apache-2.0
/*
 * Two builds of Verbena on one host. With one memory layout they work together; with two, whoever
 * connects is told which builds met, at once. CMakeLists.txt builds this file twice more, as the
 * other end, with another layout or only another version.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "direct/slot.h"
#include "end.h"
#include "hca/decline.h"
#include "hca/sentences.h"
#include "loopback.h"

enum { LONGEST = 600, OTHER_LAYOUT = 8 };

/* What became of a step. */
struct result {
    int error;
    uint32_t status;
    char text[LONGEST];
};

/* ---- one end's steps ---- */

static void to_init(struct vb_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = 1,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE};

    CHECK_EQ(vb_qp_modify(qp, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
             0);
}

static struct result to_rtr(struct end *end, uint32_t dest)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = IBV_MTU_1024,
                               .dest_qp_num = dest,
                               .max_dest_rd_atomic = 1,
                               .ah_attr = {.is_global = 1, .port_num = 1}};
    struct result result = {0};

    loopback_gid(end->direct, attr.ah_attr.grh.dgid.raw);
    to_init(end->qp);
    result.error =
        vb_qp_modify(end->qp, &attr,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (result.error)
        vb_decline_text(end->context, result.error, result.text, LONGEST);
    return result;
}

/* A WRITE; timeout 0 waits for an answer for ever, so that an end at once is none of patience. */
static struct result write_once(struct end *end)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .max_rd_atomic = 1};
    struct result result = {0};
    struct ibv_wc wc;

    CHECK_EQ(vb_qp_modify(end->qp, &attr,
                          IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                              IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
             0);
    CHECK_EQ(end_post(end, end->qp, IBV_WR_RDMA_WRITE, 64), 0);
    wc = end_wait(end->cq, 10);
    result.status = wc.status;
    if (wc.status)
        vb_evidence_text(&end->direct->adapter->self, wc.vendor_err, result.text, LONGEST);
    return result;
}

/* ---- the other end, in the other build ---- */

static void obeys(int socket)
{
    struct end end;
    struct end_card mine;
    char order;

    end_open(&end, (struct end_options){0});
    end_add_qp(&end);
    mine = (struct end_card){end.qp->number, end.mr->ibv.rkey, (uintptr_t)end.memory};
    CHECK_EQ(write(socket, &mine, sizeof(mine)), sizeof(mine));
    CHECK_EQ(read(socket, &end.peer, sizeof(end.peer)), sizeof(end.peer));
    while (read(socket, &order, 1) == 1) {
        struct result result = order == 'c' ? to_rtr(&end, end.peer.qp_num) : write_once(&end);

        CHECK_EQ(write(socket, &result, sizeof(result)), sizeof(result));
    }
    end_close(&end);
}

struct pair {
    struct end end;
    pid_t other;
    int socket;
};

static void open_pair_as(struct pair *pair, const char *program, enum ibv_qp_type type)
{
    struct end *end = &pair->end;
    struct end_card mine;
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 100);

    CHECK(length > 0);
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, program);
    end_open(end, (struct end_options){.type = type});
    end_add_qp(end);
    pair->other = end_spawn_program(path, "obeys", &pair->socket);
    mine = (struct end_card){end->qp->number, end->mr->ibv.rkey, (uintptr_t)end->memory};
    CHECK_EQ(write(pair->socket, &mine, sizeof(mine)), sizeof(mine));
    CHECK_EQ(read(pair->socket, &end->peer, sizeof(end->peer)), sizeof(end->peer));
}

static void open_pair(struct pair *pair, const char *program)
{
    open_pair_as(pair, program, IBV_QPT_RC);
}

static struct result order(const struct pair *pair, char what)
{
    struct result result;

    CHECK_EQ(write(pair->socket, &what, 1), 1);
    CHECK_EQ(recv(pair->socket, &result, sizeof(result), MSG_WAITALL), sizeof(result));
    return result;
}

static void close_pair(struct pair *pair)
{
    end_kill(pair->other, pair->socket);
    end_close(&pair->end);
}

/* ---- what must be told ---- */

static void names(const struct result *result, const char *part)
{
    if (!strstr(result->text, part))
        printf("  \"%s\" is not in: %s\n", part, result->text);
    CHECK(strstr(result->text, part));
}

struct build {
    const char *version;
    unsigned layout;
};

static const struct build here = {"version " VERBENA_VERSION, VB_LAYOUT_VERSION};
static const struct build other = {"version 0.0.9", OTHER_LAYOUT};
static const struct build older = {"an older version", OTHER_LAYOUT};

static void names_both(const struct result *result, const struct build *theirs,
                       const struct build *ours)
{
    char part[100];

    printf("  %s\n", result->text);
    snprintf(part, sizeof(part), "%s with memory layout %u", theirs->version, theirs->layout);
    names(result, part);
    snprintf(part, sizeof(part), "this process has %s with layout %u", ours->version, ours->layout);
    names(result, part);
    names(result, "Install one build for both");
}

/* Whoever comes first, and whoever comes second. */
static void another_layout_is_named_when_a_qp_connects(void)
{
    for (int first = 0; first < 2; ++first) {
        struct pair pair;
        struct result mine = {0}, theirs;

        open_pair(&pair, "other/other_layout_peer");
        if (first == 0)
            mine = to_rtr(&pair.end, pair.end.peer.qp_num);
        theirs = order(&pair, 'c');
        if (first == 1)
            mine = to_rtr(&pair.end, pair.end.peer.qp_num);
        CHECK_EQ(mine.error, -EPROTONOSUPPORT);
        CHECK_EQ(theirs.error, -EPROTONOSUPPORT);
        names_both(&mine, &other, &here);
        names_both(&theirs, &here, &other);
        CHECK_EQ(vb_qp_state(pair.end.qp), IBV_QPS_INIT);
        CHECK(pair.end.direct->peers == NULL);
        close_pair(&pair);
    }
}

static void another_version_with_the_same_layout_works(void)
{
    struct pair pair;

    open_pair(&pair, "other/other_package_peer");
    CHECK_EQ(to_rtr(&pair.end, pair.end.peer.qp_num).error, 0);
    CHECK_EQ(order(&pair, 'c').error, 0);
    CHECK_EQ(write_once(&pair.end).status, IBV_WC_SUCCESS);
    CHECK_EQ(order(&pair, 'w').status, IBV_WC_SUCCESS);
    close_pair(&pair);
}

/* ---- a build from before builds named each other: it hangs up when it is greeted ---- */

static void hang_up(int listener)
{
    struct pollfd coming = {.fd = listener, .events = POLLIN};
    struct vb_message message;
    int fds[VB_MESSAGE_FDS], fd;

    CHECK_EQ(poll(&coming, 1, 10000), 1);
    fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    CHECK_EQ(vb_direct_message_receive(fd, &message, fds), 0);
    for (int i = 0; i < VB_MESSAGE_FDS; ++i)
        if (fds[i] >= 0)
            close(fds[i]);
    close(fd);
}

static void *hang_up_always(void *listener)
{
    for (;;)
        hang_up(*(const int *)listener);
    return NULL;
}

/* Its hello, shorter than today's; the answer says who this is, and gives nothing away. */
static void greet(struct end *end, uint32_t slot)
{
    struct vb_message hello = {.type = VB_MSG_HELLO}, answer;
    int socket = vb_direct_slot_connect(end->direct->slots[0]), fds[VB_MESSAGE_FDS];

    CHECK(socket >= 0);
    hello.hello.magic = VB_SEGMENT_MAGIC;
    hello.hello.version = OTHER_LAYOUT;
    hello.hello.slots[0] = slot;
    CHECK_EQ(send(socket, &hello, sizeof(hello) - 16, 0), (ssize_t)sizeof(hello) - 16);
    CHECK_EQ(vb_direct_message_receive(socket, &answer, fds), 0);
    CHECK_EQ(answer.type, VB_MSG_WELCOME);
    CHECK_EQ(answer.hello.version, VB_LAYOUT_VERSION);
    CHECK(!strncmp(answer.package, VERBENA_VERSION, sizeof(answer.package)));
    CHECK(fds[0] < 0 && fds[1] < 0);
    CHECK_EQ(vb_direct_message_receive(socket, &answer, fds), -EPIPE);
    close(socket);
}

static void an_older_build_is_named_once_it_has_said_hello(void)
{
    pthread_t thread;
    struct result result;
    struct end end;
    uint32_t slot;
    int listener = vb_direct_slot_claim(99, &slot);

    CHECK(listener >= 0);
    CHECK_EQ(fcntl(listener, F_SETFL, 0), 0);
    end_open(&end, (struct end_options){0});
    end_add_qp(&end);
    CHECK_EQ(pthread_create(&thread, NULL, hang_up_always, &listener), 0);
    CHECK_EQ(to_rtr(&end, slot * VB_QPS_PER_SLOT).error, 0); /* it may be what it is */
    greet(&end, slot);
    result = write_once(&end);
    CHECK_EQ(result.status, IBV_WC_RETRY_EXC_ERR);
    names_both(&result, &older, &here);
    end_add_qp(&end);
    result = to_rtr(&end, slot * VB_QPS_PER_SLOT);
    CHECK_EQ(result.error, -EPROTONOSUPPORT);
    names_both(&result, &older, &here);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    /* It is gone: its number is nobody's, who may still come. */
    close(listener);
    end_add_qp(&end);
    CHECK_EQ(to_rtr(&end, slot * VB_QPS_PER_SLOT).error, 0);
    end_close(&end);
}

/* ---- UD and UC, whose requests end well wherever they go ---- */

enum { JSON = 4096 };

static struct result last; /* the log's last line */
static int lines;

static void keep_line(const char *line)
{
    snprintf(last.text, sizeof(last.text), "%s", line);
    ++lines;
}

/* Three times; one line. */
static void names_both_once(struct end *end, const struct build *theirs,
                            void (*send)(struct end *end))
{
    char json[JSON], part[200];

    lines = 0;
    end->direct->adapter->tell = keep_line;
    for (int i = 0; i < 3; ++i) {
        send(end);
        CHECK_EQ(end_wait(end->cq, 10).status, IBV_WC_SUCCESS);
    }
    CHECK_EQ(lines, 1);
    snprintf(part, sizeof(part), "what QP 0x%x sends is lost", end->qp->number);
    names(&last, part);
    names_both(&last, theirs, &here);
    CHECK(vb_direct_describe(end->direct, "", json, JSON) < JSON);
    snprintf(part, sizeof(part), "\"build\":\"%s with memory layout %u\"}]", theirs->version,
             theirs->layout);
    CHECK(strstr(json, part));
}

static void send_datagram(struct end *end)
{
    struct ibv_ah_attr address = {.is_global = 1, .port_num = 1};
    struct ibv_sge sge = {(uintptr_t)end->memory, 64, end->mr->ibv.lkey};
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    struct vb_ah *ah;

    loopback_gid(end->direct, address.grh.dgid.raw);
    CHECK_EQ(vb_ah_create(end->pd, &address, &ah), 0);
    wr.wr.ud.ah = &ah->ibv;
    wr.wr.ud.remote_qpn = end->peer.qp_num;
    CHECK_EQ(vb_post_send(end->qp, &wr, &bad), 0);
    vb_ah_destroy(ah);
}

static void datagrams_to_another_layout_are_told_of(void)
{
    struct pair pair;

    open_pair_as(&pair, "other/other_layout_peer", IBV_QPT_UD);
    end_ready(pair.end.qp, NULL);
    names_both_once(&pair.end, &other, send_datagram);
    close_pair(&pair);
}

static void write_unreliably(struct end *end)
{
    CHECK_EQ(end_post(end, end->qp, IBV_WR_RDMA_WRITE, 64), 0);
}

/* It was not there when the QP was connected, which is no error. */
static void uc_to_another_layout_is_told_of(void)
{
    struct vb_qp later = {0};
    pthread_t thread;
    struct end end;
    uint32_t slot;
    int listener = vb_direct_slot_claim(99, &slot);

    CHECK(listener >= 0);
    CHECK_EQ(fcntl(listener, F_SETFL, 0), 0);
    end_open(&end, (struct end_options){.type = IBV_QPT_UC});
    end_add_qp(&end);
    CHECK_EQ(pthread_create(&thread, NULL, hang_up_always, &listener), 0);
    later.number = slot * VB_QPS_PER_SLOT;
    end_ready(end.qp, &later);
    greet(&end, slot);
    names_both_once(&end, &older, write_unreliably);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    close(listener);
    end_close(&end);
}

int main(int argc, char **argv)
{
    static const struct end_play plays[] = {{"obeys", obeys}};

    if (end_play(argc, argv, plays, sizeof(plays) / sizeof(*plays)))
        return 0;
    RUN(another_layout_is_named_when_a_qp_connects);
    RUN(another_version_with_the_same_layout_works);
    RUN(an_older_build_is_named_once_it_has_said_hello);
    RUN(datagrams_to_another_layout_are_told_of);
    RUN(uc_to_another_layout_is_told_of);
    return 0;
}
