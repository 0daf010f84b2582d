# SPDX-License-Identifier: Apache-2.0
"""V20: TCP incast after the collapse."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.sim.fabrics import GIGABIT, MICROSECOND, CheckedWorld
from tests.validation.row import Figure, Row, Scope, at_least, near

SIZE = 256 << 10
MILLISECOND = 1000 * MICROSECOND
LINK = {"rate": GIGABIT, "delay": 25 * MICROSECOND}  # four of them: 100 us


def goodput(
    servers: int, rto: int, buffer: int, blocks: int, seed: int, window: int = 16 << 20
) -> float:
    """Mb/s with which blocks come, one after the other, a part of each from each server.

    Servers start at random times; without a jitter besides, so that all of them meet in the queue.
    ``window``: the receiver's, in bytes.
    """
    world = CheckedWorld(seed, tcp={"least_rto": rto, "jitter": 0, "window": window})
    center = world.add_switch(servers + 1, buffer=buffer)
    for port in range(servers + 1):
        world.connect(world.add_host(), 0, center, port, **LINK)
    world.set_routes(center, np.arange(servers + 1))
    lot = np.random.default_rng(seed)
    rates = []
    for _ in range(blocks):
        start = world.now
        starts = start + lot.integers(0, 20 * MICROSECOND, servers)
        world.add_flows(np.arange(servers), servers, SIZE, starts, transport="tcp", control="reno")
        assert world.run() == "done"
        rates.append(servers * SIZE * 8e6 / (int(world.flows()["finish"].max()) - start))
    return float(np.mean(rates))


def measure(scope: Scope) -> Iterator[Figure]:
    for servers, buffer in ((4, 24), (8, 64), (16, 128), (32, 256)):
        alone = servers * SIZE * 8e-3  # us of the line
        got = goodput(servers, 200 * MILLISECOND, buffer << 10, 5, scope.seed)
        law = servers * SIZE * 8 / (alone + 200_000)
        yield near(f"N = {servers}, RTO 200 ms", got, law, 0.12, "Mb/s")
        got = goodput(servers, MILLISECOND, buffer << 10, 5, scope.seed)
        law = servers * SIZE * 8 / (alone + 1000)
        yield at_least(f"N = {servers}, RTO 1 ms", got, 0.85 * law, "Mb/s")


ROW = Row(
    number="V20",
    title="TCP incast after the collapse",
    setup="N servers send 256 KiB each to one port of 1 Gb/s, 100 µs, five blocks one after the "
    "other, without jitter; Reno, and a buffer of 8 KiB for each server (6 KiB if there are four), "
    "so that some of them lose the end of what they sent.",
    expected="N·S/(N·S/C + RTOmin): 40, 77, 144 and 251 Mb/s with 200 ms; with 1 ms 893 to 985, "
    "less what frames take.",
    fails="a loss at the end is repaired without the timer, or a server waits for it more than "
    "once.",
    meaning="The line is idle until the timer of the unluckiest server has expired. With 200 ms "
    "that is nearly all of the time.",
    measure=measure,
    quick=True,
    tested="`tests/sim/test_tcp.py`",
)
