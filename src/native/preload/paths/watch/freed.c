// SPDX-License-Identifier: Apache-2.0
/*
 * free() and realloc(), which make glibc call its own munmap and brk that mappings.c does not see.
 * A block that glibc mapped for itself is reported like any mapping. The memory of another block
 * may be unmapped at any later time, so arrived data for regions in it is placed when the block is
 * freed, and from then on each call checks whether the heap has become shorter. Blocks are freed
 * at any time, also before constructors run: a block that touches no region's page costs a few
 * comparisons, and the header of another allocator's block is not read. Verbena frees its own
 * blocks while it holds locks that a report could wait for, so what Verbena or the C library frees
 * is not reported: a region may cover the page of such a block, but was not registered for it.
 */
#include <errno.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/watch.h"
#include "preload/paths/next.h"
#include "preload/paths/watch/watch.h"

typedef void free_function(void *block);

static void freed_look_up(void *block);

/* The first call sets it, before there are threads. */
static free_function *next_free = freed_look_up;
/* Both are NULL if blocks are not glibc's, or before the constructor has run. Otherwise one is set:
 * `mixed_map` with --shared-heap, where a block may have that library's header, else
 * `watched_map`. */
static const struct vb_watch_map *watched_map, *mixed_map;
/* A block was freed with a region in it, so any later call may unmap that region's memory. */
static bool heap_may_shrink;
/* A report may free memory itself, which is not reported again. */
static __thread bool is_reporting __attribute__((tls_model("initial-exec")));

/* ---- the next allocator ---- */

/* While dlsym runs, free() does nothing: dlsym frees its last error message at most. */
static void freed_keep(void *block)
{
    (void)block;
}

static void find_next(void)
{
    free_function *found;

    next_free = freed_keep;
    found = (free_function *)dlsym(RTLD_NEXT, "free");
    if (found)
        next_free = found;
}

static void freed_look_up(void *block)
{
    find_next();
    next_free(block);
}

static const void *object_of(const void *function)
{
    Dl_info info;

    return function && dladdr(function, &info) ? info.dli_fbase : NULL;
}

static const void *freed_address(free_function *function)
{
    return (const void *)(uintptr_t)function;
}

/* Returns the address of the library that has the program's allocator, behind the shared heap. */
static const void *allocator(void)
{
    const void *next = object_of(freed_address(next_free));

    if (verbena_heap_next_free &&
        next == object_of((const void *)(uintptr_t)verbena_heap_next_free))
        return object_of(verbena_heap_next_free());
    return next;
}

/* ---- which library calls ---- */

struct object {
    uintptr_t low, high;
};

/* libibverbs and the C library, whose calls are not reported. It is set before there are threads.
 */
static struct object unreported[2];

static struct object extent_of(const struct dl_phdr_info *info)
{
    struct object object = {UINTPTR_MAX, 0};

    for (int i = 0; i < info->dlpi_phnum; ++i) {
        uintptr_t low = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;

        if (info->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        object.low = low < object.low ? low : object.low;
        low += info->dlpi_phdr[i].p_memsz;
        object.high = low > object.high ? low : object.high;
    }
    return object;
}

static bool freed_is_in(const struct object *object, uintptr_t at)
{
    return at >= object->low && at < object->high;
}

static int note_unreported(struct dl_phdr_info *info, size_t size, void *context)
{
    const uintptr_t inside[] = {(uintptr_t)verbena_mapping, (uintptr_t)gnu_get_libc_version};
    struct object object = extent_of(info);

    (void)size;
    (void)context;
    for (int i = 0; i < 2; ++i)
        if (freed_is_in(&object, inside[i]))
            unreported[i] = object;
    return 0;
}

/* A call at a function's end leaves no address of its own, and so counts as its caller's. */
static bool is_unreported(const void *caller)
{
    return freed_is_in(&unreported[0], (uintptr_t)caller) ||
           freed_is_in(&unreported[1], (uintptr_t)caller);
}

__attribute__((constructor)) static void begin(void)
{
    if (next_free == freed_look_up)
        find_next();
    dl_iterate_phdr(note_unreported, NULL);
    if (verbena_watch_map &&
        allocator() == object_of((const void *)(uintptr_t)gnu_get_libc_version))
        *(verbena_heap_has ? &mixed_map : &watched_map) = verbena_watch_map();
}

/* ---- a block of glibc's ---- */

/* The word before a block is its length, with the header of two words, and these bits. */
enum { IS_MAPPED = 2, IS_OF_ARENA = 4, BITS = 7, HEADER = 2 * sizeof(size_t) };

static size_t word_before(const void *block)
{
    return ((const size_t *)block)[-1];
}

static uintptr_t freed_end_of(const void *block)
{
    return (uintptr_t)block - HEADER + (word_before(block) & ~(size_t)BITS);
}

static inline bool may_meet(const struct vb_watch_map *map, const void *block)
{
    size_t word = word_before(block);

    return heap_may_shrink || (word & IS_MAPPED) ||
           vb_memory_watch_may_meet(map, (uintptr_t)block, (word & ~(size_t)BITS) - sizeof(size_t));
}

__attribute__((noinline)) static bool may_concern_mixed(const void *block)
{
    return mixed_map && !verbena_heap_has(block) && may_meet(mixed_map, block);
}

/* It is inline so that free() and realloc() of most blocks continue with a jump, without a frame.
 */
static inline bool may_concern(const void *block)
{
    if (!block)
        return false;
    return watched_map ? may_meet(watched_map, block) : may_concern_mixed(block);
}

/* ---- memory that may be unmapped with a block ---- */

/* A block and the end of the heap as they were before the call. */
struct block {
    uintptr_t low, high;
    bool is_mapped, is_of_arena;
    bool is_reported; /* a region is there */
    const uint8_t *heap_end;
};

static void report_mapped(struct block *block)
{
    block->low &= ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    block->is_reported =
        verbena_mapping((const void *)block->low, block->high - block->low, VB_MAPPING_GOES);
}

static void report_freed(struct block *block)
{
    const struct vb_watch_map *map = watched_map ? watched_map : mixed_map;

    block->high += sizeof(size_t); /* a block's last word is in the next one's header */
    block->is_reported =
        vb_memory_watch_may_meet(map, block->low, block->high - block->low) &&
        verbena_mapping((const void *)block->low, block->high - block->low, VB_MAPPING_FREED);
    if (block->is_reported)
        __atomic_store_n(&heap_may_shrink, true, __ATOMIC_RELAXED);
}

static struct block before(const void *at)
{
    struct block block = {.low = (uintptr_t)at,
                          .high = freed_end_of(at),
                          .is_mapped = word_before(at) & IS_MAPPED,
                          .is_of_arena = word_before(at) & IS_OF_ARENA};

