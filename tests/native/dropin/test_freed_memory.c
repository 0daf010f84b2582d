// SPDX-License-Identifier: Apache-2.0
/*
 * libc gives memory under a region back to the system, and the program maps other memory at the
 * same addresses: no request touches that. Memory that libc keeps stays the region's. The calls are
 * seen where the library of `verbena run` is in front.
 */
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dropin/verbena.h"
#include "pair.h"

enum { PAGE = 4096, BYTES = 1 << 20, OLD = 3, NEW = 7 };

/* Kept from the compiler, which knows what free() does. */
static void *volatile block;

static uintptr_t page_behind(const void *at)
{
    return ((uintptr_t)at + PAGE - 1) / PAGE * PAGE;
}

/* At an address that nothing has. MAP_FIXED would itself say that the memory has gone. */
static void map_there(uint8_t *at, size_t n)
{
    CHECK(mmap(at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
               0) == at);
}

/* A WRITE of 8 bytes to that place by the region's rkey. */
static struct ibv_wc write_to(struct pair *pair, const struct ibv_mr *mr, const uint8_t *at)
{
    struct ibv_sge sge = pair_sge(pair);
    struct ibv_send_wr *bad, wr = pair_write(pair, &sge);
    struct ibv_wc wc;

    memset(pair->memory, 0x5a, 8);
    pair_aim(&wr, (uintptr_t)at, mr->rkey);
    CHECK_EQ(ibv_post_send(pair->qp[0], &wr, &bad), 0);
    pair_poll(pair, &wc);
    return wc;
}

static void is_left_alone(struct pair *pair, const struct ibv_mr *mr, uint8_t *at)
{
    struct ibv_wc wc;
    char text[1024] = "";

    memset(at, NEW, 8);
    wc = write_to(pair, mr, at);
    CHECK_EQ(at[0], NEW);
    CHECK_EQ(wc.status, IBV_WC_REM_OP_ERR);
    verbena_explain(pair->context, wc.vendor_err, text, sizeof(text));
    CHECK(strstr(text, "was unmapped after it was registered"));
}

static void is_reached(struct pair *pair, const struct ibv_mr *mr, uint8_t *at)
{
    CHECK_EQ(write_to(pair, mr, at).status, IBV_WC_SUCCESS);
    CHECK_EQ(at[0], 0x5a);
}

