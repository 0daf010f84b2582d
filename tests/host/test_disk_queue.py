# SPDX-License-Identifier: Apache-2.0
"""A disk's queue of commands in memory, by machine code and by random drivers in Python."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verbena.host import AccessError, Computer, Disk, HostError, Pcie, Program, Ram

RING, DATA, REGISTERS, BLOCK, LATENCY_PS = 0x8000, 0x10000, 0x100000, 64, 10_000_000
READ, WRITE, DONE, FAILED = 2, 3, 3, 4
CONTENT = bytes(place // BLOCK + place % 7 & 0xFF for place in range(64 * BLOCK))


def machine(channels: int = 1, entries: int = 8, pcie: Pcie | None = None) -> tuple[Computer, Disk]:
    computer = Computer()
    computer.map(Ram(1 << 20), 0)
    disk = Disk(CONTENT, block=BLOCK, latency_us=10, channels=channels)
    computer.map(disk, REGISTERS, pcie=pcie)
    store(computer, 0x30, RING)
    store(computer, 0x38, entries)
    return computer, disk


def store(computer: Computer, register: int, value: int) -> None:
    computer.store(REGISTERS + register, value.to_bytes(8, "little"))


def entry(command: int, first: int, count: int, address: int) -> bytes:
    parts = ((command, 4), (count, 4), (first, 8), (address, 8), (0, 4), (7, 4))
    return b"".join(value.to_bytes(size, "little") for value, size in parts)


def status(computer: Computer, place: int) -> int:
    return int.from_bytes(computer.read(RING + 32 * place + 24, 4), "little")


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_so_many_commands_are_at_the_medium_at_once(channels: int) -> None:
    computer, _ = machine(channels)
    for place in range(8):
        computer.write(RING + 32 * place, entry(READ, 8 * place, 1, DATA + BLOCK * place))
    store(computer, 0x40, 8)
    computer.run()
    assert computer.now == 8 // channels * LATENCY_PS
    expected = b"".join(CONTENT[8 * BLOCK * n : (8 * n + 1) * BLOCK] for n in range(8))
    assert computer.read(DATA, 8 * BLOCK) == expected
    assert [status(computer, place) for place in range(8)] == [DONE] * 8
    assert computer.read(RING + 28, 4) == b"\x07\0\0\0"


def test_entries_are_read_ahead_over_a_link() -> None:
    """Between two commands the medium waits for the data's way and for no entry of the ring."""
    computer, _ = machine(pcie=Pcie(round_trip_ns=2000))
    for place in range(8):
        computer.write(RING + 32 * place, entry(READ, place, 1, DATA))
    store(computer, 0x40, 8)
    computer.run()
    assert 8 * (LATENCY_PS + 1_000_000) < computer.now < 8 * (LATENCY_PS + 1_100_000) + 5_000_000


def test_machine_code_uses_the_queue_and_is_interrupted() -> None:
    computer, _ = machine(channels=4)
    text = f"""
        mov  rsp, 0x7000
        lidt [table]
        mov  rbx, {REGISTERS}
        mov  qword ptr [rbx+0x28], 1
        mov  rdi, {RING}
        mov  ecx, 4
    fill:
        mov  rax, {READ} | (1 << 32)
        mov  [rdi], rax
        mov  [rdi+8], rcx
        mov  rdx, rcx
        shl  rdx, 6
        add  rdx, {DATA}
        mov  [rdi+16], rdx
        mov  qword ptr [rdi+24], 0
        add  rdi, 32
        dec  ecx
        jnz  fill
        mov  qword ptr [rbx+0x40], 4
    wait:
        sti
        hlt
        cli
        cmp  qword ptr [rbx+0x48], 4
        jb   wait
        hlt
    handler:
        inc  r15
        iretq
        align 16
    idt: times 46 dq 0, 0
        dq (handler & 0xffff) | (8 << 16) | (0x8e << 40) | ((handler >> 16) << 48), 0
    table: dw 47 * 16 - 1
        dq idt
    """
    computer.load(Program.assemble(text, 0x1000))
    computer.run(until=10**9)
    assert computer.read(DATA + BLOCK, 4 * BLOCK) == CONTENT[BLOCK : 5 * BLOCK]
    assert 1 <= computer.cores[0].registers.r15 <= 4
    assert computer.now < 2 * LATENCY_PS


COMMANDS = st.tuples(
    st.sampled_from([READ, WRITE]), st.integers(0, 63), st.integers(1, 3), st.integers(0, 7)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(COMMANDS, min_size=1, max_size=4), max_size=6), st.booleans())
