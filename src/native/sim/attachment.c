// SPDX-License-Identifier: Apache-2.0
/*
 * The world's side of a program's page (protocol.h): takes the messages of its HCA, answers its
 * questions, and gives it turns for events. In process the HCA calls attachment_turn; host.c calls
 * the functions in state.h, and the Python binding those in attachment.h.
 */
#include "sim/attachment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "event/lanes.h"
#include "sim/host_inside.h"
#include "sim/state.h"
#include "transport/coming.h"

/* A queue pair of a program. */
struct attachment_qp {
    struct vb_nic_qp nic;
    struct vb_nic_reaction reaction;
    struct vb_inside_qp inside;
    uint64_t token; /* of the program */
};

struct vb_sim_attachment_state {
    struct vb_sim_attachment attachment;
    struct vb_sim *sim;
    struct vb_nic_user user;                    /* of the hosts' adapters */
    const struct vb_world_telemetry *telemetry; /* of the arriving packet; NULL: none */
    uint32_t taken;                             /* of `out` */
    struct vb_sim_page *own_page;               /* to be freed; NULL: it is in a segment */
};

static struct vb_sim_attachment_state *
attachment_state_of(const struct vb_sim_attachment *attachment)
{
    return (struct vb_sim_attachment_state *)(uintptr_t)attachment;
}

static struct vb_sim_host *host_of(const struct vb_sim_attachment_state *own, uint32_t port)
{
    return own->sim->host[own->attachment.page->port[port].host];
}

static struct vb_world_partition *attachment_part(const struct vb_sim_attachment_state *own)
{
    return vb_sim_whole(own->sim);
}

/* NULL: the host has no link. */
static struct vb_world_port *link_of(const struct vb_sim_host *host)
{
    struct vb_world *world = host->sim->world;
    uint32_t number = world->node[host->nic.node].port[0];

    return number == VB_WORLD_NONE ? NULL : &world->port[number];
}

static struct attachment_qp *attachment_qp_of(struct vb_nic_qp *nic)
{
    return (struct attachment_qp *)nic; /* its first member */
}

static struct vb_sim_attachment_state *attachment_of_nic(const struct vb_nic *nic)
{
    const struct vb_sim *sim = nic->part->hosts_context;

    return attachment_state_of(sim->host[nic->number]->attachment);
}

/* ---- out ------------------------------------------------------------------------------------- */

static int attachment_route(const struct vb_sim_attachment_state *own,
                            struct vb_sim_question *question)
{
    const struct vb_sim *sim = own->sim;
    const struct vb_sim_host *from = host_of(own, question->port), *other;
    int error;

    if (question->address)
        question->host = vb_world_host_of(sim->world, question->address);
    if (question->host >= sim->hosts)
        return question->address ? -ENETUNREACH : -EHOSTUNREACH;
    other = sim->host[question->host];
    if (!question->address)
        question->address = vb_sim_address(other, 0);
    if (!vb_sim_same_link_layer(from, other))
        return -EPROTONOSUPPORT;
    error = vb_world_reaches(sim->world, from->nic.node, question->address);
    return error ? error : vb_world_reaches(sim->world, other->nic.node, vb_sim_address(from, 0));
}

struct vb_sim_wire_packet *vb_sim_wire_packet_for(struct vb_sim *sim, uint32_t packet)
{
    if (packet >= sim->wire_packets) {
        uint32_t room = sim->world->packets.made;
        struct vb_sim_wire_packet **grown = realloc(sim->wire_packet, room * sizeof(*grown));

        if (!grown)
            return NULL;
        memset(grown + sim->wire_packets, 0, (room - sim->wire_packets) * sizeof(*grown));
        sim->wire_packet = grown;
        sim->wire_packets = room;
    }
    if (!sim->wire_packet[packet])
        sim->wire_packet[packet] = malloc(vb_sim_wire_packet_size(sim->config.mtu));
    return sim->wire_packet[packet];
}

