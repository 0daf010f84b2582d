// SPDX-License-Identifier: Apache-2.0
/*
 * First messages of processes that a test plays (direct/handshake.h): which are refused and why, by
 * which ways a peer is reached, which connections are one peer's, and that nothing of a refused one
 * is kept.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "direct/handshake.h"
#include "direct/peer.h"
#include "end.h"
#include "entries.h"
#include "memory/heap_state.h"

enum { HEAP_BYTES = 1 << 20, INSTANCE = 70 };

static const uint64_t segment_bytes = 8ull << 30;
static struct end end;
static uint64_t probe[2];
static int before; /* descriptors */

static void begin(void)
{
    end_open(&end, (struct end_options){0});
    before = entries(DESCRIPTORS);
    probe[0] = 0x1234567890;
    probe[1] = 0;
}

static void finish(void)
{
    CHECK(end.direct->peers == NULL);
    CHECK_EQ(entries(DESCRIPTORS), before);
    end_close(&end);
}

/* A connection; the other end of it says nothing more. */
static int connection(void)
{
    int ends[2];

    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    close(ends[1]);
    return ends[0];
}

static int segment_file(uint64_t bytes)
{
    const struct vb_segment_header header = {.magic = VB_SEGMENT_MAGIC,
                                             .version = VB_LAYOUT_VERSION,
                                             .header_size = sizeof(header),
                                             .mr_entries = 1};
    int fd = vb_memory_heap_file(bytes);

    CHECK(fd >= 0);
    CHECK_EQ(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
    return fd;
}

static struct vb_message sound_hello(void)
{
    return (struct vb_message){.type = VB_MSG_HELLO,
                               .hello = {.magic = VB_SEGMENT_MAGIC,
                                         .version = VB_LAYOUT_VERSION,
                                         .instance = INSTANCE,
                                         .slots = {11, 12},
                                         .segment_size = segment_bytes,
                                         .probe_addr = (uintptr_t)probe,
                                         .probe_value = 0x1234567890}};
}

/* As the service thread; the descriptors are the call's. */
static int accepted(struct vb_message hello, int segment, int heap, int socket,
                    struct vb_peer **peer)
{
    int fds[VB_MESSAGE_FDS] = {segment, heap};
    int error = vb_direct_hello_accept(end.direct, socket, &hello, fds, peer);

    CHECK_EQ(fds[0], -1);
    CHECK_EQ(fds[1], -1);
    return error;
}

/* The last connection of a peer ends. */
static void leave(struct vb_peer *peer)
{
    atomic_store(&peer->gone, true);
    vb_direct_peer_put(end.direct, peer);
}

/* ---- refused ---- */

static void what_is_wrong_is_refused(void)
{
    enum fault { MAGIC, LAYOUT, NO_FILE, SHORT_FILE, SHORT_HEAP, HEADER, SOUND };
    static const int errors[] = {-EPROTO, -EPROTONOSUPPORT, -EPROTO, -EPROTO, -EPROTO, -EPROTO, 0};

    for (enum fault fault = MAGIC; fault <= SOUND; ++fault) {
        struct vb_message hello = sound_hello();
        struct vb_other_build other;
        struct vb_peer *peer;
        int segment, heap, socket;

        begin();
        socket = connection();
        segment = fault == NO_FILE ? -1 : segment_file(segment_bytes);
        heap = vb_memory_heap_file(HEAP_BYTES);
        hello.hello.heap_size = HEAP_BYTES;
        hello.hello.magic += fault == MAGIC;
        hello.hello.version += fault == LAYOUT;
        hello.hello.segment_size += fault == SHORT_FILE;
        hello.hello.heap_size += fault == SHORT_HEAP;
        hello.hello.header_offset = fault == HEADER ? segment_bytes : 0;
        CHECK_EQ(accepted(hello, segment, heap, socket, &peer), errors[fault]);
        CHECK_EQ(vb_direct_other_build_find(end.direct, 12 * VB_QPS_PER_SLOT, &other),
                 fault == LAYOUT);
        if (fault == SOUND) {
            CHECK_EQ(peer->socket, socket);
            CHECK_EQ(peer->retired, -1);
            CHECK_EQ(peer->pid, getpid());
            CHECK_EQ(peer->segment_size, segment_bytes);
            leave(peer);
        } else {
            close(socket);
        }
        finish();
    }
}

/* ---- ways ---- */

static void the_ways_are_those_that_may_be_used(void)
{
    static const struct {
        enum vb_way force;
        bool has_heap, is_probed;
        bool maps, copies;
        int error;
    } rows[] = {
        {VB_WAY_ANY, true, true, true, true, 0},
        {VB_WAY_ANY, false, true, false, true, 0},
        {VB_WAY_ANY, true, false, true, false, -ESRCH},
        {VB_WAY_SHARED, true, true, true, true, 0},
        {VB_WAY_CMA, true, true, false, true, 0},
        {VB_WAY_CMA, true, false, false, false, -ESRCH},
        {VB_WAY_BOUNCE, true, true, false, false, -ECANCELED},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
        struct vb_message hello = sound_hello();
        struct vb_peer *peer;
        int heap = -1;

        begin();
        end.direct->force = rows[i].force;
        if (rows[i].has_heap) {
            heap = vb_memory_heap_file(HEAP_BYTES);
            CHECK_EQ(pwrite(heap, "here", 4, HEAP_BYTES - 4), 4);
            hello.hello.heap_size = HEAP_BYTES;
        }
        hello.hello.probe_value += !rows[i].is_probed;
        CHECK_EQ(accepted(hello, segment_file(segment_bytes), heap, connection(), &peer), 0);
        CHECK_EQ(peer->heap != NULL, rows[i].maps);
        CHECK_EQ(peer->heap_size, rows[i].maps ? HEAP_BYTES : 0);
        if (rows[i].maps)
            CHECK_EQ(memcmp(peer->heap + HEAP_BYTES - 4, "here", 4), 0);
        CHECK_EQ(peer->cma, rows[i].copies);
        CHECK_EQ(peer->cma_error, rows[i].error);
        CHECK_EQ(probe[1], rows[i].copies ? 0x1234567890 : 0); /* it is written to, as a test */
        leave(peer);
        finish();
    }
}

/* ---- whose connections ---- */

/* Of one process by its instance, unless that is gone; each says which slots it has now. */
static void connections_of_one_process_are_one_peer(void)
{
    struct vb_peer *peers[3], *again;
    struct vb_message hello = sound_hello();
    int sockets[3];

    begin();
    for (uint32_t i = 0; i < 3; ++i) {
        hello.hello.instance = INSTANCE + i;
        CHECK_EQ(accepted(hello, segment_file(segment_bytes), -1, connection(), &peers[i]), 0);
        CHECK(end.direct->peers == peers[i]);
        CHECK_EQ(peers[i]->instance, INSTANCE + i);
        CHECK_EQ(peers[i]->slots[1], 12);
        CHECK_EQ(peers[i]->links, 1);
        CHECK_EQ(peers[i]->refs, 1);
    }
    CHECK(peers[0] != peers[1] && peers[1] != peers[2] && peers[2] != peers[0]);
    for (uint32_t i = 0; i < 3; ++i) {
        hello.hello.instance = INSTANCE + i;
        hello.hello.slots[1] = 30 + i;
        sockets[i] = connection();
        CHECK_EQ(accepted(hello, segment_file(segment_bytes), -1, sockets[i], &again), 0);
        CHECK(again == peers[i]);
        CHECK_EQ(again->links, 2);
        CHECK_EQ(again->refs, 2);
        CHECK_EQ(again->slots[1], 30 + i);
    }
    atomic_store(&peers[1]->gone, true);
    hello.hello.instance = INSTANCE + 1;
    CHECK_EQ(accepted(hello, segment_file(segment_bytes), -1, connection(), &again), 0);
    CHECK(again != peers[1]);
    leave(again);
    for (int i = 0; i < 3; ++i) {
        close(sockets[i]);
        vb_direct_peer_put(end.direct, peers[i]);
        leave(peers[i]);
    }
    finish();
}

/* ---- what is said ---- */

static void a_process_introduces_itself(void)
{
    for (int declines = 0; declines < 2; ++declines) {
        const struct vb_heap *heap;
        struct vb_message message;
        int ends[2], fds[VB_MESSAGE_FDS];

        begin();
        heap = declines ? NULL : end.direct->adapter->heap;
        CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
        if (declines)
            vb_direct_hello_decline(end.direct, ends[0]);
        else
            CHECK_EQ(vb_direct_hello_send(end.direct, ends[0], VB_MSG_HELLO), 0);
        CHECK_EQ(vb_direct_message_receive(ends[1], &message, fds), 0);
        CHECK_EQ(message.type, declines ? VB_MSG_WELCOME : VB_MSG_HELLO);
        CHECK_EQ(strncmp(message.package, VERBENA_VERSION, sizeof(message.package)), 0);
        CHECK_EQ(message.hello.magic, VB_SEGMENT_MAGIC);
        CHECK_EQ(message.hello.version, VB_LAYOUT_VERSION);
        CHECK_EQ(message.hello.instance, end.direct->adapter->instance);
        CHECK_EQ(memcmp(message.hello.slots, end.direct->slots, sizeof(message.hello.slots)), 0);
        CHECK_EQ(fds[0] >= 0, !declines);
        CHECK_EQ(fds[1] >= 0, heap != NULL);
        CHECK_EQ(message.hello.heap_size, heap ? vb_memory_heap_size(heap) : 0);
        CHECK_EQ(message.hello.segment_size,
                 declines ? 0 : vb_memory_heap_size(end.direct->adapter->segment));
        CHECK_EQ(message.hello.probe_addr, declines ? 0 : (uintptr_t)end.direct->probe);
        CHECK_EQ(message.hello.probe_value, declines ? 0 : end.direct->probe[0]);
        for (int i = 0; i < VB_MESSAGE_FDS; ++i)
            if (fds[i] >= 0)
                close(fds[i]);
        close(ends[0]);
        close(ends[1]);
        finish();
    }
}

int main(void)
{
    alarm(100);
    RUN(what_is_wrong_is_refused);
    RUN(the_ways_are_those_that_may_be_used);
    RUN(connections_of_one_process_are_one_peer);
    RUN(a_process_introduces_itself);
    return 0;
}
