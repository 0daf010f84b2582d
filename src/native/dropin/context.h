// SPDX-License-Identifier: Apache-2.0
/* An open device as a program holds it, and how the surface finds the adapter's objects in it. */
#ifndef VB_DROPIN_CONTEXT_H
#define VB_DROPIN_CONTEXT_H

#include <errno.h>
#include <stddef.h>

#include "dropin/failures.h"
#include "hca/hca.h"
#include "port/host.h"

struct vb_open {
    struct vb_open *next;
    struct vb_context *core; /* NULL in a forked child: the adapter is the parent's */
    struct vb_host *host;
    struct vb_lines lines;
    struct vb_xrcd *xrcds; /* under the context's mutex; a forked child lets their files go */
    struct verbs_context verbs;
};

static inline struct vb_open *vb_open_of(const struct ibv_context *context)
{
    return (struct vb_open *)((char *)(uintptr_t)context - offsetof(struct vb_open, verbs.context));
}

/* The error of every verb in a forked child on what its parent had opened. */
enum { VB_ERROR_FORKED = ENODEV };

/* The port's GIDs; not in a forked child. */
static inline struct vb_addresses *vb_gids(const struct ibv_context *context)
{
    return vb_open_of(context)->host->direct->addresses;
}

/* NULL and errno in a forked child. */
static inline struct vb_context *vb_core(const struct ibv_context *context)
{
    struct vb_context *core = vb_open_of(context)->core;

    if (VB_UNLIKELY(!core))
        errno = VB_ERROR_FORKED;
    return core;
}

/* A core's negative errno as a pointer-returning verb has it. */
static inline void *vb_null(int error)
{
    errno = -error;
    return NULL;
}

/* A core's negative errno as libibverbs returns it, with errno set as many callers expect. */
static inline int vb_errno(int error)
{
    if (error)
        errno = -error;
    return -error;
}

/* Fills both tables and everything else of the context but its adapter. -errno. */
int vb_open_init(struct vb_open *opened, struct ibv_device *device);
void vb_open_fini(struct vb_open *opened);
/* In a forked child: lets go of what keeps XRC domains open. */
void vb_forget_xrcds(struct vb_open *opened);
/* Every call through the tables fails from now on. */
void vb_open_kill(struct vb_open *opened);

/* The calls that only the tables lead to. */
int vb_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr,
                  size_t attr_size);
int vb_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                       struct ibv_device_attr_ex *attr, size_t attr_size);
struct ibv_cq_ex *vb_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
struct ibv_qp *vb_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
struct ibv_srq *vb_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
struct ibv_xrcd *vb_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
int vb_close_xrcd(struct ibv_xrcd *xrcd);
struct ibv_qp *vb_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr);
int vb_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num);

#endif
