// SPDX-License-Identifier: Apache-2.0
/*
 * Memory is unmapped under a region, and the program maps other memory at the same addresses. No
 * request touches that: each ends as where nothing is mapped. Requests for what is still the
 * region's are carried out. The calls are seen where the library of `verbena run` is in front.
 */
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dropin/verbena.h"
#include "pair.h"

enum { PAGE = 4096, PAGES = 8, BYTES = PAGES * PAGE, OLD = 3, NEW = 7 };
enum {
    EVERY = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND
};

/* A pair, and a region of its own mapping. */
struct bench {
    struct pair pair;
    uint8_t *memory;
    struct ibv_mr *mr;
};

static uint8_t *map_at(void *at, int flags)
{
    uint8_t *memory =
        mmap(at, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

    CHECK(memory != MAP_FAILED);
    CHECK(!at || memory == at);
    return memory;
}

static void open_on(struct bench *bench, uint8_t *memory)
{
    pair_open(&bench->pair);
    bench->memory = memory;
    memset(memory, OLD, BYTES);
    bench->mr = ibv_reg_mr(bench->pair.pd, memory, BYTES, EVERY);
    CHECK(bench->mr);
}

static struct ibv_wc post(struct bench *bench, enum ibv_wr_opcode opcode, struct ibv_sge *sge,
                          uint64_t addr, uint32_t rkey)
{
    struct ibv_send_wr *bad, wr = {.wr_id = 1,
                                   .sg_list = sge,
                                   .num_sge = 1,
                                   .opcode = opcode,
                                   .send_flags = IBV_SEND_SIGNALED};
    struct ibv_wc wc = {0};

    pair_aim(&wr, addr, rkey);
    CHECK_EQ(ibv_post_send(bench->pair.qp[0], &wr, &bad), 0);
    do
        pair_poll(&bench->pair, &wc);
    while (wc.wr_id != 1);
    return wc;
}

/* Of the peer's memory by its rkey, from or to the pair's. */
static struct ibv_wc reach(struct bench *bench, enum ibv_wr_opcode opcode, size_t offset)
{
    struct ibv_sge sge = pair_sge(&bench->pair);

    memset(bench->pair.memory, 0x5a, 8);
    return post(bench, opcode, &sge, (uintptr_t)bench->memory + offset, bench->mr->rkey);
}

static struct ibv_wc write_there(struct bench *bench)
{
    return reach(bench, IBV_WR_RDMA_WRITE, PAGE);
}

static struct ibv_wc read_there(struct bench *bench)
{
    return reach(bench, IBV_WR_RDMA_READ, PAGE);
}

static struct ibv_wc add_there(struct bench *bench)
{
    return reach(bench, IBV_WR_ATOMIC_FETCH_AND_ADD, PAGE);
}

/* Into a receive request of so many bytes; what the receiver gets is looked at, too. */
static struct ibv_wc send_bytes(struct bench *bench, uint32_t length)
{
    struct ibv_sge there = {(uintptr_t)bench->memory, BYTES, bench->mr->lkey};
    struct ibv_sge here = {(uintptr_t)bench->pair.memory, length, bench->pair.mr->lkey};
    struct ibv_recv_wr *bad, receive = {.wr_id = 2, .sg_list = &there, .num_sge = 1};

    CHECK_EQ(ibv_post_recv(bench->pair.qp[1], &receive, &bad), 0);
    return post(bench, IBV_WR_SEND, &here, 0, 0);
}

static struct ibv_wc send_little(struct bench *bench)
{
    return send_bytes(bench, 8);
}

static struct ibv_wc send_much(struct bench *bench)
{
    return send_bytes(bench, PAIR_BYTES);
}

/* The requester's own buffer. */
static struct ibv_wc with_own(struct bench *bench, enum ibv_wr_opcode opcode)
{
    struct ibv_sge sge = {(uintptr_t)bench->memory, 8, bench->mr->lkey};

    return post(bench, opcode, &sge, (uintptr_t)bench->pair.memory, bench->pair.mr->rkey);
}

static struct ibv_wc write_from(struct bench *bench)
{
    return with_own(bench, IBV_WR_RDMA_WRITE);
}

static struct ibv_wc read_into(struct bench *bench)
{
    return with_own(bench, IBV_WR_RDMA_READ);
}

/* ---- how memory goes, and other memory comes ---- */

static uint8_t *attach(void)
{
    int id = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600);
    uint8_t *memory = shmat(id, NULL, 0);

    CHECK(memory != (void *)-1);
    CHECK_EQ(shmctl(id, IPC_RMID, NULL), 0);
    return memory;
}

