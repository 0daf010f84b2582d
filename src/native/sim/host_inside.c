// SPDX-License-Identifier: Apache-2.0
/*
 * Connects a host's inside (inside.h) to its adapter, flows and program: packets wait here for
 * their payload, completions for the interrupt or the core that takes them. Everything of one host
 * is in one partition.
 */
#include "sim/host_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim/socket.h"
#include "sim/tcp.h"
#include "transport/engine.h"
#include "wire/opcode.h"

enum {
    ITEM_BITS = 32,
    FIRST_WAITS = 16,
    SENDS = 1u << 31,
    PROGRAM_CORE = 0, /* a program is one thread */
    PS_IN_NS = 1000,  /* its completion queues have the next whole ns */
};

/* What VB_SIM_CALL_WAKE is about: a core, or a descriptor of the program. */
enum host_wake {
    WAKE_IS_DUE,  /* a moderated interrupt */
    WAKE_ARRIVES, /* an interrupt */
    WAKE_FINDS,   /* a core finds a completion without one */
    WAKE_RUNS,    /* the program */
    WAKE_BITS = 2
};

#define LAST_OF_INTERRUPT (1ull << 63) /* in vb_inside_core.waits */

static const uint32_t PSN_MASK = 0xffffff;

static uint32_t core_of(const struct vb_inside *inside, uint32_t number)
{
    return number % inside->config.cores;
}

static struct vb_sim_host *host_of_nic(const struct vb_nic *nic)
{
    const struct vb_sim *sim = nic->part->hosts_context;

    return sim->host[nic->number];
}

int vb_sim_set_inside(struct vb_sim *sim, uint32_t host, const struct vb_inside_config *config)
{
    struct vb_sim_host *of = sim->host[host];

    if (of->nic.inside || of->attachment || of->numbers || of->groups)
        return -EBUSY;
    return vb_sim_inside_create(config, &of->nic.inside);
}

const struct vb_inside *vb_sim_inside(const struct vb_sim *sim, uint32_t host)
{
    return sim->host[host]->nic.inside;
}

/* ---- whose slices they are ------------------------------------------------------------------ */

static uint32_t label_of_qp(const struct vb_nic_qp *qp)
{
    return qp && !qp->is_program ? qp->slot : VB_INSIDE_NO_FLOW;
}

static uint32_t label_of_segment(const struct vb_world_packet *at)
{
    return vb_sim_socket_has_packet(at) ? VB_INSIDE_NO_FLOW : vb_sim_tcp_flow(at);
}

static uint32_t label_of_arrival(const struct vb_sim_host *host, const struct vb_world_packet *at)
{
    struct vb_qp *found;
    struct vb_sim_qp *sender;

    if (!host->nic.inside->config.slices || at->flags & VB_WORLD_HAS_BYTES)
        return VB_INSIDE_NO_FLOW;
    if (at->flags & VB_WORLD_TCP)
        return label_of_segment(at);
    if (at->header[0] & VB_TRANSPORT_MASK) {
        sender = vb_sim_unreliable_sender(host->sim, at);
        return sender ? sender->flow : VB_INSIDE_NO_FLOW;
    }
    found = vb_engine_find(host->engine, vb_wire_get24(at->header + 5));
    return found ? vb_sim_qp_of(found)->flow : VB_INSIDE_NO_FLOW;
}

static enum vb_sim_taken taken_of_wait(uint64_t wait)
{
    return (enum vb_sim_taken)((wait & ~LAST_OF_INTERRUPT) >> ITEM_BITS);
}

static uint32_t label_of_wait(uint64_t wait)
{
    return taken_of_wait(wait) == VB_SIM_TAKEN_READABLE ? VB_INSIDE_NO_FLOW : (uint32_t)wait;
}

/* ---- packets out ----------------------------------------------------------------------------- */

