# SPDX-License-Identifier: Apache-2.0
"""V19: DCTCP's queue."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tests.sim.fabrics import MICROSECOND, CheckedWorld
from tests.validation.row import Figure, Row, Scope, around, at_least, at_most, near

PACKET = 1500
RTT = 100 * MICROSECOND
MILLISECOND = 1000 * MICROSECOND


def queue_of(
    flows: int, rate: int, threshold: int, lasts: int, seed: int, control: str = "dctcp"
) -> tuple[NDArray[np.float64], float]:
    """The queue of flows into one port, in packets, every 2 us; and which part of its link they
    get. The threshold is DCTCP's, in packets; of others the buffer."""
    world = CheckedWorld(seed, framing="bare", mtu=4096, tcp={"mss": PACKET})
    mark = (threshold * PACKET, threshold * PACKET, 1.0)
    switch = {"mark": mark} if control == "dctcp" else {"buffer": threshold * PACKET}
    center = world.add_switch(flows + 1, **switch)
    for port in range(flows + 1):
        faster = 2 if port < flows else 1
        world.connect(world.add_host(), 0, center, port, rate=faster * rate, delay=RTT // 4)
    world.set_routes(center, np.arange(flows + 1))
    starts = np.arange(flows) * 7 * MICROSECOND
    world.add_flows(np.arange(flows), flows, 1 << 40, starts, transport="tcp", control=control)
    world.run(until=2 * lasts)
    before = world.flows()["done"].sum()
    samples = world.sample(2 * MICROSECOND, [(center, flows)])
    world.run(until=3 * lasts)
    done = int(world.flows()["done"].sum() - before)
    return samples.data["bytes"][:, 0] / PACKET, done * 8e12 / lasts / rate


def measure(scope: Scope) -> Iterator[Figure]:
    rate, threshold, lasts = 10**10, 65, 200 * MILLISECOND
    in_flight = rate * RTT / (8e12 * PACKET)
    for flows in (1, 2):
        queue, share = queue_of(flows, rate, threshold, lasts, scope.seed)
        swing = math.sqrt(2 * flows * (in_flight + threshold)) / 2
        yield around(f"N = {flows}: longest queue", queue.max(), threshold + flows, 2, "packets")
        yield near(f"N = {flows}: swing", queue.max() - queue.min(), swing, 0.15, "packets")
        yield at_least(f"N = {flows}: of the line", share, 0.999)
    law = math.ceil(in_flight / 7)
    share = queue_of(1, rate, law, lasts, scope.seed)[1]
    yield at_least(f"K = {law}: of the line", share, 0.99)
    share = queue_of(1, rate, 1, lasts, scope.seed)[1]
    yield at_most("K = 1: of the line", share, 0.99)


ROW = Row(
    number="V19",
    title="DCTCP's threshold, amplitude and queue",
    setup="N flows into one port of 10 Gb/s, 100 µs, packets of 1500 bytes, marked above K = 65.",
    expected="a longest queue of K + N packets that swings by ½√(2N(C·RTT + K)), 12.2 packets for "
    "two flows; no idle line with K above C·RTT/7 = 11.9.",
    fails="marks are not those of the queue, or α is not the part of marked segments, or a window "
    "shrinks more than once in a round trip.",
    meaning="A window shrinks by as much as the queue was too long, so that the queue stays near "
    "the threshold. The law's flows move together; here each packet counts besides.",
    measure=measure,
    quick=True,
    tested="`tests/native/test_tcp.c`",
)
