# SPDX-License-Identifier: Apache-2.0
"""V4: a switch with queues at its outputs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.sim.fabrics import finish
from tests.validation.queues import PACKET, SERVICE, funnel, waits
from tests.validation.row import Figure, Row, Scope, near

PORTS = 16


def mean_wait(load: float, slots: int, seed: int) -> float:
    """In packet times: each input has a packet in a slot by chance, for any output."""
    random = np.random.default_rng([seed, int(load * 1000)])
    slot, source = np.nonzero(random.random((slots, PORTS)) < load)
    target = random.integers(0, PORTS, len(slot))
    world = funnel(PORTS, PORTS)
    world.add_flows(source, PORTS + target, PACKET, slot * SERVICE)
    return float(waits(finish(world)).mean() / SERVICE)


def measure(scope: Scope) -> Iterator[Figure]:
    for load, law, within in ((0.5, 0.469, 0.03), (0.8, 1.875, 0.05), (0.9, 4.219, 0.08)):
        if load < 0.9 or not scope.quick:
            wait = mean_wait(load, scope.pick(2_000, 40_000), scope.seed)
            wide = scope.pick(2.5, 1.0) * within
            yield near(f"ρ = {load}", wait, law, wide, "packet times")


ROW = Row(
    number="V4",
    title="Queues at the outputs",
    setup="16 inputs have a packet in each slot with the probability ρ, for one of 16 outputs by "
    "chance.",
    expected="a mean wait of (N − 1)/N · ρ/(2(1 − ρ)) slots (Karol, Hluchyj, Morgan 1987).",
    fails="inputs hold each other up, or packets that come at one instant are not all taken.",
    meaning="Without lanes a switch is the ideal one: only its outputs make packets wait.",
    measure=measure,
    quick=True,
)
