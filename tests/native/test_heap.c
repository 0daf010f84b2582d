// SPDX-License-Identifier: Apache-2.0
#include "check.h"
#include "entries.h"
#include "heap_blocks.h"
#include "memory/buddy.h"
#include "memory/descriptor.h"
#include "memory/heap_state.h"
#include "memory/kept.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef VERBENA_SANITIZE
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif

// ---- blocks -----------------------------------------------------------------------------------

static void test_a_block_is_zeroed_aligned_and_known(void)
{
    struct vb_heap *heap = heap_of(64 * MIB);
    unsigned char *block = vb_memory_heap_alloc(heap, 5 * VB_HEAP_PAGE + 1, 64 * 1024);

    CHECK(block != NULL);
    CHECK_EQ((uintptr_t)block % (64 * 1024), 0);
    CHECK_EQ(vb_memory_heap_usable(heap, block), 6 * VB_HEAP_PAGE);
    CHECK_EQ(vb_memory_heap_used(heap), 6 * VB_HEAP_PAGE);
    CHECK_EQ(vb_memory_heap_usable(heap, block + VB_HEAP_PAGE), 0);
    CHECK_EQ(vb_memory_heap_usable(heap, block + 1), 0);
    CHECK(all_are(block, 6 * VB_HEAP_PAGE, 0));
    CHECK_EQ(vb_memory_heap_free(heap, block), 0);
    CHECK_EQ(vb_memory_heap_used(heap), 0);
    vb_memory_heap_destroy(heap);
}

static void test_every_alignment_up_to_the_largest(void)
{
    struct vb_heap *heap = heap_of(64 * MIB);

    for (size_t align = 1; align <= VB_HEAP_ALIGN_MAX; align *= 2) {
        void *block = vb_memory_heap_alloc(heap, 1, align);
        CHECK(block != NULL);
        CHECK_EQ((uintptr_t)block % align, 0);
    }
    CHECK(vb_memory_heap_alloc(heap, 1, 2 * VB_HEAP_ALIGN_MAX) == NULL);
    CHECK_EQ(errno, ENOMEM);
    CHECK(vb_memory_heap_alloc(heap, 1, 3) == NULL);
    CHECK_EQ(errno, EINVAL);
    CHECK(vb_memory_heap_alloc(heap, 0, 1) == NULL);
    CHECK_EQ(errno, EINVAL);
    vb_memory_heap_destroy(heap);
}

static void test_untouched_memory_costs_nothing_and_freed_memory_returns(void)
{
    struct vb_heap *heap = heap_of((size_t)1024 * MIB);
    unsigned char *block = vb_memory_heap_alloc(heap, 512 * MIB, 1);

    CHECK_EQ(resident(heap), 0);
    memset(block, 1, 4 * MIB);
    CHECK_EQ(resident(heap), 4 * MIB);
    CHECK_EQ(vb_memory_heap_free(heap, block), 0);
    CHECK_EQ(resident(heap), 0);
    vb_memory_heap_destroy(heap);
}

static void test_freed_memory_reads_as_zeros_when_it_is_given_again(void)
{
    struct vb_heap *heap = heap_of(16 * MIB);
    unsigned char *block = vb_memory_heap_alloc(heap, 16 * MIB, 1);

    memset(block, 7, 16 * MIB);
    vb_memory_heap_free(heap, block);
    CHECK(vb_memory_heap_alloc(heap, 16 * MIB, 1) == block);
    CHECK(all_are(block, 16 * MIB, 0));
    vb_memory_heap_destroy(heap);
}

static void test_a_freed_block_waits_for_the_next_of_its_size(void)
{
    struct vb_heap *heap = heap_of(64 * MIB);
    unsigned char *block = vb_memory_heap_alloc(heap, MIB, 1);

    memset(block, 7, MIB);
    vb_memory_heap_free(heap, block);
    CHECK_EQ(vb_memory_heap_used(heap), 0);
    CHECK_EQ(resident(heap), MIB);
    CHECK(vb_memory_heap_alloc_unzeroed(heap, 600 * 1024, 1) == block);
    CHECK_EQ(resident(heap), 600 * 1024);
    CHECK_EQ(vb_memory_heap_resize(heap, block, MIB), 0);
    CHECK(all_are(block + 600 * 1024, MIB - 600 * 1024, 0));
    vb_memory_heap_free(heap, block);
    CHECK(vb_memory_heap_alloc(heap, MIB, 1) == block);
    CHECK(all_are(block, MIB, 0));
    vb_memory_heap_destroy(heap);
}

