// SPDX-License-Identifier: Apache-2.0
/*
 * SEND and RECV with events: the server sleeps until a message has arrived, and answers it. Each
 * SEND needs a receive that the peer has posted before.
 */
#include "common.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { ROOM = 256, WORDS = 3 }; /* incoming messages first in the memory, outgoing behind them */

static void post_receive(struct side *side)
{
    struct ibv_sge room = {(uintptr_t)side->memory, ROOM, side->mr->lkey};
    struct ibv_recv_wr request = {.sg_list = &room, .num_sge = 1}, *bad;

    check_result(ibv_post_recv(side->qp, &request, &bad), "ibv_post_recv");
}

static void post_send(struct side *side, const char *text)
{
    char *place = (char *)side->memory + ROOM;
    struct ibv_sge source = {(uintptr_t)place, (uint32_t)strlen(text) + 1, side->mr->lkey};
    struct ibv_send_wr request = {.opcode = IBV_WR_SEND, .sg_list = &source, .num_sge = 1}, *bad;

    memcpy(place, text, source.length);
    check_result(ibv_post_send(side->qp, &request, &bad), "ibv_post_send");
}

/* Sleeps until the CQ has a completion. One event may stand for several completions, and one that
 * comes between poll and request is seen by the second poll. */
static struct ibv_wc sleep_until_completion(struct side *side)
{
    struct ibv_cq *cq;
    struct ibv_wc wc;
    void *context;

    for (;;) {
        if (poll_once(side, &wc))
            return wc;
        check_result(ibv_req_notify_cq(side->cq, 0), "ibv_req_notify_cq");
        if (poll_once(side, &wc))
            return wc;
        check(ibv_get_cq_event(side->cq->channel, &cq, &context) == 0, "ibv_get_cq_event");
        ibv_ack_cq_events(cq, 1);
    }
}

/* A message has been sent and one has come, in whichever order. */
static void sent_and_received(struct side *side)
{
    for (int done = 0; done < 2; ++done)
        sleep_until_completion(side);
}

static void serve(struct side *side)
{
    char answer[ROOM];

    for (int i = 0; i < WORDS; ++i) {
        while (sleep_until_completion(side).opcode != IBV_WC_RECV)
            ;
        snprintf(answer, sizeof(answer), "%s", (char *)side->memory);
        for (char *at = answer; *at; ++at)
            *at = (char)toupper(*at);
        post_receive(side); /* for the next message, before the client may send it */
        post_send(side, answer);
    }
}

static void ask(struct side *side)
{
    static const char *const words[WORDS] = {"queue", "pair", "key"};

    for (int i = 0; i < WORDS; ++i) {
        post_send(side, words[i]);
        sent_and_received(side);
        printf("%s -> %s\n", words[i], (char *)side->memory);
        post_receive(side);
    }
}

int main(int argc, char **argv)
{
    const char *server = argc > 1 ? argv[1] : NULL;
    struct side side = open_side(IBV_QPT_RC, 2 * ROOM, 0, true);

    meet(&side, server);
    post_receive(&side); /* before the peer may send */
    connect_rc(&side);
    if (server)
        ask(&side);
    else
        serve(&side);
    rendezvous(&side);
    close_side(&side);
}
