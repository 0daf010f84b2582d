// SPDX-License-Identifier: Apache-2.0
/* Additions, comparisons, products and quotients, and the atomic forms of them. */
#include "cpu/operations.h"

/* Wide products need more than standard C has; both compilers have this. */
__extension__ typedef unsigned __int128 wide;
__extension__ typedef __int128 signed_wide;

/*
 * Flags without branches, which are not predictable, and on values that are shifted to the top of a
 * word, where comparisons see `size` bytes alone.
 */
static inline uint64_t flags_of_result(uint64_t result, uint32_t size)
{
    uint64_t top = result << (64 - size * 8);

    return (uint64_t)(top == 0) * VB_CPU_ZF | top >> 63 << 7 |
           (uint64_t)!__builtin_parity((uint8_t)result) * VB_CPU_PF;
}

static inline uint64_t flags_of_sum(uint64_t a, uint64_t b, uint64_t result, bool carry_in,
                                    uint32_t size)
{
    uint32_t unused = 64 - size * 8;
    uint64_t top_a = a << unused, top = result << unused;
    bool carry = top < top_a || (carry_in && top == top_a);

    return flags_of_result(result, size) | carry | ((a ^ b ^ result) & VB_CPU_AF) |
           ((top_a ^ top) & (b << unused ^ top)) >> 63 << 11;
}

static inline uint64_t flags_of_difference(uint64_t a, uint64_t b, uint64_t result, bool borrow_in,
                                           uint32_t size)
{
    uint32_t unused = 64 - size * 8;
    uint64_t top_a = a << unused, top_b = b << unused;
    bool borrow = top_a < top_b || (borrow_in && top_a == top_b);

    return flags_of_result(result, size) | borrow | ((a ^ b ^ result) & VB_CPU_AF) |
           ((top_a ^ top_b) & (top_a ^ result << unused)) >> 63 << 11;
}

static void set_arithmetic(struct vb_cpu *cpu, uint64_t flags)
{
    cpu->flags = (cpu->flags & ~(uint64_t)VB_CPU_ARITHMETIC) | flags;
}

void vb_cpu_flags_of_difference(struct vb_cpu *cpu, uint64_t a, uint64_t b, uint32_t size)
{
    set_arithmetic(cpu, flags_of_difference(a, b, a - b, false, size));
}

static uint64_t combine(const struct vb_cpu *cpu, uint8_t op, uint64_t a, uint64_t b, uint32_t size,
                        uint64_t *flags)
{
    bool carry = cpu->flags & VB_CPU_CF;
    uint64_t result;

    switch ((enum vb_cpu_alu)op) {
    case VB_CPU_ADD:
        result = a + b;
        *flags = flags_of_sum(a, b, result, false, size);
        return result;
    case VB_CPU_ADC:
        result = a + b + carry;
        *flags = flags_of_sum(a, b, result, carry, size);
        return result;
    case VB_CPU_SBB:
        result = a - b - carry;
        *flags = flags_of_difference(a, b, result, carry, size);
        return result;
    case VB_CPU_SUB:
    case VB_CPU_CMP:
        result = a - b;
        *flags = flags_of_difference(a, b, result, false, size);
        return result;
    case VB_CPU_OR:
        result = a | b;
        break;
    case VB_CPU_AND:
        result = a & b;
        break;
    default:
        result = a ^ b;
        break;
    }
    *flags = flags_of_result(result, size);
    return result;
}

static enum vb_cpu_next into_rm(struct vb_cpu *cpu, const struct vb_cpu_instruction *in, uint64_t b)
{
    uint64_t a, flags, result;

    if (!vb_cpu_get_rm(cpu, in, in->size, &a))
        return VB_CPU_FAULTED;
    result = combine(cpu, in->op, a, b, in->size, &flags);
    if (in->op != VB_CPU_CMP && !vb_cpu_change_rm(cpu, in, in->size, result))
        return VB_CPU_FAULTED;
    set_arithmetic(cpu, flags);
    return VB_CPU_GO_ON;
}

enum vb_cpu_next vb_cpu_alu_store(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    return into_rm(cpu, in, vb_cpu_get(cpu, in->reg, in->size));
}

