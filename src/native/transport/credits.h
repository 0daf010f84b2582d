// SPDX-License-Identifier: Apache-2.0
/* End-to-end flow control: receive requests that a responder has, as AETH codes (IBA 9.7.7.2). */
#ifndef VB_TRANSPORT_CREDITS_H
#define VB_TRANSPORT_CREDITS_H

#include <stdint.h>

/* The code of the largest number in the table that is not above `count`: 0 to 30. */
uint8_t vb_engine_credits_encode(uint32_t count);
/* What code 0 to 30 stands for; 31 (VB_CREDITS_UNLIMITED) is for the caller to tell. */
uint32_t vb_engine_credits_decode(uint8_t code);

#endif
