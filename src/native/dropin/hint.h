// SPDX-License-Identifier: Apache-2.0
/*
 * A program that fails is told once, as it ends, how to hear why. Programs also live with calls
 * that fail, as they try what a device offers: so only who ends with an exit status other than 0
 * hears of it, and nobody whose program reads the reasons itself (verbena_why) or has VERBENA_LOG
 * set.
 */
#ifndef VB_DROPIN_HINT_H
#define VB_DROPIN_HINT_H

/* A call or a request has failed. From any thread. */
void vb_dropin_hint_needed(void);
/* The program asks for reasons. */
void vb_dropin_hint_void(void);

#endif