/* Gives the packet the bytes of a spare, which gets the memory that the packet had. */
static struct vb_sim_wire_packet *take_spare(struct vb_sim_attachment_state *own, uint32_t packet,
                                             uint32_t spare)
{
    struct vb_sim_page *page = own->attachment.page;
    struct vb_sim_wire_packet *had = vb_sim_wire_packet_for(own->sim, packet);
    struct vb_sim_wire_packet *wire = vb_sim_page_at(page, page->spare[spare]);

    if (!had)
        return NULL;
    if (!page->at_once)
        return memcpy(had, wire, sizeof(*wire) + wire->length);
    page->spare[spare] = (char *)had - (char *)page;
    return own->sim->wire_packet[packet] = wire;
}

/* Puts the packet behind those that leave earlier, or at the same time. */
static void attachment_hold(struct vb_sim_host *host, uint32_t packet, uint64_t leave_at)
{
    struct vb_world_partition *part = host->nic.part;
    uint32_t *at = &host->held_first;

    while (*at != VB_WORLD_NONE && host->sim->wire_packet[*at]->leave_at <= leave_at)
        at = &vb_world_packet_at(part, *at)->next;
    vb_world_packet_at(part, packet)->next = *at;
    *at = packet;
    ++part->kept;
    vb_world_call(part, leave_at, VB_SIM_CALL_DEPART, host->nic.number);
}

/* Until it leaves, the packet counts as kept by the host. Returns its bytes on the wire. */
static uint32_t dispatch(struct vb_sim_host *host, uint32_t packet, struct vb_nic_qp *sender)
{
    struct vb_world_partition *part = host->nic.part;
    struct vb_sim_wire_packet *wire = host->sim->wire_packet[packet];
    uint32_t bytes = vb_world_packet_at(part, packet)->bytes, sent;

    if (VB_LIKELY(wire->leave_at <= part->now)) {
        sent = vb_sim_nic_send(&host->nic, sender, packet);
        host->sim->wire_packet[packet]->traced = sent != bytes;
        return sent;
    }
    wire->traced = false;
    attachment_hold(host, packet, wire->leave_at);
    return bytes;
}

void vb_sim_wire_packet_leave(struct vb_sim_host *host)
{
    uint32_t packet = host->held_first;

    host->held_first = vb_world_packet_at(host->nic.part, packet)->next;
    --host->nic.part->kept;
    vb_sim_nic_send(&host->nic, NULL, packet);
}

/* Fills the fields of the packet that switches read. */
static void fill_packet(const struct vb_sim_host *host, const struct vb_sim_wire_packet *wire,
                        struct vb_world_packet *at)
{
    uint32_t headers = wire->length - wire->payload;
    uint32_t seen = headers < VB_WORLD_HEADER ? headers : VB_WORLD_HEADER;
    bool has_grh = host->framing == VB_SIM_INFINIBAND && wire->global;

    memset(at->header, 0, sizeof(at->header));
    memcpy(at->header, wire->bytes, seen);
    at->payload = (uint16_t)wire->payload;
    at->bytes = (uint16_t)(vb_sim_wire_bytes(host->framing, headers, wire->payload) +
                           (has_grh ? VB_GRH : 0));
    at->source = wire->slid ? wire->slid : host->nic.number + 1;
    at->flags = VB_WORLD_HAS_BYTES;
    at->hops = (uint8_t)host->sim->world->hop_limit;
    at->level_marks = (uint8_t)((wire->level & 15) << 4);
}

static void take_send(struct vb_sim_attachment_state *own, const struct vb_sim_message *message,
                      struct vb_nic_qp *sender)
{
    struct vb_sim_host *host = host_of(own, message->port);
    struct vb_nic_qp *told = message->flags & VB_SIM_TELLS ? sender : NULL;
    uint32_t packet = vb_world_pool_take(&attachment_part(own)->pool), bytes;
    const struct vb_sim_wire_packet *wire = NULL;
    struct vb_world_packet *at;

