// SPDX-License-Identifier: Apache-2.0
/*
 * The names of numbers, for sentences about them. decline.c, sentences.c and whoever writes a line
 * of the log call these.
 */
#ifndef VB_HCA_NAMES_H
#define VB_HCA_NAMES_H

#include <stdint.h>

#include "hca/text.h"

/* "INIT"; "no state" for a number that is none. */
const char *vb_state_name(uint64_t state);
/* "RC", "UC", "UD"… */
const char *vb_type_name(uint64_t type);
/* "RDMA_WRITE": an opcode of ibv_send_wr; "unknown" for a number that is none. */
const char *vb_opcode_name(uint64_t opcode);
/* "WRITE", "compare-and-swap": what an opcode asks for, with or without immediate data. */
const char *vb_request_name(uint64_t opcode);
/* "remote access error": a completion's status. */
const char *vb_status_name(uint64_t status);
/* "IBV_ACCESS_LOCAL_WRITE" without the prefix, several with | between them, and what is unknown in
 * hexadecimal. */
void vb_say_access(struct vb_text *text, uint64_t access);
/* The bits of ibv_modify_qp's mask, as <infiniband/verbs.h> writes them. */
void vb_say_mask(struct vb_text *text, uint64_t mask);
/* "version 0.1.0", of at most eight characters; 0 is a build that does not say which it is. */
void vb_say_version(struct vb_text *text, uint64_t characters);
/* A number as decline.h's letter says; 0 and letters that are none there: decimal. */
void vb_say_number(struct vb_text *text, char as, uint64_t number);

#endif
