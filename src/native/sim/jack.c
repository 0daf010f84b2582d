// SPDX-License-Identifier: Apache-2.0
/* The world's side of what programs plug into its hosts. */
#include "sim/jack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "event/lanes.h"
#include "sim/state.h"

enum {
    LETTER_HEADERS = VB_HEADERS_MAX + 4,
    IPV4_NETWORK = 10,
    ARMS = 4 /* times the patience: so often at one instant a program may arm and not sleep */
};

static const uint64_t GUIDS = 0x5642000000000000ull;

struct vb_sim_jack {
    struct vb_jack jack;
    struct vb_sim *sim;
    uint32_t packet;      /* begun */
    uint64_t expire_at;   /* of the pending event; VB_SIM_NEVER */
    uint64_t looked_at;   /* the instant of what follows */
    uint32_t polls, arms; /* polls in vain since the CQ was armed; how often one was armed */
};

static struct vb_sim_jack *jack_of(const struct vb_jack *jack)
{
    return (struct vb_sim_jack *)(uintptr_t)jack;
}

static struct vb_sim_host *host_of(const struct vb_jack *jack)
{
    return jack_of(jack)->sim->host[jack->host];
}

static uint32_t port_number(const struct vb_jack *jack)
{
    return jack_of(jack)->sim->world->node[host_of(jack)->node].port[0];
}

/* NULL: nothing is plugged in. */
static struct vb_sim_port *port_of(const struct vb_jack *jack)
{
    uint32_t number = port_number(jack);

    return number == VB_SIM_NONE ? NULL : &jack_of(jack)->sim->world->port[number];
}

/* ---- addresses ------------------------------------------------------------------------------- */

uint64_t vb_sim_jack_guid(uint32_t host)
{
    return GUIDS | (host + 1);
}

void vb_sim_jack_link_local(uint32_t host, uint8_t gid[16])
{
    memset(gid, 0, 16);
    gid[0] = 0xfe;
    gid[1] = 0x80;
    vb_wire_put64(gid + 8, vb_sim_jack_guid(host));
}

void vb_sim_jack_ipv4(uint32_t host, uint8_t gid[16])
{
    memset(gid, 0, 16);
    gid[10] = gid[11] = 0xff;
    vb_wire_put32(gid + 12, (uint32_t)IPV4_NETWORK << 24 | (host + 1));
}

uint32_t vb_sim_jack_host_of(const uint8_t gid[16])
{
    uint32_t host = (vb_wire_get32(gid + 12) & 0xffffff) - 1;
    uint8_t own[16];

    vb_sim_jack_ipv4(host, own);
    if (memcmp(gid, own, 16) == 0)
        return host;
    vb_sim_jack_link_local(host, own);
    return memcmp(gid, own, 16) == 0 ? host : UINT32_MAX;
}

/* ---- out ------------------------------------------------------------------------------------- */

static uint64_t jack_now(const struct vb_jack *jack)
{
    return jack_of(jack)->sim->world->now;
}

static int jack_way(const struct vb_jack *jack, uint32_t host)
{
    const struct vb_sim *sim = jack_of(jack)->sim;
    int error;

    if (host >= sim->hosts)
        return -EHOSTUNREACH;
    error = vb_world_reaches(sim->world, host_of(jack)->node, host);
    return error ? error : vb_world_reaches(sim->world, sim->host[host]->node, jack->host);
}

static bool jack_may_send(const struct vb_jack *jack)
{
    return vb_world_may_send(jack_of(jack)->sim->world, host_of(jack)->node);
}

static bool is_held_up(const struct vb_jack *jack, uint8_t level)
{
    const struct vb_sim_port *port = port_of(jack);

    return port && port->lanes &&
           port->lanes->lane[vb_world_lanes_of(port->lanes, (uint8_t)(level << 4))].packets;
}

/* The letter of a packet's number. */
static struct vb_letter *letter_for(struct vb_sim *sim, uint32_t packet)
{
    if (packet >= sim->letters) {
        uint32_t room = sim->world->pool.room;
        struct vb_letter **grown = realloc(sim->letter, room * sizeof(*grown));

        if (!grown)
            return NULL;
        memset(grown + sim->letters, 0, (room - sim->letters) * sizeof(*grown));
        sim->letter = grown;
        sim->letters = room;
    }
    if (!sim->letter[packet])
        sim->letter[packet] = malloc(sizeof(struct vb_letter) + LETTER_HEADERS + sim->config.mtu);
    return sim->letter[packet];
}

