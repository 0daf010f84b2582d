# SPDX-License-Identifier: Apache-2.0
"""How runs end and share time: cores, signals, repeated instructions, lines of stores."""

from __future__ import annotations

import signal

import pytest

from verbena.host import Computer, Core, Device, Machines, Program, Ram, Stop

WAIT = "wait: cmp qword ptr [0x8000], 0\n je wait\n hlt"
TELL = "mov rcx, 100000\nagain: dec rcx\n jnz again\n mov qword ptr [0x8000], 1\n hlt"


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("waits", [0, 1])
def test_a_core_that_polls_sees_what_another_one_stores(together: bool, waits: int) -> None:
    machines = Machines()
    computer = machines.computer("one", cores=2) if together else Computer(cores=2)
    computer.map(Ram(1 << 16), 0)
    computer.load(Program.assemble(WAIT, 0x1000), core=waits)
    computer.load(Program.assemble(TELL, 0x2000), core=1 - waits)
    assert computer.run() is Stop.HALT
    waiting, telling = computer.cores[waits].state, computer.cores[1 - waits].state
    assert 0 <= waiting.cycles - telling.cycles <= 3000


def test_a_program_without_end_can_be_interrupted() -> None:
    computer = Computer()
    computer.map(Ram(1 << 16), 0)
    computer.load(Program.assemble("again: jmp again", 0x1000))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            computer.run()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert computer.cores[0].state.instructions > 0


def ran(text: str, prepare: str = "nothing") -> Core:
    computer = Computer()
    computer.map(Ram(1 << 16), 0)
    computer.load(Program.assemble(text + "\n hlt", 0x1000))
    if prepare == "a breakpoint elsewhere":
        computer.cores[0].break_at(0x9000)
    elif prepare == "an interrupt that has to wait":
        computer.cores[0].state.interrupt(40)
    assert computer.run() is Stop.HALT
    return computer.cores[0]


@pytest.mark.parametrize("prepare", ["a breakpoint elsewhere", "an interrupt that has to wait"])
@pytest.mark.parametrize("text", ["rep stosb", "rep movsq", "repe cmpsb", "repne scasd"])
def test_a_repeated_instruction_takes_the_same_time_whatever_is_pending(
    text: str, prepare: str
) -> None:
    program = f"cli\n mov rdi, 0x4000\n mov rsi, 0x5000\n mov rcx, 100\n mov rax, 7\n {text}"
    one, other = ran(program), ran(program, prepare)
    for counter in ("cycles", "instructions"):
        assert getattr(other.state, counter) == getattr(one.state, counter)
    assert one.state.cycles == one.state.instructions + 100


def test_a_combined_store_across_a_line_s_end_is_in_two_lines() -> None:
    class Window(Device):
        def combines(self, offset: int) -> bool:
            return True

        def write(self, offset: int, size: int, value: int) -> None:
            log.append((offset, size, value))

    log: list[tuple[int, int, int]] = []
    computer = Computer()
    computer.map(Ram(1 << 16), 0)
    computer.map(Window(4096), 0x100000)
    fill = "".join(f"mov [rbx+{68 + 4 * at}], eax\n" for at in range(15))
    text = f"mov rbx, 0x100000\n mov rax, 0x0807060504030201\n mov [rbx+60], rax\n {fill} hlt"
    computer.load(Program.assemble(text))
    computer.run()
    low, high = bytes(range(1, 5)), bytes(range(5, 9))
    assert log == [
        (60, 4, int.from_bytes(low, "little")),
        (64, 64, int.from_bytes(high + 15 * low, "little")),
    ]
