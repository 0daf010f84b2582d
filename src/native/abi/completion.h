// SPDX-License-Identifier: Apache-2.0
/*
 * Completions, completion queues and their channels, asynchronous events. Part of verbs.h. Programs
 * have inline functions that read and write these structures, so no field moves (sizes.h).
 */
#ifndef VB_ABI_COMPLETION_H
#define VB_ABI_COMPLETION_H

#include <linux/types.h>
#include <pthread.h>
#include <stdint.h>

struct ibv_context;
struct ibv_cq;
struct ibv_pd;
struct ibv_qp;
struct ibv_srq;
struct ibv_wq;

enum ibv_wc_status {
    IBV_WC_SUCCESS = 0,
    IBV_WC_LOC_LEN_ERR = 1,
    IBV_WC_LOC_QP_OP_ERR = 2,
    IBV_WC_LOC_EEC_OP_ERR = 3,
    IBV_WC_LOC_PROT_ERR = 4,
    IBV_WC_WR_FLUSH_ERR = 5,
    IBV_WC_MW_BIND_ERR = 6,
    IBV_WC_BAD_RESP_ERR = 7,
    IBV_WC_LOC_ACCESS_ERR = 8,
    IBV_WC_REM_INV_REQ_ERR = 9,
    IBV_WC_REM_ACCESS_ERR = 10,
    IBV_WC_REM_OP_ERR = 11,
    IBV_WC_RETRY_EXC_ERR = 12,
    IBV_WC_RNR_RETRY_EXC_ERR = 13,
    IBV_WC_LOC_RDD_VIOL_ERR = 14,
    IBV_WC_REM_INV_RD_REQ_ERR = 15,
    IBV_WC_REM_ABORT_ERR = 16,
    IBV_WC_INV_EECN_ERR = 17,
    IBV_WC_INV_EEC_STATE_ERR = 18,
    IBV_WC_FATAL_ERR = 19,
    IBV_WC_RESP_TIMEOUT_ERR = 20,
    IBV_WC_GENERAL_ERR = 21,
    IBV_WC_TM_ERR = 22,
    IBV_WC_TM_RNDV_INCOMPLETE = 23,
};

/* Bit 7 tells a receive completion from the others. */
enum ibv_wc_opcode {
    IBV_WC_SEND = 0,
    IBV_WC_RDMA_WRITE = 1,
    IBV_WC_RDMA_READ = 2,
    IBV_WC_COMP_SWAP = 3,
    IBV_WC_FETCH_ADD = 4,
    IBV_WC_BIND_MW = 5,
    IBV_WC_LOCAL_INV = 6,
    IBV_WC_TSO = 7,
    IBV_WC_FLUSH = 8,
    IBV_WC_ATOMIC_WRITE = 9,
    IBV_WC_RECV = 128,
    IBV_WC_RECV_RDMA_WITH_IMM = 129,
    IBV_WC_TM_ADD = 130,
    IBV_WC_TM_DEL = 131,
    IBV_WC_TM_SYNC = 132,
    IBV_WC_TM_RECV = 133,
    IBV_WC_TM_NO_TAG = 134,
    IBV_WC_DRIVER1 = 135,
    IBV_WC_DRIVER2 = 136,
    IBV_WC_DRIVER3 = 137,
};

enum { IBV_WC_IP_CSUM_OK_SHIFT = 2 };

enum ibv_wc_flags {
    IBV_WC_GRH = 1 << 0,
    IBV_WC_WITH_IMM = 1 << 1,
    IBV_WC_IP_CSUM_OK = 1 << IBV_WC_IP_CSUM_OK_SHIFT,
    IBV_WC_WITH_INV = 1 << 3,
    IBV_WC_TM_SYNC_REQ = 1 << 4,
    IBV_WC_TM_MATCH = 1 << 5,
    IBV_WC_TM_DATA_VALID = 1 << 6,
};

