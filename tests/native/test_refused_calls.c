// SPDX-License-Identifier: Apache-2.0
/*
 * A device whose system calls are refused while it is opened, one after another: the open fails
 * with that call's error, nothing is left of it, and the next one succeeds. The linker puts the
 * functions here before the C library's (tests/native/CMakeLists.txt).
 */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "check.h"
#include "end.h"
#include "entries.h"
#include "starved.h"

enum call { THREAD, EPOLL, WATCH, EVENT, TIMER, SOCKET, BIND, LISTEN, CALLS, NONE = -1 };

static const char *const names[CALLS] = {"thread", "epoll",  "watch", "event",
                                         "timer",  "socket", "bind",  "listen"};

static enum call refused = NONE;
static int left;    /* calls of that kind that still succeed */
static int refuses; /* with this error */

static bool is_refused(enum call call)
{
    return call == refused && left-- == 0;
}

static int refuse(void)
{
    errno = refuses;
    return -1;
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *argument);
int __real_epoll_create1(int flags);
int __real_epoll_ctl(int fd, int operation, int of, struct epoll_event *event);
int __real_eventfd(unsigned value, int flags);
int __real_timerfd_create(clockid_t clock, int flags);
int __real_socket(int domain, int type, int protocol);
int __real_bind(int fd, const struct sockaddr *address, socklen_t length);
int __real_listen(int fd, int backlog);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *argument);
int __wrap_epoll_create1(int flags);
int __wrap_epoll_ctl(int fd, int operation, int of, struct epoll_event *event);
int __wrap_eventfd(unsigned value, int flags);
int __wrap_timerfd_create(clockid_t clock, int flags);
int __wrap_socket(int domain, int type, int protocol);
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t length);
int __wrap_listen(int fd, int backlog);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *argument)
{
    return is_refused(THREAD) ? refuses : __real_pthread_create(thread, attr, run, argument);
}

int __wrap_epoll_create1(int flags)
{
    return is_refused(EPOLL) ? refuse() : __real_epoll_create1(flags);
}

int __wrap_epoll_ctl(int fd, int operation, int of, struct epoll_event *event)
{
    if (operation == EPOLL_CTL_ADD && is_refused(WATCH))
        return refuse();
    return __real_epoll_ctl(fd, operation, of, event);
}

int __wrap_eventfd(unsigned value, int flags)
{
    return is_refused(EVENT) ? refuse() : __real_eventfd(value, flags);
}

int __wrap_timerfd_create(clockid_t clock, int flags)
{
    return is_refused(TIMER) ? refuse() : __real_timerfd_create(clock, flags);
}

int __wrap_socket(int domain, int type, int protocol)
{
    return is_refused(SOCKET) ? refuse() : __real_socket(domain, type, protocol);
}

int __wrap_bind(int fd, const struct sockaddr *address, socklen_t length)
{
    return is_refused(BIND) ? refuse() : __real_bind(fd, address, length);
}

int __wrap_listen(int fd, int backlog)
{
    return is_refused(LISTEN) ? refuse() : __real_listen(fd, backlog);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Of those that a fault of memory sends. */
static uint64_t caught_signals(void)
{
    const uint64_t faults = 1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1);
    FILE *status = fopen("/proc/self/status", "re");
    uint64_t mask = 0;
    char line[256];

    while (fgets(line, sizeof(line), status) && sscanf(line, "SigCgt: %" SCNx64, &mask) != 1)
        ;
    fclose(status);
    return mask & faults;
}

/* The system removes a thread from its list a little after the thread was joined. */
static bool are_left(int descriptors, int threads)
{
    for (int i = 0; i < 500 && entries("/proc/self/task") != threads; ++i)
        usleep(1000);
    return entries(DESCRIPTORS) == descriptors && entries("/proc/self/task") == threads;
}

/* Each call of this kind that an open makes is refused once. Returns how many opens failed by it:
 * without some sockets there is only no news of the ports' addresses. */
static int refuse_each(enum call call)
{
    const struct vb_host_config config = {.direct_only = true};
    int descriptors = entries(DESCRIPTORS), threads = entries("/proc/self/task"), failures = 0;
    uint64_t caught = caught_signals();
    long blocks;

    for (int n = 0, error = -1; error || left < 0; ++n) {
        struct vb_host *host;

        left = n;
        blocks = starved_blocks();
        refused = call;
        error = vb_host_open(&config, &host);
        refused = NONE;
        if (error) {
            CHECK_EQ(error, -refuses);
            CHECK(left < 0);
            ++failures;
        } else {
            CHECK(left >= 0 || call == SOCKET || call == BIND);
            vb_host_close(host);
        }
        CHECK(are_left(descriptors, threads));
        CHECK_EQ(starved_blocks(), blocks);
        CHECK_EQ(caught_signals(), caught); /* faults are the program's again */
    }
    return failures;
}

