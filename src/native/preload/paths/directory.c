// SPDX-License-Identifier: Apache-2.0
/*
 * opendir(3), readdir(3) and their kin over directories of the tree. Streams of other directories
 * are passed to the C library.
 */
#include "preload/paths/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "preload/paths/claim.h"
#include "preload/paths/next.h"

/*
 * What our opendir() returns as a DIR *. The C library's own DIR begins with a descriptor and a
 * lock, which together are never the address that they are stored at.
 */
struct vb_directory {
    const void *self;
    int fd;
    long position;
    long count;
    struct dirent *entries;
};

static struct vb_directory *ours(DIR *stream)
{
    struct vb_directory *directory = (struct vb_directory *)stream;
    return directory && directory->self == stream ? directory : NULL;
}

/* ---- filling ------------------------------------------------------------------------------- */

static unsigned char entry_type(const struct vb_node *node)
{
    if (vb_preload_is_directory(node))
        return DT_DIR;
    if (node->kind == VB_NODE_LINK)
        return DT_LNK;
    return vb_preload_is_device(node) ? DT_CHR : DT_REG;
}

static bool directory_has_entry(const struct vb_directory *directory, const char *name)
{
    for (long i = 0; i < directory->count; i++)
        if (strcmp(directory->entries[i].d_name, name) == 0)
            return true;
    return false;
}

static bool directory_add_entry(struct vb_directory *directory, const struct dirent *entry)
{
    struct dirent *entries =
        reallocarray(directory->entries, (size_t)directory->count + 1, sizeof *entries);
    if (!entries)
        return false;
    directory->entries = entries;
    struct dirent *added = &entries[directory->count++];
    *added = *entry;
    added->d_reclen = sizeof *added;
    added->d_off = directory->count; /* telldir() returns this after the entry */
    return true;
}

static bool directory_add_node(struct vb_directory *directory, int node, const char *name)
{
    struct stat stat;
    vb_preload_stat_node(node, &stat);
    struct dirent entry = {.d_ino = stat.st_ino,
                           .d_type = entry_type(&vb_preload_tree()->nodes[node])};
    strncpy(entry.d_name, name, sizeof entry.d_name - 1);
    return directory_add_entry(directory, &entry);
}

static bool add_nodes(struct vb_directory *directory, int parent)
{
    const struct vb_tree *tree = vb_preload_tree();
    if (!directory_add_node(directory, parent, ".") ||
        !directory_add_node(directory, tree->nodes[parent].parent, ".."))
        return false;
    for (int i = 1; i < tree->count; i++)
        if (tree->nodes[i].parent == parent &&
            !directory_add_node(directory, i, tree->nodes[i].name))
            return false;
    return true;
}

/* A host without RDMA does not have the directory, which is not an error. */
static bool add_host_entries(struct vb_directory *directory, int node)
{
    char path[PATH_MAX];
    DIR *host = vb_preload_tree_path(vb_preload_tree(), node, path, sizeof path)
                    ? VB_NEXT(opendir)(path)
                    : NULL;
    bool added = true;
    const struct dirent *entry;
    while (host && added && (entry = VB_NEXT(readdir)(host)))
        added =
            directory_has_entry(directory, entry->d_name) || directory_add_entry(directory, entry);
    if (host)
        VB_NEXT(closedir)(host);
    return added;
}

static bool directory_fill(struct vb_directory *directory, int node)
{
    if (!add_nodes(directory, node))
        return false;
    return vb_preload_tree()->nodes[node].kind != VB_NODE_SHARED ||
           add_host_entries(directory, node);
}

static void directory_discard(struct vb_directory *directory)
{
    free(directory->entries);
    free(directory);
}

/* The stream owns the descriptor, if there is one. */
static DIR *directory_open_stream(int fd, int node)
{
    struct vb_directory *directory = calloc(1, sizeof *directory);
    if (!directory)
        return NULL;
    directory->self = directory;
    directory->fd = fd;
    if (directory_fill(directory, node))
        return (DIR *)directory;
    directory_discard(directory);
    errno = ENOMEM;
    return NULL;
}

DIR *vb_preload_directory_open(const struct vb_place *place)
{
    int fd = vb_preload_open_node(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    DIR *stream = directory_open_stream(fd, place->node);
    if (!stream)
        close(fd);
    return stream;
}

/* ---- opendir(3), readdir(3) … ---------------------------------------------------------------- */

VB_EXPORT DIR *opendir(const char *path)
{
    struct vb_place place;
    if (vb_preload_claim_path(path, &place))
        return vb_preload_directory_open(&place);
    return VB_NEXT(opendir)(place.outside);
}

VB_EXPORT DIR *fdopendir(int fd)
{
    int node = vb_preload_descriptor_node(fd);
    if (node < 0)
        return VB_NEXT(fdopendir)(fd);
    if (vb_preload_is_directory(&vb_preload_tree()->nodes[node]))
        return directory_open_stream(fd, node);
    errno = ENOTDIR;
    return NULL;
}

static struct dirent *next_entry(struct vb_directory *directory)
{
    if (directory->position >= directory->count)
        return NULL;
    return &directory->entries[directory->position++];
}

VB_EXPORT struct dirent *readdir(DIR *stream)
{
    struct vb_directory *directory = ours(stream);
    return directory ? next_entry(directory) : VB_NEXT(readdir)(stream);
}

typedef int readdir_reentrant(DIR *stream, struct dirent *entry, struct dirent **result);

VB_EXPORT int readdir_r(DIR *restrict stream, struct dirent *restrict entry,
                        struct dirent **restrict result)
{
    struct vb_directory *directory = ours(stream);
    if (!directory)
        return VB_NEXT_AS(readdir_reentrant, readdir_r)(stream, entry, result);
    const struct dirent *next = next_entry(directory);
    *result = next ? memcpy(entry, next, sizeof *entry) : NULL;
    return 0;
}

VB_EXPORT void rewinddir(DIR *stream)
{
    struct vb_directory *directory = ours(stream);
    if (directory)
        directory->position = 0;
    else
        VB_NEXT(rewinddir)(stream);
}

VB_EXPORT void seekdir(DIR *stream, long position)
{
    struct vb_directory *directory = ours(stream);
    if (directory)
        directory->position = position < 0 ? 0 : position;
    else
        VB_NEXT(seekdir)(stream, position);
}

VB_EXPORT long telldir(DIR *stream)
{
    struct vb_directory *directory = ours(stream);
    return directory ? directory->position : VB_NEXT(telldir)(stream);
}

VB_EXPORT int dirfd(DIR *stream)
{
    struct vb_directory *directory = ours(stream);
    return directory ? directory->fd : VB_NEXT(dirfd)(stream);
}

VB_EXPORT int closedir(DIR *stream)
{
    struct vb_directory *directory = ours(stream);
    if (!directory)
        return VB_NEXT(closedir)(stream);
    int fd = directory->fd;
    directory_discard(directory);
    return close(fd);
}

VB_ALIAS(readdir64, readdir);
VB_ALIAS_AS(readdir_reentrant, readdir64_r, readdir_r, );