static void test_freed_blocks_keep_no_more_than_a_16th(void)
{
    struct vb_heap *heap = heap_of(64 * MIB);
    unsigned char *blocks[16];

    for (int i = 0; i < 16; i++)
        blocks[i] = memset(vb_memory_heap_alloc(heap, MIB, 1), 1, MIB);
    for (int i = 0; i < 16; i++) {
        CHECK_EQ(vb_memory_heap_free(heap, blocks[i]), 0);
        CHECK_EQ(vb_memory_heap_free(heap, blocks[i]), -EINVAL);
    }
    CHECK_EQ(resident(heap), 4 * MIB);
    CHECK(vb_memory_heap_alloc(heap, 64 * MIB, 1) != NULL); /* what is kept gives way */
    CHECK_EQ(resident(heap), 0);
    vb_memory_heap_destroy(heap);
}

static void test_many_small_freed_blocks_are_kept_too(void)
{
    struct vb_heap *heap = heap_of((size_t)1024 * MIB);
    void *blocks[100];

    for (int i = 0; i < 100; i++)
        blocks[i] = memset(vb_memory_heap_alloc(heap, VB_HEAP_PAGE, 1), 1, VB_HEAP_PAGE);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(vb_memory_heap_free(heap, blocks[i]), 0);
    CHECK(resident(heap) < 40 * VB_HEAP_PAGE);
    vb_memory_heap_trim(heap);
    CHECK_EQ(resident(heap), 0);
    vb_memory_heap_destroy(heap);
}

static void test_memory_that_the_program_locked_can_be_freed(void)
{
    struct vb_heap *heap = heap_of(16 * MIB);
    unsigned char *block = vb_memory_heap_alloc(heap, 16 * VB_HEAP_PAGE, 1);

    memset(block, 7, 16 * VB_HEAP_PAGE);
    bool locked = mlock(block, 16 * VB_HEAP_PAGE) == 0; /* needs RLIMIT_MEMLOCK */
    CHECK_EQ(vb_memory_heap_free(heap, block), 0);
    CHECK(vb_memory_heap_alloc(heap, 16 * MIB, 1) != NULL);
    CHECK(all_are(block, 16 * VB_HEAP_PAGE, 0));
    printf("# memory was %slocked\n", locked ? "" : "not ");
    vb_memory_heap_destroy(heap);
}

static void test_a_pointer_that_is_no_block_is_refused(void)
{
    struct vb_heap *heap = heap_of(16 * MIB);
    unsigned char *block = vb_memory_heap_alloc(heap, 4 * VB_HEAP_PAGE, 1);
    int local;

    CHECK_EQ(vb_memory_heap_free(heap, &local), -EINVAL);
    CHECK_EQ(vb_memory_heap_free(heap, block + VB_HEAP_PAGE), -EINVAL);
    CHECK_EQ(vb_memory_heap_free(heap, block + 8), -EINVAL);
    CHECK_EQ(vb_memory_heap_free(heap, NULL), -EINVAL);
    CHECK_EQ(vb_memory_heap_resize(heap, block + 8, 1), -EINVAL);
    CHECK_EQ(vb_memory_heap_free(heap, block), 0);
    CHECK_EQ(vb_memory_heap_free(heap, block), -EINVAL);
    vb_memory_heap_destroy(heap);
}

// ---- the range --------------------------------------------------------------------------------

static void test_exhaustion_is_enomem_and_all_of_it_comes_back(void)
{
    struct vb_heap *heap = heap_of(16 * MIB);
    void *blocks[16];

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 16; i++) {
            blocks[i] = vb_memory_heap_alloc(heap, MIB, 1);
            CHECK(blocks[i] != NULL);
        }
        errno = 0;
        CHECK(vb_memory_heap_alloc(heap, 1, 1) == NULL);
        CHECK_EQ(errno, ENOMEM);
        for (int i = 0; i < 16; i++)
            CHECK_EQ(vb_memory_heap_free(heap, blocks[(i * 7 + round) % 16]), 0);
    }
    CHECK(vb_memory_heap_alloc(heap, 16 * MIB, 1) != NULL); /* coalesced */
    vb_memory_heap_destroy(heap);
}

