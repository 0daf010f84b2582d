// SPDX-License-Identifier: Apache-2.0
/*
 * The handler for SIGSEGV and SIGBUS (guard.h). A fault in a guarded function makes that return
 * -EFAULT; every other fault is passed to the program's handler.
 */
#include "memory/guard.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include "lock/mutex.h"
#include "memory/watch.h"

extern const char vb_guarded_start[] __asm__("__start_vb_guarded");
extern const char vb_guarded_stop[] __asm__("__stop_vb_guarded");

/* glibc's own sigaction, in front of which nothing stands. */
extern int __sigaction(int number, const struct sigaction *action, struct sigaction *old);

_Thread_local uint32_t vb_guard_found;
uint32_t vb_guard_turn;

int vb_memory_guarded_thread(pthread_t *thread, void *(*run)(void *), void *argument)
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
static void guard_resume(ucontext_t *context, struct _Unwind_Context *frame)
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
static void guard_resume(ucontext_t *context, struct _Unwind_Context *frame)
{
    for (int i = 19; i <= 29; ++i)
        context->uc_mcontext.regs[i] = _Unwind_GetGR(frame, i);
    context->uc_mcontext.sp = _Unwind_GetCFA(frame);
    context->uc_mcontext.pc = _Unwind_GetIP(frame);
    context->uc_mcontext.regs[0] = (unsigned long long)-EFAULT;
}
#else
/* Not known on this processor: no handler is installed, and the kernel makes all copies. */
#define VB_NO_WAY_BACK
static void guard_resume(ucontext_t *context, struct _Unwind_Context *frame)
{
    (void)context, (void)frame;
}
#endif

#ifdef VB_NO_WAY_BACK
enum { HAS_WAY_BACK = false };
#else
enum { HAS_WAY_BACK = true };
#endif

static bool is_guarded(uintptr_t code)
{
    return code >= (uintptr_t)vb_guarded_start && code < (uintptr_t)vb_guarded_stop;
}

/* Called for each frame from the handler outwards. */
static _Unwind_Reason_Code guard_look(struct _Unwind_Context *frame, void *argument)
{
    struct caller *caller = argument;

    if (caller->inside) {
        guard_resume(caller->context, frame);
        caller->found = true;
        return _URC_NORMAL_STOP;
    }
    caller->inside = is_guarded(_Unwind_GetIP(frame));
    return _URC_NO_REASON;
}

/* ---- the handler --------------------------------------------------------------------------- */

/* A signal's handler belongs to the process, so this is the process's. */
static struct vb_mutex installing = VB_MUTEX_INITIALIZER(VB_RANK_GUARD);
static unsigned users;
static pid_t owner;
static uint32_t starts;
static struct sigaction wanted_segv, wanted_bus; /* the program's actions */

/*
 * A handler that calls the one before it may lead back here, if it came between two starts. One
 * that leaves by siglongjmp leaves this set: a fault that the kernel delivers is a new one.
 */
static _Thread_local bool passing;

static struct sigaction *wanted(int number)
{
    return number == SIGSEGV ? &wanted_segv : &wanted_bus;
}

/* With all signals blocked: a handler of the program's may ask for the lock as well. */
static void guard_lock(sigset_t *before)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, before);
    vb_lock_take(&installing);
}

static void guard_unlock(const sigset_t *before)
{
    vb_lock_release(&installing);
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

static bool has_handler(const struct sigaction *action)
{
    return action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
}

static void on_fault(int number, siginfo_t *info, void *context);

static bool guard_is_ours(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) && action->sa_sigaction == on_fault;
}

/* Ours runs as the program's would: on its stack, with what it blocks blocked. Under the lock. */
static void guard_install(int number)
{
    const struct sigaction *program = wanted(number);
    struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};

    if (has_handler(program))
        ours.sa_flags = SA_SIGINFO | (program->sa_flags & (SA_ONSTACK | SA_NODEFER | SA_RESTART));
    ours.sa_mask = program->sa_mask;
    __sigaction(number, &ours, NULL);
}

/* The program's action for a signal that is being delivered. */
static struct sigaction use_action(int number)
{
    struct sigaction *program = wanted(number), action;
    sigset_t before;

    guard_lock(&before);
    action = *program;
    if (has_handler(program) && (program->sa_flags & SA_RESETHAND)) {
        program->sa_handler = SIG_DFL;
        guard_install(number);
    }
    guard_unlock(&before);
    return action;
}

/* A fault comes again when its instruction does; a signal that somebody sent does not. */
static void end_by_default(int number, const siginfo_t *info)
{
    struct sigaction action = {.sa_handler = SIG_DFL};

    __sigaction(number, &action, NULL);
    if (info->si_code <= 0)
        raise(number);
}

