// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of regions that the program unmaps or protects. The host passes each change of a mapping
 * on (memory/watch.h), in whichever thread makes it. Its holders of the lock GONE call neither
 * malloc nor free, since the change may come from there.
 */
#include "hca/gone.h"

#include <unistd.h>

#include "memory/heap.h"

enum { PAGE = 4096, WORD = 64 };

/* ---- the map ---- */

/*
 * A region's map has two bits for each of its pages: in the first half whether the page was
 * unmapped, in the second half whether it is about to be, which the system may still refuse.
 */
static uint64_t words_of(uint64_t addr, uint64_t length)
{
    uint64_t first = addr / PAGE, last = (addr + length - 1) / PAGE;

    return (last - first) / WORD + 1;
}

/* A region and its map as they were read once, since the entry may change meanwhile. */
struct marked {
    uint64_t addr, length, words;
    _Atomic uint64_t *map; /* NULL: there is no memory for one, or a peer wrote nonsense */
};

static struct marked marked_of(const struct vb_view *view, const struct vb_mr_shared *mr)
{
    uint64_t offset = __atomic_load_n(&mr->heap_offset, __ATOMIC_ACQUIRE);
    struct marked marked = {
        .addr = __atomic_load_n(&mr->addr, __ATOMIC_RELAXED),
        .length = __atomic_load_n(&mr->length, __ATOMIC_RELAXED),
    };

    marked.words = words_of(marked.addr, marked.length);
    if (offset && offset % VB_LINE == 0 && offset <= view->size &&
        marked.words <= (view->size - offset) / (2 * sizeof(uint64_t)))
        marked.map = vb_at(view, offset, 2 * sizeof(uint64_t) * marked.words);
    return marked;
}

/* Pages `first` to `last` of a region, by their bits in the words of the map. */
struct pages {
    uint64_t first, last;
};

static uint64_t bits_in(struct pages pages, uint64_t word)
{
    uint64_t bits = UINT64_MAX;

    if (word == pages.first / WORD)
        bits &= UINT64_MAX << pages.first % WORD;
    if (word == pages.last / WORD)
        bits &= UINT64_MAX >> (WORD - 1 - pages.last % WORD);
    return bits;
}

/* The region's pages in [low, high), of which there is at least one. */
static struct pages gone_pages_of(const struct marked *mr, uint64_t low, uint64_t high)
{
    uint64_t base = mr->addr / PAGE, end = mr->addr + mr->length;

    return (struct pages){low > mr->addr ? low / PAGE - base : 0,
                          ((high < end ? high : end) - 1) / PAGE - base};
}

enum vb_check vb_gone_check(const struct vb_view *view, const struct vb_mr_shared *mr,
                            uint64_t addr, uint64_t length)
{
    const struct marked marked = marked_of(view, mr);
    struct pages pages;

    if (!length)
        return VB_CHECK_OK;
    if (!marked.map)
        return VB_CHECK_MEMORY_GONE;
    pages = gone_pages_of(&marked, addr, addr + length);
    for (uint64_t word = pages.first / WORD; word <= pages.last / WORD && word < marked.words;
         ++word)
        if ((atomic_load(&marked.map[word]) | atomic_load(&marked.map[marked.words + word])) &
            bits_in(pages, word))
            return VB_CHECK_MEMORY_GONE;
    return VB_CHECK_OK;
}

VB_COLD enum vb_check vb_mr_check_marked(const struct vb_view *view, uint32_t pd,
                                         const struct vb_mr_shared *mr, uint64_t iova,
                                         uint64_t length, uint32_t need)
{
    uint32_t marked = atomic_load_explicit(&mr->pd, memory_order_acquire);
    enum vb_check check = VB_CHECK_PD;

    if (marked == (pd | VB_PD_GONE))
        check = vb_mr_check_use(mr, iova, length, need);
    return check ? check : vb_gone_check(view, mr, mr->addr + (iova - mr->iova), length);
}

