// SPDX-License-Identifier: Apache-2.0
/* Memory that is unmapped or made read-only under its region: an error of that request, no more. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "hca/sentences.h"
#include "loopback.h"
#include "memory/guard.h"
#include "memory/watch.h"

enum { PAGES = 1 << 16 };

static uint8_t *volatile nothing = (uint8_t *)8;

/* Far from where the system puts what is mapped next, which a sanitizer does at any moment: what
 * was unmapped here stays so. */
static uint8_t *map_pages(void)
{
    void *far = (void *)0x200000000000;
    uint8_t *at = mmap(far, PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(at != MAP_FAILED);
    return at;
}

/* Two ends, and a region of the first whose memory the test takes away. */
struct bench {
    struct loopback loop;
    uint8_t *memory;
    struct vb_mr *mr;
};

static void open_bench(struct bench *bench)
{
    loopback_open(&bench->loop, IBV_QPT_RC);
    loopback_connect(bench->loop.qp[0], bench->loop.qp[1], 7);
    loopback_connect(bench->loop.qp[1], bench->loop.qp[0], 7);
    bench->memory = map_pages();
    CHECK_EQ(vb_mr_reg(bench->loop.pd, bench->memory, PAGES, (uintptr_t)bench->memory,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_ATOMIC,
                       &bench->mr),
             0);
}

static void close_bench(struct bench *bench)
{
    loopback_close(&bench->loop);
}

static void post(struct bench *bench, int end, enum ibv_wr_opcode opcode, struct ibv_sge *sge,
                 uint64_t addr, uint32_t rkey)
{
    struct ibv_send_wr *bad,
        wr = {.sg_list = sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};

    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = addr;
        wr.wr.atomic.rkey = rkey;
        wr.wr.atomic.compare_add = 1;
    } else {
        wr.wr.rdma.remote_addr = addr;
        wr.wr.rdma.rkey = rkey;
    }
    CHECK_EQ(vb_post_send(bench->loop.qp[end], &wr, &bad), 0);
}

static void post_receive(struct bench *bench, int end, struct ibv_sge *sge)
{
    struct ibv_recv_wr *bad, wr = {.sg_list = sge, .num_sge = 1};

    CHECK_EQ(vb_post_recv(bench->loop.qp[end], &wr, &bad), 0);
}

static void expect(struct bench *bench, int end, enum ibv_wc_status status, const char *words)
{
    struct ibv_wc wc;
    char text[512];

    CHECK_EQ(loopback_poll(bench->loop.cq[end], &wc), 0);
    CHECK_EQ(wc.status, status);
    CHECK(vb_evidence_text(&bench->loop.direct->adapter->self, wc.vendor_err, text, sizeof(text)));
    if (!strstr(text, words)) {
        fprintf(stderr, "evidence: %s\n", text);
        exit(1);
    }
}

static struct ibv_sge mine(const struct bench *bench, uint32_t length)
{
    return (struct ibv_sge){(uintptr_t)bench->memory, length, bench->mr->ibv.lkey};
}

static struct ibv_sge theirs(const struct bench *bench, uint32_t length)
{
    return (struct ibv_sge){(uintptr_t)bench->loop.memory[1], length, bench->loop.mr[1]->ibv.lkey};
}

static const uint32_t lengths[] = {8, 28, 200, 4096, 60000};

static void the_senders_memory_is_gone(enum ibv_wr_opcode opcode)
{
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); ++i) {
        struct bench bench;
        struct ibv_sge sge, into;

        open_bench(&bench);
        sge = mine(&bench, lengths[i]);
        into = theirs(&bench, LOOPBACK_BYTES);
        post_receive(&bench, 1, &into);
        munmap(bench.memory, PAGES);
        post(&bench, 0, opcode, &sge, (uintptr_t)bench.loop.memory[1], bench.loop.mr[1]->ibv.rkey);
        expect(&bench, 0, IBV_WC_LOC_PROT_ERR, "own buffer");
        CHECK_EQ(vb_qp_state(bench.loop.qp[1]), IBV_QPS_RTS);
        close_bench(&bench);
    }
}

static void unmapped_under_a_send(void)
{
    the_senders_memory_is_gone(IBV_WR_SEND);
}

