# SPDX-License-Identifier: Apache-2.0
"""What a device of one's own, or a caller, does wrong, and what the error says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from verbena.host import (
    AssemblyError,
    Computer,
    Device,
    Disk,
    Display,
    HostError,
    Keyboard,
    Machines,
    Pcie,
    ProcessorError,
    Program,
    Ram,
)
from verbena.host.comparison import Setup
from verbena.host.iommu import Iommu
from verbena.host.lessons import frames_of, lesson_of_file
from verbena.host.receive_path import Work, receive_by_interrupts, receive_by_polling
from verbena.host.tcp_path import TcpPath

LOAD = "mov rbx, 0x100000\n mov al, [rbx]\n hlt"


def computer_with(device: Device, text: str = LOAD, *, in_machines: bool = False) -> Computer:
    computer = Machines().computer("left") if in_machines else Computer(name="left")
    computer.map(Ram(0x10000), 0)
    computer.map(device, 0x100000)
    computer.load(Program.assemble(text, 0x1000))
    return computer


def with_memory() -> Any:
    """A computer whose calls the type checker leaves alone."""
    computer = Computer()
    computer.map(Ram(0x10000), 0)
    return computer


class Answers(Device):
    """Its register has one value for each load."""

    def __init__(self, value: int) -> None:
        super().__init__(16)
        self.value = value

    def read(self, offset: int, size: int) -> int:
        return self.value


@pytest.mark.parametrize("value", [1 << 100, 1 << 8, -129])
@pytest.mark.parametrize("watched", [False, True])
def test_a_value_that_is_longer_than_the_load_is_refused(value: int, watched: bool) -> None:
    computer = computer_with(Answers(value))
    if watched:
        computer.observers.append(lambda _: None)
    with pytest.raises(HostError, match=r"Answers at 0x100000 .* has more than 1 bytes"):
        computer.run()


@pytest.mark.parametrize("value", [255, -1])
def test_a_value_that_fits_is_taken(value: int) -> None:
    computer = computer_with(Answers(value))
    computer.run()
    assert computer.cores[0].registers.rax == 255


def test_a_narrow_load_of_a_wide_register_of_a_disk_has_its_low_bytes() -> None:
    disk = Disk(bytes(512))
    disk.write(0x18, 8, 0x1_2345_6789)
    assert disk.read(0x18, 4) == 0x2345_6789


class Again(Device):
    """Its event adds itself at once, or later."""

    def __init__(self, later: int) -> None:
        super().__init__(8)
        self.later = later
        self.calls = 0

    def write(self, offset: int, size: int, value: int) -> None:
        self.tick()

    def tick(self) -> None:
        self.calls += 1
        if self.later or self.calls < 1_000_000:
            self.at(self.now + self.later, self.tick)


def test_an_event_that_adds_itself_at_once_ends_in_an_error() -> None:
    computer = computer_with(Again(0), LOAD.replace("mov al, [rbx]", "mov [rbx], al"))
    with pytest.raises(HostError, match=r"Again\.tick of Again at 0x100000 .* time does not pass"):
        computer.run(until=10**9)


def test_an_event_that_adds_itself_later_goes_on_until_the_limit() -> None:
    again = Again(1_000)
    computer = computer_with(again, LOAD.replace("mov al, [rbx]", "mov [rbx], al"))
    computer.run(until=10**6)
    assert 990 <= again.calls <= 1001


def test_many_events_of_one_time_that_do_not_add_each_other_are_run() -> None:
    computer = Computer()
    calls: list[int] = []
    for number in range(100_010):
        computer.at(5, lambda number=number: calls.append(number))  # type: ignore[misc]
    computer.run()
    assert calls == list(range(100_010))


class Runs(Answers):
    """It runs its computer when it is read, or in an event."""

    def read(self, offset: int, size: int) -> int:
        assert self.computer is not None
        self.computer.run()
        return 0


@pytest.mark.parametrize("in_machines", [False, True])
def test_a_device_cannot_run_its_computer(in_machines: bool) -> None:
    computer = computer_with(Runs(0), in_machines=in_machines)
    with pytest.raises(HostError, match="left runs already"):
        computer.run()
    computer.load(Program.assemble("hlt", 0x2000))
    computer.run()  # and it can be run again


class Dma(Device):
    """A store starts a transfer."""

    def __init__(self, start: Callable[[Dma], None]) -> None:
        super().__init__(8)
        self.start = start

    def write(self, offset: int, size: int, value: int) -> None:
        self.start(self)


def nothing() -> None: ...


@pytest.mark.parametrize(
    ("start", "text"),
    [
        (lambda one: one.dma_read(0, -5, print), r"Dma at .*dma_read: -5 bytes at 0x0"),
        (lambda one: one.dma_read(-1, 5, print), r"Dma at .*dma_read: 5 bytes at -0x1"),
        (lambda one: one.dma_write(1 << 64, b"a"), r"Dma at .*dma_write: 1 bytes at 0x1000"),
        (lambda one: one.dma_write(0, b"a", lambda data: None), r"Dma at .* with no argument"),
        (lambda one: one.dma_read(0, 4, nothing), r"Dma at .* is called with the bytes"),
        (lambda one: one.interrupt(13), r"is 32 to 255, .* not 13"),
    ],
)
def test_what_a_device_asks_wrongly_is_refused(start: Callable[[Dma], None], text: str) -> None:
    computer = computer_with(Dma(start), LOAD.replace("mov al, [rbx]", "mov [rbx], al"))
    with pytest.raises(HostError, match=text):
        computer.run()


def test_a_type_error_of_what_a_device_does_with_its_bytes_stays() -> None:
    def add(data: bytes) -> None:
        _ = data + 1  # type: ignore[operator]

    computer = computer_with(
        Dma(lambda one: one.dma_read(0, 4, add)), LOAD.replace("mov al, [rbx]", "mov [rbx], al")
    )
    with pytest.raises(TypeError, match="can't concat"):
        computer.run()


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("rax", "x", "register rax: 'x' is no whole number"),
        ("rip", 1.5, "register rip: 1.5 is no whole number"),
        ("rax", 1 << 64, "register rax has 64 bits: 0x10000000000000000 does not fit"),
        ("flags", -1, "register flags has 64 bits: -0x1 does not fit"),
    ],
)
def test_a_register_takes_its_64_bits(name: str, value: object, text: str) -> None:
    registers = Computer().cores[0].registers
    with pytest.raises(HostError, match=text):
        setattr(registers, name, value)
    registers.rax = -1
    assert registers.rax == (1 << 64) - 1


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Disk(bytes(512), vector=3), "32 to 255, .* not 3"),
        (lambda: Disk(b"", block=0), "at least one byte, not 0"),
        (lambda: Keyboard().press("aé"), "no key 'é' of 'aé'"),
        (lambda: Computer().at(-1, nothing), "from 0 ps on, and not -1"),
        (
            lambda: Computer().at(10**30, nothing),
            r"behind the end of time, 2\^63 ps, which are 106",
        ),
        (lambda: Pcie(round_trip_ns=1e16), "a round trip is 0 to 1000000 ns, .* not 1e\\+16 ns"),
        (lambda: Pcie(tags=0), "at least one tag, not 0"),
        (lambda: Setup(disk_us=1e30), "a latency is 0 to 1000000 us, .*: disk_us is 1e"),
        (lambda: Program(b"\xf4", origin=-5), "origin is an address, .* not -0x5"),
        (lambda: Display().line(25), "there is no row 25: there are 0 to 24"),
        (lambda: Display().line(-1), "there is no row -1"),
        (lambda: with_memory().read(1000.0, 4), "address is 1000.0 and size is 4: an address is a"),
        (lambda: with_memory().read(1000, 4.0), "address is 1000 and size is 4.0: .* a whole num"),
        (lambda: with_memory().write(1000.0, b"a"), "address is 1000.0 and data is b'a': an addr"),
        (lambda: Computer().map(Ram(8), 0, pcie=Pcie()), "pcie, pci and iommu are for devices"),
        (lambda: Pcie().write_bytes(-1), "0 bytes or more, not -1"),
        (lambda: Pcie().read_bytes(-1), "0 bytes or more, not -1"),
        (lambda: Pcie().time_ps(-4), "0 bytes or more, not -4"),
        (lambda: TcpPath().throughput_gbps(line_gbps=-1), "above 0 Gb/s, not -1"),
        (lambda: receive_by_interrupts([5, 1, 3], Work(1.0, 1.0), Random(1)), "1 comes after 5"),
        (lambda: receive_by_polling([5, 1, 3], Work(1.0, 1.0), Random(1)), "1 comes after 5"),
        (lambda: Program.assemble("hlt", origin=-1), "origin is an address, .* not -0x1"),
        (lambda: Program.assemble("hlt", origin=1 << 65), "origin is an address"),
        (lambda: Program.assemble("hlt").assemble("x equ x"), "line 1: .*x depends on itself"),
        (lambda: Program.assemble("nop\nx equ y+1\ny equ x+1"), "line 2: .*x depends on itself"),
    ],
)
def test_what_cannot_be_is_refused(call: Callable[[], object], text: str) -> None:
    with pytest.raises(HostError, match=text):
        call()


def test_a_store_of_too_much_is_not_called_one_beyond_the_end() -> None:
    computer = computer_with(Answers(0))
    with pytest.raises(HostError, match=r"a store has 1 to 64 bytes, not 65 at 0x100000"):
        computer.store(0x100000, bytes(65))
    with pytest.raises(HostError, match=r"of Answers at .*, 0x100010: no more than 1 fit"):
        computer.store(0x10000F, b"ab")


def test_a_seventeenth_range_of_memory_is_refused() -> None:
    computer = Computer()
    for place in range(16):
        computer.map(Ram(4096), place << 16)
    with pytest.raises(HostError, match="there are 16 ranges of memory already: let one Ram"):
        computer.map(Ram(4096), 16 << 16)


def test_an_equ_may_use_one_that_comes_later() -> None:
    assert Program.assemble("x equ y+1\ny equ 2\ndb x").code == b"\x03"


def test_an_iommu_takes_the_last_mapping_of_a_page() -> None:
    iommu = Iommu()
    iommu.map(0x1000, 0x8000, 4096)
    iommu.map(0x1000, 0x9000, 4096)
    assert iommu.translate(0, 0x1004, 4, write=True, who="a device")[1] == [(0x9004, 4)]
    iommu.unmap(0x1000, 8192)  # the second page has never been mapped
    with pytest.raises(HostError, match="0x1004, which is not mapped"):
        iommu.translate(0, 0x1004, 4, write=True, who="a device")


def test_a_timeline_without_a_folder_says_so(tmp_path: Path) -> None:
    timeline = Computer().timeline()
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere: make it first"):
        timeline.write(tmp_path / "nowhere" / "file.json")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mov rax, [0x10000c]", r"a read of 8 bytes at 0x10000c goes beyond the end of Answers at"),
        ("mov rax, [0x10000c]", r"0x100010: no more than 4 fit"),
        ("mov [0xfffc], rax", r"a write of 8 bytes at 0xfffc goes beyond the end of Ram"),
        ("mov rax, [0x100010]", r"nothing answers a read of 8 bytes at 0x100010"),
        ("mov ecx, 7\n rdmsr", r"no model-specific register 0x7, the number in ECX"),
        ("mov ecx, 7\n wrmsr", r"no model-specific register 0x7, the number in ECX"),
    ],
)
def test_a_fault_says_what_was_wrong(text: str, says: str) -> None:
    with pytest.raises(HostError, match=says):
        computer_with(Answers(0), text).run()


def test_a_step_that_waits_for_nothing_says_so() -> None:
    frames = list(frames_of(lesson_of_file("ends.asm", "sti\nhlt").build()))
    assert frames[-1].says.endswith("until an interrupt, and nothing is left that could raise one.")


def test_a_step_that_no_interrupt_ends_says_so() -> None:
    frames = list(frames_of(lesson_of_file("ends.asm", "cli\nhlt").build()))
    assert frames[-1].says == "The core halts for good: interrupts are off, so that none wakes it."


def test_an_assembly_error_has_its_line() -> None:
    with pytest.raises(AssemblyError) as caught:
        Program.assemble("nop\n\nx equ x")
    assert caught.value.line == 3


def test_a_step_says_why_a_disk_has_refused_a_command() -> None:
    text = """
    mov rbx, 0x200000
    mov qword ptr [rbx+0x28], 1
    mov qword ptr [rbx+0x10], {}
    mov qword ptr [rbx+0x18], 0x4000
    mov qword ptr [rbx], 2
    hlt
    """
    scenes = [lesson_of_file("d.asm", text.format(count)).build() for count in (500, 1)]
    failed, done = (" ".join(frame.says for frame in frames_of(one)) for one in scenes)
    assert "failed: it has 500 blocks from block 0 on, and the disk has 128." in failed
    assert "sends its interrupt" in done
    assert "failed" not in done


@pytest.mark.parametrize(
    ("text", "led"),
    [
        ("mov eax, 0x100004\n jmp rax", "; 0x1005: jmp rax led there"),
        ("mov rsp, 0x800\n call 0x100004", "; 0x1007: call 0x100004 led there"),
        ("mov eax, 0x100004\n cmp eax, 0\n jz 0\n jmp rax", "; 0x100e: jmp rax led there"),
        ("jmp [place]\n align 8\nplace: dq 0x100004", ""),  # the operand is in memory
        ("jmp next\nnext: jz 0x100004\n jmp 0x100004", ""),  # either of two
    ],
)
def test_a_jump_to_a_device_says_that_instructions_come_from_memory(text: str, led: str) -> None:
    with pytest.raises(ProcessorError) as caught:
        computer_with(Answers(0), text).run()
    belongs = "0x100004 belongs to Answers at 0x100000 to 0x10000f"
    says = f"at 0x100004: instructions come from memory only, and {belongs}{led}"
    assert str(caught.value) == says


def test_an_instruction_that_goes_on_in_a_device_is_not_fetched() -> None:
    computer = Computer()
    computer.map(Ram(4096), 0)
    computer.map(Answers(0), 4096)
    computer.write(4094, b"\xb8\x01")  # mov eax, of which three bytes are missing
    computer.cores[0].begin_at(4094)
    says = "instructions come from memory only, and 0x1000 belongs to Answers"
    with pytest.raises(ProcessorError, match=says):
        computer.run()


def test_a_jump_to_no_memory_says_so() -> None:
    says = "from memory only, and there is none at 0x20000; 0x1000: jmp 0x20000 led there"
    with pytest.raises(ProcessorError, match=says):
        computer_with(Answers(0), "jmp 0x20000").run()
