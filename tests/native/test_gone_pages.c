// SPDX-License-Identifier: Apache-2.0
/*
 * Which requests may use a region some of whose pages are unmapped, as the host is told of changes
 * to the mappings: after each of many random changes, against a model with two flags for each page.
 * The memory itself stays mapped, since the check looks at what was told alone.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "end.h"
#include "hca/gone.h"
#include "loopback.h"
#include "memory/heap.h"
#include "memory/watch.h"

enum { PAGE = 4096, PAGES = 300, REGIONS = 6, ROUNDS = 6000, NOWHERE = 16 << 20 };

static struct loopback loop;
static uint8_t *memory;
static uint64_t state = 611;

static uint64_t draw(uint64_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

/* ---- the model ------------------------------------------------------------------------------- */

struct modelled {
    uint64_t offset, length; /* in `memory` */
    uint64_t iova;           /* of its first byte; 0: its address */
    struct vb_mr *mr;
    bool gone[PAGES], going[PAGES];
};

/* Some end and begin within one page, or have one byte of it. */
static struct modelled regions[REGIONS] = {
    {.offset = 0, .length = 64 * PAGE},
    {.offset = 64 * PAGE + 1000, .length = 100, .iova = 0x7000},
    {.offset = 64 * PAGE + 2000, .length = 65 * PAGE},
    {.offset = 140 * PAGE - 1, .length = 129 * PAGE + 2, .iova = 5},
    {.offset = 150 * PAGE, .length = 1},
    {.offset = 270 * PAGE, .length = 29 * PAGE + 1},
};

static bool overlap(uint64_t low, uint64_t high, uint64_t from, uint64_t to)
{
    return low < to && from < high;
}

/* Sets the flags of the pages of the region that have bytes in [low, high). */
static void set_pages(struct modelled *of, bool *flags, uint64_t low, uint64_t high, bool value)
{
    for (uint64_t page = 0; page < PAGES; ++page) {
        uint64_t from = page * PAGE, to = from + PAGE;

        from = from < of->offset ? of->offset : from;
        to = to > of->offset + of->length ? of->offset + of->length : to;
        if (from < to && overlap(low, high, from, to))
            flags[page] = value;
    }
}

/* Returns whether a region is there. */
static bool change_model(uint64_t low, uint64_t n, enum vb_mapping change)
{
    uint64_t high = change == VB_MAPPING_FREED ? low + n : (low + n + PAGE - 1) / PAGE * PAGE;
    bool met = change == VB_MAPPING_WENT || change == VB_MAPPING_STAYED; /* not looked at then */

    for (int i = 0; i < REGIONS; ++i) {
        struct modelled *of = &regions[i];

        if (!overlap(low, high, of->offset, of->offset + of->length))
            continue;
        met = true;
        if (change == VB_MAPPING_GOES)
            set_pages(of, of->going, low, high, true);
        if (change == VB_MAPPING_WENT || change == VB_MAPPING_LOST)
            set_pages(of, of->gone, low, high, true);
        if (change == VB_MAPPING_WENT || change == VB_MAPPING_STAYED || change == VB_MAPPING_LOST)
            set_pages(of, of->going, low, high, false);
    }
    return met;
}

static enum vb_check expected(const struct modelled *of, uint64_t at, uint64_t length)
{
    for (uint64_t page = at / PAGE; length && page <= (at + length - 1) / PAGE; ++page)
        if (of->gone[page] || of->going[page])
            return VB_CHECK_MEMORY_GONE;
    return VB_CHECK_OK;
}

/* ---- the regions ----------------------------------------------------------------------------- */

static const struct vb_view *view(void)
{
    return &loop.host->adapter.self;
}

static struct vb_mr *reg(uint64_t offset, uint64_t length, uint64_t iova, unsigned access)
{
    struct vb_mr *mr;
    uint8_t *at = memory + offset;

    CHECK_EQ(vb_mr_reg(loop.pd, at, length, iova ? iova : (uintptr_t)at, access, &mr), 0);
    return mr;
}

static enum vb_check check_of(const struct vb_mr *mr, uint64_t iova, uint64_t length, uint32_t need)
{
    const struct vb_mr_shared *entry;

    return vb_mr_check(view(), loop.pd->number, mr->ibv.lkey, iova, length, need, &entry);
}

