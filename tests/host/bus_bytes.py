# SPDX-License-Identifier: Apache-2.0
"""What a request of the RDMA adapter takes of the PCIe links at both ends.

Tests of the adapter call it, and rows of `make validate`. All caches of tables are warm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from verbena.host import Pcie
from verbena.host.hca import HcaStatus, Node, Region, connected

CONTENT = bytes(range(256)) * 16
SOURCE, TARGET = 0x1000, 0x2000


@dataclass(frozen=True)
class BusBytes:
    """Bytes to the device (down) and to memory (up), at the requester and at the responder."""

    down: int
    up: int
    responder_down: int
    responder_up: int

    @property
    def requester(self) -> tuple[int, int]:
        return self.down, self.up

    @property
    def responder(self) -> tuple[int, int]:
        return self.responder_down, self.responder_up


Post = Callable[[Node, Node, Region, Region], None]


def measured(post: Post) -> BusBytes:
    """What ``post(left, right, source, target)`` takes; the left node has CONTENT at ``source``.

    Its observers see the same bytes as the links count, and its requests succeed.
    """
    left, right = connected(pcie=Pcie(tags=256))
    left.computer.write(SOURCE, CONTENT)
    source, target = left.register(SOURCE, 4096), right.register(TARGET, 4096)
    right.qp.receive(target)
    left.qp.send(source, 64)
    left.qp.write(source, target, 64)
    left.run()
    for node in (left, right):
        node.cq.poll()
        node.slot.reset_counts()
    seen = left.watch()
    post(left, right, source, target)
    left.run()
    assert sum(one.bytes for one in seen if one.up) == left.slot.up.bytes
    assert sum(one.bytes for one in seen if not one.up) == left.slot.down.bytes
    assert all(one.entry.status is HcaStatus.SUCCESS for one in left.cq.poll())
    return BusBytes(
        left.slot.down.bytes, left.slot.up.bytes, right.slot.down.bytes, right.slot.up.bytes
    )


def of_a_write(size: int, way: str, *, signalled: bool = True) -> BusBytes:
    """An RDMA WRITE by "doorbell", "blueflame", or "inline" (by BlueFlame, too)."""

    def post(left: Node, right: Node, source: Region, target: Region) -> None:
        inline = way == "inline"
        left.qp.write(
            CONTENT[:size] if inline else source,
            target,
            None if inline else size,
            blueflame=way != "doorbell",
            signalled=signalled,
        )
        left.run()
        assert right.computer.read(TARGET, size) == CONTENT[:size]

    return measured(post)


def of_a_read(size: int) -> BusBytes:
    """An RDMA READ by doorbell."""

    def post(left: Node, right: Node, source: Region, target: Region) -> None:
        left.qp.read(source, target, size)

    return measured(post)


def of_a_send(size: int) -> BusBytes:
    """A SEND by doorbell, whose receive request waits."""

    def post(left: Node, right: Node, source: Region, target: Region) -> None:
        right.qp.receive(target)
        left.qp.send(source, size)

    return measured(post)


def of_a_batch(count: int, size: int) -> BusBytes:
    """So many WRITEs by one doorbell, of which the last is signalled."""

    def post(left: Node, right: Node, source: Region, target: Region) -> None:
        for number in range(count):
            last = number == count - 1
            left.qp.write(source, target, size, ring=False, signalled=last)
        left.qp.ring()

    return measured(post)
