// SPDX-License-Identifier: Apache-2.0
/*
 * The numbers of programs' multicast groups, which come after those of flows' groups. The Python
 * binding knows the members, and names a group here by its GID and its first member whenever a host
 * joins or leaves (verbena.sim.groups). attachment.c asks for the number of each packet's group.
 *
 * Ports of one adapter may be in networks that are not connected: then a GID is a group in each.
 */
#include "sim/state.h"

static bool is_in_reach(const struct vb_sim *sim, const struct vb_sim_program_group *group,
                        const struct vb_sim_host *host)
{
    return group->first == host->nic.number ||
           !vb_world_reaches(sim->world, host->nic.node,
                             vb_sim_address(sim->host[group->first], 0));
}

uint16_t vb_sim_program_group_number(const struct vb_sim *sim, const uint8_t gid[16], uint32_t host)
{
    uint16_t first = UINT16_MAX;
    bool is_alone = sim->host[host]->attachment->page->ports == 1;

    for (uint32_t i = 0; i < sim->program_groups; ++i) {
        const struct vb_sim_program_group *group = &sim->program_group[i];

        if (group->first == VB_WORLD_NONE || memcmp(group->gid, gid, 16) != 0)
            continue;
        if ((is_alone && !sim->groups_are_split) || is_in_reach(sim, group, sim->host[host]))
            return (uint16_t)(VB_MAX_GROUPS + i);
        if (first == UINT16_MAX && is_alone)
            first = (uint16_t)(VB_MAX_GROUPS + i);
    }
    return first;
}
