// SPDX-License-Identifier: Apache-2.0
/*
 * RDMA WRITE: the client writes into the server's memory. The server's processor does nothing for
 * it and is not notified: the client says over TCP when it is done.
 */
#include "common.h"

#include <stdio.h>
#include <string.h>

static void write_remotely(struct side *side, const char *text)
{
    struct ibv_sge source = {.addr = (uintptr_t)side->memory, .lkey = side->mr->lkey};
    struct ibv_send_wr request = {
        .opcode = IBV_WR_RDMA_WRITE,
        .sg_list = &source,
        .num_sge = 1,
        .wr.rdma = {.remote_addr = side->peer.addr, .rkey = side->peer.rkey},
    };
    struct ibv_send_wr *bad;

    source.length = (uint32_t)strlen(text) + 1;
    memcpy(side->memory, text, source.length);
    check_result(ibv_post_send(side->qp, &request, &bad), "ibv_post_send");
    completion(side); /* the bytes are in the server's memory now */
}

int main(int argc, char **argv)
{
    const char *server = argc > 1 ? argv[1] : NULL;
    struct side side = open_side(IBV_QPT_RC, 4096, IBV_ACCESS_REMOTE_WRITE, false);

    meet(&side, server);
    connect_rc(&side);
    if (server)
        write_remotely(&side, "a line from the client");
    rendezvous(&side);
    if (!server)
        printf("in my memory: %s\n", (char *)side.memory);
    close_side(&side);
}
