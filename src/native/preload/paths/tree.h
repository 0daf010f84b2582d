// SPDX-License-Identifier: Apache-2.0
/*
 * The files of Verbena's devices below /sys and /dev, as a table in memory. The interposed calls
 * look paths up in it. Nothing is on disk, so nothing is left behind however the process ends.
 */
#ifndef VB_PRELOAD_PATHS_TREE_H
#define VB_PRELOAD_PATHS_TREE_H

#include <limits.h>
#include <stdbool.h>
#include <string.h>

enum vb_node_kind {
    VB_NODE_PASSAGE, /* a directory of the host's above the tree's: the kernel answers for it */
    VB_NODE_SHARED,  /* a directory of the tree in which the host may have entries, too */
    VB_NODE_DIR,
    VB_NODE_FILE,    /* read-only text */
    VB_NODE_COUNTER, /* read-only text that is made when it is opened (host/device_counters.h) */
    VB_NODE_LIVE,    /* read-only text that the fabric's process has (fabric/question.h) */
    VB_NODE_LINK,
    VB_NODE_DEVICE,  /* character device that opens /dev/null */
    VB_NODE_RDMA_CM, /* the character device of librdmacm (manager/rdma_cm.h) */
    VB_NODE_UMAD,    /* of the port in `text`: of a RoCE port or a fabric's host (fabric/umad.h) */
    VB_NODE_ISSM,    /* the same */
};

struct vb_node {
    char *name;
    char *text; /* a file's contents, a link's absolute path, a counter's number; otherwise NULL */
    enum vb_node_kind kind;
    int parent; /* 0, the root, is its own parent */
};

struct vb_tree {
    struct vb_node *nodes;
    int count;
};

/* Returns the process's tree, which the first call builds; NULL if there is no memory for it. */
const struct vb_tree *vb_preload_tree(void);

bool vb_preload_tree_create(struct vb_tree *tree);

/* Adds a node at an absolute path and the directories above it. False when out of memory. */
bool vb_preload_tree_add(struct vb_tree *tree, const char *path, enum vb_node_kind kind,
                         const char *text);

/* Where a path leads. One of the first three members says it. */
struct vb_place {
    int node;            /* of the tree, or -1 */
    int error;           /* the errno of a path that leads nowhere within the tree, or 0 */
    const char *outside; /* the path to pass to the kernel, if `node` and `error` say nothing */
    char rewritten[PATH_MAX];
};

/*
 * Follows an absolute path as the kernel would, and the last link, too, if `follow`. Returns true
 * if it ends in the tree, at a node or with an error, and false if it leads outside.
 */
bool vb_preload_tree_walk(const struct vb_tree *tree, const char *path, bool follow,
                          struct vb_place *place);

/* Writes the node's absolute path with its terminator. Returns false if it needs more than `size`.
 */
bool vb_preload_tree_path(const struct vb_tree *tree, int node, char *path, size_t size);

static inline bool vb_preload_is_device(const struct vb_node *node)
{
    return node->kind >= VB_NODE_DEVICE;
}

static inline bool vb_preload_is_directory(const struct vb_node *node)
{
    return node->kind <= VB_NODE_DIR;
}

/* Every path of every program passes this check, so it is inline; most fail at their second
 * character. */
static inline bool vb_preload_may_be_ours(const char *path)
{
    return path[0] == '/' &&
           (strncmp(path + 1, "sys/", 4) == 0 || strncmp(path + 1, "dev/", 4) == 0) &&
           (strstr(path + 5, "infiniband") != NULL || strstr(path + 5, "/rdma_cm") != NULL);
}

#endif
