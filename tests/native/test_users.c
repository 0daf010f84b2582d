// SPDX-License-Identifier: Apache-2.0
/* Another user's process learns nothing, whichever side connects. */
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "direct/handshake.h"
#include "direct/slot.h"
#include "loopback.h"

enum { NOBODY = 65534, PATIENCE_MS = 5000 };

static struct loopback loop;
static int to_child[2], to_parent[2];

static void say(int fd, uint32_t word)
{
    CHECK_EQ(write(fd, &word, sizeof(word)), sizeof(word));
}

static uint32_t hear(int fd)
{
    uint32_t word;

    CHECK_EQ(read(fd, &word, sizeof(word)), sizeof(word));
    return word;
}

/* The connection ends, and until then nothing came: no byte, and so no descriptor. */
static void must_end_silently(int socket)
{
    struct pollfd readable = {.fd = socket, .events = POLLIN};
    char byte;
    ssize_t n;

    CHECK_EQ(poll(&readable, 1, PATIENCE_MS), 1);
    n = recv(socket, &byte, 1, MSG_DONTWAIT);
    CHECK(n == 0 || (n < 0 && errno == ECONNRESET));
}

/* Waits in a slot of its own for the parent to connect. */
static void squat(void)
{
    struct pollfd incoming = {.events = POLLIN};
    uint32_t slot;
    int socket;

    incoming.fd = vb_direct_slot_claim(0x800, &slot);
    CHECK(incoming.fd >= 0);
    say(to_parent[1], slot);
    CHECK_EQ(poll(&incoming, 1, PATIENCE_MS), 1);
    socket = accept(incoming.fd, NULL, NULL);
    CHECK(socket >= 0);
    must_end_silently(socket);
}

/* Says what a peer would say, in the parent's slot. */
static void intrude(struct vb_direct *inherited)
{
    int socket = vb_direct_slot_connect(hear(to_child[0])), error;

    CHECK(socket >= 0);
    error = vb_direct_hello_send(inherited, socket, VB_MSG_HELLO);
    CHECK(error == 0 || error == -EPIPE); /* it may have been shown the door already */
    must_end_silently(socket);
}

static void child(void)
{
    CHECK_EQ(setgid(NOBODY), 0);
    CHECK_EQ(setuid(NOBODY), 0);
    squat();
    intrude(loop.direct);
    _exit(0);
}

int main(void)
{
    uint32_t slot;
    int status;

    if (geteuid() != 0) {
        printf("this process cannot become another user; run the tests as root\n");
        return 77;
    }
    CHECK_EQ(pipe(to_child), 0);
    CHECK_EQ(pipe(to_parent), 0);
    loopback_open(&loop, IBV_QPT_RC);
    if (fork() == 0)
        child();
    slot = hear(to_parent[0]);
    CHECK(vb_direct_peer_find(loop.direct, slot << VB_SLOT_BITS) == NULL);
    say(to_child[1], loop.direct->slots[0]);
    CHECK(wait(&status) > 0);
    CHECK_EQ(status, 0);
    CHECK(loop.direct->peers == NULL);
    loopback_close(&loop);
    printf("ok other users learn nothing\n");
    return 0;
}
