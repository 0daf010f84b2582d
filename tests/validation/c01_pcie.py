# SPDX-License-Identifier: Apache-2.0
"""C1: a PCIe link's rate, and what headers leave of it; in the formula and in a run."""

from __future__ import annotations

from collections.abc import Iterator

from tests.host.dma_rates import rate_by_tags, rate_of_dma
from tests.sim.inside_pair import FREE, of_flow, rate_of
from tests.validation.row import Figure, Row, Scope, near
from verbena.host.pcie import Pcie

LINKS = (  # generation, lanes, payload; Gb/s raw, usable, of writes of 4 KiB
    (3, 8, 256, 63.02, 57.88, 52.92),
    (3, 16, 256, 126.03, 113.70, 103.95),
    (4, 16, 256, 252.06, 227.40, 207.91),
    (5, 16, 512, 504.12, 458.49, 437.96),
)
SIZES = ((64, 42.10, 44.10, 33.08), (256, 52.92, 53.69, 48.75), (4096, 52.92, 53.69, 50.75))
"""Bytes, and Gb/s of writes, of reads, and of both in their direction at once."""


def flow_rate(size: int, tags: int) -> float:
    """Gb/s of a flow of WRITEs of 1 MiB over a wire that is faster than the link."""
    inside = {"cpu": FREE, "rate": 400 * 10**9, "delay": 1000, "pcie": {"tags": tags}}
    world, _ = of_flow(size, inside=inside, message=1 << 20, depth=8)
    return rate_of(world)


def by_tags(scope: Scope) -> Iterator[Figure]:
    """Long reads, by the requests that may wait for their completions at a time."""
    size = scope.pick(8 << 20, 64 << 20)
    for tags in (4, 8, 12, 13, 64):
        link = Pcie(tags=tags)
        law = rate_by_tags(link)
        for translated, name in ((False, ""), (True, ", with an IOMMU")):
            rate = rate_of_dma(link, 1 << 20, scope.pick(1, 4), "r", translated=translated)
            yield near(f"reads with {tags} tags{name}", rate, law, 0.01, "Gb/s")
        law = min(52.92, tags * 512 * 8 / 900)
        yield near(f"a flow, {tags} tags", flow_rate(size, tags), law, 0.01, "Gb/s")


def measure(scope: Scope) -> Iterator[Figure]:
    count = scope.pick(200, 2000)
    for generation, lanes, mps, raw, usable, written in LINKS:
        link = Pcie(generation, lanes, mps)
        name = f"generation {generation}, {lanes} lanes"
        yield near(f"{name}, raw", link.raw_gbps, raw, 1e-4, "Gb/s")
        yield near(f"{name}, usable", link.usable_gbps, usable, 1e-4, "Gb/s")
        link = Pcie(generation, lanes, mps, round_trip_ns=0)
        rate = rate_of_dma(link, 4096, count, "w")
        yield near(f"{name}, writes of 4 KiB", rate, written, 1e-3, "Gb/s")
    link = Pcie(round_trip_ns=0)
    for size, *rates in (*SIZES, (257, 48.78)):
        ways = (("writes", "w"), ("reads", "r"), ("both at once, each way", "rw"))
        for (name, way), expected in zip(ways, rates, strict=False):
            rate = rate_of_dma(link, size, count, way)
            yield near(f"{name}, {size} B", rate, expected, scope.pick(0.01, 2e-3), "Gb/s")
    yield from by_tags(scope)
    size = scope.pick(8 << 20, 256 << 20)
    yield near("a long flow of WRITEs", flow_rate(size, 64), 52.92, 0.01, "Gb/s")


ROW = Row(
    number="C1",
    title="The rate of a PCIe link",
    setup="a link of generation 3 with 8 lanes, payloads of at most 256 B and read requests of "
    "512 B, and others. A device of a computer writes, reads, or does both at once, at first "
    "without the round trip; then it reads 1 MiB at a time with a round trip of 900 ns and few "
    "tags. Last, a flow of WRITEs of 1 MiB between hosts with an inside, over Ethernet of 400 "
    "Gb/s.",
    expected="rates of the published model of pcie-bench; 52.92 Gb/s of payload for the flow, "
    "whose receiver writes. With t tags at most t requests of 512 B wait at a time: t * 512 B in "
    "a round trip, which fills the link from 13 tags on. A request's own bytes, 80 ns of the "
    "link, belong to the time that it takes in a computer; the inside of a simulated host leaves "
    "them out.",
    fails="headers, acknowledgements or credits are counted otherwise, the adapter leaves gaps "
    "between its reads, or a read waits for no tag.",
    meaning="A host with an inside sends as fast as its bus, and no faster. An adapter with too "
    "few tags reads slower than its bus is.",
    measure=measure,
    quick=True,
    tested="`tests/host/test_pcie.py`, `tests/sim/test_inside.py`",
)
