// SPDX-License-Identifier: Apache-2.0
/*
 * The multicast groups of programs. A group has a GID and a list of members, and exists while it
 * has one. Its number in the fabric comes after those of flows' groups. The switches' tables are
 * computed again whenever a host joins or leaves (attachment.c).
 *
 * Ports of one adapter may be in networks that are not connected: then a GID is a group in each.
 */
#include <errno.h>
#include <stdlib.h>

#include "sim/state.h"

struct vb_sim_program_group {
    uint8_t gid[16];
    uint32_t *member; /* nodes */
    uint32_t count, room;
};

static bool is_in_reach(const struct vb_sim *sim, const struct vb_sim_program_group *group,
                        const struct vb_sim_host *host)
{
    uint32_t first = group->member[0];

    return first == host->node ||
           !vb_world_reaches(sim->world, host->node, sim->world->node[first].host);
}

/*
 * The group of this GID that the host can reach. If it reaches none, a host with one port gets the
 * first group of the GID, since joining that says why it fails.
 */
static struct vb_sim_program_group *
program_group_find(const struct vb_sim *sim, const uint8_t gid[16], const struct vb_sim_host *host)
{
    struct vb_sim_program_group *first = NULL;
    bool is_alone = host->attachment->ports == 1;

    for (uint32_t i = 0; i < sim->program_groups; ++i) {
        struct vb_sim_program_group *group = &sim->program_group[i];

        if (!group->count || memcmp(group->gid, gid, 16) != 0)
            continue;
        if ((is_alone && !sim->groups_are_split) || is_in_reach(sim, group, host))
            return group;
        if (!first && is_alone)
            first = group;
    }
    return first;
}

/* NULL: there are too many groups, or no memory. */
static struct vb_sim_program_group *program_group_make(struct vb_sim *sim, const uint8_t gid[16])
{
    struct vb_sim_program_group *found = NULL;

    if (!sim->program_group)
        sim->program_group = calloc(VB_MAX_GROUPS, sizeof(*sim->program_group));
    if (!sim->program_group)
        return NULL;
    for (uint32_t i = 0; i < sim->program_groups && !found; ++i)
        if (!sim->program_group[i].count)
            found = &sim->program_group[i];
    if (!found && sim->program_groups < VB_MAX_GROUPS)
        found = &sim->program_group[sim->program_groups++];
    if (found)
        memcpy(found->gid, gid, sizeof(found->gid));
    return found;
}

static uint32_t program_group_place_of(const struct vb_sim_program_group *group, uint32_t node)
{
    uint32_t i = 0;

    while (i < group->count && group->member[i] != node)
        ++i;
    return i;
}

static int program_group_add(struct vb_sim_program_group *group, uint32_t node)
{
    if (group->count == group->room) {
        uint32_t room = group->room ? 2 * group->room : 4;
        uint32_t *grown = realloc(group->member, room * sizeof(*grown));

        if (!grown)
            return -ENOMEM;
        group->member = grown;
        group->room = room;
    }
    group->member[group->count++] = node;
    return 0;
}

static uint32_t program_group_number_of(const struct vb_sim *sim,
                                        const struct vb_sim_program_group *group)
{
    return VB_MAX_GROUPS + (uint32_t)(group - sim->program_group);
}

static int set_tables(struct vb_sim *sim, const struct vb_sim_program_group *group)
{
    return vb_world_set_tree(sim->world, program_group_number_of(sim, group), group->member,
                             group->count);
}

int vb_sim_program_group_join(struct vb_sim *sim, const uint8_t gid[16], uint32_t host)
{
    struct vb_sim_program_group *group = program_group_find(sim, gid, sim->host[host]);
    uint32_t node = sim->host[host]->node;
    int error;

    if (group && program_group_place_of(group, node) != group->count)
        return 0;
    if (!group) {
        group = program_group_make(sim, gid);
        sim->groups_are_split |= sim->host[host]->attachment->ports > 1;
    }
    error = group ? program_group_add(group, node) : -ENOMEM;
    if (error)
        return error;
    error = set_tables(sim, group);
    if (error)
        --group->count;
    return error;
}

void vb_sim_program_group_leave(struct vb_sim *sim, const uint8_t gid[16], uint32_t host)
{
    struct vb_sim_program_group *group = program_group_find(sim, gid, sim->host[host]);
    uint32_t place, count = group ? group->count : 0;

    place = group ? program_group_place_of(group, sim->host[host]->node) : 0;
    if (place == count)
        return;
    /* The order stays, since the first member is the tree's root. */
    memmove(group->member + place, group->member + place + 1,
            (count - place - 1) * sizeof(*group->member));
    --group->count;
    if (set_tables(sim, group) == -ENOMEM)
        sim->world->error = -ENOMEM;
}

uint16_t vb_sim_program_group_number(const struct vb_sim *sim, const uint8_t gid[16], uint32_t host)
{
    const struct vb_sim_program_group *group = program_group_find(sim, gid, sim->host[host]);

    return group ? (uint16_t)program_group_number_of(sim, group) : UINT16_MAX;
}

void vb_sim_program_groups_free(struct vb_sim *sim)
{
    for (uint32_t i = 0; i < sim->program_groups; ++i)
        free(sim->program_group[i].member);
    free(sim->program_group);
}
