// SPDX-License-Identifier: Apache-2.0
/*
 * Opening, describing and resolving files of the tree: each call with each kind of file, as Linux
 * answers of sysfs, and other files as ever.
 */
#include <dlfcn.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "descriptors.h"
#include "tree.h"

enum kind { A_FILE, A_DIRECTORY, A_LINK, A_DEVICE, MISSING, BELOW_A_FILE, KINDS };

static const char *const paths[KINDS] = {
    [A_FILE] = TREE_DEVICE "/node_type",     [A_DIRECTORY] = TREE_DEVICE "/ports",
    [A_LINK] = TREE_VERBS "/uverbs0/device", [A_DEVICE] = "/dev/infiniband/uverbs0",
    [MISSING] = TREE_DEVICE "/no_such_file", [BELOW_A_FILE] = TREE_DEVICE "/node_type/x",
};

/* 0, or the errno of a call that returned -1. */
static int error_of(long result)
{
    CHECK(result >= -1);
    return result < 0 ? errno : 0;
}

static void expect_error(const char *call, const char *path, int error, int expected)
{
    if (error != expected)
        fprintf(stderr, "%s %s: %s, not %s\n", call, path, strerror(error), strerror(expected));
    CHECK_EQ(error, expected);
}

/* ---- open ---- */

static const struct {
    const char *name;
    int flags, errors[KINDS];
} opens[] = {
    {"O_RDONLY", O_RDONLY, {0, 0, 0, 0, ENOENT, ENOTDIR}},
    {"O_WRONLY", O_WRONLY, {EACCES, EISDIR, EISDIR, 0, ENOENT, ENOTDIR}},
    {"O_RDWR", O_RDWR, {EACCES, EISDIR, EISDIR, 0, ENOENT, ENOTDIR}},
    {"O_TRUNC", O_WRONLY | O_TRUNC, {EACCES, EISDIR, EISDIR, 0, ENOENT, ENOTDIR}},
    {"O_CREAT", O_CREAT, {0, EISDIR, EISDIR, 0, EACCES, ENOTDIR}},
    {"O_CREAT, written", O_CREAT | O_RDWR, {EACCES, EISDIR, EISDIR, 0, EACCES, ENOTDIR}},
    {"O_EXCL", O_CREAT | O_EXCL, {EEXIST, EEXIST, EEXIST, EEXIST, EACCES, ENOTDIR}},
    {"O_EXCL alone", O_EXCL, {0, 0, 0, 0, ENOENT, ENOTDIR}},
    {"O_DIRECTORY", O_DIRECTORY, {ENOTDIR, 0, 0, ENOTDIR, ENOENT, ENOTDIR}},
    {"O_NOFOLLOW", O_NOFOLLOW, {0, 0, ELOOP, 0, ENOENT, ENOTDIR}},
    {"O_PATH", O_PATH, {0, 0, 0, 0, ENOENT, ENOTDIR}},
    {"O_PATH, written", O_PATH | O_WRONLY, {0, 0, 0, 0, ENOENT, ENOTDIR}},
    {"O_PATH | O_NOFOLLOW", O_PATH | O_NOFOLLOW, {0, 0, 0, 0, ENOENT, ENOTDIR}},
};

static int by_open(const char *path, int flags)
{
    return open(path, flags, 0600);
}

static int by_open64(const char *path, int flags)
{
    return open64(path, flags, 0600);
}

static int by_openat(const char *path, int flags)
{
    return openat(AT_FDCWD, path, flags, 0600);
}

int __open_2(const char *path, int flags);
int __openat_2(int dirfd, const char *path, int flags);

static int by_openat_2(const char *path, int flags)
{
    return __openat_2(AT_FDCWD, path, flags);
}

static void test_open_with_each_flag(void)
{
    static int (*const calls[])(const char *path, int flags) = {by_open, by_open64, by_openat,
                                                                __open_2, by_openat_2};
    const int before = descriptors_open();

    for (size_t c = 0; c < sizeof(calls) / sizeof(*calls); ++c)
        for (size_t i = 0; i < sizeof(opens) / sizeof(*opens); ++i)
            for (int kind = 0; kind < KINDS; ++kind) {
                int fd;

                errno = EINVAL; /* of an earlier call, which says nothing of this one */
                fd = calls[c](paths[kind], opens[i].flags);
                expect_error(opens[i].name, paths[kind], error_of(fd), opens[i].errors[kind]);
                if (fd >= 0)
                    close(fd);
            }
    CHECK_EQ(descriptors_open(), before);
}

