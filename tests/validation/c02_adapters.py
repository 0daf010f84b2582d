# SPDX-License-Identifier: Apache-2.0
"""C2: what an Ethernet adapter's descriptors, pointers and interrupts leave of a PCIe link."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.host.nic_driver import bytes_of_frames
from tests.validation.row import Confidence, Figure, Row, Scope, at_most, equal, near
from verbena.host.pcie import Pcie

DESCRIPTOR, MSI = 16, 28  # bytes; of MSI with its headers
LINK = Pcie()


@dataclass(frozen=True)
class Behaviour:
    """After how many packets a thing is done; ``quiet``: no interrupts, and no pointer is read."""

    told: int = 1  # the driver stores the send ring's tail
    fetched: int = 1  # descriptors to send, in one read
    returned: int = 0  # sent descriptors, in one write; 0: never
    refilled: int = 1  # the driver stores the receive ring's tail
    looked: int = 1  # the driver reads the receive ring's head
    asked: int = 1  # the driver reads the send ring's head
    interrupts: int = 1
    quiet: bool = False
    pointer: int = 4  # bytes of a ring's head or tail
    sent_status: int = DESCRIPTOR  # bytes that the adapter writes of a descriptor that is done
    received_status: int = DESCRIPTOR


SIMPLE = Behaviour()
KERNEL = Behaviour(fetched=40, returned=8, refilled=32, looked=8, interrupts=32)
POLLING = Behaviour(told=32, fetched=40, returned=8, refilled=32, quiet=True)
OWN = Behaviour(returned=1, pointer=8, sent_status=4, received_status=8)
OWN_LISTS = replace(OWN, told=32, refilled=32, looked=32, asked=32, interrupts=32)
"""``EthernetAdapter`` with a driver that is interrupted for each frame, and for 32."""


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
        sent += LINK.write_bytes(of.returned * of.sent_status) / of.returned
    received = LINK.write_bytes(size) + LINK.write_bytes(of.received_status) + asks * 24
    if of.quiet:
        return sent + received
    pointers = (20 + of.pointer) * (1 / of.asked + 1 / of.looked)
    return sent + received + 2 * MSI / of.interrupts + pointers


def to_adapter(of: Behaviour, size: int) -> float:
    sent = (24 + of.pointer) / of.told + read(of.fetched * DESCRIPTOR, False) / of.fetched
    received = (24 + of.pointer) / of.refilled + read(DESCRIPTOR, False)
    pointers = 0 if of.quiet else 24 * (1 / of.asked + 1 / of.looked)
    return sent + read(size, False) + received + pointers


def rate(of: Behaviour, size: int, asks: bool) -> float:
    """Gb/s of packets in each direction."""
    return LINK.usable_gbps * size / max(to_memory(of, size, asks), to_adapter(of, size))


def driven(count: int) -> Iterator[Figure]:
    """What frames take of the links of two computers, whose drivers are machine code."""
    for each, of, name in ((1, OWN, "each frame"), (32, OWN_LISTS, "32 frames")):
        for size in (64, 256, 512, 1024, 1500):
            seen = bytes_of_frames(size, count, each)
            text = f"own adapter, interrupts for {name}, {size} B"
            yield equal(f"{text}: to memory", seen.up, to_memory(of, size, True), "B")
            yield equal(f"{text}: to the adapter", seen.down, to_adapter(of, size), "B")


def measure(scope: Scope) -> Iterator[Figure]:
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
    yield from driven(scope.pick(64, 1024))


ROW = Row(
    number="C2",
    title="An Ethernet adapter's use of a PCIe link (pcie-bench, SIGCOMM 2018)",
    setup="packets in both directions, link of generation 3 with 8 lanes; a simple adapter, for "
    "which each packet has pointers, descriptors and an interrupt of its own; one whose driver is "
    "as Linux's, with lists; and one that is polled. As in the publication's program, which "
    "overwrites that term, the requests for receive descriptors are left out. Then a computer "
    "with Verbena's `EthernetAdapter` sends frames to another, by drivers in machine code, and "
    "the bytes of both links are counted: for a frame that is sent and one that is received.",
    expected="13.23, 18.44 and 21.51 Gb/s of packets of 64 B, and so on to 1500 B: what the "
    "published program prints. A simple adapter does not fill Ethernet of 40 Gb/s with 512 B. The "
    "links of the computers carry the bytes of the same formulas, with the adapter's sizes: 8 B "
    "of a pointer, 4 and 8 B of a descriptor that is done, and a request for each descriptor.",
    fails="a transaction has other headers, a list is cut otherwise, or an adapter and its driver "
    "make another transaction for a frame, or one more.",
    meaning="Lists and polling give small packets two thirds more of the same bus.",
    measure=measure,
    confidence=Confidence.PROGRAM,
    quick=True,
    tested="`tests/host/test_nic.py`",
    missing="rates of the own adapter with lists of descriptors: it fetches and returns each "
    "alone.",
)
