// SPDX-License-Identifier: Apache-2.0
/*
 * Sentences about a record of evidence, as sentences.toml has them; evidence.c asks for them, once
 * per text that somebody reads. {field} in a sentence is a field of struct vb_evidence in decimal,
 * {field:letter} as decline.h's letter says or, here alone: r the operation that was asked for, w
 * access that may be none, g a length without a datagram's 40 bytes for its GRH, u the microseconds
 * of a timeout, c what may be behind a NAK's code (causes.h), p and P the P_Keys in the low and
 * the high half of a number and d how these differ, y how often a request was tried, z this build.
 * b, h, q and l say what a number means by the tables BIND, HEARD, SILENCE and LOST of
 * sentences.toml, and Q and L what those advise.
 */
#ifndef VB_HCA_SENTENCES_H
#define VB_HCA_SENTENCES_H

#include "hca/evidence.h"
#include "hca/text.h"

/* `of` is a check, one with VB_SENTENCE_ADVICE, or another of enum vb_sentence. A check that has no
 * such sentence adds nothing. */
void vb_sentence_say(struct vb_text *text, unsigned of, const struct vb_evidence *e);

/* Writes the sentences about the record with this id. Returns their length as snprintf does; 0 if
 * the record is not kept any more. */
int vb_evidence_text(const struct vb_view *view, uint32_t id, char *text, size_t size);

/* Writes the sentences about a record, and what the responder's record adds, which may be NULL. */
int vb_evidence_say(const struct vb_view *view, const struct vb_evidence *evidence,
                    const struct vb_evidence *responder, char *text, size_t size);

#endif
