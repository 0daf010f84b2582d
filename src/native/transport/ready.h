// SPDX-License-Identifier: Apache-2.0
/*
 * A list of connections that take turns. The links are members of the endpoints (intrusive), so
 * joining and leaving allocate nothing and take constant time. The engine and the congestion
 * windows have such lists, under the engine's lock.
 */
#ifndef VB_TRANSPORT_READY_H
#define VB_TRANSPORT_READY_H

#include <stdbool.h>
#include <stddef.h>

struct vb_link {
    struct vb_link *next, *prev; /* both NULL: it is in no list */
};

struct vb_ready {
    struct vb_link head;
};

static inline void vb_engine_ready_init(struct vb_ready *list)
{
    list->head.next = list->head.prev = &list->head;
}

static inline bool vb_engine_ready_has(const struct vb_link *link)
{
    return link->next != NULL;
}

static inline struct vb_link *vb_engine_ready_first(const struct vb_ready *list)
{
    return list->head.next == &list->head ? NULL : list->head.next;
}

/* Adds it at the end, if it is in no list. */
static inline void vb_engine_ready_add(struct vb_ready *list, struct vb_link *link)
{
    if (link->next)
        return;
    link->next = &list->head;
    link->prev = list->head.prev;
    link->prev->next = list->head.prev = link;
}

/* Adds it at the front, if it is in no list. */
static inline void vb_engine_ready_add_first(struct vb_ready *list, struct vb_link *link)
{
    if (link->next)
        return;
    link->prev = &list->head;
    link->next = list->head.next;
    link->next->prev = list->head.next = link;
}

static inline void vb_engine_ready_remove(struct vb_link *link)
{
    if (!link->next)
        return;
    link->next->prev = link->prev;
    link->prev->next = link->next;
    link->next = link->prev = NULL;
}

/* The first one becomes the last one. */
static inline void vb_engine_ready_rotate(struct vb_ready *list)
{
    struct vb_link *first = vb_engine_ready_first(list);

    if (!first || first->next == &list->head)
        return;
    vb_engine_ready_remove(first);
    vb_engine_ready_add(list, first);
}

#endif
