// SPDX-License-Identifier: Apache-2.0
/*
 * Sending and receiving one message with its descriptors (message.h). A SEQPACKET socket keeps
 * messages whole.
 */
#include "direct/message.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "memory/descriptor.h"

union control {
    struct cmsghdr align;
    char room[CMSG_SPACE(VB_MESSAGE_FDS * sizeof(int))];
};

int vb_direct_message_send(int socket, const struct vb_message *message, const int *fds,
                           int fd_count, bool wait)
{
    struct iovec part = {.iov_base = (void *)message, .iov_len = sizeof(*message)};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    union control control;

    if (fd_count) {
        struct cmsghdr *rights;

        memset(&control, 0, sizeof(control));
        header.msg_control = control.room;
        header.msg_controllen = CMSG_SPACE((size_t)fd_count * sizeof(int));
        rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN((size_t)fd_count * sizeof(int));
        memcpy(CMSG_DATA(rights), fds, (size_t)fd_count * sizeof(int));
    }
    if (sendmsg(socket, &header, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT)) < 0)
        return -errno;
    return 0;
}

static void take_fds(struct msghdr *header, int fds[VB_MESSAGE_FDS])
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
        size_t size = c->cmsg_len - CMSG_LEN(0);

        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
            memcpy(fds, CMSG_DATA(c), size);
    }
    for (int i = 0; i < VB_MESSAGE_FDS; ++i)
        fds[i] = vb_memory_descriptor_raise(fds[i]);
}

static bool is_of_another_layout(const struct vb_message *message, ssize_t length)
{
    return length >= (ssize_t)offsetof(struct vb_message, hello.instance) &&
           (message->type == VB_MSG_HELLO || message->type == VB_MSG_WELCOME ||
            message->type == VB_MSG_COUNTERS) &&
           message->hello.magic == VB_SEGMENT_MAGIC && message->hello.version != VB_LAYOUT_VERSION;
}

int vb_direct_message_receive(int socket, struct vb_message *message, int fds[VB_MESSAGE_FDS])
{
    union control control;
    struct iovec part = {.iov_base = message, .iov_len = sizeof(*message)};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.room,
                            .msg_controllen = sizeof(control.room)};
    ssize_t length = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);

    fds[0] = fds[1] = -1;
    if (length < 0)
        return -errno;
    take_fds(&header, fds);
    if (length == (ssize_t)sizeof(*message))
        return 0;
    if (is_of_another_layout(message, length)) {
        memset((char *)message + length, 0, sizeof(*message) - (size_t)length);
        return 0;
    }
    for (int i = 0; i < VB_MESSAGE_FDS; ++i)
        if (fds[i] >= 0)
            close(fds[i]);
    fds[0] = fds[1] = -1;
    return length == 0 ? -EPIPE : -EPROTO;
}
