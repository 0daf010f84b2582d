// SPDX-License-Identifier: Apache-2.0
/*
 * What a program that ends with a failure is advised: one line on stderr that says how to see the
 * reasons. Programs also live with calls that fail, as they try what a device offers, so the line
 * appears only if the exit status is not 0. It never appears if VERBENA_LOG is set, or if the
 * program reads the reasons itself (verbena_why, verbena_explain): the package verbena.verbs says
 * so when it opens a device.
 */
#ifndef VB_DROPIN_ADVICE_H
#define VB_DROPIN_ADVICE_H

/* A call or a request has failed. Any thread may call this. */
void vb_dropin_advice_needed(void);
/* The program reads the reasons of failures itself. */
void vb_dropin_advice_unneeded(void);

#endif
