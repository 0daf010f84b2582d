# SPDX-License-Identifier: Apache-2.0
"""A core of a computer: its registers by name, breakpoints, and faults as exceptions.

``Computer`` lets cores run; whoever writes a lesson reads and sets their registers.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from math import ceil
from typing import TYPE_CHECKING

from verbena._arguments import checked_class, is_whole
from verbena.host._cpu import CoreState, PhysicalMemory
from verbena.host.assembler import Program
from verbena.host.caches import Caches, check_range
from verbena.host.costs import Ledger
from verbena.host.disassembler import DisassembledLine, disassemble, instruction_text
from verbena.host.errors import HostError, HostTypeError, ProcessorError
from verbena.host.other_instructions import not_of_subset, other_instruction
from verbena.host.undelivered import why_undelivered
from verbena.host.unfetched import jump_to, why_unfetched

if TYPE_CHECKING:
    from verbena.host.computer_records import Range

NAMES = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
         *(f"r{number}" for number in range(8, 16)))  # fmt: skip

EXCEPTIONS = {
    0: "divide error (#DE)",
    1: "debug exception (#DB)",
    3: "breakpoint (#BP)",
    6: "invalid opcode (#UD)",
    13: "general protection fault (#GP)",
    14: "page fault (#PF)",
}


_OF_PORTS = ("in", "out")
_OF_STACK = ("push", "pushfq", "call", "pop", "popfq", "ret")
_RSP = 4
_HLT = b"\xf4"
_PAGE_FAULT, _PROTECTION, _INVALID_OPCODE = 14, 13, 6
MOST_CHARGED = 1 << 48
_INTERRUPTS_ON = 1 << 9  # of RFLAGS


class Stop(IntEnum):
    """Why a run ended; ``str`` says it in words."""

    LIMIT = 0
    HALT = 1
    BUS = 2
    EXCEPTION = 3
    MARK = 4
    TIME = 5
    WAITS = 6

    def __str__(self) -> str:
        return _REASONS[self]

    def __format__(self, form: str) -> str:
        return format(str(self), form)


_REASONS = {
    Stop.LIMIT: "the limit of instructions was reached: where() says at which",
    Stop.HALT: "all cores have halted, and no event is left",
    Stop.BUS: "nothing answers an access",
    Stop.EXCEPTION: "an exception has no handler",
    Stop.MARK: "a breakpoint was reached",
    Stop.TIME: "the time of the limit was reached: where() says at which instruction",
    Stop.WAITS: "a core has halted until an interrupt, and nothing is left that could raise one",
}


# RDMSR and WRMSR, as text or as bytes: 0F 32 and 0F 30.
_OF_MSRS = ("rdmsr", "wrmsr", "0f 32", "0f 30")
_RETURNS = ("iretq", "48 cf")
_SYSTEM_CALLS = ("syscall", "sysret", "0f 05", "48 0f 07")
_NO_SYSTEM_CALLS = (
    "system calls are off, until WRMSR has set bit 0 of EFER (0xc0000080), and LSTAR (0xc0000082) "
    "to the address of their handler"
)
NOT_CANONICAL = "is no canonical address, whose bits 47 to 63 are all alike"


def is_canonical(address: int) -> bool:
    """Whether paging translates an address (SDM volume 1, 3.3.7.1)."""
    return address < 1 << 47 or (1 << 64) - (1 << 47) <= address < 1 << 64


def _whole_register(name: str) -> str:
    """Advice for the name of a part of a register, as EAX, AX, AL and R8D."""
    number = name[1:].rstrip("dwb")
    whole = f"r{name[-2:]}" if name[:1] == "e" else f"r{number}" if number.isdecimal() else ""
    if len(name) == 2:
        whole = f"r{name[0]}x" if name[1] in "lhx" else f"r{name}"
    if whole not in (*NAMES, "rip") or whole == name:
        return ""
    return f": it is a part of {whole!r}, which has all 64 bits"


class Registers:
    """The registers as attributes: ``registers.rax``, ``registers.rip``, ``registers.flags``."""

    def __init__(self, state: CoreState) -> None:
        object.__setattr__(self, "_state", state)

    def __getattr__(self, name: str) -> int:
        state: CoreState = object.__getattribute__(self, "_state")
        if name in NAMES:
            return state.get(NAMES.index(name))
        if name in (special := state.special()):
            return special[name]
        raise AttributeError(f"there is no register {name!r}{_whole_register(name)}")

    def __setattr__(self, name: str, value: int) -> None:
        state: CoreState = object.__getattribute__(self, "_state")
        if not is_whole(value):
            raise HostTypeError(f"register {name}: {value!r} is no whole number")
        if not (0 if name in ("rip", "flags") else -1 << 63) <= value < 1 << 64:
            raise HostError(f"register {name} has 64 bits: {int(value):#x} does not fit")
        if name in NAMES:
            state.set(NAMES.index(name), int(value) & (1 << 64) - 1)
        elif name == "rip":
            state.rip = value
        elif name == "flags":
            state.flags = value
        else:
            raise AttributeError(
                f"{name!r} is no register that can be set from outside{_whole_register(name)}"
            )

    def __repr__(self) -> str:
        state: CoreState = object.__getattribute__(self, "_state")
        values = {**self.all(), "rip": state.rip}
        cells = [f"{name:<5} {value:#018x}" for name, value in values.items()]
        return "\n".join("  ".join(cells[at : at + 3]) for at in range(0, len(cells), 3))

    def all(self) -> dict[str, int]:
        """All general registers and the flags."""
        state: CoreState = object.__getattribute__(self, "_state")
        values = {name: state.get(number) for number, name in enumerate(NAMES)}
        return {**values, "flags": state.flags}


def model_specific(registers: Registers) -> str:
    """Why RDMSR or WRMSR is refused with these registers."""
    if registers.ring != 0:
        return "only ring 0 may read and write model-specific registers"
    number = registers.rcx & 0xFFFFFFFF
    return f"this processor has no model-specific register {number:#x}, the number in ECX"


def _address(address: int) -> int:
    if not 0 <= address < 1 << 64:
        raise HostError(f"an address is 0 to 2^64 - 1, and not {address:#x}")
    return address


@checked_class(HostTypeError, but=("breaks_here", "checked", "locate", "run", "show", "shut_down"))
class Core:
    """One core, made by its computer."""

    def __init__(
        self,
        memory: PhysicalMemory,
        number: int,
        find: Callable[[int], Range | None],
        who: Callable[[int], str],
    ) -> None:
        self.number = number
        self._who = who  # names the core of a number, at the start of an error
        self._find = find  # the range of the physical address space that has an address
        self.state = CoreState(memory)
        self.registers = Registers(self.state)
        self._lines: dict[int, str] = {}
        self._labels: dict[int, str] = {}  # of its programs, by address
        self._breaks: set[int] = set()
        self._calls: dict[int, Callable[[], None]] = {}  # of call_at, by address
        self._has_begun = False
        self._end = 0  # the address behind the program that it began last
        # Each gets the name of charged or idle time, or "program" for machine code that has run,
        # with the first cycle and the one behind the last.
        self.observers: list[Callable[[str, int, int], None]] = []
        self.caches: Caches | None = None  # the computer's, if it has any
        self.ledger = Ledger()  # of charged work; its costs may be replaced before the first

    def charge(
        self,
        name: str,
        cycles: float | None = None,
        *,
        times: float = 1,
        copies: int = 0,
        level: str = "l3",
        loads: int = 0,
        source: int | None = None,
        target: int | None = None,
    ) -> int:
        """Lets the core be busy for work that is no machine code; the cycles.

        ``name`` is a cost of ``costs.py``, or with ``cycles`` any. ``copies`` are bytes that the
        work copies beside that, from a ``level`` of l1, l2, l3 or memory. On a computer with
        ``caches`` the physical addresses ``source`` and ``target`` decide the level of each line,
        and ``loads`` bytes from ``source`` on are loaded before they are copied. No byte moves.

        Raises HostError for 2^48 or more of anything, a day of a core; for one of both addresses;
        for loads without caches or ``source``; with caches for more than 1 GiB from an address.
        """
        self._check_addresses(copies, loads, source, target)
        if not 0 <= copies < MOST_CHARGED or not times < MOST_CHARGED:
            raise HostError(
                f"a charge is of less than 2^48 bytes of copies or times: not {copies}, {times:g}"
            )
        if cycles is not None and not 0 <= cycles < MOST_CHARGED:
            raise HostError(f"a charge of {name!r} is 0 to 2^48 cycles, not {cycles:g}")
        sum_ = self.ledger.add(name, times, cycles=cycles)
        work = ceil(sum_)
        if loads and source is not None:
            sum_ += self._load(source, loads)
        loaded = ceil(sum_)
        if copies:
            sum_ += self._copy(copies, level, source, target)
        whole, start = ceil(sum_), self.state.cycles
        self.state.cycles = start + whole
        self.show(name, start, start + work)
        self.show("load", start + work, start + loaded)
        self.show("copy", start + loaded, start + whole)
        return whole

    def _check_addresses(
        self, copies: int, loads: int, source: int | None, target: int | None
    ) -> None:
        """Raises HostError for addresses with which ``charge`` can do nothing."""
        if copies and (source is None) != (target is None):
            raise HostError("a copy is from source to target: give both addresses, or a level")
        if loads and (self.caches is None or source is None):
            raise HostError(
                "loads are charged by caches, for the lines at an address: make the computer with "
                "Computer(caches=Caches()), and give source"
            )
        if self.caches is not None and source is not None:
            for size in (copies, loads):
                check_range(size, source, 0 if target is None else target)

    def _load(self, address: int, size: int) -> float:
        """Charges a load of lines, by where the caches have them; the cycles."""
        assert self.caches is not None
        each = self.caches.costs.load_cycles
        return sum(
            self.ledger.add(f"load_{at.name.lower()}", lines, cycles=lines * each[at - 1])
            for at, lines in self.caches.lines_loaded(address, size).items()
        )

    def _copy(self, size: int, level: str, source: int | None, target: int | None) -> float:
        """Charges a copy, by where the caches have its lines or by its level; the cycles."""
        if self.caches is None or source is None or target is None:
            return self.ledger.copy(size, level)
        each = self.caches.costs.copy_cycles_per_byte
        return sum(
            self.ledger.copy(part, at.name.lower(), cycles=part * each[at - 1])
            for at, part in self.caches.bytes_copied(source, target, size).items()
        )

    def show(self, name: str, start: int, end: int) -> None:
        """Tells the observers what the core did from one cycle to another."""
        if end > start:
            for observe in self.observers:
                observe(name, start, end)

    def __repr__(self) -> str:
        return f"<{self.where}>"

    @property
    def sleeps(self) -> bool:
        """It has halted with no interrupt to wake it, or was given no program."""
        return not self._has_begun or (self.state.halted and not self.state.is_woken)

    @property
    def waits(self) -> bool:
        """It has halted, and an interrupt would wake it: interrupts are on."""
        return self._has_begun and self.state.halted and bool(self.state.flags & _INTERRUPTS_ON)

    @property
    def rip(self) -> int:
        """The address of the next instruction."""
        return self.state.rip

    def begin(self, program: Program) -> None:
        """Sets RIP to the program's first instruction."""
        self.state.rip = program.origin
        self._end = program.origin + len(program.code)
        self._lines.update(program.lines)
        for name, address in program.labels.items():
            if program.origin <= address < self._end:
                self._labels[address] = name
        self._has_begun = True

    def begin_at(self, address: int) -> None:
        """Lets a core that has no program begin at an address; nothing if it has one."""
        if not self._has_begun:
            self.state.rip = self._end = _address(address)
            self._has_begun = True

    def shut_down(self) -> None:
        """Lets the core run no more until a program is loaded for it.

        Real ones do so where a fault cannot be handled (SDM volume 3, 6.15, double fault): the
        rest of the computer, and others that run with it, go on.
        """
        self._has_begun = False

    @property
    def where(self) -> str:
        """Where it is: the address, behind which label of a program, and the instruction."""
        if not self._has_begun:
            return f"core {self.number} has no program"
        at = self.rip
        if self.state.halted:
            return f"core {self.number} has halted before {at:#x}"
        text = self.text(at).partition(";")[0].strip() or "there is no memory"
        return f"core {self.number} is at {at:#x}{self._behind_label(at, text)}: {text}"

    def _behind_label(self, at: int, text: str) -> str:
        """The last label up to a line of a program, and how far it is; "" if ``text`` has it."""
        label = max((one for one in self._labels if one <= at), default=None)
        if label is None or at not in self._lines:
            return ""
        name = self._labels[label]
        if at == label and text.startswith(f"{name}:"):
            return ""
        return f" ({name}+{at - label:#x})" if at > label else f" ({name})"

    def break_at(self, address: int) -> None:
        """Sets a breakpoint: a run ends before the instruction there."""
        self._mark(_address(address))
        self._breaks.add(address)

    def _mark(self, address: int) -> None:
        if not self.state.set_mark(address):
            raise HostError("a core has at most 64 breakpoints")

    def remove_break(self, address: int) -> None:
        """Takes a breakpoint away."""
        self._breaks.discard(_address(address))
        if address not in self._calls:
            self.state.clear_mark(address)

    def call_at(self, address: int, call: Callable[[], None]) -> None:
        """Calls before the instruction at an address, perhaps twice, and the run goes on. This is
        for what Python does in place of the program; it slows the core down until ``end_call``,
        and counts as a breakpoint: HostError if there are 64."""
        if _address(address) not in self._calls:
            self._mark(address)
        self._calls[address] = call

    def end_call(self, address: int) -> None:
        """Calls no more at an address; nothing if nobody wanted it."""
        if self._calls.pop(address, None) is not None and address not in self._breaks:
            self.state.clear_mark(address)

    def breaks_here(self) -> bool:
        """Whether a run ends before the next instruction; makes the call of that address first."""
        if (call := self._calls.get(self.rip)) is not None:
            call()
        return self.rip in self._breaks

    def text(self, address: int) -> str:
        """The instruction at a linear address: its line of assembly if known, else what the
        disassembler says, or the name and the bytes of one that the subset lacks."""
        if _address(address) in self._lines:
            return self._lines[address]
        data = self._bytes(address)
        return instruction_text(data, address) or str(other_instruction(data) or data.hex(" "))

    def disassemble(self, address: int, count: int = 10) -> list[DisassembledLine]:
        """Up to ``count`` instructions of memory from a linear address on, as text.

        It ends where no memory is, as a debugger's listing does.
        """
        found: list[DisassembledLine] = []
        while len(found) < count and (data := self._bytes(_address(address))):
            found.append(next(iter(disassemble(data, address))))
            address += len(found[-1].code)
        return found

    def _bytes(self, address: int) -> bytes:
        physical = self.state.physical(address)
        if physical is None:
            return b""
        for size in range(15, 0, -1):
            if (data := self.state.memory.read(physical, size)) is not None:
                return data
        return b""

    def run(self, most: int, until: int) -> Stop:
        """Runs instructions up to a cycle; ProcessorError for a fault that nobody handles."""
        start = self.state.cycles
        try:
            stop = Stop(self.state.run(min(most, (1 << 63) - 1), min(until, (1 << 64) - 1)))
        except Exception as error:  # of what the instruction has reached
            self.locate(error)
            raise
        if self.observers:
            self.show("program", start, self.state.cycles)
        return self.checked(stop)

    def locate(self, error: Exception) -> None:
        """Puts the instruction that has reached a device into the device's error, unless it is the
        error of a store that was posted before; what an observer has raised gets a note."""
        where = f"{self._who(self.number)}at {self.rip:#x}: {self.text(self.rip)}"
        if not isinstance(error, HostError):
            error.add_note(where)
            return
        if error.has_place:
            return
        error.has_place = True
        error.place(self, self.rip)
        error.args = (f"{where}: {error}",)

    def checked(self, stop: Stop) -> Stop:
        """Why the core has stopped; ProcessorError for a fault that nobody handles."""
        if stop in (Stop.BUS, Stop.EXCEPTION):
            raise self._error()
        return stop

    def take_interrupt(self) -> int | None:
        """Takes the most urgent interrupt that is pending, if they are on; its vector.

        Runs do so by themselves; this is for those who show each instruction. ProcessorError if
        it has no handler.
        """
        before = self.state.interrupts
        if not self.state.take_interrupt():
            raise self._error()
        return self.state.fault()[0] if self.state.interrupts > before else None

    def _error(self) -> ProcessorError:
        vector, error, bus, write, size, address = self.state.fault()
        at = self.state.rip
        text = self.text(at)
        where = f"{self._who(self.number)}at {at:#x}" + (f": {text}" if text else "")
        if bus:
            why = self._why_refused(write, size, address)
            return ProcessorError(f"{where}: {why}", at, core=self)
        detail = ""
        if vector == _PAGE_FAULT:
            detail = f" at {address:#x}, error code {error:#x}"
        elif vector == _INVALID_OPCODE and self._has_no_calls(at):
            detail = f": {_NO_SYSTEM_CALLS}"
        elif vector == _INVALID_OPCODE:
            detail = f": {not_of_subset(self._bytes(at))}"
        elif vector == _PROTECTION and self.text(at).startswith(_OF_MSRS):
            detail = f": {model_specific(self.registers)}"
        elif vector == _PROTECTION and self.text(at).startswith(_RETURNS):
            detail = ": the CS of its frame, at RSP + 8, is null or of a ring that it may not enter"
        elif vector == _PROTECTION and error and self.registers.ring == 3:
            detail = f": entry {error >> 3} of the table of handlers is not for int in ring 3"
        elif vector == _PROTECTION and not address and self.registers.ring == 3:
            detail = ": only ring 0 may run this instruction"
        elif vector == _PROTECTION and not is_canonical(address):
            detail = f": {address:#x} {NOT_CANONICAL}"
        elif vector == _PROTECTION and address:
            detail = f": {address:#x} is not a multiple of 16, as this instruction needs it"
        why = why_undelivered(self.state, self._find, vector, has_error=error is not None)
        past_end = self._ran_past_end(at)
        if self._is_of_device(vector) and self._is_behind_hlt(at):
            text = f": {text}" if at in self._lines else ""
            where = f"{self._who(self.number)}at {at:#x}, behind the hlt at {at - 1:#x}{text}"
            past_end = ""
        event = f"{self._event(vector)}{detail}"
        return ProcessorError(f"{where}: {event}, and {why}{past_end}", at, vector, self)

    def _why_refused(self, write: bool, size: int, address: int) -> str:
        """Why the bus has refused an access of the next instruction, or its fetch."""
        at = self.state.rip
        verb, found = "write" if write else "read", self._find(address)
        name = (instruction_text(self._bytes(at), at) or "").partition(" ")[0]
        if name in _OF_PORTS:
            return (
                f"no device has port {address:#x}: an InterruptController has ports, and mov "
                "reaches the registers of other devices, which have addresses"
            )
        if self._is_fetch(found, write, size, address):
            return why_unfetched(found, address, self._came_by(at)) + self._ran_past_end(at)
        if found is not None:
            return (
                f"a {verb} of {size} bytes at {address:#x} goes beyond the end of "
                f"{found.device!r}, {found.end:#x}: no more than {found.end - address} fit"
            )
        stack = self.state.get(_RSP)
        advice = "map memory or a device there"
        if name in _OF_STACK and address in (stack, (stack - 8) % (1 << 64)):
            advice = f"rsp is {stack:#x}: set it to the end of a part of memory"
        return (
            f"nothing answers a {verb} of {size} bytes at {address:#x}: {advice}"
            f"{self._ran_past_end(at)}"
        )

    def _is_fetch(self, found: Range | None, write: bool, size: int, address: int) -> bool:
        """Whether an access that the bus refused was for the instruction: its first byte, or a byte
        of a device, which an access of one byte to registers never fails to reach."""
        if write or size != 1:
            return False
        return found is not None or self.state.physical(self.state.rip) == address

    def _came_by(self, at: int) -> str:
        """The jump or call of its programs that has led to an address, if it is known."""

        def register(name: str) -> int | None:
            return self.state.get(NAMES.index(name)) if name in NAMES else None

        return jump_to(at, self._lines, self._bytes, register)

    def _has_no_calls(self, at: int) -> bool:
        """Whether an instruction is a system call, or a return from one, and these are off."""
        return self.text(at).startswith(_SYSTEM_CALLS) and not self.state.special()["efer"] & 1

    def _event(self, vector: int) -> str:
        if vector in EXCEPTIONS:
            return EXCEPTIONS[vector]
        if self._is_of_device(vector):
            return f"interrupt {vector} came here"
        return f"software interrupt {vector}"

    def _is_of_device(self, vector: int) -> bool:
        """Whether it has come from outside, before the next instruction."""
        name = self.text(self.state.rip).partition(" ")[0]
        return vector not in EXCEPTIONS and name not in ("int", "cd")

    def _is_behind_hlt(self, at: int) -> bool:
        """Whether the instruction before an address is HLT, which an interrupt ends."""
        is_known = at - 1 in self._lines or not self._lines
        return is_known and at > 0 and self._bytes(at - 1)[:1] == _HLT

    def _ran_past_end(self, at: int) -> str:
        """Advice, if there are only zeros between the end of the program and an address."""
        size = at - self._end
        if not self._has_begun or not 0 <= size < 1 << 24 or at in self._lines:
            return ""
        between = self.state.memory.read(self._end, size) if size else b""
        if between is None or between.count(0) != size:
            return ""
        return (
            f"; the core ran past the end of the program, {self._end:#x}: end it with hlt or a jump"
        )
