// SPDX-License-Identifier: Apache-2.0
/*
 * Memory goes under a region, in a program that handles faults itself or blocks all signals: the
 * request ends in error, and what the program handles is its own. Each case is a process. The same
 * program runs with the library of `verbena run` in front, which keeps its handlers, and without.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "own_address.h"
#include "pair.h"

enum { BYTES = 16384, OWN_FAULT = 42 };

static uint8_t *const nothing = (uint8_t *)4096;

static bool is_watched(void)
{
    return getenv("LD_PRELOAD") && strstr(getenv("LD_PRELOAD"), "libverbena_paths");
}

/* Runs in a child; returns how that ended. */
static int in_child(void (*run)(void))
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        alarm(20);
        run();
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    return status;
}

static void exits_with(void (*run)(void), int code)
{
    int status = in_child(run);

    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), code);
}

static void dies_of(void (*run)(void), int number)
{
    int status = in_child(run);

    CHECK(WIFSIGNALED(status));
    CHECK_EQ(WTERMSIG(status), number);
}

/* ---- requests ---- */

/* What follows would test nothing where other mappings take the region's addresses. */
static void unmapped_addresses_stay_free(void)
{
    uint8_t *gone = own_address_map(BYTES);

    CHECK_EQ(munmap(gone, BYTES), 0);
    for (size_t size = 4096; size <= (size_t)1 << 20; size *= 2)
        for (int i = 0; i < 8; ++i) {
            uint8_t *other = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

            CHECK(other != MAP_FAILED);
            CHECK(other + size <= gone || other >= gone + BYTES);
        }
}

static struct ibv_mr *map_region(struct pair *pair)
{
    uint8_t *memory = own_address_map(BYTES);
    struct ibv_mr *mr = ibv_reg_mr(pair->pd, memory, BYTES,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);

    CHECK(mr);
    return mr;
}

static void post(struct pair *pair, enum ibv_wr_opcode opcode, struct ibv_sge *sge, uint64_t addr,
                 uint32_t rkey)
{
    struct ibv_send_wr *bad, wr = {.wr_id = 1,
                                   .sg_list = sge,
                                   .num_sge = 1,
                                   .opcode = opcode,
                                   .send_flags = IBV_SEND_SIGNALED};

    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = addr;
        wr.wr.atomic.rkey = rkey;
    } else {
        wr.wr.rdma.remote_addr = addr;
        wr.wr.rdma.rkey = rkey;
    }
    CHECK_EQ(ibv_post_send(pair->qp[0], &wr, &bad), 0);
}

/* The send's completion; a receive's may come before. */
static enum ibv_wc_status wait_for_send(struct pair *pair)
{
    struct ibv_wc wc = {0};

    do
        pair_poll(pair, &wc);
    while (wc.wr_id != 1);
    return wc.status;
}

/* The region is at the sender's side, or at the other; 8 bytes or many. */
static void request(enum ibv_wr_opcode opcode, bool at_sender, uint32_t length,
                    enum ibv_wc_status expected)
{
    struct pair pair;
    struct ibv_mr *gone;
    struct ibv_sge here, there;
    struct ibv_recv_wr *bad, receive = {.wr_id = 2, .sg_list = &there, .num_sge = 1};

    pair_open(&pair);
    gone = map_region(&pair);
    here = (struct ibv_sge){(uintptr_t)pair.memory, length, pair.mr->lkey};
    there = (struct ibv_sge){(uintptr_t)gone->addr, length, gone->lkey};
    if (opcode == IBV_WR_SEND)
        CHECK_EQ(ibv_post_recv(pair.qp[1], &receive, &bad), 0);
    munmap(gone->addr, BYTES);
    if (at_sender)
        post(&pair, opcode, &there, (uintptr_t)pair.memory, pair.mr->rkey);
    else
        post(&pair, opcode, &here, (uintptr_t)gone->addr, gone->rkey);
    CHECK_EQ(wait_for_send(&pair), expected);
}

static void all_requests_end_in_error(void)
{
    const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                          IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND};

    for (size_t i = 0; i < sizeof(opcodes) / sizeof(*opcodes); ++i)
        for (uint32_t length = 8; length <= 4000; length *= 500) {
            if (opcodes[i] == IBV_WR_ATOMIC_FETCH_AND_ADD && length > 8)
                continue;
            if (opcodes[i] != IBV_WR_SEND)
                request(opcodes[i], true, length, IBV_WC_LOC_PROT_ERR);
            request(opcodes[i], false, length, IBV_WC_REM_OP_ERR);
        }
}

/* ---- what the program did before ---- */

static void own(int number)
{
    (void)number;
    _exit(OWN_FAULT);
}

static struct ibv_context *opened;

static void after_open(void (*prepare)(void))
{
    opened = pair_open_device();
    prepare();
    all_requests_end_in_error();
    CHECK_EQ(ibv_close_device(opened), 0);
}

static void set_handler(void)
{
    signal(SIGSEGV, own);
    signal(SIGBUS, own);
}

static void set_ignored(void)
{
    signal(SIGSEGV, SIG_IGN);
}

static void set_default(void)
{
    signal(SIGSEGV, SIG_DFL);
}

static void set_sysv(void)
{
    sysv_signal(SIGSEGV, own);
}

static void set_resetting(void)
{
    struct sigaction action = {.sa_handler = own, .sa_flags = (int)SA_RESETHAND};

    sigfillset(&action.sa_mask);
    CHECK_EQ(sigaction(SIGSEGV, &action, NULL), 0);
}

static void block_all(void)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
}

static void with_handler(void)
{
    after_open(set_handler);
}

static void with_ignored(void)
{
    after_open(set_ignored);
}

