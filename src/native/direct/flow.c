// SPDX-License-Identifier: Apache-2.0
/*
 * The flows of queue pairs in a live fabric (flow.h). A connection has one, which it asks for with
 * its first request; a UD QP has one for each address that it has sent to lately.
 */
#include "direct/flow.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "direct/requester.h"
#include "hca/ah.h"
#include "hca/event.h"
#include "hca/lost.h"
#include "hca/mw.h"
#include "hca/random.h"
#include "hca/text.h"

enum { FLOWS = 64 };

struct vb_flows {
    struct {
        struct vb_fabric_way way;
        struct vb_fabric_flow *flow;
    } entry[FLOWS];
};

static struct vb_fabric *flow_fabric(const struct vb_qp *qp)
{
    return qp->context->adapter->fabric;
}

static struct vb_fabric_way flow_way(const struct vb_qp *qp, const struct ibv_ah_attr *ah,
                                     uint32_t dest_qp_num)
{
    struct vb_fabric_way way = {.port = vb_qp_port(qp)->number,
                                .dlid = ah->dlid,
                                .sl = ah->sl,
                                .path_bits = ah->src_path_bits,
                                .pkey_index = qp->verbs->attr.pkey_index,
                                .type = qp->type,
                                .global = ah->is_global,
                                .qp_num = qp->number,
                                .dest_qp_num = dest_qp_num};

    if (ah->is_global)
        memcpy(way.dgid, ah->grh.dgid.raw, sizeof(way.dgid));
    return way;
}

/* ---- what is counted ---- */

/* One thread at a time counts, and the process reads meanwhile. */
static void flow_add(uint64_t *count, uint64_t by)
{
    __atomic_store_n(count, *count + by, __ATOMIC_RELAXED);
}

uint64_t vb_direct_flow_packets(const struct vb_qp *qp, const struct ibv_send_wr *wr,
                                uint64_t *length)
{
    uint64_t mtu = qp->type == IBV_QPT_UD ? UINT32_MAX : 128u << qp->verbs->attr.path_mtu;

    *length = 0;
    for (int i = 0; i < wr->num_sge; ++i)
        *length += wr->sg_list[i].length;
    return *length > mtu ? (*length + mtu - 1) / mtu : 1;
}

void vb_direct_flow_count(struct vb_fabric_flow *flow, const struct vb_qp *qp,
                          const struct ibv_send_wr *wr)
{
    bool is_read = wr->opcode == IBV_WR_RDMA_READ;
    uint64_t length, packets = vb_direct_flow_packets(qp, wr, &length);

    if (!flow)
        return;
    flow_add(&flow->packets[is_read], packets);
    flow_add(&flow->payload[is_read], (length + 3) / 4);
    flow_add(&flow->requests[wr->opcode % VB_FABRIC_OPCODES], 1);
}

/* Draws of so many packets how many are lost, counts them, and returns whether one was. */
static VB_COLD bool flow_loses(struct vb_fabric_flow *flow, uint64_t packets)
{
    uint64_t lost = 0;

    for (; packets; --packets)
        lost += vb_random_mix(&flow->random) >> 32 < flow->loss;
    flow_add(&flow->lost, lost);
    return lost;
}

/* ---- what is told ---- */

/* A connection that fails is told of once, also to a program without a log. */
static void flow_say_of_one(struct vb_adapter *adapter, const char *line)
{
    if (!atomic_exchange(&adapter->told_without_log, true))
        dprintf(STDERR_FILENO, "verbena: %s; VERBENA_LOG=errors says it of each QP\n", line);
}

/* ---- connections ---- */

bool vb_direct_flow_is_lost(const struct vb_connection *to)
{
    const struct vb_fabric *fabric = flow_fabric(to->qp);
    uint32_t reached;

    if (!fabric)
        return false;
    reached = to->flow ? atomic_load_explicit(&to->flow->reached, memory_order_acquire) : 0;
    /* Another port may have the LID now. */
    return !reached || (to->epoch && to->remote &&
                        reached != vb_shared_port(&to->peer->view, to->remote)->identity);
}

/*
 * A request that passes lossy links. A lost one waits for its ACK timeout, and is drawn for again
 * in each turn, in which it is sent, and `counted`, once more. Its other packets are repaired by a
 * NAK at once, so the last one and the acknowledgement decide. UC's is lost with any packet.
 */