static void test_small_blocks_leave_the_large_ones_whole(void)
{
    struct vb_heap *heap = heap_of(16 * MIB);
    void *first = vb_memory_heap_alloc(heap, MIB, 1), *second = vb_memory_heap_alloc(heap, MIB, 1);

    CHECK(first && second);
    vb_memory_heap_free(heap, first);
    CHECK(vb_memory_heap_alloc(heap, 1, 1) == first); /* and not a piece of the free 8 MiB */
    CHECK(vb_memory_heap_alloc(heap, 8 * MIB, 1) != NULL);
    vb_memory_heap_destroy(heap);
}

static void test_no_request_is_larger_than_memory_could_hold(void)
{
    struct vb_heap *heap = heap_of(0);

    CHECK(vb_memory_heap_alloc(heap, SIZE_MAX, 1) == NULL);
    CHECK_EQ(errno, ENOMEM);
    CHECK(vb_memory_heap_alloc(heap, SIZE_MAX - VB_HEAP_PAGE, 1) == NULL);
    CHECK(vb_memory_heap_alloc(heap, vb_memory_heap_size(heap), 1) == NULL);
    vb_memory_heap_destroy(heap);
}

static void test_a_peer_finds_the_bytes_in_the_file(void)
{
    struct vb_heap *heap = heap_of(16 * MIB);
    char *block = vb_memory_heap_alloc(heap, 3 * VB_HEAP_PAGE, 1);

    strcpy(block + VB_HEAP_PAGE, "seen");
    char *mapped = mmap(NULL, 16 * MIB, PROT_READ, MAP_SHARED, vb_memory_heap_fd(heap), 0);
    CHECK(mapped != MAP_FAILED);
    CHECK(strcmp(mapped + vb_memory_heap_offset(heap, block + VB_HEAP_PAGE), "seen") == 0);
    CHECK(vb_memory_heap_contains(heap, block, 3 * VB_HEAP_PAGE));
    CHECK(!vb_memory_heap_contains(heap, block, 32 * MIB));
    CHECK(!vb_memory_heap_contains(heap, mapped, 1));
    munmap(mapped, 16 * MIB);
    vb_memory_heap_destroy(heap);
}