    if (packet != VB_WORLD_NONE) {
        wire = take_spare(own, packet, message->spare);
        if (!wire)
            vb_world_pool_give(&attachment_part(own)->pool, packet);
    }
    if (!wire) {
        attachment_part(own)->error = -ENOMEM;
        return;
    }
    at = vb_world_packet_at(attachment_part(own), packet);
    fill_packet(host, wire, at);
    at->target = message->address;
    if (VB_UNLIKELY(message->flags & VB_SIM_TO_GROUP)) {
        at->target = vb_sim_program_group_number(own->sim, wire->dgid, host->nic.number);
        at->level_marks |= VB_WORLD_TO_GROUP;
        sender = NULL;
    }
    if (told && !(message->flags & VB_SIM_PACED))
        sender = NULL; /* of a datagram */
    bytes = dispatch(host, packet, sender);
    if (told && host->nic.inside)
        vb_sim_inside_tells(told, &host->nic);
    if (sender && message->flags & VB_SIM_PACED)
        vb_sim_nic_sent(sender, wire->level, wire->payload, bytes, 0);
}

static int attachment_group(const struct vb_sim_attachment_state *own, uint32_t port,
                            const uint8_t gid[16], bool joins)
{
    struct vb_sim *sim = own->sim;

    return sim->on_group(sim->on_group_context, gid, own->attachment.page->port[port].host, joins);
}

static int attachment_leave(const struct vb_sim_attachment_state *own, const uint8_t gid[16])
{
    for (uint32_t i = 0; i < own->attachment.page->ports; ++i)
        if (attachment_group(own, i, gid, false))
            attachment_part(own)->error = -ENOMEM;
    return 0;
}

static int attachment_connect(struct vb_sim_attachment_state *own, struct vb_sim_question *question)
{
    struct attachment_qp *made = calloc(1, sizeof(*made));
    struct vb_nic *nic = &host_of(own, question->port)->nic;

    if (!made)
        return -ENOMEM;
    made->token = question->token;
    made->nic.nic = nic;
    made->nic.is_program = true;
    if (nic->inside)
        made->nic.inside = &made->inside;
    if (nic->config->congestion.kind)
        made->nic.reaction_at = offsetof(struct attachment_qp, reaction);
    if (vb_sim_nic_join(&own->sim->table, &made->nic, question->reliable)) {
        free(made);
        return -ENOMEM;
    }
    question->qp = (struct vb_sim_qp_number){made->nic.slot, made->nic.generation};
    return 0;
}

static int attachment_step(const struct vb_sim *sim, uint64_t until)
{
    struct vb_world *world = sim->world;
    int why;

    if (until == VB_WORLD_NEVER && vb_world_has_nothing(world))
        return -EDEADLK;
    /* With VB_WORLD_NEVER a run would end before the last timers. */
    why = vb_world_run(world, until == VB_WORLD_NEVER ? until - 1 : until, 1);
    if (why == VB_WORLD_END_HALT &&
        (sim->door_first != VB_WORLD_NONE || world->refused_at != VB_WORLD_NONE))
        sim->on_door(sim->on_door_context);
    switch (why) {
    case VB_WORLD_END_EVENTS:
    case VB_WORLD_END_HALT: /* the caller of vb_world_halt looks at the time itself */
        return 1;
    case VB_WORLD_END_STUCK:
        return -EDEADLK;
    default:
        return why < 0 ? why : 0;
    }
}

/* ---- taking messages ------------------------------------------------------------------------- */

static void take_received(const struct vb_sim_attachment_state *own,
                          const struct vb_sim_message *message, struct vb_nic_qp *qp)
{
    const struct vb_arrival arrival = {
        .bytes = message->bth, .length = message->length, .traffic_class = message->traffic_class};

    vb_sim_nic_received(qp, &arrival, message->level,
                        message->flags & VB_SIM_TRACED ? own->telemetry : NULL,
                        message->flags & VB_SIM_NOTICE);
}

static void take_pumped(const struct vb_sim_attachment_state *own, bool has_more)
{
    bool waits = has_more || own->user.held;

    for (uint32_t i = 0; i < own->attachment.page->ports; ++i) {
        struct vb_sim_host *host = host_of(own, i);

        host->program_waits = waits && !host->nic.is_one_of_two;
        if (waits)
            vb_sim_nic_want_ready(&host->nic);
    }
}

