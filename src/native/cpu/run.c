// SPDX-License-Identifier: Apache-2.0
/* The loop of a core: pending interrupts, the cache of decoded instructions, and exceptions. */
#include "cpu/operations.h"

#include <stdlib.h>

int vb_cpu_open(struct vb_cpu *cpu, struct vb_cpu_memory *memory)
{
    *cpu = (struct vb_cpu){.flags = VB_CPU_FLAG_ONE, .turn_end = UINT64_MAX, .memory = memory};
    cpu->decoded = calloc(VB_CPU_DECODED, sizeof *cpu->decoded);
    return cpu->decoded == NULL ? -1 : 0;
}

void vb_cpu_close(struct vb_cpu *cpu)
{
    free(cpu->decoded);
    cpu->decoded = NULL;
}

static void look_again(struct vb_cpu *cpu)
{
    cpu->attention = cpu->marks > 0;
    for (uint32_t i = 0; i < VB_CPU_VECTORS / 64; ++i)
        cpu->attention = cpu->attention || cpu->pending[i] != 0;
}

bool vb_cpu_interrupt(struct vb_cpu *cpu, uint8_t vector)
{
    uint64_t bit = UINT64_C(1) << vector % 64;
    bool is_new = !(cpu->pending[vector / 64] & bit);

    cpu->pending[vector / 64] |= bit;
    cpu->attention = true;
    return is_new;
}

bool vb_cpu_withdraw(struct vb_cpu *cpu, uint8_t vector)
{
    uint64_t bit = UINT64_C(1) << vector % 64;
    bool was_pending = cpu->pending[vector / 64] & bit;

    cpu->pending[vector / 64] &= ~bit;
    look_again(cpu);
    return was_pending;
}

int vb_cpu_set_mark(struct vb_cpu *cpu, uint64_t address)
{
    if (cpu->marks == VB_CPU_MARKS)
        return -1;
    cpu->mark[cpu->marks++] = address;
    cpu->attention = true;
    return 0;
}

void vb_cpu_clear_mark(struct vb_cpu *cpu, uint64_t address)
{
    for (uint32_t i = 0; i < cpu->marks; ++i) {
        if (cpu->mark[i] == address)
            cpu->mark[i--] = cpu->mark[--cpu->marks];
    }
    look_again(cpu);
}

static bool has_mark(const struct vb_cpu *cpu)
{
    for (uint32_t i = 0; i < cpu->marks; ++i) {
        if (cpu->mark[i] == cpu->rip)
            return true;
    }
    return false;
}

/* The pending interrupt of the highest vector, which is the most urgent (SDM 11.8.3.1). */
static int most_urgent(const struct vb_cpu *cpu)
{
    for (int i = VB_CPU_VECTORS / 64 - 1; i >= 0; --i) {
        if (cpu->pending[i] != 0)
            return i * 64 + 63 - __builtin_clzll(cpu->pending[i]);
    }
    return -1;
}

bool vb_cpu_take_interrupt(struct vb_cpu *cpu)
{
    int vector = most_urgent(cpu);

    if (vector < 0 || !(cpu->flags & VB_CPU_IF) || cpu->shadow)
        return true;
    cpu->fault = (struct vb_cpu_fault){.vector = (uint8_t)vector};
    if (!vb_cpu_deliver(cpu, (uint8_t)vector, false, 0, false))
        return false;
    cpu->pending[vector / 64] &= ~(UINT64_C(1) << vector % 64);
    cpu->halted = false;
    ++cpu->interrupts;
    look_again(cpu);
    vb_cpu_tell(cpu, VB_CPU_CHANGE_INTERRUPT, (uint8_t)vector);
    return true;
}

/*
 * Reads more bytes of the instruction at `at`, until there are `want` or the range of RAM ends.
 * false: there is not one more.
 */
static bool fetch(struct vb_cpu *cpu, uint64_t at, uint8_t bytes[15], uint32_t *length,
                  uint32_t want)
{
    uint32_t size = want - *length;
    const uint8_t *from;
    uint64_t physical;

    if (!vb_cpu_fetch_page(cpu, at + *length, &physical))
        return false;
    while (size > 1 && vb_cpu_memory_find(cpu->memory, physical, size) == NULL)
        --size;
    from = vb_cpu_memory_find(cpu->memory, physical, size);
    if (from == NULL) {
        cpu->fault = (struct vb_cpu_fault){.bus = true, .size = 1, .address = physical};
        return false;
    }
    memcpy(bytes + *length, from, size);
    vb_cpu_memory_mark_code(cpu->memory, physical);
    *length += size;
    return true;
}

static enum vb_cpu_next not_of_the_subset(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    (void)in;
    return vb_cpu_raise(cpu, VB_CPU_UNDEFINED, false);
}

