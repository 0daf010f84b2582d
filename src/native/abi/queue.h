// SPDX-License-Identifier: Apache-2.0
/*
 * Queue pairs, shared receive queues and work queues: attributes and objects. Part of verbs.h. The
 * mutex and condition in an object are libibverbs' own; docs/locks.md says what Verbena uses them
 * for.
 */
#ifndef VB_ABI_QUEUE_H
#define VB_ABI_QUEUE_H

#include <pthread.h>

#include "abi/address.h"
#include "abi/completion.h"
#include "abi/memory.h"

struct ibv_recv_wr;
struct ibv_rwq_ind_table;

/* ---- shared receive queues ---- */

enum ibv_srq_attr_mask {
    IBV_SRQ_MAX_WR = 1 << 0,
    IBV_SRQ_LIMIT = 1 << 1,
};

struct ibv_srq_attr {
    uint32_t max_wr;
    uint32_t max_sge;
    uint32_t srq_limit;
};

struct ibv_srq_init_attr {
    void *srq_context;
    struct ibv_srq_attr attr;
};

enum ibv_srq_type {
    IBV_SRQT_BASIC = 0,
    IBV_SRQT_XRC = 1,
    IBV_SRQT_TM = 2,
};

enum ibv_srq_init_attr_mask {
    IBV_SRQ_INIT_ATTR_TYPE = 1 << 0,
    IBV_SRQ_INIT_ATTR_PD = 1 << 1,
    IBV_SRQ_INIT_ATTR_XRCD = 1 << 2,
    IBV_SRQ_INIT_ATTR_CQ = 1 << 3,
    IBV_SRQ_INIT_ATTR_TM = 1 << 4,
    IBV_SRQ_INIT_ATTR_RESERVED = 1 << 5,
};

struct ibv_tm_cap {
    uint32_t max_num_tags;
    uint32_t max_ops;
};

struct ibv_srq_init_attr_ex {
    void *srq_context;
    struct ibv_srq_attr attr;
    uint32_t comp_mask;
    enum ibv_srq_type srq_type;
    struct ibv_pd *pd;
    struct ibv_xrcd *xrcd;
    struct ibv_cq *cq;
    struct ibv_tm_cap tm_cap;
};

struct ibv_srq {
    struct ibv_context *context;
    void *srq_context;
    struct ibv_pd *pd;
    uint32_t handle;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t events_completed;
};

/* ---- work queues of raw packet QPs ---- */

enum ibv_wq_type {
    IBV_WQT_RQ = 0,
};

enum ibv_wq_init_attr_mask {
    IBV_WQ_INIT_ATTR_FLAGS = 1 << 0,
    IBV_WQ_INIT_ATTR_RESERVED = 1 << 1,
};

enum ibv_wq_flags {
    IBV_WQ_FLAGS_CVLAN_STRIPPING = 1 << 0,
    IBV_WQ_FLAGS_SCATTER_FCS = 1 << 1,
    IBV_WQ_FLAGS_DELAY_DROP = 1 << 2,
    IBV_WQ_FLAGS_PCI_WRITE_END_PADDING = 1 << 3,
    IBV_WQ_FLAGS_RESERVED = 1 << 4,
};

struct ibv_wq_init_attr {
    void *wq_context;
    enum ibv_wq_type wq_type;
    uint32_t max_wr;
    uint32_t max_sge;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    uint32_t comp_mask;
    uint32_t create_flags; /* enum ibv_wq_flags */
};

enum ibv_wq_state {
    IBV_WQS_RESET = 0,
    IBV_WQS_RDY = 1,
    IBV_WQS_ERR = 2,
    IBV_WQS_UNKNOWN = 3,
};

enum ibv_wq_attr_mask {
    IBV_WQ_ATTR_STATE = 1 << 0,
    IBV_WQ_ATTR_CURR_STATE = 1 << 1,
    IBV_WQ_ATTR_FLAGS = 1 << 2,
    IBV_WQ_ATTR_RESERVED = 1 << 3,
};

struct ibv_wq_attr {
    uint32_t attr_mask;
    enum ibv_wq_state wq_state;
    enum ibv_wq_state curr_wq_state;
    uint32_t flags;
    uint32_t flags_mask;
};