static void test_what_an_open_file_allows(void)
{
    for (int cloexec = 0; cloexec < 2; ++cloexec)
        for (int kind = 0; kind < MISSING; ++kind) {
            int fd = open(paths[kind], O_RDONLY | (cloexec ? O_CLOEXEC : 0));

            CHECK(fd >= 0);
            CHECK_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, cloexec ? FD_CLOEXEC : 0);
            CHECK_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
            CHECK(write(fd, "x", 1) == -1 && errno == EBADF);
            close(fd);
        }
}

/* Nor by the way that leads to the file behind a descriptor, for root, too. */
static void test_a_file_cannot_be_changed(void)
{
    int fd = open(paths[A_FILE], O_RDONLY | O_CLOEXEC), again;
    struct stat kernels;
    char name[64];

    CHECK(fd >= 0);
    CHECK_EQ(syscall(SYS_newfstatat, fd, "", &kernels, AT_EMPTY_PATH), 0);
    CHECK_EQ(kernels.st_mode & 0777, 0444);
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    again = open(name, O_RDWR | O_CLOEXEC);
    if (again >= 0) {
        CHECK(write(again, "x", 1) == -1 && errno == EPERM);
        CHECK(ftruncate(again, 0) == -1 && errno == EPERM);
        CHECK(ftruncate(again, 4096) == -1 && errno == EPERM);
        CHECK(fcntl(again, F_ADD_SEALS, F_SEAL_WRITE) == -1 && errno == EPERM);
        close(again);
    }
    close(fd);
    tree_expect(paths[A_FILE], "1: CA\n");
}

static void test_a_device_can_be_written(void)
{
    int fd = open(paths[A_DEVICE], O_RDWR | O_CLOEXEC);
    char byte;

    CHECK(fd >= 0);
    CHECK_EQ(write(fd, "x", 1), 1);
    CHECK_EQ(read(fd, &byte, 1), 0);
    close(fd);
}

static const struct {
    const char *mode;
    int errors[KINDS];
} modes[] = {
    {"r", {0, 0, 0, 0, ENOENT, ENOTDIR}},
    {"re", {0, 0, 0, 0, ENOENT, ENOTDIR}},
    {"rx", {0, 0, 0, 0, ENOENT, ENOTDIR}},
    {"rb", {0, 0, 0, 0, ENOENT, ENOTDIR}},
    {"r+", {EACCES, EISDIR, EISDIR, 0, ENOENT, ENOTDIR}},
    {"w", {EACCES, EISDIR, EISDIR, 0, EACCES, ENOTDIR}},
    {"wx", {EEXIST, EEXIST, EEXIST, EEXIST, EACCES, ENOTDIR}},
    {"w+", {EACCES, EISDIR, EISDIR, 0, EACCES, ENOTDIR}},
    {"a", {EACCES, EISDIR, EISDIR, 0, EACCES, ENOTDIR}},
    {"ax", {EEXIST, EEXIST, EEXIST, EEXIST, EACCES, ENOTDIR}},
    {"a+", {EACCES, EISDIR, EISDIR, 0, EACCES, ENOTDIR}},
    {"q", {EINVAL, EINVAL, EINVAL, EINVAL, EINVAL, EINVAL}},
    {"", {EINVAL, EINVAL, EINVAL, EINVAL, EINVAL, EINVAL}},
};

static void test_fopen_with_each_mode(void)
{
    const int before = descriptors_open();

    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); ++i)
        for (int kind = 0; kind < KINDS; ++kind) {
            FILE *stream = fopen(paths[kind], modes[i].mode);
            int error = stream ? 0 : errno;

            expect_error(modes[i].mode, paths[kind], error, modes[i].errors[kind]);
            if (!stream)
                continue;
            CHECK_EQ(fcntl(fileno(stream), F_GETFD) & FD_CLOEXEC,
                     strchr(modes[i].mode, 'e') ? FD_CLOEXEC : 0);
            if (kind == A_DEVICE && modes[i].mode[0] != 'r')
                CHECK(fputs("thrown away", stream) >= 0);
            fclose(stream);
        }
    CHECK_EQ(descriptors_open(), before);
}