static void unmapped_under_a_write(void)
{
    the_senders_memory_is_gone(IBV_WR_RDMA_WRITE);
}

static void unmapped_under_a_read(void)
{
    the_senders_memory_is_gone(IBV_WR_RDMA_READ);
}

static void read_only_under_a_read(void)
{
    struct bench bench;
    struct ibv_sge sge;

    open_bench(&bench);
    sge = mine(&bench, 4096);
    mprotect(bench.memory, PAGES, PROT_READ);
    post(&bench, 0, IBV_WR_RDMA_READ, &sge, (uintptr_t)bench.loop.memory[1],
         bench.loop.mr[1]->ibv.rkey);
    expect(&bench, 0, IBV_WC_LOC_PROT_ERR, "read-only");
    close_bench(&bench);
}

/* Being read-only is no reason where memory is only read. */
static void protected_under_a_send(void)
{
    struct bench bench;
    struct ibv_sge sge, into;

    open_bench(&bench);
    sge = mine(&bench, 4096);
    into = theirs(&bench, LOOPBACK_BYTES);
    post_receive(&bench, 1, &into);
    mprotect(bench.memory, PAGES, PROT_NONE);
    post(&bench, 0, IBV_WR_SEND, &sge, 0, 0);
    expect(&bench, 0, IBV_WC_LOC_PROT_ERR, "Was it unmapped or protected (PROT_NONE)?");
    close_bench(&bench);
}

static void protected_under_the_target_of_a_read(void)
{
    struct bench bench;
    struct ibv_sge sge;

    open_bench(&bench);
    sge = theirs(&bench, 4096);
    mprotect(bench.memory, PAGES, PROT_NONE);
    post(&bench, 1, IBV_WR_RDMA_READ, &sge, (uintptr_t)bench.memory, bench.mr->ibv.rkey);
    expect(&bench, 1, IBV_WC_REM_OP_ERR, "Was it unmapped or protected (PROT_NONE)?");
    close_bench(&bench);
}

static void unmapped_under_the_result_of_an_atomic(void)
{
    struct bench bench;
    struct ibv_sge sge;

    open_bench(&bench);
    sge = mine(&bench, 8);
    munmap(bench.memory, PAGES);
    post(&bench, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, (uintptr_t)bench.loop.memory[1],
         bench.loop.mr[1]->ibv.rkey);
    expect(&bench, 0, IBV_WC_LOC_PROT_ERR, "own buffer");
    close_bench(&bench);
}

static void the_targets_memory_is_gone(enum ibv_wr_opcode opcode)
{
    struct bench bench;
    struct ibv_sge sge;

    open_bench(&bench);
    sge = theirs(&bench, 8);
    munmap(bench.memory, PAGES);
    post(&bench, 1, opcode, &sge, (uintptr_t)bench.memory, bench.mr->ibv.rkey);
    expect(&bench, 1, IBV_WC_REM_OP_ERR, "unmapped");
    CHECK_EQ(vb_qp_state(bench.loop.qp[0]), IBV_QPS_ERR);
    close_bench(&bench);
}

static void unmapped_under_the_target(void)
{
    the_targets_memory_is_gone(IBV_WR_RDMA_WRITE);
    the_targets_memory_is_gone(IBV_WR_RDMA_READ);
    the_targets_memory_is_gone(IBV_WR_ATOMIC_FETCH_AND_ADD);
}

static void unmapped_under_a_receive_that_is_copied_at_once(void)
{
    struct bench bench;
    struct ibv_sge sge, into;

    open_bench(&bench);
    into = mine(&bench, PAGES);
    sge = theirs(&bench, 60000);
    post_receive(&bench, 0, &into);
    munmap(bench.memory, PAGES);
    post(&bench, 1, IBV_WR_SEND, &sge, 0, 0);
    expect(&bench, 1, IBV_WC_REM_OP_ERR, "unmapped");
    CHECK_EQ(vb_qp_state(bench.loop.qp[0]), IBV_QPS_ERR);
    close_bench(&bench);
}

static void expect_receive_and_flush(struct bench *bench, const char *words)
{
    struct ibv_wc wc;

    expect(bench, 0, IBV_WC_LOC_PROT_ERR, words);
    CHECK_EQ(vb_qp_state(bench->loop.qp[0]), IBV_QPS_ERR);
    CHECK_EQ(loopback_poll(bench->loop.cq[0], &wc), 0);
    CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
}

