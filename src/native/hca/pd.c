// SPDX-License-Identifier: Apache-2.0
/*
 * Protection domains, thread domains, parent domains and imported domains. An object that uses a
 * domain counts as its user until it is destroyed, and a domain with users is not deallocated.
 */
#include "hca/pd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hca/mr.h"
#include "hca/users.h"

/* ---- the number ---- */

static struct vb_domain *new_domain(struct vb_adapter *adapter)
{
    struct vb_domain *domain = calloc(1, sizeof(*domain));

    if (!domain)
        return NULL;
    if (vb_adapter_take_index(adapter, &adapter->pd_pool, &domain->number)) {
        free(domain);
        return NULL;
    }
    return domain;
}

static void put_domain(struct vb_adapter *adapter, struct vb_domain *domain)
{
    if (atomic_fetch_sub(&domain->refs, 1) != 1)
        return;
    vb_adapter_return_index(adapter, &adapter->pd_pool, domain->number);
    free(domain);
}

/* ---- an object that stands for it ---- */

static struct vb_pd *pd_of(struct vb_object *object)
{
    return (struct vb_pd *)((char *)object - offsetof(struct vb_pd, object));
}

static void pd_release(struct vb_object *object)
{
    struct vb_pd *pd = pd_of(object);

    atomic_store(&pd->users, pd->imported);
    vb_pd_dealloc(pd);
}

static struct vb_pd *new_pd(struct vb_context *context, struct vb_domain *domain)
{
    struct vb_pd *made = calloc(1, sizeof(*made));

    if (!made)
        return NULL;
    made->context = context;
    made->domain = domain;
    made->number = domain->number;
    made->ibv.context = context->ibv;
    made->ibv.handle = made->number;
    atomic_fetch_add(&domain->refs, 1);
    return made;
}

static void free_pd(struct vb_pd *pd)
{
    if (pd->td)
        atomic_fetch_sub(&pd->td->users, 1);
    if (pd->real)
        vb_pd_drop(pd->real);
    put_domain(pd->context->adapter, pd->domain);
    vb_object_free(&pd->object, pd);
}

int vb_pd_alloc(struct vb_context *context, struct vb_pd **pd)
{
    struct vb_domain *domain = new_domain(context->adapter);
    struct vb_pd *made;

    if (!domain)
        return -ENOMEM;
    atomic_store(&domain->refs, 1);
    made = new_pd(context, domain);
    put_domain(context->adapter, domain);
    if (!made)
        return -ENOMEM;
    vb_object_add(context, &made->object, pd_release);
    *pd = made;
    return 0;
}

int vb_pd_dealloc(struct vb_pd *pd)
{
    if (atomic_load(&pd->users) != pd->imported)
        return vb_decline_busy_pd(pd);
    vb_object_remove(pd->context, &pd->object);
    free_pd(pd);
    return 0;
}

void vb_pd_use(struct vb_pd *pd)
{
    atomic_fetch_add(&pd->users, 1);
}

/* An imported domain is freed with its last user, since ibv_unimport_pd cannot fail. */
void vb_pd_drop(struct vb_pd *pd)
{
    bool imported = pd->imported;

    if (atomic_fetch_sub(&pd->users, 1) == 1 && imported)
        free_pd(pd);
}

/* ---- import ---- */

/* Returns the domain with this handle, with a reference that keeps it after the mutex is released.
 */
static struct vb_domain *find_domain(struct vb_context *context, uint32_t handle)
{
    struct vb_domain *found = NULL;

    vb_lock_take(&context->mutex);
    for (struct vb_object *each = context->objects; each && !found; each = each->next)
        if (each->release == pd_release && pd_of(each)->number == handle) {
            found = pd_of(each)->domain;
            atomic_fetch_add(&found->refs, 1);
        }
    vb_lock_release(&context->mutex);
    return found;
}

