// SPDX-License-Identifier: Apache-2.0
/*
 * One core of a subset of x86-64 in 64-bit mode, as an interpreter: what drivers and lessons need
 * (integer and string instructions, atomics, fences, 16-byte moves, interrupts, exceptions, paging,
 * rings 0 and 3). The Python binding of verbena.host makes and runs cores; one thread runs all
 * cores of a computer. Section numbers are those of Intel's manual (SDM), volume 3 where not said
 * otherwise. Segments have no descriptors: code and stack segments have the selectors below, and
 * the stack of ring 0 for interrupts is in the register IA32_SYSENTER_ESP in place of a TSS.
 */
#pragma once

#include "cpu/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vb_cpu_register {
    VB_CPU_RAX,
    VB_CPU_RCX,
    VB_CPU_RDX,
    VB_CPU_RBX,
    VB_CPU_RSP,
    VB_CPU_RBP,
    VB_CPU_RSI,
    VB_CPU_RDI,
    VB_CPU_R11 = 11,
    VB_CPU_REGISTERS = 16
};

enum vb_cpu_flag {
    VB_CPU_CF = 1 << 0,
    VB_CPU_FLAG_ONE = 1 << 1, /* reads as 1 */
    VB_CPU_PF = 1 << 2,
    VB_CPU_AF = 1 << 4,
    VB_CPU_ZF = 1 << 6,
    VB_CPU_SF = 1 << 7,
    VB_CPU_TF = 1 << 8,
    VB_CPU_IF = 1 << 9,
    VB_CPU_DF = 1 << 10,
    VB_CPU_OF = 1 << 11,
    VB_CPU_ARITHMETIC = VB_CPU_CF | VB_CPU_PF | VB_CPU_AF | VB_CPU_ZF | VB_CPU_SF | VB_CPU_OF,
    /* what POPF and SYSRET may change */
    VB_CPU_FLAGS = VB_CPU_ARITHMETIC | VB_CPU_TF | VB_CPU_IF | VB_CPU_DF
};

/* SDM 6.3.1 */
enum vb_cpu_vector {
    VB_CPU_DIVIDE = 0,
    VB_CPU_DEBUG = 1,
    VB_CPU_BREAKPOINT = 3,
    VB_CPU_UNDEFINED = 6,
    VB_CPU_PROTECTION = 13,
    VB_CPU_PAGE_FAULT = 14,
    VB_CPU_VECTORS = 256
};

enum vb_cpu_selector {
    VB_CPU_KERNEL_CODE = 0x08,
    VB_CPU_KERNEL_STACK = 0x10,
    VB_CPU_USER_STACK = 0x2b,
    VB_CPU_USER_CODE = 0x33
};

#define VB_CPU_CR0_WRITE_PROTECT (UINT64_C(1) << 16)
#define VB_CPU_CR0_PAGING        (UINT64_C(1) << 31)
#define VB_CPU_EFER_SYSCALL      (UINT64_C(1) << 0)
#define VB_CPU_EFER_NO_EXECUTE   (UINT64_C(1) << 11)

/* Why vb_cpu_run came back. */
enum vb_cpu_stop {
    VB_CPU_STOP_LIMIT,     /* `most` or `until` was reached, or `pause` was set */
    VB_CPU_STOP_HALT,      /* HLT: until the next interrupt */
    VB_CPU_STOP_BUS,       /* `fault`: nothing answers at that address, or the device refused */
    VB_CPU_STOP_EXCEPTION, /* `fault`: an exception for which no handler is set */
    VB_CPU_STOP_MARK       /* the next instruction has a breakpoint */
};

/* What an instruction could not do. */
struct vb_cpu_fault {
    uint8_t vector;
    bool has_error;
    bool bus; /* no exception, but an access that the bus refused */
    bool write;
    uint8_t size; /* of an access */
    uint32_t error;
    uint64_t address; /* linear, of a page fault, or of an access that is not aligned to 16 bytes;
                         physical, of an access that the bus refused */
};

struct vb_cpu_table {
    uint64_t base;
    uint16_t limit;
};

/* A page of the linear address space that was translated. */
struct vb_cpu_translation {
    uint64_t page;     /* the linear address / 4096, + 1; 0: the entry is free */
    uint64_t physical; /* the address of the page */
    uint8_t *bytes;    /* the page, if it is all RAM; else NULL */
    uint8_t allows;    /* VB_CPU_MAY_* */
    bool written;      /* D of the page's entry is set */
    bool stores;       /* and it has no decoded code: stores need no more than `bytes` */
};

