# SPDX-License-Identifier: Apache-2.0
"""Where a program is at a limit, and which store has begun what failed later."""

from __future__ import annotations

from typing import Any

import pytest

from verbena.host import (
    AccessError,
    Computer,
    Device,
    Disk,
    HostError,
    Iommu,
    IommuFault,
    Machines,
    PciBus,
    Pcie,
    Program,
    Ram,
    Stop,
)
from verbena.host.hca import connected
from verbena.host.hca.device import DOORBELL

DISK = 0x100000


def with_program(text: str, cores: int = 1) -> Computer:
    computer = Computer(cores=cores)
    computer.map(Ram(1 << 16), 0)
    computer.load(Program.assemble(text, 0x1000))
    return computer


@pytest.mark.parametrize("limit", [{"instructions": 1001}, {"until": 10**6 + 1}])
def test_a_loop_without_end_is_named_at_a_limit(limit: dict[str, int]) -> None:
    computer = with_program("nop\nagain: jmp again ; for ever")
    stop = computer.run(**limit)
    assert stop in (Stop.LIMIT, Stop.TIME)
    assert "where() says at which" in str(stop)
    assert computer.where() == "core 0 is at 0x1001: again: jmp again"


def test_an_instruction_is_said_to_be_behind_its_label() -> None:
    computer = with_program("SIZE equ 7\nbegin:\n nop\nagain:\n inc rax\n jmp again\ndata: dq 0")
    found = set()
    for _ in range(5):
        found.add(computer.where())
        computer.run(instructions=1)
    assert found == {
        "core 0 is at 0x1000 (begin): nop", "core 0 is at 0x1001 (again): inc rax",
        "core 0 is at 0x1004 (again+0x3): jmp again",
    }  # fmt: skip


def test_each_core_and_each_computer_is_named() -> None:
    computer = with_program("hlt", cores=2)
    computer.run()
    assert computer.where() == "core 0 has halted before 0x1001; core 1 has no program"
    computer.write(0x2000, b"\xeb\xfe")
    computer.cores[1].begin_at(0x2000)  # no lines of a program are known
    assert computer.cores[1].where == "core 1 is at 0x2000: jmp 0x2000"
    computer.cores[1].registers.rip = 0x900000
    assert computer.cores[1].where == "core 1 is at 0x900000: there is no memory"
    machines = Machines()
    for name in ("left", "right"):
        machines.computer(name).map(Ram(4096), 0)
    machines.computers[1].load(Program.assemble("again: jmp again"))
    assert machines.run(instructions=100) is Stop.LIMIT
    assert machines.where() == (
        "left: core 0 has no program; right: core 0 is at 0x0: again: jmp again"
    )


READ = f"""
    mov rbx, {DISK:#x}
    mov qword ptr [rbx+0x10], 1
    mov qword ptr [rbx+0x18], 0x20000
    mov qword ptr [rbx], 2      ; read, to memory
again: jmp again
"""
BEGUN = r"\(begun by the store of core 0 of 'computer' at 0x1017: mov qword ptr \[rbx\], 2\)"


@pytest.mark.parametrize(
    ("where", "raised", "says"),
    [
        ({"pcie": Pcie()}, AccessError, "to 0x20000, where there is no memory"),
        ({"pci": PciBus()}, AccessError, "to 0x20000, where there is no memory"),
        ({"pcie": Pcie(), "iommu": Iommu()}, IommuFault, "0x20000"),
    ],
)
def test_dma_to_memory_that_was_freed_names_the_store_that_began_it(
    where: dict[str, Any], raised: type[AccessError], says: str
) -> None:
    computer = with_program(READ)
    computer.map(Ram(1 << 16), 0x20000)
    computer.map(Disk(bytes(4096), latency_us=10), DISK, **where)
    computer.at(5_000_000, lambda: computer.unmap(0x20000))
    with pytest.raises(raised, match=f"Disk.*{says}.*{BEGUN}"):
        computer.run(until=10**8)


def test_a_store_of_python_is_no_instruction() -> None:
    computer = with_program("again: jmp again")
    computer.map(Disk(bytes(4096)), DISK, pcie=Pcie())
    for register, value in ((0x10, 1), (0x18, 0x20000), (0, 2)):
        computer.store(DISK + register, value.to_bytes(8, "little"))
    with pytest.raises(AccessError, match=r"where there is no memory$"):
        computer.run(until=10**8)


