# SPDX-License-Identifier: Apache-2.0
"""The kernel's disk driver: word by word and by DMA, its queue, and requests that cannot be."""

from __future__ import annotations

from random import Random

import pytest

from tests.host.kernel_programs import (
    SPIN,
    call,
    check_conservation,
    leave,
    qwords,
    unseen_interrupts,
)
from verbena.host import Disk
from verbena.host.kernel import Process, ProcessState, System, error_name

BLOCK = 512
CONTENT = Random(3).randbytes(256 * BLOCK)
BUFFER = "\n    align 4096\nbuffer: times 2048 dq 0\n"


def reader(first: int, blocks: int) -> str:
    return call("disk_read", first, "buffer", blocks) + leave("rax") + BUFFER


def content_of(process: Process, size: int) -> bytes:
    return process.read(process.program.labels["buffer"], size)


@pytest.mark.parametrize("by", ["dma", "pio"])
def test_a_process_reads_blocks_and_sleeps_meanwhile(by: str) -> None:
    system = System(disk=CONTENT, disk_by=by)
    [process] = system.run(reader(5, 16))
    assert process.exit_status == 16
    assert content_of(process, 16 * BLOCK) == CONTENT[5 * BLOCK : 21 * BLOCK]
    assert content_of(process, 16 * BLOCK + 8)[-8:] == bytes(8)
    check_conservation(system)


def test_an_interrupt_on_the_bus_is_on_its_way_and_not_lost() -> None:
    system = System(disk=CONTENT, disk_by="dma")
    process = system.start(reader(5, 1))
    on_the_bus = 0
    for _ in range(20_000):
        system.advance(0.02)
        if unseen_interrupts(system) and system.computer.cores[0].sleeps:
            on_the_bus += 1
            check_conservation(system)
        if process.state is ProcessState.EXITED:
            break
    assert process.exit_status == 1
    assert on_the_bus
    check_conservation(system)


def system_cycles(by: str) -> tuple[int, float, int]:
    """Of a process that reads 16 blocks beside one that computes: its cycles in the kernel, the
    share of the processor that the other had, and the loads of the processor from the disk."""
    system = System(disk=CONTENT, disk_by=by)
    other = system.start(SPIN)
    process = system.start(reader(0, 16))
    for _ in range(1000):
        system.advance(10)
        if process.state is ProcessState.EXITED:
            break
    assert content_of(process, 16 * BLOCK) == CONTENT[: 16 * BLOCK]
    check_conservation(system)
    share = other.cycles.user / system.kernel.elapsed_cycles
    return process.cycles.system, share, system.computer.counters.loads


def test_by_dma_the_processor_is_free_and_by_pio_it_waits_for_each() -> None:
    by_pio, other_by_pio, loads = system_cycles("pio")
    by_dma, other_by_dma, dma_loads = system_cycles("dma")
    assert (loads, dma_loads) == (1024 + 1, 1)  # a word each, and the status
    assert by_pio == pytest.approx(1024 * 900 * 3, rel=0.02)  # a round trip of 900 ns at 3 GHz
    assert by_dma < 1000
    assert other_by_dma > 0.9
    assert 0.4 < other_by_pio < 0.6  # a slice behind each slice of loads


def test_requests_wait_in_a_queue_in_their_order() -> None:
    system = System(disk=Disk(CONTENT, latency_us=50))
    text = call("disk_read", 7, "buffer", 3) + call("write", "name", 1) + leave("rax")
    processes = [
        system.start(text.replace("7", str(first)) + f"name: db '{name}'" + BUFFER)
        for name, first in (("a", 40), ("b", 7), ("c", 200), ("d", 0))
    ]
    system.run()
    assert str(system.display) == "abcd"
    for process, first in zip(processes, (40, 7, 200, 0), strict=True):
        assert content_of(process, 3 * BLOCK) == CONTENT[first * BLOCK : (first + 3) * BLOCK]
    assert 4 * 50 < system.computer.now / 1e6 < 4 * 50 + 20
    check_conservation(system)


@pytest.mark.parametrize("by", ["dma", "pio"])
def test_what_is_written_is_read_again(by: str) -> None:
    system = System(disk=CONTENT, disk_by=by)
    text = (
        call("disk_write", 9, "mine", 1) + call("disk_read", 8, "buffer", 3) + leave("rax")
        + "    align 64\nmine: times 64 dq 0x1122334455667788\n" + BUFFER
    )  # fmt: skip
    [process] = system.run(text)
    mine = bytes.fromhex("8877665544332211") * 64
    around = CONTENT[8 * BLOCK : 9 * BLOCK], CONTENT[10 * BLOCK : 11 * BLOCK]
    assert content_of(process, 3 * BLOCK) == around[0] + mine + around[1]
    assert system.disk is not None
    assert bytes(system.disk.content[9 * BLOCK : 10 * BLOCK]) == mine


def test_a_buffer_need_not_be_at_a_page() -> None:
    system = System(disk=CONTENT)
    [process] = system.run(
        call("disk_read", 1, "buffer + 4000", 12) + leave("rax") + BUFFER.replace("4096", "8")
    )
    assert content_of(process, 4000 + 12 * BLOCK)[4000:] == CONTENT[BLOCK : 13 * BLOCK]


@pytest.mark.parametrize("by", ["dma", "pio"])
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((0, "buffer", 0), "EINVAL"),
        ((0, "buffer", 129), "EINVAL"),
        ((0, "buffer", -1), "EINVAL"),
        ((256, "buffer", 1), "EIO"),
        ((255, "buffer", 2), "EIO"),
        ((1 << 60, "buffer", 1), "EIO"),
        ((0, "buffer", 128), "EFAULT"),  # 64 KiB
    ],
)
def test_requests_that_cannot_be_are_error_values(
    arguments: tuple[int | str, ...], error: str, by: str
) -> None:
    text = call("disk_read", *arguments) + "    mov [result], rax\n"
    text += call("disk_read", 2, "buffer", 1) + leave("rax") + "result: dq 0" + BUFFER
    system = System(disk=CONTENT, disk_by=by)
    [process] = system.run(text)
    assert error_name(qwords(process, "result")[0]) == error
    assert process.exit_status == 1  # the next request is served
    assert content_of(process, BLOCK) == CONTENT[2 * BLOCK : 3 * BLOCK]
    check_conservation(system)


def test_without_a_disk_there_is_no_device() -> None:
    [process] = System().run(reader(0, 1))
    assert error_name(process.exit_status or 0) == "ENODEV"
