# SPDX-License-Identifier: Apache-2.0

from collections.abc import Callable
from mmap import mmap
from typing import Self

class PhysicalMemory:
    """Ranges of RAM and windows of devices. Cores hold it.

    A device's call may add and take ranges: cores look again after each call of a window.
    """

    def add_ram(self, base: int, buffer: bytearray | mmap) -> bool:
        """Gives the range from ``base`` on the memory of a writable buffer; False: too many."""
    def add_window(
        self,
        base: int,
        size: int,
        read: Callable[[int, int], int],
        write: Callable[[int, int, int], None],
    ) -> None:
        """Calls ``read(offset, size)`` and ``write(offset, size, value)`` for the range."""
    def remove(self, base: int) -> None:
        """Takes away the range of RAM or the window that begins at ``base``."""
    def set_ports(
        self,
        read: Callable[[int, int], int | None] | None,
        write: Callable[[int, int, int], bool | None] | None,
    ) -> None:
        """Calls ``read(port, size)`` and ``write(port, size, value)`` for IN and OUT."""
    def find(self, address: int, size: int) -> memoryview | None:
        """The bytes of a range of RAM as a memoryview, or None."""
    def read(self, address: int, size: int) -> bytes | None:
        """A copy of RAM; None if the range is not in one range of RAM."""
    def write(self, address: int, data: bytes) -> bool:
        """Writes to RAM as a device does by DMA; False if it is not all in one range of RAM."""

class CoreState:
    """One core of ``src/native/cpu``."""

    memory: PhysicalMemory
    """The physical address space that it runs in."""
    rip: int
    """The address of the next instruction."""
    flags: int
    """RFLAGS."""
    cycles: int
    """The core's clock, in cycles."""
    def __new__(cls, memory: PhysicalMemory) -> Self: ...
    def run(self, most: int, until: int = ...) -> int:
        """Runs at most ``most`` instructions, none from the cycle ``until`` on; the code of enum
        vb_cpu_stop. A device's exception is raised."""
    def fault(self) -> tuple[int, int | None, bool, bool, int, int]:
        """(vector, error code or None, bus, write, size, address) of the last fault."""
    def get(self, number: int) -> int:
        """A general register: 0 RAX, 1 RCX, 2 RDX, 3 RBX, 4 RSP, 5 RBP, 6 RSI, 7 RDI, 8 to 15."""
    def set(self, number: int, value: int) -> None:
        """Sets a general register."""
    def get_xmm(self, number: int) -> int:
        """The 16 bytes of an XMM register as a number."""
    def set_xmm(self, number: int, value: int) -> None:
        """Sets an XMM register."""
    def special(self) -> dict[str, int]:
        """Registers that are not general ones, by name."""
    @property
    def halted(self) -> bool:
        """HLT ran, and no interrupt came since."""
    @property
    def is_woken(self) -> bool:
        """An interrupt is pending, and interrupts are on."""
    @property
    def instructions(self) -> int:
        """The number of instructions that have run."""
    @property
    def interrupts(self) -> int:
        """The number of interrupts that were delivered, without exceptions."""
    def follow(self, call: Callable[[int, int, int, int], None] | None) -> None:
        """Calls ``call(change, vector, cycle, ring)`` when an exception or interrupt is delivered
        (0 and 1), and by SYSCALL (2), IRET and SYSRET (3); None: no more."""
    def pause(self) -> None:
        """Lets ``run`` come back after the instruction that is under way."""
    def interrupt(self, vector: int) -> bool:
        """Makes an interrupt pending; False: it was already."""
    def withdraw(self, vector: int) -> bool:
        """Takes a pending interrupt back; False: it was not pending."""
    def take_interrupt(self) -> bool:
        """Takes a pending interrupt, if they are on, and runs nothing of its handler; False: it has
        no handler, and ``fault`` says so."""
    def set_mark(self, address: int) -> bool:
        """Sets a breakpoint; False: there are 64."""
    def clear_mark(self, address: int) -> None:
        """Takes a breakpoint away."""
    def physical(self, linear: int) -> int | None:
        """The physical address; None: nothing is mapped there."""

class Turns:
    """How the cores of a computer take turns when several are awake: up to a
    random number of cycles below ``longest`` beyond the next one. ``tell(number)`` is called
    before an access of another core than before."""

    def __new__(cls, longest: int, seed: int, tell: Callable[[int], None]) -> Self: ...
    def run(self, states: list[CoreState], most: int, until: int) -> tuple[int, int]:
        """Runs up to 1024 cores of one memory as ``vb_cpu_run_turns`` does; (the code of enum
        vb_cpu_stop, the place of the core that ran last). A device's exception is raised, after
        a call of ``tell`` for its core."""

def instruction_length(data: bytes) -> int:
    """The length of the instruction at the start of ``data``; 0: it is none of the subset."""
