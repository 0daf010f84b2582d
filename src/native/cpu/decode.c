// SPDX-License-Identifier: Apache-2.0
/*
 * The decoder, by tables of opcodes (SDM volume 2, appendix A): a row says which function carries
 * the instruction out and in which form its operands follow. What no row names is not of the
 * subset.
 */
#include "cpu/operations.h"

enum form {
    BARE,    /* no operands, or fixed ones */
    RM_REG,  /* a register, and a register or memory */
    RM_IMM,  /* a register or memory, and an immediate of the size (at most 4 bytes) */
    RM_IMM8, /* ... of one byte */
    RM_ONE,  /* ... and 1 */
    RM_ONLY, /* a register or memory */
    RM_REG_IMM,
    RM_REG_IMM8, /* three operands */
    A_IMM,       /* AL, AX, EAX or RAX, and an immediate of the size */
    A_REG,       /* RAX, and the register of the opcode */
    REG_ONLY,    /* the register of the opcode */
    REG_IMM,     /* and an immediate of the whole size, up to 8 bytes */
    IMM,         /* an immediate of the size, at most 4 bytes */
    IMM8,
    IMM16,
    IMM32,
    CONTROL, /* a control register and a register */
    GROUP    /* the reg field of ModRM chooses among eight rows */
};

enum property {
    BYTE = 1,     /* of one byte; others have 2, 4 or 8 */
    QUAD = 2,     /* 8 bytes without REX.W */
    LOCKABLE = 4, /* with a memory operand */
    FROM_BYTE = 8,
    FROM_WORD = 16,
    FROM_DOUBLE = 32,
    MEMORY_ONLY = 64,
    REGISTER_ONLY = 128,
    STACK = 256 /* 8 bytes, or 2 with the prefix 66 */
};

struct row {
    vb_cpu_operate_fn *operate; /* NULL in GROUP: `op` is the index in `groups` */
    uint8_t form, op;
    uint16_t properties;
};

enum group {
    ALU_8,
    ALU_32,
    ALU_S8,
    SHIFT_8,
    SHIFT_V,
    SHIFT_8_ONE,
    SHIFT_V_ONE,
    SHIFT_8_CL,
    SHIFT_V_CL,
    UNARY_8,
    UNARY_V,
    STEP_8,
    STEP_V,
    POP_RM,
    MOVE_8,
    MOVE_V,
    TABLES,
    FENCES,
    BITS,
    PAIR,
    GROUPS
};

#define SAME(operate, form, properties)                                                            \
    {                                                                                              \
        {operate, form, 0, properties}, {operate, form, 1, properties},                            \
        {operate, form, 2, properties}, {operate, form, 3, properties},                            \
        {operate, form, 4, properties}, {operate, form, 5, properties},                            \
        {operate, form, 6, properties}, {operate, form, 7, properties},                            \
    }
#define SHIFTS(operate, form, properties)                                                          \
    {                                                                                              \
        [VB_CPU_ROL] = {operate, form, VB_CPU_ROL, properties},                                    \
        [VB_CPU_ROR] = {operate, form, VB_CPU_ROR, properties},                                    \
        [VB_CPU_SHL] = {operate, form, VB_CPU_SHL, properties},                                    \
        [VB_CPU_SHR] = {operate, form, VB_CPU_SHR, properties},                                    \
        [6] = {operate, form, VB_CPU_SHL, properties},                                             \
        [VB_CPU_SAR] = {operate, form, VB_CPU_SAR, properties},                                    \
    }
#define UNARY(properties)                                                                          \
    {                                                                                              \
        {vb_cpu_test_imm, RM_IMM, 0, properties},                                                  \
        {vb_cpu_test_imm, RM_IMM, 0, properties},                                                  \
        {vb_cpu_not_neg, RM_ONLY, VB_CPU_NOT, (properties) | LOCKABLE},                            \
        {vb_cpu_not_neg, RM_ONLY, VB_CPU_NEG, (properties) | LOCKABLE},                            \
        {vb_cpu_multiply, RM_ONLY, VB_CPU_MUL, properties},                                        \
        {vb_cpu_multiply, RM_ONLY, VB_CPU_IMUL, properties},                                       \
        {vb_cpu_divide, RM_ONLY, VB_CPU_DIV, properties},                                          \
        {vb_cpu_divide, RM_ONLY, VB_CPU_IDIV, properties},                                         \
    }