static void send_into_gone_memory(struct bench *bench, uint32_t length)
{
    struct ibv_sge sge, into;

    open_bench(bench);
    into = mine(bench, PAGES);
    sge = theirs(bench, length);
    post_receive(bench, 0, &into);
    post_receive(bench, 0, &into);
    munmap(bench->memory, PAGES);
    post(bench, 1, IBV_WR_SEND, &sge, 0, 0);
}

static void unmapped_under_a_receive(void)
{
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); ++i) {
        struct bench bench;

        send_into_gone_memory(&bench, lengths[i]);
        expect(&bench, 1, IBV_WC_REM_OP_ERR, "can no longer be reached");
        expect_receive_and_flush(&bench, "can no longer be reached");
        close_bench(&bench);
    }
}

/* The process counts as watched and the change was not seen: the sender has its success, but the
 * receiver never. */
static void unmapped_unseen_under_a_receive_that_poll_places(void)
{
    struct bench bench;
    struct ibv_wc wc;

    vb_memory_watch_begin();
    send_into_gone_memory(&bench, 8);
    CHECK_EQ(loopback_poll(bench.loop.cq[1], &wc), 0);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    expect_receive_and_flush(&bench, "receive request's buffer");
    close_bench(&bench);
}

/* A region goes, or the memory under it, between arrival and poll: the bytes are there before. */
static void what_has_arrived_is_placed_before(void (*goes)(struct bench *bench))
{
    for (uint32_t length = 1; length <= 16384; length = length * 4 + 3) {
        struct bench bench;
        struct ibv_sge sge, into;
        struct ibv_wc wc;

        open_bench(&bench);
        into = mine(&bench, PAGES);
        sge = theirs(&bench, length);
        memset(bench.loop.memory[1], 7, length);
        post_receive(&bench, 0, &into);
        post(&bench, 1, IBV_WR_SEND, &sge, 0, 0);
        CHECK_EQ(loopback_poll(bench.loop.cq[1], &wc), 0);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        if (length <= VB_CQE_INLINE) /* it waits for a poll */
            CHECK_EQ(bench.memory[0], 0);
        goes(&bench);
        for (uint32_t i = 0; i < length; ++i)
            CHECK_EQ(bench.memory[i], 7);
        CHECK_EQ(loopback_poll(bench.loop.cq[0], &wc), 0);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ(wc.byte_len, length);
        close_bench(&bench);
    }
}

static void deregister(struct bench *bench)
{
    CHECK_EQ(vb_mr_dereg(bench->mr), 0);
}

static void register_elsewhere(struct bench *bench)
{
    CHECK_EQ(vb_mr_rereg(bench->mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, bench->memory + 8192,
                         4096, 0),
             0);
}

/* As the watching library does before the call that it stands in front of. */
static void protect(struct bench *bench)
{
    vb_memory_watch_mapping((uintptr_t)bench->memory, PAGES);
    CHECK_EQ(mprotect(bench->memory, PAGES, PROT_READ), 0);
}

static void what_has_arrived_is_placed_before_memory_goes(void)
{
    vb_memory_watch_begin();
    what_has_arrived_is_placed_before(deregister);
    what_has_arrived_is_placed_before(register_elsewhere);
    what_has_arrived_is_placed_before(protect);
}

/* Pages that appear again: the QP is in error, another one works on. */
static void the_next_connection_works(void)
{
    struct bench bench;
    struct ibv_sge sge;
    struct ibv_wc wc;

    open_bench(&bench);
    sge = mine(&bench, 4096);
    CHECK_EQ(mprotect(bench.memory, PAGES, PROT_NONE), 0);
    post(&bench, 0, IBV_WR_RDMA_WRITE, &sge, (uintptr_t)bench.loop.memory[1],
         bench.loop.mr[1]->ibv.rkey);
    expect(&bench, 0, IBV_WC_LOC_PROT_ERR, "own buffer");
    CHECK_EQ(mprotect(bench.memory, PAGES, PROT_READ | PROT_WRITE), 0);
    memset(bench.memory, 7, PAGES);
    vb_qp_reset(bench.loop.qp[0]);
    vb_qp_reset(bench.loop.qp[1]);
    loopback_connect(bench.loop.qp[0], bench.loop.qp[1], 7);
    loopback_connect(bench.loop.qp[1], bench.loop.qp[0], 7);
    post(&bench, 0, IBV_WR_RDMA_WRITE, &sge, (uintptr_t)bench.loop.memory[1],
         bench.loop.mr[1]->ibv.rkey);
    CHECK_EQ(loopback_poll(bench.loop.cq[0], &wc), 0);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(bench.loop.memory[1][4095], 7);
    close_bench(&bench);
}