def test_commands_in_order_do_as_plain_copies(
    batches: list[list[tuple[int, int, int, int]]], has_link: bool
) -> None:
    """One channel: each command sees what those before it have done, round the ring's end."""
    computer, disk = machine(entries=5, pcie=Pcie() if has_link else None)
    memory, content = bytearray(range(256)) * 8, bytearray(CONTENT)
    computer.write(DATA, bytes(memory))
    given_count = 0
    for batch in batches:
        wanted = []
        for command, first, count, slot in batch:
            place = given_count % 5
            given_count += 1
            address, size = BLOCK * slot, BLOCK * count
            computer.write(RING + 32 * place, entry(command, first, count, DATA + address))
            is_there = first + count <= 64
            wanted.append((place, DONE if is_there else FAILED))
            part = slice(BLOCK * first, BLOCK * first + size)
            if is_there and command == READ:
                memory[address : address + size] = content[part]
            elif is_there:
                content[part] = memory[address : address + size]
        store(computer, 0x40, given_count)
        computer.run()
        assert [(place, status(computer, place)) for place, _ in wanted] == wanted
        assert computer.read(DATA, len(memory)) == memory
        assert disk.content == content
    assert disk.peek(0x48, 8) == given_count


def test_the_queue_waits_for_a_command_of_the_registers_and_the_other_way_round() -> None:
    computer, disk = machine()
    computer.write(RING, entry(READ, 5, 1, DATA))
    for register, value in ((0x08, 9), (0x10, 1), (0x18, DATA + BLOCK), (0x00, READ)):
        store(computer, register, value)
    store(computer, 0x40, 1)
    computer.run()
    assert computer.now == 2 * LATENCY_PS
    assert computer.read(DATA, BLOCK) == CONTENT[5 * BLOCK : 6 * BLOCK]
    assert computer.read(DATA + BLOCK, BLOCK) == CONTENT[9 * BLOCK : 10 * BLOCK]
    computer.write(RING + 32, entry(READ, 5, 1, DATA))
    store(computer, 0x40, 2)
    computer.run(until=computer.now + 1)
    store(computer, 0x00, READ)
    assert disk.failure == "another one is under way"


def test_what_a_driver_must_not_do_is_an_error_with_advice() -> None:
    computer, disk = machine(entries=4)
    with pytest.raises(
        HostError, match="TAIL 5 gives 5 entries that have not ended to a ring of 4"
    ):
        disk.write(0x40, 8, 5)
    disk.write(0x40, 8, 1)
    with pytest.raises(HostError, match="1 entries that have not ended: wait for them"):
        disk.write(0x30, 8, 0x9000)
    computer.run()
    assert status(computer, 0) == FAILED
    assert disk.failure == "there is no command 0"
    computer.write(RING + 32, entry(1, 0, 1, DATA))
    disk.write(0x40, 8, 2)
    computer.run()
    assert disk.failure == "a command of the queue moves its data by DMA"
    with pytest.raises(HostError, match="at least one channel, not 0"):
        Disk(b"", channels=0)
    disk.write(0x30, 8, 1 << 40)
    disk.write(0x40, 8, 1)
    with pytest.raises(HostError, match="read 32 bytes by DMA at 0x10000000000, where there is no"):
        computer.run()


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize("at", [RING, 1 << 30], ids=["data", "ring"])
def test_dma_to_no_memory_stops_the_queue(at: int, channels: int) -> None:
    """The run names the failure once, and a queue that begins anew works as before."""
    computer, disk = machine(channels)
    store(computer, 0x30, at)
    entries = [entry(READ, 0, 1, DATA), entry(READ, 1, 1, 1 << 31), entry(READ, 2, 1, DATA)]
    for place, each in enumerate(entries):
        computer.write(RING + 32 * place, each)
    store(computer, 0x40, 3)
    with pytest.raises(AccessError, match=r"Disk.* by DMA .*, where there is no memory"):
        computer.run()
    computer.run()
    assert disk.read(0x20, 8) == FAILED
    with pytest.raises(HostError, match=r"its queue has stopped.*a store to RING begins it anew"):
        store(computer, 0x40, 4)
    store(computer, 0x30, RING)
    computer.write(RING + 32, entry(READ, 1, 1, DATA + BLOCK))
    store(computer, 0x40, 3)
    computer.run()
    assert [status(computer, place) for place in range(3)] == [DONE] * 3
    assert disk.read(0x48, 8) == 3