static void expect_check(const struct modelled *of, uint64_t at, uint64_t length)
{
    uint64_t first = of->iova ? of->iova : (uintptr_t)memory + of->offset;

    CHECK_EQ(check_of(of->mr, first + (at - of->offset), length, 0), expected(of, at, length));
}

/* The first and the last byte of each page, and all from each page on to a few others. */
static void expect_model(const struct modelled *of)
{
    uint64_t end = of->offset + of->length;

    expect_check(of, of->offset, of->length);
    expect_check(of, of->offset, 0);
    expect_check(of, end, 0);
    for (uint64_t at = of->offset; at < end; at = (at / PAGE + 1) * PAGE) {
        uint64_t next = (at / PAGE + 1) * PAGE, last = (next < end ? next : end) - 1;
        uint64_t to = at + 1 + draw(end - at);

        expect_check(of, at, 1);
        expect_check(of, last, 1);
        expect_check(of, at, last + 1 - at);
        expect_check(of, at, to - at);
        if (last + 1 < end)
            expect_check(of, last, 2);
    }
}

static bool told(uint64_t low, uint64_t n, enum vb_mapping change)
{
    return vb_gone_mapping(&loop.host->adapter, (uintptr_t)memory + low, n, change);
}

static void change_both(uint64_t low, uint64_t n, enum vb_mapping change)
{
    uint64_t epoch = vb_mr_epoch(view());
    bool met = change_model(low, n, change);
    bool announces = change != VB_MAPPING_WENT && change != VB_MAPPING_STAYED;

    CHECK_EQ(told(low, n, change), met);
    /* what queues remember of regions holds no longer if a region was there */
    CHECK_EQ(vb_mr_epoch(view()) != epoch, met && announces);
}

static void forget_model(struct modelled *of)
{
    memset(of->gone, 0, sizeof(of->gone));
    memset(of->going, 0, sizeof(of->going));
}

/* A region that is registered anew has pages that are all there. */
static void register_again(struct modelled *of)
{
    if (of->mr)
        CHECK_EQ(vb_mr_dereg(of->mr), 0);
    of->mr = reg(of->offset, of->length, of->iova, IBV_ACCESS_LOCAL_WRITE);
    forget_model(of);
}

static void open_all(void)
{
    vb_memory_watch_begin();
    loopback_open(&loop, IBV_QPT_RC);
    memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
}

static void close_all(void)
{
    loopback_close(&loop);
    munmap(memory, PAGES * PAGE);
}

/* ---- the model holds ------------------------------------------------------------------------- */

/* What was announced and has neither happened nor been refused; threads may do so at once. */
static struct {
    uint64_t low, n;
} announced[3];
static uint64_t open_announcements;

static void announce(uint64_t low, uint64_t n)
{
    announced[open_announcements].low = low;
    announced[open_announcements++].n = n;
    change_both(low, n, VB_MAPPING_GOES);
}

static void settle_one(enum vb_mapping change)
{
    uint64_t which = draw(open_announcements);

    change_both(announced[which].low, announced[which].n, change);
    announced[which] = announced[--open_announcements];
}

static void change_something(void)
{
    uint64_t page = draw(PAGES), pages = draw(4) ? draw(3) : draw(PAGES - page);
    uint64_t low = page * PAGE, n = pages * PAGE + 1 + draw(PAGE);

    if (page + pages >= PAGES)
        n = PAGE;
    if (!draw(8))
        change_both(low, n, VB_MAPPING_LOST);
    else if (open_announcements == 3 || (open_announcements && draw(2)))
        settle_one(draw(3) ? VB_MAPPING_STAYED : VB_MAPPING_WENT);
    else
        announce(low, n);
}

static void begin_again(void)
{
    open_announcements = 0;
    for (int i = 0; i < REGIONS; ++i)
        register_again(&regions[i]);
}

static void each_change_marks_its_pages(void)
{
    size_t used;

    open_all();
    used = vb_memory_heap_used(loop.host->adapter.segment);
    for (int round = 0; round < ROUNDS; ++round) {
        if (round % 40 == 0)
            begin_again();
        change_something();
        for (int i = 0; i < REGIONS; ++i)
            expect_model(&regions[i]);
    }
    for (int i = 0; i < REGIONS; ++i)
        CHECK_EQ(vb_mr_dereg(regions[i].mr), 0);
    /* their maps are freed */
    CHECK_EQ(vb_memory_heap_used(loop.host->adapter.segment), used);
    close_all();
}

/* ---- one region ------------------------------------------------------------------------------ */