/* ---- the handler itself ---- */

static void a_copy_stops_at_the_fault(void)
{
    uint8_t *memory = map_pages(), source[256];

    memset(source, 1, sizeof(source));
    munmap(memory + PAGES - 4096, 4096);
    vb_memory_guard_start();
    for (size_t n = 1; n <= 256; ++n) {
        CHECK_EQ(vb_memory_guarded_copy(memory + PAGES - 4096 - n, source, n), 0);
        CHECK_EQ(vb_memory_guarded_copy(memory + PAGES - 4096 - n + 1, source, n), -EFAULT);
        CHECK_EQ(vb_memory_guarded_copy(memory, memory + PAGES - 4096 - n + 1, n), -EFAULT);
    }
    CHECK(vb_memory_is_mapped(memory, PAGES - 4096, true));
    CHECK(!vb_memory_is_mapped(memory, PAGES - 4095, false));
    vb_memory_guard_stop();
    munmap(memory, PAGES);
}

static void a_copy_stops_where_the_file_ends(void)
{
    int fd = memfd_create("short", MFD_CLOEXEC);
    uint8_t *memory, byte;

    CHECK_EQ(ftruncate(fd, 4096), 0);
    memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(memory != MAP_FAILED);
    vb_memory_guard_start();
    CHECK_EQ(vb_memory_guarded_copy(&byte, memory + 4095, 1), 0);
    CHECK_EQ(vb_memory_guarded_copy(&byte, memory + 4096, 1), -EFAULT); /* SIGBUS */
    vb_memory_guard_stop();
    munmap(memory, 8192);
    close(fd);
}

/* What the compiler keeps in registers across the call is still there after a fault in it. */
static void the_callers_registers_survive(void)
{
    volatile uint64_t seed = 3;
    uint64_t a = seed * 5, b = seed * 7, c = seed * 11, d = seed * 13, e = seed * 17, f = seed * 19;
    uint8_t byte = 0;
    int faults = 0;

    vb_memory_guard_start();
    for (int i = 0; i < 100; ++i) {
        faults += vb_memory_guarded_copy(&byte, nothing, 1) == -EFAULT;
        a += b, b += c, c += d, d += e, e += f, f += a;
    }
    vb_memory_guard_stop();
    CHECK_EQ(faults, 100);
    uint64_t a2 = seed * 5, b2 = seed * 7, c2 = seed * 11, d2 = seed * 13, e2 = seed * 17,
             f2 = seed * 19;
    for (int i = 0; i < 100; ++i)
        a2 += b2, b2 += c2, c2 += d2, d2 += e2, e2 += f2, f2 += a2;
    CHECK(a == a2 && b == b2 && c == c2 && d == d2 && e == e2 && f == f2);
}

/* Runs in a child; returns the status with which it ended. */
static int in_child(void (*run)(void))
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        run();
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    return status;
}

/* ---- where a fault would end the thread, the kernel copies ---- */

static uint8_t large[3 * PAGES + 5], copied[sizeof(large)];

static void copies_without_a_handler(void)
{
    uint8_t *memory = map_pages(), *end = memory + PAGES - 4096;

    munmap(end, 4096);
    for (size_t i = 0; i < sizeof(large); ++i)
        large[i] = (uint8_t)(i * 31 >> 3);
    errno = EXDEV;
    CHECK_EQ(vb_memory_guarded_copy(copied, large, sizeof(large)), 0);
    CHECK_EQ(memcmp(copied, large, sizeof(large)), 0);
    CHECK_EQ(vb_memory_guarded_copy(end - 8192, large, 8192), 0);
    CHECK_EQ(vb_memory_guarded_copy(end - 8192, large, 8193), -EFAULT);
    CHECK_EQ(vb_memory_guarded_copy(copied, end - 8192, 8193), -EFAULT);
    CHECK_EQ(vb_memory_guarded_copy(copied, end - 8192, 8192), 0);
    CHECK_EQ(memcmp(copied, large, 8192), 0);
    CHECK_EQ(errno, EXDEV);
}