/* NULL: a segment of TCP, or nothing that the tables know. */
static const struct vb_opcode *opcode_of_packet(const struct vb_world_packet *at)
{
    const struct vb_opcode *opcode = &vb_opcodes[at->header[0]];

    return at->flags & VB_WORLD_TCP || !opcode->name ? NULL : opcode;
}

/* Is the payload in the request itself? */
static bool is_inlined(const struct vb_inside *inside, const struct vb_opcode *opcode,
                       uint32_t payload)
{
    uint32_t whole = VB_OPCODE_FIRST | VB_OPCODE_LAST;

    return opcode && payload <= inside->config.inline_most && (opcode->flags & whole) == whole &&
           !(opcode->flags & VB_OPCODE_RESPONSE);
}

/* Where the payload of a packet is in the memory of its connection. */
static uint64_t place_of(const struct vb_sim_host *host, const struct vb_world_packet *at)
{
    if (at->flags & VB_WORLD_TCP) /* the low half of a byte's number */
        return vb_wire_get32(at->header + VB_WORLD_TCP_NUMBER + 2);
    return (uint64_t)(vb_wire_get32(at->header + 8) & PSN_MASK) * host->sim->config.mtu;
}

/* A frame of the kernel is in memory with its headers; those of a QP are made by the adapter. */
static uint32_t headers_of(const struct vb_sim_host *host, const struct vb_world_packet *at)
{
    return at->flags & VB_WORLD_TCP && host->framing != VB_SIM_BARE ? vb_sim_tcp_headers(at) : 0;
}

/* The delay until the request of a flow's datagram is in the adapter. */
static uint64_t post_datagram(struct vb_inside *inside, uint64_t now,
                              const struct vb_world_packet *at)
{
    bool is_flows = (at->header[0] & VB_TRANSPORT_MASK) == VB_TRANSPORT_UD &&
                    !(at->flags & (VB_WORLD_HAS_BYTES | VB_WORLD_TCP));

    return is_flows ? vb_sim_inside_charge_post(inside, core_of(inside, inside->flow), now, 1,
                                                vb_sim_inside_request_bytes(
                                                    inside, VB_INSIDE_ADDRESSES, true, at->payload))
                    : 0;
}

/* The delay until a packet's payload, and its headers if they are in memory, are in the adapter. */
static uint64_t fetch_packet(const struct vb_nic *nic, const struct vb_world_packet *at)
{
    const struct vb_sim_host *host = host_of_nic(nic);
    const struct vb_inside_piece piece = {at->payload, headers_of(host, at),
                                          SENDS | vb_wire_get24(at->header + 5),
                                          place_of(host, at)};
    struct vb_inside *inside = nic->inside;
    const struct vb_opcode *opcode = opcode_of_packet(at);
    uint64_t now = nic->part->now, posted;

    if (!piece.payload && !piece.headers)
        return 0;
    posted = post_datagram(inside, now, at);
    if (is_inlined(inside, opcode, at->payload)) {
        ++inside->counters.inlined;
        return posted;
    }
    return vb_sim_inside_charge_fetch(inside, now, posted, &piece);
}

static uint64_t wire_time(const struct vb_nic *nic, uint32_t bytes)
{
    uint32_t number = nic->part->node[nic->node].port[0];

    return number == VB_WORLD_NONE
               ? 0
               : (uint64_t)bytes * 8 * VB_WORLD_SECOND / nic->part->port[number].rate;
}

/*
 * The next packet is fetched when it will just reach a free wire. A fetch takes about `lead`, so
 * the wire is busy without a gap where the bus is faster, and few bytes wait where it is slower.
 */
static void plan_fetch(struct vb_nic *nic, uint32_t bytes, uint64_t leave_at)
{
    struct vb_inside *inside = nic->inside;
    uint64_t lead = inside->config.round_trip + inside->config.memory +
                    ((VB_INSIDE_AHEAD * inside->config.byte_time) >> VB_INSIDE_SHIFT);

    /* Walks overlap only if fetches do. */
    if (inside->config.iommu_entries && inside->config.iommu_walks > 1)
        lead += inside->config.iommu_miss;
    if (inside->wire_free_at < leave_at)
        inside->wire_free_at = leave_at;
    inside->wire_free_at += wire_time(nic, bytes);
    nic->bus_free_at = inside->wire_free_at > lead ? inside->wire_free_at - lead : 0;
}

