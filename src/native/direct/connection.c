// SPDX-License-Identifier: Apache-2.0
/*
 * The connections of queue pairs: opening and closing them, and the slow part of the check whether
 * the other end answers. The send lock of the QP is held unless a function says otherwise.
 */
#include "direct/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "direct/flow.h"
#include "direct/responder.h"
#include "direct/retry.h"
#include "direct/service.h"
#include "hca/sentences.h"
#include "hca/xrc.h"
#include "transport/receive.h"

/* `remote` is set before `peer`, which is what others look at first. */
static void connection_attach(struct vb_connection *to, struct vb_peer *peer)
{
    to->remote = vb_direct_peer_qp(peer, to->qp->shared->dest_qp_num);
    to->epoch = 0;
    to->unplaced_high = 0;
    to->failed_by_death = false;
    __atomic_store_n(&to->peer, peer, __ATOMIC_RELEASE);
}

struct vb_connection *vb_direct_connection_have(struct vb_qp *qp)
{
    struct vb_connection *to = qp->verbs->connection;

    if (to)
        return to;
    to = aligned_alloc(VB_LINE, sizeof(*to));
    if (!to)
        return NULL;
    *to = (struct vb_connection){
        .qp = qp, .target = to, .remote_type = (uint8_t)vb_qp_peer_type(qp->type)};
    __atomic_store_n(&qp->verbs->connection, to, __ATOMIC_RELEASE);
    return to;
}

static bool is_reachable(const struct vb_qp *qp)
{
    struct vb_direct *direct = vb_direct_of(qp->context->adapter);

    return vb_direct_is_local(direct, &qp->verbs->attr.ah_attr);
}

int vb_direct_connection_open(struct vb_qp *qp)
{
    struct vb_direct *direct = vb_direct_of(qp->context->adapter);
    struct vb_peer *peer;

    vb_direct_connection_close(qp);
    if (!vb_direct_connection_have(qp))
        return -ENOMEM;
    if (!is_reachable(qp))
        return 0;
    peer = vb_direct_peer_find(direct, qp->shared->dest_qp_num);
    if (!peer)
        return vb_direct_other_build_check(qp);
    connection_attach(qp->verbs->connection, peer);
    return 0;
}

void vb_direct_connection_close(struct vb_qp *qp)
{
    struct vb_direct *direct = vb_direct_of(qp->context->adapter);
    struct vb_connection *to = qp->verbs->connection;
    struct vb_peer *peer;

    vb_direct_retry_leave(direct, qp);
    if (!to)
        return;
    vb_direct_counts_move(&to->counts, &direct->counts);
    vb_direct_flows_release(to);
    to->turn = (struct vb_link_turn){0};
    peer = to->peer;
    __atomic_store_n(&to->peer, NULL, __ATOMIC_RELAXED);
    to->remote = NULL;
    if (peer)
        vb_direct_peer_put(direct, peer);
}

/* Under sq_lock. */
static void find_again(struct vb_connection *to)
{
    const struct vb_qp *qp = to->qp;
    struct vb_peer *peer = is_reachable(qp) ? vb_direct_peer_find(vb_direct_connection_direct(to),
                                                                  qp->shared->dest_qp_num)
                                            : NULL;

    if (peer)
        connection_attach(to, peer);
}

/* What a peer wrote, with a terminator. */
static void connection_read_netdev(const struct vb_port_shared *port,
                                   char netdev[sizeof(port->netdev) + 1])
{
    memcpy(netdev, port->netdev, sizeof(port->netdev));
    netdev[sizeof(port->netdev)] = '\0';
}

/* Does the GID, which is one of this host's, lead to the peer's port? */
static bool connection_is_behind(const struct vb_adapter *adapter, const uint8_t gid[16],
                                 const struct vb_segment_header *peer, uint32_t index)
{
    const struct vb_port_shared *port = &peer->port[index];
    unsigned unit = vb_port_addresses_unit(adapter, gid);
    char netdev[sizeof(port->netdev) + 1];

    if (VB_UNLIKELY(unit))
        return unit == vb_port_unit(peer->device, index + 1);
    /* The adapter has the address, or nothing would go direct: where its only port and the peer's
     * stand for the same interface, the table need not be searched again. */
    if (VB_LIKELY(adapter->port_count == 1 && memcmp(adapter->self.header->port[0].netdev,
                                                     port->netdev, sizeof(port->netdev)) == 0))
        return true;
    connection_read_netdev(port, netdev);
    return vb_port_addresses_any_has_on(adapter, gid, netdev);
}

