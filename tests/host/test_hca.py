# SPDX-License-Identifier: Apache-2.0
"""The RDMA adapter: a verb's bytes on the PCIe link, its data, and its errors as completions."""

from __future__ import annotations

import pytest

from tests.host.bus_bytes import CONTENT, of_a_write
from verbena.host.hca import HcaStatus, Node, connected


def nodes() -> tuple[Node, Node]:
    """Two connected nodes, of which the left one has CONTENT at 0x1000."""
    left, right = connected()
    left.computer.write(0x1000, CONTENT)
    return left, right


@pytest.mark.parametrize(
    ("size", "way", "down", "up", "responder"),
    [
        (64, "doorbell", 200, 136, 88),
        (64, "blueflame", 172, 112, 88),
        (64, "inline", 176, 88, 88),
        (4096, "doorbell", 4532, 304, 4480),
        (4096, "blueflame", 4504, 280, 4480),
    ],
)
def test_bytes_of_a_write(size: int, way: str, down: int, up: int, responder: int) -> None:
    found = of_a_write(size, way)
    assert (found.requester, found.responder) == ((down, up), (0, responder))


def test_read_send_and_atomic_move_their_data() -> None:
    left, right = nodes()
    here, there = left.register(0x4000, 8192), right.register(0x4000, 8192)
    right.computer.write(0x4000, CONTENT)
    left.qp.read(here, there, 4096)
    left.qp.fetch_and_add(here, there, 5, into_offset=4096, target_offset=8)
    right.qp.receive(there, offset=4096)
    left.qp.send(b"hello")
    left.run()
    assert left.computer.read(0x4000, 4096) == CONTENT
    assert left.computer.read(0x5000, 8) == CONTENT[8:16]
    old = int.from_bytes(CONTENT[8:16], "little")
    assert int.from_bytes(right.computer.read(0x4008, 8), "little") == old + 5
    assert right.computer.read(0x5000, 5) == b"hello"
    assert [one.entry.length for one in right.cq.poll()] == [5]
    assert [one.is_error for one in left.cq.poll()] == [False] * 3


def test_a_key_that_was_taken_back_is_an_error_that_names_the_address() -> None:
    left, right = nodes()
    source, target = left.register(0x1000, 4096), right.register(0x2000, 4096)
    target.deregister()
    left.qp.write(source, target, 64)
    left.run()
    assert [one.entry.status for one in left.cq.poll()] == [HcaStatus.REM_ACCESS_ERR]
    assert "0x2000" in str(right.hca.refusals[0])
    assert "deregistered" in right.hca.refusals[0].why
