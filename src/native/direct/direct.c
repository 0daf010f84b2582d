// SPDX-License-Identifier: Apache-2.0
/*
 * Opening and closing of the direct carrier, the calls that the host makes to it, and what
 * `verbena_describe` says of it. direct.h has the overview.
 */
#include "direct/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "direct/connection.h"
#include "direct/datagram.h"
#include "direct/flow.h"
#include "direct/other_build.h"
#include "direct/peer.h"
#include "direct/requester.h"
#include "direct/retry.h"
#include "direct/service.h"
#include "direct/slot.h"
#include "hca/cq.h"
#include "hca/gone.h"
#include "hca/overdue.h"
#include "hca/qp.h"
#include "hca/text.h"
#include "memory/descriptor.h"
#include "memory/guard.h"
#include "memory/heap.h"

uint64_t vb_direct_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

uint64_t vb_direct_clock(const struct vb_adapter *adapter)
{
    (void)adapter;
    return vb_direct_now();
}

bool vb_direct_is_local(struct vb_direct *direct, const struct ibv_ah_attr *ah)
{
    /* A LID is that of a port of this host, since InfiniBand ports reach no other. Whether it leads
     * to the peer is known when the peer is found (vb_direct_connection_leads_to). */
    return VB_UNLIKELY(!ah->is_global || direct->adapter->fabric) ||
           vb_port_addresses_host_has(direct->adapter, ah->grh.dgid.raw);
}

static int claim_slot(struct vb_direct *direct)
{
    uint32_t count = atomic_load(&direct->slot_count);
    uint32_t start = vb_random(direct->adapter), slot = 0;
    int fd = direct->manages && count == 0 ? vb_direct_slot_claim_management()
                                           : vb_direct_slot_claim(start % VB_SLOTS, &slot);

    if (fd < 0)
        return fd;
    direct->slots[count] = slot;
    direct->listeners[count] = fd;
    direct->self_peer.slots[count] = slot;
    atomic_store(&direct->slot_count, count + 1);
    return 0;
}

/* The last; nobody has met this process by it. */
static void give_slot_back(struct vb_direct *direct)
{
    uint32_t last = atomic_load(&direct->slot_count) - 1;

    atomic_store(&direct->slot_count, last);
    direct->slots[last] = direct->self_peer.slots[last] = 0;
    close(direct->listeners[last]);
}

int vb_direct_number(struct vb_direct *direct, uint32_t index, uint32_t *qp_num)
{
    uint32_t block = index / VB_QPS_PER_SLOT;

    while (block >= atomic_load(&direct->slot_count)) {
        int error = claim_slot(direct);

        if (error)
            return error;
        error = vb_direct_service_watch(direct, direct->listeners[direct->slot_count - 1], NULL);
        if (error) {
            give_slot_back(direct);
            return error;
        }
    }
    *qp_num = direct->slots[block] * VB_QPS_PER_SLOT + index % VB_QPS_PER_SLOT;
    return 0;
}

int vb_direct_connect(struct vb_qp *qp)
{
    int error = vb_direct_connection_open(qp);

    if (!error)
        vb_qp_stage(qp);
    return error;
}

void vb_direct_disconnect(struct vb_qp *qp)
{
    vb_direct_connection_close(qp);
    vb_direct_destinations_free(qp);
}

void vb_direct_attend(struct vb_qp *qp)
{
    vb_direct_retry_attend(vb_direct_of(qp->context->adapter), qp);
}

static void try_one(struct vb_qp *qp)
{
    if (!qp->counted_waiting || !vb_sq_trylock(qp))
        return;
    vb_sq_run(qp);
    vb_sq_unlock(qp);
}

enum { TRIES_PER_POLL = 32 };

void vb_direct_progress(struct vb_cq *cq)
{
    struct vb_adapter *adapter = cq->context->adapter;
    struct vb_qp *waiting[TRIES_PER_POLL];
    unsigned count;

    /* A QP that is just being added is the next poll's, or the retry thread's. */
    if (!atomic_load_explicit(&vb_direct_of(adapter)->retry.any, memory_order_relaxed))
        return;
    if (!vb_lock_try(&adapter->lifetime))
        return; /* another thread is at it, or a QP goes: the retry thread remains */
    count = vb_direct_retry_waiting(vb_direct_of(adapter), cq, waiting, TRIES_PER_POLL);
    for (unsigned i = 0; i < count; ++i)
        try_one(waiting[i]);
    vb_lock_release(&adapter->lifetime);
}

const struct vb_carrier vb_direct_carrier = {
    .execute = vb_direct_execute,
    .settle = vb_direct_settle,
    .quiet = vb_direct_quiet,
    .other_end = vb_direct_other_end,
    .settle_peer = vb_direct_settle_peer,
};

const struct vb_carrier vb_direct_fabric_carrier = {
    .execute = vb_direct_fabric_execute,
    .settle = vb_direct_settle,
    .quiet = vb_direct_quiet,
    .other_end = vb_direct_other_end,
    .settle_peer = vb_direct_settle_peer,
};

/*
 * Where Yama restricts ptrace to descendants, peers of the same user must be let in by name, or
 * every copy into this process's own memory takes the bounce ring.
 */
static void permit_cross_process_copy(void)
{
    char scope = 0;
    int fd = vb_memory_descriptor_raise(
        open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC));

    if (fd < 0)
        return;
    if (read(fd, &scope, 1) == 1 && scope == '1')
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    close(fd);
}

