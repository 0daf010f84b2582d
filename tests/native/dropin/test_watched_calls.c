// SPDX-License-Identifier: Apache-2.0
/*
 * Every call that `verbena run` watches (preload/paths/watch), once: those that set what happens at
 * a fault or block it, and those that take memory away. Requests keep their meaning after each. The
 * program runs with the watching library in front and without.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "own_address.h"
#include "pair.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* sighold and others */

enum { BYTES = 4096 };

/* The C library has these and declares them no more, or not always. */
sighandler_t __sysv_signal(int number, sighandler_t handler);
sighandler_t bsd_signal(int number, sighandler_t handler);

static struct ibv_mr *region_at(struct pair *pair, void *memory)
{
    struct ibv_mr *mr = ibv_reg_mr(pair->pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE);

    CHECK(mr);
    return mr;
}

static uint8_t *map_page(void)
{
    return own_address_map(BYTES);
}

static void send_to(struct pair *pair, struct ibv_mr *target)
{
    struct ibv_sge there = {(uintptr_t)target->addr, 8, target->lkey}, here = pair_sge(pair);
    struct ibv_recv_wr *bad_recv, receive = {.wr_id = 2, .sg_list = &there, .num_sge = 1};
    struct ibv_send_wr *bad, send = {.wr_id = 1,
                                     .sg_list = &here,
                                     .num_sge = 1,
                                     .opcode = IBV_WR_SEND,
                                     .send_flags = IBV_SEND_SIGNALED};

    memset(pair->memory, 0x5a, 8);
    CHECK_EQ(ibv_post_recv(pair->qp[1], &receive, &bad_recv), 0);
    CHECK_EQ(ibv_post_send(pair->qp[0], &send, &bad), 0);
}

static void both_end_with(struct pair *pair, enum ibv_wc_status status)
{
    for (int i = 0; i < 2; ++i) {
        struct ibv_wc wc = {0};

        pair_poll(pair, &wc);
        CHECK(wc.status == status || (status && wc.status != IBV_WC_SUCCESS));
    }
}

/* ---- signals ---- */

static void own(int number)
{
    (void)number;
    _exit(1);
}

static sigset_t faults(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGSEGV);
    sigaddset(&set, SIGBUS);
    return set;
}

static void call_bsd_signal(void)
{
    CHECK(bsd_signal(SIGSEGV, own) != SIG_ERR);
}

static void call_ssignal(void)
{
    CHECK(ssignal(SIGSEGV, own) != SIG_ERR);
}

static void call_sysv_signal(void)
{
    CHECK(__sysv_signal(SIGSEGV, own) != SIG_ERR);
}

static void call_sigignore(void)
{
    CHECK_EQ(sigignore(SIGSEGV), 0);
}

static void call_sigprocmask(void)
{
    sigset_t set = faults();

    CHECK_EQ(sigprocmask(SIG_BLOCK, &set, NULL), 0);
}

static void call_sighold(void)
{
    CHECK_EQ(sighold(SIGSEGV), 0);
}

static void call_sigblock(void)
{
    sigblock(1 << (SIGSEGV - 1));
}

static void call_sigsetmask(void)
{
    sigsetmask(1 << (SIGSEGV - 1) | 1 << (SIGBUS - 1));
}

/* Gone before it arrives: both ends fail, and the process goes on. */
static void a_request_fails_after(void (*call)(void))
{
    struct pair pair;
    struct ibv_mr *gone;

    pair_open(&pair);
    gone = region_at(&pair, map_page());
    call();
    munmap(gone->addr, BYTES);
    send_to(&pair, gone);
    both_end_with(&pair, IBV_WC_GENERAL_ERR);
}

/* ---- memory ---- */

static uint8_t *allocate(void)
{
    return map_page();
}

static uint8_t *attach(void)
{
    int id = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600);
    uint8_t *memory = shmat(id, NULL, 0);

    CHECK(memory != (void *)-1);
    CHECK_EQ(shmctl(id, IPC_RMID, NULL), 0);
    return memory;
}

static uint8_t *by_munmap(uint8_t *memory)
{
    CHECK_EQ(munmap(memory, BYTES), 0);
    return NULL;
}

static uint8_t *by_mprotect(uint8_t *memory)
{
    CHECK_EQ(mprotect(memory, BYTES, PROT_READ), 0);
    return memory;
}

static uint8_t *by_pkey_mprotect(uint8_t *memory)
{
    CHECK_EQ(pkey_mprotect(memory, BYTES, PROT_READ, -1), 0);
    return memory;
}