static void test_streams_read(void)
{
    char line[32] = "";
    FILE *stream = fopen64(paths[A_FILE], "r");

    CHECK(stream && fgets(line, sizeof(line), stream));
    CHECK(strcmp(line, "1: CA\n") == 0);
    CHECK(!fgets(line, sizeof(line), stream) && feof(stream));
    fclose(stream);
}

/* The mode of a new file is passed on, and is asked for only where there is one. */
static void test_other_files_are_created(void)
{
    struct stat stat;
    mode_t mask = umask(0);
    int fd;

    unlink("created"); /* which a test that failed has left */
    fd = open("created", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    CHECK(fd >= 0 && fstat(fd, &stat) == 0);
    CHECK_EQ(stat.st_mode, S_IFREG | 0640);
    close(fd);
    CHECK_EQ(unlink("created"), 0);
    fd = openat(AT_FDCWD, "created", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0604);
    CHECK(fd >= 0 && fstat(fd, &stat) == 0);
    CHECK_EQ(stat.st_mode, S_IFREG | 0604);
    close(fd);
    CHECK(open("created", O_CREAT | O_EXCL, 0600) == -1 && errno == EEXIST);
    CHECK_EQ(unlink("created"), 0);
    CHECK(open("created", O_RDONLY) == -1 && errno == ENOENT);
    CHECK(openat(AT_FDCWD, "created", O_RDONLY) == -1 && errno == ENOENT);
    fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0610);
    if (fd >= 0) { /* not each file system has it */
        CHECK_EQ(fstat(fd, &stat), 0);
        CHECK_EQ(stat.st_mode, S_IFREG | 0610);
        close(fd);
    }
    CHECK(!fopen("created", "r") && errno == ENOENT);
    umask(mask);
}