static void asks_without_a_handler(void)
{
    uint8_t *memory = map_pages();
    char here;

    if (madvise((void *)((uintptr_t)&here & ~(uintptr_t)4095), 4096, 22 /* POPULATE_READ */))
        return; /* before Linux 5.14 it would touch them */
    munmap(memory + PAGES - 4096, 4096);
    mprotect(memory, 4096, PROT_READ);
    errno = EXDEV;
    CHECK(vb_memory_is_mapped(memory, PAGES - 4096, false));
    CHECK(vb_memory_is_mapped(memory + 4096, PAGES - 8192, true));
    CHECK(vb_memory_is_mapped(memory + PAGES - 4097, 1, true));
    CHECK(!vb_memory_is_mapped(memory + PAGES - 4097, 2, true));
    CHECK(!vb_memory_is_mapped(memory + 4095, 1, true));
    CHECK(vb_memory_is_mapped(memory + 4095, 1, false));
    CHECK_EQ(errno, EXDEV);
}

static void block_faults(void)
{
    sigset_t faults;

    vb_memory_guard_start();
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    pthread_sigmask(SIG_BLOCK, &faults, NULL);
}

static void with_faults_blocked(void)
{
    block_faults();
    copies_without_a_handler();
    asks_without_a_handler();
}

/* A handler that the program installed unseen, and which calls nobody. */
static void with_a_foreign_handler(void)
{
    vb_memory_guard_start();
    signal(SIGBUS, SIG_DFL);
    copies_without_a_handler();
    asks_without_a_handler();
}

/* As in a container without ptrace. */
static void without_cross_process_copies(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(rules) / sizeof(*rules), rules};
    int next = dup(0);

    close(next);
    CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
    block_faults();
    copies_without_a_handler();
    CHECK_EQ(dup(0), next); /* every descriptor is closed again */
}

static void the_kernel_copies_where_a_fault_would_end_the_process(void)
{
    CHECK_EQ(in_child(with_faults_blocked), 0);
    CHECK_EQ(in_child(with_a_foreign_handler), 0);
    CHECK_EQ(in_child(without_cross_process_copies), 0);
}

/* ---- faults of the program ---- */

static void touch_nothing(void)
{
    *(volatile uint8_t *)nothing = 1;
}

static void programs_own(int number)
{
    _exit(number == SIGSEGV ? 42 : 43);
}

static void fault_with_own_handler(void)
{
    signal(SIGSEGV, programs_own);
    vb_memory_guard_start();
    touch_nothing();
}

static void signal_with_own_handler(void)
{
    signal(SIGBUS, programs_own);
    vb_memory_guard_start();
    raise(SIGBUS);
}

static void signal_that_is_ignored(void)
{
    signal(SIGBUS, SIG_IGN);
    vb_memory_guard_start();
    raise(SIGBUS);
    _exit(44);
}

static void signal_without_handler(void)
{
    signal(SIGBUS, SIG_DFL);
    vb_memory_guard_start();
    raise(SIGBUS);
}

static volatile int runs_once;

static void first_run_only(int number)
{
    (void)number;
    if (runs_once++)
        _exit(1);
}

/* SA_RESETHAND: the first fault is the handler's, the second ends the process. */
static void fault_with_handler_for_one(void)
{
    struct sigaction once = {.sa_handler = first_run_only, .sa_flags = SA_RESETHAND};

    sigaction(SIGSEGV, &once, NULL);
    vb_memory_guard_start();
    touch_nothing();
}

static bool has_programs_own(int number)
{
    struct sigaction now;

    sigaction(number, NULL, &now);
    return now.sa_handler == programs_own;
}

