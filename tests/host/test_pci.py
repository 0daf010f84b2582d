# SPDX-License-Identifier: Apache-2.0
"""A PCI bus that devices and the processor share: its clocks, its arbiter and what it counts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.host.pci_devices import (
    FIRST,
    MEMORY,
    Mover,
    Register,
    check_conservation,
    computer_on,
    follow,
)
from verbena.host import (
    Computer,
    Disk,
    EthernetAdapter,
    HostError,
    Iommu,
    Keyboard,
    Machines,
    PciBus,
    Pcie,
    PciEnd,
    Program,
    Ram,
)

SIZE = 1 << 15


def rates(bus: PciBus, count: int, *, is_read: bool = False) -> list[float]:
    """The MB/s of so many devices that move data at once."""
    movers = [Mover() for _ in range(count)]
    computer = computer_on(bus, *movers)
    seen = follow(bus)
    for one in movers:
        one.move(SIZE, is_read=is_read)
    computer.run()
    check_conservation(bus, seen)
    return [one.mbps(SIZE) for one in movers]


# ---- clocks ----


@pytest.mark.parametrize(
    ("bits", "mhz", "peak"), [(32, 33, 133.3), (32, 66, 266.7), (64, 33, 266.7), (64, 66, 533.3)]
)
def test_a_device_alone_gets_nearly_every_clock(bits: int, mhz: int, peak: float) -> None:
    bus = PciBus(bits=bits, mhz=mhz)
    assert bus.timing.peak_mbps == pytest.approx(peak, abs=0.05)
    (rate,) = rates(bus, 1)
    assert 0.97 * peak < rate < peak


@pytest.mark.parametrize("phases", [8, 16, 32, 64])
def test_a_burst_takes_the_clocks_that_the_specification_counts(phases: int) -> None:
    """8 clocks to the first data, one for each other, and an idle one (PCI 2.2, 3.5.3)."""
    bus, mover = PciBus(memory_write_wait=5), Mover()
    computer = computer_on(bus, mover)
    mover.move(4 * phases)
    computer.run()
    assert bus.busy == (8 + (phases - 1) + 1) * 30_000


def test_bursts_end_at_the_boundaries_of_the_bridge() -> None:
    bus, mover = PciBus(burst_bytes=256), Mover()
    computer = computer_on(bus, mover)
    seen = follow(bus)
    mover.dma_write(0x80, bytes(600))
    computer.run()
    ends = [(one.address, one.size, one.ending) for one in seen]
    disconnect = PciEnd.DISCONNECT
    assert ends == [(0x80, 128, disconnect), (0x100, 256, disconnect),
                    (0x200, 216, PciEnd.COMPLETED)]  # fmt: skip
    assert bus.masters[1].disconnects == 2


def test_bytes_that_are_not_whole_data_phases_take_one_more() -> None:
    bus, mover = PciBus(), Mover()
    computer = computer_on(bus, mover)
    seen = follow(bus)
    mover.dma_write(3, bytes(6))  # bytes 3, 4 to 7, 8
    computer.run()
    assert [(one.size, one.phases) for one in seen] == [(6, 3)]
    assert bus.up.bytes == 6


def test_memory_that_is_slow_says_retry_and_fetches_meanwhile() -> None:
    bus, mover = PciBus(memory_read_wait=60), Mover()
    computer = computer_on(bus, mover)
    seen = follow(bus)
    mover.move(128, is_read=True)
    computer.run()
    retries, last = seen[:-1], seen[-1]
    assert {one.ending for one in retries} == {PciEnd.RETRY}
    assert last.ending is PciEnd.COMPLETED
    assert last.start >= retries[0].start + 60 * 30_000 > retries[-1].start
    assert bus.masters[1].retries == len(retries)
    check_conservation(bus, seen)


def test_a_slow_read_leaves_the_bus_to_others_meanwhile() -> None:
    bus, reader, writer = PciBus(memory_read_wait=200), Mover(), Mover()
    computer = computer_on(bus, reader, writer)
    seen = follow(bus)
    reader.move(512, is_read=True)
    writer.move(SIZE)
    computer.run()
    check_conservation(bus, seen)
    first, last = (next(one for one in order if one.master.name == "Mover")
                   for order in (seen, seen[::-1]))  # fmt: skip
    between = [one for one in seen if one.master.name == "Mover 2" and one.start < last.start]
    assert first.ending is PciEnd.RETRY
    assert sum(one.size for one in between) > 1000


# ---- the arbiter ----


@pytest.mark.parametrize("count", [2, 3, 5])
def test_devices_share_the_rate_of_the_bus_evenly(count: int) -> None:
    bus = PciBus()
    found = rates(bus, count)
    assert max(found) / min(found) < 1.01
    # of 33 clocks 30 have data: address, wait for DEVSEL#, turnaround
    assert sum(found) == pytest.approx(133.33 * 30 / 33, rel=0.01)
    assert all(one.cuts for one in bus.masters[1:])


def test_a_shorter_latency_timer_costs_rate_and_shortens_the_wait() -> None:
    short, long = PciBus(latency_timer=8), PciBus(latency_timer=128)
    slow, fast = sum(rates(short, 2)), sum(rates(long, 2))
    assert slow == pytest.approx(133.33 * 6 / 9, rel=0.02)
    assert fast == pytest.approx(133.33 * 126 / 129, rel=0.02)
    wait = {bus: bus.masters[1].wait / bus.masters[1].transactions for bus in (short, long)}
    assert wait[short] < 15 * 30_000 < 100 * 30_000 < wait[long]


def test_a_burst_goes_on_behind_its_timer_until_another_master_asks() -> None:
    bus, long, late = PciBus(latency_timer=16), Mover(), Mover()
    computer = computer_on(bus, long, late)
    seen = follow(bus)
    long.move(4096)
    computer.at(5_000_000, lambda: late.move(32))
    computer.run()
    assert [(one.master.name, one.ending) for one in seen] == [
        ("Mover", PciEnd.TIMER), ("Mover 2", PciEnd.COMPLETED), ("Mover", PciEnd.COMPLETED),
    ]  # fmt: skip
    assert 5_000_000 < seen[0].end <= 5_000_000 + 2 * 30_000


class Alone(Mover):
    """Loads of the processor while it moves data: how long each takes, in ns."""

    def loads(self, bus: PciBus, count: int, size: int) -> list[int]:
        text = f"mov rbx, {FIRST + 0x1000}\n" + "mov rax, [rbx]\n" * count + "hlt"
        computer = computer_on(bus, self, Register(), text=text)
        if size:
            self.move(size)
        seen = follow(bus)
        times: list[int] = []
        computer.observers.append(lambda one: times.append(one.at))
        computer.run()
        check_conservation(bus, seen)
        return [(after - before) // 1000 for before, after in pairwise(times)]


def test_a_load_waits_for_the_burst_of_a_device_and_no_longer() -> None:
    alone = Alone().loads(PciBus(), 20, 0)
    beside = Alone().loads(PciBus(), 20, SIZE)
    # 60 ns of bridge both ways, a clock of arbitration, address, turnaround, DEVSEL#, two waits,
    # two data phases of four bytes, up to a clock until the edge
    assert set(alone) <= set(range(120 + 8 * 30, 120 + 10 * 30))
    assert max(beside) <= max(alone) + (33 + 1) * 30
    assert sum(beside) / len(beside) > 1.5 * sum(alone) / len(alone)


def test_loads_and_a_device_take_turns() -> None:
    """Neither starves: between two loads the device has a burst."""
    bus, mover = PciBus(), Mover()
    text = f"mov rbx, {FIRST + 0x1000}\nmov ecx, 50\nagain: mov rax, [rbx]\nloop again\nhlt"
    text = text.replace("loop again", "dec ecx\njnz again")
    computer = computer_on(bus, mover, Register(), text=text)
    seen = follow(bus)
    mover.move(1 << 18)
    computer.run()
    names = [one.master.name for one in seen]
    last = max(at for at, name in enumerate(names) if name == "processor")
    for at, name in enumerate(names[:last]):
        if name == "processor":
            assert names[at + 1] == "Mover"


def test_the_bridge_holds_a_few_posted_stores_and_then_the_core_waits() -> None:
    def cycles(stores: int) -> int:
        text = f"mov ebx, {FIRST}\n" + "mov [rbx], eax\n" * stores + "hlt"
        computer = computer_on(PciBus(posted_stores=4), Register(), text=text)
        computer.run()
        return (computer.now - computer.counters.idle_ps) // 1000

    assert cycles(4) == 6  # the instructions themselves
    assert cycles(5) > 100
    # address, DEVSEL#, two waits, data, turnaround
    assert cycles(24) - cycles(14) == pytest.approx(10 * 6 * 30, abs=40)


def test_a_load_does_not_pass_the_stores_before_it() -> None:
    for buses in ({"pci": PciBus()}, {"pcie": Pcie()}):
        register = Register()
        computer = Computer(ghz=1.0)
        computer.map(Ram(MEMORY), 0)
        computer.map(register, FIRST, **buses)
        text = f"mov rbx, {FIRST}\nmov qword ptr [rbx], 21\nmov qword ptr [rbx+8], 5\n"
        computer.load(Program.assemble(text + "mov rax, [rbx]\nmov rcx, [rbx+8]\nhlt", 0x1000))
        computer.run()
        registers = computer.cores[0].registers
        assert (registers.rax, registers.rcx) == (21, 5)
        assert len(register.times) == 2


def test_a_store_arrives_at_the_same_time_whether_or_not_a_load_follows() -> None:
    for buses in ({"pci": PciBus}, {"pcie": Pcie}):
        found = []
        for more in ("", "mov rcx, [rbx+8]\n"):
            register = Register()
            computer = Computer(ghz=1.0)
            computer.map(Ram(MEMORY), 0)
            computer.map(register, FIRST, **{name: kind() for name, kind in buses.items()})
            text = f"mov rbx, {FIRST}\nmov qword ptr [rbx], 21\n{more}hlt"
            computer.load(Program.assemble(text, 0x1000))
            computer.run()
            found.append(register.times)
        assert found[0][0] == pytest.approx(found[1][0], abs=1000)  # a cycle


@settings(max_examples=25, deadline=None)
@given(
    moves=st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(0, 20_000_000),
            st.integers(1, 5000),
            st.booleans(),
        ),
        min_size=1,
        max_size=8,
    ),
    body=st.lists(st.sampled_from(["mov rax, [rbx]", "mov [rbx], rax", "nop"]), max_size=12),
    bus_settings=st.fixed_dictionaries(
        {
            "bits": st.sampled_from([32, 64]),
            "mhz": st.sampled_from([33, 66]),
            "latency_timer": st.integers(4, 64),
            "memory_read_wait": st.integers(0, 60),
            "burst_bytes": st.sampled_from([64, 512, 4096]),
        }
    ),
    cores=st.integers(1, 2),
    wait=st.integers(0, 50),
)
def test_any_mixture_is_conserved_and_ends(
    moves: list[tuple[int, int, int, bool]],
    body: list[str],
    bus_settings: dict[str, int],
    cores: int,
    wait: int,
) -> None:
    """Devices and cores at random: each byte arrives, once, in one transaction at a time."""
    bus, movers, register = PciBus(**bus_settings), [Mover() for _ in range(3)], Register()
    text = f"mov rbx, {FIRST + 0x3000}\nmov ecx, 3\nagain:\n" + "\n".join(body)
    computer = computer_on(bus, *movers, text=text + "\ndec ecx\njnz again\nhlt", cores=cores)
    computer.map(register, FIRST + 0x3000, pci=bus.slot(wait=wait))
    seen, landed = follow(bus), 0

    def begin(device: Mover, size: int, is_read: bool) -> None:
        def done(*_: bytes) -> None:
            nonlocal landed
            landed += size

        if is_read:
            device.dma_read(0, size, done)
        else:
            device.dma_write(0x10000, bytes(size), done)

    for number, at, size, is_read in moves:
        one = movers[number]
        computer.at(at, lambda one=one, size=size, is_read=is_read: begin(one, size, is_read))
    computer.run(until=10**11)
    check_conservation(bus, seen)
    loads, stores = (3 * cores * body.count(text) for text in ("mov rax, [rbx]", "mov [rbx], rax"))
    assert landed == sum(size for _, _, size, _ in moves)
    assert len(register.times) == stores
    moved = sum(size for _, _, size, _ in moves) + 8 * (loads + stores)
    assert bus.up.bytes + bus.down.bytes == moved


# ---- what the bus is between ----


def test_two_disks_share_a_bus_and_not_pcie_links() -> None:
    content = bytes(SIZE)

    def milliseconds(count: int, is_shared: bool) -> float:
        bus, computer = PciBus(), Computer()
        computer.map(Ram(MEMORY), 0)
        for number in range(count):
            where = {"pci": bus} if is_shared else {"pcie": Pcie(1, 1)}
            disk = Disk(content, latency_us=10)
            base = FIRST + number * 0x20000
            computer.map(disk, base, **where)
            computer.store(base + 0x10, (SIZE // 512).to_bytes(8, "little"))
            computer.store(base + 0x18, (number * SIZE).to_bytes(8, "little"))
            computer.store(base, (2).to_bytes(8, "little"))
        computer.run()
        return computer.now / 1e9

    assert milliseconds(2, True) == pytest.approx(2.2 * milliseconds(1, True), rel=0.05)
    assert milliseconds(2, False) == pytest.approx(milliseconds(1, False), rel=0.01)


def test_a_disk_slows_an_adapter_on_its_bus_down() -> None:
    """Frames of 9,000 bytes go out by themselves, and while a disk writes to memory."""

    def microseconds(has_disk: bool) -> float:
        bus, computer, adapter = PciBus(), Computer(), EthernetAdapter()
        computer.map(Ram(MEMORY), 0)
        computer.map(adapter, FIRST, pci=bus)
        computer.map(Disk(bytes(SIZE), latency_us=0), FIRST + 0x10000, pci=bus)
        for number in range(2):
            entry = (0x4000).to_bytes(8, "little") + (9000).to_bytes(8, "little")
            computer.write(0x2000 + 16 * number, entry)
        if has_disk:
            for offset, value in ((0x10, SIZE // 512), (0x18, 0x10000), (0, 2)):
                computer.store(FIRST + 0x10000 + offset, value.to_bytes(8, "little"))
        for offset, value in ((0x18, 0x2000), (0x20, 2), (0x28, 2)):
            computer.store(FIRST + offset, value.to_bytes(8, "little"))
        while adapter.transmitted < 2:
            computer.run(until=computer.now + 10**6)
        return computer.now / 1e6

    assert microseconds(True) > 1.8 * microseconds(False)


def test_frames_between_two_machines_on_buses_of_their_own() -> None:
    """An adapter on PCI sends and receives as one at a link does."""
    from verbena.host import Cable

    machines = Machines(lookahead_ns=500)
    ends, buses = [], []
    for name in ("left", "right"):
        one = machines.computer(name)
        one.map(Ram(MEMORY), 0)
        adapter, bus = EthernetAdapter(), PciBus()
        one.map(adapter, FIRST, pci=bus)
        ends.append((one, adapter))
        buses.append(bus)
    (left, sender), (right, receiver) = ends
    Cable(sender, receiver)
    frame = bytes(range(100))
    left.write(0x4000, frame)
    left.write(0x2000, (0x4000).to_bytes(8, "little") + len(frame).to_bytes(8, "little"))
    right.write(0x2000, (0x8000).to_bytes(8, "little") + bytes(8))
    for computer, ring, tail in ((right, 0x00, 0x10), (left, 0x18, 0x28)):
        for offset, value in ((ring, 0x2000), (ring + 8, 4), (tail, 1)):
            computer.store(FIRST + offset, value.to_bytes(8, "little"))
    machines.run()
    assert right.read(0x8000, 100) == frame
    assert (sender.transmitted, receiver.received) == (1, 1)
    # right: a descriptor was read, the frame, length and status written, three registers
    assert (buses[1].up.bytes, buses[1].down.bytes) == (100 + 8, 16 + 24)


def test_its_row_of_a_timeline_has_every_transaction() -> None:
    bus, disk = PciBus(), Disk(bytes(4096))
    computer = Computer()
    computer.map(Ram(MEMORY), 0)
    computer.map(disk, FIRST, pci=bus)
    seen, timeline = follow(bus), computer.timeline()
    for offset, value in ((0x10, 8), (0x18, 0x8000), (0, 2)):
        computer.store(FIRST + offset, value.to_bytes(8, "little"))
    computer.run()
    events = list(timeline.events())
    row = next(one["tid"] for one in events
               if one["ph"] == "M" and one["args"].get("name") == "PCI bus")  # fmt: skip
    slices = [one for one in events if one["ph"] == "X" and one["tid"] == row]
    assert [(one["ts"] * 1e6, one["args"]["bytes"]) for one in slices] == [
        (one.start, one.size) for one in seen
    ]
    arrows = [one for one in events if one.get("cat") == "store" and one["tid"] == row]
    assert arrows  # the command's store leads over the bus to the DMA
    timeline.close()
    assert len(bus.observers) == 1


def test_the_transactions_of_equal_devices_are_told_apart() -> None:
    bus = PciBus()
    computer_on(bus, Mover(), Mover(), Register())
    assert [one.name for one in bus.masters] == ["processor", "Mover", "Mover 2", "Register"]


def test_a_slot_is_free_again_when_its_device_is_taken_out() -> None:
    bus = PciBus()
    place = bus.slot(name="front")
    computer = Computer()
    computer.map(Ram(MEMORY), 0)
    computer.map(Register(), FIRST, pci=place)
    with pytest.raises(HostError, match=r"that slot has Register at 0x200000.* already"):
        computer.map(Register(), FIRST + 0x1000, pci=place)
    computer.unmap(FIRST)
    computer.map(Register(), FIRST + 0x1000, pci=place)
    assert [one.name for one in bus.masters] == ["processor", "front"]


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"bits": 16}, "32 or 64 bits and 33 or 66 MHz, not 16 and 33"),
        ({"mhz": 100}, "not 32 and 100"),
        ({"latency_timer": 0}, "1 to 255 clocks, not 0"),
        ({"memory_read_wait": -1}, "0 to 255 clocks.* not -1"),
        ({"burst_bytes": 100}, "a power of two from 4 on, not 100"),
        ({"posted_stores": 0}, "posted_stores of a host bridge is 1 to 1024, not 0"),
        ({"retry_limit": 0}, "retry_limit of a host bridge is 1 to 65536, not 0"),
        ({"bridge_ns": -1}, "bridge_ns is at least 0, not -1"),
        ({"unanswered": "maybe"}, 'is "ones" or "stop", not \'maybe\''),
        ({"raise_line": print}, "come together"),
    ],
)
def test_a_bus_that_cannot_be_is_refused(keywords: dict[str, object], says: str) -> None:
    with pytest.raises(HostError, match=says):
        PciBus(**keywords)


def test_what_does_not_go_together_is_refused() -> None:
    bus, computer = PciBus(), Computer()
    with pytest.raises(HostError, match="give pcie or pci"):
        computer.map(Keyboard(), FIRST, pci=bus, pcie=Pcie())
    with pytest.raises(HostError, match="give pcie, too"):
        computer.map(Keyboard(), FIRST, pci=bus, iommu=Iommu())
    with pytest.raises(HostError, match="is on no bus"):
        computer.map(Ram(8), 0, pci=bus)
    with pytest.raises(HostError, match=r"INTA#, INTB#.*not 'INTE#'"):
        bus.slot(wire="INTE#")
    with pytest.raises(HostError, match="fast, medium, slow"):
        bus.slot(decoding="quick")
    with pytest.raises(HostError, match="gives up: make a PciBus with more than retry_limit"):
        bus.slot(wait=90_000)
    with pytest.raises(HostError, match="in no computer yet"):
        _ = bus.arbiter
    computer.map(Keyboard(), FIRST, pci=bus)
    with pytest.raises(HostError, match="in computer 'computer' already"):
        Computer().map(Keyboard(), FIRST, pci=bus)