static void nothing_is_left_of_an_open_that_was_refused(void)
{
    static const int failures[CALLS] = {[THREAD] = 2, [EPOLL] = 1,  [WATCH] = 3, [EVENT] = 1,
                                        [TIMER] = 1,  [SOCKET] = 1, [BIND] = 1,  [LISTEN] = 1};

    for (enum call call = 0; call < CALLS; ++call)
        for (int error = EPERM; error <= ENOMEM; error += ENOMEM - EPERM) {
            int count;

            refuses = error;
            count = refuse_each(call);
            if (count != failures[call])
                fprintf(stderr, "%s: %d\n", names[call], count);
            CHECK_EQ(count, failures[call]);
        }
}

/* ---- who may copy ---------------------------------------------------------------------------- */

static const char *scope; /* what the file says; NULL: there is none */
static int permissions;   /* asked for */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d);
int __wrap_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d);

int __wrap_open(const char *path, int flags, ...)
{
    int fd;

    if (strcmp(path, "/proc/sys/kernel/yama/ptrace_scope") != 0)
        return __real_open(path, flags); /* none of those creates a file */
    if (!scope) {
        errno = ENOENT;
        return -1;
    }
    fd = memfd_create("scope", MFD_CLOEXEC);
    CHECK_EQ(pwrite(fd, scope, strlen(scope), 0), strlen(scope));
    return fd;
}

int __wrap_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d)
{
    if (option == PR_SET_PTRACER) {
        CHECK_EQ(a, PR_SET_PTRACER_ANY);
        ++permissions;
        return 0;
    }
    return __real_prctl(option, a, b, c, d);
}

/* Yama's scope 1 alone is one in which a process may let others in; 0 needs nothing. */
static void others_are_let_in_where_they_would_be_kept_out(void)
{
    static const struct {
        const char *scope;
        int permissions;
    } cases[] = {{NULL, 0}, {"", 0}, {"0\n", 0}, {"1\n", 1}, {"2\n", 0}, {"3\n", 0}};
    const struct vb_host_config config = {.direct_only = true};
    int descriptors = entries(DESCRIPTORS);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        struct vb_host *host;

        scope = cases[i].scope;
        permissions = 0;
        CHECK_EQ(vb_host_open(&config, &host), 0);
        vb_host_close(host);
        CHECK_EQ(permissions, cases[i].permissions);
        CHECK_EQ(entries(DESCRIPTORS), descriptors);
    }
    scope = NULL;
}

/* ---- a peer ---------------------------------------------------------------------------------- */

static void knocks(int socket)
{
    struct end end;

    end_open(&end, (struct end_options){0});
    end_connect(&end, end_add_qp(&end), socket);
    CHECK_EQ(end_post(&end, end.qp, IBV_WR_RDMA_WRITE, 64), 0);
    CHECK_EQ(end_wait(end.cq, 10).status, IBV_WC_SUCCESS);
    end_meet(socket);
    end_meet(socket);
    end_close(&end);
}

/* A connection that the service thread cannot watch is closed, and the peer tries again. */
static void a_peer_that_cannot_be_watched_is_refused(void)
{
    int socket, descriptors, threads = entries("/proc/self/task");
    struct end end;
    pid_t child;

    end_open(&end, (struct end_options){0});
    descriptors = entries(DESCRIPTORS);
    child = end_spawn("knocks", &socket);
    left = 0;
    refuses = ENOSPC;
    refused = WATCH;
    end_connect(&end, end_add_qp(&end), socket);
    end_meet(socket);
    CHECK(left < 0);
    refused = NONE;
    end_meet(socket);
    CHECK_EQ(read(socket, &left, 1), 0); /* the child has ended */
    CHECK_EQ(vb_qp_destroy(end.qp), 0);
    end_kill(child, socket);
    for (int i = 0; i < 500 && entries(DESCRIPTORS) != descriptors; ++i)
        usleep(10000);
    CHECK(are_left(descriptors, threads + 2));
    end_close(&end);
}

int main(int argc, char **argv)
{
    static const struct end_play plays[] = {{"knocks", knocks}};

    if (end_play(argc, argv, plays, 1))
        return 0;
    alarm(60);
    RUN(nothing_is_left_of_an_open_that_was_refused);
    RUN(others_are_let_in_where_they_would_be_kept_out);
    RUN(a_peer_that_cannot_be_watched_is_refused);
    return 0;
}
