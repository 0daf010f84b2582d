// SPDX-License-Identifier: Apache-2.0
/*
 * Chooses between the minimal route and a detour by an intermediate group. switch.c calls it for
 * each packet. A flow keeps its choice until a gap between its packets is so long that none can
 * overtake another (a flowlet).
 */
#include "event/detour.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/bytes.h"

enum {
    FEWEST_GROUPS = 3,
    NO_GROUP = 0xffff,
    LONGEST_ROUTE = 64, /* links that are counted */
    FIRST_ROOM = 64,    /* flows; a power of two */
};

/* Of vb_world_flowlet.ends. */
#define USED    (1ull << 63)
#define DETOURS (1ull << 62)

/* The settings that all switches share. */
struct vb_world_detours {
    struct vb_world_detour_config config;
    uint64_t salt;
    uint16_t *group;   /* by address; NO_GROUP: nobody has it */
    uint32_t *gateway; /* the address of a host of each group, whose route packets to it follow */
    uint32_t groups, addresses;
};

/* ---- which group ----------------------------------------------------------------------------- */

/* For a hash of numbers from 0: flows of more than 65,536 hosts may share one number. */
static uint64_t detour_flow_of(const struct vb_world_packet *packet)
{
    return (uint64_t)(packet->source - 1u) << 40 ^ (uint64_t)(packet->target - 1u) << 24 ^
           vb_wire_get24(packet->header + 5);
}

/* The PSN, or the low part of TCP's number: a retransmission takes the same route. */
static uint32_t detour_number_of(const struct vb_world_packet *packet)
{
    return packet->flags & VB_WORLD_TCP ? vb_wire_get32(packet->header + VB_WORLD_TCP_NUMBER + 2)
                                        : vb_wire_get24(packet->header + 9);
}

/* The intermediate group: neither the source's nor the target's. */
static uint32_t intermediate_of(const struct vb_world_detours *all,
                                const struct vb_world_packet *packet)
{
    uint32_t one = all->group[packet->source], other = all->group[packet->target], chosen;
    uint64_t hash = vb_world_mix(detour_flow_of(packet) ^ all->salt);

    if (all->config.by_packet)
        hash = vb_world_mix(hash + detour_number_of(packet));
    chosen = (uint32_t)((hash >> 32) * (all->groups - 2) >> 32);
    chosen += chosen >= (one < other ? one : other);
    return chosen + (chosen >= (one < other ? other : one));
}

static bool may_detour(const struct vb_world_detours *all, const struct vb_world_packet *packet)
{
    uint32_t from, to;

    if (all->groups < FEWEST_GROUPS || (packet->level_marks & VB_WORLD_MANAGEMENT) ||
        packet->source >= all->addresses || packet->target >= all->addresses)
        return false;
    from = all->group[packet->source];
    to = all->group[packet->target];
    return from != to && from != NO_GROUP && to != NO_GROUP;
}

/* ---- by queues ------------------------------------------------------------------------------- */

/* The next switch of a port's link, across range extenders; NULL: a host. */
static const struct vb_world_switch *next_switch(const struct vb_world *world, uint32_t port)
{
    const struct vb_world_switch *next = world->port[world->port[port].peer].sw;

    while (next && next->config.extender) {
        port = vb_world_switch_through(world, next, world->port[port].peer);
        next = port == VB_WORLD_NONE ? NULL : world->port[world->port[port].peer].sw;
    }
    return next;
}

/* The number of links from *sw to the host's switch, or to the first switch in `group`. That switch
 * is *sw then. */
static uint32_t links_to(const struct vb_world *world, const struct vb_world_switch **sw,
                         uint32_t address, uint32_t group)
{
    uint32_t links = 0;

    while (links < LONGEST_ROUTE && (*sw)->detour->group != group) {
        uint32_t port = vb_world_switch_first_port(world, *sw, address);
        const struct vb_world_switch *next =
            port == VB_WORLD_NONE ? NULL : next_switch(world, port);

        if (!next)
            break;
        *sw = next;
        ++links;
    }
    return links;
}

