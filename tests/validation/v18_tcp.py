# SPDX-License-Identifier: Apache-2.0
"""V18: TCP's window at a given loss."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tests.sim.fabrics import CheckedWorld
from tests.validation.row import Figure, Row, Scope, near

MSS = 1460
SECOND = 10**12
RTT = SECOND // 10**4  # Reno's: 100 us
LONG = SECOND // 10  # CUBIC's
RENO, RANDOM = math.sqrt(3 / 2), 1.31


def rate_of(segments: float, round_trip: int) -> int:
    """Bits per second of so many segments in a round trip."""
    return int(segments * MSS * 8 * SECOND / round_trip)


def full_queue(most: int, periods: int) -> tuple[float, float]:
    """Reno's mean window and loss where a link of `most` segments and a queue of 3 lose what is
    more: one for each saw tooth."""
    tooth = most * most * 3 // 8  # segments
    # A jitter would overflow so short a queue, and not only once in a saw tooth.
    tcp = {"least_rto": SECOND // 1000, "jitter": 0}
    world = CheckedWorld(1, framing="bare", tcp=tcp)
    center = world.add_switch(2, buffer=3 * MSS)
    rate = rate_of(most, RTT)
    world.connect(world.add_host(), 0, center, 0, rate=50 * rate, delay=0)
    world.connect(world.add_host(), 0, center, 1, rate=rate, delay=RTT // 2)
    world.set_routes(center, [0, 1])
    world.add_flows(0, 1, 1 << 50, transport="tcp", control="reno")
    world.run(until=tooth * 10 // most * RTT)
    seen = count(world)
    world.run(until=world.now + tooth * periods // most * RTT)
    return window(seen, count(world), RTT)


def random_losses(loss: float, segments: int, seed: int) -> tuple[float, float]:
    """Reno's mean window where each segment is lost by chance."""
    per_bit = 1 - (1 - loss) ** (1 / (8 * MSS))
    tcp = {"least_rto": SECOND // 1000, "window": 1 << 30}
    world = CheckedWorld(seed, framing="bare", tcp=tcp)
    link = {"rate": 10**12, "delay": RTT // 2, "bit_error_rate": per_bit}
    world.connect(world.add_host(), 0, world.add_host(), 0, **link)
    world.add_flows(0, 1, segments * MSS, transport="tcp", control="reno")
    seen = count(world)
    world.run()
    return window(seen, count(world), RTT)


def regular_losses(loss: float, periods: int) -> tuple[float, float]:
    """CUBIC's mean window where one segment is lost again and again after the same time."""
    law = 1.054 * (LONG / SECOND / loss) ** 0.75
    rate = rate_of(1.6 * law, LONG)
    world = CheckedWorld(1, framing="bare", tcp={"window": int(1.5 * law) * MSS})
    center = world.add_switch(2)
    world.connect(world.add_host(), 0, center, 0, rate=rate, delay=LONG // 2)
    world.connect(world.add_host(), 0, center, 1, rate=8 * rate, delay=0)
    world.set_routes(center, [0, 1])
    world.add_flows(0, 1, 1 << 50, transport="tcp", control="cubic")
    seen = count(world)
    for number in range(10 + periods):
        if number == 10:
            seen = count(world)
        world.run(until=world.now + int(LONG / loss / law))
        lose_one(world, center, int(2 * SECOND * MSS / rate))
    return window(seen, count(world), LONG)


def lose_one(world: CheckedWorld, center: int, step: int) -> None:
    """The link to the receiver is down until it has lost a segment."""
    before = world.packets["dropped"]
    world.set_link(center, 1, up=False, at=world.now)
    while world.packets["dropped"] == before:
        world.run(until=world.now + step)
    world.set_link(center, 1, up=True, at=world.now)


def count(world: CheckedWorld) -> tuple[int, float, int]:
    """When, segments received, segments lost."""
    flow = world.flows()[0]
    return world.now, int(flow["done"]) / MSS, world.packets["dropped"]


def window(
    before: tuple[int, float, int], after: tuple[int, float, int], round_trip: int
) -> tuple[float, float]:
    """The mean window, in segments, and which part of them was lost."""
    time, segments, lost = (b - a for a, b in zip(before, after, strict=True))
    return segments * round_trip / time, lost / segments


def measure(scope: Scope) -> Iterator[Figure]:
    for most in scope.pick((52, 164), (52, 164, 516)):
        mean, loss = full_queue(most, scope.pick(30, 100))
        law = RENO / math.sqrt(loss)
        yield near(f"Reno, a full queue, p = {loss:.2g}", mean, law, 0.04, "segments")
    for loss in scope.pick((1e-3,), (1e-3, 1e-4, 1e-5)):
        segments = scope.pick(1000, 3000 if loss > 1e-5 else 300) / loss
        mean, seen = random_losses(loss, int(segments), scope.seed)
        law = RANDOM / math.sqrt(seen)
        yield near(f"Reno, by chance, p = {loss:g}", mean, law, 0.05, "segments")
    for loss in scope.pick((1e-4,), (1e-4, 1e-5, 1e-6)):
        mean, seen = regular_losses(loss, 20)
        law = 1.054 * (LONG / SECOND / seen) ** 0.75
        yield near(f"CUBIC, p = {seen:.3g}", mean, law, 0.06, "segments")


ROW = Row(
    number="V18",
    title="TCP Reno's and CUBIC's rate at a given loss",
    setup="One flow, segments of 1460 bytes. Reno, 100 µs: behind a short queue that is full once "
    "in each saw tooth (without jitter), and over a link on which each segment is lost by chance. "
    "CUBIC, 100 ms: one segment is lost again and again after the same time. p is what was lost.",
    expected="a mean window of √(3/2)/√p for Reno whose losses come regularly, 1.31/√p where they "
    "come by chance (Ott, Kemperman and Mathis, 1996), 1.054 (RTT/p)^¾ for CUBIC (RFC 9438, 5.1).",
    fails="a window grows or shrinks by another rule, or shrinks twice for a loss, or a loss waits "
    "for a timer.",
    meaning="The rate is MSS · W/RTT. CUBIC's law leaves out fast convergence, with which "
    "windows are some percent below.",
    measure=measure,
    quick=True,
    tested="`tests/native/test_tcp.c`",
)
