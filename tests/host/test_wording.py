# SPDX-License-Identifier: Apache-2.0
"""What a computer says of itself: devices, ends of runs, faults that no handler takes."""

from __future__ import annotations

import pytest

from verbena.host import (
    Computer,
    Device,
    HostError,
    Keyboard,
    Machines,
    ProcessorError,
    Program,
    Ram,
    Stop,
)

IDT = """
    align 16
idt: times 46 dq 0, 0
table: dw 46 * 16 - 1
    dq idt
"""


def loaded(text: str, *, memory: int = 0x10000, origin: int = 0) -> Computer:
    computer = Computer()
    computer.map(Ram(memory), 0)
    computer.load(Program.assemble(text, origin))
    return computer


def fault_of(text: str, **settings: int) -> str:
    with pytest.raises(ProcessorError) as caught:
        loaded(text, **settings).run()
    return str(caught.value)


def test_a_device_shows_where_it_is() -> None:
    computer, keyboard = Computer(), Keyboard(0x20)
    assert repr(keyboard) == "Keyboard (not mapped)"
    computer.map(keyboard, 0x1000)
    assert repr(keyboard) == "Keyboard at 0x1000 to 0x101f"
    with pytest.raises(HostError, match="Keyboard at 0x1000 to 0x101f is mapped already"):
        computer.map(keyboard, 0x2000)
    computer.unmap(0x1000)
    assert repr(keyboard) == "Keyboard (not mapped)"


def test_a_device_without_the_base_class_s_start_is_refused() -> None:
    class Sized(Device):
        def __init__(self) -> None:
            self.size = 8

    device = Sized()
    assert repr(device) == "Sized (not mapped)"
    with pytest.raises(HostError, match=r"its __init__ calls super\(\).__init__\(SIZE\)"):
        Computer().map(device, 0)


def test_a_core_that_waits_for_what_cannot_come_is_no_normal_end() -> None:
    assert loaded("hlt").run() is Stop.HALT
    assert loaded("sti\n hlt").run() is Stop.WAITS
    assert str(Stop.WAITS) == (
        "a core has halted until an interrupt, and nothing is left that could raise one"
    )


def test_a_core_that_waits_is_idle_up_to_the_time_that_a_run_names() -> None:
    computer = loaded("sti\n hlt")
    computer.at(9000, lambda: None)
    assert computer.run(until=4000) is Stop.TIME
    assert computer.now == 4000
    assert computer.run(until=20_000) is Stop.WAITS
    assert computer.now == 9000


def test_computers_that_run_together_say_it_too() -> None:
    machines = Machines()
    for name, text in (("left", "hlt"), ("right", "sti\n hlt")):
        computer = machines.computer(name)
        computer.map(Ram(0x1000), 0)
        computer.load(Program.assemble(text))
    assert machines.run() is Stop.WAITS


def test_reasons_are_sentences_and_all_different() -> None:
    assert len({str(one) for one in Stop}) == len(Stop)
    assert f"{Stop.HALT}" == str(Stop.HALT) == "all cores have halted, and no event is left"
    assert Stop.HALT == 1


def test_a_loop_ends_by_either_limit() -> None:
    computer = loaded("again: jmp again")
    assert computer.run(instructions=1000) is Stop.LIMIT
    assert computer.run(until=computer.now + 10**6) is Stop.TIME


@pytest.mark.parametrize("memory", [0x1000, 1])
def test_the_end_of_the_program_is_named_when_the_core_runs_past_it(memory: int) -> None:
    text = fault_of("nop", memory=memory)
    assert text.endswith("ran past the end of the program, 0x1: end it with hlt or a jump")


def test_a_fault_inside_the_program_has_no_such_advice() -> None:
    assert "ran past" not in fault_of("mov al, [0x900000]\n hlt")
    assert "ran past" not in fault_of("jmp 0x900000\n hlt")


@pytest.mark.parametrize("line", ["movdqa xmm0, [0x103]", "movdqa [0x103], xmm0"])
def test_an_address_that_is_not_aligned_is_named(line: str) -> None:
    text = fault_of(f"{line}\n hlt")
    assert "0x103 is not a multiple of 16, as this instruction needs it" in text


def test_a_pair_that_is_not_aligned_is_named() -> None:
    assert "0x108 is not a multiple of 16" in fault_of("cmpxchg16b [0x108]\n hlt")