/* A packet goes to the port, and from there in its turn. */
static void leave(struct vb_nic *nic, uint32_t packet)
{
    struct vb_inside *inside = nic->inside;
    struct vb_world_partition *part = nic->part;
    uint32_t bytes = vb_world_packet_at(part, packet)->bytes;

    if (inside->wire_recorded < part->now)
        inside->wire_recorded = part->now;
    inside->wire_recorded += wire_time(nic, bytes);
    vb_sim_inside_record(inside, VB_INSIDE_ROW_WIRE, 0,
                         inside->wire_recorded - wire_time(nic, bytes), inside->wire_recorded,
                         bytes);
    vb_world_send(part, nic->node, packet);
}

static void wait_for_payload(struct vb_nic *nic, uint32_t packet, uint64_t leave_at)
{
    struct vb_world_partition *part = nic->part;
    struct vb_inside *inside = nic->inside;

    vb_world_packet_at(part, packet)->next = VB_WORLD_NONE;
    vb_world_packet_at(part, packet)->keeper = inside->flow; /* which is of use in a switch alone */
    if (inside->first == VB_WORLD_NONE)
        inside->first = packet;
    else
        vb_world_packet_at(part, inside->last)->next = packet;
    inside->last = packet;
    ++part->kept;
    vb_world_call(part, leave_at, VB_SIM_CALL_LEAVE, nic->number);
}

/* Packets of one connection keep their order; those that have no payload pass those of others. */
void vb_sim_inside_send(struct vb_nic *nic, const struct vb_nic_qp *qp, uint32_t packet)
{
    struct vb_inside *inside = nic->inside;
    struct vb_world_partition *part = nic->part;
    const struct vb_world_packet *at = vb_world_packet_at(part, packet);
    struct vb_inside_qp *own = qp ? qp->inside : NULL;
    uint64_t leave_at;

    inside->flow = qp                         ? label_of_qp(qp)
                   : at->flags & VB_WORLD_TCP ? label_of_segment(at)
                                              : VB_INSIDE_NO_FLOW;
    leave_at = part->now + fetch_packet(nic, at);
    if (leave_at > part->now ||
        (own && own->leave_at > part->now && at->header[0] != VB_TRANSPORT_CNP)) {
        leave_at = leave_at > inside->leave_at ? leave_at : inside->leave_at;
        inside->leave_at = leave_at;
        if (own)
            own->leave_at = leave_at;
    }
    inside->left_at = leave_at;
    plan_fetch(nic, at->bytes, leave_at);
    if (leave_at > part->now)
        wait_for_payload(nic, packet, leave_at);
    else
        leave(nic, packet);
}

void vb_sim_inside_leave(struct vb_sim_host *host)
{
    struct vb_world_partition *part = host->nic.part;
    struct vb_inside *inside = host->nic.inside;
    uint32_t packet = inside->first;

    inside->first = vb_world_packet_at(part, packet)->next;
    inside->flow = vb_world_packet_at(part, packet)->keeper;
    --part->kept;
    leave(&host->nic, packet);
}

/* ---- packets in ------------------------------------------------------------------------------ */

static bool takes_receive(const struct vb_opcode *opcode, uint32_t when)
{
    uint32_t sends = opcode->flags & VB_OPCODE_SEND;
    uint32_t with_imm = (opcode->flags & VB_OPCODE_WRITE) && (opcode->flags & VB_OPCODE_IMM);

    return (sends && (opcode->flags & when)) || with_imm;
}

