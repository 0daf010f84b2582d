// SPDX-License-Identifier: Apache-2.0
#ifndef VB_DIRECT_REFUSED_H
#define VB_DIRECT_REFUSED_H

#include "direct/direct.h"
#include "hca/evidence.h"

/*
 * What the other side kept when it refused the request that `refused` tells of (VB_CHECK_REFUSED),
 * or dropped it (VB_CHECK_NO_ANSWER), if that is a process of this host: packets carry no more than
 * a code. May connect to it.
 */
bool vb_direct_find_refusal(struct vb_direct *direct, const struct vb_evidence *refused,
                            struct vb_evidence *seen);

#endif
