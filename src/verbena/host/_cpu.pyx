# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: embedsignature=False, freethreading_compatible=False
"""The compiled binding of the processor: a physical address space, and cores that run in it.

``computer.py`` and ``core.py`` check what is passed here, and say what went wrong in sentences.
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

include "_cpu_abi.pxi"

cdef struct Window:
    uint64_t base, size
    PyObject *read
    PyObject *write


cdef class PhysicalMemory:
    """Ranges of RAM and windows of devices. Cores hold it.

    A device's call may add and take ranges: cores look again after each call of a window."""

    cdef vb_cpu_memory memory
    cdef Window *window
    cdef uint32_t windows
    cdef uint32_t last
    cdef dict buffers
    cdef dict calls
    cdef object port_in
    cdef object port_out
    cdef object failed
    cdef Turns turns  # of the cores that run, or None

    def __cinit__(self):
        memset(&self.memory, 0, sizeof(self.memory))
        self.memory.bus.context = <void *>self
        self.memory.bus.read = _window_read
        self.memory.bus.write = _window_write
        self.memory.bus.port_read = _port_read
        self.memory.bus.port_write = _port_write
        self.buffers = {}
        self.calls = {}

    def __dealloc__(self):
        vb_cpu_memory_close(&self.memory)
        free(self.window)

    def add_ram(self, uint64_t base, buffer not None):
        """Gives the range from ``base`` on the memory of a writable buffer; False: too many."""
        cdef uint8_t[::1] view = buffer
        if vb_cpu_memory_add(&self.memory, base, view.shape[0], &view[0]) != 0:
            return False
        self.buffers[base] = view
        return True

    def add_window(self, uint64_t base, uint64_t size, read not None, write not None):
        """Calls ``read(offset, size)`` and ``write(offset, size, value)`` for the range."""
        cdef Window *more = <Window *>realloc(
            self.window, (self.windows + 1) * sizeof(Window)
        )
        if more is NULL:
            raise MemoryError
        self.window = more
        self.calls[base] = (read, write)
        more[self.windows] = Window(base, size, <PyObject *>read, <PyObject *>write)
        self.windows += 1

    def remove(self, uint64_t base):
        """Takes away the range of RAM or the window that begins at ``base``."""
        cdef uint32_t i
        vb_cpu_memory_remove(&self.memory, base)
        self.buffers.pop(base, None)
        for i in range(self.windows):
            if self.window[i].base == base:
                self.windows -= 1
                self.window[i] = self.window[self.windows]
                break
        self.last = 0
        self.calls.pop(base, None)

    def set_ports(self, read, write):
        """Calls ``read(port, size)`` and ``write(port, size, value)`` for IN and OUT."""
        self.port_in = read
        self.port_out = write

    def find(self, uint64_t address, uint64_t size):
        """The bytes of a range of RAM as a memoryview, or None."""
        cdef uint8_t *at = vb_cpu_memory_find(&self.memory, address, size)
        if at is NULL or size == 0:
            return None
        return memoryview(<uint8_t[:size]>at)

    def read(self, uint64_t address, uint64_t size):
        """A copy of RAM; None if the range is not in one range of RAM."""
        cdef uint8_t *at = vb_cpu_memory_find(&self.memory, address, size)
        return None if at is NULL else (<const char *>at)[:size]

    def write(self, uint64_t address, data not None):
        """Writes to RAM as a device does by DMA; False if it is not all in one range of RAM."""
        cdef const uint8_t[::1] view = data
        cdef uint8_t *at = vb_cpu_memory_find(&self.memory, address, view.shape[0])
        if at is NULL:
            return False
        if view.shape[0] > 0:
            memcpy(at, &view[0], view.shape[0])
            vb_cpu_memory_wrote(&self.memory, address, view.shape[0])
        return True


cdef Window *_find(PhysicalMemory memory, uint64_t address, uint32_t size) noexcept:
    cdef uint32_t i = memory.last
    cdef Window *window
    if i < memory.windows:
        window = &memory.window[i]
        if address - window.base < window.size and address - window.base + size <= window.size:
            return window
    for i in range(memory.windows):
        window = &memory.window[i]
        if address - window.base < window.size and address - window.base + size <= window.size:
            memory.last = i
            return window
    return NULL


cdef c_bool _take(value, uint32_t size, void *into) except? False:
    cdef uint64_t number
    cdef bytes wide
    if size <= 8:
        number = <uint64_t>(value & 0xFFFFFFFFFFFFFFFF)
        memcpy(into, &number, size)
    else:
        wide = value.to_bytes(16, "little")
        memcpy(into, <const char *>wide, size)
    return True


cdef object _number(const void *value, uint32_t size):
    cdef uint64_t number = 0
    if size <= 8:
        memcpy(&number, value, size)
        return number
    return int.from_bytes((<const char *>value)[:size], "little")


