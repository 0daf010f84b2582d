// SPDX-License-Identifier: Apache-2.0
/* Moves between registers and memory, the stack, moves of 16 bytes, and string instructions. */
#include "cpu/operations.h"

enum vb_cpu_next vb_cpu_move_store(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t value = vb_cpu_get(cpu, in->reg, in->size);

    return vb_cpu_set_rm(cpu, in, in->size, value) ? VB_CPU_GO_ON : VB_CPU_FAULTED;
}

enum vb_cpu_next vb_cpu_move_load(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t value;

    if (!vb_cpu_get_rm(cpu, in, in->size, &value))
        return VB_CPU_FAULTED;
    vb_cpu_set(cpu, in->reg, in->size, value);
    return VB_CPU_GO_ON;
}

enum vb_cpu_next vb_cpu_move_imm(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    return vb_cpu_set_rm(cpu, in, in->size, in->imm) ? VB_CPU_GO_ON : VB_CPU_FAULTED;
}

enum vb_cpu_next vb_cpu_move_zero(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t value;

    if (!vb_cpu_get_rm(cpu, in, in->from, &value))
        return VB_CPU_FAULTED;
    vb_cpu_set(cpu, in->reg, in->size, value);
    return VB_CPU_GO_ON;
}

enum vb_cpu_next vb_cpu_move_sign(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t value;

    if (!vb_cpu_get_rm(cpu, in, in->from, &value))
        return VB_CPU_FAULTED;
    vb_cpu_set(cpu, in->reg, in->size, vb_cpu_extend(value, in->from));
    return VB_CPU_GO_ON;
}

/* CMOVcc reads its source in any case, and clears the upper half of a register in any case. */
enum vb_cpu_next vb_cpu_move_if(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t value;

    if (!vb_cpu_get_rm(cpu, in, in->size, &value))
        return VB_CPU_FAULTED;
    if (!vb_cpu_holds(cpu, in->op))
        value = vb_cpu_get(cpu, in->reg, in->size);
    vb_cpu_set(cpu, in->reg, in->size, value);
    return VB_CPU_GO_ON;
}

enum vb_cpu_next vb_cpu_set_if(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    return vb_cpu_set_rm(cpu, in, 1, vb_cpu_holds(cpu, in->op)) ? VB_CPU_GO_ON : VB_CPU_FAULTED;
}

/* An address without the base of a segment. */
enum vb_cpu_next vb_cpu_lea(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    vb_cpu_set(cpu, in->reg, in->size, vb_cpu_address(cpu, in));
    return VB_CPU_GO_ON;
}

enum vb_cpu_next vb_cpu_exchange(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t mine = vb_cpu_get(cpu, in->reg, in->size), other;

    if (!vb_cpu_get_rm(cpu, in, in->size, &other) || !vb_cpu_set_rm(cpu, in, in->size, mine))
        return VB_CPU_FAULTED;
    vb_cpu_set(cpu, in->reg, in->size, other);
    return VB_CPU_GO_ON;
}

/* ---- the stack ------------------------------------------------------------------------------ */

/* in->size is 8, or 2 with the prefix 66, and RSP changes by it (SDM volume 2, PUSH and POP). */
static enum vb_cpu_next push(struct vb_cpu *cpu, const struct vb_cpu_instruction *in,
                             uint64_t value)
{
    if (!vb_cpu_store(cpu, cpu->reg[VB_CPU_RSP] - in->size, in->size, value))
        return VB_CPU_FAULTED;
    cpu->reg[VB_CPU_RSP] -= in->size;
    return VB_CPU_GO_ON;
}

static bool pop_value(struct vb_cpu *cpu, const struct vb_cpu_instruction *in, uint64_t *value)
{
    if (!vb_cpu_load(cpu, cpu->reg[VB_CPU_RSP], in->size, value))
        return false;
    cpu->reg[VB_CPU_RSP] += in->size;
    return true;
}

enum vb_cpu_next vb_cpu_push_reg(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    return push(cpu, in, vb_cpu_get(cpu, in->reg, in->size));
}

enum vb_cpu_next vb_cpu_push_rm(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t value;

    return vb_cpu_get_rm(cpu, in, in->size, &value) ? push(cpu, in, value) : VB_CPU_FAULTED;
}

enum vb_cpu_next vb_cpu_push_imm(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    return push(cpu, in, in->imm);
}

enum vb_cpu_next vb_cpu_pop_reg(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t value;

    if (!pop_value(cpu, in, &value))
        return VB_CPU_FAULTED;
    vb_cpu_set(cpu, in->reg, in->size, value);
    return VB_CPU_GO_ON;
}

