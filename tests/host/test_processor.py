# SPDX-License-Identifier: Apache-2.0
"""The interpreter against the processor of this machine, and what no user program can try there."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import product

import pytest

from tests.host.compared import Interpreter, compare
from tests.host.real_processor import State, is_available
from tests.host.recorded import (
    LENGTH,
    PROGRAMS,
    Recording,
    StaleRecordingError,
    hash_of,
    made,
)
from tests.support import ROOT
from verbena.host import Computer, ProcessorError, Program, Ram, Stop
from verbena.host._cpu import CoreState, PhysicalMemory, instruction_length
from verbena.host.disassembler import disassemble


def compared(*arguments: str, module: str = "compared") -> subprocess.CompletedProcess[str]:
    """A process of ``compared.py``, since a program that faults ends it."""
    return subprocess.run(
        [sys.executable, "-m", f"tests.host.{module}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("oracle", [[], ["--recorded"]])
def test_random_programs_do_as_on_the_processor(oracle: list[str]) -> None:
    """On the processor of this machine, if it is one of x86-64, and as one was recorded."""
    done = compared("0", str(PROGRAMS), *oracle)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"{PROGRAMS} programs, 0 differ" in done.stdout


@pytest.mark.parametrize("oracle", [[], ["--recorded"]])
def test_the_comparison_sees_a_wrong_result(oracle: list[str]) -> None:
    done = compared("0", "20", "--spoil", *oracle)
    assert done.returncode == 1
    assert "20 programs, 20 differ" in done.stdout


@pytest.mark.skipif(
    not is_available(), reason="this machine is no x86-64 with LZCNT; another machine brings it"
)
def test_divisions_raise_errors_as_on_the_processor() -> None:
    """A division that raises #DE ends a process on the processor, so that each has its own."""
    done = compared("0", "400", module="compared_divisions")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    said = re.fullmatch(r"400 divisions, (\d+) with #DE, 0 differ\n", done.stdout)
    assert said is not None
    assert 100 < int(said[1]) < 300
    assert compared("0", "20", "--spoil", module="compared_divisions").returncode == 1


def test_random_programs_have_each_instruction_in_each_form() -> None:
    """All sizes of divisions, bits of memory by a register, and LOCK with what can have it."""
    pieces = [piece for seed in range(1000) for piece in made(seed)[1]]
    texts = {line.text for piece in pieces for line in disassemble(piece)}
    for name in ("div", "idiv"):
        for operand in ("b[lh]", "[a-d]x|[bs][pi]|r\\d+w", "e..|r\\d+d", "r..|r\\d+",
                        "byte ptr .*", "word ptr .*", "dword ptr .*", "qword ptr .*"):  # fmt: skip
            assert any(re.fullmatch(f"{name} ({operand})", one) for one in texts), (name, operand)
    sizes = "word", "dword", "qword"
    for name in ("bt", "bts", "btr", "btc"):
        for size, number in product(sizes, ("[a-z]+\\d*[wd]?", "0x\\w+")):
            for lock in ("", "lock ")[: 1 if name == "bt" else 2]:
                form = rf"{lock}{name} {size} ptr \[r15.*\], {number}"
                assert any(re.fullmatch(form, one) for one in texts), form
    for name, size in product(("inc", "dec", "not", "neg"), ("byte", *sizes)):
        assert any(one.startswith(f"lock {name} {size} ptr") for one in texts), (name, size)


def test_a_recording_tells_behind_which_piece_a_program_differs() -> None:
    before, program = made(7)
    wrong = [*program[:9], bytes.fromhex("49ff07"), *program[10:]]  # inc qword ptr [r15]
    recording, ours = Recording(), Interpreter()
    recorded = recording.program(7, before, program)
    ends = [hash_of(ours.run(b"".join(wrong[:length]), before)) for length in range(1, LENGTH + 1)]
    same = [end[0] == piece for end, piece in zip(ends, recorded.pieces, strict=True)]
    assert same[:9] == [True] * 9
    assert not same[9]
    assert ends[-1] != recorded.end


def test_a_recording_of_other_programs_says_how_it_is_made_anew() -> None:
    before, program = made(7)
    with pytest.raises(StaleRecordingError, match=r"python -m tests\.host\.recorded"):
        Recording().program(8, before, program)


