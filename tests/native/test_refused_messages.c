// SPDX-License-Identifier: Apache-2.0
/*
 * What the service thread does with each message of a peer that a test plays by hand: which first
 * messages end the connection, which objects are looked up, and whose descriptors are closed when.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "direct/message.h"
#include "direct/peer.h"
#include "direct/slot.h"
#include "end.h"
#include "entries.h"
#include "memory/heap_state.h"

enum { UNKNOWN_MESSAGE = 11, LINKS = 4 };

static const uint64_t segment_bytes = 8ull << 30;
static struct end end;
static int before; /* descriptors without any connection */

static void begin(bool channel)
{
    end_open(&end, (struct end_options){.channel = channel});
    end_add_qp(&end);
    before = entries(DESCRIPTORS);
}

static void finish(void)
{
    CHECK(has_entries_soon(DESCRIPTORS, before));
    end_close(&end);
}

static int connect_to(void)
{
    int fd = vb_direct_slot_connect(end.direct->slots[0]);
    struct timeval limit = {.tv_sec = 10};

    CHECK(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return fd;
}

static void say(int fd, struct vb_message message, const int *fds, int count)
{
    CHECK_EQ(vb_direct_message_send(fd, &message, fds, count, true), 0);
}

static void say_of(int fd, enum vb_message_type type, uint32_t object)
{
    say(fd, (struct vb_message){.type = type, .object = object}, NULL, 0);
}

/* A connection of the peer with this instance, which has been welcomed. */
static int be_welcome(uint32_t instance)
{
    struct vb_message message = {.type = VB_MSG_HELLO,
                                 .hello = {.magic = VB_SEGMENT_MAGIC,
                                           .version = VB_LAYOUT_VERSION,
                                           .instance = instance,
                                           .segment_size = segment_bytes}};
    const struct vb_segment_header header = {.magic = VB_SEGMENT_MAGIC,
                                             .version = VB_LAYOUT_VERSION,
                                             .header_size = sizeof(header),
                                             .mr_entries = 1};
    int fd = connect_to(), file = vb_memory_heap_file(segment_bytes), fds[VB_MESSAGE_FDS];

    CHECK_EQ(pwrite(file, &header, sizeof(header), 0), sizeof(header));
    say(fd, message, &file, 1);
    CHECK_EQ(vb_direct_message_receive(fd, &message, fds), 0);
    CHECK_EQ(message.type, VB_MSG_WELCOME);
    for (int i = 0; i < VB_MESSAGE_FDS; ++i)
        if (fds[i] >= 0)
            close(fds[i]);
    close(file);
    return fd;
}

/* ---- the first message ----------------------------------------------------------------------- */

/* All but a hello end the connection, also with descriptors; counters are told before that. */
static void strangers_are_told_their_counters_at_most(void)
{
    char told[1 << 14];
    int pipes[2];

    begin(false);
    CHECK_EQ(pipe(pipes), 0);
    for (uint32_t type = 0; type <= UNKNOWN_MESSAGE; ++type) {
        int fd = connect_to();

        if (type != VB_MSG_HELLO) {
            say(fd, (struct vb_message){.type = type}, pipes, 2);
            if (type == VB_MSG_COUNTERS) {
                ssize_t length = recv(fd, told, sizeof(told) - 1, 0);

                CHECK(length > 0 && told[0] == '{' && told[length - 1] == '}');
            }
            CHECK_EQ(recv(fd, told, sizeof(told), 0), 0);
        }
        close(fd);
    }
    close(pipes[0]);
    close(pipes[1]);
    CHECK(end.direct->peers == NULL);
    finish();
}

/* ---- several connections of one peer --------------------------------------------------------- */

static struct vb_peer *the_peer(void)
{
    struct vb_peer *peer;

    vb_lock_take(&end.direct->peers_mutex);
    peer = end.direct->peers;
    CHECK(!peer || !peer->next);
    vb_lock_release(&end.direct->peers_mutex);
    return peer;
}

/* It goes with the last one, whichever that is, and each that has ended is closed at last. */
static void a_peer_goes_with_its_last_connection(void)
{
    for (int last = 0; last < LINKS; ++last) {
        int fds[LINKS];

        begin(false);
        for (int i = 0; i < LINKS; ++i) {
            fds[i] = be_welcome(70);
            CHECK(the_peer() != NULL);
            CHECK_EQ(atomic_load(&the_peer()->links), i + 1);
        }
        CHECK(has_entries_soon(DESCRIPTORS, before + 2 * LINKS));
        for (uint32_t i = 0, left = LINKS; i < LINKS; ++i) {
            if ((int)i == last)
                continue;
            close(fds[i]);
            --left;
            for (int tries = 0; tries < 1000 && atomic_load(&the_peer()->links) != left; ++tries)
                usleep(1000);
            CHECK_EQ(atomic_load(&the_peer()->links), left);
            CHECK(!atomic_load(&the_peer()->gone));
        }
        /* the one that is left, both its ends, and the one that has just ended */
        CHECK(has_entries_soon(DESCRIPTORS, before + 3));
        close(fds[last]);
        finish();
    }
}

/* ---- objects --------------------------------------------------------------------------------- */

/* The peer is answered after that, so nothing came of a number that names no object. */
static void numbers_of_no_object_are_passed_over(void)
{
    static const enum vb_message_type types[] = {VB_MSG_PLACE, VB_MSG_CHANNEL_WANTED};
    static const uint32_t numbers[] = {100, VB_MAX_CQ - 1, VB_MAX_CQ, VB_MAX_CQ + 1, UINT32_MAX};
    struct vb_message message;
    int fds[VB_MESSAGE_FDS], fd;

    begin(true);
    fd = be_welcome(71);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); ++i)
        for (int j = 0; j < 2; ++j)
            say_of(fd, types[j], numbers[i]);
    say_of(fd, VB_MSG_PLACE, end.cq->index);
    say_of(fd, VB_MSG_CHANNEL_WANTED, end.cq->index);
    CHECK_EQ(vb_direct_message_receive(fd, &message, fds), 0);
    CHECK_EQ(message.type, VB_MSG_CHANNEL);
    CHECK_EQ(message.value, end.channel->serial);
    CHECK(fds[0] >= 0 && fds[1] >= 0);
    close(fds[0]);
    close(fds[1]);
    close(fd);
    finish();
}

