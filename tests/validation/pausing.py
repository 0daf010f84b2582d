# SPDX-License-Identifier: Apache-2.0
"""What comes after a pause was asked for: a sender far away, and a port that is suddenly taken."""

from __future__ import annotations

from dataclasses import dataclass

from tests.sim.fabrics import CheckedWorld

STOP = 64 << 10


@dataclass(frozen=True)
class Headroom:
    """``need``: bytes that came after the pause was asked for."""

    need: int
    lost: int
    resent: int


def headroom(rate: int, delay: int, spare: int, *, framing: str = "bare") -> Headroom:
    """A sender ``delay`` ps away fills a port of which another class takes all for a while."""
    lane = {"flow": "pauses", "stop": STOP, "go": STOP // 2, "spare": spare}
    world = CheckedWorld(framing=framing, window=(1 << 32) - 1, timeout=0)
    world.may_overrun = True
    center = world.add_switch(3, lanes=[lane, {}], high=[(1, 255)], low=[(0, 64)], high_limit=255)
    for port, far in ((0, delay), (1, 0), (2, 0)):
        world.connect(world.add_host(), 0, center, port, rate=rate, delay=far)
    world.set_routes(center, [0, 1, 2])
    round_trip = 2 * delay + 10**6
    line = rate / 8e12  # bytes for each ps
    world.add_flows(0, 1, int(6 * round_trip * line) + (1 << 20))
    # From the moment at which the first packets are there, and for longer than it takes.
    world.add_flows(2, 1, int(3 * round_trip * line) + (1 << 20), start=delay, level=1)
    world.run(until=6 * round_trip)
    links = world.links()
    toward = links[(links["node"] == center) & (links["to_port"] == 0) & (links["port"] == 1)]
    return Headroom(
        need=int(toward["queued_max"][0]) - STOP,
        lost=int(links["dropped_headroom"].sum()),
        resent=int(world.flows()["resent"].sum()),
    )
