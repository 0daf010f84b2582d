// SPDX-License-Identifier: Apache-2.0
/*
 * Protection domains, memory regions, memory windows and device memory. Part of verbs.h. Layouts
 * and values are libibverbs' own (sizes.h).
 */
#ifndef VB_ABI_MEMORY_H
#define VB_ABI_MEMORY_H

#include <stddef.h>
#include <stdint.h>

struct ibv_buf;
struct ibv_context;

struct ibv_pd {
    struct ibv_context *context;
    uint32_t handle;
};

struct ibv_td_init_attr {
    uint32_t comp_mask;
};

struct ibv_td {
    struct ibv_context *context;
};

enum ibv_parent_domain_init_attr_mask {
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS = 1 << 0,
    IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT = 1 << 1,
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC = 1 << 2,
};

/* What an allocator of a parent domain returns to leave the choice to the library. */
#define IBV_ALLOCATOR_USE_DEFAULT ((void *)-1)

struct ibv_parent_domain_init_attr {
    struct ibv_pd *pd;
    struct ibv_td *td; /* may be NULL */
    uint32_t comp_mask;
    void *(*alloc)(struct ibv_pd *pd, void *pd_context, size_t size, size_t alignment,
                   uint64_t resource_type);
    void (*free)(struct ibv_pd *pd, void *pd_context, void *ptr, uint64_t resource_type);
    void *pd_context;
};

enum ibv_xrcd_init_attr_mask {
    IBV_XRCD_INIT_ATTR_FD = 1 << 0,
    IBV_XRCD_INIT_ATTR_OFLAGS = 1 << 1,
    IBV_XRCD_INIT_ATTR_RESERVED = 1 << 2,
};

struct ibv_xrcd_init_attr {
    uint32_t comp_mask;
    int fd;
    int oflags;
};

struct ibv_xrcd {
    struct ibv_context *context;
};

/* Bits that a device which does not know them ignores. */
#define IBV_ACCESS_OPTIONAL_FIRST (1 << 20)
#define IBV_ACCESS_OPTIONAL_RANGE 0x3ff00000

enum ibv_access_flags {
    IBV_ACCESS_LOCAL_WRITE = 1 << 0,
    IBV_ACCESS_REMOTE_WRITE = 1 << 1,
    IBV_ACCESS_REMOTE_READ = 1 << 2,
    IBV_ACCESS_REMOTE_ATOMIC = 1 << 3,
    IBV_ACCESS_MW_BIND = 1 << 4,
    IBV_ACCESS_ZERO_BASED = 1 << 5,
    IBV_ACCESS_ON_DEMAND = 1 << 6,
    IBV_ACCESS_HUGETLB = 1 << 7,
    IBV_ACCESS_FLUSH_GLOBAL = 1 << 8,
    IBV_ACCESS_FLUSH_PERSISTENT = 1 << 9,
    IBV_ACCESS_RELAXED_ORDERING = IBV_ACCESS_OPTIONAL_FIRST,
};

struct ibv_mr {
    struct ibv_context *context;
    struct ibv_pd *pd;
    void *addr;
    size_t length;
    uint32_t handle;
    uint32_t lkey;
    uint32_t rkey;
};

enum ibv_rereg_mr_flags {
    IBV_REREG_MR_CHANGE_TRANSLATION = 1 << 0,
    IBV_REREG_MR_CHANGE_PD = 1 << 1,
    IBV_REREG_MR_CHANGE_ACCESS = 1 << 2,
    IBV_REREG_MR_FLAGS_SUPPORTED = 7,
};

enum ibv_rereg_mr_err_code {
    IBV_REREG_MR_ERR_INPUT = -1,         /* nothing changed */
    IBV_REREG_MR_ERR_DONT_FORK_NEW = -2, /* the old region is still good */
    IBV_REREG_MR_ERR_DO_FORK_OLD = -3,   /* the new region is good */
    IBV_REREG_MR_ERR_CMD = -4,           /* the region can only be deregistered */
    IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW = -5,
};

enum ibv_mr_init_attr_mask {
    IBV_REG_MR_MASK_IOVA = 1 << 0,
    IBV_REG_MR_MASK_ADDR = 1 << 1,
    IBV_REG_MR_MASK_FD = 1 << 2,
    IBV_REG_MR_MASK_FD_OFFSET = 1 << 3,
    IBV_REG_MR_MASK_DMAH = 1 << 4,
    IBV_REG_MR_MASK_BUF = 1 << 5,
};

struct ibv_mr_init_attr {
    size_t length;
    int access;
    uint64_t comp_mask;
    uint64_t iova;
    void *addr;
    int fd;
    uint64_t fd_offset;
    struct ibv_dmah *dmah;
    struct ibv_buf *buf;
};

enum ibv_advise_mr_advice {
    IBV_ADVISE_MR_ADVICE_PREFETCH = 0,
    IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE = 1,
    IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT = 2,
};

#define IBV_ADVISE_MR_FLAG_FLUSH (1 << 0)

enum ibv_mw_type {
    IBV_MW_TYPE_1 = 1,
    IBV_MW_TYPE_2 = 2,
};

struct ibv_mw {
    struct ibv_context *context;
    struct ibv_pd *pd;
    uint32_t rkey;
    uint32_t handle;
    enum ibv_mw_type type;
};

struct ibv_mw_bind_info {
    struct ibv_mr *mr;
    uint64_t addr;
    uint64_t length;
    unsigned int mw_access_flags; /* enum ibv_access_flags */
};

struct ibv_mw_bind {
    uint64_t wr_id;
    unsigned int send_flags;
    struct ibv_mw_bind_info bind_info;
};

struct ibv_alloc_dm_attr {
    size_t length;
    uint32_t log_align_req;
    uint32_t comp_mask;
};

enum ibv_dm_mask {
    IBV_DM_MASK_HANDLE = 1 << 0,
};

struct ibv_dm {
    struct ibv_context *context;
    int (*memcpy_to_dm)(struct ibv_dm *dm, uint64_t dm_offset, const void *host_addr,
                        size_t length);
    int (*memcpy_from_dm)(void *host_addr, struct ibv_dm *dm, uint64_t dm_offset, size_t length);
    uint32_t comp_mask;
    uint32_t handle;
};

enum ibv_tph_mem_type {
    IBV_TPH_MEM_TYPE_VM = 0,
    IBV_TPH_MEM_TYPE_PM = 1,
};

enum ibv_dmah_init_attr_mask {
    IBV_DMAH_INIT_ATTR_MASK_CPU_ID = 1 << 0,
    IBV_DMAH_INIT_ATTR_MASK_PH = 1 << 1,
    IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE = 1 << 2,
};

struct ibv_dmah_init_attr {
    uint32_t comp_mask;
    uint32_t cpu_id;
    uint8_t ph;
    uint8_t tph_mem_type;
};

struct ibv_dmah {
    struct ibv_context *context;
};

#endif
