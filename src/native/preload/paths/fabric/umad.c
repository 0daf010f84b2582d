// SPDX-License-Identifier: Apache-2.0
/*
 * The descriptor of umadN (umad.h) is a socket to the fabric's process, or to the agent, which
 * answers for RoCE ports in the same way: so poll, epoll, O_NONBLOCK,
 * dup and fork do what they do with the kernel's device. A message on it is what read(2) returns
 * and write(2) has got: a header of 56 or 64 bytes and a MAD. With a longer one, which RMPP makes
 * of several packets, goes a memfd that has all of it; before it comes a message of one byte.
 */
#include "preload/paths/fabric/umad.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lock/mutex.h"
#include "preload/paths/claim.h"
#include "preload/paths/devices.h"
#include "preload/paths/fabric/question.h"
#include "preload/paths/manager/agent.h"

/* Linux' include/uapi/rdma/ib_user_mad.h; a number of an agent begins each argument. */
enum { SHORT_HEADER = 56, LONG_HEADER = 64, MAD = 256, RMPP_HEADER = 36, ONE = LONG_HEADER + MAD };
#define UMAD_ENABLE_PKEY 0x1b03u
#define UMAD_REGISTER    0xc01c1b01u
#define UMAD_UNREGISTER  0x40041b02u
#define UMAD_REGISTER2   0xc0281b04u

/* ---- agents ------------------------------------------------------------------------------------
 * Agents that this process has registered, by descriptor and number: what is written for one of
 * them is sent without waiting for its errno, which is 0. For others the fabric's process is asked,
 * and where the header is short, and for a transaction ID that was written before: its request may
 * still be pending, and then it is EINVAL. The last requests are looked at, by the lower halves of
 * their transaction IDs; the upper half is the agent's.
 */
enum { KNOWN = 256, AGENTS = 32, LONG_HEADERS = AGENTS, WRITTEN = 4096 };
static _Atomic uint64_t known[KNOWN], written[WRITTEN];

static _Atomic uint64_t *known_place(uint64_t inode, uint32_t agent, uint64_t *value)
{
    *value = inode * (AGENTS + 1) + agent + 1;
    return &known[*value % KNOWN];
}

static void know_agent(uint64_t inode, uint32_t agent, bool registered)
{
    uint64_t value;
    _Atomic uint64_t *place = known_place(inode, agent, &value);
    if (registered)
        atomic_store_explicit(place, value, memory_order_relaxed);
    else
        atomic_compare_exchange_strong(place, &value, 0);
}

static bool is_known(uint64_t inode, uint32_t agent)
{
    uint64_t value;
    _Atomic uint64_t *place = known_place(inode, agent, &value);
    return atomic_load_explicit(place, memory_order_relaxed) == value;
}

/* Is a message, which has a MAD's header, one that the fabric's process takes for certain? */
static bool is_taken_for_certain(uint64_t inode, const uint8_t *message)
{
    const uint8_t *mad = message + LONG_HEADER; /* with class, method and transaction ID */
    uint32_t agent, transaction;
    memcpy(&agent, message, sizeof agent);
    memcpy(&transaction, mad + 12, sizeof transaction);
    if (agent >= AGENTS || !is_known(inode, agent) || !is_known(inode, LONG_HEADERS))
        return false;
    uint64_t value = ((inode * AGENTS + agent) << 8 | mad[1]) << 32 ^ transaction;
    return mad[3] & 0x80 || atomic_exchange_explicit(&written[be32toh(transaction) % WRITTEN],
                                                     value, memory_order_relaxed) != value;
}

/* ---- the usual descriptor ----------------------------------------------------------------------
 * The last umadN that was written to: its descriptor and inode. read(2) and write(2) try it as one
 * without looking at it first, which saves two system calls for each MAD. It may be another file by
 * now, since no close(2) is followed: what is done with it is what read(2) or write(2) would do
 * with any socket, and where that fails the descriptor is looked at after all.
 */
enum { INODE_BITS = 44 };
static _Atomic uint64_t usual_umad; /* descriptor + 1, and the inode; or 0 */

static uint64_t usual_value(int fd, uint64_t inode)
{
    return (uint64_t)(unsigned)(fd + 1) << INODE_BITS | inode;
}

static void remember_usual(int fd, uint64_t inode)
{
    if (fd < 1 << (63 - INODE_BITS) && inode >> INODE_BITS == 0)
        atomic_store_explicit(&usual_umad, usual_value(fd, inode), memory_order_relaxed);
}

/* The inode of a descriptor that was the last umadN written to, or 0. */
static uint64_t usual_inode(int fd)
{
    uint64_t value = atomic_load_explicit(&usual_umad, memory_order_relaxed);
    uint64_t inode = value & ((UINT64_C(1) << INODE_BITS) - 1);
    return value && fd >= 0 && value == usual_value(fd, inode) ? inode : 0;
}