static void take_message(struct vb_sim_attachment_state *own, const struct vb_sim_message *message)
{
    struct vb_nic_qp *qp = NULL;

    if (message->kind <= VB_SIM_POSTED || message->kind == VB_SIM_DISCONNECT)
        qp = vb_sim_nic_find(&own->sim->table, message->qp.slot, message->qp.generation);
    switch (message->kind) {
    case VB_SIM_SEND:
        take_send(own, message, qp);
        break;
    case VB_SIM_UNSENT:
        vb_sim_nic_sent(qp, message->level, 0, 0, 0);
        break;
    case VB_SIM_RECEIVED:
        take_received(own, message, qp);
        break;
    case VB_SIM_RING:
        vb_sim_nic_ring(qp);
        break;
    case VB_SIM_POSTED:
        vb_sim_inside_program_posted(qp, message->requests, (uint32_t)message->at);
        break;
    case VB_SIM_RELEASE:
        vb_sim_nic_release(&own->user);
        break;
    case VB_SIM_PUMPED:
        take_pumped(own, message->flags & VB_SIM_MORE);
        break;
    case VB_SIM_EXPIRE_AT:
        vb_world_call(attachment_part(own), message->at, VB_SIM_CALL_HCA,
                      own->attachment.page->port[0].host);
        break;
    default:
        vb_sim_nic_leave(&own->sim->table, qp);
        free(attachment_qp_of(qp));
    }
}

/* A descriptor may be in the list twice. */
void vb_sim_note_readable(struct vb_sim *sim, int fd)
{
    if (sim->readable && sim->readable_fd[sim->readable - 1] == fd)
        return;
    if (sim->readable == sim->readable_room) {
        uint32_t room = sim->readable_room ? 2 * sim->readable_room : 64;
        int *grown = realloc(sim->readable_fd, room * sizeof(*grown));

        if (!grown) {
            sim->world->error = -ENOMEM;
            return;
        }
        sim->readable_fd = grown;
        sim->readable_room = room;
    }
    sim->readable_fd[sim->readable++] = fd;
}

/*
 * The program of a host that has an inside is woken by an interrupt, later. Until then the
 * descriptors are in no list, so a process of its own does not see them when its turn comes
 * for another reason.
 */
static void attachment_interrupt(struct vb_sim_host *host, struct vb_sim_page *page)
{
    if (page->woken)
        return; /* the process has not run yet */
    for (uint32_t i = 0; i < page->readables && i < VB_SIM_READABLES; ++i)
        vb_sim_inside_readable(host, page->readable[i]);
    if (page->readables > VB_SIM_READABLES)
        vb_sim_inside_readable(host, -1);
    page->readables = 0;
}

void vb_sim_attachment_wake(struct vb_sim_host *host, int fd)
{
    struct vb_sim_page *page = host->attachment ? host->attachment->page : NULL;

    if (!page)
        return; /* its device was closed meanwhile */
    if (page->at_once) {
        vb_sim_note_readable(host->sim, fd);
        return;
    }
    if (fd >= 0 && page->readables < VB_SIM_READABLES)
        page->readable[page->readables++] = fd;
    else
        page->readables = VB_SIM_READABLES + 1;
    page->woken = true;
    vb_sim_note_readable(host->sim, ~(int)page->port[0].host);
}

static void attachment_note_readables(const struct vb_sim_attachment_state *own)
{
    struct vb_sim_page *page = own->attachment.page;

    if (VB_UNLIKELY(host_of(own, 0)->nic.inside != NULL)) {
        attachment_interrupt(host_of(own, 0), page);
        return;
    }
    if (!page->at_once) {
        if (page->readables)
            vb_sim_note_readable(own->sim, ~(int)page->port[0].host);
        return;
    }
    for (uint32_t i = 0; i < page->readables; ++i)
        vb_sim_note_readable(own->sim, page->readable[i]);
    page->readables = 0;
}

/* The adapter of a program has one queue of events, and so one host that pays for completions. */
static void take_completions(const struct vb_sim_attachment_state *own)
{
    struct vb_sim_page *page = own->attachment.page;
    uint32_t port = 0;

    while (!host_of(own, port)->nic.inside && port + 1 < page->ports)
        ++port;
    vb_sim_inside_program_completed(host_of(own, port), page->completions);
    vb_sim_inside_program_polled(host_of(own, port), page->polled, page->polled_receives);
    page->completions = page->polled = page->polled_receives = 0;
}

