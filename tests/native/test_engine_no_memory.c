// SPDX-License-Identifier: Apache-2.0
/*
 * A connection for which there is not enough memory leaves none behind. The linker puts the
 * functions here before the C library's: each allocation of vb_engine_connect fails once.
 */
#include <errno.h>
#include <stdlib.h>

#include "check.h"
#include "fabric.h"
#include "transport/transport.h"

enum { NEVER = -1 };

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *at, size_t size);
void __real_free(void *at);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *at, size_t size);
void __wrap_free(void *at);

static int until_failure = NEVER; /* allocations that still succeed */
static long blocks;               /* that are not freed */

static bool fails(void)
{
    return until_failure >= 0 && until_failure-- == 0;
}

void *__wrap_malloc(size_t size)
{
    void *made = fails() ? NULL : __real_malloc(size);

    blocks += made != NULL;
    return made;
}

void *__wrap_calloc(size_t count, size_t size)
{
    void *made = fails() ? NULL : __real_calloc(count, size);

    blocks += made != NULL;
    return made;
}

void *__wrap_realloc(void *at, size_t size)
{
    void *made = fails() ? NULL : __real_realloc(at, size);

    blocks += made && !at;
    return made;
}

void __wrap_free(void *at)
{
    blocks -= at != NULL;
    __real_free(at);
}

/* Connects the QP again, with one allocation after the other failing. Returns how many there are.
 */
static int connect_in_spite(struct vb_engine *engine, struct vb_qp *qp, const struct vb_path *path)
{
    for (int allocation = 0;; ++allocation) {
        uint32_t members = engine->timers.members;
        long before = blocks;
        int error;

        until_failure = allocation;
        error = vb_engine_connect(engine, qp, path);
        until_failure = NEVER;
        if (!error)
            return allocation;
        CHECK_EQ(error, -ENOMEM);
        CHECK(!qp->endpoint);
        CHECK_EQ(blocks, before);
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

int main(void)
{
    /* The endpoint, its replies and room for timers; the window that peers share. */
    a_connection_that_cannot_be_made_leaves_nothing(false, 3);
    a_connection_that_cannot_be_made_leaves_nothing(true, 4);
    return 0;
}
