# SPDX-License-Identifier: Apache-2.0
# libibverbs' structs and functions, as far as the binding touches them.

cdef extern from "abi/verbs.h" nogil:
    union ibv_gid:
        uint8_t raw[16]

    struct ibv_gid_entry:
        ibv_gid gid
        uint32_t gid_index
        uint32_t port_num
        uint32_t gid_type
        uint32_t ndev_ifindex

    struct ibv_device:
        int node_type
        int transport_type
        char *name
        char *dev_name

    struct ibv_device_attr:
        char *fw_ver
        uint64_t node_guid
        uint64_t sys_image_guid
        uint64_t max_mr_size
        uint64_t page_size_cap
        uint32_t vendor_id
        uint32_t vendor_part_id
        uint32_t hw_ver
        int max_qp
        int max_qp_wr
        unsigned int device_cap_flags
        int max_sge
        int max_sge_rd
        int max_cq
        int max_cqe
        int max_mr
        int max_pd
        int max_qp_rd_atom
        int max_res_rd_atom
        int max_qp_init_rd_atom
        int atomic_cap
        int max_mw
        int max_mcast_grp
        int max_mcast_qp_attach
        int max_total_mcast_qp_attach
        int max_ah
        int max_srq
        int max_srq_wr
        int max_srq_sge
        uint16_t max_pkeys
        uint8_t local_ca_ack_delay
        uint8_t phys_port_cnt

    struct ibv_port_attr:
        int state
        int max_mtu
        int active_mtu
        int gid_tbl_len
        uint32_t port_cap_flags
        uint32_t max_msg_sz
        uint32_t bad_pkey_cntr
        uint32_t qkey_viol_cntr
        uint16_t pkey_tbl_len
        uint16_t lid
        uint16_t sm_lid
        uint8_t lmc
        uint8_t max_vl_num
        uint8_t sm_sl
        uint8_t subnet_timeout
        uint8_t init_type_reply
        uint8_t active_width
        uint8_t active_speed
        uint8_t phys_state
        uint8_t link_layer
        uint8_t flags
        uint16_t port_cap_flags2

    struct ibv_pd:
        pass

    struct ibv_ah:
        pass

    struct ibv_mr:
        uint32_t lkey
        uint32_t rkey
        uint32_t handle

    struct ibv_context

    struct ibv_mw:
        ibv_context *context
        uint32_t rkey
        uint32_t handle
        int type

    struct ibv_mw_bind_info:
        ibv_mr *mr
        uint64_t addr
        uint64_t length
        unsigned int mw_access_flags

    struct ibv_mw_bind:
        uint64_t wr_id
        unsigned int send_flags
        ibv_mw_bind_info bind_info

    struct vb_wr_bind:
        ibv_mw *mw
        uint32_t rkey
        ibv_mw_bind_info bind_info

    struct ibv_td:
        pass

    struct ibv_dm:
        int (*memcpy_to_dm)(ibv_dm *, uint64_t, const void *, size_t) noexcept nogil
        int (*memcpy_from_dm)(void *, ibv_dm *, uint64_t, size_t) noexcept nogil
        uint32_t handle

    struct vb_odp_transports:
        uint32_t rc_odp_caps
        uint32_t uc_odp_caps
        uint32_t ud_odp_caps

    struct ibv_odp_caps:
        uint64_t general_caps
        vb_odp_transports per_transport_caps

    struct ibv_device_attr_ex:
        ibv_odp_caps odp_caps
        uint64_t max_dm_size
        uint32_t xrc_odp_caps

    struct ibv_comp_channel:
        int fd

    struct ibv_sge:
        uint64_t addr
        uint32_t length
        uint32_t lkey

    struct ibv_wc:
        uint64_t wr_id
        int status
        int opcode
        uint32_t vendor_err
        uint32_t byte_len
        uint32_t imm_data
        uint32_t invalidated_rkey
        uint32_t qp_num
        uint32_t src_qp
        unsigned int wc_flags
        uint16_t pkey_index
        uint16_t slid
        uint8_t sl
        uint8_t dlid_path_bits

    struct vb_wr_rdma:
        uint64_t remote_addr
        uint32_t rkey

    struct vb_wr_atomic:
        uint64_t remote_addr
        uint64_t compare_add
        uint64_t swap
        uint32_t rkey

    struct vb_wr_ud:
        ibv_ah *ah
        uint32_t remote_qpn
        uint32_t remote_qkey

    union vb_wr_address:
        vb_wr_rdma rdma
        vb_wr_atomic atomic
        vb_wr_ud ud

    struct vb_wr_xrc:
        uint32_t remote_srqn

    union vb_wr_qp_type:
        vb_wr_xrc xrc

    struct ibv_send_wr:
        uint64_t wr_id
        ibv_send_wr *next
        ibv_sge *sg_list
        int num_sge
        int opcode
        unsigned int send_flags
        uint32_t imm_data
        uint32_t invalidate_rkey
        vb_wr_address wr
        vb_wr_qp_type qp_type
        vb_wr_bind bind_mw

    struct ibv_recv_wr:
        uint64_t wr_id
        ibv_recv_wr *next
        ibv_sge *sg_list
        int num_sge

    struct ibv_global_route:
        ibv_gid dgid
        uint32_t flow_label
        uint8_t sgid_index
        uint8_t hop_limit
        uint8_t traffic_class

    struct ibv_ah_attr:
        ibv_global_route grh
        uint16_t dlid
        uint8_t sl
        uint8_t src_path_bits
        uint8_t static_rate
        uint8_t is_global
        uint8_t port_num

    struct ibv_qp_cap:
        uint32_t max_send_wr
        uint32_t max_recv_wr
        uint32_t max_send_sge
        uint32_t max_recv_sge
        uint32_t max_inline_data

    struct ibv_srq_attr:
        uint32_t max_wr
        uint32_t max_sge
        uint32_t srq_limit

    struct ibv_srq_init_attr:
        void *srq_context
        ibv_srq_attr attr

    struct ibv_srq:
        ibv_context *context
        void *srq_context

    struct ibv_cq:
        ibv_context *context
        void *cq_context
        int cqe

    struct ibv_qp:
        ibv_context *context
        void *qp_context
        uint32_t qp_num

    struct ibv_qp_init_attr:
        void *qp_context
        ibv_cq *send_cq
        ibv_cq *recv_cq
        ibv_srq *srq
        ibv_qp_cap cap
        int qp_type
        int sq_sig_all

    struct ibv_qp_attr:
        int qp_state
        int cur_qp_state
        int path_mtu
        int path_mig_state
        uint32_t qkey
        uint32_t rq_psn
        uint32_t sq_psn
        uint32_t dest_qp_num
        unsigned int qp_access_flags
        ibv_qp_cap cap
        ibv_ah_attr ah_attr
        ibv_ah_attr alt_ah_attr
        uint16_t pkey_index
        uint16_t alt_pkey_index
        uint8_t en_sqd_async_notify
        uint8_t sq_draining
        uint8_t max_rd_atomic
        uint8_t max_dest_rd_atomic
        uint8_t min_rnr_timer
        uint8_t port_num
        uint8_t timeout
        uint8_t retry_cnt
        uint8_t rnr_retry
        uint8_t alt_port_num
        uint8_t alt_timeout
        uint32_t rate_limit

    union vb_event_element:
        ibv_cq *cq
        ibv_qp *qp
        ibv_srq *srq
        int port_num

    struct ibv_async_event:
        vb_event_element element
        int event_type

    struct ibv_context_ops:
        ibv_mw *(*alloc_mw)(ibv_pd *, int) noexcept nogil
        int (*bind_mw)(ibv_qp *, ibv_mw *, ibv_mw_bind *) noexcept nogil
        int (*dealloc_mw)(ibv_mw *) noexcept nogil
        int (*poll_cq)(ibv_cq *, int, ibv_wc *) noexcept nogil
        int (*req_notify_cq)(ibv_cq *, int) noexcept nogil
        int (*post_srq_recv)(ibv_srq *, ibv_recv_wr *, ibv_recv_wr **) noexcept nogil
        int (*post_send)(ibv_qp *, ibv_send_wr *, ibv_send_wr **) noexcept nogil
        int (*post_recv)(ibv_qp *, ibv_recv_wr *, ibv_recv_wr **) noexcept nogil

    struct ibv_context:
        ibv_device *device
        ibv_context_ops ops
        int async_fd
        int num_comp_vectors