bool vb_direct_connection_leads_to(const struct vb_qp *qp, const struct ibv_ah_attr *ah,
                                   const struct vb_fabric_flow *flow, const struct vb_peer *peer,
                                   const struct vb_qp_shared *remote)
{
    const struct vb_port_shared *port = vb_shared_port(&peer->view, remote);

    if (VB_UNLIKELY(port->identity || flow))
        return vb_port_fabric_reaches(qp->context->adapter->fabric, flow, port->identity);
    if (vb_qp_port(qp)->infiniband != (bool)port->infiniband)
        return false;
    return ah->is_global ? connection_is_behind(qp->context->adapter, ah->grh.dgid.raw,
                                                peer->view.header, remote->port % VB_MAX_PORTS)
                         : vb_lid_is_of(port->lid, port->lmc, ah->dlid);
}

bool vb_direct_connection_shares_link(const struct vb_qp *qp, const struct vb_gid *source,
                                      const struct vb_fabric_flow *flow, const struct vb_peer *peer,
                                      const struct vb_qp_shared *remote)
{
    const struct vb_port_shared *port = vb_shared_port(&peer->view, remote);
    char netdev[sizeof(port->netdev) + 1];

    if (VB_UNLIKELY(port->identity || flow))
        return vb_port_fabric_reaches(qp->context->adapter->fabric, flow, port->identity);
    connection_read_netdev(port, netdev);
    return vb_qp_port(qp)->infiniband == (bool)port->infiniband &&
           (!netdev[0] || vb_port_is_netdev(netdev, source->ndev));
}

/* The first request fixes which life of the peer's QP this one is connected to. */
static bool adopt_epoch(struct vb_connection *to)
{
    if (to->epoch == to->remote->epoch)
        return true;
    if (to->epoch || !vb_direct_connection_leads_to(to->qp, &to->qp->verbs->attr.ah_attr, to->flow,
                                                    to->peer, to->remote))
        return false;
    to->epoch = to->remote->epoch;
    to->rq_seen = atomic_load(&to->remote->rq_taken);
    return true;
}

static void connection_establish(struct vb_connection *to)
{
    if (to->remote->established)
        return;
    to->remote->established = 1;
    if (atomic_load(&to->remote->state) == IBV_QPS_RTR)
        vb_direct_notify_qp_event(vb_direct_connection_direct(to), to->peer, to->remote,
                                  IBV_EVENT_COMM_EST);
}

bool vb_direct_connection_ready_slowly(struct vb_connection *to)
{
    if (!to->peer)
        find_again(to);
    if (!to->peer || !to->remote || !vb_direct_connection_answers(to) || !adopt_epoch(to))
        return false;
    connection_establish(to);
    return true;
}

static enum vb_silence silence_of_process(const struct vb_connection *to)
{
    struct vb_direct *direct = vb_direct_connection_direct(to);
    struct vb_peer *peer;
    int error = vb_direct_peer_reach(direct, to->qp->shared->dest_qp_num, &peer);

    switch (error) {
    case 0:
        vb_direct_peer_put(direct, peer);
        return VB_SILENCE_UNKNOWN; /* it has just come */
    case -ECONNREFUSED:
        return VB_SILENCE_NO_PROCESS;
    case -EAGAIN:
        return VB_SILENCE_STOPPED;
    case -EACCES:
        return VB_SILENCE_OTHER_USER;
    default:
        return VB_SILENCE_NO_HANDSHAKE;
    }
}

static enum vb_silence silence_of_qp(const struct vb_connection *to, uint32_t *value)
{
    const struct vb_qp_shared *remote = to->remote;
    const struct vb_qp *qp = to->qp;
    uint32_t state = remote ? atomic_load(&remote->state) : IBV_QPS_RESET;