static void with_default(void)
{
    after_open(set_default);
}

static void with_sysv(void)
{
    after_open(set_sysv);
}

static void with_resetting(void)
{
    after_open(set_resetting);
}

static void with_all_blocked(void)
{
    after_open(block_all);
}

static void *in_thread(void *argument)
{
    all_requests_end_in_error();
    return argument;
}

/* A thread's mask is that of the thread that made it. */
static void with_all_blocked_from_birth(void)
{
    pthread_t thread;

    opened = pair_open_device();
    block_all();
    CHECK_EQ(pthread_create(&thread, NULL, in_thread, NULL), 0);
    pthread_join(thread, NULL);
}

static void requests_end_in_error_whatever_the_program_set(void)
{
    exits_with(with_handler, 0);
    exits_with(with_ignored, 0);
    exits_with(with_default, 0);
    exits_with(with_sysv, 0);
    exits_with(with_resetting, 0);
    exits_with(with_all_blocked, 0);
    exits_with(with_all_blocked_from_birth, 0);
}

/* ---- the program's own faults ---- */

static void touch_nothing(void)
{
    *(volatile uint8_t *)nothing = 1;
}

static void handler_gets_its_fault(void)
{
    with_handler();
    opened = pair_open_device();
    signal(SIGSEGV, own);
    touch_nothing();
}

static void default_ends(void)
{
    after_open(set_default);
    opened = pair_open_device();
    touch_nothing();
}

static void sent_with_default(void)
{
    opened = pair_open_device();
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
}

static void sent_and_ignored(void)
{
    opened = pair_open_device();
    set_ignored();
    raise(SIGSEGV);
    raise(SIGSEGV);
}

static sigjmp_buf out;
static volatile sig_atomic_t was_on_stack, was_blocked, address_was_right;
static uint8_t stack[65536];

static void look(int number, siginfo_t *info, void *context)
{
    sigset_t mask;
    uint8_t here;

    (void)number, (void)context;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    was_blocked = sigismember(&mask, SIGUSR1) && sigismember(&mask, SIGSEGV);
    was_on_stack = &here >= stack && &here < stack + sizeof(stack);
    address_was_right = info->si_addr == nothing;
    siglongjmp(out, 1);
}

static void fault_once(void)
{
    if (!sigsetjmp(out, 1)) {
        touch_nothing();
        _exit(1);
    }
}

/* On its own stack, with its mask, once: as the kernel would have called it. */
static void handler_is_called_as_it_asked(void)
{
    struct sigaction action = {.sa_sigaction = look,
                               .sa_flags = (int)(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND)};
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof(stack)};

    opened = pair_open_device();
    CHECK_EQ(sigaltstack(&alternate, NULL), 0);
    sigaddset(&action.sa_mask, SIGUSR1);
    CHECK_EQ(sigaction(SIGSEGV, &action, NULL), 0);
    fault_once();
    CHECK(was_blocked && was_on_stack && address_was_right);
    all_requests_end_in_error();
    touch_nothing(); /* not handled a second time */
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* sigset */
static void old_actions_are_told_truly(void)
{
    struct sigaction old, action = {.sa_handler = own, .sa_flags = SA_NODEFER};

    signal(SIGSEGV, SIG_DFL);
    opened = pair_open_device();
    CHECK_EQ(sigaction(SIGSEGV, NULL, &old), 0);
    CHECK(old.sa_handler == SIG_DFL);
    sigaddset(&action.sa_mask, SIGUSR2);
    CHECK_EQ(sigaction(SIGSEGV, &action, &old), 0);
    CHECK(old.sa_handler == SIG_DFL);
    CHECK_EQ(sigaction(SIGSEGV, &action, &old), 0);
    CHECK(old.sa_handler == own);
    CHECK(old.sa_flags & SA_NODEFER);
    CHECK(sigismember(&old.sa_mask, SIGUSR2) && !sigismember(&old.sa_mask, SIGUSR1));
    CHECK(signal(SIGSEGV, SIG_IGN) == own);
    CHECK(sigset(SIGSEGV, own) == SIG_IGN);
    CHECK(sigset(SIGSEGV, SIG_HOLD) == own);
    CHECK(sigset(SIGSEGV, SIG_DFL) == SIG_HOLD);
    ibv_close_device(opened);
    CHECK_EQ(sigaction(SIGSEGV, NULL, &old), 0);
    CHECK(old.sa_handler == SIG_DFL);
}

/* A child's signals are its own; its parent's memory may still be shared with it (vfork). */
static void a_child_changes_nothing_of_its_parents(void)
{
    struct sigaction old;

    opened = pair_open_device();
    set_handler();
    if (vfork() == 0) {
        struct sigaction action = {.sa_handler = SIG_DFL};

        sigaction(SIGSEGV, &action, NULL);
        _exit(0);
    }
    CHECK_EQ(sigaction(SIGSEGV, NULL, &old), 0);
    CHECK(old.sa_handler == own);
    all_requests_end_in_error();
    touch_nothing();
}

static void other_faults_are_the_programs(void)
{
    exits_with(handler_gets_its_fault, OWN_FAULT);
    dies_of(default_ends, SIGSEGV);
    dies_of(sent_with_default, SIGSEGV);
    exits_with(sent_and_ignored, 0);
    dies_of(handler_is_called_as_it_asked, SIGSEGV);
    if (!is_watched())
        return;
    exits_with(old_actions_are_told_truly, 0);
    exits_with(a_child_changes_nothing_of_its_parents, OWN_FAULT);
}

int main(void)
{
    RUN(unmapped_addresses_stay_free);
    RUN(requests_end_in_error_whatever_the_program_set);
    RUN(other_faults_are_the_programs);
    return 0;
}