static const struct row groups[GROUPS][8] = {
    [ALU_8] = SAME(vb_cpu_alu_imm, RM_IMM, BYTE | LOCKABLE),
    [ALU_32] = SAME(vb_cpu_alu_imm, RM_IMM, LOCKABLE),
    [ALU_S8] = SAME(vb_cpu_alu_imm, RM_IMM8, LOCKABLE),
    [SHIFT_8] = SHIFTS(vb_cpu_shift_imm, RM_IMM8, BYTE),
    [SHIFT_V] = SHIFTS(vb_cpu_shift_imm, RM_IMM8, 0),
    [SHIFT_8_ONE] = SHIFTS(vb_cpu_shift_imm, RM_ONE, BYTE),
    [SHIFT_V_ONE] = SHIFTS(vb_cpu_shift_imm, RM_ONE, 0),
    [SHIFT_8_CL] = SHIFTS(vb_cpu_shift_cl, RM_ONLY, BYTE),
    [SHIFT_V_CL] = SHIFTS(vb_cpu_shift_cl, RM_ONLY, 0),
    [UNARY_8] = UNARY(BYTE),
    [UNARY_V] = UNARY(0),
    [STEP_8] = {{vb_cpu_increment, RM_ONLY, 0, BYTE | LOCKABLE},
                {vb_cpu_increment, RM_ONLY, 1, BYTE | LOCKABLE}},
    [STEP_V] = {{vb_cpu_increment, RM_ONLY, 0, LOCKABLE},
                {vb_cpu_increment, RM_ONLY, 1, LOCKABLE},
                {vb_cpu_call_rm, RM_ONLY, 0, QUAD},
                [4] = {vb_cpu_jump_rm, RM_ONLY, 0, QUAD},
                [6] = {vb_cpu_push_rm, RM_ONLY, 0, STACK}},
    [POP_RM] = {{vb_cpu_pop_rm, RM_ONLY, 0, STACK}},
    [MOVE_8] = {{vb_cpu_move_imm, RM_IMM, 0, BYTE}},
    [MOVE_V] = {{vb_cpu_move_imm, RM_IMM, 0, 0}},
    [TABLES] = {[3] = {vb_cpu_load_idt, RM_ONLY, 0, MEMORY_ONLY},
                [7] = {vb_cpu_invalidate_page, RM_ONLY, 0, MEMORY_ONLY}},
    /* LFENCE, MFENCE, and SFENCE; in memory CLFLUSH */
    [FENCES] = {[5] = {vb_cpu_nothing, RM_ONLY, 0, REGISTER_ONLY},
                [6] = {vb_cpu_nothing, RM_ONLY, 0, REGISTER_ONLY},
                [7] = {vb_cpu_nothing, RM_ONLY, 0, 0}},
    [BITS] = {[4] = {vb_cpu_bit_imm, RM_IMM8, VB_CPU_BT, 0},
              [5] = {vb_cpu_bit_imm, RM_IMM8, VB_CPU_BTS, LOCKABLE},
              [6] = {vb_cpu_bit_imm, RM_IMM8, VB_CPU_BTR, LOCKABLE},
              [7] = {vb_cpu_bit_imm, RM_IMM8, VB_CPU_BTC, LOCKABLE}},
    [PAIR] = {[1] = {vb_cpu_compare_exchange_pair, RM_ONLY, 0, MEMORY_ONLY | LOCKABLE}},
};

#define IN_GROUP(group) {NULL, GROUP, group, 0}
#define ALU(code, op)                                                                              \
    [code] = {vb_cpu_alu_store, RM_REG, op, BYTE | LOCKABLE},                                      \
    [(code) + 1] = {vb_cpu_alu_store, RM_REG, op, LOCKABLE},                                       \
    [(code) + 2] = {vb_cpu_alu_load, RM_REG, op, BYTE},                                            \
    [(code) + 3] = {vb_cpu_alu_load, RM_REG, op, 0},                                               \
    [(code) + 4] = {vb_cpu_alu_imm, A_IMM, op, BYTE},                                              \
    [(code) + 5] = {vb_cpu_alu_imm, A_IMM, op, 0}