static void test_a_peer_cannot_shorten_the_file(void)
{
    struct vb_heap *heap = heap_of(16 * MIB);

    CHECK_EQ(ftruncate(vb_memory_heap_fd(heap), 0), -1);
    CHECK_EQ(errno, EPERM);
    CHECK_EQ(fcntl(vb_memory_heap_fd(heap), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    vb_memory_heap_destroy(heap);
}

static void test_a_descriptor_that_the_program_closed_is_noticed(void)
{
    struct vb_heap *heap = heap_of(16 * MIB);
    int fd = vb_memory_heap_fd(heap);

    close(fd);
    CHECK_EQ(vb_memory_heap_fd(heap), -EBADF);
    CHECK_EQ(open("/dev/null", O_RDONLY), fd);
    CHECK_EQ(vb_memory_heap_fd(heap), -EBADF);
    void *block = vb_memory_heap_alloc(heap, MIB, 1);
    CHECK_EQ(vb_memory_heap_free(heap, block), 0);
    vb_memory_heap_destroy(heap);
    CHECK_EQ(fcntl(fd, F_GETFD), 0); /* the program's own, left open */
    close(fd);
}

// ---- resize -----------------------------------------------------------------------------------

static void test_resize_in_place(void)
{
    struct vb_heap *heap = heap_of(16 * MIB);
    unsigned char *block = vb_memory_heap_alloc(heap, MIB, 1);

    memset(block, 5, MIB);
    CHECK_EQ(vb_memory_heap_resize(heap, block, 4 * MIB - 1), 0);
    CHECK_EQ(vb_memory_heap_usable(heap, block), 4 * MIB);
    CHECK(all_are(block, MIB, 5) && all_are(block + MIB, 3 * MIB, 0));
    memset(block, 6, 4 * MIB);
    CHECK_EQ(vb_memory_heap_resize(heap, block, 3 * VB_HEAP_PAGE), 0);
    CHECK_EQ(resident(heap), 3 * VB_HEAP_PAGE);
    CHECK_EQ(vb_memory_heap_resize(heap, block, MIB), 0);
    CHECK(all_are(block, 3 * VB_HEAP_PAGE, 6));
    CHECK(all_are(block + 3 * VB_HEAP_PAGE, MIB - 3 * VB_HEAP_PAGE, 0));
    CHECK_EQ(vb_memory_heap_free(heap, block), 0);
    CHECK(vb_memory_heap_alloc(heap, 16 * MIB, 1) != NULL);
    vb_memory_heap_destroy(heap);
}

/* Blocks of this size until there is no room for one more. */
static int count_that_fit(struct vb_heap *heap, size_t size)
{
    int count = 0;

    while (vb_memory_heap_alloc(heap, size, 1))
        ++count;
    return count;
}

/* What a block no longer needs is given to others, and only that. */
static void test_a_smaller_block_makes_room(void)
{
    for (size_t half = VB_HEAP_PAGE; half <= 4 * MIB; half *= 2) {
        struct vb_heap *heap = heap_of(16 * MIB);
        unsigned char *block = vb_memory_heap_alloc(heap, 2 * half, 1);

        CHECK(block != NULL);
        memset(block, 1, 2 * half);
        while (vb_memory_heap_alloc(heap, 2 * half, 1))
            ;
        CHECK_EQ(count_that_fit(heap, half), 0);
        CHECK_EQ(vb_memory_heap_resize(heap, block, half + 1), 0);
        CHECK_EQ(count_that_fit(heap, half), 0);
        CHECK_EQ(vb_memory_heap_resize(heap, block, half), 0);
        CHECK_EQ(vb_memory_heap_resize(heap, block, half), 0);
        CHECK_EQ(count_that_fit(heap, half), 1);
        CHECK(all_are(block, half, 1));
        CHECK_EQ(vb_memory_heap_resize(heap, block, half + 1), -ENOMEM);
        CHECK_EQ(vb_memory_heap_resize(heap, block, (size_t)1 << 50), -ENOMEM);
        CHECK_EQ(vb_memory_heap_usable(heap, block), half);
        CHECK_EQ(vb_memory_heap_resize(heap, block, 1), 0);
        CHECK_EQ(vb_memory_heap_usable(heap, block), VB_HEAP_PAGE);
        vb_memory_heap_destroy(heap);
    }
}

static void test_resize_refuses_what_would_have_to_move(void)
{
    struct vb_heap *heap = heap_of(16 * MIB);
    void *block = vb_memory_heap_alloc(heap, MIB, 1),
         *neighbour = vb_memory_heap_alloc(heap, MIB, 1);

    CHECK_EQ(vb_memory_heap_resize(heap, block, MIB + 1), -ENOMEM);
    CHECK_EQ(vb_memory_heap_usable(heap, block), MIB);
    vb_memory_heap_free(heap, neighbour);
    CHECK_EQ(vb_memory_heap_resize(heap, block, MIB + 1), 0);
    vb_memory_heap_destroy(heap);
}

// ---- against a model --------------------------------------------------------------------------

struct piece {
    unsigned char *at;
    size_t pages;
};

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void mark(const struct piece *piece, int value)
{
    for (size_t i = 0; i < piece->pages; i++)
        piece->at[i * VB_HEAP_PAGE] = (unsigned char)value;
}

static void check_marked(const struct piece *piece, int value)
{
    for (size_t i = 0; i < piece->pages; i++)
        CHECK_EQ(piece->at[i * VB_HEAP_PAGE], value);
}

static void resize_piece(struct vb_heap *heap, struct piece *piece, size_t pages, int value)
{
    if (vb_memory_heap_resize(heap, piece->at, pages * VB_HEAP_PAGE) == 0) {
        for (size_t i = piece->pages; i < pages; i++)
            CHECK_EQ(piece->at[i * VB_HEAP_PAGE], 0);
        piece->pages = pages;
        mark(piece, value);
    }
}

static void step(struct vb_heap *heap, struct piece *piece, int value, unsigned random)
{
    size_t pages = 1 + random % 90;

    if (piece->at && random % 3 == 0) {
        resize_piece(heap, piece, pages, value);
    } else if (piece->at) {
        check_marked(piece, value);
        CHECK_EQ(vb_memory_heap_free(heap, piece->at), 0);
        piece->at = NULL;
    } else if ((piece->at = vb_memory_heap_alloc(heap, pages * VB_HEAP_PAGE, 1))) {
        piece->pages = pages;
        check_marked(piece, 0);
        mark(piece, value);
    }
}

struct churn {
    struct vb_heap *heap;
    unsigned seed;
};

/* Every page carries its block's number: two blocks that overlap would show. */
static void *churn(void *argument)
{
    const struct churn *churn = argument;
    struct piece pieces[60] = {0};
    unsigned state = churn->seed;

    for (int i = 0; i < 6000; i++) {
        unsigned k = next_random(&state) % 60;
        step(churn->heap, &pieces[k], (int)(1 + (k + churn->seed * 60) % 250), next_random(&state));
    }
    for (int k = 0; k < 60; k++)
        if (pieces[k].at)
            CHECK_EQ(vb_memory_heap_free(churn->heap, pieces[k].at), 0);
    return NULL;
}

static void test_blocks_never_overlap_under_threads(void)
{
    struct vb_heap *heap = heap_of(32 * MIB);
    struct churn churns[4];
    pthread_t threads[4];

    for (unsigned i = 0; i < 4; i++) {
        churns[i] = (struct churn){heap, i};
        CHECK_EQ(pthread_create(&threads[i], NULL, churn, &churns[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(vb_memory_heap_used(heap), 0);
    vb_memory_heap_trim(heap);
    CHECK_EQ(resident(heap), 0);
    CHECK(vb_memory_heap_alloc(heap, 32 * MIB, 1) != NULL);
    vb_memory_heap_destroy(heap);
}

// ---- the tree of pages against a list of them ---------------------------------------------------

enum { TOP = 6, PAGES = 1 << TOP };

struct model {
    unsigned char lacks[VB_BUDDY_BYTES(TOP)];
    struct vb_buddy buddy;
    int order[PAGES]; /* of the block that begins there; -1: none does */
};

static bool is_free(const struct model *model, size_t page)
{
    for (size_t at = 0; at < PAGES; at++)
        if (model->order[at] >= 0 && page >= at && page < at + ((size_t)1 << model->order[at]))
            return false;
    return true;
}

static bool are_free(const struct model *model, size_t page, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!is_free(model, page + i))
            return false;
    return true;
}

/* The order of the largest free block in the 2^order pages from `page` on; -1: there is none. */
static int largest_in(const struct model *model, size_t page, unsigned order)
{
    int left, right;

    if (are_free(model, page, (size_t)1 << order))
        return (int)order;
    if (order == 0)
        return -1;
    left = largest_in(model, page, order - 1);
    right = largest_in(model, page + ((size_t)1 << (order - 1)), order - 1);
    return left > right ? left : right;
}

/* Of two halves that both have room, the one whose largest free block is smaller; then the first.
 */
static size_t place_for(const struct model *model, unsigned wanted)
{
    size_t page = 0;

    if (largest_in(model, 0, TOP) < (int)wanted)
        return VB_BUDDY_NONE;
    for (unsigned order = TOP; order-- > wanted;) {
        size_t half = page + ((size_t)1 << order);
        int left = largest_in(model, page, order), right = largest_in(model, half, order);

        if (left < (int)wanted || (right >= (int)wanted && right < left))
            page = half;
    }
    return page;
}

static void resize_in_model(struct model *model, size_t page, unsigned wanted)
{
    unsigned order = (unsigned)model->order[page];
    size_t behind = page + ((size_t)1 << order), end = page + ((size_t)1 << wanted);

    if (wanted > order) {
        bool room = page % ((size_t)1 << wanted) == 0 && wanted <= TOP &&
                    are_free(model, behind, end - behind);

        CHECK_EQ(vb_memory_buddy_grow(&model->buddy, page, order, wanted), room);
        wanted = room ? wanted : order;
    } else if (wanted < order) {
        vb_memory_buddy_shrink(&model->buddy, page, wanted);
    }
    model->order[page] = (int)wanted;
}

static void change_model(struct model *model, unsigned random)
{
    size_t page = random % PAGES;
    unsigned order = random / PAGES % (TOP + 2), way = random / 1024 % 4;

    if (model->order[page] >= 0 && way == 0) {
        resize_in_model(model, page, order);
    } else if (model->order[page] >= 0 && way < 3) {
        vb_memory_buddy_give(&model->buddy, page, (unsigned)model->order[page]);
        model->order[page] = -1;
    } else {
        page = place_for(model, order);
        CHECK(vb_memory_buddy_take(&model->buddy, order) == page);
        if (page != VB_BUDDY_NONE)
            model->order[page] = (int)order;
    }
}

static void test_blocks_of_pages_are_where_a_search_would_put_them(void)
{
    static struct model model = {.buddy.top = TOP};
    unsigned random = 1;

    model.buddy.lacks = model.lacks;
    memset(model.order, -1, sizeof model.order);
    for (int i = 0; i < 20000; i++) {
        change_model(&model, next_random(&random));
        for (size_t page = 0; page < PAGES; page++)
            CHECK_EQ(vb_memory_buddy_order_at(&model.buddy, page), model.order[page]);
    }
}

/* As many as there are slots, the oldest of which goes first, and the youngest of an order. */
static void test_kept_blocks_go_in_turn(void)
{
    struct vb_kept kept = {.limit = 1000};
    struct vb_kept_block block;

    CHECK(!vb_memory_kept_expel(&kept, 0, &block));
    for (unsigned i = 0; i < VB_KEPT_SLOTS; i++) {
        block = (struct vb_kept_block){.page = 100 + i, .pages = i + 1, .order = i % 2};
        CHECK(vb_memory_kept_push(&kept, &block));
    }
    CHECK(!vb_memory_kept_push(&kept, &block));
    CHECK_EQ(kept.pages, VB_KEPT_SLOTS * (VB_KEPT_SLOTS + 1) / 2);
    CHECK(vb_memory_kept_expel(&kept, kept.pages, &block)); /* no slot is free */
    CHECK_EQ(block.page, 100);
    CHECK(!vb_memory_kept_expel(&kept, kept.pages, &block));
    CHECK(vb_memory_kept_take(&kept, 0, &block));
    CHECK_EQ(block.page, 100 + VB_KEPT_SLOTS - 2);
    CHECK(!vb_memory_kept_take(&kept, 2, &block));
    CHECK(vb_memory_kept_expel(&kept, kept.pages - 1, &block));
    CHECK_EQ(block.page, 101);
    CHECK(vb_memory_kept_wants(&kept, 500) && !vb_memory_kept_wants(&kept, 501));
    while (vb_memory_kept_expel(&kept, 0, &block))
        ;
    CHECK_EQ(kept.pages, 0);
    CHECK_EQ(kept.count, 0);
}

// ---- limits -------------------------------------------------------------------------------

static void wait_for(pid_t child)
{
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

static void limit_and_create(int resource, rlim_t limit)
{
    const struct rlimit limits = {limit, limit};
    struct vb_heap *heap = NULL;
    int descriptors = entries(DESCRIPTORS);

    CHECK_EQ(setrlimit(resource, &limits), 0);
    if (resource == RLIMIT_AS) /* most of it is in use, so that the first sizes do not fit */
        CHECK(mmap(NULL, limit - 128ull * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
              MAP_FAILED);
    CHECK_EQ(vb_memory_heap_create(0, &heap), 0);
    CHECK_EQ(entries(DESCRIPTORS), descriptors + 1); /* those of sizes that were tried are closed */
    CHECK(vb_memory_heap_size(heap) <= limit);
    CHECK(vb_memory_heap_alloc(heap, 8 * MIB, 1) != NULL);
    _exit(0);
}

static void test_limits_of_the_process_make_it_smaller(void)
{
    const rlim_t gibibyte = (rlim_t)1 << 30;
    const struct {
        int resource;
        rlim_t limit;
    } limits[] = {{RLIMIT_FSIZE, gibibyte}, {RLIMIT_AS, 2 * gibibyte}};

    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        if (sanitized && limits[i].resource == RLIMIT_AS)
            continue; /* the sanitizer's own address space is larger */
        pid_t child = fork();
        if (child == 0)
            limit_and_create(limits[i].resource, limits[i].limit);
        wait_for(child);
    }
}

static void test_no_descriptor_left_is_an_error(void)
{
    pid_t child = fork();

    if (child == 0) {
        const struct rlimit none = {0, 0};
        struct vb_heap *heap = NULL;
        setrlimit(RLIMIT_NOFILE, &none);
        CHECK_EQ(vb_memory_heap_create(0, &heap), -EMFILE);
        _exit(0);
    }
    wait_for(child);
}

// ---- descriptors ------------------------------------------------------------------------------

/* Only these numbers are in use from now on, each by /dev/null, and none but those below `limit`
 * can be; -1 ends the list. */
static void have_open(const int *numbers, rlim_t limit)
{
    const struct rlimit rest = {limit, 64};

    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &(struct rlimit){64, 64}), 0);
    for (int fd = 0; fd < 64; fd++)
        close(fd);
    for (int fd = 0; fd < (int)limit; fd++)
        CHECK_EQ(open("/dev/null", O_RDONLY), fd);
    for (int fd = 0; fd < (int)limit; fd++) {
        if (*numbers == fd)
            numbers++;
        else
            close(fd);
    }
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &rest), 0);
}

static unsigned open_numbers(void)
{
    unsigned numbers = 0;

    for (int fd = 0; fd < 16; fd++)
        numbers |= fcntl(fd, F_GETFD) >= 0 ? 1u << fd : 0;
    return numbers;
}

/* Those of the standard streams move to the first free number from 3 on, others stay. */
static void raise_each(void)
{
    static const int all[] = {0, 1, 2, 3, 5, -1}, streams[] = {0, 1, 2, -1};
    static const int full[] = {0, 1, 2, 3, -1};

    CHECK_EQ(vb_memory_descriptor_raise(-1), -1);
    for (int fd = 0; fd < 6; fd++) {
        have_open(all, 16);
        if (fd == 4)
            continue;
        CHECK_EQ(vb_memory_descriptor_raise(fd), fd < 3 ? 4 : fd);
        CHECK_EQ(open_numbers(), fd < 3 ? (0x2fu & ~(1u << fd)) | 0x10 : 0x2f);
        CHECK_EQ(fcntl(4, F_GETFD), fd < 3 ? FD_CLOEXEC : -1);
        have_open(streams, 16);
        CHECK_EQ(vb_memory_descriptor_raise(fd), fd < 3 ? 3 : fd);
        have_open(full, 4);
        errno = 0;
        CHECK_EQ(vb_memory_descriptor_raise(fd), fd < 3 ? -1 : fd);
        CHECK_EQ(errno, fd < 3 ? EMFILE : 0);
        CHECK_EQ(open_numbers(), fd < 3 ? 0xfu & ~(1u << fd) : 0xf);
    }
}

/* In a child without standard streams, whose numbers come first; it cannot print. */
static void make_pipes(void)
{
    static const struct {
        int open[5];
        rlim_t limit;
        int error;
        unsigned after;
    } cases[] = {
        {{-1}, 16, 0, 0x18},                 /* 0 and 1, which move to 3 and 4 */
        {{0, 2, -1}, 16, 0, 0x1d},           /* 1 and 3: only the first one moves */
        {{0, 1, 2, -1}, 16, 0, 0x1f},        /* neither does */
        {{-1}, 5, 0, 0x18},                  /* 3 and 4 are the last numbers */
        {{-1}, 4, -EMFILE, 0},               /* 3 is the last, for the first one alone */
        {{3, -1}, 4, -EMFILE, 8},            /* for neither */
        {{1, 2, -1}, 4, -EMFILE, 6},         /* the second one has it, and the first cannot move */
        {{0, 1, 2, -1}, 4, -EMFILE, 7},      /* one end alone */
        {{0, 1, 2, 3, -1}, 4, -EMFILE, 0xf}, /* none */
    };
    int ends[2];
    char byte = 0;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        have_open(cases[i].open, cases[i].limit);
        CHECK_EQ(vb_memory_descriptor_pipe(ends), cases[i].error);
        CHECK_EQ(open_numbers(), cases[i].after);
        if (cases[i].error)
            continue;
        CHECK(fcntl(ends[0], F_GETFD) == FD_CLOEXEC && fcntl(ends[1], F_GETFD) == FD_CLOEXEC);
        CHECK(ends[0] > STDERR_FILENO && ends[1] > STDERR_FILENO);
        CHECK_EQ(write(ends[1], "x", 1), 1);
        CHECK(read(ends[0], &byte, 1) == 1 && byte == 'x');
    }
}

static void without_streams(void)
{
    raise_each();
    make_pipes();
    _exit(0);
}

static void test_descriptors_leave_the_standard_streams_alone(void)
{
    pid_t child = fork();

    if (child == 0)
        without_streams();
    wait_for(child);
}

/* The address space that a process may have is shared out; without a limit all is as wanted. */
static void test_address_space_is_shared_out(void)
{
    const size_t wanted = (size_t)1 << 40;
    struct rlimit before, space;

    CHECK_EQ(getrlimit(RLIMIT_AS, &before), 0);
    space = before;
    if (before.rlim_cur == RLIM_INFINITY)
        CHECK_EQ(vb_memory_heap_within_space(wanted, 4), wanted);
    if (before.rlim_max < (rlim_t)1 << 46)
        return;
    space.rlim_cur = (rlim_t)1 << 46; /* more than a sanitizer has of its own */
    CHECK_EQ(setrlimit(RLIMIT_AS, &space), 0);
    CHECK_EQ(vb_memory_heap_within_space(wanted, 64), wanted);
    CHECK_EQ(vb_memory_heap_within_space(wanted, 65), wanted / 2);
    CHECK_EQ(vb_memory_heap_within_space(wanted, 256), wanted / 4);
    CHECK_EQ(setrlimit(RLIMIT_AS, &before), 0);
}

/* Of a size that the system does not give: the error, and no descriptor is left. */
static void test_a_file_that_cannot_be(void)
{
    int before = dup(0);

    CHECK_EQ(vb_memory_heap_file((size_t)1 << 63), -EINVAL);
    CHECK_EQ(close(before), 0);
    CHECK_EQ(dup(0), before);
    CHECK_EQ(close(before), 0);
}

int main(void)
{
    RUN(test_address_space_is_shared_out);
    RUN(test_a_block_is_zeroed_aligned_and_known);
    RUN(test_every_alignment_up_to_the_largest);
    RUN(test_untouched_memory_costs_nothing_and_freed_memory_returns);
    RUN(test_freed_memory_reads_as_zeros_when_it_is_given_again);
    RUN(test_a_freed_block_waits_for_the_next_of_its_size);
    RUN(test_freed_blocks_keep_no_more_than_a_16th);
    RUN(test_many_small_freed_blocks_are_kept_too);
    RUN(test_memory_that_the_program_locked_can_be_freed);
    RUN(test_a_pointer_that_is_no_block_is_refused);
    RUN(test_exhaustion_is_enomem_and_all_of_it_comes_back);
    RUN(test_small_blocks_leave_the_large_ones_whole);
    RUN(test_no_request_is_larger_than_memory_could_hold);
    RUN(test_a_peer_finds_the_bytes_in_the_file);
    RUN(test_a_peer_cannot_shorten_the_file);
    RUN(test_a_descriptor_that_the_program_closed_is_noticed);
    RUN(test_resize_in_place);
    RUN(test_a_smaller_block_makes_room);
    RUN(test_resize_refuses_what_would_have_to_move);
    RUN(test_blocks_of_pages_are_where_a_search_would_put_them);
    RUN(test_kept_blocks_go_in_turn);
    RUN(test_blocks_never_overlap_under_threads);
    RUN(test_limits_of_the_process_make_it_smaller);
    RUN(test_no_descriptor_left_is_an_error);
    RUN(test_descriptors_leave_the_standard_streams_alone);
    RUN(test_a_file_that_cannot_be);
    return 0;
}
