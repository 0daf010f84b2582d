// SPDX-License-Identifier: Apache-2.0
/*
 * Multicast groups of flows. Each member host has a UD queue pair that is attached to the group as
 * a program's is (hca/multicast.h). Only hosts that are in a group have the tables for it. The
 * Python binding adds groups.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "hca/multicast.h"
#include "sim/state.h"

/* A host's own header, which counts its groups, and its table of groups. */
struct tables {
    struct vb_segment_header header;
    struct vb_group_shared group[VB_MAX_GROUPS];
};

static int open_tables(struct vb_sim_host *host)
{
    struct tables *made;

    if (host->groups)
        return 0;
    made = mmap(NULL, sizeof(*made), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED)
        return -ENOMEM;
    memcpy(&made->header, host->sim->header, sizeof(made->header));
    host->groups = made;
    host->adapter.self.header = &made->header;
    host->adapter.self.group = made->group;
    return 0;
}

void vb_sim_groups_free(struct vb_sim_host *host)
{
    if (host->groups)
        munmap(host->groups, sizeof(struct tables));
}

static int sim_groups_join(struct vb_sim_host *host, uint32_t group)
{
    struct vb_sim_qp *qp;
    uint8_t gid[16];
    int error = open_tables(host);

    if (!error)
        error = vb_sim_qp_create(host, IBV_QPT_UD, 0, vb_sim_qp_number(host), &qp);
    if (error)
        return error;
    qp->flow = VB_WORLD_NONE;
    vb_sim_qp_receives(qp);
    vb_sim_write_group(gid, group);
    return vb_multicast_attach(&qp->qp, gid);
}

int vb_sim_add_group(struct vb_sim *sim, const uint32_t *hosts, uint32_t count, uint32_t *group)
{
    int error = 0;

    *group = sim->groups++;
    sim->group_size[*group] = count;
    for (uint32_t i = 0; i < count && !error; ++i)
        error = sim_groups_join(sim->host[hosts[i]], *group);
    return error;
}

uint32_t vb_sim_group_receivers(const struct vb_sim *sim, uint32_t group, uint32_t source)
{
    const struct vb_sim_host *host = sim->host[source];
    uint32_t members[VB_GROUP_QPS];
    uint8_t gid[16];
    bool is_member;

    vb_sim_write_group(gid, group);
    is_member = host->groups && vb_multicast_members(&host->adapter.self, gid, members);
    return sim->group_size[group] - is_member;
}
