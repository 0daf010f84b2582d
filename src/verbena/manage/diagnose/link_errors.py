# SPDX-License-Identifier: Apache-2.0
"""Tells whether a cable has errors in one direction or in both, from what its ends have counted.

``link_rules`` calls ``link_errors`` for a cable of which one end, at least, has more errors than
are normal. Symbol errors come with and without traffic, so those of both ends are compared as they
are. Errors of packets are compared with what each end has received: the end that receives
acknowledgements only has few, however bad its direction is.
"""

from __future__ import annotations

from .fabric_snapshot import PortKey
from .fault_finding import FaultFinding, FaultKind, FaultSuspect
from .link_finding import RESEAT, link_finding
from .sweep_evidence import SweepEvidence

__all__ = ["link_errors"]

ONE_SIDED = 10  # times as many errors as the other end
LEAST_EXPECTED = 5  # errors: that there are none of so many is no chance (1 in 150)
ERRORS = ("symbol_errors", "rcv_errors", "fec_uncorrectable_blocks")


def link_errors(
    evidence: SweepEvidence, one: PortKey, other: PortKey, bad: list[PortKey]
) -> FaultFinding:
    """Return the finding; ``bad`` are the ends with more errors than are normal."""
    at = max(bad, key=lambda key: _badness(evidence, key, bad))
    far = other if at == one else one
    expected = _expected(evidence, at, far)
    if expected is not None:
        return _by_packets(evidence, at, far, expected)
    errors, fewer = _errors_at(evidence, at), _errors_at(evidence, far)
    if far in bad and errors < ONE_SIDED * fewer:
        return _both(evidence, at, far)
    told = f"far fewer ({fewer})" if far in bad else f"no more than a good link has ({fewer})"
    return _one_direction(evidence, at, far, told if fewer else "none")


def _errors_at(evidence: SweepEvidence, key: PortKey) -> int:
    return sum(evidence.count(key, name) for name in ERRORS)


def _are_of_packets(evidence: SweepEvidence, key: PortKey) -> bool:
    """Whether the errors of a port are those of packets: no more symbol errors than packets."""
    return 2 * evidence.count(key, "rcv_errors") >= _errors_at(evidence, key)


def _badness(evidence: SweepEvidence, key: PortKey, bad: list[PortKey]) -> float:
    """Return the share of packets with errors where it is known of all ``bad``, else the errors."""
    if all(_are_of_packets(evidence, end) and _received(evidence, end, "packets") for end in bad):
        return evidence.count(key, "rcv_errors") / _received(evidence, key, "packets")
    return _errors_at(evidence, key)


def _received(evidence: SweepEvidence, key: PortKey, what: str) -> int:
    """Return the packets or words of data that reached a port; 0: not known.

    A port that does not say what it has received gets what its peer has sent.
    """
    damaged = evidence.count(key, "rcv_errors")
    if evidence.has(key, f"rcv_{what}"):
        return evidence.count(key, f"rcv_{what}") + (damaged if what == "packets" else 0)
    return evidence.count(evidence.now.peers[key], f"xmit_{what}")


def _expected(evidence: SweepEvidence, at: PortKey, far: PortKey) -> float | None:
    """Return how many errors ``far`` would have if its direction were as bad as that of ``at``.

    A fault may damage so many of the packets, or so many of the bits: the lower number counts.
    None if the errors of ``at`` are not those of packets, or packets are not counted.
    """
    errors = evidence.count(at, "rcv_errors")
    if not _are_of_packets(evidence, at):
        return None
    numbers = []
    for what in ("packets", "data"):
        near, beyond = _received(evidence, at, what), _received(evidence, far, what)
        if near and beyond:
            numbers.append(errors * beyond / near)
        elif what == "packets":
            return None
    return min(numbers)


def _by_packets(
    evidence: SweepEvidence, at: PortKey, far: PortKey, expected: float
) -> FaultFinding:
    fewer = evidence.count(far, "rcv_errors")
    if fewer and fewer * ONE_SIDED >= expected:
        return _both(evidence, at, far)
    if expected >= LEAST_EXPECTED:
        return _one_direction(evidence, at, far, _share(evidence, far) if fewer else "none")
    return link_finding(
        evidence,
        FaultKind.BAD_CABLE,
        FaultSuspect.cable(at, far),
        f"{at} receives with errors ({_share(evidence, at)}), and {far} has received too little"
        f" ({_received(evidence, far, 'packets')} packets) to tell whether its direction is bad,"
        " too",
        RESEAT,
        _in_order(at, far),
    )


def _share(evidence: SweepEvidence, key: PortKey) -> str:
    """Return "54 of 8000 packets", or the errors alone where packets are not counted."""
    errors, packets = evidence.count(key, "rcv_errors"), _received(evidence, key, "packets")
    if packets and _are_of_packets(evidence, key):
        return f"{errors} of {packets} packets"
    return f"{_errors_at(evidence, key)}"


def _in_order(at: PortKey, far: PortKey) -> tuple[PortKey, PortKey]:
    return min(at, far), max(at, far)


def _both(evidence: SweepEvidence, at: PortKey, far: PortKey) -> FaultFinding:
    one, other = _in_order(at, far)
    return link_finding(
        evidence,
        FaultKind.BAD_CABLE,
        FaultSuspect.cable(one, other),
        f"both ends of the cable receive with errors: {_share(evidence, one)} at {one} and"
        f" {_share(evidence, other)} at {other}",
        RESEAT,
        (one, other),
    )


def _one_direction(evidence: SweepEvidence, at: PortKey, far: PortKey, fewer: str) -> FaultFinding:
    return link_finding(
        evidence,
        FaultKind.ONE_DIRECTION,
        FaultSuspect.cable(at, far),
        f"{at} receives with errors ({_share(evidence, at)}), and {far} has {fewer}: the"
        f" transmitter of {far}, the receiver of {at}, or that half of the cable is bad",
        f"Exchange the ends of the cable: if the errors move to {far}, it is the cable; if they"
        f" stay, it is {far} or {at}.",
        _in_order(at, far),
    )
