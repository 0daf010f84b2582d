// SPDX-License-Identifier: Apache-2.0
/*
 * Access to memory that the program may have taken away since it was registered.
 *
 * An adapter has its pages pinned and never faults; here nothing is pinned. A fault inside one of
 * these functions ends it with -EFAULT instead of ending the program: the handler for SIGSEGV and
 * SIGBUS finds the function on the faulting thread's stack and returns to its caller. Nothing is
 * set up per call. Every other fault is passed to whatever handler was there before.
 */
#ifndef VB_MEMORY_GUARD_H
#define VB_MEMORY_GUARD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A guarded function is never inlined or cloned, holds no lock and owns nothing while it may
 * fault, and returns 0. Its code lies in a section of its own, where the handler looks for it.
 */
#ifdef __clang__ /* knows no noipa */
#define VB_GUARDED __attribute__((noinline, section("vb_guarded")))
#else
#define VB_GUARDED __attribute__((noipa, section("vb_guarded")))
#endif

/* Installs the handler; each start is matched by a stop. Without it a fault ends the program. */
void vb_guard_start(void);
void vb_guard_stop(void);

/*
 * For a thread of the library's own: runs it with every signal of the program's blocked, but not
 * the faults. As pthread_create, with a negative errno.
 */
int vb_guarded_thread(pthread_t *thread, void *(*run)(void *), void *argument);

/* As vb_copy (copy.h). 0, or -EFAULT: some of it was copied, none of it beyond the fault. */
int vb_guarded_copy(void *dst, const void *src, size_t n);

/* The old value of an aligned word, and the new one in its place, as one step. */
int vb_guarded_fetch_add(void *word, uint64_t add, uint64_t *old);
int vb_guarded_compare_swap(void *word, uint64_t compare, uint64_t swap, uint64_t *old);
/* An aligned word, whole at every instant. */
int vb_guarded_store(void *word, uint64_t value);

/* Can every page of it be read, or written too? Touches one byte of each and changes none. */
bool vb_is_mapped(void *at, size_t n, bool to_write);

#endif
