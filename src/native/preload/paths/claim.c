// SPDX-License-Identifier: Apache-2.0
/*
 * Finds and opens the files of the tree (claim.h). A file is opened as a sealed memfd with its
 * text, and a directory as an empty one. The memfd's modification time carries the number of the
 * node, so a descriptor is recognized after dup(2) and fork(2), and no table of descriptors has to
 * follow every close(2).
 */
#include "preload/paths/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "host/device_counters.h"
#include "port/gid.h"
#include "preload/paths/fabric/question.h"
#include "preload/paths/next.h"

/* A new socket may have the times of one that was closed, but never its mode. */
#define SOCKET_MODE 01066
#define STAMP       0x7665726265 /* "verbe", in seconds: no clock says the year 18,000 */
#define FIRST_INO   0x76620000

/* Of rdma_cm: Linux gives a misc device the next free number, from 127 downwards. */
#define MISC_MAJOR    10
#define RDMA_CM_MINOR 122

#define ISSM_MINOR 64 /* of issm0; umad0 has 0, and both have the major number of uverbs */

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/* Calls with a directory descriptor look at it only after a directory of the tree was opened. */
static atomic_bool directory_was_opened;

/* The node that is the working directory (cwd.c), or -1. Relative paths are looked at only then. */
static atomic_int working_node = -1;

void vb_preload_claim_working_node(int node)
{
    atomic_store_explicit(&working_node, node, memory_order_relaxed);
}

int vb_preload_working_node(void)
{
    return atomic_load_explicit(&working_node, memory_order_relaxed);
}

/* ---- the kernel's answer ----------------------------------------------------------------- */

int vb_preload_next_fstatat(int dirfd, const char *path, struct stat *stat, int flags)
{
    __typeof__(fstatat) *next = VB_NEXT(fstatat);
    if (next)
        return next(dirfd, path, stat, flags);
    return (int)syscall(SYS_newfstatat, dirfd, path, stat, flags); /* glibc before 2.33 */
}

/* ---- claiming ------------------------------------------------------------------------------ */

static bool claim_below(int dirfd, const char *path, bool follow, struct vb_place *place)
{
    char absolute[PATH_MAX];
    const struct vb_tree *tree = vb_preload_tree();
    int node = dirfd == AT_FDCWD ? vb_preload_working_node() : vb_preload_descriptor_node(dirfd);
    if (node < 0 || !vb_preload_tree_path(tree, node, absolute, sizeof absolute))
        return false;
    size_t length = strlen(absolute);
    int more = snprintf(absolute + length, sizeof absolute - length, "/%s", path);
    if ((size_t)more >= sizeof absolute - length)
        return false;
    return vb_preload_tree_walk(tree, absolute, follow, place);
}

bool vb_preload_claim(int dirfd, const char *path, bool follow, struct vb_place *place)
{
    place->outside = path;
    if (!path || !*path)
        return false;
    if (*path == '/')
        return vb_preload_may_be_ours(path) && vb_preload_tree() &&
               vb_preload_tree_walk(vb_preload_tree(), path, follow, place);
    if (dirfd == AT_FDCWD ? vb_preload_working_node() < 0
                          : !atomic_load_explicit(&directory_was_opened, memory_order_relaxed))
        return false;
    return claim_below(dirfd, path, follow, place);
}

bool vb_preload_claim_path(const char *path, struct vb_place *place)
{
    return vb_preload_claim(AT_FDCWD, path, true, place);
}

/* ---- descriptors --------------------------------------------------------------------------- */

int vb_preload_stamped_node(const struct stat *stat)
{
    if ((stat->st_nlink != 0 && stat->st_mode != (S_IFSOCK | SOCKET_MODE)) ||
        stat->st_mtim.tv_sec != STAMP || !vb_preload_tree())
        return -1;
    return stat->st_mtim.tv_nsec < vb_preload_tree()->count ? (int)stat->st_mtim.tv_nsec : -1;
}

