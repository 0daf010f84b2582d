// SPDX-License-Identifier: Apache-2.0
/*
 * What each call that takes memory away, or handles a fault, reports to libibverbs.so.1: whose part
 * this program plays. A report is compared to the byte, and the call does what it always did.
 */
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "memory/watch.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* sighold and others */

enum { PAGE = 4096, ALL = 16 * PAGE };

/* ---- what is reported ------------------------------------------------------------------------ */

static uint8_t *base;
static char reports[512];
static bool concerned; /* a region is there */

int verbena_mapping(const void *at, size_t n, int change)
{
    static const char *const names[] = {"protected", "freed", "goes", "went", "stayed", "lost"};
    size_t used = strlen(reports);

    snprintf(reports + used, sizeof reports - used, "%s%s %td %zu", used ? ", " : "", names[change],
             (const uint8_t *)at - base, n);
    return concerned;
}

void verbena_watch_begin(void)
{
}

const void *verbena_watch_map(void)
{
    return vb_memory_watch_map();
}

__attribute__((format(printf, 1, 2))) static void expect(const char *format, ...)
{
    char expected[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(expected, sizeof expected, format, arguments);
    va_end(arguments);
    if (strcmp(reports, expected) != 0)
        fprintf(stderr, "%s\nexpected: %s\n", reports, expected);
    CHECK(strcmp(reports, expected) == 0);
    reports[0] = '\0';
}

/* Sixteen pages of the test's own, whatever a call before has left there. */
static void renew(bool is_concerned)
{
    concerned = false;
    if (!base)
        base = mmap(NULL, ALL, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mmap(base, ALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
          base);
    reports[0] = '\0';
    concerned = is_concerned;
}

/* ---- each call, by the C library and by syscall() -------------------------------------------- */

static int bare_munmap(void *at, size_t n)
{
    return (int)syscall(SYS_munmap, at, n);
}

static int bare_mprotect(void *at, size_t n, int protection)
{
    return (int)syscall(SYS_mprotect, at, n, protection);
}

static int bare_pkey_mprotect(void *at, size_t n, int protection, int key)
{
    return (int)syscall(SYS_pkey_mprotect, at, n, protection, key);
}

static void *bare_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    return (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
}

static void *bare_mremap(void *at, size_t n, size_t wanted, int flags, ...)
{
    va_list more;
    void *target;

    va_start(more, flags);
    target = va_arg(more, void *);
    va_end(more);
    return (void *)syscall(SYS_mremap, at, n, wanted, flags, target);
}

static int bare_shmdt(const void *at)
{
    return (int)syscall(SYS_shmdt, at);
}

static const struct calls {
    int (*munmap)(void *at, size_t n);
    int (*mprotect)(void *at, size_t n, int protection);
    int (*pkey_mprotect)(void *at, size_t n, int protection, int key);
    void *(*mmap)(void *at, size_t n, int protection, int flags, int fd, off_t offset);
    void *(*mremap)(void *at, size_t n, size_t wanted, int flags, ...);
    int (*shmdt)(const void *at);
} ways[] = {{munmap, mprotect, pkey_mprotect, mmap, mremap, shmdt},
            {munmap, mprotect, pkey_mprotect, mmap64, mremap, shmdt},
            {bare_munmap, bare_mprotect, bare_pkey_mprotect, bare_mmap, bare_mremap, bare_shmdt}};

static bool is_mapped(const uint8_t *at)
{
    unsigned char there;

    return mincore((void *)at, PAGE, &there) == 0;
}

static void check_munmap(const struct calls *by)
{
    renew(true);
    CHECK_EQ(by->munmap(base, 2 * PAGE), 0);
    CHECK(!is_mapped(base) && !is_mapped(base + PAGE) && is_mapped(base + 2 * PAGE));
    expect("goes 0 8192, went 0 8192");
    CHECK_EQ(by->munmap(base + 1, PAGE), -1);
    CHECK_EQ(errno, EINVAL);
    expect("goes 1 4096, stayed 1 4096");
    CHECK_EQ(by->munmap(base, 0), -1);
    expect("%s", "");
    renew(false);
    CHECK_EQ(by->munmap(base, PAGE), 0);
    expect("goes 0 4096");
}

static void check_mprotect(const struct calls *by)
{
    renew(true);
    CHECK_EQ(by->mprotect(base, PAGE, PROT_READ), 0);
    expect("protected 0 4096");
    CHECK_EQ(by->mprotect(base, PAGE, PROT_NONE), 0);
    expect("protected 0 4096");
    CHECK_EQ(by->mprotect(base, PAGE, PROT_READ | PROT_WRITE), 0);
    base[0] = 1;
    expect("%s", "");
    CHECK_EQ(by->pkey_mprotect(base, PAGE, PROT_READ, -1), 0);
    expect("protected 0 4096");
    CHECK_EQ(by->pkey_mprotect(base, PAGE, PROT_READ | PROT_WRITE, -1), 0);
    base[0] = 1;
    expect("protected 0 4096"); /* the key may forbid it */
    CHECK_EQ(by->mprotect(base + 1, PAGE, PROT_READ), -1);
    CHECK_EQ(errno, EINVAL);
}

static void check_mmap(const struct calls *by)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *other;

    renew(true);
    CHECK(by->mmap(base + PAGE, 3 * PAGE, PROT_READ, flags | MAP_FIXED, -1, 0) == base + PAGE);
    expect("goes 4096 12288, went 4096 12288");
    CHECK(by->mmap(base, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, -1, 0) == MAP_FAILED);
    CHECK_EQ(errno, EBADF);
    expect("goes 0 4096, stayed 0 4096");
    other = by->mmap(base, PAGE, PROT_READ, flags, -1, 0); /* a hint alone */
    CHECK(other != MAP_FAILED && other != base);
    expect("%s", "");
    renew(false);
    CHECK(by->mmap(base, PAGE, PROT_READ, flags | MAP_FIXED, -1, 0) == base);
    expect("goes 0 4096");
    munmap(other, PAGE);
}

static void check_shrinking(const struct calls *by)
{
    renew(true);
    CHECK(by->mremap(base, 4 * PAGE, 2 * PAGE, 0) == base);
    CHECK(is_mapped(base + PAGE) && !is_mapped(base + 2 * PAGE));
    expect("protected 0 16384, goes 8192 8192, went 8192 8192");
    renew(true);
    CHECK(by->mremap(base, 4 * PAGE - 100, PAGE + 1, MREMAP_MAYMOVE) == base);
    expect("protected 0 16284, goes 8192 8192, went 8192 8192");
    renew(true);
    CHECK(by->mremap(base, 4 * PAGE, 4 * PAGE, 0) == base);
    expect("protected 0 16384");
    CHECK(by->mremap(base, PAGE, 0, 0) == MAP_FAILED && errno == EINVAL);
    expect("protected 0 4096");
    CHECK(by->mremap(base + 1, 2 * PAGE, PAGE, 0) == MAP_FAILED && errno == EINVAL);
    expect("protected 1 8192, goes 4097 4096, stayed 4097 4096");
    renew(false);
    CHECK(by->mremap(base, 4 * PAGE, 2 * PAGE, 0) == base);
    expect("protected 0 16384");
}

static void check_moving(const struct calls *by)
{
    const int fixed = MREMAP_MAYMOVE | MREMAP_FIXED;

    renew(true);
    base[0] = 7;
    CHECK(by->mremap(base, 2 * PAGE, 3 * PAGE, fixed, base + 8 * PAGE) == base + 8 * PAGE);
    CHECK(!is_mapped(base) && base[8 * PAGE] == 7);
    expect("protected 0 8192, goes 0 8192, goes 32768 12288, went 0 8192, went 32768 12288");
    renew(true);
    CHECK(by->mremap(base, PAGE, PAGE, fixed, base + 1) == MAP_FAILED && errno == EINVAL);
    expect("protected 0 4096, goes 0 4096, goes 1 4096, stayed 0 4096, stayed 1 4096");
    renew(false);
    CHECK(by->mremap(base, PAGE, PAGE, fixed, base + 8 * PAGE) == base + 8 * PAGE);
    expect("protected 0 4096, goes 0 4096, goes 32768 4096");
}

static void check_growing(const struct calls *by)
{
    uint8_t *moved;

    renew(true); /* something is behind it */
    base[0] = 7;
    CHECK(by->mremap(base, 2 * PAGE, 4 * PAGE, 0) == MAP_FAILED && errno == ENOMEM);
    expect("protected 0 8192");
    moved = by->mremap(base, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && moved != base && moved[0] == 7 && !is_mapped(base));
    expect("protected 0 8192, goes 0 8192, went 0 8192");
    concerned = false;
    munmap(moved, 4 * PAGE);
    renew(true);
    munmap(base + 2 * PAGE, 4 * PAGE);
    reports[0] = '\0';
    CHECK(by->mremap(base, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE) == base); /* where it is */
    CHECK(is_mapped(base + 3 * PAGE) && !is_mapped(base + 4 * PAGE));
    expect("protected 0 8192");
}

/* Of no bytes it is a second mapping of shared memory, and the first stays. */
static void check_a_second_mapping(const struct calls *by)
{
    uint8_t *second;

    renew(false);
    CHECK(mmap(base, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
          base);
    base[0] = 9;
    reports[0] = '\0';
    concerned = true;
    second = by->mremap(base, 0, PAGE, MREMAP_MAYMOVE);
    CHECK(second != MAP_FAILED && second != base && second[0] == 9 && is_mapped(base));
    expect("protected 0 0");
    concerned = false;
    munmap(second, PAGE);
}

/* ---- segments of System V -------------------------------------------------------------------- */

static int segment(size_t size)
{
    int id = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600);

    CHECK(id >= 0);
    return id;
}

static void check_shmdt(const struct calls *by)
{
    int first = segment(3 * PAGE), second = segment(2 * PAGE);

    renew(false);
    CHECK_EQ(munmap(base, ALL), 0);
    CHECK(shmat(first, base, 0) == base); /* one behind the other, the first twice */
    CHECK(shmat(second, base + 3 * PAGE, 0) == base + 3 * PAGE);
    CHECK(shmat(first, base + 5 * PAGE, 0) == base + 5 * PAGE);
    CHECK(shmat(first, base + 8 * PAGE, 0) == base + 8 * PAGE);
    CHECK_EQ(shmctl(first, IPC_RMID, NULL) | shmctl(second, IPC_RMID, NULL), 0);
    CHECK_EQ(mprotect(base + 6 * PAGE, PAGE, PROT_READ), 0); /* three lines of the maps */
    reports[0] = '\0';
    concerned = true;
    CHECK_EQ(by->shmdt(base + 5 * PAGE), 0);
    CHECK(!is_mapped(base + 7 * PAGE) && is_mapped(base + 8 * PAGE));
    expect("goes 20480 12288, went 20480 12288");
    CHECK_EQ(by->shmdt(base), 0);
    expect("goes 0 12288, went 0 12288");
    CHECK_EQ(by->shmdt(base + 3 * PAGE), 0);
    expect("goes 12288 8192, went 12288 8192");
    CHECK_EQ(by->shmdt(base + 8 * PAGE), 0);
    expect("goes 32768 12288, went 32768 12288");
    CHECK(by->shmdt(base) == -1 && errno == EINVAL); /* nothing is there */
    expect("%s", "");
    renew(true);
    CHECK(by->shmdt(base) == -1 && errno == EINVAL); /* no segment is there */
    CHECK(strncmp(reports, "goes 0 ", 7) == 0 && strstr(reports, ", stayed 0 "));
    reports[0] = '\0';
    concerned = false;
}

static void test_each_call_that_takes_memory(void)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        check_munmap(&ways[i]);
        check_mprotect(&ways[i]);
        check_mmap(&ways[i]);
        check_shrinking(&ways[i]);
        check_moving(&ways[i]);
        check_growing(&ways[i]);
        check_a_second_mapping(&ways[i]);
        check_shmdt(&ways[i]);
    }
}

