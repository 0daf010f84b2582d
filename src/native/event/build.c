// SPDX-License-Identifier: Apache-2.0
/*
 * Builds a world of nodes and links, and frees it. The hosts' user (sim) calls this before it runs
 * the world (run.c).
 */
#include "event/world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "event/detour.h"
#include "event/lanes.h"
#include "event/partition.h"
#include "event/sample.h"
#include "event/switch.h"
#include "event/telemetry.h"
#include "event/watchdog.h"

enum { WORTH_A_THREAD = 500 };

/* Prefetches the cache lines that a coming event needs besides its port's. */
static inline void prefetch_near(const struct vb_world_partition *part, uint64_t what)
{
    const struct vb_world_port *port = &part->port[(uint32_t)what];

    if (vb_world_event_of(what) == VB_WORLD_WAKE) {
        __builtin_prefetch(port->lanes, 1);
        __builtin_prefetch((const char *)port->lanes + 64, 1);
        __builtin_prefetch((const char *)port->lanes + 128, 1);
        return;
    }
    if (port->arrive_first != VB_WORLD_NONE)
        __builtin_prefetch(vb_world_packet_at(part, port->arrive_first), 1);
    __builtin_prefetch(port->sw);
}

/* Of the packet behind the one that arrives, the time is needed. */
static inline void prefetch_nearer(const struct vb_world_partition *part, uint64_t what)
{
    const struct vb_world_port *port = &part->port[(uint32_t)what];
    uint32_t next;

    if (port->arrive_first == VB_WORLD_NONE)
        return;
    next = vb_world_packet_at(part, port->arrive_first)->next;
    if (next != VB_WORLD_NONE)
        __builtin_prefetch(vb_world_packet_at(part, next), 1);
}

void vb_world_prefetch(const void *context, uint64_t near, uint64_t nearer)
{
    if (vb_world_event_of(near) <= VB_WORLD_WAKE)
        prefetch_near(context, near);
    if (vb_world_event_of(nearer) == VB_WORLD_ARRIVE)
        prefetch_nearer(context, nearer);
}

int vb_world_create(uint64_t seed, const struct vb_world_host_calls *hosts, void *context,
                    struct vb_world **world)
{
    struct vb_world *made = calloc(1, sizeof(*made));

    if (!made)
        return -ENOMEM;
    made->seed = made->random = seed;
    made->on_host = hosts;
    made->hosts_context = context;
    made->threads = 1;
    made->refused_at = VB_WORLD_NONE;
    made->worth_a_thread = WORTH_A_THREAD;
    if (vb_world_packets_open(&made->packets) || vb_world_partitions_open(made)) {
        vb_world_destroy(made);
        return -ENOMEM;
    }
    *world = made;
    return 0;
}

void vb_world_destroy(struct vb_world *world)
{
    for (uint32_t i = 0; i < world->ports; ++i) {
        vb_world_lanes_destroy(world->port[i].lanes);
        free(world->port[i].gate);
    }
    vb_world_detours_free(world);
    for (uint32_t i = 0; i < world->nodes; ++i) {
        if (world->node[i].sw)
            vb_world_switch_destroy(world->node[i].sw);
        free(world->node[i].port);
    }
    vb_world_samplers_free(world);
    free(world->storm);
    vb_world_telemetry_free(world);
    vb_world_agenda_free(&world->agenda);
    vb_world_partitions_free(world);
    vb_world_packets_close(&world->packets);
    free(world->port);
    free(world->node);
    free(world);
}

/* Room for one more in an array that grows by doubling at each power of two. */
static void *one_more(void *array, uint32_t count, size_t size)
{
    void *grown;

    if (count & (count - 1))
        return array;
    if (posix_memalign(&grown, 64, (count ? 2 * (size_t)count : 1) * size))
        return NULL;
    if (count)
        memcpy(grown, array, count * size);
    free(array);
    return grown;
}

