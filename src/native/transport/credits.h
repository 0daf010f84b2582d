// SPDX-License-Identifier: Apache-2.0
/*
 * End-to-end flow control: the number of receive requests that a responder has, as a code in the
 * AETH (IBA 9.7.7.2, table 44). The replies encode it and the completer decodes it.
 */
#ifndef VB_TRANSPORT_CREDITS_H
#define VB_TRANSPORT_CREDITS_H

#include <stdint.h>

/* The code of the largest number in the table that is not above `count`: 0 to 30. */
uint8_t vb_engine_credits_encode(uint32_t count);
/* The number for a code from 0 to 30. The caller has to look for 31, VB_CREDITS_UNLIMITED. */
uint32_t vb_engine_credits_decode(uint8_t code);

#endif