    if (state == IBV_QPS_RESET || remote->qp_num != qp->shared->dest_qp_num)
        return VB_SILENCE_NO_QP;
    if (state == IBV_QPS_INIT || state == IBV_QPS_ERR)
        return state == IBV_QPS_INIT ? VB_SILENCE_INIT : VB_SILENCE_ERR;
    *value = remote->type;
    if (remote->type != to->remote_type)
        return VB_SILENCE_TYPE;
    *value = vb_qp_dest(remote);
    if (vb_qp_dest(remote) != qp->number)
        return VB_SILENCE_OTHER_QP;
    if (to->epoch && to->epoch != remote->epoch)
        return VB_SILENCE_OTHER_LIFE;
    *value = qp->verbs->attr.ah_attr.is_global ? 0 : qp->verbs->attr.ah_attr.dlid;
    if (!to->epoch &&
        !vb_direct_connection_leads_to(qp, &qp->verbs->attr.ah_attr, to->flow, to->peer, remote))
        return VB_SILENCE_PORT;
    *value = (uint32_t)vb_qp_pkey(qp->shared) << 16 | vb_qp_pkey(remote);
    if (!vb_pkeys_match(vb_qp_pkey(qp->shared), vb_qp_pkey(remote)))
        return VB_SILENCE_PKEY;
    return VB_SILENCE_NO_HELP;
}

bool vb_direct_connection_is_dead(const struct vb_connection *to)
{
    if (!to->peer || !to->remote || !atomic_load(&to->peer->gone))
        return false;
    return to->target != to || /* at a proxy, whose entry is no end of the connection */
           (to->remote->qp_num == to->qp->shared->dest_qp_num &&
            atomic_load(&to->remote->state) != IBV_QPS_RESET);
}

enum vb_silence vb_direct_connection_silence(struct vb_connection *to, uint32_t *value)
{
    if (to->target != to) /* at a proxy, to which the target QP has led */
        return VB_SILENCE_NO_HELP;
    if (!is_reachable(to->qp))
        return VB_SILENCE_NOT_HERE;
    if (vb_direct_flow_is_lost(to) || (to->flow && to->flow->loss)) {
        *value = to->qp->verbs->attr.ah_attr.dlid;
        return VB_SILENCE_ROUTE;
    }
    return to->peer ? silence_of_qp(to, value) : silence_of_process(to);
}

void vb_direct_connection_count_refused(const struct vb_connection *to)
{
    uint32_t value;

    if (to->target == to && to->peer && silence_of_qp(to, &value) == VB_SILENCE_PKEY)
        vb_count_violation(&vb_shared_port(&to->peer->view, to->remote)->pkey_violations);
}

/* ---- who waits in vain ---- */

/* An SRQ's receives are other QPs' as well, so that they say nothing. */
static bool vb_direct_connection_waits(const struct vb_qp *qp)
{
    enum ibv_qp_state state = vb_qp_state(qp);

    return vb_direct_connection_peer(qp) && state >= IBV_QPS_RTR && state <= IBV_QPS_SQE &&
           (qp->sq_next != qp->sq_posted || vb_engine_receive_count(qp));
}

static bool vb_direct_connection_is_deserted(struct vb_qp *qp, enum vb_silence *silence,
                                             uint32_t *value)
{
    bool deserted = false;

    if (!vb_direct_connection_waits(qp) || !vb_sq_trylock(qp))
        return false;
    if (vb_direct_connection_waits(qp) && !atomic_load(&qp->verbs->connection->peer->gone)) {
        *silence = silence_of_qp(qp->verbs->connection, value);
        deserted = *silence != VB_SILENCE_NO_HELP;
    }
    vb_sq_unlock(qp);
    return deserted;
}

void vb_direct_connections_describe(struct vb_direct *direct, struct vb_text *text)
{
    struct vb_adapter *adapter = direct->adapter;
    const char *between = "";

    vb_text_add(text, "\"deserted\":[");
    vb_lock_take(&adapter->mutex);
    for (uint32_t i = 0; i < adapter->qp_pool.next; ++i) {
        struct vb_qp *qp = adapter->qps[i];
        enum vb_silence silence = VB_SILENCE_UNKNOWN;
        uint32_t value = 0;

        if (!qp || !vb_direct_connection_is_deserted(qp, &silence, &value))
            continue;
        vb_text_add(text,
                    "%s{\"qp_num\":%u,\"why\":\"QP 0x%x is connected to QP 0x%x, which can "
                    "neither answer nor send",
                    between, qp->number, qp->number, vb_qp_dest(qp->shared));
        vb_sentence_say(text, VB_SENTENCE_SILENCE + (unsigned)silence,
                        &(struct vb_evidence){.count = value});
        vb_text_add(text, "\"}");
        between = ",";
    }
    vb_lock_release(&adapter->mutex);
    vb_text_add(text, "]");
}