static VB_COLD int flow_execute_lossy(struct vb_connection *to, const struct ibv_send_wr *wr,
                                      struct vb_outcome *outcome, bool *counted)
{
    struct vb_qp *qp = to->qp;
    uint64_t length, packets = qp->type == IBV_QPT_UC ? vb_direct_flow_packets(qp, wr, &length) : 1;
    uint8_t turns = qp->wait.turns;
    int error;

    *outcome = (struct vb_outcome){.status = IBV_WC_SUCCESS};
    if (qp->wait.reason == VB_WAIT_PEER) {
        error = vb_direct_wait_for_peer(to, wr, outcome);
        if (error != -EAGAIN || qp->wait.turns == turns)
            return error;
        *counted = true;
    }
    if (qp->wait.reason != VB_WAIT_RNR && flow_loses(to->flow, packets))
        return qp->type == IBV_QPT_UC ? 0
               : *counted             ? -EAGAIN
                                      : vb_direct_wait_for_peer(to, wr, outcome);
    return vb_direct_execute(qp, wr, outcome);
}

/* A request whose way has limited or lossy links. */
static VB_COLD int flow_execute_hindered(struct vb_connection *to, const struct ibv_send_wr *wr,
                                         struct vb_outcome *outcome, bool *counted)
{
    if (to->flow->limited && to->qp->wait.reason == VB_WAIT_NONE &&
        vb_direct_link_turn_waits(to, to->flow, wr))
        return -EAGAIN;
    return to->flow->loss ? flow_execute_lossy(to, wr, outcome, counted)
                          : vb_direct_execute(to->qp, wr, outcome);
}

int vb_direct_fabric_execute(struct vb_qp *qp, const struct ibv_send_wr *wr,
                             struct vb_outcome *outcome)
{
    struct vb_connection *to = vb_verbs_qp_of(qp)->connection;
    bool counted = false;
    int error;

    if (vb_mw_is_local(wr->opcode))
        return vb_direct_execute(qp, wr, outcome);
    if (VB_UNLIKELY(!to->flow)) {
        struct vb_fabric_way way = flow_way(qp, &qp->verbs->attr.ah_attr, qp->shared->dest_qp_num);

        to->flow = vb_port_fabric_ask(flow_fabric(qp), &way);
    }
    if (VB_LIKELY(!vb_direct_flow_is_lost(to))) {
        error = VB_UNLIKELY(to->flow->hindered) ? flow_execute_hindered(to, wr, outcome, &counted)
                                                : vb_direct_execute(qp, wr, outcome);
    } else {
        *outcome = (struct vb_outcome){.status = IBV_WC_SUCCESS};
        error = qp->type == IBV_QPT_UC ? 0 : vb_direct_wait_for_peer(to, wr, outcome);
    }
    if (!error && !counted &&
        (outcome->status == IBV_WC_SUCCESS || outcome->status == IBV_WC_REM_ACCESS_ERR ||
         outcome->status == IBV_WC_REM_INV_REQ_ERR || outcome->status == IBV_WC_REM_OP_ERR))
        vb_direct_flow_count(to->flow, qp, wr);
    return error;
}

void vb_direct_flow_tell(struct vb_qp *qp, const struct vb_fabric_flow *flow)
{
    struct vb_adapter *adapter = qp->context->adapter;
    char line[VB_FABRIC_SENTENCE + 64];
    struct vb_text text = {line, sizeof(line), 0};

    vb_text_add(&text, "packets of QP 0x%x are lost: %.*s", qp->number, VB_FABRIC_SENTENCE,
                flow ? flow->sentence : "the process of the fabric has ended, or does not answer");
    if (adapter->tell)
        adapter->tell(line);
    else if (qp->type != IBV_QPT_UD)
        flow_say_of_one(qp->context->adapter, line);
}

/* ---- datagrams ---- */

static struct vb_fabric_flow *flow_of_address(struct vb_connection *to,
                                              const struct ibv_ah_attr *ah, uint32_t qp_num)
{
    struct vb_fabric *fabric = flow_fabric(to->qp);
    struct vb_fabric_way way = flow_way(to->qp, ah, qp_num);
    unsigned place = (ah->dlid ^ ah->sl ^ qp_num) % FLOWS;

    if (!to->flows)
        to->flows = calloc(1, sizeof(*to->flows));
    if (!to->flows)
        return NULL;
    if (to->flows->entry[place].flow &&
        memcmp(&to->flows->entry[place].way, &way, sizeof(way)) == 0)
        return to->flows->entry[place].flow;
    if (to->flows->entry[place].flow)
        vb_port_fabric_release(fabric, to->flows->entry[place].flow);
    to->flows->entry[place].way = way;
    return to->flows->entry[place].flow = vb_port_fabric_ask(fabric, &way);
}