/* ---- which regions ---- */

static struct vb_mr_shared *gone_entry_of(const struct vb_mr *mr)
{
    return &mr->pd->context->adapter->self.mr[mr->index];
}

static struct vb_mr *gone_of(struct vb_range *range)
{
    return (struct vb_mr *)((char *)range - offsetof(struct vb_mr, range));
}

void vb_gone_enter(struct vb_mr *mr)
{
    struct vb_adapter *adapter = mr->pd->context->adapter;
    const struct vb_mr_shared *entry = gone_entry_of(mr);

    if (mr->kind != VB_MR_PLAIN || entry->in_heap || (entry->access & IBV_ACCESS_ON_DEMAND) ||
        !vb_memory_watch_is_on())
        return;
    mr->range.low = entry->addr;
    mr->range.high = entry->addr + entry->length;
    vb_lock_take(&adapter->gone_mutex);
    vb_memory_ranges_add(&adapter->ranges, &mr->range);
    vb_lock_release(&adapter->gone_mutex);
    mr->is_watched = true;
    vb_memory_watch_range(entry->addr, entry->length);
}

void vb_gone_leave(struct vb_mr *mr)
{
    struct vb_adapter *adapter = mr->pd->context->adapter;

    if (!mr->is_watched)
        return;
    vb_lock_take(&adapter->gone_mutex);
    vb_memory_ranges_remove(&adapter->ranges, &mr->range);
    vb_lock_release(&adapter->gone_mutex);
    mr->is_watched = false;
}

void vb_gone_forget(struct vb_mr *mr)
{
    struct vb_adapter *adapter = mr->pd->context->adapter;
    const struct vb_mr_shared *entry = gone_entry_of(mr);

    if (!entry->in_heap && entry->heap_offset)
        vb_memory_heap_free(adapter->segment, adapter->self.base + entry->heap_offset);
}

/* ---- what happens to them ---- */

/* A change of a mapping, and what was found of regions there. */
struct change {
    struct vb_adapter *adapter;
    uint64_t low, high;
    bool met;
    bool fresh;    /* some page that is about to be unmapped was still mapped */
    bool may_wait; /* a payload may wait for its poll, since no mapping there has changed before */
};

static void gone_meet(struct vb_range *range, void *with)
{
    struct change *change = with;

    (void)range;
    change->met = true;
}

static void gone_move(struct vb_range *range, void *with)
{
    struct change *change = with;
    uint32_t before = atomic_fetch_or(&gone_entry_of(gone_of(range))->access, VB_ACCESS_MOVED);

    change->met = true;
    change->may_wait |= !(before & VB_ACCESS_MOVED);
}

static void give_map(struct vb_adapter *adapter, struct vb_mr_shared *entry)
{
    uint64_t words = words_of(entry->addr, entry->length);
    void *map = vb_memory_heap_alloc(adapter->segment, 2 * words * sizeof(uint64_t), VB_LINE);

    if (map) /* without a map the whole region counts as unmapped */
        __atomic_store_n(&entry->heap_offset, vb_memory_heap_offset(adapter->segment, map),
                         __ATOMIC_RELEASE);
}

static bool gone_is_in(const struct marked *marked, struct pages pages, uint64_t word)
{
    return marked->map && word <= pages.last / WORD && word < marked->words;
}

/* Looks in the half of the map that begins at `from`. */
static void gone_set_bits(const struct marked *marked, uint64_t from, const struct change *change)
{
    struct pages pages = gone_pages_of(marked, change->low, change->high);

    for (uint64_t word = pages.first / WORD; gone_is_in(marked, pages, word); ++word)
        atomic_fetch_or(&marked->map[from + word], bits_in(pages, word));
}

static bool all_went(const struct marked *marked, const struct change *change)
{
    struct pages pages = gone_pages_of(marked, change->low, change->high);

    for (uint64_t word = pages.first / WORD; gone_is_in(marked, pages, word); ++word)
        if (bits_in(pages, word) & ~atomic_load(&marked->map[word]))
            return false;
    return true;
}