#define EIGHT(code, operate, form, properties)                                                     \
    [code] = {operate, form, 0, properties}, [(code) + 1] = {operate, form, 1, properties},        \
    [(code) + 2] = {operate, form, 2, properties}, [(code) + 3] = {operate, form, 3, properties},  \
    [(code) + 4] = {operate, form, 4, properties}, [(code) + 5] = {operate, form, 5, properties},  \
    [(code) + 6] = {operate, form, 6, properties}, [(code) + 7] = {operate, form, 7, properties}
/* the conditions */
#define SIXTEEN(code, operate, form, properties)                                                   \
    EIGHT(code, operate, form, properties),                                                        \
        [(code) + 8] = {operate, form, 8, properties},                                             \
                  [(code) + 9] = {operate, form, 9, properties},                                   \
                  [(code) + 10] = {operate, form, 10, properties},                                 \
                  [(code) + 11] = {operate, form, 11, properties},                                 \
                  [(code) + 12] = {operate, form, 12, properties},                                 \
                  [(code) + 13] = {operate, form, 13, properties},                                 \
                  [(code) + 14] = {operate, form, 14, properties},                                 \
                  [(code) + 15] = {operate, form, 15, properties}
#define STRING(code, op)                                                                           \
    [code] = {vb_cpu_string_move, BARE, op, BYTE}, [(code) + 1] = {vb_cpu_string_move, BARE, op, 0}

