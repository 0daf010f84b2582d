# SPDX-License-Identifier: Apache-2.0
"""Large transfers of the comparison: when they end, what bounds them, and that none is resent."""

from __future__ import annotations

import pytest

from verbena.host import Pcie
from verbena.host.comparison import WAYS, Setup, compare_ways


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
