// SPDX-License-Identifier: Apache-2.0
#include "dropin/hint.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include "dropin/settings.h"

enum { NOTHING_FAILED, SOME_FAILED, PROGRAM_ASKS };

static atomic_int state;

#ifdef __GLIBC__ /* others tell no exit status to those who wait for the end */
static void say_hint(int status, void *unused)
{
    (void)unused;
    if (status && atomic_load(&state) == SOME_FAILED)
        vb_dropin_log(VB_LOG_ERRORS,
                      "a verbs call or request of this program failed; to hear why: "
                      "verbena %s --log errors (or VERBENA_LOG=errors)",
                      vb_dropin_settings()->pair ? "pair" : "run");
}
#endif

void vb_dropin_hint_needed(void)
{
    int none = NOTHING_FAILED;

    if (atomic_load_explicit(&state, memory_order_relaxed) != NOTHING_FAILED ||
        vb_dropin_settings()->explain)
        return;
    if (!atomic_compare_exchange_strong(&state, &none, SOME_FAILED))
        return;
#ifdef __GLIBC__
    on_exit(say_hint, NULL);
#endif
}

void vb_dropin_hint_void(void)
{
    atomic_store_explicit(&state, PROGRAM_ASKS, memory_order_relaxed);
}
