# SPDX-License-Identifier: Apache-2.0
"""A kernel in a computer: makes its memory, starts it, and loads programs as processes.

    kernel = Kernel(computer)             # which has memory at 0, a timer, and perhaps more devices
    process = kernel.start(user_program("mov eax, SYS_EXIT\\n syscall"))
    computer.run()

The kernel itself is the machine code of this package's folder ``asm``, which schedules, answers
system calls, and drives the devices; this module only loads and looks. ``system.py`` makes whole
computers with a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from verbena._arguments import checked_arguments, checked_class
from verbena.host.assembler import Program
from verbena.host.computer import Computer
from verbena.host.consoles import Display, Timer
from verbena.host.devices import Device, Keyboard, Mouse
from verbena.host.disk import BUFFER, Disk
from verbena.host.errors import HostError, HostTypeError
from verbena.host.kernel.driven import driven_devices, interrupt_controllers, memory_size
from verbena.host.kernel.image import interrupt_table, kernel_image
from verbena.host.kernel.kernel_tables import KernelTables
from verbena.host.kernel.layout import (
    DISK_READ_DMA,
    DISK_READ_PIO,
    FIRST_VECTOR,
    FRAMES,
    IDT,
    KERNEL_CODE,
    KERNEL_DATA,
    LAST_VECTOR,
    PAGE,
    POOL,
    PROCESS_COUNT,
    PROCESS_SIZE,
    READY,
    RESCHED_VECTOR,
    STACK_SPAN,
    STACKS,
    TRAP_FRAME,
    USER_BASE,
    USER_SPAN,
    XMM_BYTES,
)
from verbena.host.kernel.numbers import program_equates
from verbena.host.kernel.page_tables import NO_EXECUTE, USER, WRITABLE, AddressSpace, FreeMemory
from verbena.host.kernel.process import Process
from verbena.host.nic import EthernetAdapter

_INTERRUPTS_ON = 0x202
_SAVED_BY_SCHEDULE = 6  # general registers
_SPACE_BYTES = 4 * PAGE  # page tables of a process: a table of each level
_USER_CODE, _USER_STACK = 0x33, 0x2B


@checked_arguments(HostTypeError)
def user_program(text: str) -> Program:
    """Assembles a program for a process: at its address, with the names of calls and errors."""
    return Program.assemble(f"{text}\n{program_equates()}", USER_BASE)


@dataclass(frozen=True)
class CycleTotals:
    """Where the cycles since the boot went; together they are all of them."""

    user: int
    system: int
    idle: int

    @property
    def elapsed(self) -> int:
        """All."""
        return self.user + self.system + self.idle


@checked_class(HostTypeError)
class Kernel:
    """The kernel of ``computer``, on its first core, from now on.

    ``tick_us`` is the time slice. The disk is read by ``disk_by`` "dma" or "pio" (programmed
    I/O). ``host`` is the number by which other hosts send to this one, ``budget`` the most frames
    that it takes in a tick while processes compute, and ``receive_buffer`` the most datagrams that
    a socket holds. HostError says what the computer lacks.
    """

    def __init__(
        self,
        computer: Computer,
        *,
        tick_us: float = 100.0,
        disk_by: str = "dma",
        host: int = 1,
        budget: int = 32,
        receive_buffer: int = 16,
    ) -> None:
        if (
            not 1 <= tick_us <= 1e6
            or not 1 <= budget < 1 << 31
            or not 1 <= receive_buffer < 1 << 31
        ):
            raise HostError(
                f"a tick has 1 us to 1 s, a budget and a receive buffer 1 to 2^31 - 1: not "
                f"{tick_us} us, {budget} and {receive_buffer}"
            )
        if disk_by not in ("dma", "pio"):
            raise HostError(f"a disk is read by 'dma' or by 'pio', not by {disk_by!r}")
        if not 1 <= host < 1 << 32:
            raise HostError("a host's number is 1 to 4,294,967,295")
        self.computer, self.core, self.host = computer, computer.cores[0], host
        if self.core.state.instructions:
            raise HostError("a kernel boots on a core that has run nothing yet: make a Computer")
        self._labels = kernel_image().labels
        self._devices = driven_devices(computer)
        self._controllers = interrupt_controllers(computer)
        self.tables = KernelTables(computer, self._labels)
        self._memory = FreeMemory(FRAMES, memory_size(computer))
        self.processes: list[Process] = []
        self._next_pid = 1
        self._retired_user = self._retired_system = 0
        self._boot_cycles = self.core.state.cycles
        self._load()
        read_command = DISK_READ_DMA if disk_by == "dma" else DISK_READ_PIO
        self.tables.set(
            tick_ns=round(tick_us * 1000),
            poll_budget=budget,
            budget_left=budget,
            socket_limit=receive_buffer,
            own_host=host,
            cycles_per_us=max(1, round(1e6 / float(computer.cycle_ps))),
            last_stamp=self._boot_cycles,
            disk_read_command=read_command,
        )
        self._set_devices()
        image = kernel_image()
        begin = self._labels["apic_boot" if self._controllers else "boot"]
        self.core.begin(Program(image.code, begin, lines=image.lines))

    # ---- what the boot needs ----

    def _load(self) -> None:
        computer, image = self.computer, kernel_image()
        computer.write(KERNEL_CODE, image.code)
        computer.write(IDT, interrupt_table(self._labels))
        self._space = AddressSpace(computer, self._memory)
        self._map_kernel()
        for place in range(PROCESS_COUNT):
            stack = STACKS + (place + 1) * STACK_SPAN
            self.tables.set_entry(place, root=self._space.root, stack_top=stack)
        self.tables.set(kernel_root=self._space.root)

    def _map_kernel(self) -> None:
        """Memory and devices at their physical addresses, for ring 0."""
        space, data = self._space, WRITABLE | NO_EXECUTE
        space.map(KERNEL_CODE, KERNEL_CODE, KERNEL_DATA - PAGE, 0)
        size = STACKS - KERNEL_DATA
        space.map(KERNEL_DATA, KERNEL_DATA, size, data)
        for place in range(PROCESS_COUNT):
            stack = STACKS + place * STACK_SPAN + PAGE
            space.map(stack, stack, PAGE, data)
        end = memory_size(self.computer) // PAGE * PAGE
        space.map(POOL, POOL, end - POOL, data)
        for one in self._devices:
            first = one.base // PAGE * PAGE
            size = -(-(one.end - first) // PAGE) * PAGE
            space.map(first, first, size, data)
        for one in self._controllers:
            space.map(one.base, one.base, PAGE, data)

    def _set_controllers(self) -> None:
        """The addresses of the APICs, and the entries of the lines that devices are wired to."""
        if not self._controllers:
            return
        local, io = self._controllers
        self.tables.set(apic_base=local.base, io_apic_base=io.base)
        for vector in range(FIRST_VECTOR, RESCHED_VECTOR):
            self._set_handler("handlers", vector, "apic_interrupt")
        used: dict[int, Device] = {}
        at = self._labels["apic_lines"]
        for one in self._devices:
            device = one.device
            if not isinstance(device, Device) or device.wired is None:
                continue
            register, vector = device.wired.register, device.vector  # type: ignore[attr-defined]
            if (other := used.setdefault(register, device)) is not device:
                raise HostError(f"the kernel's drivers share no line, as {other!r} and {device!r}")
            self.tables.write(at, register | device.wired.entry(vector) << 32)
            at += 8

    def _set_devices(self) -> None:
        names = {Timer: "timer", Keyboard: "keyboard", Mouse: "mouse", Display: "display",
                 Disk: "disk", EthernetAdapter: "adapter"}  # fmt: skip
        handlers = {"timer": "tick", "keyboard": "keyboard", "disk": "disk", "adapter": "adapter"}
        self._set_handler("handlers", RESCHED_VECTOR, "resched_interrupt")
        self._set_controllers()
        for one in self._devices:
            device = one.device
            name = next(name for kind, name in names.items() if isinstance(device, kind))
            self.tables.set(**{f"{name}_base": one.base})
            if name in handlers:
                vector: int = device.vector  # type: ignore[union-attr]
                table = "driver_handlers" if self._controllers else "handlers"
                self._set_handler(table, vector, f"{handlers[name]}_interrupt")
            if isinstance(device, Display):
                self.tables.set(display_columns=device.columns, display_rows=device.rows)
            if isinstance(device, Disk):
                most = (device.size - BUFFER) // device.block
                self.tables.set(disk_block=device.block, disk_most=most)

    def _set_handler(self, table: str, vector: int, label: str) -> None:
        at = self._labels[table] + 8 * (vector - FIRST_VECTOR)
        self.tables.write(at, self._labels[label])

    # ---- processes ----

    def start(
        self,
        program: Program | str,
        *,
        name: str = "",
        memory: int = 64 << 10,
        stack: int = 4096,
    ) -> Process:
        """Loads a program into an address space of its own, as a process that is ready.

        ``memory`` are the bytes that the process has, at most 2 MiB: program and data from
        ``USER_BASE`` on, one page that is missing, and ``stack`` bytes at the end. HostError if the
        program does not fit, or if 15 processes have not ended.
        """
        if isinstance(program, str):
            program = user_program(program)
        memory, stack = (-(-size // PAGE) * PAGE for size in (memory, stack))
        room = memory - stack - PAGE
        if not program.code:
            raise HostError("the program has no instruction")
        if program.origin != USER_BASE:
            raise HostError(
                f"a program of a process begins at {USER_BASE:#x}, not at {program.origin:#x}: "
                "assemble it with user_program(text)"
            )
        if not stack >= PAGE or not room > 0 or memory > USER_SPAN:
            raise HostError(
                f"a process has {3 * PAGE:,} bytes to 2 MiB of memory, of which a page or more is "
                f"stack and a page is missing: not {memory:,} with a stack of {stack:,}"
            )
        if len(program.code) > room:
            raise HostError(
                f"the program has {len(program.code):,} bytes, and the process has room for "
                f"{room:,}: start it with more memory"
            )
        return self._make(program, name, memory, stack)

    def _make(self, program: Program, name: str, memory: int, stack: int) -> Process:
        place = self._place()
        base = self._piece(memory)
        self.computer.write(base, program.code + bytes(memory - len(program.code)))
        space = AddressSpace(self.computer, self._memory)
        for gibibyte in {one.base >> 30 for one in self._controllers} | {0}:
            space.share(self._space, gibibyte)
        behind = memory - stack
        space.map(USER_BASE, base, behind - PAGE, WRITABLE | USER)
        rights = WRITABLE | USER | NO_EXECUTE
        space.map(USER_BASE + behind, base + behind, stack, rights)
        pid, self._next_pid = self._next_pid, self._next_pid + 1
        made = Process(
            self.tables, pid, place, name, program, base, memory, stack, space, self._watch_ends
        )
        self.processes.append(made)
        self._begin(made)
        return made

    def _place(self) -> int:
        """A free place in the table; HostError if there is none."""
        used = {one.place for one in self.processes if one.is_in_table}
        free = [place for place in range(1, PROCESS_COUNT) if place not in used]
        if not free and self._retire_one():
            return self._place()
        if not free:
            raise HostError(f"{len(used)} processes have not ended: the kernel has no place more")
        return free[0]

    def _piece(self, size: int) -> int:
        """Memory for a process, beside that of its page tables; if need be that of processes that
        have ended."""
        while not self._memory.has(size + _SPACE_BYTES) and self._retire_one():
            pass
        return self._memory.take(size)

    def _retire_one(self) -> bool:
        """Takes memory and place from the process that was started first and has ended."""
        current = self.variable("current")
        for one in self.processes:
            on_its_stack = self.tables.entry_at(one.place) == current
            if one.is_in_table and one.has_ended and not on_its_stack:
                self._retired_user += one.cycles.user
                self._retired_system += one.cycles.system
                one.retire()
                self._memory.give_back(one.base, one.size)
                one.space.free()
                return True
        return False

    def _begin(self, process: Process) -> None:
        """The stack in the kernel is that of a process that was switched away in an interrupt."""
        place = process.place
        top = STACKS + (place + 1) * STACK_SPAN
        frame = dict.fromkeys(TRAP_FRAME, 0)
        frame |= {"rip": USER_BASE, "cs": _USER_CODE, "flags": _INTERRUPTS_ON, "ss": _USER_STACK}
        frame["rsp"] = USER_BASE + process.size
        saved = XMM_BYTES // 8 + _SAVED_BY_SCHEDULE
        values = [0] * saved + [self._labels["interrupt_exit"], *frame.values()]
        data = b"".join(value.to_bytes(8, "little") for value in values)
        self.computer.write(top - len(data), data)
        self.computer.write(self.tables.entry_at(place), bytes(PROCESS_SIZE))
        self.tables.set_entry(place, pid=process.pid, root=process.space.root, stack_top=top,
                        rsp=top - len(data), state=READY)  # fmt: skip
        self.core.state.interrupt(RESCHED_VECTOR)

    # ---- their ends ----

    def _watch_ends(self) -> None:
        """Lets processes know when they have ended, where the kernel closes what they have open."""
        self.core.call_at(self._labels["end_of_process"], self._end_of_process)

    def _end_of_process(self) -> None:
        if (ended := self.running) is not None:
            ended.tell_end()
        if not any(one.is_watched for one in self.processes):
            self.core.end_call(self._labels["end_of_process"])

    # ---- looking ----

    def variable(self, name: str) -> int:
        """A variable of asm/data.asm, such as ``ticks`` or ``datagrams_dropped``."""
        return self.tables.variable(name)

    @property
    def running(self) -> Process | None:
        """The process that has the processor; None: none, the computer is idle."""
        current = self.variable("current")
        for one in self.processes:
            if one.is_in_table and self.tables.entry_at(one.place) == current:
                return one
        return None

    @property
    def cycles(self) -> CycleTotals:
        """Where all cycles since the boot went."""
        idle = self.tables.entry(0)
        idle_user, idle_system = self.tables.unstamped(0)
        user, system = self._retired_user, self._retired_system + idle["system"] + idle_system
        for one in self.processes:
            if one.is_in_table:
                user += one.cycles.user
                system += one.cycles.system
        unbooted = 0
        if not self.variable("current"):
            unbooted = self.core.state.cycles - self._boot_cycles
        return CycleTotals(user, system + unbooted, idle["user"] + idle_user)

    @property
    def elapsed_cycles(self) -> int:
        """All cycles of the core since the boot."""
        return self.core.state.cycles - self._boot_cycles

    @property
    def interrupts(self) -> dict[int, int]:
        """How often the kernel was entered by each vector, exceptions of processes as well."""
        at = self._labels["interrupt_counts"]
        counts = {vector: self.tables.read(at + 8 * vector) for vector in range(LAST_VECTOR + 1)}
        return {vector: count for vector, count in counts.items() if count}

    def check(self) -> None:
        """HostError if the kernel itself has faulted, with the place."""
        if self.variable("panicked"):
            at = self.variable("panic_rip")
            raise HostError(
                f"the kernel of {self.computer.name!r} has faulted at {at:#x} "
                f"({kernel_image().lines.get(at, 'no line')}): vector "
                f"{self.variable('panic_vector')}, address {self.variable('panic_address'):#x}"
            )
