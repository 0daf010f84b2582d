// SPDX-License-Identifier: Apache-2.0
/*
 * Connects to the process of a live fabric and asks (fabric_question.h). Its address is the
 * abstract name verbena/fabric/UID/NAME.
 */
#include "port/fabric_question.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "memory/descriptor.h"

#define QUESTION_MAGIC 0x56624661u /* VbFa */
enum { QUESTION_VERSION = 2, QUESTION_HOST = 64 };

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

union question_control {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static const char *question_variable(const char *name)
{
    const char *value = getenv(name);

    return value ? value : "";
}

void vb_port_fabric_explain(int error, char *sentence, size_t size)
{
    const char *name = question_variable("VERBENA_FABRIC");

    snprintf(sentence, size,
             "the fabric %.60s does not answer (%s): `verbena fabric --list` shows those that run, "
             "and `verbena fabric TOPOLOGY --name %.60s` starts it",
             name, strerror(-error), name);
}

static bool question_is_own(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

int vb_port_fabric_reach(int flags, int seconds)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval limit = {.tv_sec = seconds};
    int length =
        snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "verbena/fabric/%u/%s",
                 (unsigned)geteuid(), question_variable("VERBENA_FABRIC"));
    int fd = vb_memory_descriptor_raise(socket(AF_UNIX, SOCK_SEQPACKET | flags, 0)), error = 0;

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(fd, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)))
        error = -errno;
    else if (!question_is_own(fd))
        error = -EACCES;
    if (!error)
        return fd;
    close(fd);
    return error;
}

static int question_send(int fd, const struct vb_fabric_question *question)
{
    struct question_hello hello = {.magic = QUESTION_MAGIC,
                                   .version = QUESTION_VERSION,
                                   .role = question->role,
                                   .number = question->number,
                                   .inode = question->inode};
    struct iovec parts[] = {{&hello, sizeof(hello)}, question->data[0], question->data[1]};
    union question_control control = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)),
                                               .cmsg_level = SOL_SOCKET,
                                               .cmsg_type = SCM_RIGHTS}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};

    strncpy(hello.host, question_variable("VERBENA_HOST"), sizeof(hello.host) - 1);
    if (question->attached >= 0) {
        memcpy(CMSG_DATA(&control.head), &question->attached, sizeof(int));
        message.msg_control = &control;
        message.msg_controllen = sizeof(control);
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static bool question_goes_on(const struct vb_fabric_question *question)
{
    return errno == (question->role == VB_FABRIC_ISSM ? EAGAIN : EINTR);
}

int vb_port_fabric_greet(int fd, const struct vb_fabric_question *question,
                         struct vb_fabric_reply *reply)
{
    struct question_welcome welcome;
    struct iovec parts[] = {{&welcome, sizeof(welcome)}, {reply->data, reply->room}};
    union question_control control = {0};
    struct msghdr message = {.msg_iov = parts,
                             .msg_iovlen = 2,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    int error = question_send(fd, question);
    ssize_t got;

    if (error)
        return error;
    do
        got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && question_goes_on(question));
    if (got < (ssize_t)sizeof(welcome))
        return got >= 0 ? -ECONNRESET : errno == EAGAIN ? -ETIMEDOUT : -errno;
    if (CMSG_FIRSTHDR(&message) && CMSG_FIRSTHDR(&message)->cmsg_type == SCM_RIGHTS) {
        memcpy(&reply->fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
        reply->fd = vb_memory_descriptor_raise(reply->fd);
    }
    if (welcome.magic != QUESTION_MAGIC || (welcome.version != QUESTION_VERSION && !welcome.error))
        return -EPROTONOSUPPORT;
    reply->length = welcome.length < reply->room ? welcome.length : reply->room;
    return welcome.error;
}