struct ibv_wq {
    struct ibv_context *context;
    void *wq_context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    uint32_t wq_num;
    uint32_t handle;
    enum ibv_wq_state state;
    enum ibv_wq_type wq_type;
    int (*post_recv)(struct ibv_wq *wq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t events_completed;
    uint32_t comp_mask;
};

enum ibv_ind_table_init_attr_mask {
    IBV_CREATE_IND_TABLE_RESERVED = 1 << 0,
};

struct ibv_rwq_ind_table_init_attr {
    uint32_t log_ind_tbl_size;
    struct ibv_wq **ind_tbl;
    uint32_t comp_mask;
};

struct ibv_rwq_ind_table {
    struct ibv_context *context;
    int ind_tbl_handle;
    int ind_tbl_num;
    uint32_t comp_mask;
};

/* ---- queue pairs ---- */

enum ibv_qp_type {
    IBV_QPT_RC = 2,
    IBV_QPT_UC = 3,
    IBV_QPT_UD = 4,
    IBV_QPT_RAW_PACKET = 8,
    IBV_QPT_XRC_SEND = 9,
    IBV_QPT_XRC_RECV = 10,
    IBV_QPT_DRIVER = 255,
};

struct ibv_qp_cap {
    uint32_t max_send_wr;
    uint32_t max_recv_wr;
    uint32_t max_send_sge;
    uint32_t max_recv_sge;
    uint32_t max_inline_data;
};

struct ibv_qp_init_attr {
    void *qp_context;
    struct ibv_cq *send_cq;
    struct ibv_cq *recv_cq;
    struct ibv_srq *srq;
    struct ibv_qp_cap cap;
    enum ibv_qp_type qp_type;
    int sq_sig_all;
};

enum ibv_qp_init_attr_mask {
    IBV_QP_INIT_ATTR_PD = 1 << 0,
    IBV_QP_INIT_ATTR_XRCD = 1 << 1,
    IBV_QP_INIT_ATTR_CREATE_FLAGS = 1 << 2,
    IBV_QP_INIT_ATTR_MAX_TSO_HEADER = 1 << 3,
    IBV_QP_INIT_ATTR_IND_TABLE = 1 << 4,
    IBV_QP_INIT_ATTR_RX_HASH = 1 << 5,
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS = 1 << 6,
};

enum ibv_qp_create_flags {
    IBV_QP_CREATE_BLOCK_SELF_MCAST_LB = 1 << 1,
    IBV_QP_CREATE_SCATTER_FCS = 1 << 8,
    IBV_QP_CREATE_CVLAN_STRIPPING = 1 << 9,
    IBV_QP_CREATE_SOURCE_QPN = 1 << 10,
    IBV_QP_CREATE_PCI_WRITE_END_PADDING = 1 << 11,
};

/* The ibv_wr_* calls that a QP will be asked for. */
enum ibv_qp_create_send_ops_flags {
    IBV_QP_EX_WITH_RDMA_WRITE = 1 << 0,
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM = 1 << 1,
    IBV_QP_EX_WITH_SEND = 1 << 2,
    IBV_QP_EX_WITH_SEND_WITH_IMM = 1 << 3,
    IBV_QP_EX_WITH_RDMA_READ = 1 << 4,
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP = 1 << 5,
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD = 1 << 6,
    IBV_QP_EX_WITH_LOCAL_INV = 1 << 7,
    IBV_QP_EX_WITH_BIND_MW = 1 << 8,
    IBV_QP_EX_WITH_SEND_WITH_INV = 1 << 9,
    IBV_QP_EX_WITH_TSO = 1 << 10,
    IBV_QP_EX_WITH_FLUSH = 1 << 11,
    IBV_QP_EX_WITH_ATOMIC_WRITE = 1 << 12,
};

struct ibv_rx_hash_conf {
    uint8_t rx_hash_function;
    uint8_t rx_hash_key_len;
    uint8_t *rx_hash_key;
    uint64_t rx_hash_fields_mask;
};

/* Begins as ibv_qp_init_attr does. */
struct ibv_qp_init_attr_ex {
    void *qp_context;
    struct ibv_cq *send_cq;
    struct ibv_cq *recv_cq;
    struct ibv_srq *srq;
    struct ibv_qp_cap cap;
    enum ibv_qp_type qp_type;
    int sq_sig_all;