static int world_add_node(struct vb_world *world, uint32_t ports, struct vb_world_node **node)
{
    struct vb_world_node *grown = one_more(world->node, world->nodes, sizeof(*grown));
    uint32_t *port;

    if (!grown)
        return -ENOMEM;
    world->node = grown;
    port = malloc(ports * sizeof(*port));
    if (!port)
        return -ENOMEM;
    for (uint32_t i = 0; i < ports; ++i)
        port[i] = VB_WORLD_NONE;
    *node = &world->node[world->nodes];
    **node = (struct vb_world_node){.port = port, .ports = ports, .joined = world->nodes++};
    vb_world_partitions_update(world);
    return 0;
}

int vb_world_add_host(struct vb_world *world, uint32_t *number)
{
    struct vb_world_node *node;
    int error = world->hosts == VB_WORLD_HOSTS ? -EINVAL : world_add_node(world, 1, &node);

    if (error)
        return error;
    node->kind = VB_WORLD_HOST;
    node->host = world->hosts++;
    node->address = node->host + 1;
    *number = world->nodes - 1;
    return 0;
}

int vb_world_add_switch(struct vb_world *world, struct vb_world_switch *sw, uint32_t *number)
{
    struct vb_world_node *node;
    int error = world_add_node(world, sw->config.ports, &node);

    if (error) {
        vb_world_switch_destroy(sw);
        return error;
    }
    node->kind = VB_WORLD_SWITCH;
    node->sw = sw;
    sw->port = node->port;
    world->floods |= sw->config.floods;
    *number = world->nodes - 1;
    sw->salt = vb_world_splitmix(&world->random);
    return 0;
}

/* ---- links ----------------------------------------------------------------------------------- */

static void world_fill_port(struct vb_world *world, uint32_t number, uint32_t node,
                            uint32_t node_port, uint32_t peer, const struct vb_world_node *to,
                            const struct vb_world_link *link)
{
    world->port[number] = (struct vb_world_port){
        .arrive_first = VB_WORLD_NONE,
        .out_first = VB_WORLD_NONE,
        .delay = link->delay,
        .peer = peer,
        .sw = world->node[node].sw,
        .host = world->node[node].host,
        .to_host = !to->sw,
        .node = node,
        .random = vb_world_mix(world->seed + VB_WORLD_GOLDEN * (number + 1ull)),
        .number = (uint16_t)node_port,
        .rate = link->rate,
        .byte_time =
            8 * VB_WORLD_SECOND % link->rate ? 0 : (uint32_t)(8 * VB_WORLD_SECOND / link->rate),
        .bit_error_rate = link->bit_error_rate,
        .slow_path = link->bit_error_rate > 0,
        .pause_response = link->pause_response,
    };
    world->node[node].port[node_port] = number;
}

/* A host's port has the lanes of the switch that it is connected to. */
static const struct vb_world_switch_config *lanes_config(const struct vb_world_node *node,
                                                         const struct vb_world_node *other)
{
    if (node->sw)
        return &node->sw->config;
    return other->sw ? &other->sw->config : NULL;
}

/* Credit blocks of the lane's input buffer at port number `port`. */
static uint32_t room_of(const struct vb_world_switch_config *config, uint32_t lane, uint32_t port)
{
    bool is_line = config->extender && port == 1;

    return (is_line ? config->extender : config->lane[lane].flow.room) / VB_WORLD_CREDIT_BLOCK;
}

/* `peer`: the number of the port at the other end. */
static int add_lanes(struct vb_world_port *port, const struct vb_world_node *node,
                     const struct vb_world_node *other, uint32_t peer)
{
    const struct vb_world_switch_config *config = lanes_config(node, other);
    const struct vb_world_switch_config *to = lanes_config(other, node);

    if (!config || !config->lanes)
        return 0;
    port->lanes = vb_world_lanes_create(config->lanes, config->management,
                                        node->sw ? config->ports : 1, &config->tables);
    if (!port->lanes)
        return -ENOMEM;
    port->lanes->lifetime = node->sw ? config->lifetime : 0; /* hosts wait */
    if (node->sw && config->watchdog.detect) {
        port->lanes->watchdog = vb_world_watchdog_create(&config->watchdog, port->lanes->count);
        if (!port->lanes->watchdog)
            return -ENOMEM;
    }
    port->lanes->is_guarded = port->lanes->lifetime || port->lanes->watchdog;
    for (uint32_t i = 0; i < config->lanes; ++i) {
        struct vb_world_lane *lane = &port->lanes->lane[i];
        const struct vb_world_lane_config *own = &config->lane[i].flow, *its = &to->lane[i].flow;

        lane->input_flow_control = (uint8_t)own->flow_control;
        if (own->flow_control == VB_WORLD_CREDITS)
            lane->room = room_of(config, i, node->sw ? port->number : 0);
        lane->flow_control = (uint8_t)its->flow_control;
        lane->peer_room = room_of(to, i, other->sw ? peer : 0);
        if (to->extender && other->sw && peer == 1)
            lane->arrived = VB_WORLD_NEVER / 2; /* no window limit: as if all had arrived */
    }
    if (config->management)
        port->lanes->lane[config->lanes].input_flow_control =
            port->lanes->lane[config->lanes].flow_control = VB_WORLD_VL15;
    return 0;
}

