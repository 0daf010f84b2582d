// SPDX-License-Identifier: Apache-2.0
/*
 * Finding and connecting to the process behind a QP number, and the references to it (peer.h).
 * connect_mutex admits one handshake at a time.
 */
#include "direct/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "direct/connection.h"
#include "direct/direct.h"
#include "direct/handshake.h"
#include "direct/service.h"
#include "direct/slot.h"
#include "direct/user.h"

static uint32_t slot_of(uint32_t qp_num)
{
    return qp_num / VB_QPS_PER_SLOT % VB_SLOTS;
}

static bool has_slot(const uint32_t *slots, uint32_t slot)
{
    for (int i = 0; i < VB_MAX_SLOTS; ++i)
        if (slots[i] == slot && slot)
            return true;
    return false;
}

static struct vb_peer *find_known(struct vb_direct *direct, uint32_t slot)
{
    struct vb_peer *found = NULL;

    vb_lock_take(&direct->peers_mutex);
    for (struct vb_peer *peer = direct->peers; peer && !found; peer = peer->next)
        if (!atomic_load(&peer->gone) && has_slot(peer->slots, slot))
            found = peer;
    if (found)
        atomic_fetch_add(&found->refs, 1);
    vb_lock_release(&direct->peers_mutex);
    return found;
}

enum { HANDSHAKE_SECONDS = 2 };

