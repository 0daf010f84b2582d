# SPDX-License-Identifier: Apache-2.0
"""A finding of a link, with all that its ports have counted of the physical link as evidence.

``link_rules``, ``link_downs`` and ``link_errors`` make their findings by ``link_finding``. It is
an ERROR; a rule that is less sure replaces the severity.
"""

from __future__ import annotations

from .fabric_snapshot import PortKey
from .fault_finding import FaultFinding, FaultKind, FaultSeverity, FaultSuspect
from .sweep_evidence import SweepEvidence

__all__ = ["RESEAT", "TOTAL_ERRORS", "link_finding"]

RESEAT = "Clean and reseat both ends of the cable; exchange it if the errors go on."
TOTAL_ERRORS = 10  # of one sweep, as the thresholds of ibqueryerrors
PHYSICAL = (
    *("symbol_errors", "fec_uncorrectable_blocks", "rcv_errors", "link_error_recovery"),
    *("link_downed", "local_link_integrity_errors", "excessive_buffer_overrun_errors"),
)


def link_finding(
    evidence: SweepEvidence,
    kind: FaultKind,
    suspect: FaultSuspect,
    reason: str,
    advice: str,
    keys: tuple[PortKey, ...],
) -> FaultFinding:
    """Return a finding whose numbers are the counters of the ports ``keys`` that are not zero."""
    numbers: dict[str, float | int | str] = {
        f"{name} of {key}": evidence.count(key, name)
        for key in keys
        for name in PHYSICAL
        if evidence.count(key, name)
    }
    if evidence.seconds is not None:
        numbers["seconds"] = round(evidence.seconds, 3)
    return FaultFinding(kind, FaultSeverity.ERROR, suspect, reason, advice, numbers)
