# SPDX-License-Identifier: Apache-2.0
"""The memory controller's table, devices, interrupts, DMA, and a disk read in both ways."""

from __future__ import annotations

import pytest

from verbena.host import (
    AccessError,
    Computer,
    Device,
    Disk,
    HostError,
    Keyboard,
    Mouse,
    Pcie,
    ProcessorError,
    Program,
    Ram,
    Stop,
)

CONTENT = bytes(range(251)) * 40
BLOCKS = CONTENT[:8192]


def textbook() -> tuple[Computer, Keyboard]:
    """RAM below 10,000, a keyboard up to 11,999, a mouse up to 12,499."""
    computer, keyboard = Computer(ghz=3.0), Keyboard(2_000)
    computer.map(Ram(10_000), 0)
    computer.map(keyboard, 10_000)
    computer.map(Mouse(500), 12_000)
    return computer, keyboard


def test_a_load_from_the_keyboard_s_range_calls_the_keyboard() -> None:
    computer, keyboard = textbook()
    seen: list[tuple[int, int]] = []
    real = keyboard.read

    def read(offset: int, size: int) -> int:
        seen.append((offset, size))
        return real(offset, size)

    keyboard.read = read  # type: ignore[method-assign]
    keyboard.press("A")
    computer.load(Program.assemble("movzx eax, byte ptr [11500]\n hlt"))
    assert computer.run() is Stop.HALT
    assert computer.cores[0].registers.rax == 65
    assert seen == [(1500, 1)]
    assert computer.counters.loads == 1


def test_an_address_that_nothing_answers_is_named() -> None:
    computer, _ = textbook()
    computer.load(Program.assemble("nop\n mov al, [12600]\n hlt"))
    with pytest.raises(ProcessorError) as caught:
        computer.run()
    assert str(caught.value) == (
        "at 0x1: mov al, [12600]: nothing answers a read of 1 bytes at 0x3138: "
        "map memory or a device there"
    )
    assert caught.value.address == 1


@pytest.mark.parametrize(("base", "size"), [(9_999, 1), (0, 5), (12_499, 100), (9_000, 5_000)])
def test_ranges_do_not_overlap(base: int, size: int) -> None:
    computer, _ = textbook()
    with pytest.raises(HostError, match=f"{size:_}. at {base:#x} to .* overlaps"):
        computer.map(Ram(size), base)
    assert len(computer.table) == 3


@pytest.mark.parametrize("base", [-16, 1 << 52])
def test_a_range_outside_the_physical_addresses_is_named(base: int) -> None:
    with pytest.raises(HostError, match=f"Ram.16. would be at {base:#x} to .*0 to 2\\^52 - 1"):
        Computer().map(Ram(16), base)


def test_a_read_of_a_device_names_what_shows_its_registers() -> None:
    computer, _ = textbook()
    with pytest.raises(AccessError, match=r"registers of Keyboard at .* peek\(offset, size\)"):
        computer.read(10_500, 8)
    with pytest.raises(AccessError, match=r"one range of memory$"):
        computer.read(1 << 40, 8)


def test_ranges_come_and_go() -> None:
    computer, keyboard = textbook()
    computer.unmap(10_000)
    assert computer.find(10_500) is None
    computer.map(Ram(2_000), 10_000)
    computer.load(Program.assemble("mov qword ptr [11000], 7\n mov rax, [11000]\n hlt"))
    computer.run()
    assert computer.cores[0].registers.rax == 7
    with pytest.raises(HostError, match="no range begins at 0x5"):
        computer.unmap(5)
    keyboard.interrupt(33)  # nobody is told
    assert computer.counters.interrupts_sent == 0
    with pytest.raises(HostError, match="Keyboard was unmapped: map it again first"):
        keyboard.at(10**9, lambda: None)


def test_an_access_that_crosses_a_border_is_refused() -> None:
    computer, _ = textbook()
    computer.load(Program.assemble("mov rax, [9996]\n hlt"))
    with pytest.raises(ProcessorError, match="read of 8 bytes at 0x270c"):
        computer.run()


HEAD = """
    mov rsp, 0x80000
    lidt [table]
    mov rbx, 0x100000
"""
TAIL = """
    align 16
idt: times {vector} dq 0, 0
    dq (handler & 0xffff) | (8 << 16) | (0x8e << 40) | ((handler >> 16) << 48), 0
table: dw {vector} * 16 + 15
    dq idt
"""


