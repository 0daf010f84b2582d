// SPDX-License-Identifier: Apache-2.0
/*
 * An instruction as the decoder leaves it for the functions that carry it out. Operands are ready
 * to use: registers are offsets into vb_cpu.reg in bytes, so that AH to BH need no case of their
 * own. Every function returns what happens next, and changes nothing if it reports a fault.
 */
#pragma once

#include "cpu/cpu.h"
#include "cpu/paging.h"

enum vb_cpu_next {
    VB_CPU_GO_ON,  /* with the instruction behind this one */
    VB_CPU_JUMPED, /* rip is set */
    VB_CPU_FAULTED /* cpu->fault says how */
};

typedef enum vb_cpu_next vb_cpu_operate_fn(struct vb_cpu *cpu, const struct vb_cpu_instruction *in);

enum { VB_CPU_NO_REGISTER = 16, VB_CPU_RELATIVE = 17 /* to the next instruction */ };
enum vb_cpu_repeat { VB_CPU_REPEAT_NONE, VB_CPU_REPEAT_EQUAL, VB_CPU_REPEAT_UNEQUAL };
enum vb_cpu_segment { VB_CPU_SEGMENT_NONE, VB_CPU_SEGMENT_FS, VB_CPU_SEGMENT_GS };

struct vb_cpu_instruction {
    uint64_t tag;               /* the linear address + 1; 0: the entry is free */
    uint32_t mapping;           /* vb_cpu.mapping */
    uint8_t length;             /* bytes */
    uint8_t size;               /* of the operation: 1, 2, 4, 8 or 16 bytes */
    uint8_t from;               /* of a second operand of another size (MOVZX) */
    vb_cpu_operate_fn *operate; /* NULL: it is none of the subset */
    uint64_t imm;               /* sign-extended */
    int32_t displacement;
    uint8_t op;                 /* which of the operations of `operate` */
    uint8_t reg, rm;            /* offsets in vb_cpu.reg; in xmm instructions, numbers */
    bool memory;                /* the second operand is in memory, and not `rm` */
    uint8_t base, index, scale; /* numbers, or VB_CPU_NO_REGISTER, or VB_CPU_RELATIVE */
    uint8_t segment;            /* enum vb_cpu_segment */
    uint8_t repeat;             /* enum vb_cpu_repeat */
    bool narrow;                /* addresses have 32 bits */
    bool lock;
};

/* Decodes up to 15 bytes. Returns the length; 0: not of the subset; -1: it goes on after `length`.
 */
int vb_cpu_decode(const uint8_t *bytes, uint32_t length, struct vb_cpu_instruction *in);

static inline uint64_t vb_cpu_get(const struct vb_cpu *cpu, uint8_t at, uint32_t size)
{
    const uint8_t *from = (const uint8_t *)cpu->reg + at;
    uint64_t value = 0;

    switch (size) {
    case 1:
        return *from;
    case 2:
        memcpy(&value, from, 2);
        return value;
    case 4:
        memcpy(&value, from, 4);
        return value;
    default:
        memcpy(&value, from, 8);
        return value;
    }
}

/* A result of 4 bytes clears the upper half, smaller ones leave the rest (SDM volume 1, 3.4.1.1).
 */
static inline void vb_cpu_set(struct vb_cpu *cpu, uint8_t at, uint32_t size, uint64_t value)
{
    uint8_t *to = (uint8_t *)cpu->reg + at;

    if (size == 4) {
        value = (uint32_t)value;
        size = 8;
    }
    if (size == 8)
        memcpy(to, &value, 8);
    else if (size == 1)
        *to = (uint8_t)value;
    else
        memcpy(to, &value, 2);
}

/* The linear address of the operand in memory. */
static inline uint64_t vb_cpu_address(const struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t at = (uint64_t)(int64_t)in->displacement;

    if (in->base < VB_CPU_REGISTERS)
        at += cpu->reg[in->base];
    else if (in->base == VB_CPU_RELATIVE)
        at += cpu->rip + in->length;
    if (in->index < VB_CPU_REGISTERS)
        at += cpu->reg[in->index] << in->scale;
    if (in->narrow)
        at = (uint32_t)at;
    if (in->segment != VB_CPU_SEGMENT_NONE)
        at += in->segment == VB_CPU_SEGMENT_FS ? cpu->fs_base : cpu->gs_base;
    return at;
}

/* The operand that is a register or in memory. */
static inline bool vb_cpu_get_rm(struct vb_cpu *cpu, const struct vb_cpu_instruction *in,
                                 uint32_t size, uint64_t *value)
{
    if (in->memory)
        return vb_cpu_load(cpu, vb_cpu_address(cpu, in), size, value);
    *value = vb_cpu_get(cpu, in->rm, size);
    return true;
}

static inline bool vb_cpu_set_rm(struct vb_cpu *cpu, const struct vb_cpu_instruction *in,
                                 uint32_t size, uint64_t value)
{
    if (in->memory)
        return vb_cpu_store(cpu, vb_cpu_address(cpu, in), size, value);
    vb_cpu_set(cpu, in->rm, size, value);
    return true;
}

static inline uint64_t vb_cpu_mask(uint32_t size)
{
    return size == 8 ? UINT64_MAX : (UINT64_C(1) << size * 8) - 1;
}

static inline uint64_t vb_cpu_sign(uint32_t size)
{
    return UINT64_C(1) << (size * 8 - 1);
}

static inline uint64_t vb_cpu_extend(uint64_t value, uint32_t size)
{
    uint32_t unused = 64 - size * 8;

    return (uint64_t)((int64_t)(value << unused) >> unused);
}

/* An exception without an error code, or with one of 0. */
static inline enum vb_cpu_next vb_cpu_raise(struct vb_cpu *cpu, uint8_t vector, bool has_error)
{
    cpu->fault = (struct vb_cpu_fault){.vector = vector, .has_error = has_error};
    return VB_CPU_FAULTED;
}

static inline bool vb_cpu_push(struct vb_cpu *cpu, uint64_t value)
{
    if (!vb_cpu_store(cpu, cpu->reg[VB_CPU_RSP] - 8, 8, value))
        return false;
    cpu->reg[VB_CPU_RSP] -= 8;
    return true;
}

/* Does the condition of Jcc, SETcc and CMOVcc hold? (SDM volume 1, appendix B) */
static inline bool vb_cpu_holds(const struct vb_cpu *cpu, uint8_t condition)
{
    uint64_t f = cpu->flags;
    bool less = !(f & VB_CPU_SF) != !(f & VB_CPU_OF), holds;

    switch (condition >> 1) {
    case 0:
        holds = f & VB_CPU_OF;
        break;
    case 1:
        holds = f & VB_CPU_CF;
        break;
    case 2:
        holds = f & VB_CPU_ZF;
        break;
    case 3:
        holds = f & (VB_CPU_CF | VB_CPU_ZF);
        break;
    case 4:
        holds = f & VB_CPU_SF;
        break;
    case 5:
        holds = f & VB_CPU_PF;
        break;
    case 6:
        holds = less;
        break;
    default:
        holds = less || f & VB_CPU_ZF;
        break;
    }
    return holds != (condition & 1);
}