@pytest.mark.parametrize("line", ["syscall", "sysretq"])
def test_a_system_call_without_set_up_says_what_is_missing(line: str) -> None:
    text = fault_of(line)
    assert "until WRMSR has set bit 0 of EFER (0xc0000080), and LSTAR (0xc0000082)" in text


@pytest.mark.parametrize("selector", [0, 3, 1])
def test_a_return_to_a_null_code_segment_is_a_protection_fault(selector: int) -> None:
    """SDM volume 2, IRET; of a selector without an index only the ring is left."""
    text = fault_of(
        f"mov rsp, 0x800\n push 0x10\n push 0x800\n push 2\n push {selector}\n push 0\n iretq"
    )
    assert "iretq: general protection fault (#GP): the CS of its frame, at RSP + 8, is nu" in text


def test_an_address_that_is_not_canonical_is_named() -> None:
    """With paging on, as the tables of four levels at 0x10000 have it."""
    computer = Computer()
    computer.map(Ram(1 << 20), 0)
    for at, entry in ((0x10000, 0x11003), (0x11000, 0x12003), (0x12000, 0x83)):
        computer.write(at, entry.to_bytes(8, "little"))
    on = "mov eax, 0x10000\n mov cr3, rax\n mov rax, 0x80000001\n mov cr0, rax\n"
    access = "mov rcx, 0x8000000000000000\n mov [rcx], rax\n hlt"
    computer.load(Program.assemble(on + access, 0x1000))
    with pytest.raises(ProcessorError, match="0x8000000000000000 is no canonical address"):
        computer.run()


def test_an_exception_without_a_table_says_so() -> None:
    text = fault_of("ud2")
    assert "no handler is set (see LIDT): no table of handlers was loaded" in text


def test_an_exception_of_ring_3_without_a_stack_for_ring_0_says_so() -> None:
    frame = "".join(f" push {each}\n" for each in (0x23, 0x7000, 2, 0x1B))
    text = f"mov rsp, 0x8000\n lidt [table]\n{frame} lea rax, [user]\n push rax\n iretq\nuser: hlt"
    with pytest.raises(ProcessorError, match="ring 0, whose stack is not set: WRMSR its address"):
        loaded(text + IDT).run()


def test_an_interrupt_without_a_handler_is_called_one() -> None:
    computer = loaded("mov rsp, 0x8000\n lidt [table]\n sti\n nop\n hlt" + IDT)
    keyboard = Keyboard(2, vector=60)
    computer.map(keyboard, 0x20000)
    keyboard.interrupt(60)
    with pytest.raises(ProcessorError) as caught:
        computer.run()
    table = computer.cores[0].registers.idt
    assert (
        "interrupt 60 came here, and no handler is set (see LIDT): entry 60 of the table at "
        in (str(caught.value))
    )
    assert f"{table:#x} is not present, or behind its end" in str(caught.value)
    assert caught.value.vector == 60


VALID = """
done: hlt
    align 16
idt: times 51 dq (done & 0xffff) | (8 << 16) | (0x8e << 40) | ((done >> 16) << 48), 0
table: dw 51 * 16 - 1
    dq idt
"""


@pytest.mark.parametrize(("stack", "top"), [("nop", 1 << 64), ("mov rsp, 0x50000f", 0x500000)])
@pytest.mark.parametrize(("cause", "event"), [
    ("ud2", "ud2: invalid opcode"), ("int 50", "int 50: software interrupt 50"),
    ("sti\n hlt\n nop", "nop: interrupt 50 came here"),
])  # fmt: skip
def test_a_stack_without_memory_is_named(cause: str, event: str, stack: str, top: int) -> None:
    """There is a handler, but the frame cannot be pushed."""
    computer = loaded(f"{stack}\n lidt [table]\n {cause}\n" + VALID)
    keyboard = Keyboard(2, vector=50)
    computer.map(keyboard, 0x20000)
    computer.at(10**6, lambda: keyboard.interrupt(50))
    with pytest.raises(ProcessorError) as caught:
        computer.run()
    text = str(caught.value)
    assert event in text
    assert f"pushing the frame to {top - 8:#x} failed: no memory is there: set rsp to" in text
    assert "handler" not in text


def test_a_table_that_ends_before_its_entry_is_named() -> None:
    """What would be the entry is present, behind the end of the table."""
    text = "mov rsp, 0x8000\n lidt [table]\n int 50\n" + VALID.replace("51 * 16 - 1", "50 * 16")
    assert "is behind its end, or its frame cannot be written below 0x8000" in fault_of(text)