cdef extern from "_symbols.h" nogil:
    struct ibv_grh:
        pass

    struct vb_sim_attachment:
        pass

    struct vb_symbols:
        ibv_device **(*get_device_list)(int *) noexcept nogil
        void (*free_device_list)(ibv_device **) noexcept nogil
        uint64_t (*get_device_guid)(ibv_device *) noexcept nogil
        ibv_context *(*open_device)(ibv_device *) noexcept nogil
        int (*close_device)(ibv_context *) noexcept nogil
        int (*get_async_event)(ibv_context *, ibv_async_event *) noexcept nogil
        void (*ack_async_event)(ibv_async_event *) noexcept nogil
        int (*event_text)(const ibv_async_event *, char *, size_t) noexcept nogil
        int (*query_device)(ibv_context *, ibv_device_attr *) noexcept nogil
        int (*query_gid)(ibv_context *, uint8_t, int, ibv_gid *) noexcept nogil
        int (*query_pkey)(ibv_context *, uint8_t, int, uint16_t *) noexcept nogil
        ibv_pd *(*alloc_pd)(ibv_context *) noexcept nogil
        int (*dealloc_pd)(ibv_pd *) noexcept nogil
        ibv_mr *(*reg_mr)(ibv_pd *, void *, size_t, int) noexcept nogil
        int (*dereg_mr)(ibv_mr *) noexcept nogil
        int (*rereg_mr)(ibv_mr *, int, ibv_pd *, void *, size_t, int) noexcept nogil
        ibv_comp_channel *(*create_comp_channel)(ibv_context *) noexcept nogil
        int (*destroy_comp_channel)(ibv_comp_channel *) noexcept nogil
        ibv_cq *(*create_cq)(ibv_context *, int, void *, ibv_comp_channel *, int) noexcept nogil
        int (*resize_cq)(ibv_cq *, int) noexcept nogil
        int (*destroy_cq)(ibv_cq *) noexcept nogil
        int (*get_cq_event)(ibv_comp_channel *, ibv_cq **, void **) noexcept nogil
        void (*ack_cq_events)(ibv_cq *, unsigned int) noexcept nogil
        ibv_srq *(*create_srq)(ibv_pd *, ibv_srq_init_attr *) noexcept nogil
        int (*modify_srq)(ibv_srq *, ibv_srq_attr *, int) noexcept nogil
        int (*query_srq)(ibv_srq *, ibv_srq_attr *) noexcept nogil
        int (*destroy_srq)(ibv_srq *) noexcept nogil
        ibv_qp *(*create_qp)(ibv_pd *, ibv_qp_init_attr *) noexcept nogil
        int (*modify_qp)(ibv_qp *, ibv_qp_attr *, int) noexcept nogil
        int (*query_qp)(ibv_qp *, ibv_qp_attr *, int, ibv_qp_init_attr *) noexcept nogil
        int (*destroy_qp)(ibv_qp *) noexcept nogil
        int (*attach_mcast)(ibv_qp *, const ibv_gid *, uint16_t) noexcept nogil
        int (*detach_mcast)(ibv_qp *, const ibv_gid *, uint16_t) noexcept nogil
        ibv_ah *(*create_ah)(ibv_pd *, ibv_ah_attr *) noexcept nogil
        ibv_ah *(*create_ah_from_wc)(ibv_pd *, ibv_wc *, ibv_grh *, uint8_t) noexcept nogil
        int (*destroy_ah)(ibv_ah *) noexcept nogil
        ibv_mr *(*reg_mr_iova2)(ibv_pd *, void *, size_t, uint64_t, unsigned int) noexcept nogil
        int (*query_gid_ex)(
            ibv_context *, uint32_t, uint32_t, ibv_gid_entry *, uint32_t, size_t
        ) noexcept nogil
        Py_ssize_t (*query_gid_table)(
            ibv_context *, ibv_gid_entry *, size_t, uint32_t, size_t
        ) noexcept nogil
        void *(*heap_alloc)(size_t, size_t) noexcept nogil
        void (*heap_free)(void *) noexcept nogil
        int (*explain)(ibv_context *, uint32_t, char *, size_t) noexcept nogil
        int (*why)(ibv_context *, int, char *, size_t) noexcept nogil
        int (*post_flush)(
            ibv_qp *, const ibv_send_wr *, size_t, uint8_t, uint8_t
        ) noexcept nogil
        int (*describe)(ibv_context *, char *, size_t) noexcept nogil
        int (*counters)(ibv_context *, char *, size_t) noexcept nogil
        int (*set_fault)(ibv_context *, const char *, char *, size_t) noexcept nogil
        int (*fault_counters)(ibv_context *, char *, size_t) noexcept nogil
        int (*attach)(vb_sim_attachment *, const char *, ibv_device **) noexcept nogil
        void (*detach)(ibv_device *) noexcept nogil
        int (*step)(ibv_context *, uint64_t) noexcept nogil
        uint64_t (*world_time)(ibv_context *) noexcept nogil
        uint64_t (*written_time)(ibv_context *) noexcept nogil
        int (*keep_events)(ibv_comp_channel *, int) noexcept nogil
        uint32_t (*kept_events)(const ibv_comp_channel *) noexcept nogil
        uint32_t (*raised_events)(ibv_comp_channel *, int) noexcept nogil

    const char *vb_resolve(void *handle, vb_symbols *table)
    const char *vb_in_front()
    int vb_query_port(const vb_symbols *table, ibv_context *context, uint8_t port,
                      ibv_port_attr *attr)


