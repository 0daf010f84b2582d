// SPDX-License-Identifier: Apache-2.0
/*
 * The calls about address handles, also those that make one from a datagram's completion and GRH.
 * They check what depends on the device's GID table; hca/ah.c checks the rest.
 */
#include <endian.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <string.h>

#include "abi/calls.h"
#include "dropin/context.h"
#include "dropin/export.h"
#include "port/gid.h"

int vb_dropin_check_source(const struct ibv_context *context, const struct ibv_ah_attr *attr)
{
    const struct vb_adapter_port *port = vb_dropin_port_of(context, attr->port_num);
    struct vb_gid source;

    if (!port || !attr->is_global || /* vb_ah_check refuses these, with the reason */
        vb_port_addresses_get(port->addresses, attr->grh.sgid_index, &source))
        return 0;
    return vb_decline(vb_dropin_core(context), -ENODATA,
                      "sgid_index is {0}, and that entry of the port's GID table is empty: "
                      "`verbena devices` lists those in use",
                      attr->grh.sgid_index);
}

/* ibv_modify_qp finds that no route leads to such an address; for an address handle this is the
 * only check. */
static int check_destination(const struct ibv_pd *pd, const struct ibv_ah_attr *attr)
{
    static const union ibv_gid none;

    if (!attr->is_global || memcmp(&attr->grh.dgid, &none, sizeof(none)) != 0)
        return 0;
    if (attr->dlid)
        return vb_decline(vb_dropin_core(pd->context), -EINVAL,
                          "the address has the LID {0} (dlid), but is_global is 1, which makes it "
                          "that of its GID (grh.dgid), ::, which is no address: for an address by "
                          "LID set is_global to 0 (in Python is_global=False)",
                          attr->dlid);
    return vb_decline(vb_dropin_core(pd->context), -EINVAL,
                      "the address's GID (grh.dgid) is ::, which is no address: the peer chose a "
                      "GID index that is empty there, or told none; `verbena devices` on its host "
                      "lists those in use");
}

VB_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    struct vb_ah *ah;
    int error = VB_IF_OPEN(pd->context, vb_dropin_check_source(pd->context, attr));

    if (!error)
        error = check_destination(pd, attr);
    if (!error)
        error = vb_ah_create((struct vb_pd *)pd, attr, &ah);
    return error ? vb_dropin_failed_null(pd->context, "ibv_create_ah", error) : &ah->ibv;
}

VB_DESTROY(VB_EXPORT int, ibv_destroy_ah, "ibv_destroy_ah", ibv_ah, vb_ah, vb_ah_destroy)

/* Returns the index of the entry with this address, of the wanted type if there is one, or -1. */
static int ah_find_gid(struct vb_addresses *addresses, const uint8_t raw[16], enum vb_gid_type type)
{
    int other = -1;

    for (int i = 0; i < vb_port_addresses_count(addresses); ++i) {
        struct vb_gid gid;

        if (!vb_port_addresses_get(addresses, i, &gid) || memcmp(gid.raw, raw, 16) != 0)
            continue;
        if (gid.type == type)
            return i;
        other = i;
    }
    return other;
}

static int set_source(struct vb_addresses *addresses, const uint8_t raw[16], enum vb_gid_type type,
                      struct ibv_ah_attr *attr)
{
    int index = ah_find_gid(addresses, raw, type);

    if (index < 0)
        return -ENOENT;
    attr->grh.sgid_index = (uint8_t)index;
    return 0;
}

/* RoCE v2 over IPv4: the header fills the last 20 of the 40 bytes (IBA annex A17.4.5.2). */
static int answer_ipv4(struct vb_addresses *addresses, const struct ibv_grh *grh,
                       struct ibv_ah_attr *attr)
{
    uint8_t ours[16];
    struct iphdr ip;

    memcpy(&ip, (const uint8_t *)grh + 20, sizeof(ip));
    vb_wire_gid_of_ipv4(&ip.saddr, attr->grh.dgid.raw);
    vb_wire_gid_of_ipv4(&ip.daddr, ours);
    attr->grh.hop_limit = ip.ttl;
    attr->grh.traffic_class = ip.tos;
    return set_source(addresses, ours, VB_GID_ROCE_V2, attr);
}

static int answer_ipv6(struct vb_addresses *addresses, const struct ibv_grh *grh,
                       struct ibv_ah_attr *attr)
{
    uint32_t first = be32toh(grh->version_tclass_flow);

    attr->grh.dgid = grh->sgid;
    attr->grh.hop_limit = grh->hop_limit;
    attr->grh.traffic_class = (uint8_t)(first >> 20);
    attr->grh.flow_label = first & 0xfffff;
    return set_source(addresses, grh->dgid.raw,
                      grh->next_hdr == IPPROTO_UDP ? VB_GID_ROCE_V2 : VB_GID_ROCE_V1, attr);
}

static bool is_ipv6(const struct ibv_grh *grh)
{
    return be32toh(grh->version_tclass_flow) >> 28 == 6;
}

VB_EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
                                  struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
    const struct vb_adapter_port *port;
    struct vb_addresses *addresses;
    int error;

    if (!vb_dropin_core(context))
        return vb_dropin_failed_minus_one(context, "ibv_init_ah_from_wc", -VB_ERROR_FORKED);
    port = vb_dropin_port_of(context, port_num);
    if (!port)
        return vb_dropin_failed_minus_one(context, "ibv_init_ah_from_wc",
                                          vb_dropin_no_port(context, port_num));
    addresses = port->addresses;
    *attr = (struct ibv_ah_attr){
        .dlid = wc->slid,
        .sl = wc->sl,
        .src_path_bits = wc->dlid_path_bits,
        .port_num = port_num,
    };
    if (!(wc->wc_flags & IBV_WC_GRH))
        return 0;
    attr->is_global = 1;
    error = is_ipv6(grh) ? answer_ipv6(addresses, grh, attr) : answer_ipv4(addresses, grh, attr);
    if (!error)
        return 0;
    vb_decline(vb_dropin_core(context), error,
               "the datagram was sent to a GID that is none of this port's any more");
    return vb_dropin_failed_minus_one(context, "ibv_init_ah_from_wc", error);
}

VB_EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
                                               struct ibv_grh *grh, uint8_t port_num)
{
    struct ibv_ah_attr attr;

    if (ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attr))
        return NULL;
    return ibv_create_ah(pd, &attr);
}

/* The providers of adapters that build Ethernet headers call this; Verbena's device does not. */
VB_EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
                                          uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
    (void)context, (void)attr, (void)eth_mac, (void)vid;
    errno = EOPNOTSUPP;
    return -EOPNOTSUPP;
}
