# SPDX-License-Identifier: Apache-2.0
"""What the kernel's machine code costs in cycles, beside the named costs that models charge.

``measured_costs`` runs the kernel for each row. The processor takes one cycle for an instruction
and knows no caches, pipelines or mitigations, so that these are counts of instructions; the charged
costs of ``verbena.host.costs`` are of real machines and real kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

from verbena._arguments import checked_arguments
from verbena.host.costs import Costs
from verbena.host.errors import HostTypeError
from verbena.host.kernel.system import System

_TIMES = 500
_DATAGRAM = bytes.fromhex("020000000001 020000000002 88b5 0bb8 1f40 0010 0000") + bytes(38)
_EXIT = "    mov eax, SYS_EXIT\n    syscall\n"
_SEND_AND_RECEIVE = """
    mov  eax, SYS_SEND_TO
    xor  edi, edi
    mov  esi, buffer
    mov  edx, {size}
    mov  r10d, 1
    mov  r8d, 8000
    syscall
    mov  eax, SYS_RECEIVE_FROM
    xor  edi, edi
    mov  esi, buffer
    mov  edx, {size}
    xor  r10d, r10d
    syscall
"""
_BIND = "    mov eax, SYS_BIND\n    mov edi, 8000\n    syscall\n"


@dataclass(frozen=True)
class MeasuredCost:
    """``cycles`` for each ``per``, and the charged cost to compare with."""

    name: str
    cycles: float
    per: str
    charged: float

    def __str__(self) -> str:
        return f"{self.name:15} {self.cycles:8.2f} {self.charged:8.6g}  {self.per}"


@checked_arguments(HostTypeError)
def measured_costs(costs: Costs | None = None) -> list[MeasuredCost]:
    """A row for each cost that the kernel has, too: the same numbers in each run."""
    named = Costs() if costs is None else costs
    nothing = _loop("")
    call = _loop("    mov eax, SYS_GETPID\n    syscall\n") - nothing
    small, large = (_loop(_SEND_AND_RECEIVE.format(size=size)) for size in (8, 1488))
    rows = [
        ("syscall", call, "getpid, with its entry and exit"),
        ("wakeup", _switch(), "yield to another process and its switch"),
        ("hard_irq", _tick(), "interrupt of the timer, with its entry and exit"),
        ("softirq_packet", _frame(), "frame taken in a poll, for a port that no socket has"),
        ("copy_l2", (large - small) / (2 * 1480), "byte copied between a process and the kernel"),
    ]
    return [MeasuredCost(name, cycles, per, named.cycles(name)) for name, cycles, per in rows]


def _loop(body: str) -> float:
    """Cycles of a round of a loop around ``body``."""
    system = System()
    text = (
        f"{_BIND}    mov ebx, {_TIMES}\nround:\n{body}    dec ebx\n    jnz round\n{_EXIT}"
        "    align 4096\nbuffer: times 256 dq 0\n"
    )
    [process] = system.run(text)
    return (process.cycles.user + process.cycles.system) / _TIMES


def _switch() -> float:
    system = System(tick_us=1000)
    text = (
        f"    mov ebx, {_TIMES}\nround:\n    mov eax, SYS_YIELD\n    syscall\n    dec ebx\n"
        f"    jnz round\n{_EXIT}"
    )
    processes = system.run(text, text)
    return system.kernel.elapsed_cycles / sum(one.switches for one in processes)


def _tick() -> float:
    system = System(tick_us=10)
    system.start("again: jmp again")
    system.advance(100)
    ticks, cycles = system.kernel.variable("ticks"), system.kernel.cycles.system
    system.advance(1000)
    return (system.kernel.cycles.system - cycles) / (system.kernel.variable("ticks") - ticks)


def _frame() -> float:
    """The difference of bursts of 17 frames and of one."""
    return (_bursts(17) - _bursts(1)) / 16


def _bursts(size: int) -> float:
    """Cycles of the kernel for a burst of datagrams to a port that no socket has."""
    system = System(adapter=True, tick_us=10_000, budget=1_000_000)
    system.start("again: jmp again")
    system.advance(10)
    adapter, bursts = system.adapter, 20
    assert adapter is not None
    cycles, start = system.kernel.cycles.system, system.computer.now
    for number in range(size * bursts):
        at = start + number // size * 20_000_000
        system.computer.at(at, lambda: adapter.arrive(_DATAGRAM))
    system.advance(20 * bursts + 100)
    return (system.kernel.cycles.system - cycles) / bursts