def test_compare_names_the_registers() -> None:
    left, right = State(), State(registers=[1] + [0] * 15, flags=0x43)
    assert compare(left, right) == ["register 0: 0x0, 0x1", "flags: 0x0, 0x41"]


def run(text: str, **registers: int) -> Computer:
    """A computer with 1 MiB on which a program has run to its HLT."""
    computer = Computer()
    computer.map(Ram(1 << 20), 0)
    computer.load(Program.assemble(text, 0x1000))
    for name, value in registers.items():
        setattr(computer.cores[0].registers, name, value)
    assert computer.run(instructions=1_000_000) is Stop.HALT
    return computer


def rax(text: str, **registers: int) -> int:
    return run(text, **registers).cores[0].registers.rax


# ---- CMPXCHG8B and CMPXCHG16B ----

PAIRS = {
    "cmpxchg8b": (4, 0x1_0000_0000, 0xFFFF_FFFF_0000_0000),
    "cmpxchg16b": (8, 1 << 64, 0),
}


def exchanged(name: str, there: int, **registers: int) -> tuple[Computer, int]:
    """The computer behind the instruction on a pair at 0x8000, and the pair then."""
    size = 2 * PAIRS[name][0]
    computer = Computer()
    computer.map(Ram(1 << 20), 0)
    computer.load(Program.assemble(f"stc\n {name} [0x8000]\n hlt", 0x1000))
    computer.write(0x8000, there.to_bytes(size, "little"))
    for register, value in registers.items():
        setattr(computer.cores[0].registers, register, value)
    assert computer.run(instructions=10) is Stop.HALT
    return computer, int.from_bytes(computer.read(0x8000, size), "little")


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_that_is_as_expected_is_replaced(name: str) -> None:
    """RCX:RBX goes to memory, ZF is set, CF stays, and so do RAX and RDX, whole."""
    _, one, upper = PAIRS[name]
    computer, now = exchanged(
        name, 7 * one + 5, rax=upper | 5, rdx=upper | 7, rbx=upper | 3, rcx=upper | 9
    )
    registers = computer.cores[0].registers
    assert now == 9 * one + 3
    assert (registers.rax, registers.rdx) == (upper | 5, upper | 7)
    assert registers.flags & 0x41 == 0x41


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(("low", "high"), [(5, 8), (6, 7), (6, 8)])
def test_a_pair_that_is_another_is_loaded(name: str, low: int, high: int) -> None:
    """Memory goes to RDX:RAX if either half differs; a half of 4 bytes clears what is above it."""
    _, one, upper = PAIRS[name]
    computer, now = exchanged(name, high * one + low, rax=upper | 5, rdx=upper | 7, rbx=3, rcx=9)
    registers = computer.cores[0].registers
    assert now == high * one + low
    assert (registers.rax, registers.rdx) == (low, high)
    assert registers.flags & 0x41 == 0x01


# ---- exceptions and interrupts ----

TABLE = """
    align 16
idt: {rows}
table: dw 256*16-1
    dq idt
"""


def gate(handler: str, ring: int = 0, kind: int = 0x8E) -> str:
    return (
        f"dq ({handler} & 0xffff) | (8 << 16) | ({kind | ring << 5:#x} << 40)"
        f" | (({handler} >> 16) << 48), 0"
    )


def with_handlers(text: str, **handlers: str) -> str:
    """A program whose IDT has a gate for each ``v6="label"``."""
    rows = []
    for vector in range(256):
        label = handlers.get(f"v{vector}")
        rows.append(gate(label) if label else "dq 0, 0")
    head = "mov rsp, 0x80000\nlidt [table]\n"
    return head + text + TABLE.format(rows="\n".join(rows))


def test_a_division_by_zero_without_a_handler_is_named() -> None:
    with pytest.raises(ProcessorError, match=r"at 0x1002: div ecx: divide error \(#DE\)") as caught:
        run("xor ecx, ecx\n div ecx\n hlt")
    assert caught.value.address == 0x1002
    assert caught.value.vector == 0


