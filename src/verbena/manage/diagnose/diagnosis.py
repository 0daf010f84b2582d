# SPDX-License-Identifier: Apache-2.0
"""Applies all rules to what sweeps have seen, and orders what they find.

Programs call ``diagnose``; ``verbena diagnose`` prints its result by ``finding_report``. A finding
that another one explains is left out: the same cable is named once for its physical state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .absent_links import absent_link_faults, asker_fault, disabled_ports
from .cabling_rules import cabling_faults
from .congestion_rules import congestion_faults
from .fabric_snapshot import FabricSnapshot, PortKey
from .fault_finding import FaultFinding, FaultKind, FaultSuspect
from .link_rules import link_faults
from .path_loss import path_losses
from .route_rules import route_faults
from .setting_rules import setting_faults
from .sweep_evidence import SweepEvidence
from .unplaced_counters import unplaced_faults

if TYPE_CHECKING:
    from verbena.fabrics import Fabric

__all__ = ["diagnose"]

# Findings of the left kinds explain those of the right ones at the same ports.
PHYSICAL = {
    *(FaultKind.BAD_CABLE, FaultKind.ONE_DIRECTION, FaultKind.LINK_RETRAINS),
    *(FaultKind.LINK_FLAPS, FaultKind.LINK_INTEGRITY, FaultKind.SILENT_LOSS),
}
CABLING = {
    *(FaultKind.SWAPPED, FaultKind.WRONG_PORT, FaultKind.WRONG_CABLE),
    *(FaultKind.CABLE_MISSING, FaultKind.NODE_MISSING),
}
EXPLAINS = (
    ({FaultKind.LINK_LOST, FaultKind.NODE_LOST, FaultKind.DUPLICATE_GUID}, {FaultKind.LINK_DOWN}),
    (PHYSICAL, {FaultKind.PATH_LOSS, FaultKind.BUFFER_OVERRUN}),
    # What was lost since the tables were computed is not the tables' fault.
    ({FaultKind.LINK_LOST, FaultKind.NODE_LOST, *CABLING}, {FaultKind.NO_ROUTE}),
    (CABLING, {FaultKind.LINK_LOST, FaultKind.NODE_LOST}),
    (
        {FaultKind.DUPLICATE_GUID},
        {FaultKind.NODE_LOST, *CABLING},
    ),
    ({FaultKind.SLOW_LINK, FaultKind.NARROW_LINK}, {FaultKind.SLOWER_THAN_PEERS}),
)


def diagnose(
    now: FabricSnapshot,
    before: FabricSnapshot | None = None,
    *,
    intended: Fabric | None = None,
) -> list[FaultFinding]:
    """Return what is wrong, the worst first.

    ``before`` is an earlier sweep of the same fabric: with it counters are rates, and without it
    totals. ``intended`` is the topology that it should have.
    """
    evidence = SweepEvidence(now, before, intended)
    alone = asker_fault(evidence)
    if alone is not None:
        return [alone]  # nothing else was reached
    found = [
        *link_faults(evidence),
        *absent_link_faults(evidence),
        *disabled_ports(evidence),
        *unplaced_faults(evidence),
        *setting_faults(evidence),
        *congestion_faults(evidence),
        *route_faults(evidence),
        *path_losses(evidence),
        *cabling_faults(evidence),
    ]
    for stronger, weaker in EXPLAINS:
        ports: set[PortKey] = set()
        for each in found:
            if each.kind in stronger:
                ports |= each.all_ports
        found = [each for each in found if each.kind not in weaker or not each.all_ports & ports]
    once: dict[tuple[FaultKind, FaultSuspect], FaultFinding] = {}
    for each in found:
        once.setdefault((each.kind, each.suspect), each)
    # That the comparison is with a wrong file comes before all that the comparison shows.
    return sorted(
        once.values(),
        key=lambda each: (each.kind is not FaultKind.ANOTHER_TOPOLOGY, -each.severity),
    )
