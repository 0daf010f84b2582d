// SPDX-License-Identifier: Apache-2.0
/* Jumps, calls and returns, loops, single flags, and interrupts by software. */
#include "cpu/operations.h"

static enum vb_cpu_next go_to(struct vb_cpu *cpu, uint64_t at)
{
    cpu->rip = at;
    return VB_CPU_JUMPED;
}

static uint64_t behind(const struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    return cpu->rip + in->length;
}

enum vb_cpu_next vb_cpu_jump(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    return go_to(cpu, behind(cpu, in) + in->imm);
}

enum vb_cpu_next vb_cpu_jump_if(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    return vb_cpu_holds(cpu, in->op) ? vb_cpu_jump(cpu, in) : VB_CPU_GO_ON;
}

enum vb_cpu_next vb_cpu_jump_rm(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t at;

    return vb_cpu_get_rm(cpu, in, 8, &at) ? go_to(cpu, at) : VB_CPU_FAULTED;
}

enum vb_cpu_next vb_cpu_call(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    return vb_cpu_push(cpu, behind(cpu, in)) ? vb_cpu_jump(cpu, in) : VB_CPU_FAULTED;
}

enum vb_cpu_next vb_cpu_call_rm(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t at;

    if (!vb_cpu_get_rm(cpu, in, 8, &at) || !vb_cpu_push(cpu, behind(cpu, in)))
        return VB_CPU_FAULTED;
    return go_to(cpu, at);
}

/* RET, and RET with the number of bytes to take from the stack. */
enum vb_cpu_next vb_cpu_return(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t at;

    if (!vb_cpu_load(cpu, cpu->reg[VB_CPU_RSP], 8, &at))
        return VB_CPU_FAULTED;
    cpu->reg[VB_CPU_RSP] += 8 + (uint16_t)in->imm;
    return go_to(cpu, at);
}

/* LOOPNE (op 0), LOOPE (op 1), LOOP (op 2) */
enum vb_cpu_next vb_cpu_loop(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint32_t width = in->narrow ? 4 : 8;
    uint64_t count = vb_cpu_get(cpu, VB_CPU_RCX * 8, width) - 1;
    bool equal = cpu->flags & VB_CPU_ZF;

    vb_cpu_set(cpu, VB_CPU_RCX * 8, width, count);
    if (width == 4)
        count = (uint32_t)count;
    if (count == 0 || (in->op == 0 && equal) || (in->op == 1 && !equal))
        return VB_CPU_GO_ON;
    return vb_cpu_jump(cpu, in);
}

enum vb_cpu_next vb_cpu_jump_if_no_count(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t count = vb_cpu_get(cpu, VB_CPU_RCX * 8, in->narrow ? 4 : 8);

    return count == 0 ? vb_cpu_jump(cpu, in) : VB_CPU_GO_ON;
}

/* NOP, PAUSE, fences, prefetches, ENDBR64 and flushes of cache lines: one core runs at a time. */
enum vb_cpu_next vb_cpu_nothing(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    (void)cpu;
    (void)in;
    return VB_CPU_GO_ON;
}

/* CLC (op 0), STC (op 1), CMC (op 2) */
enum vb_cpu_next vb_cpu_carry_flag(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    bool carry = in->op == 2 ? !(cpu->flags & VB_CPU_CF) : in->op;

    cpu->flags = (cpu->flags & ~(uint64_t)VB_CPU_CF) | (carry ? VB_CPU_CF : 0);
    return VB_CPU_GO_ON;
}

/* CLD (op 0), STD (op 1) */
enum vb_cpu_next vb_cpu_direction_flag(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    cpu->flags = (cpu->flags & ~(uint64_t)VB_CPU_DF) | (in->op ? VB_CPU_DF : 0);
    return VB_CPU_GO_ON;
}

/* INT n and INT3: the handler returns behind the instruction. */
enum vb_cpu_next vb_cpu_software_interrupt(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t at = cpu->rip;

    cpu->rip = behind(cpu, in);
    if (vb_cpu_deliver(cpu, (uint8_t)in->imm, false, 0, true)) {
        vb_cpu_tell(cpu, VB_CPU_CHANGE_EXCEPTION, (uint8_t)in->imm);
        return VB_CPU_JUMPED;
    }
    cpu->rip = at;
    return VB_CPU_FAULTED;
}
