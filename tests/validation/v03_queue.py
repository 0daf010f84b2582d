# SPDX-License-Identifier: Apache-2.0
"""V3: random arrivals before one port."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tests.sim.fabrics import CheckedWorld, finish
from tests.validation.queues import PACKET, SERVICE, SLOW, funnel, lindley, waits
from tests.validation.row import Figure, Row, Scope, equal, near

SOURCES = 64
MEAN = 512  # bytes of packets of random size; a packet that is 8 times as long is cut


def arrivals(
    load: float, sizes: NDArray[np.int64], random: np.random.Generator
) -> NDArray[np.int64]:
    """Of a Poisson process: ps."""
    gap = sizes.mean() * SLOW / load
    return np.cumsum(random.exponential(gap, len(sizes))).astype(np.int64)


def run(start: NDArray[np.int64], sizes: NDArray[np.int64]) -> CheckedWorld:
    world = funnel(SOURCES, 1)
    world.add_flows(np.arange(len(start)) % SOURCES, SOURCES, sizes, start)
    return finish(world)


def error(start: NDArray[np.int64], sizes: NDArray[np.int64], waited: NDArray[np.float64]) -> float:
    """ps that a packet waited longer or less than Lindley's recursion says; 9 packets of 10.

    A source's link carries a packet in 1/80 of the port's time. Where two packets meet there, or
    two acknowledgements on the way back, they wait a moment that the recursion does not know of.
    """
    at = start + sizes
    order = np.argsort(at, kind="stable")
    law = lindley(at[order], sizes[order] * SLOW)
    return float(np.quantile(np.abs(waited[order] - law), 0.9))


def fixed(load: float, count: int, seed: int) -> tuple[float, float]:
    """Mean wait in packet times, and what Lindley's recursion says of the same arrivals."""
    random = np.random.default_rng([seed, int(load * 1000)])
    sizes = np.full(count, PACKET)
    start = arrivals(load, sizes, random)
    waited = waits(run(start, sizes))
    return waited.mean() / SERVICE, error(start, sizes, waited)


def exponential(load: float, count: int, seed: int) -> float:
    """Mean wait in mean packet times. (Acknowledgements of short packets wait for each other.)"""
    random = np.random.default_rng([seed, int(load * 1000), 1])
    sizes = np.clip(random.exponential(MEAN, count).astype(np.int64), 1, PACKET)
    start = arrivals(load, sizes, random)
    return waits(run(start, sizes)).mean() / (sizes.mean() * SLOW)


def measure(scope: Scope) -> Iterator[Figure]:
    # The spread of a mean over so many packets is about a third of what is allowed.
    cases = {0.3: (0.2143, 40_000, 0.03), 0.5: (0.5, 60_000, 0.04), 0.7: (1.1667, 100_000, 0.05)}
    if not scope.quick:
        cases |= {0.8: (2.0, 300_000, 0.05), 0.9: (4.5, 600_000, 0.08), 0.95: (9.5, 10**6, 0.12)}
    worst = 0.0
    for load, (law, count, within) in cases.items():
        count = scope.pick(count // 4, count)
        wait, off = fixed(load, count, scope.seed)
        worst = max(worst, off)
        yield near(f"M/D/1, ρ = {load}", wait, law, scope.pick(2, 1) * within, "packet times")
    for load, law in () if scope.quick else ((0.5, 1.0), (0.8, 4.0), (0.9, 9.0)):
        wait = exponential(load, 600_000, scope.seed)
        yield near(f"M/M/1, ρ = {load}", wait, law, 0.15, "mean packet times")
    yield equal("M/D/1, off Lindley's recursion, packet by packet", worst, 0, "ps")


ROW = Row(
    number="V3",
    title="Waiting before one port",
    setup="Packets of 4096 bytes (M/D/1), or of exponential length (M/M/1), come to one port of "
    "100 Gb/s at random times from 64 hosts.",
    expected="a mean wait of ρ/(2(1 − ρ)) packet times; ρ/(1 − ρ) for exponential lengths. And, "
    "whatever the mean of this sample, each packet of 4096 bytes waits what Lindley's recursion "
    "gives for the same arrivals.",
    fails="a queue serves too fast or too slowly, keeps the order wrong, or loses time between "
    "packets.",
    meaning="A port is the queue of the textbook: to the picosecond for the arrivals at hand, and "
    "in the mean as far as their number allows.",
    measure=measure,
    quick=True,
)
