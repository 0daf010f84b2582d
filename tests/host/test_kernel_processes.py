# SPDX-License-Identifier: Apache-2.0
"""Processes of the kernel in machine code: system calls, time slices, isolation, what ends them."""

from __future__ import annotations

import pytest

from tests.host.kernel_programs import SPIN, call, check_conservation, count_to, leave, qwords
from verbena.host import Computer, Display, HostError, Keyboard, Program, Ram, Timer
from verbena.host.kernel import (
    CALLS,
    USER_BASE,
    Kernel,
    ProcessState,
    System,
    error_name,
    user_program,
)

HELLO = call("write", "text", 6) + leave(7) + "text: db 'hello', 10"


def test_a_process_writes_to_the_display_and_exits() -> None:
    system = System()
    [process] = system.run(HELLO)
    assert str(system.display) == "hello"
    assert (process.state, process.exit_status) == (ProcessState.EXITED, 7)
    assert process.calls == {"exit": 1, "write": 1}
    check_conservation(system)


def test_a_call_changes_no_register_but_its_result_rcx_and_r11() -> None:
    kept = ("rbx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r12", "r13", "r14", "r15")
    text = "\n".join(f"    mov {name}, {place + 5}" for place, name in enumerate(kept))
    text += (
        "\n    mov eax, SYS_GETPID\n    stc\n    syscall\n    setc [carry]\n    mov [out], rax\n"
    )
    text += "\n".join(f"    mov [out+{8 * place + 8}], {name}" for place, name in enumerate(kept))
    text += "\n" + leave() + "    align 4096\nout: times 13 dq 0\ncarry: dq 0"
    system = System()
    [process] = system.run(text)
    assert qwords(process, "out", 13) == [process.pid, *range(5, 17)]
    assert qwords(process, "carry") == [1]


def test_processes_share_the_processor_by_time_slices() -> None:
    system = System(tick_us=20)
    processes = [system.start(SPIN) for _ in range(3)]
    system.advance(3000)  # 150 slices
    slice_cycles = 20 * 3000
    used = [one.cycles.user for one in processes]
    assert max(used) - min(used) <= slice_cycles
    assert sum(used) > 0.97 * system.kernel.elapsed_cycles
    assert all(49 <= one.switches <= 51 for one in processes)
    check_conservation(system)


def test_the_way_to_a_switch_is_on_the_account_of_who_leaves() -> None:
    system = System()
    [process] = system.run(leave())
    assert 150 < process.cycles.system < 500  # it closed its sockets and looked who comes next
    assert process.cycles.user < 60


def test_no_interrupt_comes_between_a_call_and_the_kernels_stack() -> None:
    """A tick each microsecond would find ring 0 on the process's stack, which is none here."""
    system = System(tick_us=1)
    text = "    mov rsp, 5\n    mov ebx, 20000\nagain:\n" + call("getpid")
    [process] = system.run(text + "    dec ebx\n    jnz again\n" + leave(6))
    assert process.exit_status == 6
    assert system.kernel.variable("ticks") > 500
    check_conservation(system)


def test_a_process_that_gives_way_gets_less_and_the_other_more() -> None:
    system = System()
    polite = system.start("again:" + call("yield") + "    jmp again", name="polite")
    greedy = system.start(SPIN, name="greedy")
    system.advance(2000)
    assert polite.cycles.user < 0.01 * greedy.cycles.user
    assert polite.calls["yield"] in (19, 20, 21)


def test_an_endless_loop_does_not_stop_the_others() -> None:
    system = System()
    system.start("nop\nnop\nagain: jmp again", name="spinner")
    with pytest.raises(
        HostError, match=r"5,000 us .* process 1 \(spinner\) at 0x40000002: again: jmp again"
    ):
        system.run(HELLO, HELLO, limit_us=5000)
    assert str(system.display) == "hello\nhello"
    assert [one.exit_status for one in system.kernel.processes] == [None, 7, 7]


def test_each_process_has_its_own_memory_at_the_same_addresses() -> None:
    def program(value: int) -> str:
        return (
            f"    mov qword ptr [mine], {value}\n    mov ebx, 50\nagain:\n{call('yield')}"
            f"    cmp qword ptr [mine], {value}\n    jne differs\n    dec ebx\n    jnz again\n"
            f"{leave(value)}differs:{leave(-1)}    align 4096\nmine: dq 0\n"
        )

    system = System()
    processes = system.run(*(program(value) for value in range(10, 24)))
    assert [one.exit_status for one in processes] == list(range(10, 24))
    check_conservation(system)


