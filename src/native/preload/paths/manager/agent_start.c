// SPDX-License-Identifier: Apache-2.0
/*
 * Starts the agent for agent.c: a Python interpreter, which VERBENA_AGENT names (`verbena run` sets
 * it), as a process of its own session that is nobody's child. The program notices neither a signal
 * nor a child of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/paths/manager/agent.h"

extern char **environ;

#define PRELOAD "LD_PRELOAD="

/* What is preloaded for the program, such as a sockets library, is not for the agent. A sanitizer's
 * runtime has to stay, since Verbena's own build needs it. */
static bool stays_preloaded(const char *name, size_t length)
{
    return memmem(name, length, "libasan", strlen("libasan")) ||
           memmem(name, length, "libubsan", strlen("libubsan"));
}

/* "LD_PRELOAD=" with the libraries that stay; to be freed. */
static char *preload_for_agent(const char *variable)
{
    char *kept = malloc(strlen(variable) + 2), *end;
    const char *name = variable + strlen(PRELOAD);
    if (!kept)
        return NULL;
    end = stpcpy(kept, PRELOAD);
    while (*(name += strspn(name, " :"))) {
        size_t length = strcspn(name, " :");
        if (stays_preloaded(name, length)) {
            end = mempcpy(end, name, length);
            *end++ = ' ';
        }
        name += length;
    }
    *end = '\0';
    return kept;
}

/* A copy of the environment for the agent; to be freed, and `preload`, which it points to. */
static char **environment_for_agent(char **preload)
{
    size_t count = 0;
    while (environ && environ[count])
        count++;
    char **copy = calloc(count + 1, sizeof *copy);
    *preload = NULL;
    for (size_t i = 0; copy && i < count; i++) {
        copy[i] = environ[i];
        if (strncmp(environ[i], PRELOAD, strlen(PRELOAD)) == 0 && !*preload)
            copy[i] = *preload = preload_for_agent(environ[i]);
    }
    return copy;
}

/* ---- the new process: only calls that may follow a fork ----------------------------------------
 */

/* A fork whose child sends no SIGCHLD, and that no wait() of the program's finds. */
static pid_t quiet_fork(void)
{
    return (pid_t)syscall(SYS_clone, 0, NULL, NULL, NULL, NULL);
}

static void leave_descriptors(void)
{
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; null >= 0 && fd < 3; fd++)
        dup2(null, fd);
#ifdef SYS_close_range
    if (syscall(SYS_close_range, 3u, ~0u, 0u) == 0)
        return;
#endif
    for (int fd = 3; fd < 65536; fd++)
        close(fd);
}

static void unblock_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
}

static _Noreturn void become_agent(const char *python, char *const arguments[],
                                   char *const environment[])
{
    setsid();
    if (quiet_fork() != 0)
        _exit(0); /* its child has no parent, and is not the leader of its session */
    leave_descriptors();
    unblock_signals();
    execve(python, arguments, environment);
    _exit(127);
}

int vb_preload_agent_start(void)
{
    const char *python = getenv("VERBENA_AGENT");
    char *const arguments[] = {(char *)python, "-P", "-m", "verbena.agent", NULL};
    char *preload;
    if (!python || !*python || strcmp(python, "off") == 0)
        return -ENOENT;
    char **environment = environment_for_agent(&preload);
    if (!environment)
        return -ENOMEM;
    pid_t pid = quiet_fork();
    if (pid == 0)
        become_agent(python, arguments, environment);
    int error = pid < 0 ? -errno : 0;
    while (pid > 0 && waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
        continue;
    free(environment);
    free(preload);
    return error;
}
