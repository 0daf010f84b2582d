# SPDX-License-Identifier: Apache-2.0
"""C15: interrupts that come a time after the first completion: how many, and what they delay."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.sim.inside_pair import FREE, pair
from tests.validation.row import Figure, Row, Scope, at_most, near


def interrupts(rate: float, timer: int, seed: int, count: int) -> tuple[float, float]:
    """Return interrupts per second, and the mean delay in µs that they add to a message.

    Messages of 64 B come to host 1 as a Poisson process of ``rate`` per second. The delay is that
    from a message's completion to the interrupt, by the slices of host 1's link: a completion is a
    write of 88 bytes, an interrupt the kind 3.
    """
    world = pair(
        10**15, 1000, framing="bare", cpu=FREE, pcie={"generation": 5, "lanes": 16},
        interrupts={"time": timer}, slices=20 * count,
    )  # fmt: skip
    gaps = np.random.default_rng(seed).exponential(1e12 / rate, count)
    start = np.cumsum(gaps).astype(np.int64)
    world.add_flows(0, 1, 64, start, operation="send")
    world.run()
    slices = world.insides[1].slices()
    up = slices[slices["row"] == 252]
    signals = up["end"][up["what"] == 3].astype(np.float64)
    done = up["end"][(up["what"] == 0) & (up["bytes"] == 88)].astype(np.float64)[1::2]
    assert len(done) == count
    after = signals[np.minimum(np.searchsorted(signals, done), len(signals) - 1)]
    return len(signals) / (float(start[-1]) / 1e12), float((after - done).mean()) / 1e6


def measure(scope: Scope) -> Iterator[Figure]:
    name = "1 M/s, 125 µs, the e1000's default: interrupts"
    each, _ = interrupts(1e6, 125 * 10**6, scope.seed, scope.pick(10_000, 100_000))
    yield near(name, each, 1e6 / 126, 0.02, "/s")
    yield at_most("which has a limit", each, 8000, "/s")
    count = scope.pick(3000, 40000)
    within = scope.pick(0.08, 0.02)
    for timer in (8, 50):
        for rate in (1e5, 1e6, 1e7):
            each, delay = interrupts(rate, timer * 10**6, scope.seed, count)
            mean, t = rate / 1e6, float(timer)
            name = f"{mean:g} M/s, {timer} µs"
            wanted = 1e6 / (t + 1 / mean)
            off = max(within, 3 * (wanted / rate / count) ** 0.5)
            yield near(f"{name}: interrupts", each, wanted, off, "/s")
            added = t * (1 + mean * t / 2) / (1 + mean * t)
            yield near(f"{name}: added delay", delay, added, off, "µs")


ROW = Row(
    number="C15",
    title="Moderated interrupts",
    setup="messages of 64 B come as a Poisson process of rate λ; an interrupt comes T after the "
    "first completion that waits.",
    expected="1/(T + 1/λ) interrupts per second, and T (1 + λT/2)/(1 + λT) of mean delay. The "
    "e1000's default was at most 8000 interrupts a second (its driver's documentation), which are "
    "a T of 125 µs.",
    fails="an interrupt is lost, or a completion waits for a second one.",
    meaning="Moderation limits interrupts to 1/T, and costs a latency of T where there is one "
    "message, and T/2 where there are many.",
    measure=measure,
    quick=True,
)
