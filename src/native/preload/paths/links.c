// SPDX-License-Identifier: Apache-2.0
/*
 * access(2), readlink(2), realpath(3) and extended attributes of files of the tree. Other paths
 * are passed to the C library.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "preload/paths/claim.h"
#include "preload/paths/next.h"

static int links_failed(int error)
{
    errno = error;
    return -1;
}

/* ---- access -------------------------------------------------------------------------------- */

/* Permissions are the same for every user, as those of sysfs are. */
static int links_check_access(const struct vb_place *place, int mode)
{
    if (place->error)
        return links_failed(place->error);
    struct stat stat;
    vb_preload_stat_node(place->node, &stat);
    mode_t others = stat.st_mode & 07;
    if (S_ISDIR(stat.st_mode) && mode & W_OK)
        return links_failed(EACCES);
    return (mode & ~(int)others & (R_OK | W_OK | X_OK)) ? links_failed(EACCES) : 0;
}

VB_EXPORT int access(const char *path, int mode)
{
    struct vb_place place;
    if (vb_preload_claim_path(path, &place))
        return links_check_access(&place, mode);
    return VB_NEXT(access)(place.outside, mode);
}

VB_EXPORT int euidaccess(const char *path, int mode)
{
    struct vb_place place;
    if (vb_preload_claim_path(path, &place))
        return links_check_access(&place, mode);
    return VB_NEXT(euidaccess)(place.outside, mode);
}

VB_ALIAS(eaccess, euidaccess);

VB_EXPORT int faccessat(int dirfd, const char *path, int mode, int flags)
{
    struct vb_place place;
    if (vb_preload_claim(dirfd, path, !(flags & AT_SYMLINK_NOFOLLOW), &place))
        return links_check_access(&place, mode);
    return VB_NEXT(faccessat)(dirfd, place.outside, mode, flags);
}

/* ---- links --------------------------------------------------------------------------------- */

static ssize_t links_read_link(const struct vb_place *place, char *buffer, size_t size)
{
    if (place->error)
        return links_failed(place->error);
    const struct vb_node *node = &vb_preload_tree()->nodes[place->node];
    if (node->kind != VB_NODE_LINK || size == 0)
        return links_failed(EINVAL);
    size_t length = strlen(node->text);
    length = length < size ? length : size;
    memcpy(buffer, node->text, length);
    return (ssize_t)length;
}

VB_EXPORT ssize_t readlink(const char *restrict path, char *restrict buffer, size_t size)
{
    struct vb_place place;
    if (vb_preload_claim(AT_FDCWD, path, false, &place))
        return links_read_link(&place, buffer, size);
    return VB_NEXT(readlink)(place.outside, buffer, size);
}

VB_EXPORT ssize_t readlinkat(int dirfd, const char *restrict path, char *restrict buffer,
                             size_t size)
{
    struct vb_place place;
    if (vb_preload_claim(dirfd, path, false, &place))
        return links_read_link(&place, buffer, size);
    return VB_NEXT(readlinkat)(dirfd, place.outside, buffer, size);
}

static char *real_path(const struct vb_place *place, char *resolved)
{
    char *path = resolved ? resolved : malloc(PATH_MAX);
    if (place->error)
        errno = place->error;
    else if (path && vb_preload_tree_path(vb_preload_tree(), place->node, path, PATH_MAX))
        return path;
    if (!resolved)
        free(path);
    return NULL;
}

VB_EXPORT char *realpath(const char *restrict path, char *restrict resolved)
{
    struct vb_place place;
    if (vb_preload_claim_path(path, &place))
        return real_path(&place, resolved);
    return VB_NEXT(realpath)(place.outside, resolved);
}

VB_EXPORT char *canonicalize_file_name(const char *path)
{
    return realpath(path, NULL);
}

/* What realpath() becomes in programs that are built with _FORTIFY_SOURCE. */
typedef char *realpath_chk(const char *path, char *resolved, size_t size);

VB_EXPORT char *__realpath_chk(const char *path, char *resolved, size_t size)
{
    struct vb_place place = {.outside = path};
    if (size >= PATH_MAX && vb_preload_claim_path(path, &place))
        return real_path(&place, resolved);
    return VB_NEXT_AS(realpath_chk, __realpath_chk)(place.outside, resolved, size);
}

/* ---- extended attributes: `ls -l` asks for them ---------------------------------------------- */

static ssize_t no_attribute(const struct vb_place *place)
{
    return links_failed(place->error ? place->error : EOPNOTSUPP);
}

VB_EXPORT ssize_t getxattr(const char *path, const char *name, void *value, size_t size)
{
    struct vb_place place;
    if (vb_preload_claim_path(path, &place))
        return no_attribute(&place);
    return VB_NEXT(getxattr)(place.outside, name, value, size);
}

VB_EXPORT ssize_t lgetxattr(const char *path, const char *name, void *value, size_t size)
{
    struct vb_place place;
    if (vb_preload_claim(AT_FDCWD, path, false, &place))
        return no_attribute(&place);
    return VB_NEXT(lgetxattr)(place.outside, name, value, size);
}

VB_EXPORT ssize_t listxattr(const char *path, char *list, size_t size)
{
    struct vb_place place;
    if (vb_preload_claim_path(path, &place))
        return no_attribute(&place);
    return VB_NEXT(listxattr)(place.outside, list, size);
}

VB_EXPORT ssize_t llistxattr(const char *path, char *list, size_t size)
{
    struct vb_place place;
    if (vb_preload_claim(AT_FDCWD, path, false, &place))
        return no_attribute(&place);
    return VB_NEXT(llistxattr)(place.outside, list, size);
}
