// SPDX-License-Identifier: Apache-2.0
/*
 * An open device as a program holds it. device.c makes one for each ibv_open_device; every other
 * exported call finds the core's objects through it. The verbs that have no exported symbol, since
 * <infiniband/verbs.h> calls them through tables, are declared here.
 */
#ifndef VB_DROPIN_CONTEXT_H
#define VB_DROPIN_CONTEXT_H

#include <errno.h>
#include <stddef.h>

#include "dropin/failures.h"
#include "hca/hca.h"
#include "host/host.h"
#include "lock/mutex.h"

struct vb_sim_hca;

struct vb_open {
    struct vb_open *next;
    struct vb_context *core;      /* NULL: closed, or opened before this process was forked */
    struct vb_context *ended;     /* after ibv_close_device: the core, which explains failures */
    _Atomic uint32_t held;        /* after ibv_close_device: 1, and objects not destroyed yet */
    struct vb_host *host;         /* whose adapter the context uses; NULL for a simulated host */
    struct vb_sim_hca *simulated; /* the adapter of a simulated host, or NULL */
    struct vb_lines lines;
    struct vb_xrcd *xrcds; /* open XRC domains, under the context's mutex */
    struct verbs_context verbs;
};

/* The contexts of all devices, a list by `next`. */
struct vb_contexts {
    struct vb_mutex mutex; /* protects the list, and who opens and closes adapters */
    struct vb_open *first;
};

struct vb_contexts *vb_dropin_contexts(void);

static inline struct vb_open *vb_dropin_open_of(const struct ibv_context *context)
{
    return (struct vb_open *)((char *)(uintptr_t)context - offsetof(struct vb_open, verbs.context));
}

/* The error of every verb on a context that is closed, or was opened before a fork. */
enum { VB_ERROR_FORKED = ENODEV };

/* Returns the port with this number, or NULL. The context must be open. */
static inline struct vb_adapter_port *vb_dropin_port_of(const struct ibv_context *context,
                                                        uint32_t port_num)
{
    return vb_adapter_port(vb_dropin_open_of(context)->core->adapter, port_num);
}

/* Returns NULL, and sets errno, if the context is closed or was opened before a fork. */
static inline struct vb_context *vb_dropin_core(const struct ibv_context *context)
{
    struct vb_context *core = vb_dropin_open_of(context)->core;

    if (VB_UNLIKELY(!core))
        errno = VB_ERROR_FORKED;
    return core;
}

/* What a call of the core returns, or the error where the context is not open. */
#define VB_IF_OPEN(context, call) (vb_dropin_core(context) ? (call) : -VB_ERROR_FORKED)

/*
 * Defines a verb that destroys an object through the core. The context is read before the object is
 * freed. Where the context is not open, vb_dropin_destroy_closed frees what the program still held.
 */
#define VB_DESTROY(returns, function, call, ibv_type, core_type, destroy)                          \
    returns function(struct ibv_type *object)                                                      \
    {                                                                                              \
        struct ibv_context *context = object->context;                                             \
                                                                                                   \
        return vb_dropin_core(context)                                                             \
                   ? vb_dropin_result(context, call, destroy((struct core_type *)object))          \
                   : vb_dropin_destroy_closed(context, object);                                    \
    }

/* Sets errno from a core's negative error, and returns NULL as verbs that return a pointer do. */
static inline void *vb_dropin_null(int error)
{
    errno = -error;
    return NULL;
}

/* Fills the tables of calls and everything else but the core. The context owns `cmd_fd`
 * (command.h) from now on. */
void vb_dropin_open_init(struct vb_open *opened, struct ibv_device *device, int cmd_fd);
void vb_dropin_open_fini(struct vb_open *opened);
/* Gives up one of `held`; the last frees the context. */
void vb_dropin_open_release(struct vb_open *opened);
/*
 * Destroys an object of a context that is not open, and returns 0. After ibv_close_device the
 * object is memory alone, which is freed. In a forked child nothing is freed: the object is the
 * parent's.
 */
int vb_dropin_destroy_closed(struct ibv_context *context, void *object);
/* Closes the files of XRC domains, in a forked child: they would keep the parent's domains open. */
void vb_dropin_close_xrcd_files(struct vb_open *opened);
/* From now on every call through the tables fails. */
void vb_dropin_open_disable(struct vb_open *opened);

/* Returns 0 if an address' sgid_index names a GID, and otherwise -ENODATA, as the kernel does. */
int vb_dropin_check_source(const struct ibv_context *context, const struct ibv_ah_attr *attr);

/* Declines a port number that the device does not have, and returns -EINVAL. */
int vb_dropin_no_port(struct ibv_context *context, uint32_t port_num);

/* The verbs that programs call through the context's tables only. */
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