static void test_other_system_calls(void)
{
    renew(true);
    CHECK_EQ(syscall(SYS_getpid), getpid());
    CHECK(syscall(SYS_close, -1) == -1 && errno == EBADF);
    CHECK_EQ(syscall(SYS_madvise, base, PAGE, MADV_WILLNEED), 0);
    expect("%s", "");
    concerned = false;
}

/* ---- faults ---------------------------------------------------------------------------------- */

static struct sigaction installed;
static int installed_number, masks_changed, refused;

int verbena_fault_action(int number, const struct sigaction *action, struct sigaction *old)
{
    if ((number != SIGSEGV && number != SIGBUS) || refused)
        return -1;
    if (old)
        *old = installed_number == number ? installed : (struct sigaction){.sa_handler = SIG_DFL};
    if (action)
        installed = *action, installed_number = number;
    return 0;
}

void verbena_mask_changes(void)
{
    ++masks_changed;
}

static void handler(int number)
{
    (void)number;
}

static void other_handler(int number)
{
    (void)number;
}

sighandler_t __sysv_signal(int number, sighandler_t disposition);
sighandler_t sysv_signal(int number, sighandler_t disposition);
sighandler_t bsd_signal(int number, sighandler_t disposition);

static const struct {
    sighandler_t (*call)(int number, sighandler_t disposition);
    int flags;
    bool masks_itself;
} installers[] = {{signal, SA_RESTART, true},
                  {bsd_signal, SA_RESTART, true},
                  {ssignal, SA_RESTART, true},
                  {__sysv_signal, (int)(SA_RESETHAND | SA_NODEFER), false},
                  {sysv_signal, (int)(SA_RESETHAND | SA_NODEFER), false},
                  {sigset, 0, true}};

