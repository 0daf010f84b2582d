# SPDX-License-Identifier: Apache-2.0
"""Rules about ports without a link: what one sweep alone says of a cable that has gone.

``diagnose`` calls ``asker_fault``, ``absent_link_faults`` and ``disabled_ports``. A port that has
never had a link is free, and no suspect: only its counters tell it from one whose cable was cut. A
disabled port is a note, since somebody has set it so.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..codes import PortPhysicalState, PortState
from .fabric_snapshot import PortKey
from .fault_finding import FaultFinding, FaultKind, FaultSeverity, FaultSuspect
from .sweep_evidence import SweepEvidence

__all__ = ["absent_link_faults", "asker_fault", "disabled_ports"]

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


def disabled_ports(evidence: SweepEvidence) -> Iterator[FaultFinding]:
    """Yield a note for each node with ports whose PortPhysicalState is Disabled."""
    for name, keys in evidence.ports_of.items():
        off = [
            key
            for key in keys
            if key.number and evidence.view(key).physical == PortPhysicalState.DISABLED
        ]
        if not off:
            continue
        numbers = ", ".join(str(key.number) for key in off)
        lids = next(iter(evidence.now.nodes[name].lids.values()), None)
        lid = f"{lids[0]}" if lids else f"LID-of-{name}"
        subject = (
            f"port {numbers} of {name} is" if len(off) == 1 else f"ports {numbers} of {name} are"
        )
        yield FaultFinding(
            FaultKind.DISABLED,
            FaultSeverity.NOTE,
            FaultSuspect.port(off[0]),
            f"{subject} disabled (PortPhysicalState), so what is behind is not reached there",
            "A port stays so until somebody enables it: `ibportstate"
            f" {lid} {off[0].number} enable`.",
            {what: value for key in off for what, value in _counted_at(evidence, key)},
            tuple(FaultSuspect.port(key) for key in off[1:]),
        )


def _counted_at(evidence: SweepEvidence, key: PortKey) -> list[tuple[str, float | int | str]]:
    return [(f"{name} of {key}", value) for name, value in _traces(evidence, key).items()]


def _traces(evidence: SweepEvidence, key: PortKey) -> dict[str, float | int | str]:
    """What a port has counted, in all and not only between two sweeps, that needs a link."""
    counters = evidence.view(key).counters
    return {name: counters[name] for name in TRACES if counters.get(name)}
