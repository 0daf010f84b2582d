# SPDX-License-Identifier: Apache-2.0
"""C8: how many messages of 64 bytes a link carries, by the way in which they are posted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.sim.fabrics import finish
from tests.sim.inside_pair import FREE, pair
from tests.validation.row import Figure, Row, Scope, near
from verbena.host.pcie import Pcie

QPS, DEPTH, SIZE = 16, 32, 64


def batched(k: int) -> int:
    """Bytes to the adapter of a request, if a doorbell tells of ``k``: the doorbell's share, the
    request's share of a read of all of them, and the payload's read."""
    whole = 32 + 64 * k + -(-64 * k // 256) * 20
    return round(whole / k + 84)


WAYS: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("a doorbell each", {"blueflame": False}, 200),
    ("BlueFlame", {}, 172),
    ("BlueFlame and inline", {"inline": 64}, 176),
    ("a doorbell for 4", {"blueflame": False, "batch": 4}, batched(4)),
    ("a doorbell for 16", {"blueflame": False, "batch": 16}, batched(16)),
)


def messages(hca: dict[str, Any], each: int, link: Pcie | None = None) -> float:
    """Millions a second of WRITEs that a host without processor time sends over a fast wire."""
    link = link or Pcie()
    world = pair(400 * 10**9, 1000, framing="bare", cpu=FREE, hca=hca, pcie=link)
    ends = np.zeros(QPS, int), np.ones(QPS, int)
    world.add_flows(*ends, SIZE * each, message=SIZE, depth=DEPTH)
    finish(world)
    return QPS * each / float(world.flows()["finish"].max()) * 1e6


def measure(scope: Scope) -> Iterator[Figure]:
    each, within = scope.pick((500, 0.02), (10_000, 0.005))
    for name, hca, size in WAYS:
        law = Pcie().usable_gbps * 1000 / 8 / size
        yield near(name, messages(hca, each), law, within, "M/s")


ROW = Row(
    number="C8",
    title="Doorbells, BlueFlame and lists (after Design Guidelines for RDMA Systems, ATC 2016)",
    setup="16 QPs of a host send WRITEs of 64 B with 32 requests each, over a wire of 400 Gb/s; "
    "link of generation 3 with 8 lanes; the processor costs nothing.",
    expected="the link's usable rate divided by the bytes of a request towards the adapter: 36.2, "
    "42.1 and 41.1 M/s, and with a doorbell for 4 and for 16 requests 44.9 and 46.7 M/s.",
    fails="the adapter leaves the link idle while requests wait, or a list costs as single "
    "requests.",
    meaning="One doorbell for a list carries the most small messages over the bus. It also spends "
    "the least stores of the processor, which is why the publication recommends it.",
    measure=measure,
    quick=True,
    missing="the publication's programs. Its sequencer with 122 M/s, 50 times an earlier one, and "
    "its key-value store with 83 % more for each core are sums of what such programs do for a "
    "request and of their adapter's limits. Here the processor costs nothing, so that the bus "
    "alone decides.",
)
