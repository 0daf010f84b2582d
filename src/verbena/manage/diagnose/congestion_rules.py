# SPDX-License-Identifier: Apache-2.0
"""Rules about waiting: a tree of back-pressure is followed from its leaves to its root.

``diagnose`` calls ``congestion_faults``. A port that waits for credits waits for the node at the
other end. If that is a host, the host is slow. If it is a switch with an output that waits too,
the reason is further on. If it is a switch whose output is busy all the time, too many send to one
place: that port is hot, and nothing is broken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from .fabric_snapshot import PortKey
from .fault_finding import FaultFinding, FaultKind, FaultSeverity, FaultSuspect
from .link_downs import how_often
from .sweep_evidence import SweepEvidence

__all__ = ["congestion_faults", "hot_port"]

WAITS = 0.05  # of the time: below it nobody notices
BUSY = 0.8
LONG = 0.5  # a share of time that bursts alone do not explain
DISCARDS = 100


def congestion_faults(evidence: SweepEvidence) -> Iterator[FaultFinding]:
    """Yield the roots of trees of back-pressure."""
    waiting = {key: evidence.wait_share(key) for key in evidence.now.peers}
    waiting = {key: share for key, share in waiting.items() if share >= WAITS}
    trees: dict[PortKey, list[PortKey]] = defaultdict(list)
    loops: dict[PortKey, list[PortKey]] = {}
    for key in waiting:
        root, cycle = _root(evidence, key, waiting)
        if cycle:
            loops.setdefault(min(cycle), cycle)
        elif root is not None:
            trees[root].append(key)
    for cycle in loops.values():
        yield _credit_loop(cycle)
    slow: dict[str, list[PortKey]] = defaultdict(list)
    for root in trees:
        slow[evidence.now.peers[root].node].append(root)
    named = set[str]()
    for node, roots in slow.items():
        named |= {key.node for key in roots} | {node}
        tree = [key for root in roots for key in trees[root]]
        worst = max(roots, key=lambda key: waiting[key])
        yield _at_root(evidence, node, worst, waiting[worst], tree)
    for key, peer in evidence.now.peers.items():
        discards = evidence.count(key, "xmit_discards")
        if discards > DISCARDS and not {key.node, peer.node} & named:
            yield hot_port(evidence, key, discards)


def hot_port(evidence: SweepEvidence, key: PortKey, discards: int) -> FaultFinding:
    """Return the note of a port that discards: more is sent to it than fits, or it had no link.

    PortXmitDiscards counts both (IBA vol. 1, PortCounters), and a total does not say when.
    """
    numbers: dict[str, float | int | str] = {"xmit_discards": discards}
    downs = max(
        evidence.count(end, "link_downed") for end in (key, evidence.now.peers.get(key, key))
    )
    if downs:
        return FaultFinding(
            FaultKind.DOWN_DISCARDS,
            FaultSeverity.NOTE,
            FaultSuspect.port(key),
            f"{key} has discarded {discards} packets, and its link went down {how_often(downs)}: a"
            " port without a link discards what waits for it",
            "See that link first. If the number grows while the link stays up, more is sent to it"
            " than fits.",
            {**numbers, "link_downed": downs},
        )
    used = evidence.utilisation(key)
    if used is not None:
        numbers["utilisation"] = round(used, 3)
    return FaultFinding(
        FaultKind.HOT_PORT,
        FaultSeverity.NOTE,
        FaultSuspect.port(key),
        f"{key} has discarded {discards} packets, since more is sent to it than fits or waits too"
        " long there",
        "Its cable is not to blame. Spread the load, or use congestion control.",
        numbers,
    )


def _root(
    evidence: SweepEvidence, start: PortKey, waiting: dict[PortKey, float]
) -> tuple[PortKey | None, list[PortKey]]:
    """Return the last waiting port downstream of a port, or the cycle in which they wait."""
    way = [start]
    while True:
        beyond = evidence.now.peers[way[-1]]
        if not evidence.now.is_switch(beyond.node):
            return way[-1], []
        following = [
            key for key in evidence.ports_of[beyond.node] if key in waiting and key != beyond
        ]
        if not following:
            return way[-1], []
        # Ports that face hosts end the tree; of several the one that waits longest is followed.
        worst = max(
            following,
            key=lambda key: (
                not evidence.now.is_switch(evidence.now.peers[key].node),
                waiting[key],
            ),
        )
        if worst in way:
            return None, way[way.index(worst) :]
        way.append(worst)


def _at_root(
    evidence: SweepEvidence, node: str, root: PortKey, share: float, tree: list[PortKey]
) -> FaultFinding:
    numbers: dict[str, float | int | str] = {"share of time": round(share, 3), "ports": len(tree)}
    victims = f"{len(tree)} ports wait behind it" if len(tree) > 1 else "no other port waits"
    known = evidence.now.nodes.get(node)
    if known is None or not known.is_kind_known:
        return _not_told(root, node, share, numbers, "what kind of node it is")
    if evidence.now.is_switch(node):
        return _at_switch(evidence, node, root, share, numbers, victims)
    used = evidence.utilisation(root)
    if used is not None:
        numbers["utilisation"] = round(used, 3)
        if used >= BUSY:
            return FaultFinding(
                FaultKind.HOT_PORT,
                FaultSeverity.NOTE,
                FaultSuspect.port(root),
                f"{root} sends {used:.0%} of its rate to {node}, which takes it: {victims}",
                "Nothing is broken. Spread the load if the waiting matters.",
                numbers,
            )
    return FaultFinding(
        FaultKind.SLOW_RECEIVER,
        FaultSeverity.ERROR,
        evidence.node_suspect(node),
        f"{root} waits {share:.0%} of the time for credits of {node}, which takes less than its"
        f" link brings: {victims}",
        f"See {node}: PCIe width and speed, memory, CPU frequency, its number of receive"
        " requests, and whether it sends pauses.",
        numbers,
    )


def _at_switch(
    evidence: SweepEvidence,
    node: str,
    root: PortKey,
    share: float,
    numbers: dict[str, float | int | str],
    victims: str,
) -> FaultFinding:
    outputs = [key for key in evidence.ports_of[node] if key in evidence.now.peers]
    outputs = [key for key in outputs if key != evidence.now.peers[root]]
    busiest = max(outputs, key=lambda key: evidence.count(key, "xmit_data"), default=None)
    used = evidence.utilisation(busiest) if busiest is not None else None
    if used is None:
        return _not_told(root, node, share, numbers, "whether one of its outputs is busy")
    if busiest is not None and used >= BUSY:
        numbers["utilisation"] = round(used, 3)
        rate = f"{used:.0%} of its rate"
        return FaultFinding(
            FaultKind.HOT_PORT,
            FaultSeverity.NOTE,
            FaultSuspect.port(busiest),
            f"more is sent to {busiest} than fits, and it sends {rate}: {victims}",
            "Nothing is broken: several senders have one target, or too few links. Spread the"
            " load, or use congestion control.",
            numbers,
        )
    return FaultFinding(
        FaultKind.SLOW_SWITCH,
        FaultSeverity.WARNING if share >= LONG else FaultSeverity.NOTE,
        FaultSuspect.port(evidence.now.peers[root]),
        f"{root} waits {share:.0%} of the time for credits of {node}, of which no output waits or"
        f" is busy: {victims}",
        f"Compare buffers and firmware of {node} with others, and the length of its cable.",
        numbers,
    )


def _not_told(
    root: PortKey, node: str, share: float, numbers: dict[str, float | int | str], what: str
) -> FaultFinding:
    return FaultFinding(
        FaultKind.HOT_PORT,
        FaultSeverity.NOTE,
        FaultSuspect.port(root),
        f"{root} waits {share:.0%} of the time for credits of {node}, and it is not known {what}",
        "Sweep twice, with the data counters of all ports.",
        numbers,
    )


def _credit_loop(cycle: list[PortKey]) -> FaultFinding:
    names = " -> ".join(map(str, (*cycle, cycle[0])))
    return FaultFinding(
        FaultKind.CREDIT_LOOP,
        FaultSeverity.ERROR,
        FaultSuspect.port(cycle[0]),
        f"ports wait for each other's credits in a circle: {names}",
        "Use a routing engine without credit loops (updn, ftree, dfsssp), or fix its roots.",
        {"ports": len(cycle)},
        tuple(FaultSuspect.port(key) for key in cycle[1:]),
    )
