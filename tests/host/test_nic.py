# SPDX-License-Identifier: Apache-2.0
"""The Ethernet adapter, its interrupts, a cable between computers; display, timer, charged work."""

from __future__ import annotations

from random import Random

import pytest

from tests.host.nic_driver import bytes_of_frames
from verbena.host import (
    AccessError,
    Cable,
    Computer,
    Costs,
    DeviceFault,
    Display,
    EthernetAdapter,
    HostError,
    Ledger,
    Pcie,
    Program,
    Ram,
    Stop,
    Timer,
)
from verbena.host.machines import Machines
from verbena.host.nic import (
    ENABLE,
    PACKETS,
    RX_RING,
    RX_SIZE,
    RX_TAIL,
    TIME,
    TX_RING,
    TX_SIZE,
    TX_TAIL,
)

NIC, RING, BUFFERS = 0x10000000, 0x10000, 0x100000


def with_adapter(
    computer: Computer, *, buffers: int = 64, time: int = 0, packets: int = 0
) -> EthernetAdapter:
    """A computer's adapter with a receive ring whose descriptors are all given."""
    computer.map(Ram(4 << 20), 0)
    adapter = EthernetAdapter()
    computer.map(adapter, NIC, pcie=Pcie())
    for number in range(buffers):
        address = BUFFERS + number * 0x3000
        computer.write(RING + 16 * number, address.to_bytes(8, "little") + bytes(8))
    values = {RX_RING: RING, RX_SIZE: buffers, RX_TAIL: buffers}
    values |= {TIME: time, PACKETS: packets, ENABLE: 1}
    for offset, value in values.items():
        adapter.write(offset, 8, value)
    return adapter


def test_a_frame_is_in_memory_before_its_descriptor_is_done() -> None:
    computer = Computer()
    adapter = with_adapter(computer)
    frame = bytes(range(100))
    computer.at(1000, lambda: adapter.arrive(frame))
    computer.run()
    assert computer.read(BUFFERS, 100) == frame
    assert computer.read(RING + 8, 8) == b"\x64\0\0\0\x01\0\0\0"
    assert (adapter.received, adapter.interrupts, computer.counters.interrupts_sent) == (1, 1, 1)
    assert adapter.read(0x38, 8) == 1
    assert adapter.read(0x38, 8) == 0  # the read has cleared it


def test_frames_without_a_descriptor_are_dropped_and_counted() -> None:
    computer = Computer()
    adapter = with_adapter(computer, buffers=4)
    for number in range(7):
        computer.at(1000 * number, lambda: adapter.arrive(bytes(60)))
    computer.run()
    assert (adapter.received, adapter.dropped, adapter.read(0x50, 8)) == (4, 3, 3)


@pytest.mark.parametrize("time", [8, 50])
@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_moderated_interrupts_follow_their_law(rate: float, time: int) -> None:
    """With Poisson arrivals of l a us and a time T after the first: 1 / (T + 1/l) a us."""
    computer = Computer()
    adapter = with_adapter(computer, time=time * 1000)
    random, at, count = Random(5), 0.0, 4000

    def arrive() -> None:
        adapter.write(RX_TAIL, 8, adapter.received + 60)
        adapter.arrive(bytes(60))

    for _ in range(count):
        at += random.expovariate(rate) * 1e6
        computer.at(round(at), arrive)
    computer.run()
    assert adapter.received == count
    law = at / 1e6 / (time + 1 / rate)
    assert adapter.interrupts == pytest.approx(law, rel=0.05)


def test_so_many_packets_interrupt_before_the_time() -> None:
    computer = Computer()
    adapter = with_adapter(computer, time=1_000_000, packets=8)
    for number in range(20):
        computer.at(10_000 * number, lambda: adapter.arrive(bytes(60)))
    computer.run()
    assert adapter.interrupts == 3  # two of 8 packets, and one of the rest by the time
    assert computer.now == pytest.approx(1e9, rel=0.01)


def test_a_driver_that_polls_is_not_interrupted_until_it_wants_to_be() -> None:
    computer = Computer()
    adapter = with_adapter(computer)
    adapter.write(ENABLE, 8, 0)
    computer.at(1000, lambda: adapter.arrive(bytes(60)))
    computer.run()
    assert (adapter.received, adapter.interrupts) == (1, 0)
    adapter.write(ENABLE, 8, 1)
    assert adapter.interrupts == 1  # what came meanwhile is not lost