static void test_handlers_of_faults(void)
{
    for (size_t i = 0; i < sizeof installers / sizeof *installers; i++)
        for (int number = SIGBUS; number <= SIGSEGV; number += SIGSEGV - SIGBUS) {
            installed_number = 0;
            CHECK(installers[i].call(number, handler) == SIG_DFL);
            CHECK_EQ(installed_number, number);
            CHECK(installed.sa_handler == handler);
            CHECK_EQ(installed.sa_flags, installers[i].flags);
            CHECK_EQ(sigismember(&installed.sa_mask, number), installers[i].masks_itself);
            CHECK_EQ(sigismember(&installed.sa_mask, SIGUSR1), 0);
            CHECK(installers[i].call(number, other_handler) == handler);
            errno = 0;
            CHECK(installers[i].call(number, SIG_ERR) == SIG_ERR && errno == EINVAL);
            CHECK(installed.sa_handler == other_handler);
        }
    CHECK_EQ(sigignore(SIGSEGV), 0);
    CHECK(installed.sa_handler == SIG_IGN && installed.sa_flags == 0);
    installed_number = 0;
}

static void test_handlers_of_other_signals(void)
{
    struct sigaction now;

    for (size_t i = 0; i < sizeof installers / sizeof *installers; i++) {
        installed_number = 0;
        CHECK_EQ(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = SIG_DFL}, NULL), 0);
        CHECK(installers[i].call(SIGUSR1, handler) == SIG_DFL);
        CHECK_EQ(sigaction(SIGUSR1, NULL, &now), 0);
        CHECK(now.sa_handler == handler && installed_number == 0);
        CHECK_EQ(now.sa_flags & (int)(SA_RESTART | SA_RESETHAND | SA_NODEFER), installers[i].flags);
        CHECK(installers[i].call(1000, handler) == SIG_ERR && errno == EINVAL);
    }
    CHECK_EQ(sigignore(SIGUSR1), 0);
    CHECK_EQ(sigaction(SIGUSR1, NULL, &now), 0);
    CHECK(now.sa_handler == SIG_IGN);
    CHECK(sigignore(1000) == -1 && errno == EINVAL);
    CHECK(sigaction(1000, NULL, &now) == -1 && errno == EINVAL);
    refused = 1; /* libibverbs.so.1 leaves it to the C library */
    CHECK(signal(SIGSEGV, handler) != SIG_ERR);
    CHECK_EQ(sigaction(SIGSEGV, NULL, &now), 0);
    CHECK(now.sa_handler == handler);
    refused = 0;
}

