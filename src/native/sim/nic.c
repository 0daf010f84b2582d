// SPDX-License-Identifier: Apache-2.0
/*
 * The adapter of a simulated host. host.c calls it for flows and attachment.c for programs, and
 * host.c passes the events of adapters on.
 */
#include "sim/nic.h"

#include <errno.h>
#include <stdlib.h>

#include "event/gate.h"
#include "event/lanes.h"
#include "event/telemetry.h"
#include "hca/adapter.h"
#include "sim/host_inside.h"
#include "wire/bytes.h"
#include "wire/opcode.h"

enum { FIRST_SLOTS = 64 };

/* NULL: it has no link. */
static struct vb_world_port *nic_port(const struct vb_nic *nic)
{
    uint32_t number = nic->part->node[nic->node].port[0];

    return number == VB_WORLD_NONE ? NULL : &nic->part->port[number];
}

static struct vb_nic_user *nic_user_of(const struct vb_nic_qp *qp)
{
    return qp->nic->user[qp->is_program];
}

static struct vb_nic_reaction *nic_reaction_of(struct vb_nic_qp *qp)
{
    return (struct vb_nic_reaction *)((char *)qp + qp->reaction_at);
}

/* ---- connections ----------------------------------------------------------------------------- */

static int nic_grow(struct vb_nic_table *table)
{
    uint32_t room = table->room ? 2 * table->room : FIRST_SLOTS;
    struct vb_nic_qp **grown = realloc(table->qp, room * sizeof(*grown));
    uint32_t *numbers;

    if (!grown)
        return -ENOMEM;
    table->qp = grown;
    numbers = realloc(table->free_slot, room * sizeof(*numbers));
    if (!numbers)
        return -ENOMEM;
    table->free_slot = numbers;
    table->room = room;
    return 0;
}

/* HPCC's state. NULL: the connection has none, as it has other congestion control, or is not
 * acknowledged. */
static struct vb_hpcc *nic_hpcc_of(struct vb_nic_qp *qp)
{
    bool has_it = qp->reaction_at && qp->nic->config->congestion.kind == VB_CONGESTION_HPCC;

    return has_it ? nic_reaction_of(qp)->rate.hpcc : NULL;
}

int vb_sim_nic_open(struct vb_nic_qp *qp, bool is_acknowledged)
{
    if (!is_acknowledged || qp->nic->config->congestion.kind != VB_CONGESTION_HPCC)
        return 0;
    nic_reaction_of(qp)->rate.hpcc = calloc(1, sizeof(struct vb_hpcc));
    return nic_reaction_of(qp)->rate.hpcc ? 0 : -ENOMEM;
}

void vb_sim_nic_close(struct vb_nic_qp *qp)
{
    struct vb_nic_qp **at = &nic_user_of(qp)->held;

    while (qp->waits_for_lane && *at != qp)
        at = &(*at)->next;
    if (qp->waits_for_lane)
        *at = qp->next;
    free(nic_hpcc_of(qp));
}

int vb_sim_nic_join(struct vb_nic_table *table, struct vb_nic_qp *qp, bool is_acknowledged)
{
    if (!table->free_slots && table->slots == table->room && nic_grow(table))
        return -ENOMEM;
    if (vb_sim_nic_open(qp, is_acknowledged))
        return -ENOMEM;
    qp->slot = table->free_slots ? table->free_slot[--table->free_slots] : table->slots++;
    qp->generation = table->generations++ % VB_NIC_GENERATIONS;
    table->qp[qp->slot] = qp;
    return 0;
}

void vb_sim_nic_leave(struct vb_nic_table *table, struct vb_nic_qp *qp)
{
    vb_sim_nic_close(qp);
    table->qp[qp->slot] = NULL;
    table->free_slot[table->free_slots++] = qp->slot;
}