static void test_paths_from_a_descriptor(void)
{
    int fd = open(TREE_DEVICE, O_RDONLY | O_DIRECTORY | O_CLOEXEC), other, file;
    char text[16] = "", link[64];
    struct stat stat, same;

    CHECK(fd >= 0);
    file = openat(fd, "ports/../node_type", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0 && read(file, text, sizeof(text)) == 6 && strcmp(text, "1: CA\n") == 0);
    CHECK_EQ(error_of(openat(file, "x", O_RDONLY)), ENOTDIR);
    close(file);
    file = openat(fd, paths[A_FILE], O_RDONLY | O_CLOEXEC); /* absolute */
    CHECK(file >= 0);
    close(file);
    CHECK_EQ(error_of(openat(fd, "nothing", O_RDONLY)), ENOENT);
    CHECK_EQ(error_of(openat(fd, "nothing", O_RDONLY | O_CREAT, 0600)), EACCES);
    CHECK_EQ(error_of(openat(fd, "", O_RDONLY)), ENOENT);
    CHECK_EQ(error_of(openat(-1, "node_type", O_RDONLY)), EBADF);
    CHECK_EQ(fstatat(fd, "node_type", &stat, 0) | lstat(paths[A_FILE], &same), 0);
    CHECK_EQ(stat.st_ino, same.st_ino);
    CHECK_EQ(readlinkat(fd, "device/net/lo", link, sizeof(link)), 17);
    CHECK_EQ(faccessat(fd, "node_type", R_OK, 0), 0);
    CHECK_EQ(error_of(faccessat(fd, "node_type", W_OK, 0)), EACCES);
    other = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    file = openat(other, "comm", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    close(file);
    CHECK_EQ(error_of(openat(other, "node_type", O_RDONLY)), ENOENT);
    CHECK_EQ(faccessat(other, "comm", R_OK, 0), 0);
    close(other);
    close(fd);
}

/* ---- stat ---- */

int __xstat(int version, const char *path, struct stat *stat);
int __lxstat(int version, const char *path, struct stat *stat);
int __fxstat(int version, int fd, struct stat *stat);
int __fxstatat(int version, int dirfd, const char *path, struct stat *stat, int flags);

static const mode_t followed[MISSING] = {S_IFREG | 0444, S_IFDIR | 0755, S_IFDIR | 0755,
                                         S_IFCHR | 0666};

static void check_same(const struct stat *a, const struct stat *b)
{
    CHECK_EQ(a->st_ino, b->st_ino);
    CHECK_EQ(a->st_dev, b->st_dev);
    CHECK_EQ(a->st_mode, b->st_mode);
    CHECK_EQ(a->st_nlink, b->st_nlink);
    CHECK_EQ(a->st_size, b->st_size);
    CHECK_EQ(a->st_rdev, b->st_rdev);
    CHECK_EQ(a->st_blksize, b->st_blksize);
    CHECK_EQ(a->st_ctim.tv_sec, b->st_ctim.tv_sec);
    CHECK_EQ(a->st_mtim.tv_nsec, b->st_mtim.tv_nsec);
    CHECK_EQ(a->st_atim.tv_nsec, b->st_atim.tv_nsec);
}

static struct stat looked(int result, const struct stat *stat)
{
    CHECK_EQ(result, 0);
    return *stat;
}

/* All ways to ask say the same of a path. */
static void test_each_way_to_stat(void)
{
    for (int kind = 0; kind < MISSING; ++kind) {
        const char *path = paths[kind];
        struct stat first, at;
        int fd = open(path, O_RDONLY | O_CLOEXEC);

        first = looked(stat(path, &at), &at);
        CHECK_EQ(first.st_mode, followed[kind]);
        at = looked(fstatat(AT_FDCWD, path, &at, 0), &at);
        check_same(&at, &first);
        at = looked(__xstat(1, path, &at), &at);
        check_same(&at, &first);
        at = looked(__fxstatat(1, AT_FDCWD, path, &at, 0), &at);
        check_same(&at, &first);
        if (kind != A_DEVICE) { /* whose descriptor is one of /dev/null */
            at = looked(fstat(fd, &at), &at);
            check_same(&at, &first);
            at = looked(__fxstat(1, fd, &at), &at);
            check_same(&at, &first);
            at = looked(fstatat(fd, "", &at, AT_EMPTY_PATH), &at);
            check_same(&at, &first);
        }
        close(fd);
        first = looked(lstat(path, &at), &at);
        CHECK_EQ(first.st_mode, kind == A_LINK ? S_IFLNK | 0777 : followed[kind]);
        at = looked(fstatat(AT_FDCWD, path, &at, AT_SYMLINK_NOFOLLOW), &at);
        check_same(&at, &first);
        at = looked(__lxstat(1, path, &at), &at);
        check_same(&at, &first);
        at = looked(__fxstatat(1, AT_FDCWD, path, &at, AT_SYMLINK_NOFOLLOW), &at);
        check_same(&at, &first);
    }
    for (int kind = MISSING; kind < KINDS; ++kind) {
        int error = kind == MISSING ? ENOENT : ENOTDIR;
        struct stat at;

        CHECK_EQ(error_of(stat(paths[kind], &at)), error);
        CHECK_EQ(error_of(lstat(paths[kind], &at)), error);
        CHECK_EQ(error_of(__xstat(1, paths[kind], &at)), error);
        CHECK_EQ(error_of(__lxstat(1, paths[kind], &at)), error);
        CHECK_EQ(error_of(fstatat(AT_FDCWD, paths[kind], &at, 0)), error);
    }
}

static void test_what_stat_says(void)
{
    struct stat file, directory, device, link, sys, dev, other;

    CHECK_EQ(stat("/sys", &sys) | stat("/dev", &dev) | stat(paths[A_FILE], &file), 0);
    CHECK_EQ(stat(TREE_DEVICE, &directory) | stat(paths[A_DEVICE], &device), 0);
    CHECK_EQ(lstat(paths[A_LINK], &link) | stat(TREE_OTHER "/node_type", &other), 0);
    CHECK_EQ(file.st_dev, sys.st_dev);
    CHECK_EQ(directory.st_dev, sys.st_dev);
    CHECK_EQ(device.st_dev, dev.st_dev);
    CHECK_EQ(file.st_mtim.tv_sec, sys.st_ctim.tv_sec);
    CHECK_EQ(device.st_ctim.tv_nsec, dev.st_ctim.tv_nsec);
    CHECK_EQ(file.st_size, 6);
    CHECK_EQ(directory.st_size, 0);
    CHECK_EQ(device.st_size, 0);
    CHECK_EQ(link.st_size, strlen(TREE_DEVICE "/device"));
    CHECK_EQ(file.st_blksize, 4096);
    CHECK_EQ(file.st_nlink, 1);
    CHECK_EQ(link.st_nlink, 1);
    CHECK_EQ(directory.st_nlink, 4); /* `.`, its name, and `..` of device and ports */
    CHECK_EQ(looked(stat(TREE_DEVICE "/ports", &file), &file).st_nlink, 4);
    CHECK_EQ(looked(stat(TREE_DEVICE "/device", &file), &file).st_nlink, 3);
    CHECK_EQ(looked(stat(TREE_DEVICE "/ports/1/pkeys", &file), &file).st_nlink, 2);
    CHECK_EQ(looked(stat(TREE_DEVICE "/ports/1/hw_counters/rdma_sends", &file), &file).st_size, 2);
    CHECK_EQ(looked(stat(TREE_DEVICE "/ports/1/hw_counters/rdma_sends", &file), &file).st_mode,
             S_IFREG | 0444);
    CHECK(looked(stat(paths[A_FILE], &file), &file).st_ino != other.st_ino);
}

static void check_statx(const struct statx *got, const struct stat *expected)
{
    CHECK_EQ(got->stx_mask & STATX_BASIC_STATS, STATX_BASIC_STATS);
    CHECK_EQ(got->stx_mode, expected->st_mode);
    CHECK_EQ(got->stx_ino, expected->st_ino);
    CHECK_EQ(got->stx_nlink, expected->st_nlink);
    CHECK_EQ(got->stx_size, expected->st_size);
    CHECK_EQ(got->stx_blksize, expected->st_blksize);
    CHECK_EQ(got->stx_rdev_major << 8 | got->stx_rdev_minor, expected->st_rdev);
    CHECK_EQ(got->stx_mtime.tv_sec, expected->st_mtim.tv_sec);
    CHECK_EQ(got->stx_ctime.tv_nsec, expected->st_ctim.tv_nsec);
    CHECK_EQ(got->stx_dev_minor | got->stx_dev_major << 8, expected->st_dev);
}

static void test_statx(void)
{
    struct statx got;
    struct stat expected;
    int fd;

    for (int kind = 0; kind < MISSING; ++kind)
        for (int flags = 0; flags <= AT_SYMLINK_NOFOLLOW; flags += AT_SYMLINK_NOFOLLOW) {
            CHECK_EQ(statx(AT_FDCWD, paths[kind], flags, STATX_BASIC_STATS, &got), 0);
            CHECK_EQ(fstatat(AT_FDCWD, paths[kind], &expected, flags), 0);
            check_statx(&got, &expected);
        }
    CHECK_EQ(error_of(statx(AT_FDCWD, paths[MISSING], 0, STATX_BASIC_STATS, &got)), ENOENT);
    CHECK_EQ(error_of(statx(AT_FDCWD, paths[BELOW_A_FILE], 0, 0, &got)), ENOTDIR);
    fd = open(paths[A_DIRECTORY], O_RDONLY | O_CLOEXEC);
    CHECK_EQ(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &got), 0);
    CHECK_EQ(stat(paths[A_DIRECTORY], &expected), 0);
    check_statx(&got, &expected);
    CHECK_EQ(statx(fd, "1", 0, STATX_BASIC_STATS, &got), 0);
    CHECK_EQ(stat(TREE_DEVICE "/ports/1", &expected), 0);
    check_statx(&got, &expected);
    CHECK_EQ(error_of(statx(fd, "", 0, STATX_BASIC_STATS, &got)), ENOENT);
    close(fd);
    CHECK_EQ(statx(AT_FDCWD, "/proc/self/comm", 0, STATX_BASIC_STATS, &got), 0);
    CHECK_EQ(got.stx_mode, S_IFREG | 0644);
    fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    CHECK_EQ(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &got), 0);
    CHECK_EQ(got.stx_mode, S_IFREG | 0644);
    close(fd);
}

