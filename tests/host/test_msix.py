# SPDX-License-Identifier: Apache-2.0
"""MSI-X: masks and pending bits, messages to cores and to memory, the adapters' tables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.host.interrupt_programs import Handlers, install
from verbena.host import (
    AccessError,
    Cable,
    Computer,
    Device,
    EthernetAdapter,
    HostError,
    InterruptController,
    Iommu,
    IommuFault,
    Msix,
    PciBus,
    Pcie,
    Ram,
    Tlp,
    message_address,
)
from verbena.host.hca import Node, connected

BASE, AT = 0x100000, 0x800
TABLE, PENDING = AT + 16, AT + 16 + 4 * 16
ENABLE, FUNCTION_MASK = 0x8000, 0x4000


class Sensor(Device):
    """A device of one's own with four entries."""

    def __init__(self) -> None:
        super().__init__(0x1000)
        self.msix = Msix(self, entries=4, at=AT)

    def read(self, offset: int, size: int) -> int:
        return self.msix.read(offset, size)

    def write(self, offset: int, size: int, value: int) -> None:
        self.msix.write(offset, size, value)


class Bench:
    """A computer with a sensor, and a driver's stores."""

    def __init__(self, cores: int = 2, **at: Any) -> None:
        self.computer = Computer(cores=cores)
        self.computer.map(Ram(65536), 0)
        self.sensor = Sensor()
        self.computer.map(self.sensor, BASE, **at)

    def store(self, offset: int, value: int, size: int = 4) -> None:
        self.computer.store(BASE + offset, value.to_bytes(size, "little"))
        self.computer.run()

    def set(self, entry: int, address: int, data: int, control: int = 0) -> None:
        self.store(TABLE + 16 * entry, address, 8)
        self.store(TABLE + 16 * entry + 8, data)
        self.store(TABLE + 16 * entry + 12, control)

    def send(self, entry: int) -> bool:
        sent = self.sensor.msix.send(entry)
        self.computer.run()
        return sent

    def came(self, core: int, vector: int) -> bool:
        """Whether an interrupt is pending at a core; it is then gone."""
        return self.computer.cores[core].state.withdraw(vector)


def test_a_message_is_28_bytes_of_the_link_and_an_interrupt_of_the_core_in_its_address() -> None:
    bench = Bench(pcie=Pcie())
    bench.store(AT, ENABLE, 2)
    bench.set(2, message_address(1), 77)
    slot = bench.sensor.slot
    assert slot is not None
    seen: list[Tlp] = []
    slot.observers.append(seen.append)
    before = slot.up.bytes
    assert bench.send(2)
    assert [(one.kind, one.data, one.bytes) for one in seen] == [("MSI", 4, 28)]
    assert slot.up.bytes - before == 28
    assert bench.came(1, 77)
    assert not bench.came(0, 77)
    assert bench.computer.counters.interrupts_sent == 1


def test_a_message_takes_its_turn_on_a_pci_bus() -> None:
    """Behind data that the device has written before."""
    bus = PciBus()
    bench = Bench(pci=bus)
    bench.store(AT, ENABLE, 2)
    bench.set(0, message_address(1), 77)
    before, began = bus.up.bytes, bench.computer.now
    written: list[int] = []
    bench.sensor.dma_write(0x1000, bytes(256), lambda: written.append(bench.computer.now))
    assert bench.sensor.msix.send(0)
    assert not bench.came(1, 77)
    bench.computer.run()
    assert bench.came(1, 77)
    assert began < written[0] < bench.computer.now
    bench.computer.at(bench.computer.now + 1_000_000, lambda: None)  # until the bus is idle
    bench.computer.run()
    bus.settle()
    assert bus.up.bytes - before == 256 + 4


def test_while_it_is_off_the_device_keeps_its_own_interrupt() -> None:
    bench = Bench()
    bench.set(0, message_address(0), 40)
    assert not bench.send(0)
    assert bench.sensor.msix.pending == []
    assert bench.computer.counters.interrupts_sent == 0