FRAMES, LENGTH = 8, 1000


@pytest.mark.parametrize("side", ["sender", "receiver"])
@pytest.mark.parametrize("how", ["gone", "silent", "unmapped"])
def test_an_adapter_that_ends_sends_and_receives_nothing_more(side: str, how: str) -> None:
    """Eight frames of 8.192 us each are given at once, and an end at 30 us is within the fourth."""
    machines = Machines(lookahead_ns=400)
    left, right = machines.computer("left"), machines.computer("right")
    ends = {"sender": with_adapter(left), "receiver": with_adapter(right)}
    cable = Cable(ends["sender"], ends["receiver"])
    begun: list[int] = []
    cable.observers.append(lambda *seen: begun.append(seen[3]))
    for number in range(FRAMES):
        left.write(0x20000 + 16 * number, 0x30000.to_bytes(8, "little") + bytes([0xE8, 3]))
    for offset, value in ((TX_RING, 0x20000), (TX_SIZE, FRAMES), (TX_TAIL, FRAMES)):
        left.store(NIC + offset, value.to_bytes(8, "little"))
    counts: list[int] = []

    def end() -> None:
        counts.append(ends["sender"].transmitted)
        if how == "unmapped":
            (left if side == "sender" else right).unmap(NIC)
        else:
            ends[side].fail(DeviceFault[how.upper()])

    left.at(30_000_000, end)
    machines.run()
    assert counts == [3]
    assert ends["sender"].transmitted == (3 if side == "sender" else FRAMES)
    assert len(begun) == (4 if side == "sender" else FRAMES)
    assert ends["receiver"].received == 3
    assert ends["receiver"].dropped == 0


def test_an_adapter_that_works_again_sends_what_it_is_given_then() -> None:
    machines = Machines(lookahead_ns=400)
    left, right = machines.computer("left"), machines.computer("right")
    sender, receiver = with_adapter(left), with_adapter(right)
    Cable(sender, receiver)
    for number in range(FRAMES):
        left.write(0x20000 + 16 * number, 0x30000.to_bytes(8, "little") + bytes([0xE8, 3]))
    for offset, value in ((TX_RING, 0x20000), (TX_SIZE, FRAMES), (TX_TAIL, 2)):
        left.store(NIC + offset, value.to_bytes(8, "little"))
    left.at(3_000_000, lambda: sender.fail(DeviceFault.SILENT))
    machines.run()
    assert (sender.transmitted, receiver.received) == (0, 0)
    sender.fail(None)
    left.store(NIC + TX_TAIL, (3).to_bytes(8, "little"))
    start = machines.now
    machines.run()
    assert (sender.transmitted, receiver.received) == (1, 1)
    assert machines.now - start < 15_000_000  # it waits for no frame that was lost


SEND = """
    mov rbx, 0x10000000
    mov qword ptr [0x20000], 0x30000      ; the frame
    mov dword ptr [0x20008], 50           ; its length
    mov qword ptr [rbx+0x18], 0x20000
    mov qword ptr [rbx+0x20], 8
    mov qword ptr [rbx+0x28], 1
poll: cmp dword ptr [0x2000c], 1
    jne poll
    hlt
"""


def test_machine_code_sends_a_frame_to_another_computer() -> None:
    machines = Machines(lookahead_ns=400)
    left, right = machines.computer("left"), machines.computer("right")
    sender, receiver = with_adapter(left), with_adapter(right)
    cable = Cable(sender, receiver, gbps=1.0, delay_ns=500)
    assert cable.time_ps(50) == 84 * 8000  # the shortest frame, preamble and gap
    assert cable.time_ps(1514) == 1538 * 8000
    left.write(0x30000, b"hello, other computer".ljust(50, b"."))
    left.load(Program.assemble(SEND, 0x1000))
    machines.run()
    assert right.read(BUFFERS, 21) == b"hello, other computer"
    assert (sender.transmitted, receiver.received, receiver.interrupts) == (1, 1, 1)
    # doorbell 0.45 us, two reads of 0.9, the frame 0.672, the cable 0.5, then read, write, MSI
    assert machines.now / 1e6 == pytest.approx(0.45 + 1.8 + 0.672 + 0.5 + 0.9 + 0.45, rel=0.2)


