# SPDX-License-Identifier: Apache-2.0
"""C14: receive livelock, and its cure."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.validation.row import Confidence, Figure, Row, Scope, around, at_least, near
from verbena.host.receive_path import (
    Received,
    Work,
    poisson,
    receive_by_interrupts,
    receive_by_polling,
    steady,
)

PEAK, DEAD = 4700, 6000  # packets a second
INTERRUPT = 1e6 / DEAD  # us
PACKET = 1e6 / PEAK - INTERRUPT


def run(rate: float, scope: Scope, polls: bool) -> Received:
    count = scope.pick(10_000, 200_000)
    if not polls:
        return receive_by_interrupts(steady(rate, count), Work(INTERRUPT, PACKET), Random(0))
    packets = poisson(rate, count, Random(scope.seed))
    work = Work(interrupt=10.0, packet=1e6 / PEAK, round_=5.0, ring=32)
    return receive_by_polling(packets, work, Random(0), quota=10)


def measure(scope: Scope) -> Iterator[Figure]:
    loose = scope.pick(60.0, 25.0)
    for rate in (1000, 2000, 4000, 5200, 5600, 5900):
        law = rate if rate <= 4000 else (1 - rate * INTERRUPT / 1e6) / PACKET * 1e6
        got = run(rate, scope, polls=False)
        yield around(f"{rate} offered, by interrupts", got.out_per_second, law, loose, "a second")
    dead = run(2 * DEAD, scope, polls=False)
    yield around(f"{2 * DEAD} offered, by interrupts", dead.out_per_second, 0, 5, "a second")
    for rate in (5200, 6000, 12000):
        got = run(rate, scope, polls=True)
        text = f"{rate} offered, by polling with a quota"
        yield near(text, got.out_per_second, 1e6 / (1e6 / PEAK + 0.5), 0.01, "a second")
    work = Work(interrupt=10.0, packet=1e6 / PEAK, round_=5.0, ring=32)
    packets = poisson(12000, scope.pick(10_000, 200_000), Random(scope.seed))
    shared = receive_by_polling(packets, work, Random(0), quota=10, share=0.75)
    yield at_least("a share of 75 %: left to programs", shared.user / shared.ended, 0.245)


ROW = Row(
    number="C14",
    title="Receive livelock (Mogul and Ramakrishnan, USENIX 1996)",
    setup="A core that takes 1/6000 s for the interrupt of a packet and 1/4700 s in all, packets "
    "at equal distances; and the same core polling a ring of 32 with a quota of 10, Poisson "
    "arrivals.",
    expected="by interrupts l packets a second up to the peak, then (1 - l c_i) / c_p, none from "
    "1/c_i on; by polling with a quota the peak's rate at any load. The peak of 4,700 a second, "
    "and that polling with a quota keeps it, are in a reader's notes on the publication "
    "(github.com/Icarus603/network-from-scratch), whose router still sends some packets at 6,000 a "
    "second: only with a filter in user space it sends none. That this ends at 6,000 could not be "
    "found and is from memory; one core has both numbers here.",
    fails="the output does not fall with interrupts, or falls with polling.",
    meaning="A packet that is dropped behind its interrupt has cost all of the interrupt; one that "
    "the adapter's full ring drops has cost nothing.",
    measure=measure,
    confidence=Confidence.EXACT,
    quick=True,
)
