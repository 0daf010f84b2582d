# SPDX-License-Identifier: Apache-2.0
"""Random internets of autonomous systems, and which routes their relations allow.

``stable_state`` computes by three walks over the relations what BGP has to find by messages.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from itertools import pairwise
from random import Random

from verbena.internet import Internet
from verbena.internet.autonomous_systems import AutonomousSystems, Interior
from verbena.internet.bgp_policy import Policy, RankedPaths, Relation
from verbena.internet.bgp_session import BgpSettings

# What system `a` is told of a destination: from whom it has the route, and how long the path is.
Choice = tuple[Relation | None, int]
Relations = Mapping[tuple[int, int], Relation]


def stable_state(relations: Relations, destination: int) -> dict[int, Choice]:
    """The class and the length of each system's best path under the policy of Gao and Rexford."""
    up = {destination: 0}
    queue = [destination]
    for here in queue:
        for (one, other), relation in relations.items():
            if one == here and relation is Relation.PROVIDER and other not in up:
                up[other] = up[here] + 1
                queue.append(other)
    best: dict[int, Choice] = {
        one: (None if one == destination else Relation.CUSTOMER, length)
        for one, length in up.items()
    }
    for (one, other), relation in relations.items():
        if relation is Relation.PEER and one not in up and other in up:
            length = up[other] + 1
            best[one] = (Relation.PEER, min(length, best.get(one, (None, length))[1]))
    heap = [(length, one) for one, (_, length) in best.items()]
    heapq.heapify(heap)
    while heap:
        length, here = heapq.heappop(heap)
        if length > best[here][1]:
            continue
        for (one, other), relation in relations.items():
            if one != here or relation is not Relation.CUSTOMER:
                continue
            known = best.get(other)
            if known is None or (known[0] is Relation.PROVIDER and known[1] > length + 1):
                best[other] = (Relation.PROVIDER, length + 1)
                heapq.heappush(heap, (length + 1, other))
    return best


def random_systems(seed: int, count: int, policy: Policy | None = None) -> AutonomousSystems:
    """Systems 1 to ``count`` with one to three routers each, whose providers have lower numbers."""
    net, random = Internet(seed), Random(seed)
    systems = AutonomousSystems(net)
    for number in range(1, count + 1):
        names = [f"r{number}{letter}" for letter in "abc"[: random.choice((1, 1, 2, 3))]]
        for at, name in enumerate(names):
            net.router(name)
            net.host(f"h{name[1:]}")
            net.network(f"10.{number}.{at}.0/24", name, f"h{name[1:]}")
        for left, right in pairwise(names):
            net.link(left, right, delay_us=random.uniform(10, 20_000))
        if len(names) == 3 and random.random() < 0.5:
            net.link(names[2], names[0], delay_us=random.uniform(10, 20_000))
        systems.add(number, *names, interior=random.choice(list(Interior)), policy=policy)
    for number in range(2, count + 1):
        providers = random.sample(range(1, number), min(number - 1, random.choice((0, 1, 1, 2))))
        for provider in providers:
            for copy in range(random.choice((1, 1, 2))):
                _connect(systems, random, provider, number, Relation.CUSTOMER, copy)
    for _ in range(count // 2):
        left, right = random.sample(range(1, count + 1), 2)
        if (left, right) not in systems.relations:
            _connect(systems, random, left, right, Relation.PEER, 0)
    return systems


def _connect(
    systems: AutonomousSystems,
    random: Random,
    left: int,
    right: int,
    relation: Relation,
    copy: int,
) -> None:
    one = random.choice(systems.systems[left].routers)
    other = random.choice(systems.systems[right].routers)
    join = systems.provide if relation is Relation.CUSTOMER else systems.peer
    delay = random.uniform(10, 50_000)
    join(one, other, name=f"{left}-{right}-{copy}", delay_us=delay)


GADGETS: dict[str, dict[int, list[list[int]]]] = {
    # Two systems that each prefer the way through the other one: two stable states.
    "DISAGREE": {1: [[2, 9], [9]], 2: [[1, 9], [9]]},
    # Three in a circle, each of which prefers the way through the next one: no stable state.
    "BAD GADGET": {1: [[2, 9], [9]], 2: [[3, 9], [9]], 3: [[1, 9], [9]]},
    # The same with one system that prefers its own link: one stable state.
    "GOOD GADGET": {1: [[2, 9], [9]], 2: [[3, 9], [9]], 3: [[9], [1, 9]]},
}


def gadget(name: str, seed: int, settings: BgpSettings | None = None) -> AutonomousSystems:
    """Systems of one router each around system 9, whose network all others want to reach."""
    net, random = Internet(seed), Random(seed)
    systems = AutonomousSystems(net, settings)
    wishes = GADGETS[name]
    for number in (9, *wishes):
        net.router(f"r{number}")
        net.network(f"10.{number}.0.0/24", f"r{number}")
        paths = wishes.get(number, [])
        systems.add(number, f"r{number}", policy=RankedPaths(paths))
    for number, paths in wishes.items():
        systems.peer(f"r{number}", "r9", delay_us=random.uniform(10, 50_000))
        for path in paths:
            if len(path) == 2 and (number, path[0]) not in systems.relations:
                systems.peer(f"r{number}", f"r{path[0]}", delay_us=random.uniform(10, 50_000))
    return systems
