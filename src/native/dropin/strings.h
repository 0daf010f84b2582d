// SPDX-License-Identifier: Apache-2.0
#ifndef VB_DROPIN_STRINGS_H
#define VB_DROPIN_STRINGS_H

#include <stdbool.h>

#include "abi/request.h"

/* ibv_wr_opcode_str, which is exported in the private nodes only (private.c). */
const char *vb_wr_opcode_str(enum ibv_wr_opcode opcode);

/* Did the calling thread's latest asynchronous event come since a peer's process ended (event.c)?
 */
bool vb_event_latest_is_death(void);

#endif
