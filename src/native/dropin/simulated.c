// SPDX-License-Identifier: Apache-2.0
/*
 * Devices of simulated hosts (simulated.h), and the calls of Verbena's own about their world.
 */
#include "dropin/simulated.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dropin/context.h"
#include "dropin/export.h"
#include "dropin/verbena.h"
#include "dropin/verbs_device.h"
#include "memory/process_heap.h"
#include "sim/addresses.h"
#include "sim/hca.h"

struct vb_simulated {
    struct verbs_device device; /* first: an ibv_device leads to it */
    struct vb_sim_attachment *attachment;
    struct vb_sim_hca *hca; /* the adapter, while contexts are open */
    uint32_t contexts;
};

static const char simulated_ops[1]; /* only its address counts */

struct vb_simulated *vb_dropin_simulated_of(const struct ibv_device *device)
{
    struct vb_simulated *simulated = (struct vb_simulated *)(uintptr_t)device;

    return simulated->device.ops == simulated_ops ? simulated : NULL;
}

uint64_t vb_dropin_simulated_guid(const struct vb_simulated *simulated)
{
    return vb_sim_host_guid(simulated->attachment->page->port[0].host);
}

int vb_dropin_simulated_open(struct vb_simulated *simulated, struct vb_sim_hca **hca)
{
    int error = 0;

    if (!simulated->contexts)
        error = vb_sim_hca_open(simulated->attachment, vb_memory_process_heap(), &simulated->hca);
    if (error)
        return error;
    ++simulated->contexts;
    *hca = simulated->hca;
    return 0;
}

void vb_dropin_simulated_close(struct vb_simulated *simulated)
{
    if (--simulated->contexts)
        return;
    vb_sim_hca_close(simulated->hca);
    simulated->hca = NULL;
}

VB_EXPORT int verbena_attach(struct vb_sim_attachment *attachment, const char *name,
                             struct ibv_device **device)
{
    struct vb_simulated *made;

    if (attachment->page->version != VB_SIM_PROTOCOL_VERSION)
        return -EPROTO;
    if (strlen(name) >= sizeof(made->device.device.name))
        return -ENAMETOOLONG;
    made = calloc(1, sizeof(*made));
    if (!made)
        return -ENOMEM;
    vb_dropin_device_init(&made->device, simulated_ops);
    strcpy(made->device.device.name, name);
    made->attachment = attachment;
    *device = &made->device.device;
    return 0;
}

VB_EXPORT void verbena_detach(struct ibv_device *device)
{
    free(vb_dropin_simulated_of(device));
}

static struct vb_sim_hca *simulated_hca_of(struct ibv_context *context)
{
    return vb_dropin_core(context) ? vb_dropin_open_of(context)->simulated : NULL;
}

VB_EXPORT int verbena_step(struct ibv_context *context, uint64_t until)
{
    struct vb_sim_hca *hca = simulated_hca_of(context);

    return hca ? vb_sim_hca_step(hca, until) : -EOPNOTSUPP;
}

VB_EXPORT uint64_t verbena_world_time(struct ibv_context *context)
{
    struct vb_sim_hca *hca = simulated_hca_of(context);

    return hca ? vb_sim_hca_now(hca) : UINT64_MAX;
}

VB_EXPORT uint64_t verbena_written_time(struct ibv_context *context)
{
    struct vb_sim_hca *hca = simulated_hca_of(context);

    return hca ? vb_sim_hca_written(hca) : UINT64_MAX;
}

VB_EXPORT int verbena_keep_events(struct ibv_comp_channel *channel, int keep)
{
    if (!vb_dropin_core(channel->context))
        return -VB_ERROR_FORKED;
    if (!simulated_hca_of(channel->context))
        return -EOPNOTSUPP;
    return vb_channel_keep((struct vb_channel *)channel, keep);
}

VB_EXPORT uint32_t verbena_raised_events(struct ibv_comp_channel *ibv, int all)
{
    struct vb_channel *channel = (struct vb_channel *)ibv;

    if (all)
        channel->raised = channel->events;
    return (int32_t)(channel->raised - channel->taken) > 0 ? channel->raised - channel->taken : 0;
}

VB_EXPORT uint32_t verbena_kept_events(const struct ibv_comp_channel *channel)
{
    return ((const struct vb_channel *)channel)->kept;
}