@pytest.mark.parametrize(
    ("text", "vector"),
    [
        ("xor ecx, ecx\nbad: div ecx", 0),
        ("mov rax, 0x8000000000000000\n cqo\n mov rcx, -1\nbad: idiv rcx", 0),
        ("bad: ud2", 6),
        ("bad: db 0x0f, 0xff", 6),
        ("bad: db 0xf0, 0x90", 6),
        ("mov rcx, 0x12345\nbad: rdmsr", 13),
    ],
)
def test_an_exception_has_the_address_of_its_instruction(text: str, vector: int) -> None:
    skip = 8 if vector == 13 else 0
    program = f"{text}\n hlt\nhandler: mov rax, [rsp+{skip}]\n sub rax, bad\n mov rbx, 77\n hlt"
    computer = run(with_handlers(program, **{f"v{vector}": "handler"}))
    assert computer.cores[0].registers.rax == 0
    assert computer.cores[0].registers.rbx == 77


def test_int3_returns_behind_itself() -> None:
    program = "xor eax, eax\n int3\n inc eax\n hlt\nhandler: add eax, 100\n iretq"
    assert rax(with_handlers(program, v3="handler")) == 101


def test_an_interrupt_waits_until_interrupts_are_on_and_is_merged() -> None:
    program = "mov rcx, 100\nagain: dec rcx\n jnz again\n sti\n nop\n hlt\nhandler: inc rbx\n iretq"
    computer = Computer()
    computer.map(Ram(1 << 20), 0)
    computer.load(Program.assemble(with_handlers(program, v40="handler"), 0x1000))
    state = computer.cores[0].state
    assert state.interrupt(40)
    assert not state.interrupt(40)  # merged with the first
    computer.run()
    assert computer.cores[0].registers.rbx == 1
    assert state.interrupts == 1


def test_sti_holds_interrupts_for_one_instruction_more() -> None:
    """``sti; hlt`` cannot lose an interrupt that is pending: it comes after HLT has begun."""
    program = "sti\n hlt\n mov rax, 5\n cli\n hlt\nhandler: mov rcx, [rsp]\n iretq"
    computer = Computer()
    computer.map(Ram(1 << 20), 0)
    made = Program.assemble(with_handlers(program, v40="handler"), 0x1000)
    computer.load(made)
    computer.cores[0].state.interrupt(40)
    computer.run()
    assert computer.cores[0].registers.rax == 5
    behind = next(at for at, line in made.lines.items() if line == "mov rax, 5")
    assert computer.cores[0].registers.rcx == behind


def test_the_highest_vector_comes_first() -> None:
    program = (
        "sti\n nop\n nop\n hlt\n"
        "low: shl rax, 4\n or rax, 1\n iretq\nhigh: shl rax, 4\n or rax, 2\n iretq"
    )
    computer = Computer()
    computer.map(Ram(1 << 20), 0)
    computer.load(Program.assemble(with_handlers(program, v40="low", v200="high"), 0x1000))
    for vector in (40, 200):
        computer.cores[0].state.interrupt(vector)
    computer.run()
    assert computer.cores[0].registers.rax == 0x21


# ---- paging and rings: code at 0x1000, tables at 0x10000, a user's page at 0x400000 ----

PAGING = """
    mov rsp, 0x80000
    lidt [table]
    mov qword ptr [0x10000], 0x11007      ; PML4
    mov qword ptr [0x11000], 0x12007      ; page directory pointers
    mov qword ptr [0x12000], 0x13007      ; first 2 MiB by pages of 4 KiB
    mov qword ptr [0x12010], 0x14007      ; from 0x400000 on
    mov rdi, 0x13000
    mov rax, 3                            ; present, writable, not for ring 3
    mov rcx, 256
fill: mov [rdi], rax
    add rax, 0x1000
    add rdi, 8
    dec rcx
    jnz fill
    mov qword ptr [0x14000], 0x20007      ; 0x400000: user, writable
    mov qword ptr [0x14008], 0x21005      ; 0x401000: user, read only
    mov rax, 0x10000
    mov cr3, rax
    mov ecx, 0x175                        ; stack of ring 0
    mov eax, 0x70000
    xor edx, edx
    wrmsr
    mov ecx, 0xc0000080                   ; EFER: SYSCALL
    mov eax, 1
    wrmsr
    mov ecx, 0xc0000082                   ; LSTAR
    mov eax, service
    wrmsr
    mov rax, cr0
    or eax, 0x80010000                    ; paging, and write protection
    mov cr0, rax
"""

