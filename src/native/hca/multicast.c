// SPDX-License-Identifier: Apache-2.0
/*
 * The table of multicast groups in the segment. attach and detach change it under the lock GROUPS;
 * senders of any process read it without a lock and look at the group's `turn` before and after.
 */
#include "hca/multicast.h"

#include <errno.h>
#include <string.h>

#include "hca/decline.h"
#include "hca/host_calls.h"
#include "wire/headers.h"

/* ---- reading, from any process ---- */

enum { TRIES = 1000 }; /* after so many the owner has died, or was stopped, amid a change */

static uint32_t copy_members(const struct vb_group_shared *group, const uint8_t gid[16],
                             uint32_t members[VB_GROUP_QPS])
{
    uint32_t count = atomic_load_explicit(&group->count, memory_order_relaxed), kept = 0;

    if (memcmp(group->gid, gid, sizeof(group->gid)) != 0)
        return 0;
    for (uint32_t i = 0; i < count && i < VB_GROUP_QPS; ++i) {
        members[kept] = atomic_load_explicit(&group->member[i], memory_order_relaxed);
        kept += members[kept] < VB_MAX_QP; /* another process may have written the table */
    }
    return kept;
}

static uint32_t read_members(const struct vb_group_shared *group, const uint8_t gid[16],
                             uint32_t members[VB_GROUP_QPS])
{
    for (int i = 0; i < TRIES; ++i) {
        uint32_t turn = atomic_load_explicit(&group->turn, memory_order_acquire), count;

        count = copy_members(group, gid, members);
        atomic_thread_fence(memory_order_acquire);
        if (turn % 2 == 0 && atomic_load_explicit(&group->turn, memory_order_relaxed) == turn)
            return count;
    }
    return 0;
}

static uint32_t multicast_window_of(const struct vb_view *view)
{
    uint32_t window = atomic_load_explicit(&view->header->group_window, memory_order_acquire);

    return window < VB_MAX_GROUPS ? window : VB_MAX_GROUPS;
}

uint32_t vb_multicast_members(const struct vb_view *view, const uint8_t gid[16],
                              uint32_t members[VB_GROUP_QPS])
{
    uint32_t window = multicast_window_of(view), count = 0;

    for (uint32_t i = 0; i < window && !count; ++i)
        if (memcmp(view->group[i].gid, gid, 16) == 0)
            count = read_members(&view->group[i], gid, members);
    return count;
}

/* ---- changing, by the owner under adapter->groups ---- */

/* Peers can write to the table. */
static uint32_t count_of(const struct vb_group_shared *group)
{
    uint32_t count = atomic_load_explicit(&group->count, memory_order_relaxed);

    return count < VB_GROUP_QPS ? count : VB_GROUP_QPS;
}

static struct vb_group_shared *multicast_find(struct vb_adapter *adapter, const uint8_t gid[16])
{
    uint32_t window = multicast_window_of(&adapter->self);

    for (uint32_t i = 0; i < window; ++i) {
        struct vb_group_shared *group = &adapter->self.group[i];

        if (count_of(group) && memcmp(group->gid, gid, sizeof(group->gid)) == 0)
            return group;
    }
    return NULL;
}

static struct vb_group_shared *find_free(struct vb_adapter *adapter)
{
    for (uint32_t i = 0; i < VB_MAX_GROUPS; ++i)
        if (!count_of(&adapter->self.group[i]))
            return &adapter->self.group[i];
    return NULL;
}

/* The index of the QP among the members, or their count if it is none of them. */
static uint32_t multicast_place_of(const struct vb_group_shared *group, uint32_t index)
{
    uint32_t i = 0;

    while (i < count_of(group) && atomic_load(&group->member[i]) != index)
        ++i;
    return i;
}

static void begin_change(struct vb_group_shared *group)
{
    atomic_fetch_add(&group->turn, 1);
    atomic_thread_fence(memory_order_seq_cst);
}

static void end_change(struct vb_group_shared *group)
{
    atomic_fetch_add_explicit(&group->turn, 1, memory_order_release);
}

static void multicast_add(struct vb_adapter *adapter, struct vb_group_shared *group,
                          const uint8_t gid[16], uint32_t index)
{
    uint32_t place = (uint32_t)(group - adapter->self.group), count = count_of(group);

    begin_change(group);
    memcpy(group->gid, gid, sizeof(group->gid));
    atomic_store(&group->member[count], index);
    atomic_store(&group->count, count + 1);
    end_change(group);
    if (place >= multicast_window_of(&adapter->self))
        atomic_store(&adapter->self.header->group_window, place + 1);
}