/* ---- channels -------------------------------------------------------------------------------- */

/* Waits until the peer's messages so far have been dealt with. */
static void wait_for_answer(int fd)
{
    struct vb_message message;
    int fds[VB_MESSAGE_FDS];

    say_of(fd, VB_MSG_CHANNEL_WANTED, end.cq->index);
    CHECK_EQ(vb_direct_message_receive(fd, &message, fds), 0);
    CHECK_EQ(message.type, VB_MSG_CHANNEL);
    close(fds[0]);
    close(fds[1]);
}

/* The last ones are kept, each with its two descriptors, until the peer goes. */
static void so_many_channels_of_a_peer_are_kept(void)
{
    int pipes[2], fd;

    begin(true);
    fd = be_welcome(72);
    CHECK_EQ(pipe(pipes), 0);
    for (int given = 0; given <= 2 * VB_PEER_CHANNELS + 1; ++given) {
        int kept = given < VB_PEER_CHANNELS ? given : VB_PEER_CHANNELS;

        wait_for_answer(fd);
        CHECK_EQ(entries(DESCRIPTORS), before + 4 + 2 * kept);
        for (int few = 0; few < 2; ++few) /* one alone is none */
            say(fd, (struct vb_message){.type = VB_MSG_CHANNEL, .value = 1}, pipes, few);
        wait_for_answer(fd);
        CHECK_EQ(entries(DESCRIPTORS), before + 4 + 2 * kept);
        say(fd, (struct vb_message){.type = VB_MSG_CHANNEL, .value = 100u + (uint32_t)given}, pipes,
            2);
    }
    wait_for_answer(fd);
    for (int i = 0; i < VB_PEER_CHANNELS; ++i) { /* the second round, and two of the third */
        uint32_t serial = the_peer()->channels[i].serial;

        CHECK_EQ(serial, 100 + (i < 2 ? 2 * VB_PEER_CHANNELS : VB_PEER_CHANNELS) + i);
    }
    close(pipes[0]);
    close(pipes[1]);
    close(fd);
    finish();
}

/* ---- the header of a peer's segment ---------------------------------------------------------- */

/* Each table lies in the segment, which ends where the last one that fits does. */
static void a_table_outside_the_segment_is_refused(void)
{
    static _Alignas(VB_LINE) uint8_t bytes[1 << 16]; /* the header, and what nothing leads to */
    struct vb_segment_header *header = (struct vb_segment_header *)(void *)bytes;
    const struct {
        uint64_t *offset, length;
    } tables[] = {
        {&header->mr, sizeof(struct vb_mr_shared)},
        {&header->qp, sizeof(struct vb_qp_shared) * VB_MAX_QP},
        {&header->cq, sizeof(struct vb_cq_shared) * VB_MAX_CQ},
        {&header->srq, sizeof(struct vb_srq_shared) * VB_MAX_SRQ},
        {&header->evidence, sizeof(struct vb_evidence) * VB_EVIDENCE_RECORDS},
        {&header->group, sizeof(struct vb_group_shared) * VB_MAX_GROUPS},
    };
    struct vb_view view;

    header->magic = VB_SEGMENT_MAGIC;
    header->version = VB_LAYOUT_VERSION;
    header->header_size = sizeof(*header);
    header->mr_entries = 1;
    CHECK_EQ(vb_view_open(&view, bytes, segment_bytes, 0), 0);
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); ++i) {
        uint64_t last = (segment_bytes - tables[i].length) & -(uint64_t)VB_LINE;
        const uint64_t wrong[] = {last + VB_LINE, last - 8, segment_bytes, segment_bytes + VB_LINE,
                                  -(uint64_t)VB_LINE};

        *tables[i].offset = last;
        CHECK_EQ(vb_view_open(&view, bytes, segment_bytes, 0), 0);
        for (size_t j = 0; j < sizeof(wrong) / sizeof(wrong[0]); ++j) {
            *tables[i].offset = wrong[j];
            CHECK_EQ(vb_view_open(&view, bytes, segment_bytes, 0), -EPROTO);
        }
        *tables[i].offset = 0;
    }
}

int main(void)
{
    alarm(100);
    RUN(strangers_are_told_their_counters_at_most);
    RUN(a_peer_goes_with_its_last_connection);
    RUN(numbers_of_no_object_are_passed_over);
    RUN(a_table_outside_the_segment_is_refused);
    RUN(so_many_channels_of_a_peer_are_kept);
    return 0;
}
