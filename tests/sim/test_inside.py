# SPDX-License-Identifier: Apache-2.0
"""Hosts with an inside: what requests cost them, and which settings are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sim.fabrics import GIGABIT, finish, star
from tests.sim.inside_pair import FREE, InsideWorld, pair, rate_of
from verbena.host.pcie import Pcie
from verbena.sim import World


def test_a_fast_bus_leaves_no_gap_on_the_wire() -> None:
    world = pair(pcie={"generation": 4, "lanes": 16})
    world.add_flows(0, 1, 64 << 20, message=1 << 20, depth=4)
    finish(world)
    assert rate_of(world) == pytest.approx(100 * 4096 / 4178, rel=0.01)


@pytest.mark.parametrize("transport", ["rc", "uc", "ud"])
@pytest.mark.parametrize("interrupts", [None, {}, {"time": "8 us", "packets": 128}])
def test_every_transport_ends(transport: str, interrupts: dict[str, Any] | None) -> None:
    world = pair(interrupts=interrupts)
    world.add_flows([0, 0, 1], [1, 1, 0], 1 << 18, message=4096, depth=8, operation="send",
                    transport=transport)  # fmt: skip
    finish(world)
    assert (world.flows()["done"] == 1 << 18).all()


def test_any_number_of_threads_gives_the_same() -> None:
    seen = []
    for threads in (1, 2, 3):
        world = InsideWorld(threads=threads)
        star(world, 8)
        for host in range(8):
            world.inside(host, iommu={"entries": 8}, interrupts={"time": 4_000_000})
        world.add_flows(np.arange(8), (np.arange(8) + 3) % 8, 1 << 18, message=3000, depth=4)
        finish(world)
        counters = [world.insides[host].counters() for host in range(8)]
        seen.append((world.flows().tobytes(), counters))
    assert seen[0] == seen[1] == seen[2]


def test_misses_cost_time_and_are_counted() -> None:
    took = []
    for entries in (1024, 1):
        world = pair(hca={"mtt": entries}, iommu={"entries": entries})
        world.add_flows(0, 1, 1 << 20, message=64)
        finish(world)
        took.append(int(world.flows()["finish"][0]))
        hits, misses = world.insides[0].counters().mtt
        assert misses == (256 if entries > 256 else 1 << 14)  # in turn, all or none are there
        assert hits + misses == world.insides[0].counters().requests
        assert world.insides[1].counters().iotlb == (hits, misses)
    assert took[1] > took[0] + (1 << 14) * 900_000


@pytest.mark.parametrize(("walks", "rate"), [(1, 99.3), (2, 198.6), (4, 200 * 4096 / 4178)])
def test_walks_at_a_time_overlap(walks: int, rate: float) -> None:
    world = pair(200 * GIGABIT, pcie={"generation": 4, "lanes": 16},
                 iommu={"entries": 64, "walks": walks})  # fmt: skip
    world.add_flows(0, 1, 32 << 20, message=1 << 20, depth=8)
    finish(world)
    assert rate_of(world) == pytest.approx(rate, rel=0.02)


@pytest.mark.parametrize("tags", [4, 8, 13, 64])
def test_reads_are_limited_by_their_tags(tags: int) -> None:
    """At 900 ns 13 requests of 512 bytes are as fast as the link, and 8 are not."""
    world = pair(400 * GIGABIT, 1000, cpu=FREE, pcie={"tags": tags})
    world.add_flows(0, 1, 8 << 20, message=1 << 20, depth=8)
    finish(world)
    assert rate_of(world) == pytest.approx(min(52.92, tags * 512 * 8 / 900), rel=0.01)


# The adapter's reads of the host's memory, one behind the other, before the packet leaves.
@pytest.mark.parametrize(
    ("operation", "hca", "reads"),
    [
        ("write", {"inline": 64}, 0),  # the processor has stored request and payload
        ("write", {}, 1),  # the payload
        ("write", {"blueflame": False}, 2),  # the request, then the payload
        ("read", {"inline": 64}, 1),  # the responder's payload
        ("read", {"blueflame": False}, 2),  # and the requester's request
    ],
)
@pytest.mark.parametrize("beyond", [70_000, 123_456])
def test_memory_beyond_the_cache_is_later(
    operation: str, hca: dict[str, Any], reads: int, beyond: int
) -> None:
    took = []
    for ddio in (True, False):
        world = pair(cpu=FREE, hca=hca, cache={"ddio": ddio, "beyond": beyond})
        world.add_flows(0, 1, 64, operation=operation)
        finish(world)
        took.append(int(world.flows()["finish"][0]))
    assert took[1] - took[0] == reads * beyond


@pytest.mark.parametrize(
    ("host", "keywords", "text"),
    [
        (7, {}, "there is no host 7"),
        ("h9", {}, "there is no host 'h9': there is only h0"),
        ("left", {}, "there is no host 'left': there is only h0"),
        (0, {"cpu": {"ghz": 0}}, "cpu.ghz is 0"),
        (0, {"pcie": {"generation": 9}}, "pcie.generation is 9"),
        (0, {"interrupts": {"time": "8 parsec"}}, "interrupts.time has the unit"),
        (0, {"iommu": {"page": 64}}, "iommu.page is 64: a page is a power of two from 4096"),
        (
            0,
            {"iommu": {"page": "4 GiB"}},
            "iommu.page is 4294967296, and not a whole number of bytes from 1 to 2147483648",
        ),
        (0, {"iommu": {"entries": 64, "page": 4800}}, "iommu.page is 4800: a page"),
        (0, {"iommu": {"page": "4 KB"}}, "iommu.page is 4000: a page"),
        (0, {"hca": {"mtt": 64, "page": 4800}}, "hca.page is 4800: a page"),
    ],
)
def test_bad_settings_are_named(host: int | str, keywords: dict[str, Any], text: str) -> None:
    world = World()
    world.add_host()
    with pytest.raises(ValueError, match=text):
        world.inside(host, **keywords)


def test_settings_that_exclude_an_inside() -> None:
    world = World(doorbell=300_000)
    world.add_host()
    with pytest.raises(ValueError, match="has an inside and doorbell"):
        world.inside("h0")
    other = World()
    other.add_host()
    made = other.inside("h0", pcie=Pcie(4, 16))
    assert made.settings.pcie.lanes == 16
    assert "pcie.lanes" in made.printed_costs()
    with pytest.raises(ValueError, match="already"):
        other.inside("h0")
    with pytest.raises(TypeError, match="unknown keyword ram"):
        other.inside("h0", ram=1)