static void multicast_take_out(struct vb_group_shared *group, uint32_t place)
{
    uint32_t last = count_of(group) - 1;

    begin_change(group);
    atomic_store(&group->member[place], atomic_load(&group->member[last]));
    atomic_store(&group->count, last);
    end_change(group);
}

static void multicast_leave(struct vb_adapter *adapter, const uint8_t gid[16])
{
    if (adapter->calls->leave)
        adapter->calls->leave(adapter, gid);
}

/* Waits for senders that had found the QP among the members and may be delivering to it. */
static void multicast_settle(struct vb_qp *qp)
{
    vb_barrier_everywhere();
    vb_qp_carrier(qp)->settle(qp);
}

static void remove_member(struct vb_qp *qp, struct vb_group_shared *group, uint32_t place)
{
    struct vb_adapter *adapter = qp->context->adapter;
    uint8_t gid[16];

    memcpy(gid, group->gid, sizeof(gid));
    multicast_take_out(group, place);
    --qp->groups;
    if (!count_of(group))
        multicast_leave(adapter, gid);
}

static int multicast_attach(struct vb_qp *qp, const uint8_t gid[16])
{
    struct vb_adapter *adapter = qp->context->adapter;
    struct vb_group_shared *group = multicast_find(adapter, gid);
    int error = 0;

    if (group && multicast_place_of(group, qp->index) != count_of(group))
        return 0;
    if (!group)
        group = find_free(adapter);
    if (!group)
        return vb_decline(qp->context, -ENOMEM, "this process is in {0} groups, and that is all",
                          VB_MAX_GROUPS);
    if (count_of(group) == VB_GROUP_QPS)
        return vb_decline(qp->context, -ENOMEM, "the group has {0} QPs of this process already",
                          VB_GROUP_QPS);
    multicast_add(adapter, group, gid, qp->index);
    ++qp->groups;
    if (adapter->calls->join)
        error = adapter->calls->join(qp, gid);
    if (error)
        remove_member(qp, group, multicast_place_of(group, qp->index));
    return error;
}

int vb_multicast_attach(struct vb_qp *qp, const uint8_t gid[16])
{
    struct vb_adapter *adapter = qp->context->adapter;
    int error;

    if (qp->type != IBV_QPT_UD)
        return vb_decline(qp->context, -EINVAL,
                          "only a UD QP can be in a multicast group, and this is {0t}", qp->type);
    if (!vb_wire_gid_is_multicast(gid))
        return vb_decline(qp->context, -EINVAL,
                          "the GID is no multicast group: ff…, or ::ffff:224.0.0.0/4 for IPv4");
    vb_lock_take(&adapter->groups);
    error = multicast_attach(qp, gid);
    vb_lock_release(&adapter->groups);
    return error;
}

int vb_multicast_detach(struct vb_qp *qp, const uint8_t gid[16])
{
    struct vb_adapter *adapter = qp->context->adapter;
    struct vb_group_shared *group;
    uint32_t place = 0;
    int error = 0;

    vb_lock_take(&adapter->groups);
    group = multicast_find(adapter, gid);
    if (group)
        place = multicast_place_of(group, qp->index);
    if (group && place != count_of(group))
        remove_member(qp, group, place);
    else
        error = vb_decline(qp->context, -EINVAL, "the QP is not attached to this group");
    vb_lock_release(&adapter->groups);
    if (!error)
        multicast_settle(qp);
    return error;
}

void vb_multicast_detach_all(struct vb_qp *qp)
{
    struct vb_adapter *adapter = qp->context->adapter;

    vb_lock_take(&adapter->groups);
    for (uint32_t i = 0; i < VB_MAX_GROUPS && qp->groups; ++i) {
        struct vb_group_shared *group = &adapter->self.group[i];
        uint32_t place = multicast_place_of(group, qp->index);

        if (place != count_of(group))
            remove_member(qp, group, place);
    }
    vb_lock_release(&adapter->groups);
    multicast_settle(qp);
}

void vb_multicast_each(struct vb_adapter *adapter,
                       void (*each)(void *argument, const uint8_t gid[16]), void *argument)
{
    vb_lock_take(&adapter->groups);
    for (uint32_t i = 0; i < multicast_window_of(&adapter->self); ++i)
        if (count_of(&adapter->self.group[i]))
            each(argument, adapter->self.group[i].gid);
    vb_lock_release(&adapter->groups);
}
