# SPDX-License-Identifier: Apache-2.0
"""What a kernel says of processes that halt, fault or loop, and of hosts that nobody reaches."""

from __future__ import annotations

import pytest

from verbena.host import Cable, HostError, Machines, Program
from verbena.host.kernel import USER_BASE, Process, System, run_systems

EXIT = "mov eax, SYS_EXIT\n xor edi, edi\n syscall"


def ended(program: str | Program) -> Process:
    [process] = System().run(program)
    assert process.report is not None
    return process


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("hlt", "0x40000000: hlt: general protection fault (#GP): only the kernel may halt, and a "
         "process ends by SYS_EXIT"),
        (Program(b"\xf4", USER_BASE), "0x40000000: hlt: general protection fault (#GP): only the "
         "kernel may halt, and a process ends by SYS_EXIT"),
        (Program(b"\x90\x0f\xff\x01\x02\x03", USER_BASE), "0x40000001: 0f ff 01 02: invalid "
         "opcode (#UD): the instruction is not one of the subset"),
        ("cli", "0x40000000: cli: general protection fault (#GP): only the kernel may do this"),
        ("mov rax, cr0", "0x40000000: mov rax, cr0: general protection fault (#GP): only the "
         "kernel may do this"),
        ("mov rax, 0x8000000000000000\n mov [rax], rax", "0x4000000a: mov [rax], rax: general "
         "protection fault (#GP): an address of it is no canonical address, whose bits 47 to 63 "
         "are all alike"),
        ("movdqa xmm0, [rsp+8]", "0x40000000: movdqa xmm0, [rsp+8]: general protection fault "
         "(#GP): an address of it is no canonical address, whose bits 47 to 63 are all alike, or "
         "is not aligned as the instruction needs it"),
        ("push 0\n push 0\n push 0\n push 8\n push 0\n iretq", "0x4000000a: iretq: general "
         "protection fault (#GP): the CS of its frame is null or of ring 0"),
        ("xor ecx, ecx\n div rcx", "0x40000002: div rcx: divide error (#DE): it divided by 0, or "
         "the quotient is too large"),
        ("xor eax, eax", "0x40000002: add byte ptr [rax], al: page fault (#PF): it ran past the "
         "end of the program, 0x40000002: end it with SYS_EXIT"),
        (f"mov eax, {USER_BASE:#x}", "0x4000dfff: add byte ptr [rax], al: page fault (#PF): it ran "
         "past the end of the program, 0x40000005: end it with SYS_EXIT"),
        ("nop\n int3\n ud2", "0x40000001: int3: breakpoint (#BP)"),
        ("nop\n int 3\n ud2", "0x40000001: int 3: breakpoint (#BP)"),
        ("jmp 0x70000000", "0x70000000: no memory: page fault (#PF): it executed 0x70000000, where "
         "it has no memory"),
    ],
)  # fmt: skip
def test_the_end_of_a_process_has_address_instruction_and_advice(
    program: str | Program, says: str
) -> None:
    assert ended(program).report == f"process 1 was ended at {says}"


def test_a_process_that_faulted_shows_it() -> None:
    assert repr(ended("ud2")) == "<process 1: faulted, invalid opcode (#UD) at 0x40000000: ud2>"


def test_a_process_that_faulted_at_a_breakpoint_shows_it() -> None:
    text = repr(ended("nop\n int 3"))
    assert text == "<process 1: faulted, breakpoint (#BP) at 0x40000001: int 3>"


def test_a_process_that_faulted_shows_it_when_its_memory_is_another_s() -> None:
    system = System()
    [first] = system.run(Program(b"\x90\xf4", USER_BASE))
    for _ in range(20):
        system.run(EXIT)
    assert not first.is_in_table
    assert "at 0x40000001: hlt: general" in str(first.report)


def test_a_loop_of_bytes_is_named_by_its_instruction() -> None:
    with pytest.raises(HostError, match="still runs process 1 at 0x40000000: jmp 0x40000000 "):
        System().run(Program(b"\xeb\xfe", USER_BASE), limit_us=300)


def pair(left: int, right: int, *, cable: bool) -> tuple[System, System]:
    machines = Machines(lookahead_ns=500)
    systems = [
        System(machines=machines, name=name, adapter=True, host=host)
        for name, host in (("left", left), ("right", right))
    ]
    if cable:
        Cable(systems[0].adapter, systems[1].adapter, delay_ns=500)
    return systems[0], systems[1]


def test_two_hosts_with_one_number_are_refused() -> None:
    with pytest.raises(HostError, match=r"left and right are both host 3.*System\(host=4\)"):
        run_systems(*pair(3, 3, cable=True))


def test_a_host_without_a_cable_is_refused() -> None:
    with pytest.raises(HostError, match=r"the adapter of left has no cable.*Cable\("):
        run_systems(*pair(1, 2, cable=False))


def test_a_system_alone_whose_adapter_has_no_cable_is_refused() -> None:
    system = System(adapter=True, name="left")
    with pytest.raises(HostError, match=r"the adapter of left has no cable.*Cable\("):
        run_systems(system)
    with pytest.raises(HostError, match="has no cable"):
        system.run(EXIT)


def test_hosts_with_numbers_and_a_cable_run() -> None:
    left, right = pair(1, 2, cable=True)
    process = left.start(EXIT)
    run_systems(left, right)
    assert process.exit_status == 0


def test_systems_without_adapters_may_have_one_number() -> None:
    machines = Machines(lookahead_ns=500)
    systems = [System(machines=machines, name=name) for name in ("left", "right")]
    process = systems[1].start(EXIT)
    run_systems(*systems)
    assert process.exit_status == 0


def test_a_cable_shorter_than_the_lookahead_is_refused() -> None:
    machines = Machines(lookahead_ns=500)
    left, right = (System(machines=machines, name=name, adapter=True) for name in ("a", "b"))
    with pytest.raises(HostError, match=r"a link of 100 ns.*Machines\(lookahead_ns=100\)"):
        Cable(left.adapter, right.adapter, delay_ns=100)
    assert left.adapter.cable is None
    Cable(left.adapter, right.adapter, delay_ns=500)
