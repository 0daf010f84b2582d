// SPDX-License-Identifier: Apache-2.0
/*
 * Devices, ports and GIDs: their attributes and capabilities. Part of verbs.h. What a program
 * passes to a query may be shorter or longer than the structure here, so each extended query has
 * its size with it.
 */
#ifndef VB_ABI_DEVICE_H
#define VB_ABI_DEVICE_H

#include <linux/types.h>
#include <stddef.h>
#include <stdint.h>

struct ibv_context;
struct ibv_device;

union ibv_gid {
    uint8_t raw[16];
    struct {
        __be64 subnet_prefix;
        __be64 interface_id;
    } global;
};

enum ibv_gid_type {
    IBV_GID_TYPE_IB = 0,
    IBV_GID_TYPE_ROCE_V1 = 1,
    IBV_GID_TYPE_ROCE_V2 = 2,
};

struct ibv_gid_entry {
    union ibv_gid gid;
    uint32_t gid_index;
    uint32_t port_num;
    uint32_t gid_type;     /* enum ibv_gid_type */
    uint32_t ndev_ifindex; /* 0: no network interface */
};

enum ibv_node_type {
    IBV_NODE_UNKNOWN = -1,
    IBV_NODE_CA = 1,
    IBV_NODE_SWITCH = 2,
    IBV_NODE_ROUTER = 3,
    IBV_NODE_RNIC = 4,
    IBV_NODE_USNIC = 5,
    IBV_NODE_USNIC_UDP = 6,
    IBV_NODE_UNSPECIFIED = 7,
};

enum ibv_transport_type {
    IBV_TRANSPORT_UNKNOWN = -1,
    IBV_TRANSPORT_IB = 0,
    IBV_TRANSPORT_IWARP = 1,
    IBV_TRANSPORT_USNIC = 2,
    IBV_TRANSPORT_USNIC_UDP = 3,
    IBV_TRANSPORT_UNSPECIFIED = 4,
};

/* The two slots in front were never used; they keep the offsets. */
struct _ibv_device_ops {
    struct ibv_context *(*_dummy1)(struct ibv_device *, int);
    void (*_dummy2)(struct ibv_context *);
};

enum { IBV_SYSFS_NAME_MAX = 64, IBV_SYSFS_PATH_MAX = 256 };

struct ibv_device {
    struct _ibv_device_ops _ops;
    enum ibv_node_type node_type;
    enum ibv_transport_type transport_type;
    char name[IBV_SYSFS_NAME_MAX];       /* verbena0 */
    char dev_name[IBV_SYSFS_NAME_MAX];   /* uverbs0 */
    char dev_path[IBV_SYSFS_PATH_MAX];   /* …/class/infiniband_verbs/uverbs0 */
    char ibdev_path[IBV_SYSFS_PATH_MAX]; /* …/class/infiniband/verbena0 */
};

enum ibv_device_cap_flags {
    IBV_DEVICE_RESIZE_MAX_WR = 1 << 0,
    IBV_DEVICE_BAD_PKEY_CNTR = 1 << 1,
    IBV_DEVICE_BAD_QKEY_CNTR = 1 << 2,
    IBV_DEVICE_RAW_MULTI = 1 << 3,
    IBV_DEVICE_AUTO_PATH_MIG = 1 << 4,
    IBV_DEVICE_CHANGE_PHY_PORT = 1 << 5,
    IBV_DEVICE_UD_AV_PORT_ENFORCE = 1 << 6,
    IBV_DEVICE_CURR_QP_STATE_MOD = 1 << 7,
    IBV_DEVICE_SHUTDOWN_PORT = 1 << 8,
    IBV_DEVICE_INIT_TYPE = 1 << 9,
    IBV_DEVICE_PORT_ACTIVE_EVENT = 1 << 10,
    IBV_DEVICE_SYS_IMAGE_GUID = 1 << 11,
    IBV_DEVICE_RC_RNR_NAK_GEN = 1 << 12,
    IBV_DEVICE_SRQ_RESIZE = 1 << 13,
    IBV_DEVICE_N_NOTIFY_CQ = 1 << 14,
    IBV_DEVICE_MEM_WINDOW = 1 << 17,
    IBV_DEVICE_UD_IP_CSUM = 1 << 18,
    IBV_DEVICE_XRC = 1 << 20,
    IBV_DEVICE_MEM_MGT_EXTENSIONS = 1 << 21,
    IBV_DEVICE_MEM_WINDOW_TYPE_2A = 1 << 23,
    IBV_DEVICE_MEM_WINDOW_TYPE_2B = 1 << 24,
    IBV_DEVICE_RC_IP_CSUM = 1 << 25,
    IBV_DEVICE_RAW_IP_CSUM = 1 << 26,
    IBV_DEVICE_MANAGED_FLOW_STEERING = 1 << 29,
};

