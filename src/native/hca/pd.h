// SPDX-License-Identifier: Apache-2.0
/*
 * Protection domains, and two more objects that are used in their place: parent domains, which add
 * a thread domain and allocators to one, and domains that another context of the process imports.
 */
#ifndef VB_HCA_PD_H
#define VB_HCA_PD_H

#include "hca/adapter.h"

/* A domain's number, of however many objects it is. */
struct vb_domain {
    uint32_t number;
    _Atomic uint32_t refs;
};

struct vb_td {
    struct ibv_td ibv;
    struct vb_object object;
    struct vb_context *context;
    _Atomic uint32_t users; /* parent domains */
};

struct vb_pd {
    struct ibv_pd ibv;
    struct vb_object object;
    struct vb_context *context;
    struct vb_domain *domain;
    uint32_t number;        /* the domain's */
    _Atomic uint32_t users; /* MRs, QPs, SRQs, AHs: dealloc is -EBUSY while any is left */
    bool imported;          /* one of the users is then the program, until it unimports */
    /* a parent domain's */
    struct vb_pd *real;
    struct vb_td *td;
    struct ibv_parent_domain_init_attr attr;
};

/* What a parent domain's allocators are asked for. */
enum vb_resource { VB_RESOURCE_SEND_QUEUE = 1 };

int vb_pd_alloc(struct vb_context *context, struct vb_pd **pd);
int vb_pd_dealloc(struct vb_pd *pd); /* any of the three kinds; -EBUSY */

/* The domain that another context knows by this handle, as this one's; -ENOENT. */
int vb_pd_import(struct vb_context *context, struct vb_context *from, uint32_t handle,
                 struct vb_pd **pd);
/* What was made in it stays. Without effect on a domain that was not imported. */
void vb_pd_unimport(struct vb_pd *pd);

void vb_pd_use(struct vb_pd *pd);
void vb_pd_drop(struct vb_pd *pd);

int vb_td_alloc(struct vb_context *context, struct vb_td **td);
int vb_td_dealloc(struct vb_td *td); /* -EBUSY */

/* -EINVAL: unknown fields, another context's domain, or a parent domain's. */
int vb_parent_domain_alloc(struct vb_context *context,
                           const struct ibv_parent_domain_init_attr *attr, struct vb_pd **pd);

/*
 * Zeroed private memory for a resource made in this domain, which may be NULL: by its allocators,
 * if it has any.
 * Freed by the other one, with the same arguments.
 */
void *vb_pd_memory(struct vb_pd *pd, size_t size, enum vb_resource resource, bool *programs_own);
void vb_pd_memory_free(struct vb_pd *pd, void *memory, enum vb_resource resource,
                       bool programs_own);

#endif
