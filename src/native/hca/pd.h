// SPDX-License-Identifier: Apache-2.0
/*
 * Protection domains, and two more objects that are used in their place: parent domains, which add
 * a thread domain and allocators to one, and domains that another context of the process imports.
 */
#ifndef VB_HCA_PD_H
#define VB_HCA_PD_H

#include "hca/adapter.h"

/* A protection domain as such. Each context that has allocated or imported it has a vb_pd for it.
 */
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
    bool imported;          /* the program counts as a user until it unimports the domain */
    /* of a parent domain alone: */
    struct vb_pd *real;
    struct vb_td *td;
    struct ibv_parent_domain_init_attr attr;
};

/* The kinds of memory that a parent domain's allocators are called for. */
enum vb_resource { VB_RESOURCE_SEND_QUEUE = 1 };

int vb_pd_alloc(struct vb_context *context, struct vb_pd **pd);
int vb_pd_dealloc(struct vb_pd *pd); /* of any kind; -EBUSY: it has users */

/* Imports the domain that has this handle in another context. -ENOENT: none has. */
int vb_pd_import(struct vb_context *context, struct vb_context *from, uint32_t handle,
                 struct vb_pd **pd);
/* The objects that were made in it stay. Has no effect on a domain that was not imported. */
void vb_pd_unimport(struct vb_pd *pd);

void vb_pd_use(struct vb_pd *pd);
void vb_pd_drop(struct vb_pd *pd);

int vb_td_alloc(struct vb_context *context, struct vb_td **td);
int vb_td_dealloc(struct vb_td *td); /* -EBUSY */

/* Makes a parent domain. -EINVAL: unknown fields, or a domain that is another context's or itself a
 * parent domain. */
int vb_parent_domain_alloc(struct vb_context *context,
                           const struct ibv_parent_domain_init_attr *attr, struct vb_pd **pd);

/*
 * Allocates zeroed private memory for a resource made in this domain, by the domain's allocators if
 * it has any; `pd` may be NULL. `programs_own` says whether an allocator of the program gave it.
 * vb_pd_memory_free frees it, with the same arguments.
 */
void *vb_pd_memory(struct vb_pd *pd, size_t size, enum vb_resource resource, bool *programs_own);
void vb_pd_memory_free(struct vb_pd *pd, void *memory, enum vb_resource resource,
                       bool programs_own);

#endif
