// SPDX-License-Identifier: Apache-2.0
/*
 * The shared heap: its file, its blocks and the search for room (heap.h). heap_fork.c has what
 * fork() needs.
 */
#include "heap_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "memory/descriptor.h"

#ifndef MFD_NOEXEC_SEAL /* Linux 6.3 */
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static const size_t kept_at_most = (size_t)64 << 20;

/* Of the address space that the process may have, where it is limited. A process maps the heaps and
 * segments (direct/direct.c) of its peers, too: as both are powers of two, those of itself and
 * of three peers with the same limit take five sixths of it at most. */
enum { ASKED_PARTS = 2, DEFAULT_PARTS = 16 };

// ---- sizes ------------------------------------------------------------------------------------

static size_t heap_pages_of(size_t bytes)
{
    return bytes / VB_HEAP_PAGE + (bytes % VB_HEAP_PAGE != 0);
}

/* The smallest order whose 2^order pages hold `pages`. */
static unsigned order_of(size_t pages)
{
    return pages <= 1 ? 0 : 64 - (unsigned)__builtin_clzll(pages - 1);
}

static size_t power_of_two(size_t bytes)
{
    unsigned order = order_of(heap_pages_of(bytes));
    return order > 50 ? SIZE_MAX / 4 + 1 : (size_t)VB_HEAP_PAGE << order;
}

static size_t memory_bytes(void)
{
    struct sysinfo info;
    return sysinfo(&info) == 0 ? info.totalram * info.mem_unit : VB_HEAP_SMALLEST;
}

static size_t memory_and_swap_bytes(void)
{
    struct sysinfo info;
    return sysinfo(&info) == 0 ? (info.totalram + info.totalswap) * info.mem_unit : SIZE_MAX;
}

size_t vb_memory_heap_within_space(size_t size, unsigned parts)
{
    struct rlimit space;

    if (getrlimit(RLIMIT_AS, &space) == 0)
        while (size > space.rlim_cur / parts && size > VB_HEAP_SMALLEST)
            size /= 2;
    return size;
}

/* No longer a file than the process may make: ftruncate beyond that limit would end it by
 * SIGXFSZ. */
static size_t within_file(size_t size)
{
    struct rlimit file;

    if (getrlimit(RLIMIT_FSIZE, &file) == 0)
        while (size > file.rlim_cur)
            size /= 2;
    return size;
}

// ---- making one -------------------------------------------------------------------------------