/* Only in device_cap_flags_ex. */
#define IBV_DEVICE_RAW_SCATTER_FCS       (1ULL << 34)
#define IBV_DEVICE_PCI_WRITE_END_PADDING (1ULL << 36)
#define IBV_DEVICE_FLUSH_GLOBAL          (1ULL << 38)
#define IBV_DEVICE_FLUSH_PERSISTENT      (1ULL << 39)
#define IBV_DEVICE_ATOMIC_WRITE          (1ULL << 40)
#define IBV_DEVICE_CC_DMA_BOUNCE         (1ULL << 41)

enum ibv_fork_status {
    IBV_FORK_DISABLED = 0,
    IBV_FORK_ENABLED = 1,
    IBV_FORK_UNNEEDED = 2,
};

enum ibv_atomic_cap {
    IBV_ATOMIC_NONE = 0,
    IBV_ATOMIC_HCA = 1,
    IBV_ATOMIC_GLOB = 2,
};

struct ibv_device_attr {
    char fw_ver[64];
    __be64 node_guid;
    __be64 sys_image_guid;
    uint64_t max_mr_size;
    uint64_t page_size_cap;
    uint32_t vendor_id;
    uint32_t vendor_part_id;
    uint32_t hw_ver;
    int max_qp;
    int max_qp_wr;
    unsigned int device_cap_flags;
    int max_sge;
    int max_sge_rd;
    int max_cq;
    int max_cqe;
    int max_mr;
    int max_pd;
    int max_qp_rd_atom;
    int max_ee_rd_atom;
    int max_res_rd_atom;
    int max_qp_init_rd_atom;
    int max_ee_init_rd_atom;
    enum ibv_atomic_cap atomic_cap;
    int max_ee;
    int max_rdd;
    int max_mw;
    int max_raw_ipv6_qp;
    int max_raw_ethy_qp;
    int max_mcast_grp;
    int max_mcast_qp_attach;
    int max_total_mcast_qp_attach;
    int max_ah;
    int max_fmr;
    int max_map_per_fmr;
    int max_srq;
    int max_srq_wr;
    int max_srq_sge;
    uint16_t max_pkeys;
    uint8_t local_ca_ack_delay;
    uint8_t phys_port_cnt;
};

struct ibv_query_device_ex_input {
    uint32_t comp_mask;
};

enum ibv_odp_general_caps {
    IBV_ODP_SUPPORT = 1 << 0,
    IBV_ODP_SUPPORT_IMPLICIT = 1 << 1,
};

enum ibv_odp_transport_cap_bits {
    IBV_ODP_SUPPORT_SEND = 1 << 0,
    IBV_ODP_SUPPORT_RECV = 1 << 1,
    IBV_ODP_SUPPORT_WRITE = 1 << 2,
    IBV_ODP_SUPPORT_READ = 1 << 3,
    IBV_ODP_SUPPORT_ATOMIC = 1 << 4,
    IBV_ODP_SUPPORT_SRQ_RECV = 1 << 5,
    IBV_ODP_SUPPORT_FLUSH = 1 << 6,
    IBV_ODP_SUPPORT_ATOMIC_WRITE = 1 << 7,
};

struct ibv_odp_caps {
    uint64_t general_caps;
    struct {
        uint32_t rc_odp_caps;
        uint32_t uc_odp_caps;
        uint32_t ud_odp_caps;
    } per_transport_caps;
};

struct ibv_tso_caps {
    uint32_t max_tso;
    uint32_t supported_qpts;
};

enum ibv_rx_hash_function_flags {
    IBV_RX_HASH_FUNC_TOEPLITZ = 1 << 0,
};

