# SPDX-License-Identifier: Apache-2.0
"""V10: how long a pause lasts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.sim.fabrics import CheckedWorld
from tests.validation.row import Figure, Row, Scope, near

TABLE = {10: 3355.0, 40: 838.9, 100: 335.5, 200: 167.8, 400: 83.9}  # Gb/s: µs


def interval(gbps: int) -> float:
    """µs between two pause frames of a port that stays blocked."""
    lane = {"flow": "pauses", "stop": 16 << 10, "go": 8 << 10, "spare": 64 << 10}
    world = CheckedWorld(framing="bare", window=64 << 20, timeout=0)
    rate, pause = gbps * 10**9, 65535 * 512 * 10**12 // (gbps * 10**9)
    center = world.add_switch(3, lanes=[lane, {}], high=[(1, 255)], low=[(0, 64)], high_limit=255)
    for port in range(3):
        world.connect(world.add_host(), 0, center, port, rate=rate, delay=0)
    world.set_routes(center, [0, 1, 2])
    world.add_flows(0, 1, 4 << 20)
    world.add_flows(2, 1, int(3 * pause * rate / 8e12), level=1)  # the port is taken so long
    seen, step = [], pause // 400
    pauses = 0
    for at in range(step, 2 * pause, step):
        world.run(until=at)
        now = int(world.links()["pauses"].sum())
        seen += [at] * (now - pauses)
        pauses = now
    return float(np.diff(seen).mean()) / 1e6


def measure(scope: Scope) -> Iterator[Figure]:
    for gbps, micros in TABLE.items():
        yield near(f"{gbps} Gb/s", 2 * interval(gbps), micros, 0.01, "µs")


ROW = Row(
    number="V10",
    title="How long a pause lasts",
    setup="A port that stays blocked asks again when half of the longest pause is over: twice the "
    "time between its pause frames.",
    expected="65535 quanta of 512 bit times (IEEE 802.1Q): 3355 µs at 10 Gb/s to 83.9 µs at 400.",
    fails="a quantum is not 512 bit times of the link, or a blocked port falls silent.",
    meaning="A pause ends by itself; a switch that must hold on keeps saying so.",
    measure=measure,
    tested="`tests/native/test_lanes.c`",
)