int vb_memory_heap_file(size_t size)
{
    int fd = vb_memory_descriptor_raise(
        memfd_create("verbena-heap", MFD_CLOEXEC | MFD_NOEXEC_SEAL | MFD_ALLOW_SEALING));

    if (fd < 0 && errno == EINVAL)
        fd = vb_memory_descriptor_raise(
            memfd_create("verbena-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)size) != 0) {
        int error = errno;
        close(fd);
        return -error;
    }
    /* A peer has the descriptor too: it must not be able to take the pages from under us. */
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    return fd;
}

ino_t vb_memory_heap_inode(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

/* valgrind shows itself to the program by what it preloads. */
bool vb_memory_heap_is_checked(void)
{
    const char *preloaded = getenv("LD_PRELOAD");

    return preloaded && strstr(preloaded, "vgpreload");
}

int vb_memory_heap_protection(void)
{
    return vb_memory_heap_is_checked() ? PROT_WRITE : PROT_READ | PROT_WRITE;
}

/* Maps the file at an aligned address: a block is aligned as far as the range itself is. */
static unsigned char *heap_map_file(int fd, size_t size)
{
    size_t room = size + VB_HEAP_ALIGN_MAX;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    unsigned char *start = mmap(NULL, room, PROT_NONE, flags, -1, 0);

    if (start == MAP_FAILED)
        return NULL;
    size_t before = -(uintptr_t)start % VB_HEAP_ALIGN_MAX;
    unsigned char *base = start + before;
    if (before)
        munmap(start, before);
    munmap(base + size, room - before - size);
    if (mmap(base, size, vb_memory_heap_protection(), MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd,
             0) == MAP_FAILED) {
        munmap(base, size);
        return NULL;
    }
    madvise(base, size, MADV_DONTDUMP); /* a core dump would touch, and so allocate, all of it */
    return base;
}

static size_t round_to_page(size_t bytes)
{
    return heap_pages_of(bytes) * VB_HEAP_PAGE;
}

/* Where what is in the private mapping begins: its tables, the page that a fork wipes, and its end.
 */
struct vb_heap_places {
    unsigned top;
    size_t tree, pages, own, end;
};

static struct vb_heap_places places_of(size_t size)
{
    struct vb_heap_places at = {.top = order_of(heap_pages_of(size))};

    at.tree = round_to_page(sizeof(struct vb_heap));
    at.pages = at.tree + round_to_page(VB_BUDDY_BYTES(at.top));
    at.own = at.pages + round_to_page(sizeof(uint32_t) << at.top);
    at.end = at.own + VB_HEAP_PAGE;
    return at;
}

size_t vb_memory_heap_private_bytes(size_t size)
{
    return places_of(size).end;
}

/* The struct, its tables and the page that a fork wipes, in one private mapping of zeros. */
static struct vb_heap *map_state(size_t size)
{
    struct vb_heap_places places = places_of(size);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    unsigned char *at = mmap(NULL, places.end, PROT_READ | PROT_WRITE, flags, -1, 0);

    if (at == MAP_FAILED)
        return NULL;
    struct vb_heap *heap = (struct vb_heap *)(void *)at;
    heap->buddy = (struct vb_buddy){at + places.tree, places.top};
    heap->pages = (uint32_t *)(void *)(at + places.pages);
    heap->own = at + places.own;
    heap->mapped = places.end;
    heap->size = size;
    madvise(at + places.own, VB_HEAP_PAGE, MADV_WIPEONFORK);
    *heap->own = 1;
    return heap;
}

void vb_memory_heap_init_lock(struct vb_heap *heap)
{
    vb_lock_init_refusing(&heap->lock, VB_RANK_HEAP);
}

static int create_sized(size_t size, struct vb_heap **out)
{
    int fd = vb_memory_heap_file(size);
    if (fd < 0)
        return fd;
    struct vb_heap *heap = map_state(size);
    unsigned char *base = heap ? heap_map_file(fd, size) : NULL;
    if (!base) {
        if (heap)
            munmap(heap, heap->mapped);
        close(fd);
        return -ENOMEM;
    }
    heap->base = base;
    heap->fd = fd;
    heap->inode = vb_memory_heap_inode(fd);
    heap->largest = heap_pages_of(memory_and_swap_bytes());
    heap->kept.limit = heap_pages_of(size / 16 < kept_at_most ? size / 16 : kept_at_most);
    vb_memory_heap_init_lock(heap);
    *out = heap;
    return 0;
}

static size_t size_by_default(void)
{
    return vb_memory_heap_is_checked() ? VB_HEAP_CHECKED : 2 * memory_bytes();
}

size_t vb_memory_heap_wanted(size_t size)
{
    return power_of_two(size ? size : size_by_default());
}

int vb_memory_heap_create(size_t size, struct vb_heap **out)
{
    size_t wanted = vb_memory_heap_wanted(size);
    size_t try =
        within_file(vb_memory_heap_within_space(wanted, size ? ASKED_PARTS : DEFAULT_PARTS));
    int error = try < VB_HEAP_PAGE ? -EFBIG : create_sized(try, out);

    while ((error == -ENOMEM || error == -EFBIG || error == -EINVAL) && try > VB_HEAP_SMALLEST) {
        try /= 2;
        error = create_sized(try, out);
    }
    return error;
}

void vb_memory_heap_destroy(struct vb_heap *heap)
{
    if (vb_memory_heap_fd(heap) >= 0)
        close(heap->fd);
    vb_lock_destroy(&heap->lock);
    munmap(heap->base, heap->size);
    munmap(heap, heap->mapped);
}

// ---- blocks -----------------------------------------------------------------------------------

bool vb_memory_heap_is_own(const struct vb_heap *heap)
{
    return *heap->own;
}

static bool heap_lock(struct vb_heap *heap)
{
    return vb_memory_heap_is_own(heap) && vb_lock_take_refusing(&heap->lock) == 0;
}

static void heap_unlock(struct vb_heap *heap)
{
    vb_lock_release(&heap->lock);
}

static size_t page_of(const struct vb_heap *heap, const void *at)
{
    return ((uintptr_t)at - (uintptr_t)heap->base) / VB_HEAP_PAGE;
}

static unsigned char *heap_address_of(const struct vb_heap *heap, size_t page)
{
    return heap->base + page * VB_HEAP_PAGE;
}

static uint32_t block_pages(const struct vb_heap *heap, size_t page)
{
    return __atomic_load_n(&heap->pages[page], __ATOMIC_ACQUIRE);
}

/* Needs the lock. */
static void set_block_pages(struct vb_heap *heap, size_t page, size_t pages)
{
    size_t used = heap->used - heap->pages[page] + pages;

    __atomic_store_n(&heap->used, used, __ATOMIC_RELAXED);
    __atomic_store_n(&heap->pages[page], (uint32_t)pages, __ATOMIC_RELEASE);
}

/* Gives the pages back and makes them read as zeros. By address: the descriptor could by now be
 * the program's. Pages that the program locked into memory have to be unlocked for it. */
static void punch(unsigned char *at, size_t bytes)
{
    if (bytes == 0 || madvise(at, bytes, MADV_REMOVE) == 0)
        return;
    munlock(at, bytes);
    if (madvise(at, bytes, MADV_REMOVE) != 0)
        memset(at, 0, bytes);
}

/* Only a block without memory may be given to others: whoever takes it expects zeros. */
static void heap_release(struct vb_heap *heap, const struct vb_kept_block *block)
{
    punch(heap_address_of(heap, block->page), block->pages * VB_HEAP_PAGE);
    if (!heap_lock(heap))
        return;
    vb_memory_buddy_give(&heap->buddy, block->page, block->order);
    heap_unlock(heap);
}

/* A block of the order, with `pages` of it in use from now on; out->pages are not zeros. */
static bool heap_take(struct vb_heap *heap, unsigned order, size_t pages, struct vb_kept_block *out)
{
    if (!heap_lock(heap))
        return false;
    bool taken = vb_memory_kept_take(&heap->kept, order, out);
    if (!taken) {
        *out = (struct vb_kept_block){.page = vb_memory_buddy_take(&heap->buddy, order),
                                      .order = order};
        taken = out->page != VB_BUDDY_NONE;
    }
    if (taken)
        set_block_pages(heap, out->page, pages);
    heap_unlock(heap);
    return taken;
}

static bool take_or_trim(struct vb_heap *heap, size_t pages, size_t align,
                         struct vb_kept_block *out)
{
    unsigned order = order_of(heap_pages_of(align) > pages ? heap_pages_of(align) : pages);

    if (pages > heap->largest || pages > UINT32_MAX || align > VB_HEAP_ALIGN_MAX)
        return false;
    if (heap_take(heap, order, pages, out))
        return true;
    vb_memory_heap_trim(heap);
    return heap_take(heap, order, pages, out);
}

/* Leaves zeros behind the pages in use, where the block may grow; *dirty of those may not be. */
static void *alloc_block(struct vb_heap *heap, size_t size, size_t align, size_t *dirty)
{
    struct vb_kept_block block;
    size_t pages = heap_pages_of(size);

    if (size == 0 || (align & (align - 1)) != 0) {
        errno = EINVAL;
        return NULL;
    }
    if (!take_or_trim(heap, pages, align, &block)) {
        errno = ENOMEM;
        return NULL;
    }
    if (block.pages > pages)
        punch(heap_address_of(heap, block.page + pages), (block.pages - pages) * VB_HEAP_PAGE);
    *dirty = block.pages < pages ? block.pages : pages;
    return heap_address_of(heap, block.page);
}

void *vb_memory_heap_alloc(struct vb_heap *heap, size_t size, size_t align)
{
    size_t dirty;
    void *block = alloc_block(heap, size, align, &dirty);

    return block ? memset(block, 0, dirty * VB_HEAP_PAGE) : NULL;
}

void *vb_memory_heap_alloc_unzeroed(struct vb_heap *heap, size_t size, size_t align)
{
    size_t dirty;
    return alloc_block(heap, size, align, &dirty);
}

/* From now on no block begins there; its pages are still taken. */
static bool retire(struct vb_heap *heap, const void *at, struct vb_kept_block *out)
{
    size_t page = page_of(heap, at);

    if (!heap_lock(heap))
        return false;
    int order = vb_memory_buddy_order_at(&heap->buddy, page);
    *out = (struct vb_kept_block){page, block_pages(heap, page), (unsigned)order};
    set_block_pages(heap, page, 0);
    heap_unlock(heap);
    return out->pages != 0;
}

static bool heap_keep(struct vb_heap *heap, const struct vb_kept_block *block)
{
    if (!vb_memory_kept_wants(&heap->kept, block->pages) || !heap_lock(heap))
        return false;
    bool kept = vb_memory_kept_push(&heap->kept, block);
    heap_unlock(heap);
    return kept;
}

static bool expel(struct vb_heap *heap, size_t allowed, struct vb_kept_block *out)
{
    if (!heap_lock(heap))
        return false;
    bool expelled = vb_memory_kept_expel(&heap->kept, allowed, out);
    heap_unlock(heap);
    return expelled;
}

static void keep_at_most(struct vb_heap *heap, size_t pages)
{
    struct vb_kept_block oldest;

    while (expel(heap, pages, &oldest))
        heap_release(heap, &oldest);
}

int vb_memory_heap_free(struct vb_heap *heap, void *block)
{
    struct vb_kept_block freed;

    if (vb_memory_heap_usable(heap, block) == 0)
        return -EINVAL;
    if (!vb_memory_heap_is_own(heap) || !retire(heap, block, &freed))
        return 0;
    if (!heap_keep(heap, &freed))
        heap_release(heap, &freed);
    keep_at_most(heap, heap->kept.limit);
    return 0;
}

void vb_memory_heap_trim(struct vb_heap *heap)
{
    keep_at_most(heap, 0);
}

/* Needs the lock. */
static bool reorder(struct vb_heap *heap, size_t page, unsigned order, unsigned wanted)
{
    if (wanted > order)
        return vb_memory_buddy_grow(&heap->buddy, page, order, wanted);
    if (wanted < order)
        vb_memory_buddy_shrink(&heap->buddy, page, wanted);
    return true;
}

static bool resize_block(struct vb_heap *heap, size_t page, size_t pages)
{
    if (!heap_lock(heap))
        return false;
    int order = vb_memory_buddy_order_at(&heap->buddy, page);
    bool done = order >= 0 && reorder(heap, page, (unsigned)order, order_of(pages));
    if (done)
        set_block_pages(heap, page, pages);
    heap_unlock(heap);
    return done;
}

int vb_memory_heap_resize(struct vb_heap *heap, void *block, size_t size)
{
    size_t before = vb_memory_heap_usable(heap, block), after = round_to_page(size);

    if (before == 0 || size == 0)
        return -EINVAL;
    if (!vb_memory_heap_is_own(heap) || heap_pages_of(size) > heap->largest ||
        heap_pages_of(size) > UINT32_MAX)
        return -ENOMEM;
    if (after < before)
        punch((unsigned char *)block + after, before - after);
    return resize_block(heap, page_of(heap, block), heap_pages_of(size)) ? 0 : -ENOMEM;
}

// ---- questions --------------------------------------------------------------------------------

static bool heap_in_range(const struct vb_heap *heap, const void *at, size_t n)
{
    uintptr_t offset = (uintptr_t)at - (uintptr_t)heap->base;
    return offset < heap->size && n <= heap->size - offset;
}

size_t vb_memory_heap_usable(const struct vb_heap *heap, const void *block)
{
    if (!heap_in_range(heap, block, 1) || (uintptr_t)block % VB_HEAP_PAGE != 0)
        return 0;
    return (size_t)block_pages(heap, page_of(heap, block)) * VB_HEAP_PAGE;
}

bool vb_memory_heap_contains(const struct vb_heap *heap, const void *at, size_t n)
{
    return heap_in_range(heap, at, n) && vb_memory_heap_is_own(heap);
}

uint64_t vb_memory_heap_offset(const struct vb_heap *heap, const void *at)
{
    return (uintptr_t)at - (uintptr_t)heap->base;
}

int vb_memory_heap_fd(const struct vb_heap *heap)
{
    return heap->inode && vb_memory_heap_inode(heap->fd) == heap->inode ? heap->fd : -EBADF;
}

size_t vb_memory_heap_size(const struct vb_heap *heap)
{
    return heap->size;
}

size_t vb_memory_heap_used(const struct vb_heap *heap)
{
    return __atomic_load_n(&heap->used, __ATOMIC_RELAXED) * VB_HEAP_PAGE;
}
