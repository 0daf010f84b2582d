// SPDX-License-Identifier: Apache-2.0
/*
 * Connects to the process of a fabric and asks (question.h). Its address is the abstract name
 * verbena/fabric/UID/NAME.
 */
#include "preload/paths/fabric/question.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "direct/user.h"
#include "memory/descriptor.h"
#include "preload/paths/claim.h"

#define QUESTION_MAGIC 0x56624661u /* VbFa */
enum { QUESTION_VERSION = 1, QUESTION_HOST = 64, QUESTION_SENTENCE = 512, QUESTION_PATIENCE = 30 };

struct question_hello {
    uint32_t magic, version, role, number;
    uint64_t inode;
    char host[QUESTION_HOST];
};

struct question_welcome {
    uint32_t magic, version;
    int32_t error; /* -errno */
    uint32_t length;
};

static const char *question_variable(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

bool vb_preload_fabric_is_set(void)
{
    return question_variable("VERBENA_FABRIC")[0] && question_variable("VERBENA_HOST")[0];
}

static int question_complain(int error, const char *sentence, size_t length)
{
    static atomic_flag was_said = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&was_said))
        return error;
    if (length)
        dprintf(STDERR_FILENO, "verbena: %.*s\n", (int)length, sentence);
    else
        dprintf(STDERR_FILENO,
                "verbena: the fabric %s does not answer (%s): `verbena fabric --list` shows which "
                "run, and `verbena fabric TOPOLOGY --name %s` starts it\n",
                question_variable("VERBENA_FABRIC"), strerror(-error),
                question_variable("VERBENA_FABRIC"));
    return error;
}

/* ---- messages -------------------------------------------------------------------------------- */

static ssize_t question_send(int fd, struct iovec *parts, size_t count, int attached)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.head = {.cmsg_len = CMSG_LEN(sizeof attached),
                          .cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    if (attached >= 0) {
        memcpy(CMSG_DATA(&control.head), &attached, sizeof attached);
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL);
}

static int question_connect(int flags)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval limit = {.tv_sec = QUESTION_PATIENCE};
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "verbena/fabric/%u/%s",
                          (unsigned)geteuid(), question_variable("VERBENA_FABRIC"));
    int fd = vb_memory_descriptor_raise(socket(AF_UNIX, SOCK_SEQPACKET | flags, 0));
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    int error = connect(fd, (struct sockaddr *)&address,
                        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length))
                    ? -errno
                    : vb_direct_check_user(fd);
    if (!error)
        return fd;
    close(fd);
    return error;
}

static int question_greet(int fd, const struct vb_fabric_question *question)
{
    struct question_hello hello = {.magic = QUESTION_MAGIC,
                                   .version = QUESTION_VERSION,
                                   .role = question->role,
                                   .number = question->port,
                                   .inode = question->inode};
    struct iovec parts[] = {{&hello, sizeof hello}, question->data[0], question->data[1]};
    struct stat own;
    strncpy(hello.host, question_variable("VERBENA_HOST"), sizeof hello.host - 1);
    if (!hello.inode && vb_preload_next_fstatat(fd, "", &own, AT_EMPTY_PATH) == 0)
        hello.inode = own.st_ino;
    return question_send(fd, parts, 3, question->attached) < 0 ? -errno : 0;
}

/* The error of the welcome; its data are in `answer`, or a sentence that is then printed. */
static int question_await(int fd, const struct vb_fabric_question *question, void *answer,
                          size_t room, size_t *length)
{
    struct question_welcome welcome = {0};
    struct iovec parts[] = {{&welcome, sizeof welcome}, {answer, room}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t got;
    do
        got = recvmsg(fd, &message, 0);
    while (got < 0 && ((errno == EINTR && question->role != VB_FABRIC_ISSM) ||
                       (errno == EAGAIN && question->role == VB_FABRIC_ISSM)));
    if (got < (ssize_t)sizeof welcome)
        return got >= 0 ? -ECONNRESET : errno == EAGAIN ? -ETIMEDOUT : -errno;
    if (welcome.magic != QUESTION_MAGIC)
        return -EPROTO;
    *length = welcome.length < room ? welcome.length : room;
    return welcome.error;
}

/* Makes a connection and asks by it. The connection, or -errno. */
static int question_begin(const struct vb_fabric_question *question, int flags, void *answer,
                          size_t room, size_t *length)
{
    int fd = question_connect(flags);
    *length = 0;
    if (fd < 0)
        return question_complain(fd, NULL, 0);
    int error = question_greet(fd, question);
    if (!error)
        error = question_await(fd, question, answer, room, length);
    if (!error)
        return fd;
    close(fd);
    if (question->role != VB_FABRIC_CALL && error != -EINTR && error != -EAGAIN)
        question_complain(error, answer, *length);
    return error;
}

int vb_preload_fabric_ask(const struct vb_fabric_question *question, void *answer, size_t room,
                          size_t *length)
{
    int fd = question_begin(question, SOCK_CLOEXEC, answer, room, length);
    if (fd < 0)
        return fd;
    close(fd);
    return 0;
}

int vb_preload_fabric_open(const struct vb_fabric_question *question, int flags)
{
    char sentence[QUESTION_SENTENCE];
    size_t length;
    return question_begin(question, flags & O_CLOEXEC ? SOCK_CLOEXEC : 0, sentence, sizeof sentence,
                          &length);
}