struct vb_nic_qp *vb_sim_nic_find(const struct vb_nic_table *table, uint32_t slot,
                                  uint32_t generation)
{
    struct vb_nic_qp *qp = slot < table->slots ? table->qp[slot] : NULL;

    return qp && qp->generation == generation ? qp : NULL;
}

void vb_sim_nic_queue_add(struct vb_nic_qp **last, struct vb_nic_qp *qp)
{
    if (qp->has_turn)
        return;
    qp->has_turn = true;
    qp->next = *last ? (*last)->next : qp;
    if (*last)
        (*last)->next = qp;
    *last = qp;
}

void vb_sim_nic_queue_remove(struct vb_nic_qp **last, struct vb_nic_qp *qp)
{
    struct vb_nic_qp *before = *last;

    if (!qp->has_turn)
        return;
    qp->has_turn = false;
    while (before->next != qp)
        before = before->next;
    before->next = qp->next;
    if (*last == qp)
        *last = before == qp ? NULL : before;
}

/* ---- holding them ---------------------------------------------------------------------------- */

static void nic_let_go(struct vb_nic_qp *qp)
{
    if (!qp->waits_for_lane && !qp->waits_for_rate && !qp->waits_for_bell)
        nic_user_of(qp)->calls->hold(qp, false);
}

static void nic_call(struct vb_nic_qp *qp, enum vb_nic_event event, uint64_t delay)
{
    struct vb_world_partition *part = qp->nic->part;

    vb_world_call(part, part->now + delay, event | vb_sim_nic_argument(qp) << VB_NIC_EVENT_BITS,
                  qp->slot);
}

bool vb_sim_nic_may_send(const struct vb_nic *nic)
{
    if (VB_UNLIKELY(nic->inside != NULL)) /* packets wait for the port in the adapter */
        return nic->bus_free_at <= nic->part->now &&
               (!nic_port(nic) || !vb_world_gate_is_shut(nic_port(nic)));
    return vb_world_may_send(nic->part, nic->node) && nic->bus_free_at <= nic->part->now;
}

bool vb_sim_nic_is_blocked(const struct vb_nic *nic, uint8_t level_marks)
{
    const struct vb_world_port *port = nic_port(nic);

    return port && port->lanes &&
           port->lanes->lane[vb_world_lanes_of(port->lanes, level_marks)].packets;
}

/* An HCA with one port makes no packet before the port is free, so it waits for lanes only. */
static bool nic_is_stopped(const struct vb_nic_qp *qp, const struct vb_world_port *port)
{
    return (port && port->lanes && port->lanes->lane[qp->lane].packets) ||
           VB_UNLIKELY(qp->is_program && qp->nic->is_one_of_two && !vb_sim_nic_may_send(qp->nic));
}

static void nic_wait_for_lane(struct vb_nic_qp *qp, const struct vb_world_port *port,
                              uint32_t level)
{
    struct vb_nic_user *user = nic_user_of(qp);

    if (qp->waits_for_lane)
        return;
    if (port && port->lanes)
        qp->lane = vb_world_lanes_of(port->lanes, (uint8_t)(level << 4 | qp->marks)) & 15;
    if (!nic_is_stopped(qp, port))
        return;
    user->calls->hold(qp, true);
    qp->waits_for_lane = true;
    qp->next = user->held;
    user->held = qp;
}

void vb_sim_nic_release(struct vb_nic_user *user)
{
    struct vb_nic_qp **at = &user->held;

    while (*at) {
        struct vb_nic_qp *qp = *at;

        if (nic_is_stopped(qp, nic_port(qp->nic))) {
            at = &qp->next;
            continue;
        }
        *at = qp->next;
        qp->waits_for_lane = false;
        nic_let_go(qp);
    }
}

void vb_sim_nic_wait_is_over(struct vb_nic_qp *qp, enum vb_nic_event event)
{
    if (event == VB_NIC_RATE)
        qp->waits_for_rate = false;
    else
        qp->waits_for_bell = false;
    qp->saw_bell = true;
    qp->is_told = event == VB_NIC_DOORBELL;
    nic_let_go(qp);
    nic_user_of(qp)->calls->pump(qp);
}

