# SPDX-License-Identifier: Apache-2.0
"""V5: a switch with first-in first-out queues at its inputs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.sim.fabrics import credits
from tests.validation.queues import PACKET, SERVICE, funnel
from tests.validation.row import Figure, Row, Scope, at_least, near

FAST = 8 * 10**14  # 1/8000 of an output's packet time


def throughput(ports: int, offered: float, packets: int, slots: int, seed: int) -> float:
    """Of an output, with buffers of so many packets at each input; its source's queue is FIFO."""
    random = np.random.default_rng([seed, ports])
    count = int(slots * offered)
    source, number = (part.ravel() for part in np.indices((ports, count)))
    target = random.integers(0, ports, ports * count)
    world = funnel(ports, ports, fast=FAST, **credits(packets * PACKET))
    # Sources begin one after the other within a slot, so that none is always the first.
    start = (number / offered * SERVICE).astype(np.int64) + source * (SERVICE // ports)
    world.add_flows(source, ports + target, PACKET, start)
    begin, end = slots // 10 * SERVICE, slots * SERVICE
    world.run(until=end)
    finish = world.flows()["finish"]
    return float(((finish > begin) & (finish <= end)).sum() / ports / (slots - slots // 10))


def measure(scope: Scope) -> Iterator[Figure]:
    slots = scope.pick(1_500, 5_000)
    for ports, law in ((2, 0.75), (4, 0.6553), (8, 0.6184)):
        share = throughput(ports, law + 0.1, 1, slots, scope.seed)
        yield near(f"one packet at the head, N = {ports}", share, law, scope.pick(0.04, 0.015))
    share = throughput(8, 1.0, 64, scope.pick(1_000, 5_000), scope.seed)
    yield at_least("64 packets, each of which may go first, N = 8", share, 0.95)


ROW = Row(
    number="V5",
    title="Head-of-line blocking",
    setup="N inputs with credits for one packet each, so that what follows waits behind it in the "
    "source; every output as likely; always something to send. Then with room for 64 packets, "
    "which the switch may send in any order.",
    expected="saturation at 0.75, 0.6553, 0.6184 for N = 2, 4, 8 (2 − √2 for large N; Karol, "
    "Hluchyj, Morgan 1987); close to 1 when outputs may choose.",
    fails="credits come back too early or too late, or an output passes over an input whose "
    "packet is for it.",
    meaning="One lane of credits blocks as a FIFO does, and a deep input buffer with a queue for "
    "each output does not.",
    measure=measure,
    quick=True,
)
