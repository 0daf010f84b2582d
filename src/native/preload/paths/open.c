// SPDX-License-Identifier: Apache-2.0
/*
 * open(2), fopen(3) and their kin for files of the tree. On 64-bit Linux the names with 64 are the
 * same functions.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "preload/paths/claim.h"
#include "preload/paths/fabric/umad.h"
#include "preload/paths/manager/rdma_cm.h"
#include "preload/paths/next.h"

_Static_assert(sizeof(off_t) == 8, "the large-file names are aliases: build for 64 bits");

#define MODE_ARGUMENT(flags, mode)                                                                 \
    mode_t mode = 0;                                                                               \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                                                       \
        va_list arguments;                                                                         \
        va_start(arguments, flags);                                                                \
        mode = va_arg(arguments, mode_t);                                                          \
        va_end(arguments);                                                                         \
    }

static int open_place(const struct vb_place *place, int flags)
{
    enum vb_node_kind kind =
        place->error ? VB_NODE_FILE : vb_preload_tree()->nodes[place->node].kind;
    if (kind == VB_NODE_RDMA_CM)
        return vb_preload_rdma_cm_open(place->node, flags);
    if (kind == VB_NODE_UMAD || kind == VB_NODE_ISSM)
        return vb_preload_umad_open(place->node, flags);
    return vb_preload_open_node(place, flags);
}

VB_EXPORT int open(const char *path, int flags, ...)
{
    struct vb_place place;
    MODE_ARGUMENT(flags, mode)
    if (vb_preload_claim(AT_FDCWD, path, !(flags & O_NOFOLLOW), &place))
        return open_place(&place, flags);
    return VB_NEXT(open)(place.outside, flags, mode);
}

VB_EXPORT int openat(int dirfd, const char *path, int flags, ...)
{
    struct vb_place place;
    MODE_ARGUMENT(flags, mode)
    if (vb_preload_claim(dirfd, path, !(flags & O_NOFOLLOW), &place))
        return open_place(&place, flags);
    return VB_NEXT(openat)(dirfd, place.outside, flags, mode);
}

/* What open() becomes in programs that are built with _FORTIFY_SOURCE. */
VB_EXPORT int __open_2(const char *path, int flags)
{
    return open(path, flags);
}

VB_EXPORT int __openat_2(int dirfd, const char *path, int flags)
{
    return openat(dirfd, path, flags);
}

/* The flags of open(2) that a mode of fopen(3) stands for, or -1. */
static int mode_flags(const char *mode)
{
    int flags;
    if (mode[0] == 'r')
        flags = O_RDONLY;
    else if (mode[0] == 'w')
        flags = O_WRONLY | O_CREAT | O_TRUNC;
    else if (mode[0] == 'a')
        flags = O_WRONLY | O_CREAT | O_APPEND;
    else
        return -1;
    if (strchr(mode, '+'))
        flags = (flags & ~O_ACCMODE) | O_RDWR;
    if (strchr(mode, 'x'))
        flags |= O_EXCL;
    return strchr(mode, 'e') ? flags | O_CLOEXEC : flags;
}

static FILE *paths_open_stream(const struct vb_place *place, const char *mode)
{
    int flags = mode_flags(mode);
    if (flags < 0) {
        errno = EINVAL;
        return NULL;
    }
    int fd = vb_preload_open_node(place, flags);
    if (fd < 0)
        return NULL;
    FILE *stream = fdopen(fd, mode);
    if (!stream)
        close(fd);
    return stream;
}

VB_EXPORT FILE *fopen(const char *path, const char *mode)
{
    struct vb_place place;
    if (vb_preload_claim_path(path, &place))
        return paths_open_stream(&place, mode);
    return VB_NEXT(fopen)(place.outside, mode);
}

VB_ALIAS(open64, open);
VB_ALIAS(openat64, openat);
VB_ALIAS(__open64_2, __open_2);
VB_ALIAS(__openat64_2, __openat_2);
VB_ALIAS(fopen64, fopen);