def test_a_switch_saves_the_xmm_registers() -> None:
    def program(value: int) -> str:
        load = "".join(
            f"    mov qword ptr [mine], {value + n}\n    movups xmm{n}, [mine]\n" for n in range(16)
        )
        check = "".join(
            f"    movups [mine], xmm{n}\n    cmp qword ptr [mine], {value + n}\n    jne differs\n"
            for n in range(16)
        )
        return (
            f"{load}    mov ebx, 5\nagain:\n{call('yield')}{check}    dec ebx\n    jnz again\n"
            f"{leave(value)}differs:{leave(-1)}    align 4096\nmine: dq 0, 0\n"
        )

    system = System()
    processes = system.run(*(program(100 * number) for number in range(1, 4)))
    assert [one.exit_status for one in processes] == [100, 200, 300]
    fresh = system.start("    movups [out], xmm7\n" + leave() + "out: dq 1, 1")
    system.run()
    assert qwords(fresh, "out", 2) == [0, 0]


FAULTS = {
    "mov rax, [0x8000]": "page fault (#PF): it read 0x8000, which belongs to the kernel",
    "mov byte ptr [0x1000], 1": "it wrote to 0x1000, which belongs to the kernel",
    "jmp 0x1000": "it executed 0x1000, which belongs to the kernel",
    "mov rax, [0x10000000]": "it read 0x10000000, which belongs to the kernel",
    "mov rax, [0]": "it read 0x0, where it has no memory",
    "mov rax, [0x40100000]": "it read 0x40100000, where it has no memory",
    "mov rax, -8\n jmp rax": "it executed 0xfffffffffffffff8, where it has no memory",
    "lea rax, [rsp-8]\n jmp rax": "which belongs to its stack",
    "deep: push rax\n jmp deep": "right below its stack, which has overflowed",
    "cli": "general protection fault (#GP)",
    "hlt": "general protection fault (#GP)",
    "mov cr3, rax": "general protection fault (#GP)",
    "mov ecx, 0x175\n wrmsr": "general protection fault (#GP)",
    "in al, 0x60": "general protection fault (#GP)",
    "swapgs": "general protection fault (#GP)",
    "sysretq": "general protection fault (#GP)",
    "int 0x80": "general protection fault (#GP)",
    "int 14": "general protection fault (#GP)",
    "int 33": "general protection fault (#GP)",
    "xor ecx, ecx\n div ecx": "divide error (#DE)",
    "ud2": "invalid opcode (#UD)",
    "int3": "breakpoint (#BP)",
    "pushfq\n or dword ptr [rsp], 0x100\n popfq\n nop": "debug exception (#DB)",
    "mov eax, SYS_GETPID\n pushfq\n or dword ptr [rsp], 0x100\n popfq\n syscall\n nop": (
        "debug exception (#DB)"
    ),
    "push 0\n push 0\n push 0\n push 8\n push 0\n iretq": "general protection fault (#GP)",
}


@pytest.mark.parametrize("text", FAULTS)
def test_a_fault_ends_its_process_alone(text: str) -> None:
    system = System()
    other = system.start(count_to(1000) + leave(3))
    bad = system.start(text, name="bad")
    [behind] = system.run(HELLO)
    assert bad.state is ProcessState.FAULTED
    assert bad.exit_status is None
    assert bad.report is not None
    assert bad.report.startswith("process 2 (bad) was ended at 0x")
    assert FAULTS[text] in bad.report
    assert (other.exit_status, behind.exit_status) == (3, 7)
    check_conservation(system)


def test_an_unknown_call_is_an_error_value() -> None:
    text = "".join(
        f"    mov rax, {number}\n    syscall\n    mov [out+{8 * place}], rax\n"
        for place, number in enumerate((len(CALLS), 1 << 40, -1))
    )
    system = System()
    [process] = system.run(text + leave() + "out: dq 0, 0, 0")
    assert [error_name(value) for value in qwords(process, "out", 3)] == ["ENOSYS"] * 3
    assert process.calls == {"exit": 1, "unknown": 3}


BAD_POINTERS = (0, 0x8000, 0x10001000, USER_BASE - 1, USER_BASE + 0x1F_FFFF, 1 << 47, -1, -8,
                (1 << 48) + USER_BASE, (1 << 63) + USER_BASE)  # fmt: skip