/* Bytes in the queue of this port, and those whose credits the other end has not returned. */
static uint64_t queue_before(struct vb_world_partition *part, uint32_t number)
{
    struct vb_world_port *port = &part->port[number];
    uint64_t bytes = 0;

    if (!port->lanes)
        return vb_world_backlog(part->now, port);
    vb_world_lanes_apply_control(part, port);
    for (uint32_t i = 0; i < port->lanes->data; ++i) {
        const struct vb_world_lane *lane = &port->lanes->lane[i];

        bytes += lane->bytes;
        if (lane->flow_control == VB_WORLD_CREDITS)
            bytes += (lane->sent - lane->released) * VB_WORLD_CREDIT_BLOCK;
    }
    return bytes;
}

/* UGAL-L: does the detour have the smaller product of queue and links, from this switch's view? */
static bool is_better(struct vb_world_partition *part, struct vb_world_switch *sw,
                      const struct vb_world_packet *packet)
{
    const struct vb_world_detours *all = sw->detour->all;
    uint32_t intermediate = intermediate_of(all, packet), near, far, links;
    uint32_t minimal = vb_world_switch_first_port(part->world, sw, packet->target),
             detoured = vb_world_switch_first_port(part->world, sw, all->gateway[intermediate]);
    const struct vb_world_switch *at = sw;

    if (minimal == VB_WORLD_NONE || detoured == VB_WORLD_NONE || minimal == detoured)
        return false;
    near = links_to(part->world, &at, packet->target, VB_WORLD_NONE);
    at = sw;
    links = links_to(part->world, &at, all->gateway[intermediate], intermediate);
    far = links + links_to(part->world, &at, packet->target, VB_WORLD_NONE);
    return queue_before(part, minimal) * near >
           queue_before(part, detoured) * far + all->config.threshold;
}

/* ---- flows ----------------------------------------------------------------------------------- */

static struct vb_world_flowlet *detour_place_of(const struct vb_world_detour *detour, uint64_t ends,
                                                uint32_t qp)
{
    uint32_t at = (uint32_t)vb_world_mix(ends ^ (uint64_t)qp << 32) & (detour->room - 1);
    const struct vb_world_flowlet *flow = &detour->flow[at];

    while (flow->ends && ((flow->ends & ~DETOURS) != ends || flow->qp != qp)) {
        at = (at + 1) & (detour->room - 1);
        flow = &detour->flow[at];
    }
    return &detour->flow[at];
}

/* Doubles the table and keeps the flows whose choice is still valid. */
static int detour_grow(struct vb_world_detour *detour, uint64_t now)
{
    struct vb_world_detour grown = *detour;

    grown.room = detour->room ? 2 * detour->room : FIRST_ROOM;
    grown.flows = 0;
    grown.flow = calloc(grown.room, sizeof(*grown.flow));
    if (!grown.flow)
        return -ENOMEM;
    for (uint32_t i = 0; i < detour->room; ++i) {
        const struct vb_world_flowlet *flow = &detour->flow[i];

        if (flow->ends && now - flow->seen <= detour->all->config.gap) {
            *detour_place_of(&grown, flow->ends & ~DETOURS, flow->qp) = *flow;
            ++grown.flows;
        }
    }
    free(detour->flow);
    *detour = grown;
    return 0;
}

/* A flow keeps the choice of its last packet, unless that was more than `gap` ago. */
static bool flowlet_detours(struct vb_world_partition *part, struct vb_world_switch *sw,
                            const struct vb_world_packet *packet)
{
    struct vb_world_detour *detour = sw->detour;
    uint64_t ends = USED | (uint64_t)packet->source << 24 | packet->target;
    uint32_t qp = vb_wire_get24(packet->header + 5);
    struct vb_world_flowlet *flow;

    if (2 * detour->flows >= detour->room && detour_grow(detour, part->now)) {
        part->error = -ENOMEM;
        return false;
    }
    flow = detour_place_of(detour, ends, qp);
    if (!flow->ends || part->now - flow->seen > detour->all->config.gap) {
        detour->flows += !flow->ends;
        flow->ends = ends | (is_better(part, sw, packet) ? DETOURS : 0);
        flow->qp = qp;
    }
    flow->seen = part->now;
    return flow->ends & DETOURS;
}

static void detour_choose(struct vb_world_partition *part, struct vb_world_switch *sw,
                          struct vb_world_packet *packet)
{
    const struct vb_world_detour_config *config = &sw->detour->all->config;
    bool detours = true;

    if (config->adaptive)
        detours =
            config->by_packet ? is_better(part, sw, packet) : flowlet_detours(part, sw, packet);
    if (detours)
        packet->flags |= VB_WORLD_DETOUR;
}