static struct ibv_mr *region(struct pair *pair, void *at, size_t n)
{
    struct ibv_mr *mr =
        ibv_reg_mr(pair->pd, at, n, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

    CHECK(mr);
    memset(at, OLD, n);
    return mr;
}

/* ---- blocks that libc has mapped ---- */

static uint8_t *make_block(void)
{
    block = malloc(BYTES);
    CHECK(block);
    return block;
}

static uint8_t *make_aligned(void)
{
    void *made;

    CHECK_EQ(posix_memalign(&made, 16 * PAGE, BYTES), 0);
    return block = made;
}

static void give_back(void)
{
    free(block);
}

static void grow(void)
{
    uint8_t *old = block;

    block = realloc(block, 64 * (size_t)BYTES);
    CHECK(block != old);
}

static void shrink(void)
{
    CHECK(realloc(block, BYTES / 4) == block);
}

static void in_a_mapped_block(uint8_t *(*make)(void), void (*take)(void))
{
    struct pair pair;
    struct ibv_mr *mr;
    uint8_t *there;

    pair_open(&pair);
    there = make();
    mr = region(&pair, there, BYTES);
    is_reached(&pair, mr, there);
    there = (uint8_t *)page_behind(there + BYTES / 2);
    take();
    map_there(there, PAGE);
    is_left_alone(&pair, mr, there);
}

static void a_block_is_freed(void)
{
    in_a_mapped_block(make_block, give_back);
}

static void an_aligned_block_is_freed(void)
{
    in_a_mapped_block(make_aligned, give_back);
}

static void a_block_moves(void)
{
    in_a_mapped_block(make_block, grow);
}

static void a_block_loses_its_end(void)
{
    in_a_mapped_block(make_block, shrink);
}

static void what_a_shorter_block_keeps_is_the_regions(void)
{
    struct pair pair;
    struct ibv_mr *mr;

    pair_open(&pair);
    mr = region(&pair, make_block(), BYTES);
    shrink();
    is_reached(&pair, mr, block);
    CHECK(realloc(block, BYTES / 4 - 1) == block);
    is_reached(&pair, mr, block);
}

/* ---- the heap ---- */

/* Room for what Verbena allocates, before the end of the heap. */
static void make_holes(void)
{
    enum { COUNT = 200, HOLE = 2 * PAGE };
    void *volatile hole[COUNT];

    for (size_t i = 0; i < COUNT; ++i)
        hole[i] = malloc(HOLE);
    for (size_t i = 0; i < COUNT; i += 2)
        free(hole[i]);
}

/* Its last block, with nothing free before it. */
static uint8_t *make_last(size_t n)
{
    const void *end;

    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    make_holes();
    do {
        end = sbrk(0);
        block = malloc(n);
        CHECK(block);
    } while (sbrk(0) == end);
    return block;
}

static void the_heap_becomes_shorter(void)
{
    struct pair pair;
    struct ibv_mr *mr;
    uint8_t *there, *other;

    pair_open(&pair);
    mallopt(M_TRIM_THRESHOLD, 1 << 16);
    mallopt(M_TOP_PAD, 0);
    there = make_last(8 * PAGE);
    other = malloc(BYTES);
    mr = region(&pair, there, 8 * PAGE);
    is_reached(&pair, mr, there);
    free(block);
    is_reached(&pair, mr, there + 4 * PAGE); /* it is still there */
    free(other);
    CHECK((uint8_t *)sbrk(0) < there + 6 * PAGE);
    CHECK(sbrk(BYTES) != (void *)-1); /* other memory */
    is_left_alone(&pair, mr, there + 6 * PAGE);
}

/* A region of the heap's last eight pages, which libc keeps until it is told to trim. */
static struct ibv_mr *region_at_the_end(struct pair *pair)
{
    pair_open(pair);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    return region(pair, make_last(8 * PAGE), 8 * PAGE);
}

static void trim(const struct ibv_mr *mr)
{
    CHECK_EQ(malloc_trim(0), 1);
    CHECK((uint8_t *)sbrk(0) < (uint8_t *)mr->addr + 6 * PAGE);
}

static void it_is_trimmed(void)
{
    struct pair pair;
    struct ibv_mr *mr = region_at_the_end(&pair);
    uint8_t *there = mr->addr;

    free(block);
    is_reached(&pair, mr, there + 6 * PAGE);
    trim(mr);
    CHECK(sbrk(BYTES) != (void *)-1);
    is_left_alone(&pair, mr, there + 6 * PAGE);
}

static void post_receive(struct pair *pair, const struct ibv_mr *mr)
{
    struct ibv_sge sge = {(uintptr_t)mr->addr + 6 * PAGE, 8, mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1};

    CHECK_EQ(ibv_post_recv(pair->qp[1], &wr, &bad), 0);
}

static void send(struct pair *pair)
{
    struct ibv_sge sge = pair_sge(pair);
    struct ibv_send_wr *bad, wr = pair_write(pair, &sge);

    wr.opcode = IBV_WR_SEND;
    CHECK_EQ(ibv_post_send(pair->qp[0], &wr, &bad), 0);
}

static void both_succeed(struct pair *pair)
{
    struct ibv_wc wc;

    for (size_t i = 0; i < 2; ++i) {
        pair_poll(pair, &wc);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    }
}

/* The buffer's pages go, and the message that had arrived in it is a success of both ends. */
static void what_has_arrived_before_the_heap_shrinks(void)
{
    struct pair pair;
    struct ibv_mr *mr = region_at_the_end(&pair);

    post_receive(&pair, mr);
    send(&pair);
    if (pair_is_by_packets())
        both_succeed(&pair);
    free(block);
    trim(mr);
    if (!pair_is_by_packets())
        both_succeed(&pair);
}

/* Of a block beside the region on its page nothing is told. */
static void a_neighbour_is_freed(void)
{
    struct pair pair;
    struct ibv_mr *mr;
    void *volatile before, *volatile after;
    uint8_t *there;

    pair_open(&pair);
    before = malloc(2000);
    there = malloc(2000);
    after = malloc(2000);
    mr = region(&pair, there, 2000);
    free(before);
    free(after);
    is_reached(&pair, mr, there);
}

/* ---- a bare system call ---- */

static void by_a_bare_system_call(void)
{
    struct pair pair;
    struct ibv_mr *mr;
    uint8_t *there = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    pair_open(&pair);
    mr = region(&pair, there, BYTES);
    CHECK_EQ(syscall(SYS_munmap, there, BYTES), 0);
    map_there(there, BYTES);
    is_left_alone(&pair, mr, there);
    CHECK_EQ(syscall(SYS_munmap, there + 1, BYTES), -1);
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(syscall(SYS_getpid), getpid());
}

/* ---- all at once ---- */

static void *free_and_allocate(void *unused)
{
    (void)unused;
    for (size_t i = 0; i < 20000; ++i) {
        void *volatile one = malloc(64 + i % 200 * 1000), *volatile other;

        other = realloc(one, 100 + i % 77 * 5000);
        free(other);
    }
    return NULL;
}

/* Threads free what lies beside regions and in them, while requests go on. */
static void threads_that_free(void)
{
    pthread_t thread[4];
    struct pair pair;
    struct ibv_mr *mr;
    uint8_t kept[PAGE];

    pair_open(&pair);
    mr = region(&pair, kept, sizeof(kept));
    for (size_t i = 0; i < 100; ++i) { /* freed, with their regions kept */
        block = malloc(1000 + 3000 * i);
        region(&pair, block, 1000 + 3000 * i);
        free(block);
    }
    for (size_t i = 0; i < 4; ++i)
        CHECK_EQ(pthread_create(&thread[i], NULL, free_and_allocate, NULL), 0);
    for (size_t i = 0; i < 2000; ++i)
        is_reached(&pair, mr, kept);
    for (size_t i = 0; i < 4; ++i)
        CHECK_EQ(pthread_join(thread[i], NULL), 0);
}

enum { MANY_PAGES = 4096 };

/* Each page of the heap is a region: the blocks of Verbena itself are in them. */
static void register_the_heap(struct pair *pair, const uint8_t *low)
{
    static struct ibv_mr *mr[MANY_PAGES];
    uintptr_t from = page_behind(low);

    for (size_t i = 0; i < MANY_PAGES; ++i)
        if (from + (i + 1) * PAGE <= (uintptr_t)sbrk(0)) {
            mr[i] = ibv_reg_mr(pair->pd, (void *)(from + i * PAGE), PAGE, IBV_ACCESS_LOCAL_WRITE);
            CHECK(mr[i]);
        }
}

/* Which it frees while it has locks: what frees there must wait for none. */
static void verbena_frees_its_own_blocks_in_regions(void)
{
    uint8_t *low = malloc(16);
    struct ibv_qp *datagrams;
    struct pair pair;

    pair_open(&pair);
    datagrams = pair_qp(&pair, IBV_QPT_UD, 0);
    CHECK(datagrams);
    register_the_heap(&pair, low);
    CHECK_EQ(ibv_destroy_qp(pair.qp[0]), 0);
    CHECK_EQ(ibv_destroy_qp(pair.qp[1]), 0);
    CHECK_EQ(ibv_destroy_qp(datagrams), 0);
}

static void in_child(void (*run)(void))
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        alarm(40);
        run();
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

static bool is_watched(void)
{
    return getenv("LD_PRELOAD") && strstr(getenv("LD_PRELOAD"), "libverbena_paths");
}

int main(void)
{
    void (*const tests[])(void) = {a_block_is_freed,
                                   an_aligned_block_is_freed,
                                   a_block_moves,
                                   a_block_loses_its_end,
                                   what_a_shorter_block_keeps_is_the_regions,
                                   the_heap_becomes_shorter,
                                   it_is_trimmed,
                                   what_has_arrived_before_the_heap_shrinks,
                                   a_neighbour_is_freed,
                                   by_a_bare_system_call,
                                   threads_that_free,
                                   verbena_frees_its_own_blocks_in_regions};

    if (!is_watched()) {
        printf("the library of `verbena run` is not here; LD_PRELOAD with libverbena_paths.so "
               "loads it\n");
        return 77;
    }
    for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); ++i) {
        printf("%zu\n", i);
        in_child(tests[i]);
    }
    return 0;
}