static bool is_blocked(int number)
{
    sigset_t now;

    CHECK_EQ(pthread_sigmask(SIG_BLOCK, NULL, &now), 0);
    return sigismember(&now, number);
}

static void expect_masked(int times, int number, bool blocked)
{
    CHECK_EQ(masks_changed, times);
    masks_changed = 0;
    CHECK_EQ(is_blocked(number), blocked);
}

static void test_masks(void)
{
    sigset_t set, old;

    masks_changed = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    CHECK_EQ(sigprocmask(SIG_BLOCK, &set, &old), 0);
    expect_masked(1, SIGUSR2, true);
    CHECK(!sigismember(&old, SIGUSR2));
    CHECK_EQ(sigprocmask(SIG_BLOCK, NULL, &old), 0);
    expect_masked(0, SIGUSR2, true);
    CHECK(sigismember(&old, SIGUSR2));
    CHECK_EQ(pthread_sigmask(SIG_UNBLOCK, &set, &old), 0);
    expect_masked(1, SIGUSR2, false);
    CHECK(sigprocmask(77, &set, NULL) == -1 && errno == EINVAL);
    CHECK_EQ(pthread_sigmask(77, &set, NULL), EINVAL);
    masks_changed = 0;
    CHECK_EQ(sighold(SIGUSR2), 0);
    expect_masked(1, SIGUSR2, true);
    CHECK(sighold(1000) == -1);
    masks_changed = 0;
    CHECK_EQ(sigblock(1 << (SIGUSR1 - 1)), 1 << (SIGUSR2 - 1));
    expect_masked(1, SIGUSR1, true);
    CHECK_EQ(sigsetmask(0), 1 << (SIGUSR2 - 1) | 1 << (SIGUSR1 - 1));
    expect_masked(1, SIGUSR1, false);
}

