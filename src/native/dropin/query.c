// SPDX-License-Identifier: Apache-2.0
/*
 * The queries of a device, its ports, GIDs and P_Keys. preload/paths shows the same values in
 * sysfs; both take them from port/gid.h and port/ports.h.
 */
#include "dropin/query.h"

#include <endian.h>
#include <string.h>

#include "abi/calls.h"
#include "dropin/context.h"
#include "dropin/export.h"
#include "dropin/settings.h"
#include "port/fabric.h"
#include "port/gid.h"

enum {
    WIDTH_4X = 2, /* VB_PORT_RATE */
    SPEED_EDR = 32,
    RATE_100MBPS = 1000,
    PHYS_DISABLED = 3,
    PHYS_LINK_UP = 5,
    ACK_DELAY = 8, /* 4.096 µs · 2^8 = 1 ms: a peer's thread that waits for its turn */
    VENDOR_NONE = 0xffffff,
    PAGE_SIZES = 0xfffff000,
    CLOCK_KHZ = 1000 * 1000, /* nanoseconds */
    CAPS = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
        IBV_DEVICE_BAD_QKEY_CNTR | IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_XRC | IBV_DEVICE_MEM_WINDOW |
        IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS,
    PACED = 1 << IBV_QPT_RC | 1 << IBV_QPT_UC | 1 << IBV_QPT_XRC_SEND,
    ODP_UD = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV,
    ODP_UC = ODP_UD | IBV_ODP_SUPPORT_WRITE,
    ODP_RC = ODP_UC | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_FLUSH |
        IBV_ODP_SUPPORT_ATOMIC_WRITE,
};

/* Regions and windows share one table, which is smaller where the system limits the size of files
 * (hca/adapter.c). */
static int regions_most(struct ibv_context *context)
{
    const struct vb_context *core = vb_dropin_core(context);

    return core ? (int)core->adapter->keys.entries / 2 : VB_MAX_MR;
}

static uint8_t port_count(struct ibv_context *context)
{
    const struct vb_context *core = vb_dropin_core(context);

    return core ? core->adapter->port_count : 1;
}

static void fill_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    struct ibv_device *device = context->device;

    *attr = (struct ibv_device_attr){
        .fw_ver = VB_FIRMWARE,
        .node_guid = ibv_get_device_guid(device),
        .sys_image_guid = ibv_get_device_guid(device),
        .max_mr_size = UINT64_MAX,
        .page_size_cap = PAGE_SIZES,
        .vendor_id = VENDOR_NONE,
        .vendor_part_id = vb_dropin_settings()->part_id,
        .max_qp = VB_MAX_QP,
        .max_qp_wr = VB_MAX_WR,
        .device_cap_flags = CAPS,
        .max_sge = VB_MAX_SGE,
        .max_sge_rd = VB_MAX_SGE,
        .max_cq = VB_MAX_CQ,
        .max_cqe = VB_MAX_CQE,
        .max_mr = regions_most(context),
        .max_mw = regions_most(context),
        .max_pd = VB_MAX_PD,
        .max_qp_rd_atom = VB_MAX_RD_ATOMIC,
        .max_res_rd_atom = VB_MAX_RD_ATOMIC * VB_MAX_QP,
        .max_qp_init_rd_atom = VB_MAX_RD_ATOMIC,
        .atomic_cap = IBV_ATOMIC_HCA,
        .max_mcast_grp = VB_MAX_GROUPS,
        .max_mcast_qp_attach = VB_GROUP_QPS,
        .max_total_mcast_qp_attach = VB_MAX_GROUPS * VB_GROUP_QPS,
        .max_ah = VB_MAX_AH,
        .max_srq = VB_MAX_SRQ,
        .max_srq_wr = VB_MAX_WR,
        .max_srq_sge = VB_MAX_SGE,
        .max_pkeys = VB_MAX_PKEYS,
        .local_ca_ack_delay = ACK_DELAY,
        .phys_port_cnt = port_count(context),
    };
}