/* Connected to a peer on this host that was not there. */
static bool is_stray(const struct vb_qp *qp)
{
    enum ibv_qp_state state = vb_qp_state(qp);

    return !vb_direct_connection_peer(qp) && vb_qp_connected_type(qp->type) &&
           vb_qp_is_carried_by_posters(qp) && state >= IBV_QPS_RTR && state <= IBV_QPS_SQE &&
           is_reachable(qp);
}

void vb_direct_connections_attend(struct vb_direct *direct, const struct vb_peer *peer)
{
    struct vb_adapter *adapter = direct->adapter;

    vb_lock_take(&adapter->mutex);
    for (uint32_t i = 0; i < adapter->qp_pool.next; ++i) {
        struct vb_qp *qp = adapter->qps[i];

        if (qp && is_stray(qp) && vb_direct_peer_has(peer, vb_qp_dest(qp->shared)))
            vb_direct_retry_attend(direct, qp);
    }
    vb_lock_release(&adapter->mutex);
}

bool vb_direct_connection_attach_peer(struct vb_qp *qp)
{
    struct vb_direct *direct = vb_direct_of(qp->context->adapter);
    struct vb_peer *peer;

    if (!is_stray(qp))
        return true;
    if (!vb_sq_trylock(qp))
        return false;
    peer = is_stray(qp) ? vb_direct_peer_find_known(direct, qp->shared->dest_qp_num) : NULL;
    if (peer)
        connection_attach(qp->verbs->connection, peer);
    vb_sq_unlock(qp);
    return true;
}

static bool is_held_by(struct vb_peer *peer, const struct vb_qp *qp)
{
    const struct vb_qp_shared *remote;

    if (!vb_direct_peer_has(peer, vb_qp_dest(qp->shared)))
        return false;
    remote = vb_direct_peer_qp(peer, vb_qp_dest(qp->shared));
    return remote->qp_num == vb_qp_dest(qp->shared) && vb_qp_dest(remote) == qp->number &&
           atomic_load(&remote->state) != IBV_QPS_RESET;
}

void vb_direct_connection_peer_died(struct vb_direct *direct, struct vb_qp *qp,
                                    struct vb_peer *peer)
{
    uint32_t state = vb_qp_state(qp);

    if (!is_stray(qp) || !vb_qp_reliable_type(qp->type) || !is_held_by(peer, qp))
        return;
    while (state >= IBV_QPS_RTR && state <= IBV_QPS_SQE)
        if (atomic_compare_exchange_weak(&qp->shared->state, &state, IBV_QPS_ERR)) {
            atomic_fetch_or(&qp->shared->notices, 1u << IBV_EVENT_QP_FATAL);
            vb_direct_retry_attend(direct, qp);
            return;
        }
}

/* Does the owner of a send queue touch a peer's memory in the turn of that number? */
static bool is_at_work(const struct vb_qp_shared *qp, uint32_t turn)
{
    return vb_biased_is_held(&qp->sq_lock) && atomic_load(&qp->sq_lock.turns) == turn &&
           !atomic_load(&qp->only_wakes);
}

enum {
    ROUNDS_AWAKE = 320,       /* of vb_backoff; the last 65 yield */
    LONGER_SLEEP = 10 * 1000, /* ns, per round */
    MOST_ROUNDS = ROUNDS_AWAKE + 100,
};

/*
 * One round of waiting for a turn, which may be a copy of many milliseconds. Yields that go on for
 * as long would take the processor from whoever copies.
 */
static void wait_round(unsigned *round)
{
    struct timespec pause = {0};

    if (*round < ROUNDS_AWAKE) {
        vb_backoff(round);
        return;
    }
    if (*round < MOST_ROUNDS)
        ++*round;
    pause.tv_nsec = (long)(*round - ROUNDS_AWAKE) * LONGER_SLEEP;
    nanosleep(&pause, NULL);
}