/* A stopped process must not stop this one. */
static void limit_waiting(int socket, int seconds)
{
    struct timeval limit = {.tv_sec = seconds};

    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

/* Under connect_mutex. Whoever did not answer is not asked again at once. */
static bool is_silent(const struct vb_direct *direct, uint32_t slot)
{
    return direct->silent_slot == slot && vb_direct_now() < direct->silent_until;
}

static void note_silence(struct vb_direct *direct, uint32_t slot)
{
    direct->silent_slot = slot;
    direct->silent_until = vb_direct_now() + HANDSHAKE_SECONDS * 1000000000ull;
}

static int shake_hands(struct vb_direct *direct, int socket, struct vb_peer **peer)
{
    struct vb_message message;
    int fds[VB_MESSAGE_FDS], error;

    limit_waiting(socket, HANDSHAKE_SECONDS);
    error = vb_direct_check_user(socket);
    if (!error)
        error = vb_direct_hello_send(direct, socket, VB_MSG_HELLO);
    if (!error)
        error = vb_direct_message_receive(socket, &message, fds);
    if (error)
        return error;
    limit_waiting(socket, 0);
    return vb_direct_hello_accept(direct, socket, &message, fds, peer);
}

/* From now on the service thread listens to the peer. */
static int peer_watch(struct vb_direct *direct, int socket, struct vb_peer *peer)
{
    int error;

    /* The link holds a reference of its own until the connection ends. */
    atomic_fetch_add(&peer->refs, 1);
    error = vb_direct_service_watch(direct, socket, peer);
    if (!error)
        return 0;
    atomic_fetch_sub(&peer->links, 1);
    vb_direct_peer_put(direct, peer);
    vb_direct_peer_put(direct, peer);
    return error;
}

/* Not the descriptor that the service thread has just given up, for an instant, to refuse a peer.
 */
static int connect_to(struct vb_direct *direct, uint32_t slot)
{
    int socket;

    vb_lock_take(&direct->spare_mutex);
    socket = vb_direct_slot_socket();
    vb_lock_release(&direct->spare_mutex);
    return socket < 0 ? socket : vb_direct_slot_connect_by(socket, slot);
}

static int peer_meet(struct vb_direct *direct, uint32_t slot, struct vb_peer **peer)
{
    int socket = connect_to(direct, slot);
    int error = socket < 0 ? socket : shake_hands(direct, socket, peer);

    if (error == -EAGAIN)
        note_silence(direct, slot);
    if (!error || error == -ECONNREFUSED)
        vb_direct_other_build_forget(direct, slot);
    if (!error)
        error = peer_watch(direct, socket, *peer);
    if (!error)
        vb_direct_connections_attend(direct, *peer);
    else if (socket >= 0)
        close(socket);
    return error;
}

bool vb_direct_peer_has(const struct vb_peer *peer, uint32_t qp_num)
{
    return has_slot(peer->slots, slot_of(qp_num));
}

struct vb_peer *vb_direct_peer_find_known(struct vb_direct *direct, uint32_t qp_num)
{
    return find_known(direct, slot_of(qp_num));
}

int vb_direct_peer_reach(struct vb_direct *direct, uint32_t qp_num, struct vb_peer **peer)
{
    uint32_t slot = slot_of(qp_num);
    int error = 0;

    if (has_slot(direct->slots, slot)) {
        atomic_fetch_add(&direct->self_peer.refs, 1);
        *peer = &direct->self_peer;
        return 0;
    }
    *peer = find_known(direct, slot);
    if (*peer)
        return 0;
    vb_lock_take(&direct->connect_mutex);
    *peer = find_known(direct, slot);
    if (!*peer)
        error = is_silent(direct, slot) ? -EAGAIN : peer_meet(direct, slot, peer);
    vb_lock_release(&direct->connect_mutex);
    return error;
}

struct vb_peer *vb_direct_peer_find(struct vb_direct *direct, uint32_t qp_num)
{
    struct vb_peer *peer;

    return vb_direct_peer_reach(direct, qp_num, &peer) ? NULL : peer;
}

void vb_direct_peer_connect_all(struct vb_direct *direct)
{
    if (atomic_exchange(&direct->has_connected_all, true))
        return;
    for (uint32_t slot = 1; slot < VB_SLOTS - 1; ++slot) {
        struct vb_peer *peer = vb_direct_peer_find(direct, slot * VB_QPS_PER_SLOT);

        if (peer)
            vb_direct_peer_put(direct, peer);
    }
}

static uint32_t count_met(const struct vb_direct *direct)
{
    uint32_t count = 1;

    for (const struct vb_peer *peer = direct->peers; peer; peer = peer->next)
        ++count;
    return count;
}

uint32_t vb_direct_peer_hold_all(struct vb_direct *direct, struct vb_peer ***peers)
{
    uint32_t count = 0;

    vb_lock_take(&direct->peers_mutex);
    *peers = malloc(count_met(direct) * sizeof(struct vb_peer *));
    if (*peers) {
        (*peers)[count++] = &direct->self_peer;
        for (struct vb_peer *peer = direct->peers; peer; peer = peer->next)
            if (!atomic_load(&peer->gone))
                (*peers)[count++] = peer;
    }
    for (uint32_t i = 0; i < count; ++i)
        atomic_fetch_add(&(*peers)[i]->refs, 1);
    vb_lock_release(&direct->peers_mutex);
    return count;
}

static void free_peer(struct vb_direct *direct, struct vb_peer *peer)
{
    for (int i = 0; i < VB_PEER_CHANNELS; ++i)
        if (peer->channels[i].serial) {
            close(peer->channels[i].write_fd);
            close(peer->channels[i].read_fd);
        }
    if (atomic_load(&peer->gone)) /* else it was never watched */
        close(peer->socket);
    if (peer->retired >= 0)
        close(peer->retired);
    vb_direct_bounce_free(direct, &peer->bounce);
    munmap(peer->view.base, peer->segment_size);
    if (peer->heap)
        munmap(peer->heap, peer->heap_size);
    vb_lock_destroy(&peer->mutex);
    vb_lock_destroy(&peer->bounce_mutex);
    free(peer);
}

void vb_direct_peer_put(struct vb_direct *direct, struct vb_peer *peer)
{
    bool last;

    if (peer->self) {
        atomic_fetch_sub(&peer->refs, 1);
        return;
    }
    vb_lock_take(&direct->peers_mutex);
    last = atomic_fetch_sub(&peer->refs, 1) == 1;
    if (last)
        for (struct vb_peer **at = &direct->peers; *at; at = &(*at)->next)
            if (*at == peer) {
                *at = peer->next;
                break;
            }
    vb_lock_release(&direct->peers_mutex);
    if (last)
        free_peer(direct, peer);
}

struct vb_qp_shared *vb_direct_peer_qp(struct vb_peer *peer, uint32_t qp_num)
{
    const uint32_t *slots = peer->slots;

    for (uint32_t i = 0; i < VB_MAX_SLOTS; ++i)
        if (slots[i] && slots[i] == slot_of(qp_num))
            return &peer->view.qp[i * VB_QPS_PER_SLOT + qp_num % VB_QPS_PER_SLOT];
    return NULL;
}

uint32_t vb_direct_peer_qp_index(const struct vb_peer *peer, const struct vb_qp_shared *qp)
{
    return (uint32_t)(qp - peer->view.qp);
}