cdef c_bool _window_read(void *context, vb_cpu *cpu, uint64_t address, uint32_t size,
                         void *value) noexcept with gil:
    cdef PhysicalMemory memory = <PhysicalMemory>context
    cdef Window *window = _find(memory, address, size)
    if window is NULL:
        return False
    try:
        if memory.turns is not None:
            memory.turns.tell(cpu)
        return _take((<object>window.read)(address - window.base, size), size, value)
    except BaseException as error:
        memory.failed = error
        return False


cdef c_bool _window_write(void *context, vb_cpu *cpu, uint64_t address, uint32_t size,
                          const void *value) noexcept with gil:
    cdef PhysicalMemory memory = <PhysicalMemory>context
    cdef Window *window = _find(memory, address, size)
    if window is NULL:
        return False
    try:
        if memory.turns is not None:
            memory.turns.tell(cpu)
        (<object>window.write)(address - window.base, size, _number(value, size))
        return True
    except BaseException as error:
        memory.failed = error
        return False


cdef c_bool _port_read(void *context, vb_cpu *cpu, uint16_t port, uint32_t size,
                       void *value) noexcept with gil:
    cdef PhysicalMemory memory = <PhysicalMemory>context
    if memory.port_in is None:
        return False
    try:
        if memory.turns is not None:
            memory.turns.tell(cpu)
        answer = memory.port_in(port, size)
        return answer is not None and _take(answer, size, value)
    except BaseException as error:
        memory.failed = error
        return False


cdef c_bool _port_write(void *context, vb_cpu *cpu, uint16_t port, uint32_t size,
                        const void *value) noexcept with gil:
    cdef PhysicalMemory memory = <PhysicalMemory>context
    if memory.port_out is None:
        return False
    try:
        if memory.turns is not None:
            memory.turns.tell(cpu)
        return memory.port_out(port, size, _number(value, size)) is not False
    except BaseException as error:
        memory.failed = error
        return False


cdef void _changed(void *follower, vb_cpu *cpu, vb_cpu_change change,
                   uint8_t vector) noexcept with gil:
    cdef CoreState state = <CoreState>follower
    try:
        if state.memory.turns is not None:
            state.memory.turns.tell(cpu)
        state.follow_changes(<int>change, vector, cpu.cycles, cpu.ring)
    except BaseException as error:
        state.memory.failed = error
        cpu.pause = True


