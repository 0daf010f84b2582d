# SPDX-License-Identifier: Apache-2.0
"""What a first program does wrong, and what the error advises."""

from __future__ import annotations

import pytest

from verbena.host import (
    AccessError,
    Computer,
    Device,
    HostError,
    Pcie,
    ProcessorError,
    Program,
    Ram,
)
from verbena.host.lessons import frames_of, lesson_of_file


def loaded(text: str, cores: int = 1) -> Computer:
    computer = Computer(cores=cores)
    computer.map(Ram(0x10000), 0)
    computer.load(Program.assemble(text, 0x1000))
    return computer


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("in al, 0x60", "at 0x1000: in al, 0x60: no device has port 0x60: an InterruptController"),
        ("mov dx, 0x3f8\nout dx, al", "at 0x1004: out dx, al: no device has port 0x3f8"),
    ],
)
def test_a_port_that_nothing_has_is_called_one(text: str, says: str) -> None:
    """And not an address of memory."""
    with pytest.raises(ProcessorError, match=f"^{says}") as caught:
        loaded(text).run()
    assert "Ram" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "access", "stack"),
    [
        ("push rax", "write of 8 bytes at 0xfffffffffffffff8", "0x0"),
        ("call next\nnext: hlt", "write of 8 bytes at 0xfffffffffffffff8", "0x0"),
        ("mov rsp, 0x10000\nret", "read of 8 bytes at 0x10000", "0x10000"),
        ("mov rsp, 0x20000\npushfq", "write of 8 bytes at 0x1fff8", "0x20000"),
    ],
)
def test_a_stack_without_memory_is_the_advice(text: str, access: str, stack: str) -> None:
    says = f"nothing answers a {access}: rsp is {stack}: set it to the end of a part of memory"
    with pytest.raises(ProcessorError, match=says):
        loaded(text).run()


def test_an_access_that_is_not_the_stack_s_is_not_called_so() -> None:
    says = "a read of 8 bytes at 0x20000: map memory or a device there"
    with pytest.raises(ProcessorError, match=says):
        loaded("mov rsp, 0x8000\npush [0x20000]").run()


@pytest.mark.parametrize(
    ("name", "whole"),
    [("eax", "rax"), ("ax", "rax"), ("al", "rax"), ("bh", "rbx"), ("sp", "rsp"), ("esi", "rsi"),
     ("r8d", "r8"), ("r15w", "r15"), ("r9b", "r9"), ("eip", "rip")],
)  # fmt: skip
def test_a_part_of_a_register_names_the_whole_one(name: str, whole: str) -> None:
    registers = Computer().cores[0].registers
    says = f"{name}.*: it is a part of '{whole}', which has all 64 bits"
    with pytest.raises(AttributeError, match=says):
        getattr(registers, name)
    with pytest.raises(AttributeError, match=says):
        setattr(registers, name, 1)


@pytest.mark.parametrize("name", ["foo", "r99", "e", "rxx", "xl", ""])
def test_what_is_no_register_has_no_advice(name: str) -> None:
    with pytest.raises(AttributeError, match=r"there is no register '[a-z0-9]*'$"):
        getattr(Computer().cores[0].registers, name)


class Far(Device):
    """Its interrupt is for a core that is not there."""

    def write(self, offset: int, size: int, value: int) -> None:
        self.interrupt(40, core=value)


def test_an_interrupt_for_no_core_names_the_device_and_the_cores() -> None:
    computer = loaded("mov ecx, 9\nmov [0x100000], ecx\nhlt", cores=2)
    computer.map(Far(64), 0x100000, pcie=Pcie())
    says = "^Far at 0x100000 to 0x10003f has sent interrupt 40 to core 9: there are 0 to 1 "
    with pytest.raises(HostError, match=says):
        computer.run()


def test_a_core_shows_where_it_is() -> None:
    computer = loaded("nop\nhlt", cores=2)
    assert repr(computer.cores) == "[<core 0 is at 0x1000: nop>, <core 1 has no program>]"


def test_a_lesson_goes_on_after_dma_to_no_memory() -> None:
    text = """
    mov rbx, 0x200000
    mov qword ptr [rbx+0x10], 1
    mov qword ptr [rbx+0x18], 0x900000
    mov qword ptr [rbx], 3
    hlt
    """
    scene = lesson_of_file("write.asm", text).build()
    with pytest.raises(AccessError, match="read 32 bytes by DMA at 0x900000"):
        list(frames_of(scene))
    says = [frame.says for frame in frames_of(scene)]
    assert "There is no memory at 0x900000: the Disk gets no bytes." in says
