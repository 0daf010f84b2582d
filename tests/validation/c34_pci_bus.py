# SPDX-License-Identifier: Apache-2.0
"""C34: a PCI bus: what devices get of it, alone and together, and published measurements."""

from __future__ import annotations

from collections.abc import Iterator

from tests.host.pci_devices import Mover, check_conservation, computer_on, follow
from tests.validation.row import Confidence, Figure, Row, Scope, equal, holds, near
from verbena.host import PciBus

# MB/s by bits and MHz (J. Hodge, Beowulf mailing list, 7 December 2001)
MEASURED = {(32, 33): 128, (64, 33): 250, (64, 66): 512}
# MB/s of a 64-bit, 66 MHz bus by bytes of a burst (SISSA, "Myrinet 2000 on the cluster", GM)
BURSTS = {256: 147, 512: 227}
BRIDGE_WAIT = 79  # clocks; it gives the first of these two, and the second follows


def rates(bus: PciBus, size: int, count: int = 1, is_read: bool = False) -> list[float]:
    """MB/s of devices that move ``size`` bytes each at once."""
    movers = [Mover() for _ in range(count)]
    computer, seen = computer_on(bus, *movers), follow(bus)
    for one in movers:
        one.move(size, is_read=is_read)
    computer.run()
    check_conservation(bus, seen)
    return [one.mbps(size) for one in movers]


def measure(scope: Scope) -> Iterator[Figure]:
    size = scope.pick(1 << 15, 1 << 19)
    for (bits, mhz), published in MEASURED.items():
        name = f"{bits} bits, {mhz} MHz"
        (got,) = rates(PciBus(bits=bits, mhz=mhz, burst_bytes=512), size)
        yield near(f"{name}: bursts of 512 B", got, published, 0.03, "MB/s")
        peak = bits / 8 * 1e3 / (30 if mhz == 33 else 15)
        (got,) = rates(PciBus(bits=bits, mhz=mhz, burst_bytes=size), size)
        yield near(f"{name}: one burst", got, peak, 0.002, "MB/s")
    for burst, published in BURSTS.items():
        bus = PciBus(bits=64, mhz=66, burst_bytes=burst, memory_read_wait=BRIDGE_WAIT)
        (got,) = rates(bus, size, is_read=True)
        yield near(f"64 bits, 66 MHz: reads of {burst} B", got, published, 0.03, "MB/s")
    for phases in (8, 16, 32, 64):
        bus, mover = PciBus(memory_write_wait=5), Mover()
        computer = computer_on(bus, mover)
        mover.move(4 * phases)
        computer.run()
        yield equal(f"{phases} data phases", bus.busy / bus.timing.clock_ps, 8 + phases, "clocks")
    for timer in (16, 32, 64):
        bus = PciBus(latency_timer=timer)
        got = rates(bus, size, 3)
        law = 400 / 3 * (timer - 2) / (timer + 1)
        yield near(f"three devices, latency timer {timer}", sum(got), law, 0.01, "MB/s")
        yield near("the fastest over the slowest", max(got) / min(got), 1, 0.02)
        yield holds("busy and idle are all of the time", bus.busy + bus.idle == bus.accounted)


ROW = Row(
    number="C34",
    title="A PCI bus, alone and shared",
    setup="Devices that do nothing but DMA on one bus of 32 or 64 bits and 33 or 66 MHz, which "
    "nobody else uses. The burst length of the first measurement was not published: 512 bytes are "
    "chosen here. For the second, the time in which the bridge fetches is fitted to the first "
    "number, and the other one follows.",
    expected="128, 250 and 512 MB/s measured with Myricom's tool on buses of 32 bits and 33 MHz, "
    "64 and 33, 64 and 66 (J. Hodge, Beowulf mailing list, December 2001); 147 and 227 MB/s on one "
    "of 64 bits and 66 MHz with bursts of 256 and 512 bytes (SISSA's page on its Myrinet 2000 "
    "cluster). n data phases behind a first one in the eighth clock take n + 8 with the idle one: "
    "the table in 3.5 of PCI Local Bus 2.2, from memory, since it could not be found. Of T + 1 "
    "clocks T - 2 have data when the latency timer T ends every burst, and each device gets as "
    "much.",
    fails="devices together get more than the bus has, or one of them more than another.",
    meaning="A PCI bus divides its 133 MB/s among all devices and the processor's accesses; a PCIe "
    "link belongs to its device alone.",
    measure=measure,
    confidence=Confidence.TEXT,
    quick=True,
)
