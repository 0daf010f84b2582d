# SPDX-License-Identifier: Apache-2.0
"""Runs random programs on the interpreter and on the real processor, in a process of its own.

``python -m tests.host.compared FIRST END`` prints how many of the seeds differ, and for each the
first piece of the program after which they do; with ``--spoil`` the interpreter begins with another
register, which must be seen. The exit code is 1 if any differs.
"""

from __future__ import annotations

import sys

from tests.host.random_programs import Maker
from tests.host.real_processor import BASE, CODE, DATA, DATA_SIZE, SIZE, RealProcessor, State
from verbena.host._cpu import CoreState, PhysicalMemory

FLAGS = 0x8C5  # CF, PF, ZF, SF, OF; AF is undefined after many instructions
HALT = 1
LENGTH = 25


class Interpreter:
    """The interpreter with memory at the places that the real processor has."""

    def __init__(self) -> None:
        self.memory = PhysicalMemory()
        self.memory.add_ram(BASE, bytearray(SIZE))

    def run(self, code: bytes, before: State) -> State:
        """The state after ``code``; AssertionError if it did not come to its end."""
        core = CoreState(self.memory)
        self.memory.write(CODE, code + b"\xf4")
        self.memory.write(DATA, before.data)
        for number in range(16):
            core.set(number, before.registers[number])
            core.set_xmm(number, before.wide[number])
        core.flags, core.rip = before.flags, CODE
        stop = core.run(100_000)
        assert stop == HALT, f"stopped by {stop}: {core.fault()}"
        data = self.memory.read(DATA, DATA_SIZE)
        assert data is not None
        numbers = range(16)
        return State(
            [core.get(n) for n in numbers], core.flags, [core.get_xmm(n) for n in numbers], data
        )


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


def main() -> int:
    """Compares the seeds that the command line names."""
    first, end, spoil = int(sys.argv[1]), int(sys.argv[2]), "--spoil" in sys.argv
    real, ours = RealProcessor(), Interpreter()
    differ = 0
    for seed in range(first, end):
        maker = Maker(seed)
        state, program = maker.state(), maker.program(LENGTH)
        other = State(list(state.registers), state.flags, state.wide, state.data)
        other.registers[15] += 8 if spoil else 0
        for length in (LENGTH, *range(1, LENGTH + 1)):
            code = b"".join(program[:length])
            found = compare(real.run(code, state), ours.run(code, other))
            if not found and length == LENGTH:
                break
            if found and length < LENGTH:
                print(f"seed {seed}, after {program[length - 1].hex(' ')}: {found}")
                break
        else:
            length = 0
        differ += length != LENGTH
    print(f"{end - first} programs, {differ} differ")
    return differ > 0


if __name__ == "__main__":
    sys.exit(main())