int vb_preload_descriptor_node(int fd)
{
    struct stat stat;
    if (fd < 0 || !atomic_load_explicit(&directory_was_opened, memory_order_relaxed))
        return -1;
    if (vb_preload_next_fstatat(fd, "", &stat, AT_EMPTY_PATH))
        return -1;
    return vb_preload_stamped_node(&stat);
}

static bool write_all(int fd, const char *text)
{
    size_t length = strlen(text);
    return write(fd, text, length) == (ssize_t)length;
}

bool vb_preload_stamp_socket(int fd, int node)
{
    return vb_preload_stamp(fd, node) && fchmod(fd, SOCKET_MODE) == 0;
}

bool vb_preload_stamp(int fd, int node)
{
    struct timespec times[2] = {{.tv_sec = STAMP, .tv_nsec = node},
                                {.tv_sec = STAMP, .tv_nsec = node}};
    return futimens(fd, times) == 0;
}

/* Fills, protects and stamps a new memfd. */
static bool furnish(int fd, int node, const char *text)
{
    return write_all(fd, text) && fchmod(fd, 0444) == 0 && vb_preload_stamp(fd, node) &&
           fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0;
}

/* Opens the same file for reading only. Without /proc the sealed file itself has to do. */
static int read_only(int fd, int flags)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int reopened = VB_NEXT(open)(path, O_RDONLY | (flags & O_CLOEXEC));
    if (reopened < 0)
        return fd;
    close(fd);
    return reopened;
}

