# SPDX-License-Identifier: Apache-2.0
"""V24: a dragonfly and its worst pattern."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from tests.sim.fabrics import CheckedWorld, finish
from tests.validation.row import Figure, Row, Scope, at_least, at_most, between, equal, near
from verbena import fabrics
from verbena.fabrics import Routes
from verbena.sim import build

P, A, H = 4, 8, 4
GROUPS = A * H + 1
PACKET, SER = 4096, 4096 * 80
ROOM = 64 << 10
MINIMAL = 1 / (A * P)
VALIANT = (GROUPS - 2) / (2 * A * P)  # two crossings each, of all cables but the direct one
BEST = (1 + (GROUPS - 2) / 2) / (A * P)  # that one too, once


@cache
def routes(engine: str = "dragonfly", per: str = "packet") -> Routes:
    options = {} if engine == "dragonfly" else {"per": per}
    return fabrics.route(fabrics.dragonfly(P, A, H, rate="100GbE", delay_ns=100), engine, **options)


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


def lossless(engine: str, seed: int, per: str = "packet") -> CheckedWorld:
    """With credits, since a choice by queues is one by what other switches have no room for."""
    world = CheckedWorld(framing="bare", seed=seed)
    lane = {"flow": "credits", "room": ROOM}
    build(world, routes(engine, per), {"lanes": [lane] * routes(engine).lanes.lanes})
    return world


def accepted(world: CheckedWorld, first: int, last: int) -> float:
    """Of the hosts' links, between two times in packet times."""
    world.run(until=first * SER)
    before = world.packets["delivered"]
    world.run(until=last * SER)
    return float(world.packets["delivered"] - before) / (last - first) / world.hosts


def next_group(engine: str, seed: int) -> float:
    """Datagrams, since packets that go by themselves overtake each other."""
    world = lossless(engine, seed)
    hosts = np.arange(world.hosts)
    target = np.roll(hosts, -P * A)
    world.add_flows(hosts, target, 500 * PACKET, transport="ud", operation="send")
    return accepted(world, 200, 400)


def anywhere(engine: str, load: float, seed: int) -> tuple[float, float]:
    """The same for packets to random hosts, and the mean time of those that arrived."""
    world = lossless(engine, seed)
    random = np.random.default_rng(seed)
    source = np.repeat(np.arange(world.hosts), int(200 * load))
    target = (source + random.integers(1, world.hosts, len(source))) % world.hosts
    start = random.integers(0, 200 * SER, len(source))
    world.add_flows(source, target, PACKET, start, transport="ud", operation="send")
    arrived = accepted(world, 100, 200)
    flows = world.flows()
    flows = flows[(flows["start"] > 100 * SER) & (flows["finish"] < 200 * SER)]
    return arrived, float((flows["finish"] - flows["start"]).mean()) / SER


def sent_again(per: str, seed: int) -> float:
    """Of reliable flows to the next group, for each of their packets."""
    world = lossless("ugal", seed, per)
    hosts = np.arange(world.hosts)
    world.add_flows(hosts, np.roll(hosts, -P * A), 50 * PACKET)
    finish(world)
    assert (world.flows()["done"] == 50 * PACKET).all()
    return float(world.flows()["resent"].sum()) / 50 / len(hosts)


def detours(seed: int) -> Iterator[Figure]:
    minimal = next_group("dragonfly", seed)
    yield near("MIN with credits, group + 1", minimal, MINIMAL, 0.02, "of its link")
    yield near("VAL, group + 1", next_group("valiant", seed), VALIANT, 0.04, "of its link")
    ugal = next_group("ugal", seed)
    yield between("UGAL-L, group + 1", ugal, 0.95 * VALIANT, BEST, "of its link")
    arrived, took = anywhere("dragonfly", 0.8, seed)
    yield at_least("MIN with credits, uniform traffic of 0.8: arrives", arrived, 0.77)
    yield near("VAL, the same: arrives", anywhere("valiant", 0.8, seed)[0], 0.5, 0.05)
    arrived, longer = anywhere("ugal", 0.8, seed)
    yield at_least("UGAL-L, the same: arrives", arrived, 0.77)
    yield at_most("UGAL-L, the same: mean time, to MIN's", longer / took, 1.25)
    yield equal("UGAL-L per flow, RC: sent again for each packet", sent_again("flow", seed), 0)
    yield at_least("UGAL-L per packet, RC: the same", sent_again("packet", seed), 1)


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
    yield from detours(scope.seed)


ROW = Row(
    number="V24",
    title="A dragonfly's worst pattern",
    setup="A dragonfly of p = 4, a = 8, h = 4 (1,056 hosts) with minimal routes: every host "
    "sends to the same place in the next group, 128 KiB; then packets between random hosts. The "
    "same with credits, 64 KiB for each input and lane, and datagrams that fill the hosts' links: "
    "minimal routes, Valiant's, and UGAL-L that asks for each packet.",
    expected="1/(a · p) = 1/32 of a link for each host, since a group has one cable to the next; "
    "nearly all that is offered for uniform traffic (Kim, Dally, Scott, Abts, ISCA 2008). VAL half "
    "of a link for any traffic: exactly 31/64 to the next group, since 31 of 32 cables are crossed "
    "by two ways each; UGAL as VAL there, and up to 33/64 with the direct cable, and as MIN for "
    "uniform traffic.",
    fails="the minimal route is another one, the one cable is not shared evenly, or detours are "
    "taken where they cost more than they bring.",
    meaning="Minimal routing uses one cable of 32 when it matters most; a detour for each packet "
    "costs half of the network when it does not matter. A switch that looks at its own queues "
    "knows which is which, and a transport that wants packets in order cannot have it for each.",
    measure=measure,
    seconds=600,
)
