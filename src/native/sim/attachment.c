// SPDX-License-Identifier: Apache-2.0
/* The world's side of what programs plug into its hosts. */
#include "sim/attachment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "event/lanes.h"
#include "sim/state.h"

enum {
    WIRE_HEADERS = VB_HEADERS_MAX + 4,
    IPV4_NETWORK = 10,
    ARMS = 4 /* times the patience: so often at one instant a program may arm and not sleep */
};

static const uint64_t GUIDS = 0x5642000000000000ull;

struct vb_sim_attach {
    struct vb_sim_attachment attachment;
    struct vb_sim *sim;
    uint32_t packet;      /* begun */
    uint64_t expire_at;   /* of the pending event; VB_WORLD_NEVER */
    uint64_t looked_at;   /* the instant of what follows */
    uint32_t polls, arms; /* polls in vain since the CQ was armed; how often one was armed */
};

static struct vb_sim_attach *attachment_of(const struct vb_sim_attachment *attachment)
{
    return (struct vb_sim_attach *)(uintptr_t)attachment;
}

static struct vb_sim_host *host_of(const struct vb_sim_attachment *attachment)
{
    return attachment_of(attachment)->sim->host[attachment->host];
}

static uint32_t port_number(const struct vb_sim_attachment *attachment)
{
    return attachment_of(attachment)->sim->world->node[host_of(attachment)->node].port[0];
}

/* NULL: nothing is plugged in. */
static struct vb_world_port *port_of(const struct vb_sim_attachment *attachment)
{
    uint32_t number = port_number(attachment);

    return number == VB_WORLD_NONE ? NULL : &attachment_of(attachment)->sim->world->port[number];
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
    vb_wire_put32(gid + 12, (uint32_t)IPV4_NETWORK << 24 | (host + 1));
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
    return attachment_of(attachment)->sim->world->now;
}

static int attachment_way(const struct vb_sim_attachment *attachment, uint32_t host)
{
    const struct vb_sim *sim = attachment_of(attachment)->sim;
    int error;

    if (host >= sim->hosts)
        return -EHOSTUNREACH;
    error = vb_world_reaches(sim->world, host_of(attachment)->node, host);
    return error ? error : vb_world_reaches(sim->world, sim->host[host]->node, attachment->host);
}

static bool attachment_may_send(const struct vb_sim_attachment *attachment)
{
    return vb_world_may_send(attachment_of(attachment)->sim->world, host_of(attachment)->node);
}

static bool is_blocked(const struct vb_sim_attachment *attachment, uint8_t level)
{
    const struct vb_world_port *port = port_of(attachment);

    return port && port->lanes &&
           port->lanes->lane[vb_world_lanes_of(port->lanes, (uint8_t)(level << 4))].packets;
}

/* The wire of a packet's number. */
static struct vb_sim_wire_packet *wire_packet_for(struct vb_sim *sim, uint32_t packet)
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
    struct vb_sim *sim = attachment_of(attachment)->sim;
    struct vb_sim_wire_packet *wire = NULL;
    uint32_t packet = vb_world_pool_take(&sim->world->pool);

    if (packet != VB_WORLD_NONE) {
        wire = wire_packet_for(sim, packet);
        if (!wire)
            vb_world_pool_give(&sim->world->pool, packet);
    }
    if (!wire) {
        sim->world->error = -ENOMEM;
        return NULL;
    }
    wire->length = length;
    wire->leave_at = 0;
    attachment_of(attachment)->packet = packet;
    return wire;
}

static void attachment_give_up(struct vb_sim_attachment *attachment)
{
    vb_world_pool_give(&attachment_of(attachment)->sim->world->pool,
                       attachment_of(attachment)->packet);
}

/* What it takes on the wire with that. */
static uint32_t add_telemetry(struct vb_sim *sim, uint32_t packet)
{
    const struct vb_sim_wire_packet *wire = sim->wire_packet[packet];
    struct vb_world_packet *at = vb_world_packet_at(sim->world, packet);
    struct vb_world_telemetry *telemetry = vb_world_telemetry_of(sim->world, packet);

    at->bytes += VB_HPCC_BYTES;
    if (telemetry && wire->telemetry_mode == VB_SIM_TELEMETRY_COLLECT) {
        telemetry->hops = 0;
        telemetry->sent_at = sim->world->now;
    } else if (telemetry && wire->telemetry) {
        *telemetry = *wire->telemetry;
    }
    return at->bytes;
}

/* Until it leaves, a packet is the host's, and counted as kept. */
static void dispatch(struct vb_sim_attachment *attachment, uint32_t packet, uint64_t at)
{
    struct vb_world *world = attachment_of(attachment)->sim->world;

    if (VB_LIKELY(at <= world->now)) {
        vb_world_send(world, host_of(attachment)->node, packet);
        return;
    }
    ++world->kept;
    vb_world_call(world, at, VB_SIM_CALL_DEPART | attachment->host << VB_SIM_CALL_BITS, packet);
}