/* From Linux 6.3 on vm.memfd_noexec may demand a flag that says that the file is not executable. */
static int create_memfd(const char *name, int flags)
{
    unsigned wanted = MFD_ALLOW_SEALING | (flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
    int fd = memfd_create(name, wanted | MFD_NOEXEC_SEAL);
    return fd < 0 && errno == EINVAL ? memfd_create(name, wanted) : fd;
}

enum { MADE_TEXT = 128, SYSFS_SIZE = 4096 };

/* A file of a host of a fabric, or NULL. */
static const char *live_text(int index, char made[MADE_TEXT])
{
    char path[PATH_MAX];
    size_t length;
    struct vb_fabric_question question = {.role = VB_FABRIC_FILE, .attached = -1};
    if (!vb_preload_tree_path(vb_preload_tree(), index, path, sizeof path))
        return NULL;
    question.data[0] = (struct iovec){path, strlen(path)};
    if (vb_preload_fabric_ask(&question, made, MADE_TEXT - 1, &length))
        return NULL;
    made[length] = '\0';
    return made;
}

/* What a file contains at this moment, which may be written to `number`. NULL: the fabric's process
 * does not say it. */
static const char *text_of(int index, char number[MADE_TEXT])
{
    const struct vb_node *node = &vb_preload_tree()->nodes[index];
    if (node->kind == VB_NODE_LIVE)
        return live_text(index, number);
    if (node->kind != VB_NODE_COUNTER)
        return node->kind == VB_NODE_FILE ? node->text : "";
    char *counter;
    unsigned device = (unsigned)strtoul(node->text, &counter, 10);
    uint64_t value = vb_host_device_counter(device, strtoul(counter, NULL, 10));
    snprintf(number, MADE_TEXT, "%" PRIu64 "\n", value);
    return number;
}

static int open_text(int index, const struct vb_node *node, int flags)
{
    char number[MADE_TEXT];
    const char *text = text_of(index, number);
    if (!text)
        errno = EIO;
    int fd = text ? create_memfd(node->name, flags) : -1;
    if (fd < 0)
        return -1;
    if (!furnish(fd, index, text)) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return read_only(fd, flags);
}

/* Returns the errno with which open(2) of such a file fails in sysfs, for root too, or 0. */
static int refusal(const struct vb_node *node, int flags)
{
    bool writes = (flags & O_ACCMODE) != O_RDONLY && !(flags & O_PATH);
    if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
        return EEXIST;
    if (node->kind == VB_NODE_LINK && !(flags & O_PATH))
        return ELOOP;
    if (vb_preload_is_directory(node))
        return writes || flags & O_CREAT ? EISDIR : 0;
    if (flags & O_DIRECTORY)
        return ENOTDIR;
    return !vb_preload_is_device(node) && writes ? EACCES : 0;
}

int vb_preload_open_node(const struct vb_place *place, int flags)
{
    int error = place->error;
    if (error == ENOENT && flags & O_CREAT)
        error = EACCES; /* nobody can create files in sysfs */
    const struct vb_node *node = error ? NULL : &vb_preload_tree()->nodes[place->node];
    if (node)
        error = refusal(node, flags);
    if (error) {
        errno = error;
        return -1;
    }
    if (node->kind == VB_NODE_DEVICE)
        return VB_NEXT(open)("/dev/null", flags & ~(O_CREAT | O_TRUNC));
    if (vb_preload_is_directory(node))
        atomic_store_explicit(&directory_was_opened, true, memory_order_relaxed);
    return open_text(place->node, node, flags);
}

/* ---- stat ---------------------------------------------------------------------------------- */

static bool is_below_dev(int node)
{
    const struct vb_node *nodes = vb_preload_tree()->nodes;
    while (nodes[node].parent)
        node = nodes[node].parent;
    return strcmp(nodes[node].name, "dev") == 0;
}

static nlink_t link_count(int node)
{
    const struct vb_tree *tree = vb_preload_tree();
    nlink_t links = vb_preload_is_directory(&tree->nodes[node]) ? 2 : 1;
    for (int i = 1; i < tree->count; i++)
        links += tree->nodes[i].parent == node && vb_preload_is_directory(&tree->nodes[i]);
    return links;
}

/* The file system and the times are those of /sys or /dev. */
static void stat_surroundings(int node, struct stat *stat)
{
    struct stat above = {0};
    vb_preload_next_fstatat(AT_FDCWD, is_below_dev(node) ? "/dev" : "/sys", &above, 0);
    stat->st_dev = above.st_dev;
    stat->st_atim = stat->st_mtim = stat->st_ctim = above.st_ctim;
}

static dev_t device_number(const struct vb_node *node)
{
    if (node->kind == VB_NODE_RDMA_CM)
        return makedev(MISC_MAJOR, RDMA_CM_MINOR);
    if (node->kind == VB_NODE_UMAD || node->kind == VB_NODE_ISSM)
        return makedev(VB_UVERBS_MAJOR, (node->kind == VB_NODE_ISSM ? ISSM_MINOR : 0) +
                                            (unsigned)atoi(node->text) - 1);
    return makedev(VB_UVERBS_MAJOR,
                   VB_UVERBS_MINOR + (unsigned)atoi(node->name + strlen(VB_UVERBS_NAME)));
}

void vb_preload_stat_node(int index, struct stat *stat)
{
    const struct vb_node *node = &vb_preload_tree()->nodes[index];
    *stat = (struct stat){.st_ino = FIRST_INO + (ino_t)index, .st_blksize = 4096};
    stat_surroundings(index, stat);
    stat->st_nlink = link_count(index);
    if (vb_preload_is_directory(node)) {
        stat->st_mode = S_IFDIR | 0755;
    } else if (node->kind == VB_NODE_LINK) {
        stat->st_mode = S_IFLNK | 0777;
        stat->st_size = (off_t)strlen(node->text);
    } else if (vb_preload_is_device(node)) {
        stat->st_mode = S_IFCHR | 0666;
        stat->st_rdev = device_number(node);
    } else {
        char number[MADE_TEXT];
        stat->st_mode = S_IFREG | 0444;
        /* sysfs says 4096, which would mislead cp; but nobody is asked for it */
        stat->st_size =
            node->kind == VB_NODE_LIVE ? SYSFS_SIZE : (off_t)strlen(text_of(index, number));
    }
}
