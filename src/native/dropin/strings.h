// SPDX-License-Identifier: Apache-2.0
/*
 * The names of opcodes, for private.c, which exports them under a private version only.
 */
#ifndef VB_DROPIN_STRINGS_H
#define VB_DROPIN_STRINGS_H

#include "abi/request.h"

/* ibv_wr_opcode_str, which is exported in the private nodes only (private.c). */
const char *vb_dropin_wr_opcode_str(enum ibv_wr_opcode opcode);

#endif