static void unmap(uint8_t *memory)
{
    CHECK_EQ(munmap(memory, BYTES), 0);
    map_at(memory, MAP_FIXED_NOREPLACE);
}

static void replace(uint8_t *memory)
{
    map_at(memory, MAP_FIXED);
}

static void move_away(uint8_t *memory)
{
    CHECK(mremap(memory, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, map_at(NULL, 0)) !=
          MAP_FAILED);
    map_at(memory, MAP_FIXED_NOREPLACE);
}

static void move_over(uint8_t *memory)
{
    CHECK(mremap(map_at(NULL, 0), BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, memory) == memory);
}

/* Larger than there is room for where it is. */
static void outgrow(uint8_t *memory)
{
    void *behind = mmap(memory + BYTES, PAGE, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

    (void)behind; /* or something is there already */
    CHECK(mremap(memory, BYTES, 4 * (size_t)BYTES, MREMAP_MAYMOVE) != memory);
    map_at(memory, MAP_FIXED_NOREPLACE);
}

static void shrink(uint8_t *memory)
{
    CHECK(mremap(memory, BYTES, 1, 0) == memory);
    replace(memory);
}

static void detach(uint8_t *memory)
{
    CHECK_EQ(shmdt(memory), 0);
    map_at(memory, MAP_FIXED_NOREPLACE);
}

static uint8_t *map_anywhere(void)
{
    return map_at(NULL, 0);
}

static const struct {
    uint8_t *(*make)(void);
    void (*take)(uint8_t *);
} ways[] = {{map_anywhere, unmap},     {map_anywhere, replace}, {map_anywhere, move_away},
            {map_anywhere, move_over}, {map_anywhere, outgrow}, {map_anywhere, shrink},
            {attach, detach}};

/* ---- each in a process ---- */

static void in_child(void (*run)(size_t way, size_t request), size_t way, size_t request)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        alarm(20);
        run(way, request);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    if (status)
        fprintf(stderr, "way %zu, request %zu\n", way, request);
    CHECK_EQ(status, 0);
}

static void check_text(struct bench *bench, const struct ibv_wc *wc)
{
    char text[1024] = "";

    verbena_explain(bench->pair.context, wc->vendor_err, text, sizeof(text));
    if (!strstr(text, "was unmapped after it was registered")) {
        fprintf(stderr, "evidence: %s\n", text);
        exit(1);
    }
}

static const struct {
    struct ibv_wc (*make)(struct bench *bench);
    enum ibv_wc_status status;
} requests[] = {
    {write_there, IBV_WC_REM_OP_ERR}, {read_there, IBV_WC_REM_OP_ERR},
    {add_there, IBV_WC_REM_OP_ERR},   {send_little, IBV_WC_REM_OP_ERR},
    {send_much, IBV_WC_REM_OP_ERR},   {write_from, IBV_WC_LOC_PROT_ERR},
    {read_into, IBV_WC_LOC_PROT_ERR},
};

static void a_request_fails(size_t way, size_t request)
{
    struct bench bench;
    struct ibv_wc wc;

    open_on(&bench, ways[way].make());
    ways[way].take(bench.memory);
    memset(bench.memory, NEW, BYTES);
    wc = requests[request].make(&bench);
    for (size_t i = 0; i < BYTES; ++i)
        CHECK_EQ(bench.memory[i], NEW);
    CHECK_EQ(wc.status, requests[request].status);
    check_text(&bench, &wc);
    CHECK_EQ(ibv_dereg_mr(bench.mr), 0);
}

static void what_took_the_memorys_place_is_left_alone(void)
{
    for (size_t way = 0; way < sizeof(ways) / sizeof(*ways); ++way)
        for (size_t request = 0; request < sizeof(requests) / sizeof(*requests); ++request)
            in_child(a_request_fails, way, request);
}

/* ---- a part of it ---- */

