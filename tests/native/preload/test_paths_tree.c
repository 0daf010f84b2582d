// SPDX-License-Identifier: Apache-2.0
/*
 * A tree of the test's own: what is added at a path is found there, and nothing else is. The
 * library's tree has neither links that lead in a circle nor names that do not fit.
 */
#include <errno.h>

#include "check.h"
#include "preload/paths/contents.h"
#include "preload/paths/tree.h"

/* ---- memory, which ends after a number of requests ---- */

static long requests_left = -1; /* -1: it does not end */

static bool is_starved(void)
{
    if (requests_left == 0) {
        errno = ENOMEM;
        return true;
    }
    requests_left -= requests_left > 0;
    return false;
}

void *reallocarray(void *block, size_t count, size_t size)
{
    return is_starved() ? NULL : realloc(block, count * size);
}

char *strndup(const char *text, size_t length)
{
    char *copy = is_starved() ? NULL : malloc(length + 1);

    if (copy) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

char *strdup(const char *text)
{
    return strndup(text, strlen(text));
}

/* The library's own contents: this program has none. */
bool vb_preload_contents_add(struct vb_tree *tree)
{
    (void)tree;
    return false;
}

static struct vb_tree tree;

static void make(void)
{
    CHECK(vb_preload_tree_create(&tree));
    CHECK(vb_preload_tree_add(&tree, "/sys", VB_NODE_PASSAGE, NULL));
    CHECK(vb_preload_tree_add(&tree, "/sys/shared", VB_NODE_SHARED, NULL));
    CHECK(vb_preload_tree_add(&tree, "/sys/shared/one/deep/file", VB_NODE_FILE, "text"));
    CHECK(vb_preload_tree_add(&tree, "/sys/shared/one/deep/filename", VB_NODE_FILE, "more"));
    CHECK(vb_preload_tree_add(&tree, "/sys/shared/one/file", VB_NODE_FILE, "other"));
    CHECK(vb_preload_tree_add(&tree, "/sys/shared/in", VB_NODE_LINK, "/sys/shared/one/deep"));
    CHECK(vb_preload_tree_add(&tree, "/sys/shared/out", VB_NODE_LINK, "/proc/self"));
    CHECK(vb_preload_tree_add(&tree, "/sys/shared/a", VB_NODE_LINK, "/sys/shared/b"));
    CHECK(vb_preload_tree_add(&tree, "/sys/shared/b", VB_NODE_LINK, "/sys/shared/a"));
    CHECK(vb_preload_tree_add(&tree, "/sys/shared/device", VB_NODE_DEVICE, NULL));
}

static const struct {
    const char *path;
    bool follow;
    const char *node;    /* the path of the node, */
    int error;           /* or the error, */
    const char *outside; /* or where the kernel looks */
} walks[] = {
    {"/sys/shared", true, "/sys/shared", 0, NULL},
    {"/sys/shared/one", true, "/sys/shared/one", 0, NULL},
    {"/sys/shared/one/deep/file", true, "/sys/shared/one/deep/file", 0, NULL},
    {"/sys/shared/one/deep/filename", true, "/sys/shared/one/deep/filename", 0, NULL},
    {"/sys/shared/one/deep/filenames", true, NULL, ENOENT, NULL},
    {"/sys/shared/one/deep/fil", true, NULL, ENOENT, NULL},
    {"/sys/shared/one/deep/file/", true, NULL, ENOTDIR, NULL},
    {"/sys/shared/one/deep/file/x", true, NULL, ENOTDIR, NULL},
    {"/sys/shared/device", true, "/sys/shared/device", 0, NULL},
    {"/sys/shared/device/", true, NULL, ENOTDIR, NULL},
    {"/sys/shared/in", false, "/sys/shared/in", 0, NULL},
    {"/sys/shared/in", true, "/sys/shared/one/deep", 0, NULL},
    {"/sys/shared/in/", false, "/sys/shared/one/deep", 0, NULL},
    {"/sys/shared/in/../file", false, "/sys/shared/one/file", 0, NULL},
    {"/sys/shared/in/file", false, "/sys/shared/one/deep/file", 0, NULL},
    {"/sys/shared/out", false, "/sys/shared/out", 0, NULL},
    {"/sys/shared/out", true, NULL, 0, "/proc/self"},
    {"/sys/shared/out/fd/0", false, NULL, 0, "/proc/self/fd/0"},
    {"/sys/shared/a", false, "/sys/shared/a", 0, NULL},
    {"/sys/shared/a", true, NULL, ELOOP, NULL},
    {"/sys/shared/hosts", true, NULL, 0, "/sys/shared/hosts"},
    {"/sys/shared//hosts/below/", true, NULL, 0, "/sys/shared/hosts/below/"},
    {"/sys/shared/one/hosts", true, NULL, ENOENT, NULL},
    {"/sys/shared/one/../hosts", true, NULL, 0, "/sys/shared/hosts"},
    {"/sys/shared/..", true, NULL, 0, "/sys"},
    {"/sys/shared/../..", true, NULL, 0, "/"},
    {"/sys/shared/../../..", true, NULL, 0, "/"},
    {"/sys/other/file", true, NULL, 0, "/sys/other/file"},
    {"/other", true, NULL, 0, "/other"},
    {"/", true, NULL, 0, "/"},
};

static void test_walks(void)
{
    for (size_t i = 0; i < sizeof(walks) / sizeof(*walks); ++i) {
        struct vb_place place;
        char path[PATH_MAX];
        bool inside = vb_preload_tree_walk(&tree, walks[i].path, walks[i].follow, &place);

        if (inside != !walks[i].outside || place.error != walks[i].error ||
            (place.node >= 0) != (walks[i].node != NULL))
            fprintf(stderr, "%s: node %d, error %d\n", walks[i].path, place.node, place.error);
        CHECK_EQ(inside, !walks[i].outside);
        CHECK_EQ(place.error, walks[i].error);
        CHECK_EQ(place.node >= 0, walks[i].node != NULL);
        if (walks[i].node) {
            CHECK(vb_preload_tree_path(&tree, place.node, path, sizeof(path)));
            CHECK(strcmp(path, walks[i].node) == 0);
        }
        if (walks[i].outside)
            CHECK(strcmp(place.outside, walks[i].outside) == 0);
    }
}

/* Adding twice is replacing, and directories above are made once. */
static void test_nodes(void)
{
    const int count = tree.count;
    struct vb_place place;

    CHECK_EQ(count, 13);
    CHECK(vb_preload_tree_add(&tree, "/sys/shared/one", VB_NODE_DIR, NULL));
    CHECK_EQ(tree.count, count);
    CHECK(vb_preload_tree_walk(&tree, "/sys/shared/one/deep/file", true, &place));
    CHECK_EQ(tree.nodes[place.node].kind, VB_NODE_FILE);
    CHECK(strcmp(tree.nodes[place.node].text, "text") == 0);
    CHECK(strcmp(tree.nodes[place.node].name, "file") == 0);
    CHECK_EQ(tree.nodes[tree.nodes[place.node].parent].kind, VB_NODE_DIR);
    CHECK_EQ(tree.nodes[0].parent, 0);
    CHECK_EQ(tree.nodes[0].kind, VB_NODE_PASSAGE);
    CHECK(!vb_preload_tree()); /* its contents failed */
}

static void test_a_path_needs_its_room(void)
{
    static const char expected[] = "/sys/shared/one/deep";
    struct vb_place place;

    CHECK(vb_preload_tree_walk(&tree, expected, true, &place));
    for (size_t size = 0; size < sizeof(expected) + 2; ++size) {
        char path[64];

        memset(path, '#', sizeof(path));
        CHECK_EQ(vb_preload_tree_path(&tree, place.node, path, size), size >= sizeof(expected));
        for (size_t i = size; i < sizeof(path); ++i)
            CHECK_EQ(path[i], '#');
        if (size >= sizeof(expected))
            CHECK(strcmp(path, expected) == 0);
    }
    CHECK(vb_preload_tree_path(&tree, 0, (char[1]){'#'}, 1)); /* the root is "" */
}

/* What a link makes longer than a path may be. */
static void test_a_link_to_a_longer_path(void)
{
    for (size_t length = PATH_MAX - 100; length < PATH_MAX; ++length) {
        static char path[PATH_MAX];
        const size_t grown = length - strlen("/sys/shared/in") + strlen("/sys/shared/one/deep");
        struct vb_place place;

        memset(path, '/', length);
        memcpy(path, "/sys/shared/in", strlen("/sys/shared/in"));
        memcpy(path + length - 4, "file", 5);
        CHECK(vb_preload_tree_walk(&tree, path, true, &place));
        CHECK_EQ(place.error, grown >= PATH_MAX ? ENAMETOOLONG : 0);
    }
}

static void test_as_many_links_as_the_kernel_follows(void)
{
    char path[PATH_MAX] = "/sys/shared/in";
    struct vb_place place;

    for (int links = 1; links < 44; ++links, strcat(path, "/../../in")) {
        CHECK(vb_preload_tree_walk(&tree, path, true, &place));
        CHECK_EQ(place.error, links > 40 ? ELOOP : 0);
    }
}

static void test_which_paths_are_looked_at(void)
{
    static const struct {
        const char *path;
        bool ours;
    } all[] = {{"/sys/class/infiniband", true},
               {"/dev/infiniband", true},
               {"/sys/class/infiniband_verbs/x", true},
               {"/dev/x/../infiniband", true},
               {"/sys/class/net", false},
               {"/dev/null", false},
               {"/system/infiniband", false},
               {"sys/infiniband", false},
               {"/proc/infiniband", false},
               {"/", false},
               {"", false}};

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); ++i)
        CHECK_EQ(vb_preload_may_be_ours(all[i].path), all[i].ours);
}

/* Without memory for one of its parts nothing is added that could be found. */
static void test_no_memory(void)
{
    for (long least = 0; least < 8; ++least) {
        struct vb_tree poor = {0};
        struct vb_place place;
        bool created, added = false;

        requests_left = least;
        created = vb_preload_tree_create(&poor); /* two requests */
        CHECK_EQ(created, least >= 2);
        if (created)
            added = vb_preload_tree_add(&poor, "/sys/file", VB_NODE_FILE, "text"); /* five */
        CHECK_EQ(added, least >= 7);
        requests_left = -1;
        if (!added)
            continue;
        CHECK(vb_preload_tree_walk(&poor, "/sys/file", true, &place));
        CHECK(strcmp(poor.nodes[place.node].text, "text") == 0);
    }
}

int main(void)
{
    make();
    RUN(test_no_memory);
    RUN(test_walks);
    RUN(test_nodes);
    RUN(test_a_path_needs_its_room);
    RUN(test_a_link_to_a_longer_path);
    RUN(test_as_many_links_as_the_kernel_follows);
    RUN(test_which_paths_are_looked_at);
    return 0;
}
