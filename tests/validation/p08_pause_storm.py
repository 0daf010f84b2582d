# SPDX-License-Identifier: Apache-2.0
"""P8: an adapter that pauses its switch for ever, and a deadlock that flooding makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.sim.fabrics import CheckedWorld
from tests.validation.row import Confidence, Figure, Row, Scope, at_least, equal, holds
from verbena import fabrics
from verbena.sim import build

RATE, DELAY = 40 * 10**9, 1_000_000
LANE = {"flow": "pauses", "stop": 64_000, "go": 56_000, "spare": 40_000}
MICROSECOND, MILLISECOND = 10**6, 10**9
WATCHDOG = {"detect": 200 * MICROSECOND, "restore": 200 * MICROSECOND}
BREAKS = MILLISECOND


def storm(watchdog: dict[str, Any] | None = None, end: int | None = None) -> float:
    """What hosts that are well send each other after another one broke, as a part of before.

    Each of 16 hosts of a fat-tree sends to all others; host 0 breaks at 1 ms, and this is about 3
    to 5 ms.
    """
    world = CheckedWorld(framing="bare", mtu=1024, timeout=6, window=1 << 14)
    fabric = fabrics.fat_tree(4, rate="40GbE", length_m=200)
    build(world, fabrics.route(fabric, "ftree"), {"lanes": [LANE], "watchdog": watchdog})
    source, target = np.nonzero(~np.eye(16, dtype=bool))
    world.add_flows(source, target, 1 << 40, message=1 << 14, depth=2)
    world.pause_storm(0, BREAKS, end)
    well = (source != 0) & (target != 0)
    done = []
    for at in (0.5, 1, 3, 5):
        world.run(until=int(at * MILLISECOND))
        done.append(float(world.flows()["done"][well].sum()))
    return (done[3] - done[2]) / (done[1] - done[0]) / 4


class Racks:
    """Two racks below two leaves; what goes to rack 1 goes by leaf A, what comes back by leaf B.

    Rack 0: S1, S2, S6, rack 1: S3, S4, S5 and three more. S1 sends to S3, S4 to S2, and S6 and
    three hosts of rack 1 to S5. While S2 and S3 are dead their switches flood what is for them.
    """

    def __init__(self, dead: bool, watchdog: dict[str, Any] | None = None) -> None:
        self.world = CheckedWorld(framing="bare", mtu=1024, timeout=8, window=1 << 18)
        nodes = [
            self.world.add_switch(8, lanes=[LANE], turns="arrival", floods=True, watchdog=watchdog)
            for _ in range(4)
        ]
        self.racks, leaves = nodes[:2], nodes[2:]
        for rack, ports in zip(self.racks, (3, 6), strict=True):
            for port in range(ports):
                host = self.world.add_host()
                self.world.connect(host, 0, rack, port, rate=RATE, delay=DELAY)
        for at, rack in enumerate(self.racks):
            for up, leaf in enumerate(leaves):
                self.world.connect(rack, 6 + up, leaf, at, rate=RATE, delay=DELAY)
        for leaf in leaves:
            self.world.set_routes(leaf, [0] * 3 + [1] * 6)
        self.set_tables(dead)
        self.world.add_flows([0, 4], [3, 1], 1 << 40, transport="uc", message=1 << 10, depth=64)
        self.world.add_flows([2, 6, 7, 8], 5, 1 << 40, message=1 << 14, depth=32)

    def set_tables(self, dead: bool) -> None:
        self.world.set_routes(self.racks[0], [0, -1 if dead else 1, 2] + [6] * 6)
        self.world.set_routes(self.racks[1], [7] * 3 + [-1 if dead else 0, 1, 2, 3, 4, 5])

    def crossing(self, begin: int, end: int) -> int:
        """Packets that pass from leaves to racks between two times (ms)."""
        counted = []
        for at in (begin, end):
            self.world.run(until=at * MILLISECOND)
            links = self.world.links()
            between = np.isin(links["to_node"], self.racks) & (links["to_port"] >= 6)
            counted.append(int(links["packets"][between].sum()))
        return counted[1] - counted[0]

    def restart(self) -> None:
        """The dead come back, hosts lose their links for a moment, and two new flows begin."""
        now = self.world.now
        self.set_tables(dead=False)
        for rack, ports in zip(self.racks, (3, 6), strict=True):
            for port in range(ports):
                self.world.set_link(rack, port, False, now + MICROSECOND)
                self.world.set_link(rack, port, True, now + 100 * MICROSECOND)
        self.world.add_flows([2, 4], [5, 1], 1 << 20, start=now + 200 * MICROSECOND)


def measure(scope: Scope) -> Iterator[Figure]:
    yield equal("storm: what the others send", storm(), 0, "of before")
    yield at_least("storm, its adapter stops after 1 ms", storm(end=2 * BREAKS), 0.8, "of before")
    for action in ("drop", "forward"):
        part = storm({**WATCHDOG, "action": action})
        yield at_least(f"storm, a watchdog at the switches ({action})", part, 0.8, "of before")
    alive = Racks(dead=False)
    yield at_least("all alive: packets from leaves to racks, 4 to 5 ms", alive.crossing(4, 5), 1000)
    racks = Racks(dead=True)
    yield equal("two dead, flooded: packets from leaves to racks", racks.crossing(4, 5), 0)
    yield equal("ports of the cycle that is named", len(racks.world.blocked()), 4)
    racks.restart()
    yield equal("all alive again, flows begun anew: packets there", racks.crossing(6, 20), 0)
    watched = Racks(dead=True, watchdog=WATCHDOG)
    yield at_least("with a watchdog: packets from leaves to racks", watched.crossing(4, 5), 1)
    watched.restart()
    watched.crossing(6, 20)
    flows = watched.world.flows()[-2:]
    yield holds("all alive again: the new flows end", bool((flows["state"] == 2).all()))
    yield at_least("how often a watchdog acted", int(watched.world.links()["storms"].sum()), 1)


ROW = Row(
    number="P8",
    title="Pause storm, and a deadlock by flooding (RDMA over commodity Ethernet at scale, "
    "SIGCOMM 2016)",
    setup="A fat-tree of 16 hosts at 40 Gb/s with PFC, each host sending to all others; at 1 ms "
    "the adapter of one begins to pause its switch for ever. And two racks below two leaves, "
    'shared memory (`turns="arrival"`): two of the hosts that packets go to are dead, their '
    "switches have forgotten the port while the senders still know the address, and flood.",
    expected="one adapter stops the whole fabric, and a watchdog, its own or the switches', "
    "clears it; packets that are flooded make a circle of pauses, and the deadlock stays after "
    "the hosts are back and flows begin anew.",
    fails="pauses are not passed on, a deadlock ends by itself, or a watchdog acts on pauses that "
    "end, or not at all.",
    meaning="Lossless is a promise of every part. Who breaks it stops the others, unless "
    "somebody drops packets in the end.",
    measure=measure,
    confidence=Confidence.TEXT,
    tested="`tests/sim/test_watchdog.py`",
    missing="how long it took in production.",
)