cdef class CoreState:
    """One core of ``src/native/cpu``."""

    cdef vb_cpu cpu
    cdef readonly PhysicalMemory memory
    cdef object follow_changes

    def __cinit__(self, PhysicalMemory memory not None):
        self.memory = memory
        if vb_cpu_open(&self.cpu, &memory.memory) != 0:
            raise MemoryError

    def __dealloc__(self):
        vb_cpu_close(&self.cpu)

    def run(self, uint64_t most, uint64_t until=0xFFFFFFFFFFFFFFFF):
        """Runs at most ``most`` instructions, none from the cycle ``until`` on; the code of enum
        vb_cpu_stop. A device's exception is raised."""
        cdef int stop = vb_cpu_run(&self.cpu, most, until)
        if self.memory.failed is not None:
            error, self.memory.failed = self.memory.failed, None
            raise error
        return stop

    def fault(self):
        """(vector, error code or None, bus, write, size, address) of the last fault."""
        cdef vb_cpu_fault *fault = &self.cpu.fault
        return (
            fault.vector,
            fault.error if fault.has_error else None,
            bool(fault.bus),
            bool(fault.write),
            fault.size,
            fault.address,
        )

    def get(self, int number):
        """A general register: 0 RAX, 1 RCX, 2 RDX, 3 RBX, 4 RSP, 5 RBP, 6 RSI, 7 RDI, 8 to 15."""
        return self.cpu.reg[number & 15]

    def set(self, int number, uint64_t value):
        """Sets a general register."""
        self.cpu.reg[number & 15] = value

    def get_xmm(self, int number):
        """The 16 bytes of an XMM register as a number."""
        return _number(self.cpu.xmm[number & 15], 16)

    def set_xmm(self, int number, value):
        """Sets an XMM register."""
        _take(value, 16, self.cpu.xmm[number & 15])

    def special(self):
        """Registers that are not general ones, by name."""
        return {
            "rip": self.cpu.rip,
            "flags": self.cpu.flags,
            "ring": self.cpu.ring,
            "cr0": self.cpu.cr0,
            "cr2": self.cpu.cr2,
            "cr3": self.cpu.cr3,
            "cr4": self.cpu.cr4,
            "efer": self.cpu.efer,
            "lstar": self.cpu.lstar,
            "ring0_stack": self.cpu.ring0_stack,
            "idt": self.cpu.idt.base,
        }

    @property
    def rip(self):
        """The address of the next instruction."""
        return self.cpu.rip

    @rip.setter
    def rip(self, uint64_t value):
        self.cpu.rip = value
        self.cpu.halted = False

    @property
    def flags(self):
        """RFLAGS."""
        return self.cpu.flags

    @flags.setter
    def flags(self, uint64_t value):
        self.cpu.flags = value | 2

    @property
    def halted(self):
        """HLT ran, and no interrupt came since."""
        return bool(self.cpu.halted)

    @property
    def is_woken(self):
        """An interrupt is pending, and interrupts are on."""
        cdef uint64_t *pending = self.cpu.pending
        return bool(
            self.cpu.flags & 0x200 and (pending[0] | pending[1] | pending[2] | pending[3])
        )

    @property
    def instructions(self):
        """The number of instructions that have run."""
        return self.cpu.instructions

    @property
    def cycles(self):
        """The core's clock, in cycles."""
        return self.cpu.cycles

    @cycles.setter
    def cycles(self, uint64_t value):
        self.cpu.cycles = value

    @property
    def interrupts(self):
        """The number of interrupts that were delivered, without exceptions."""
        return self.cpu.interrupts

    def follow(self, call):
        """Calls ``call(change, vector, cycle, ring)`` when an exception or interrupt is delivered
        (0 and 1), and by SYSCALL (2), IRET and SYSRET (3); None: no more."""
        self.follow_changes = call
        self.cpu.follower = <void *>self
        if call is None:
            self.cpu.changed = NULL
        else:
            self.cpu.changed = _changed

    def pause(self):
        """Lets ``run`` come back after the instruction that is under way."""
        self.cpu.pause = True

    def interrupt(self, uint8_t vector):
        """Makes an interrupt pending; False: it was already."""
        return bool(vb_cpu_interrupt(&self.cpu, vector))

    def withdraw(self, uint8_t vector):
        """Takes a pending interrupt back; False: it was not pending."""
        return bool(vb_cpu_withdraw(&self.cpu, vector))

    def take_interrupt(self):
        """Takes a pending interrupt, if they are on, and runs nothing of its handler; False: it has
        no handler, and ``fault`` says so."""
        return bool(vb_cpu_take_interrupt(&self.cpu))

    def set_mark(self, uint64_t address):
        """Sets a breakpoint; False: there are 64."""
        return vb_cpu_set_mark(&self.cpu, address) == 0

    def clear_mark(self, uint64_t address):
        """Takes a breakpoint away."""
        vb_cpu_clear_mark(&self.cpu, address)

    def physical(self, uint64_t linear):
        """The physical address; None: nothing is mapped there."""
        cdef uint64_t found
        return found if vb_cpu_physical(&self.cpu, linear, &found) else None


cdef class Turns:
    """How the cores of a computer take turns when several are awake: up to a
    random number of cycles below ``longest`` beyond the next one. ``tell(number)`` is called
    before an access of another core than before."""

    cdef vb_cpu_turns turns
    cdef vb_cpu *cpu[1024]
    cdef uint32_t cpus
    cdef vb_cpu *told
    cdef object call

    def __cinit__(self, uint32_t longest, uint64_t seed, call not None):
        self.turns = vb_cpu_turns(seed * 2 + 1, longest)
        self.call = call

    cdef tell(self, vb_cpu *cpu):
        cdef uint32_t i
        if cpu is self.told:
            return
        for i in range(self.cpus):
            if self.cpu[i] is cpu:
                self.told = cpu
                self.call(i)

    def run(self, list states not None, uint64_t most, uint64_t until):
        """Runs up to 1024 cores of one memory as ``vb_cpu_run_turns`` does; (the code of enum
        vb_cpu_stop, the place of the core that ran last). A device's exception is raised, after
        a call of ``tell`` for its core."""
        cdef uint32_t last = 0
        cdef CoreState state
        cdef PhysicalMemory memory = (<CoreState?>states[0]).memory
        self.cpus = 0
        self.told = NULL
        for state in states[:1024]:
            self.cpu[self.cpus] = &state.cpu
            self.cpus += 1
        memory.turns = self
        cdef int stop = vb_cpu_run_turns(&self.turns, self.cpu, self.cpus, most, until, &last)
        memory.turns = None
        self.tell(self.cpu[last])
        if memory.failed is not None:
            error, memory.failed = memory.failed, None
            raise error
        return stop, last


def instruction_length(data not None):
    """The length of the instruction at the start of ``data``; 0: it is none of the subset."""
    cdef const uint8_t[::1] view = data
    return 0 if view.shape[0] == 0 else vb_cpu_instruction_length(&view[0], view.shape[0])