void vb_sim_wire_packet_leave(struct vb_sim_host *host, uint32_t packet)
{
    --host->sim->world->kept;
    vb_world_send(host->sim->world, host->node, packet);
}

/* What switches look at, and captures of headers. */
static uint32_t send_to(struct vb_sim_attachment *attachment, uint16_t target, uint8_t marks)
{
    struct vb_sim *sim = attachment_of(attachment)->sim;
    struct vb_world_packet *at = vb_world_packet_at(sim->world, attachment_of(attachment)->packet);
    const struct vb_sim_wire_packet *wire = sim->wire_packet[attachment_of(attachment)->packet];
    uint32_t headers = wire->length - wire->payload;
    uint32_t seen = headers < VB_WORLD_HEADER ? headers : VB_WORLD_HEADER;
    uint32_t bytes = vb_sim_wire_bytes(sim->config.framing, headers, wire->payload) +
                     vb_sim_grh_bytes(sim, marks);

    memset(at->header, 0, sizeof(at->header));
    memcpy(at->header, wire->bytes, seen);
    at->payload = (uint16_t)wire->payload;
    at->bytes = (uint16_t)bytes;
    at->source = (uint16_t)attachment->host;
    at->target = target;
    at->header[4] |= VB_WORLD_HAS_BYTES;
    at->header[VB_WORLD_HOPS_AT] |= (uint8_t)sim->world->hop_limit;
    at->level_marks = (uint8_t)((wire->level & 15) << 4 | marks);
    if (VB_UNLIKELY(wire->telemetry_mode))
        bytes = add_telemetry(sim, attachment_of(attachment)->packet);
    dispatch(attachment, attachment_of(attachment)->packet, wire->leave_at);
    return bytes;
}

static uint32_t attachment_send(struct vb_sim_attachment *attachment, uint32_t host)
{
    return send_to(attachment, (uint16_t)host, 0);
}

static uint32_t attachment_send_to_group(struct vb_sim_attachment *attachment,
                                         const uint8_t gid[16])
{
    return send_to(attachment, vb_sim_program_group_number(attachment_of(attachment)->sim, gid),
                   VB_WORLD_TO_GROUP);
}

static int attachment_join(struct vb_sim_attachment *attachment, const uint8_t gid[16])
{
    return vb_sim_program_group_join(attachment_of(attachment)->sim, gid, attachment->host);
}

static void attachment_leave(struct vb_sim_attachment *attachment, const uint8_t gid[16])
{
    vb_sim_program_group_leave(attachment_of(attachment)->sim, gid, attachment->host);
}

static void attachment_come_back(struct vb_sim_attachment *attachment)
{
    struct vb_sim *sim = attachment_of(attachment)->sim;
    struct vb_sim_host *host = host_of(attachment);
    const struct vb_world_port *port = port_of(attachment);

    if (!port)
        return;
    if (port->lanes) {
        vb_world_lanes_want(sim->world, port_number(attachment));
    } else if (!host->ready_planned) {
        uint64_t at = port->free_at > sim->world->now ? port->free_at : sim->world->now;

        host->ready_planned = true;
        vb_world_add(sim->world, at, VB_WORLD_READY, 0, port_number(attachment));
    }
}

static void expire_at(struct vb_sim_attachment *attachment, uint64_t at)
{
    struct vb_world *world = attachment_of(attachment)->sim->world;

    if (at >= attachment_of(attachment)->expire_at)
        return;
    attachment_of(attachment)->expire_at = at > world->now ? at : world->now;
    vb_world_call(world, attachment_of(attachment)->expire_at, VB_SIM_CALL_HCA, attachment->host);
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
    };

    if (hca_calls) {
        memcpy(arrival.sgid, wire->sgid, sizeof(arrival.sgid));
        memcpy(arrival.dgid, wire->dgid, sizeof(arrival.dgid));
        wire->bytes[4] |= at->header[4] & 0x80; /* FECN */
        if (VB_UNLIKELY(wire->telemetry_mode))
            host->attachment->telemetry = vb_world_telemetry_of(sim->world, packet);
        if (VB_UNLIKELY(wire->damaged))
            hca_calls->drop_damaged(hca_calls->argument);
        else
            hca_calls->arrive(hca_calls->argument, &arrival);
        if (VB_UNLIKELY(wire->telemetry_mode))
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
    struct vb_sim_attach *attachment = attachment_of(host->attachment);
    const struct vb_sim_hca_calls *hca_calls = attachment->attachment.hca_calls;

    if (attachment->expire_at != host->sim->world->now)
        return; /* an earlier one came in its place */
    attachment->expire_at = VB_WORLD_NEVER;
    if (hca_calls)
        hca_calls->expire(hca_calls->argument);
}

