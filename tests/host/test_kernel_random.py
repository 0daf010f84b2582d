# SPDX-License-Identifier: Apache-2.0
"""Random mixes of system calls, keys, frames and faults: the kernel itself never faults, no cycle
and no buffer is lost, and every interrupt is seen or merged."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.host.kernel_programs import call, check_conservation, count_to, leave
from tests.host.test_kernel_sockets import check_buffers
from verbena.host import Program
from verbena.host.kernel import CALLS, USER_BASE, ProcessState, System, user_program

DATA = "\n    align 4096\nbuffer: times 256 dq 0x0102030405060708\n"
Arguments = st.SearchStrategy[int] | st.SearchStrategy[int | str]
POINTERS: st.SearchStrategy[int | str] = st.sampled_from(
    ["buffer", "buffer + 1000", "buffer + 2040", "rsp", 0, 0x8000, 0x40000000, 0x4000D000, -5]
)
SIZES = st.sampled_from([0, 1, 7, 64, 500, 1492, 1493, 2048, 1 << 33, -1])
PORTS = st.sampled_from([0, 7, 8000, 65535, 65536])
SOCKETS = st.integers(-1, 4)
SMALL = st.integers(0, 3)


def made(name: str, *arguments: Arguments) -> st.SearchStrategy[str]:
    return st.tuples(*arguments).map(lambda values: call(name, *values))


CALLING = st.one_of(
    made("write", POINTERS, SIZES.filter(lambda size: abs(size) < 600)),
    made("read", POINTERS, SIZES),
    made("yield"),
    made("getpid"),
    made("time"),
    made("sleep", st.sampled_from([0, 1, 30, 200, 1 << 40])),
    made("disk_read", st.integers(0, 10), POINTERS, SMALL),
    made("disk_write", st.integers(0, 10), POINTERS, SMALL),
    made("bind", PORTS),
    made("send_to", SOCKETS, POINTERS, SIZES, SMALL, PORTS),
    made("receive_from", SOCKETS, POINTERS, SIZES, POINTERS, st.just(1)),
    made("receive_from", SOCKETS, POINTERS, SIZES, st.just(0), SMALL),
    made("close", SOCKETS),
)
OTHER = st.sampled_from(
    [
        "    mov ebx, 3000\n.loop: dec ebx\n    jnz .loop\n",
        "    mov eax, 999\n    syscall\n",
        "    std\n",
        "    mov rsp, 5\n",
        "    mov rax, [buffer + 4096 * 20]\n",
        "    push 0x40000000\n    ret\n",
        "    ud2\n",
        "    xor eax, eax\n    syscall\n",
    ]
)
LINES = st.lists(st.one_of(CALLING, CALLING, CALLING, CALLING, OTHER), max_size=12)


def program(lines: list[str]) -> str:
    """``.loop`` has a name of its own in each line that has it."""
    text = "".join(line.replace(".loop", f"loop{at}") for at, line in enumerate(lines))
    return text + "    xor eax, eax\n    syscall\n" + DATA


FRAME = bytes.fromhex("020000000001 020000000002 88b5 0007 1f40 000c 0000") + b"four" + bytes(30)
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 600),
        st.one_of(st.text("ab\n", min_size=1, max_size=3), st.just(FRAME), st.binary(min_size=14)),
    ),
    max_size=10,
)


@settings(
    max_examples=40,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    programs=st.lists(LINES.map(program), min_size=1, max_size=4),
    events=EVENTS,
    disk_by=st.sampled_from(["dma", "pio"]),
    apic=st.booleans(),
)
def test_no_mix_of_calls_breaks_the_kernel(
    programs: list[str], events: list[tuple[int, str | bytes]], disk_by: str, apic: bool
) -> None:
    system = System(
        disk=bytes(range(256)) * 20, adapter=True, tick_us=15, disk_by=disk_by, receive_buffer=3,
        apic=apic,
    )  # fmt: skip
    adapter = system.adapter
    assert adapter is not None
    for us, what in events:
        if isinstance(what, str):
            system.computer.at(us * 1_000_000, lambda keys=what: system.keyboard.press(keys))  # type: ignore[misc]
        else:
            system.computer.at(us * 1_000_000, lambda frame=what: adapter.arrive(frame))  # type: ignore[misc]
    processes = [system.start(user_program(text)) for text in programs]
    for us in (90, 410, 3000):
        system.advance(us)
        check_conservation(system)
    begins_again = any("    ret\n" in text for text in programs)
    for process in processes:
        assert set(process.calls) <= {one.name for one in CALLS} | {"unknown"}
        if process.has_ended or begins_again:
            continue
        assert process.state is ProcessState.BLOCKED
        assert process.waits_for is not None
        assert process.waits_for.startswith(("a key", "a datagram at port"))
    if all(one.has_ended for one in processes):
        check_buffers(system)


# What a process might try; N is a number, R a register.
TRIES = """
syscall / mov eax, 1 / mov eax, 11 / mov R, N / mov R, [R] / mov [R], R / push R / pop R / push N
xchg rsp, R / mov rsp, N / jmp R / call R / ret / iretq / sysretq / swapgs / hlt / cli / sti / popfq
pushfq / int 3 / int 32 / int 46 / int 128 / int 14 / in al, dx / out dx, eax / mov cr3, R / ud2
mov R, cr0 / mov cr0, R / rdmsr / wrmsr / lidt [R] / invlpg [R] / clflush [R] / rdtsc / cpuid / std
rep movsb / rep stosq / repne scasb / lock cmpxchg16b [R] / movaps xmm0, [R] / movups [R], xmm1
div ecx / mov qword ptr [0x8000], 5 / mov R, fs:[N] / mov R, gs:[R] / bts R, R / add R, N / nop
"""
NUMBERS = (0, 1, 0x2B, 0x33, 0x1000, 0x8000, 0xC000, 0x40000000, 0x40000100, 0x4000F000, 0x7FFFFFFF)
REGISTERS = ("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r10", "r11", "r15")


def tries(random: Random) -> Program:
    """Either of these lines, or of random bytes."""
    if random.random() < 0.3:
        return Program(random.randbytes(random.randrange(1, 200)), USER_BASE)
    choices = [one.strip() for line in TRIES.splitlines() for one in line.split("/") if one.strip()]
    lines = []
    for _ in range(random.randrange(1, 40)):
        line = random.choice(choices)
        while "R" in line:
            line = line.replace("R", random.choice(REGISTERS), 1)
        lines.append(line.replace("N", str(random.choice(NUMBERS))))
    return user_program("\n".join(lines))


@pytest.mark.parametrize("seed", range(12))
def test_no_instruction_of_a_process_breaks_the_kernel(seed: int) -> None:
    random = Random(seed)
    system = System(disk=bytes(4096), adapter=True, tick_us=10)
    for _ in range(3):
        honest = system.start(count_to(2000) + leave(5))
        processes = [system.start(tries(random)) for _ in range(11)]
        system.keyboard.press("keys")
        system.advance(500)
        check_conservation(system)
        assert honest.exit_status == 5
        assert any(one.has_ended for one in processes)
        system = system if all(one.has_ended for one in processes) else System(tick_us=10)
