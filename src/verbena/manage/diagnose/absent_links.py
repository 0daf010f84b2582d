# SPDX-License-Identifier: Apache-2.0
"""Rules about ports without a link: what one sweep alone says of a cable that has gone.

``diagnose`` calls ``asker_fault`` and ``absent_link_faults``. A port that has never had a link is
free, and no suspect: only its counters tell it from one whose cable was cut.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..codes import PortPhysicalState, PortState
from .fabric_snapshot import PortKey
from .fault_finding import FaultFinding, FaultKind, FaultSeverity, FaultSuspect
from .sweep_evidence import SweepEvidence

__all__ = ["absent_link_faults", "asker_fault"]

TRACES = ("link_downed", "rcv_packets", "xmit_packets")  # of a link that was there


def asker_fault(evidence: SweepEvidence) -> FaultFinding | None:
    """Return that the port which asks has no link, so that nothing was reached through it."""
    asker = evidence.now.asker
    if asker is None or asker in evidence.now.peers or asker in evidence.now.silent:
        return None
    return FaultFinding(
        FaultKind.ASKER_DOWN,
        FaultSeverity.ERROR,
        FaultSuspect.port(asker),
        f"{asker}, the port that asks, has no link: nothing of the fabric was reached",
        "See its cable and the port at the other end, and sweep the fabric from another host.",
        _traces(evidence, asker),
    )


def absent_link_faults(evidence: SweepEvidence) -> Iterator[FaultFinding]:
    """Yield the ports that had a link and have none.

    A port whose cable the earlier sweep saw is left to ``link_faults``, and all of them to
    ``cabling_faults`` if there is an intended topology.
    """
    if evidence.intended is not None:
        return
    for key, view in evidence.now.ports.items():
        if not key.number or key in evidence.now.peers or key in evidence.now.silent:
            continue
        if evidence.before is not None and key in evidence.before.peers:
            continue
        numbers = _traces(evidence, key)
        if view.state == PortState.DOWN and view.physical != PortPhysicalState.DISABLED and numbers:
            yield FaultFinding(
                FaultKind.LINK_DOWN,
                FaultSeverity.WARNING,
                FaultSuspect.port(key),
                f"{key} had a link and has none: it has counted"
                f" {', '.join(f'{value} {name}' for name, value in numbers.items())}",
                "See whether its cable is plugged in at both ends and the node behind it has power;"
                " if it was taken away on purpose, clear the counters (perfquery -R).",
                numbers,
            )


def _traces(evidence: SweepEvidence, key: PortKey) -> dict[str, float | int | str]:
    """What a port has counted, in all and not only between two sweeps, that needs a link."""
    counters = evidence.view(key).counters
    return {name: counters[name] for name in TRACES if counters.get(name)}
