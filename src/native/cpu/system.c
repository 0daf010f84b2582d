// SPDX-License-Identifier: Apache-2.0
/* What an operating system uses: interrupts, system calls, control and model-specific registers. */
#include "cpu/operations.h"

enum { GATE_BYTES = 16, GATE_PRESENT = 0x80, GATE_INTERRUPT = 0xe, GATE_TRAP = 0xf };
enum { NOT_NULL = 0xfffc }; /* in a selector: it is null without any of these bits */

#define MSR_RING0_STACK    UINT32_C(0x175) /* IA32_SYSENTER_ESP */
#define MSR_EFER           UINT32_C(0xc0000080)
#define MSR_STAR           UINT32_C(0xc0000081)
#define MSR_LSTAR          UINT32_C(0xc0000082)
#define MSR_SYSCALL_MASK   UINT32_C(0xc0000084)
#define MSR_FS_BASE        UINT32_C(0xc0000100)
#define MSR_GS_BASE        UINT32_C(0xc0000101)
#define MSR_KERNEL_GS_BASE UINT32_C(0xc0000102)

static enum vb_cpu_next forbid(struct vb_cpu *cpu)
{
    return vb_cpu_raise(cpu, VB_CPU_PROTECTION, true);
}

static void set_ring(struct vb_cpu *cpu, uint8_t ring)
{
    if (cpu->ring != ring)
        ++cpu->mapping; /* what ring 0 may execute, ring 3 perhaps may not */
    cpu->ring = ring;
}

/* ---- interrupts ------------------------------------------------------------------------------ */

struct gate {
    uint64_t handler;
    uint8_t type, ring;
};

static bool read_gate(struct vb_cpu *cpu, uint8_t vector, struct gate *gate)
{
    uint64_t at = cpu->idt.base + vector * (uint64_t)GATE_BYTES, low, high;
    uint8_t ring = cpu->ring;
    bool found;

    if (vector * (uint32_t)GATE_BYTES + GATE_BYTES - 1 > cpu->idt.limit)
        return false;
    cpu->ring = 0; /* the processor reads its tables at ring 0 */
    found = vb_cpu_load(cpu, at, 8, &low) && vb_cpu_load(cpu, at + 8, 8, &high);
    cpu->ring = ring;
    if (!found || !(low >> 40 & GATE_PRESENT))
        return false;
    gate->handler = (low & 0xffff) | (low >> 32 & 0xffff0000) | high << 32;
    gate->type = low >> 40 & 0xf;
    gate->ring = low >> 45 & 3;
    return gate->type == GATE_INTERRUPT || gate->type == GATE_TRAP;
}

static bool push_frame(struct vb_cpu *cpu, uint8_t from, uint64_t stack, bool has_error,
                       uint32_t error)
{
    uint64_t frame[6] = {
        error, cpu->rip, VB_CPU_KERNEL_CODE, cpu->flags, cpu->reg[VB_CPU_RSP], VB_CPU_KERNEL_STACK};
    uint32_t skipped = has_error ? 0 : 1;

    if (from == 3) {
        frame[2] = VB_CPU_USER_CODE;
        frame[5] = VB_CPU_USER_STACK;
    }
    stack = (stack & ~UINT64_C(15)) - (6 - skipped) * 8;
    for (uint32_t i = skipped; i < 6; ++i) {
        if (!vb_cpu_store(cpu, stack + (i - skipped) * 8, 8, frame[i]))
            return false;
    }
    cpu->reg[VB_CPU_RSP] = stack;
    return true;
}

bool vb_cpu_deliver(struct vb_cpu *cpu, uint8_t vector, bool has_error, uint32_t error,
                    bool software)
{
    struct vb_cpu_fault fault = cpu->fault;
    uint8_t from = cpu->ring;
    struct gate gate;

    if (software)
        fault = (struct vb_cpu_fault){.vector = vector};
    if (!read_gate(cpu, vector, &gate)) {
        cpu->fault = fault;
        return false;
    }
    if (software && gate.ring < from) {
        cpu->fault = (struct vb_cpu_fault){
            .vector = VB_CPU_PROTECTION, .has_error = true, .error = vector * 8u + 2};
        return false;
    }
    set_ring(cpu, 0);
    if (!push_frame(cpu, from, from == 3 ? cpu->ring0_stack : cpu->reg[VB_CPU_RSP], has_error,
                    error)) {
        set_ring(cpu, from);
        cpu->fault = fault;
        return false;
    }
    cpu->flags &= ~(uint64_t)VB_CPU_TF;
    if (gate.type == GATE_INTERRUPT)
        cpu->flags &= ~(uint64_t)VB_CPU_IF;
    cpu->rip = gate.handler;
    return true;
}