static bool decode_at(struct vb_cpu *cpu, uint64_t at, struct vb_cpu_instruction *in)
{
    uint8_t bytes[15];
    uint32_t length = 0, left = VB_CPU_PAGE - ((uint32_t)at & (VB_CPU_PAGE - 1));
    uint32_t want = left < 15 ? left : 15;

    in->tag = 0;
    /* The page that follows may be missing, and the instruction need not go on there. */
    do {
        if (!fetch(cpu, at, bytes, &length, want))
            return false;
        want = length + 1; /* in the next page, or behind the end of RAM */
    } while (vb_cpu_decode(bytes, length, in) < 0);
    if (in->operate == NULL)
        in->operate = not_of_the_subset;
    in->operate = vb_cpu_quick_arithmetic(in);
    in->operate = vb_cpu_quick_move(in);
    in->tag = at + 1;
    in->mapping = cpu->mapping;
    return true;
}

/* Delivers the exception in `fault`. false: run has to stop. */
static bool take_exception(struct vb_cpu *cpu)
{
    const struct vb_cpu_fault fault = cpu->fault;

    if (fault.bus)
        return false;
    if (fault.vector == VB_CPU_PAGE_FAULT)
        cpu->cr2 = fault.address;
    if (!vb_cpu_deliver(cpu, fault.vector, fault.has_error, fault.error, false))
        return false;
    vb_cpu_tell(cpu, VB_CPU_CHANGE_EXCEPTION, fault.vector);
    return true;
}

static enum vb_cpu_stop stop_of_fault(const struct vb_cpu *cpu)
{
    return cpu->fault.bus ? VB_CPU_STOP_BUS : VB_CPU_STOP_EXCEPTION;
}

/* One instruction; false: `fault` was not handled. */
static inline bool step(struct vb_cpu *cpu)
{
    uint64_t at = cpu->rip;
    struct vb_cpu_instruction *in = &cpu->decoded[(at ^ at >> 12) & (VB_CPU_DECODED - 1)];
    bool found = (in->tag == at + 1 && in->mapping == cpu->mapping) || decode_at(cpu, at, in);
    enum vb_cpu_next next = found ? in->operate(cpu, in) : VB_CPU_FAULTED;

    if (next == VB_CPU_GO_ON)
        cpu->rip += in->length;
    else if (next == VB_CPU_FAULTED && !take_exception(cpu))
        return false;
    ++cpu->instructions;
    ++cpu->cycles;
    return true;
}

/* With TF set, each instruction ends in #DB. */
static bool step_traced(struct vb_cpu *cpu)
{
    if (!step(cpu))
        return false;
    cpu->fault = (struct vb_cpu_fault){.vector = VB_CPU_DEBUG};
    return !(cpu->flags & VB_CPU_TF) || take_exception(cpu);
}

/*
 * One instruction where something else than the next one may have to be done. LIMIT: the run goes
 * on, unless `pause` is set. `first`: of a run that does not go on with one before, which may have
 * ended at a breakpoint here; it passes that, and not one to which an interrupt leads.
 */
static enum vb_cpu_stop step_watchfully(struct vb_cpu *cpu, bool first)
{
    bool held = cpu->shadow;
    uint64_t rip = cpu->rip;

    if (cpu->code_marks != cpu->memory->code_marks)
        vb_cpu_follow_memory(cpu);
    if (cpu->attention && !vb_cpu_take_interrupt(cpu))
        return stop_of_fault(cpu);
    if (cpu->halted)
        return VB_CPU_STOP_HALT;
    if (cpu->attention && !(first && cpu->rip == rip) && has_mark(cpu))
        return VB_CPU_STOP_MARK;
    if (!(cpu->flags & VB_CPU_TF ? step_traced(cpu) : step(cpu)))
        return stop_of_fault(cpu);
    if (held)
        cpu->shadow = false;
    return VB_CPU_STOP_LIMIT;
}

enum vb_cpu_stop vb_cpu_run(struct vb_cpu *cpu, uint64_t most, uint64_t until)
{
    uint64_t begin = cpu->instructions, end = begin + most;
    bool passes = !cpu->goes_on;
    enum vb_cpu_stop stop;

    if (cpu->kept.size != 0)
        vb_cpu_store_kept(cpu);
    cpu->pause = cpu->goes_on = false;
    while (cpu->instructions < end && cpu->cycles < until) {
        if (cpu->any == 0 && !(cpu->flags & VB_CPU_TF) &&
            cpu->code_marks == cpu->memory->code_marks) {
            if (!step(cpu))
                return stop_of_fault(cpu);
            continue;
        }
        if (cpu->pause)
            break;
        stop = step_watchfully(cpu, passes && cpu->instructions == begin);
        if (stop != VB_CPU_STOP_LIMIT)
            return stop;
    }
    cpu->goes_on = cpu->instructions < end;
    return VB_CPU_STOP_LIMIT;
}
