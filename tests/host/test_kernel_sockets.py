# SPDX-License-Identifier: Apache-2.0
"""The kernel's sockets and adapter driver: datagrams in a computer and between two, and losses."""

from __future__ import annotations

from random import Random

import pytest

from tests.host.kernel_programs import SPIN, call, check_conservation, leave, qwords
from verbena.host import Cable, Machines, Pcie
from verbena.host.kernel import Process, System, error_name, run_systems
from verbena.host.kernel.layout import POOL_COUNT, RING_COUNT, SOCKET_COUNT, SOCKET_SIZE, SOCKETS

DATA = """
    align 4096
count: dq 0
sizes: dq 0
sender: dq 0, 0
buffer: times 256 dq 0
text: times 256 dq 0x6867666564636261
"""


def bind(port: int) -> str:
    return call("bind", port) + "    mov r12, rax\n"


def receiver(port: int, *, pause_us: int = 0, work: int = 0) -> str:
    """Receives for ever, with so many steps of work after each datagram; counts."""
    pause = call("sleep", pause_us) if pause_us else ""
    labour = f"    mov ebx, {work}\nworking: dec ebx\n    jnz working\n" if work else ""
    return (
        bind(port) + pause + "again:\n" + call("receive_from", "r12", "buffer", 2048, "sender", 0)
        + "    add [sizes], rax\n    inc qword ptr [count]\n" + labour + "    jmp again\n" + DATA
    )  # fmt: skip


def sender(count: int, size: int, host: int, port: int, *, own: int = 0) -> str:
    send = call("send_to", "r12", "text", size, host, port)
    loop = f"    mov ebx, {count}\nagain:\n{send}    dec ebx\n    jnz again\n"
    return bind(own) + loop + leave("rax") + DATA


def pair(gbps: float = 1.0, pcie: Pcie | None = None, **settings: int) -> tuple[System, System]:
    machines = Machines(lookahead_ns=500)
    left = System(machines=machines, name="left", adapter=True, host=1, pcie=pcie, **settings)  # type: ignore[arg-type]
    right = System(machines=machines, name="right", adapter=True, host=2, pcie=pcie, **settings)  # type: ignore[arg-type]
    assert left.adapter is not None
    assert right.adapter is not None
    Cable(left.adapter, right.adapter, gbps=gbps)
    return left, right


def check_buffers(system: System) -> None:
    """No buffer is lost: each is free, in the ring, on its way out, or in a socket."""
    kernel, table = system.kernel, system.kernel.tables
    held = sum(table.read(SOCKETS + SOCKET_SIZE * number + 32) for number in range(SOCKET_COUNT))
    on_their_way = kernel.variable("frames_sent") - kernel.variable("frames_reclaimed")
    ring = RING_COUNT if system.adapter is not None else 0
    assert kernel.variable("pool_free") + held + on_their_way + ring == POOL_COUNT


def test_a_question_and_its_answer_between_two_computers() -> None:
    left, right = pair()
    asks = (
        bind(5000) + "    mov dword ptr [text], 0x79656b\n"
        + call("send_to", "r12", "text", 3, 2, 53)
        + call("receive_from", "r12", "buffer", 100, "sender", 0) + leave("rax") + DATA
    )  # fmt: skip
    answers = (
        bind(53) + call("receive_from", "r12", "buffer", 100, "sender", 0)
        + "    lea r13, [rax+4]\n    mov dword ptr [buffer+3], 0x65756c\n"
        + call("send_to", "r12", "buffer", "r13", "[sender]", "[sender+8]") + leave("rax") + DATA
    )  # fmt: skip
    asking, answering = left.start(asks), right.start(answers)
    run_systems(left, right)
    assert (asking.exit_status, answering.exit_status) == (7, 7)
    assert asking.read(asking.program.labels["buffer"], 7) == b"keylue\0"
    assert qwords(asking, "sender", 2) == [2, 53]
    assert qwords(answering, "sender", 2) == [1, 5000]
    for system in (left, right):
        check_conservation(system)
        check_buffers(system)


def test_datagrams_beyond_the_receive_buffer_are_dropped_and_counted() -> None:
    left, right = pair(receive_buffer=4)
    late = right.start(receiver(8000, pause_us=1000))
    sending = left.start(sender(50, 1000, 2, 8000))
    run_systems(left, right)
    assert sending.exit_status == 1000
    assert qwords(late, "count") == [4]
    assert (late.datagrams_dropped, right.kernel.variable("datagrams_dropped")) == (46, 46)
    assert late.waits_for == "a datagram at port 8000"
    check_conservation(right)
    check_buffers(right)


