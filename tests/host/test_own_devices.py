# SPDX-License-Identifier: Apache-2.0
"""Devices and charges of a user's own: what is taken, and what is refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from verbena.host import Computer, Device, HostError, Pcie, ProcessorError, Program, Ram

LOAD = "mov rax, [0x200000]\nhlt"


class Number:
    """As the integers of NumPy, which are no ``int``."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


class Answers(Device):
    """Answers each load with a value; ``fault`` is an attribute of its own."""

    def __init__(self, value: Any) -> None:
        super().__init__(8)
        self.value, self.fault = value, "none so far"

    def read(self, offset: int, size: int) -> int:
        value: int = self.value
        return value


def loaded(device: Device, **where: Any) -> Computer:
    computer = Computer()
    computer.map(Ram(1 << 16), 0)
    computer.map(device, 0x200000, **where)
    computer.load(Program.assemble(LOAD, origin=0x1000))
    computer.run()
    return computer


@pytest.mark.parametrize("where", [{}, {"pcie": Pcie()}])
@pytest.mark.parametrize("value", [7, Number(7)])
def test_a_read_may_return_any_whole_number(value: Any, where: dict[str, Any]) -> None:
    assert loaded(Answers(value), **where).cores[0].registers.rax == 7


@pytest.mark.parametrize("value", [7.0, "7", None])
def test_a_read_that_returns_no_number_is_refused(value: Any) -> None:
    with pytest.raises(HostError, match=r"its read\(\) returns a number"):
        loaded(Answers(value))
    with pytest.raises(HostError, match="has more than 8 bytes"):
        loaded(Answers(Number(1 << 64)))


def test_where_no_instruction_is_the_error_has_the_address_alone() -> None:
    computer = Computer()
    computer.map(Ram(1 << 16), 0)
    computer.load(Program.assemble("mov rax, 0x800000\njmp rax", origin=0x1000))
    with pytest.raises(ProcessorError, match=r"^at 0x800000: instructions come from memory"):
        computer.run()


@pytest.mark.parametrize(
    "charge",
    [{"copies": 1 << 63}, {"copies": -1}, {"cycles": 1e300}, {"times": 1e300}],
)
def test_a_charge_beyond_any_run_is_refused_and_nothing_is_charged(charge: dict[str, Any]) -> None:
    core = Computer().cores[0]
    with pytest.raises(HostError, match="a charge"):
        core.charge("work", **({"cycles": 1} | charge))
    assert (core.state.cycles, core.ledger.cycles) == (0, {})