/* An address that RSP is part of is computed with the RSP after the pop. */
enum vb_cpu_next vb_cpu_pop_rm(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t value;

    if (!pop_value(cpu, in, &value))
        return VB_CPU_FAULTED;
    if (vb_cpu_set_rm(cpu, in, in->size, value))
        return VB_CPU_GO_ON;
    cpu->reg[VB_CPU_RSP] -= in->size;
    return VB_CPU_FAULTED;
}

enum vb_cpu_next vb_cpu_push_flags(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    return push(cpu, in, cpu->flags);
}

/* Ring 3 cannot change IF (IOPL is 0). */
enum vb_cpu_next vb_cpu_pop_flags(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t value, may = VB_CPU_FLAGS & ~(uint64_t)(cpu->ring == 3 ? VB_CPU_IF : 0);

    if (!pop_value(cpu, in, &value))
        return VB_CPU_FAULTED;
    may &= vb_cpu_mask(in->size);
    cpu->flags = (cpu->flags & ~may) | (value & may) | VB_CPU_FLAG_ONE;
    return VB_CPU_GO_ON;
}

enum vb_cpu_next vb_cpu_leave(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t frame = cpu->reg[VB_CPU_RBP], value;

    if (!vb_cpu_load(cpu, frame, in->size, &value))
        return VB_CPU_FAULTED;
    cpu->reg[VB_CPU_RSP] = frame + in->size;
    vb_cpu_set(cpu, VB_CPU_RBP * 8, in->size, value);
    return VB_CPU_GO_ON;
}

/* CBW, CWDE, CDQE */
enum vb_cpu_next vb_cpu_extend_a(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t value = vb_cpu_get(cpu, 0, in->size / 2);

    vb_cpu_set(cpu, 0, in->size, vb_cpu_extend(value, in->size / 2));
    return VB_CPU_GO_ON;
}

/* CWD, CDQ, CQO */
enum vb_cpu_next vb_cpu_extend_into_d(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    bool negative = vb_cpu_get(cpu, 0, in->size) & vb_cpu_sign(in->size);

    vb_cpu_set(cpu, VB_CPU_RDX * 8, in->size, negative ? UINT64_MAX : 0);
    return VB_CPU_GO_ON;
}

/* ---- 16 bytes: `reg` and `rm` are numbers of XMM registers; op 1: the address is aligned
 * --------- */

static bool wide_address(struct vb_cpu *cpu, const struct vb_cpu_instruction *in, uint64_t *at)
{
    *at = vb_cpu_address(cpu, in);
    if (in->op == 0 || *at % 16 == 0)
        return true;
    (void)vb_cpu_raise(cpu, VB_CPU_PROTECTION, true);
    cpu->fault.address = *at; /* for the message of a fault that nobody handles */
    return false;
}

enum vb_cpu_next vb_cpu_wide_load(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t at, value[2];

    if (!in->memory) {
        memcpy(cpu->xmm[in->reg], cpu->xmm[in->rm], 16);
        return VB_CPU_GO_ON;
    }
    if (!wide_address(cpu, in, &at) || !vb_cpu_load_bytes(cpu, at, 16, value))
        return VB_CPU_FAULTED;
    memcpy(cpu->xmm[in->reg], value, 16);
    return VB_CPU_GO_ON;
}

enum vb_cpu_next vb_cpu_wide_store(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t at;

    if (!in->memory) {
        memcpy(cpu->xmm[in->rm], cpu->xmm[in->reg], 16);
        return VB_CPU_GO_ON;
    }
    if (!wide_address(cpu, in, &at))
        return VB_CPU_FAULTED;
    return vb_cpu_store_bytes(cpu, at, 16, cpu->xmm[in->reg]) ? VB_CPU_GO_ON : VB_CPU_FAULTED;
}

enum vb_cpu_next vb_cpu_wide_xor(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t at, value[2];

    memcpy(value, cpu->xmm[in->memory ? 0 : in->rm], 16);
    if (in->memory && (!wide_address(cpu, in, &at) || !vb_cpu_load_bytes(cpu, at, 16, value)))
        return VB_CPU_FAULTED;
    cpu->xmm[in->reg][0] ^= value[0];
    cpu->xmm[in->reg][1] ^= value[1];
    return VB_CPU_GO_ON;
}

/* ---- MOVS, CMPS, STOS, LODS, SCAS ----------------------------------------------------------- */

