# SPDX-License-Identifier: Apache-2.0
"""C1: a PCIe link's rate, and what headers leave of it; in the formula and in a run."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim.inside_pair import FREE, of_flow, rate_of
from tests.validation.row import Figure, Row, Scope, near
from verbena.host.pcie import Pcie


def measure(scope: Scope) -> Iterator[Figure]:
    for generation, lanes, mps, raw, usable in (
        (3, 8, 256, 63.02, 57.88),
        (3, 16, 256, 126.03, 113.70),
        (4, 16, 256, 252.06, 227.40),
        (5, 16, 512, 504.12, 458.49),
    ):
        link = Pcie(generation, lanes, mps)
        name = f"generation {generation}, {lanes} lanes"
        yield near(f"{name}, raw", link.raw_gbps, raw, 1e-4, "Gb/s")
        yield near(f"{name}, usable", link.usable_gbps, usable, 1e-4, "Gb/s")
    link = Pcie()
    for size, expected in ((64, 42.10), (256, 52.92), (257, 48.78), (4096, 52.92)):
        share = size / link.write_bytes(size)
        yield near(f"writes of {size} B", share * link.usable_gbps, expected, 5e-4, "Gb/s")
    size = scope.pick(8 << 20, 256 << 20)
    inside = {"cpu": FREE, "rate": 400 * 10**9, "delay": 1000}
    world, _ = of_flow(size, inside=inside, message=1 << 20, depth=8)
    yield near("a flow of WRITEs on a faster link", rate_of(world), 52.92, 0.01, "Gb/s")


ROW = Row(
    number="C1",
    title="The rate of a PCIe link",
    setup="a link of generation 3 with 8 lanes, payloads of at most 256 B and read requests of 512 "
    "B, and others; then a flow of WRITEs of 1 MiB over Ethernet of 400 Gb/s.",
    expected="raw and usable rates of the published model of pcie-bench; 52.92 Gb/s of payload.",
    fails="headers, acknowledgements or credits are counted otherwise, or the adapter leaves gaps "
    "between its reads.",
    meaning="A host with an inside sends as fast as its bus, and no faster.",
    measure=measure,
    quick=True,
    tested="`tests/host/test_pcie.py`",
)
