// SPDX-License-Identifier: Apache-2.0
/*
 * Multicast groups that programs are in: by address, while any of them is. Their numbers in the
 * fabric begin after those of flows' groups; the switches' tables are made anew when a host comes
 * or leaves.
 */
#include <errno.h>
#include <stdlib.h>

#include "sim/state.h"

struct vb_sim_meeting {
    uint8_t gid[16];
    uint32_t *member; /* nodes */
    uint32_t count, room;
};

static struct vb_sim_meeting *meeting_find(const struct vb_sim *sim, const uint8_t gid[16])
{
    for (uint32_t i = 0; i < sim->meetings; ++i)
        if (sim->meeting[i].count && memcmp(sim->meeting[i].gid, gid, 16) == 0)
            return &sim->meeting[i];
    return NULL;
}

/* NULL: there are too many, or no memory. */
static struct vb_sim_meeting *meeting_make(struct vb_sim *sim, const uint8_t gid[16])
{
    struct vb_sim_meeting *found = NULL;

    if (!sim->meeting)
        sim->meeting = calloc(VB_MAX_GROUPS, sizeof(*sim->meeting));
    if (!sim->meeting)
        return NULL;
    for (uint32_t i = 0; i < sim->meetings && !found; ++i)
        if (!sim->meeting[i].count)
            found = &sim->meeting[i];
    if (!found && sim->meetings < VB_MAX_GROUPS)
        found = &sim->meeting[sim->meetings++];
    if (found)
        memcpy(found->gid, gid, sizeof(found->gid));
    return found;
}

static uint32_t meeting_place_of(const struct vb_sim_meeting *meeting, uint32_t node)
{
    uint32_t i = 0;

    while (i < meeting->count && meeting->member[i] != node)
        ++i;
    return i;
}

static int meeting_add(struct vb_sim_meeting *meeting, uint32_t node)
{
    if (meeting->count == meeting->room) {
        uint32_t room = meeting->room ? 2 * meeting->room : 4;
        uint32_t *grown = realloc(meeting->member, room * sizeof(*grown));

        if (!grown)
            return -ENOMEM;
        meeting->member = grown;
        meeting->room = room;
    }
    meeting->member[meeting->count++] = node;
    return 0;
}

static uint32_t meeting_number_of(const struct vb_sim *sim, const struct vb_sim_meeting *meeting)
{
    return VB_MAX_GROUPS + (uint32_t)(meeting - sim->meeting);
}

static int set_tables(struct vb_sim *sim, const struct vb_sim_meeting *meeting)
{
    return vb_world_set_tree(sim->world, meeting_number_of(sim, meeting), meeting->member,
                             meeting->count);
}

int vb_sim_meeting_join(struct vb_sim *sim, const uint8_t gid[16], uint32_t host)
{
    struct vb_sim_meeting *meeting = meeting_find(sim, gid);
    uint32_t node = sim->host[host]->node;
    int error;

    if (meeting && meeting_place_of(meeting, node) != meeting->count)
        return 0;
    if (!meeting)
        meeting = meeting_make(sim, gid);
    error = meeting ? meeting_add(meeting, node) : -ENOMEM;
    if (error)
        return error;
    error = set_tables(sim, meeting);
    if (error)
        --meeting->count;
    return error;
}

void vb_sim_meeting_leave(struct vb_sim *sim, const uint8_t gid[16], uint32_t host)
{
    struct vb_sim_meeting *meeting = meeting_find(sim, gid);
    uint32_t place, count = meeting ? meeting->count : 0;

    place = meeting ? meeting_place_of(meeting, sim->host[host]->node) : 0;
    if (place == count)
        return;
    /* In their order: the first is where the tree begins. */
    memmove(meeting->member + place, meeting->member + place + 1,
            (count - place - 1) * sizeof(*meeting->member));
    --meeting->count;
    if (set_tables(sim, meeting) == -ENOMEM)
        sim->world->error = -ENOMEM;
}

uint16_t vb_sim_meeting_number(const struct vb_sim *sim, const uint8_t gid[16])
{
    const struct vb_sim_meeting *meeting = meeting_find(sim, gid);

    return meeting ? (uint16_t)meeting_number_of(sim, meeting) : UINT16_MAX;
}

void vb_sim_meetings_free(struct vb_sim *sim)
{
    for (uint32_t i = 0; i < sim->meetings; ++i)
        free(sim->meeting[i].member);
    free(sim->meeting);
}
