# SPDX-License-Identifier: Apache-2.0
"""C2: what an Ethernet adapter's descriptors, pointers and interrupts leave of a PCIe link."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.validation.row import Confidence, Figure, Row, Scope, at_most, near
from verbena.host.pcie import Pcie

DESCRIPTOR, POINTER, MSI = 16, 4, 28  # bytes; of MSI with its headers
LINK = Pcie()


@dataclass(frozen=True)
class Behaviour:
    """After how many packets a thing is done; ``quiet``: no interrupts, and no pointer is read."""

    told: int = 1  # the driver stores the send ring's tail
    fetched: int = 1  # descriptors to send, in one read
    returned: int = 0  # sent descriptors, in one write; 0: never
    refilled: int = 1  # the driver stores the receive ring's tail
    looked: int = 1  # the driver reads the receive ring's head
    interrupts: int = 1
    quiet: bool = False


SIMPLE = Behaviour()
KERNEL = Behaviour(fetched=40, returned=8, refilled=32, looked=8, interrupts=32)
POLLING = Behaviour(told=32, fetched=40, returned=8, refilled=32, quiet=True)


def read(size: int, to_memory: bool) -> int:
    """Bytes of a read by the adapter, in one direction of the link."""
    if to_memory:
        return -(-size // LINK.mrrs) * 24
    return -(-size // LINK.mps) * 20 + size


def to_memory(of: Behaviour, size: int, asks: bool) -> float:
    """Bytes for a packet that is sent and one that is received. ``asks``: receive descriptors are
    asked for, one by one."""
    sent = read(of.fetched * DESCRIPTOR, True) / of.fetched + read(size, True)
    if of.returned:
        sent += LINK.write_bytes(of.returned * DESCRIPTOR) / of.returned
    received = LINK.write_bytes(size) + LINK.write_bytes(DESCRIPTOR) + asks * 24
    if of.quiet:
        return sent + received
    return sent + received + 2 * MSI / of.interrupts + (20 + POINTER) * (1 + 1 / of.looked)


def to_adapter(of: Behaviour, size: int) -> float:
    sent = (24 + POINTER) / of.told + read(of.fetched * DESCRIPTOR, False) / of.fetched
    received = (24 + POINTER) / of.refilled + read(DESCRIPTOR, False)
    pointers = 0 if of.quiet else 24 * (1 + 1 / of.looked)
    return sent + read(size, False) + received + pointers


def rate(of: Behaviour, size: int, asks: bool) -> float:
    """Gb/s of packets in each direction."""
    return LINK.usable_gbps * size / max(to_memory(of, size, asks), to_adapter(of, size))


def measure(scope: Scope) -> Iterator[Figure]:
    del scope
    for size, *expected in (
        (64, 13.23, 18.44, 21.51),
        (256, 31.40, 37.71, 40.69),
        (512, 39.41),
        (1024, 44.37, 47.16, 48.26),
        (1500, 46.09, 48.11, 48.88),
    ):
        adapters = (("simple", SIMPLE), ("kernel", KERNEL), ("polling", POLLING))
        for (name, of), wanted in zip(adapters, expected, strict=False):
            yield near(f"{name}, packets of {size} B", rate(of, size, False), wanted, 5e-4, "Gb/s")
    yield at_most("simple, 512 B, with all its requests", rate(SIMPLE, 512, True), 40.0, "Gb/s")


ROW = Row(
    number="C2",
    title="An Ethernet adapter's use of a PCIe link (pcie-bench, SIGCOMM 2018)",
    setup="packets in both directions, link of generation 3 with 8 lanes; a simple adapter, for "
    "which each packet has pointers, descriptors and an interrupt of its own; one whose driver is "
    "as Linux's, with lists; and one that is polled. As in the publication's program, which "
    "overwrites that term, the requests for receive descriptors are left out.",
    expected="13.23, 18.44 and 21.51 Gb/s of packets of 64 B, and so on to 1500 B: what the "
    "published program prints. A simple adapter does not fill Ethernet of 40 Gb/s with 512 B.",
    fails="a transaction has other headers, or a list is cut otherwise.",
    meaning="Lists and polling give small packets two thirds more of the same bus.",
    measure=measure,
    confidence=Confidence.PROGRAM,
    quick=True,
)
