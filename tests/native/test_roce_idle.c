// SPDX-License-Identifier: Apache-2.0
/* A thousand connections between two processes that have nothing to say: no processor time, and
 * little memory besides the rings that were asked for. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "network.h"
#include "rest.h"
#include "station.h"

enum { CONNECTIONS = 1000, EACH = 2048, SEND_WR = 4, RECV_WR = 4, INLINE = 64 };
enum { REST_S = 2, TRIES = 10 };

/* The rings of one: send requests with an element and inline data each, and receive requests. */
enum {
    RINGS = SEND_WR * ((int)sizeof(struct vb_sq_wqe) + (int)sizeof(struct ibv_sge) + INLINE) +
        RECV_WR * 32,
};

struct whole {
    struct station_card card[CONNECTIONS];
};

static struct station here;
static struct vb_qp *qp[CONNECTIONS];
static struct whole mine, theirs;

static long resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long pages;

    CHECK(file);
    CHECK_EQ(fscanf(file, "%*d %ld", &pages), 1);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static struct vb_qp *small_qp(void)
{
    struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_RC,
                                       .pd = &here.pd->ibv,
                                       .send_cq = &here.cq->ibv,
                                       .recv_cq = &here.cq->ibv,
                                       .cap = {SEND_WR, RECV_WR, 1, 1, INLINE}};
    struct vb_qp *made;

    CHECK_EQ(vb_qp_create(here.context, &attr, &made), 0);
    return made;
}

/* What is paid once: the port's buffers, the CQ's ring, which the program asked for, the lists. */
static void warm_up(void)
{
    struct vb_qp *alone = small_qp();
    struct station_card card = station_card(&here, alone);

    station_connect(&here, alone, &card, (struct station_route){0});
    for (int i = 0; i < 1100; ++i) {
        station_post(&here, alone, IBV_WR_RDMA_WRITE, 8, &card);
        CHECK_EQ(station_wait(here.cq, 5).status, IBV_WC_SUCCESS);
    }
    CHECK_EQ(vb_qp_destroy(alone), 0);
    memset(&mine, 1, sizeof(mine));
    memset(&theirs, 1, sizeof(theirs));
    memset(qp, 0xff, sizeof(qp));
}

static void swap_all(int socket, const void *ours, void *other, size_t size)
{
    char *to = other;

    CHECK_EQ(write(socket, ours, size), size);
    for (size_t got = 0; got < size;) {
        ssize_t n = read(socket, to + got, size - got);

        CHECK(n > 0);
        got += (size_t)n;
    }
}

static void meet(int socket)
{
    char token = 0, other;

    swap_all(socket, &token, &other, 1);
}

/* Connected, and one WRITE each way; prints what a connection costs. */
static void build(int socket, const char *who)
{
    long before;

    station_open(&here, NULL);
    warm_up();
    meet(socket);
    before = resident_bytes();
    for (int i = 0; i < CONNECTIONS; ++i) {
        qp[i] = small_qp();
        mine.card[i] = station_card(&here, qp[i]);
    }
    swap_all(socket, &mine, &theirs, sizeof(mine));
    for (int i = 0; i < CONNECTIONS; ++i)
        station_connect(&here, qp[i], &theirs.card[i], (struct station_route){0});
    meet(socket);
    for (int i = 0; i < CONNECTIONS; ++i) {
        station_post(&here, qp[i], IBV_WR_RDMA_WRITE, 8, &theirs.card[i]);
        CHECK_EQ(station_sleep(&here, 5).status, IBV_WC_SUCCESS);
    }
    before = (resident_bytes() - before) / CONNECTIONS;
    printf("%s: %ld bytes a connection, %d of them rings\n", who, before, (int)RINGS);
    fflush(stdout);
    CHECK(before - RINGS <= EACH);
    meet(socket);
}

static void be_other(int socket)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    build(socket, "one");
    pause();
}

static void test_a_thousand_idle_connections(void)
{
    pid_t both[2] = {getpid()}, other;
    int ends[2];

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    other = both[1] = fork();
    CHECK(other >= 0);
    if (other == 0)
        be_other(ends[1]);
    build(ends[0], "other");
    /* The last acknowledgements and their timers, and a look at who polls, may come late. */
    CHECK(rest_comes(both, 2, REST_S, TRIES));
    kill(other, SIGKILL);
    CHECK_EQ(waitpid(other, NULL, 0), other);
    station_close(&here);
}

int main(void)
{
    network_enter();
#if defined(VERBENA_SANITIZE)
    printf("the sanitizer has memory of its own here; a build without it runs this\n");
    return 77;
#endif
    RUN(test_a_thousand_idle_connections);
    return 0;
}