static struct vb_letter *jack_begin(struct vb_jack *jack, uint32_t length)
{
    struct vb_sim *sim = jack_of(jack)->sim;
    struct vb_letter *letter = NULL;
    uint32_t packet = vb_world_sim_pool_take(&sim->world->pool);

    if (packet != VB_SIM_NONE) {
        letter = letter_for(sim, packet);
        if (!letter)
            vb_world_sim_pool_give(&sim->world->pool, packet);
    }
    if (!letter) {
        sim->world->error = -ENOMEM;
        return NULL;
    }
    letter->length = length;
    letter->leave_at = 0;
    jack_of(jack)->packet = packet;
    return letter;
}

static void jack_give_up(struct vb_jack *jack)
{
    vb_world_sim_pool_give(&jack_of(jack)->sim->world->pool, jack_of(jack)->packet);
}

/* What it takes on the wire with that. */
static uint32_t add_telemetry(struct vb_sim *sim, uint32_t packet)
{
    const struct vb_letter *letter = sim->letter[packet];
    struct vb_sim_packet *at = vb_world_packet(sim->world, packet);
    struct vb_sim_trail *trail = vb_world_trail_of(sim->world, packet);

    at->bytes += VB_HPCC_BYTES;
    if (trail && letter->telemetry == VB_LETTER_ASKS) {
        trail->hops = 0;
        trail->sent_at = sim->world->now;
    } else if (trail && letter->trail) {
        *trail = *letter->trail;
    }
    return at->bytes;
}

/* Until it leaves, a packet is the host's, and counted as kept. */
static void dispatch(struct vb_jack *jack, uint32_t packet, uint64_t at)
{
    struct vb_world *world = jack_of(jack)->sim->world;

    if (VB_LIKELY(at <= world->now)) {
        vb_world_send(world, host_of(jack)->node, packet);
        return;
    }
    ++world->kept;
    vb_world_call(world, at, VB_SIM_CALL_LETTER | jack->host << VB_SIM_CALL_BITS, packet);
}

void vb_sim_letter_leaves(struct vb_sim_host *host, uint32_t packet)
{
    --host->sim->world->kept;
    vb_world_send(host->sim->world, host->node, packet);
}

/* What switches look at, and captures of headers. */
static uint32_t send_to(struct vb_jack *jack, uint16_t target, uint8_t marks)
{
    struct vb_sim *sim = jack_of(jack)->sim;
    struct vb_sim_packet *at = vb_world_packet(sim->world, jack_of(jack)->packet);
    const struct vb_letter *letter = sim->letter[jack_of(jack)->packet];
    uint32_t headers = letter->length - letter->payload;
    uint32_t seen = headers < VB_SIM_HEADER ? headers : VB_SIM_HEADER;
    uint32_t bytes = vb_sim_wire_bytes(sim->config.framing, headers, letter->payload) +
                     vb_sim_grh_bytes(sim, marks);

    memset(at->header, 0, sizeof(at->header));
    memcpy(at->header, letter->bytes, seen);
    at->payload = (uint16_t)letter->payload;
    at->bytes = (uint16_t)bytes;
    at->source = (uint16_t)jack->host;
    at->target = target;
    at->header[4] |= VB_SIM_LETTER;
    at->header[VB_SIM_HOPS_AT] |= (uint8_t)sim->world->hop_limit;
    at->level_marks = (uint8_t)((letter->level & 15) << 4 | marks);
    if (VB_UNLIKELY(letter->telemetry))
        bytes = add_telemetry(sim, jack_of(jack)->packet);
    dispatch(jack, jack_of(jack)->packet, letter->leave_at);
    return bytes;
}

static uint32_t jack_send(struct vb_jack *jack, uint32_t host)
{
    return send_to(jack, (uint16_t)host, 0);
}

static uint32_t jack_send_to_group(struct vb_jack *jack, const uint8_t gid[16])
{
    return send_to(jack, vb_sim_meeting_number(jack_of(jack)->sim, gid), VB_SIM_TO_GROUP);
}

static int jack_join(struct vb_jack *jack, const uint8_t gid[16])
{
    return vb_sim_meeting_join(jack_of(jack)->sim, gid, jack->host);
}

static void jack_leave(struct vb_jack *jack, const uint8_t gid[16])
{
    vb_sim_meeting_leave(jack_of(jack)->sim, gid, jack->host);
}

static void jack_come_back(struct vb_jack *jack)
{
    struct vb_sim *sim = jack_of(jack)->sim;
    struct vb_sim_host *host = host_of(jack);
    const struct vb_sim_port *port = port_of(jack);

    if (!port)
        return;
    if (port->lanes) {
        vb_world_lanes_want(sim->world, port_number(jack));
    } else if (!host->ready_planned) {
        uint64_t at = port->free_at > sim->world->now ? port->free_at : sim->world->now;

        host->ready_planned = true;
        vb_world_add(sim->world, at, VB_SIM_READY, 0, port_number(jack));
    }
}

