// SPDX-License-Identifier: Apache-2.0
/*
 * Multicast groups, which in RoCE v2 are IP's. A program attaches a QP to a group and names no
 * interface, so the socket joins the group on every interface that has an address of its IP
 * version. Calls exclude each other by adapter->groups.
 */
#include <errno.h>
#include <string.h>

#include "hca/multicast.h"
#include "roce/state.h"

/*
 * Is the group to be joined on the interface of the GID at this index? Several GIDs may have the
 * same one.
 */
static bool is_wanted(const struct vb_roce *roce, struct vb_addresses *addresses, int index,
                      bool ipv4, uint32_t *interface)
{
    struct vb_gid gid;

    if (!vb_port_addresses_get(addresses, index, &gid) || vb_wire_gid_is_ipv4(gid.raw) != ipv4 ||
        gid.type != VB_GID_ROCE_V2 || vb_port_addresses_find(addresses, gid.raw) < 0)
        return false;
    *interface = gid.ndev_ifindex;
    /* Without `loop` nothing that is sent to a group comes back to this host. */
    return roce->config.loop || strcmp(gid.ndev, "lo") != 0;
}

static int join_on(struct vb_roce *roce, struct vb_addresses *addresses, const uint8_t group[16])
{
    int count = vb_port_addresses_count(addresses), error = 0;
    uint32_t interface;

    for (int n = 0; n < count && !error; ++n) {
        if (!is_wanted(roce, addresses, n, vb_wire_gid_is_ipv4(group), &interface))
            continue;
        error = vb_roce_udp_join(roce->udp, group, interface);
        /* It has been joined there already, or the interface has just gone. */
        if (error == -EADDRINUSE || error == -ENODEV)
            error = 0;
    }
    return error;
}

/* Joins on the interfaces of all ports, as a QP of any of them may be in the group. */
static int roce_groups_join(struct vb_roce *roce, const uint8_t group[16])
{
    const struct vb_adapter *adapter = roce->config.adapter;
    int error = 0;

    for (int i = 0; i < adapter->port_count && !error; ++i)
        error = join_on(roce, adapter->ports[i].addresses, group);
    return error;
}

int vb_roce_join(struct vb_roce *roce, struct vb_qp *qp, const uint8_t group[16])
{
    int error = roce_groups_join(roce, group);

    if (!error)
        vb_qp_count_poller(qp, true);
    switch (error) {
    case -ENOBUFS:
        return -ENOMEM;
    case -ENOPROTOOPT:
        return -EAFNOSUPPORT;
    default:
        return error;
    }
}

static void leave_on(struct vb_roce *roce, struct vb_addresses *addresses, const uint8_t group[16])
{
    int count = vb_port_addresses_count(addresses);
    uint32_t interface;

    for (int n = 0; n < count; ++n)
        if (is_wanted(roce, addresses, n, vb_wire_gid_is_ipv4(group), &interface))
            vb_roce_udp_leave(roce->udp, group, interface);
}

void vb_roce_leave_group(struct vb_roce *roce, const uint8_t group[16])
{
    const struct vb_adapter *adapter = roce->config.adapter;

    for (int i = 0; i < adapter->port_count; ++i)
        leave_on(roce, adapter->ports[i].addresses, group);
}

static void join_one(void *argument, const uint8_t group[16])
{
    roce_groups_join(argument, group);
}

void vb_roce_join_again(struct vb_roce *roce)
{
    vb_multicast_each(roce->config.adapter, join_one, roce);
}