static const struct row one_byte[256] = {
    ALU(0x00, VB_CPU_ADD),
    ALU(0x08, VB_CPU_OR),
    ALU(0x10, VB_CPU_ADC),
    ALU(0x18, VB_CPU_SBB),
    ALU(0x20, VB_CPU_AND),
    ALU(0x28, VB_CPU_SUB),
    ALU(0x30, VB_CPU_XOR),
    ALU(0x38, VB_CPU_CMP),
    EIGHT(0x50, vb_cpu_push_reg, REG_ONLY, STACK),
    EIGHT(0x58, vb_cpu_pop_reg, REG_ONLY, STACK),
    [0x63] = {vb_cpu_move_sign, RM_REG, 0, FROM_DOUBLE},
    [0x68] = {vb_cpu_push_imm, IMM, 0, STACK},
    [0x69] = {vb_cpu_multiply_imm, RM_REG_IMM, 0, 0},
    [0x6a] = {vb_cpu_push_imm, IMM8, 0, STACK},
    [0x6b] = {vb_cpu_multiply_imm, RM_REG_IMM8, 0, 0},
    SIXTEEN(0x70, vb_cpu_jump_if, IMM8, QUAD),
    [0x80] = IN_GROUP(ALU_8),
    [0x81] = IN_GROUP(ALU_32),
    [0x83] = IN_GROUP(ALU_S8),
    [0x84] = {vb_cpu_test, RM_REG, 0, BYTE},
    [0x85] = {vb_cpu_test, RM_REG, 0, 0},
    [0x86] = {vb_cpu_exchange, RM_REG, 0, BYTE | LOCKABLE},
    [0x87] = {vb_cpu_exchange, RM_REG, 0, LOCKABLE},
    [0x88] = {vb_cpu_move_store, RM_REG, 0, BYTE},
    [0x89] = {vb_cpu_move_store, RM_REG, 0, 0},
    [0x8a] = {vb_cpu_move_load, RM_REG, 0, BYTE},
    [0x8b] = {vb_cpu_move_load, RM_REG, 0, 0},
    [0x8d] = {vb_cpu_lea, RM_REG, 0, MEMORY_ONLY},
    [0x8f] = IN_GROUP(POP_RM),
    EIGHT(0x90, vb_cpu_exchange, A_REG, 0),
    [0x98] = {vb_cpu_extend_a, BARE, 0, 0},
    [0x99] = {vb_cpu_extend_into_d, BARE, 0, 0},
    [0x9c] = {vb_cpu_push_flags, BARE, 0, STACK},
    [0x9d] = {vb_cpu_pop_flags, BARE, 0, STACK},
    STRING(0xa4, VB_CPU_MOVS),
    STRING(0xa6, VB_CPU_CMPS),
    [0xa8] = {vb_cpu_test_imm, A_IMM, 0, BYTE},
    [0xa9] = {vb_cpu_test_imm, A_IMM, 0, 0},
    STRING(0xaa, VB_CPU_STOS),
    STRING(0xac, VB_CPU_LODS),
    STRING(0xae, VB_CPU_SCAS),
    EIGHT(0xb0, vb_cpu_move_imm, REG_IMM, BYTE),
    EIGHT(0xb8, vb_cpu_move_imm, REG_IMM, 0),
    [0xc0] = IN_GROUP(SHIFT_8),
    [0xc1] = IN_GROUP(SHIFT_V),
    [0xc2] = {vb_cpu_return, IMM16, 0, QUAD},
    [0xc3] = {vb_cpu_return, BARE, 0, QUAD},
    [0xc6] = IN_GROUP(MOVE_8),
    [0xc7] = IN_GROUP(MOVE_V),
    [0xc9] = {vb_cpu_leave, BARE, 0, STACK},
    [0xcc] = {vb_cpu_software_interrupt, BARE, VB_CPU_BREAKPOINT, 0},
    [0xcd] = {vb_cpu_software_interrupt, IMM8, 0, 0},
    [0xcf] = {vb_cpu_interrupt_return, BARE, 0, 0},
    [0xd0] = IN_GROUP(SHIFT_8_ONE),
    [0xd1] = IN_GROUP(SHIFT_V_ONE),
    [0xd2] = IN_GROUP(SHIFT_8_CL),
    [0xd3] = IN_GROUP(SHIFT_V_CL),
    [0xe0] = {vb_cpu_loop, IMM8, 0, QUAD},
    [0xe1] = {vb_cpu_loop, IMM8, 1, QUAD},
    [0xe2] = {vb_cpu_loop, IMM8, 2, QUAD},
    [0xe3] = {vb_cpu_jump_if_no_count, IMM8, 0, QUAD},
    [0xe4] = {vb_cpu_port_in, IMM8, 0, BYTE},
    [0xe5] = {vb_cpu_port_in, IMM8, 0, 0},
    [0xe6] = {vb_cpu_port_out, IMM8, 0, BYTE},
    [0xe7] = {vb_cpu_port_out, IMM8, 0, 0},
    [0xe8] = {vb_cpu_call, IMM32, 0, QUAD},
    [0xe9] = {vb_cpu_jump, IMM32, 0, QUAD},
    [0xeb] = {vb_cpu_jump, IMM8, 0, QUAD},
    [0xec] = {vb_cpu_port_in, BARE, 1, BYTE},
    [0xed] = {vb_cpu_port_in, BARE, 1, 0},
    [0xee] = {vb_cpu_port_out, BARE, 1, BYTE},
    [0xef] = {vb_cpu_port_out, BARE, 1, 0},
    [0xf4] = {vb_cpu_halt, BARE, 0, 0},
    [0xf5] = {vb_cpu_carry_flag, BARE, 2, 0},
    [0xf6] = IN_GROUP(UNARY_8),
    [0xf7] = IN_GROUP(UNARY_V),
    [0xf8] = {vb_cpu_carry_flag, BARE, 0, 0},
    [0xf9] = {vb_cpu_carry_flag, BARE, 1, 0},
    [0xfa] = {vb_cpu_interrupt_flag, BARE, 0, 0},
    [0xfb] = {vb_cpu_interrupt_flag, BARE, 1, 0},
    [0xfc] = {vb_cpu_direction_flag, BARE, 0, 0},
    [0xfd] = {vb_cpu_direction_flag, BARE, 1, 0},
    [0xfe] = IN_GROUP(STEP_8),
    [0xff] = IN_GROUP(STEP_V),
};

