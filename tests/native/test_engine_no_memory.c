// SPDX-License-Identifier: Apache-2.0
/*
 * A connection for which there is not enough memory leaves none behind: each allocation of
 * vb_engine_connect fails once.
 */
#include "check.h"
#include "fabric.h"
#include "starved.h"
#include "transport/transport.h"

/* Connects the QP again, with one allocation after the other failing. Returns how many there are.
 */
static int connect_in_spite(struct vb_engine *engine, struct vb_qp *qp, const struct vb_path *path)
{
    for (int allocation = 0;; ++allocation) {
        uint32_t members = engine->timers.members;
        long before = starved_blocks();
        int error;

        starved_after(allocation);
        error = vb_engine_connect(engine, qp, path);
        starved_end();
        if (!error)
            return allocation;
        CHECK_EQ(error, -ENOMEM);
        CHECK(!qp->endpoint);
        CHECK_EQ(starved_blocks(), before);
        CHECK_EQ(engine->timers.members, members);
    }
}

/* With congestion windows that peers share, and without. */
static void a_connection_that_cannot_be_made_leaves_nothing(bool adapts, int allocations)
{
    static struct fabric fabric;
    struct vb_engine *engine;
    struct vb_qp *qp[2];
    struct vb_path path;

    fabric_open(&fabric, (struct fabric_options){.seed = 1, .engine = {.adapts = adapts}});
    engine = fabric.side[0].engine;
    fabric_pair(&fabric, fabric_defaults(), qp);
    path = qp[0]->endpoint->path;
    vb_engine_disconnect(engine, qp[0]);
    engine->timers.room = engine->timers.members; /* the next timer has it grow */
    CHECK_EQ(connect_in_spite(engine, qp[0], &path), allocations);
    fabric_close(&fabric);
}

/* Another path that cannot be had leaves the connection on the one that it has. */
static void a_path_that_cannot_be_changed_stays(void)
{
    static struct fabric fabric;
    struct vb_qp *qp[2];
    struct vb_path path;
    struct vb_cwnd *before;

    fabric_open(&fabric, (struct fabric_options){.seed = 1, .engine = {.adapts = true}});
    fabric_pair(&fabric, fabric_defaults(), qp);
    before = qp[0]->endpoint->share->cwnd;
    path = qp[0]->endpoint->path;
    path.dgid[15] = (uint8_t)(path.dgid[15] + 7);
    path.hop_limit = (uint8_t)(path.hop_limit + 1);
    starved_after(0);
    CHECK_EQ(vb_engine_connect(fabric.side[0].engine, qp[0], &path), -ENOMEM);
    CHECK(starved_end());
    CHECK(qp[0]->endpoint->share->cwnd == before);
    CHECK(memcmp(&qp[0]->endpoint->path, &path, sizeof(path)) != 0);
    path.mtu = (uint16_t)(path.mtu / 2); /* which stays, too */
    CHECK_EQ(vb_engine_connect(fabric.side[0].engine, qp[0], &path), 0);
    CHECK(qp[0]->endpoint->share->cwnd != before);
    path.mtu = (uint16_t)(path.mtu * 2);
    CHECK_EQ(memcmp(&qp[0]->endpoint->path, &path, sizeof(path)), 0);
    fabric_close(&fabric);
}

int main(void)
{
    a_path_that_cannot_be_changed_stays();
    /* The endpoint, its replies and room for timers; the window that peers share. */
    a_connection_that_cannot_be_made_leaves_nothing(false, 3);
    a_connection_that_cannot_be_made_leaves_nothing(true, 4);
    return 0;
}
