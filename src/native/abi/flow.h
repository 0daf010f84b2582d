// SPDX-License-Identifier: Apache-2.0
/*
 * Flow steering, its actions and its counters. Part of verbs.h. Verbena offers none of it; the
 * types are there since the tables of functions in context.h name them.
 */
#ifndef VB_ABI_FLOW_H
#define VB_ABI_FLOW_H

#include <linux/types.h>
#include <stdint.h>

struct ibv_context;

enum { ETHERNET_LL_SIZE = 6 };

struct ibv_counters_init_attr {
    uint32_t comp_mask;
};

struct ibv_counters {
    struct ibv_context *context;
};

enum ibv_counter_description {
    IBV_COUNTER_PACKETS = 0,
    IBV_COUNTER_BYTES = 1,
};

struct ibv_counter_attach_attr {
    enum ibv_counter_description counter_desc;
    uint32_t index;
    uint32_t comp_mask;
};

enum ibv_read_counters_flags {
    IBV_READ_COUNTERS_ATTR_PREFER_CACHED = 1 << 0,
};

enum ibv_flow_flags {
    IBV_FLOW_ATTR_FLAGS_DONT_TRAP = 1 << 1,
    IBV_FLOW_ATTR_FLAGS_EGRESS = 1 << 2,
};

enum ibv_flow_attr_type {
    IBV_FLOW_ATTR_NORMAL = 0,
    IBV_FLOW_ATTR_ALL_DEFAULT = 1,
    IBV_FLOW_ATTR_MC_DEFAULT = 2,
    IBV_FLOW_ATTR_SNIFFER = 3,
};

/* A rule: this header, then num_of_specs specifications one after the other. */
struct ibv_flow_attr {
    uint32_t comp_mask;
    enum ibv_flow_attr_type type;
    uint16_t size;
    uint16_t priority;
    uint8_t num_of_specs;
    uint8_t port;
    uint32_t flags;
};

struct ibv_flow {
    uint32_t comp_mask;
    struct ibv_context *context;
    uint32_t handle;
};

struct ibv_flow_action {
    struct ibv_context *context;
};

enum ibv_flow_spec_type {
    IBV_FLOW_SPEC_ETH = 0x20,
    IBV_FLOW_SPEC_IPV4 = 0x30,
    IBV_FLOW_SPEC_IPV6 = 0x31,
    IBV_FLOW_SPEC_IPV4_EXT = 0x32,
    IBV_FLOW_SPEC_ESP = 0x34,
    IBV_FLOW_SPEC_TCP = 0x40,
    IBV_FLOW_SPEC_UDP = 0x41,
    IBV_FLOW_SPEC_VXLAN_TUNNEL = 0x50,
    IBV_FLOW_SPEC_GRE = 0x51,
    IBV_FLOW_SPEC_MPLS = 0x60,
    IBV_FLOW_SPEC_INNER = 0x100,
    IBV_FLOW_SPEC_ACTION_TAG = 0x1000,
    IBV_FLOW_SPEC_ACTION_DROP = 0x1001,
    IBV_FLOW_SPEC_ACTION_HANDLE = 0x1002,
    IBV_FLOW_SPEC_ACTION_COUNT = 0x1003,
};

struct ibv_flow_eth_filter {
    uint8_t dst_mac[ETHERNET_LL_SIZE];
    uint8_t src_mac[ETHERNET_LL_SIZE];
    uint16_t ether_type;
    uint16_t vlan_tag;
};

struct ibv_flow_ipv4_filter {
    uint32_t src_ip;
    uint32_t dst_ip;
};

struct ibv_flow_ipv4_ext_filter {
    uint32_t src_ip;
    uint32_t dst_ip;
    uint8_t proto;
    uint8_t tos;
    uint8_t ttl;
    uint8_t flags;
};

struct ibv_flow_ipv6_filter {
    uint8_t src_ip[16];
    uint8_t dst_ip[16];
    uint32_t flow_label;
    uint8_t next_hdr;
    uint8_t traffic_class;
    uint8_t hop_limit;
};

struct ibv_flow_esp_filter {
    uint32_t spi;
    uint32_t seq;
};

struct ibv_flow_tcp_udp_filter {
    uint16_t dst_port;
    uint16_t src_port;
};

struct ibv_flow_gre_filter {
    uint16_t c_ks_res0_ver; /* the first 16 bits of the header, RFC 2784 and 2890 */
    uint16_t protocol;
    uint32_t key;
};

struct ibv_flow_mpls_filter {
    uint32_t label; /* the whole entry, RFC 3032 */
};

struct ibv_flow_tunnel_filter {
    uint32_t tunnel_id;
};

/* Every specification begins with its type and its size. */
struct ibv_flow_spec_eth {
    enum ibv_flow_spec_type type;
    uint16_t size;
    struct ibv_flow_eth_filter val, mask;
};

struct ibv_flow_spec_ipv4 {
    enum ibv_flow_spec_type type;
    uint16_t size;
    struct ibv_flow_ipv4_filter val, mask;
};

struct ibv_flow_spec_ipv4_ext {
    enum ibv_flow_spec_type type;
    uint16_t size;
    struct ibv_flow_ipv4_ext_filter val, mask;
};