/* After 0F. */
static const struct row two_bytes[256] = {
    [0x01] = IN_GROUP(TABLES),
    [0x05] = {vb_cpu_system_call, BARE, 0, 0},
    [0x07] = {vb_cpu_system_return, BARE, 0, 0},
    [0x18] = {vb_cpu_nothing, RM_ONLY, 0, 0},
    [0x1e] = {vb_cpu_nothing, RM_ONLY, 0, 0},
    [0x1f] = {vb_cpu_nothing, RM_ONLY, 0, 0},
    [0x20] = {vb_cpu_read_control, CONTROL, 0, QUAD},
    [0x22] = {vb_cpu_write_control, CONTROL, 0, QUAD},
    [0x30] = {vb_cpu_write_msr, BARE, 0, 0},
    [0x31] = {vb_cpu_read_counter, BARE, 0, 0},
    [0x32] = {vb_cpu_read_msr, BARE, 0, 0},
    SIXTEEN(0x40, vb_cpu_move_if, RM_REG, 0),
    SIXTEEN(0x80, vb_cpu_jump_if, IMM32, QUAD),
    SIXTEEN(0x90, vb_cpu_set_if, RM_ONLY, BYTE),
    [0xa2] = {vb_cpu_identify, BARE, 0, 0},
    [0xa3] = {vb_cpu_bit_reg, RM_REG, VB_CPU_BT, 0},
    [0xa4] = {vb_cpu_shift_double_imm, RM_REG_IMM8, VB_CPU_SHL, 0},
    [0xa5] = {vb_cpu_shift_double_cl, RM_REG, VB_CPU_SHL, 0},
    [0xab] = {vb_cpu_bit_reg, RM_REG, VB_CPU_BTS, LOCKABLE},
    [0xac] = {vb_cpu_shift_double_imm, RM_REG_IMM8, VB_CPU_SHR, 0},
    [0xad] = {vb_cpu_shift_double_cl, RM_REG, VB_CPU_SHR, 0},
    [0xae] = IN_GROUP(FENCES),
    [0xaf] = {vb_cpu_multiply_reg, RM_REG, 0, 0},
    [0xb0] = {vb_cpu_compare_exchange, RM_REG, 0, BYTE | LOCKABLE},
    [0xb1] = {vb_cpu_compare_exchange, RM_REG, 0, LOCKABLE},
    [0xb3] = {vb_cpu_bit_reg, RM_REG, VB_CPU_BTR, LOCKABLE},
    [0xb6] = {vb_cpu_move_zero, RM_REG, 0, FROM_BYTE},
    [0xb7] = {vb_cpu_move_zero, RM_REG, 0, FROM_WORD},
    [0xb8] = {vb_cpu_count_bits, RM_REG, VB_CPU_POPCNT, 0}, /* with F3 */
    [0xba] = IN_GROUP(BITS),
    [0xbb] = {vb_cpu_bit_reg, RM_REG, VB_CPU_BTC, LOCKABLE},
    [0xbc] = {vb_cpu_scan, RM_REG, VB_CPU_BSF, 0},
    [0xbd] = {vb_cpu_scan, RM_REG, VB_CPU_BSR, 0},
    [0xbe] = {vb_cpu_move_sign, RM_REG, 0, FROM_BYTE},
    [0xbf] = {vb_cpu_move_sign, RM_REG, 0, FROM_WORD},
    [0xc0] = {vb_cpu_exchange_add, RM_REG, 0, BYTE | LOCKABLE},
    [0xc1] = {vb_cpu_exchange_add, RM_REG, 0, LOCKABLE},
    [0xc3] = {vb_cpu_move_store, RM_REG, 0, MEMORY_ONLY}, /* MOVNTI */
    [0xc7] = IN_GROUP(PAIR),
    EIGHT(0xc8, vb_cpu_byte_swap, REG_ONLY, 0),
};