/* A packet that is sent may make the port ready, and the turn for that event ends with this, too.
 */
static void take_all(struct vb_sim_attachment_state *own)
{
    struct vb_sim_page *page = own->attachment.page;

    while (own->taken < page->outs) {
        const struct vb_sim_message message = page->out[own->taken++];

        if (own->taken == page->outs)
            own->taken = page->outs = page->spares = 0;
        take_message(own, &message);
    }
    if (VB_UNLIKELY(page->completions || page->polled))
        take_completions(own);
    attachment_note_readables(own);
}

/* Writes what the program knows of its ports. */
static void write_state(const struct vb_sim_attachment_state *own)
{
    struct vb_sim_page *page = own->attachment.page;

    page->has_held = own->user.held;
    for (uint32_t i = 0; i < page->ports; ++i) {
        const struct vb_nic *nic = &host_of(own, i)->nic;
        const struct vb_world_port *port = link_of(host_of(own, i));
        struct vb_sim_port_state *state = &page->port_state[i];

        state->may_send = vb_sim_nic_may_send(nic);
        state->is_plain = port && !port->lanes && !nic->inside;
        state->blocked = 0;
        for (uint32_t level = 0; port && port->lanes && port->lanes->waiting && level < 16; ++level)
            if (vb_sim_nic_is_blocked(nic, (uint8_t)(level << 4)))
                state->blocked |= (uint16_t)(1 << level);
    }
}

static void attachment_answer(struct vb_sim_attachment_state *own)
{
    struct vb_sim_question *question = &own->attachment.page->question;
    uint8_t kind = question->kind;

    question->kind = VB_SIM_NOTHING;
    switch (kind) {
    case VB_SIM_NOTHING:
        break;
    case VB_SIM_ROUTE:
        question->answer = attachment_route(own, question);
        break;
    case VB_SIM_CONNECT:
        question->answer = attachment_connect(own, question);
        break;
    case VB_SIM_JOIN:
        question->answer = attachment_group(own, question->port, question->gid, true);
        break;
    case VB_SIM_LEAVE:
        question->answer = attachment_leave(own, question->gid);
        break;
    default: /* meanwhile the HCA may ask other questions */
        question->answer = attachment_step(own->sim, question->until);
    }
}

/* The turn of a program in this process. */
static int attachment_turn(struct vb_sim_attachment *attachment)
{
    struct vb_sim_attachment_state *own = attachment_state_of(attachment);

    take_all(own);
    attachment_answer(own);
    write_state(own);
    return 0;
}

/* ---- giving turns ---------------------------------------------------------------------------- */

static struct vb_sim_message *attachment_post(struct vb_sim_attachment_state *own,
                                              enum vb_sim_message_kind kind)
{
    struct vb_sim_page *page = own->attachment.page;
    struct vb_sim_message *message;

    if (VB_UNLIKELY(page->ins == VB_SIM_MESSAGES))
        own->attachment.serve(own->attachment.argument);
    message = &page->in[page->ins++];
    *message = (struct vb_sim_message){.kind = (uint8_t)kind};
    return message;
}

/* Gives the HCA the turn for the event that was posted. */
static void attachment_serve(struct vb_sim_attachment_state *own)
{
    write_state(own);
    own->attachment.serve(own->attachment.argument);
    take_all(own);
}

static void program_hold(struct vb_nic_qp *nic, bool held)
{
    struct vb_sim_message *message = attachment_post(attachment_of_nic(nic->nic), VB_SIM_HOLD);

    message->token = attachment_qp_of(nic)->token;
    message->flags = held ? VB_SIM_HELD : 0;
}

static void program_set_window(struct vb_nic_qp *nic, const struct vb_hpcc *hpcc)
{
    struct vb_sim_message *message = attachment_post(attachment_of_nic(nic->nic), VB_SIM_WINDOW);

    message->token = attachment_qp_of(nic)->token;
    message->window = hpcc->window;
}

