// SPDX-License-Identifier: Apache-2.0
#include "roce/park.h"

#include <stdlib.h>

struct vb_parked *vb_roce_park_find(const struct vb_park *park, const struct vb_ids_flow *flow)
{
    struct vb_parked *at = flow->parked ? &park->places[flow->parked - 1] : NULL;

    return at && at->flow == flow ? at : NULL;
}

struct vb_parked *vb_roce_park_next(struct vb_park *park, uint32_t bytes)
{
    if (!park->places)
        park->places = calloc(VB_PARK_PLACES, sizeof(*park->places));
    if (!park->places || bytes > VB_PARK_BYTES)
        return NULL;
    return &park->places[park->next % VB_PARK_PLACES];
}

void vb_roce_park_put(struct vb_park *park, struct vb_parked *at, struct vb_ids_flow *flow)
{
    at->flow = flow;
    flow->parked = (uint8_t)(at - park->places + 1);
    ++park->next;
    ++park->count;
}

void vb_roce_park_free(struct vb_park *park, struct vb_parked *at)
{
    if (vb_roce_park_find(park, at->flow) == at) /* else another flow is there now */
        at->flow->parked = 0;
    at->flow = NULL;
    --park->count;
}

struct vb_parked *vb_roce_park_oldest(const struct vb_park *park)
{
    struct vb_parked *at;

    if (!park->count)
        return NULL;
    for (unsigned i = 0;; ++i) {
        at = &park->places[(park->next + i) % VB_PARK_PLACES];
        if (at->flow)
            return at;
    }
}
