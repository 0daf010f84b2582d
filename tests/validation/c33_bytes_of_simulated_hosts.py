# SPDX-License-Identifier: Apache-2.0
"""C33: the bytes of a verb on the PCIe link, each way, and the ceiling that follows from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.sim.inside_pair import of_flow
from tests.validation.row import Figure, Row, Scope, equal, near
from verbena.host.pcie import Pcie

DOORBELL: dict[str, Any] = {"blueflame": False}
REQUESTER: tuple[tuple[str, int, dict[str, Any], int, int], ...] = (
    ("64 B, doorbell", 64, DOORBELL, 200, 136),
    ("64 B, BlueFlame", 64, {}, 172, 112),
    ("64 B, BlueFlame and inline", 64, {"inline": 64}, 176, 88),
    ("4 KiB, doorbell", 4096, DOORBELL, 4532, 304),
    ("4 KiB, BlueFlame", 4096, {}, 4504, 280),
)


def measure(scope: Scope) -> Iterator[Figure]:
    for name, size, hca, down, up in REQUESTER:
        world, counters = of_flow(size, inside={"hca": hca})
        yield equal(f"WRITE of {name}: to the adapter", counters.down.bytes, down, "B")
        yield equal(f"WRITE of {name}: to memory", counters.up.bytes, up, "B")
        other = world.insides[1].counters()
        wanted = 88 if size == 64 else 4480
        yield equal(f"WRITE of {name}: responder", other.up.bytes, wanted, "B")
        yield equal(f"WRITE of {name}: responder, down", other.down.bytes, 0, "B")
    world, _ = of_flow(64, inside={}, operation="send")
    other = world.insides[1].counters()
    yield equal("SEND of 64 B: responder, to memory", other.up.bytes, 88 + 24 + 88, "B")
    yield equal("SEND of 64 B: responder, to the adapter", other.down.bytes, 36, "B")
    for k in (2, 16, 64):
        inside = {"hca": {**DOORBELL, "batch": k}}
        _, counters = of_flow(64 * k, inside=inside, message=64, depth=k)
        down = 32 + 64 * k + -(-64 * k // 256) * 20 + 84 * k
        up = -(-64 * k // 512) * 24 + (24 + 88) * k
        yield equal(f"{k} requests by one doorbell: to the adapter", counters.down.bytes, down, "B")
        yield equal(f"{k} requests by one doorbell: to memory", counters.up.bytes, up, "B")
    rate = Pcie().usable_gbps
    for (name, _, _, down, up), most in zip(REQUESTER, (36.2, 42.1, 41.1), strict=False):
        yield near(f"ceiling, {name}", rate * 1000 / 8 / max(down, up), most, 0.002, "M/s")


ROW = Row(
    number="C33",
    title="The bytes of a verb on the bus",
    setup="one request, or a list of them; WQE and CQE of 64 B, payloads of at most 256 B, read "
    "requests of 512 B.",
    expected="the sum of its transactions, to the byte: doorbell of 8 B, request, payload, "
    "completion; of the responder the payload alone, and for SEND a receive request "
    "and a completion.",
    fails="a transaction is missing, or has other headers.",
    meaning="Which way of posting leaves the most of a bus for payload.",
    measure=measure,
    quick=True,
)