/* After 0F, on XMM registers: MOVUPS, MOVAPS, MOVNTPS, MOVDQA, MOVDQU, MOVNTDQ, PXOR and XORPS. */
static const struct wide_row {
    uint8_t code, prefix; /* 0, 66 or F3 */
    vb_cpu_operate_fn *operate;
    uint8_t aligned;
} wide_rows[] = {
    {0x10, 0, vb_cpu_wide_load, 0},     {0x10, 0x66, vb_cpu_wide_load, 0},
    {0x11, 0, vb_cpu_wide_store, 0},    {0x11, 0x66, vb_cpu_wide_store, 0},
    {0x28, 0, vb_cpu_wide_load, 1},     {0x28, 0x66, vb_cpu_wide_load, 1},
    {0x29, 0, vb_cpu_wide_store, 1},    {0x29, 0x66, vb_cpu_wide_store, 1},
    {0x2b, 0, vb_cpu_wide_store, 1},    {0x2b, 0x66, vb_cpu_wide_store, 1},
    {0x57, 0, vb_cpu_wide_xor, 1},      {0x6f, 0x66, vb_cpu_wide_load, 1},
    {0x6f, 0xf3, vb_cpu_wide_load, 0},  {0x7f, 0x66, vb_cpu_wide_store, 1},
    {0x7f, 0xf3, vb_cpu_wide_store, 0}, {0xe7, 0x66, vb_cpu_wide_store, 1},
    {0xef, 0x66, vb_cpu_wide_xor, 1},
};

/* ---- the bytes ---------------------------------------------------------------------------------
 */

enum { REX_B = 1, REX_X = 2, REX_R = 4, REX_W = 8, REX = 0x40, LONGEST = 15 };

struct cursor {
    const uint8_t *bytes;
    uint32_t at, length;
    bool ended; /* it was asked for more than there is */
    uint8_t rex;
    bool word;      /* 66 */
    uint8_t repeat; /* F2 or F3 */
};

static uint64_t take(struct cursor *c, uint32_t size)
{
    uint64_t value = 0;

    if (c->at + size > c->length) {
        c->ended = true;
        return 0;
    }
    memcpy(&value, c->bytes + c->at, size);
    c->at += size;
    return value;
}

static uint64_t take_signed(struct cursor *c, uint32_t size)
{
    return vb_cpu_extend(take(c, size), size);
}

static uint8_t take_prefixes(struct cursor *c, struct vb_cpu_instruction *in)
{
    for (;;) {
        uint8_t byte = (uint8_t)take(c, 1);

        switch (c->ended ? 0 : byte) {
        case 0x26: /* segments without a base in 64-bit mode */
        case 0x2e:
        case 0x36:
        case 0x3e:
            break;
        case 0x64:
            in->segment = VB_CPU_SEGMENT_FS;
            break;
        case 0x65:
            in->segment = VB_CPU_SEGMENT_GS;
            break;
        case 0x66:
            c->word = true;
            break;
        case 0x67:
            in->narrow = true;
            break;
        case 0xf0:
            in->lock = true;
            break;
        case 0xf2:
        case 0xf3:
            c->repeat = byte;
            break;
        default:
            if ((byte & 0xf0) != REX)
                return byte;
            c->rex = byte;
            continue;
        }
        c->rex = 0; /* one that does not stand before the opcode has no effect */
    }
}

static uint8_t register_at(const struct cursor *c, uint8_t number, uint32_t size)
{
    if (size == 1 && c->rex == 0 && number >= 4)
        return (uint8_t)((number - 4) * 8 + 1); /* AH, CH, DH, BH */
    return (uint8_t)(number * 8);
}

static void take_memory(struct cursor *c, struct vb_cpu_instruction *in, uint8_t mod, uint8_t rm)
{
    in->base = rm | (c->rex & REX_B ? 8 : 0);
    in->index = VB_CPU_NO_REGISTER;
    if (rm == 4) {
        uint8_t sib = (uint8_t)take(c, 1);
        uint8_t index = (sib >> 3 & 7) | (c->rex & REX_X ? 8 : 0);

        in->base = (sib & 7) | (c->rex & REX_B ? 8 : 0);
        in->scale = sib >> 6;
        if (index != VB_CPU_RSP)
            in->index = index;
        if ((sib & 7) == 5 && mod == 0) {
            in->base = VB_CPU_NO_REGISTER;
            mod = 2;
        }
    } else if (rm == 5 && mod == 0) {
        in->base = VB_CPU_RELATIVE;
        mod = 2;
    }
    if (mod == 1)
        in->displacement = (int32_t)take_signed(c, 1);
    else if (mod == 2)
        in->displacement = (int32_t)take_signed(c, 4);
}

