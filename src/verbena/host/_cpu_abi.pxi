# SPDX-License-Identifier: Apache-2.0
# The parts of src/native/cpu that the binding uses.

cdef extern from "<stdbool.h>" nogil:
    ctypedef bint c_bool "_Bool"

cdef extern from "cpu/memory.h" nogil:
    struct vb_cpu_bus:
        void *context
        c_bool (*read)(void *, vb_cpu *, uint64_t, uint32_t, void *) noexcept
        c_bool (*write)(void *, vb_cpu *, uint64_t, uint32_t, const void *) noexcept
        c_bool (*port_read)(void *, vb_cpu *, uint16_t, uint32_t, void *) noexcept
        c_bool (*port_write)(void *, vb_cpu *, uint16_t, uint32_t, const void *) noexcept
    struct vb_cpu_memory:
        vb_cpu_bus bus
        uint32_t rams
    int vb_cpu_memory_add(vb_cpu_memory *, uint64_t base, uint64_t size, uint8_t *)
    void vb_cpu_memory_remove(vb_cpu_memory *, uint64_t base)
    void vb_cpu_memory_close(vb_cpu_memory *)
    uint8_t *vb_cpu_memory_find(const vb_cpu_memory *, uint64_t address, uint64_t size)
    void vb_cpu_memory_wrote(vb_cpu_memory *, uint64_t address, uint64_t size)

cdef extern from "cpu/cpu.h" nogil:
    enum vb_cpu_stop:
        pass
    enum vb_cpu_change:
        pass
    struct vb_cpu_fault:
        uint8_t vector, size
        c_bool has_error, bus, write
        uint32_t error
        uint64_t address
    struct vb_cpu_table:
        uint64_t base
        uint16_t limit
    struct vb_cpu:
        uint64_t reg[16]
        uint64_t rip, flags
        uint64_t xmm[16][2]
        uint8_t ring
        c_bool halted, shadow, pause
        uint64_t cr0, cr2, cr3, cr4, efer, star, lstar, syscall_mask
        uint64_t fs_base, gs_base, kernel_gs_base, ring0_stack
        vb_cpu_table idt
        vb_cpu_fault fault
        uint64_t pending[4]
        uint64_t instructions, cycles, interrupts
        void (*changed)(void *, vb_cpu *, vb_cpu_change, uint8_t) noexcept
        void *follower
    int vb_cpu_open(vb_cpu *, vb_cpu_memory *)
    void vb_cpu_close(vb_cpu *)
    vb_cpu_stop vb_cpu_run(vb_cpu *, uint64_t most, uint64_t until) noexcept
    c_bool vb_cpu_interrupt(vb_cpu *, uint8_t vector)
    c_bool vb_cpu_withdraw(vb_cpu *, uint8_t vector)
    c_bool vb_cpu_take_interrupt(vb_cpu *)
    int vb_cpu_set_mark(vb_cpu *, uint64_t address)
    void vb_cpu_clear_mark(vb_cpu *, uint64_t address)
    uint32_t vb_cpu_instruction_length(const uint8_t *, uint32_t length)
    c_bool vb_cpu_physical(vb_cpu *, uint64_t linear, uint64_t *physical)

cdef extern from "cpu/turns.h" nogil:
    struct vb_cpu_turns:
        uint64_t random
        uint32_t longest
    vb_cpu_stop vb_cpu_run_turns(vb_cpu_turns *, vb_cpu *const *, uint32_t cpus, uint64_t most,
                                 uint64_t until, uint32_t *last) noexcept
