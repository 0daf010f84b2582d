// SPDX-License-Identifier: Apache-2.0
/*
 * The stat family for files of the tree. Programs that were built for glibc before 2.33 call it by
 * the names with __x.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "preload/paths/claim.h"
#include "preload/paths/next.h"

/* ---- stat ---------------------------------------------------------------------------------- */

/* Answers a call about a claimed path. */
static int answer(const struct vb_place *place, struct stat *stat)
{
    if (place->error) {
        errno = place->error;
        return -1;
    }
    vb_preload_stat_node(place->node, stat);
    return 0;
}

/* To the kernel a descriptor of the tree's file is a memfd; this replaces what it says. */
static int correct(int result, struct stat *stat)
{
    int node = result ? -1 : vb_preload_stamped_node(stat);
    if (node >= 0)
        vb_preload_stat_node(node, stat);
    return result;
}

VB_EXPORT int fstatat(int dirfd, const char *restrict path, struct stat *restrict stat, int flags)
{
    struct vb_place place;
    if (vb_preload_claim(dirfd, path, !(flags & AT_SYMLINK_NOFOLLOW), &place))
        return answer(&place, stat);
    int result = vb_preload_next_fstatat(dirfd, place.outside, stat, flags);
    return flags & AT_EMPTY_PATH ? correct(result, stat) : result;
}

VB_EXPORT int stat(const char *restrict path, struct stat *restrict stat)
{
    return fstatat(AT_FDCWD, path, stat, 0);
}

VB_EXPORT int lstat(const char *restrict path, struct stat *restrict stat)
{
    return fstatat(AT_FDCWD, path, stat, AT_SYMLINK_NOFOLLOW);
}

VB_EXPORT int fstat(int fd, struct stat *stat)
{
    if (fd >= 0)
        return fstatat(fd, "", stat, AT_EMPTY_PATH);
    errno = EBADF;
    return -1;
}

VB_ALIAS(stat64, stat);
VB_ALIAS(lstat64, lstat);
VB_ALIAS(fstat64, fstat);
VB_ALIAS(fstatat64, fstatat);

/* ---- the old names: `version` says which struct stat, and 64-bit Linux has one -------------- */

VB_EXPORT int __xstat(int version, const char *path, struct stat *stat)
{
    (void)version;
    return fstatat(AT_FDCWD, path, stat, 0);
}

VB_EXPORT int __lxstat(int version, const char *path, struct stat *stat)
{
    (void)version;
    return fstatat(AT_FDCWD, path, stat, AT_SYMLINK_NOFOLLOW);
}

VB_EXPORT int __fxstat(int version, int fd, struct stat *stat)
{
    (void)version;
    return fstat(fd, stat);
}

VB_EXPORT int __fxstatat(int version, int dirfd, const char *path, struct stat *stat, int flags)
{
    (void)version;
    return fstatat(dirfd, path, stat, flags);
}

VB_ALIAS(__xstat64, __xstat);
VB_ALIAS(__lxstat64, __lxstat);
VB_ALIAS(__fxstat64, __fxstat);
VB_ALIAS(__fxstatat64, __fxstatat);

/* ---- statx --------------------------------------------------------------------------------- */

static struct statx_timestamp timestamp(struct timespec time)
{
    return (struct statx_timestamp){.tv_sec = time.tv_sec, .tv_nsec = (unsigned)time.tv_nsec};
}

static void stat_convert(const struct stat *from, struct statx *to)
{
    *to = (struct statx){
        .stx_mask = STATX_BASIC_STATS,
        .stx_blksize = (unsigned)from->st_blksize,
        .stx_nlink = (unsigned)from->st_nlink,
        .stx_mode = (unsigned short)from->st_mode,
        .stx_ino = from->st_ino,
        .stx_size = (unsigned long)from->st_size,
        .stx_atime = timestamp(from->st_atim),
        .stx_ctime = timestamp(from->st_ctim),
        .stx_mtime = timestamp(from->st_mtim),
        .stx_rdev_major = major(from->st_rdev),
        .stx_rdev_minor = minor(from->st_rdev),
        .stx_dev_major = major(from->st_dev),
        .stx_dev_minor = minor(from->st_dev),
    };
}

static int statx_place(const struct vb_place *place, struct statx *statx)
{
    struct stat stat;
    if (answer(place, &stat))
        return -1;
    stat_convert(&stat, statx);
    return 0;
}

VB_EXPORT int statx(int dirfd, const char *restrict path, int flags, unsigned mask,
                    struct statx *restrict result)
{
    struct vb_place place;
    if (vb_preload_claim(dirfd, path, !(flags & AT_SYMLINK_NOFOLLOW), &place))
        return statx_place(&place, result);
    int node = flags & AT_EMPTY_PATH ? vb_preload_descriptor_node(dirfd) : -1;
    if (node >= 0)
        return statx_place(&(struct vb_place){.node = node}, result);
    return VB_NEXT(statx)(dirfd, place.outside, flags, mask, result);
}