/* ModRM and what follows it. The number in the reg field without REX is returned. */
static uint8_t take_modrm(struct cursor *c, struct vb_cpu_instruction *in, uint32_t rm_size,
                          bool xmm)
{
    uint8_t modrm = (uint8_t)take(c, 1), mod = modrm >> 6, rm = modrm & 7;
    uint8_t reg = (modrm >> 3 & 7) | (c->rex & REX_R ? 8 : 0);

    in->reg = xmm ? reg : register_at(c, reg, in->size);
    in->memory = mod != 3;
    if (in->memory) {
        take_memory(c, in, mod, rm);
    } else {
        rm |= c->rex & REX_B ? 8 : 0;
        in->rm = xmm ? rm : register_at(c, rm, rm_size);
    }
    return modrm >> 3 & 7;
}

static uint8_t size_of(const struct cursor *c, uint16_t properties)
{
    if (properties & BYTE)
        return 1;
    if (c->rex & REX_W || properties & QUAD)
        return 8;
    return c->word ? 2 : properties & STACK ? 8 : 4;
}

static void take_operands(struct cursor *c, struct vb_cpu_instruction *in, const struct row *row,
                          uint8_t code)
{
    uint32_t immediate = in->size < 4 ? in->size : 4;
    uint8_t number = (code & 7) | (c->rex & REX_B ? 8 : 0);

    switch ((enum form)row->form) {
    case RM_IMM:
    case RM_REG_IMM:
    case IMM:
        in->imm = take_signed(c, immediate);
        break;
    case RM_IMM8:
    case RM_REG_IMM8:
    case IMM8:
        in->imm = take_signed(c, 1);
        break;
    case RM_ONE:
        in->imm = 1;
        break;
    case A_IMM:
        in->rm = 0;
        in->imm = take_signed(c, immediate);
        break;
    case A_REG:
        in->reg = 0;
        in->rm = register_at(c, number, in->size);
        break;
    case REG_ONLY:
        in->reg = (uint8_t)(number * 8);
        break;
    case REG_IMM:
        in->rm = register_at(c, number, in->size);
        in->imm = take_signed(c, in->size);
        break;
    case IMM16:
        in->imm = take(c, 2);
        break;
    case IMM32:
        in->imm = take_signed(c, 4);
        break;
    case BARE:
    case RM_REG:
    case RM_ONLY:
    case CONTROL:
    case GROUP:
        break;
    }
}

static bool has_modrm(const struct row *row)
{
    return row->form >= RM_REG && row->form <= RM_REG_IMM8;
}

static bool fits_row(const struct vb_cpu_instruction *in, const struct row *row)
{
    if (row->properties & MEMORY_ONLY && !in->memory)
        return false;
    if (row->properties & REGISTER_ONLY && in->memory)
        return false;
    if (!in->lock)
        return true;
    if (in->operate == vb_cpu_alu_store || in->operate == vb_cpu_alu_imm)
        return in->memory && in->op != VB_CPU_CMP;
    return row->properties & LOCKABLE && in->memory;
}

static bool decode_wide(struct cursor *c, struct vb_cpu_instruction *in, uint8_t code)
{
    uint8_t prefix = c->repeat != 0 ? c->repeat : c->word ? 0x66 : 0;

    for (size_t i = 0; i < sizeof wide_rows / sizeof *wide_rows; ++i) {
        if (wide_rows[i].code != code || wide_rows[i].prefix != prefix)
            continue;
        in->operate = wide_rows[i].operate;
        in->op = wide_rows[i].aligned;
        in->size = 16;
        (void)take_modrm(c, in, 16, true);
        return !in->lock;
    }
    return false;
}

