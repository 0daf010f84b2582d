// SPDX-License-Identifier: Apache-2.0
/* A forked child that uses what its parent opened hears from the log why each call fails. */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

static struct pair pair;
static char said[1 << 16];

/* What a forked child says on stderr. */
static void hear_child(void (*work)(void))
{
    size_t length = 0;
    ssize_t got;
    int ends[2], status;
    pid_t child;

    CHECK_EQ(pipe(ends), 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        work();
        _exit(0);
    }
    close(ends[1]);
    while ((got = read(ends[0], said + length, sizeof(said) - 1 - length)) > 0)
        length += (size_t)got;
    said[length] = '\0';
    close(ends[0]);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

static unsigned lines(void)
{
    unsigned count = 0;

    for (const char *at = said; (at = strchr(at, '\n')); ++at)
        ++count;
    return count;
}

static void each_call(void)
{
    struct ibv_send_wr *bad_send, send = {.opcode = IBV_WR_SEND};
    struct ibv_recv_wr *bad_recv, recv = {0};
    struct ibv_cq *cq = ibv_cq_ex_to_cq(pair.cq);
    struct ibv_port_attr port;
    struct ibv_wc wc;

    errno = 7;
    CHECK_EQ(ibv_post_send(pair.qp[0], &send, &bad_send), ENODEV);
    CHECK_EQ(ibv_post_recv(pair.qp[0], &recv, &bad_recv), ENODEV);
    CHECK_EQ(ibv_poll_cq(cq, 1, &wc), -ENODEV);
    CHECK_EQ(ibv_req_notify_cq(cq, 0), ENODEV);
    CHECK_EQ(errno, 7); /* as in a process that is no child */
    CHECK_EQ(ibv_query_port(pair.context, 1, &port), ENODEV);
    CHECK(!ibv_alloc_pd(pair.context));
    CHECK(!ibv_reg_mr(pair.pd, pair.memory, 8, 0));
    CHECK(!ibv_create_ah(pair.pd, &(struct ibv_ah_attr){.port_num = 1}));
}

static void polls_without_end(void)
{
    struct ibv_wc wc;

    for (int i = 0; i < 10000; ++i)
        CHECK_EQ(ibv_poll_cq(ibv_cq_ex_to_cq(pair.cq), 1, &wc), -ENODEV);
}

static void each_failed_call_has_its_line(void)
{
    static const char *const calls[] = {
        "ibv_post_send",  "ibv_post_recv", "ibv_poll_cq", "ibv_req_notify_cq",
        "ibv_query_port", "ibv_alloc_pd",  "ibv_reg_mr",  "ibv_create_ah",
    };
    const char *at = said;

    hear_child(each_call);
    CHECK_EQ(lines(), sizeof(calls) / sizeof(*calls));
    CHECK_EQ(strncmp(said, "verbena: ", 9), 0);
    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); ++i) {
        char line[200];

        snprintf(line, sizeof(line),
                 " %s failed: the device was opened before this process was forked; open "
                 "it again here\n",
                 calls[i]);
        at = strstr(at, line);
        CHECK(at);
    }
}

static void a_loop_has_few_lines(void)
{
    hear_child(polls_without_end);
    CHECK(lines() >= 1 && lines() <= 20);
}

int main(void)
{
    setenv("VERBENA_LOG", "errors", 1);
    pair_open(&pair);
    RUN(each_failed_call_has_its_line);
    RUN(a_loop_has_few_lines);
    pair_close(&pair);
    return 0;
}
