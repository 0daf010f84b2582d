// SPDX-License-Identifier: Apache-2.0
/*
 * Directories of the tree, by streams, scandir and glob: their entries are those of lstat, streams
 * go back and forth as the C library's do, and other directories are listed as ever.
 */
#include <dirent.h>
#include <glob.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "descriptors.h"
#include "tree.h"

enum { MOST = 64 };

static const char *const directories[] = {
    TREE_CLASS,
    TREE_DEVICE,
    TREE_DEVICE "/device",
    TREE_DEVICE "/device/net",
    TREE_DEVICE "/ports",
    TREE_DEVICE "/ports/1",
    TREE_VERBS "/uverbs0",
    TREE_VERBS "/uverbs0/device", /* a link */
    "/dev/infiniband",
};

enum { DIRECTORIES = sizeof(directories) / sizeof(*directories) };

/* ---- streams ---- */

static unsigned char type_of(mode_t mode)
{
    return S_ISDIR(mode) ? DT_DIR : S_ISLNK(mode) ? DT_LNK : S_ISCHR(mode) ? DT_CHR : DT_REG;
}

/* An entry says of a file what lstat says. */
static void check_entry(const char *directory, const struct dirent *entry)
{
    char path[512];
    struct stat stat;

    snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
    CHECK_EQ(lstat(path, &stat), 0);
    CHECK_EQ(entry->d_type, type_of(stat.st_mode));
    CHECK(strcmp(entry->d_name, "..") == 0 || entry->d_ino == stat.st_ino);
    CHECK(entry->d_reclen >= offsetof(struct dirent, d_name) + strlen(entry->d_name) + 1);
}

static void test_entries_are_files(void)
{
    for (int i = 0; i < DIRECTORIES; ++i) {
        DIR *stream = opendir(directories[i]);
        const struct dirent *entry;
        long count = 0;

        CHECK(stream);
        CHECK_EQ(telldir(stream), 0);
        while ((entry = readdir(stream))) {
            if (count < 2)
                CHECK(strcmp(entry->d_name, count ? ".." : ".") == 0);
            check_entry(directories[i], entry);
            CHECK_EQ(entry->d_off, telldir(stream));
            ++count;
        }
        CHECK(count > 2);
        CHECK(!readdir(stream)); /* it stays at the end */
        CHECK_EQ(closedir(stream), 0);
    }
}

