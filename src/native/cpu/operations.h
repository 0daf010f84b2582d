// SPDX-License-Identifier: Apache-2.0
/* The functions that carry instructions out, for the decoder's tables. */
#pragma once

#include "cpu/instruction.h"

/* The numbers of the eight operations of opcodes 00 to 3F, of the shifts, and of group F6. */
enum vb_cpu_alu {
    VB_CPU_ADD,
    VB_CPU_OR,
    VB_CPU_ADC,
    VB_CPU_SBB,
    VB_CPU_AND,
    VB_CPU_SUB,
    VB_CPU_XOR,
    VB_CPU_CMP
};
enum vb_cpu_shift { VB_CPU_ROL, VB_CPU_ROR, VB_CPU_SHL = 4, VB_CPU_SHR, VB_CPU_SAR = 7 };
enum vb_cpu_one { VB_CPU_NOT = 2, VB_CPU_NEG, VB_CPU_MUL, VB_CPU_IMUL, VB_CPU_DIV, VB_CPU_IDIV };
enum vb_cpu_bit { VB_CPU_BT, VB_CPU_BTS, VB_CPU_BTR, VB_CPU_BTC };
enum vb_cpu_string { VB_CPU_MOVS, VB_CPU_CMPS, VB_CPU_STOS, VB_CPU_LODS, VB_CPU_SCAS };
enum vb_cpu_scan { VB_CPU_BSF, VB_CPU_BSR };
enum vb_cpu_count { VB_CPU_TZCNT, VB_CPU_LZCNT, VB_CPU_POPCNT };

/* arithmetic.c; operands: `rm` op `reg`, `reg` op `rm`, `rm` op `imm` */
vb_cpu_operate_fn vb_cpu_alu_store, vb_cpu_alu_load, vb_cpu_alu_imm, vb_cpu_test, vb_cpu_test_imm;
vb_cpu_operate_fn vb_cpu_increment, vb_cpu_not_neg, vb_cpu_multiply, vb_cpu_divide;
vb_cpu_operate_fn vb_cpu_multiply_reg, vb_cpu_multiply_imm, vb_cpu_exchange_add;
vb_cpu_operate_fn vb_cpu_compare_exchange, vb_cpu_compare_exchange_pair;

/* bits.c */
vb_cpu_operate_fn vb_cpu_shift_imm, vb_cpu_shift_cl, vb_cpu_bit_reg, vb_cpu_bit_imm, vb_cpu_scan;
vb_cpu_operate_fn vb_cpu_byte_swap, vb_cpu_count_bits;
vb_cpu_operate_fn vb_cpu_shift_double_imm, vb_cpu_shift_double_cl;

/* moves.c */
vb_cpu_operate_fn vb_cpu_move_store, vb_cpu_move_load, vb_cpu_move_imm, vb_cpu_move_zero;
vb_cpu_operate_fn vb_cpu_move_sign, vb_cpu_move_if, vb_cpu_set_if, vb_cpu_lea, vb_cpu_exchange;
vb_cpu_operate_fn vb_cpu_push_reg, vb_cpu_push_rm, vb_cpu_push_imm, vb_cpu_pop_reg, vb_cpu_pop_rm;
vb_cpu_operate_fn vb_cpu_push_flags, vb_cpu_pop_flags, vb_cpu_leave, vb_cpu_extend_a;
vb_cpu_operate_fn vb_cpu_extend_into_d, vb_cpu_wide_load, vb_cpu_wide_store, vb_cpu_wide_xor;
vb_cpu_operate_fn vb_cpu_string_move;

/* control.c */
vb_cpu_operate_fn vb_cpu_jump, vb_cpu_jump_if, vb_cpu_jump_rm, vb_cpu_call, vb_cpu_call_rm;
vb_cpu_operate_fn vb_cpu_return, vb_cpu_loop, vb_cpu_jump_if_no_count, vb_cpu_nothing;
vb_cpu_operate_fn vb_cpu_carry_flag, vb_cpu_direction_flag, vb_cpu_software_interrupt;

/* system.c */
vb_cpu_operate_fn vb_cpu_interrupt_flag, vb_cpu_halt, vb_cpu_interrupt_return, vb_cpu_system_call;
vb_cpu_operate_fn vb_cpu_system_return, vb_cpu_read_counter, vb_cpu_read_msr, vb_cpu_write_msr;
vb_cpu_operate_fn vb_cpu_read_control, vb_cpu_write_control, vb_cpu_load_idt;
vb_cpu_operate_fn vb_cpu_invalidate_page, vb_cpu_swap_gs, vb_cpu_port_in, vb_cpu_port_out;
vb_cpu_operate_fn vb_cpu_identify;

/* Delivers an exception or interrupt (SDM 6.14). false: it cannot be, and `fault` stays. */
bool vb_cpu_deliver(struct vb_cpu *cpu, uint8_t vector, bool has_error, uint32_t error,
                    bool software);

/* The flags of a sum or difference, which CMPS, SCAS and CMPXCHG set too. */
void vb_cpu_flags_of_difference(struct vb_cpu *cpu, uint64_t a, uint64_t b, uint32_t size);
