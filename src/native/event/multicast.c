// SPDX-License-Identifier: Apache-2.0
/*
 * Multicast and flooding in switches: a packet leaves by all ports of its group but the one by
 * which it came. A packet that came on a lane with credits or pauses is in the input's buffer once,
 * until its last copy has left: the packet itself becomes the keeper of the room, and counts its
 * copies.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "event/switch.h"
#include "event/telemetry.h"

int vb_world_switch_set_group(struct vb_world_switch *sw, uint32_t number, const uint16_t *ports,
                              uint32_t count)
{
    struct vb_world_group *group;
    uint16_t *copy;

    if (number >= sw->groups) {
        group = realloc(sw->group, (number + 1) * sizeof(*group));
        if (!group)
            return -ENOMEM;
        memset(group + sw->groups, 0, (number + 1 - sw->groups) * sizeof(*group));
        sw->group = group;
        sw->groups = number + 1;
    }
    copy = malloc((count ? count : 1) * sizeof(*copy));
    if (!copy)
        return -ENOMEM;
    if (count)
        memcpy(copy, ports, count * sizeof(*copy));
    free(sw->group[number].port);
    sw->group[number] = (struct vb_world_group){copy, count};
    return 0;
}

/* The n-th port of the group; VB_WORLD_NONE: it has no link, or the packet came by it. */
static uint32_t multicast_way(const struct vb_world_switch *sw, const struct vb_world_group *group,
                              uint32_t n, uint32_t in)
{
    uint32_t port = sw->port[group->port[n]];

    return port == in ? VB_WORLD_NONE : port;
}

static uint32_t ways(const struct vb_world_switch *sw, const struct vb_world_group *group,
                     uint32_t in)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < group->count; ++i)
        count += multicast_way(sw, group, i, in) != VB_WORLD_NONE;
    return count;
}

/* False `another`: the original goes no further. VB_WORLD_NONE: no memory. */
static uint32_t copy_of(struct vb_world_partition *part, uint32_t packet, bool another)
{
    uint32_t copy = vb_world_pool_take(&part->pool);

    if (copy == VB_WORLD_NONE) {
        part->error = -ENOMEM;
        return copy;
    }
    *vb_world_packet_at(part, copy) = *vb_world_packet_at(part, packet);
    if (part->world->traces)
        vb_world_telemetry_copy(part, copy, packet);
    part->copied += another;
    if (part->on_host->copied)
        part->on_host->copied(part->hosts_context, part, packet, copy, another);
    return copy;
}

/* Copies that take room each; the packet is the last of them. */
static void copy_to_ports(struct vb_world_partition *part, struct vb_world_switch *sw,
                          const struct vb_world_group *group, uint32_t in, uint32_t packet,
                          uint32_t left)
{
    for (uint32_t i = 0; left; ++i) {
        uint32_t out = multicast_way(sw, group, i, in), passed;

        if (out == VB_WORLD_NONE)
            continue;
        passed = --left ? copy_of(part, packet, true) : packet;
        if (passed == VB_WORLD_NONE)
            return;
        vb_world_switch_forward(part, sw, in, out, passed);
    }
}

/* Copies of a packet that keeps its room in the input's buffer. */
static void copy_with_keeper(struct vb_world_partition *part, struct vb_world_switch *sw,
                             const struct vb_world_group *group, uint32_t in, uint32_t packet,
                             uint32_t count)
{
    struct vb_world_packet *kept = vb_world_packet_at(part, packet);
    bool another = false;

    if (!vb_world_switch_admit(part, sw, &part->port[in], NULL, 0, packet))
        return;
    kept->input = part->port[in].number;
    kept->copies = count;
    ++part->kept; /* its first copy is no additional packet */
    for (uint32_t i = 0; i < group->count; ++i) {
        uint32_t out = multicast_way(sw, group, i, in), copy;

        if (out == VB_WORLD_NONE)
            continue;
        copy = copy_of(part, packet, another);
        another = true;
        if (copy == VB_WORLD_NONE)
            return;
        vb_world_packet_at(part, copy)->keeper = packet;
        vb_world_packet_at(part, copy)->level_marks |= VB_WORLD_COPY;
        vb_world_switch_forward(part, sw, in, out, copy);
    }
}

static void replicate(struct vb_world_partition *part, struct vb_world_switch *sw,
                      const struct vb_world_group *group, uint32_t in, uint32_t packet)
{
    const struct vb_world_packet *at = vb_world_packet_at(part, packet);
    const struct vb_world_port *port = &part->port[in];
    uint32_t count = group ? ways(sw, group, in) : 0;
    enum vb_world_flow_control flow_control =
        port->lanes ? port->lanes->lane[at->lane].input_flow_control : VB_WORLD_LOSSY;
    uint32_t through = vb_world_switch_through(part->world, sw, in);

    if (through != VB_WORLD_NONE)
        vb_world_switch_forward(part, sw, in, through, packet);
    else if (!count)
        vb_world_switch_discard(part, &part->port[in], packet, VB_WORLD_DROP_ROUTE);
    else if (count > 1 && (flow_control == VB_WORLD_CREDITS || flow_control == VB_WORLD_PAUSES))
        copy_with_keeper(part, sw, group, in, packet, count);
    else
        copy_to_ports(part, sw, group, in, packet, count);
}

void vb_world_switch_replicate(struct vb_world_partition *part, struct vb_world_switch *sw,
                               uint32_t in, uint32_t packet)
{
    uint32_t target = vb_world_packet_at(part, packet)->target;

    replicate(part, sw, target < sw->groups ? &sw->group[target] : NULL, in, packet);
}

void vb_world_switch_flood(struct vb_world_partition *part, struct vb_world_switch *sw, uint32_t in,
                           uint32_t packet)
{
    vb_world_packet_at(part, packet)->flags |= VB_WORLD_FLOODED;
    replicate(part, sw, &sw->everywhere, in, packet);
}

void vb_world_switch_copy_left(struct vb_world_partition *part, struct vb_world_switch *sw,
                               uint32_t keeper, uint64_t at)
{
    struct vb_world_packet *kept = vb_world_packet_at(part, keeper);

    if (--kept->copies)
        return;
    vb_world_switch_left(part, sw, kept->input, kept->lane, kept->bytes, false, at);
    --part->kept;
    vb_world_pool_give(&part->pool, keeper);
}
