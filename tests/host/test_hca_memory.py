# SPDX-License-Identifier: Apache-2.0
"""DMA of the RDMA adapter to where no memory is: it was taken away after its registration."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from verbena.host import AccessError, Ram
from verbena.host.hca import HcaStatus, Node, QpState, connected
from verbena.host.iommu import IommuFault

BASE, AWAY, SIZE = 0x100000, 0x7000_0000, 65536
US = 1_000_000


def nodes(iommu: bool = False) -> tuple[Node, Node]:
    """Two connected nodes with memory at AWAY that can be taken away alone."""
    left, right = connected(queue_pair={"timeout_us": 50.0}, iommu=iommu)
    for one in (left, right):
        one.computer.map(Ram(SIZE), AWAY)
    return left, right


def finish(left: Node) -> list[HcaStatus]:
    """Runs until nothing is left, whatever DMA says, and polls."""
    for _ in range(40):
        try:
            left.run()
        except AccessError:
            continue
        return [one.entry.status for one in left.cq.poll()]
    raise AssertionError("DMA fails without end")


def check_new_pair(left: Node, right: Node) -> None:
    mine, other = (one.driver.queue_pair(one.cq) for one in (left, right))
    mine.connect(other)
    mine.write(left.register(BASE, 64), right.register(BASE, 64))
    left.run()
    assert [one.entry.status for one in left.cq.poll()] == [HcaStatus.SUCCESS]


Post = Callable[[Node, Node, int], None]


def write_to(left: Node, right: Node, size: int) -> None:
    left.qp.write(left.register(BASE, SIZE), right.register(AWAY, SIZE), size)


def write_from(left: Node, right: Node, size: int) -> None:
    left.qp.write(left.register(AWAY, SIZE), right.register(BASE, SIZE), size)


def read_to(left: Node, right: Node, size: int) -> None:
    left.qp.read(left.register(AWAY, SIZE), right.register(BASE, SIZE), size)


def read_from(left: Node, right: Node, size: int) -> None:
    left.qp.read(left.register(BASE, SIZE), right.register(AWAY, SIZE), size)


def send_to(left: Node, right: Node, size: int) -> None:
    right.qp.receive(right.register(AWAY, SIZE))
    left.qp.send(left.register(BASE, SIZE), size)


def add_to(left: Node, right: Node, size: int) -> None:
    del size
    left.qp.fetch_and_add(left.register(BASE, 8), right.register(AWAY, 8), 1)


CASES = (
    (write_to, "right", HcaStatus.REM_OP_ERR),
    (write_from, "left", HcaStatus.LOC_PROT_ERR),
    (read_to, "left", HcaStatus.LOC_PROT_ERR),
    (read_from, "right", HcaStatus.REM_OP_ERR),
    (send_to, "right", HcaStatus.REM_OP_ERR),
    (add_to, "right", HcaStatus.REM_OP_ERR),
)


@pytest.mark.parametrize("size", [64, 4096, SIZE])
@pytest.mark.parametrize("iommu", [False, True])
@pytest.mark.parametrize(("post", "side", "status"), CASES)
def test_a_request_for_memory_that_is_gone_is_an_error(
    post: Post, side: str, status: HcaStatus, iommu: bool, size: int
) -> None:
    left, right = nodes(iommu)
    post(left, right, size)
    node = {"left": left, "right": right}[side]
    node.computer.unmap(AWAY)
    with pytest.raises(AccessError, match=r"0x7000.* there is no memory"):
        left.run()
    assert finish(left) == [status]
    assert (left.qp.state, node.qp.state) == (QpState.ERROR, QpState.ERROR)
    assert any("there is no memory" in one.why for one in node.hca.refusals)
    assert {one.address >> 16 for one in node.hca.refusals} == {AWAY >> 16}
    if post is send_to:
        assert [one.entry.status for one in right.cq.poll()] == [HcaStatus.LOC_PROT_ERR]
    left.qp.write(left.register(BASE, 64), right.register(BASE, 64))
    assert finish(left) == [HcaStatus.WR_FLUSH_ERR]
    check_new_pair(left, right)


@pytest.mark.parametrize(("post", "side", "status"), CASES)
def test_memory_may_go_at_any_time(post: Post, side: str, status: HcaStatus) -> None:
    found = set()
    for time in range(0, 18 * US, US):
        left, right = nodes()
        post(left, right, SIZE)
        node = {"left": left, "right": right}[side]
        node.computer.at(node.computer.now + time, lambda node=node: node.computer.unmap(AWAY))  # type: ignore[misc]
        (one,) = finish(left)
        found.add(one)
        check_new_pair(left, right)
    assert status in found <= {status, HcaStatus.SUCCESS}


def test_a_queue_whose_memory_is_gone_ends_its_queue_pairs() -> None:
    """All memory goes, and so the tables, the rings and the completion queue."""
    for time in range(0, 8 * US, US // 2):
        left, right = nodes()
        left.qp.write(left.register(AWAY, SIZE), right.register(BASE, SIZE))
        left.computer.at(left.computer.now + time, lambda left=left: left.computer.unmap(0))  # type: ignore[misc]
        for _ in range(20):
            try:
                left.run()
            except AccessError:
                continue
            break
        else:
            raise AssertionError("DMA fails without end")
        assert left.qp.state is QpState.ERROR or time >= 3 * US


@pytest.mark.parametrize(
    ("way", "status"),
    [
        ("write", HcaStatus.REM_OP_ERR),
        ("read", HcaStatus.LOC_PROT_ERR),
        ("source", HcaStatus.LOC_PROT_ERR),
    ],
)
def test_what_the_iommu_refuses_never_succeeds(way: str, status: HcaStatus) -> None:
    left, right = nodes(iommu=True)
    here, there = left.register(0x10000, 8192), right.register(0x20000, 8192)
    node, address = (right, 0x20000) if way == "write" else (left, 0x10000)
    assert node.hca.iommu is not None
    node.hca.iommu.unmap(address, 8192)
    if way == "read":
        left.qp.read(here, there)
    else:
        left.qp.write(here, there)
    for _ in range(3):
        with suppress(IommuFault):
            left.run()
    assert [one.entry.status for one in left.cq.poll()] == [status]
    assert left.qp.state is QpState.ERROR