/* Packets that come again, or behind a missing one, have no effect on memory. */
static bool will_take(struct vb_sim_host *host, uint32_t packet, const struct vb_world_packet *at)
{
    const struct vb_world_node *node = &host->nic.part->node[host->nic.node];
    struct vb_qp *found;

    if (at->flags & VB_WORLD_FLOODED && !(at->level_marks & VB_WORLD_TO_GROUP) &&
        !vb_world_has_address(node, at->target))
        return false;
    if (at->flags & VB_WORLD_TCP)
        return true;
    if (at->flags & VB_WORLD_HAS_BYTES)
        return vb_sim_attachment_will_take(host, packet);
    if (!vb_engine_takes_in_order(at->header[0]))
        return true;
    found = vb_engine_find(host->engine, vb_wire_get24(at->header + 5));
    return found &&
           vb_engine_will_take(found, at->header, &vb_sim_qp_of(found)->nic.inside->coming);
}

uint64_t vb_sim_inside_arrived(struct vb_sim_host *host, uint32_t packet)
{
    struct vb_inside *inside = host->nic.inside;
    struct vb_world_partition *part = host->nic.part;
    const struct vb_world_packet *at = vb_world_packet_at(part, packet);
    const struct vb_opcode *opcode = opcode_of_packet(at);
    const struct vb_inside_piece piece = {at->payload, headers_of(host, at),
                                          vb_wire_get24(at->header + 5), place_of(host, at)};
    bool taken = will_take(host, packet, at);
    uint64_t done = part->now;

    inside->flow = label_of_arrival(host, at);
    if (taken && opcode && takes_receive(opcode, VB_OPCODE_FIRST))
        vb_sim_inside_charge_receive(inside, part->now);
    if (taken && (piece.payload || piece.headers))
        done += vb_sim_inside_charge_place(inside, part->now, &piece);
    if (taken && opcode && at->flags & VB_WORLD_HAS_BYTES && takes_receive(opcode, VB_OPCODE_LAST))
        ++inside->unposted;
    if (host->late_first != VB_WORLD_NONE && done <= inside->placed_at)
        done = inside->placed_at + 1; /* behind those that wait */
    inside->placed_at = done;
    return done - part->now;
}

/* ---- requests -------------------------------------------------------------------------------- */

static enum vb_inside_request request_kind(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ? VB_INSIDE_SENDS
                                                                   : VB_INSIDE_NAMES_MEMORY;
}

/* The requests that a core posts by one doorbell reach the adapter in their order. Returns when. */
static uint64_t post(struct vb_nic_qp *qp, uint32_t core, uint32_t requests, uint64_t bytes)
{
    struct vb_inside_qp *own = qp->inside;
    uint64_t now = qp->nic->part->now, at;

    at = now + vb_sim_inside_charge_post(qp->nic->inside, core, now, requests, bytes);
    own->arrives_at = at > own->arrives_at ? at : own->arrives_at;
    return own->arrives_at;
}

void vb_sim_inside_posted(struct vb_sim_qp *qp)
{
    struct vb_inside *inside = qp->nic.nic->inside;
    struct vb_inside_qp *own = qp->nic.inside;
    uint32_t requests = qp->qp.sq ? qp->qp.sq_posted - own->rung : 0;
    uint64_t bytes = 0, at;

    if (!requests)
        return;
    for (uint32_t i = 0; i < requests; ++i) {
        const struct vb_sq_wqe *wqe = &qp->qp.sq[(own->rung + i) & qp->qp.sq_mask];

        bytes +=
            vb_sim_inside_request_bytes(inside, request_kind(wqe->wr.opcode),
                                        wqe->wr.opcode != IBV_WR_RDMA_READ, wqe->sge[0].length);
    }
    own->rung += requests;
    qp->qp.endpoint->requester.untold += (uint16_t)requests;
    inside->flow = qp->flow;
    at = post(&qp->nic, core_of(inside, qp->flow), requests, bytes);
    vb_world_call(qp->nic.nic->part, at, VB_SIM_CALL_TOLD | requests << VB_SIM_CALL_BITS, qp->flow);
}