enum {
    VB_CPU_TRANSLATIONS = 256,
    VB_CPU_DECODED = 4096, /* instructions; a power of two */
    VB_CPU_MARKS = 64      /* breakpoints */
};

/* The store of an instruction that loads and stores one place, before it is done. */
struct vb_cpu_kept_store {
    uint64_t physical;
    uint32_t size; /* 0: there is none */
    uint8_t bytes[16];
};

struct vb_cpu_instruction;

/* What changes on whose behalf a core works. */
enum vb_cpu_change {
    VB_CPU_CHANGE_EXCEPTION, /* with its vector; also INT */
    VB_CPU_CHANGE_INTERRUPT, /* with its vector */
    VB_CPU_CHANGE_CALL,      /* SYSCALL */
    VB_CPU_CHANGE_RETURN     /* IRET or SYSRET */
};

struct vb_cpu {
    uint64_t reg[VB_CPU_REGISTERS];
    uint64_t rip;
    uint64_t flags; /* RFLAGS */
    uint64_t xmm[16][2];
    uint8_t ring; /* 0 or 3 */
    /* What vb_cpu_run has to look at between instructions; `any` is 0 if there is nothing. */
    union {
        struct {
            bool halted;
            bool shadow;    /* STI: interrupts are held for one more instruction */
            bool pause;     /* set by a bus call: run comes back after this instruction */
            bool attention; /* an interrupt is pending, or a breakpoint is set */
        };
        uint32_t any;
    };
    uint64_t cr0, cr2, cr3, cr4, efer;
    uint64_t star, lstar, syscall_mask, fs_base, gs_base, kernel_gs_base;
    uint64_t ring0_stack;
    struct vb_cpu_table idt;
    struct vb_cpu_fault fault;
    uint64_t pending[VB_CPU_VECTORS / 64]; /* interrupts */

    uint64_t instructions;
    uint64_t cycles;
    uint64_t turn_end; /* an instruction with two steps that ends there is parted; or UINT64_MAX */
    uint64_t interrupts; /* delivered, without exceptions */

    struct vb_cpu_memory *memory;
    uint64_t mark[VB_CPU_MARKS];
    uint32_t marks;
    bool goes_on; /* the last run came back before its last instruction: it passed no breakpoint */
    /* called with each change, after it, if it is set */
    void (*changed)(void *follower, struct vb_cpu *cpu, enum vb_cpu_change change, uint8_t vector);
    void *follower;
    uint32_t code_version;         /* of memory, when `decoded` was filled */
    uint32_t code_marks;           /* of memory, when `translation` was filled */
    struct vb_cpu_kept_store kept; /* done before the next instruction, or at the end of turns */
    uint32_t mapping; /* counts changes of the address space; tags of `decoded` have it */
    struct vb_cpu_translation translation[VB_CPU_TRANSLATIONS];
    struct vb_cpu_instruction *decoded;
};

/* Makes a core that has the reset state of this room: ring 0, no paging, no handlers, RIP 0. */
int vb_cpu_open(struct vb_cpu *cpu, struct vb_cpu_memory *memory);
void vb_cpu_close(struct vb_cpu *cpu);

/*
 * Runs at most `most` instructions, and none from the cycle `until` on. Each takes one cycle; what
 * an access costs beyond that, its bus call adds to `cycles`. A string instruction with REP counts
 * as one.
 */
enum vb_cpu_stop vb_cpu_run(struct vb_cpu *cpu, uint64_t most, uint64_t until);

/* Makes an external interrupt pending. One that is pending already is merged: false. */
bool vb_cpu_interrupt(struct vb_cpu *cpu, uint8_t vector);

/* Takes a pending interrupt back, as its controller does. false: the core has taken it. */
bool vb_cpu_withdraw(struct vb_cpu *cpu, uint8_t vector);

/*
 * Lets the core take an interrupt, if one is pending and they are on, and run nothing of its
 * handler; vb_cpu_run does so by itself. false: it has no handler, `fault` says so.
 */
bool vb_cpu_take_interrupt(struct vb_cpu *cpu);

int vb_cpu_set_mark(struct vb_cpu *cpu, uint64_t address); /* -1: there are VB_CPU_MARKS */
void vb_cpu_clear_mark(struct vb_cpu *cpu, uint64_t address);

/* The length of the instruction at `bytes`; 0: it is not of the subset, or longer than `length`. */
uint32_t vb_cpu_instruction_length(const uint8_t *bytes, uint32_t length);

/* The linear address's physical one, without a change of state; false: it is not mapped. */
bool vb_cpu_physical(struct vb_cpu *cpu, uint64_t linear, uint64_t *physical);
