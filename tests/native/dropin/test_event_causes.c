// SPDX-License-Identifier: Apache-2.0
/*
 * What a program hears of an asynchronous event: the reason of one that says that a QP has failed
 * (verbena_event_text, and a line with VERBENA_LOG=errors), none of any other, and whose
 * acknowledgements a destroy call waits for.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dropin/verbena.h"
#include "pair.h"
#include "told.h"

enum { PAGE = 4096 };

static struct pair pair;
static struct ibv_mr *region; /* besides the pair's */

static void must_hear(const char *words)
{
    const char *text = told_heard();

    if (!strstr(text, words))
        dprintf(told.stderr_copy, "%s is not in: %s\n", words, text);
    CHECK(strstr(text, words) != NULL);
}

/* ---- requests that end both QPs ---- */

static void unknown_key(struct ibv_send_wr *wr)
{
    wr->wr.rdma.rkey ^= 0xffffff00;
}

static void odd_address(struct ibv_send_wr *wr)
{
    wr->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    pair_aim(wr, (uintptr_t)pair.memory + 4, pair.mr->rkey);
}

/* The region's page stays, and may not be written to any more. */
static void page_is_gone(struct ibv_send_wr *wr)
{
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(page != MAP_FAILED);
    region = ibv_reg_mr(pair.pd, page, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(region);
    CHECK_EQ(mprotect(page, PAGE, PROT_NONE), 0);
    pair_aim(wr, (uintptr_t)page, region->rkey);
}

static const struct {
    void (*spoil)(struct ibv_send_wr *wr);
    enum ibv_event_type type;
    enum ibv_wc_status status;
    const char *words;
} failures[] = {
    {unknown_key, IBV_EVENT_QP_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR, "names no memory region"},
    {odd_address, IBV_EVENT_QP_REQ_ERR, IBV_WC_REM_INV_REQ_ERR, "not a multiple of 8"},
    {page_is_gone, IBV_EVENT_QP_FATAL, IBV_WC_REM_OP_ERR, "can no longer be reached"},
};

enum { FAILURES = sizeof(failures) / sizeof(failures[0]) };

static bool is_of_failure(enum ibv_event_type type)
{
    return type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_QP_REQ_ERR ||
           type == IBV_EVENT_QP_FATAL;
}

/* Of a QP's events only those three have a cause, also where it has failed. */
static void other_events_have_none(struct ibv_qp *failed)
{
    for (int type = 0; type <= IBV_EVENT_WQ_FATAL; ++type) {
        struct ibv_async_event event = {.element.qp = failed,
                                        .event_type = (enum ibv_event_type)type};
        char text[400] = "";
        int length = type == IBV_EVENT_CQ_ERR ? 0 : verbena_event_text(&event, text, sizeof(text));

        CHECK_EQ(length > 0, is_of_failure(event.event_type));
        CHECK_EQ(length, strlen(text));
    }
}

static void next_event(struct ibv_async_event *event)
{
    struct pollfd readable = {.fd = pair.context->async_fd, .events = POLLIN};

    CHECK_EQ(poll(&readable, 1, 10000), 1);
    CHECK_EQ(ibv_get_async_event(pair.context, event), 0);
}

static void an_event_of_a_failure_has_its_cause(void)
{
    for (int i = 0; i < FAILURES; ++i) {
        struct ibv_async_event event;
        struct ibv_send_wr wr, *bad;
        char text[400] = "", named[32];
        struct ibv_sge sge;
        struct ibv_wc wc;

        pair_open(&pair);
        sge = pair_sge(&pair);
        wr = pair_write(&pair, &sge);
        failures[i].spoil(&wr);
        told_heard();
        CHECK_EQ(ibv_post_send(pair.qp[0], &wr, &bad), 0);
        pair_poll(&pair, &wc);
        CHECK_EQ(wc.status, failures[i].status);
        must_hear(failures[i].words); /* of the completion */
        next_event(&event);
        CHECK_EQ(event.event_type, failures[i].type);
        CHECK(event.element.qp == pair.qp[1]);
        snprintf(named, sizeof(named), "QP 0x%x: event: ", pair.qp[1]->qp_num);
        must_hear(named);
        CHECK(verbena_event_text(&event, text, sizeof(text)) > 0);
        CHECK(strstr(text, failures[i].words) != NULL);
        other_events_have_none(pair.qp[1]);
        ibv_ack_async_event(&event);
        if (region)
            CHECK_EQ(ibv_dereg_mr(region), 0);
        region = NULL;
        pair_close(&pair);
    }
}

int main(void)
{
    alarm(60);
    setenv("VERBENA_LOG", "errors", 1);
    told_listen();
    RUN(an_event_of_a_failure_has_its_cause);
    return 0;
}
