# SPDX-License-Identifier: Apache-2.0
"""The testbed of the DCQCN paper: four racks, two pairs of leaves, two spines, 40 Gb/s.

Racks 1 and 2 are below leaves 1 and 2, racks 3 and 4 below leaves 3 and 4; every leaf is below both
spines. Up the tree a flow takes a way by its hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.sim.fabrics import CheckedWorld

RATE, DELAY = 40 * 10**9, 500_000
HOSTS = 8  # ports of a rack for them
PAUSES: dict[str, Any] = {
    "flow": "pauses",
    "stop": 24_470,
    "go": 20_000,
    "spare": 22_400,
    "mark": (5_000, 200_000, 0.01),
}
MILLISECOND = 10**9


# With DCQCN as the paper configures it: thresholds by what is free (V11), so that marks come first.
DYNAMIC: dict[str, Any] = {
    "flow": "pauses",
    "alpha": 1.0,
    "spare": 22_400,
    "mark": (5_000, 200_000, 0.01),
}
FRAME = 1024 + 12 + 70  # a packet on the wire


@dataclass
class Testbed:
    """``rack``: for each host, counted from 0, the number of its rack, 0 to 3."""

    rack: Sequence[int]
    seed: int
    congestion: dict[str, Any] | None = None
    world: CheckedWorld = field(init=False)

    def __post_init__(self) -> None:
        self.world = CheckedWorld(
            seed=self.seed,
            framing="ethernet",
            mtu=1024,
            timeout=0,
            window=1 << 20,
            congestion=self.congestion,
        )
        racks = [self.switch(HOSTS + 2) for _ in range(4)]
        leaves = [self.switch(4) for _ in range(4)]
        spines = [self.switch(4) for _ in range(2)]
        place: list[int] = []  # the port of each host
        for rack in self.rack:
            place.append(self.rack[: len(place)].count(rack))
            self.cable(self.world.add_host(), 0, racks[rack], place[-1])
        for rack in range(4):
            for up in range(2):
                self.cable(racks[rack], HOSTS + up, leaves[rack // 2 * 2 + up], rack % 2)
        for leaf in range(4):
            for up in range(2):
                self.cable(leaves[leaf], 2 + up, spines[up], leaf)
        for rack in range(4):
            own = zip(self.rack, place, strict=True)
            ways = [[at, -1] if where == rack else [HOSTS, HOSTS + 1] for where, at in own]
            self.world.set_routes(racks[rack], ways)
        for leaf in range(4):
            ways = [[w % 2, -1] if w // 2 == leaf // 2 else [2, 3] for w in self.rack]
            self.world.set_routes(leaves[leaf], ways)
        for spine in spines:
            # Down again by either leaf of the pair of racks.
            ways = [[w // 2 * 2, w // 2 * 2 + 1] for w in self.rack]
            self.world.set_routes(spine, ways)

    def switch(self, ports: int) -> int:
        lane, buffer = (DYNAMIC, 6_265_600) if self.congestion else (PAUSES, 12_000_000)
        return self.world.add_switch(ports, lanes=[lane], buffer=buffer)

    def cable(self, a: int, a_port: int, b: int, b_port: int) -> None:
        self.world.connect(a, a_port, b, b_port, rate=RATE, delay=DELAY)

    def rates(self, pairs: Sequence[tuple[int, int]], begin: int, end: int) -> NDArray[np.float64]:
        """Gb/s on the wire, from ``begin`` to ``end`` (ms), of flows without an end."""
        source, target = zip(*pairs, strict=True)
        self.world.add_flows(source, target, 1 << 40, message=1 << 16, depth=16)
        done = []
        for until in (begin, end):
            self.world.run(until=until * MILLISECOND)
            done.append(self.world.flows()["done"].astype(float))
        got: NDArray[np.float64] = (done[1] - done[0]) * 8 * FRAME / 1024
        return got / ((end - begin) * 1e6)


def jain(rates: NDArray[np.float64]) -> float:
    """Fairness: 1 when all are equal, 1/n when one has all (Jain 1984)."""
    return float(rates.sum() ** 2 / (len(rates) * (rates**2).sum()))
