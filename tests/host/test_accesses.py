# SPDX-License-Identifier: Apache-2.0
"""A core's accesses to devices without a link: what follows an access is on time, whoever adds it.

Such accesses go to the device without coming back from the core, unless something is due.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from verbena.host import Computer, Device, Program, Ram, Transaction


class Later(Device):
    """A store of N lets it note the time N ps later; a load gives the number of notes so far."""

    def __init__(self, *, directly: bool) -> None:
        super().__init__(8)
        self.directly = directly
        self.notes: list[int] = []

    def read(self, offset: int, size: int) -> int:
        return len(self.notes)

    def write(self, offset: int, size: int, value: int) -> None:
        computer = self._home()
        if self.directly:  # as a LAN on the same agenda does
            computer.clock.add(computer.now + value, self._note)
        else:
            self.at(self.now + value, self._note)

    def _note(self) -> None:
        self.notes.append(self.now)


def computer_with(text: str, device: Device, *, cores: int = 1) -> Computer:
    computer = Computer(ghz=1.0, cores=cores, turn_cycles=1)
    computer.map(Ram(0x10000), 0)
    computer.map(device, 0x100000)
    computer.load(Program.assemble(text, 0x1000))
    return computer


@given(
    stores=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9_000)), max_size=5),
    directly=st.booleans(),
    watched=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_what_a_store_leads_to_happens_at_its_time(
    stores: list[tuple[int, int]], directly: bool, watched: bool
) -> None:
    """Each store follows a number of NOP, at 1 ns an instruction; then come loads."""
    text = "mov rbx, 0x100000\n"
    due, time = [], 1_000
    for nops, delay in stores:
        text += "nop\n" * nops + f"mov qword ptr [rbx], {delay}\n"
        time += nops * 1_000
        due.append(time + delay)
        time += 1_000
    text += "mov rax, [rbx]\n" * 20 + "hlt"
    device = Later(directly=directly)
    computer = computer_with(text, device)
    seen: list[Transaction] = []
    if watched:
        computer.observers.append(seen.append)
    computer.run()
    assert device.notes == sorted(due)
    last_load = time + 19_000
    assert computer.cores[0].registers.rax == sum(at <= last_load for at in due)
    assert (computer.counters.loads, computer.counters.stores) == (20, len(stores))
    assert len(seen) == (20 + len(stores) if watched else 0)


def test_two_cores_take_turns_at_stores() -> None:
    """Each store lets the core come back, so that one that is behind runs first."""

    class Log(Device):
        def __init__(self) -> None:
            super().__init__(8)
            self.values: list[int] = []

        def write(self, offset: int, size: int, value: int) -> None:
            self.values.append(value)

    log = Log()
    text = "mov ebx, 0x100000\n" + "mov [rbx], rax\n" * 4 + "hlt"
    computer = computer_with(text, log, cores=2)
    computer.load(Program.assemble(text, 0x1000), core=1)
    computer.cores[1].registers.rax = 1
    computer.run()
    assert log.values == [0, 1, 0, 1, 0, 1, 0, 1]
