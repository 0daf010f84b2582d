// SPDX-License-Identifier: Apache-2.0
/*
 * Retries as time: how long a request waits for a receive request (RNR) or for a peer that does not
 * answer, before it ends in error. The retry counts and timers are those of IBA 9.7.5 and 9.7.6.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "direct/connection.h"
#include "direct/flow.h"
#include "direct/requester.h"
#include "hca/delays.h"
#include "hca/overdue.h"

enum { TURN_SHIFT = 12 }; /* 4.096 us, the unit of ACK timeouts */

static uint32_t turn_units(uint64_t ns)
{
    return (uint32_t)(ns >> TURN_SHIFT);
}

static uint64_t waiting_waited(struct vb_qp *qp, unsigned reason, uint64_t *count)
{
    uint64_t now = vb_direct_now();

    if (qp->wait.reason != reason) {
        vb_direct_count(count, 1);
        qp->wait.reason = (uint8_t)reason;
        qp->wait.since = now;
        qp->wait.noted = VB_WAIT_NONE;
        qp->wait.turns = 0;
        qp->wait.begun = turn_units(now);
    }
    return now - qp->wait.since;
}

/*
 * A turn is over `period` ns after it began, once somebody looks: a time in which nobody here was
 * run, as on a machine that was paused, is one turn, however long.
 */
static bool has_turns_left(struct vb_qp *qp, uint64_t period, uint32_t turns)
{
    uint32_t now = turn_units(vb_direct_now());

    if (now - qp->wait.begun >= turn_units(period + (1u << TURN_SHIFT) - 1)) {
        qp->wait.begun = now;
        ++qp->wait.turns;
    }
    return qp->wait.turns < turns;
}

static int waiting_give_up(struct vb_connection *to, const struct ibv_send_wr *wr,
                           enum vb_check check, uint32_t retries, uint64_t after_ns,
                           struct vb_outcome *outcome)
{
    struct vb_evidence evidence = {
        .check = check, .count = retries, .microseconds = after_ns / 1000};

    if (check == VB_CHECK_PEER_DIED)
        to->failed_by_death = true;
    return vb_refuse(to->qp, wr,
                     check == VB_CHECK_RNR ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_RETRY_EXC_ERR,
                     &evidence, outcome);
}

/* Who does not answer is looked at once more: the text says what is there now. */
static VB_COLD int give_up_on_peer(struct vb_connection *to, const struct ibv_send_wr *wr,
                                   uint64_t after_ns, struct vb_outcome *outcome)
{
    struct vb_evidence evidence = {.check = VB_CHECK_NO_ANSWER, .microseconds = after_ns / 1000};

    evidence.silence = (uint8_t)vb_direct_connection_silence(to, &evidence.count);
    if (evidence.silence == VB_SILENCE_ROUTE)
        vb_direct_flow_tell(to->qp, to->flow);
    return vb_refuse(to->qp, wr, IBV_WC_RETRY_EXC_ERR, &evidence, outcome);
}

/* The service thread may not have noticed yet that a peer's process has ended, whose queues are
 * still there to look at: then it is not the receiver that was not ready. */
static bool waiting_has_ended(const struct vb_peer *peer)
{
    struct pollfd socket = {.fd = atomic_load(&peer->socket), .events = 0};

    return poll(&socket, 1, 0) > 0 && (socket.revents & (POLLHUP | POLLERR));
}

int vb_direct_wait_for_receive(struct vb_connection *to, const struct ibv_send_wr *wr,
                               struct vb_outcome *outcome)
{
    bool is_first = to->qp->wait.reason != VB_WAIT_RNR, goes_on;
    uint64_t since = waiting_waited(to->qp, VB_WAIT_RNR, &to->counts.waits_for_receive);
    uint32_t retries = to->qp->terms.rnr_retry;
    uint64_t timer = vb_rnr_delay(to->remote->min_rnr_timer);
    uint8_t turns = to->qp->wait.turns;

    vb_overdue_note(to->qp, VB_WAIT_RNR, to->peer->pid, to->qp->wait.since,
                    to->qp->wait.since + since);
    goes_on = has_turns_left(to->qp, timer, retries) || retries == 7; /* for ever, IBA 9.7.5.2.8 */
    if (is_first || to->qp->wait.turns != turns) /* a packet would leave now, and an RNR NAK come */
        vb_direct_flow_count(to->flow, to->qp, wr);
    if (goes_on)
        return -EAGAIN;
    return waiting_has_ended(to->peer)
               ? waiting_give_up(to, wr, VB_CHECK_PEER_DIED, to->qp->terms.retry_cnt, since,
                                 outcome)
               : waiting_give_up(to, wr, VB_CHECK_RNR, retries, since, outcome);
}

static bool is_gone(const struct vb_connection *to)
{
    return to->peer && atomic_load(&to->peer->gone);
}

/*
 * One ACK timeout for each of 1 + retry_cnt attempts; timeout 0 is for ever (IBA 9.7.6.1.3), or
 * until the peer's process ends.
 */
int vb_direct_wait_for_peer(struct vb_connection *to, const struct ibv_send_wr *wr,
                            struct vb_outcome *outcome)
{
    struct vb_qp *qp = to->qp;
    bool is_first = qp->wait.reason != VB_WAIT_PEER;
    uint64_t since = waiting_waited(qp, VB_WAIT_PEER, &to->counts.waits_for_peer);
    uint8_t turns = qp->wait.turns;
    bool is_for_ever = qp->terms.timeout == 0, goes_on;

    if (vb_direct_connection_is_dead(to) || (is_for_ever && is_gone(to)))
        return waiting_give_up(to, wr, VB_CHECK_PEER_DIED, to->qp->terms.retry_cnt, since, outcome);
    if (!to->peer && vb_direct_other_build_refuse(to->qp, wr, outcome))
        return 0;
    vb_overdue_note(qp, VB_WAIT_PEER, to->peer ? to->peer->pid : 0, qp->wait.since,
                    qp->wait.since + since);
    goes_on = is_for_ever ||
              has_turns_left(qp, vb_ack_timeout(qp->terms.timeout), 1u + qp->terms.retry_cnt);
    if (is_first || (goes_on && qp->wait.turns != turns)) { /* a packet would leave now */
        vb_direct_connection_count_refused(to);
        vb_direct_flow_count(to->flow, qp, wr);
    }
    if (goes_on)
        return -EAGAIN;
    return is_gone(to) || (to->peer && waiting_has_ended(to->peer))
               ? waiting_give_up(to, wr, VB_CHECK_PEER_DIED, to->qp->terms.retry_cnt, since,
                                 outcome)
               : give_up_on_peer(to, wr, since, outcome);
}
