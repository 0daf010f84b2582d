// SPDX-License-Identifier: Apache-2.0
/*
 * The first messages of a connection between two processes, and the peer that is made of them
 * (handshake.h). The connecting thread and the service thread call this.
 */
#include "direct/handshake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "direct/other_build.h"
#include "direct/user.h"
#include "memory/descriptor.h"
#include "memory/heap.h"

/* Which build this is, and whose. */
static struct vb_message introduce(struct vb_direct *direct, enum vb_message_type type)
{
    struct vb_message message = {.type = type};
    uint32_t slots = atomic_load(&direct->slot_count);

    strncpy(message.package, VERBENA_VERSION, sizeof(message.package)); /* padded, not ended */
    message.hello.magic = VB_SEGMENT_MAGIC;
    message.hello.version = VB_LAYOUT_VERSION;
    message.hello.instance = direct->adapter->instance;
    memcpy(message.hello.slots, direct->slots, slots * sizeof(message.hello.slots[0]));
    return message;
}

int vb_direct_hello_send(struct vb_direct *direct, int socket, enum vb_message_type type)
{
    struct vb_adapter *adapter = direct->adapter;
    struct vb_message message = introduce(direct, type);
    struct vb_hello *hello = &message.hello;
    int fds[VB_MESSAGE_FDS], count = 0;

    hello->segment_size = vb_memory_heap_size(adapter->segment);
    hello->header_offset = vb_memory_heap_offset(adapter->segment, adapter->self.header);
    hello->probe_addr = (uintptr_t)direct->probe;
    hello->probe_value = direct->probe[0];
    fds[count++] = vb_memory_heap_fd(adapter->segment);
    if (adapter->heap) {
        hello->heap_size = vb_memory_heap_size(adapter->heap);
        fds[count++] = vb_memory_heap_fd(adapter->heap);
    }
    return vb_direct_message_send(socket, &message, fds, count, true);
}

void vb_direct_hello_decline(struct vb_direct *direct, int socket)
{
    struct vb_message message = introduce(direct, VB_MSG_WELCOME);

    vb_direct_message_send(socket, &message, NULL, 0, false);
}

/* What is mapped stays: a peer that shortened its file would end this process by SIGBUS. */
static bool is_lasting(int fd, uint64_t size)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &status) == 0 &&
           (uint64_t)status.st_size >= size;
}

static void *handshake_map_file(int fd, uint64_t size)
{
    void *at = mmap(NULL, size, vb_memory_heap_protection(), MAP_SHARED | MAP_NORESERVE, fd, 0);

    return at == MAP_FAILED ? NULL : at;
}

/* Reads and writes two words that the peer set aside: what works now works later. */
static int probe_cma(pid_t pid, const struct vb_hello *hello)
{
    uint64_t value = 0;
    struct iovec mine = {&value, sizeof(value)};
    struct iovec read_from = {(void *)(uintptr_t)hello->probe_addr, sizeof(value)};
    struct iovec write_to = {(void *)(uintptr_t)(hello->probe_addr + sizeof(value)), sizeof(value)};

    if (pid <= 0)
        return -ESRCH;
    if (process_vm_readv(pid, &mine, 1, &read_from, 1, 0) != sizeof(value))
        return -errno;
    if (value != hello->probe_value)
        return -ESRCH; /* the number means another process here */
    return process_vm_writev(pid, &mine, 1, &write_to, 1, 0) == sizeof(value) ? 0 : -errno;
}

static void choose_way(struct vb_direct *direct, struct vb_peer *peer, const struct vb_hello *hello,
                       int heap_fd)
{
    enum vb_way force = direct->force;
    bool is_too_large = vb_memory_heap_is_checked() && hello->heap_size > VB_HEAP_CHECKED;

    if (heap_fd >= 0 && !is_too_large && (force == VB_WAY_ANY || force == VB_WAY_SHARED)) {
        peer->heap_size = hello->heap_size;
        peer->heap = handshake_map_file(heap_fd, hello->heap_size);
    }
    peer->cma_error = force == VB_WAY_BOUNCE ? -ECANCELED : probe_cma(peer->pid, hello);
    peer->cma = peer->cma_error == 0;
}

static struct vb_peer *find_instance(struct vb_direct *direct, uint32_t instance)
{
    for (struct vb_peer *peer = direct->peers; peer; peer = peer->next)
        if (peer->instance == instance && !atomic_load(&peer->gone))
            return peer;
    return NULL;
}

static int open_peer(struct vb_direct *direct, int socket, pid_t pid, const struct vb_hello *hello,
                     const int *fds, struct vb_peer **made)
{
    struct vb_peer *peer = calloc(1, sizeof(*peer));
    void *base;
    int error;

    if (!peer)
        return -ENOMEM;
    base = handshake_map_file(fds[0], hello->segment_size);
    error =
        base ? vb_view_open(&peer->view, base, hello->segment_size, hello->header_offset) : -ENOMEM;
    if (error) {
        if (base)
            munmap(base, hello->segment_size);
        free(peer);
        return error;
    }
    peer->segment_size = hello->segment_size;
    peer->instance = hello->instance;
    peer->pid = pid;
    peer->socket = socket;
    peer->retired = -1;
    vb_lock_init(&peer->mutex, VB_RANK_PEER);
    vb_lock_init(&peer->bounce_mutex, VB_RANK_BOUNCE);
    choose_way(direct, peer, hello, fds[1]);
    *made = peer;
    return 0;
}

static void handshake_close_fds(int fds[VB_MESSAGE_FDS])
{
    for (int i = 0; i < VB_MESSAGE_FDS; ++i) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

static int handshake_check(int socket, const struct vb_hello *hello, const int *fds, pid_t *pid)
{
    if (!vb_direct_same_user(socket, pid))
        return -EACCES;
    if (hello->magic != VB_SEGMENT_MAGIC)
        return -EPROTO;
    if (hello->version != VB_LAYOUT_VERSION)
        return -EPROTONOSUPPORT;
    if (fds[0] < 0)
        return -EPROTO;
    if (!is_lasting(fds[0], hello->segment_size) ||
        (fds[1] >= 0 && !is_lasting(fds[1], hello->heap_size)))
        return -EPROTO;
    return 0;
}

int vb_direct_hello_accept(struct vb_direct *direct, int socket, const struct vb_message *message,
                           int fds[VB_MESSAGE_FDS], struct vb_peer **peer)
{
    const struct vb_hello *hello = &message->hello;
    pid_t pid;
    int error = handshake_check(socket, hello, fds, &pid);

    if (error == -EPROTONOSUPPORT)
        vb_direct_other_build_note(direct, message);
    if (!error) {
        vb_lock_take(&direct->peers_mutex);
        *peer = find_instance(direct, hello->instance);
        if (!*peer) {
            error = open_peer(direct, socket, pid, hello, fds, peer);
            if (!error) {
                (*peer)->next = direct->peers;
                direct->peers = *peer;
            }
        }
        if (!error) {
            memcpy((*peer)->slots, hello->slots, sizeof((*peer)->slots));
            atomic_fetch_add(&(*peer)->refs, 1);
            atomic_fetch_add(&(*peer)->links, 1);
        }
        vb_lock_release(&direct->peers_mutex);
    }
    handshake_close_fds(fds);
    return error;
}