TO_USER = """
    mov rsi, user
    mov rdi, 0x400000
    mov rcx, 256
    rep movsb
    mov rcx, 0x400000
    mov r11, 0x202
    sysretq
"""

SERVICE = """
service: cmp eax, 1
    je exit
    mov rax, 42
    sysretq
exit: hlt
fault: pop rbx                            ; the error code
    mov rdx, cr2
    hlt
gp: mov rbx, 13
    hlt
"""


def in_ring_3(user: str) -> Computer:
    text = PAGING + TO_USER + SERVICE + "user:\n" + user + "\n times 256 nop\n"
    rows = []
    for vector in range(256):
        rows.append({13: gate("gp"), 14: gate("fault")}.get(vector, "dq 0, 0"))
    computer = Computer()
    computer.map(Ram(1 << 20), 0)
    text += TABLE.format(rows="\n".join(rows))
    computer.load(Program.assemble(text, 0x1000))
    assert computer.run(instructions=100_000) in (Stop.HALT, Stop.WAITS)
    return computer


def test_a_system_call_and_its_return() -> None:
    registers = in_ring_3("mov eax, 7\n syscall\n mov r8, rax\n mov eax, 1\n syscall").cores[0]
    assert registers.registers.r8 == 42
    assert registers.registers.rcx > 0x400000


@pytest.mark.parametrize(
    ("access", "error", "address"),
    [
        ("mov rax, [0x1000]", 5, 0x1000),  # present, user: a page of the kernel
        ("mov rax, [0x500000]", 4, 0x500000),  # not present
        ("mov [0x401000], rax", 7, 0x401000),  # present, write, user
        ("mov [0x402000], rax", 6, 0x402000),
    ],
)
def test_a_page_fault_says_what_was_tried(access: str, error: int, address: int) -> None:
    registers = in_ring_3(access).cores[0].registers
    assert (registers.rbx, registers.rdx) == (error, address)
    assert registers.cr2 == address


@pytest.mark.parametrize(
    "access",
    ["mov rax, [rcx]", "mov [rcx], rax", "mov [rcx-4], rax", "jmp rcx", "lock inc qword ptr [rcx]"],
)
def test_an_address_that_is_not_canonical_is_a_protection_fault(access: str) -> None:
    """SDM volume 1, 3.3.7.1; also one whose first bytes are."""
    registers = in_ring_3(f"mov rcx, 0x800000000000\n {access}").cores[0].registers
    assert (registers.rbx, registers.cr2) == (13, 0) or access == "mov [rcx-4], rax"


def test_a_debugger_s_question_marks_no_page_as_accessed() -> None:
    computer = in_ring_3("mov eax, 1\n syscall")
    entries = {0x12018: 0x15007, 0x15000: 0x23007}
    for at, entry in entries.items():
        computer.write(at, entry.to_bytes(8, "little"))
    assert computer.cores[0].state.physical(0x600123) == 0x23123
    assert computer.cores[0].state.physical(0x601000) is None
    assert computer.cores[0].state.physical(1 << 47) is None
    for at, entry in entries.items():
        assert int.from_bytes(computer.read(at, 8), "little") == entry


@pytest.mark.parametrize("what", ["cli", "hlt", "mov rax, cr3", "in al, 0x60", "rdmsr"])
def test_ring_3_may_not(what: str) -> None:
    assert in_ring_3(what).cores[0].registers.rbx == 13


def test_a_page_that_may_be_read_can_be_read() -> None:
    registers = in_ring_3("mov r9, [0x401008]\n mov r10, 5\n mov eax, 1\n syscall").cores[0]
    assert registers.registers.r10 == 5


def test_accessed_and_dirty_bits_are_set() -> None:
    computer = in_ring_3("mov [0x400800], rax\n mov rbx, [0x401000]\n mov eax, 1\n syscall")
    first, second = (int.from_bytes(computer.read(at, 8), "little") for at in (0x14000, 0x14008))
    assert first == 0x20067
    assert second == 0x21025


