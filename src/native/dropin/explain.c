// SPDX-License-Identifier: Apache-2.0
/*
 * The calls of Verbena's own that describe an open device: why a completion failed, its slots and
 * peers, its counters. Python calls them.
 */
#include <stdio.h>

#include "dropin/advice.h"
#include "dropin/context.h"
#include "dropin/export.h"
#include "dropin/verbena.h"
#include "sim/hca.h"

VB_EXPORT int verbena_explain(struct ibv_context *context, uint32_t vendor_err, char *text,
                              size_t size)
{
    vb_dropin_advice_unneeded();
    return vb_dropin_completion_text(context, vendor_err, text, size);
}

VB_EXPORT int verbena_describe(struct ibv_context *context, char *json, size_t size)
{
    if (!vb_dropin_core(context))
        return -VB_ERROR_FORKED;
    if (vb_dropin_open_of(context)->simulated)
        return vb_sim_hca_describe(vb_dropin_open_of(context)->simulated, context->device->name,
                                   json, size);
    return vb_host_describe(vb_dropin_open_of(context)->host, json, size);
}

VB_EXPORT int verbena_counters(struct ibv_context *context, char *json, size_t size)
{
    if (!vb_dropin_core(context))
        return -VB_ERROR_FORKED;
    if (vb_dropin_open_of(context)->simulated)
        return vb_sim_hca_counters(vb_dropin_open_of(context)->simulated, json, size);
    return vb_host_counters(vb_dropin_open_of(context)->host, json, size);
}