/* Waits until the send queue was at rest once since this call began. */
static void wait_turn(const struct vb_qp_shared *qp, const atomic_bool *gone)
{
    uint32_t turn = atomic_load(&qp->sq_lock.turns);

    for (unsigned round = 0; is_at_work(qp, turn);) {
        if (atomic_load(gone))
            return;
        wait_round(&round);
    }
}

/* The other end's entry, if that may be at work towards this one. */
static struct vb_qp_shared *talks_to(const struct vb_qp *qp, struct vb_peer *peer)
{
    struct vb_qp_shared *remote =
        peer && !atomic_load(&peer->gone) ? vb_direct_peer_qp(peer, vb_qp_dest(qp->shared)) : NULL;

    return remote && vb_qp_dest(remote) == qp->number ? remote : NULL;
}

/* Also one that this end has not met by itself yet. */
static struct vb_peer *hold_peer(struct vb_qp *qp)
{
    struct vb_peer *peer = vb_direct_connection_peer(qp);

    if (!vb_qp_connected_type(qp->type))
        return NULL;
    if (!peer)
        return vb_direct_peer_find_known(vb_direct_of(qp->context->adapter),
                                         vb_qp_dest(qp->shared));
    atomic_fetch_add(&peer->refs, 1);
    return peer;
}

static void drop_peer(struct vb_qp *qp, struct vb_peer *peer)
{
    if (peer)
        vb_direct_peer_put(vb_direct_of(qp->context->adapter), peer);
}

const struct vb_qp_shared *vb_direct_other_end(const struct vb_qp *qp)
{
    const struct vb_connection *to = vb_direct_connection_of(qp);

    return to ? to->remote : NULL;
}

void vb_direct_settle(struct vb_qp *qp)
{
    struct vb_adapter *adapter = qp->context->adapter;
    struct vb_peer *peer = hold_peer(qp);
    struct vb_qp_shared *remote = talks_to(qp, peer);

    wait_turn(qp->shared, &adapter->gone);
    if (remote)
        wait_turn(remote, &peer->gone);
    drop_peer(qp, peer);
    vb_direct_bounce_settle(vb_direct_of(adapter));
    if (vb_is_taken_in_turns(qp)) {
        vb_word_lock(&qp->shared->rq_lock, VB_RANK_RECEIVE, adapter->instance);
        vb_word_unlock(&qp->shared->rq_lock);
    }
}

enum { PEER_PATIENCE = 1000 * 1000 }; /* ns; longer than most copies */

/* As wait_turn, but not for ever. */
static bool await_turn(const struct vb_qp_shared *qp, const atomic_bool *gone)
{
    uint64_t until = vb_direct_now() + PEER_PATIENCE;
    uint32_t turn = atomic_load(&qp->sq_lock.turns);

    for (unsigned round = 0; is_at_work(qp, turn);) {
        if (atomic_load(gone))
            return true;
        if (vb_direct_now() > until)
            return false;
        wait_round(&round);
    }
    return true;
}

bool vb_direct_settle_peer(struct vb_qp *qp)
{
    struct vb_peer *peer = hold_peer(qp);
    struct vb_qp_shared *remote = talks_to(qp, peer);
    bool settled = true;

    vb_barrier_everywhere();
    if (remote && remote != qp->shared) /* its own peer is at this request */
        settled = await_turn(remote, &peer->gone);
    drop_peer(qp, peer);
    if (settled) /* a job of the peer's that it has given up may still be under way */
        vb_direct_bounce_settle(vb_direct_of(qp->context->adapter));
    return settled;
}

bool vb_direct_quiet(struct vb_qp *qp)
{
    struct vb_peer *peer = hold_peer(qp);
    struct vb_qp_shared *remote = talks_to(qp, peer);
    bool quiet = true;

    if (vb_is_taken_in_turns(qp))
        return atomic_load(&qp->shared->rq_lock) == 0;
    if (remote) {
        vb_barrier_everywhere();
        quiet = !is_at_work(remote, atomic_load(&remote->sq_lock.turns));
    }
    drop_peer(qp, peer);
    return quiet;
}