static void gone_mark(struct vb_range *range, void *with)
{
    struct change *change = with;
    struct vb_mr_shared *entry = gone_entry_of(gone_of(range));
    struct marked marked;

    if (!(atomic_load(&entry->pd) & VB_PD_GONE)) {
        give_map(change->adapter, entry);
        change->fresh = true;
    }
    marked = marked_of(&change->adapter->self, entry);
    change->fresh |= !all_went(&marked, change);
    gone_set_bits(&marked, marked.words, change);
    atomic_fetch_or(&entry->pd, VB_PD_GONE);
}

/* Marks the pages that were about to be unmapped as unmapped. */
static void gone_went(struct vb_range *range, void *with)
{
    const struct change *change = with;
    const struct vb_mr_shared *entry = gone_entry_of(gone_of(range));
    struct marked marked = marked_of(&change->adapter->self, entry);

    gone_set_bits(&marked, 0, change);
}

/* Takes back that pages are about to be unmapped. */
static void unmark(struct vb_range *range, void *with)
{
    const struct change *change = with;
    const struct vb_mr_shared *entry = gone_entry_of(gone_of(range));
    struct marked marked = marked_of(&change->adapter->self, entry);
    struct pages pages = gone_pages_of(&marked, change->low, change->high);

    for (uint64_t word = pages.first / WORD; gone_is_in(&marked, pages, word); ++word)
        atomic_fetch_and(&marked.map[marked.words + word], ~bits_in(pages, word));
}

static void gone_visit(struct change *change, vb_range_visitor *each)
{
    struct vb_adapter *adapter = change->adapter;

    vb_lock_take(&adapter->gone_mutex);
    vb_memory_ranges_visit(adapter->ranges, change->low, change->high, each, change);
    vb_lock_release(&adapter->gone_mutex);
}

/* The end of the last page: whole pages are unmapped, whatever the length is. */
static uint64_t gone_end_of(uintptr_t at, size_t n)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), end = at + n;

    return end < at || end > UINT64_MAX - page ? UINT64_MAX : (end + page - 1) & ~(page - 1);
}

/* Marks the pages as unmapped without waiting for requests, since the caller may be in Verbena and
 * hold a lock. */
static bool gone_lose(struct change *change)
{
    gone_visit(change, gone_mark);
    vb_mr_changed(&change->adapter->self);
    gone_visit(change, gone_went);
    return true;
}

bool vb_gone_mapping(struct vb_adapter *adapter, uintptr_t at, size_t n, enum vb_mapping change)
{
    struct change found = {.adapter = adapter, .low = at, .high = gone_end_of(at, n)};

    if (change == VB_MAPPING_FREED)
        found.high = at + n < at ? UINT64_MAX : at + n; /* the page has other blocks behind it */
    if (change == VB_MAPPING_FREED) {
        gone_visit(&found, gone_meet); /* first, since it finds nothing nearly always */
        if (!found.met)
            return false;
    }
    if (adapter->self.header->pid != (uint32_t)getpid())
        return false; /* the memory is a forked child's, which has no regions */
    if (change == VB_MAPPING_WENT)
        gone_visit(&found, gone_went);
    if (change == VB_MAPPING_WENT || change == VB_MAPPING_STAYED) {
        gone_visit(&found, unmark);
        return true;
    }
    gone_visit(&found, gone_move);
    if (found.met)
        vb_mr_changed(&adapter->self);
    if (change == VB_MAPPING_LOST)
        return found.met && gone_lose(&found);
    if (found.may_wait)
        vb_mr_settle(adapter);
    if (found.met && change == VB_MAPPING_GOES) {
        gone_visit(&found, gone_mark);
        vb_mr_changed(&adapter->self);
        if (found.fresh)
            vb_mr_settle(adapter);
    }
    return found.met;
}
