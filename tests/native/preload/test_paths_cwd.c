// SPDX-License-Identifier: Apache-2.0
/*
 * The working directory inside the tree: how a process gets there and out of it, what it is called,
 * and that programs which it becomes are there, too.
 */
#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "descriptors.h"
#include "tree.h"

static void expect_here(const char *path)
{
    char buffer[PATH_MAX], *found = getcwd(buffer, sizeof(buffer));

    if (!found || strcmp(found, path) != 0)
        fprintf(stderr, "in %s, not %s\n", found ? found : strerror(errno), path);
    CHECK(found == buffer && strcmp(found, path) == 0);
}

static const struct {
    const char *to, *here; /* NULL: `error`, and it stays where it is */
    int error;
} steps[] = {
    {TREE_CLASS, TREE_CLASS, 0},
    {"verbena0", TREE_DEVICE, 0},
    {"ports/1", TREE_DEVICE "/ports/1", 0},
    {".", TREE_DEVICE "/ports/1", 0},
    {"state", NULL, ENOTDIR},
    {"nothing", NULL, ENOENT},
    {"state/x", NULL, ENOTDIR},
    {"", NULL, ENOENT},
    {"/nothing", NULL, ENOENT},
    {"/proc/self/comm", NULL, ENOTDIR},
    {TREE_DEVICE "/nothing", NULL, ENOENT},
    {"/dev/infiniband/uverbs0", NULL, ENOTDIR},
    {"../../..", TREE_CLASS, 0},
    {"../infiniband_verbs/uverbs1/device", TREE_OTHER "/device", 0},
    {"..", TREE_OTHER, 0},
    {"../..", "/sys/class", 0},
    {"net/..", "/sys/class", 0}, /* the kernel's own */
    {"/", "/", 0},
    {"/dev/infiniband", "/dev/infiniband", 0},
    {"..", "/dev", 0},
    {"/proc", "/proc", 0},
};

static void test_steps(void)
{
    const int before = descriptors_open();
    const char *here = "/";

    CHECK_EQ(chdir(here), 0);
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); ++i) {
        int result = chdir(steps[i].to);

        if (result != (steps[i].here ? 0 : -1))
            fprintf(stderr, "%s: %s\n", steps[i].to, strerror(errno));
        if (steps[i].here) {
            CHECK_EQ(result, 0);
            here = steps[i].here;
        } else {
            CHECK(result == -1 && errno == steps[i].error);
        }
        expect_here(here);
        CHECK_EQ(descriptors_open(), before);
    }
    CHECK_EQ(chdir("/"), 0);
}

