// SPDX-License-Identifier: Apache-2.0
/* What can be behind a NAK, whose code says no more than its class: per operation and QP type. */
#ifndef VB_HCA_CAUSES_H
#define VB_HCA_CAUSES_H

#include "hca/evidence.h"
#include "hca/text.h"

/* "remote access error: ..."; of a VB_CHECK_REFUSED, whose `count` is the NAK's code. */
void vb_causes_say(struct vb_text *text, const struct vb_evidence *refused);

#endif