def test_a_receiver_that_keeps_up_loses_nothing() -> None:
    left, right = pair()
    receiving = right.start(receiver(8000))
    left.start(sender(200, 1400, 2, 8000))
    run_systems(left, right)
    assert qwords(receiving, "count") + qwords(receiving, "sizes") == [200, 200 * 1400]
    assert receiving.datagrams_dropped == 0


def test_a_sender_sleeps_while_the_ring_is_full() -> None:
    left, right = pair(gbps=10.0, pcie=Pcie(generation=1, lanes=1, round_trip_ns=20_000))
    receiving = right.start(receiver(8000))
    sending = left.start(sender(200, 1400, 2, 8000))
    run_systems(left, right)
    assert qwords(receiving, "count") == [200]
    assert sending.switches > 5
    assert left.kernel.cycles.idle > 0.5 * left.kernel.elapsed_cycles
    check_conservation(left)
    check_buffers(left)


def test_two_processes_of_a_computer_exchange_datagrams_without_an_adapter() -> None:
    system = System(host=9)
    receiving = system.start(receiver(8000))
    [sending] = system.run(sender(30, 100, 9, 8000, own=77))
    assert sending.exit_status == 100
    assert qwords(receiving, "count")[0] + receiving.datagrams_dropped == 30
    assert qwords(receiving, "sender", 2) == [9, 77]
    check_conservation(system)
    check_buffers(system)


def share_under_a_flood(port: int, budget: int) -> tuple[float, System]:
    """Of a process that computes, beside one that receives at port 8000, while 17 frames come in
    each microsecond."""
    system = System(adapter=True, host=2, budget=budget, tick_us=20, pcie=Pcie(round_trip_ns=100))
    computing = system.start(SPIN)
    system.start(receiver(8000))
    adapter = system.adapter
    assert adapter is not None
    system.advance(100)
    frame = bytes.fromhex(f"020000000002 020000000001 88b5 0bb8 {port:04x} 0010 0000") + bytes(38)
    start = system.computer.now
    for number in range(5000):
        system.computer.at(start + number * 60_000, lambda: adapter.arrive(frame))
    before, cycles = computing.cycles.user, system.kernel.elapsed_cycles
    system.advance(300)
    check_conservation(system)
    share = (computing.cycles.user - before) / (system.kernel.elapsed_cycles - cycles)
    system.advance(200)  # no more frames come, and no poll is under way
    check_buffers(system)
    return share, system


def test_a_budget_of_frames_in_a_tick_leaves_the_processor_to_the_processes() -> None:
    """To one of two, or to the only one that can run if nobody wants the frames."""
    for port, least in ((8000, 0.4), (8001, 0.9)):
        share, system = share_under_a_flood(port, budget=8)
        assert share > least
        assert system.kernel.variable("budgets_spent") > 10
        assert system.adapter is not None
        assert system.adapter.dropped > 3000  # there it costs the processor nothing
        assert system.adapter.interrupts < 50


def test_without_a_budget_frames_take_the_processor() -> None:
    share, _ = share_under_a_flood(8001, budget=1_000_000)
    assert share < 0.1


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (call("bind", 65536), "EINVAL"),
        (call("bind", 8000), "EADDRINUSE"),
        (call("send_to", 0, "text", 1493, 1, 8000), "EMSGSIZE"),
        (call("send_to", 0, "text", 10, 1, 0), "EINVAL"),
        (call("send_to", 0, "text", 10, 1, 65536), "EINVAL"),
        (call("send_to", 0, "text", 10, 0, 8000), "EINVAL"),
        (call("send_to", 0, "text", 10, 1 << 32, 8000), "EINVAL"),
        (call("send_to", 0, "text", 10, 2, 8000), "ENETUNREACH"),
        (call("send_to", 5, "text", 10, 1, 8000), "EBADF"),
        (call("send_to", 16, "text", 10, 1, 8000), "EBADF"),
        (call("send_to", -1, "text", 10, 1, 8000), "EBADF"),
        (call("receive_from", 1, "buffer", 10, 0, 1), "EBADF"),
        (call("receive_from", 0, "buffer", 10, 0, 1), "EAGAIN"),
        (call("receive_from", 0, "buffer", 10, 8, 1), "EFAULT"),
        (call("close", 1), "EBADF"),
        (call("close", 0) + call("close", 0), "EBADF"),
    ],
)
def test_calls_of_sockets_that_cannot_be_are_error_values(text: str, error: str) -> None:
    system = System()
    [process] = system.run(call("bind", 8000) + text + leave("rax") + DATA)
    assert error_name(process.exit_status or 0) == error
    check_buffers(system)