struct ibv_wc {
    uint64_t wr_id;
    enum ibv_wc_status status;
    enum ibv_wc_opcode opcode;
    uint32_t vendor_err;
    uint32_t byte_len;
    union {
        __be32 imm_data;           /* with IBV_WC_WITH_IMM */
        uint32_t invalidated_rkey; /* with IBV_WC_WITH_INV */
    };
    uint32_t qp_num;
    uint32_t src_qp;
    unsigned int wc_flags;
    uint16_t pkey_index;
    uint16_t slid;
    uint8_t sl;
    uint8_t dlid_path_bits;
};

struct ibv_comp_channel {
    struct ibv_context *context;
    int fd;
    int refcnt;
};

struct ibv_cq {
    struct ibv_context *context;
    struct ibv_comp_channel *channel;
    void *cq_context;
    uint32_t handle;
    int cqe;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t comp_events_completed;
    uint32_t async_events_completed;
};

struct ibv_poll_cq_attr {
    uint32_t comp_mask;
};

struct ibv_wc_tm_info {
    uint64_t tag;
    uint32_t priv;
};

/* Begins as ibv_cq does; the rest reads the completion that the poll stands on. */
struct ibv_cq_ex {
    struct ibv_context *context;
    struct ibv_comp_channel *channel;
    void *cq_context;
    uint32_t handle;
    int cqe;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t comp_events_completed;
    uint32_t async_events_completed;

    uint32_t comp_mask;
    enum ibv_wc_status status;
    uint64_t wr_id;
    int (*start_poll)(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr);
    int (*next_poll)(struct ibv_cq_ex *cq);
    void (*end_poll)(struct ibv_cq_ex *cq);
    enum ibv_wc_opcode (*read_opcode)(struct ibv_cq_ex *cq);
    uint32_t (*read_vendor_err)(struct ibv_cq_ex *cq);
    uint32_t (*read_byte_len)(struct ibv_cq_ex *cq);
    __be32 (*read_imm_data)(struct ibv_cq_ex *cq);
    uint32_t (*read_qp_num)(struct ibv_cq_ex *cq);
    uint32_t (*read_src_qp)(struct ibv_cq_ex *cq);
    unsigned int (*read_wc_flags)(struct ibv_cq_ex *cq);
    uint32_t (*read_slid)(struct ibv_cq_ex *cq);
    uint8_t (*read_sl)(struct ibv_cq_ex *cq);
    uint8_t (*read_dlid_path_bits)(struct ibv_cq_ex *cq);
    uint64_t (*read_completion_ts)(struct ibv_cq_ex *cq);
    uint16_t (*read_cvlan)(struct ibv_cq_ex *cq);
    uint32_t (*read_flow_tag)(struct ibv_cq_ex *cq);
    void (*read_tm_info)(struct ibv_cq_ex *cq, struct ibv_wc_tm_info *tm_info);
    uint64_t (*read_completion_wallclock_ns)(struct ibv_cq_ex *cq);
};

/* What the reader of an ibv_cq_ex will ask for. */
enum ibv_create_cq_wc_flags {
    IBV_WC_EX_WITH_BYTE_LEN = 1 << 0,
    IBV_WC_EX_WITH_IMM = 1 << 1,
    IBV_WC_EX_WITH_QP_NUM = 1 << 2,
    IBV_WC_EX_WITH_SRC_QP = 1 << 3,
    IBV_WC_EX_WITH_SLID = 1 << 4,
    IBV_WC_EX_WITH_SL = 1 << 5,
    IBV_WC_EX_WITH_DLID_PATH_BITS = 1 << 6,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP = 1 << 7,
    IBV_WC_EX_WITH_CVLAN = 1 << 8,
    IBV_WC_EX_WITH_FLOW_TAG = 1 << 9,
    IBV_WC_EX_WITH_TM_INFO = 1 << 10,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK = 1 << 11,
};

enum { IBV_WC_STANDARD_FLAGS = 0x07f, IBV_CREATE_CQ_SUP_WC_FLAGS = 0xfff };