static void pass_on(int number, siginfo_t *info, void *context)
{
    struct sigaction action = use_action(number);

    if (action.sa_handler == SIG_IGN && info->si_code <= 0)
        return;
    if (passing || !has_handler(&action)) {
        end_by_default(number, info);
        return;
    }
    passing = true;
    vb_guard_found = VB_GUARD_UNKNOWN; /* it is blocked until the handler returns, or longer */
    if (action.sa_flags & SA_SIGINFO)
        action.sa_sigaction(number, info, context);
    else
        action.sa_handler(number);
    passing = false;
}

/* The kernel puts the context (aarch64: the siginfo) where its handler's frame begins. */
static bool is_delivered(const void *frame, const siginfo_t *info, const void *context)
{
    return frame == context || frame == (const void *)info;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    struct caller caller = {.context = context};
    int saved = errno;

    if (is_delivered(__builtin_dwarf_cfa(), info, context))
        passing = false;
    /* A signal that somebody sent has no instruction to return from. */
    if (info->si_code > 0)
        _Unwind_Backtrace(guard_look, &caller);
    errno = saved;
    if (!caller.found)
        pass_on(number, info, context);
}

/* ---- start and stop ------------------------------------------------------------------------ */

static void guard_begin(int number)
{
    struct sigaction now;

    if (!HAS_WAY_BACK)
        return;
    __sigaction(number, NULL, &now);
    if (!guard_is_ours(&now)) /* else a parent's, in a forked child */
        *wanted(number) = now;
    guard_install(number);
}

/* A handler that came unseen keeps its place: it calls this one, if any. */
static void guard_end(int number)
{
    struct sigaction now;

    __sigaction(number, NULL, &now);
    if (guard_is_ours(&now))
        __sigaction(number, wanted(number), NULL);
}

void vb_memory_guard_start(void)
{
    sigset_t before;

    guard_lock(&before);
    if (owner != getpid())
        users = 0;
    owner = getpid();
    if (!users++) {
        guard_begin(SIGSEGV);
        guard_begin(SIGBUS);
        starts = starts % (VB_GUARD_BLOCKED - 1) + 1;
        __atomic_store_n(&vb_guard_turn, starts, __ATOMIC_RELEASE);
    }
    guard_unlock(&before);
}

void vb_memory_guard_stop(void)
{
    sigset_t before;

    guard_lock(&before);
    if (!--users) {
        __atomic_store_n(&vb_guard_turn, 0, __ATOMIC_RELEASE);
        guard_end(SIGSEGV);
        guard_end(SIGBUS);
    }
    guard_unlock(&before);
}

/* ---- what the program does with its signals ------------------------------------------------- */

/* In a child that vfork made the table is still its parent's. */
static int act_in_child(int number, const struct sigaction *action, struct sigaction *old)
{
    struct sigaction now;
    int error = __sigaction(number, action, &now);

    if (!error && old)
        *old = guard_is_ours(&now) ? *wanted(number) : now;
    return error;
}

int vb_memory_guard_action(int number, const struct sigaction *action, struct sigaction *old)
{
    struct sigaction *program = wanted(number), was;
    sigset_t before;

    if ((number != SIGSEGV && number != SIGBUS) || !HAS_WAY_BACK ||
        !__atomic_load_n(&vb_guard_turn, __ATOMIC_ACQUIRE))
        return -1;
    if (owner != getpid())
        return act_in_child(number, action, old);
    guard_lock(&before);
    was = *program;
    if (action) {
        *program = *action;
        guard_install(number);
    }
    guard_unlock(&before);
    if (old)
        *old = was;
    return 0;
}

void vb_memory_guard_mask_changes(void)
{
    vb_guard_found = VB_GUARD_UNKNOWN;
}

static bool guard_is_blocked(void)
{
    sigset_t mask;

    return pthread_sigmask(SIG_BLOCK, NULL, &mask) || sigismember(&mask, SIGSEGV) ||
           sigismember(&mask, SIGBUS);
}

static bool is_installed(int number)
{
    struct sigaction now;

    return __sigaction(number, NULL, &now) == 0 && guard_is_ours(&now);
}

bool vb_memory_guard_ask(void)
{
    uint32_t turn = __atomic_load_n(&vb_guard_turn, __ATOMIC_ACQUIRE);

    if (turn && (!HAS_WAY_BACK || guard_is_blocked())) {
        vb_guard_found = VB_GUARD_BLOCKED;
        return false;
    }
    if (turn && !vb_memory_watch_is_on())
        return is_installed(SIGSEGV) && is_installed(SIGBUS);
    vb_guard_found = turn;
    return true;
}

void vb_memory_guard_learn(void)
{
    if (vb_guard_found != VB_GUARD_BLOCKED && vb_memory_watch_is_on())
        vb_memory_guard_ask();
}