    is_reporting = true;
    if (block.is_mapped)
        report_mapped(&block);
    else
        report_freed(&block);
    block.heap_end = sbrk(0);
    return block;
}

static void heap_was(const uint8_t *end)
{
    const uint8_t *now;

    if (!heap_may_shrink || !end)
        return;
    now = sbrk(0);
    if (now < end)
        verbena_mapping(now, (size_t)(end - now), VB_MAPPING_LOST);
}

/* glibc unmaps an arena as a whole. */
static void arena_had(const struct block *block)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    unsigned char there;
    int error = errno;

    if (mincore((void *)(block->low & ~(page - 1)), page, &there) && errno == ENOMEM)
        verbena_mapping((const void *)block->low, block->high - block->low, VB_MAPPING_LOST);
    errno = error;
}

static void after(const struct block *block)
{
    if (block->is_reported && !block->is_mapped && block->is_of_arena)
        arena_had(block);
    heap_was(block->heap_end);
    is_reporting = false;
}

static void mapped_went(const struct block *block, uintptr_t from)
{
    if (block->is_reported && from < block->high)
        verbena_mapping((const void *)from, block->high - from, VB_MAPPING_WENT);
}

/* ---- the calls ---- */

__attribute__((noinline, cold)) static void free_reported(void *at, const void *caller)
{
    struct block block;

    if (is_reporting || is_unreported(caller)) {
        const uint8_t *end = is_reporting ? NULL : sbrk(0);

        next_free(at);
        heap_was(end);
        return;
    }
    block = before(at);
    next_free(at);
    if (block.is_mapped)
        mapped_went(&block, block.low);
    after(&block);
}

/*
 * This library's own calls of free() (the linker's --wrap). Its blocks are of the first allocator
 * of the process, which malloc() is bound to: the program's own perhaps, or a sanitizer's. The next
 * one after this library is not that.
 */
void __wrap_free(void *block);
void __wrap_free(void *block)
{
    ((free_function *)dlsym(RTLD_DEFAULT, "free"))(block);
}

VB_EXPORT void free(void *block)
{
    if (__builtin_expect(may_concern(block), 0))
        free_reported(block, __builtin_return_address(0));
    else
        next_free(block);
}

/* realloc() left a mapped block at its address; its end may be unmapped. */
static void mapped_became(const struct block *block, const void *now)
{
    uintptr_t end = freed_end_of(now);

    if (!block->is_reported)
        return;
    verbena_mapping((const void *)block->low, block->high - block->low, VB_MAPPING_STAYED);
    if (end < block->high && verbena_mapping((const void *)end, block->high - end, VB_MAPPING_GOES))
        mapped_went(block, end);
}

static void *realloc_reported(void *at, size_t size, const void *caller)
{
    uintptr_t old = (uintptr_t)at;
    struct block block;
    void *now;

    if (is_reporting || is_unreported(caller))
        return VB_NEXT(realloc)(at, size);
    block = before(at);
    now = VB_NEXT(realloc)(at, size);
    if (block.is_mapped && (now ? (uintptr_t)now == old : size != 0))
        mapped_became(&block, (const void *)old);
    else if (block.is_mapped)
        mapped_went(&block, block.low);
    after(&block);
    return now;
}

VB_EXPORT void *realloc(void *block, size_t size)
{
    return may_concern(block) ? realloc_reported(block, size, __builtin_return_address(0))
                              : VB_NEXT(realloc)(block, size);
}

VB_EXPORT int malloc_trim(size_t pad)
{
    const uint8_t *end = sbrk(0);
    int result = VB_NEXT(malloc_trim)(pad);

    heap_was(end);
    return result;
}
