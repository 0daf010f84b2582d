// SPDX-License-Identifier: Apache-2.0
/*
 * The spanning tree of a multicast group: shortest paths from the switch of the first member to
 * those of all others. A switch outside of the tree has one port of the group, which leads to the
 * tree, so that senders need not be members. sim calls vb_world_set_tree.
 */
#include <errno.h>
#include <stdlib.h>

#include "event/switch.h"
#include "event/world.h"

enum { UNKNOWN = VB_WORLD_NO_PORT, ROOT = VB_WORLD_NO_PORT - 1 };

struct tree {
    uint32_t *order; /* switches in breadth-first order from the root */
    uint32_t count;
    uint16_t *up; /* by node: a switch's port towards the root */
    bool *leads;  /* by node: it is a member, or a member is below it */
};

/* The port at the other end of the link; NULL: there is no link. */
static const struct vb_world_port *peer_port(const struct vb_world *world, uint32_t node,
                                             uint32_t port)
{
    uint32_t number = world->node[node].port[port];

    return number == VB_WORLD_NONE ? NULL : &world->port[world->port[number].peer];
}

static const struct vb_world_port *switch_of(const struct vb_world *world, uint32_t host)
{
    const struct vb_world_port *peer = peer_port(world, host, 0);

    return peer && world->node[peer->node].sw ? peer : NULL;
}

static void free_tree(struct tree *tree)
{
    free(tree->order);
    free(tree->up);
    free(tree->leads);
}

static int make_tree(const struct vb_world *world, struct tree *tree)
{
    tree->order = malloc((world->nodes + 1) * sizeof(*tree->order));
    tree->up = malloc((world->nodes + 1) * sizeof(*tree->up));
    tree->leads = calloc(world->nodes + 1, sizeof(*tree->leads));
    if (!tree->order || !tree->up || !tree->leads)
        return -ENOMEM;
    for (uint32_t i = 0; i < world->nodes; ++i)
        tree->up[i] = UNKNOWN;
    return 0;
}

static void tree_grow(const struct vb_world *world, struct tree *tree, uint32_t root)
{
    tree->order[tree->count++] = root;
    tree->up[root] = ROOT;
    for (uint32_t i = 0; i < tree->count; ++i) {
        uint32_t node = tree->order[i];

        for (uint32_t port = 0; port < world->node[node].ports; ++port) {
            const struct vb_world_port *peer = peer_port(world, node, port);

            if (!peer || !world->node[peer->node].sw || tree->up[peer->node] != UNKNOWN)
                continue;
            tree->up[peer->node] = peer->number;
            tree->order[tree->count++] = peer->node;
        }
    }
}

static void tree_mark(const struct vb_world *world, struct tree *tree)
{
    for (uint32_t i = tree->count; i-- > 1;) {
        uint32_t node = tree->order[i];

        if (tree->leads[node])
            tree->leads[peer_port(world, node, tree->up[node])->node] = true;
    }
}

/* Spans all members' switches; the first is the root. -EHOSTUNREACH: one is not connected. */
static int tree_span(const struct vb_world *world, struct tree *tree, const uint32_t *members,
                     uint32_t count)
{
    for (uint32_t i = 0; i < count; ++i) {
        const struct vb_world_port *peer = switch_of(world, members[i]);

        tree->leads[members[i]] = true;
        if (!peer)
            continue; /* it has no link, or a link to another host */
        if (!tree->count)
            tree_grow(world, tree, peer->node);
        if (tree->up[peer->node] == UNKNOWN)
            return -EHOSTUNREACH;
        tree->leads[peer->node] = true;
    }
    tree_mark(world, tree);
    return 0;
}

static bool is_branch(const struct tree *tree, const struct vb_world *world, uint32_t node,
                      uint32_t port)
{
    const struct vb_world_port *peer = peer_port(world, node, port);

    if (!peer || tree->up[node] == UNKNOWN)
        return false;
    if (port == tree->up[node])
        return true;
    return tree->leads[peer->node] &&
           (!world->node[peer->node].sw || tree->up[peer->node] == peer->number);
}

static int tree_set(struct vb_world *world, const struct tree *tree, uint32_t group, uint32_t node)
{
    uint32_t count = 0, ports = world->node[node].ports;
    uint16_t *branch = malloc((ports + 1) * sizeof(*branch));
    int error = branch ? 0 : -ENOMEM;

    for (uint32_t port = 0; port < ports && !error; ++port)
        if (is_branch(tree, world, node, port))
            branch[count++] = (uint16_t)port;
    if (!error)
        error = vb_world_switch_set_group(world->node[node].sw, group, branch, count);
    free(branch);
    return error;
}

int vb_world_set_tree(struct vb_world *world, uint32_t group, const uint32_t *members,
                      uint32_t count)
{
    struct tree tree = {0};
    int error = make_tree(world, &tree);

    if (!error)
        error = tree_span(world, &tree, members, count);
    for (uint32_t i = 0; i < world->nodes && !error; ++i)
        if (world->node[i].sw)
            error = tree_set(world, &tree, group, i);
    free_tree(&tree);
    return error;
}
