// SPDX-License-Identifier: Apache-2.0
/*
 * The line that a program's end may print about failures (advice.h). failures.c and the core note
 * failures here; an exit handler, which the first failure registers, prints the line.
 */
#include "dropin/advice.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include "dropin/settings.h"

enum { NOTHING_FAILED, SOME_FAILED, PROGRAM_ASKS };

static atomic_int state;

#ifdef __GLIBC__ /* the exit handlers of other C libraries do not get the exit status */
static void advice_say(int status, void *unused)
{
    (void)unused;
    if (status && atomic_load(&state) == SOME_FAILED)
        vb_dropin_log(VB_LOG_ERRORS,
                      "a verbs call or request of this program failed; to hear why: "
                      "verbena %s --log errors (or VERBENA_LOG=errors)",
                      vb_dropin_settings()->pair ? "pair" : "run");
}
#endif

void vb_dropin_advice_needed(void)
{
    int none = NOTHING_FAILED;

    if (atomic_load_explicit(&state, memory_order_relaxed) != NOTHING_FAILED ||
        vb_dropin_settings()->explain)
        return;
    if (!atomic_compare_exchange_strong(&state, &none, SOME_FAILED))
        return;
#ifdef __GLIBC__
    on_exit(advice_say, NULL);
#endif
}

void vb_dropin_advice_unneeded(void)
{
    atomic_store_explicit(&state, PROGRAM_ASKS, memory_order_relaxed);
}