def test_a_socket_belongs_to_its_process() -> None:
    system = System()
    system.start(receiver(8000))
    [process] = system.run(call("close", 0) + leave("rax"))
    assert error_name(process.exit_status or 0) == "EBADF"


def test_there_are_sixteen_sockets_and_an_end_gives_them_back() -> None:
    system = System()
    text = (
        "    mov ebx, 17\nagain:\n"
        + call("bind", 0)
        + "    dec ebx\n    jnz again\n"
        + leave("rax")
    )
    for _ in range(2):
        [process] = system.run(text)
        assert error_name(process.exit_status or 0) == "ENOBUFS"


def test_a_datagram_for_nobody_is_counted() -> None:
    left, right = pair()
    left.start(sender(3, 10, 2, 4242))
    left.start(sender(2, 10, 7, 4242))
    run_systems(left, right)
    assert right.kernel.variable("datagrams_without_port") == 3
    assert right.kernel.variable("frames_ignored") == 2
    check_buffers(right)


def test_a_datagram_longer_than_the_buffer_loses_its_end() -> None:
    system = System()
    text = (
        bind(8000) + call("send_to", "r12", "text", 20, 1, 8000)
        + call("receive_from", "r12", "buffer", 6, 0, 0) + leave("rax") + DATA
    )  # fmt: skip
    [process] = system.run(text)
    assert process.exit_status == 6
    assert process.read(process.program.labels["buffer"], 8) == b"abcdef\0\0"


def test_the_direction_flag_of_a_process_is_not_that_of_the_kernel() -> None:
    system = System()
    text = (
        bind(8000) + "    std\n" + call("send_to", "r12", "text", 20, 1, 8000)
        + call("receive_from", "r12", "buffer", 20, 0, 0)
        + "    pushfq\n    pop rdi\n    and edi, 0x400\n" + leave("rdi") + DATA
    )  # fmt: skip
    [process] = system.run(text)
    assert process.exit_status == 0x400
    assert process.read(process.program.labels["buffer"], 20) == b"abcdefghabcdefghabcd"


def buffers_used_up(process: Process) -> bool:
    return error_name(process.exit_status or 0) == "ENOBUFS"


def test_a_process_can_use_up_the_buffers_and_they_come_back() -> None:
    system = System(receive_buffer=100)
    text = (
        bind(8000) + "again:\n" + call("send_to", "r12", "text", 20, 1, 8000)
        + "    cmp rax, 20\n    je again\n" + leave("rax") + DATA
    )  # fmt: skip
    [first] = system.run(text)
    assert buffers_used_up(first)
    assert system.kernel.variable("datagrams_received") == POOL_COUNT
    check_buffers(system)
    [second] = system.run(text)
    assert buffers_used_up(second)


def test_frames_of_any_bytes_do_no_harm() -> None:
    """Lengths that lie, other hosts and types, the shortest and the longest frame."""
    _, right = pair()
    receiving = right.start(receiver(8000))
    right.run()
    random, adapter = Random(4), right.adapter
    assert adapter is not None
    head = bytes.fromhex("020000000002 020000000001 88b5 0bb8 1f40")
    start, count = right.computer.now, 300
    for number in range(count):
        frame = bytearray(
            head
            + random.choice([b"\0\x08", random.randbytes(2)])
            + bytes(random.choice([0, 2, 40, 1400, 8990]))
        )
        if random.random() < 0.3:
            frame[random.randrange(len(frame))] = random.randrange(256)
        if random.random() < 0.2:
            frame = bytearray(random.randbytes(random.choice([14, 15, 21, 22, 9014])))
        right.computer.at(start + number * 20_000_000, lambda one=bytes(frame): adapter.arrive(one))  # type: ignore[misc]
    right.run()
    kernel = right.kernel
    seen = ("frames_ignored", "datagrams_without_port", "datagrams_received")
    assert sum(kernel.variable(name) for name in seen) == count
    assert kernel.variable("datagrams_received") == qwords(receiving, "count")[0] > 40
    check_conservation(right)
    check_buffers(right)