enum vb_cpu_next vb_cpu_interrupt_return(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t frame[5], may = VB_CPU_FLAGS & ~(uint64_t)(cpu->ring == 3 ? VB_CPU_IF : 0);
    uint8_t ring;

    if (in->size != 8)
        return vb_cpu_raise(cpu, VB_CPU_UNDEFINED, false);
    for (uint32_t i = 0; i < 5; ++i) {
        if (!vb_cpu_load(cpu, cpu->reg[VB_CPU_RSP] + i * 8, 8, &frame[i]))
            return VB_CPU_FAULTED;
    }
    ring = frame[1] & 3;
    if ((ring != 0 && ring != 3) || ring < cpu->ring || !(frame[1] & NOT_NULL))
        return forbid(cpu);
    cpu->rip = frame[0];
    cpu->flags = (cpu->flags & ~may) | (frame[2] & may) | VB_CPU_FLAG_ONE;
    cpu->reg[VB_CPU_RSP] = frame[3];
    set_ring(cpu, ring);
    vb_cpu_tell(cpu, VB_CPU_CHANGE_RETURN, 0);
    return VB_CPU_JUMPED;
}

/* CLI (op 0), STI (op 1) */
enum vb_cpu_next vb_cpu_interrupt_flag(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    if (cpu->ring != 0)
        return forbid(cpu);
    if (in->op == 0) {
        cpu->flags &= ~(uint64_t)VB_CPU_IF;
    } else {
        cpu->shadow = !(cpu->flags & VB_CPU_IF);
        cpu->flags |= VB_CPU_IF;
    }
    return VB_CPU_GO_ON;
}

enum vb_cpu_next vb_cpu_halt(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    (void)in;
    if (cpu->ring != 0)
        return forbid(cpu);
    cpu->halted = true;
    return VB_CPU_GO_ON;
}

/* ---- system calls (SDM volume 2, SYSCALL and SYSRET) ---------------------------------------- */

enum vb_cpu_next vb_cpu_system_call(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    if (!(cpu->efer & VB_CPU_EFER_SYSCALL))
        return vb_cpu_raise(cpu, VB_CPU_UNDEFINED, false);
    cpu->reg[VB_CPU_RCX] = cpu->rip + in->length;
    cpu->reg[VB_CPU_R11] = cpu->flags;
    cpu->flags &= ~cpu->syscall_mask;
    cpu->flags |= VB_CPU_FLAG_ONE;
    cpu->rip = cpu->lstar;
    set_ring(cpu, 0);
    vb_cpu_tell(cpu, VB_CPU_CHANGE_CALL, 0);
    return VB_CPU_JUMPED;
}

enum vb_cpu_next vb_cpu_system_return(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    if (!(cpu->efer & VB_CPU_EFER_SYSCALL) || in->size != 8)
        return vb_cpu_raise(cpu, VB_CPU_UNDEFINED, false);
    if (cpu->ring != 0)
        return forbid(cpu);
    cpu->rip = cpu->reg[VB_CPU_RCX];
    cpu->flags = (cpu->reg[VB_CPU_R11] & VB_CPU_FLAGS) | VB_CPU_FLAG_ONE;
    set_ring(cpu, 3);
    vb_cpu_tell(cpu, VB_CPU_CHANGE_RETURN, 0);
    return VB_CPU_JUMPED;
}

enum vb_cpu_next vb_cpu_swap_gs(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t base = cpu->gs_base;

    (void)in;
    if (cpu->ring != 0)
        return forbid(cpu);
    cpu->gs_base = cpu->kernel_gs_base;
    cpu->kernel_gs_base = base;
    return VB_CPU_GO_ON;
}

/* ---- registers of the processor ------------------------------------------------------------ */

static void set_halves(struct vb_cpu *cpu, uint64_t value)
{
    cpu->reg[VB_CPU_RAX] = (uint32_t)value;
    cpu->reg[VB_CPU_RDX] = value >> 32;
}

/* RDTSC */
enum vb_cpu_next vb_cpu_read_counter(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    (void)in;
    set_halves(cpu, cpu->cycles);
    return VB_CPU_GO_ON;
}

static uint64_t *msr_of(struct vb_cpu *cpu)
{
    switch ((uint32_t)cpu->reg[VB_CPU_RCX]) {
    case MSR_RING0_STACK:
        return &cpu->ring0_stack;
    case MSR_EFER:
        return &cpu->efer;
    case MSR_STAR:
        return &cpu->star;
    case MSR_LSTAR:
        return &cpu->lstar;
    case MSR_SYSCALL_MASK:
        return &cpu->syscall_mask;
    case MSR_FS_BASE:
        return &cpu->fs_base;
    case MSR_GS_BASE:
        return &cpu->gs_base;
    case MSR_KERNEL_GS_BASE:
        return &cpu->kernel_gs_base;
    default:
        return NULL;
    }
}

enum vb_cpu_next vb_cpu_read_msr(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    const uint64_t *msr = cpu->ring == 0 ? msr_of(cpu) : NULL;

    (void)in;
    if (msr == NULL)
        return forbid(cpu);
    set_halves(cpu, *msr);
    return VB_CPU_GO_ON;
}

