// SPDX-License-Identifier: Apache-2.0
/*
 * The store of unconfirmed.h: a ring of places that is allocated with the first packet.
 * udp_receive.c calls it under the port's lock.
 */
#include "roce/unconfirmed.h"

#include <stdlib.h>

struct vb_unconfirmed *vb_roce_unconfirmed_find(const struct vb_unconfirmed_store *store,
                                                const struct vb_ids_flow *flow)
{
    struct vb_unconfirmed *at = flow->unconfirmed ? &store->places[flow->unconfirmed - 1] : NULL;

    return at && at->flow == flow ? at : NULL;
}

struct vb_unconfirmed *vb_roce_unconfirmed_next(struct vb_unconfirmed_store *store, uint32_t bytes)
{
    if (!store->places)
        store->places = calloc(VB_UNCONFIRMED_PLACES, sizeof(*store->places));
    if (!store->places || bytes > VB_UNCONFIRMED_BYTES)
        return NULL;
    return &store->places[store->next % VB_UNCONFIRMED_PLACES];
}

void vb_roce_unconfirmed_put(struct vb_unconfirmed_store *store, struct vb_unconfirmed *at,
                             struct vb_ids_flow *flow)
{
    at->flow = flow;
    flow->unconfirmed = (uint8_t)(at - store->places + 1);
    ++store->next;
    ++store->count;
}

void vb_roce_unconfirmed_free(struct vb_unconfirmed_store *store, struct vb_unconfirmed *at)
{
    if (vb_roce_unconfirmed_find(store, at->flow) == at) /* else another flow is there now */
        at->flow->unconfirmed = 0;
    at->flow = NULL;
    --store->count;
}

struct vb_unconfirmed *vb_roce_unconfirmed_oldest(const struct vb_unconfirmed_store *store)
{
    struct vb_unconfirmed *at;

    if (!store->count)
        return NULL;
    for (unsigned i = 0;; ++i) {
        at = &store->places[(store->next + i) % VB_UNCONFIRMED_PLACES];
        if (at->flow)
            return at;
    }
}