def test_a_table_that_no_page_maps_is_named() -> None:
    """Paging is on, and its tables map nothing."""
    enter = "mov rsp, 0x8000\n lidt [table]\n mov eax, 0x4000\n mov cr3, rax\n"
    text = fault_of(enter + "mov rax, 0x80000001\n mov cr0, rax\n nop\n" + VALID)
    assert "(#PF)" in text
    assert "entry 14 of the table of handlers at" in text
    assert "cannot be read: no page is mapped there" in text


@pytest.mark.parametrize("by_steps", [False, True])
@pytest.mark.parametrize(("behind", "text"), [("", ""), ("\n cli", ": cli")])
def test_an_interrupt_that_ends_hlt_says_that_no_table_is_loaded(
    behind: str, text: str, by_steps: bool
) -> None:
    """And not that the core ran past the end of the program, or what bytes are there."""
    computer = loaded(f"mov rsp, 0x8000\n sti\n hlt{behind}")
    keyboard = Keyboard(2, vector=50)
    computer.map(keyboard, 0x20000)
    computer.at(10**6, lambda: keyboard.interrupt(50))
    with pytest.raises(ProcessorError) as caught:
        _ = list(computer.steps()) if by_steps else computer.run()
    assert str(caught.value) == (
        f"at 0x9, behind the hlt at 0x8{text}: interrupt 50 came here, and no handler is set "
        "(see LIDT): no table of handlers was loaded: let lidt load one, whose entry 50 leads to a "
        "handler"
    )


def test_an_interrupt_behind_the_end_of_a_program_without_hlt_says_so() -> None:
    """As does one that comes behind a byte that only looks like HLT."""
    computer = loaded("mov rsp, 0x8000\n sti\n mov al, 0xf4")
    keyboard = Keyboard(2, vector=50)
    computer.map(keyboard, 0x20000)
    keyboard.interrupt(50)
    computer.run(instructions=1)
    with pytest.raises(
        ProcessorError, match=r"interrupt 50 came here.*; the core ran past the end"
    ):
        computer.run()


@pytest.mark.parametrize("line", ["hlt", "cli", "in al, dx", "mov rax, cr3", "lidt [table]"])
def test_an_instruction_of_ring_0_says_so_in_ring_3(line: str) -> None:
    frame = "".join(f" push {each}\n" for each in (0x23, 0x7000, 2, 0x1B))
    text = f"mov rsp, 0x8000\n{frame} lea rax, [user]\n push rax\n iretq\nuser: {line}"
    assert "(#GP): only ring 0 may run this instruction" in fault_of(text + VALID)


def test_int_to_an_entry_of_ring_0_says_so_in_ring_3() -> None:
    frame = "".join(f" push {each}\n" for each in (0x23, 0x7000, 2, 0x1B))
    enter = f"mov rsp, 0x8000\n lidt [table]\n{frame} lea rax, [user]\n push rax\n iretq\n"
    text = fault_of(enter + "user: int 40" + VALID)
    assert "(#GP): entry 40 of the table of handlers is not for int in ring 3" in text


def test_an_interrupt_by_the_program_is_a_software_interrupt() -> None:
    assert "software interrupt 70, and no handler is set" in fault_of("int 70\n hlt")


def test_a_program_without_instructions_is_refused() -> None:
    with pytest.raises(HostError, match="the program has no instruction"):
        loaded("; only a comment")


def test_a_fault_among_several_computers_names_the_computer() -> None:
    machines = Machines()
    for name, text in (("left", "hlt"), ("right", "ud2")):
        computer = machines.computer(name)
        computer.map(Ram(0x1000), 0)
        computer.load(Program.assemble(text))
    with pytest.raises(ProcessorError, match="computer 'right', core 0: at 0x0: ud2") as caught:
        machines.run()
    assert (caught.value.address, caught.value.vector) == (0, 6)


def test_what_a_device_refuses_names_the_instruction() -> None:
    computer = loaded("nop\n mov rax, [0x20000]\n hlt")
    computer.map(Device(8), 0x20000)
    with pytest.raises(HostError) as caught:
        computer.run()
    assert str(caught.value) == (
        "at 0x1: mov rax, [0x20000]: Device at 0x20000 to 0x20007 has nothing to read at offset 0x0"
    )
