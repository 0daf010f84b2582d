# SPDX-License-Identifier: Apache-2.0
"""C9: what a link of generation 2 leaves of small requests, beside what HERD measured."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.sim.fabrics import finish
from tests.sim.inside_pair import FREE, InsideWorld, pair
from tests.validation.row import Confidence, Figure, Row, Scope, at_least, between, near
from verbena.host.pcie import Pcie

ANSWERED = 26.0  # M/s; from the publication's abstract
WRITES_IN, READS_IN = 35.0, 26.0  # M/s; of its figures, which were not at hand
QPS, DEPTH, LINE = 16, 32, 64


def taken(operation: str, each: int, link: Pcie) -> float:
    """Millions a second of requests of 64 B that a host's link lets in, from one without any."""
    world = InsideWorld(framing="bare", threads=1)
    for _ in range(2):
        world.add_host()
    world.connect(0, 0, 1, 0, rate=400 * 10**9, delay=1000)
    world.inside(1, cpu=FREE, pcie=link)
    return rate_of_requests(world, operation, 64, each)


def sent_inline(size: int, each: int, link: Pcie) -> float:
    """Millions a second of WRITEs of ``size`` bytes that a host stores to its adapter."""
    inside = {"cpu": FREE, "hca": {"inline": 256}, "pcie": link}
    world = pair(400 * 10**9, 1000, framing="bare", **inside)
    return rate_of_requests(world, "write", size, each)


def rate_of_requests(world: InsideWorld, operation: str, size: int, each: int) -> float:
    ends = np.zeros(QPS, int), np.ones(QPS, int)
    world.add_flows(*ends, size * each, message=size, depth=DEPTH, operation=operation)
    finish(world)
    return QPS * each / float(world.flows()["finish"].max()) * 1e6


def measure(scope: Scope) -> Iterator[Figure]:
    for mps in (128, 256):
        rate = Pcie(2, 8, mps).usable_gbps * 64 / 88
        yield between(f"writes of 64 B, payloads of {mps} B", rate, 20.0, 21.0, "Gb/s")
    link, each = Pcie(2, 8), scope.pick(500, 10_000)
    whole = link.usable_gbps * 1000 / 8  # MB/s
    for size in (28, 29, 64, 92, 93, 156, 157):  # 28, 92, 156: as much as fits whole lines
        lines = -(-(36 + size) // LINE)
        law = whole / (lines * (24 + LINE))
        sent = sent_inline(size, each, link)
        name = f"inline WRITEs of {size} B from one host, lines: {lines}"
        yield near(name, sent, law, 0.02, "M/s")
    writes, reads = taken("write", each, link), taken("read", each, link)
    yield near("WRITEs of 64 B into one host", writes, whole / 88, 0.02, "M/s")
    yield near("READs of 64 B from one host", reads, whole / 84, 0.02, "M/s")
    yield at_least("which is more than the answered requests", writes, ANSWERED, "M/s")
    yield at_least("and than the publication's WRITEs", writes, WRITES_IN, "M/s")
    yield at_least("and its READs", reads, READS_IN, "M/s")


ROW = Row(
    number="C9",
    title="Small requests over PCIe 2.0 (HERD, SIGCOMM 2014)",
    setup="a link of generation 2 with 8 lanes, as of the publication's adapters; inline WRITEs of "
    "some sizes from 16 QPs, and WRITEs and READs of 64 B from a host without an inside.",
    expected="20 to 21 Gb/s of payload in writes of 64 B. A WRITE into a host takes 88 B of its "
    "bus, a READ 84: more of both come in than the 35 and 26 M/s that the publication measured, "
    "and more than its 26 M/s of requests that are answered. Its abstract calls the latter as many "
    "as READs; the 35 M/s could not be found and are from memory. A WRITE that goes out takes 88 B "
    "for each line of 64 B that the processor stores, of 36 B and the payload, so its rate falls "
    "in steps: Kalia and others (ATC 2016) have 36 B, and a second line from 29 B on.",
    fails="the bus's ceiling is below what was measured on it, or a request takes other lines.",
    meaning="Requests come in faster than they go out: HERD's clients therefore write requests, "
    "and its answers are kept small.",
    measure=measure,
    confidence=Confidence.TEXT,
    quick=True,
    missing="why READs came in at 26 M/s and WRITEs at 35: limits inside that adapter, which are "
    "no part of the model; and the mean of 5 µs, of a store's program under load.",
)
