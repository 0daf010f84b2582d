# SPDX-License-Identifier: Apache-2.0
"""Rules about the physical link: errors of symbols, recovery, flapping, integrity, silent loss.

``diagnose`` calls ``link_faults``. A receiver counts errors, so errors at both ends are the
cable's, and errors at one end belong to one direction: the transmitter at the other end, the
receiver, or that half of the cable: ``link_errors`` tells. Each cable gets one finding, of its
worst sign.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import sqrt

from .fabric_snapshot import PortKey
from .fault_finding import FaultFinding, FaultKind, FaultSeverity, FaultSuspect
from .link_downs import link_flaps, link_once_down, links_once_down
from .link_errors import link_errors
from .link_finding import RESEAT, TOTAL_ERRORS, link_finding
from .sweep_evidence import SweepEvidence

__all__ = ["link_faults"]

NORMAL_BER = 1e-12  # what IBA allows a link
USUAL_TIMES = 8
DEVIATIONS = 6
LOST_SHARE, LEAST_LOST = 1e-3, 50


def link_faults(evidence: SweepEvidence) -> Iterator[FaultFinding]:
    """Yield what is wrong with links themselves."""
    limits = {name: error_limit(evidence, name) for name in ("symbol_errors", "rcv_errors")}
    good = []
    for one, other in evidence.now.cables():
        found = _worst_of_link(evidence, one, other, limits)
        if found is not None:
            yield found
        else:
            good.append((one, other))
    yield from links_once_down(evidence, good)
    yield from _overruns(evidence)
    yield from _gone(evidence)
    yield from _full_counters(evidence)


def error_limit(evidence: SweepEvidence, name: str) -> float:
    """Return how many errors of one sweep are normal: thrice as many as usual, or ten."""
    return max(TOTAL_ERRORS, USUAL_TIMES * evidence.usual(name))


def is_abnormal(evidence: SweepEvidence, key: PortKey, name: str, limit: float) -> bool:
    """Whether a port has more errors than a good link may have in this time."""
    errors = evidence.count(key, name)
    bits = evidence.bits(key)
    if bits is None:
        return errors > limit
    normal = bits * NORMAL_BER
    return errors > normal + DEVIATIONS * sqrt(normal) + TOTAL_ERRORS / 2


def _worst_of_link(
    evidence: SweepEvidence, one: PortKey, other: PortKey, limits: dict[str, float]
) -> FaultFinding | None:
    flaps = link_flaps(evidence, one, other)
    if flaps is not None:
        return flaps
    retrains = max(evidence.count(key, "link_error_recovery") for key in (one, other))
    if retrains > (2 if evidence.before is not None else TOTAL_ERRORS):
        return link_finding(
            evidence,
            FaultKind.LINK_RETRAINS,
            FaultSuspect.cable(one, other),
            f"the link between {one} and {other} has recovered {retrains} times",
            RESEAT,
            (one, other),
        )
    integrity = max(evidence.count(key, "local_link_integrity_errors") for key in (one, other))
    if integrity > 1:
        return link_finding(
            evidence,
            FaultKind.LINK_INTEGRITY,
            FaultSuspect.cable(one, other),
            f"bursts of errors between {one} and {other} went over LocalPhyErrors {integrity}"
            " times",
            RESEAT,
            (one, other),
        )
    bad = [key for key in (one, other) if _has_errors(evidence, key, limits)]
    if bad:
        return link_errors(evidence, one, other, bad)
    return (
        _silent_loss(evidence, one, other)
        or _silent_loss(evidence, other, one)
        or link_once_down(evidence, one, other)
    )


def _has_errors(evidence: SweepEvidence, key: PortKey, limits: dict[str, float]) -> bool:
    return any(is_abnormal(evidence, key, name, limit) for name, limit in limits.items()) or (
        evidence.count(key, "fec_uncorrectable_blocks") > 0
    )


def _silent_loss(evidence: SweepEvidence, out: PortKey, into: PortKey) -> FaultFinding | None:
    if evidence.seconds is None or not all(
        evidence.has(key, name) for key, name in ((out, "xmit_packets"), (into, "rcv_packets"))
    ):
        return None
    sent, came = evidence.count(out, "xmit_packets"), evidence.count(into, "rcv_packets")
    known = evidence.count(into, "rcv_errors") + evidence.count(into, "vl15_dropped")
    lost = sent - came - known
    if lost < LEAST_LOST or lost < LOST_SHARE * sent:
        return None
    found = link_finding(
        evidence,
        FaultKind.SILENT_LOSS,
        FaultSuspect.cable(out, into),
        f"{out} has sent {sent} packets and {into} has received {came}: {lost} have vanished"
        " without an error counter",
        f"Exchange the cable; if it goes on, {into} discards packets or does not count them.",
        (out, into),
    )
    found.numbers["lost"] = lost
    return found


def _overruns(evidence: SweepEvidence) -> Iterator[FaultFinding]:
    for key in evidence.now.peers:
        overruns = evidence.count(key, "excessive_buffer_overrun_errors")
        if overruns > 1:
            yield link_finding(
                evidence,
                FaultKind.BUFFER_OVERRUN,
                FaultSuspect.port(key),
                f"the receive buffer of {key} ran over {overruns} times: credits were lost or"
                f" {evidence.now.peers[key]} sent without them",
                "Update the firmware at both ends, and exchange the cable if it has errors, too.",
                (key,),
            )


def _gone(evidence: SweepEvidence) -> Iterator[FaultFinding]:
    """What the earlier sweep saw and the later one does not."""
    if evidence.before is None:
        return
    lost_nodes = set(evidence.before.nodes) - set(evidence.now.nodes)
    for name in sorted(lost_nodes):
        is_switch = evidence.before.is_switch(name)
        ports = tuple(key for key in evidence.before.peers if key.node == name)
        far = tuple(evidence.before.peers[key] for key in ports)
        reached = ", ".join(map(str, far[:3]))
        yield FaultFinding(
            FaultKind.NODE_LOST,
            FaultSeverity.ERROR,
            FaultSuspect.node(name, is_switch=is_switch, ports=() if is_switch else ports + far),
            f"{name}, which was behind {reached or 'no cable'}, is not there any more",
            "See whether it has power, and whether its driver or firmware runs.",
        )
    for one, other in evidence.before.cables():
        if one in evidence.now.peers or other in evidence.now.peers:
            continue
        if one.node in lost_nodes or other.node in lost_nodes:
            continue
        yield FaultFinding(
            FaultKind.LINK_LOST,
            FaultSeverity.ERROR,
            FaultSuspect.cable(one, other),
            f"the link between {one} and {other} was up and is down now",
            RESEAT,
        )


def _full_counters(evidence: SweepEvidence) -> Iterator[FaultFinding]:
    waits: Counter[str] = Counter()
    for key, port in evidence.now.ports.items():
        waits[key.node] += "xmit_wait" in port.full
        full = sorted(port.full - {"xmit_wait"})
        if full:
            yield FaultFinding(
                FaultKind.COUNTER_FULL,
                FaultSeverity.WARNING,
                FaultSuspect.port(key),
                f"{', '.join(full)} of {key} has its largest value and counts no further: new"
                " errors are not seen",
                f"Clear the counters of {key} (perfquery -R), and look again later.",
                {name: port.counters.get(name, 0) for name in full},
            )
    for name in sorted(each for each, ports in waits.items() if ports):
        yield FaultFinding(
            FaultKind.COUNTER_FULL,
            FaultSeverity.NOTE,
            evidence.node_suspect(name),
            f"xmit_wait of {waits[name]} ports of {name} is full: waiting there is not seen",
            "Clear it, and leave less time between two sweeps.",
        )
