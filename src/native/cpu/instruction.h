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

/*
 * Variants of functions that carry frequent instructions out, for one operation, size and kind of
 * operand: the same code, which the compiler inlines and shortens. In a loop of ADD, DEC and JNZ
 * they take 79 instructions of the machine for one of the program in place of 111. A file lists its
 * variants as FORM(function, op, size, memory) and makes their functions with VB_CPU_VARIANT and
 * their rows with VB_CPU_VARIANT_ROW.
 */
struct vb_cpu_variant {
    vb_cpu_operate_fn *of, *quick;
    uint8_t op, size;
    bool memory;
};

#define VB_CPU_VARIANT(of, op_is, size_is, memory_is)                                              \
    static __attribute__((flatten)) enum vb_cpu_next quick_##of##_##op_is##_##size_is##memory_is(  \
        struct vb_cpu *cpu, const struct vb_cpu_instruction *in)                                   \
    {                                                                                              \
        struct vb_cpu_instruction one = *in;                                                       \
                                                                                                   \
        one.op = op_is;                                                                            \
        one.size = size_is;                                                                        \
        one.memory = memory_is;                                                                    \
        one.segment = VB_CPU_SEGMENT_NONE;                                                         \
        one.narrow = false;                                                                        \
        return of(cpu, &one);                                                                      \
    }
#define VB_CPU_VARIANT_ROW(of, op_is, size_is, memory_is)                                          \
    {of, quick_##of##_##op_is##_##size_is##memory_is, op_is, size_is, memory_is},

/* The variant for a decoded instruction, or its function as it is. */
vb_cpu_operate_fn *vb_cpu_quick_arithmetic(const struct vb_cpu_instruction *in);
vb_cpu_operate_fn *vb_cpu_quick_move(const struct vb_cpu_instruction *in);

static inline vb_cpu_operate_fn *vb_cpu_quick_of(const struct vb_cpu_variant *variant, size_t count,
                                                 const struct vb_cpu_instruction *in)
{
    for (size_t i = 0; i < count; ++i) {
        if (variant[i].of == in->operate && variant[i].op == in->op &&
            variant[i].size == in->size && variant[i].memory == in->memory && !in->narrow &&
            in->segment == VB_CPU_SEGMENT_NONE)
            return variant[i].quick;
    }
    return in->operate;
}

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

/* Is this the last instruction of a turn, and one that other cores may come into? */
static inline bool vb_cpu_is_parted(const struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    return cpu->cycles + 1 >= cpu->turn_end && !in->lock;
}

/* As vb_cpu_set_rm, by an instruction that has loaded the operand. */
static inline bool vb_cpu_change_rm(struct vb_cpu *cpu, const struct vb_cpu_instruction *in,
                                    uint32_t size, uint64_t value)
{
    if (in->memory && vb_cpu_is_parted(cpu, in))
        return vb_cpu_keep_store(cpu, vb_cpu_address(cpu, in), size, &value);
    return vb_cpu_set_rm(cpu, in, size, value);
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

static inline void vb_cpu_tell(struct vb_cpu *cpu, enum vb_cpu_change change, uint8_t vector)
{
    if (cpu->changed != NULL)
        cpu->changed(cpu->follower, cpu, change, vector);
}

/* Is an interrupt pending, and are they on? */
static inline bool vb_cpu_is_interrupted(const struct vb_cpu *cpu)
{
    uint64_t pending = 0;

    for (uint32_t i = 0; i < VB_CPU_VECTORS / 64; ++i)
        pending |= cpu->pending[i];
    return pending != 0 && cpu->flags & VB_CPU_IF;
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
    static const uint16_t any_of[8] = {VB_CPU_OF, VB_CPU_CF, VB_CPU_ZF, VB_CPU_CF | VB_CPU_ZF,
                                       VB_CPU_SF, VB_CPU_PF, 0,         VB_CPU_ZF};
    uint64_t f = cpu->flags;
    bool less = (f >> 7 ^ f >> 11) & 1; /* SF is not OF: condition 6, and with ZF 7 */

    return ((f & any_of[condition >> 1]) != 0 || (condition >= 12 && less)) != (condition & 1);
}