enum ibv_rx_hash_fields {
    IBV_RX_HASH_SRC_IPV4 = 1 << 0,
    IBV_RX_HASH_DST_IPV4 = 1 << 1,
    IBV_RX_HASH_SRC_IPV6 = 1 << 2,
    IBV_RX_HASH_DST_IPV6 = 1 << 3,
    IBV_RX_HASH_SRC_PORT_TCP = 1 << 4,
    IBV_RX_HASH_DST_PORT_TCP = 1 << 5,
    IBV_RX_HASH_SRC_PORT_UDP = 1 << 6,
    IBV_RX_HASH_DST_PORT_UDP = 1 << 7,
    IBV_RX_HASH_IPSEC_SPI = 1 << 8,
    IBV_RX_HASH_INNER = 1UL << 31,
};

struct ibv_rss_caps {
    uint32_t supported_qpts;
    uint32_t max_rwq_indirection_tables;
    uint32_t max_rwq_indirection_table_size;
    uint64_t rx_hash_fields_mask;
    uint8_t rx_hash_function;
};

struct ibv_packet_pacing_caps {
    uint32_t qp_rate_limit_min; /* kbit/s */
    uint32_t qp_rate_limit_max;
    uint32_t supported_qpts;
};

enum ibv_raw_packet_caps {
    IBV_RAW_PACKET_CAP_CVLAN_STRIPPING = 1 << 0,
    IBV_RAW_PACKET_CAP_SCATTER_FCS = 1 << 1,
    IBV_RAW_PACKET_CAP_IP_CSUM = 1 << 2,
    IBV_RAW_PACKET_CAP_DELAY_DROP = 1 << 3,
};

enum ibv_tm_cap_flags {
    IBV_TM_CAP_RC = 1 << 0,
};

struct ibv_tm_caps {
    uint32_t max_rndv_hdr_size;
    uint32_t max_num_tags;
    uint32_t flags;
    uint32_t max_ops;
    uint32_t max_sge;
};

struct ibv_cq_moderation_caps {
    uint16_t max_cq_count;
    uint16_t max_cq_period; /* µs */
};

enum ibv_pci_atomic_op_size {
    IBV_PCI_ATOMIC_OPERATION_4_BYTE_SIZE_SUP = 1 << 0,
    IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP = 1 << 1,
    IBV_PCI_ATOMIC_OPERATION_16_BYTE_SIZE_SUP = 1 << 2,
};

struct ibv_pci_atomic_caps {
    uint16_t fetch_add;
    uint16_t swap;
    uint16_t compare_swap;
};

struct ibv_device_attr_ex {
    struct ibv_device_attr orig_attr;
    uint32_t comp_mask;
    struct ibv_odp_caps odp_caps;
    uint64_t completion_timestamp_mask;
    uint64_t hca_core_clock; /* kHz */
    uint64_t device_cap_flags_ex;
    struct ibv_tso_caps tso_caps;
    struct ibv_rss_caps rss_caps;
    uint32_t max_wq_type_rq;
    struct ibv_packet_pacing_caps packet_pacing_caps;
    uint32_t raw_packet_caps;
    struct ibv_tm_caps tm_caps;
    struct ibv_cq_moderation_caps cq_mod_caps;
    uint64_t max_dm_size;
    struct ibv_pci_atomic_caps pci_atomic_caps;
    uint32_t xrc_odp_caps;
    uint32_t phys_port_cnt_ex;
};

enum ibv_mtu {
    IBV_MTU_256 = 1,
    IBV_MTU_512 = 2,
    IBV_MTU_1024 = 3,
    IBV_MTU_2048 = 4,
    IBV_MTU_4096 = 5,
};

enum ibv_port_state {
    IBV_PORT_NOP = 0,
    IBV_PORT_DOWN = 1,
    IBV_PORT_INIT = 2,
    IBV_PORT_ARMED = 3,
    IBV_PORT_ACTIVE = 4,
    IBV_PORT_ACTIVE_DEFER = 5,
};

enum {
    IBV_LINK_LAYER_UNSPECIFIED = 0,
    IBV_LINK_LAYER_INFINIBAND = 1,
    IBV_LINK_LAYER_ETHERNET = 2,
};