def test_a_masked_entry_waits_and_is_sent_once_when_it_is_unmasked() -> None:
    bench = Bench()
    msix = bench.sensor.msix
    bench.store(AT, ENABLE, 2)
    bench.set(1, message_address(0), 50, control=1)
    for _ in range(3):
        assert bench.send(1)
    assert msix.pending == [1]
    assert msix.merged == 2
    assert bench.sensor.read(PENDING, 8) == 0b10
    assert not bench.came(0, 50)
    bench.store(TABLE + 16 + 12, 0)
    assert msix.pending == []
    assert msix.sent == 1
    assert bench.came(0, 50)


def test_the_mask_of_all_and_what_waits_while_it_is_set() -> None:
    bench = Bench()
    bench.set(0, message_address(0), 40)
    bench.set(3, message_address(1), 43)
    bench.set(2, message_address(1), 42, control=1)
    bench.store(AT, ENABLE | FUNCTION_MASK, 2)
    for entry in (0, 2, 3):
        bench.send(entry)
    assert bench.sensor.msix.pending == [0, 2, 3]
    assert bench.sensor.read(AT, 2) == ENABLE | FUNCTION_MASK | 3
    bench.store(AT, ENABLE, 2)
    assert bench.sensor.msix.pending == [2]
    assert bench.came(0, 40)
    assert bench.came(1, 43)
    assert not bench.came(1, 42)


def test_an_address_of_memory_is_written_by_dma() -> None:
    iommu = Iommu()
    iommu.map(0x5000, 0x3000, 4096)
    bench = Bench(pcie=Pcie(), iommu=iommu)
    bench.store(AT, ENABLE, 2)
    bench.set(0, 0x5010, 0x12345678)
    bench.send(0)
    assert bench.computer.read(0x3010, 4) == bytes.fromhex("78563412")
    assert bench.computer.counters.interrupts_sent == 0
    bench.store(TABLE + 12, 1)
    bench.set(0, 0x9000, 1)
    with pytest.raises(IommuFault, match=r"Sensor at .*, with entry 0 of its MSI-X table, may not"):
        bench.send(0)


@pytest.mark.parametrize(
    ("address", "data", "error", "text"),
    [
        (0x200000, 1, AccessError, "wrote 4 bytes by DMA to 0x200000, where there is no memory"),
        (message_address(2), 40, HostError, "interrupts core 2, and the computer has cores 0 to 1"),
        (message_address(0), 7, HostError, "cannot interrupt: data 0x7 have vector 7"),
        (message_address(0), 0x440, HostError, "data 0x440 have delivery mode 4"),
        (message_address(0) | 12, 40, HostError, "interrupts logical destination 0"),
    ],
)
def test_an_entry_that_cannot_be_sent_is_named(
    address: int, data: int, error: type[HostError], text: str
) -> None:
    bench = Bench()
    bench.store(AT, ENABLE, 2)
    bench.set(3, address, data)
    with pytest.raises(error, match=f"Sensor at .*, with entry 3 of its MSI-X table, .*{text}"):
        bench.send(3)


def test_stores_that_the_standard_leaves_open_are_refused() -> None:
    bench = Bench()
    bench.set(0, message_address(0), 40)
    bench.store(AT, ENABLE, 2)
    with pytest.raises(HostError, match="a store to entry 0 of its MSI-X table, which is in use"):
        bench.store(TABLE + 8, 41)
    for offset, size in ((TABLE + 2, 2), (PENDING, 8), (TABLE + 4, 8), (AT + 4, 4)):
        with pytest.raises(HostError, match="among the registers of MSI-X"):
            bench.sensor.write(offset, size, 0)
    with pytest.raises(HostError, match="a load of 1 bytes at offset 0x810"):
        bench.sensor.read(TABLE, 1)
    with pytest.raises(HostError, match="has no entry 4 of its MSI-X table: 0 to 3"):
        bench.send(4)
    with pytest.raises(HostError, match="1 to 2048 entries, not 0"):
        Msix(bench.sensor, 0)
    with pytest.raises(HostError, match="4 entries of MSI-X take 88"):
        Msix(bench.sensor, 4, at=0xFC0)