def test_a_doorbell_of_another_computer_is_named() -> None:
    """A WRITE into memory that was freed there: what began it is an instruction here."""
    left, right = connected(ram=16 << 20)
    right.computer.map(Ram(1 << 20), 64 << 20)
    source, target = left.register(0x10_0000, 64), right.register(64 << 20, 64)
    left.qp.write(source, target, ring=False)
    right.computer.unmap(64 << 20)
    bell = left.driver.page_address(left.qp.context.page) + DOORBELL
    value = left.qp.number | left.qp.posted << 32
    text = f"mov rbx, {bell:#x}\nmov rax, {value:#x}\nmov [rbx], rax\nhlt"
    left.computer.load(Program.assemble(text, 0x1000))
    begun = r"begun by the store of core 0 of 'left' at 0x\w+: mov \[rbx\], rax\)"
    with pytest.raises(AccessError, match=begun):
        left.run(until=10**9)


class Fussy(Device):
    """Asks for an interrupt of the vector that is written to it: at once, from offset 8 on 5 us
    later, and from 16 on after a READ of memory."""

    def __init__(self) -> None:
        super().__init__(4096)

    def write(self, offset: int, size: int, value: int) -> None:
        if offset < 8:
            self.interrupt(value)
        elif offset < 16:
            self.at(self.now + 5_000_000, lambda: self.interrupt(value))
        else:
            self.dma_read(0x1000, 8, lambda data: self.interrupt(value))


BUSES = pytest.mark.parametrize("bus", ["none", "pcie", "pci"])
WRONG = r"mov dword ptr \[rbx\+{}\], 5"


def fussy(bus: str, text: str) -> Computer:
    computer = with_program(f"mov rbx, {DISK:#x}\n{text}\nhlt")
    where: dict[str, Any] = {"none": {}, "pcie": {"pcie": Pcie()}, "pci": {"pci": PciBus()}}[bus]
    computer.map(Fussy(), DISK, **where)
    return computer


@pytest.mark.parametrize("bus", ["pcie", "pci"])
@pytest.mark.parametrize("after", ["nop", "nop\nmov rax, [rbx+0x20]", "again: jmp again"])
def test_the_error_of_a_posted_store_names_the_store(bus: str, after: str) -> None:
    """And not the instruction that runs while it arrives, as a load that does not pass it."""
    computer = fussy(bus, f"mov dword ptr [rbx+0], 5\n{after}")
    begun = r"not 5 \(begun by the store of core 0 of 'computer' at 0x\w+: "
    with pytest.raises(HostError, match=f"^the vector of.*{begun}{WRONG.format(0)}\\)$"):
        computer.run(until=10**8)


@BUSES
@pytest.mark.parametrize("offset", [8, 16])
def test_an_error_that_comes_later_names_the_store_that_began_it(bus: str, offset: int) -> None:
    computer = fussy(bus, f"mov dword ptr [rbx+{offset}], 5\nagain: inc rax\njmp again")
    begun = r"not 5 \(begun by the store of core 0 of 'computer' at 0x\w+: "
    with pytest.raises(HostError, match=f"{begun}{WRONG.format(offset)}\\)$"):
        computer.run(until=10**8)


def test_the_error_of_a_store_without_a_bus_is_the_instruction_s() -> None:
    computer = fussy("none", "mov dword ptr [rbx+0], 5\nmov rax, [rbx]")
    with pytest.raises(HostError, match=f"^at 0x\\w+: {WRONG.format(0)}: the vector of.*not 5$"):
        computer.run()


def test_dma_that_a_store_without_a_bus_began_names_the_store() -> None:
    computer = with_program(READ)
    computer.map(Disk(bytes(4096)), DISK)
    with pytest.raises(AccessError, match=f"Disk.*to 0x20000, where there is no memory {BEGUN}$"):
        computer.run(until=10**8)


def test_the_error_of_a_store_of_python_names_no_load_that_runs() -> None:
    computer = fussy("pcie", "mov rax, [rbx]")
    computer.store(DISK, (5).to_bytes(4, "little"))
    with pytest.raises(HostError, match=r"^the vector of.*not 5$"):
        computer.run(until=10**8)


class Combining(Fussy):
    """Its first stores combine to a line, which a load writes out."""

    def combines(self, offset: int) -> bool:
        return offset < 8


@pytest.mark.parametrize("where", [{}, {"pcie": Pcie()}])
def test_the_error_of_a_combined_line_names_its_last_store(where: dict[str, Any]) -> None:
    computer = with_program(f"mov rbx, {DISK:#x}\nmov dword ptr [rbx], 5\nmov rax, [rbx+0x20]\nhlt")
    computer.map(Combining(), DISK, **where)
    with pytest.raises(HostError, match=r"^the vector of.*begun by.*: mov dword ptr \[rbx\], 5\)$"):
        computer.run(until=10**8)
