# SPDX-License-Identifier: Apache-2.0
"""Runs random programs on the interpreter and on the real processor, in a process of its own.

``python -m tests.host.compared FIRST END`` prints how many of the seeds differ, and for each the
first piece of the program after which they do. With ``--recorded``, and on machines that are not
x86-64, what a processor did before is read from ``recorded.py``'s file. With ``--spoil`` the
interpreter begins with another register, which must be seen. The exit code is 1 if any differs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.host.real_processor import (
    BASE,
    CODE,
    DATA,
    DATA_SIZE,
    SIZE,
    RealProcessor,
    State,
    is_available,
)
from tests.host.recorded import FLAGS, LENGTH, Recording, hash_of, made
from verbena.host._cpu import CoreState, PhysicalMemory

HALT = 1
# What differs behind so many pieces of a program, in words.
Differences = Callable[[int], list[str]]


class UnexpectedStopError(AssertionError):
    """The interpreter has not come to the end of the code; ``vector`` is that of its fault."""

    def __init__(self, core: CoreState, message: str) -> None:
        super().__init__(message)
        self.vector = core.fault()[0]


class Interpreter:
    """The interpreter with memory at the places that the real processor has."""

    def __init__(self) -> None:
        self.memory = PhysicalMemory()
        self.memory.add_ram(BASE, bytearray(SIZE))

    def run(self, code: bytes, before: State) -> State:
        """The state after ``code``; AssertionError if it did not come to its end."""
        core = self.run_core(code, before)
        data = self.memory.read(DATA, DATA_SIZE)
        assert data is not None
        numbers = range(16)
        return State(
            [core.get(n) for n in numbers], core.flags, [core.get_xmm(n) for n in numbers], data
        )

    def run_core(self, code: bytes, before: State) -> CoreState:
        """A core that has run ``code`` to its end; UnexpectedStopError if it did not come there."""
        core = CoreState(self.memory)
        self.memory.write(CODE, code + b"\xf4")
        self.memory.write(DATA, before.data)
        for number in range(16):
            core.set(number, before.registers[number])
            core.set_xmm(number, before.wide[number])
        core.flags, core.rip = before.flags, CODE
        stop = core.run(100_000)
        if stop != HALT:
            raise UnexpectedStopError(core, f"stopped by {stop}: {core.fault()}")
        return core


def compare(real: State, ours: State) -> list[str]:
    """What differs, in words."""
    found = [
        f"register {number}: {a:#x}, {b:#x}"
        for number, (a, b) in enumerate(zip(real.registers, ours.registers, strict=True))
        if a != b
    ]
    if (real.flags ^ ours.flags) & FLAGS:
        found.append(f"flags: {real.flags & FLAGS:#x}, {ours.flags & FLAGS:#x}")
    found += [
        f"xmm{number}: {a:#x}, {b:#x}"
        for number, (a, b) in enumerate(zip(real.wide, ours.wide, strict=True))
        if a != b
    ]
    if real.data != ours.data:
        found.append("memory")
    return found


def from_processor(seed: int, spoil: bool, real: RealProcessor, ours: Interpreter) -> Differences:
    """Both run the program of a seed up to a piece."""
    before, program = made(seed)
    other = spoiled(before) if spoil else before

    def differences(length: int) -> list[str]:
        code = b"".join(program[:length])
        return compare(real.run(code, before), ours.run(code, other))

    return differences


def from_recording(seed: int, spoil: bool, recording: Recording, ours: Interpreter) -> Differences:
    """The interpreter's state behind a piece has the hash that was recorded."""
    before, program = made(seed)
    recorded = recording.program(seed, before, program)
    other = spoiled(before) if spoil else before

    def differences(length: int) -> list[str]:
        found = hash_of(ours.run(b"".join(program[:length]), other))
        is_whole = length == LENGTH
        is_same = found == recorded.end if is_whole else found[0] == recorded.pieces[length - 1]
        return [] if is_same else [f"not the state that {recording.processor} had"]

    return differences


def spoiled(before: State) -> State:
    """The state with another R15, at which what is aligned stays so."""
    registers = [*before.registers[:15], before.registers[15] + 16]
    return State(registers, before.flags, before.wide, before.data)


def has_difference(seed: int, differences: Differences) -> bool:
    """Whether a program ends differently; prints the first piece after which it does."""
    if not differences(LENGTH):
        return False
    first = next(length for length in range(1, LENGTH + 1) if differences(length))
    _, program = made(seed)
    print(f"seed {seed}, after {program[first - 1].hex(' ')}: {differences(first)}")
    return True


def main() -> int:
    """Compares the seeds that the command line names."""
    first, end, spoil = int(sys.argv[1]), int(sys.argv[2]), "--spoil" in sys.argv
    ours, differ = Interpreter(), 0
    if is_available() and "--recorded" not in sys.argv:
        real = RealProcessor()
        for seed in range(first, end):
            differ += has_difference(seed, from_processor(seed, spoil, real, ours))
    else:
        recording = Recording()
        for seed in range(first, end):
            differ += has_difference(seed, from_recording(seed, spoil, recording, ours))
    print(f"{end - first} programs, {differ} differ")
    return differ > 0


if __name__ == "__main__":
    sys.exit(main())