static void test_other_files_are_described_as_ever(void)
{
    int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    struct stat stat_of, kernels;

    CHECK_EQ(syscall(SYS_newfstatat, fd, "", &kernels, AT_EMPTY_PATH), 0);
    CHECK_EQ(fstat(fd, &stat_of), 0);
    check_same(&stat_of, &kernels);
    CHECK_EQ(fstatat(fd, "", &stat_of, AT_EMPTY_PATH), 0);
    check_same(&stat_of, &kernels);
    CHECK_EQ(dup2(fd, STDIN_FILENO), STDIN_FILENO); /* 0 is a descriptor like any other */
    CHECK_EQ(fstat(STDIN_FILENO, &stat_of), 0);
    check_same(&stat_of, &kernels);
    CHECK_EQ(fstatat(STDIN_FILENO, "", &stat_of, AT_EMPTY_PATH), 0);
    check_same(&stat_of, &kernels);
    CHECK_EQ(lstat("/proc/self", &stat_of), 0);
    CHECK(S_ISLNK(stat_of.st_mode));
    CHECK_EQ(stat("/proc/self", &stat_of), 0);
    CHECK(S_ISDIR(stat_of.st_mode));
    close(fd);
    CHECK_EQ(error_of(fstat(-1, &stat_of)), EBADF);
    CHECK_EQ(error_of(fstat(-100, &stat_of)), EBADF); /* AT_FDCWD is no descriptor */
    CHECK_EQ(error_of(fstat(fd, &stat_of)), EBADF);
    fd = (int)syscall(SYS_memfd_create, "other", 0); /* removed, and of now */
    CHECK_EQ(fstat(fd, &stat_of), 0);
    CHECK_EQ(stat_of.st_nlink, 0);
    close(fd);
}