static void after_the_last_stop(void)
{
    static const int faults[] = {SIGSEGV, SIGBUS};
    struct sigaction told;

    for (int i = 0; i < 2; ++i)
        signal(faults[i], programs_own);
    vb_memory_guard_start();
    vb_memory_guard_start();
    vb_memory_guard_stop();
    for (int i = 0; i < 2; ++i) {
        CHECK(!has_programs_own(faults[i]));
        CHECK_EQ(vb_memory_guard_action(faults[i], NULL, &told), 0); /* told as the program's */
        CHECK(told.sa_handler == programs_own);
    }
    CHECK_EQ(vb_memory_guard_action(SIGUSR1, NULL, NULL), -1);
    vb_memory_guard_stop();
    for (int i = 0; i < 2; ++i)
        CHECK(has_programs_own(faults[i]));
    for (int number = 1; number < 32; ++number) /* the system knows all now */
        CHECK_EQ(vb_memory_guard_action(number, NULL, NULL), -1);
    _exit(45);
}

static void fault_without_handler(void)
{
    signal(SIGSEGV, SIG_DFL); /* a sanitizer's is not the program's */
    vb_memory_guard_start();
    touch_nothing();
}

static struct sigaction previous;

static void calls_the_one_before(int number, siginfo_t *info, void *context)
{
    previous.sa_sigaction(number, info, context);
}

static void fault_with_later_handler(void)
{
    struct sigaction later = {.sa_sigaction = calls_the_one_before, .sa_flags = SA_SIGINFO};
    uint8_t byte;

    signal(SIGSEGV, SIG_DFL);
    vb_memory_guard_start();
    sigaction(SIGSEGV, &later, &previous);
    vb_memory_guard_stop();
    vb_memory_guard_start(); /* now each is the one before the other */
    if (vb_memory_guarded_copy(&byte, nothing, 1) != -EFAULT)
        _exit(1);
    touch_nothing();
}

static sigjmp_buf out;

static void leaves_by_jumping(int number)
{
    (void)number;
    siglongjmp(out, 1);
}

/* As programs do that try whether an address can be read. */
static void fault_with_handler_that_jumps(void)
{
    signal(SIGSEGV, leaves_by_jumping);
    vb_memory_guard_start();
    for (volatile int faults = 0; faults < 3; ++faults)
        if (!sigsetjmp(out, 1)) {
            touch_nothing();
            _exit(1);
        }
    _exit(42);
}

static void expect_exit(void (*run)(void), int with)
{
    int status = in_child(run);

    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), with);
}

static void expect_end(void (*run)(void), int by)
{
    int status = in_child(run);

    CHECK(WIFSIGNALED(status));
    CHECK_EQ(WTERMSIG(status), by);
}

static void other_faults_are_the_programs(void)
{
    expect_exit(fault_with_own_handler, 42);
    expect_exit(fault_with_handler_that_jumps, 42);
    expect_exit(signal_with_own_handler, 43);
    expect_exit(signal_that_is_ignored, 44);
    expect_exit(after_the_last_stop, 45);
    expect_end(fault_without_handler, SIGSEGV);
    expect_end(fault_with_later_handler, SIGSEGV);
    expect_end(fault_with_handler_for_one, SIGSEGV);
    expect_end(signal_without_handler, SIGBUS);
}

int main(void)
{
    RUN(a_copy_stops_at_the_fault);
    RUN(a_copy_stops_where_the_file_ends);
    RUN(the_kernel_copies_where_a_fault_would_end_the_process);
    RUN(the_callers_registers_survive);
    RUN(other_faults_are_the_programs);
    RUN(unmapped_under_a_send);
    RUN(unmapped_under_a_write);
    RUN(unmapped_under_a_read);
    RUN(read_only_under_a_read);
    RUN(protected_under_a_send);
    RUN(protected_under_the_target_of_a_read);
    RUN(unmapped_under_the_result_of_an_atomic);
    RUN(unmapped_under_the_target);
    RUN(unmapped_under_a_receive_that_is_copied_at_once);
    RUN(unmapped_under_a_receive);
    RUN(the_next_connection_works);
    RUN(what_has_arrived_is_placed_before_memory_goes); /* from here on it counts as watched */
    RUN(unmapped_unseen_under_a_receive_that_poll_places);
    return 0;
}