/* sigset says of a signal that is blocked that it was held, and unblocks it, unless it holds it. */
static void test_sigset(void)
{
    for (int number = SIGBUS; number <= SIGSEGV; number += SIGSEGV - SIGBUS) {
        installed_number = 0;
        CHECK(sigset(number, handler) == SIG_DFL);
        CHECK(!is_blocked(number));
        CHECK(sigset(number, SIG_HOLD) == handler);
        CHECK(is_blocked(number) && installed.sa_handler == handler);
        CHECK(sigset(number, SIG_HOLD) == SIG_HOLD);
        CHECK(is_blocked(number));
        CHECK(sigset(number, other_handler) == SIG_HOLD);
        CHECK(!is_blocked(number) && installed.sa_handler == other_handler);
        CHECK(sigset(number, SIG_IGN) == other_handler);
    }
    CHECK(sigset(SIGUSR2, SIG_HOLD) == SIG_DFL && is_blocked(SIGUSR2));
    CHECK(sigset(SIGUSR2, SIG_DFL) == SIG_HOLD && !is_blocked(SIGUSR2));
}

int main(void)
{
    RUN(test_each_call_that_takes_memory);
    RUN(test_other_system_calls);
    RUN(test_handlers_of_faults);
    RUN(test_handlers_of_other_signals);
    RUN(test_masks);
    RUN(test_sigset);
    return 0;
}