static void test_fchdir(void)
{
    int ports = open(TREE_DEVICE "/ports", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int file = open(TREE_DEVICE "/fw_ver", O_RDONLY | O_CLOEXEC);
    int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    CHECK_EQ(fchdir(ports), 0);
    expect_here(TREE_DEVICE "/ports");
    CHECK(fchdir(file) == -1 && errno == ENOTDIR);
    CHECK(fchdir(-1) == -1 && errno == EBADF);
    expect_here(TREE_DEVICE "/ports");
    CHECK_EQ(fchdir(root), 0);
    expect_here("/");
    close(ports);
    close(file);
    close(root);
}

static void test_calls_with_relative_paths(void)
{
    struct stat stat_of, same;
    char text[8] = "";
    FILE *stream;
    DIR *directory;
    int fd;

    CHECK_EQ(chdir(TREE_DEVICE), 0);
    fd = open("node_type", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && read(fd, text, sizeof(text)) == 6);
    close(fd);
    stream = fopen("./node_type", "re");
    CHECK(stream && fgets(text, sizeof(text), stream) && strcmp(text, "1: CA\n") == 0);
    fclose(stream);
    CHECK_EQ(stat(".", &stat_of) | lstat(TREE_DEVICE, &same), 0);
    CHECK_EQ(stat_of.st_ino, same.st_ino);
    CHECK_EQ(access("ports/../fw_ver", R_OK), 0);
    CHECK(access("ports/../nothing", R_OK) == -1 && errno == ENOENT);
    directory = opendir("ports");
    CHECK(directory && strcmp(readdir(directory)->d_name, ".") == 0);
    closedir(directory);
    CHECK(open("/no/such", O_RDONLY) == -1 && errno == ENOENT);
    CHECK_EQ(access("/proc/self/comm", R_OK), 0);
    CHECK_EQ(access("../../../../proc/self/comm", R_OK), 0);
    CHECK_EQ(chdir("/"), 0);
    CHECK(access("node_type", R_OK) == -1 && errno == ENOENT);
}

/* ---- what it is called ---- */

char *__getcwd_chk(char *buffer, size_t size, size_t room);

static void test_getcwd_with_each_size(void)
{
    const size_t length = strlen(TREE_DEVICE);
    char buffer[128], *made;

    CHECK_EQ(chdir(TREE_DEVICE), 0);
    for (size_t size = 1; size < length + 3; ++size) {
        memset(buffer, '#', sizeof(buffer));
        if (size <= length) {
            CHECK(!getcwd(buffer, size) && errno == ERANGE);
            CHECK(buffer[0] == '#');
            CHECK(!getcwd(NULL, size) && errno == ERANGE);
            CHECK(!__getcwd_chk(buffer, size, sizeof(buffer)) && errno == ERANGE);
            continue;
        }
        CHECK(getcwd(buffer, size) == buffer && strcmp(buffer, TREE_DEVICE) == 0);
        CHECK(buffer[length + 1] == '#');
        CHECK(__getcwd_chk(buffer, size, size) == buffer && strcmp(buffer, TREE_DEVICE) == 0);
        made = getcwd(NULL, size);
        CHECK(made && strcmp(made, TREE_DEVICE) == 0);
        free(made);
    }
    CHECK(!getcwd(buffer, 0) && errno == EINVAL);
    made = getcwd(NULL, 0);
    CHECK(made && strcmp(made, TREE_DEVICE) == 0);
    free(made);
    made = get_current_dir_name();
    CHECK(made && strcmp(made, TREE_DEVICE) == 0);
    free(made);
    CHECK_EQ(chdir("/proc"), 0);
    unsetenv("PWD");
    made = get_current_dir_name();
    CHECK(made && strcmp(made, "/proc") == 0);
    free(made);
    CHECK(__getcwd_chk(buffer, 6, 6) == buffer && strcmp(buffer, "/proc") == 0);
    CHECK(!__getcwd_chk(buffer, 5, 6) && errno == ERANGE);
}

/* More bytes than there are end a program, as the C library has it. */
static void test_the_checked_getcwd_checks(void)
{
    int status;

    if (fork() == 0) {
        char buffer[128];

        close(STDERR_FILENO);
        CHECK_EQ(chdir(TREE_DEVICE), 0);
        __getcwd_chk(buffer, 128, 127);
        _exit(0);
    }
    CHECK(wait(&status) > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* ---- where the kernel puts the process ---- */

static bool is_empty(const char *path)
{
    DIR *directory = opendir(path);
    int count = 0;

    CHECK(directory);
    while (readdir(directory))
        ++count;
    closedir(directory);
    return count == 2;
}

static void test_any_folder_for_temporary_files_will_do(void)
{
    char here[PATH_MAX], folder[PATH_MAX + 32], longest[PATH_MAX + 8];

    memset(longest, 'x', sizeof(longest) - 1);
    longest[0] = '/', longest[sizeof(longest) - 1] = '\0';
    CHECK(getcwd(here, sizeof(here)));
    snprintf(folder, sizeof(folder), "%s/temporary-%d", getenv("TEST_FOLDER"), (int)getpid());
    CHECK_EQ(mkdir(folder, 0700), 0);
    const char *const all[] = {folder, "/no/such/folder", longest, NULL};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); ++i) {
        if (all[i])
            setenv("TMPDIR", all[i], 1);
        else
            unsetenv("TMPDIR");
        CHECK_EQ(chdir(TREE_DEVICE), 0);
        expect_here(TREE_DEVICE);
        CHECK(is_empty(folder));
        CHECK_EQ(chdir("/"), 0);
    }
    CHECK_EQ(rmdir(folder), 0);
}

/* A program that starts there knows it by what the kernel says of its working directory. */
static int in_another_program(char **argv)
{
    int status;

    if (fork() == 0) {
        execl("/proc/self/exe", argv[0], "here", NULL);
        _exit(1);
    }
    CHECK(wait(&status) > 0 && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int say_where(void)
{
    char here[PATH_MAX];

    CHECK(getcwd(here, sizeof(here)));
    return strcmp(here, TREE_DEVICE "/ports") == 0 && access("1/lid", R_OK) == 0 ? 7
           : strcmp(here, "/") == 0                                              ? 8
                                                                                 : 9;
}

int main(int argc, char **argv)
{
    char folder[PATH_MAX];

    tree_begin();
    if (argc == 2)
        return say_where();
    CHECK(getcwd(folder, sizeof(folder)));
    setenv("TEST_FOLDER", folder, 1);
    RUN(test_steps);
    RUN(test_fchdir);
    RUN(test_calls_with_relative_paths);
    RUN(test_getcwd_with_each_size);
    RUN(test_the_checked_getcwd_checks);
    RUN(test_any_folder_for_temporary_files_will_do);
    CHECK_EQ(chdir(TREE_DEVICE "/ports"), 0);
    CHECK_EQ(in_another_program(argv), 7);
    CHECK_EQ(chdir("/"), 0);
    CHECK_EQ(in_another_program(argv), 8);
    return 0;
}