static uint8_t *by_mmap(uint8_t *memory)
{
    CHECK(mmap(memory, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory);
    return NULL;
}

static uint8_t *by_mmap64(uint8_t *memory)
{
    CHECK(mmap64(memory, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
          memory);
    return NULL;
}

static uint8_t *by_mremap(uint8_t *memory)
{
    uint8_t *moved = mremap(memory, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, map_page());

    CHECK(moved != MAP_FAILED);
    return moved;
}

static uint8_t *by_shmdt(uint8_t *memory)
{
    CHECK_EQ(shmdt(memory), 0);
    return NULL;
}

#ifndef __SANITIZE_ADDRESS__

enum { BLOCK = 1 << 20 };

/* Kept from the compiler, which knows what free() does. */
static void *volatile block;

static uint8_t *allocate_block(void)
{
    block = malloc(BLOCK); /* by a mapping of its own */
    CHECK(block);
    return block;
}

static uint8_t *allocate_aligned(void)
{
    void *memory;

    CHECK_EQ(posix_memalign(&memory, 1 << 16, BLOCK), 0);
    return block = memory;
}

static uint8_t *by_free(uint8_t *memory)
{
    free(memory);
    return NULL;
}

static uint8_t *by_realloc(uint8_t *memory)
{
    return realloc(memory, 64 * (size_t)BLOCK);
}

static uint8_t *by_reallocarray(uint8_t *memory)
{
    return reallocarray(memory, 64, BLOCK);
}

static uint8_t *by_realloc_of_nothing(uint8_t *memory)
{
    CHECK(!realloc(memory, 0));
    return NULL;
}

/* The region is in the pages behind what is left. */
static uint8_t *allocate_end(void)
{
    return allocate_block() + BLOCK - 2 * BYTES;
}

static uint8_t *by_realloc_that_shrinks(uint8_t *memory)
{
    CHECK(realloc(block, BLOCK / 2) == block);
    CHECK(memory > (uint8_t *)block);
    return NULL;
}

#endif

static uint8_t *by_syscall(uint8_t *memory)
{
    CHECK_EQ(syscall(SYS_munmap, memory, BYTES), 0);
    return NULL;
}

static uint8_t *by_syscall_mprotect(uint8_t *memory)
{
    CHECK_EQ(syscall(SYS_mprotect, memory, BYTES, PROT_READ), 0);
    return memory;
}

static uint8_t *by_syscall_mmap(uint8_t *memory)
{
    CHECK_EQ(
        syscall(SYS_mmap, memory, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
        (intptr_t)memory);
    return NULL;
}

static uint8_t *by_syscall_mremap(uint8_t *memory)
{
    uint8_t *target = map_page();

    CHECK_EQ(syscall(SYS_mremap, memory, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, target),
             (intptr_t)target);
    return target;
}

/* Gone after it has arrived: both ends succeed, and the bytes are where the memory went. */
static void what_has_arrived_is_there_after(uint8_t *(*make)(void), uint8_t *(*take)(uint8_t *))
{
    uint8_t *memory = make(), *left;
    struct pair pair;

    pair_open(&pair);
    send_to(&pair, region_at(&pair, memory));
    if (pair_is_by_packets())
        both_end_with(&pair, IBV_WC_SUCCESS);
    left = take(memory);
    if (!pair_is_by_packets())
        both_end_with(&pair, IBV_WC_SUCCESS);
    CHECK(!left || left[7] == 0x5a);
}

/* ---- all of them, each in a process ---- */

static int finished(pid_t child)
{
    int status;

    CHECK_EQ(waitpid(child, &status, 0), child);
    return status;
}

static void whatever_is_set_for_faults(void)
{
    void (*const calls[])(void) = {call_bsd_signal, call_ssignal,     call_sysv_signal,
                                   call_sigignore,  call_sigprocmask, call_sighold,
                                   call_sigblock,   call_sigsetmask};

    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); ++i) {
        pid_t child = fork();

        if (child == 0) {
            a_request_fails_after(calls[i]);
            _exit(0);
        }
        CHECK_EQ(finished(child), 0);
    }
}

static void however_memory_goes(void)
{
    static const struct {
        uint8_t *(*make)(void);
        uint8_t *(*take)(uint8_t *);
    } ways[] = {{allocate, by_munmap},
                {allocate, by_mprotect},
                {allocate, by_pkey_mprotect},
                {allocate, by_mmap},
                {allocate, by_mmap64},
                {allocate, by_mremap},
                {attach, by_shmdt},
#ifndef __SANITIZE_ADDRESS__ /* whose free() comes first, and gives nothing back */
                {allocate_block, by_free},
                {allocate_aligned, by_free},
                {allocate_block, by_realloc},
                {allocate_block, by_reallocarray},
                {allocate_block, by_realloc_of_nothing},
                {allocate_end, by_realloc_that_shrinks},
#endif
                {allocate, by_syscall},
                {allocate, by_syscall_mprotect},
                {allocate, by_syscall_mmap},
                {allocate, by_syscall_mremap}};

    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); ++i) {
        pid_t child = fork();

        if (child == 0) {
            what_has_arrived_is_there_after(ways[i].make, ways[i].take);
            _exit(0);
        }
        if (finished(child)) {
            fprintf(stderr, "way %zu\n", i);
            exit(1);
        }
    }
}

int main(void)
{
    RUN(whatever_is_set_for_faults);
    RUN(however_memory_goes);
    return 0;
}