static void program_send_cnp(struct vb_nic_qp *nic, uint32_t psn)
{
    struct vb_sim_message *message = attachment_post(attachment_of_nic(nic->nic), VB_SIM_CNP);

    message->token = attachment_qp_of(nic)->token;
    message->psn = psn;
}

static void program_pump(struct vb_nic_qp *nic)
{
    struct vb_sim_attachment_state *own = attachment_of_nic(nic->nic);
    struct vb_sim_message *message = attachment_post(own, VB_SIM_PUMP);

    message->token = attachment_qp_of(nic)->token;
    message->flags = (uint8_t)((nic->waits_for_bell ? VB_SIM_RINGING : 0) |
                               (nic->inside && nic->is_told ? VB_SIM_TOLD : 0));
    attachment_serve(own);
}

void vb_sim_attachment_left(struct vb_nic_qp *nic)
{
    struct vb_sim_attachment_state *own = attachment_of_nic(nic->nic);

    if (!own || !own->attachment.page->is_open)
        return;
    attachment_post(own, VB_SIM_LEFT)->token = attachment_qp_of(nic)->token;
    attachment_serve(own);
}

static const struct vb_nic_calls program_calls = {program_hold, program_set_window,
                                                  program_send_cnp, program_pump};

/* Copies an arriving packet to where another process sees it. */
static int64_t give_copy(const struct vb_sim_page *page, const struct vb_sim_wire_packet *wire)
{
    memcpy(vb_sim_page_at(page, page->arrived), wire, sizeof(*wire) + wire->length);
    return page->arrived;
}

void vb_sim_attachment_arrive(struct vb_sim_host *host, uint32_t packet)
{
    struct vb_sim *sim = host->sim;
    const struct vb_world_packet *at = vb_world_packet_at(vb_sim_whole(sim), packet);
    struct vb_sim_wire_packet *wire = sim->wire_packet[packet];
    struct vb_sim_attachment_state *own = attachment_state_of(host->attachment);
    struct vb_sim_message *message;

    if (own && own->attachment.page->is_open) {
        wire->bytes[4] |= at->header[4] & 0x80; /* FECN */
        wire->level = at->level_marks >> 4;
        wire->path_bits =
            (uint8_t)(at->target & ((1u << sim->world->node[host->nic.node].lmc) - 1));
        wire->traffic_class =
            (uint8_t)((wire->traffic_class & ~3) | (at->level_marks & VB_WORLD_CE ? 3 : 2));
        message = attachment_post(own, VB_SIM_ARRIVE);
        message->port = (uint8_t)host->attached_port;
        message->at = (uint64_t)((char *)wire - (char *)own->attachment.page);
        if (!own->attachment.page->at_once)
            message->at = (uint64_t)give_copy(own->attachment.page, wire);
        if (VB_UNLIKELY(wire->traced))
            own->telemetry = vb_world_telemetry_of(vb_sim_whole(sim), packet);
        attachment_serve(own);
    }
    vb_world_pool_give(&vb_sim_whole(sim)->pool, packet);
}

/* Datagrams, and packets of UC, are written whenever they are whole. */
bool vb_sim_attachment_will_take(struct vb_sim_host *host, uint32_t packet)
{
    struct vb_sim_attachment_state *own = attachment_state_of(host->attachment);
    const struct vb_sim_wire_packet *wire = host->sim->wire_packet[packet];
    struct vb_sim_page *page = own ? own->attachment.page : NULL;
    struct vb_sim_message *message;

    if (!page || !page->is_open || wire->damaged)
        return false;
    if (!vb_engine_takes_in_order(wire->bytes[0]))
        return true;
    message = attachment_post(own, VB_SIM_ARRIVING);
    message->at = (uint64_t)((const char *)wire - (char *)page);
    if (!page->at_once)
        message->at = (uint64_t)give_copy(page, wire);
    page->will_take = false;
    attachment_serve(own);
    return page->will_take;
}

/* Without an HCA the event is nobody's. */
static void attachment_event(struct vb_sim_attachment_state *own, enum vb_sim_message_kind kind)
{
    if (!own->attachment.page->is_open)
        return;
    attachment_post(own, kind);
    attachment_serve(own);
}

