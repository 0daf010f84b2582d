// SPDX-License-Identifier: Apache-2.0
#include "memory/guard.h"

#include <errno.h>
#include <signal.h>
#include <ucontext.h>
#include <unwind.h>

#include "memory/copy.h"

extern const char vb_guarded_start[] __asm__("__start_vb_guarded");
extern const char vb_guarded_stop[] __asm__("__stop_vb_guarded");

/* ---- what is guarded ----------------------------------------------------------------------- */

VB_GUARDED int vb_guarded_copy(void *dst, const void *src, size_t n)
{
    vb_copy(dst, src, n);
    return 0;
}

VB_GUARDED int vb_guarded_fetch_add(void *word, uint64_t add, uint64_t *old)
{
    *old = __atomic_fetch_add((uint64_t *)word, add, __ATOMIC_SEQ_CST);
    return 0;
}

VB_GUARDED int vb_guarded_compare_swap(void *word, uint64_t compare, uint64_t swap, uint64_t *old)
{
    __atomic_compare_exchange_n((uint64_t *)word, &compare, swap, false, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    *old = compare;
    return 0;
}

VB_GUARDED int vb_guarded_store(void *word, uint64_t value)
{
    __atomic_store_n((uint64_t *)word, value, __ATOMIC_SEQ_CST);
    return 0;
}

enum { PAGE = 4096 };

VB_GUARDED static int touch(uint8_t *at, const uint8_t *end, bool to_write)
{
    for (; at < end; at = (uint8_t *)(((uintptr_t)at | (PAGE - 1)) + 1))
        if (to_write)
            __atomic_fetch_or(at, 0, __ATOMIC_RELAXED);
        else
            (void)*(volatile uint8_t *)at;
    return 0;
}

bool vb_is_mapped(void *at, size_t n, bool to_write)
{
    return touch(at, (uint8_t *)at + n, to_write) == 0;
}

int vb_guarded_thread(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t blocked, before;
    int error;

    sigfillset(&blocked);
    sigdelset(&blocked, SIGSEGV);
    sigdelset(&blocked, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -error;
}

/* ---- the way back -------------------------------------------------------------------------- */

/* The registers with which a guarded function's caller goes on. */
struct caller {
    bool inside; /* the frame before was a guarded function's */
    bool found;
    ucontext_t *context;
};

#if defined(__x86_64__)
/* DWARF numbers of what a callee preserves (System V ABI for AMD64, figure 3.36). */
static void resume(ucontext_t *context, struct _Unwind_Context *frame)
{
    static const struct {
        int dwarf, saved;
    } preserved[] = {{3, REG_RBX},  {6, REG_RBP},  {12, REG_R12},
                     {13, REG_R13}, {14, REG_R14}, {15, REG_R15}};
    greg_t *registers = context->uc_mcontext.gregs;

    for (size_t i = 0; i < sizeof(preserved) / sizeof(*preserved); ++i)
        registers[preserved[i].saved] = (greg_t)_Unwind_GetGR(frame, preserved[i].dwarf);
    registers[REG_RSP] = (greg_t)_Unwind_GetCFA(frame);
    registers[REG_RIP] = (greg_t)_Unwind_GetIP(frame);
    registers[REG_RAX] = -EFAULT;
    registers[REG_EFL] &= ~0x400; /* the direction flag is clear between functions */
}
#elif defined(__aarch64__)
/* x19 to x29 and d8 to d15 are the callee's to preserve; guarded functions use no such d register
 * across a fault, since they call nothing but copies. */
static void resume(ucontext_t *context, struct _Unwind_Context *frame)
{
    for (int i = 19; i <= 29; ++i)
        context->uc_mcontext.regs[i] = _Unwind_GetGR(frame, i);
    context->uc_mcontext.sp = _Unwind_GetCFA(frame);
    context->uc_mcontext.pc = _Unwind_GetIP(frame);
    context->uc_mcontext.regs[0] = (unsigned long long)-EFAULT;
}
#else
#define VB_NO_GUARD
#endif

#ifndef VB_NO_GUARD

static bool is_guarded(uintptr_t code)
{
    return code >= (uintptr_t)vb_guarded_start && code < (uintptr_t)vb_guarded_stop;
}

/* Called for each frame from the handler outwards. */
static _Unwind_Reason_Code look(struct _Unwind_Context *frame, void *argument)
{
    struct caller *caller = argument;

    if (caller->inside) {
        resume(caller->context, frame);
        caller->found = true;
        return _URC_NORMAL_STOP;
    }
    caller->inside = is_guarded(_Unwind_GetIP(frame));
    return _URC_NO_REASON;
}

/* ---- the handler --------------------------------------------------------------------------- */

/* A signal's handler belongs to the process, so this is the process's. */
static pthread_mutex_t installing = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;
static struct sigaction before_segv, before_bus;

/*
 * A handler that calls the one before it may lead back here, if it came between two starts. One
 * that leaves by siglongjmp leaves this set: a fault that the kernel delivers is a new one.
 */
static _Thread_local bool passing;

/* The kernel puts the context (aarch64: the siginfo) where its handler's frame begins. */
static bool is_delivered(const void *frame, const siginfo_t *info, const void *context)
{
    return frame == context || frame == (const void *)info;
}

static void pass_on(int number, siginfo_t *info, void *context)
{
    const struct sigaction *before = number == SIGSEGV ? &before_segv : &before_bus;

    if (passing || before->sa_handler == SIG_DFL || before->sa_handler == SIG_IGN) {
        signal(number,
               SIG_DFL); /* the access faults again, and ends the program as it would have */
        return;
    }
    passing = true;
    if (before->sa_flags & SA_SIGINFO)
        before->sa_sigaction(number, info, context);
    else
        before->sa_handler(number);
    passing = false;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    struct caller caller = {.context = context};
    int saved = errno;

    if (is_delivered(__builtin_dwarf_cfa(), info, context))
        passing = false;
    /* A signal that somebody sent has no instruction to return from. */
    if (info->si_code > 0)
        _Unwind_Backtrace(look, &caller);
    errno = saved;
    if (!caller.found)
        pass_on(number, info, context);
}

static void install(int number, struct sigaction *before)
{
    struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};

    sigaction(number, NULL, before);
    /* What the program blocks while it handles a fault stays blocked while its handler is called.
     */
    ours.sa_mask = before->sa_mask;
    sigaction(number, &ours, NULL);
}

/* A handler that came later keeps its place: it calls this one, if any. */
static void uninstall(int number, const struct sigaction *before)
{
    struct sigaction now;

    sigaction(number, NULL, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault)
        sigaction(number, before, NULL);
}

void vb_guard_start(void)
{
    pthread_mutex_lock(&installing);
    if (!users++) {
        install(SIGSEGV, &before_segv);
        install(SIGBUS, &before_bus);
    }
    pthread_mutex_unlock(&installing);
}

void vb_guard_stop(void)
{
    pthread_mutex_lock(&installing);
    if (!--users) {
        uninstall(SIGSEGV, &before_segv);
        uninstall(SIGBUS, &before_bus);
    }
    pthread_mutex_unlock(&installing);
}

#else

void vb_guard_start(void)
{
}

void vb_guard_stop(void)
{
}

#endif
