# SPDX-License-Identifier: Apache-2.0
"""V24: a dragonfly and its worst pattern."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from tests.sim.fabrics import CheckedWorld, finish
from tests.validation.row import Figure, Row, Scope, at_least, at_most, equal, near
from verbena import fabrics
from verbena.fabrics import Routes
from verbena.sim import build

P, A, H = 4, 8, 4
PACKET, SER = 4096, 4096 * 80


@cache
def routes() -> Routes:
    return fabrics.route(fabrics.dragonfly(P, A, H, rate="100GbE", delay_ns=100), "dragonfly")


def worst(size: int) -> float:
    """Of its link, that a host gets when every group sends to the next one."""
    world = CheckedWorld(framing="bare", timeout=0)
    build(world, routes())
    hosts = np.arange(world.hosts)
    world.add_flows(hosts, np.roll(hosts, -P * A), size)
    finish(world)
    return size * 80 / float(world.flows()["finish"].max())


def uniform(load: float, packets: int, seed: int) -> tuple[float, float]:
    """What arrives while it is sent, and the mean time of a packet, with random targets."""
    random = np.random.default_rng(seed)
    world = CheckedWorld(framing="bare", timeout=0)
    build(world, routes())
    hosts = world.hosts
    count = hosts * packets
    source = np.repeat(np.arange(hosts), packets)
    target = (source + random.integers(1, hosts, count)) % hosts
    length = int(packets * SER / load)
    start = random.integers(0, length, count)
    world.add_flows(source, target, PACKET, start)
    finish(world)
    flows = world.flows()
    later = start > length // 2
    took = (flows["finish"].astype(np.int64) - flows["start"].astype(np.int64))[later]
    end = (flows["finish"] > length // 2) & (flows["finish"] <= length)
    return float(end.sum()) / hosts / (length / 2 / SER), float(took.mean()) / SER


def measure(scope: Scope) -> Iterator[Figure]:
    hosts = np.arange(routes().tables.host_count)
    yield equal("hosts", len(hosts), 1056)
    load = routes().max_link_load(hosts, np.roll(hosts, -P * A))
    yield equal("flows on the fullest link, group + 1", load, A * P)
    # All of it is sent by 32 hosts over one cable; the last flows end together.
    yield near("rate of a host, group + 1", worst(32 * PACKET), 1 / (A * P), 0.04, "of its link")
    arrived, took = uniform(0.8, 300, scope.seed)
    yield at_least("uniform traffic of 0.8: arrives", arrived, 0.77)
    yield at_most("uniform traffic of 0.8: mean time, in packet times", took, 40)
    arrived, _ = uniform(0.9, 300, scope.seed)
    yield at_least("uniform traffic of 0.9: arrives", arrived, 0.85)


ROW = Row(
    number="V24",
    title="A dragonfly's worst pattern",
    setup="A dragonfly of p = 4, a = 8, h = 4 (1,056 hosts) with minimal routes: every host "
    "sends to the same place in the next group, 128 KiB; then packets between random hosts.",
    expected="1/(a · p) = 1/32 of a link for each host, since a group has one cable to the next; "
    "nearly all that is offered for uniform traffic (Kim, Dally, Scott, Abts, ISCA 2008).",
    fails="the minimal route is another one, or the one cable is not shared evenly.",
    meaning="Minimal routing uses one cable of 32 when it matters most.",
    measure=measure,
    missing="Valiant's routing (½) and UGAL between the two: tables by destination have no "
    "detours, and switches here do not choose by their queues.",
    seconds=600,
)