void vb_sim_nic_tell_after(struct vb_nic_qp *qp, uint64_t delay)
{
    nic_call(qp, VB_NIC_DOORBELL, delay);
}

void vb_sim_nic_left_after(struct vb_nic_qp *qp, uint64_t delay)
{
    nic_call(qp, VB_NIC_LEFT, delay);
}

void vb_sim_nic_ring_after(struct vb_nic_qp *qp, uint64_t delay)
{
    if (qp->waits_for_bell)
        return;
    nic_user_of(qp)->calls->hold(qp, true);
    qp->waits_for_bell = true;
    nic_call(qp, VB_NIC_DOORBELL, delay);
}

bool vb_sim_nic_ring(struct vb_nic_qp *qp)
{
    if (!qp->nic->config->doorbell)
        return false;
    vb_sim_nic_ring_after(qp, qp->nic->config->doorbell);
    return true;
}

/* Holds the connection until this packet would have been sent at its rate. */
static void nic_pace(struct vb_nic_qp *qp, uint32_t level, uint32_t bytes, uint64_t limit)
{
    const struct vb_congestion *congestion = &qp->nic->config->congestion;
    double line = (double)nic_port(qp->nic)->rate, rate = line;

    if (qp->reaction_at)
        rate = vb_sim_congestion_sent(congestion, &nic_reaction_of(qp)->rate, level, line, bytes,
                                      qp->nic->part->now);
    if (limit && (double)limit < rate)
        rate = (double)limit;
    if (rate >= line)
        return;
    qp->waits_for_rate = true;
    nic_user_of(qp)->calls->hold(qp, true);
    nic_call(qp, VB_NIC_RATE, (uint64_t)(bytes * 8e12 / rate));
}

void vb_sim_nic_sent(struct vb_nic_qp *qp, uint32_t level, uint32_t payload, uint32_t bytes,
                     uint64_t limit)
{
    const struct vb_world_port *port = nic_port(qp->nic);

    nic_wait_for_lane(qp, port, level);
    if ((qp->reaction_at || limit) && payload && bytes && port)
        nic_pace(qp, level, bytes, limit);
}

/* ---- the port -------------------------------------------------------------------------------- */

/* A free port of an HCA with two has no event, which would be repeated without end. */
void vb_sim_nic_want_ready(struct vb_nic *nic)
{
    struct vb_world_partition *part = nic->part;
    const struct vb_world_port *port = nic_port(nic);

    if (!port || vb_world_gate_is_shut(port)) /* the host is called when its port opens */
        return;
    if (VB_UNLIKELY(nic->bus_free_at > part->now)) {
        if (!nic->bus_planned)
            vb_world_call(part, nic->bus_free_at, VB_NIC_BUS, nic->number);
        nic->bus_planned = true;
        return;
    }
    if (port->lanes) {
        vb_world_lanes_want_ready(part, part->node[nic->node].port[0]);
    } else if (!nic->ready_planned && (!nic->is_one_of_two || port->free_at > part->now)) {
        nic->ready_planned = true;
        vb_world_add(part, port->free_at > part->now ? port->free_at : part->now, VB_WORLD_READY, 0,
                     part->node[nic->node].port[0]);
    }
}

/* Switches add telemetry to a data packet, and an acknowledgement carries it back. */
static void nic_begin_telemetry(struct vb_nic_qp *qp, uint32_t packet)
{
    struct vb_world_partition *part = qp->nic->part;
    struct vb_world_packet *at = vb_world_packet_at(part, packet);
    struct vb_world_telemetry *telemetry = vb_world_telemetry_of(part, packet);
    const struct vb_world_port *port = nic_port(qp->nic);
    struct vb_hpcc *hpcc = nic_hpcc_of(qp);

    if (!telemetry || !hpcc)
        return;
    at->bytes += VB_HPCC_BYTES;
    if (!at->payload) {
        *telemetry = hpcc->received;
        return;
    }
    telemetry->hops = 0;
    telemetry->sent_at = part->now;
    if (hpcc->window > 0 || !port)
        return;
    vb_sim_hpcc_start(hpcc, &qp->nic->config->congestion.hpcc, (double)port->rate);
    nic_user_of(qp)->calls->window(qp, hpcc);
}