enum vb_cpu_next vb_cpu_alu_imm(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    return into_rm(cpu, in, in->imm);
}

enum vb_cpu_next vb_cpu_alu_load(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t b, flags, result;

    if (!vb_cpu_get_rm(cpu, in, in->size, &b))
        return VB_CPU_FAULTED;
    result = combine(cpu, in->op, vb_cpu_get(cpu, in->reg, in->size), b, in->size, &flags);
    if (in->op != VB_CPU_CMP)
        vb_cpu_set(cpu, in->reg, in->size, result);
    set_arithmetic(cpu, flags);
    return VB_CPU_GO_ON;
}

static enum vb_cpu_next test_with(struct vb_cpu *cpu, const struct vb_cpu_instruction *in,
                                  uint64_t b)
{
    uint64_t a;

    if (!vb_cpu_get_rm(cpu, in, in->size, &a))
        return VB_CPU_FAULTED;
    set_arithmetic(cpu, flags_of_result(a & b, in->size));
    return VB_CPU_GO_ON;
}

enum vb_cpu_next vb_cpu_test(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    return test_with(cpu, in, vb_cpu_get(cpu, in->reg, in->size));
}

enum vb_cpu_next vb_cpu_test_imm(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    return test_with(cpu, in, in->imm);
}

/* INC (op 0) and DEC (op 1), which leave CF. */
enum vb_cpu_next vb_cpu_increment(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t a, result, flags;

    if (!vb_cpu_get_rm(cpu, in, in->size, &a))
        return VB_CPU_FAULTED;
    result = in->op == 0 ? a + 1 : a - 1;
    flags = in->op == 0 ? flags_of_sum(a, 1, result, false, in->size)
                        : flags_of_difference(a, 1, result, false, in->size);
    if (!vb_cpu_change_rm(cpu, in, in->size, result))
        return VB_CPU_FAULTED;
    set_arithmetic(cpu, (flags & ~(uint64_t)VB_CPU_CF) | (cpu->flags & VB_CPU_CF));
    return VB_CPU_GO_ON;
}

enum vb_cpu_next vb_cpu_not_neg(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t a;

    if (!vb_cpu_get_rm(cpu, in, in->size, &a))
        return VB_CPU_FAULTED;
    if (!vb_cpu_change_rm(cpu, in, in->size, in->op == VB_CPU_NOT ? ~a : -a))
        return VB_CPU_FAULTED;
    if (in->op == VB_CPU_NEG)
        vb_cpu_flags_of_difference(cpu, 0, a, in->size);
    return VB_CPU_GO_ON;
}

/* CF and OF say that the product does not fit; the other flags are undefined and stay. */
static void set_overflow(struct vb_cpu *cpu, bool overflow)
{
    cpu->flags &= ~(uint64_t)(VB_CPU_CF | VB_CPU_OF);
    if (overflow)
        cpu->flags |= VB_CPU_CF | VB_CPU_OF;
}

/* The upper half of a product or dividend is in AH, or in DX, EDX or RDX. */
static uint8_t upper_register(uint32_t size)
{
    return size == 1 ? 1 : VB_CPU_RDX * 8;
}

enum vb_cpu_next vb_cpu_multiply(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t a = vb_cpu_get(cpu, 0, in->size), b, low, high;
    bool overflow;
    wide product;

    if (!vb_cpu_get_rm(cpu, in, in->size, &b))
        return VB_CPU_FAULTED;
    if (in->op == VB_CPU_MUL) {
        product = (wide)a * b;
    } else {
        product = (wide)((signed_wide)(int64_t)vb_cpu_extend(a, in->size) *
                         (int64_t)vb_cpu_extend(b, in->size));
    }
    low = (uint64_t)product & vb_cpu_mask(in->size);
    high = (uint64_t)(product >> in->size * 8) & vb_cpu_mask(in->size);
    overflow = in->op == VB_CPU_MUL
                   ? high != 0
                   : high != (low & vb_cpu_sign(in->size) ? vb_cpu_mask(in->size) : 0);
    vb_cpu_set(cpu, 0, in->size, low);
    vb_cpu_set(cpu, upper_register(in->size), in->size, high);
    set_overflow(cpu, overflow);
    return VB_CPU_GO_ON;
}

