# SPDX-License-Identifier: Apache-2.0
"""A PCIe link against the figures of pcie-bench's model (github.com/pcie-bench/pcie-model, run)."""

from __future__ import annotations

import pytest

from tests.host.dma_rates import rate_by_tags, rate_of_dma
from verbena.host import HostError, Pcie
from verbena.host.pcie import Slot


@pytest.mark.parametrize(
    ("link", "usable"),
    [
        (Pcie(3, 8), 57.88),
        (Pcie(3, 16), 113.70),
        (Pcie(4, 16), 227.40),
        (Pcie(5, 16, mps=512), 458.49),
    ],
)
def test_usable_rate(link: Pcie, usable: float) -> None:
    assert link.usable_gbps == pytest.approx(usable, abs=0.006)


@pytest.mark.parametrize(
    ("size", "write", "read"),
    [(64, 42.10, 44.10), (256, 52.92, 53.69), (4096, 52.92, 53.69)],
)
def test_rate_of_data(size: int, write: float, read: float) -> None:
    link = Pcie(3, 8, mps=256, mrrs=512)
    assert link.usable_gbps * size / link.write_bytes(size) == pytest.approx(write, abs=0.006)
    answers = link.read_bytes(size)[1]
    assert link.usable_gbps * size / answers == pytest.approx(read, abs=0.006)


def test_one_byte_more_than_a_payload_costs_a_header() -> None:
    link = Pcie(3, 8)
    assert link.usable_gbps * 257 / link.write_bytes(257) == pytest.approx(48.78, abs=0.006)


@pytest.mark.parametrize(
    ("size", "bytes_written", "answers"), [(8192, 8960, 8832), (64, 88, 84), (4096, 4480, 4416)]
)
def test_bytes_of_transactions(size: int, bytes_written: int, answers: int) -> None:
    link = Pcie(3, 8)
    assert link.write_bytes(size) == bytes_written
    assert link.read_bytes(size)[1] == answers
    assert link.time_ps(bytes_written) == pytest.approx(bytes_written * 8000 / 57.885, rel=1e-4)


@pytest.mark.parametrize("translated", [False, True])
@pytest.mark.parametrize("tags", [1, 4, 8, 12, 13, 64])
def test_reads_are_limited_by_their_tags(tags: int, translated: bool) -> None:
    """At 900 ns 13 requests of 512 bytes fill the link, and 12 do not."""
    link = Pcie(tags=tags)
    rate = rate_of_dma(link, 1 << 18, 2, "r", translated=translated)
    assert rate == pytest.approx(rate_by_tags(link), rel=0.015)
    assert (rate > 53) == (tags >= 13)


def test_tags_are_of_the_link_and_not_of_a_read() -> None:
    """Reads that are asked for together share them, with an IOMMU and without."""
    link = Pcie(tags=4)
    for translated in (False, True):
        rate = rate_of_dma(link, 512, 1000, "r", translated=translated)
        assert rate == pytest.approx(rate_by_tags(link), rel=0.015)


@pytest.mark.parametrize(("size", "rate"), [(64, 33.08), (256, 48.75), (4096, 50.75)])
def test_reads_and_writes_at_once(size: int, rate: float) -> None:
    """Requests for reads take of the direction in which writes go."""
    link = Pcie(round_trip_ns=0)
    assert rate_of_dma(link, size, 200, "rw") == pytest.approx(rate, rel=0.01)


def test_transactions_queue_in_their_direction_only() -> None:
    slot = Slot(Pcie(3, 8, round_trip_ns=900))
    first = slot.write_to_memory(0, 4096)
    second = slot.write_to_memory(0, 4096)
    one = slot.link.time_ps(slot.link.write_bytes(4096))
    assert first == one + 450_000
    assert second == 2 * one + 450_000
    assert slot.store(0, 8) == slot.link.time_ps(32) + 450_000  # the other direction is free
    assert (slot.up.bytes, slot.up.transactions, slot.down.bytes) == (8960, 32, 32)
    assert slot.up.busy == 2 * one


def test_a_load_waits_for_the_whole_round_trip() -> None:
    slot = Slot(Pcie(3, 8, round_trip_ns=900))
    assert slot.load(0, 8) == slot.link.time_ps(24) + slot.link.time_ps(28) + 900_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"generation": 6}, "there are 1 to 5"),
        ({"lanes": 3}, "1, 2, 4, 8 or 16 lanes"),
        ({"mps": 300}, "power of two from 128 to 4096"),
        ({"mrrs": 64}, "power of two"),
        ({"tags": 0}, "at least one tag"),
    ],
)
def test_mistakes(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(HostError, match=message):
        Pcie(**arguments)