uint32_t vb_sim_nic_send(struct vb_nic *nic, struct vb_nic_qp *qp, uint32_t packet)
{
    struct vb_world_partition *part = nic->part;
    const struct vb_world_packet *at = vb_world_packet_at(part, packet);
    uint64_t payload = at->payload, rate = nic->config->bus_rate;
    uint32_t bytes;

    if (VB_UNLIKELY(part->world->traces) && qp)
        nic_begin_telemetry(qp, packet);
    bytes = at->bytes;
    if (VB_UNLIKELY(nic->inside != NULL)) {
        vb_sim_inside_send(nic, qp, packet);
        return bytes;
    }
    vb_world_send(part, nic->node, packet);
    if (VB_UNLIKELY(rate) && payload)
        nic->bus_free_at = part->now + payload * 8 * VB_WORLD_SECOND / rate;
    return bytes;
}

/* ---- in -------------------------------------------------------------------------------------- */

static bool nic_has_payload(const struct vb_nic_qp *qp, const struct vb_arrival *arrival)
{
    const struct vb_bth bth = vb_wire_bth_read(arrival->bytes);
    const struct vb_opcode *opcode = &vb_opcodes[bth.opcode];

    if (!qp->is_program)
        return arrival->virtual_payload;
    return opcode->name && (bth.opcode & VB_TRANSPORT_MASK) != VB_TRANSPORT_CNP &&
           arrival->length > opcode->header_length + bth.pad;
}

static void nic_take_telemetry(struct vb_nic_qp *qp, const struct vb_arrival *arrival,
                               const struct vb_world_telemetry *telemetry)
{
    struct vb_nic *nic = qp->nic;
    const struct vb_world_port *port = nic_port(nic);
    struct vb_hpcc *hpcc = nic_hpcc_of(qp);
    uint8_t opcode = arrival->bytes[0];

    if (!hpcc)
        return;
    if (nic_has_payload(qp, arrival)) {
        hpcc->received = *telemetry;
        if (vb_sim_congestion_is_read_data(opcode))
            nic_user_of(qp)->calls->cnp(qp, vb_wire_get24(arrival->bytes + 9));
    } else if (vb_sim_congestion_brings_telemetry(opcode) && port && hpcc->window > 0) {
        vb_sim_hpcc_acknowledged(hpcc, &nic->config->congestion.hpcc, (double)port->rate, telemetry,
                                 nic->part->now);
        nic_user_of(qp)->calls->window(qp, hpcc);
    }
}

bool vb_sim_nic_received(struct vb_nic_qp *qp, const struct vb_arrival *arrival, uint32_t level,
                         const struct vb_world_telemetry *telemetry, bool is_notice)
{
    const struct vb_congestion *congestion = &qp->nic->config->congestion;
    const struct vb_world_port *port = nic_port(qp->nic);
    uint64_t now = qp->nic->part->now;
    struct vb_nic_reaction *reaction = nic_reaction_of(qp);

    if (!qp->reaction_at)
        return false;
    if (telemetry) { /* HPCC knows no notifications */
        nic_take_telemetry(qp, arrival, telemetry);
        return false;
    }
    if (vb_sim_nic_is_marked(arrival) && nic_has_payload(qp, arrival) &&
        vb_sim_congestion_is_notice_due(congestion, &reaction->noticed_at, now))
        nic_user_of(qp)->calls->cnp(qp, VB_CONGESTION_NOTICE);
    return is_notice && port &&
           vb_sim_congestion_notice(congestion, &reaction->rate, level, (double)port->rate, now);
}