/* The flow may have begun again since they were posted. */
void vb_sim_inside_told(struct vb_sim_qp *qp, uint32_t requests)
{
    struct vb_endpoint *ep = qp->qp.endpoint;
    struct vb_requester *r = ep ? &ep->requester : NULL;

    if (r)
        r->untold -= (uint16_t)(requests < r->untold ? requests : r->untold);
}

void vb_sim_inside_program_posted(struct vb_nic_qp *qp, uint32_t requests, uint32_t bytes)
{
    qp->nic->inside->flow = VB_INSIDE_NO_FLOW;
    vb_sim_nic_tell_after(qp, post(qp, PROGRAM_CORE, requests, bytes) - qp->nic->part->now);
}

void vb_sim_inside_tells(struct vb_nic_qp *qp, const struct vb_nic *by)
{
    uint64_t at = by->inside->left_at;

    if (at < qp->inside->leave_at)
        at = qp->inside->leave_at;
    qp->inside->leave_at = at;
    vb_sim_nic_left_after(qp, at - by->part->now);
}

void vb_sim_inside_program_completed(const struct vb_sim_host *host, uint32_t completions)
{
    struct vb_inside *inside = host->nic.inside;

    inside->flow = VB_INSIDE_NO_FLOW;
    inside->untaken += completions;
    for (uint32_t i = 0; i < completions; ++i)
        vb_sim_inside_charge_completion(inside, host->nic.part->now);
}

static uint32_t without(uint32_t all, uint32_t some)
{
    return all > some ? all - some : 0;
}

/* What it takes when it is woken is paid for, by this wake-up or the next. The rest it has found by
 * polling. */
void vb_sim_inside_program_polled(const struct vb_sim_host *host, uint32_t completions,
                                  uint32_t receives)
{
    struct vb_inside *inside = host->nic.inside;

    if (host->nic.part->now == inside->woke_at)
        return;
    inside->untaken = without(inside->untaken, completions);
    inside->unposted = without(inside->unposted, receives);
}

uint64_t vb_sim_inside_computes(struct vb_sim *sim, uint32_t host, uint32_t core, uint8_t what,
                                uint64_t took)
{
    struct vb_sim_host *of = sim->host[host];
    struct vb_inside *inside = of->nic.inside;
    struct vb_inside_core *on = &inside->core[core];

    inside->flow = VB_INSIDE_NO_FLOW;
    took = vb_sim_inside_work(inside, core, of->nic.part->now, what, took);
    if (on->woken_until < on->free_at)
        on->woken_until = on->free_at; /* the process finds what comes meanwhile */
    return took;
}

/* ---- completions ----------------------------------------------------------------------------- */

static void call_wake(const struct vb_sim_host *host, uint64_t at, enum host_wake what,
                      uint32_t number)
{
    vb_world_call(host->nic.part, at,
                  VB_SIM_CALL_WAKE | (number << WAKE_BITS | what) << VB_SIM_CALL_BITS,
                  host->nic.number);
}

static void call_taken(const struct vb_sim_host *host, uint64_t at, enum vb_sim_taken what,
                       uint32_t item)
{
    if (what == VB_SIM_TAKEN_READABLE)
        call_wake(host, at, WAKE_RUNS, item);
    else if (what != VB_SIM_TAKEN_RECEIVED)
        vb_world_call(host->nic.part, at, VB_SIM_CALL_TAKEN | what << VB_SIM_CALL_BITS, item);
}

/*
 * A core takes a completion; one of a message posts its receive request again. A program that is
 * woken takes all that have come since the last time. Returns when it has done so.
 */
static uint64_t take_completion(const struct vb_sim_host *host, uint32_t core,
                                enum vb_sim_taken what, uint32_t item)
{
    struct vb_inside *inside = host->nic.inside;
    uint64_t now = host->nic.part->now;
    uint32_t taken = 1, received = what == VB_SIM_TAKEN_RECEIVED || what == VB_SIM_TAKEN_LAST;

