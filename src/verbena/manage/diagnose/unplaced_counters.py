# SPDX-License-Identifier: Apache-2.0
"""Rules about counters of ports whose cables are not known, as ibqueryerrors alone gives them.

``diagnose`` calls ``unplaced_faults``. Without the other end a fault has no direction, so that the
port is named with what was counted there; a port of which the other end is known is left to
``link_faults``.
"""

from __future__ import annotations

from collections.abc import Iterator

from .congestion_rules import hot_port
from .fault_finding import FaultFinding, FaultKind, FaultSeverity, FaultSuspect
from .link_finding import TOTAL_ERRORS
from .link_rules import is_abnormal
from .sweep_evidence import SweepEvidence

__all__ = ["unplaced_faults"]

# What is counted, above how many it is a finding, of which kind, and how it is told.
SIGNS = (
    ("link_downed", 0, FaultKind.LINK_FLAPS, "went down {} times"),
    ("link_error_recovery", 2, FaultKind.LINK_RETRAINS, "had its link recover {} times"),
    ("local_link_integrity_errors", 1, FaultKind.LINK_INTEGRITY, "had {} bursts of errors"),
    ("fec_uncorrectable_blocks", 0, FaultKind.BAD_CABLE, "lost {} blocks of error correction"),
    ("symbol_errors", TOTAL_ERRORS, FaultKind.BAD_CABLE, "received {} symbols with errors"),
    ("rcv_errors", TOTAL_ERRORS, FaultKind.BAD_CABLE, "received {} packets with errors"),
)
GRADED = {"symbol_errors", "rcv_errors"}  # of which the link's rate says how many are normal


def unplaced_faults(evidence: SweepEvidence) -> Iterator[FaultFinding]:
    """Yield the worst sign of each port whose cable and state are not known, and its discards."""
    since = "" if evidence.before is not None else " since its counters were cleared"
    for key, view in evidence.now.ports.items():
        if key in evidence.now.peers or view.state is not None:
            continue
        for name, normal, kind, text in SIGNS:
            counted = evidence.count(key, name)
            if counted <= normal:
                continue
            if name in GRADED and not is_abnormal(evidence, key, name, normal):
                continue
            yield FaultFinding(
                kind,
                FaultSeverity.WARNING,
                FaultSuspect.port(key),
                f"{key} {text.format(counted)}{since}",
                "Add the output of ibnetdiscover, which names its cable and the other end.",
                {
                    each: evidence.count(key, each)
                    for each, *_ in SIGNS
                    if evidence.count(key, each)
                },
            )
            break
        discards = evidence.count(key, "xmit_discards")
        if discards:
            yield hot_port(evidence, key, discards)