/* ---- open and ioctl -------------------------------------------------------------------------- */

static int umad_failed(int error)
{
    errno = error;
    return -1;
}

/* Outside a fabric: starts the agent if there is none. 0, or -errno. */
static int umad_agent(void)
{
    int fd = vb_preload_fabric_is_set() ? 0 : vb_preload_agent_open(VB_AGENT_CALLS, SOCK_CLOEXEC);
    if (fd > 0)
        close(fd);
    return fd < 0 ? fd : 0;
}

int vb_preload_umad_open(int index, int flags)
{
    const struct vb_node *node = &vb_preload_tree()->nodes[index];
    bool is_issm = node->kind == VB_NODE_ISSM, waits = !(flags & O_NONBLOCK);
    struct vb_fabric_question question = {.role = is_issm ? VB_FABRIC_ISSM : VB_FABRIC_UMAD,
                                          .number = (unsigned)atoi(node->text),
                                          .data = {{(char *)"n", is_issm && !waits}},
                                          .attached = -1};
    int fd = umad_agent();
    if (!fd)
        fd = vb_preload_fabric_open(&question, flags);
    if (fd < 0)
        return umad_failed(fd == -ECONNREFUSED || fd == -ECONNRESET ? ENXIO : -fd);
    if (!vb_preload_stamp_socket(fd, index) || (!waits && fcntl(fd, F_SETFL, O_NONBLOCK))) {
        close(fd);
        return umad_failed(EIO);
    }
    if (usual_inode(fd)) /* of one that has been closed */
        atomic_store_explicit(&usual_umad, 0, memory_order_relaxed);
    vb_preload_device_was_opened();
    return fd;
}

int vb_preload_umad_ioctl(uint64_t inode, uint32_t request, void *argument)
{
    char answer[_IOC_SIZEMASK];
    uint32_t agent;
    size_t length;
    struct vb_fabric_question question = {
        .role = VB_FABRIC_CALL,
        .inode = inode,
        .data = {{&request, sizeof request}, {argument, _IOC_SIZE(request)}},
        .attached = -1};
    if (request == UMAD_UNREGISTER) {
        memcpy(&agent, argument, sizeof agent);
        know_agent(inode, agent, false);
    }
    int error = vb_preload_fabric_ask(&question, answer, _IOC_SIZE(request), &length);
    if (length && length == _IOC_SIZE(request))
        memcpy(argument, answer, length);
    if (error)
        return umad_failed(-error);
    if (request == UMAD_ENABLE_PKEY)
        know_agent(inode, LONG_HEADERS, true);
    /* Errors of writes to RoCE ports count: addresses may be wrong. */
    if (vb_preload_fabric_is_set() && (request == UMAD_REGISTER || request == UMAD_REGISTER2)) {
        memcpy(&agent, argument, sizeof agent);
        know_agent(inode, agent, true);
    }
    return 0;
}

/* ---- write ----------------------------------------------------------------------------------- */

/* A memfd with what does not fit into a message, or -1. */
static int long_message(const void *buffer, size_t size)
{
    int fd = memfd_create("verbena-mad", MFD_CLOEXEC);
    for (size_t done = 0; fd >= 0 && done < size;) {
        ssize_t more = pwrite(fd, (const char *)buffer + done, size - done, (off_t)done);
        if (more <= 0) {
            close(fd);
            return -1;
        }
        done += (size_t)more;
    }
    return fd;
}

static int umad_wait(int fd, short events)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};
    return poll(&poll_fd, 1, -1) < 0 ? errno : 0;
}