/* ---- access ---- */

int eaccess(const char *path, int mode);

static int by_faccessat(const char *path, int mode)
{
    return faccessat(AT_FDCWD, path, mode, 0);
}

static const struct {
    int mode, errors[KINDS];
} accesses[] = {
    {F_OK, {0, 0, 0, 0, ENOENT, ENOTDIR}},
    {R_OK, {0, 0, 0, 0, ENOENT, ENOTDIR}},
    {W_OK, {EACCES, EACCES, EACCES, 0, ENOENT, ENOTDIR}},
    {X_OK, {EACCES, 0, 0, EACCES, ENOENT, ENOTDIR}},
    {R_OK | W_OK, {EACCES, EACCES, EACCES, 0, ENOENT, ENOTDIR}},
    {R_OK | X_OK, {EACCES, 0, 0, EACCES, ENOENT, ENOTDIR}},
};

static void test_access_in_each_mode(void)
{
    static int (*const calls[])(const char *path, int mode) = {access, euidaccess, eaccess,
                                                               by_faccessat};

    for (size_t c = 0; c < sizeof(calls) / sizeof(*calls); ++c) {
        for (size_t i = 0; i < sizeof(accesses) / sizeof(*accesses); ++i)
            for (int kind = 0; kind < KINDS; ++kind)
                expect_error("access", paths[kind],
                             error_of(calls[c](paths[kind], accesses[i].mode)),
                             accesses[i].errors[kind]);
        CHECK_EQ(calls[c]("/proc/self/comm", R_OK), 0);
        CHECK_EQ(error_of(calls[c]("/proc/self/nothing", F_OK)), ENOENT);
    }
    CHECK_EQ(faccessat(AT_FDCWD, paths[A_LINK], W_OK, AT_SYMLINK_NOFOLLOW), 0);
}

/* ---- links and names ---- */