/* Cut-through needs one rate at all ports: otherwise a packet could leave faster than it comes. */
static bool may_cut(const struct vb_world *world, const struct vb_world_node *node)
{
    uint64_t rate = 0;

    for (uint32_t i = 0; i < node->ports; ++i) {
        const struct vb_world_port *port;

        if (node->port[i] == VB_WORLD_NONE)
            continue;
        port = &world->port[node->port[i]];
        if (rate && port->rate != rate)
            return false;
        rate = port->rate;
    }
    return true;
}

static void set_early(struct vb_world *world, const struct vb_world_node *node)
{
    bool cuts = node->sw && node->sw->config.cut_through && may_cut(world, node);

    for (uint32_t i = 0; node->sw && i < node->ports; ++i)
        if (node->port[i] != VB_WORLD_NONE) {
            struct vb_world_port *peer = &world->port[world->port[node->port[i]].peer];

            peer->early = cuts && peer->byte_time ? node->sw->config.cut_through : 0;
        }
}

static bool lanes_fit(const struct vb_world_node *a, const struct vb_world_node *b)
{
    return !a->sw || !b->sw ||
           (a->sw->config.lanes == b->sw->config.lanes &&
            !a->sw->config.management == !b->sw->config.management);
}

static int grow_ports(struct vb_world *world)
{
    struct vb_world_port *grown = world->port;

    for (int i = 0; i < 2; ++i) {
        grown = one_more(world->port, world->ports + (uint32_t)i, sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        world->port = grown;
    }
    return 0;
}

int vb_world_connect(struct vb_world *world, uint32_t a, uint32_t a_port, uint32_t b,
                     uint32_t b_port, const struct vb_world_link *link)
{
    struct vb_world_node *from = &world->node[a], *to = &world->node[b];
    uint32_t first = world->ports;
    int error;

    if (from == to || !lanes_fit(from, to))
        return -EINVAL;
    if (from->port[a_port] != VB_WORLD_NONE || to->port[b_port] != VB_WORLD_NONE)
        return -EBUSY;
    if (grow_ports(world))
        return -ENOMEM;
    vb_world_partitions_update(world);
    world_fill_port(world, first, a, a_port, first + 1, to, link);
    world_fill_port(world, first + 1, b, b_port, first, from, link);
    world->ports += 2;
    world->is_divided_anew = true;
    error = add_lanes(&world->port[first], from, to, b_port);
    if (!error)
        error = add_lanes(&world->port[first + 1], to, from, a_port);
    set_early(world, from);
    set_early(world, to);
    return error;
}

/* The direction of a link that ends at this port goes up or down. */
static void build_set_port(struct vb_world *world, uint32_t port, enum vb_world_event event,
                           uint64_t at)
{
    struct vb_world_partition *part = vb_world_partition_of(world, world->port[port].node);

    ++part->idle;
    vb_world_add(part, at, event, 0, port);
    if (part->error)
        world->error = part->error;
}

int vb_world_set_link(struct vb_world *world, uint32_t number, uint32_t port, bool up, uint64_t at)
{
    const struct vb_world_node *node = &world->node[number];
    enum vb_world_event event = up ? VB_WORLD_LINK_UP : VB_WORLD_LINK_DOWN;

    if (node->port[port] == VB_WORLD_NONE)
        return -EINVAL;
    build_set_port(world, node->port[port], event, at);
    build_set_port(world, world->port[node->port[port]].peer, event, at);
    return world->error;
}