/* F3 90 is PAUSE; 0F 01 F8 is SWAPGS; RDTSC behind LFENCE and the like need no case. */
static bool decode_special(struct cursor *c, struct vb_cpu_instruction *in, bool two, uint8_t code)
{
    if (!two && code == 0x90 && !(c->rex & REX_B)) {
        in->operate = vb_cpu_nothing;
        return !in->lock;
    }
    if (two && code == 0x01 && c->at < c->length && c->bytes[c->at] == 0xf8) {
        ++c->at;
        in->operate = vb_cpu_swap_gs;
        return !in->lock;
    }
    return false;
}

static void set_sizes(struct cursor *c, struct vb_cpu_instruction *in, const struct row *row)
{
    in->size = size_of(c, row->properties);
    in->from = row->properties & FROM_BYTE     ? 1
               : row->properties & FROM_WORD   ? 2
               : row->properties & FROM_DOUBLE ? 4
                                               : in->size;
}

/* F3 makes TZCNT of BSF, LZCNT of BSR and POPCNT of what is no instruction without it. */
static bool fits_repeat(const struct cursor *c, struct vb_cpu_instruction *in)
{
    if (in->operate == vb_cpu_scan && c->repeat == 0xf3) {
        in->operate = vb_cpu_count_bits;
        in->op = in->op == VB_CPU_BSF ? VB_CPU_TZCNT : VB_CPU_LZCNT;
    }
    if (in->operate == vb_cpu_count_bits)
        return c->repeat == 0xf3;
    return in->operate != vb_cpu_scan || c->repeat == 0;
}

static bool decode_row(struct cursor *c, struct vb_cpu_instruction *in, const struct row *row,
                       uint8_t code)
{
    set_sizes(c, in, row);
    if (row->form == GROUP) {
        row = &groups[row->op][c->at < c->length ? c->bytes[c->at] >> 3 & 7 : 0];
        set_sizes(c, in, row);
    }
    if (row->operate == NULL)
        return false;
    in->operate = row->operate;
    in->op = row->op;
    if (has_modrm(row)) {
        (void)take_modrm(c, in, in->from, false);
    } else if (row->form == CONTROL) {
        uint8_t modrm = (uint8_t)take(c, 1);

        in->op = (modrm >> 3 & 7) | (c->rex & REX_R ? 8 : 0);
        in->rm = (uint8_t)(((modrm & 7) | (c->rex & REX_B ? 8 : 0)) * 8);
    }
    take_operands(c, in, row, code);
    if (in->operate == vb_cpu_software_interrupt && row->form == BARE)
        in->imm = row->op;
    if (in->operate == vb_cpu_port_in || in->operate == vb_cpu_port_out)
        in->size = in->size == 8 ? 4 : in->size;
    if (in->operate == vb_cpu_string_move)
        in->repeat = c->repeat == 0xf3   ? VB_CPU_REPEAT_EQUAL
                     : c->repeat == 0xf2 ? VB_CPU_REPEAT_UNEQUAL
                                         : VB_CPU_REPEAT_NONE;
    if (in->operate == vb_cpu_byte_swap && (c->repeat != 0 || in->size == 2))
        return false;
    return fits_row(in, row) && fits_repeat(c, in);
}

int vb_cpu_decode(const uint8_t *bytes, uint32_t length, struct vb_cpu_instruction *in)
{
    struct cursor c = {.bytes = bytes, .length = length < LONGEST ? length : LONGEST};
    uint8_t code;
    bool two, known;

    *in = (struct vb_cpu_instruction){.base = VB_CPU_NO_REGISTER, .index = VB_CPU_NO_REGISTER};
    code = take_prefixes(&c, in);
    two = code == 0x0f;
    if (two)
        code = (uint8_t)take(&c, 1);
    known = decode_special(&c, in, two, code) || (two && decode_wide(&c, in, code)) ||
            decode_row(&c, in, two ? &two_bytes[code] : &one_byte[code], code);
    if (!known || c.ended) {
        in->operate = NULL;
        return c.ended && length < LONGEST ? -1 : 0;
    }
    in->length = (uint8_t)c.at;
    return (int)c.at;
}

uint32_t vb_cpu_instruction_length(const uint8_t *bytes, uint32_t length)
{
    struct vb_cpu_instruction in;
    int found = vb_cpu_decode(bytes, length, &in);

    return found > 0 ? (uint32_t)found : 0;
}
