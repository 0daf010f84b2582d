// SPDX-License-Identifier: Apache-2.0
/*
 * The carrier of a queue pair before RTR, and two calls for carriers that complete each call before
 * they return. Nothing is in progress on a queue pair that has this carrier.
 */
#include "hca/carrier.h"

#include <errno.h>

/* No state before RTR executes a request: one that is posted then is refused or flushed. */
static int wait_for_carrier(struct vb_qp *qp, const struct ibv_send_wr *wr,
                            struct vb_outcome *outcome)
{
    (void)qp;
    (void)wr;
    (void)outcome;
    return -EAGAIN;
}

void vb_settled_at_once(struct vb_qp *qp)
{
    (void)qp;
}

bool vb_always_quiet(struct vb_qp *qp)
{
    (void)qp;
    return true;
}

const struct vb_carrier vb_uncarried = {
    .execute = wait_for_carrier,
    .settle = vb_settled_at_once,
    .quiet = vb_always_quiet,
};