static void expire_at(struct vb_jack *jack, uint64_t at)
{
    struct vb_world *world = jack_of(jack)->sim->world;

    if (at >= jack_of(jack)->expire_at)
        return;
    jack_of(jack)->expire_at = at > world->now ? at : world->now;
    vb_world_call(world, jack_of(jack)->expire_at, VB_SIM_CALL_JACK, jack->host);
}

/* ---- in -------------------------------------------------------------------------------------- */

void vb_sim_jack_arrive(struct vb_sim_host *host, uint32_t packet)
{
    struct vb_sim *sim = host->sim;
    const struct vb_sim_packet *at = vb_world_packet(sim->world, packet);
    const struct vb_plug *plug = host->jack ? host->jack->plug : NULL;
    struct vb_letter *letter = sim->letter[packet];
    struct vb_arrival arrival = {
        .bytes = letter->bytes,
        .length = letter->length,
        .traffic_class =
            (uint8_t)((letter->traffic_class & ~3) | (at->level_marks & VB_SIM_CE ? 3 : 2)),
        .hop_limit = letter->hop_limit,
        .flow_label = letter->flow_label,
    };

    if (plug) {
        memcpy(arrival.sgid, letter->sgid, sizeof(arrival.sgid));
        memcpy(arrival.dgid, letter->dgid, sizeof(arrival.dgid));
        letter->bytes[4] |= at->header[4] & 0x80; /* FECN */
        if (VB_UNLIKELY(letter->telemetry))
            host->jack->trail = vb_world_trail_of(sim->world, packet);
        if (VB_UNLIKELY(letter->damaged))
            plug->drop_damaged(plug->argument);
        else
            plug->arrive(plug->argument, &arrival);
        if (VB_UNLIKELY(letter->telemetry))
            host->jack->trail = NULL;
    }
    vb_world_sim_pool_give(&sim->world->pool, packet);
    if (plug)
        plug->ready(plug->argument);
}

void vb_sim_jack_ready(struct vb_sim_host *host)
{
    const struct vb_plug *plug = host->jack->plug;

    if (plug)
        plug->ready(plug->argument);
}

void vb_sim_jack_expire(struct vb_sim_host *host)
{
    struct vb_sim_jack *jack = jack_of(host->jack);
    const struct vb_plug *plug = jack->jack.plug;

    if (jack->expire_at != host->sim->world->now)
        return; /* an earlier one came in its place */
    jack->expire_at = VB_SIM_NEVER;
    if (plug)
        plug->expire(plug->argument);
}

void vb_sim_letter_copied(struct vb_sim *sim, uint32_t packet, uint32_t copy)
{
    struct vb_letter *to = letter_for(sim, copy);
    const struct vb_letter *from = sim->letter[packet];

    if (to)
        memcpy(to, from, sizeof(*from) + from->length);
    else
        sim->world->error = -ENOMEM;
}

/* ---- programs and time ----------------------------------------------------------------------- */

/* A descriptor may be named twice: who reads finds nothing the second time. */
static void jack_told(struct vb_jack *jack, int fd)
{
    struct vb_sim *sim = jack_of(jack)->sim;

    if (sim->told && sim->told_fd[sim->told - 1] == fd)
        return;
    if (sim->told == sim->told_room) {
        uint32_t room = sim->told_room ? 2 * sim->told_room : 64;
        int *grown = realloc(sim->told_fd, room * sizeof(*grown));

        if (!grown) {
            sim->world->error = -ENOMEM;
            return;
        }
        sim->told_fd = grown;
        sim->told_room = room;
    }
    sim->told_fd[sim->told++] = fd;
}

uint32_t vb_sim_told(const struct vb_sim *sim)
{
    return sim->told;
}

uint32_t vb_sim_take_told(struct vb_sim *sim, int *fd, uint32_t room)
{
    uint32_t count = sim->told < room ? sim->told : room;

    sim->told -= count;
    if (count)
        memcpy(fd, sim->told_fd + sim->told, count * sizeof(*fd));
    return count;
}