void vb_sim_attachment_ready(struct vb_sim_host *host)
{
    host->program_waits = false; /* it says so again */
    attachment_event(attachment_state_of(host->attachment), VB_SIM_READY);
}

void vb_sim_attachment_expire(struct vb_sim_host *host)
{
    struct vb_sim_attachment_state *own = attachment_state_of(host->attachment);

    if (own->attachment.page->expire_at != host->nic.part->now)
        return; /* an earlier event replaced it */
    own->attachment.page->expire_at = VB_WORLD_NEVER;
    attachment_event(own, VB_SIM_EXPIRE);
}

void vb_sim_wire_packet_copied(struct vb_sim *sim, uint32_t packet, uint32_t copy)
{
    struct vb_sim_wire_packet *to = vb_sim_wire_packet_for(sim, copy);
    const struct vb_sim_wire_packet *from = sim->wire_packet[packet];

    if (to)
        memcpy(to, from, sizeof(*from) + from->length);
    else
        sim->world->error = -ENOMEM;
}

/* ---- programs and time ----------------------------------------------------------------------- */

int vb_sim_advance(struct vb_sim *sim, uint64_t until, uint64_t events)
{
    struct vb_world *world = sim->world;
    uint64_t limit = until == VB_WORLD_NEVER ? until - 1 : until;
    int why = VB_WORLD_END_EVENTS;

    for (; events && !sim->readable && why == VB_WORLD_END_EVENTS; --events) {
        if (until == VB_WORLD_NEVER && vb_world_has_nothing(world))
            return VB_WORLD_END_EMPTY;
        why = vb_world_run(world, limit, 1);
    }
    return why;
}

/* ---- making attachments ---------------------------------------------------------------------- */

static void free_attachment(struct vb_sim_attachment_state *own, struct vb_sim_page *page)
{
    for (int i = 0; page && i < VB_SIM_SPARES; ++i)
        if (page->spare[i])
            free(vb_sim_page_at(page, page->spare[i]));
    free(page);
    free(own);
}

int vb_sim_attach(struct vb_sim *sim, struct vb_sim_page *page,
                  struct vb_sim_attachment **attachment)
{
    struct vb_sim_attachment_state *made = calloc(1, sizeof(*made));
    int error = made ? vb_sim_keep_whole(sim) : -ENOMEM;

    for (int i = 0; page->at_once && i < VB_SIM_SPARES && !error; ++i) {
        struct vb_sim_wire_packet *spare = malloc(vb_sim_wire_packet_size(page->mtu));

        page->spare[i] = spare ? (char *)spare - (char *)page : 0;
        error = spare ? 0 : -ENOMEM;
    }
    if (error) {
        free_attachment(made, page->at_once ? page : NULL);
        return error;
    }
    made->sim = sim;
    made->user.calls = &program_calls;
    made->attachment = (struct vb_sim_attachment){.page = page, .turn = attachment_turn};
    page->version = VB_SIM_PROTOCOL_VERSION;
    page->expire_at = VB_WORLD_NEVER;
    if (page->at_once) {
        made->own_page = page;
        page->clock = (char *)&vb_sim_whole(sim)->now - (char *)page;
    }
    for (uint32_t i = 0; i < page->ports; ++i) {
        struct vb_sim_host *host = sim->host[page->port[i].host];

        if (host->nic.inside)
            page->port[i].written = vb_sim_inside_write_time(host->nic.inside);
        host->attachment = &made->attachment;
        host->attached_port = i;
        host->nic.is_one_of_two = page->ports > 1;
        host->nic.user[1] = &made->user;
    }
    *attachment = &made->attachment;
    return 0;
}

void vb_sim_attachments_free(struct vb_sim *sim)
{
    for (uint32_t i = 0; i < sim->hosts; ++i)
        if (sim->host[i]->attachment && !sim->host[i]->attached_port)
            free_attachment(attachment_state_of(sim->host[i]->attachment),
                            attachment_state_of(sim->host[i]->attachment)->own_page);
    for (uint32_t i = 0; i < sim->wire_packets; ++i)
        free(sim->wire_packet[i]);
    free(sim->wire_packet);
    free(sim->readable_fd);
}