uint32_t vb_world_detour_target(struct vb_world_partition *part, struct vb_world_switch *sw,
                                uint32_t in, struct vb_world_packet *packet)
{
    const struct vb_world_detour *detour = sw->detour;
    uint32_t intermediate;

    if (part->port[in].to_host && may_detour(detour->all, packet))
        detour_choose(part, sw, packet);
    if (!(packet->flags & VB_WORLD_DETOUR))
        return packet->target;
    intermediate = intermediate_of(detour->all, packet);
    if (detour->group != intermediate)
        return detour->all->gateway[intermediate];
    packet->flags &= (uint8_t)~VB_WORLD_DETOUR;
    return packet->target;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void free_all(struct vb_world_detours *all)
{
    if (!all)
        return;
    free(all->group);
    free(all->gateway);
    free(all);
}

static struct vb_world_detours *detour_make(uint32_t addresses, uint32_t groups)
{
    struct vb_world_detours *all = calloc(1, sizeof(*all));

    if (!all)
        return NULL;
    all->addresses = addresses;
    all->groups = groups;
    all->group = malloc(addresses * sizeof(*all->group));
    all->gateway = malloc((groups + 1) * sizeof(*all->gateway));
    if (all->group && all->gateway) {
        memset(all->group, 0xff, addresses * sizeof(*all->group));
        return all;
    }
    free_all(all);
    return NULL;
}

/* Finds a host of each group. False: a group has none. */
static bool find_gateways(const struct vb_world *world, struct vb_world_detours *all,
                          const uint16_t *group, uint32_t count)
{
    for (uint32_t i = 0; i < all->groups; ++i)
        all->gateway[i] = VB_WORLD_NONE;
    for (uint32_t i = count; i-- > 0;)
        if (world->node[i].kind == VB_WORLD_HOST) {
            for (uint32_t bits = 0; bits >> world->node[i].lmc == 0; ++bits)
                all->group[world->node[i].address + bits] = group[i];
            all->gateway[group[i]] = world->node[i].address;
        }
    for (uint32_t i = 0; i < all->groups; ++i)
        if (all->gateway[i] == VB_WORLD_NONE)
            return false;
    return true;
}

static int detour_join(const struct vb_world_detours *all, struct vb_world_switch *sw,
                       uint16_t group)
{
    if (sw->config.extender)
        return 0;
    sw->detour = calloc(1, sizeof(*sw->detour));
    if (!sw->detour)
        return -ENOMEM;
    sw->detour->all = all;
    sw->detour->group = group;
    return 0;
}

int vb_world_set_detours(struct vb_world *world, const struct vb_world_detour_config *config,
                         const uint16_t *group, uint32_t count)
{
    struct vb_world_detours *all;
    uint32_t groups = 0, addresses = 1;
    int error = 0;

    if (world->detours)
        return -EBUSY;
    for (uint32_t i = 0; i < count; ++i)
        groups = group[i] >= groups ? group[i] + 1u : groups;
    for (uint32_t i = 0; i < world->nodes; ++i) {
        uint32_t end = world->node[i].address + (1u << world->node[i].lmc);

        addresses = end > addresses ? end : addresses;
    }
    for (uint32_t i = count; i < world->nodes; ++i)
        if (world->node[i].kind == VB_WORLD_HOST || !world->node[i].sw->config.extender)
            return -EINVAL;
    all = count <= world->nodes ? detour_make(addresses, groups) : NULL;
    if (!all)
        return count <= world->nodes ? -ENOMEM : -EINVAL;
    world->detours = all;
    all->config = *config;
    all->salt = vb_world_splitmix(&world->random);
    if (!find_gateways(world, all, group, count))
        error = -EINVAL;
    for (uint32_t i = 0; i < count && !error; ++i)
        if (world->node[i].sw)
            error = detour_join(all, world->node[i].sw, group[i]);
    if (error)
        vb_world_detours_free(world);
    return error;
}

void vb_world_detour_destroy(struct vb_world_detour *detour)
{
    if (detour)
        free(detour->flow);
    free(detour);
}

void vb_world_detours_free(struct vb_world *world)
{
    for (uint32_t i = 0; i < world->nodes; ++i)
        if (world->node[i].sw) {
            vb_world_detour_destroy(world->node[i].sw->detour);
            world->node[i].sw->detour = NULL;
        }
    free_all(world->detours);
    world->detours = NULL;
}
