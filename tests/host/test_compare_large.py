# SPDX-License-Identifier: Apache-2.0
"""Large transfers of the comparison: when they end, what bounds them, and that none is resent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from verbena.host import Pcie
from verbena.host.comparison import WAYS, Setup, compare_ways
from verbena.host.comparison.disk_ways import content_of
from verbena.host.comparison.rdma_ways import Pair
from verbena.host.comparison.settings import MOST_BYTES
from verbena.host.hca import Hca, Wire, connected


@pytest.mark.parametrize("link", [(1, 1), (3, 8)])
@pytest.mark.parametrize("size", [64, 4096, 256 << 10])
def test_no_way_is_faster_than_its_most_loaded_resource(size: int, link: tuple[int, int]) -> None:
    ways = [way for way in WAYS if way != "pio" or size <= 4096]
    for row in compare_ways(size, ways, Setup(pcie=Pcie(*link))):
        late = {name: ps for name, ps in row.occupied.items() if ps > row.latency_ps}
        assert not late, (row.way, row.latency_ps)
        assert row.rate <= row.limit[1]


@pytest.mark.parametrize("link", [(1, 1), (3, 8)])
def test_a_large_write_ends_when_its_bytes_are_in_memory_there(link: tuple[int, int]) -> None:
    """8 MiB queue for the link to memory there when the sender has its completion."""
    (row,) = compare_ways(8 << 20, ["write"], Setup(pcie=Pcie(*link)))
    assert row.rate <= row.limit[1]
    assert row.latency_ps > max(row.occupied.values()) + Pcie().round_trip_ns * 500


@pytest.mark.parametrize("way", ["send", "write"])
def test_no_size_is_too_large_for_the_translation_cache(way: str) -> None:
    """Each payload byte crosses the link once, and no translation is read again."""
    size = (8 << 20) + (256 << 10)
    (row,) = compare_ways(size, [way])
    assert row.there is not None
    assert row.here.to_device.bytes < size * 276 / 256 + 400
    assert row.there.to_device.bytes <= 36
    assert row.rate > 0.99 * row.limit[1]


def test_the_translation_table_has_room_for_the_largest_size_and_messages() -> None:
    """64 MiB are 16,384 pages, and a message of the remote disk is in one more."""
    pair = Pair(Setup(), MOST_BYTES, None)
    assert pair.here.register(0x8_0000, 64).count == 1


def test_a_read_is_fetched_no_further_ahead_than_64_kib() -> None:
    """Of memory at the responder, beyond what is on the wire, however long the READ is."""
    left, right = connected()
    size = 1 << 20
    mine, theirs = left.register(0x100000, size), right.register(0x100000, size)
    right.computer.write(0x100000, content_of(size))
    asked, sent, most = 0, 0, 0
    gather = right.hca.gather

    def counted(parts: list[tuple[int, int]], *calls: Callable[..., None]) -> None:
        nonlocal asked, most
        asked += sum(length for _, length in parts)
        most = max(most, asked - sent)
        gather(parts, *calls)

    def watch(sender: Hca, text: str, bytes: int, start: int, end: int) -> None:
        nonlocal sent
        sent += 4096 if sender is right.hca else 0

    right.hca.gather = counted  # type: ignore[method-assign]
    assert right.hca.wire is not None
    right.hca.wire.observers.append(watch)
    left.qp.read(mine, theirs)
    left.run()
    assert not left.cq.poll()[0].is_error
    assert left.computer.read(0x100000, size) == content_of(size)
    assert asked == sent == size
    assert most == 64 << 10


@pytest.mark.parametrize("way", ["write", "read"])
def test_a_wire_carries_both_directions_at_once(way: str) -> None:
    """What many small requests get on a slow wire, as the adapters send them, is within the limit,
    and near it."""
    (row,) = compare_ways(64, [way], Setup(gbps=1.0))
    assert row.limit[0].startswith("the wire from")
    left, right = connected(wire=Wire(rate_gbps=1.0))
    here, there = left.register(0x100000, 4096), right.register(0x100000, 4096)
    begin = left.computer.now
    for _ in range(200):
        getattr(left.qp, way)(here, there, 64)
    left.run()
    measured = 200 * 64 * 8e12 / (left.computer.now - begin)
    assert 0.9 * row.limit[1] < measured < row.limit[1]
