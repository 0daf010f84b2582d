// SPDX-License-Identifier: Apache-2.0
/*
 * Makes and destroys a simulated fabric with its hosts, and answers questions about it. The Python
 * binding calls it.
 */
#include "sim/sim.h"

#include <errno.h>
#include <stdlib.h>

#include "hca/counters.h"
#include "sim/state.h"
#include "sim/tcp.h"

struct vb_sim_config vb_sim_defaults(void)
{
    return (struct vb_sim_config){
        .framing = VB_SIM_ETHERNET,
        .mtu = 4096,
        .timeout = 14,
        .retry_cnt = 7,
        .rd_atomic = 16,
        .engine = {.ack_bytes = 1, .burst = 1},
        .nic = {.congestion = {.notice_interval = 50000000}},
        .tcp = vb_tcp_defaults(),
        .tcp_jitter = VB_SIM_JITTER_AUTO,
    };
}

int vb_sim_create(const struct vb_sim_config *config, struct vb_sim **sim)
{
    struct vb_sim *made = calloc(1, sizeof(*made));
    int error;

    if (!made)
        return -ENOMEM;
    made->config = *config;
    made->door_first = VB_WORLD_NONE;
    error = vb_world_create(config->seed, &vb_sim_host_calls, made, &made->world);
    if (!error)
        error = vb_sim_common_create(made);
    if (!error)
        made->world->hop_limit = config->hop_limit;
    if (!error && config->nic.congestion.kind == VB_CONGESTION_HPCC)
        error = vb_world_trace(made->world);
    if (error) {
        vb_sim_destroy(made);
        return error;
    }
    *sim = made;
    return 0;
}

void vb_sim_destroy(struct vb_sim *sim)
{
    vb_sim_captures_free(sim);
    vb_sim_tcp_free(sim);
    vb_sim_flows_free(sim);
    vb_sim_attachments_free(sim);
    for (uint32_t i = 0; i < sim->hosts; ++i)
        vb_sim_host_destroy(sim->host[i]);
    free(sim->host);
    vb_sim_common_destroy(sim);
    if (sim->world)
        vb_world_destroy(sim->world);
    free(sim);
}

struct vb_world *vb_sim_world(struct vb_sim *sim)
{
    return sim->world;
}

int vb_sim_keep_whole(struct vb_sim *sim)
{
    if (sim->world->is_whole)
        return 0;
    sim->world->is_whole = sim->world->is_divided_anew = true;
    return vb_world_divide(sim->world);
}

static int reserve_host(struct vb_sim *sim)
{
    struct vb_sim_host **grown;

    if (sim->hosts & (sim->hosts - 1))
        return 0;
    grown = realloc(sim->host, (sim->hosts ? 2 * (size_t)sim->hosts : 1) * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    sim->host = grown;
    return 0;
}

int vb_sim_add_host(struct vb_sim *sim, uint32_t *node)
{
    struct vb_sim_host *host;
    int error = reserve_host(sim);

    if (!error)
        error = vb_sim_host_create(sim, &host);
    if (error)
        return error;
    error = vb_world_add_host(sim->world, node);
    if (error) {
        vb_sim_host_destroy(host);
        return error;
    }
    host->nic.node = *node;
    host->nic.number = sim->hosts;
    host->framing = sim->config.framing;
    sim->host[sim->hosts++] = host;
    return 0;
}

int vb_sim_set_framing(struct vb_sim *sim, uint32_t host, enum vb_sim_framing framing)
{
    if (host >= sim->hosts || sim->host[host]->attachment)
        return -EINVAL;
    sim->host[host]->framing = framing;
    return 0;
}

int vb_sim_set_nic(struct vb_sim *sim, uint32_t host, const struct vb_nic_config *config)
{
    struct vb_nic_config *made = malloc(sizeof(*made));

    if (!made)
        return -ENOMEM;
    *made = *config;
    sim->host[host]->own_config = made;
    sim->host[host]->nic.config = made;
    return 0;
}

const struct vb_counters *vb_sim_host_counters(const struct vb_sim *sim, uint32_t host)
{
    return vb_engine_counters(sim->host[host]->engine);
}

const struct vb_sim_cct_log *vb_sim_host_cct_log(const struct vb_sim *sim, uint32_t host)
{
    return sim->host[host]->log;
}

const struct vb_sim_flow *vb_sim_flows(const struct vb_sim *sim, uint64_t *count)
{
    *count = sim->flows;
    return sim->flow;
}

uint64_t vb_sim_flows_left(const struct vb_sim *sim)
{
    uint64_t left = sim->flows;

    for (uint32_t i = 0; i < sim->shares; ++i)
        left -= sim->share[i]->flows_ended;
    return left;
}

uint64_t vb_sim_host_bytes(void)
{
    return sizeof(struct vb_sim_host) + sizeof(struct vb_engine);
}
