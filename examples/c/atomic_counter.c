// SPDX-License-Identifier: Apache-2.0
/*
 * Atomics: the client draws numbers from a counter in the server's memory. However many clients do
 * so at once, each number is drawn once, and no code of the server's runs for it.
 */
#include "common.h"

#include <inttypes.h>
#include <stdio.h>

enum { DRAWS = 1000 };

/* Adds 1 to the counter; returns what it was before, which the adapter puts into our memory. */
static uint64_t draw(struct side *side)
{
    struct ibv_sge before = {(uintptr_t)side->memory, sizeof(uint64_t), side->mr->lkey};
    struct ibv_send_wr request = {
        .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
        .sg_list = &before,
        .num_sge = 1,
        .wr.atomic = {.remote_addr = side->peer.addr, .rkey = side->peer.rkey, .compare_add = 1},
    };
    struct ibv_send_wr *bad;

    check_result(ibv_post_send(side->qp, &request, &bad), "ibv_post_send");
    completion(side);
    return *(uint64_t *)side->memory;
}

int main(int argc, char **argv)
{
    const char *server = argc > 1 ? argv[1] : NULL;
    struct side side = open_side(IBV_QPT_RC, 4096, IBV_ACCESS_REMOTE_ATOMIC, false);
    uint64_t last = 0;

    meet(&side, server);
    connect_rc(&side);
    for (int i = 0; server && i < DRAWS; ++i)
        last = draw(&side);
    if (server)
        printf("the last number drawn is %" PRIu64 "\n", last);
    rendezvous(&side);
    if (!server)
        printf("the counter is %" PRIu64 "\n", *(volatile uint64_t *)side.memory);
    close_side(&side);
}