    inside->flow = what == VB_SIM_TAKEN_READABLE ? VB_INSIDE_NO_FLOW : item;
    if (what == VB_SIM_TAKEN_READABLE) {
        taken = inside->untaken ? inside->untaken : 1;
        received = inside->unposted;
        inside->untaken = inside->unposted = 0;
    }
    now += vb_sim_inside_charge(inside, core, now, VB_INSIDE_POLL, taken);
    if (received)
        now = host->nic.part->now +
              vb_sim_inside_charge(inside, core, host->nic.part->now, VB_INSIDE_POST, received);
    return now;
}

/* The time from now until a program's completion queue has what is written now. */
static uint64_t program_written(const struct vb_inside *inside)
{
    return vb_sim_inside_write_time(inside) + PS_IN_NS;
}

static int list_grow(struct vb_inside_list *list)
{
    uint32_t room = list->room ? 2 * list->room : FIRST_WAITS;
    uint64_t *grown;

    if (list->count < list->room)
        return 0;
    grown = realloc(list->item, room * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    list->item = grown;
    list->room = room;
    return 0;
}

/* False: there is no memory, and the run ends. */
static bool list_add(const struct vb_sim_host *host, struct vb_inside_list *list, uint64_t item)
{
    int error = list_grow(list);

    if (error)
        host->nic.part->error = error;
    else
        list->item[list->count++] = item;
    return !error;
}

static void list_remove(struct vb_inside_list *list, uint32_t count)
{
    list->count -= count;
    memmove(list->item, list->item + count, list->count * sizeof(*list->item));
}

/* The interrupt of a core, for the completions that wait for one. */
static void raise_interrupt(const struct vb_sim_host *host, uint32_t number, bool follows)
{
    struct vb_inside *inside = host->nic.inside;
    struct vb_inside_core *core = &inside->core[number];
    uint64_t at = host->nic.part->now;

    inside->flow = label_of_wait(core->waits.item[core->raised]);
    at += vb_sim_inside_charge_message(inside, at, core->waits.count - core->raised - 1, follows);
    core->waits.item[core->waits.count - 1] |= LAST_OF_INTERRUPT;
    core->raised = core->waits.count;
    core->timer_at = VB_WORLD_NEVER;
    if (core->woken_until < at + vb_sim_inside_interrupt_time(inside))
        core->woken_until = at + vb_sim_inside_interrupt_time(inside);
    call_wake(host, at, WAKE_ARRIVES, number);
}

/* It is at the processor, whose process finds what it was raised for. */
static void take_interrupt(const struct vb_sim_host *host, uint32_t number)
{
    struct vb_inside *inside = host->nic.inside;
    struct vb_inside_core *core = &inside->core[number];
    uint64_t now = host->nic.part->now, wait;
    uint64_t written = now - vb_sim_inside_message_time(inside) + PS_IN_NS;
    uint32_t taken = 0;

    inside->flow = label_of_wait(core->waits.item[0]);
    vb_sim_inside_charge_interrupt(inside, number, now);
    do {
        wait = core->waits.item[taken++];
        core->woken_until = take_completion(host, number, taken_of_wait(wait), (uint32_t)wait);
        if (taken_of_wait(wait) == VB_SIM_TAKEN_READABLE && core->woken_until < written)
            core->woken_until = written;
        call_taken(host, core->woken_until, taken_of_wait(wait), (uint32_t)wait);
    } while (!(wait & LAST_OF_INTERRUPT));
    core->raised -= taken;
    list_remove(&core->waits, taken);
}

/* The first completion that comes without an interrupt is in memory. */
static void find(const struct vb_sim_host *host, uint32_t number)
{
    struct vb_inside_core *core = &host->nic.inside->core[number];
    uint64_t item = core->comes.item[0], at;

    list_remove(&core->comes, 1);
    at = take_completion(host, number, taken_of_wait(item), (uint32_t)item);
    if (core->woken_until < at)
        core->woken_until = at;
    call_taken(host, core->woken_until, taken_of_wait(item), (uint32_t)item);
}

/* All of a host come in their order, as each takes the same time. */
static void find_later(const struct vb_sim_host *host, uint32_t number, uint64_t item,
                       uint64_t written)
{
    if (list_add(host, &host->nic.inside->core[number].comes, item))
        call_wake(host, host->nic.part->now + written, WAKE_FINDS, number);
}

/* The process of a core is awake, or will be, and finds one more completion. */
static void join_others(const struct vb_sim_host *host, uint32_t number, uint64_t item,
                        uint64_t written)
{
    struct vb_inside_core *core = &host->nic.inside->core[number];

    ++host->nic.inside->counters.merged;
    if (!core->raised) {
        find_later(host, number, item, written);
        return;
    }
    if (!list_add(host, &core->waits, item | LAST_OF_INTERRUPT))
        return;
    core->waits.item[core->raised - 1] &= ~LAST_OF_INTERRUPT;
    core->raised = core->waits.count;
}

static void wait_for_interrupt(const struct vb_sim_host *host, uint32_t number, uint64_t item,
                               uint64_t written)
{
    struct vb_inside *inside = host->nic.inside;
    const struct vb_inside_config *config = &inside->config;
    struct vb_inside_core *core = &inside->core[number];
    uint64_t now = host->nic.part->now;

    if (!config->interrupt_time && core->woken_until > now + written) {
        join_others(host, number, item, written);
        return;
    }
    if (!list_add(host, &core->waits, item))
        return;
    if (!config->interrupt_time || core->waits.count - core->raised >= config->interrupt_packets) {
        raise_interrupt(host, number, true);
        return;
    }
    if (core->waits.count - core->raised > 1)
        return;
    core->timer_at = now + config->interrupt_time;
    call_wake(host, core->timer_at, WAKE_IS_DUE, number);
}

void vb_sim_inside_completed(struct vb_sim_host *host, uint32_t flow, enum vb_sim_taken what)
{
    struct vb_inside *inside = host->nic.inside;
    uint64_t item = (uint64_t)what << ITEM_BITS | flow, written;

    inside->flow = flow;
    written = vb_sim_inside_charge_completion(inside, host->nic.part->now);
    if (inside->config.interrupts)
        wait_for_interrupt(host, core_of(inside, flow), item, written);
    else
        find_later(host, core_of(inside, flow), item, written);
}

void vb_sim_inside_readable(struct vb_sim_host *host, int fd)
{
    wait_for_interrupt(host, PROGRAM_CORE,
                       (uint64_t)VB_SIM_TAKEN_READABLE << ITEM_BITS | (uint32_t)(fd + 1),
                       program_written(host->nic.inside));
}

void vb_sim_inside_wake(struct vb_sim_host *host, uint32_t argument)
{
    struct vb_inside *inside = host->nic.inside;
    uint32_t number = argument >> WAKE_BITS;

    switch ((enum host_wake)(argument & ((1u << WAKE_BITS) - 1))) {
    case WAKE_IS_DUE:
        if (inside->core[number].timer_at == host->nic.part->now)
            raise_interrupt(host, number, false);
        break;
    case WAKE_ARRIVES:
        take_interrupt(host, number);
        break;
    case WAKE_FINDS:
        find(host, number);
        break;
    default:
        inside->woke_at = host->nic.part->now;
        vb_sim_attachment_wake(host, (int)number - 1);
    }
}

void vb_sim_inside_flow(const struct vb_sim_host *host, uint32_t flow, bool begins)
{
    struct vb_inside *inside = host->nic.inside;

    if (begins)
        vb_sim_inside_begins_to_poll(inside, core_of(inside, flow), host->nic.part->now);
    else
        vb_sim_inside_ends_polling(inside, core_of(inside, flow), host->nic.part->now);
}
