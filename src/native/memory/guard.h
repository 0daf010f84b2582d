// SPDX-License-Identifier: Apache-2.0
/*
 * Access to memory that the program may have taken away since it was registered.
 *
 * An adapter has its pages pinned and never faults; here nothing is pinned. A fault inside one of
 * these functions ends it with -EFAULT instead of ending the program: the handler for SIGSEGV and
 * SIGBUS finds the function on the faulting thread's stack and returns to its caller. Nothing is
 * set up per call. Every other fault is passed to the program's own handler.
 *
 * That holds while the handler is installed and the thread does not block the two signals. In a
 * process that is watched (memory/watch.h) both are known: what the program installs later is kept
 * behind the handler, and a thread that may block them is asked about it. In another process both
 * are asked for each copy, three system calls of a tenth of a microsecond, and where a fault would
 * end the process the kernel makes the copy, which costs it another call.
 */
#ifndef VB_MEMORY_GUARD_H
#define VB_MEMORY_GUARD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A guarded function is never inlined or cloned, holds no lock and owns nothing while it may
 * fault, and returns vb_memory_guard_passed(). Its code lies in a section of its own, where the
 * handler looks for it.
 */
#ifdef __clang__ /* knows no noipa, so that callers see what it returns */
#define VB_GUARDED __attribute__((noinline, section("vb_guarded")))
#else
#define VB_GUARDED __attribute__((noipa, section("vb_guarded")))
#endif

/* 0, which the compiler does not know: clang puts a constant in place of the call's result, and a
 * fault, whose -EFAULT comes from the handler, would count as a copy that was made. */
static inline int vb_memory_guard_passed(void)
{
    int passed = 0;

    __asm__ volatile("" : "+r"(passed));
    return passed;
}

/* Installs the handler; each start is matched by a stop. Without it a fault ends the program. */
void vb_memory_guard_start(void);
void vb_memory_guard_stop(void);

/*
 * For a thread of the library's own: runs it with every signal of the program's blocked, but not
 * the faults. As pthread_create, with a negative errno.
 */
int vb_memory_guarded_thread(pthread_t *thread, void *(*run)(void *), void *argument);

/* The turn in which a thread was found to get its faults back; the turn is 0 without a guard, when
 * nothing is asked, and another after each start. Unknown is no turn, and neither is what says that
 * a thread of a watched process was found to block the two signals. */
enum { VB_GUARD_UNKNOWN = UINT32_MAX, VB_GUARD_BLOCKED = UINT32_MAX - 1 };
extern _Thread_local uint32_t vb_guard_found
    __attribute__((tls_model("initial-exec"), visibility("hidden")));
extern uint32_t vb_guard_turn __attribute__((visibility("hidden")));

/* Would a fault in this thread come back to the guarded function? */
bool vb_memory_guard_ask(void);
/* The same of a watched process's thread, that the next copy need not look for it; no answer. */
void vb_memory_guard_learn(void);

static inline bool vb_memory_guard_holds(void)
{
    return __builtin_expect(vb_guard_found == vb_guard_turn, 1);
}

/* Which side of a copy may be gone: what the program gave. The other is the library's. */
enum vb_doubt { VB_DOUBT_TO = 1, VB_DOUBT_FROM = 2, VB_DOUBT_BOTH = 3 };

/* As vb_memory_copy (copy.h). 0, or -EFAULT: some of it was copied, none of it beyond the fault. */
int vb_memory_fault_copy(void *dst, const void *src, size_t n); /* where faults come back */
int vb_memory_doubtful_copy(void *dst, const void *src, size_t n, unsigned doubt); /* anywhere */

static inline int vb_memory_guarded_move(void *dst, const void *src, size_t n, unsigned doubt)
{
    return vb_memory_guard_holds() ? vb_memory_fault_copy(dst, src, n)
                                   : vb_memory_doubtful_copy(dst, src, n, doubt);
}

static inline int vb_memory_guarded_copy(void *dst, const void *src, size_t n)
{
    return vb_memory_guarded_move(dst, src, n, VB_DOUBT_BOTH);
}

/* Into the library's memory from the program's, and the other way. */
static inline int vb_memory_guarded_read(void *dst, const void *src, size_t n)
{
    return vb_memory_guarded_move(dst, src, n, VB_DOUBT_FROM);
}

static inline int vb_memory_guarded_write(void *dst, const void *src, size_t n)
{
    return vb_memory_guarded_move(dst, src, n, VB_DOUBT_TO);
}

/* The old value of an aligned word, and the new one in its place, as one step. Where faults may
 * not come back, vb_memory_is_mapped is to be asked first. */
int vb_memory_guarded_fetch_add(void *word, uint64_t add, uint64_t *old);
int vb_memory_guarded_compare_swap(void *word, uint64_t compare, uint64_t swap, uint64_t *old);
/* An aligned word, whole at every instant. */
int vb_memory_guarded_store(void *word, uint64_t value);

/* Can every page of it be read, or written too? Touches one byte of each and changes none. */
bool vb_memory_is_mapped(void *at, size_t n, bool to_write);

/*
 * What a watched program's sigaction() for SIGSEGV or SIGBUS comes to: its action is kept for the
 * faults that are its own, and told truly. -1: there is no guard, or another signal; the system's
 * function is to be called.
 */
int vb_memory_guard_action(int number, const struct sigaction *action, struct sigaction *old);
/* The thread's signal mask has changed, and may block them now. */
void vb_memory_guard_mask_changes(void);

#endif
