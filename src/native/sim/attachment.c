// SPDX-License-Identifier: Apache-2.0
/*
 * The fabric's side of an attachment: packets and events of programs' HCAs, and how time passes
 * while a program waits. The HCA calls the table at the end, host.c the functions in state.h, and
 * the Python binding those in attachment.h.
 */
#include "sim/attachment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "event/lanes.h"
#include "sim/state.h"

enum {
    WIRE_HEADERS = VB_HEADERS_MAX + 4,
    ARMS = 4 /* a program may arm without sleeping patience * ARMS times at one time */
};

static const uint64_t GUIDS = 0x5642000000000000ull;

struct vb_sim_attachment_state {
    struct vb_sim_attachment attachment;
    struct vb_sim *sim;
    struct vb_nic_user user; /* of the hosts' adapters */
    uint32_t packet;         /* the one that `begin` has made */
    uint64_t expire_at;      /* of the pending event; or VB_WORLD_NEVER */
    uint64_t looked_at;      /* the time at which `polls` and `arms` are valid */
    uint32_t polls, arms;    /* empty polls since a CQ was armed; how often one was armed */
};

static struct vb_sim_attachment_state *
attachment_state_of(const struct vb_sim_attachment *attachment)
{
    return (struct vb_sim_attachment_state *)(uintptr_t)attachment;
}

static struct vb_sim_host *host_of(const struct vb_sim_attachment *attachment, uint32_t port)
{
    return attachment_state_of(attachment)->sim->host[attachment->port[port].host];
}

static uint32_t port_number(const struct vb_sim_attachment *attachment, uint32_t port)
{
    return attachment_state_of(attachment)
        ->sim->world->node[host_of(attachment, port)->nic.node]
        .port[0];
}

/* NULL: the port has no link. */
static struct vb_world_port *port_of(const struct vb_sim_attachment *attachment, uint32_t port)
{
    uint32_t number = port_number(attachment, port);

    return number == VB_WORLD_NONE ? NULL
                                   : &attachment_state_of(attachment)->sim->world->port[number];
}

/* ---- addresses ------------------------------------------------------------------------------- */

uint64_t vb_sim_host_guid(uint32_t host)
{
    return GUIDS | (host + 1);
}

void vb_sim_gid_link_local(uint32_t host, uint8_t gid[16])
{
    memset(gid, 0, 16);
    gid[0] = 0xfe;
    gid[1] = 0x80;
    vb_wire_put64(gid + 8, vb_sim_host_guid(host));
}

void vb_sim_gid_ipv4(uint32_t host, uint8_t gid[16])
{
    memset(gid, 0, 16);
    gid[10] = gid[11] = 0xff;
    vb_wire_put32(gid + 12, (uint32_t)VB_SIM_IPV4_NETWORK << 24 | (host + 1));
}

uint32_t vb_sim_gid_host(const uint8_t gid[16])
{
    uint32_t host = (vb_wire_get32(gid + 12) & 0xffffff) - 1;
    uint8_t own[16];

    vb_sim_gid_ipv4(host, own);
    if (memcmp(gid, own, 16) == 0)
        return host;
    vb_sim_gid_link_local(host, own);
    return memcmp(gid, own, 16) == 0 ? host : UINT32_MAX;
}

/* ---- out ------------------------------------------------------------------------------------- */

static uint64_t attachment_now(const struct vb_sim_attachment *attachment)
{
    return attachment_state_of(attachment)->sim->world->now;
}

static int attachment_route(const struct vb_sim_attachment *attachment, uint32_t port,
                            struct vb_sim_peer *peer)
{
    const struct vb_sim *sim = attachment_state_of(attachment)->sim;
    const struct vb_sim_host *own = host_of(attachment, port), *other;
    int error;

    if (peer->address)
        peer->host = vb_world_host_of(sim->world, peer->address);
    if (peer->host >= sim->hosts)
        return peer->address ? -ENETUNREACH : -EHOSTUNREACH;
    other = sim->host[peer->host];
    if (!peer->address)
        peer->address = vb_sim_address(other, 0);
    if (!vb_sim_same_link_layer(own, other))
        return -EPROTONOSUPPORT;
    error = vb_world_reaches(sim->world, own->nic.node, peer->address);
    return error ? error : vb_world_reaches(sim->world, other->nic.node, vb_sim_address(own, 0));
}

static bool attachment_may_send(const struct vb_sim_attachment *attachment, uint32_t port)
{
    return vb_sim_nic_may_send(&host_of(attachment, port)->nic);
}