@pytest.mark.parametrize("pointer", BAD_POINTERS)
@pytest.mark.parametrize("name", ["write", "read", "disk_read", "send_to", "receive_from"])
def test_a_bad_pointer_is_an_error_value(name: str, pointer: int) -> None:
    arguments: dict[str, tuple[int | str, ...]] = {
        "write": (pointer, 5),
        "read": (pointer, 5),
        "disk_read": (0, pointer, 1),
        "send_to": ("rbx", pointer, 5, 1, 9),
        "receive_from": ("rbx", pointer, 5, 0, 1),
    }
    system = System(disk=bytes(4096))
    text = call("bind", 9) + "    mov rbx, rax\n" + call(name, *arguments[name])
    [process] = system.run(text + leave("rax"))
    assert error_name(process.exit_status or 0) == "EFAULT"
    check_conservation(system)


def test_a_pointer_of_which_a_part_is_mapped_is_an_error_value() -> None:
    end_of_program = USER_BASE + (64 << 10) - 2 * 4096  # behind it is the page that is missing
    system = System()
    programs = [
        call("write", end_of_program - 4, size) + leave("rax") for size in (4, 5, 1 << 62, -1)
    ]
    results = [one.exit_status for one in system.run(*programs)]
    assert results[0] == 4
    assert [error_name(value or 0) for value in results[1:]] == ["EFAULT"] * 3


def test_a_process_reads_keys_and_waits_for_them() -> None:
    echo = (
        f"again:\n{call('read', 'text', 8)}    mov rbx, rax\n{call('write', 'text', 'rbx')}"
        "    cmp byte ptr [text], 'q'\n    jne again\n" + leave("rbx") + "text: dq 0\n"
    )
    system = System()
    [process] = system.run(echo)
    assert (process.state, process.waits_for) == (ProcessState.BLOCKED, "a key")
    system.keyboard.press("typing")
    system.run()
    assert str(system.display) == "typing"
    system.keyboard.press("quit")
    system.run()
    assert (process.exit_status, str(system.display)) == (4, "typingquit")
    check_conservation(system)


def test_a_process_asks_where_the_mouse_is() -> None:
    system = System()
    system.mouse.move(640, 480, 3)
    [process] = system.run(call("mouse") + leave("rax"))
    assert process.exit_status == 640 | 480 << 16 | 3 << 32
    kernel = Kernel(system_without_mouse())
    asks = kernel.start(call("mouse") + leave("rax"))
    kernel.computer.run()
    assert error_name(asks.exit_status or 0) == "ENODEV"


def system_without_mouse() -> Computer:
    computer = Computer()
    computer.map(Ram(4 << 20), 0)
    computer.map(Timer(), 0x1000_0000)
    return computer


def test_keys_that_nobody_takes_are_kept_up_to_a_limit() -> None:
    system = System()
    system.run(leave())
    system.keyboard.press("k" * 300)
    [process] = system.run(call("read", "text", 300) + leave("rax") + "text: times 40 dq 0")
    assert (process.exit_status, system.kernel.variable("keys_dropped")) == (256, 300 - 256)


def test_the_display_scrolls_and_wraps() -> None:
    line = "".join(f"row {number:03}\n" for number in range(30)) + "x" * 100
    system = System()
    system.run(
        call("write", "text", len(line))
        + leave()
        + f"text: db {','.join(str(ord(c)) for c in line)}"
    )
    rows = str(system.display).splitlines()
    assert rows == [*(f"row {number:03}" for number in range(7, 30)), "x" * 80, "x" * 20]


def test_sleep_takes_at_least_its_time_and_the_processor_idles() -> None:
    system = System(tick_us=50)
    text = (
        call("time") + "    mov rbx, rax\n" + call("sleep", 1000) + call("time")
        + "    sub rax, rbx\n" + leave("rax")
    )  # fmt: skip
    [process] = system.run(text)
    assert process.exit_status is not None
    assert 1000 <= process.exit_status <= 1051
    assert system.kernel.cycles.idle > 0.95 * system.kernel.elapsed_cycles
    check_conservation(system)


def test_a_sleep_beyond_the_limit_of_a_run_is_an_error_that_names_it() -> None:
    system = System()
    system.start(call("sleep", 50_000) + leave(), name="late")
    with pytest.raises(HostError, match=r"after 2,000 us there still runs process 1 \(late\)"):
        system.run(limit_us=2000)
    system.run()
    assert system.kernel.processes[0].exit_status == 0


def test_the_timer_stands_while_nothing_can_run() -> None:
    system = System()
    [process] = system.run(call("read", "text", 1) + leave() + "text: db 0")
    assert process.state is ProcessState.BLOCKED
    ticks = system.timer.ticks
    system.advance(10_000)
    assert system.timer.ticks == ticks


