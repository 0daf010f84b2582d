// SPDX-License-Identifier: Apache-2.0
/* Shifts, rotations, single bits, the search for bits and their number, and the order of bytes. */
#include "cpu/operations.h"

static void set_flags(struct vb_cpu *cpu, uint64_t which, uint64_t flags)
{
    cpu->flags = (cpu->flags & ~which) | flags;
}

static uint64_t rotate_by(struct vb_cpu *cpu, uint8_t op, uint64_t a, uint32_t count, uint32_t size)
{
    uint32_t bits = size * 8, by = count % bits;
    uint64_t left = op == VB_CPU_ROL ? by : (bits - by) % bits, result = a, flags = 0;
    bool top, carry;

    if (left != 0)
        result = (a << left | a >> (bits - left)) & vb_cpu_mask(size);
    top = result & vb_cpu_sign(size);
    carry = op == VB_CPU_ROL ? result & 1 : top;
    if (carry)
        flags |= VB_CPU_CF;
    /* defined for a count of 1; as processors do for others */
    if (op == VB_CPU_ROL ? top != carry : top != (bool)(result & vb_cpu_sign(size) >> 1))
        flags |= VB_CPU_OF;
    set_flags(cpu, VB_CPU_CF | VB_CPU_OF, flags);
    return result;
}

static uint64_t shift_once(struct vb_cpu *cpu, uint8_t op, uint64_t a, uint32_t count,
                           uint32_t size)
{
    uint32_t bits = size * 8;
    uint64_t result, flags = 0, mask = vb_cpu_mask(size);
    int64_t extended = (int64_t)vb_cpu_extend(a, size);
    bool carry;

    if (op == VB_CPU_SHL) {
        carry = count <= bits && a >> (bits - count) & 1;
        result = count < bits ? a << count & mask : 0;
        if (!(result & vb_cpu_sign(size)) != !carry)
            flags |= VB_CPU_OF;
    } else if (op == VB_CPU_SHR) {
        carry = count <= bits && a >> (count - 1) & 1;
        result = count < bits ? a >> count : 0;
        if (a & vb_cpu_sign(size))
            flags |= VB_CPU_OF;
    } else {
        carry = extended >> (count - 1) & 1;
        result = (uint64_t)(extended >> count) & mask;
    }
    if (carry)
        flags |= VB_CPU_CF;
    if (result == 0)
        flags |= VB_CPU_ZF;
    if (result & vb_cpu_sign(size))
        flags |= VB_CPU_SF;
    if (!(__builtin_popcount((uint32_t)result & 0xff) & 1))
        flags |= VB_CPU_PF;
    set_flags(cpu, VB_CPU_ARITHMETIC, flags);
    return result;
}

static enum vb_cpu_next shift_by(struct vb_cpu *cpu, const struct vb_cpu_instruction *in,
                                 uint64_t by)
{
    uint32_t count = (uint32_t)by & (in->size == 8 ? 63 : 31);
    uint64_t a, before = cpu->flags;

    if (!vb_cpu_get_rm(cpu, in, in->size, &a))
        return VB_CPU_FAULTED;
    if (count != 0)
        a = in->op == VB_CPU_ROL || in->op == VB_CPU_ROR
                ? rotate_by(cpu, in->op, a, count, in->size)
                : shift_once(cpu, in->op, a, count, in->size);
    if (vb_cpu_change_rm(cpu, in, in->size, a))
        return VB_CPU_GO_ON;
    cpu->flags = before;
    return VB_CPU_FAULTED;
}

enum vb_cpu_next vb_cpu_shift_imm(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    return shift_by(cpu, in, in->imm);
}

enum vb_cpu_next vb_cpu_shift_cl(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    return shift_by(cpu, in, cpu->reg[VB_CPU_RCX]);
}

/*
 * SHLD and SHRD: `b` supplies the bits that are shifted in. A count above the operand's bits, which
 * 16-bit operands can have, is undefined (SDM volume 2, SHLD) and changes nothing here.
 */
static enum vb_cpu_next shift_double_by(struct vb_cpu *cpu, const struct vb_cpu_instruction *in,
                                        uint64_t by)
{
    uint32_t bits = in->size * 8u, count = (uint32_t)by & (in->size == 8 ? 63 : 31);
    uint64_t a, b = vb_cpu_get(cpu, in->reg, in->size), result, flags = 0;

    if (!vb_cpu_get_rm(cpu, in, in->size, &a))
        return VB_CPU_FAULTED;
    if (count == 0 || count > bits)
        return vb_cpu_change_rm(cpu, in, in->size, a) ? VB_CPU_GO_ON : VB_CPU_FAULTED;
    if (in->op == VB_CPU_SHL)
        result = a << count | b >> (bits - count);
    else
        result = a >> count | b << (bits - count);
    result &= vb_cpu_mask(in->size);
    if (!vb_cpu_change_rm(cpu, in, in->size, result))
        return VB_CPU_FAULTED;
    if (a >> (in->op == VB_CPU_SHL ? bits - count : count - 1) & 1)
        flags |= VB_CPU_CF;
    if (result == 0)
        flags |= VB_CPU_ZF;
    if (result & vb_cpu_sign(in->size))
        flags |= VB_CPU_SF;
    if (!(__builtin_popcount((uint32_t)result & 0xff) & 1))
        flags |= VB_CPU_PF;
    if ((result ^ a) & vb_cpu_sign(in->size)) /* defined for a count of 1 */
        flags |= VB_CPU_OF;
    set_flags(cpu, VB_CPU_ARITHMETIC, flags);
    return VB_CPU_GO_ON;
}

