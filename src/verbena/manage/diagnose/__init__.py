# SPDX-License-Identifier: Apache-2.0
"""Finds what is wrong in a fabric: bad cables, slow hosts, wrong settings, wrong cables.

``sweep_fabric`` reads a fabric by management packets, ``read_saved`` the output of infiniband-diags
and ``snapshot_of_result`` a simulated run. ``diagnose`` takes one such snapshot, or two some time
apart, and returns suspects with reasons. ``verbena diagnose`` is the command.
"""

from __future__ import annotations

from .diagnosis import diagnose
from .fabric_snapshot import FabricSnapshot, FlowTrouble, NodeView, PortKey, PortView
from .fault_finding import FaultFinding, FaultKind, FaultSeverity, FaultSuspect, SuspectKind
from .finding_report import findings_as_json, findings_as_text
from .mad_sweep import AskFabric, SubnetAsker, sweep_fabric

__all__ = [
    "AskFabric",
    "FabricSnapshot",
    "FaultFinding",
    "FaultKind",
    "FaultSeverity",
    "FaultSuspect",
    "FlowTrouble",
    "NodeView",
    "PortKey",
    "PortView",
    "SubnetAsker",
    "SuspectKind",
    "diagnose",
    "findings_as_json",
    "findings_as_text",
    "sweep_fabric",
]
