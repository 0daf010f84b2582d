# SPDX-License-Identifier: Apache-2.0
"""C29: routes between autonomous systems: which policies settle, and which do not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.internet.systems import GADGETS, gadget, random_systems, stable_state
from tests.validation.row import Confidence, Figure, Row, Scope, at_least, equal
from verbena.internet import NotConvergedError
from verbena.internet.autonomous_systems import AutonomousSystems

TARGET = 9  # the system that those of a gadget want to reach


def settles(systems: AutonomousSystems, limit_s: float) -> bool:
    try:
        systems.net.converge(limit_s=limit_s)
    except NotConvergedError:
        return False
    return True


def best_paths(systems: AutonomousSystems) -> dict[int, tuple[int, ...]]:
    """Each system's path to the target of a gadget."""
    (network,) = systems.systems[TARGET].networks
    found = {}
    for number, system in systems.systems.items():
        (speaker,) = system.speakers.values()
        found[number] = speaker.best[network].path
    return found


def gadgets(scope: Scope) -> Iterator[Figure]:
    runs, limit = scope.pick(2, 10), scope.pick(900, 10_000)
    for name in GADGETS:
        settled, states, changes = 0, set(), []
        for seed in range(scope.seed, scope.seed + runs):
            systems = gadget(name, seed)
            settled += settles(systems, limit)
            states.add(tuple(sorted(best_paths(systems).items())))
            speakers = [one for each in systems.systems.values() for one in each.speakers.values()]
            changes.append(sum(one.changes for one in speakers) / systems.net.now_s)
        if name == "BAD GADGET":
            yield equal(f"{name}: runs of {runs} that settle within {limit} s", settled, 0)
            least = min(changes) * limit
            yield at_least(f"{name}: changes of a best path in {limit} s", least, limit / 120)
        else:
            yield equal(f"{name}: runs of {runs} that settle", settled, runs)
        if name == "GOOD GADGET":
            yield equal(f"{name}: different states in which runs end", len(states), 1)


def hierarchies(scope: Scope) -> Iterator[Figure]:
    runs, most = scope.pick(2, 40), scope.pick(4, 8)
    paths = valleys = differ = settled = 0
    for seed in range(scope.seed, scope.seed + runs):
        systems = random_systems(seed, 2 + seed % (most - 1))
        settled += settles(systems, 3600)
        for destination, there in systems.systems.items():
            expected = stable_state(systems.relations, destination)
            for number, system in systems.systems.items():
                for speaker in system.speakers.values():
                    for prefix in there.networks:
                        route = speaker.best.get(prefix)
                        found = None if route is None else (route.learnt, len(route.path))
                        differ += found != expected.get(number)
                        paths += route is not None
                        if route is not None:
                            valleys += has_valley(systems, (number, *route.path))
    yield equal(f"random hierarchies of {runs} that settle", settled, runs)
    yield equal(f"paths of {paths} that have a valley", valleys, 0)
    yield equal("routes whose class or length is not that of the stable state", differ, 0)


def has_valley(systems: AutonomousSystems, path: tuple[int, ...]) -> bool:
    """After a step to a peer or a customer there are only steps to customers."""
    steps = "".join(systems.relations[step].name[:2] for step in pairwise(path))
    return any(valley in steps for valley in ("CUPR", "CUPE", "PEPE", "PEPR"))


def measure(scope: Scope) -> Iterator[Figure]:
    yield from gadgets(scope)
    yield from hierarchies(scope)


ROW = Row(
    number="C29",
    title="Policies between autonomous systems (Griffin, Shepherd and Wilfong 2002; Gao and "
    "Rexford 2001)",
    setup="BGP-4 over TCP, MRAI 30 s with jitter, hold time 90 s, random delays of links up to "
    "50 ms. Gadgets: systems around one whose network all want, each with a ranking of paths. "
    "Hierarchies: 2 to 8 systems of one to three routers, 0 to 2 providers each, some peers, link "
    "state or distance vector inside.",
    expected="BAD GADGET has no stable state and never settles; DISAGREE has two and GOOD GADGET "
    "one, and they settle. DISAGREE and BAD GADGET are those of the section on BGP convergence in "
    "Computer Networking: Principles, Protocols and Practice (github.com/cnp3/ebook), after the "
    "publication; its GOOD GADGET could not be found, and the one here is our own. With the "
    "policies of Gao and Rexford every hierarchy settles, at the class and the length of path that "
    "three walks over the relations give, and no path has a valley.",
    fails="BAD GADGET settles, another one does not, or a path leads from a provider or peer to "
    "another one.",
    meaning="Each system's policy may be sensible, and together they never come to rest; the rule "
    "of who is told what is what makes routes between systems stable.",
    measure=measure,
    confidence=Confidence.EXACT,
    quick=True,
)
