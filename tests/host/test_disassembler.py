# SPDX-License-Identifier: Apache-2.0
"""The disassembler against the assembler, whose bytes are those of GNU as."""

from __future__ import annotations

import random

import pytest

from tests.host.random_programs import Maker
from tests.host.test_assembler import FIXED, random_line
from verbena.host import AssemblyError, Computer, ProcessorError, Program, Ram, disassemble
from verbena.host._cpu import instruction_length
from verbena.host.disassembler import instruction_text

AT = 0x1000


def texts(code: bytes) -> list[str]:
    return [line.text for line in disassemble(code, AT)]


def meaning(text: str) -> str:
    """The text; of XCHG of two registers, whose order does not matter, the first one of both."""
    name, _, operands = text.partition(" ")
    return f"{name} {sorted(operands.split(', '))}" if name == "xchg" else text


def test_every_line_of_assembly_comes_back() -> None:
    """As text that has the same bytes."""
    choose = random.Random(5)
    lines = FIXED.split("\n")
    lines += [line for _ in range(3000) for line in random_line(choose).split("\n")]
    for line in filter(None, lines):
        code = Program.assemble(line, AT).code
        found = list(disassemble(code, AT))
        assert len(found) == 1, (line, found)
        again = Program.assemble(found[0].text, AT).code
        assert again == code, (line, found[0].text, code.hex(" "), again.hex(" "))


def test_any_encoding_has_a_text_that_means_the_same() -> None:
    """Random programs have encodings that no assembler makes: their text has its own encoding,
    whose text is the same. The assembler has no MOVSX and MOVZX to a register of the same size."""
    pieces = [piece for seed in range(300) for piece in Maker(seed).program(25)]
    lines = [line for piece in pieces for line in disassemble(piece, AT)]
    unknown = set()
    for line in lines:
        try:
            again = Program.assemble(line.text, line.address).code
        except AssemblyError:
            unknown.add(line.text.split()[0])
            continue
        (back,) = disassemble(again, line.address)
        assert meaning(back.text) == meaning(line.text)
    assert unknown <= {"movsx", "movzx", "movsxd"}
    assert len({line.text.split()[0] for line in lines} - unknown) > 60


def test_every_opcode_of_the_subset_has_a_text() -> None:
    """Whatever bytes the processor's decoder takes, and no others."""
    choose = random.Random(9)
    prefixes = [b"", b"\x48", b"\x66", b"\xf3", b"\xf2", b"\x67", b"\xf0", b"\x66\x41", b"\xf3\x4c"]
    seen = 0
    for first in range(256):
        for second in (None, *(range(256) if first == 0x0F else ())):
            for prefix in prefixes:
                for _ in range(8):
                    head = bytes([first]) if second is None else bytes([first, second])
                    data = prefix + head + choose.randbytes(15)
                    length = instruction_length(data[:15])
                    text = instruction_text(data, AT)
                    assert (text is not None) == (length > 0), data.hex(" ")
                    assert text is None or text.split()[0].islower(), data.hex(" ")
                    seen += text is not None
    assert seen > 5000


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("48 8b 84 8d 00 01 00 00", "mov rax, qword ptr [rbp+rcx*4+0x100]"),
        ("64 67 8a 63 f8", "mov ah, byte ptr fs:[ebx-8]"),
        ("f0 48 0f b1 0d 10 00 00 00", "lock cmpxchg qword ptr [rel 0x1019], rcx"),
        ("eb fe", "jmp 0x1000"),
        ("f3 48 a5", "rep movsq"),
        ("f2 ae", "repne scasb"),
        ("66 83 c0 80", "add ax, -0x80"),
        ("49 0f c7 4d 00", "cmpxchg16b [r13]"),
        ("66 0f e7 04 24", "movntdq xmmword ptr [rsp], xmm0"),
        ("0f ae f8", "sfence"),
        ("0f ae 38", "clflush [rax]"),
        ("f3 0f 1e fa", "endbr64"),
    ],
)
def test_texts(data: str, text: str) -> None:
    assert texts(bytes.fromhex(data)) == [text]


def test_bytes_that_are_no_instruction_are_lines_of_their_own() -> None:
    lines = [str(line) for line in disassemble(bytes.fromhex("d9 c0 90 48"), AT)]
    assert lines == [
        "0x1000  d9                        db 0xd9",
        "0x1001  c0                        db 0xc0",
        "0x1002  90                        nop",
        "0x1003  48                        db 0x48",
    ]


def test_an_error_of_code_that_came_as_bytes_names_its_instruction() -> None:
    computer = Computer()
    computer.map(Ram(0x10000), 0)
    computer.load(Program(bytes.fromhex("48 8b 04 25 00 00 20 00 f4"), AT))
    with pytest.raises(
        ProcessorError, match=r"at 0x1000: mov rax, qword ptr \[0x200000\]: nothing"
    ):
        computer.run()


def test_a_core_lists_its_memory_up_to_its_end() -> None:
    computer = Computer()
    computer.map(Ram(0x1004), 0)
    computer.write(AT, bytes.fromhex("48 ff c0 f4"))
    lines = computer.cores[0].disassemble(AT)
    assert [(line.address, line.text) for line in lines] == [(AT, "inc rax"), (AT + 3, "hlt")]
    assert [line.text for line in computer.cores[0].disassemble(AT, 1)] == ["inc rax"]
    assert computer.cores[0].disassemble(0x2000) == []
