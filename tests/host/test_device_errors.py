# SPDX-License-Identifier: Apache-2.0
"""What a device refuses, or raises, names the instruction and its core, and the others go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from verbena.host import (
    Computer,
    Device,
    DeviceError,
    Disk,
    HostError,
    Machines,
    PciBus,
    Pcie,
    Program,
    Ram,
    Stop,
    Timer,
    UnansweredError,
)
from verbena.host.device_bus import DeviceFault

DEVICE = 0x200000
LOAD, STORE = "mov eax, [rbx+2]", "mov [rbx+2], eax"
BUSES: dict[str, Callable[[], dict[str, Any]]] = {
    "none": dict,
    "pcie": lambda: {"pcie": Pcie()},
    "pci": lambda: {"pci": PciBus()},
}


class Broken(Device):
    """Its own code has mistakes."""

    def read(self, offset: int, size: int) -> int:
        answers: dict[int, int] = {}
        return answers[offset]

    def write(self, offset: int, size: int, value: int) -> None:
        raise ZeroDivisionError


def made(device: Device, text: str, where: dict[str, Any], number: int = 1) -> Computer:
    """A computer of two cores: one loops, and that of ``number`` reaches the device."""
    computer = Computer(cores=2)
    computer.map(Ram(1 << 16), 0)
    computer.map(device, DEVICE, **where)
    program = Program.assemble(f"mov rbx, {DEVICE:#x}\n{text}\nhlt", 0x1000)
    computer.load(program, core=number)
    loop = Program.assemble("mov ecx, 5000\nagain: dec ecx\njnz again\nhlt", 0x2000)
    computer.load(loop, core=1 - number)
    return computer


@pytest.mark.parametrize("bus", BUSES)
@pytest.mark.parametrize("text", [LOAD, STORE])
@pytest.mark.parametrize("kind", [Disk, Broken])
def test_the_core_of_an_access_is_known_and_the_other_goes_on(
    bus: str, text: str, kind: Callable[[Any], Device]
) -> None:
    device = kind(bytes(512) if kind is Disk else 64)
    computer = made(device, text, BUSES[bus]())
    with pytest.raises(HostError) as caught:
        computer.run()
    error = caught.value
    assert error.core is computer.cores[1]
    assert error.address == 0x1007
    assert f"at 0x1007: {text}" in str(error)
    assert "core 1" in str(error)
    assert repr(device) in str(error)
    if kind is Broken:
        assert isinstance(error, DeviceError)
        assert isinstance(error.__cause__, KeyError if text == LOAD else ZeroDivisionError)
    error.core.shut_down()
    assert computer.run() is Stop.HALT
    assert computer.cores[0].registers.rcx == 0


def test_what_a_device_has_raised_is_said() -> None:
    computer = made(Broken(64), LOAD, {}, 0)
    says = (
        r"^core 0: at 0x1007: mov eax, \[rbx\+2\]: Broken at 0x200000 to 0x20003f: its "
        r"read\(0x2, 4\) raised KeyError: 2$"
    )
    with pytest.raises(DeviceError, match=says):
        computer.run()
    with pytest.raises(DeviceError, match=says):  # a further run tries it again
        computer.run()
    steps = computer.steps()
    with pytest.raises(DeviceError, match=says):
        next(steps)


def test_a_computer_of_several_is_named() -> None:
    machines = Machines()
    left, right = machines.computer("left"), machines.computer("right")
    for computer in (left, right):
        computer.map(Ram(1 << 16), 0)
    right.map(Broken(64), DEVICE)
    right.load(Program.assemble(f"mov al, [{DEVICE:#x}]", 0x1000))
    left.load(Program.assemble("mov ecx, 5000\nagain: dec ecx\njnz again\nhlt", 0x1000))
    with pytest.raises(DeviceError, match=r"^computer 'right', core 0: at 0x1000: mov") as caught:
        machines.run()
    assert caught.value.core is right.cores[0]
    caught.value.core.shut_down()
    assert machines.run() is Stop.HALT
    assert left.cores[0].registers.rcx == 0


def test_the_core_without_an_answer_is_known() -> None:
    device = Timer()
    computer = made(device, LOAD, {"pcie": Pcie(completion_timeout_us=50, unanswered="stop")})
    device.fail(DeviceFault.SILENT)
    with pytest.raises(UnansweredError) as caught:
        computer.run()
    assert caught.value.core is computer.cores[1]
    assert caught.value.address == DEVICE + 2


class Later(Device):
    """What it does later has a mistake."""

    def write(self, offset: int, size: int, value: int) -> None:
        self.at(self.now + 1000, lambda: [].pop())


@pytest.mark.parametrize("bus", BUSES)
def test_an_exception_of_an_event_keeps_its_type_and_notes_the_store(bus: str) -> None:
    computer = made(Later(64), STORE, BUSES[bus](), 0)
    with pytest.raises(IndexError) as caught:
        computer.run()
    (note,) = caught.value.__notes__
    assert note == f"begun by the store of core 0 of 'computer' at 0x1007: {STORE}"
    assert computer.run() is Stop.HALT


def test_an_exception_of_an_observer_notes_the_instruction() -> None:
    computer = made(Timer(), LOAD, {}, 0)
    computer.observers.append(lambda _: [].pop())
    with pytest.raises(IndexError) as caught:
        computer.run()
    assert caught.value.__notes__ == [f"core 0: at 0x1007: {LOAD}"]