/* A forked child may ask this of its parent's context, too. */
int vb_dropin_query_device_ex(struct ibv_context *context,
                              const struct ibv_query_device_ex_input *input,
                              struct ibv_device_attr_ex *attr, size_t attr_size)
{
    struct ibv_device_attr_ex all = {
        .odp_caps = {IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT, {ODP_RC, ODP_UC, ODP_UD}},
        .completion_timestamp_mask = UINT64_MAX,
        .hca_core_clock = CLOCK_KHZ,
        .device_cap_flags_ex =
            CAPS | IBV_DEVICE_FLUSH_GLOBAL | IBV_DEVICE_FLUSH_PERSISTENT | IBV_DEVICE_ATOMIC_WRITE,
        .packet_pacing_caps = {VB_RATE_MIN, VB_RATE_MAX, PACED},
        .cq_mod_caps = {UINT16_MAX, UINT16_MAX},
        .phys_port_cnt_ex = port_count(context),
        .xrc_odp_caps = ODP_RC,
        .max_dm_size = VB_DM_BYTES,
    };

    if ((input && input->comp_mask) || attr_size < sizeof(all.orig_attr))
        return vb_dropin_failed(context, "ibv_query_device_ex", -EINVAL);
    fill_device(context, &all.orig_attr);
    memset(attr, 0, attr_size);
    memcpy(attr, &all, attr_size < sizeof(all) ? attr_size : sizeof(all));
    return 0;
}

/* The clock's count is in tv_nsec, as other adapters with such a clock give it. */
int vb_dropin_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
    struct vb_context *core = vb_dropin_core(context);

    if (!core)
        return vb_dropin_failed(context, "ibv_query_rt_values", -VB_ERROR_FORKED);
    if (values->comp_mask & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK)
        return EINVAL;
    if (values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK)
        values->raw_clock =
            (struct timespec){.tv_nsec = (long)core->adapter->calls->now(core->adapter)};
    return 0;
}

VB_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    fill_device(context, attr);
    return 0;
}

/* enum ibv_mtu counts powers of two from 256. */
static enum ibv_mtu mtu_of(uint16_t bytes)
{
    return (enum ibv_mtu)(__builtin_ctz(bytes) - 7);
}

/* Ethernet: with room for addresses that come. */
static uint32_t gid_count(const struct vb_adapter_port *port)
{
    return port->in_fabric ? VB_FABRIC_GIDS : port->infiniband ? 1 : VB_GID_MAX;
}

static void query_fill_port(const struct vb_adapter *adapter, const struct vb_adapter_port *port,
                            struct ibv_port_attr *attr)
{
    const struct vb_port_shared *counters = &adapter->self.header->port[port->number - 1];
    bool active = vb_port_addresses_active(port->addresses);

    *attr = (struct ibv_port_attr){
        .state = active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
        .max_mtu = IBV_MTU_4096,
        .active_mtu = mtu_of(vb_port_addresses_port_mtu(port->addresses)),
        .gid_tbl_len = (int)gid_count(port),
        .port_cap_flags = IBV_PORT_CM_SUP, /* VB_PORT_CAP_MASK */
        .max_msg_sz = INT32_MAX,
        .qkey_viol_cntr = atomic_load(&counters->qkey_violations),
        .bad_pkey_cntr = atomic_load(&counters->pkey_violations),
        .pkey_tbl_len = VB_MAX_PKEYS,
        .max_vl_num = 1,
        .active_width = WIDTH_4X,
        .active_speed = SPEED_EDR,
        .phys_state = active ? PHYS_LINK_UP : PHYS_DISABLED,
        .lid = port->lid,
        .lmc = port->lmc,
        .sm_lid =
            port->lid, /* as if a subnet manager ran here: programs look whether there is one */
        .link_layer = port->infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET,
        .flags = port->infiniband ? 0 : IBV_QPF_GRH_REQUIRED,
        .active_speed_ex = SPEED_EDR,
    };
    if (port->in_fabric) {
        struct vb_fabric_port now;

        vb_port_fabric_read(port->in_fabric, &now);
        now.attr.qkey_viol_cntr += attr->qkey_viol_cntr;
        now.attr.bad_pkey_cntr += attr->bad_pkey_cntr;
        *attr = now.attr;
    }
}

VB_COLD int vb_dropin_no_port(struct ibv_context *context, uint32_t port_num)
{
    uint32_t count = port_count(context);

    if (count == 1)
        return vb_decline(vb_dropin_core(context), -EINVAL,
                          "ports count from 1 and the device has one: {0} is none", port_num);
    return vb_decline(vb_dropin_core(context), -EINVAL,
                      "ports count from 1 and the device has {1}: {0} is none", port_num, count);
}

