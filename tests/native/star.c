// SPDX-License-Identifier: Apache-2.0
#include "star.h"

#include <stdlib.h>

#include "check.h"
#include "event/switch.h"
#include "hca/layout.h"
#include "routes.h"
#include "sim/state.h"

/* The star's one group, whichever its GID: packets go to all hosts of the switch. */
static int star_group(void *context, const uint8_t gid[16], uint32_t host, bool joins)
{
    const struct star *star = context;
    struct vb_world_switch *sw = vb_sim_world(star->sim)->node[0].sw;
    uint16_t ports[64];

    for (uint16_t i = 0; i < sw->config.ports; ++i)
        ports[i] = i;
    memcpy(star->sim->program_group[0].gid, gid, 16);
    star->sim->program_group[0].first = joins ? host : VB_WORLD_NONE;
    star->sim->program_groups = 1;
    return vb_world_switch_set_group(sw, VB_MAX_GROUPS, ports, sw->config.ports);
}

void star_open(struct star *star, uint32_t hosts, uint64_t rate, uint64_t delay)
{
    struct vb_sim_config config = vb_sim_defaults();
    struct vb_world_switch_config switch_config = {.ports = hosts};
    struct vb_world_link link = {.rate = rate, .delay = delay};
    int32_t *ports = calloc(hosts, sizeof(*ports));
    struct vb_world_switch *sw;
    uint32_t center, node;

    config.framing = VB_SIM_BARE;
    CHECK_EQ(vb_sim_create(&config, &star->sim), 0);
    CHECK_EQ(vb_world_switch_create(&switch_config, &sw), 0);
    CHECK_EQ(vb_world_add_switch(vb_sim_world(star->sim), sw, &center), 0);
    for (uint32_t i = 0; i < hosts; ++i) {
        ports[i] = (int32_t)i;
        CHECK_EQ(vb_sim_add_host(star->sim, &node), 0);
        CHECK_EQ(vb_world_connect(vb_sim_world(star->sim), node, 0, center, i, &link), 0);
    }
    CHECK_EQ(vb_world_set_routes(vb_sim_world(star->sim), sw, ports, hosts, 1), 0);
    free(ports);
    CHECK(hosts <= 64);
    star->sim->on_group = star_group;
    star->sim->on_group_context = star;
}

void star_close(struct star *star)
{
    vb_sim_destroy(star->sim);
}

struct vb_sim_attachment *star_attachment(struct star *star, uint32_t host)
{
    struct vb_sim_page *page = calloc(1, sizeof(*page));
    struct vb_sim_attachment *made;

    CHECK(page);
    *page = (struct vb_sim_page){.ports = 1, .mtu = 4096, .at_once = true, .patience = 1};
    page->port[0] = (struct vb_sim_page_port){
        .host = host, .notice_level = VB_NIC_OWN_LEVEL, .pkeys = {VB_PKEY_DEFAULT}, .rate = 1};
    CHECK_EQ(vb_sim_attach(star->sim, page, &made), 0);
    return made;
}

uint64_t star_now(const struct star *star)
{
    return vb_sim_world(star->sim)->now;
}