static struct vb_mr *begin(uint64_t offset, uint64_t length, unsigned access)
{
    open_all();
    return reg(offset, length, 0, access);
}

static bool has_moved(const struct vb_mr *mr)
{
    return view()->mr[mr->index].access & VB_ACCESS_MOVED;
}

/* What is protected or freed is still mapped; but nothing waits for a poll there from then on. */
static void protecting_and_freeing_take_no_page_away(void)
{
    static const struct {
        enum vb_mapping change;
        uint64_t low, n;
        bool met;
    } cases[] = {
        {VB_MAPPING_PROTECTED, 0, PAGE, false},
        {VB_MAPPING_PROTECTED, 0, PAGE + 1, true}, /* whole pages are protected */
        {VB_MAPPING_PROTECTED, PAGE, 1, true},
        {VB_MAPPING_PROTECTED, 2 * PAGE, PAGE, true},
        {VB_MAPPING_PROTECTED, 3 * PAGE, PAGE, false},
        {VB_MAPPING_FREED, 0, PAGE + 100, false}, /* and bytes are freed */
        {VB_MAPPING_FREED, 0, PAGE + 101, true},
        {VB_MAPPING_FREED, 3 * PAGE - 1, 1, true},
        {VB_MAPPING_FREED, 3 * PAGE, 100, false},
        {VB_MAPPING_FREED, 3 * PAGE - 1, SIZE_MAX, true},
        {VB_MAPPING_FREED, 3 * PAGE, SIZE_MAX, false},
        {VB_MAPPING_PROTECTED, 3 * PAGE - PAGE, SIZE_MAX, true},
        {VB_MAPPING_PROTECTED, 3 * PAGE, SIZE_MAX, false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        struct vb_mr *mr = begin(PAGE + 100, 2 * PAGE - 100, 0);
        uint64_t epoch = vb_mr_epoch(view());

        CHECK_EQ(told(cases[i].low, cases[i].n, cases[i].change), cases[i].met);
        CHECK_EQ(has_moved(mr), cases[i].met);
        CHECK_EQ(vb_mr_epoch(view()) != epoch, cases[i].met);
        CHECK_EQ(check_of(mr, (uintptr_t)mr->ibv.addr, 2 * PAGE - 100, 0), VB_CHECK_OK);
        close_all();
    }
}

/* Which fault of a request is told, if it has several. */
static void other_faults_of_a_request_come_first(void)
{
    struct vb_mr *mr = begin(0, 3 * PAGE, 0);
    const struct vb_mr_shared *entry;
    uint64_t at = (uintptr_t)memory;

    CHECK(told(PAGE, PAGE, VB_MAPPING_LOST));
    CHECK(has_moved(mr));
    CHECK_EQ(check_of(mr, at, 3 * PAGE, 0), VB_CHECK_MEMORY_GONE);
    CHECK_EQ(check_of(mr, at, 3 * PAGE, IBV_ACCESS_LOCAL_WRITE), VB_CHECK_ACCESS);
    CHECK_EQ(check_of(mr, at, 3 * PAGE + 1, 0), VB_CHECK_RANGE);
    CHECK_EQ(vb_mr_check(view(), loop.pd->number + 1, mr->ibv.lkey, at, 1, 0, &entry), VB_CHECK_PD);
    CHECK_EQ(check_of(mr, at, PAGE, IBV_ACCESS_LOCAL_WRITE), VB_CHECK_ACCESS);
    CHECK_EQ(check_of(mr, at, PAGE, 0), VB_CHECK_OK);
    close_all();
}

/* A region on demand follows its addresses, and memory of the shared heap is in a file. */
static void regions_that_are_not_watched_keep_their_pages(void)
{
    struct vb_mr *mr = begin(0, 3 * PAGE, IBV_ACCESS_ON_DEMAND);
    struct vb_mr *whole;

    CHECK(!told(0, 3 * PAGE, VB_MAPPING_GOES));
    CHECK_EQ(check_of(mr, (uintptr_t)memory, 3 * PAGE, 0), VB_CHECK_OK);
    whole = reg(PAGE, PAGE, 0, 0);
    CHECK_EQ(vb_mr_dereg(whole), 0);
    CHECK(!told(0, 3 * PAGE, VB_MAPPING_GOES)); /* it is nobody's any more */
    close_all();
}

static void memory_of_the_shared_heap_keeps_its_pages(void)
{
    const struct vb_mr_shared *entry;
    struct end end;

    end_open(&end, (struct end_options){.in_heap = true});
    CHECK(!vb_gone_mapping(&end.host->adapter, (uintptr_t)end.memory, END_BYTES, VB_MAPPING_LOST));
    CHECK_EQ(vb_mr_check(&end.host->adapter.self, end.pd->number, end.mr->ibv.lkey,
                         (uintptr_t)end.memory, END_BYTES, 0, &entry),
             VB_CHECK_OK);
    end_close(&end);
}

/* A forked child's mappings are its own. */
static void a_childs_changes_take_nothing_away(void)
{
    struct vb_mr *mr = begin(0, PAGE, 0);
    pid_t child = fork();
    int status;

    if (!child) {
        for (int change = VB_MAPPING_PROTECTED; change <= VB_MAPPING_LOST; ++change)
            if (told(0, PAGE, (enum vb_mapping)change))
                _exit(1);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_EQ(check_of(mr, (uintptr_t)memory, PAGE, 0), VB_CHECK_OK);
    CHECK(!has_moved(mr));
    close_all();
}

/* The end of the address space bounds what a length leads to. */
static void all_memory_may_go(void)
{
    struct vb_mr *mr = begin(0, 3 * PAGE, 0);

    CHECK(told(2 * PAGE, SIZE_MAX, VB_MAPPING_LOST));
    CHECK_EQ(check_of(mr, (uintptr_t)memory, 2 * PAGE, 0), VB_CHECK_OK);
    CHECK_EQ(check_of(mr, (uintptr_t)memory, 2 * PAGE + 1, 0), VB_CHECK_MEMORY_GONE);
    CHECK_EQ(check_of(mr, (uintptr_t)memory + 3 * PAGE - 1, 1, 0), VB_CHECK_MEMORY_GONE);
    close_all();
}

/* ---- who waits ------------------------------------------------------------------------------- */

static _Atomic int stage; /* 1: a request is under way; 2: it is about to end */

static void *be_at_a_request(void *argument)
{
    struct vb_qp *qp = argument;

    CHECK(vb_sq_trylock(qp));
    stage = 1;
    usleep(30000);
    stage = 2;
    vb_sq_unlock(qp);
    return NULL;
}

/* Returns whether the call returned only after a request that was under way. */
static bool waits(uint64_t low, uint64_t n, enum vb_mapping change)
{
    pthread_t thread;
    int left;

    stage = 0;
    CHECK_EQ(pthread_create(&thread, NULL, be_at_a_request, loop.qp[0]), 0);
    while (!stage)
        usleep(100);
    told(low, n, change);
    left = stage;
    pthread_join(thread, NULL);
    return left == 2;
}

/* It waits for requests only where some may use memory from before: each page once. */
static void who_unmaps_waits_for_requests_once(void)
{
    static const struct {
        uint64_t low, n;
        enum vb_mapping change;
        bool waits;
    } steps[] = {
        {100 * PAGE, PAGE, VB_MAPPING_GOES, false}, /* no region is there */
        {0, PAGE, VB_MAPPING_PROTECTED, true},      {0, PAGE, VB_MAPPING_PROTECTED, false},
        {2 * PAGE, PAGE, VB_MAPPING_FREED, false},  {0, PAGE, VB_MAPPING_GOES, true},
        {0, PAGE, VB_MAPPING_WENT, false},          {0, PAGE, VB_MAPPING_GOES, false},
        {0, 2 * PAGE, VB_MAPPING_GOES, true},       {0, 2 * PAGE, VB_MAPPING_STAYED, false},
        {0, 2 * PAGE, VB_MAPPING_GOES, true}, /* the second page was used again meanwhile */
        {2 * PAGE, PAGE, VB_MAPPING_LOST, false},   {2 * PAGE, PAGE, VB_MAPPING_GOES, false},
    };

    begin(0, 80 * PAGE, 0);
    loopback_connect(loop.qp[0], loop.qp[1], 7);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); ++i) {
        bool waited = waits(steps[i].low, steps[i].n, steps[i].change);

        if (waited != steps[i].waits)
            fprintf(stderr, "step %zu\n", i);
        CHECK_EQ(waited, steps[i].waits);
    }
    close_all();
}

