// SPDX-License-Identifier: Apache-2.0
/* Processes that come, write and go leave nothing in the one that they visited. */
#include <unistd.h>

#include "check.h"
#include "end.h"
#include "entries.h"

enum { VISITS = 200, FIRST = 10 };

struct traces {
    int descriptors, mappings;
};

/* Of files in memory: the allocator's own come and go. */
static int shared_mappings(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    char line[512];
    int count = 0;

    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file))
        count += strstr(line, "memfd:") != NULL;
    fclose(file);
    return count;
}

static struct traces look(void)
{
    return (struct traces){entries(DESCRIPTORS), shared_mappings()};
}

static void visit(int socket)
{
    struct end end;

    end_open(&end, (struct end_options){.in_heap = true});
    end_connect(&end, end_add_qp(&end), socket);
    CHECK_EQ(end_post(&end, end.qp, IBV_WR_SEND, 512), 0);
    CHECK_EQ(end_wait(end.cq, 3).status, IBV_WC_SUCCESS);
    end_meet(socket);
}

static void receive_visitor(struct end *end)
{
    struct vb_qp *qp = end_add_qp(end);
    int socket;
    pid_t visitor = end_spawn("visit", &socket);

    end_connect(end, qp, socket);
    end_post_recv(end, qp, 0);
    CHECK_EQ(end_wait(end->cq, 3).status, IBV_WC_SUCCESS);
    end_meet(socket);
    end_kill(visitor, socket);
    CHECK_EQ(vb_qp_destroy(qp), 0);
}

static bool is_same(struct traces one, struct traces other)
{
    return one.descriptors == other.descriptors && one.mappings == other.mappings;
}

static bool has_peers(struct vb_direct *direct)
{
    bool any;

    vb_lock_take(&direct->peers_mutex);
    any = direct->peers != NULL;
    vb_lock_release(&direct->peers_mutex);
    return any;
}

/* The service thread notices the end of a process a little later. */
static void await_end(const struct end *end)
{
    for (int i = 0; i < 10000 && has_peers(end->direct); ++i)
        usleep(1000);
    CHECK(!has_peers(end->direct));
}

/* When nothing has changed for a while: its last descriptor is closed after that. */
static struct traces settled(void)
{
    struct traces last = look();

    for (int same = 0; same < 5; ++same) {
        struct traces now;

        usleep(20000);
        now = look();
        if (!is_same(now, last))
            same = -1;
        last = now;
    }
    return last;
}

static void visitors_leave_neither_descriptors_nor_mappings(void)
{
    struct traces before = {0}, after;
    struct end end;

    end_open(&end, (struct end_options){.channel = true});
    for (int i = 0; i < VISITS; ++i) {
        receive_visitor(&end);
        await_end(&end);
        if (i == FIRST) /* what the C library sets up is there by then */
            before = settled();
    }
    after = settled();
    for (int i = 0; i < 50 && !is_same(after, before); ++i)
        after = settled();
    CHECK_EQ(after.descriptors, before.descriptors);
    CHECK_EQ(after.mappings, before.mappings);
    end_close(&end);
}

static void opening_and_closing_leaves_nothing(void)
{
    struct traces before = {0}, after;
    struct end end;

    for (int i = 0; i < VISITS; ++i) {
        end_open(&end, (struct end_options){.channel = true, .srq_wr = 16});
        end_add_qp(&end);
        end_close(&end);
        if (i == FIRST)
            before = look();
    }
    after = look();
    CHECK_EQ(after.descriptors, before.descriptors);
    CHECK_EQ(after.mappings, before.mappings);
}

int main(int argc, char **argv)
{
    int socket = end_role(argc, argv, "visit");

    if (socket >= 0) {
        visit(socket);
        return 0;
    }
    alarm(60); /* a hang is a failure */
    RUN(visitors_leave_neither_descriptors_nor_mappings);
    RUN(opening_and_closing_leaves_nothing);
    return 0;
}