static bool is_blocked(const struct vb_sim_attachment *attachment, uint32_t port, uint8_t level)
{
    return vb_sim_nic_is_blocked(&host_of(attachment, port)->nic, (uint8_t)(level << 4));
}

struct vb_sim_wire_packet *vb_sim_wire_packet_for(struct vb_sim *sim, uint32_t packet)
{
    if (packet >= sim->wire_packets) {
        uint32_t room = sim->world->pool.room;
        struct vb_sim_wire_packet **grown = realloc(sim->wire_packet, room * sizeof(*grown));

        if (!grown)
            return NULL;
        memset(grown + sim->wire_packets, 0, (room - sim->wire_packets) * sizeof(*grown));
        sim->wire_packet = grown;
        sim->wire_packets = room;
    }
    if (!sim->wire_packet[packet])
        sim->wire_packet[packet] =
            malloc(sizeof(struct vb_sim_wire_packet) + WIRE_HEADERS + sim->config.mtu);
    return sim->wire_packet[packet];
}

static struct vb_sim_wire_packet *attachment_begin(struct vb_sim_attachment *attachment,
                                                   uint32_t length)
{
    struct vb_sim *sim = attachment_state_of(attachment)->sim;
    struct vb_sim_wire_packet *wire = NULL;
    uint32_t packet = vb_world_pool_take(&sim->world->pool);

    if (packet != VB_WORLD_NONE) {
        wire = vb_sim_wire_packet_for(sim, packet);
        if (!wire)
            vb_world_pool_give(&sim->world->pool, packet);
    }
    if (!wire) {
        sim->world->error = -ENOMEM;
        return NULL;
    }
    wire->length = length;
    wire->leave_at = 0;
    attachment_state_of(attachment)->packet = packet;
    return wire;
}

static void attachment_give_up(struct vb_sim_attachment *attachment)
{
    vb_world_pool_give(&attachment_state_of(attachment)->sim->world->pool,
                       attachment_state_of(attachment)->packet);
}

/* Until it leaves, the packet counts as kept by the host. Returns its bytes on the wire. */
static uint32_t dispatch(struct vb_sim_host *host, uint32_t packet, struct vb_nic_qp *sender)
{
    struct vb_world *world = host->sim->world;
    struct vb_sim_wire_packet *wire = host->sim->wire_packet[packet];
    uint32_t bytes = vb_world_packet_at(world, packet)->bytes, sent;

    if (VB_LIKELY(wire->leave_at <= world->now)) {
        sent = vb_sim_nic_send(&host->nic, sender, packet);
        host->sim->wire_packet[packet]->traced = sent != bytes;
        return sent;
    }
    wire->traced = false;
    ++world->kept;
    vb_world_call(world, wire->leave_at, VB_SIM_CALL_DEPART | host->nic.number << VB_SIM_CALL_BITS,
                  packet);
    return bytes;
}

void vb_sim_wire_packet_leave(struct vb_sim_host *host, uint32_t packet)
{
    --host->sim->world->kept;
    vb_sim_nic_send(&host->nic, NULL, packet);
}

/* Fills the fields of the packet that switches read, and sends it. */
static uint32_t send_to(struct vb_sim_attachment *attachment, uint32_t port, uint32_t target,
                        uint8_t marks, struct vb_nic_qp *sender)
{
    struct vb_sim *sim = attachment_state_of(attachment)->sim;
    uint32_t packet = attachment_state_of(attachment)->packet;
    struct vb_sim_host *host = host_of(attachment, port);
    struct vb_world_packet *at = vb_world_packet_at(sim->world, packet);
    const struct vb_sim_wire_packet *wire = sim->wire_packet[packet];
    uint32_t headers = wire->length - wire->payload;
    uint32_t seen = headers < VB_WORLD_HEADER ? headers : VB_WORLD_HEADER;
    bool has_grh = host->framing == VB_SIM_INFINIBAND && wire->global;
    uint32_t bytes =
        vb_sim_wire_bytes(host->framing, headers, wire->payload) + (has_grh ? VB_GRH : 0);

    memset(at->header, 0, sizeof(at->header));
    memcpy(at->header, wire->bytes, seen);
    at->payload = (uint16_t)wire->payload;
    at->bytes = (uint16_t)bytes;
    at->source = wire->slid ? wire->slid : host->nic.number + 1;
    at->target = target;
    at->flags = VB_WORLD_HAS_BYTES;
    at->hops = (uint8_t)sim->world->hop_limit;
    at->level_marks = (uint8_t)((wire->level & 15) << 4 | marks);
    return dispatch(host, packet, sender);
}