/* From each place that telldir gave, a stream goes on with the same entry. */
static void test_streams_go_back(void)
{
    DIR *stream = opendir(TREE_DEVICE "/ports/1");
    char names[MOST][256];
    long places[MOST], count = 0;
    const struct dirent *entry;

    for (; places[count] = telldir(stream), (entry = readdir(stream)); ++count)
        strcpy(names[count], entry->d_name);
    CHECK_EQ(count, 16);
    for (long i = count - 1; i >= 0; --i) {
        seekdir(stream, places[i]);
        CHECK_EQ(telldir(stream), places[i]);
        CHECK(strcmp(readdir(stream)->d_name, names[i]) == 0);
    }
    seekdir(stream, places[count]);
    CHECK(!readdir(stream));
    rewinddir(stream);
    CHECK(strcmp(readdir(stream)->d_name, ".") == 0);
    seekdir(stream, -1); /* no place: the begin */
    CHECK(strcmp(readdir(stream)->d_name, ".") == 0);
    seekdir(stream, 1000);
    CHECK(!readdir(stream));
    closedir(stream);
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* readdir_r */

static void test_readdir_r(void)
{
    DIR *stream = opendir(TREE_DEVICE "/ports"), *other = opendir("/proc/self");
    struct dirent entry, *result = NULL;

    for (int i = 0; i < 4; ++i) {
        static const char *const names[] = {".", "..", "1", "2"};

        CHECK_EQ(readdir_r(stream, &entry, &result), 0);
        CHECK(result == &entry && strcmp(entry.d_name, names[i]) == 0);
    }
    CHECK_EQ(readdir_r(stream, &entry, &result), 0);
    CHECK(!result);
    closedir(stream);
    CHECK_EQ(readdir_r(other, &entry, &result), 0);
    CHECK(result == &entry && strcmp(entry.d_name, ".") == 0);
    closedir(other);
}

static void test_a_stream_owns_its_descriptor(void)
{
    const int before = descriptors_open();
    DIR *stream = opendir(TREE_DEVICE);
    struct stat stat, same;
    int fd = dirfd(stream);

    CHECK_EQ(descriptors_open(), before + 1);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CHECK_EQ(fstat(fd, &stat) | lstat(TREE_DEVICE, &same), 0);
    CHECK_EQ(stat.st_ino, same.st_ino);
    CHECK_EQ(closedir(stream), 0);
    CHECK_EQ(descriptors_open(), before);
    fd = open(TREE_DEVICE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    stream = fdopendir(fd);
    CHECK(stream && dirfd(stream) == fd);
    CHECK(strcmp(readdir(stream)->d_name, ".") == 0);
    CHECK_EQ(closedir(stream), 0);
    CHECK_EQ(descriptors_open(), before);
    fd = open(TREE_DEVICE "/fw_ver", O_RDONLY | O_CLOEXEC);
    CHECK(!fdopendir(fd) && errno == ENOTDIR);
    CHECK_EQ(close(fd), 0);
    CHECK(!fdopendir(-1) && errno == EBADF);
}

static void test_what_is_no_directory(void)
{
    static const struct {
        const char *path;
        int error;
    } wrong[] = {{TREE_DEVICE "/fw_ver", ENOTDIR}, {"/dev/infiniband/uverbs0", ENOTDIR},
                 {TREE_DEVICE "/nothing", ENOENT}, {TREE_DEVICE "/fw_ver/x", ENOTDIR},
                 {"/proc/self/comm", ENOTDIR},     {"/nothing", ENOENT}};
    const int before = descriptors_open();

    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); ++i) {
        struct dirent **list;

        CHECK(!opendir(wrong[i].path));
        CHECK_EQ(errno, wrong[i].error);
        CHECK_EQ(scandir(wrong[i].path, &list, NULL, alphasort), -1);
        CHECK_EQ(errno, wrong[i].error);
    }
    CHECK_EQ(descriptors_open(), before);
}

