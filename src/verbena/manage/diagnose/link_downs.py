# SPDX-License-Identifier: Apache-2.0
"""Rules about LinkDowned: links that went down and are up again.

``link_rules`` asks ``link_flaps`` and ``link_once_down`` of each cable, and ``links_once_down`` of
those without a finding. The total of one sweep may be of last year, so it is a note until it is
large.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from .fabric_snapshot import PortKey
from .fault_finding import FaultFinding, FaultKind, FaultSeverity, FaultSuspect
from .link_finding import TOTAL_ERRORS, link_finding
from .sweep_evidence import SweepEvidence

__all__ = ["how_often", "link_flaps", "link_once_down", "links_once_down"]

NAMED = 4  # links in the sentence of a note


def how_often(times: int) -> str:
    """Return "once" or "7 times"."""
    return "once" if times == 1 else f"{times} times"


def link_flaps(evidence: SweepEvidence, one: PortKey, other: PortKey) -> FaultFinding | None:
    """Return that a link goes down and comes back, or None if it did so seldom."""
    downs = [evidence.count(key, "link_downed") for key in (one, other)]
    is_edge = not all(evidence.now.is_switch(key.node) for key in (one, other))
    # A host that starts again takes its link down once, and counts nothing itself.
    normal = 1 if is_edge else 0
    if evidence.before is None:
        normal = TOTAL_ERRORS
    if max(downs) <= normal + (evidence.before is not None):
        return None
    return link_finding(
        evidence,
        FaultKind.LINK_FLAPS,
        FaultSuspect.cable(one, other),
        f"the link between {one} and {other} went down {max(downs)} times and is up again",
        "Reseat or exchange the cable; if a host is at its end, see whether it was restarted.",
        (one, other),
    )


def link_once_down(evidence: SweepEvidence, one: PortKey, other: PortKey) -> FaultFinding | None:
    """Return that a link went down between the sweeps, too seldom for one that flaps.

    A host that starts again does this, too, and counts nothing itself: that is a note.
    """
    if evidence.before is None:
        return None
    downs = {key: evidence.count(key, "link_downed") for key in (one, other)}
    if not any(downs.values()):
        return None
    restarted = [
        key.node for key in downs if not downs[key] and not evidence.now.is_switch(key.node)
    ]
    times = how_often(max(downs.values()))
    note = f"; {restarted[0]} has not counted it and may have been restarted" if restarted else ""
    found = link_finding(
        evidence,
        FaultKind.LINK_ONCE_DOWN,
        FaultSuspect.cable(one, other),
        f"the link between {one} and {other} went down {times} and is up again{note}",
        "See whether somebody pulled it or restarted a node at its end; look again later.",
        (one, other),
    )
    return replace(found, severity=FaultSeverity.NOTE if restarted else FaultSeverity.WARNING)


def links_once_down(
    evidence: SweepEvidence, cables: Sequence[tuple[PortKey, PortKey]]
) -> Iterator[FaultFinding]:
    """Yield one note of all links whose totals, in one sweep, say that they were down."""
    if evidence.before is not None:
        return
    downs = {cable: max(evidence.count(key, "link_downed") for key in cable) for cable in cables}
    links = sorted((cable for cable in cables if downs[cable]), key=lambda each: -downs[each])
    if not links:
        return
    found = link_finding(
        evidence,
        FaultKind.LINK_ONCE_DOWN,
        FaultSuspect.cable(*links[0]),
        _totals_told([(f"{one}-{other}", downs[one, other]) for one, other in links]),
        "A total does not say when: somebody may have pulled a cable or restarted a node. Sweep"
        " twice (--interval, --before) to see whether it goes on.",
        tuple(key for cable in links for key in cable),
    )
    yield replace(
        found,
        severity=FaultSeverity.NOTE,
        others=tuple(FaultSuspect.cable(*each) for each in links[1:]),
    )


def _totals_told(links: Sequence[tuple[str, int]]) -> str:
    """Tell how often links went down; names only the first ones."""
    if len(links) == 1:
        name, times = links[0]
        return (
            f"the link {name} went down {how_often(times)} since its counters were cleared, and is"
            " up again"
        )
    names = ", ".join(f"{name} ({how_often(times)})" for name, times in links[:NAMED])
    rest = f" and {len(links) - NAMED} more" if len(links) > NAMED else ""
    return (
        f"{len(links)} links went down since their counters were cleared, and are up again:"
        f" {names}{rest}"
    )
