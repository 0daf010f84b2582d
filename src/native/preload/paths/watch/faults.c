// SPDX-License-Identifier: Apache-2.0
/*
 * The calls by which a program handles SIGSEGV and SIGBUS, or blocks them. Verbena's own handler
 * stays in front of the program's, which gets every fault that is not Verbena's; the calls return
 * the handler that the program installed before. Signal masks are set as the program asks, and
 * Verbena is informed of the change.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>

#include "preload/paths/next.h"
#include "preload/paths/watch/watch.h"

/* The types of functions whose declarations are marked as deprecated. */
typedef int int_of_int(int argument);
typedef sighandler_t set_handler(int number, sighandler_t disposition);

static void masked(const void *set)
{
    if (set && verbena_mask_changes)
        verbena_mask_changes();
}

VB_EXPORT int sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
    int error = verbena_fault_action ? verbena_fault_action(number, action, old) : -1;

    return error ? VB_NEXT(sigaction)(number, action, old) : 0;
}

static bool is_fault(int number)
{
    return number == SIGSEGV || number == SIGBUS;
}

static sighandler_t faults_install(int number, sighandler_t handler, int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, old;

    if (handler == SIG_ERR) {
        errno = EINVAL;
        return SIG_ERR;
    }
    if (!(flags & SA_NODEFER))
        sigaddset(&action.sa_mask, number);
    return sigaction(number, &action, &old) ? SIG_ERR : old.sa_handler;
}

/* The forms of signal() differ in what happens when the handler is called. */
VB_EXPORT sighandler_t signal(int number, sighandler_t handler)
{
    return is_fault(number) ? faults_install(number, handler, SA_RESTART)
                            : VB_NEXT(signal)(number, handler);
}

VB_EXPORT sighandler_t bsd_signal(int number, sighandler_t handler)
{
    return signal(number, handler);
}

VB_EXPORT sighandler_t ssignal(int number, sighandler_t handler)
{
    return signal(number, handler);
}

VB_EXPORT sighandler_t __sysv_signal(int number, sighandler_t handler)
{
    return is_fault(number) ? faults_install(number, handler, (int)(SA_RESETHAND | SA_NODEFER))
                            : VB_NEXT(__sysv_signal)(number, handler);
}

VB_EXPORT sighandler_t sysv_signal(int number, sighandler_t handler)
{
    return __sysv_signal(number, handler);
}

VB_EXPORT int sigignore(int number)
{
    return is_fault(number) ? -(faults_install(number, SIG_IGN, 0) == SIG_ERR)
                            : VB_NEXT_AS(int_of_int, sigignore)(number);
}

VB_EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
    int error = VB_NEXT(sigprocmask)(how, set, old);

    masked(set);
    return error;
}

VB_EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    int error = VB_NEXT(pthread_sigmask)(how, set, old);

    masked(set);
    return error;
}

VB_EXPORT int sighold(int number)
{
    int error = VB_NEXT_AS(int_of_int, sighold)(number);

    masked(&number);
    return error;
}

VB_EXPORT sighandler_t sigset(int number, sighandler_t disposition)
{
    sigset_t one, before;
    sighandler_t old = SIG_HOLD;

    if (!is_fault(number))
        return VB_NEXT_AS(set_handler, sigset)(number, disposition);
    sigemptyset(&one);
    sigaddset(&one, number);
    if (disposition != SIG_HOLD) {
        old = faults_install(number, disposition, 0);
    } else {
        struct sigaction now;

        old = sigaction(number, NULL, &now) ? SIG_ERR : now.sa_handler;
    }
    if (old == SIG_ERR ||
        sigprocmask(disposition == SIG_HOLD ? SIG_BLOCK : SIG_UNBLOCK, &one, &before))
        return SIG_ERR;
    return sigismember(&before, number) ? SIG_HOLD : old;
}

VB_EXPORT int sigblock(int mask)
{
    int old = VB_NEXT_AS(int_of_int, sigblock)(mask);

    masked(&mask);
    return old;
}

VB_EXPORT int sigsetmask(int mask)
{
    int old = VB_NEXT_AS(int_of_int, sigsetmask)(mask);

    masked(&mask);
    return old;
}
