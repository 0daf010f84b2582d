# SPDX-License-Identifier: Apache-2.0
"""C31: nothing is lost inside a host; and without costs a run is the one that it was."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.sim.fabrics import finish, star
from tests.sim.inside_pair import InsideWorld
from tests.validation.row import Figure, Row, Scope, equal, holds


def traffic(world: InsideWorld, seed: int, count: int) -> None:
    draw = np.random.default_rng(seed)
    source = draw.integers(0, 4, count)
    target = (source + draw.integers(1, 4, count)) % 4
    world.add_flows(
        source,
        target,
        draw.integers(1, 200_000, count),
        draw.integers(0, 50_000_000, count),
        message=draw.integers(1, 20_000, count),
        depth=draw.integers(1, 9, count),
        operation=draw.choice(["write", "send", "read"], count).tolist(),
    )


def measure(scope: Scope) -> Iterator[Figure]:
    for moderated in (None, {"time": 8_000_000, "packets": 16}):
        world = InsideWorld(threads=1)
        star(world, 4)
        for host in range(4):
            world.inside(
                host,
                cpu={"cores": 2},
                iommu={"entries": 64},
                interrupts=moderated,
                hca={"inline": 64, "mtt": 256, "batch": 2},
            )
        traffic(world, scope.seed, scope.pick(60, 2000))
        finish(world)
        name = "polling" if moderated is None else "interrupts"
        for host in range(4):
            seen = world.insides[host].counters()
            for way, link in (("up", seen.up), ("down", seen.down)):
                total = sum(size for _, size in link.tlps.values())
                yield equal(f"{name}, host {host}: bytes {way}", link.bytes, total, "B")
            time = seen.busy + seen.spinning + seen.idle
            yield equal(f"{name}, host {host}: time", time, seen.elapsed * seen.cores, "ps")
            yield holds(f"{name}, host {host}: idle is no debt", seen.idle >= 0)
            if moderated is not None:
                taken = seen.interrupts + seen.merged
                yield equal(f"{name}, host {host}: completions seen", taken, seen.completions)
    runs = []
    for own in (False, True):
        world = InsideWorld(threads=1)
        star(world, 5)
        if own:
            world.inside(4, hca={"inline": 64})  # a host of which nothing is asked
        traffic(world, scope.seed, scope.pick(60, 2000))
        finish(world)
        runs.append(world.flows().tobytes())
    yield holds("hosts without an inside run as before", runs[0] == runs[1])


ROW = Row(
    number="C31",
    title="Nothing is lost inside a host",
    setup="random flows between four hosts, whose insides have caches, lists of requests and, in "
    "one of two runs, moderated interrupts.",
    expected="bytes of each direction are the sum of its transactions; busy, polling and idle time "
    "are the elapsed time of all cores; each completion has an interrupt or shares one; hosts "
    "without an inside run as they did.",
    fails="something is counted twice, or never.",
    meaning="What a host's counters say adds up.",
    measure=measure,
    quick=True,
    tested="`tests/sim/test_inside.py`; that DMA touches no page that is not mapped or registered, "
    "in `tests/host/test_refused_dma.py`, `tests/host/test_hca_memory.py` and "
    "`tests/host/test_hca_errors.py`",
)
