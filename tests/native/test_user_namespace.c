// SPDX-License-Identifier: Apache-2.0
/*
 * In a user namespace where few users have a number, all others appear as "nobody". A process that
 * is nobody there must not take them for itself.
 */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "direct/handshake.h"
#include "direct/slot.h"
#include "loopback.h"

enum { NOBODY = 65534, NOBODY_OUTSIDE = 100000, STRANGER = 1000, PATIENCE_MS = 5000 };

static struct loopback loop;

static void skip(const char *reason)
{
    printf("%s\n", reason);
    exit(77);
}

static void meet(int socket)
{
    char token = 'x';

    CHECK_EQ(write(socket, &token, 1), 1);
    CHECK_EQ(read(socket, &token, 1), 1);
}

/* Is nobody in a namespace of its own, with the device open. */
static void victim(int socket)
{
    uint32_t slot;

    CHECK_EQ(unshare(CLONE_NEWUSER), 0);
    meet(socket); /* the parent maps the user meanwhile */
    meet(socket);
    CHECK_EQ(setuid(NOBODY), 0);
    CHECK_EQ(geteuid(), NOBODY);
    loopback_open(&loop, IBV_QPT_RC);
    slot = loop.direct->slots[0];
    CHECK_EQ(write(socket, &slot, sizeof(slot)), sizeof(slot));
    meet(socket);
    CHECK(loop.direct->peers == NULL);
    loopback_close(&loop);
    _exit(0);
}

static void map_user(pid_t pid)
{
    char path[64], line[64];
    int fd, length;

    snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
    length = snprintf(line, sizeof(line), "%d %d 1\n", NOBODY, NOBODY_OUTSIDE);
    fd = open(path, O_WRONLY);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, line, (size_t)length), length);
    close(fd);
}

/* Another user's process that says hello all the same: it must get no answer. */
static void intrude(uint32_t slot)
{
    struct pollfd readable = {.events = POLLIN};
    char byte;

    loopback_open(&loop, IBV_QPT_RC);
    CHECK_EQ(setuid(STRANGER), 0);
    readable.fd = vb_direct_slot_connect(slot);
    CHECK(readable.fd >= 0);
    vb_direct_hello_send(loop.direct, readable.fd, VB_MSG_HELLO);
    CHECK_EQ(poll(&readable, 1, PATIENCE_MS), 1);
    CHECK(recv(readable.fd, &byte, 1, MSG_DONTWAIT) <= 0);
    _exit(0);
}

static pid_t start(int *socket)
{
    int ends[2];
    pid_t child;

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    child = fork();
    if (!child) {
        alarm(30); /* it does not outlive its test */
        victim(ends[1]);
    }
    close(ends[1]);
    *socket = ends[0];
    return child;
}

static void check_end(pid_t child)
{
    int status;

    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

static bool namespaces_work(void)
{
    int status;
    pid_t child = fork();

    if (!child)
        _exit(unshare(CLONE_NEWUSER) ? 1 : 0);
    return waitpid(child, &status, 0) == child && status == 0;
}

int main(void)
{
    pid_t child, stranger;
    uint32_t slot;
    int socket;

    if (geteuid() != 0)
        skip("this process cannot become two users; run the tests as root");
    if (!namespaces_work())
        skip("this system makes no user namespace; sysctl user.max_user_namespaces=1000 allows it");
    child = start(&socket);
    meet(socket);
    map_user(child);
    meet(socket);
    CHECK_EQ(read(socket, &slot, sizeof(slot)), sizeof(slot));
    stranger = fork();
    if (!stranger)
        intrude(slot);
    check_end(stranger);
    meet(socket);
    check_end(child);
    printf("ok a user without a number is nobody's friend\n");
    return 0;
}
