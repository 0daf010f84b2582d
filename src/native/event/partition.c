// SPDX-License-Identifier: Apache-2.0
/*
 * Divides the nodes of a world into partitions, and delivers what one partition sends to another.
 * run.c calls this before a run and after each window, and link.c and control.c where a link
 * crosses.
 */
#include "event/partition.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "event/crew.h"
#include "event/lanes.h"
#include "event/watchdog.h"

/* ps. The end of a run is noticed after a window. */
static const uint64_t LONGEST_WINDOW = 2000000;

/* ---- memory ---------------------------------------------------------------------------------- */

static void partition_open(struct vb_world *world, struct vb_world_partition *part, uint32_t number)
{
    *part = (struct vb_world_partition){.now = world->now,
                                        .world = world,
                                        .port = world->port,
                                        .node = world->node,
                                        .on_host = world->on_host,
                                        .hosts_context = world->hosts_context,
                                        .number = number};
    vb_world_pool_open(&part->pool, &world->packets);
    vb_world_agenda_watch(&part->agenda, vb_world_prefetch, part);
    vb_world_agenda_hint(&part->agenda, world->port, sizeof(*world->port));
}

static struct vb_world_partition *partitions_make(struct vb_world *world, uint32_t count)
{
    struct vb_world_partition *made;

    if (posix_memalign((void **)&made, 64, count * sizeof(*made)))
        return NULL;
    for (uint32_t i = 0; i < count; ++i)
        partition_open(world, &made[i], i);
    return made;
}

int vb_world_partitions_open(struct vb_world *world)
{
    world->partition = partitions_make(world, 1);
    world->partitions = world->partition != NULL;
    return world->partition ? 0 : -ENOMEM;
}

void vb_world_partitions_update(struct vb_world *world)
{
    for (uint32_t i = 0; i < world->partitions; ++i) {
        world->partition[i].port = world->port;
        world->partition[i].node = world->node;
        vb_world_agenda_hint(&world->partition[i].agenda, world->port, sizeof(*world->port));
    }
}

void vb_world_partitions_free(struct vb_world *world)
{
    for (uint32_t i = 0; i < world->partitions; ++i)
        vb_world_agenda_free(&world->partition[i].agenda);
    free(world->partition);
    vb_world_crew_free(world->crew);
}

struct vb_world_sums vb_world_sums(const struct vb_world *world)
{
    struct vb_world_sums sums = {
        .pending = world->agenda.count, .idle = world->agenda.count, .watching = world->watching};
    int64_t kept = 0, in_use = 0;

    for (uint32_t i = 0; i < world->partitions; ++i) {
        const struct vb_world_partition *part = &world->partition[i];

        sums.events += part->events;
        sums.pending += part->agenda.count;
        sums.idle += part->idle;
        sums.watching += part->watching;
        sums.made += part->made;
        sums.copied += part->copied;
        sums.delivered += part->delivered;
        sums.dropped += part->dropped;
        kept += part->kept;
        in_use += part->pool.in_use;
    }
    sums.kept = (uint64_t)kept;
    sums.in_use = (uint64_t)in_use;
    return sums;
}

/* ---- which nodes ----------------------------------------------------------------------------- */

static uint32_t partition_root(const struct vb_world *world, uint32_t node)
{
    while (world->node[node].joined != node) {
        world->node[node].joined = world->node[world->node[node].joined].joined;
        node = world->node[node].joined;
    }
    return node;
}

void vb_world_join(struct vb_world *world, uint32_t one, uint32_t other)
{
    uint32_t a = partition_root(world, one), b = partition_root(world, other);

    if (a == b)
        return;
    world->node[a > b ? a : b].joined = a > b ? b : a;
    world->is_divided_anew = true;
}

/* The shortest delay of a link that has one; 0: there is none. */
static uint64_t shortest_delay(const struct vb_world *world)
{
    uint64_t least = 0;

    for (uint32_t i = 0; i < world->ports; ++i)
        if (world->port[i].delay && (!least || world->port[i].delay < least))
            least = world->port[i].delay;
    return least < LONGEST_WINDOW ? least : LONGEST_WINDOW;
}

/* Joins what cannot be divided, and each host with the node it is connected to. */
static void join_neighbours(struct vb_world *world)
{
    for (uint32_t i = 0; i < world->ports; ++i) {
        const struct vb_world_port *port = &world->port[i];

        if (!port->delay || !port->sw)
            vb_world_join(world, port->node, world->port[port->peer].node);
    }
}

