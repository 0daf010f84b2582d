# SPDX-License-Identifier: Apache-2.0
"""Rules about forwarding tables: LIDs that are not reached, loops, and unbalanced routes.

What matters is the way from hosts to hosts: with up*/down* routes some switches have no way to each
other, and need none.
``diagnose`` calls ``route_faults``, and ``path_loss`` calls ``links_between``. Tables are followed
for each LID at once: every switch has one next node for it, so each is visited once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from .fabric_snapshot import FabricSnapshot, PortKey
from .fault_finding import FaultFinding, FaultKind, FaultSeverity, FaultSuspect, SuspectKind
from .sweep_evidence import SweepEvidence

__all__ = ["links_between", "route_faults"]

NO_PORT = 255
TIMES_USUAL, LEAST_MORE = 3, 8


def route_faults(evidence: SweepEvidence) -> Iterator[FaultFinding]:
    """Yield what is wrong with the tables of the switches."""
    snapshot = evidence.now
    switches = [node.name for node in snapshot.nodes.values() if node.table is not None]
    if not switches:
        return
    missing: dict[str, list[int]] = defaultdict(list)
    stale: dict[PortKey, list[int]] = defaultdict(list)
    loops: dict[tuple[str, ...], list[int]] = defaultdict(list)
    starts = [name for name in switches if evidence.tier.get(name) == 1]
    for lid, owner in _lids(snapshot).items():
        if not snapshot.is_switch(owner):
            _follow(snapshot, starts, lid, owner, missing, stale, loops)
    for name, lids in missing.items():
        yield _no_route(evidence, name, lids, f"the table of {name} has no output port")
    for key, lids in stale.items():
        what = f"the table of {key.node} leads to {key}, which is down or another host's port,"
        yield _no_route(evidence, key.node, lids, what, FaultSuspect.port(key))
    for names, lids in loops.items():
        yield FaultFinding(
            FaultKind.ROUTE_LOOP,
            FaultSeverity.ERROR,
            FaultSuspect(SuspectKind.SWITCH, names[0]),
            f"the tables of {' -> '.join((*names, names[0]))} pass {_some(lids)} in a circle",
            "Let the subnet manager compute the routes again (a heavy sweep), and see its log.",
            {"LIDs": len(lids)},
            tuple(FaultSuspect(SuspectKind.SWITCH, name) for name in names[1:]),
        )
    yield from _unbalanced(evidence, switches)


def _lids(snapshot: FabricSnapshot) -> dict[int, str]:
    return {
        lid: node.name
        for node in snapshot.nodes.values()
        for lids in node.lids.values()
        for lid in lids
    }


def _follow(
    snapshot: FabricSnapshot,
    starts: list[str],
    lid: int,
    owner: str,
    missing: dict[str, list[int]],
    stale: dict[PortKey, list[int]],
    loops: dict[tuple[str, ...], list[int]],
) -> None:
    done = {owner}
    for start in starts:
        way: dict[str, None] = {}
        here = start
        while here not in done:
            if here in way:
                names = list(way)
                circle = names[names.index(here) :]
                first = circle.index(min(circle))
                loops[tuple(circle[first:] + circle[:first])].append(lid)
                break
            way[here] = None
            output = snapshot.output_of(here, lid)
            if output == NO_PORT:
                missing[here].append(lid)
                break
            key = PortKey(here, output)
            peer = snapshot.peers.get(key)
            beyond = peer.node if peer is not None else None
            if beyond is None or (beyond != owner and not snapshot.is_switch(beyond)):
                stale[key].append(lid)
                break
            if beyond != owner and snapshot.nodes[beyond].table is None:
                break  # not known further on
            here = beyond
        done.update(way)


def _no_route(
    evidence: SweepEvidence, name: str, lids: list[int], what: str, *others: FaultSuspect
) -> FaultFinding:
    return FaultFinding(
        FaultKind.NO_ROUTE,
        FaultSeverity.ERROR,
        evidence.node_suspect(name),
        f"{what} for {_some(lids)}",
        "Let the subnet manager sweep again; see its log for this switch.",
        {"LIDs": len(lids)},
        others,
    )


def _some(lids: list[int]) -> str:
    shown = ", ".join(map(str, lids[:4])) + ", ..." * (len(lids) > 4)
    return f"LID {shown}" if len(lids) == 1 else f"{len(lids)} LIDs ({shown})"


def _unbalanced(evidence: SweepEvidence, switches: list[str]) -> Iterator[FaultFinding]:
    snapshot = evidence.now
    ends = [lid for lid, owner in _lids(snapshot).items() if not snapshot.is_switch(owner)]
    for name in switches:
        used: dict[int, int] = defaultdict(int)
        for lid in ends:
            used[snapshot.output_of(name, lid)] += 1
        groups: dict[int, list[PortKey]] = defaultdict(list)
        for key in evidence.ports_of.get(name, ()):
            peer = snapshot.peers.get(key)
            if peer is not None and snapshot.is_switch(peer.node):
                groups[evidence.tier.get(peer.node, 0)].append(key)
        for keys in groups.values():
            if len(keys) < 2:
                continue
            most = max(keys, key=lambda key: used[key.number])
            total = sum(used[key.number] for key in keys)
            mean, top = total / len(keys), used[most.number]
            if top < mean + LEAST_MORE or (top < TIMES_USUAL * mean and top < total):
                continue
            yield FaultFinding(
                FaultKind.UNBALANCED,
                FaultSeverity.WARNING,
                evidence.suspect_at(most),
                f"{name} sends to {used[most.number]} LIDs by port {most.number}, and to"
                f" {mean:.0f} by each of its {len(keys)} ports of this kind on average",
                "Choose a routing engine that fits the topology, and see its balance and roots.",
                {"LIDs": used[most.number], "mean": round(mean, 1)},
            )


def links_between(snapshot: FabricSnapshot, source: str, target: str) -> list[PortKey] | None:
    """Return the sending ports of the way between two hosts, or None if it is not known."""
    to = snapshot.nodes.get(target)
    start = next((key for key in snapshot.peers if key.node == source), None)
    if to is None or not to.lids or start is None:
        return None
    lid = next((each[0] for each in to.lids.values() if len(each)), None)
    if lid is None:
        return None
    way = [start]
    while len(way) <= len(snapshot.nodes):
        peer = snapshot.peers.get(way[-1])
        if peer is None:
            return None
        if peer.node == target:
            return way
        if not snapshot.is_switch(peer.node):
            return None
        way.append(PortKey(peer.node, snapshot.output_of(peer.node, lid)))
    return None