static void test_readlink(void)
{
    static const char target[] = TREE_DEVICE "/device";
    const ssize_t length = sizeof(target) - 1;

    for (ssize_t size = 1; size < length + 3; ++size) {
        char buffer[128];
        ssize_t expected = size < length ? size : length;

        memset(buffer, '#', sizeof(buffer));
        CHECK_EQ(readlink(paths[A_LINK], buffer, (size_t)size), expected);
        CHECK(memcmp(buffer, target, (size_t)expected) == 0 && buffer[expected] == '#');
        CHECK_EQ(readlinkat(AT_FDCWD, paths[A_LINK], buffer, (size_t)size), expected);
    }
    for (int kind = 0; kind < KINDS; ++kind) {
        char buffer[8];
        int error = kind == MISSING ? ENOENT : kind == BELOW_A_FILE ? ENOTDIR : EINVAL;

        if (kind != A_LINK)
            CHECK_EQ(error_of(readlink(paths[kind], buffer, sizeof(buffer))), error);
        CHECK_EQ(error_of(readlinkat(AT_FDCWD, paths[kind], buffer, 0)), error);
    }
    CHECK_EQ(error_of(readlink("/proc/self/comm", (char[8]){0}, 8)), EINVAL);
    CHECK(readlink("/proc/self", (char[8]){0}, 8) > 0);
    CHECK(readlinkat(AT_FDCWD, "/proc/self", (char[8]){0}, 8) > 0);
}

char *__realpath_chk(const char *path, char *resolved, size_t size);

static char *by_realpath_chk(const char *path, char *resolved)
{
    return __realpath_chk(path, resolved, PATH_MAX);
}

static const struct {
    const char *path, *resolved; /* NULL: `error` */
    int error;
} names[] = {
    {TREE_DEVICE, TREE_DEVICE, 0},
    {TREE_DEVICE "/", TREE_DEVICE, 0},
    {"//sys///class/.//infiniband/verbena0/ports/../fw_ver", NULL, ENOENT}, /* begins with two */
    {"/sys//class/./infiniband/verbena0/ports/../fw_ver", TREE_DEVICE "/fw_ver", 0},
    {TREE_DEVICE "/./ports/1/../2/.", TREE_DEVICE "/ports/2", 0},
    {TREE_DEVICE "/ports/../../../infiniband/verbena1", TREE_OTHER, 0},
    {TREE_VERBS "/uverbs0/device", TREE_DEVICE "/device", 0},
    {TREE_VERBS "/uverbs0/device/", TREE_DEVICE "/device", 0},
    {TREE_VERBS "/uverbs0/device/../ports", TREE_DEVICE "/ports", 0},
    {TREE_DEVICE "/node_type/", NULL, ENOTDIR},
    {TREE_DEVICE "/node_type/.", NULL, ENOTDIR},
    {TREE_DEVICE "/node_type/..", NULL, ENOTDIR},
    {TREE_DEVICE "/node", NULL, ENOENT}, /* a begin of a name */
    {TREE_DEVICE "/node_type2", NULL, ENOENT},
    {TREE_DEVICE "/...", NULL, ENOENT},
    {TREE_DEVICE "/.x", NULL, ENOENT},
    {TREE_DEVICE "/nothing/..", NULL, ENOENT},
    {TREE_CLASS "/verbena2", NULL, ENOENT},
    {"/dev/infiniband/uverbs1", "/dev/infiniband/uverbs1", 0},
    {"/dev/infiniband/../null", "/dev/null", 0},
    {TREE_CLASS "/..", "/sys/class", 0},
    {TREE_CLASS "/../..", "/sys", 0},
    {TREE_CLASS "/../../..", "/", 0},
    {TREE_CLASS "/../../../..", "/", 0},
    {TREE_CLASS "/../../../proc/version", "/proc/version", 0},
    {"/proc/version", "/proc/version", 0},
};

static void check_name(char *(*call)(const char *path, char *resolved), size_t i, char *buffer)
{
    char *resolved = call(names[i].path, buffer);

    if (!names[i].resolved) {
        CHECK(!resolved);
        expect_error("realpath", names[i].path, errno, names[i].error);
        return;
    }
    if (!resolved || strcmp(resolved, names[i].resolved) != 0)
        fprintf(stderr, "%s: %s\n", names[i].path, resolved ? resolved : strerror(errno));
    CHECK(resolved && strcmp(resolved, names[i].resolved) == 0);
    if (buffer)
        CHECK(resolved == buffer);
    else
        free(resolved);
}

static void test_names_are_resolved(void)
{
    char buffer[PATH_MAX];

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); ++i) {
        check_name(realpath, i, NULL);
        check_name(realpath, i, buffer);
        check_name(by_realpath_chk, i, buffer);
    }
    CHECK(!canonicalize_file_name(paths[MISSING]) && errno == ENOENT);
}