static enum vb_cpu_next multiply_by(struct vb_cpu *cpu, const struct vb_cpu_instruction *in,
                                    uint64_t a, uint64_t b)
{
    signed_wide product =
        (signed_wide)(int64_t)vb_cpu_extend(a, in->size) * (int64_t)vb_cpu_extend(b, in->size);
    int64_t kept = (int64_t)vb_cpu_extend((uint64_t)product, in->size);

    vb_cpu_set(cpu, in->reg, in->size, (uint64_t)kept);
    set_overflow(cpu, kept != product);
    return VB_CPU_GO_ON;
}

enum vb_cpu_next vb_cpu_multiply_reg(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t b;

    if (!vb_cpu_get_rm(cpu, in, in->size, &b))
        return VB_CPU_FAULTED;
    return multiply_by(cpu, in, vb_cpu_get(cpu, in->reg, in->size), b);
}

enum vb_cpu_next vb_cpu_multiply_imm(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t b;

    if (!vb_cpu_get_rm(cpu, in, in->size, &b))
        return VB_CPU_FAULTED;
    return multiply_by(cpu, in, b, in->imm);
}

/* A quotient that does not fit, or a divisor of 0, is #DE; flags are undefined and stay. */
enum vb_cpu_next vb_cpu_divide(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint32_t size = in->size;
    uint64_t divisor, quotient, rest;
    wide dividend =
        (wide)vb_cpu_get(cpu, upper_register(size), size) << size * 8 | vb_cpu_get(cpu, 0, size);

    if (!vb_cpu_get_rm(cpu, in, size, &divisor))
        return VB_CPU_FAULTED;
    if (divisor == 0)
        return vb_cpu_raise(cpu, VB_CPU_DIVIDE, false);
    if (in->op == VB_CPU_DIV) {
        if (dividend / divisor > vb_cpu_mask(size))
            return vb_cpu_raise(cpu, VB_CPU_DIVIDE, false);
        quotient = (uint64_t)(dividend / divisor);
        rest = (uint64_t)(dividend % divisor);
    } else {
        uint32_t unused = 128 - size * 16;
        signed_wide top = (signed_wide)(dividend << unused) >> unused;
        int64_t by = (int64_t)vb_cpu_extend(divisor, size);
        bool least = top == (signed_wide)((wide)1 << 127) && by == -1;
        signed_wide result = least ? 0 : top / by;

        if (least || result != (int64_t)vb_cpu_extend((uint64_t)result, size))
            return vb_cpu_raise(cpu, VB_CPU_DIVIDE, false);
        quotient = (uint64_t)result;
        rest = (uint64_t)(top % by);
    }
    vb_cpu_set(cpu, 0, size, quotient);
    vb_cpu_set(cpu, upper_register(size), size, rest);
    return VB_CPU_GO_ON;
}

enum vb_cpu_next vb_cpu_exchange_add(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t a, b = vb_cpu_get(cpu, in->reg, in->size), flags, result;

    if (!vb_cpu_get_rm(cpu, in, in->size, &a))
        return VB_CPU_FAULTED;
    result = combine(cpu, VB_CPU_ADD, a, b, in->size, &flags);
    if (in->memory && !vb_cpu_change_rm(cpu, in, in->size, result))
        return VB_CPU_FAULTED;
    vb_cpu_set(cpu, in->reg, in->size, a);
    if (!in->memory)
        vb_cpu_set(cpu, in->rm, in->size, result);
    set_arithmetic(cpu, flags);
    return VB_CPU_GO_ON;
}

/* The destination is written in any case: with its own value, if the comparison fails. */
enum vb_cpu_next vb_cpu_compare_exchange(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t there, expected = vb_cpu_get(cpu, 0, in->size);
    bool equal;

    if (!vb_cpu_get_rm(cpu, in, in->size, &there))
        return VB_CPU_FAULTED;
    equal = there == expected;
    if ((equal || in->memory) &&
        !vb_cpu_change_rm(cpu, in, in->size, equal ? vb_cpu_get(cpu, in->reg, in->size) : there))
        return VB_CPU_FAULTED;
    if (!equal)
        vb_cpu_set(cpu, 0, in->size, there);
    vb_cpu_flags_of_difference(cpu, expected, there, in->size);
    return VB_CPU_GO_ON;
}

