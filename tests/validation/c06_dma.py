# SPDX-License-Identifier: Apache-2.0
"""C6: the same bytes by DMA."""

from __future__ import annotations

from collections.abc import Iterator

from tests.validation.row import Confidence, Figure, Row, Scope, equal, near
from verbena.host import Computer, Device, Pcie, Ram
from verbena.host.comparison import Setup, compare_ways

SETUP = Setup(ghz=3.0, pcie=Pcie(3, 8, round_trip_ns=900.0), disk_us=10.0)
ENTRY = 1500  # cycles that an interrupt is charged


def reads(size: int) -> tuple[int, float]:
    """The bytes of completions, and the us, of a device's read of memory."""
    computer, device = Computer(), Device(8)
    computer.map(Ram(1 << 16), 0)
    computer.map(device, 1 << 20, pcie=SETUP.pcie)
    ends: list[int] = []
    device.dma_read(0, size, lambda data: ends.append(computer.now))
    computer.run()
    assert device.slot is not None
    return device.slot.down.bytes, ends[0] / 1e6


def measure(scope: Scope) -> Iterator[Figure]:
    link, busy = SETUP.pcie, {}
    for size in scope.pick((4096, 8192), (512, 4096, 8192, 65536, 1 << 20)):
        (row,) = compare_ways(size, ["dma"], SETUP)
        moved = link.write_bytes(size)
        law = -(-size // 256) * 24 + size
        yield equal(f"{size} B written: on the link", row.here.to_memory.bytes, law + 28, "B")
        busy[size] = row.here.cycles
        if size <= 65536:
            # the command, the medium, the bytes, half a round trip each for them and the interrupt
            law_us = 0.45 + 10 + link.time_ps(moved) / 1e6 + 0.9 + ENTRY / 3000
            yield near("until the handler has run", row.latency_ps / 1e6, law_us, 0.01, "us")
    yield near("8192 B: bytes alone", link.time_ps(link.write_bytes(8192)) / 1e6, 1.238, 1e-3, "us")
    yield equal("cycles: largest over smallest", max(busy.values()) / min(busy.values()), 1)
    down, took = reads(8192)
    yield equal("8192 B read: completions", down, 8832, "B")
    asked = 24 * 8e-3 / link.usable_gbps
    yield near("until the device has them", took, 0.9 + 1.221 + asked, 2e-3, "us")


ROW = Row(
    number="C6",
    title="DMA of the same bytes",
    setup="A disk of 10 us writes n bytes to memory over a gen3 x8 link (MPS 256, MRRS 512, 900 ns "
    "there and back) and interrupts; the command and the handler are machine code. Then a device "
    "reads 8 KiB.",
    expected="a write has 24 bytes of headers for each 256, a completion 20, an interrupt 28: "
    "8,960 and 8,832 bytes for 8 KiB, 1.238 and 1.221 us. The processor's cycles do not depend on "
    "n.",
    fails="the processor waits for bytes, or headers are counted otherwise.",
    meaning="Where programmed I/O takes 0.93 ms of the processor, DMA takes a few stores and an "
    "interrupt.",
    measure=measure,
    confidence=Confidence.EXACT,
    quick=True,
)
