# SPDX-License-Identifier: Apache-2.0
"""A process of the kernel as Python sees it: its entry of the kernel's table, and its memory.

``Kernel.start`` makes it. All that it says is read from the computer's memory when it is asked,
or, once another process has got its place, from a copy of that time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from verbena._arguments import checked_class
from verbena.host.assembler import Program
from verbena.host.computer import Computer
from verbena.host.core import EXCEPTIONS, NOT_CANONICAL, is_canonical
from verbena.host.disassembler import instruction_text
from verbena.host.errors import HostError, HostTypeError
from verbena.host.kernel.kernel_tables import KernelTables
from verbena.host.kernel.layout import BLOCKED, EXITED, FAULTED, PAGE, READY, USER_BASE, USER_SPAN
from verbena.host.kernel.numbers import CALLS
from verbena.host.kernel.page_tables import AddressSpace
from verbena.host.other_instructions import not_of_subset, other_instruction

_BREAKPOINT, _PROTECTION, _PAGE_FAULT = 3, 13, 14
_HLT = b"\xf4"
_INT3 = (b"\xcc", b"\xcd\x03")  # INT3, and INT 3 of two bytes
_WROTE, _FETCHED = 2, 16  # of a page fault's error code (SDM volume 3, 4.7)
_DIVIDE, _INVALID_OPCODE = 0, 6
_QUOTIENT = "it divided by 0, or the quotient is too large"
# What ring 3 may not do (SDM volume 3, 5.9), as the disassembler says it.
_PRIVILEGED = re.compile(
    r"(cli|sti|in|ins[bwd]|out|outs[bwd]|rdmsr|wrmsr|lidt|lgdt|lldt|ltr|invlpg|swapgs|sysretq?|"
    r"clts|wbinvd|invd|mov cr\d, .*|mov .*, cr\d)\b"
)
_ALIGNED = re.compile(r"movdqa|movaps|movntdq|movntps|cmpxchg16b")


def _exception(vector: int) -> str:
    return EXCEPTIONS.get(vector, f"vector {vector}")


class ProcessState(Enum):
    """What a process does; the one that runs is ready."""

    READY = READY
    BLOCKED = BLOCKED
    EXITED = EXITED
    FAULTED = FAULTED


@dataclass(frozen=True)
class ProcessCycles:
    """Cycles of the processor in ring 3, and in the kernel for the process."""

    user: int
    system: int


@checked_class(HostTypeError)
class Process:
    """A process; ``pid`` is its number, ``base`` the physical address of its memory."""

    def __init__(
        self, tables: KernelTables, pid: int, place: int, name: str, program: Program,
        base: int, size: int, stack: int, space: AddressSpace, watch_ends: Callable[[], None],
    ) -> None:  # fmt: skip
        self._tables, self.place = tables, place
        self.pid, self.name, self.program = pid, name, program
        self.base, self.size, self.stack, self.space = base, size, stack, space
        self.at_end: list[Callable[[], None]] = []  # called before its memory is another process's
        self._when_ended: list[Callable[[], None]] = []
        self._watch_ends = watch_ends
        self._copy: dict[str, int] | None = None

    def __repr__(self) -> str:
        if self.state is not ProcessState.FAULTED:
            return f"<{self.title}: {self.state.name.lower()}>"
        vector, at = self._fault()
        return f"<{self.title}: faulted, {_exception(vector)} at {at:#x}: {self.text(at)}>"

    @property
    def title(self) -> str:
        """Its number and, if it has one, its name."""
        return f"process {self.pid}" + (f" ({self.name})" if self.name else "")

    @property
    def computer(self) -> Computer:
        """The computer that it runs on."""
        return self._tables.computer

    def _fields(self) -> dict[str, int]:
        return self._tables.entry(self.place) if self._copy is None else self._copy

    def when_ended(self, call: Callable[[], None]) -> None:
        """Calls when it has called ``exit`` or was ended by a fault, at that time of the run."""
        self._when_ended.append(call)
        self._watch_ends()

    @property
    def is_watched(self) -> bool:
        """Whether somebody is to be called when it has ended, and it has not."""
        return bool(self._when_ended)

    def tell_end(self) -> None:
        """It has ended: makes the calls of ``when_ended``, once."""
        calls, self._when_ended = self._when_ended, []
        for call in calls:
            call()

    def retire(self) -> None:
        """Keeps a copy of the entry, since another process gets its place."""
        self.tell_end()
        for call in self.at_end:
            call()
        self._copy = self._fields()

    @property
    def is_in_table(self) -> bool:
        """No other process has its place yet."""
        return self._copy is None

    # ---- state ----

    @property
    def state(self) -> ProcessState:
        """What it does."""
        return ProcessState(self._fields()["state"])

    @property
    def has_ended(self) -> bool:
        """It has called ``exit``, or a fault has ended it."""
        return self.state in (ProcessState.EXITED, ProcessState.FAULTED)

    @property
    def exit_status(self) -> int | None:
        """What it gave to ``exit``, with its sign; None: it has not called it."""
        if self.state is not ProcessState.EXITED:
            return None
        status = self._fields()["exit"]
        return status - (1 << 64) if status >> 63 else status

    @property
    def waits_for(self) -> str | None:
        """What a process waits for that is blocked."""
        fields = self._fields()
        if self.state is not ProcessState.BLOCKED:
            return None
        return self._tables.channel_name(fields["channel"])

    @property
    def address(self) -> int:
        """The address of the program's next instruction."""
        return self._tables.address_of(self.place)

    def line(self, address: int) -> str:
        """The program's line of assembly at an address, as far as it is known."""
        return self.program.lines.get(address, "")

    def text(self, address: int) -> str:
        """The line of assembly at an address, or what the disassembler says of the bytes there."""
        if line := self.line(address):
            return line
        data = self._bytes_at(address, 15)
        if text := instruction_text(data, address):
            return text
        return str(other_instruction(data) or data[:4].hex(" ") or "no memory")

    def _bytes_at(self, address: int, most: int) -> bytes:
        """What is there: of the program's text, once the memory has become another process's."""
        first = address - USER_BASE
        if not 0 <= first < self.size:
            return b""
        if self._copy is not None:
            return self.program.code[first : first + most]
        return self.read(address, min(most, self.size - first))

    # ---- what it used ----

    @property
    def cycles(self) -> ProcessCycles:
        """Its cycles so far."""
        fields = self._fields()
        user, system = (0, 0) if self._copy is not None else self._tables.unstamped(self.place)
        return ProcessCycles(fields["user"] + user, fields["system"] + system)

    @property
    def calls(self) -> dict[str, int]:
        """How often it made each system call, by name; ``unknown`` is any other number."""
        fields = self._fields()
        found = {one.name: fields[f"call {one.name}"] for one in CALLS}
        found["unknown"] = fields["unknown_calls"]
        return {name: count for name, count in found.items() if count}

    @property
    def switches(self) -> int:
        """How often the processor was switched to it."""
        return self._fields()["switches"]

    @property
    def datagrams_dropped(self) -> int:
        """Datagrams for its sockets that came while their buffers were full."""
        return self._fields()["dropped"]

    # ---- its memory ----

    def read(self, address: int, size: int) -> bytes:
        """Bytes of its memory, by its own addresses; HostError if they are not all mapped."""
        return self._tables.computer.read(self._physical(address, size), size)

    def write(self, address: int, data: bytes) -> None:
        """Changes its memory."""
        self._tables.computer.write(self._physical(address, len(data)), data)

    def check_owned(self, address: int, size: int) -> None:
        """HostError if the bytes are not all in its memory."""
        self._physical(address, size)

    def _physical(self, address: int, size: int) -> int:
        if self._copy is not None:
            raise HostError(f"{self.title} has ended, and its memory is another process's")
        first = address - USER_BASE
        if first < 0 or first + size > self.size:
            raise HostError(
                f"{self.title} has memory from {USER_BASE:#x} to "
                f"{USER_BASE + self.size - 1:#x}, and not {size} bytes at {address:#x}"
            )
        return self.base + first

    # ---- its end ----

    @property
    def report(self) -> str | None:
        """Why the kernel has ended it, in a sentence; None if it has not."""
        if self.state is not ProcessState.FAULTED:
            return None
        fields = self._fields()
        vector, at = self._fault()
        text = f"{self.title} was ended at {at:#x}: {self.text(at)}: {_exception(vector)}"
        if vector == _PAGE_FAULT and self._ran_past_end(at):
            end = USER_BASE + len(self.program.code)
            return f"{text}: it ran past the end of the program, {end:#x}: end it with SYS_EXIT"
        if vector == _PAGE_FAULT:
            return f"{text}: it {self._access(fields['fault_error'], fields['fault_address'])}"
        if vector == _PROTECTION and self._bytes_at(at, 1) == _HLT:
            return f"{text}: only the kernel may halt, and a process ends by SYS_EXIT"
        if vector == _PROTECTION:
            return f"{text}: {self._protection(at)}"
        if vector == _INVALID_OPCODE:
            return f"{text}: {not_of_subset(self._bytes_at(at, 15))}"
        return f"{text}: {_QUOTIENT}" if vector == _DIVIDE else text

    def _fault(self) -> tuple[int, int]:
        """The vector of the exception that has ended it, and the instruction's address.

        A breakpoint is a trap: the processor saves the address behind it (SDM volume 3, 6.5).
        """
        fields = self._fields()
        vector, at = fields["fault_vector"], fields["fault_rip"]
        if vector == _BREAKPOINT:
            for code in _INT3:
                if self._bytes_at(at - len(code), len(code)) == code:
                    return vector, at - len(code)
        return vector, at

    def _protection(self, at: int) -> str:
        """Why its instruction was refused; the processor does not say at which address."""
        if not is_canonical(at):
            return f"it went to {at:#x}, which {NOT_CANONICAL}"
        text = instruction_text(self._bytes_at(at, 15), at) or ""
        if _PRIVILEGED.match(text):
            return "only the kernel may do this"
        if text.startswith("int "):
            return "the kernel has no interrupt of this number for processes"
        if text.startswith("iret"):
            return "the CS of its frame is null or of ring 0"
        aligned = ", or is not aligned as the instruction needs it" if _ALIGNED.search(text) else ""
        return f"an address of it {NOT_CANONICAL}{aligned}"

    def _ran_past_end(self, at: int) -> bool:
        """Whether there are only zeros between the program's last byte and an instruction."""
        end, missing = USER_BASE + len(self.program.code), self.size - self.stack - PAGE
        return end <= at <= USER_BASE + missing and not any(self._bytes_at(end, at - end))

    def _access(self, error: int, address: int) -> str:
        verb = "executed" if error & _FETCHED else "wrote to" if error & _WROTE else "read"
        end = USER_BASE + self.size - self.stack
        if end - PAGE <= address < end:
            return f"{verb} {address:#x}, right below its stack, which has overflowed"
        if not self.space.is_mapped(address):
            return f"{verb} {address:#x}, where it has no memory"
        if address >= USER_BASE + USER_SPAN:
            return f"{verb} {address:#x}, which it may only read"
        owner = "the kernel" if address < USER_BASE else "its stack"
        return f"{verb} {address:#x}, which belongs to {owner}"