enum vb_cpu_next vb_cpu_write_msr(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t *msr = cpu->ring == 0 ? msr_of(cpu) : NULL;

    (void)in;
    if (msr == NULL)
        return forbid(cpu);
    *msr = cpu->reg[VB_CPU_RDX] << 32 | (uint32_t)cpu->reg[VB_CPU_RAX];
    if (msr == &cpu->efer)
        vb_cpu_forget_translations(cpu);
    return VB_CPU_GO_ON;
}

static uint64_t *control_register(struct vb_cpu *cpu, uint8_t number)
{
    switch (number) {
    case 0:
        return &cpu->cr0;
    case 2:
        return &cpu->cr2;
    case 3:
        return &cpu->cr3;
    case 4:
        return &cpu->cr4;
    default:
        return NULL;
    }
}

enum vb_cpu_next vb_cpu_read_control(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    const uint64_t *from = control_register(cpu, in->op);

    if (from == NULL)
        return vb_cpu_raise(cpu, VB_CPU_UNDEFINED, false);
    if (cpu->ring != 0)
        return forbid(cpu);
    vb_cpu_set(cpu, in->rm, 8, *from);
    return VB_CPU_GO_ON;
}

enum vb_cpu_next vb_cpu_write_control(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint64_t *to = control_register(cpu, in->op);

    if (to == NULL)
        return vb_cpu_raise(cpu, VB_CPU_UNDEFINED, false);
    if (cpu->ring != 0)
        return forbid(cpu);
    *to = vb_cpu_get(cpu, in->rm, 8);
    if (to != &cpu->cr2)
        vb_cpu_forget_translations(cpu);
    return VB_CPU_GO_ON;
}

enum vb_cpu_next vb_cpu_load_idt(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    uint8_t bytes[10];

    if (cpu->ring != 0)
        return forbid(cpu);
    if (!vb_cpu_load_bytes(cpu, vb_cpu_address(cpu, in), 10, bytes))
        return VB_CPU_FAULTED;
    memcpy(&cpu->idt.limit, bytes, 2);
    memcpy(&cpu->idt.base, bytes + 2, 8);
    return VB_CPU_GO_ON;
}

enum vb_cpu_next vb_cpu_invalidate_page(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    if (cpu->ring != 0)
        return forbid(cpu);
    vb_cpu_forget_page(cpu, vb_cpu_address(cpu, in));
    return VB_CPU_GO_ON;
}

/* CPUID: the vendor is this room's, and no feature beyond the subset is announced. */
enum vb_cpu_next vb_cpu_identify(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    static const char vendor[] = "VerbenaModel";
    uint32_t leaf = (uint32_t)cpu->reg[VB_CPU_RAX], words[3] = {0, 0, 0};

    (void)in;
    if (leaf == 0)
        memcpy(words, vendor, 12);
    cpu->reg[VB_CPU_RAX] = leaf == 0;
    cpu->reg[VB_CPU_RBX] = words[0];
    cpu->reg[VB_CPU_RDX] = leaf == 1 ? 1u << 4 | 1u << 8 | 1u << 15 | 1u << 24 : words[1];
    cpu->reg[VB_CPU_RCX] = leaf == 1 ? 1u << 13 | 1u << 23 : words[2]; /* CMPXCHG16B, POPCNT */
    return VB_CPU_GO_ON;
}

/* ---- ports; op 0: the port is `imm`, op 1: it is in DX ----------------------------------------
 */

static uint16_t port_of(const struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    return (uint16_t)(in->op == 0 ? in->imm & 0xff : cpu->reg[VB_CPU_RDX]);
}

static enum vb_cpu_next no_such_port(struct vb_cpu *cpu, const struct vb_cpu_instruction *in,
                                     bool write)
{
    cpu->fault = (struct vb_cpu_fault){
        .bus = true, .write = write, .size = in->size, .address = port_of(cpu, in)};
    return VB_CPU_FAULTED;
}

enum vb_cpu_next vb_cpu_port_in(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    const struct vb_cpu_bus *bus = &cpu->memory->bus;
    uint64_t value = 0;

    if (cpu->ring != 0)
        return forbid(cpu);
    if (!bus->port_read(bus->context, cpu, port_of(cpu, in), in->size, &value))
        return no_such_port(cpu, in, false);
    vb_cpu_set(cpu, 0, in->size, value);
    return VB_CPU_GO_ON;
}

enum vb_cpu_next vb_cpu_port_out(struct vb_cpu *cpu, const struct vb_cpu_instruction *in)
{
    const struct vb_cpu_bus *bus = &cpu->memory->bus;

    if (cpu->ring != 0)
        return forbid(cpu);
    if (!bus->port_write(bus->context, cpu, port_of(cpu, in), in->size, cpu->reg))
        return no_such_port(cpu, in, true);
    return VB_CPU_GO_ON;
}