void vb_sim_wire_packet_copied(struct vb_sim *sim, uint32_t packet, uint32_t copy)
{
    struct vb_sim_wire_packet *to = wire_packet_for(sim, copy);
    const struct vb_sim_wire_packet *from = sim->wire_packet[packet];

    if (to)
        memcpy(to, from, sizeof(*from) + from->length);
    else
        sim->world->error = -ENOMEM;
}

/* ---- programs and time ----------------------------------------------------------------------- */

/* A descriptor may be named twice: who reads finds nothing the second time. */
static void attachment_readable(struct vb_sim_attachment *attachment, int fd)
{
    struct vb_sim *sim = attachment_of(attachment)->sim;

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
    struct vb_world *world = attachment_of(attachment)->sim->world;
    int why;

    attachment_of(attachment)->polls = 0;
    if (until == VB_WORLD_NEVER && world->agenda.count == world->watching)
        return -EDEADLK;
    /* With VB_WORLD_NEVER itself a run ends before the last timers. */
    why = vb_world_run(world, until == VB_WORLD_NEVER ? until - 1 : until, 1);
    switch (why) {
    case VB_WORLD_END_EVENTS:
    case VB_WORLD_END_HALT: /* whoever asked for it looks at the time when it has its turn */
        return 1;
    case VB_WORLD_END_STUCK:
        return -EDEADLK;
    default:
        return why < 0 ? why : 0;
    }
}

/* Each host's polls count by themselves: whoever else polls between them, they were in vain. */
static struct vb_sim_attach *attachment_look(struct vb_sim_attachment *attachment)
{
    struct vb_sim_attach *own = attachment_of(attachment);

    if (own->looked_at != own->sim->world->now)
        own->polls = own->arms = 0;
    own->looked_at = own->sim->world->now;
    return own;
}

static void polled(struct vb_sim_attachment *attachment)
{
    struct vb_sim_attach *own = attachment_look(attachment);

    if (++own->polls < own->sim->patience)
        return;
    attachment_step(attachment, VB_WORLD_NEVER);
    own->polls = own->sim->patience; /* from here on each poll is an event */
    own->looked_at = own->sim->world->now;
}

/* Who arms again and again, and does not sleep, is polling nevertheless. */
static void attachment_armed(struct vb_sim_attachment *attachment)
{
    struct vb_sim_attach *own = attachment_look(attachment);

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
            attachment_of(sim->host[i]->attachment)->looked_at = VB_WORLD_NEVER;
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

/* ---- making them ----------------------------------------------------------------------------- */

static const struct vb_sim_attachment_calls calls = {
    .now = attachment_now,
    .way = attachment_way,
    .may_send = attachment_may_send,
    .is_blocked = is_blocked,
    .begin = attachment_begin,
    .send = attachment_send,
    .send_to_group = attachment_send_to_group,
    .join = attachment_join,
    .leave = attachment_leave,
    .discard = attachment_give_up,
    .want_ready = attachment_come_back,
    .expire_at = expire_at,
    .readable = attachment_readable,
    .polled = polled,
    .armed = attachment_armed,
    .step = attachment_step,
};

static uint32_t frame_bytes(const struct vb_sim *sim)
{
    return vb_sim_wire_bytes(sim->config.framing, VB_BTH, sim->config.mtu) + VB_HPCC_BYTES;
}

static struct vb_sim_attachment *attachment_make(struct vb_sim *sim, uint32_t number)
{
    struct vb_sim_attach *made = calloc(1, sizeof(*made));

    if (!made)
        return NULL;
    made->sim = sim;
    made->expire_at = made->looked_at = VB_WORLD_NEVER;
    made->attachment = (struct vb_sim_attachment){.version = VB_SIM_ATTACHMENT_VERSION,
                                                  .host = number,
                                                  .seed = sim->config.seed << 16 ^ number,
                                                  .mtu = sim->config.mtu,
                                                  .frame = (uint16_t)frame_bytes(sim),
                                                  .notice_level = sim->config.notice_level,
                                                  .congestion = &sim->config.congestion,
                                                  .calls = &calls};
    sim->host[number]->attachment = &made->attachment;
    return &made->attachment;
}

struct vb_sim_attachment *vb_sim_attach(struct vb_sim *sim, uint32_t host)
{
    struct vb_sim_attachment *attachment =
        sim->host[host]->attachment ? sim->host[host]->attachment : attachment_make(sim, host);
    const struct vb_world_port *port = attachment ? port_of(attachment) : NULL;

    if (port)
        attachment->rate = port->rate;
    return attachment;
}

void vb_sim_attachments_free(struct vb_sim *sim)
{
    for (uint32_t i = 0; i < sim->hosts; ++i)
        free(sim->host[i]->attachment ? attachment_of(sim->host[i]->attachment) : NULL);
    for (uint32_t i = 0; i < sim->wire_packets; ++i)
        free(sim->wire_packet[i]);
    free(sim->wire_packet);
    free(sim->readable_fd);
    vb_sim_program_groups_free(sim);
}
