// SPDX-License-Identifier: Apache-2.0
/*
 * A heap over fork() (memory/heap_fork.c): the child has a copy in a file of its own, or none; the
 * parent's stays as it is. No descriptor is left behind in either.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "entries.h"
#include "heap_blocks.h"
#include "memory/heap_state.h"

static void wait_for(pid_t child)
{
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

static void in_own_child(struct vb_heap *heap, unsigned char *block, unsigned char *sparse)
{
    CHECK(vb_memory_heap_is_own(heap));
    CHECK(all_are(block, MIB, 1));
    CHECK_EQ(resident(heap), MIB + VB_HEAP_PAGE);
    CHECK_EQ(sparse[8 * MIB], 9);
    memset(block, 2, MIB);
    CHECK_EQ(vb_memory_heap_free(heap, sparse), 0);
    unsigned char *more = vb_memory_heap_alloc(heap, MIB, 1);
    CHECK(more && vb_memory_heap_contains(heap, more, MIB));
    memset(more, 3, MIB);
    _exit(0);
}

static void test_a_forked_child_has_a_heap_of_its_own(void)
{
    struct vb_heap *heap = heap_of(64 * MIB);
    unsigned char *block = vb_memory_heap_alloc(heap, MIB, 1),
                  *sparse = vb_memory_heap_alloc(heap, 32 * MIB, 1);

    unsigned char *kept = vb_memory_heap_alloc(heap, MIB, 1); /* and not copied: it is free */
    memset(kept, 1, MIB);
    CHECK_EQ(vb_memory_heap_free(heap, kept), 0);
    memset(block, 1, MIB);
    sparse[8 * MIB] = 9;
    int descriptors = entries(DESCRIPTORS);
    CHECK_EQ(vb_memory_heap_fork_prepare(heap), 0);
    pid_t child = fork();
    if (child == 0) {
        vb_memory_heap_fork_child(heap);
        CHECK_EQ(entries(DESCRIPTORS), descriptors); /* its file in its parent's place */
        in_own_child(heap, block, sparse);
    }
    vb_memory_heap_fork_parent(heap);
    CHECK_EQ(entries(DESCRIPTORS), descriptors);
    wait_for(child);
    CHECK(all_are(block, MIB, 1));
    CHECK_EQ(sparse[8 * MIB], 9);
    CHECK_EQ(vb_memory_heap_used(heap), 33 * MIB);
    CHECK_EQ(vb_memory_heap_free(heap, block), 0);
    vb_memory_heap_destroy(heap);
}

/* Without a descriptor for the copy the child has no heap, and its parent's is as before. */
static void test_a_fork_without_a_copy_leaves_the_heap_to_the_parent(void)
{
    struct vb_heap *heap = heap_of(16 * MIB);
    unsigned char *block = vb_memory_heap_alloc(heap, MIB, 1);
    int descriptors = entries(DESCRIPTORS);
    struct rlimit many, none;

    memset(block, 1, MIB);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &many), 0);
    none = (struct rlimit){0, many.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    CHECK_EQ(vb_memory_heap_fork_prepare(heap), -EMFILE);
    pid_t child = fork();
    if (child == 0) {
        vb_memory_heap_fork_child(heap);
        CHECK(!vb_memory_heap_is_own(heap));
        CHECK(vb_memory_heap_alloc(heap, 1, 1) == NULL);
        _exit(0);
    }
    vb_memory_heap_fork_parent(heap);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &many), 0);
    wait_for(child);
    CHECK_EQ(entries(DESCRIPTORS), descriptors);
    CHECK(all_are(block, MIB, 1));
    CHECK(vb_memory_heap_alloc(heap, MIB, 1) != NULL);
    CHECK_EQ(vb_memory_heap_fork_prepare(heap), 0);
    vb_memory_heap_fork_parent(heap);
    CHECK_EQ(entries(DESCRIPTORS), descriptors);
    close(vb_memory_heap_fd(heap)); /* nor one of the heap itself */
    CHECK_EQ(vb_memory_heap_fork_prepare(heap), -EBADF);
    vb_memory_heap_fork_parent(heap);
    CHECK_EQ(entries(DESCRIPTORS), descriptors - 1);
    vb_memory_heap_destroy(heap);
}

static void test_a_child_that_was_not_announced_leaves_the_heap_alone(void)
{
    struct vb_heap *heap = heap_of(16 * MIB);
    unsigned char *block = vb_memory_heap_alloc(heap, MIB, 1);

    memset(block, 1, MIB);
    pid_t child = fork();
    if (child == 0) {
        CHECK(!vb_memory_heap_is_own(heap));
        CHECK_EQ(vb_memory_heap_fork_prepare(heap), 0); /* its children have none either */
        vb_memory_heap_fork_parent(heap);
        vb_memory_heap_fork_child(heap);
        CHECK(!vb_memory_heap_is_own(heap));
        CHECK(vb_memory_heap_alloc(heap, 1, 1) == NULL);
        CHECK_EQ(vb_memory_heap_usable(heap, block), MIB);
        CHECK(!vb_memory_heap_contains(heap, block, MIB));
        CHECK_EQ(vb_memory_heap_free(heap, block), 0);
        CHECK_EQ(vb_memory_heap_resize(heap, block, 2 * MIB), -ENOMEM);
        _exit(0);
    }
    wait_for(child);
    CHECK(all_are(block, MIB, 1));
    CHECK_EQ(vb_memory_heap_usable(heap, block), MIB);
    vb_memory_heap_destroy(heap);
}

static void test_a_call_within_fork_is_refused_and_does_not_hang(void)
{
    struct vb_heap *heap = heap_of(16 * MIB);

    CHECK_EQ(vb_memory_heap_fork_prepare(heap), 0);
    CHECK(vb_memory_heap_alloc(heap, 1, 1) == NULL);
    CHECK_EQ(vb_memory_heap_fork_prepare(heap), -EDEADLK);
    vb_memory_heap_fork_parent(heap);
    CHECK(vb_memory_heap_alloc(heap, 1, 1) != NULL);
    int other = dup(vb_memory_heap_fd(heap)); /* the number that the copy had */
    vb_memory_heap_fork_parent(heap);         /* nobody forks any more */
    CHECK_EQ(close(other), 0);
    vb_memory_heap_destroy(heap);
}

int main(void)
{
    RUN(test_a_forked_child_has_a_heap_of_its_own);
    RUN(test_a_child_that_was_not_announced_leaves_the_heap_alone);
    RUN(test_a_fork_without_a_copy_leaves_the_heap_to_the_parent);
    RUN(test_a_call_within_fork_is_refused_and_does_not_hang);
    return 0;
}