/* CMPXCHG8B and CMPXCHG16B; the second wants an aligned address. */
enum vb_cpu_next vb_cpu_compare_exchange_pair(struct vb_cpu *cpu,
                                              const struct vb_cpu_instruction *in)
{
    uint64_t at = vb_cpu_address(cpu, in), there[2] = {0, 0};
    uint32_t half = in->size;
    uint64_t expected[2] = {vb_cpu_get(cpu, 0, half), vb_cpu_get(cpu, VB_CPU_RDX * 8, half)};
    uint64_t wanted[2] = {vb_cpu_get(cpu, VB_CPU_RBX * 8, half),
                          vb_cpu_get(cpu, VB_CPU_RCX * 8, half)};
    uint8_t bytes[16];
    bool equal;

    if (half == 8 && at % 16 != 0) {
        (void)vb_cpu_raise(cpu, VB_CPU_PROTECTION, true);
        cpu->fault.address = at; /* for the message of a fault that nobody handles */
        return VB_CPU_FAULTED;
    }
    if (!vb_cpu_load_bytes(cpu, at, half * 2, bytes))
        return VB_CPU_FAULTED;
    memcpy(&there[0], bytes, half);
    memcpy(&there[1], bytes + half, half);
    equal = there[0] == expected[0] && there[1] == expected[1];
    memcpy(bytes, equal ? &wanted[0] : &there[0], half);
    memcpy(bytes + half, equal ? &wanted[1] : &there[1], half);
    if (vb_cpu_is_parted(cpu, in) ? !vb_cpu_keep_store(cpu, at, half * 2, bytes)
                                  : !vb_cpu_store_bytes(cpu, at, half * 2, bytes))
        return VB_CPU_FAULTED;
    if (!equal) {
        vb_cpu_set(cpu, 0, half, there[0]);
        vb_cpu_set(cpu, VB_CPU_RDX * 8, half, there[1]);
    }
    cpu->flags = (cpu->flags & ~(uint64_t)VB_CPU_ZF) | (equal ? VB_CPU_ZF : 0);
    return VB_CPU_GO_ON;
}

#define OF_BOTH_SIZES(FORM, of, op)                                                                \
    FORM(of, op, 4, false)                                                                         \
    FORM(of, op, 8, false)
#define OF_ALU(FORM, op)                                                                           \
    OF_BOTH_SIZES(FORM, vb_cpu_alu_store, op)                                                      \
    OF_BOTH_SIZES(FORM, vb_cpu_alu_imm, op)                                                        \
    FORM(vb_cpu_alu_load, op, 4, true)                                                             \
    FORM(vb_cpu_alu_load, op, 8, true)
#define VARIANTS(FORM)                                                                             \
    OF_ALU(FORM, VB_CPU_ADD)                                                                       \
    OF_ALU(FORM, VB_CPU_OR)                                                                        \
    OF_ALU(FORM, VB_CPU_AND)                                                                       \
    OF_ALU(FORM, VB_CPU_SUB)                                                                       \
    OF_ALU(FORM, VB_CPU_XOR)                                                                       \
    OF_ALU(FORM, VB_CPU_CMP)                                                                       \
    OF_BOTH_SIZES(FORM, vb_cpu_increment, 0)                                                       \
    OF_BOTH_SIZES(FORM, vb_cpu_increment, 1)                                                       \
    OF_BOTH_SIZES(FORM, vb_cpu_test, 0)

VARIANTS(VB_CPU_VARIANT)

static const struct vb_cpu_variant arithmetic_variants[] = {VARIANTS(VB_CPU_VARIANT_ROW)};

vb_cpu_operate_fn *vb_cpu_quick_arithmetic(const struct vb_cpu_instruction *in)
{
    return vb_cpu_quick_of(arithmetic_variants,
                           sizeof arithmetic_variants / sizeof *arithmetic_variants, in);
}
