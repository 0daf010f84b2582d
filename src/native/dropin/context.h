// SPDX-License-Identifier: Apache-2.0
/* An open device as a program holds it, and how the surface finds the adapter's objects in it. */
#ifndef VB_DROPIN_CONTEXT_H
#define VB_DROPIN_CONTEXT_H

#include <errno.h>
#include <stddef.h>

#include "dropin/failures.h"
#include "hca/hca.h"
#include "host/host.h"

struct vb_sim_hca;

struct vb_open {
    struct vb_open *next;
    struct vb_context *core;  /* NULL: closed, or in a forked child: the adapter is the parent's */
    struct vb_context *ended; /* closed: what explains why it fails */
    _Atomic uint32_t held;    /* closed: the objects that the program has not destroyed yet */
    struct vb_host *host;     /* NULL: of a simulated host, … */
    struct vb_sim_hca *simulated; /* …whose adapter this is */
    struct vb_lines lines;
    struct vb_xrcd *xrcds; /* under the context's mutex; a forked child lets their files go */
    struct verbs_context verbs;
};

static inline struct vb_open *vb_dropin_open_of(const struct ibv_context *context)
{
    return (struct vb_open *)((char *)(uintptr_t)context - offsetof(struct vb_open, verbs.context));
}

/* The error of every verb on what is closed or, in a forked child, the parent's. */
enum { VB_ERROR_FORKED = ENODEV };

/* The port with this number, or NULL; only where there is a core. */
static inline struct vb_adapter_port *vb_dropin_port_of(const struct ibv_context *context,
                                                        uint32_t port_num)
{
    return vb_adapter_port(vb_dropin_open_of(context)->core->adapter, port_num);
}

/* NULL and errno when it is closed, and in a forked child. */
static inline struct vb_context *vb_dropin_core(const struct ibv_context *context)
{
    struct vb_context *core = vb_dropin_open_of(context)->core;

    if (VB_UNLIKELY(!core))
        errno = VB_ERROR_FORKED;
    return core;
}

/* A core's negative errno as a pointer-returning verb has it. */
static inline void *vb_dropin_null(int error)
{
    errno = -error;
    return NULL;
}

/* Fills both tables and everything else of the context but its adapter; `cmd_fd` becomes its own
 * (command.h). */
void vb_dropin_open_init(struct vb_open *opened, struct ibv_device *device, int cmd_fd);
void vb_dropin_open_fini(struct vb_open *opened);
/* Fini and free, when nothing in it is held any more. */
void vb_dropin_open_let_go(struct vb_open *opened);
/*
 * What is left of a destroy call without a core; 0. A program that closes the device first still
 * destroys its objects, whose memory waits for that. In a forked child all stays: it is the
 * parent's.
 */
int vb_dropin_bury(struct ibv_context *context, void *object);
/* In a forked child: lets go of what keeps XRC domains open. */
void vb_dropin_forget_xrcds(struct vb_open *opened);
/* Every call through the tables fails from now on. */
void vb_dropin_open_kill(struct vb_open *opened);

/* Is there a GID behind an address' sgid_index? 0, or -ENODATA as the kernel has it. */
int vb_dropin_check_source(const struct ibv_context *context, const struct ibv_ah_attr *attr);

/* A port number that leads to none: -EINVAL, with the text. */
int vb_dropin_no_port(struct ibv_context *context, uint32_t port_num);

/* The calls that only the tables lead to. */
int vb_dropin_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr,
                         size_t attr_size);
int vb_dropin_query_device_ex(struct ibv_context *context,
                              const struct ibv_query_device_ex_input *input,
                              struct ibv_device_attr_ex *attr, size_t attr_size);
int vb_dropin_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);
int vb_dropin_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
struct ibv_cq_ex *vb_dropin_create_cq_ex(struct ibv_context *context,
                                         struct ibv_cq_init_attr_ex *attr);
struct ibv_qp *vb_dropin_create_qp_ex(struct ibv_context *context,
                                      struct ibv_qp_init_attr_ex *attr);
int vb_dropin_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr);
struct ibv_srq *vb_dropin_create_srq_ex(struct ibv_context *context,
                                        struct ibv_srq_init_attr_ex *attr);
struct ibv_xrcd *vb_dropin_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
int vb_dropin_close_xrcd(struct ibv_xrcd *xrcd);
struct ibv_qp *vb_dropin_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr);
int vb_dropin_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num);
struct ibv_mw *vb_dropin_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int vb_dropin_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
int vb_dropin_dealloc_mw(struct ibv_mw *mw);
struct ibv_mr *vb_dropin_alloc_null_mr(struct ibv_pd *pd);
int vb_dropin_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
                        struct ibv_sge *sg_list, uint32_t num_sge);
struct ibv_dm *vb_dropin_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr);
int vb_dropin_free_dm(struct ibv_dm *dm);
struct ibv_mr *vb_dropin_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t dm_offset,
                                   size_t length, unsigned int access);
struct ibv_td *vb_dropin_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int vb_dropin_dealloc_td(struct ibv_td *td);
struct ibv_pd *vb_dropin_alloc_parent_domain(struct ibv_context *context,
                                             struct ibv_parent_domain_init_attr *attr);

#endif