int vb_pd_import(struct vb_context *context, struct vb_context *from, uint32_t handle,
                 struct vb_pd **pd)
{
    struct vb_domain *domain = find_domain(from, handle);
    struct vb_pd *made;

    if (!domain)
        return -ENOENT;
    made = new_pd(context, domain);
    put_domain(context->adapter, domain);
    if (!made)
        return -ENOMEM;
    made->imported = true;
    atomic_store(&made->users, 1);
    vb_object_add(context, &made->object, pd_release);
    *pd = made;
    return 0;
}

void vb_pd_unimport(struct vb_pd *pd)
{
    if (!pd->imported)
        return;
    vb_object_remove(pd->context, &pd->object);
    vb_pd_drop(pd);
}

/* ---- thread and parent domains ---- */

static void td_release(struct vb_object *object)
{
    struct vb_td *td = (struct vb_td *)((char *)object - offsetof(struct vb_td, object));

    atomic_store(&td->users, 0);
    vb_td_dealloc(td);
}

/* Thread domains: the program promises to use their objects in one thread at a time. Locks are
 * biased (biased_lock.h) and cost next to nothing then, so the promise changes nothing here. */
int vb_td_alloc(struct vb_context *context, struct vb_td **td)
{
    struct vb_td *made = calloc(1, sizeof(*made));

    if (!made)
        return -ENOMEM;
    made->context = context;
    made->ibv.context = context->ibv;
    vb_object_add(context, &made->object, td_release);
    *td = made;
    return 0;
}

int vb_td_dealloc(struct vb_td *td)
{
    if (atomic_load(&td->users))
        return -EBUSY;
    vb_object_remove(td->context, &td->object);
    vb_object_free(&td->object, td);
    return 0;
}

static int check_parent(const struct vb_context *context,
                        const struct ibv_parent_domain_init_attr *attr)
{
    const uint32_t known =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    const struct vb_pd *pd = (const struct vb_pd *)attr->pd;

    if (attr->comp_mask & ~known)
        return -EOPNOTSUPP;
    if (!pd || pd->context != context || pd->real)
        return -EINVAL;
    if (attr->td && ((const struct vb_td *)attr->td)->context != context)
        return -EINVAL;
    if ((attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) && (!attr->alloc || !attr->free))
        return -EINVAL;
    return 0;
}

int vb_parent_domain_alloc(struct vb_context *context,
                           const struct ibv_parent_domain_init_attr *attr, struct vb_pd **pd)
{
    int error = check_parent(context, attr);
    struct vb_pd *made;

    if (error)
        return error;
    made = new_pd(context, ((struct vb_pd *)attr->pd)->domain);
    if (!made)
        return -ENOMEM;
    made->real = (struct vb_pd *)attr->pd;
    made->td = (struct vb_td *)attr->td;
    made->attr = *attr;
    if (!(attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT))
        made->attr.pd_context = NULL;
    vb_pd_use(made->real);
    if (made->td)
        atomic_fetch_add(&made->td->users, 1);
    vb_object_add(context, &made->object, pd_release);
    *pd = made;
    return 0;
}

void *vb_pd_memory(struct vb_pd *pd, size_t size, enum vb_resource resource, bool *programs_own)
{
    void *memory = IBV_ALLOCATOR_USE_DEFAULT;

    if (pd && (pd->attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS))
        memory = pd->attr.alloc(&pd->ibv, pd->attr.pd_context, size, VB_LINE, resource);
    *programs_own = memory != IBV_ALLOCATOR_USE_DEFAULT;
    if (!*programs_own)
        return calloc(1, size);
    if (memory)
        memset(memory, 0, size);
    return memory;
}

void vb_pd_memory_free(struct vb_pd *pd, void *memory, enum vb_resource resource, bool programs_own)
{
    if (!programs_own)
        free(memory);
    else if (memory)
        pd->attr.free(&pd->ibv, pd->attr.pd_context, memory, resource);
}