def read_blocks(command: int, handler: str) -> tuple[Computer, Disk]:
    """A program reads 16 blocks of a disk to 0x40000 and halts."""
    computer = Computer(ghz=3.0)
    computer.map(Ram(1 << 20), 0)
    disk = Disk(BLOCKS, latency_us=10)
    computer.map(disk, 0x100000, pcie=Pcie(3, 8, round_trip_ns=900))
    text = f"""{HEAD}
    mov qword ptr [rbx+0x28], 1           ; interrupts
    mov qword ptr [rbx+0x08], 0           ; first block
    mov qword ptr [rbx+0x10], 16          ; blocks
    mov qword ptr [rbx+0x18], 0x40000     ; where to
    mov qword ptr [rbx], {command}
    sti
    hlt
    cli
    hlt
handler:
    {handler}
    iretq
{TAIL.format(vector=disk.vector)}"""
    computer.load(Program.assemble(text, 0x1000))
    assert computer.run() is Stop.HALT
    return computer, disk


COPY = """
    lea rsi, [rbx+0x1000]
    mov rdi, 0x40000
    mov rcx, 1024
next: mov rax, [rsi]
    mov [rdi], rax
    add rsi, 8
    add rdi, 8
    dec rcx
    jnz next"""


def test_programmed_io_loads_word_by_word() -> None:
    computer, _ = read_blocks(1, COPY)
    assert computer.read(0x40000, 8192) == BLOCKS
    assert computer.counters.loads == 1024
    assert computer.cores[0].state.interrupts == 1
    busy = computer.now - computer.counters.idle_ps
    # 1,024 round trips of 900 ns, and the bytes of each request and completion
    assert busy / 1e6 == pytest.approx(921.6 + 1024 * (24 + 28) * 8e-3 / 57.885 + 2.05, rel=0.01)


def test_dma_leaves_the_processor_alone() -> None:
    computer, disk = read_blocks(2, "nop")
    assert computer.read(0x40000, 8192) == BLOCKS
    assert computer.counters.loads == 0
    assert computer.counters.dma_written_bytes == 8192
    busy = computer.now - computer.counters.idle_ps
    assert busy < 10_000  # 10 ns: no instruction waits
    assert disk.slot is not None
    # command 0.45, medium 10, 8,960 bytes 1.24, half a round trip each for data and interrupt
    assert computer.now / 1e6 == pytest.approx(0.45 + 10 + 1.238 + 0.9, rel=0.01)
    assert disk.slot.up.bytes == 8960 + 28


def test_a_disk_writes_by_dma() -> None:
    computer, disk = Computer(), Disk(bytes(1024))
    computer.map(Ram(1 << 20), 0)
    computer.map(disk, 0x100000, pcie=Pcie())
    computer.write(0x40000, b"x" * 512)
    text = """
    mov rbx, 0x100000
    mov qword ptr [rbx+0x08], 1
    mov qword ptr [rbx+0x10], 1
    mov qword ptr [rbx+0x18], 0x40000
    mov qword ptr [rbx], 3
poll: mov rax, [rbx+0x20]
    cmp rax, 3
    jb poll
    hlt"""
    computer.load(Program.assemble(text))
    computer.run()
    assert disk.content == bytes(512) + b"x" * 512
    assert computer.cores[0].registers.rax == 3


@pytest.mark.parametrize(("block", "count", "command"), [(99, 1, 2), (0, 0, 2), (0, 1, 9)])
def test_a_wrong_command_is_an_error_status(block: int, count: int, command: int) -> None:
    computer, disk = Computer(), Disk(bytes(1024))
    computer.map(Ram(1 << 20), 0)
    computer.map(disk, 0x100000)
    text = f"""
    mov rbx, 0x100000
    mov qword ptr [rbx+0x08], {block}
    mov qword ptr [rbx+0x10], {count}
    mov qword ptr [rbx], {command}
    mov rax, [rbx+0x20]
    mov rcx, [rbx+0x20]
    hlt"""
    computer.load(Program.assemble(text))
    computer.run()
    assert computer.cores[0].registers.rax == 4
    assert computer.cores[0].registers.rcx == 0  # reading it has cleared it


def test_dma_to_an_address_without_memory_is_named() -> None:
    computer, disk = Computer(), Disk(bytes(1024))
    computer.map(Ram(1 << 16), 0)
    computer.map(disk, 0x100000)
    text = """
    mov rbx, 0x100000
    mov qword ptr [rbx+0x10], 1
    mov qword ptr [rbx+0x18], 0x40000
    mov qword ptr [rbx], 2
    hlt"""
    computer.load(Program.assemble(text))
    with pytest.raises(AccessError, match="wrote 512 bytes by DMA to 0x40000"):
        computer.run()