/* The work of each node and of those that are joined with it, at their root: their ports. */
static void weigh_nodes(const struct vb_world *world, uint32_t *weight, bool *has_host)
{
    for (uint32_t i = 0; i < world->nodes; ++i) {
        uint32_t root = partition_root(world, i);

        weight[root] += world->node[i].ports;
        has_host[root] |= world->node[i].kind == VB_WORLD_HOST;
    }
}

/*
 * Gives each partition an equal part of the nodes with hosts, or of the others, which follow each
 * other: in most fabrics neighbours have neighbouring numbers.
 */
static void share_out(struct vb_world *world, const uint32_t *weight, const bool *has_host,
                      bool with_hosts, uint32_t partitions)
{
    uint64_t all = 0, before = 0;

    for (uint32_t i = 0; i < world->nodes; ++i)
        all += has_host[i] == with_hosts ? weight[i] : 0;
    for (uint32_t i = 0; i < world->nodes; ++i) {
        if (!weight[i] || has_host[i] != with_hosts)
            continue;
        world->node[i].partition = (uint32_t)(before * partitions / all);
        before += weight[i];
    }
}

/*
 * Divides the nodes among as many partitions as there are threads, or as there are nodes that are
 * not joined. *partitions: how many. -ENOMEM.
 */
static int share_nodes(struct vb_world *world, uint32_t *partitions)
{
    uint32_t *weight = calloc(world->nodes + 1, sizeof(*weight));
    bool *has_host = calloc(world->nodes + 1, sizeof(*has_host));
    int error = weight && has_host ? 0 : -ENOMEM;

    if (!error) {
        weigh_nodes(world, weight, has_host);
        *partitions = 0;
        for (uint32_t i = 0; i < world->nodes && *partitions < world->threads; ++i)
            *partitions += weight[i] != 0;
        share_out(world, weight, has_host, true, *partitions);
        share_out(world, weight, has_host, false, *partitions);
        for (uint32_t i = 0; i < world->nodes; ++i)
            world->node[i].partition = world->node[partition_root(world, i)].partition;
    }
    free(weight);
    free(has_host);
    return error;
}

static void put_in_one(struct vb_world *world)
{
    for (uint32_t i = 0; i < world->nodes; ++i)
        world->node[i].partition = 0;
}

static void note_crossings(struct vb_world *world)
{
    for (uint32_t i = 0; i < world->ports; ++i) {
        struct vb_world_port *port = &world->port[i];

        port->crosses = world->node[port->node].partition !=
                        world->node[world->port[port->peer].node].partition;
    }
}

/* ---- what moves ------------------------------------------------------------------------------ */

static uint32_t owner_of(const struct vb_world *world, uint64_t what)
{
    uint32_t index = (uint32_t)what;

    switch (vb_world_event_of(what)) {
    case VB_WORLD_CALL:
        return world->on_host->node_of(world->hosts_context, vb_world_detail_of(what), index);
    case VB_WORLD_STORM:
        return vb_world_storm_node(world, index);
    default:
        return world->port[index].node;
    }
}

static int move_event(void *context, const struct vb_world_agenda_entry *entry)
{
    struct vb_world *world = context;
    struct vb_world_partition *part = vb_world_partition_of(world, owner_of(world, entry->what));
    enum vb_world_event event = vb_world_event_of(entry->what);
    bool is_endless = event == VB_WORLD_STORM && vb_world_detail_of(entry->what);

    part->watching += is_endless;
    part->idle += event == VB_WORLD_CALL || event == VB_WORLD_REFRESH ||
                  event == VB_WORLD_LINK_UP || event == VB_WORLD_LINK_DOWN || is_endless ||
                  (event == VB_WORLD_WAKE && vb_world_detail_of(entry->what));
    return vb_world_agenda_add(&part->agenda, entry->at, entry->what);
}

/* The first of the new partitions inherits what the old one has counted. */
static int partition_move(struct vb_world *world, struct vb_world_partition *old)
{
    struct vb_world_partition *heir = &world->partition[0];

    heir->events += old->events;
    heir->made += old->made;
    heir->copied += old->copied;
    heir->delivered += old->delivered;
    heir->dropped += old->dropped;
    heir->kept += old->kept;
    vb_world_pool_close(&old->pool, &heir->pool);
    if (old->error)
        heir->error = old->error;
    return vb_world_agenda_empty(&old->agenda, move_event, world);
}

