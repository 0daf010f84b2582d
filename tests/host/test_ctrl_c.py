# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends a run of a program that loops for ever, and says where it was."""

from __future__ import annotations

import signal
import threading

import pytest

from verbena.host import Computer, Machines, Program, Ram, Stop

LOOP = "nop\nagain: jmp again"
AT = "core 0 is at 0x1001: again: jmp again"


def load(computer: Computer, cores: int = 1) -> None:
    computer.map(Ram(1 << 16), 0)
    for core in range(cores):
        computer.load(Program.assemble(LOOP, 0x1000), core=core)


def notes_of_ctrl_c(world: Computer | Machines) -> list[str]:
    """The notes of the KeyboardInterrupt that ends a run without a limit."""
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        world.run()
    return caught.value.__notes__


def test_ctrl_c_has_the_address_and_the_instruction() -> None:
    computer = Computer()
    load(computer)
    assert notes_of_ctrl_c(computer) == [AT]
    assert computer.run(instructions=10) is Stop.LIMIT  # and it goes on from there


def test_ctrl_c_has_the_address_of_each_core() -> None:
    computer = Computer(cores=2)
    load(computer, cores=2)
    assert notes_of_ctrl_c(computer) == [f"{AT}; {AT.replace('core 0', 'core 1')}"]


def test_ctrl_c_names_each_computer() -> None:
    machines = Machines()
    for name in ("left", "right"):
        load(machines.computer(name))
    assert notes_of_ctrl_c(machines) == [f"left: {AT}; right: {AT}"]
