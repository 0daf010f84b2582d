// SPDX-License-Identifier: Apache-2.0
/* Slots as abstract Unix sockets (slot.h): binding one, and connecting to its owner. */
#include "direct/slot.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "hca/layout.h"
#include "memory/descriptor.h"

static socklen_t slot_name(uint32_t slot, struct sockaddr_un *address)
{
    int length;

    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    length =
        snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "verbena/slot/%03x", slot);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int bind_slot(int fd, uint32_t slot)
{
    struct sockaddr_un address;
    socklen_t length = slot_name(slot, &address);

    return bind(fd, (struct sockaddr *)&address, length) ? -errno : 0;
}

static int listener(void)
{
    return vb_memory_descriptor_raise(
        socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/* `error`: that of the bind. Returns the listening socket, or -errno. */
static int slot_listen(int fd, int error)
{
    if (!error && listen(fd, 128))
        error = -errno;
    if (!error)
        return fd;
    close(fd);
    return error;
}

int vb_direct_slot_claim_management(void)
{
    int fd = listener();

    return fd < 0 ? -errno : slot_listen(fd, bind_slot(fd, 0));
}

int vb_direct_slot_claim(uint32_t start, uint32_t *slot)
{
    int fd = listener(), error = -EUSERS;

    if (fd < 0)
        return -errno;
    for (uint32_t i = 0; i < VB_SLOTS; ++i) {
        *slot = (start + i) % VB_SLOTS;
        /* QP numbers 0 and 1 are the management QPs', and 0xffffff is any multicast group's. */
        if (*slot == 0 || *slot == VB_SLOTS - 1)
            continue;
        error = bind_slot(fd, *slot);
        if (error != -EADDRINUSE)
            break;
        error = -EUSERS;
    }
    return slot_listen(fd, error);
}

enum { CONNECT_SECONDS = 2 };

int vb_direct_slot_socket(void)
{
    int fd = vb_memory_descriptor_raise(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));

    return fd < 0 ? -errno : fd;
}

int vb_direct_slot_connect(uint32_t slot)
{
    int fd = vb_direct_slot_socket();

    return fd < 0 ? fd : vb_direct_slot_connect_by(fd, slot);
}

int vb_direct_slot_connect_by(int fd, uint32_t slot)
{
    struct sockaddr_un address;
    socklen_t length = slot_name(slot, &address);
    struct timeval limit = {.tv_sec = CONNECT_SECONDS}, none = {0};

    /* The queue of a stopped process fills up. */
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(fd, (struct sockaddr *)&address, length)) {
        int error = -errno;
        close(fd);
        return error;
    }
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof(none));
    return fd;
}