/* Too little room ends a program, as the C library has it. */
static void test_the_checked_realpath_checks(void)
{
    int status;

    if (fork() == 0) {
        char buffer[PATH_MAX];

        close(STDERR_FILENO);
        by_realpath_chk(TREE_DEVICE, buffer);
        __realpath_chk(TREE_DEVICE, buffer, PATH_MAX - 1);
        _exit(0);
    }
    CHECK(wait(&status) > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* As the kernel, which follows 40 links. */
static void test_too_many_links(void)
{
    static const char round[] = "/../../../infiniband_verbs/uverbs0/device";
    char path[PATH_MAX] = TREE_VERBS "/uverbs0/device";

    for (int links = 1; links < 44; ++links, strcat(path, round))
        expect_error("access", path, error_of(access(path, F_OK)), links > 40 ? ELOOP : 0);
}

static void test_names_of_any_length(void)
{
    char path[PATH_MAX + 8] = TREE_CLASS;

    for (size_t length = strlen(path); length + 2 < sizeof(path); length += 2) {
        strcpy(path + length, "/x");
        if (length > 4000)
            expect_error("access", "a long name", error_of(access(path, F_OK)),
                         length + 2 >= PATH_MAX ? ENAMETOOLONG : ENOENT);
    }
    strcpy(path, TREE_CLASS "/.");
    for (size_t length = strlen(path); length + 2 < sizeof(path); length += 2) {
        strcpy(path + length, "/x");
        if (length > 4000)
            expect_error("access", "a long name", error_of(access(path, F_OK)),
                         length + 2 >= PATH_MAX + 2 ? ENAMETOOLONG : ENOENT);
    }
}

/* ---- extended attributes ---- */

static void test_attributes(void)
{
    for (int kind = 0; kind < KINDS; ++kind) {
        int error = kind == MISSING ? ENOENT : kind == BELOW_A_FILE ? ENOTDIR : EOPNOTSUPP;

        CHECK_EQ(error_of(getxattr(paths[kind], "user.x", NULL, 0)), error);
        CHECK_EQ(error_of(lgetxattr(paths[kind], "user.x", NULL, 0)), error);
        CHECK_EQ(error_of(listxattr(paths[kind], NULL, 0)), error);
        CHECK_EQ(error_of(llistxattr(paths[kind], NULL, 0)), error);
    }
    close(open("attributes", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    if (setxattr("attributes", "user.x", "value", 5, 0) == 0) {
        char value[8] = "", list[64];

        CHECK_EQ(getxattr("attributes", "user.x", value, sizeof(value)), 5);
        CHECK_EQ(lgetxattr("attributes", "user.x", value, sizeof(value)), 5);
        CHECK(memcmp(value, "value", 5) == 0);
        CHECK(listxattr("attributes", list, sizeof(list)) >= 7);
        CHECK(llistxattr("attributes", list, sizeof(list)) >= 7);
    }
    unlink("attributes");
    CHECK_EQ(error_of(getxattr("attributes", "user.x", NULL, 0)), ENOENT);
    CHECK_EQ(error_of(lgetxattr("attributes", "user.x", NULL, 0)), ENOENT);
    CHECK_EQ(error_of(listxattr("attributes", NULL, 0)), ENOENT);
    CHECK_EQ(error_of(llistxattr("attributes", NULL, 0)), ENOENT);
}

int main(void)
{
    tree_begin();
    RUN(test_open_with_each_flag);
    RUN(test_what_an_open_file_allows);
    RUN(test_a_file_cannot_be_changed);
    RUN(test_a_device_can_be_written);
    RUN(test_fopen_with_each_mode);
    RUN(test_streams_read);
    RUN(test_other_files_are_created);
    RUN(test_paths_from_a_descriptor);
    RUN(test_each_way_to_stat);
    RUN(test_what_stat_says);
    RUN(test_statx);
    RUN(test_other_files_are_described_as_ever);
    RUN(test_access_in_each_mode);
    RUN(test_readlink);
    RUN(test_names_are_resolved);
    RUN(test_the_checked_realpath_checks);
    RUN(test_too_many_links);
    RUN(test_names_of_any_length);
    RUN(test_attributes);
    return 0;
}