ACTIONS = st.tuples(
    st.sampled_from(["send", "send", "mask", "unmask", "all", "none", "off", "on"]),
    st.integers(0, 3),
)


@given(st.lists(ACTIONS, max_size=40))
def test_every_interrupt_is_sent_or_waits_or_is_merged(actions: list[tuple[str, int]]) -> None:
    """Beside a plain model: which entries are masked, and which wait."""
    computer, sensor = Computer(), Sensor()
    computer.map(sensor, BASE)
    msix = sensor.msix
    masked, waiting, control, asked, sent = set(range(4)), set[int](), 0, 0, 0
    for entry in range(4):
        sensor.write(TABLE + 16 * entry, 8, message_address(0))
        sensor.write(TABLE + 16 * entry + 8, 4, 40 + entry)
    for name, entry in actions:
        if name == "send":
            was_on = bool(control & ENABLE)
            assert msix.send(entry) == was_on
            asked += was_on
            if was_on and (entry in masked or control & FUNCTION_MASK):
                waiting.add(entry)
            elif was_on:
                sent += 1
        elif name in ("mask", "unmask"):
            sensor.write(TABLE + 16 * entry + 12, 4, int(name == "mask"))
            masked = masked | {entry} if name == "mask" else masked - {entry}
        else:
            bit = ENABLE if name in ("on", "off") else FUNCTION_MASK
            control = control | bit if name in ("on", "all") else control & ~bit
            sensor.write(AT, 2, control)
        if control & ENABLE and not control & FUNCTION_MASK:
            sent += len(waiting - masked)
            waiting &= masked
        assert set(msix.pending) == waiting
        assert msix.sent == sent == computer.counters.interrupts_sent
    assert asked == msix.sent + len(msix.pending) + msix.merged


# ---- the adapters ----


def armed(node: Node, *cqs: Any) -> None:
    for cq in cqs:
        cq.arm()
    node.run()


def test_two_completion_queues_interrupt_two_cores() -> None:
    left, right = connected(cores=2, vector=40, msix=True)
    second = left.driver.completion_queue(64, vector=41, core=1)
    other = left.driver.queue_pair(second)
    other.connect(right.driver.queue_pair(right.cq))
    source, target = left.register(0x100000, 4096), right.register(0x100000, 4096)
    armed(left, left.cq, second)
    left.qp.write(source, target)
    other.write(source, target)
    left.run()
    states = [core.state for core in left.computer.cores]
    assert [states[0].withdraw(40), states[0].withdraw(41)] == [True, False]
    assert [states[1].withdraw(40), states[1].withdraw(41)] == [False, True]
    assert left.hca.msix.sent == 2


def test_a_queue_is_steered_to_another_core_while_it_is_in_use() -> None:
    left, right = connected(cores=2, vector=40, msix=True)
    source, target = left.register(0x100000, 4096), right.register(0x100000, 4096)
    states = [core.state for core in left.computer.cores]
    left.cq.steer(1, 50)
    armed(left, left.cq)
    left.qp.write(source, target)
    left.run()
    assert states[1].withdraw(50)
    assert not states[0].withdraw(40)
    left.cq.mask()
    left.cq.poll()
    armed(left, left.cq)
    left.qp.write(source, target)
    left.run()
    assert left.hca.msix.pending == [0]
    assert not states[1].withdraw(50)
    left.cq.unmask()
    left.run()
    assert left.hca.msix.pending == []
    assert states[1].withdraw(50)
    with pytest.raises(HostError, match="there is no core 2: there are 0 to 1"):
        left.cq.steer(2)