static uint32_t attachment_send(struct vb_sim_attachment *attachment, uint32_t port,
                                uint32_t address, struct vb_nic_qp *sender)
{
    return send_to(attachment, port, address, 0, sender);
}

static uint32_t attachment_send_to_group(struct vb_sim_attachment *attachment, uint32_t port,
                                         const uint8_t gid[16])
{
    return send_to(attachment, port,
                   vb_sim_program_group_number(attachment_state_of(attachment)->sim, gid,
                                               attachment->port[port].host),
                   VB_WORLD_TO_GROUP, NULL);
}

static int attachment_join(struct vb_sim_attachment *attachment, uint32_t port,
                           const uint8_t gid[16])
{
    struct vb_sim *sim = attachment_state_of(attachment)->sim;

    return sim->on_group(sim->on_group_context, gid, attachment->port[port].host, true);
}

static void attachment_leave(struct vb_sim_attachment *attachment, const uint8_t gid[16])
{
    struct vb_sim *sim = attachment_state_of(attachment)->sim;

    for (uint32_t i = 0; i < attachment->ports; ++i)
        if (sim->on_group(sim->on_group_context, gid, attachment->port[i].host, false))
            sim->world->error = -ENOMEM;
}

static void attachment_want_ready(struct vb_sim_attachment *attachment, uint32_t port,
                                  bool has_more)
{
    struct vb_nic *nic = &host_of(attachment, port)->nic;

    if (has_more || nic->user[1]->held)
        vb_sim_nic_want_ready(nic);
}

static struct vb_sim_program_qp *attachment_connect(struct vb_sim_attachment *attachment,
                                                    uint32_t port,
                                                    const struct vb_nic_calls *nic_calls,
                                                    struct vb_qp *qp)
{
    struct vb_sim_program_qp *made = calloc(1, sizeof(*made));
    struct vb_nic *nic = &host_of(attachment, port)->nic;

    if (!made)
        return NULL;
    nic->user[1]->calls = nic_calls;
    made->qp = qp;
    made->nic.nic = nic;
    made->nic.is_program = true;
    if (nic->config->congestion.kind)
        made->nic.reaction_at = offsetof(struct vb_sim_program_qp, reaction);
    if (!vb_sim_nic_join(&attachment_state_of(attachment)->sim->table, &made->nic,
                         vb_qp_reliable_type(qp->type)))
        return made;
    free(made);
    return NULL;
}

static void attachment_disconnect(struct vb_sim_attachment *attachment,
                                  struct vb_sim_program_qp *qp)
{
    vb_sim_nic_leave(&attachment_state_of(attachment)->sim->table, &qp->nic);
    free(qp);
}

static void attachment_release(struct vb_sim_attachment *attachment)
{
    vb_sim_nic_release(&attachment_state_of(attachment)->user);
}

static void expire_at(struct vb_sim_attachment *attachment, uint64_t at)
{
    struct vb_world *world = attachment_state_of(attachment)->sim->world;

    if (at >= attachment_state_of(attachment)->expire_at)
        return;
    attachment_state_of(attachment)->expire_at = at > world->now ? at : world->now;
    vb_world_call(world, attachment_state_of(attachment)->expire_at, VB_SIM_CALL_HCA,
                  attachment->port[0].host);
}

/* ---- in -------------------------------------------------------------------------------------- */

void vb_sim_attachment_arrive(struct vb_sim_host *host, uint32_t packet)
{
    struct vb_sim *sim = host->sim;
    const struct vb_world_packet *at = vb_world_packet_at(sim->world, packet);
    const struct vb_sim_hca_calls *hca_calls =
        host->attachment ? host->attachment->hca_calls : NULL;
    struct vb_sim_wire_packet *wire = sim->wire_packet[packet];
    struct vb_arrival arrival = {
        .bytes = wire->bytes,
        .length = wire->length,
        .traffic_class =
            (uint8_t)((wire->traffic_class & ~3) | (at->level_marks & VB_WORLD_CE ? 3 : 2)),
        .hop_limit = wire->hop_limit,
        .flow_label = wire->flow_label,
        .slid = wire->slid,
        .sl = at->level_marks >> 4,
        .path_bits = (uint8_t)(at->target & ((1u << sim->world->node[host->nic.node].lmc) - 1)),
        .port = (uint8_t)(host->attached_port + 1),
        .has_grh = wire->global,
    };

    if (hca_calls) {
        memcpy(arrival.sgid, wire->sgid, sizeof(arrival.sgid));
        memcpy(arrival.dgid, wire->dgid, sizeof(arrival.dgid));
        wire->bytes[4] |= at->header[4] & 0x80; /* FECN */
        if (VB_UNLIKELY(wire->traced))
            host->attachment->telemetry = vb_world_telemetry_of(sim->world, packet);
        if (VB_UNLIKELY(wire->damaged))
            hca_calls->drop_damaged(hca_calls->argument);
        else
            hca_calls->arrive(hca_calls->argument, &arrival);
        host->attachment->telemetry = NULL;
    }
    vb_world_pool_give(&sim->world->pool, packet);
    if (hca_calls)
        hca_calls->ready(hca_calls->argument);
}