/* A caller's struct has 52 bytes, 56 bytes or more, by the version of its headers. */
int vb_dropin_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr,
                         size_t attr_size)
{
    const struct vb_context *core = vb_dropin_core(context);
    const struct vb_adapter_port *port;
    struct ibv_port_attr all;

    if (!core)
        return vb_dropin_failed(context, "ibv_query_port", -VB_ERROR_FORKED);
    port = vb_dropin_port_of(context, port_num);
    if (!port)
        return vb_dropin_failed(context, "ibv_query_port", vb_dropin_no_port(context, port_num));
    query_fill_port(core->adapter, port, &all);
    memset(attr, 0, attr_size);
    memcpy(attr, &all, attr_size < sizeof(all) ? attr_size : sizeof(all));
    return 0;
}

VB_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port_num,
                             struct _compat_ibv_port_attr *attr)
{
    return vb_dropin_query_port(context, port_num, (struct ibv_port_attr *)attr, sizeof(*attr));
}

VB_EXPORT int ibv_query_port_speed(struct ibv_context *context, uint32_t port_num,
                                   uint64_t *port_speed)
{
    const struct vb_adapter_port *port;

    if (!vb_dropin_core(context))
        return vb_dropin_failed(context, "ibv_query_port_speed", -VB_ERROR_FORKED);
    port = vb_dropin_port_of(context, port_num);
    if (!port)
        return vb_dropin_failed(context, "ibv_query_port_speed",
                                vb_dropin_no_port(context, port_num));
    *port_speed = port->in_fabric ? port->in_fabric->speed : RATE_100MBPS;
    return 0;
}

/* ---- GIDs ---- */

/* Returns 0, EINVAL for an index outside the table, or ENODATA for an empty entry. */
static int query_find_gid(struct ibv_context *context, uint32_t port_num, uint32_t index,
                          struct vb_gid *gid)
{
    const struct vb_adapter_port *port;

    if (!vb_dropin_core(context))
        return VB_ERROR_FORKED;
    port = vb_dropin_port_of(context, port_num);
    if (!port) {
        vb_dropin_no_port(context, port_num);
        return EINVAL;
    }
    if (index >= gid_count(port)) {
        vb_decline(vb_dropin_core(context), -EINVAL,
                   "port {0} has no GID index {1}: it has {2} entries (gid_tbl_len), and `verbena "
                   "devices` lists those in use",
                   port_num, index, gid_count(port));
        return EINVAL;
    }
    return vb_port_addresses_get(port->addresses, (int)index, gid) ? 0 : ENODATA;
}

/* Programs ask for each index to find those in use, so only the first empty one is logged. */
static VB_COLD int failed_gid(struct ibv_context *context, const char *call, uint32_t port_num,
                              uint32_t index, int error)
{
    if (error != ENODATA)
        return vb_dropin_failed(context, call, -error);
    vb_decline(
        vb_dropin_core(context), -ENODATA,
        "GID index {0} is empty, as those beyond {1} are: the end of the table, for who looks "
        "through it; `verbena devices` lists those in use",
        index,
        (unsigned)vb_port_addresses_count(vb_dropin_port_of(context, port_num)->addresses) - 1);
    return vb_dropin_failed_once(context, call, -ENODATA);
}

static int minus_one(int error)
{
    errno = error;
    return -1;
}

VB_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index,
                            union ibv_gid *gid)
{
    struct vb_gid found;
    int error = query_find_gid(context, port_num, (uint32_t)index, &found);

    if (error && error != ENODATA)
        return vb_dropin_failed_minus_one(context, "ibv_query_gid", -error);
    if (error) /* the kernel shows an empty entry as zeros */
        memset(gid->raw, 0, sizeof(gid->raw));
    else
        memcpy(gid->raw, found.raw, sizeof(gid->raw));
    return 0;
}

int vb_dropin_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
                             unsigned int *type)
{
    struct vb_gid found;
    int error = query_find_gid(context, port_num, index, &found);

    if (error) {
        failed_gid(context, "ibv_query_gid_type", port_num, index, error);
        return -1;
    }
    *type = found.type;
    return 0;
}