enum vb_cpu_next vb_cpu_shift_double_imm(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    return shift_double_by(cpu, in, in->imm);
}

enum vb_cpu_next vb_cpu_shift_double_cl(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    return shift_double_by(cpu, in, cpu->reg[VB_CPU_RCX]);
}

static bool store_bits(struct vb_cpu *cpu, const struct vb_cpu_instruction *in, uint64_t at,
                       uint64_t value)
{
    if (!in->memory)
        return vb_cpu_set_rm(cpu, in, in->size, value);
    if (vb_cpu_is_parted(cpu, in))
        return vb_cpu_keep_store(cpu, at, in->size, &value);
    return vb_cpu_store(cpu, at, in->size, value);
}

static enum vb_cpu_next change_bit(struct vb_cpu *cpu, const struct vb_cpu_instruction *in,
                                   uint64_t at, uint32_t number)
{
    uint64_t a, bit = UINT64_C(1) << number, result;
    bool was;

    if (in->memory ? !vb_cpu_load(cpu, at, in->size, &a) : !vb_cpu_get_rm(cpu, in, in->size, &a))
        return VB_CPU_FAULTED;
    was = a & bit;
    result = in->op == VB_CPU_BTS ? a | bit : in->op == VB_CPU_BTR ? a & ~bit : a ^ bit;
    if (in->op != VB_CPU_BT && !store_bits(cpu, in, at, result))
        return VB_CPU_FAULTED;
    set_flags(cpu, VB_CPU_CF, was ? VB_CPU_CF : 0);
    return VB_CPU_GO_ON;
}

/* A bit of memory by register is anywhere from the address on, also before it. */
enum vb_cpu_next vb_cpu_bit_reg(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint32_t bits = in->size * 8;
    int64_t number = (int64_t)vb_cpu_extend(vb_cpu_get(cpu, in->reg, in->size), in->size);
    int64_t step = number >> (in->size == 8 ? 6 : in->size == 4 ? 5 : 4);
    uint64_t at = in->memory ? vb_cpu_address(cpu, in) + (uint64_t)step * in->size : 0;

    return change_bit(cpu, in, at, (uint32_t)number & (bits - 1));
}

enum vb_cpu_next vb_cpu_bit_imm(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t at = in->memory ? vb_cpu_address(cpu, in) : 0;

    return change_bit(cpu, in, at, (uint32_t)in->imm & (in->size * 8u - 1));
}

/* BSF and BSR. The destination stays as it is where the source is 0, as processors have it. */
enum vb_cpu_next vb_cpu_scan(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t a;

    if (!vb_cpu_get_rm(cpu, in, in->size, &a))
        return VB_CPU_FAULTED;
    set_flags(cpu, VB_CPU_ZF, a == 0 ? VB_CPU_ZF : 0);
    if (a != 0)
        vb_cpu_set(cpu, in->reg, in->size,
                   (uint64_t)(in->op == VB_CPU_BSF ? __builtin_ctzll(a) : 63 - __builtin_clzll(a)));
    return VB_CPU_GO_ON;
}

/* POPCNT, TZCNT and LZCNT, which also have a result where the source is 0. */
enum vb_cpu_next vb_cpu_count_bits(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t a, result, flags = 0;
    uint32_t bits = in->size * 8u;

    if (!vb_cpu_get_rm(cpu, in, in->size, &a))
        return VB_CPU_FAULTED;
    if (in->op == VB_CPU_POPCNT)
        result = (uint64_t)__builtin_popcountll(a);
    else if (a == 0)
        result = bits;
    else if (in->op == VB_CPU_TZCNT)
        result = (uint64_t)__builtin_ctzll(a);
    else
        result = (uint64_t)__builtin_clzll(a) - (64 - bits);
    vb_cpu_set(cpu, in->reg, in->size, result);
    if (in->op != VB_CPU_POPCNT && a == 0)
        flags |= VB_CPU_CF;
    if (result == 0)
        flags |= VB_CPU_ZF;
    set_flags(cpu, VB_CPU_ARITHMETIC, flags);
    return VB_CPU_GO_ON;
}

enum vb_cpu_next vb_cpu_byte_swap(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t a = vb_cpu_get(cpu, in->reg, in->size);

    vb_cpu_set(cpu, in->reg, in->size,
               in->size == 8 ? __builtin_bswap64(a) : __builtin_bswap32((uint32_t)a));
    return VB_CPU_GO_ON;
}
