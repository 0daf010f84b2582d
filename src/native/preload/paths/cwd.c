// SPDX-License-Identifier: Apache-2.0
/*
 * The working directory, for `cd /sys/class/infiniband`: chdir and getcwd. A process that enters a
 * directory of the tree is put into an empty directory that has been removed from its file system,
 * so nothing is left behind, and forked and executed programs inherit it. Its modification time
 * carries the node's number, as a descriptor's does (claim.c), so a new program knows where it is.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "preload/paths/claim.h"
#include "preload/paths/next.h"

__attribute__((constructor)) static void begin(void)
{
    struct stat here;
    if (vb_preload_next_fstatat(AT_FDCWD, ".", &here, 0) == 0)
        vb_preload_claim_working_node(vb_preload_stamped_node(&here));
}

/* ---- chdir ----------------------------------------------------------------------------------- */

/* Returns a descriptor of a directory that was made in `folder` and removed, or -1. */
static int removed_directory(const char *folder)
{
    char path[PATH_MAX];
    if (!folder || snprintf(path, sizeof path, "%s/verbena-XXXXXX", folder) >= PATH_MAX ||
        !mkdtemp(path))
        return -1;
    int fd = VB_NEXT(open)(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rmdir(path);
    return fd;
}

static bool enter_stamped(int fd, int node)
{
    struct stat stat;
    return vb_preload_stamp(fd, node) &&
           vb_preload_next_fstatat(fd, "", &stat, AT_EMPTY_PATH) == 0 &&
           vb_preload_stamped_node(&stat) == node && VB_NEXT(fchdir)(fd) == 0;
}

static int enter_node(int node)
{
    const char *const folders[] = {getenv("TMPDIR"), "/dev/shm", "/tmp", "/run"};
    bool entered = false;
    if (!vb_preload_is_directory(&vb_preload_tree()->nodes[node])) {
        errno = ENOTDIR;
        return -1;
    }
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !entered; i++) {
        int fd = removed_directory(folders[i]);
        entered = fd >= 0 && enter_stamped(fd, node);
        if (fd >= 0)
            close(fd);
    }
    if (!entered)
        return -1;
    vb_preload_claim_working_node(node);
    return 0;
}

static int cwd_enter(const struct vb_place *place)
{
    if (!place->error)
        return enter_node(place->node);
    errno = place->error;
    return -1;
}

static int entered_other(int result)
{
    if (result == 0)
        vb_preload_claim_working_node(-1);
    return result;
}

VB_EXPORT int chdir(const char *path)
{
    struct vb_place place;
    if (vb_preload_claim_path(path, &place))
        return cwd_enter(&place);
    return entered_other(VB_NEXT(chdir)(place.outside));
}

VB_EXPORT int fchdir(int fd)
{
    int node = vb_preload_descriptor_node(fd);
    return node >= 0 ? enter_node(node) : entered_other(VB_NEXT(fchdir)(fd));
}

/* ---- getcwd ---------------------------------------------------------------------------------- */

/* As getcwd(3): without a buffer one is allocated, of `size` bytes, or as long as needed if that is
 * 0. */
static char *cwd_name_of(int node, char *buffer, size_t size)
{
    char path[PATH_MAX];
    if (buffer && !size) {
        errno = EINVAL;
        return NULL;
    }
    if (!vb_preload_tree_path(vb_preload_tree(), node, path, sizeof path) ||
        (size && strlen(path) >= size)) {
        errno = ERANGE;
        return NULL;
    }
    if (!buffer)
        buffer = malloc(size ? size : strlen(path) + 1);
    return buffer ? strcpy(buffer, path) : NULL;
}

VB_EXPORT char *getcwd(char *buffer, size_t size)
{
    int node = vb_preload_working_node();
    return node >= 0 ? cwd_name_of(node, buffer, size) : VB_NEXT(getcwd)(buffer, size);
}

VB_EXPORT char *get_current_dir_name(void)
{
    int node = vb_preload_working_node();
    return node >= 0 ? cwd_name_of(node, NULL, 0) : VB_NEXT(get_current_dir_name)();
}

/* What getcwd() becomes in programs that are built with _FORTIFY_SOURCE. */
typedef char *getcwd_chk(char *buffer, size_t size, size_t room);

VB_EXPORT char *__getcwd_chk(char *buffer, size_t size, size_t room)
{
    int node = vb_preload_working_node();
    if (node >= 0 && size <= room)
        return cwd_name_of(node, buffer, size);
    return VB_NEXT_AS(getcwd_chk, __getcwd_chk)(buffer, size, room);
}
