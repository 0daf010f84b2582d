// SPDX-License-Identifier: Apache-2.0
/*
 * Unreliable datagrams: no connection. Each request names its receiver by an address handle, a QP
 * number and a key; what arrives has 40 bytes in front that say where it came from. The server
 * answers whoever wrote.
 */
#include "common.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { GRH = 40, ROOM = GRH + 1024, PATIENCE = 5 /* s */ };

/* Like connect_rc, without a peer: a UD queue pair talks to all. */
static void ready(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};

    check_result(ibv_modify_qp(qp, &attr, IBV_QP_STATE), "ibv_modify_qp to RTR");
    attr.qp_state = IBV_QPS_RTS;
    check_result(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "ibv_modify_qp to RTS");
}

static void post_receive(struct side *side)
{
    struct ibv_sge room = {(uintptr_t)side->memory, ROOM, side->mr->lkey};
    struct ibv_recv_wr request = {.sg_list = &room, .num_sge = 1}, *bad;

    check_result(ibv_post_recv(side->qp, &request, &bad), "ibv_post_recv");
}

static void send_to(struct side *side, struct ibv_ah *ah, uint32_t qp_num, const char *text)
{
    char *place = (char *)side->memory + ROOM;
    struct ibv_sge source = {(uintptr_t)place, (uint32_t)strlen(text) + 1, side->mr->lkey};
    struct ibv_send_wr request = {
        .opcode = IBV_WR_SEND,
        .sg_list = &source,
        .num_sge = 1,
        .wr.ud = {.ah = ah, .remote_qpn = qp_num, .remote_qkey = QKEY},
    };
    struct ibv_send_wr *bad;

    memcpy(place, text, source.length);
    check_result(ibv_post_send(side->qp, &request, &bad), "ibv_post_send");
}

/* Waits for a datagram, past the completion of our own: not for ever, since one that was lost says
 * nothing. */
static struct ibv_wc received(struct side *side)
{
    time_t until = time(NULL) + PATIENCE;
    struct ibv_wc wc;

    while (!poll_once(side, &wc) || wc.opcode != IBV_WC_RECV)
        if (time(NULL) > until)
            fail("no datagram came within %d seconds", PATIENCE);
    return wc;
}

static void serve(struct side *side)
{
    struct ibv_wc wc = received(side);
    struct ibv_ah *ah = ibv_create_ah_from_wc(side->pd, &wc, side->memory, PORT);

    check(ah, "ibv_create_ah_from_wc");
    printf("%u bytes: %s\n", wc.byte_len - GRH, (char *)side->memory + GRH);
    send_to(side, ah, wc.src_qp, "pong");
    completion(side);
    check_result(ibv_destroy_ah(ah), "ibv_destroy_ah");
}

static void ask(struct side *side)
{
    struct ibv_ah_attr attr = {
        .is_global = 1,
        .port_num = PORT,
        .grh = {.dgid = side->peer.gid, .sgid_index = side->gid_index, .hop_limit = 64},
    };
    struct ibv_ah *ah = ibv_create_ah(side->pd, &attr);

    check(ah, "ibv_create_ah");
    send_to(side, ah, side->peer.qp_num, "ping");
    received(side);
    printf("%s\n", (char *)side->memory + GRH);
    check_result(ibv_destroy_ah(ah), "ibv_destroy_ah");
}

int main(int argc, char **argv)
{
    const char *server = argc > 1 ? argv[1] : NULL;
    struct side side = open_side(IBV_QPT_UD, 2 * ROOM, 0, false);

    ready(side.qp);
    post_receive(&side); /* a datagram that finds no receive is lost without notice */
    meet(&side, server);
    if (server)
        ask(&side);
    else
        serve(&side);
    close_side(&side);
}