/* ---- a map that a peer wrote ----------------------------------------------------------------- */

/* The whole region counts as gone when its map is not where a map can be. */
static void a_map_lies_in_the_segment(void)
{
    static _Alignas(VB_LINE)
        uint64_t words[64]; /* a segment of 512 bytes, all of whose bits are 0 */
    static const struct {
        uint64_t offset, pages;
        enum vb_check check;
    } cases[] = {
        {0, 1, VB_CHECK_MEMORY_GONE}, /* there is none */
        {VB_LINE, 1, VB_CHECK_OK},
        {VB_LINE + 8, 1, VB_CHECK_MEMORY_GONE},
        {VB_LINE - 1, 1, VB_CHECK_MEMORY_GONE},
        {448, 1, VB_CHECK_OK},
        {448, 4 * 64, VB_CHECK_OK},
        {448, 4 * 64 + 1, VB_CHECK_MEMORY_GONE},
        {384, 8 * 64, VB_CHECK_OK},
        {384, 8 * 64 + 1, VB_CHECK_MEMORY_GONE},
        {512, 1, VB_CHECK_MEMORY_GONE},
        {576, 1, VB_CHECK_MEMORY_GONE},
        {(uint64_t)-VB_LINE, 1, VB_CHECK_MEMORY_GONE},
    };
    const struct vb_view small = {.base = (uint8_t *)words, .size = sizeof(words)};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        struct vb_mr_shared mr = {
            .addr = NOWHERE, .length = cases[i].pages * PAGE, .heap_offset = cases[i].offset};

        CHECK_EQ(vb_gone_check(&small, &mr, NOWHERE, mr.length), cases[i].check);
        CHECK_EQ(vb_gone_check(&small, &mr, NOWHERE, 0), VB_CHECK_OK);
    }
}