def test_a_changed_mapping_holds_after_invlpg() -> None:
    text = (
        PAGING
        + """
    mov qword ptr [0x400010], 1
    mov qword ptr [0x401010], 2           ; fails below if pages were swapped wrongly
    hlt
"""
    )
    text = text.replace("mov qword ptr [0x401010], 2 ", "mov rax, [0x400010] ")
    text = text.replace("    hlt\n", "", 1)
    text += """
    mov qword ptr [0x14000], 0x22007
    invlpg [0x400000]
    mov rbx, [0x400010]
    hlt
"""
    text += SERVICE + TABLE.format(rows="dq 0, 0")
    computer = Computer()
    computer.map(Ram(1 << 20), 0)
    computer.load(Program.assemble(text, 0x1000))
    computer.run()
    assert computer.cores[0].registers.rax == 1
    assert computer.cores[0].registers.rbx == 0


# ---- the rest ----


def test_code_that_writes_itself_runs_as_written() -> None:
    text = "mov byte ptr [change+1], 9\nchange: mov al, 5\n movzx eax, al\n hlt"
    assert rax(text) == 9


def test_code_that_a_device_writes_runs_as_written() -> None:
    computer = run("mov rcx, 2\nchange: mov al, 5\n movzx eax, al\n hlt")
    computer.load(Program.assemble("mov al, 7", 0x1007))
    computer.cores[0].registers.rip = 0x1000
    computer.run()
    assert computer.cores[0].registers.rax == 7


def test_a_string_instruction_can_be_interrupted_between_elements() -> None:
    memory = PhysicalMemory()
    memory.add_ram(0, bytearray(4096))
    state = CoreState(memory)
    seen: list[int] = []

    def read(offset: int, size: int) -> int:
        seen.append(offset)
        state.pause()
        return offset

    memory.add_window(0x10000, 4096, read, lambda offset, size, value: None)
    memory.write(0, Program.assemble("rep movsb\n hlt").code)
    for number, value in ((1, 4), (6, 0x10000), (7, 0x800)):
        state.set(number, value)
    stops = 0
    while not state.halted:
        state.run(100)
        stops += 1
    assert seen == [0, 1, 2, 3]
    assert stops >= 4
    assert memory.read(0x800, 4) == bytes(range(4))


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_an_access_arrives_whole(size: int) -> None:
    memory = PhysicalMemory()
    memory.add_ram(0, bytearray(4096))
    state = CoreState(memory)
    seen: list[tuple[int, int, int]] = []

    def read(offset: int, of: int) -> int:
        seen.append((offset, of, 0))
        return 0x0102030405060708090A0B0C0D0E0F10 & (1 << 8 * of) - 1

    memory.add_window(
        0x10000, 4096, read, lambda offset, of, value: seen.append((offset, of, value))
    )
    name = {1: "al", 2: "ax", 4: "eax", 8: "rax", 16: "xmm3"}[size]
    move = "movdqu" if size == 16 else "mov"
    text = f"{move} {name}, [rbx+3]\n {move} [rbx+0x100], {name}\n hlt"
    memory.write(0, Program.assemble(text).code)
    state.set(3, 0x10000)
    state.run(10)
    value = 0x0102030405060708090A0B0C0D0E0F10 & (1 << 8 * size) - 1
    assert seen == [(3, size, 0), (0x100, size, value)]


def test_lengths_of_instructions() -> None:
    assert instruction_length(b"\x90") == 1
    assert instruction_length(bytes.fromhex("48c7c005000000")) == 7
    assert instruction_length(bytes.fromhex("48c7c00500")) == 0
    assert instruction_length(b"\x0f\xff") == 0
    assert instruction_length(b"\x66" * 15 + b"\x90") == 0
    assert instruction_length(b"") == 0


def test_an_instruction_that_ends_with_its_page_needs_no_further_one() -> None:
    memory = PhysicalMemory()
    memory.add_ram(0, bytearray(4096))
    memory.write(4095, b"\xf4")
    state = CoreState(memory)
    state.rip = 4095
    assert state.run(10) == Stop.HALT
    memory.write(4095, b"\x48")
    state.rip = 4095
    assert state.run(10) == Stop.BUS
    assert state.fault()[5] == 4096