def test_a_core_takes_the_adapter_s_messages_from_its_local_apic() -> None:
    """Core 1 of one of two computers sleeps, and its handler counts completions."""
    left, right = connected(cores=2, vector=0x51, msix=True)
    controller = InterruptController(left.computer)
    handlers = Handlers({0x51: "inc r15d"})
    install(left.computer, "sti\nidle: hlt\n jmp idle", handlers, core=1)
    source, target = left.register(0x100000, 4096), right.register(0x100000, 4096)
    left.cq.steer(1)
    for count in (1, 2, 3):
        armed(left, left.cq)
        left.qp.write(source, target)
        left.run()
        assert len(left.cq.poll()) == 1
        assert left.computer.cores[1].registers.r15 == count
    assert controller.taken == 3
    assert left.computer.counters.interrupts_sent == 3
    assert controller.local.apic(1).isr == 0


def test_the_driver_says_what_its_table_lacks() -> None:
    left, _ = connected(vector=40)
    with pytest.raises(HostError, match="has no entry of an MSI-X table: make the driver with"):
        left.cq.steer(0)
    with pytest.raises(HostError, match="all 1 entries of the adapter's MSI-X table are in use"):
        connected(vector=40, msix=True, hca={"vectors": 1})[0].driver.completion_queue(vector=41)
    with pytest.raises(HostError, match="1 to 128 vectors: not 16 and 129"):
        connected(hca={"vectors": 129})


def test_without_msix_the_driver_programs_nothing_and_interrupts_are_as_before() -> None:
    left, right = connected(vector=40)
    source, target = left.register(0x100000, 4096), right.register(0x100000, 4096)
    armed(left, left.cq)
    left.qp.write(source, target)
    left.run()
    assert left.computer.cores[0].state.withdraw(40)
    assert not left.hca.msix.is_enabled
    assert left.hca.msix.sent == 0


def adapters() -> tuple[Computer, EthernetAdapter, EthernetAdapter]:
    """Two in one computer, at 0x100000 and 0x110000, with a cable between them."""
    computer, left, right = Computer(cores=2), EthernetAdapter(), EthernetAdapter()
    computer.map(Ram(65536), 0)
    computer.map(left, BASE)
    computer.map(right, BASE + 0x10000)
    Cable(left, right)
    return computer, left, right


def test_the_ethernet_adapter_has_an_entry_for_each_cause() -> None:
    computer, left, right = adapters()
    for adapter, vectors in ((left, (60, 61)), (right, (62, 63))):
        base = BASE if adapter is left else BASE + 0x10000
        for entry, vector in enumerate(vectors):
            at = base + 0x810 + 16 * entry
            computer.store(at, message_address(entry).to_bytes(8, "little"))
            computer.store(at + 8, vector.to_bytes(8, "little"))
        computer.store(base + 0x800, ENABLE.to_bytes(2, "little"))
        for offset, value in ((0, 0x4000), (8, 4), (0x18, 0x5000), (0x20, 4), (0x30, 1)):
            computer.store(base + offset, value.to_bytes(8, "little"))
    computer.write(0x5000, (0x6000).to_bytes(8, "little") + (64).to_bytes(4, "little"))
    computer.write(0x4000, (0x7000).to_bytes(8, "little"))
    computer.store(BASE + 0x10010, (1).to_bytes(8, "little"))
    computer.store(BASE + 0x28, (1).to_bytes(8, "little"))
    computer.run()
    states = [core.state for core in computer.cores]
    assert [states[1].withdraw(61), states[0].withdraw(62)] == [True, True]
    assert not any(states[core].withdraw(one) for core in (0, 1) for one in (43, 60, 63))


def test_a_message_reaches_a_local_apic_by_its_logical_destination() -> None:
    bench = Bench()
    controller = InterruptController(bench.computer)
    for core in (0, 1):
        bench.computer._running = bench.computer.cores[core]
        bench.computer.store(0xFEE000F0, (0x1FF).to_bytes(4, "little"))
        bench.computer.store(0xFEE000D0, (1 << 24 + core).to_bytes(4, "little"))
    bench.store(AT, ENABLE, 2)
    bench.set(0, message_address(0b10) | 12, 70)
    bench.send(0)
    assert [controller.local.apic(core).irr for core in (0, 1)] == [0, 1 << 70]