static void test_other_directories(void)
{
    DIR *stream = opendir("/proc/self");
    struct stat stat;
    char first[256];
    long place;

    CHECK(stream && strcmp(readdir(stream)->d_name, ".") == 0);
    CHECK(strcmp(readdir(stream)->d_name, "..") == 0);
    place = telldir(stream);
    strcpy(first, readdir(stream)->d_name);
    CHECK(readdir(stream));
    seekdir(stream, place);
    CHECK(strcmp(readdir(stream)->d_name, first) == 0);
    rewinddir(stream);
    CHECK(strcmp(readdir(stream)->d_name, ".") == 0);
    CHECK(fstat(dirfd(stream), &stat) == 0 && S_ISDIR(stat.st_mode));
    CHECK_EQ(closedir(stream), 0);
    stream = fdopendir(open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    CHECK(stream && readdir64(stream));
    CHECK_EQ(closedir(stream), 0);
}

/* ---- scandir ---- */

static int is_p(const struct dirent *entry)
{
    return entry->d_name[0] == 'p';
}

static int is_comm(const struct dirent *entry)
{
    return strcmp(entry->d_name, "comm") == 0;
}

static int none(const struct dirent *entry)
{
    (void)entry;
    return 0;
}

static int backwards(const struct dirent **left, const struct dirent **right)
{
    return strcmp((*right)->d_name, (*left)->d_name);
}

static void expect_list(int count, struct dirent ***made, const char *expected)
{
    struct dirent **list = *made;
    char names[512] = "";

    CHECK(count >= 0);
    for (int i = 0; i < count; ++i) {
        strcat(strcat(names, list[i]->d_name), " ");
        free(list[i]);
    }
    free(list);
    if (strcmp(names, expected) != 0)
        fprintf(stderr, "%s, not %s\n", names, expected);
    CHECK(strcmp(names, expected) == 0);
}

static void test_scandir(void)
{
    const int before = descriptors_open();
    int fd = open(TREE_DEVICE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int other = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct dirent **list;

    expect_list(scandir(TREE_DEVICE "/ports/1", &list, is_p, backwards), &list,
                "pkeys phys_state ");
    expect_list(scandir(TREE_DEVICE "/ports/1", &list, is_p, alphasort), &list,
                "phys_state pkeys ");
    expect_list(scandir(TREE_DEVICE "/ports", &list, NULL, backwards), &list, "2 1 .. . ");
    expect_list(scandir(TREE_DEVICE "/ports", &list, NULL, NULL), &list, ". .. 1 2 ");
    CHECK_EQ(scandir(TREE_DEVICE "/ports", &list, none, alphasort), 0);
    free(list);
    expect_list(scandirat(fd, "ports", &list, NULL, backwards), &list, "2 1 .. . ");
    expect_list(scandirat(other, "self/task/..", &list, is_comm, alphasort), &list, "comm ");
    expect_list(scandir("/proc/self", &list, is_comm, alphasort), &list, "comm ");
    close(other);
    close(fd);
    CHECK_EQ(descriptors_open(), before);
}

/* ---- glob ---- */

static void expect_glob(const char *pattern, int flags, const char *expected)
{
    char paths[1024] = "";
    glob_t found = {0};
    int error = glob(pattern, flags, NULL, &found);

    CHECK_EQ(error, *expected ? 0 : GLOB_NOMATCH);
    for (size_t i = 0; !error && i < found.gl_pathc; ++i)
        strcat(strcat(paths, found.gl_pathv[i]), " ");
    globfree(&found);
    if (strcmp(paths, expected) != 0)
        fprintf(stderr, "%s: %s, not %s\n", pattern, paths, expected);
    CHECK(strcmp(paths, expected) == 0);
}

static int asked_of_tests;

static void *opened_by_test(const char *path)
{
    ++asked_of_tests;
    return opendir(path);
}

static struct dirent *read_by_test(void *stream)
{
    return readdir(stream);
}

static void closed_by_test(void *stream)
{
    closedir(stream);
}

static void test_glob(void)
{
    const int before = descriptors_open();
    glob_t own = {.gl_opendir = opened_by_test,
                  .gl_readdir = read_by_test,
                  .gl_closedir = closed_by_test,
                  .gl_stat = stat,
                  .gl_lstat = lstat};

    expect_glob(TREE_CLASS "/*/node_type", 0, TREE_DEVICE "/node_type " TREE_OTHER "/node_type ");
    expect_glob(TREE_DEVICE "/ports/[2-9]", GLOB_MARK, TREE_DEVICE "/ports/2/ ");
    expect_glob("/dev/infiniband/uverbs*", 0, "/dev/infiniband/uverbs0 /dev/infiniband/uverbs1 ");
    expect_glob(TREE_DEVICE "/x*", 0, "");
    expect_glob("/proc/self/com[m]", 0, "/proc/self/comm ");
    expect_glob("/proc/self/nothing*", 0, "");
    CHECK_EQ(glob(TREE_CLASS "/*", GLOB_ALTDIRFUNC, NULL, &own), 0);
    CHECK_EQ(own.gl_pathc, 2);
    CHECK(asked_of_tests > 0);
    globfree(&own);
    CHECK_EQ(chdir(TREE_DEVICE), 0);
    expect_glob("p*", 0, "ports ");
    expect_glob("ports/*/lid", 0, "ports/1/lid ports/2/lid ");
    CHECK_EQ(chdir("/"), 0);
    expect_glob("ports/*", 0, "");
    CHECK_EQ(descriptors_open(), before);
}

/* ---- beside entries of the host's ---- */

static bool put_host_entries(void)
{
    if (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS))
        return false;
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", "/dev", "tmpfs", 0, NULL) || mkdir("/dev/infiniband", 0755))
        return false;
    for (int i = 0; i < 2; ++i) { /* a name that the tree has, too, and one that it has not */
        const char *path = i ? "/dev/infiniband/umad7" : "/dev/infiniband/issm0";
        int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

        CHECK_EQ(write(fd, "host", 4), 4);
        close(fd);
    }
    return mkdir("/dev/infiniband_none", 0755) == 0;
}

/* Made by a link from a name that the tree does not claim. */
static void put_a_name_that_both_have(void)
{
    int fd;

    CHECK_EQ(symlink("infiniband", "/dev/real"), 0);
    fd = open("/dev/real/uverbs0", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    close(fd);
}

static void test_entries_of_the_host(void)
{
    const int before = descriptors_open();
    struct dirent **list;
    const struct dirent *entry;
    DIR *stream;
    long count = 0;

    if (!put_host_entries()) {
        printf("no mount namespace: %s\n", strerror(errno));
        return;
    }
    put_a_name_that_both_have();
    expect_list(scandir("/dev/infiniband", &list, NULL, alphasort), &list,
                ". .. issm0 rdma_cm umad0 umad7 uverbs0 uverbs1 ");
    stream = opendir("/dev/infiniband");
    while ((entry = readdir(stream)))
        CHECK_EQ(entry->d_off, ++count);
    CHECK_EQ(count, 8);
    closedir(stream);
    tree_expect("/dev/infiniband/umad7", "host");
    expect_glob("/dev/infiniband/u*0", 0, "/dev/infiniband/umad0 /dev/infiniband/uverbs0 ");
    CHECK_EQ(descriptors_open(), before);
}

/* The file that was filled is then the program's own. */
static void test_files_without_proc(void)
{
    if (mount("none", "/proc", "tmpfs", 0, NULL)) /* in the namespace of the test before */
        return;
    for (int cloexec = 0; cloexec < 2; ++cloexec) {
        int fd = open(TREE_DEVICE "/node_type", O_RDONLY | (cloexec ? O_CLOEXEC : 0));
        char text[8] = "";

        CHECK(fd >= 0);
        CHECK_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, cloexec ? FD_CLOEXEC : 0);
        CHECK(pread(fd, text, sizeof(text), 0) == 6 && strcmp(text, "1: CA\n") == 0);
        CHECK(write(fd, "x", 1) == -1 && errno == EPERM);
        close(fd);
    }
}

/* Descriptor 0 is one like others: a program may have closed its input. */
static void test_the_first_descriptor(void)
{
    FILE *stream;
    DIR *directory;

    CHECK_EQ(close(STDIN_FILENO), 0);
    CHECK_EQ(open(TREE_DEVICE "/node_type", O_RDONLY), 0);
    CHECK_EQ(close(0), 0);
    stream = fopen(TREE_DEVICE "/node_type", "r");
    CHECK(stream && fileno(stream) == 0);
    CHECK_EQ(fclose(stream), 0);
    directory = opendir(TREE_DEVICE);
    CHECK(directory && dirfd(directory) == 0);
    CHECK(strcmp(readdir(directory)->d_name, ".") == 0);
    CHECK(openat(0, "ports", O_RDONLY | O_DIRECTORY) > 0);
    CHECK_EQ(closedir(directory), 0);
}

int main(void)
{
    tree_begin();
    RUN(test_entries_are_files);
    RUN(test_streams_go_back);
    RUN(test_readdir_r);
    RUN(test_a_stream_owns_its_descriptor);
    RUN(test_what_is_no_directory);
    RUN(test_other_directories);
    RUN(test_scandir);
    RUN(test_glob);
    RUN(test_entries_of_the_host);
    RUN(test_files_without_proc);
    RUN(test_the_first_descriptor);
    return 0;
}