def test_a_key_wakes_a_processor_that_halts() -> None:
    computer, keyboard = Computer(), Keyboard()
    computer.map(Ram(1 << 20), 0)
    computer.map(keyboard, 0x100000)
    text = f"""{HEAD}
    mov byte ptr [rbx+1], 1
    sti
    hlt
    hlt
    cli
    hlt
handler: mov al, [rbx]
    mov [rdi+0x40000], al
    inc rdi
    iretq
{TAIL.format(vector=keyboard.vector)}"""
    computer.load(Program.assemble(text, 0x1000))
    computer.at(5_000_000, lambda: keyboard.press("h"))
    computer.at(9_000_000, lambda: keyboard.press("i"))
    computer.run()
    assert computer.read(0x40000, 2) == b"hi"
    assert computer.cores[0].state.interrupts == 2
    assert computer.now >= 9_000_000


class Doubler(Device):
    """A device of a student's: what is written is read doubled, and an interrupt follows."""

    value = 0

    def read(self, offset: int, size: int) -> int:
        return self.value * 2

    def write(self, offset: int, size: int, value: int) -> None:
        self.value = value
        self.at(self.now + 1_000_000, lambda: self.interrupt(50))


def test_a_device_of_one_s_own() -> None:
    computer = Computer()
    computer.map(Ram(1 << 20), 0)
    computer.map(Doubler(8), 0x100000)
    text = f"""{HEAD}
    mov qword ptr [rbx], 21
    sti
    hlt
    cli
    hlt
handler: mov rax, [rbx]
    iretq
{TAIL.format(vector=50)}"""
    computer.load(Program.assemble(text, 0x1000))
    computer.run()
    assert computer.cores[0].registers.rax == 42
    assert computer.now >= 1_000_000


def test_an_error_of_a_device_reaches_the_caller() -> None:
    computer = Computer()
    computer.map(Ram(4096), 0)
    computer.map(Device(8), 0x100000)
    computer.load(Program.assemble("mov rbx, 0x100000\n mov rax, [rbx]\n hlt"))
    with pytest.raises(
        HostError,
        match=r"mov rax, \[rbx\]: Device at 0x100000 .* has nothing to read at offset 0x0",
    ):
        computer.run()


def test_breakpoints_and_steps() -> None:
    computer, keyboard = textbook()
    keyboard.press("z")
    program = Program.assemble("mov eax, 1\nhere: add eax, 2\n mov cl, [10000]\n hlt")
    computer.load(program)
    computer.cores[0].break_at(program.labels["here"])
    assert computer.run() is Stop.MARK
    assert computer.cores[0].registers.rax == 1
    computer.cores[0].remove_break(program.labels["here"])
    steps = list(computer.steps())
    assert [step.text for step in steps] == ["here: add eax, 2", "mov cl, [10000]", "hlt"]
    assert steps[0].changed["rax"] == 3
    assert [(one.address, one.value, one.write) for one in steps[1].bus] == [(10000, 122, False)]
    assert "read Keyboard 0x2710: 0x7a" in str(steps[1])


def test_a_breakpoint_behind_a_store_to_a_device() -> None:
    """What the store begins has its turn soon, so the core comes back in between."""

    class Bell(Device):
        def write(self, offset: int, size: int, value: int) -> None:
            self.at(self.now + value, lambda: None)

    for more in (0, 1, 2):
        computer = Computer(cores=1)
        computer.map(Ram(1 << 16), 0)
        computer.map(Bell(8), 0x10000)
        text = "mov qword ptr [0x10000], 1\n" + "nop\n" * more + "here: inc eax\n hlt"
        program = Program.assemble(text, 0x1000)
        computer.load(program)
        computer.cores[0].break_at(program.labels["here"])
        assert computer.run() is Stop.MARK
        assert computer.cores[0].rip == program.labels["here"]
        assert computer.cores[0].registers.rax == 0
        assert computer.run() is Stop.HALT
        assert computer.cores[0].registers.rax == 1


def test_stepping_from_a_breakpoint_that_a_time_has_reached() -> None:
    computer = Computer(ghz=1)
    computer.map(Ram(1 << 16), 0)
    program = Program.assemble("nop\nhere: inc eax\n hlt", 0x1000)
    computer.load(program)
    computer.cores[0].break_at(program.labels["here"])
    assert computer.run(until=500) is Stop.TIME
    assert computer.cores[0].rip == program.labels["here"]
    assert [step.changed.get("rax") for step in computer.steps()] == [1, None]