def test_what_a_frame_takes_of_the_links() -> None:
    """Pointers, descriptors, data, status, interrupts and reads of CAUSE, for each or for 32."""
    seen = bytes_of_frames(1500, 64)
    # requests for descriptor and frame, status, interrupt, CAUSE
    assert seen.sender_up == 24 + 3 * 24 + (24 + 4) + 28 + (20 + 8)
    # the pointer, descriptor, frame, request for CAUSE
    assert seen.sender_down == (24 + 8) + (20 + 16) + (6 * 20 + 1500) + 24
    # request for a descriptor, frame, status, interrupt, CAUSE
    assert seen.receiver_up == 24 + (6 * 24 + 1500) + (24 + 8) + 28 + (20 + 8)
    # the pointer, descriptor, request for CAUSE
    assert seen.receiver_down == (24 + 8) + (20 + 16) + 24
    lists = bytes_of_frames(1500, 64, 32)
    assert seen.up - lists.up == (28 + 28) * 2 * 31 / 32
    assert seen.down - lists.down == (32 + 24) * 2 * 31 / 32


def test_wrong_use_is_named() -> None:
    computer = Computer()
    adapter, other = with_adapter(computer), EthernetAdapter()
    with pytest.raises(HostError, match="one clock"):
        Cable(adapter, other)
    with pytest.raises(HostError, match="two ends"):
        Cable(adapter, adapter)
    with pytest.raises(HostError, match="count that goes on"):
        adapter.write(RX_TAIL, 8, 1000)
    with pytest.raises(HostError, match="to a ring of 0"):
        adapter.write(TX_TAIL, 8, 1)
    with pytest.raises(HostError, match="14 to 9014 bytes"):
        adapter.arrive(bytes(10))


def test_a_buffer_that_was_taken_away_is_named() -> None:
    computer = Computer()
    adapter = with_adapter(computer)
    computer.unmap(0)
    computer.map(Ram(0x20000), 0)
    computer.write(RING, BUFFERS.to_bytes(8, "little"))
    computer.at(1000, lambda: adapter.arrive(bytes(60)))
    with pytest.raises(AccessError, match="wrote 60 bytes by DMA to 0x100000"):
        computer.run()


def test_a_display_prints_as_text() -> None:
    computer, display = Computer(), Display(20, 3)
    computer.map(Ram(0x10000), 0)
    computer.map(display, 0x20000)
    text = "mov rax, 'H' | 'i' << 8\n mov [0x20000], ax\n mov byte ptr [0x20014], '!'\n hlt"
    computer.load(Program.assemble(text))
    computer.run()
    assert str(display) == "Hi\n!"
    with pytest.raises(HostError, match="one column"):
        Display(0, 1)


@pytest.mark.parametrize(("mode", "ticks"), [(1, 1), (2, 10)])
def test_a_timer_goes_off_once_or_again_and_again(mode: int, ticks: int) -> None:
    computer, timer = Computer(), Timer()
    computer.map(Ram(0x10000), 0)
    computer.map(timer, 0x20000)
    timer.write(0, 8, 1000)
    timer.write(8, 8, mode)
    computer.run(until=10_500_000)
    assert timer.ticks == ticks
    timer.write(8, 8, 0)
    assert computer.run() is Stop.HALT  # a timer that is stopped leaves nothing to wait for
    assert timer.ticks == ticks


def test_a_timer_without_a_time_is_named() -> None:
    computer, timer = Computer(), Timer()
    computer.map(timer, 0x20000)
    with pytest.raises(HostError, match="needs its time"):
        timer.write(8, 8, 2)


def test_charged_work_keeps_a_core_busy() -> None:
    """Busy and idle are all of the time, and charges of one core follow each other."""
    computer = Computer(ghz=2.0)
    core = computer.cores[0]
    core.ledger = Ledger(Costs(hard_irq=1000))
    for at in (1_000_000, 1_100_000):
        computer.at(at, lambda: core.charge("hard_irq", copies=1000) and None)
    computer.at(5_000_000, lambda: None)
    computer.run()
    assert core.ledger.total == pytest.approx(2 * 1200)
    assert core.ledger.copied_bytes == 2000
    assert core.state.cycles * 500 == 5_000_000
    assert computer.counters.idle_ps == 5_000_000 - 2400 * 500