void vb_sim_attachment_ready(struct vb_sim_host *host)
{
    const struct vb_sim_hca_calls *hca_calls = host->attachment->hca_calls;

    if (hca_calls)
        hca_calls->ready(hca_calls->argument);
}

void vb_sim_attachment_expire(struct vb_sim_host *host)
{
    struct vb_sim_attachment_state *attachment = attachment_state_of(host->attachment);
    const struct vb_sim_hca_calls *hca_calls = attachment->attachment.hca_calls;

    if (attachment->expire_at != host->sim->world->now)
        return; /* an earlier event replaced it */
    attachment->expire_at = VB_WORLD_NEVER;
    if (hca_calls)
        hca_calls->expire(hca_calls->argument);
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

/* A descriptor may be in the list twice. */
static void attachment_readable(struct vb_sim_attachment *attachment, int fd)
{
    struct vb_sim *sim = attachment_state_of(attachment)->sim;

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

uint32_t vb_sim_readable(const struct vb_sim *sim)
{
    return sim->readable;
}

uint32_t vb_sim_take_readable(struct vb_sim *sim, int *fd, uint32_t room)
{
    uint32_t count = sim->readable < room ? sim->readable : room;

    sim->readable -= count;
    if (count)
        memcpy(fd, sim->readable_fd + sim->readable, count * sizeof(*fd));
    return count;
}

static int attachment_step(struct vb_sim_attachment *attachment, uint64_t until)
{
    const struct vb_sim *sim = attachment_state_of(attachment)->sim;
    struct vb_world *world = sim->world;
    int why;

    attachment_state_of(attachment)->polls = 0;
    if (until == VB_WORLD_NEVER && world->agenda.count == world->watching)
        return -EDEADLK;
    /* With VB_WORLD_NEVER a run would end before the last timers. */
    why = vb_world_run(world, until == VB_WORLD_NEVER ? until - 1 : until, 1);
    if (why == VB_WORLD_END_HALT && sim->door_first != VB_WORLD_NONE)
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

/* Counts are for each HCA and for one time: the first call at a new time resets them. */
static struct vb_sim_attachment_state *attachment_look(struct vb_sim_attachment *attachment)
{
    struct vb_sim_attachment_state *own = attachment_state_of(attachment);

    if (own->looked_at != own->sim->world->now)
        own->polls = own->arms = 0;
    own->looked_at = own->sim->world->now;
    return own;
}

static void polled(struct vb_sim_attachment *attachment)
{
    struct vb_sim_attachment_state *own = attachment_look(attachment);

    if (++own->polls < own->sim->patience)
        return;
    attachment_step(attachment, VB_WORLD_NEVER);
    own->polls = own->sim->patience; /* from now on each empty poll handles an event */
    own->looked_at = own->sim->world->now;
}

/* A program that arms repeatedly without sleeping is polling. */
static void attachment_armed(struct vb_sim_attachment *attachment)
{
    struct vb_sim_attachment_state *own = attachment_look(attachment);

    if (own->arms / ARMS >= own->sim->patience)
        return;
    ++own->arms;
    own->polls = 0;
}

void vb_sim_set_patience(struct vb_sim *sim, uint32_t polls)
{
    sim->patience = polls;
    for (uint32_t i = 0; i < sim->hosts; ++i)
        if (sim->host[i]->attachment)
            attachment_state_of(sim->host[i]->attachment)->looked_at = VB_WORLD_NEVER;
}

int vb_sim_advance(struct vb_sim *sim, uint64_t until, uint64_t events)
{
    struct vb_world *world = sim->world;
    uint64_t limit = until == VB_WORLD_NEVER ? until - 1 : until;
    int why = VB_WORLD_END_EVENTS;

    for (; events && !sim->readable && why == VB_WORLD_END_EVENTS; --events) {
        if (until == VB_WORLD_NEVER && world->agenda.count == world->watching)
            return VB_WORLD_END_EMPTY;
        why = vb_world_run(world, limit, 1);
    }
    return why;
}

/* ---- making attachments ---------------------------------------------------------------------- */

static const struct vb_sim_attachment_calls calls = {
    .now = attachment_now,
    .route = attachment_route,
    .may_send = attachment_may_send,
    .is_blocked = is_blocked,
    .begin = attachment_begin,
    .send = attachment_send,
    .send_to_group = attachment_send_to_group,
    .join = attachment_join,
    .leave = attachment_leave,
    .discard = attachment_give_up,
    .want_ready = attachment_want_ready,
    .connect = attachment_connect,
    .disconnect = attachment_disconnect,
    .release = attachment_release,
    .ring = vb_sim_nic_ring,
    .sent = vb_sim_nic_sent,
    .received = vb_sim_nic_received,
    .expire_at = expire_at,
    .readable = attachment_readable,
    .polled = polled,
    .armed = attachment_armed,
    .step = attachment_step,
};

static void fill_attachment_port(const struct vb_sim_host *host,
                                 struct vb_sim_attachment_port *port)
{
    uint16_t mtu = host->sim->config.mtu;

    *port = (struct vb_sim_attachment_port){
        .host = host->nic.number,
        .infiniband = host->framing == VB_SIM_INFINIBAND,
        .frame = (uint16_t)(vb_sim_wire_bytes(host->framing, VB_BTH, mtu) + VB_HPCC_BYTES),
        .pkeys = {VB_PKEY_DEFAULT},
    };
}

static int make_attachment(struct vb_sim *sim, const uint32_t *hosts, uint32_t ports)
{
    struct vb_sim_attachment_state *made = calloc(1, sizeof(*made));

    if (!made)
        return -ENOMEM;
    made->sim = sim;
    made->expire_at = made->looked_at = VB_WORLD_NEVER;
    made->attachment = (struct vb_sim_attachment){.version = VB_SIM_ATTACHMENT_VERSION,
                                                  .ports = ports,
                                                  .seed = sim->config.seed << 16 ^ hosts[0],
                                                  .mtu = sim->config.mtu,
                                                  .traces = sim->world->traces,
                                                  .calls = &calls};
    for (uint32_t i = 0; i < ports; ++i) {
        struct vb_sim_host *host = sim->host[hosts[i]];

        fill_attachment_port(host, &made->attachment.port[i]);
        host->attachment = &made->attachment;
        host->attached_port = i;
        host->nic.is_one_of_two = ports > 1;
        host->nic.user[1] = &made->user;
        made->attachment.reacts |= host->nic.config->congestion.kind != VB_CONGESTION_NONE;
    }
    return 0;
}

/* 1: these hosts are the ports of an attachment already, in this order. 0: they are free. */
static int check_hosts(const struct vb_sim *sim, const uint32_t *hosts, uint32_t ports)
{
    const struct vb_sim_attachment *found;

    if (!ports || ports > VB_MAX_PORTS)
        return -EINVAL;
    for (uint32_t i = 0; i < ports; ++i)
        if (hosts[i] >= sim->hosts || (i && hosts[i] == hosts[0]))
            return -EINVAL;
    found = sim->host[hosts[0]]->attachment;
    for (uint32_t i = 0; i < ports; ++i)
        if (sim->host[hosts[i]]->attachment != found ||
            (found && (found->ports != ports || found->port[i].host != hosts[i])))
            return -EBUSY;
    return found != NULL;
}

int vb_sim_attach(struct vb_sim *sim, const uint32_t *hosts, uint32_t ports,
                  struct vb_sim_attachment **attachment)
{
    int found = check_hosts(sim, hosts, ports);
    struct vb_sim_attachment *of;

    if (!found)
        found = make_attachment(sim, hosts, ports);
    if (found < 0)
        return found;
    of = sim->host[hosts[0]]->attachment;
    for (uint32_t i = 0; i < ports; ++i) {
        const struct vb_world_port *port = port_of(of, i);

        of->port[i].rate = port ? port->rate : 0;
        if (of->port[i].infiniband) {
            of->port[i].lid = (uint16_t)vb_sim_address(sim->host[hosts[i]], 0);
            of->port[i].lmc = (uint8_t)sim->world->node[sim->host[hosts[i]]->nic.node].lmc;
        }
    }
    *attachment = of;
    return 0;
}

void vb_sim_attachments_free(struct vb_sim *sim)
{
    for (uint32_t i = 0; i < sim->hosts; ++i)
        if (sim->host[i]->attachment && !sim->host[i]->attached_port)
            free(attachment_state_of(sim->host[i]->attachment));
    for (uint32_t i = 0; i < sim->wire_packets; ++i)
        free(sim->wire_packet[i]);
    free(sim->wire_packet);
    free(sim->readable_fd);
}