enum ibv_cq_init_attr_mask {
    IBV_CQ_INIT_ATTR_MASK_FLAGS = 1 << 0,
    IBV_CQ_INIT_ATTR_MASK_PD = 1 << 1,
};

enum ibv_create_cq_attr_flags {
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED = 1 << 0,
    IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN = 1 << 1,
};

struct ibv_cq_init_attr_ex {
    uint32_t cqe;
    void *cq_context;
    struct ibv_comp_channel *channel;
    uint32_t comp_vector;
    uint64_t wc_flags;  /* enum ibv_create_cq_wc_flags */
    uint32_t comp_mask; /* enum ibv_cq_init_attr_mask */
    uint32_t flags;     /* enum ibv_create_cq_attr_flags */
    struct ibv_pd *parent_domain;
};

enum ibv_cq_attr_mask {
    IBV_CQ_ATTR_MODERATE = 1 << 0,
    IBV_CQ_ATTR_RESERVED = 1 << 1,
};

struct ibv_moderate_cq {
    uint16_t cq_count;
    uint16_t cq_period; /* µs */
};

struct ibv_modify_cq_attr {
    uint32_t attr_mask;
    struct ibv_moderate_cq moderate;
};

enum ibv_event_type {
    IBV_EVENT_CQ_ERR = 0,
    IBV_EVENT_QP_FATAL = 1,
    IBV_EVENT_QP_REQ_ERR = 2,
    IBV_EVENT_QP_ACCESS_ERR = 3,
    IBV_EVENT_COMM_EST = 4,
    IBV_EVENT_SQ_DRAINED = 5,
    IBV_EVENT_PATH_MIG = 6,
    IBV_EVENT_PATH_MIG_ERR = 7,
    IBV_EVENT_DEVICE_FATAL = 8,
    IBV_EVENT_PORT_ACTIVE = 9,
    IBV_EVENT_PORT_ERR = 10,
    IBV_EVENT_LID_CHANGE = 11,
    IBV_EVENT_PKEY_CHANGE = 12,
    IBV_EVENT_SM_CHANGE = 13,
    IBV_EVENT_SRQ_ERR = 14,
    IBV_EVENT_SRQ_LIMIT_REACHED = 15,
    IBV_EVENT_QP_LAST_WQE_REACHED = 16,
    IBV_EVENT_CLIENT_REREGISTER = 17,
    IBV_EVENT_GID_CHANGE = 18,
    IBV_EVENT_WQ_FATAL = 19,
    IBV_EVENT_DEVICE_SPEED_CHANGE = 20,
};

struct ibv_async_event {
    union {
        struct ibv_cq *cq;
        struct ibv_qp *qp;
        struct ibv_srq *srq;
        struct ibv_wq *wq;
        int port_num;
    } element;
    enum ibv_event_type event_type;
};

/* Completion counters, from rdma-core's IBVERBS_1.18 on. */
enum ibv_qp_attach_comp_cntr_op {
    IBV_QP_ATTACH_COMP_CNTR_OP_SEND = 1 << 0,
    IBV_QP_ATTACH_COMP_CNTR_OP_RECV = 1 << 1,
    IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ = 1 << 2,
    IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ = 1 << 3,
    IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE = 1 << 4,
    IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE = 1 << 5,
};

struct ibv_comp_cntr_caps {
    uint64_t max_value;
    uint32_t max_counters;
    uint32_t supported_qp_attach_ops;
};

enum ibv_comp_cntr_type {
    IBV_COMP_CNTR_TYPE_WRS = 0,
    IBV_COMP_CNTR_TYPE_BYTES = 1,
};

struct ibv_comp_cntr_init_attr {
    uint32_t comp_mask;
    enum ibv_comp_cntr_type type;
    uint32_t flags;
};

struct ibv_comp_cntr {
    struct ibv_context *context;
    uint32_t handle;
};

struct ibv_qp_attach_comp_cntr_attr {
    uint32_t comp_mask;
    uint32_t op_mask; /* enum ibv_qp_attach_comp_cntr_op */
};

#endif