    uint32_t comp_mask; /* enum ibv_qp_init_attr_mask */
    struct ibv_pd *pd;
    struct ibv_xrcd *xrcd;
    uint32_t create_flags;
    uint16_t max_tso_header;
    struct ibv_rwq_ind_table *rwq_ind_tbl;
    struct ibv_rx_hash_conf rx_hash_conf;
    uint32_t source_qpn;
    uint64_t send_ops_flags; /* enum ibv_qp_create_send_ops_flags */
};

enum ibv_qp_open_attr_mask {
    IBV_QP_OPEN_ATTR_NUM = 1 << 0,
    IBV_QP_OPEN_ATTR_XRCD = 1 << 1,
    IBV_QP_OPEN_ATTR_CONTEXT = 1 << 2,
    IBV_QP_OPEN_ATTR_TYPE = 1 << 3,
    IBV_QP_OPEN_ATTR_RESERVED = 1 << 4,
};

struct ibv_qp_open_attr {
    uint32_t comp_mask;
    uint32_t qp_num;
    struct ibv_xrcd *xrcd;
    void *qp_context;
    enum ibv_qp_type qp_type;
};

/* Bits 21 to 24 are not ours to use: kernels once gave them a meaning. */
enum ibv_qp_attr_mask {
    IBV_QP_STATE = 1 << 0,
    IBV_QP_CUR_STATE = 1 << 1,
    IBV_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2,
    IBV_QP_ACCESS_FLAGS = 1 << 3,
    IBV_QP_PKEY_INDEX = 1 << 4,
    IBV_QP_PORT = 1 << 5,
    IBV_QP_QKEY = 1 << 6,
    IBV_QP_AV = 1 << 7,
    IBV_QP_PATH_MTU = 1 << 8,
    IBV_QP_TIMEOUT = 1 << 9,
    IBV_QP_RETRY_CNT = 1 << 10,
    IBV_QP_RNR_RETRY = 1 << 11,
    IBV_QP_RQ_PSN = 1 << 12,
    IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13,
    IBV_QP_ALT_PATH = 1 << 14,
    IBV_QP_MIN_RNR_TIMER = 1 << 15,
    IBV_QP_SQ_PSN = 1 << 16,
    IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
    IBV_QP_PATH_MIG_STATE = 1 << 18,
    IBV_QP_CAP = 1 << 19,
    IBV_QP_DEST_QPN = 1 << 20,
    IBV_QP_RATE_LIMIT = 1 << 25,
};

enum ibv_query_qp_data_in_order_flags {
    IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS = 1 << 0,
    IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY = 1 << 1,
};

enum ibv_query_qp_data_in_order_caps {
    IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG = 1 << 0,
    IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES = 1 << 1,
};

enum ibv_qp_state {
    IBV_QPS_RESET = 0,
    IBV_QPS_INIT = 1,
    IBV_QPS_RTR = 2,
    IBV_QPS_RTS = 3,
    IBV_QPS_SQD = 4,
    IBV_QPS_SQE = 5,
    IBV_QPS_ERR = 6,
    IBV_QPS_UNKNOWN = 7,
};

enum ibv_mig_state {
    IBV_MIG_MIGRATED = 0,
    IBV_MIG_REARM = 1,
    IBV_MIG_ARMED = 2,
};

struct ibv_qp_attr {
    enum ibv_qp_state qp_state;
    enum ibv_qp_state cur_qp_state;
    enum ibv_mtu path_mtu;
    enum ibv_mig_state path_mig_state;
    uint32_t qkey;
    uint32_t rq_psn;
    uint32_t sq_psn;
    uint32_t dest_qp_num;
    unsigned int qp_access_flags;
    struct ibv_qp_cap cap;
    struct ibv_ah_attr ah_attr;
    struct ibv_ah_attr alt_ah_attr;
    uint16_t pkey_index;
    uint16_t alt_pkey_index;
    uint8_t en_sqd_async_notify;
    uint8_t sq_draining;
    uint8_t max_rd_atomic;
    uint8_t max_dest_rd_atomic;
    uint8_t min_rnr_timer;
    uint8_t port_num;
    uint8_t timeout;
    uint8_t retry_cnt;
    uint8_t rnr_retry;
    uint8_t alt_port_num;
    uint8_t alt_timeout;
    uint32_t rate_limit; /* kbit/s */
};

struct ibv_qp_rate_limit_attr {
    uint32_t rate_limit; /* kbit/s */
    uint32_t max_burst_sz;
    uint16_t typical_pkt_sz;
    uint32_t comp_mask;
};

struct ibv_qp {
    struct ibv_context *context;
    void *qp_context;
    struct ibv_pd *pd;
    struct ibv_cq *send_cq;
    struct ibv_cq *recv_cq;
    struct ibv_srq *srq;
    uint32_t handle;
    uint32_t qp_num;
    enum ibv_qp_state state;
    enum ibv_qp_type qp_type;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t events_completed;
};

struct ibv_ece {
    uint32_t vendor_id;
    uint32_t options;
    uint32_t comp_mask;
};

#endif