def test_two_cores_share_memory() -> None:
    computer = Computer(cores=2)
    computer.map(Ram(1 << 16), 0)
    add = "mov rcx, 1000\nagain: lock inc qword ptr [0x8000]\n dec rcx\n jnz again\n hlt"
    computer.load(Program.assemble(add, 0x1000), core=0)
    computer.load(Program.assemble(add, 0x2000), core=1)
    computer.run()
    assert int.from_bytes(computer.read(0x8000, 8), "little") == 2000


def test_a_program_that_loops_ends_at_the_limit() -> None:
    computer, _ = textbook()
    computer.load(Program.assemble("again: jmp again"))
    assert computer.run(instructions=1000) is Stop.LIMIT
    assert computer.cores[0].state.instructions == 1000
    assert computer.run(until=1_000_000) is Stop.TIME
    assert computer.now == pytest.approx(1_000_000, abs=1000)


def test_time_is_busy_or_idle() -> None:
    computer, _ = read_blocks(1, COPY)
    core = computer.cores[0].state
    assert core.cycles * 1000 / 3 == pytest.approx(computer.now, abs=1000)
    assert 0 < computer.counters.idle_ps < computer.now


def test_steps_show_the_handler_that_an_interrupt_leads_to() -> None:
    computer = Computer()
    computer.map(Ram(1 << 16), 0)
    keyboard = Keyboard(vector=33)
    computer.map(keyboard, 0x20000)
    text = "mov rsp, 0x8000\n lidt [table]\n sti\n hlt\n cli\n hlt\nhandler: inc rax\n iretq\n"
    program = Program.assemble(text + TAIL.format(vector=33), 0x1000)
    computer.load(program)
    computer.at(5_000_000, lambda: keyboard.interrupt(33))
    steps = list(computer.steps())
    assert [step.text.split(":")[-1].strip() for step in steps[3:]] == [
        "hlt", "inc rax", "iretq", "cli", "hlt"
    ]  # fmt: skip
    assert [step.interrupt for step in steps] == [None] * 4 + [33] + [None] * 3
    assert (steps[4].address, steps[4].changed["rax"]) == (program.labels["handler"], 1)


def test_a_step_that_takes_an_interrupt_without_a_handler_names_it() -> None:
    computer, keyboard = textbook()
    computer.load(Program.assemble("sti\n nop\n nop\n hlt"))
    steps = computer.steps()
    next(steps)
    keyboard.interrupt(33)
    next(steps)  # STI holds interrupts for one instruction
    with pytest.raises(ProcessorError, match="no handler is set"):
        list(steps)


def with_device(device: Device) -> Computer:
    computer = Computer(ghz=1)
    computer.map(Ram(1 << 16), 0)
    computer.map(device, 0x10000)
    program = "nop\nnop\nnop\nmov [0x10000], rax\nmov rax, [0x10000]\nhlt"
    computer.load(Program.assemble(program))
    return computer


@pytest.mark.parametrize("time", [5, 2.5])
def test_a_device_asks_for_no_time_that_is_over(time: float) -> None:
    class Hasty(Device):
        def write(self, offset: int, size: int, value: int) -> None:
            self.at(time, lambda: None)  # type: ignore[arg-type]

    with pytest.raises(
        HostError,
        match=r"Hasty at 0x10000 to 0x10007 asked to be called at .* now it is \d+: a time",
    ):
        with_device(Hasty(8)).run()


def test_a_device_that_forgets_its_answer_is_named() -> None:
    class Forgetful(Device):
        def write(self, offset: int, size: int, value: int) -> None:
            pass

        def read(self, offset: int, size: int) -> int:
            return None  # type: ignore[return-value]

    why = "Forgetful at 0x10000 to 0x10007 answered a load of 8 bytes at offset 0 with None"
    with pytest.raises(HostError, match=why):
        with_device(Forgetful(8)).run()
    computer = with_device(Forgetful(8))
    computer.observers.append(lambda transaction: None)
    with pytest.raises(HostError, match=why):
        computer.run()


def test_a_device_without_a_size_is_told_how_it_gets_one() -> None:
    class Sizeless(Device):
        def __init__(self) -> None:
            pass

    with pytest.raises(HostError, match=r"Sizeless has no size: .* super\(\).__init__\(SIZE\)"):
        with_device(Sizeless())