/* The kernel's device takes what is written at once, also with O_NONBLOCK. 0, or errno. */
static int umad_send(int fd, const void *message, size_t size)
{
    int error = 0;
    while (!error && send(fd, message, size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        error = errno == EAGAIN ? umad_wait(fd, POLLOUT) : errno;
    return error == EPIPE || error == ECONNRESET ? EIO : error;
}

static int umad_ask(uint64_t inode, const void *message, size_t size)
{
    static const uint32_t no_ioctl = 0;
    size_t length;
    int attached = size > ONE ? long_message(message, size) : -1;
    struct vb_fabric_question question = {
        .role = VB_FABRIC_CALL,
        .inode = inode,
        .data = {{(void *)&no_ioctl, sizeof no_ioctl}, {(void *)message, size > ONE ? 0 : size}},
        .attached = attached};
    if (size > ONE && attached < 0)
        return ENOMEM;
    int error = vb_preload_fabric_ask(&question, NULL, 0, &length);
    if (attached >= 0)
        close(attached);
    return -error;
}

static bool is_one_mad(size_t size)
{
    return size >= LONG_HEADER + RMPP_HEADER && size <= ONE;
}

bool vb_preload_umad_usual_write(int fd, const void *buffer, size_t size, ssize_t *written)
{
    uint64_t inode = usual_inode(fd);
    if (!inode || !is_one_mad(size) || !is_taken_for_certain(inode, buffer))
        return false;
    *written = send(fd, buffer, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    return *written >= 0;
}

ssize_t vb_preload_umad_write(int fd, uint64_t inode, const void *buffer, size_t size)
{
    bool is_fine = is_one_mad(size) && is_taken_for_certain(inode, buffer);
    remember_usual(fd, inode);
    int error = is_fine ? umad_send(fd, buffer, size) : umad_ask(inode, buffer, size);
    return error ? umad_failed(error) : (ssize_t)size;
}

/* ---- read ------------------------------------------------------------------------------------ */

static int descriptor_of(struct msghdr *message)
{
    struct cmsghdr *head = CMSG_FIRSTHDR(message);
    int fd = -1;
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(head), sizeof fd);
    return fd;
}

/* Receives a message, or looks at it, with the memfd that goes with it. As recvmsg(2); the result
 * is the message's length, also where the buffer is shorter. */
static ssize_t umad_receive(int fd, void *buffer, size_t size, int flags, int *memfd)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {buffer, size};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    ssize_t length = recvmsg(fd, &message, flags | MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
    *memfd = length < 0 ? -1 : descriptor_of(&message);
    return length;
}

static ssize_t read_long(int memfd, void *buffer, size_t size)
{
    size_t done = 0;
    ssize_t more = 1;
    while (done < size &&
           (more = pread(memfd, (char *)buffer + done, size - done, (off_t)done)) > 0)
        done += (size_t)more;
    return more < 0 ? -1 : (ssize_t)done;
}

/* The errno with which a message stays where it is, or 0. */
static int why_too_long(ssize_t length, int memfd, size_t size)
{
    struct stat stat;
    if (memfd < 0)
        return (size_t)length > size ? EINVAL : 0;
    if ((size_t)length > size)
        return EINVAL;
    return vb_preload_next_fstatat(memfd, "", &stat, AT_EMPTY_PATH) ? EIO
           : (size_t)stat.st_size > size                            ? ENOSPC
                                                                    : 0;
}

static struct vb_mutex umad_reading = VB_MUTEX_INITIALIZER(VB_RANK_UMAD);
static unsigned long_announced; /* messages with a memfd that are next */

/* One attempt, in `umad_reading`: 0, or errno. A message that may be too long is looked at first:
 * it stays in the queue then. */
static int umad_take(int fd, void *buffer, size_t size, ssize_t *length, int *memfd)
{
    int error = 0;
    if (size < ONE || long_announced) {
        *length = umad_receive(fd, buffer, size, MSG_PEEK, memfd);
        error = *length < 0 ? errno : why_too_long(*length, *memfd, size);
        if (*memfd >= 0)
            close(*memfd);
    }
    if (!error && (*length = umad_receive(fd, buffer, size, 0, memfd)) < 0)
        error = errno;
    return error ? error : *length ? 0 : EIO;
}

static ssize_t read_message(int fd, void *buffer, size_t size)
{
    ssize_t length;
    int memfd, error;
    vb_lock_take(&umad_reading);
    while (!(error = umad_take(fd, buffer, size, &length, &memfd)) && length == 1) {
        long_announced++;
        umad_wait(fd, POLLIN); /* it follows at once, also with O_NONBLOCK */
    }
    if (!error && memfd >= 0 && long_announced)
        long_announced--;
    vb_lock_release(&umad_reading);
    if (error)
        return umad_failed(error);
    if (memfd >= 0) {
        length = read_long(memfd, buffer, size);
        close(memfd);
    }
    return length;
}

/* A message that is not followed by a memfd. */
bool vb_preload_umad_usual_read(int fd, void *buffer, size_t size, ssize_t *length)
{
    uint64_t inode = usual_inode(fd), found;
    if (!inode || size < ONE)
        return false;
    vb_lock_take(&umad_reading);
    *length = long_announced ? -1 : recv(fd, buffer, size, MSG_DONTWAIT);
    bool is_read = *length > 1;
    if (*length == 0 || *length == 1) { /* the end, or the announcement, if it still is umadN */
        is_read = vb_preload_device_kind(fd, &found) != VB_NODE_UMAD;
        if (!is_read && *length == 1) {
            long_announced++;
            umad_wait(fd, POLLIN);
        }
    }
    vb_lock_release(&umad_reading);
    return is_read;
}

ssize_t vb_preload_umad_read(int fd, void *buffer, size_t size)
{
    for (;;) {
        ssize_t length = read_message(fd, buffer, size);
        if (length >= 0 || errno != EAGAIN || fcntl(fd, F_GETFL) & O_NONBLOCK)
            return length;
        int error = umad_wait(fd, POLLIN);
        if (error)
            return umad_failed(error);
    }
}
