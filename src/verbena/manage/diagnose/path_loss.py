# SPDX-License-Identifier: Apache-2.0
"""Finds the link on which pairs of hosts lose packets, from what hosts count and the tables.

``diagnose`` calls ``path_losses``. Each pair gives the links of its way and the share that it has
lost. A link is suspected if nearly all pairs that cross it lose packets; it explains these pairs,
and the search goes on with the others. Links that nearly the same pairs cross
cannot be told apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from .congestion_rules import hot_port
from .fabric_snapshot import FlowTrouble, PortKey
from .fault_finding import FaultFinding, FaultKind, FaultSeverity
from .route_rules import links_between
from .sweep_evidence import SweepEvidence

__all__ = ["path_losses"]

LOSES = 1e-4  # of a pair's packets; with fewer it is normal
LEAST_LOST = 5
LEAST_PAIRS = 3
NEARLY_ALL = 0.75
ALIKE = 0.8
COUNTED = 0.1  # of the losses, if a full queue is the reason; a loss makes several be sent again
MOST_SUSPECTS = 5


def path_losses(evidence: SweepEvidence) -> Iterator[FaultFinding]:
    """Yield the links that explain the losses of pairs of hosts."""
    crossing: dict[PortKey, set[int]] = defaultdict(set)
    flows: list[FlowTrouble] = []
    for flow in evidence.now.flows:
        way = links_between(evidence.now, flow.source, flow.target)
        if way is not None and flow.sent:
            for key in way:
                crossing[key].add(len(flows))
            flows.append(flow)
    bad = {number for number, flow in enumerate(flows) if _loses(flow)}
    open_ = set(bad)
    while True:
        best = _best(crossing, bad, open_)
        if best is None:
            return
        explained = crossing[best] & open_
        same = [
            key
            for key, pairs in crossing.items()
            if key != best
            and len(pairs & explained) >= ALIKE * len(explained)
            and len(pairs & bad) >= NEARLY_ALL * len(pairs)
        ]
        near = {end for key in (best, *same) for end in (key, evidence.now.peers[key])}
        full = max(near, key=lambda key: (evidence.count(key, "xmit_discards"), key))
        discards = evidence.count(full, "xmit_discards")
        if discards > COUNTED * sum(flows[number].lost for number in explained):
            yield hot_port(evidence, full, discards)
        else:
            yield _finding(evidence, flows, best, same, explained, len(crossing[best] & bad))
        open_ -= crossing[best]


def _loses(flow: FlowTrouble) -> bool:
    return flow.lost >= LEAST_LOST and flow.lost >= LOSES * flow.sent


def _best(crossing: dict[PortKey, set[int]], bad: set[int], open_: set[int]) -> PortKey | None:
    """Return the link that explains most of the open pairs, and has the fewest good ones."""
    ranked = [
        (len(pairs & open_), len(pairs & bad) / len(pairs), key)
        for key, pairs in crossing.items()
        if len(pairs & open_) >= LEAST_PAIRS and len(pairs & bad) >= NEARLY_ALL * len(pairs)
    ]
    if not ranked:
        return None
    return max(ranked, key=lambda each: (each[0], each[1]))[2]


def _finding(
    evidence: SweepEvidence,
    flows: list[FlowTrouble],
    best: PortKey,
    same: list[PortKey],
    explained: set[int],
    losing: int,
) -> FaultFinding:
    lost = sum(flows[number].lost for number in explained)
    peer = evidence.now.peers[best]
    suspects = tuple(evidence.suspect_at(key) for key in same[:MOST_SUSPECTS])
    choice = " or one of the others named" if suspects else ""
    return FaultFinding(
        FaultKind.PATH_LOSS,
        FaultSeverity.ERROR,
        evidence.suspect_at(best),
        f"{losing} pairs of hosts that cross the link from {best} to {peer} lose packets, and"
        f" nearly none that do not{choice}: it loses packets without counting them",
        "Exchange this cable, or take the link out of the routes and see whether the losses stop.",
        {"pairs": len(explained), "packets lost": lost},
        tuple(each for each in suspects if each != evidence.suspect_at(best)),
    )