enum ibv_port_cap_flags {
    IBV_PORT_SM = 1 << 1,
    IBV_PORT_NOTICE_SUP = 1 << 2,
    IBV_PORT_TRAP_SUP = 1 << 3,
    IBV_PORT_OPT_IPD_SUP = 1 << 4,
    IBV_PORT_AUTO_MIGR_SUP = 1 << 5,
    IBV_PORT_SL_MAP_SUP = 1 << 6,
    IBV_PORT_MKEY_NVRAM = 1 << 7,
    IBV_PORT_PKEY_NVRAM = 1 << 8,
    IBV_PORT_LED_INFO_SUP = 1 << 9,
    IBV_PORT_SYS_IMAGE_GUID_SUP = 1 << 11,
    IBV_PORT_PKEY_SW_EXT_PORT_TRAP_SUP = 1 << 12,
    IBV_PORT_EXTENDED_SPEEDS_SUP = 1 << 14,
    IBV_PORT_CAP_MASK2_SUP = 1 << 15,
    IBV_PORT_CM_SUP = 1 << 16,
    IBV_PORT_SNMP_TUNNEL_SUP = 1 << 17,
    IBV_PORT_REINIT_SUP = 1 << 18,
    IBV_PORT_DEVICE_MGMT_SUP = 1 << 19,
    IBV_PORT_VENDOR_CLASS_SUP = 1 << 20,
    IBV_PORT_DR_NOTICE_SUP = 1 << 21,
    IBV_PORT_CAP_MASK_NOTICE_SUP = 1 << 22,
    IBV_PORT_BOOT_MGMT_SUP = 1 << 23,
    IBV_PORT_LINK_LATENCY_SUP = 1 << 24,
    IBV_PORT_CLIENT_REG_SUP = 1 << 25,
    IBV_PORT_IP_BASED_GIDS = 1 << 26,
};

enum ibv_port_cap_flags2 {
    IBV_PORT_SET_NODE_DESC_SUP = 1 << 0,
    IBV_PORT_INFO_EXT_SUP = 1 << 1,
    IBV_PORT_VIRT_SUP = 1 << 2,
    IBV_PORT_SWITCH_PORT_STATE_TABLE_SUP = 1 << 3,
    IBV_PORT_LINK_WIDTH_2X_SUP = 1 << 4,
    IBV_PORT_LINK_SPEED_HDR_SUP = 1 << 5,
    IBV_PORT_LINK_SPEED_NDR_SUP = 1 << 10,
    IBV_PORT_LINK_SPEED_XDR_SUP = 1 << 12,
};

/* In ibv_port_attr.flags: address handles need a GRH, as on every RoCE port. */
#define IBV_QPF_GRH_REQUIRED (1 << 0)

struct ibv_port_attr {
    enum ibv_port_state state;
    enum ibv_mtu max_mtu;
    enum ibv_mtu active_mtu;
    int gid_tbl_len;
    uint32_t port_cap_flags;
    uint32_t max_msg_sz;
    uint32_t bad_pkey_cntr;
    uint32_t qkey_viol_cntr;
    uint16_t pkey_tbl_len;
    uint16_t lid;
    uint16_t sm_lid;
    uint8_t lmc;
    uint8_t max_vl_num;
    uint8_t sm_sl;
    uint8_t subnet_timeout;
    uint8_t init_type_reply;
    uint8_t active_width;
    uint8_t active_speed;
    uint8_t phys_state;
    uint8_t link_layer;
    uint8_t flags;
    uint16_t port_cap_flags2;
    uint32_t active_speed_ex; /* from rdma-core 60 on */
};

/* What the exported ibv_query_port fills: the first 48 bytes, and not one more. */
struct _compat_ibv_port_attr {
    enum ibv_port_state state;
    enum ibv_mtu max_mtu;
    enum ibv_mtu active_mtu;
    int gid_tbl_len;
    uint32_t port_cap_flags;
    uint32_t max_msg_sz;
    uint32_t bad_pkey_cntr;
    uint32_t qkey_viol_cntr;
    uint16_t pkey_tbl_len;
    uint16_t lid;
    uint16_t sm_lid;
    uint8_t lmc;
    uint8_t max_vl_num;
    uint8_t sm_sl;
    uint8_t subnet_timeout;
    uint8_t init_type_reply;
    uint8_t active_width;
    uint8_t active_speed;
    uint8_t phys_state;
    uint8_t link_layer;
    uint8_t flags;
};

#endif
