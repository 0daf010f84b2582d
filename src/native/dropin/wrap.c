// SPDX-License-Identifier: Apache-2.0
/*
 * The calls of Verbena's own about faults and captures. Python calls them on an open device.
 */
#include <stdio.h>

#include "dropin/context.h"
#include "dropin/export.h"
#include "dropin/settings.h"
#include "dropin/verbena.h"
#include "sim/hca.h"
#include "wrap/capture_file.h"
#include "wrap/wrap.h"

/* Returns the device's faults and capture; NULL if the device sends no packets. */
static struct vb_wrap *wrap_of(struct ibv_context *context)
{
    struct vb_open *open = vb_dropin_open_of(context);

    if (open->simulated)
        return &open->simulated->wrap;
    return open->host->roce ? vb_roce_wrap(open->host->roce) : NULL;
}

/* After new rules packets that the old ones delayed may be due at once. */
static void rules_changed(struct vb_open *open)
{
    if (open->simulated)
        vb_sim_hca_wrapped(open->simulated);
    else
        vb_roce_wrapped(open->host->roce);
}

static void say_rules_unheard(void)
{
    vb_dropin_log(
        VB_LOG_ERRORS,
        "a peer on this host is reached directly, without packets: fault rules (fault.set_rules) "
        "do nothing to it; VERBENA_CARRIER=roce on both sides makes packets");
}

/* Says that rules do nothing to peers that are reached without packets, once there is such a peer.
 * For rules of the environment adapter.c does this. */
static void say_if_unheard(struct vb_open *open, const char *records)
{
    struct vb_fault_rules rules;
    char error[64];

    if (open->simulated || vb_wrap_fault_read(records, &rules, error, sizeof(error)))
        return;
    if (rules.count)
        vb_host_tell_direct(open->host, say_rules_unheard);
    else if (atomic_load(&open->host->went_direct) == say_rules_unheard)
        vb_host_tell_direct(open->host, NULL);
}

VB_EXPORT int verbena_set_fault(struct ibv_context *context, const char *records, char *error,
                                size_t size)
{
    struct vb_wrap *wrap;

    if (!vb_dropin_core(context))
        return -VB_ERROR_FORKED;
    wrap = wrap_of(context);
    if (wrap) {
        int result = vb_wrap_set_fault(wrap, records, error, size);

        rules_changed(vb_dropin_open_of(context));
        if (!result)
            say_if_unheard(vb_dropin_open_of(context), records);
        return result;
    }
    snprintf(error, size, "the device sends no packets that faults could meet");
    return -EOPNOTSUPP;
}

VB_EXPORT int verbena_fault_counters(struct ibv_context *context, char *text, size_t size)
{
    struct vb_wrap *wrap;

    if (!vb_dropin_core(context))
        return -VB_ERROR_FORKED;
    wrap = wrap_of(context);
    return wrap ? vb_wrap_fault_text(wrap, text, size) : -EOPNOTSUPP;
}

VB_EXPORT int verbena_begin_capture(const char *path, char *error, size_t size)
{
    int result = vb_wrap_capture_file_renew(path, VB_PCAPNG_ETHERNET);

    if (result)
        snprintf(error, size, "%s", vb_wrap_capture_problem(result));
    return result;
}
