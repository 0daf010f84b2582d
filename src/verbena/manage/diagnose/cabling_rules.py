# SPDX-License-Identifier: Apache-2.0
"""Compares the cables that a sweep found with those of the intended topology.

``diagnose`` calls ``cabling_faults`` if there is an intended one. Nodes are the same if they have
the same name. Two intended cables whose ends are exchanged are one finding.
"""

from __future__ import annotations

from collections.abc import Iterator

from .fabric_snapshot import PortKey
from .fault_finding import FaultFinding, FaultKind, FaultSeverity, FaultSuspect, SuspectKind
from .sweep_evidence import SweepEvidence

__all__ = ["cabling_faults"]

Cabling = dict[PortKey, PortKey]
ERROR = FaultSeverity.ERROR


def cabling_faults(evidence: SweepEvidence) -> Iterator[FaultFinding]:
    """Yield where the cables are not as intended."""
    if evidence.intended is None:
        return
    intended: Cabling = {}
    for cable in evidence.intended.cables():
        one, other = PortKey(cable.a, cable.a_port), PortKey(cable.b, cable.b_port)
        intended[one], intended[other] = other, one
    actual = evidence.now.peers
    yield from _another_topology(evidence.intended.name, intended, actual)
    kinds = dict(evidence.intended.graph.nodes(data="kind"))
    missing = sorted(set(kinds) - set(evidence.now.nodes))
    for name in missing:
        ports = tuple(end for key in intended if key.node == name for end in (key, intended[key]))
        is_switch = kinds[name] == "switch"
        yield FaultFinding(
            FaultKind.NODE_MISSING,
            ERROR,
            FaultSuspect.node(name, is_switch=is_switch, ports=() if is_switch else ports),
            f"{name} is intended and was not found",
            "See whether it has power and its cables are there.",
        )
    added = sorted(set(evidence.now.nodes) - set(kinds))
    for name in added:
        yield FaultFinding(
            FaultKind.NODE_ADDED,
            FaultSeverity.WARNING,
            evidence.node_suspect(name),
            f"{name} was found and is not intended",
            "Add it to the intended topology, or take it away.",
        )
    away = {*missing, *added}
    yield from _cables(intended, actual, away)


def _another_topology(name: str, intended: Cabling, actual: Cabling) -> Iterator[FaultFinding]:
    """Yield that more than half of the cables differ: then it is rather the file that is wrong."""
    # Both have each cable from both ends.
    every = intended.items() | actual.items()
    different = intended.items() ^ actual.items()
    if 2 * len(different) > len(every):
        yield FaultFinding(
            FaultKind.ANOTHER_TOPOLOGY,
            ERROR,
            FaultSuspect(SuspectKind.TOPOLOGY, name),
            f"{len(different) // 2} of {len(every) // 2} cables, found or intended, differ from the"
            " intended topology: is this the right file?",
            "Compare its name and sizes with the fabric; what follows are its differences.",
        )


def _cables(intended: Cabling, actual: Cabling, away: set[str]) -> Iterator[FaultFinding]:
    done = set[PortKey]()
    for one, other in sorted(intended.items()):
        if one > other or actual.get(one) == other or {one.node, other.node} & away:
            continue
        yield from _wrong(one, other, intended, actual, done)
    for one, other in sorted(actual.items()):
        wrong = one < other and intended.get(one) != other
        if wrong and not {one, other} & done and not {one.node, other.node} & away:
            yield FaultFinding(
                FaultKind.CABLE_ADDED,
                FaultSeverity.WARNING,
                FaultSuspect.cable(one, other),
                f"there is a cable between {one} and {other}, and none is intended",
                "Take it away, or add it to the intended topology.",
            )


def _wrong(
    one: PortKey, other: PortKey, intended: Cabling, actual: Cabling, done: set[PortKey]
) -> Iterator[FaultFinding]:
    """Yield what there is in place of an intended cable."""
    if {one, other} & done:
        return
    here, there = actual.get(one), actual.get(other)
    # one-here and other-there: exchanged if here and there should be connected.
    if here is not None and there is not None and intended.get(here) == there:
        done.update((one, other, here, there))
        yield FaultFinding(
            FaultKind.SWAPPED,
            ERROR,
            FaultSuspect.cable(one, here),
            f"the cables of {one}-{other} and {min(here, there)}-{max(here, there)} are"
            f" exchanged: {one} leads to {here}, and {other} to {there}",
            f"Exchange the plugs at {here} and {other}.",
            {},
            (FaultSuspect.cable(other, there),),
        )
        return
    for end, far, found in ((one, other, here), (other, one, there)):
        if found is not None:
            done.update((end, far, found))
            same = found.node == far.node
            yield FaultFinding(
                FaultKind.WRONG_PORT if same else FaultKind.WRONG_CABLE,
                ERROR,
                FaultSuspect.cable(end, found),
                f"{end} leads to {found}, and {far} is intended",
                f"Move the plug from {found} to {far}.",
                {},
                (FaultSuspect.port(far),),
            )
            return
    done.update((one, other))
    yield FaultFinding(
        FaultKind.CABLE_MISSING,
        ERROR,
        FaultSuspect.cable(one, other),
        f"the cable between {one} and {other} is missing or carries nothing",
        "Plug it in, or exchange it.",
    )
