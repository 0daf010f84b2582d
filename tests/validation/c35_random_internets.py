# SPDX-License-Identifier: Apache-2.0
"""C35: random internets: what becomes of each packet, and which systems it crosses."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.internet.mixed import (
    KINDS,
    Fate,
    Mixed,
    broken_policies,
    fates,
    mixed_systems,
    unexplained,
)
from tests.validation.row import Confidence, Figure, Row, Scope, at_least, equal

MOST_SYSTEMS = 7


def internets(scope: Scope) -> Iterator[tuple[Mixed, list[Fate]]]:
    count, packets = scope.pick((2, 50), (30, 200))
    for seed in range(1000 * scope.seed, 1000 * scope.seed + count):
        made = mixed_systems(seed, 2 + seed % (MOST_SYSTEMS - 1))
        yield made, fates(made, Random(seed), packets)


def measure(scope: Scope) -> Iterator[Figure]:
    networks = dict.fromkeys(KINDS, 0)
    kinds: dict[str, int] = {}
    wrong: list[str] = []
    broken: list[str] = []
    longest = 0
    for made, packets in internets(scope):
        for kind in made.kinds.values():
            networks[kind] += 1
        for fate in packets:
            kinds[fate.kind] = kinds.get(fate.kind, 0) + 1
            longest = max(longest, len(fate.walk))
        wrong += unexplained(made, packets)
        broken += broken_policies(made, packets)
    total = sum(kinds.values())
    arrived = kinds.pop("arrived", 0)
    answered = total - arrived - len(wrong)
    yield equal(
        f"of {total:,} packets, {arrived:,} arrived, {answered:,} answered; others", len(wrong), 0
    )
    yield equal("packets and answers whose way a policy forbids", len(broken), 0)
    yield at_least("systems on the longest way", longest, scope.pick(2, 4))
    if not scope.quick:
        for kind, number in networks.items():
            yield at_least(f"networks: {kind}", number, 10)


ROW = Row(
    number="C35",
    title="Random internets of several systems",
    setup="30 internets of 2 to 7 autonomous systems with one to three routers each; each network "
    "is a cable, a hub, a switch, a ring of switches or a line for each station, with an MTU of "
    "296, 576 or 1,500 bytes where it may be chosen; up to two providers and some peers for each "
    "system, and three of ten systems refuse all paths through another one. 200 packets of 4 to "
    "4,000 bytes each, with TTLs of 1 to 64, also to addresses, ports and networks that are not "
    "there.",
    expected="every packet arrives, or one ICMP error is sent about it, also when its TTL expires; "
    "what crosses several systems has no valley, enters no system twice, follows a path that its "
    "system has chosen, and does not cross what a system on it refuses.",
    fails="a packet is lost or arrives twice, or a way is not allowed.",
    meaning="What stands between two hosts may be anything that carries Ethernet frames, and the "
    "rules of IP and of the systems hold over all of it.",
    measure=measure,
    confidence=Confidence.EXACT,
    quick=True,
    tested="`tests/internet/test_random.py`",
)
