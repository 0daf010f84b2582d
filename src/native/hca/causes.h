// SPDX-License-Identifier: Apache-2.0
/*
 * The possible causes of a NAK. Its code names a class of errors only, so the operation and the
 * type of the queue pair decide which causes are named. sentences.c asks for them.
 */
#ifndef VB_HCA_CAUSES_H
#define VB_HCA_CAUSES_H

#include "hca/evidence.h"
#include "hca/text.h"

/* "remote access error: ..."; of a VB_CHECK_REFUSED, whose `count` is the NAK's code. */
void vb_causes_say(struct vb_text *text, const struct vb_evidence *refused);

#endif