/* Whatever a peer writes where the region is described, no bit outside the map is set. */
static void no_bit_is_set_outside_the_map(void)
{
    static const uint64_t to[][2] = {{0, PAGE}, {16, PAGE}, {300, PAGE}, {0, 1}};
    struct vb_mr *mr = begin(64 * PAGE, PAGE, 0);
    struct vb_mr_shared *entry = &view()->mr[mr->index];
    uint64_t *map;

    CHECK(told(64 * PAGE, PAGE, VB_MAPPING_GOES));
    CHECK(told(64 * PAGE, PAGE, VB_MAPPING_STAYED));
    map = (uint64_t *)(view()->base + entry->heap_offset);
    for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); ++i) {
        uint64_t before = map[-1];

        entry->addr = (uintptr_t)memory + to[i][0] * PAGE;
        entry->length = to[i][1];
        map[2] = 5;
        for (int change = VB_MAPPING_GOES; change <= VB_MAPPING_LOST; ++change) {
            told(64 * PAGE, PAGE, (enum vb_mapping)change);
            CHECK_EQ(map[-1], before);
            CHECK_EQ(map[2], 5);
        }
    }
    close_all();
}

/* Each page has a bit in each half of the map, and a page that is about to go counts as gone. */
static void each_page_has_its_two_bits(void)
{
    static _Alignas(VB_LINE) uint64_t words[64];
    const struct vb_view small = {.base = (uint8_t *)words, .size = sizeof(words)};
    struct vb_mr_shared mr = {.addr = NOWHERE + 7, .length = 130 * PAGE, .heap_offset = VB_LINE};

    for (uint64_t half = 0; half < 2; ++half)
        for (uint64_t page = 0; page <= 130; ++page) {
            uint64_t *word = &words[8 + half * 3 + page / 64];

            *word = 1ull << page % 64;
            for (uint64_t at = 0; at <= 130; ++at) {
                uint64_t addr = NOWHERE + at * PAGE + (at == 0) * 7;

                CHECK_EQ(vb_gone_check(&small, &mr, addr, 1) == VB_CHECK_OK, at != page);
            }
            *word = 0;
        }
}

int main(void)
{
    alarm(100);
    RUN(each_change_marks_its_pages);
    RUN(protecting_and_freeing_take_no_page_away);
    RUN(other_faults_of_a_request_come_first);
    RUN(regions_that_are_not_watched_keep_their_pages);
    RUN(memory_of_the_shared_heap_keeps_its_pages);
    RUN(a_childs_changes_take_nothing_away);
    RUN(all_memory_may_go);
    RUN(who_unmaps_waits_for_requests_once);
    RUN(a_map_lies_in_the_segment);
    RUN(no_bit_is_set_outside_the_map);
    RUN(each_page_has_its_two_bits);
    return 0;
}
