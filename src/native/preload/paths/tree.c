// SPDX-License-Identifier: Apache-2.0
/*
 * Builds the tree (tree.h), and follows paths in it as the kernel does: links, `.` and `..`.
 */
#include "preload/paths/tree.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "preload/paths/contents.h"

#define MAX_LINKS 40 /* as the kernel's path walk */

/* ---- building ------------------------------------------------------------------------------ */

static int child_of(const struct vb_tree *tree, int parent, const char *name, size_t length)
{
    for (int i = 1; i < tree->count; i++) {
        const struct vb_node *node = &tree->nodes[i];
        if (node->parent == parent && strncmp(node->name, name, length) == 0 &&
            node->name[length] == '\0')
            return i;
    }
    return -1;
}

static int tree_append(struct vb_tree *tree, int parent, const char *name, size_t length)
{
    struct vb_node *nodes =
        reallocarray(tree->nodes, (size_t)tree->count + 1, sizeof tree->nodes[0]);
    if (!nodes)
        return -1;
    tree->nodes = nodes;
    struct vb_node *node = &nodes[tree->count];
    *node = (struct vb_node){.name = strndup(name, length), .kind = VB_NODE_DIR, .parent = parent};
    return node->name ? tree->count++ : -1;
}

bool vb_preload_tree_add(struct vb_tree *tree, const char *path, enum vb_node_kind kind,
                         const char *text)
{
    int node = 0;
    while (*path == '/') {
        const char *name = path + 1;
        size_t length = strcspn(name, "/");
        int child = child_of(tree, node, name, length);
        node = child >= 0 ? child : tree_append(tree, node, name, length);
        if (node < 0)
            return false;
        path = name + length;
    }
    tree->nodes[node].kind = kind;
    if (text)
        tree->nodes[node].text = strdup(text);
    return !text || tree->nodes[node].text;
}

bool vb_preload_tree_create(struct vb_tree *tree)
{
    *tree = (struct vb_tree){0};
    if (tree_append(tree, 0, "", 0) != 0)
        return false;
    tree->nodes[0].kind = VB_NODE_PASSAGE;
    return true;
}

/* Interposed functions have no argument in which a tree could be passed, so it is the process's. */
static struct vb_tree shared_tree;
static bool shared_tree_complete;

static void create_shared_tree(void)
{
    shared_tree_complete =
        vb_preload_tree_create(&shared_tree) && vb_preload_contents_add(&shared_tree);
}

const struct vb_tree *vb_preload_tree(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, create_shared_tree);
    return shared_tree_complete ? &shared_tree : NULL;
}

/* ---- walking ------------------------------------------------------------------------------- */

static bool tree_fail(struct vb_place *place, int error)
{
    place->error = error;
    return true;
}

/* Replaces the path by `head` and the rest of it, which may lie in the path itself. */
static int replace(struct vb_place *place, const char *head, const char *rest)
{
    char joined[PATH_MAX];
    if (snprintf(joined, sizeof joined, "%s%s", head, rest) >= PATH_MAX)
        return ENAMETOOLONG;
    memcpy(place->rewritten, joined, strlen(joined) + 1);
    return 0;
}

/* Passes the rest of the path to the kernel, below a directory of the host's. */
static bool tree_leave(const struct vb_tree *tree, int node, const char *rest,
                       struct vb_place *place)
{
    char head[PATH_MAX];
    if (!vb_preload_tree_path(tree, node, head, sizeof head) || replace(place, head, rest))
        return tree_fail(place, ENAMETOOLONG);
    place->outside = place->rewritten;
    return false;
}

/* The last component was found. */
static bool tree_arrive(const struct vb_tree *tree, int node, struct vb_place *place)
{
    if (tree->nodes[node].kind == VB_NODE_PASSAGE)
        return tree_leave(tree, node, node ? "" : "/", place);
    place->node = node;
    return true;
}

/* The tree does not have this name: it may be an entry of the host's. */
static bool miss(const struct vb_tree *tree, int node, const char *rest, struct vb_place *place)
{
    enum vb_node_kind kind = tree->nodes[node].kind;
    if (kind == VB_NODE_PASSAGE || kind == VB_NODE_SHARED)
        return tree_leave(tree, node, rest, place);
    return tree_fail(place, ENOENT);
}

static int tree_step(const struct vb_tree *tree, int node, const char *name, size_t length)
{
    if (length == 1 && name[0] == '.')
        return node;
    if (length == 2 && name[0] == '.' && name[1] == '.')
        return tree->nodes[node].parent;
    return child_of(tree, node, name, length);
}

bool vb_preload_tree_walk(const struct vb_tree *tree, const char *path, bool follow,
                          struct vb_place *place)
{
    *place = (struct vb_place){.node = -1};
    int node = 0, links = 0;
    for (;;) {
        const char *name = path + strspn(path, "/");
        size_t length = strcspn(name, "/");
        if (name > path && !vb_preload_is_directory(&tree->nodes[node]))
            return tree_fail(place, ENOTDIR);
        if (length == 0)
            return tree_arrive(tree, node, place);
        int next = tree_step(tree, node, name, length);
        if (next < 0)
            return miss(tree, node, name - 1, place);
        path = name + length;
        if (tree->nodes[next].kind != VB_NODE_LINK || (*path == '\0' && !follow)) {
            node = next;
            continue;
        }
        if (links++ == MAX_LINKS)
            return tree_fail(place, ELOOP);
        int error = replace(place, tree->nodes[next].text, path);
        if (error)
            return tree_fail(place, error);
        path = place->rewritten;
        node = 0;
    }
}

bool vb_preload_tree_path(const struct vb_tree *tree, int node, char *path, size_t size)
{
    char *start = path + size;
    if (size == 0)
        return false;
    *--start = '\0';
    for (; node; node = tree->nodes[node].parent) {
        size_t length = strlen(tree->nodes[node].name);
        if ((size_t)(start - path) < length + 1)
            return false;
        start -= length;
        memcpy(start, tree->nodes[node].name, length);
        *--start = '/';
    }
    memmove(path, start, (size_t)(path + size - start));
    return true;
}
