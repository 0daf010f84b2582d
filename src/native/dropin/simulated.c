// SPDX-License-Identifier: Apache-2.0
#include "dropin/simulated.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dropin/context.h"
#include "dropin/device.h"
#include "dropin/export.h"
#include "dropin/verbena.h"
#include "memory/process_heap.h"
#include "sim/connect.h"

struct vb_simulated {
    struct verbs_device device; /* first */
    struct vb_jack *jack;
    struct vb_connect *connect; /* while there are contexts */
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
    return vb_sim_jack_guid(simulated->jack->host);
}

int vb_dropin_simulated_open(struct vb_simulated *simulated, struct vb_connect **connect)
{
    int error = 0;

    if (!simulated->contexts)
        error = vb_sim_connect_open(simulated->jack, vb_memory_process_heap(), &simulated->connect);
    if (error)
        return error;
    ++simulated->contexts;
    *connect = simulated->connect;
    return 0;
}

void vb_dropin_simulated_close(struct vb_simulated *simulated)
{
    if (--simulated->contexts)
        return;
    vb_sim_connect_close(simulated->connect);
    simulated->connect = NULL;
}

VB_EXPORT int verbena_plug(struct vb_jack *jack, const char *name, struct ibv_device **device)
{
    struct vb_simulated *made;

    if (jack->version != VB_JACK_VERSION)
        return -EPROTO;
    if (strlen(name) >= sizeof(made->device.device.name))
        return -ENAMETOOLONG;
    made = calloc(1, sizeof(*made));
    if (!made)
        return -ENOMEM;
    made->device.device.node_type = IBV_NODE_CA;
    made->device.device.transport_type = IBV_TRANSPORT_IB;
    strcpy(made->device.device.name, name);
    made->device.ops = simulated_ops;
    made->device.refcount = 1;
    made->device.entry.next = made->device.entry.prev = &made->device.entry;
    made->jack = jack;
    *device = &made->device.device;
    return 0;
}

VB_EXPORT void verbena_unplug(struct ibv_device *device)
{
    free(vb_dropin_simulated_of(device));
}

static struct vb_connect *connect_of(struct ibv_context *context)
{
    return vb_dropin_core(context) ? vb_dropin_open_of(context)->simulated : NULL;
}

VB_EXPORT int verbena_step(struct ibv_context *context, uint64_t until)
{
    struct vb_connect *connect = connect_of(context);

    return connect ? vb_sim_connect_step(connect, until) : -EOPNOTSUPP;
}

VB_EXPORT uint64_t verbena_world_time(struct ibv_context *context)
{
    struct vb_connect *connect = connect_of(context);

    return connect ? vb_sim_connect_now(connect) : UINT64_MAX;
}

VB_EXPORT int verbena_keep_events(struct ibv_comp_channel *channel, int keep)
{
    if (!vb_dropin_core(channel->context))
        return -VB_ERROR_FORKED;
    if (!connect_of(channel->context))
        return -EOPNOTSUPP;
    return vb_channel_keep((struct vb_channel *)channel, keep);
}

VB_EXPORT uint32_t verbena_kept_events(const struct ibv_comp_channel *channel)
{
    return ((const struct vb_channel *)channel)->kept;
}
