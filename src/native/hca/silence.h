// SPDX-License-Identifier: Apache-2.0
/*
 * Requests that ended because no answer came, as evidence.c tells of them: how often they were
 * tried, and what was heard of the peer meanwhile. What was heard decides what is advised, so that
 * a peer that has answered is not said to be absent.
 */
#ifndef VB_HCA_SILENCE_H
#define VB_HCA_SILENCE_H

#include "hca/evidence.h"
#include "hca/text.h"

/* Of VB_CHECK_NO_ANSWER, VB_CHECK_SEQUENCE_RETRIES and VB_CHECK_OTHER_BUILD. */
void vb_silence_say(struct vb_text *text, const struct vb_evidence *e);
/* What to try, as sentences of their own. */
void vb_silence_advise(struct vb_text *text, const struct vb_evidence *e);
/* What a peer of this host is in, behind the sentence's subject: ": it is in ERR". `value` is the
 * type or number that some reasons have. */
void vb_silence_say_fact(struct vb_text *text, enum vb_silence silence, uint32_t value);

#endif
