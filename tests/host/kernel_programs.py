# SPDX-License-Identifier: Apache-2.0
"""Assembly for the processes of the tests of the kernel, and the checks that hold after any run."""

from __future__ import annotations

from verbena.host.kernel import Process, System
from verbena.host.kernel.layout import UNEXPECTED_VECTOR

REGISTERS = ("rdi", "rsi", "rdx", "r10", "r8")
SPIN = "again: jmp again"


def call(name: str, *arguments: int | str) -> str:
    """Lines that make a system call; its result is in RAX."""
    lines = [
        f"    mov {register}, {value}"
        for register, value in zip(REGISTERS, arguments, strict=False)
    ]
    return "\n".join([*lines, f"    mov eax, SYS_{name.upper()}", "    syscall", ""])


def leave(status: int | str = 0) -> str:
    """Lines that end the process."""
    return call("exit", status)


def count_to(number: int) -> str:
    """Lines that take two instructions for each step."""
    return f"    mov ebx, {number}\ncounting: dec ebx\n    jnz counting\n"


def qwords(process: Process, label: str, count: int = 1) -> list[int]:
    """Words of 8 bytes of a process's data."""
    data = process.read(process.program.labels[label], 8 * count)
    return [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]


def unseen_interrupts(system: System) -> int:
    """Interrupts that were sent, and neither merged nor seen by the kernel."""
    counters = system.computer.counters
    taken = sum(count for vector, count in system.kernel.interrupts.items() if 32 <= vector < 63)
    return counters.interrupts_sent - counters.interrupts_merged - taken


def check_conservation(system: System) -> None:
    """All cycles are somebody's, and the kernel saw every interrupt that was sent.

    A core that sleeps has taken all that arrived; one that is on the bus is there within 2 us.
    """
    kernel = system.kernel
    kernel.check()
    assert kernel.cycles.elapsed == kernel.elapsed_cycles
    assert min(kernel.cycles.user, kernel.cycles.system, kernel.cycles.idle) >= 0
    assert UNEXPECTED_VECTOR not in kernel.interrupts
    for _ in range(40):
        if unseen_interrupts(system) == 0 or not system.computer.cores[0].sleeps:
            break
        system.advance(0.05)
    waiting = unseen_interrupts(system)
    assert waiting == 0 or (waiting > 0 and not system.computer.cores[0].sleeps)