static enum ibv_gid_type query_type_of(const struct vb_adapter_port *port, const struct vb_gid *gid)
{
    if (port->infiniband)
        return IBV_GID_TYPE_IB;
    return gid->type == VB_GID_ROCE_V1 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
}

static void fill_entry(const struct vb_adapter_port *port, const struct vb_gid *gid, uint32_t index,
                       struct ibv_gid_entry *entry)
{
    memcpy(entry->gid.raw, gid->raw, sizeof(entry->gid.raw));
    entry->gid_index = index;
    entry->port_num = port->number;
    entry->gid_type = query_type_of(port, gid);
    entry->ndev_ifindex = gid->ndev_ifindex;
}

/* The entries of a caller with newer headers may be longer than this library's. */
static void put_entry(const struct vb_adapter_port *port, const struct vb_gid *gid, uint32_t index,
                      void *to, size_t size)
{
    struct ibv_gid_entry entry;

    fill_entry(port, gid, index, &entry);
    memset(to, 0, size);
    memcpy(to, &entry, sizeof(entry));
}

VB_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
                                struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
    struct vb_gid found;
    int error = query_find_gid(context, port_num, gid_index, &found);

    if (flags)
        return vb_dropin_failed(context, "ibv_query_gid_ex", -EOPNOTSUPP);
    if (entry_size < sizeof(*entry))
        return vb_dropin_failed(context, "ibv_query_gid_ex", -EINVAL);
    if (error)
        return failed_gid(context, "ibv_query_gid_ex", port_num, gid_index, error);
    put_entry(vb_dropin_port_of(context, port_num), &found, gid_index, entry, entry_size);
    return 0;
}

/* Writes the entries of one port that are in use. Returns how many, or -EINVAL if `most` is too
 * few. */
static ssize_t put_entries(const struct vb_adapter_port *port, char *to, size_t most, size_t size)
{
    struct vb_gid gid;
    size_t filled = 0;

    for (int i = 0; i < vb_port_addresses_count(port->addresses); ++i) {
        if (!vb_port_addresses_get(port->addresses, i, &gid))
            continue;
        if (filled == most)
            return -EINVAL;
        put_entry(port, &gid, (uint32_t)i, to + filled++ * size, size);
    }
    return (ssize_t)filled;
}

VB_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                                       size_t max_entries, uint32_t flags, size_t entry_size)
{
    const struct vb_adapter_port *port;
    char *at = (char *)entries;
    ssize_t filled, sum = 0;

    if (!vb_dropin_core(context))
        return -VB_ERROR_FORKED;
    if (flags || entry_size < sizeof(*entries))
        return -vb_dropin_failed(context, "ibv_query_gid_table", flags ? -EOPNOTSUPP : -EINVAL);
    for (uint32_t number = 1; (port = vb_dropin_port_of(context, number)) != NULL; ++number) {
        filled = put_entries(port, at, max_entries - (size_t)sum, entry_size);
        if (filled < 0)
            return -vb_dropin_failed(context, "ibv_query_gid_table",
                                     vb_decline(vb_dropin_core(context), -EINVAL,
                                                "max_entries is {0}, and more entries are in use",
                                                max_entries));
        sum += filled;
        at += (size_t)filled * entry_size;
    }
    return sum;
}

/* ---- partition keys ---- */

VB_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
{
    const struct vb_adapter_port *port;

    if (!vb_dropin_core(context))
        return vb_dropin_failed_minus_one(context, "ibv_query_pkey", -VB_ERROR_FORKED);
    port = vb_dropin_port_of(context, port_num);
    if (!port || index < 0 || index >= VB_MAX_PKEYS)
        return vb_dropin_failed_minus_one(
            context, "ibv_query_pkey",
            vb_decline(vb_dropin_core(context), -EINVAL,
                       "port {0} has no P_Key index {1}: ports count from 1 to {2}, and each has 0 "
                       "to {3} (pkey_tbl_len)",
                       port_num, (unsigned)index, port_count(context), VB_MAX_PKEYS - 1u));
    *pkey = htobe16(port->pkeys[index]); /* 0 for an empty entry, as the kernel has it */
    return 0;
}

VB_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
    __be16 entry;

    for (int i = 0; i < VB_MAX_PKEYS; ++i) {
        if (ibv_query_pkey(context, port_num, i, &entry))
            return -1;
        if (entry == pkey)
            return i;
    }
    return minus_one(ENOENT);
}