struct vb_fabric_flow *vb_direct_flow_of_datagram(struct vb_connection *to,
                                                  const struct ibv_send_wr *wr)
{
    const struct vb_ah *ah = (const struct vb_ah *)wr->wr.ud.ah;

    return flow_of_address(to, &ah->attr, wr->wr.ud.remote_qpn);
}

bool vb_direct_flow_takes(struct vb_connection *to, const struct ibv_send_wr *wr,
                          struct vb_fabric_flow *flow)
{
    const struct ibv_ah_attr *ah = &((const struct vb_ah *)wr->wr.ud.ah)->attr;
    struct vb_lost lost = {.cause = VB_LOST_ROUTE,
                           .from = to->qp->number,
                           .to = wr->wr.ud.remote_qpn,
                           .value = ah->dlid};

    vb_direct_flow_count(flow, to->qp, wr);
    if (flow && atomic_load_explicit(&flow->reached, memory_order_acquire) &&
        !(VB_UNLIKELY(flow->loss) && flow_loses(flow, 1)))
        return true;
    if (!(atomic_load(&to->qp->verbs->logged_lost) & 1u << VB_LOST_ROUTE))
        vb_direct_flow_tell(to->qp, flow);
    vb_lost_direct(to->qp, &lost);
    return false;
}

void vb_direct_flows_release(struct vb_connection *to)
{
    struct vb_fabric *fabric = flow_fabric(to->qp);

    if (to->flow)
        vb_port_fabric_release(fabric, to->flow);
    to->flow = NULL;
    for (int i = 0; to->flows && i < FLOWS; ++i)
        if (to->flows->entry[i].flow)
            vb_port_fabric_release(fabric, to->flows->entry[i].flow);
    free(to->flows);
    to->flows = NULL;
}

/* ---- news ---- */

/* What peers and this side's own QPs read of the port. */
static void flow_update(struct vb_adapter *adapter, struct vb_adapter_port *port)
{
    struct vb_port_shared *shared = &adapter->self.header->port[port->number - 1];

    vb_port_fabric_update(port);
    shared->lid = port->lid;
    shared->lmc = port->lmc;
    vb_lock_take(&adapter->mutex);
    for (uint32_t i = 0; i < adapter->qp_pool.next; ++i) {
        struct vb_qp *qp = adapter->qps[i];

        if (qp && vb_qp_state(qp) != IBV_QPS_RESET && vb_qp_port(qp) == port)
            __atomic_store_n(&qp->shared->pkey, port->pkeys[qp->verbs->attr.pkey_index],
                             __ATOMIC_RELAXED);
    }
    vb_lock_release(&adapter->mutex);
}

/* Once, also to a program without a log. */
static void flow_say_that_it_ended(struct vb_adapter *adapter)
{
    static atomic_flag was_said = ATOMIC_FLAG_INIT;
    const char *line = "the process of the fabric has ended: the ports are DOWN, and nothing that "
                       "is sent arrives; start the fabric again, and then this program";

    if (adapter->tell)
        adapter->tell(line);
    else if (!atomic_flag_test_and_set(&was_said))
        dprintf(STDERR_FILENO, "verbena: %s\n", line);
}

void vb_direct_fabric_news(struct vb_direct *direct)
{
    struct vb_adapter *adapter = direct->adapter;
    uint32_t port = 0;
    int event = 0, error = vb_port_fabric_news(adapter->fabric, &port, &event);

    if (error == -EAGAIN)
        return;
    if (error) {
        epoll_ctl(direct->epoll_fd, EPOLL_CTL_DEL, adapter->fabric->news_fd, NULL);
        flow_say_that_it_ended(adapter);
    }
    for (uint8_t number = 1; number <= adapter->port_count; ++number) {
        if (!error && number != port)
            continue;
        flow_update(adapter, &adapter->ports[number - 1]);
        if (direct->event && (error || event >= 0))
            direct->event(direct->event_argument, number,
                          error ? IBV_EVENT_PORT_ERR : (enum ibv_event_type)event);
    }
}