static int jack_step(struct vb_jack *jack, uint64_t until)
{
    struct vb_world *world = jack_of(jack)->sim->world;
    int why;

    jack_of(jack)->polls = 0;
    if (until == VB_SIM_NEVER && world->agenda.count == world->watching)
        return -EDEADLK;
    /* With VB_SIM_NEVER itself a run ends before the last timers. */
    why = vb_world_run(world, until == VB_SIM_NEVER ? until - 1 : until, 1);
    switch (why) {
    case VB_SIM_END_EVENTS:
    case VB_SIM_END_HALT: /* whoever asked for it looks at the time when it has its turn */
        return 1;
    case VB_SIM_END_STUCK:
        return -EDEADLK;
    default:
        return why < 0 ? why : 0;
    }
}

/* Each host's polls count by themselves: whoever else polls between them, they were in vain. */
static struct vb_sim_jack *jack_look(struct vb_jack *jack)
{
    struct vb_sim_jack *own = jack_of(jack);

    if (own->looked_at != own->sim->world->now)
        own->polls = own->arms = 0;
    own->looked_at = own->sim->world->now;
    return own;
}

static void polled(struct vb_jack *jack)
{
    struct vb_sim_jack *own = jack_look(jack);

    if (++own->polls < own->sim->patience)
        return;
    jack_step(jack, VB_SIM_NEVER);
    own->polls = own->sim->patience; /* from here on each poll is an event */
    own->looked_at = own->sim->world->now;
}

/* Who arms again and again, and does not sleep, is polling nevertheless. */
static void jack_armed(struct vb_jack *jack)
{
    struct vb_sim_jack *own = jack_look(jack);

    if (own->arms / ARMS >= own->sim->patience)
        return;
    ++own->arms;
    own->polls = 0;
}

void vb_sim_set_patience(struct vb_sim *sim, uint32_t polls)
{
    sim->patience = polls;
    for (uint32_t i = 0; i < sim->hosts; ++i)
        if (sim->host[i]->jack)
            jack_of(sim->host[i]->jack)->looked_at = VB_SIM_NEVER;
}

int vb_sim_advance(struct vb_sim *sim, uint64_t until, uint64_t events)
{
    struct vb_world *world = sim->world;
    uint64_t limit = until == VB_SIM_NEVER ? until - 1 : until;
    int why = VB_SIM_END_EVENTS;

    for (; events && !sim->told && why == VB_SIM_END_EVENTS; --events) {
        if (until == VB_SIM_NEVER && world->agenda.count == world->watching)
            return VB_SIM_END_EMPTY;
        why = vb_world_run(world, limit, 1);
    }
    return why;
}

/* ---- making them ----------------------------------------------------------------------------- */

static const struct vb_jack_calls calls = {
    .now = jack_now,
    .way = jack_way,
    .may_send = jack_may_send,
    .is_held_up = is_held_up,
    .begin = jack_begin,
    .send = jack_send,
    .send_to_group = jack_send_to_group,
    .join = jack_join,
    .leave = jack_leave,
    .give_up = jack_give_up,
    .come_back = jack_come_back,
    .expire_at = expire_at,
    .told = jack_told,
    .polled = polled,
    .armed = jack_armed,
    .step = jack_step,
};

static uint32_t frame_bytes(const struct vb_sim *sim)
{
    return vb_sim_wire_bytes(sim->config.framing, VB_BTH, sim->config.mtu) + VB_HPCC_BYTES;
}

static struct vb_jack *jack_make(struct vb_sim *sim, uint32_t number)
{
    struct vb_sim_jack *made = calloc(1, sizeof(*made));

    if (!made)
        return NULL;
    made->sim = sim;
    made->expire_at = made->looked_at = VB_SIM_NEVER;
    made->jack = (struct vb_jack){.version = VB_JACK_VERSION,
                                  .host = number,
                                  .seed = sim->config.seed << 16 ^ number,
                                  .mtu = sim->config.mtu,
                                  .frame = (uint16_t)frame_bytes(sim),
                                  .notice_level = sim->config.notice_level,
                                  .congestion = &sim->config.congestion,
                                  .calls = &calls};
    sim->host[number]->jack = &made->jack;
    return &made->jack;
}

struct vb_jack *vb_sim_jack(struct vb_sim *sim, uint32_t host)
{
    struct vb_jack *jack = sim->host[host]->jack ? sim->host[host]->jack : jack_make(sim, host);
    const struct vb_sim_port *port = jack ? port_of(jack) : NULL;

    if (port)
        jack->rate = port->rate;
    return jack;
}

void vb_sim_jacks_free(struct vb_sim *sim)
{
    for (uint32_t i = 0; i < sim->hosts; ++i)
        free(sim->host[i]->jack ? jack_of(sim->host[i]->jack) : NULL);
    for (uint32_t i = 0; i < sim->letters; ++i)
        free(sim->letter[i]);
    free(sim->letter);
    free(sim->told_fd);
    vb_sim_meetings_free(sim);
}
