// SPDX-License-Identifier: Apache-2.0
/*
 * Makes a path from a QP's or an address handle's attributes (path.h), and chooses the UDP source
 * port.
 */
#include "roce/path.h"

#include <errno.h>
#include <string.h>

#include "roce/state.h"

enum { HOP_LIMIT = 64 };

uint16_t vb_roce_source_port(uint32_t flow_label, uint32_t qp_num, uint32_t dest_qp_num)
{
    uint32_t label = flow_label & 0xfffff;

    if (label == 0) {
        uint64_t v = (uint64_t)qp_num * dest_qp_num;

        v ^= v >> 20;
        v ^= v >> 40;
        label = v & 0xfffff;
    }
    return (uint16_t)(0xc000 | ((label & 0x3fff) ^ label >> 14));
}

/*
 * The default GIDs are made from the GUID and are no addresses of the host, so no packet can have
 * one as its source.
 */
static int find_source(struct vb_addresses *addresses, const struct ibv_ah_attr *attr,
                       struct vb_gid *gid)
{
    if (!vb_port_addresses_get(addresses, attr->grh.sgid_index, gid) || gid->type != VB_GID_ROCE_V2)
        return -EINVAL;
    return vb_port_addresses_find(addresses, gid->raw) < 0 ? -ENETUNREACH : 0;
}

int vb_roce_path_make(struct vb_roce *roce, const struct vb_qp *qp, const struct ibv_ah_attr *attr,
                      uint32_t dest_qp_num, struct vb_path *path, uint32_t *interface)
{
    struct vb_gid source;
    const struct vb_adapter_port *port = vb_qp_port(qp);
    int error = find_source(port->addresses, attr, &source);
    uint16_t wanted = vb_roce_source_port(attr->grh.flow_label, qp->number, dest_qp_num);

    if (error)
        return error;
    memset(path, 0, sizeof(*path)); /* paths are compared as bytes */
    memcpy(path->sgid, source.raw, sizeof(path->sgid));
    memcpy(path->dgid, attr->grh.dgid.raw, sizeof(path->dgid));
    path->flow_label = attr->grh.flow_label & 0xfffff;
    path->source_port = vb_roce_udp_source_port(roce->udp, wanted);
    path->sgid_index = attr->grh.sgid_index;
    path->traffic_class = attr->grh.traffic_class;
    /* Many programs ask for 0 or 1, and Linux ignores them and takes the route's. */
    path->hop_limit = attr->grh.hop_limit > 1 ? attr->grh.hop_limit : HOP_LIMIT;
    path->sl = attr->sl;
    path->port = port->number;
    *interface = source.ndev_ifindex;
    return 0;
}