struct ibv_flow_spec_ipv6 {
    enum ibv_flow_spec_type type;
    uint16_t size;
    struct ibv_flow_ipv6_filter val, mask;
};

struct ibv_flow_spec_esp {
    enum ibv_flow_spec_type type;
    uint16_t size;
    struct ibv_flow_esp_filter val, mask;
};

struct ibv_flow_spec_tcp_udp {
    enum ibv_flow_spec_type type;
    uint16_t size;
    struct ibv_flow_tcp_udp_filter val, mask;
};

struct ibv_flow_spec_gre {
    enum ibv_flow_spec_type type;
    uint16_t size;
    struct ibv_flow_gre_filter val, mask;
};

struct ibv_flow_spec_mpls {
    enum ibv_flow_spec_type type;
    uint16_t size;
    struct ibv_flow_mpls_filter val, mask;
};

struct ibv_flow_spec_tunnel {
    enum ibv_flow_spec_type type;
    uint16_t size;
    struct ibv_flow_tunnel_filter val, mask;
};

struct ibv_flow_spec_action_tag {
    enum ibv_flow_spec_type type;
    uint16_t size;
    uint32_t tag_id;
};

struct ibv_flow_spec_action_drop {
    enum ibv_flow_spec_type type;
    uint16_t size;
};

struct ibv_flow_spec_action_handle {
    enum ibv_flow_spec_type type;
    uint16_t size;
    const struct ibv_flow_action *action;
};

struct ibv_flow_spec_counter_action {
    enum ibv_flow_spec_type type;
    uint16_t size;
    struct ibv_counters *counters;
};

struct ibv_flow_spec {
    union {
        struct {
            enum ibv_flow_spec_type type;
            uint16_t size;
        } hdr;
        struct ibv_flow_spec_eth eth;
        struct ibv_flow_spec_ipv4 ipv4;
        struct ibv_flow_spec_tcp_udp tcp_udp;
        struct ibv_flow_spec_ipv4_ext ipv4_ext;
        struct ibv_flow_spec_ipv6 ipv6;
        struct ibv_flow_spec_esp esp;
        struct ibv_flow_spec_tunnel tunnel;
        struct ibv_flow_spec_gre gre;
        struct ibv_flow_spec_mpls mpls;
        struct ibv_flow_spec_action_tag flow_tag;
        struct ibv_flow_spec_action_drop drop;
        struct ibv_flow_spec_action_handle handle;
        struct ibv_flow_spec_counter_action flow_count;
    };
};

/* ---- ESP offload (IPsec) ---- */

enum ibv_flow_action_esp_mask {
    IBV_FLOW_ACTION_ESP_MASK_ESN = 1 << 0,
};

enum ibv_flow_action_esp_keymat {
    IBV_FLOW_ACTION_ESP_KEYMAT_AES_GCM = 0,
};

enum ibv_flow_action_esp_keymat_aes_gcm_iv_algo {
    IBV_FLOW_ACTION_IV_ALGO_SEQ = 0,
};

struct ibv_flow_action_esp_keymat_aes_gcm {
    __aligned_u64 iv;
    __u32 iv_algo;
    __u32 salt;
    __u32 icv_len;
    __u32 key_len;
    __u32 aes_key[8];
};

enum ibv_flow_action_esp_replay {
    IBV_FLOW_ACTION_ESP_REPLAY_NONE = 0,
    IBV_FLOW_ACTION_ESP_REPLAY_BMP = 1,
};

struct ibv_flow_action_esp_replay_bmp {
    __u32 size;
};

enum ibv_flow_action_esp_flags {
    IBV_FLOW_ACTION_ESP_FLAGS_INLINE_CRYPTO = 0,
    IBV_FLOW_ACTION_ESP_FLAGS_FULL_OFFLOAD = 1,
    IBV_FLOW_ACTION_ESP_FLAGS_TUNNEL = 0,
    IBV_FLOW_ACTION_ESP_FLAGS_TRANSPORT = 2,
    IBV_FLOW_ACTION_ESP_FLAGS_DECRYPT = 0,
    IBV_FLOW_ACTION_ESP_FLAGS_ENCRYPT = 4,
    IBV_FLOW_ACTION_ESP_FLAGS_ESN_NEW_WINDOW = 8,
};

struct ibv_flow_action_esp_encap {
    union {
        void *val_ptr;
        __aligned_u64 val_ptr_data_u64;
    };
    union {
        struct ibv_flow_action_esp_encap *next_ptr;
        __aligned_u64 next_ptr_data_u64;
    };
    __u16 len;
    __u16 type;
};

struct ibv_flow_action_esp {
    __u32 spi;
    __u32 seq;
    __u32 tfc_pad;
    __u32 flags;
    __aligned_u64 hard_limit_pkts;
};

struct ibv_flow_action_esp_attr {
    struct ibv_flow_action_esp *esp_attr;
    enum ibv_flow_action_esp_keymat keymat_proto;
    uint16_t keymat_len;
    void *keymat_ptr;
    enum ibv_flow_action_esp_replay replay_proto;
    uint16_t replay_len;
    void *replay_ptr;
    struct ibv_flow_action_esp_encap *esp_encap;
    uint32_t comp_mask;
    uint32_t esn;
};

#endif