static int partitions_replace(struct vb_world *world, uint32_t count)
{
    struct vb_world_partition *old = world->partition, *made = partitions_make(world, count);
    uint32_t olds = world->partitions;
    int error = made ? 0 : -ENOMEM;

    if (error)
        return error;
    world->partition = made;
    world->partitions = count;
    for (uint32_t i = 0; i < olds; ++i) {
        int failed = partition_move(world, &old[i]);

        error = failed ? failed : error;
        vb_world_agenda_free(&old[i].agenda);
    }
    free(old);
    return error;
}

int vb_world_divide(struct vb_world *world)
{
    uint32_t partitions = 1;
    int error = 0;

    if (!world->is_divided_anew)
        return 0;
    world->window = world->is_whole ? 0 : shortest_delay(world);
    if (world->threads > 1 && world->window && !world->is_undivided) {
        join_neighbours(world);
        error = share_nodes(world, &partitions);
    } else {
        put_in_one(world);
    }
    world->is_divided_anew = false;
    if (error)
        return error;
    note_crossings(world);
    if (partitions > 1 || world->partitions > 1)
        error = partitions_replace(world, partitions);
    if (!error)
        error = vb_world_crew_make(world);
    if (!error && world->on_host->divided)
        error = world->on_host->divided(world->hosts_context);
    return error;
}

/* ---- what crosses ---------------------------------------------------------------------------- */

static void partition_pass(struct vb_world_partition *part, uint32_t node,
                           const struct vb_world_message *message)
{
    const struct vb_world *world = part->world;
    struct vb_world_box *box =
        &world->crew->box[part->number * world->partitions + world->node[node].partition];

    if (box->count == box->room && vb_world_box_grow(box))
        part->error = -ENOMEM;
    else
        box->message[box->count++] = *message;
}

void vb_world_tell(struct vb_world_partition *part, uint32_t node, uint64_t at, uint32_t what,
                   uint32_t index)
{
    if (part->node[node].partition == part->number) {
        vb_world_call(part, at, what, index);
        return;
    }
    partition_pass(
        part, node,
        &(struct vb_world_message){.kind = VB_WORLD_MESSAGE_CALL,
                                   .to = node,
                                   .call = {at, vb_world_what(VB_WORLD_CALL, what, index)}});
}

void vb_world_cross(struct vb_world_partition *part, struct vb_world_port *port, uint32_t packet)
{
    if (port->out_first != VB_WORLD_NONE) {
        vb_world_packet_at(part, port->out_last)->next = packet;
    } else {
        port->out_first = packet;
        partition_pass(
            part, part->port[port->peer].node,
            &(struct vb_world_message){.kind = VB_WORLD_MESSAGE_PACKETS, .to = port->peer});
    }
    port->out_last = packet;
}

void vb_world_cross_control(struct vb_world_partition *part, uint32_t to,
                            const struct vb_world_control *record)
{
    partition_pass(
        part, part->port[to].node,
        &(struct vb_world_message){.kind = VB_WORLD_MESSAGE_CONTROL, .to = to, .record = *record});
}

/* The packets that were sent to this port in the last window. */
static void take_packets(struct vb_world_partition *part, uint32_t number)
{
    struct vb_world_port *port = &part->port[number], *from = &part->port[port->peer];
    uint32_t first = from->out_first;

    from->out_first = VB_WORLD_NONE;
    if (port->arrive_first == VB_WORLD_NONE) {
        port->arrive_first = first;
        vb_world_add(part, vb_world_packet_at(part, first)->at, VB_WORLD_ARRIVE, 0, number);
    } else {
        vb_world_packet_at(part, port->arrive_last)->next = first;
    }
    port->arrive_last = from->out_last;
}

static void deliver(struct vb_world *world, const struct vb_world_message *message)
{
    uint32_t to = message->to;
    struct vb_world_partition *part = vb_world_partition_of(
        world, message->kind == VB_WORLD_MESSAGE_CALL ? to : world->port[to].node);

    switch (message->kind) {
    case VB_WORLD_MESSAGE_PACKETS:
        take_packets(part, to);
        break;
    case VB_WORLD_MESSAGE_CONTROL:
        vb_world_lanes_control_came(part, to, &message->record);
        break;
    default:
        ++part->idle;
        part->error = vb_world_agenda_add(&part->agenda, message->call.at, message->call.what)
                          ? -ENOMEM
                          : part->error;
    }
}

void vb_world_deliver(struct vb_world *world, uint32_t number)
{
    for (uint32_t i = 0; i < world->partitions; ++i) {
        struct vb_world_box *box = &world->crew->box[i * world->partitions + number];

        for (uint32_t k = 0; k < box->count; ++k)
            deliver(world, &box->message[k]);
        box->count = 0;
    }
}