static void a_page_in_the_middle(void)
{
    struct bench bench;
    struct ibv_wc wc;

    open_on(&bench, map_at(NULL, 0));
    CHECK_EQ(munmap(bench.memory + 2 * PAGE, 1), 0); /* the whole page goes */
    CHECK(mmap(bench.memory + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == bench.memory + 2 * PAGE);
    memset(bench.memory + 2 * PAGE, NEW, PAGE);
    CHECK_EQ(reach(&bench, IBV_WR_RDMA_WRITE, 2 * PAGE - 8).status, IBV_WC_SUCCESS);
    CHECK_EQ(reach(&bench, IBV_WR_RDMA_WRITE, 3 * PAGE).status, IBV_WC_SUCCESS);
    CHECK_EQ(send_little(&bench).status, IBV_WC_SUCCESS);
    CHECK_EQ(send_bytes(&bench, PAIR_BYTES).status, IBV_WC_SUCCESS);
    wc = reach(&bench, IBV_WR_RDMA_WRITE, 3 * PAGE - 8);
    CHECK_EQ(wc.status, IBV_WC_REM_OP_ERR);
    check_text(&bench, &wc);
    CHECK_EQ(bench.memory[3 * PAGE - 8], NEW);
    CHECK_EQ(bench.memory[3 * PAGE], 0x5a);
}

static void in_a_window(void)
{
    struct bench bench;
    struct ibv_mw *mw;
    struct ibv_wc wc;

    open_on(&bench, map_at(NULL, 0));
    CHECK_EQ(munmap(bench.memory, PAGE), 0);
    map_at(bench.memory, MAP_FIXED);
    mw = ibv_alloc_mw(bench.pair.pd, IBV_MW_TYPE_1);
    CHECK(mw);
    CHECK_EQ(ibv_bind_mw(bench.pair.qp[1], mw,
                         &(struct ibv_mw_bind){.wr_id = 3,
                                               .send_flags = IBV_SEND_SIGNALED,
                                               .bind_info = {bench.mr, (uintptr_t)bench.memory,
                                                             BYTES, IBV_ACCESS_REMOTE_WRITE}}),
             0);
    pair_poll(&bench.pair, &wc);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    bench.mr->rkey = mw->rkey;
    CHECK_EQ(reach(&bench, IBV_WR_RDMA_WRITE, 0).status, IBV_WC_REM_OP_ERR);
    CHECK_EQ(bench.memory[0], 0);
}

/* ---- what stays ---- */

static void a_refused_change(void)
{
    struct bench bench;

    open_on(&bench, map_at(NULL, 0));
    CHECK(mmap(bench.memory, BYTES, PROT_READ, MAP_PRIVATE | MAP_FIXED, -1, 0) == MAP_FAILED);
    CHECK_EQ(errno, EBADF);
    CHECK_EQ(reach(&bench, IBV_WR_RDMA_WRITE, 0).status, IBV_WC_SUCCESS);
    CHECK_EQ(bench.memory[0], 0x5a);
}

static void memory_that_grows_in_its_place(void)
{
    struct bench bench;
    uint8_t *far = (uint8_t *)0x200000000000; /* nothing is behind it */

    open_on(&bench, map_at(far, MAP_FIXED_NOREPLACE));
    CHECK(mremap(far, BYTES, 2 * (size_t)BYTES, MREMAP_MAYMOVE) == far);
    CHECK_EQ(reach(&bench, IBV_WR_RDMA_WRITE, 0).status, IBV_WC_SUCCESS);
    CHECK_EQ(far[0], 0x5a);
}

static void emptied_pages(void)
{
    struct bench bench;

    open_on(&bench, map_at(NULL, 0));
    CHECK_EQ(madvise(bench.memory, BYTES, MADV_DONTNEED), 0);
    CHECK_EQ(reach(&bench, IBV_WR_RDMA_WRITE, 0).status, IBV_WC_SUCCESS);
    CHECK_EQ(bench.memory[0], 0x5a);
}

static void a_new_region_there(void)
{
    struct bench bench;

    open_on(&bench, map_at(NULL, 0));
    unmap(bench.memory);
    CHECK_EQ(ibv_dereg_mr(bench.mr), 0);
    bench.mr = ibv_reg_mr(bench.pair.pd, bench.memory, BYTES, EVERY);
    CHECK_EQ(reach(&bench, IBV_WR_RDMA_WRITE, 0).status, IBV_WC_SUCCESS);
    CHECK_EQ(bench.memory[0], 0x5a);
}

/* Such regions follow their addresses, as an adapter's do. */
static void a_region_on_demand(void)
{
    struct bench bench;

    open_on(&bench, map_at(NULL, 0));
    CHECK_EQ(ibv_dereg_mr(bench.mr), 0);
    bench.mr = ibv_reg_mr(bench.pair.pd, bench.memory, BYTES, EVERY | IBV_ACCESS_ON_DEMAND);
    CHECK(bench.mr);
    unmap(bench.memory);
    CHECK_EQ(reach(&bench, IBV_WR_RDMA_WRITE, 0).status, IBV_WC_SUCCESS);
    CHECK_EQ(bench.memory[0], 0x5a);
}

/* ---- of another process ---- */

/* What the two tell each other. */
struct address {
    uint32_t qp;
    uint32_t rkey;
    uint64_t memory;
};

/* Another process may not be at work for a while: 268 ms. */
static struct address meet(int socket, struct ibv_qp *qp, struct bench *bench)
{
    struct address mine = {qp->qp_num, bench->mr->rkey, (uintptr_t)bench->memory}, other;

    CHECK_EQ(write(socket, &mine, sizeof(mine)), sizeof(mine));
    CHECK_EQ(read(socket, &other, sizeof(other)), sizeof(other));
    pair_connect_within(&bench->pair, qp, other.qp, 16);
    CHECK_EQ(write(socket, "c", 1), 1);
    CHECK_EQ(read(socket, &(char){0}, 1), 1);
    return other;
}

/* Unmaps its second page, and maps another there. */
static void owner(int socket)
{
    struct bench bench;
    struct ibv_qp *qp;

    open_on(&bench, map_at(NULL, 0));
    qp = pair_qp(&bench.pair, IBV_QPT_RC, 0);
    meet(socket, qp, &bench);
    CHECK_EQ(munmap(bench.memory + PAGE, PAGE), 0);
    CHECK(mmap(bench.memory + PAGE, PAGE, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == bench.memory + PAGE);
    CHECK_EQ(write(socket, "u", 1), 1);
    CHECK_EQ(read(socket, &(char){0}, 1), 1);
    CHECK_EQ(bench.memory[0], 0x5a);
    CHECK_EQ(bench.memory[PAGE], 0);
}

static void of_another_process(void)
{
    int sockets[2];
    struct bench bench;
    struct address other;
    struct ibv_wc wc;
    struct ibv_qp *qp;
    pid_t child;
    int status;

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    child = fork();
    if (child == 0) {
        alarm(20);
        owner(sockets[1]);
        _exit(0);
    }
    open_on(&bench, map_at(NULL, 0));
    qp = pair_qp(&bench.pair, IBV_QPT_RC, 0);
    other = meet(sockets[0], qp, &bench);
    CHECK_EQ(read(sockets[0], &(char){0}, 1), 1);
    bench.pair.qp[0] = qp;
    bench.mr->rkey = other.rkey;
    bench.memory = (uint8_t *)(uintptr_t)other.memory;
    CHECK_EQ(reach(&bench, IBV_WR_RDMA_WRITE, 0).status, IBV_WC_SUCCESS);
    wc = reach(&bench, IBV_WR_RDMA_WRITE, PAGE);
    CHECK_EQ(wc.status, IBV_WC_REM_OP_ERR);
    check_text(&bench, &wc); /* the owner is there to be asked */
    CHECK_EQ(write(sockets[0], "w", 1), 1);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

int main(void)
{
    if (!getenv("LD_PRELOAD") || !strstr(getenv("LD_PRELOAD"), "libverbena_paths")) {
        printf("the library of `verbena run` is not here; LD_PRELOAD with libverbena_paths.so "
               "loads it\n");
        return 77;
    }
    RUN(what_took_the_memorys_place_is_left_alone);
    RUN(a_page_in_the_middle);
    RUN(in_a_window);
    RUN(a_refused_change);
    RUN(memory_that_grows_in_its_place);
    RUN(emptied_pages);
    RUN(a_new_region_there);
    RUN(a_region_on_demand);
    RUN(of_another_process);
    return 0;
}