static void open_self_peer(struct vb_direct *direct)
{
    struct vb_peer *self = &direct->self_peer;

    self->self = true;
    self->refs = 1;
    self->instance = direct->adapter->instance;
    self->pid = getpid();
    self->socket = self->retired = -1;
    self->view = direct->adapter->self;
    vb_lock_init(&self->mutex, VB_RANK_PEER);
    vb_lock_init(&self->bounce_mutex, VB_RANK_BOUNCE);
}

static int direct_start(struct vb_direct *direct)
{
    int error = claim_slot(direct);

    if (!error)
        error = vb_direct_service_start(direct);
    if (error)
        return error;
    error = vb_direct_retry_start(direct);
    if (error)
        vb_direct_service_stop(direct);
    return error;
}

static void open_locks(struct vb_direct *direct)
{
    vb_lock_init(&direct->connect_mutex, VB_RANK_CONNECT);
    vb_lock_init(&direct->peers_mutex, VB_RANK_PEERS);
    vb_lock_init(&direct->serve_mutex, VB_RANK_SERVE);
    vb_lock_init(&direct->links_mutex, VB_RANK_LINKS);
    vb_lock_init(&direct->spare_mutex, VB_RANK_SPARE);
}

static void close_locks(struct vb_direct *direct)
{
    vb_lock_destroy(&direct->connect_mutex);
    vb_lock_destroy(&direct->peers_mutex);
    vb_lock_destroy(&direct->serve_mutex);
    vb_lock_destroy(&direct->links_mutex);
    vb_lock_destroy(&direct->spare_mutex);
    vb_lock_destroy(&direct->self_peer.mutex);
    vb_lock_destroy(&direct->self_peer.bounce_mutex);
}

static void direct_forget(struct vb_direct *direct)
{
    vb_memory_guard_stop();
    close_locks(direct);
    free(direct);
}

int vb_direct_open(const struct vb_direct_config *config, struct vb_direct **direct)
{
    struct vb_direct *made = calloc(1, sizeof(*made));
    int error;

    if (!made)
        return -ENOMEM;
    if (getrandom(made->probe, sizeof(made->probe[0]), 0) != sizeof(made->probe[0])) {
        free(made);
        return -EIO;
    }
    made->adapter = config->adapter;
    made->force = config->force;
    made->count = config->count;
    made->manages = config->manages;
    made->event = config->event;
    made->event_argument = config->event_argument;
    open_locks(made);
    open_self_peer(made);
    made->adapter->direct = made;
    vb_memory_guard_start();
    permit_cross_process_copy();
    error = direct_start(made);
    if (error)
        direct_forget(made);
    else
        *direct = made;
    return error;
}

void vb_direct_close(struct vb_direct *direct)
{
    vb_direct_retry_stop(direct);
    vb_direct_service_stop(direct);
    direct_forget(direct);
}

void vb_direct_abandon(struct vb_direct *direct)
{
    vb_direct_service_abandon(direct);
}

static const char *why_bounce(int error)
{
    switch (error) {
    case -ECANCELED:
        return "VERBENA_COPY=bounce asks for it";
    case -EPERM:
        return "the system forbids cross-process copies between these processes (ptrace rules, "
               "another user namespace, or a seccomp filter)";
    case -ENOSYS:
        return "the system has no cross-process copies (a seccomp filter, or the kernel)";
    case -ESRCH:
        return "the peer's process is in a PID namespace that is not visible here";
    default:
        return error ? strerror(-error) : "";
    }
}

static void describe_peer(const struct vb_peer *peer, const char *between, struct vb_text *text)
{
    vb_text_add(text,
                "%s{\"pid\":%d,\"slot\":%u,\"shared_memory\":%s,\"own_memory\":\"%s\","
                "\"reason\":\"%s\"}",
                between, (int)peer->pid, peer->slots[0], peer->heap ? "true" : "false",
                peer->cma ? "cross-process copy" : "bounce ring",
                peer->cma ? "" : why_bounce(peer->cma_error));
}

int vb_direct_describe(struct vb_direct *direct, const char *more, char *json, size_t size)
{
    struct vb_heap *heap = direct->adapter->heap;
    struct vb_text text = {json, size, 0};
    const char *between = "";

    vb_text_add(&text,
                "{\"device\":\"%s%u\",\"slot\":%u,\"heap\":{\"size\":%zu,\"used\":%zu},"
                "\"peers\":[",
                VB_DEVICE_NAME, direct->adapter->self.header->device, direct->slots[0],
                heap ? vb_memory_heap_size(heap) : 0, heap ? vb_memory_heap_used(heap) : 0);
    vb_lock_take(&direct->peers_mutex);
    for (struct vb_peer *peer = direct->peers; peer; peer = peer->next) {
        if (atomic_load(&peer->gone))
            continue;
        describe_peer(peer, between, &text);
        between = ",";
    }
    vb_lock_release(&direct->peers_mutex);
    vb_text_add(&text, "],");
    vb_direct_other_build_describe(direct, &text);
    vb_text_add(&text, ",");
    vb_overdue_describe(direct->adapter, &text);
    vb_text_add(&text, ",");
    vb_direct_connections_describe(direct, &text);
    vb_text_add(&text, "%s%s}", *more ? "," : "", more);
    return text.length;
}