cdef extern from "_xrc.h" nogil:
    struct ibv_xrcd:
        pass

    ibv_xrcd *vb_xrc_open(ibv_context *context, int fd, int oflags)
    int vb_xrc_close(ibv_xrcd *xrcd)
    ibv_srq *vb_xrc_create_srq(ibv_pd *pd, ibv_xrcd *xrcd, ibv_cq *cq,
                               const ibv_srq_init_attr *init)
    int64_t vb_xrc_srq_num(ibv_srq *srq)
    ibv_qp *vb_xrc_create_qp(ibv_xrcd *xrcd, void *qp_context)
    ibv_qp *vb_xrc_open_qp(ibv_xrcd *xrcd, uint32_t qp_num, void *qp_context)


cdef extern from "_extended.h" nogil:
    ibv_mr *vb_alloc_null_mr(ibv_pd *pd)
    int vb_advise_mr(ibv_pd *pd, int advice, uint32_t flags, ibv_sge *sg_list, uint32_t num_sge)
    ibv_dm *vb_alloc_dm(ibv_context *context, size_t length, uint32_t log_align_req)
    int vb_free_dm(ibv_dm *dm)
    ibv_mr *vb_reg_dm_mr(ibv_pd *pd, ibv_dm *dm, uint64_t offset, size_t length,
                         unsigned int access)
    ibv_td *vb_alloc_td(ibv_context *context)
    int vb_dealloc_td(ibv_td *td)
    ibv_pd *vb_alloc_parent_domain(ibv_pd *pd, ibv_td *td)
    int vb_query_memory(ibv_context *context, ibv_device_attr_ex *attr)


cdef extern from "_spin.h" nogil:
    uint64_t vb_now_ns()
    uint64_t vb_load_u64(const uint64_t *word)
    void vb_store_u64(uint64_t *word, uint64_t value)
    bint vb_glance_u64(const uint64_t *word, uint64_t value)
    bint vb_spin_u64(const uint64_t *word, uint64_t value, uint64_t deadline)
    int vb_spin_cq(ibv_cq *cq, int room, ibv_wc *wc, uint64_t deadline)


cdef extern from "_fields.h" nogil:
    int vb_set_qp_field(ibv_qp_attr *attr, const char *name, uint64_t value)
