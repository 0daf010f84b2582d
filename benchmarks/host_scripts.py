# SPDX-License-Identifier: Apache-2.0
"""Speeds of verbena.host and verbena.lan: python -m benchmarks.host_scripts NAME ARGUMENTS

``instructions``: of the processor's interpreter, with a loop of loads, stores, calls and
arithmetic; ``accesses`` to a device in Python, whose link costs time or is none; ``cable``: frames
of stations that share a cable. Each repeats its work for some seconds of processor time and
returns a rate a second. ARGUMENTS is a JSON object; the result is printed as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from verbena.host import Computer, Device, Pcie, Program, Ram
from verbena.lan import Csma

_RAM = 1 << 20
_ORIGIN, _REGISTERS = 0x1000, 0x100000
_PS_PER_M = 5000

MIXED = """
    mov  rsp, 0x80000
    mov  rbx, 0x40000
again:
    mov  rdx, [rbx]
    add  rax, rdx
    mov  [rbx+8], rax
    add  rbx, 16
    and  ebx, 0x4ffff
    or   ebx, 0x40000
    cmp  rax, 7
    je   over
    lea  rsi, [rax+rbx*2]
    shr  rsi, 3
    xor  edx, esi
over:
    movzx edi, byte ptr [rbx]
    push rdi
    call part
    pop  rdi
    jmp  again
part:
    inc  r8
    test r8, 1
    ret
"""


class Register(Device):
    """One register of 8 bytes."""

    value = 0

    def read(self, offset: int, size: int) -> int:
        return self.value

    def write(self, offset: int, size: int, value: int) -> None:
        self.value = value


def rate(seconds: float, once: Callable[[], int]) -> float:
    """How much ``once`` says it did, for a second of processor time."""
    done, start = once(), time.process_time()  # the first is to warm up
    done = 0
    while (spent := time.process_time() - start) < seconds:
        done += once()
    return done / spent


def instructions(seconds: float) -> dict[str, float]:
    """Instructions of the interpreter."""
    computer = Computer()
    computer.map(Ram(_RAM), 0)
    computer.load(Program.assemble(MIXED, _ORIGIN))

    def once() -> int:
        computer.run(instructions=1_000_000)
        return 1_000_000

    return {"instructions": rate(seconds, once)}


def accesses(seconds: float, kind: str, link: bool = False) -> dict[str, float]:
    """Accesses of ``kind`` load or store to a device in Python."""
    computer = Computer()
    computer.map(Ram(_RAM), 0)
    computer.map(Register(8), _REGISTERS, pcie=Pcie() if link else None)
    one = "mov rax, [rbx]" if kind == "load" else "mov [rbx], rax"
    # with a link a load after 7 stores bounds how many are on their way
    body = [one] * 8 if kind == "load" or not link else [one] * 7 + ["mov rax, [rbx]"]
    text = f"mov ebx, {_REGISTERS}\nagain:\n" + "\n".join(body) + "\njmp again"
    computer.load(Program.assemble(text, _ORIGIN))

    def once() -> int:
        before = computer.counters.loads + computer.counters.stores
        computer.run(instructions=9000)
        return computer.counters.loads + computer.counters.stores - before

    return {"accesses": rate(seconds, once)}


def cable(
    seconds: float, stations: int, frame_bytes: int, length_m: float, load: float | None = None
) -> dict[str, float]:
    """Frames on a cable with evenly spaced stations; ``load`` None: each always has a frame."""
    rules = Csma()
    places = [round(i * length_m * _PS_PER_M / (stations - 1)) for i in range(stations)]
    core = rules.core(places, seed=1)
    bits = frame_bytes * 8
    mean = 0
    if load is not None:
        mean = round((bits + rules.header + rules.gap) * rules.bit_ps * stations / load)
    for station in range(stations):
        core.source(station, 0, bits, mean)

    def once() -> int:
        core.run_counting(1 << 62, 20_000)
        return 20_000

    return {"frames": rate(seconds, once)}


SCRIPTS: dict[str, Callable[..., dict[str, float]]] = {
    "instructions": instructions,
    "accesses": accesses,
    "cable": cable,
}

if __name__ == "__main__":
    print(json.dumps(SCRIPTS[sys.argv[1]](**json.loads(sys.argv[2]))))
