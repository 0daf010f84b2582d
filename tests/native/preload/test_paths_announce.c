// SPDX-License-Identifier: Apache-2.0
/*
 * The lines on stderr that explain what a program sees, what it looked for in vain, and that it did
 * not use the device: exactly when each is written. Every case is a program of its own, which this
 * one starts from itself.
 */
#include <limits.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "dropin/pair.h"
#include "tree.h"

#define SEES " sees verbena0 below /sys/class/infiniband and /dev/infiniband\n"
#define MANAGER                                                                                    \
    "verbena: no connection to the agent, which manages connections: VERBENA_AGENT is off, or "    \
    "not "                                                                                         \
    "set (`verbena run` sets it); `verbena agent` in another terminal shows what is wrong\n"
#define UNUSED                                                                                     \
    "verbena: test_paths_announce used TCP and never looked for verbena0: programs that can use "  \
    "both may have to be told (docs/running.md)\n"

/* What the program does, word by word. */
static void act(const char *word)
{
    int fd;

    if (strcmp(word, "tcp") == 0)
        CHECK(socket(AF_INET, SOCK_STREAM, 0) >= 0);
    else if (strcmp(word, "tcp6") == 0)
        socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    else if (strcmp(word, "udp") == 0)
        CHECK(socket(AF_INET, SOCK_DGRAM, 0) >= 0);
    else if (strcmp(word, "unix") == 0)
        CHECK(socket(AF_UNIX, SOCK_STREAM, 0) >= 0);
    else if (strcmp(word, "device") == 0)
        ibv_close_device(pair_open_device());
    else if (strcmp(word, "manager") == 0) {
        fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
        CHECK(fd == -1 && errno == ENOENT);
    } else if (strcmp(word, "manager-at") == 0) {
        fd = open("/dev/../dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
        CHECK(fd == -1 && errno == ENOENT);
    } else if (strcmp(word, "other") == 0) {
        fd = open("/dev/infiniband/umad7", O_RDWR | O_CLOEXEC);
        CHECK(fd == -1 && errno == ENOENT);
    } else if (strcmp(word, "directory") == 0) {
        fd = open("/dev/infiniband/rdma_cm/x/..", O_RDWR | O_CLOEXEC);
        CHECK(fd == -1);
    } else {
        exit(atoi(word));
    }
}

static const struct {
    const char *log, *words[4];
    bool noted; /* VERBENA_RUN names a file of its own */
    const char *said;
} cases[] = {
    {NULL, {"0"}, true, ""},
    {"info", {"0"}, true, SEES},
    {"debug", {"0"}, true, SEES},
    {"warning", {"0"}, true, ""},
    {"", {"0"}, true, ""},
    {NULL, {"manager", "1"}, true, MANAGER},
    {NULL, {"manager", "manager", "3"}, true, MANAGER},
    {NULL, {"manager", "0"}, true, MANAGER},
    {NULL, {"manager", "3"}, false, MANAGER},
    {NULL, {"other", "1"}, true, ""},
    {NULL, {"directory", "1"}, true, ""},
    {NULL, {"manager-at", "1"}, true, MANAGER},
    {NULL, {"tcp", "0"}, true, UNUSED},
    {NULL, {"tcp", "tcp", "0"}, true, UNUSED},
    {NULL, {"tcp6", "0"}, true, UNUSED},
    {NULL, {"udp", "0"}, true, ""},
    {NULL, {"unix", "0"}, true, ""},
    {NULL, {"udp", "tcp", "0"}, true, UNUSED},
    {NULL, {"tcp", "3"}, true, ""},
    {NULL, {"tcp", "0"}, false, ""},
    {NULL, {"tcp", "device", "0"}, true, ""},
    {NULL, {"device", "tcp", "0"}, true, ""},
    {NULL, {"manager", "tcp", "0"}, true, MANAGER UNUSED},
};

/* As `verbena run`: a memory file with a byte for each note, whose name is in VERBENA_RUN. */
static void name_a_file(void)
{
    char name[64];
    struct stat stat;
    int fd = memfd_create("notes", 0);

    CHECK(fd >= 0 && ftruncate(fd, 2) == 0 && fstat(fd, &stat) == 0);
    snprintf(name, sizeof(name), "%d:%d:%lu", (int)getpid(), fd, (unsigned long)stat.st_ino);
    setenv("VERBENA_RUN", name, 1);
}

static void become(size_t i)
{
    char *words[6] = {"test_paths_announce"};

    for (int n = 0; n < 4 && cases[i].words[n]; ++n)
        words[n + 1] = (char *)cases[i].words[n];
    unsetenv("VERBENA_RUN");
    if (cases[i].noted)
        name_a_file();
    if (cases[i].log)
        setenv("VERBENA_LOG", cases[i].log, 1);
    else
        unsetenv("VERBENA_LOG");
    execv("/proc/self/exe", words);
    _exit(99);
}

static void run_case(size_t i)
{
    char said[1024] = "", *text = said, start[64];
    int pipes[2], status;
    size_t used = 0;
    ssize_t length;
    pid_t child;

    CHECK_EQ(pipe(pipes), 0);
    child = fork();
    if (child == 0) {
        dup2(pipes[1], STDERR_FILENO);
        close(pipes[1]);
        become(i);
    }
    close(pipes[1]);
    while ((length = read(pipes[0], said + used, sizeof(said) - 1 - used)) > 0)
        used += (size_t)length;
    close(pipes[0]);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    snprintf(start, sizeof(start), "verbena: pid %d (test_paths_announce)", (int)child);
    if (strncmp(said, start, strlen(start)) == 0)
        text += strlen(start);
    if (strcmp(text, cases[i].said) != 0)
        fprintf(stderr, "case %zu: %s\nexpected: %s\n", i, text, cases[i].said);
    CHECK(strcmp(text, cases[i].said) == 0);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; ++i)
        act(argv[i]);
    tree_begin();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); ++i)
        run_case(i);
    return 0;
}