static bool one_element(struct vb_cpu *cpu, const struct vb_cpu_instruction *in, uint64_t source,
                        uint64_t target)
{
    uint32_t size = in->size;
    uint64_t a, b;

    switch ((enum vb_cpu_string)in->op) {
    case VB_CPU_MOVS:
        return vb_cpu_load(cpu, source, size, &a) && vb_cpu_store(cpu, target, size, a);
    case VB_CPU_STOS:
        return vb_cpu_store(cpu, target, size, vb_cpu_get(cpu, 0, size));
    case VB_CPU_LODS:
        if (!vb_cpu_load(cpu, source, size, &a))
            return false;
        vb_cpu_set(cpu, 0, size, a);
        return true;
    case VB_CPU_CMPS:
        if (!vb_cpu_load(cpu, source, size, &a) || !vb_cpu_load(cpu, target, size, &b))
            return false;
        break;
    default:
        a = vb_cpu_get(cpu, 0, size);
        if (!vb_cpu_load(cpu, target, size, &b))
            return false;
        break;
    }
    vb_cpu_flags_of_difference(cpu, a, b, size);
    return true;
}

static uint64_t pointer(const struct vb_cpu *cpu, const struct vb_cpu_instruction *in,
                        enum vb_cpu_register number)
{
    return in->narrow ? (uint32_t)cpu->reg[number] : cpu->reg[number];
}

static void advance(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t step = cpu->flags & VB_CPU_DF ? -(uint64_t)in->size : in->size;
    uint32_t width = in->narrow ? 4 : 8;

    if (in->op == VB_CPU_MOVS || in->op == VB_CPU_CMPS || in->op == VB_CPU_LODS)
        vb_cpu_set(cpu, VB_CPU_RSI * 8, width, pointer(cpu, in, VB_CPU_RSI) + step);
    if (in->op != VB_CPU_LODS)
        vb_cpu_set(cpu, VB_CPU_RDI * 8, width, pointer(cpu, in, VB_CPU_RDI) + step);
}

static bool is_over(const struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    bool equal = cpu->flags & VB_CPU_ZF;

    if (in->op != VB_CPU_CMPS && in->op != VB_CPU_SCAS)
        return false;
    return in->repeat == VB_CPU_REPEAT_EQUAL ? !equal : equal;
}

/*
 * With REP, a fault leaves the registers at the element that faulted, so that the instruction goes
 * on there (SDM volume 2, REP), and so does an interrupt or a bus call that sets `pause`. The time
 * does not depend on it.
 */
enum vb_cpu_next vb_cpu_string_move(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t segment = in->segment == VB_CPU_SEGMENT_FS   ? cpu->fs_base
                       : in->segment == VB_CPU_SEGMENT_GS ? cpu->gs_base
                                                          : 0;

    do {
        if (in->repeat != VB_CPU_REPEAT_NONE && pointer(cpu, in, VB_CPU_RCX) == 0)
            return VB_CPU_GO_ON;
        if (!one_element(cpu, in, pointer(cpu, in, VB_CPU_RSI) + segment,
                         pointer(cpu, in, VB_CPU_RDI)))
            return VB_CPU_FAULTED;
        advance(cpu, in);
        if (in->repeat == VB_CPU_REPEAT_NONE)
            return VB_CPU_GO_ON;
        vb_cpu_set(cpu, VB_CPU_RCX * 8, in->narrow ? 4 : 8, pointer(cpu, in, VB_CPU_RCX) - 1);
        if (is_over(cpu, in))
            return VB_CPU_GO_ON;
        if (cpu->pause || (cpu->attention && vb_cpu_is_interrupted(cpu)))
            break;
        ++cpu->cycles;
    } while (true);
    --cpu->instructions;  /* it counts when it is over */
    return VB_CPU_JUMPED; /* to this instruction again */
}

#define OF_BOTH_SIZES(FORM, of, memory)                                                            \
    FORM(of, 0, 4, memory)                                                                         \
    FORM(of, 0, 8, memory)
#define VARIANTS(FORM)                                                                             \
    OF_BOTH_SIZES(FORM, vb_cpu_move_store, false)                                                  \
    OF_BOTH_SIZES(FORM, vb_cpu_move_store, true)                                                   \
    OF_BOTH_SIZES(FORM, vb_cpu_move_load, true)                                                    \
    OF_BOTH_SIZES(FORM, vb_cpu_move_imm, false)                                                    \
    OF_BOTH_SIZES(FORM, vb_cpu_lea, true)

VARIANTS(VB_CPU_VARIANT)

static const struct vb_cpu_variant move_variants[] = {VARIANTS(VB_CPU_VARIANT_ROW)};

vb_cpu_operate_fn *vb_cpu_quick_move(const struct vb_cpu_instruction *in)
{
    return vb_cpu_quick_of(move_variants, sizeof move_variants / sizeof *move_variants, in);
}