def test_time_passes_in_small_steps_too() -> None:
    system = System()
    [process] = system.run(call("read", "text", 1) + leave() + "text: db 0")
    assert process.state is ProcessState.BLOCKED
    began, events = system.computer.now, []
    system.computer.at(began + 3_000_000, lambda: events.append(system.computer.now - began))
    for _ in range(100):
        system.advance(0.05)
    assert system.computer.now - began == 5_000_000
    assert events == [3_000_000]
    check_conservation(system)


def test_cycles_are_conserved_wherever_a_run_stops() -> None:
    system = System(tick_us=10)
    system.start("again:" + call("getpid") + "    jmp again")
    system.start(count_to(20_000) + call("sleep", 15) + leave())
    for _ in range(300):
        system.computer.run(instructions=97)
        check_conservation(system)


def test_a_place_of_the_table_is_used_again() -> None:
    system = System()
    first = system.run(*[HELLO] * 15)
    for _ in range(15):
        system.start(SPIN)
    with pytest.raises(HostError, match="15 processes have not ended"):
        system.start(SPIN)
    assert [one.exit_status for one in first] == [7] * 15
    assert first[0].cycles.user > 0
    with pytest.raises(HostError, match="has ended"):
        first[0].read(USER_BASE, 1)
    system.advance(100)
    check_conservation(system)


def test_processes_that_ended_leave_their_memory() -> None:
    system = System(memory=2 << 20)
    for _ in range(40):
        [process] = system.run(leave(1))
        assert process.exit_status == 1
    check_conservation(system)
    with pytest.raises(HostError, match="no piece of 1,048,576 bytes left"):
        system.start(leave(), memory=1 << 20)


def test_programs_that_do_not_fit_are_refused() -> None:
    system = System()
    with pytest.raises(HostError, match="70,000 bytes, and the process has room for 57,344"):
        system.start(Program(bytes(70_000), USER_BASE))
    with pytest.raises(HostError, match="begins at 0x40000000, not at 0x0"):
        system.start(Program.assemble("nop"))
    with pytest.raises(HostError, match="2 MiB of memory"):
        system.start(leave(), memory=4 << 20)
    with pytest.raises(HostError, match="2 MiB of memory"):
        system.start(leave(), memory=8192)
    large = user_program(leave(5) + "    align 65536\n    nop\n    align 65536")
    assert system.start(large, memory=256 << 10).exit_status is None
    system.run()
    assert system.kernel.processes[-1].exit_status == 5


def test_a_computer_that_the_kernel_cannot_drive_is_refused() -> None:
    def computer(*devices: Timer | Keyboard | Display, memory: int = 4 << 20) -> Computer:
        made = Computer()
        made.map(Ram(memory), 0)
        for place, device in enumerate(devices):
            made.map(device, 0x1000_0000 + place * 0x10000)
        return made

    with pytest.raises(HostError, match="needs a Timer"):
        Kernel(computer(Keyboard()))
    with pytest.raises(HostError, match="drives one Display, and there are 2"):
        Kernel(computer(Timer(), Display(), Display()))
    with pytest.raises(HostError, match="vector 33: the kernel's devices have vectors of their"):
        Kernel(computer(Timer(vector=33), Keyboard(vector=33)))
    with pytest.raises(HostError, match="vectors of their own, 32 to 61"):
        Kernel(computer(Timer(vector=200)))
    with pytest.raises(HostError, match=r"1\.25 MiB"):
        Kernel(computer(Timer(), memory=1 << 20))
    with pytest.raises(HostError, match="'dma' or by 'pio'"):
        Kernel(computer(Timer()), disk_by="tape")
    with pytest.raises(HostError, match="cannot interrupt"):
        Kernel(computer(Timer(), Keyboard(1)))
    used = computer(Timer())
    used.load(Program.assemble("hlt"))
    used.run()
    with pytest.raises(HostError, match="a core that has run nothing yet"):
        Kernel(used)
    kernel = Kernel(computer(Timer()))
    process = kernel.start(call("write", USER_BASE, 4) + leave("rax"))
    kernel.computer.run()
    assert error_name(process.exit_status or 0) == "ENODEV"


def test_a_fault_of_the_kernel_is_an_error_with_its_place() -> None:
    system = System()
    system.kernel.tables.set(handlers=0)  # of the timer: no code is there
    with pytest.raises(HostError, match=r"kernel of 'system' has faulted at 0x0 .* vector 14"):
        system.run(SPIN, limit_us=1000)


def test_a_program_without_an_instruction_is_refused() -> None:
    with pytest.raises(HostError, match="the program has no instruction"):
        System().run("")
