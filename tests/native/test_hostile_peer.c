// SPDX-License-Identifier: Apache-2.0
/*
 * A hostile process of the same user. It may make its victim fail, as it might with a debugger
 * (docs/security.md); it must not harm those whose memory it does not map, and what it offers is
 * looked at before it is used.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "direct/connection.h"
#include "direct/handshake.h"
#include "direct/message.h"
#include "direct/peer.h"
#include "direct/slot.h"
#include "end.h"
#include "memory/heap_state.h"

enum { ROUNDS = 12, MOST_PAGES = 1 << 20, SHORT_BYTES = 1 << 16 };
static const uint64_t told_bytes = 8ull << 30;

/* ---- what is offered in the first message ---- */

enum offer { UNSEALED, SHORT, NOT_A_FILE, TABLE_OUTSIDE, NO_ENTRIES, ODD_ENTRIES, SOUND };

static int offered_file(enum offer offer)
{
    struct vb_segment_header header = {
        .magic = VB_SEGMENT_MAGIC,
        .version = VB_LAYOUT_VERSION,
        .header_size = sizeof(header),
        .mr_entries = offer == NO_ENTRIES    ? 0
                      : offer == ODD_ENTRIES ? 3
                                             : 1,
    };
    int ends[2], fd;

    if (offer == TABLE_OUTSIDE)
        header.qp = told_bytes - VB_LINE;
    if (offer == NOT_A_FILE) {
        CHECK_EQ(pipe(ends), 0);
        return ends[1];
    }
    if (offer == UNSEALED) {
        fd = memfd_create("unsealed", MFD_CLOEXEC);
        CHECK_EQ(ftruncate(fd, (off_t)told_bytes), 0);
    } else {
        fd = vb_memory_heap_file(offer == SHORT ? SHORT_BYTES : told_bytes);
    }
    CHECK_EQ(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
    return fd;
}

/* True if the other side answers. */
static bool is_welcome(uint32_t slot, enum offer offer)
{
    struct vb_message message = {.type = VB_MSG_HELLO};
    struct timeval limit = {.tv_sec = 10};
    int socket = vb_direct_slot_connect(slot), fd = offered_file(offer), fds[VB_MESSAGE_FDS], error;

    CHECK(socket >= 0 && fd >= 0);
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    message.hello.magic = VB_SEGMENT_MAGIC;
    message.hello.version = VB_LAYOUT_VERSION;
    message.hello.instance = 77;
    message.hello.segment_size = told_bytes;
    CHECK_EQ(vb_direct_message_send(socket, &message, &fd, 1, true), 0);
    error = vb_direct_message_receive(socket, &message, fds);
    CHECK(error != -EAGAIN);
    close(socket);
    close(fd);
    return error == 0;
}

static void a_segment_that_could_be_taken_away_is_refused(void)
{
    struct end end;

    end_open(&end, (struct end_options){0});
    end_add_qp(&end);
    for (enum offer offer = 0; offer < SOUND; ++offer)
        CHECK(!is_welcome(end.direct->slots[0], offer));
    CHECK(end.direct->peers == NULL);
    CHECK(is_welcome(end.direct->slots[0], SOUND));
    end_close(&end);
}

/* ---- whose memory is written to ---- */

/* What the adapter thinks of the peer with this number, which has just said hello. */
static int error_of_copies(struct vb_direct *direct, uint32_t instance)
{
    int error = 1;

    vb_lock_take(&direct->peers_mutex);
    for (const struct vb_peer *peer = direct->peers; peer; peer = peer->next)
        if (peer->instance == instance) {
            error = peer->cma_error;
            CHECK_EQ(peer->cma, !error);
        }
    vb_lock_release(&direct->peers_mutex);
    return error;
}

/* A hello whose probe holds `found`, and says `told`; returns what came of the probe. */
static int probed(struct vb_direct *direct, uint32_t instance, uint64_t found, uint64_t told)
{
    static uint64_t probe[2];
    struct vb_message message = {.type = VB_MSG_HELLO};
    int socket = vb_direct_slot_connect(direct->slots[0]), fd = offered_file(SOUND);
    int fds[VB_MESSAGE_FDS], error;

    probe[0] = found;
    probe[1] = 5;
    message.hello.magic = VB_SEGMENT_MAGIC;
    message.hello.version = VB_LAYOUT_VERSION;
    message.hello.instance = instance;
    message.hello.segment_size = told_bytes;
    message.hello.probe_addr = (uintptr_t)probe;
    message.hello.probe_value = told;
    CHECK_EQ(vb_direct_message_send(socket, &message, &fd, 1, true), 0);
    CHECK_EQ(vb_direct_message_receive(socket, &message, fds), 0);
    error = error_of_copies(direct, instance);
    CHECK_EQ(probe[1], error ? 5 : (long long)found);
    for (int i = 0; i < VB_MESSAGE_FDS; ++i)
        if (fds[i] >= 0)
            close(fds[i]);
    close(socket);
    close(fd);
    return error;
}

/* In a namespace of its own a peer's process may have the number of another one here. */
static void a_process_that_does_not_hold_the_probe_is_not_written_to(void)
{
    struct end end;

    end_open(&end, (struct end_options){0});
    end_add_qp(&end);
    CHECK_EQ(probed(end.direct, 77, 0x123456789, 0x123456789), 0);
    CHECK_EQ(probed(end.direct, 78, 0x123456789, 0x12345678a), -ESRCH);
    CHECK_EQ(probed(end.direct, 79, 0, 1ull << 63), -ESRCH);
    end_close(&end);
}

/* ---- an offset in a table of the peer's ---- */

static void stands_by(int socket)
{
    struct end end;

    end_open(&end, (struct end_options){.in_heap = true});
    end_connect(&end, end_add_qp(&end), socket);
    end_meet(socket);
    for (int i = 0; i < 64; ++i)
        CHECK_EQ(end.memory[i], 0x33);
    end_meet(socket);
}

/* Whoever maps the peer's segment can have written it; it leads to this process's own memory. */
static void an_offset_beyond_the_peers_heap_is_not_followed(void)
{
    const uint32_t access = IBV_ACCESS_REMOTE_WRITE;
    const struct vb_mr_shared *region;
    static uint8_t own[64];
    struct end end;
    int socket;
    pid_t child = end_spawn("stands_by", &socket);

    end_open(&end, (struct end_options){.in_heap = true});
    end_connect(&end, end_add_qp(&end), socket);
    CHECK_EQ(vb_mr_check(&end.qp->verbs->connection->peer->view,
                         end.qp->verbs->connection->remote->pd, end.peer.rkey, end.peer.addr, 64,
                         access, &region),
             VB_CHECK_OK);
    CHECK(region->in_heap && end.qp->verbs->connection->peer->heap);
    ((struct vb_mr_shared *)(uintptr_t)region)->heap_offset =
        (uintptr_t)own - (uintptr_t)end.qp->verbs->connection->peer->heap -
        (end.peer.addr - region->iova);
    memset(end.memory, 0x33, 64);
    CHECK_EQ(end_post(&end, end.qp, IBV_WR_RDMA_WRITE, 64), 0);
    CHECK_EQ(end_wait(end.cq, 10).status, IBV_WC_SUCCESS); /* by a copy to its address */
    for (size_t i = 0; i < sizeof(own); ++i)
        CHECK_EQ(own[i], 0);
    end_meet(socket);
    end_meet(socket);
    end_kill(child, socket);
    end_close(&end);
}

/* ---- garbage in everything that it maps ---- */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Over the pages that are in use: the tables are sparse. */
static void scribble_over(uint8_t *base, size_t size, uint64_t *state)
{
    static unsigned char resident[MOST_PAGES];
    const size_t pages = size / 4096 < MOST_PAGES ? size / 4096 : MOST_PAGES;

    CHECK_EQ(mincore(base, pages * 4096, resident), 0);
    for (size_t page = 0; page < pages; ++page)
        for (int i = 0; (resident[page] & 1) && i < 64; ++i)
            ((uint64_t *)(void *)base)[page * 512 + next_random(state) % 512] =
                next_random(state) >> next_random(state) % 64;
}

static void scribbles(int socket)
{
    struct end end;
    uint64_t seed;

    end_open(&end, (struct end_options){.in_heap = true});
    CHECK_EQ(read(socket, &seed, sizeof(seed)), sizeof(seed));
    end_connect(&end, end_add_qp(&end), socket);
    CHECK_EQ(end_post(&end, end.qp, IBV_WR_RDMA_WRITE, 64), 0);
    CHECK_EQ(end_wait(end.cq, 10).status, IBV_WC_SUCCESS);
    end_meet(socket);
    scribble_over(end.qp->verbs->connection->peer->view.base,
                  end.qp->verbs->connection->peer->segment_size, &seed);
    scribble_over(end.qp->verbs->connection->peer->heap, end.qp->verbs->connection->peer->heap_size,
                  &seed);
    kill(getpid(), SIGKILL);
}

/* The victim works with a bystander when its segment becomes garbage. */
static void is_scribbled_over(int bystander)
{
    struct end end;
    uint64_t seed;
    int hostile;

    CHECK_EQ(read(bystander, &seed, sizeof(seed)), sizeof(seed));
    end_open(&end, (struct end_options){.in_heap = true});
    end_connect(&end, end_add_qp(&end), bystander);
    end_spawn("scribbles", &hostile);
    CHECK_EQ(write(hostile, &seed, sizeof(seed)), sizeof(seed));
    end_connect(&end, end_add_qp(&end), hostile);
    end_meet(hostile);
    end_meet(bystander);
    for (;;) {
        struct ibv_wc wc[8];

        end_post(&end, end.qp, IBV_WR_RDMA_WRITE, 512);
        vb_cq_poll(end.cq, 8, wc);
    }
}

/* Whatever becomes of the victim: this one's requests to it end, and all else goes on. */
static void look_on(uint64_t seed)
{
    struct vb_qp *to_victim, *pair[2];
    struct end end;
    int socket, ended = 0;
    pid_t victim;

    end_open(&end, (struct end_options){.in_heap = true});
    to_victim = end_add_qp(&end);
    pair[0] = end_add_qp(&end);
    pair[1] = end_add_qp(&end);
    end_ready(pair[0], pair[1]);
    end_ready(pair[1], pair[0]);
    victim = end_spawn("is_scribbled_over", &socket);
    CHECK_EQ(write(socket, &seed, sizeof(seed)), sizeof(seed));
    end_connect(&end, to_victim, socket);
    end_meet(socket);
    for (int i = 0; i < 200; ++i) {
        end_post(&end, to_victim, IBV_WR_RDMA_WRITE, 256);
        ended += end_wait(end.cq, 20).status != IBV_WC_SUCCESS;
        usleep(500);
    }
    end_kill(victim, socket);
    end_post_recv(&end, pair[1], 3);
    memset(end.memory, 0x33, 512);
    CHECK_EQ(end_post(&end, pair[0], IBV_WR_SEND, 512), 0);
    for (int i = 0; i < 2; ++i)
        CHECK_EQ(end_wait(end.cq, 20).status, IBV_WC_SUCCESS);
    for (int i = 0; i < 512; ++i)
        CHECK_EQ(end.memory[i], 0x33);
    end_close(&end);
    printf("seed %llu: %d of 200 requests to the victim failed\n", (unsigned long long)seed, ended);
}

static void a_bystander_is_not_harmed(void)
{
    for (uint64_t seed = 1; seed <= ROUNDS; ++seed)
        look_on(seed * 0x9e3779b97f4a7c15ull);
}

int main(int argc, char **argv)
{
    static const struct end_play plays[] = {
        {"stands_by", stands_by},
        {"scribbles", scribbles},
        {"is_scribbled_over", is_scribbled_over},
    };

    if (end_play(argc, argv, plays, 3))
        return 0;
    alarm(90); /* a hang is a failure */
    RUN(a_segment_that_could_be_taken_away_is_refused);
    RUN(a_process_that_does_not_hold_the_probe_is_not_written_to);
    RUN(an_offset_beyond_the_peers_heap_is_not_followed);
    RUN(a_bystander_is_not_harmed);
    return 0;
}
