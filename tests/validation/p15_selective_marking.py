# SPDX-License-Identifier: Apache-2.0
"""P15: which packets a switch with input buffers is to mark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from tests.sim.fabrics import CheckedWorld, chain, credits
from tests.validation.row import Confidence, Figure, Row, Scope, at_least, at_most, near
from tests.validation.testbed import jain

GBPS, ROOM = 32, 32 << 10
REMOTE, VICTIM, LOCAL = range(4), 4, range(5, 8)  # hosts 0 to 4 at one switch, 5 to 9 at the other
HOT, ASIDE = 8, 9
CCT: dict[str, Any] = {
    "kind": "cct",
    "gaps": [entry / 16 for entry in range(128)],
    "increase": 1,
    "timer": 150 * 1_024_000,
    "notice_interval": 0,
}


def shares(fecn_at: str | None, seed: int, begin: int, end: int) -> NDArray[Any]:
    """Of a link, of the hosts 0 to 7, from ``begin`` to ``end`` (ms); None: nothing is marked."""
    world = CheckedWorld(
        seed, framing="infiniband", mtu=2048, timeout=0, congestion=CCT if fecn_at else None
    )
    marking = {"fecn": 8 << 10, "fecn_at": fecn_at} if fecn_at else {}
    link = {"rate": GBPS * 10**9, "delay": 25_000}
    chain(world, [5, 5], link, **credits(ROOM), **marking)
    senders = [*REMOTE, VICTIM, *LOCAL]
    target = [ASIDE if sender == VICTIM else HOT for sender in senders]
    world.add_flows(senders, target, 1 << 40, message=1 << 14, depth=16)
    done = []
    for until in (begin, end):
        world.run(until=until * 10**9)
        done.append(world.flows()["done"].astype(float))
    got: NDArray[Any] = (done[1] - done[0]) * 8 / ((end - begin) * 1e6) / GBPS
    return got


def measure(scope: Scope) -> Iterator[Figure]:
    times = (10, 40)  # the quick ones too: the rates need 10 ms to find each other
    hot = [*REMOTE, *LOCAL]
    none, naive, by_cause = (shares(how, scope.seed, *times) for how in (None, "input", "root"))
    yield at_most("no marks: the victim, of a link", float(none[VICTIM]), 0.08)
    yield at_most("full buffers: the victim", float(naive[VICTIM]), 0.15)
    remote = float(naive[list(REMOTE)].mean() / naive[list(LOCAL)].mean())
    yield at_most("full buffers: a remote sender, of a local one", remote, 0.6)
    yield at_most("full buffers: fairness of the seven (Jain)", jain(naive[hot]), 0.9)
    left = 1 - float(by_cause[list(REMOTE)].sum())
    yield at_least(
        "by cause: the victim, of what is left to it", float(by_cause[VICTIM]) / left, 0.85
    )
    remote = float(by_cause[list(REMOTE)].mean() / by_cause[list(LOCAL)].mean())
    yield near("by cause: a remote sender, of a local one", remote, 1.0, 0.2)
    yield at_least("by cause: fairness of the seven (Jain)", jain(by_cause[hot]), 0.95)
    yield at_least("by cause: the hot link", float(by_cause[hot].sum()), 0.9, "of it")


ROW = Row(
    number="P15",
    title="Which packets to mark in input-buffered switches (Santos and others, Globecom 2002)",
    setup="Two switches of five hosts each at 32 Gb/s, 32 KiB of credits for each input. Four "
    "hosts of one switch and three of the other send to a host of the other; a victim beside the "
    "four sends to a second host there, over the same link between the switches. FECN when more "
    "than 8 KiB wait: in a packet's input buffer, wherever it goes; or at the root, where a lane "
    "has credits. CCT of sixteenths of a packet time, CCTI_Timer 150.",
    expected="marking what is in a full buffer is unfair: it marks the victim, and remote senders "
    "at both switches; marking by cause restores the victim to the full rate, here all that the "
    "four leave of the link, and treats the seven alike.",
    fails="marks come by input, or at ports that only wait for others.",
    meaning="Which packets are marked decides who slows down, whatever the reaction is.",
    measure=measure,
    confidence=Confidence.TEXT,
    quick=True,
    missing="the paper's own reaction at the source (a rate control with a window): what is "
    "compared is the marking.",
)
