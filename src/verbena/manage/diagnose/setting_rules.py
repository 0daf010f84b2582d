# SPDX-License-Identifier: Apache-2.0
"""Rules about what ports are set to: rate, MTU, lanes, P_Keys, states, and what nodes report.

``diagnose`` calls ``setting_faults``. Both ends of a link are compared with each other, and then
with what most links of the fabric have, since a subnet manager may have set all of them lower.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..agents.link_speeds import LANE_GBPS, LinkRate
from ..codes import PortState
from .fabric_snapshot import PortKey, PortView
from .fault_finding import FaultFinding, FaultKind, FaultSeverity, FaultSuspect
from .sweep_evidence import SweepEvidence

__all__ = ["setting_faults"]

FEW, MOST = 0.1, 0.9
LEAST_PEERS = 4
CONSTRAINTS = {"rcv_constraint_errors": "from", "xmit_constraint_errors": "to"}
ERROR, WARNING = FaultSeverity.ERROR, FaultSeverity.WARNING


def setting_faults(evidence: SweepEvidence) -> Iterator[FaultFinding]:
    """Yield what is wrong with settings of ports, and what nodes say of themselves."""
    yield from _rates(evidence)
    yield from _slower_than_peers(evidence)
    yield from _states(evidence)
    yield from _mtus(evidence)
    yield from _lanes(evidence)
    yield from _p_keys(evidence)
    yield from _identities(evidence)
    yield from _reports(evidence)


# ---- rate ----------------------------------------------------------------------------------------


def common(one: LinkRate | None, other: LinkRate | None) -> LinkRate | None:
    """Return the rate that two ports can do together; None if one is not known."""
    if one is None or other is None:
        return None
    speed = min(one.speed, other.speed, key=lambda each: (LANE_GBPS[each], each == "FDR10"))
    return LinkRate(min(one.lanes, other.lanes), speed)


def _rates(evidence: SweepEvidence) -> Iterator[FaultFinding]:
    known = [
        (one, other, a, b, common(a.supported, b.supported), a.active or b.active)
        for one, other, a, b in evidence.linked()
    ]
    below = [
        (one, other, a, b, possible, active)
        for one, other, a, b, possible, active in known
        if possible is not None and active is not None and active.gbps < possible.gbps
    ]
    if len(below) > LEAST_PEERS and len(below) > len(known) / 2:
        one, other, _, _, possible, active = below[0]
        yield FaultFinding(
            FaultKind.SLOW_LINK,
            FaultSeverity.NOTE,
            FaultSuspect.cable(one, other),
            f"{len(below)} of {len(known)} links run below what both ends can do, as"
            f" {one}-{other} with {active} of {possible}: the cables may be made for that",
            "Compare with the rate that is intended.",
        )
        return
    for one, other, a, b, possible, active in below:
        assert possible is not None
        assert active is not None
        numbers: dict[str, float | int | str] = {"active": str(active), "possible": str(possible)}
        set_lower = [key for key, view in ((one, a), (other, b)) if _is_set_lower(view, possible)]
        if set_lower:
            at = set_lower[0]
            yield FaultFinding(
                FaultKind.RATE_LIMITED,
                WARNING,
                FaultSuspect.port(at),
                f"{at} is set to at most {evidence.view(at).enabled}, so that its link runs at"
                f" {active} where both ends can do {possible}",
                f"Enable all widths and speeds at {at} (ibportstate), and reset the link.",
                numbers,
                tuple(FaultSuspect.port(key) for key in set_lower[1:]),
            )
            continue
        narrow = active.lanes < possible.lanes
        yield FaultFinding(
            FaultKind.NARROW_LINK if narrow else FaultKind.SLOW_LINK,
            ERROR,
            FaultSuspect.cable(one, other),
            f"the link between {one} and {other} runs at {active}, and both ends can do {possible}",
            "Reseat the cable and reset the link; exchange the cable, or one that is made for"
            f" {possible}, if that does not help.",
            numbers,
        )


def _is_set_lower(view: PortView, possible: LinkRate) -> bool:
    reached = common(view.enabled, possible)
    return reached is not None and reached.gbps < possible.gbps


def _slower_than_peers(evidence: SweepEvidence) -> Iterator[FaultFinding]:
    """A port whose own best rate is below that of nearly all ports of its kind."""
    groups: dict[tuple[int, int], list[tuple[PortKey, float]]] = {}
    for key, peer in evidence.now.peers.items():
        best = evidence.view(key).supported or evidence.view(key).active
        if best is not None:
            kind = evidence.tier.get(key.node, -1), evidence.tier.get(peer.node, -1)
            groups.setdefault(kind, []).append((key, best.gbps))
    for members in groups.values():
        usual, _ = Counter(gbps for _, gbps in members).most_common(1)[0]
        slow = [key for key, gbps in members if gbps < usual]
        odd = [key for key in slow if not _is_of_a_slower_kind(evidence, key, slow, members)]
        if len(members) < LEAST_PEERS or len(odd) > max(1, FEW * len(members)):
            continue
        for key in odd:
            rate = evidence.view(key).supported or evidence.view(key).active
            if evidence.view(key).supported is None and _slower_already(evidence, key):
                continue
            yield FaultFinding(
                FaultKind.SLOWER_THAN_PEERS,
                WARNING,
                FaultSuspect.port(key),
                f"{key} can do {rate}, and nearly all ports of its kind can do {usual:g} Gb/s",
                f"See whether {key} has the adapter or module that is intended there.",
                {"rate": str(rate), "usual Gb/s": usual, "ports of the kind": len(members)},
            )


def _is_of_a_slower_kind(
    evidence: SweepEvidence, key: PortKey, slow: list[PortKey], members: list[tuple[PortKey, float]]
) -> bool:
    """Whether most of a switch's ports of the kind are slow, or most ports behind one switch."""
    here, there = key.node, evidence.now.peers[key].node
    same_node = [each for each, _ in members if each.node == here]
    same_rack = [each for each, _ in members if evidence.now.peers[each].node == there]
    return any(
        len(group) > 1 and sum(each in slow for each in group) > len(group) / 2
        for group in (same_node, same_rack)
    )


def _slower_already(evidence: SweepEvidence, key: PortKey) -> bool:
    """Of two ends that are known by their active rate alone, the first speaks for the cable."""
    return evidence.now.peers[key] < key


# ---- state ---------------------------------------------------------------------------------------


def _states(evidence: SweepEvidence) -> Iterator[FaultFinding]:
    known = [
        (one, other, {a.state, b.state})
        for one, other, a, b in evidence.linked()
        if a.state is not None and b.state is not None
    ]
    active = sum(states == {PortState.ACTIVE} for _, _, states in known)
    if active < MOST * len(known):
        return  # no subnet manager has come so far
    for one, other, states in known:
        if states & {PortState.INIT, PortState.ARMED}:
            seen = " and ".join(PortState(each).name for each in sorted(states) if each)
            yield FaultFinding(
                FaultKind.NOT_ACTIVE,
                ERROR,
                FaultSuspect.cable(one, other),
                f"the link between {one} and {other} is up and remains {seen}: no data pass it",
                "Read the subnet manager's log: it could not set one of the two ports.",
                {"states": seen},
            )


# ---- MTU and lanes -------------------------------------------------------------------------------


def _mtus(evidence: SweepEvidence) -> Iterator[FaultFinding]:
    yield from _pairs(evidence, FaultKind.MTU, "MTU", "mtu", "mtu_cap")


def _lanes(evidence: SweepEvidence) -> Iterator[FaultFinding]:
    yield from _pairs(evidence, FaultKind.LANES, "lanes", "lanes", "lanes_cap")
    for key in evidence.now.peers:
        view = evidence.view(key)
        if view.lanes and view.lane_of_sl:
            beyond = {lane for lane in view.lane_of_sl if view.lanes <= lane < 15}
            if beyond:
                yield FaultFinding(
                    FaultKind.LANES,
                    ERROR,
                    FaultSuspect.port(key),
                    f"{key} maps service levels to lane {max(beyond)}, and has lanes 0 to"
                    f" {view.lanes - 1}",
                    "Let the subnet manager write the table SLtoVL again.",
                    {"lanes": view.lanes, "mapped to": max(beyond)},
                )


def _pairs(
    evidence: SweepEvidence, kind: FaultKind, word: str, value: str, cap: str
) -> Iterator[FaultFinding]:
    """Compare a value of both ends, and then with what the ends and most links can do."""
    known = [
        (one, other, getattr(a, value), getattr(b, value), _least(a, b, cap))
        for one, other, a, b in evidence.linked()
        if getattr(a, value) is not None and getattr(b, value) is not None
    ]
    below = sum(least is not None and min(a, b) < least for _, _, a, b, least in known)
    usual = Counter(max(a, b) for _, _, a, b, _ in known).most_common(1)[0][0] if known else 0
    for one, other, a, b, least in known:
        low = one if (a, one) < (b, other) else other
        numbers: dict[str, float | int | str] = {str(one): a, str(other): b}
        if a != b:
            reason = f"{one} uses {word} {a} and {other} uses {b}"
            suspect = FaultSuspect.port(low if usual in (a, b) else one)
            advice = (
                f"Let the subnet manager set {word} of both ports again; restart it if need be."
            )
            yield FaultFinding(kind, ERROR, suspect, reason, advice, numbers)
        elif least is not None and a < least and a < usual and below <= max(1, FEW * len(known)):
            reason = f"the link between {one} and {other} uses {word} {a}, and both can do {least}"
            advice = "See the subnet manager's settings for this port, and its log."
            suspect = FaultSuspect.cable(one, other)
            yield FaultFinding(kind, WARNING, suspect, reason, advice, numbers)
        elif least is not None and least < usual:
            caps = {key: getattr(evidence.view(key), cap) for key in (one, other)}
            at = min(caps, key=lambda key: (caps[key], key))
            if _is_rare(evidence, at, cap):
                reason = f"{at} can do {word} {caps[at]}, and nearly all other ports do {usual}"
                advice = f"See whether {at.node} has the firmware and settings that are intended."
                yield FaultFinding(kind, WARNING, FaultSuspect.port(at), reason, advice, numbers)


def _least(a: PortView, b: PortView, cap: str) -> int | None:
    one, other = getattr(a, cap), getattr(b, cap)
    return None if one is None or other is None else min(one, other)


def _is_rare(evidence: SweepEvidence, at: PortKey, cap: str) -> bool:
    """Whether few ports of the same kind of node have so small a capability."""
    mine, is_switch = getattr(evidence.view(at), cap), evidence.now.is_switch(at.node)
    same = [key for key in evidence.now.peers if evidence.now.is_switch(key.node) == is_switch]
    low = sum((getattr(evidence.view(key), cap) or mine + 1) <= mine for key in same)
    return low <= max(1, FEW * len(same)) and len(same) >= LEAST_PEERS


# ---- partitions and identities -------------------------------------------------------------------


def _p_keys(evidence: SweepEvidence) -> Iterator[FaultFinding]:
    reported = set[str]()
    ends = {
        key: {each & 0x7FFF for each in view.p_keys}
        for key, view in evidence.now.ports.items()
        if view.p_keys is not None and not evidence.now.is_switch(key.node)
    }
    shared = Counter(base for bases in ends.values() for base in bases)
    for base, times in shared.items():
        if times < MOST * len(ends) or len(ends) < LEAST_PEERS:
            continue
        for key, bases in ends.items():
            if base not in bases and key.node not in reported:
                reported.add(key.node)
                has = ", ".join(f"{each:#x}" for each in sorted(bases)) or "none"
                yield FaultFinding(
                    FaultKind.P_KEY,
                    ERROR,
                    evidence.node_suspect(key.node),
                    f"{key} lacks P_Key {base:#x}, which {times} of {len(ends)} ports of hosts"
                    f" have; it has {has}",
                    "Correct the partition's members in the subnet manager's file of partitions.",
                    {"P_Key": f"{base:#x}", "has": has},
                )
    yield from _partition_drops(evidence, reported)


def _partition_drops(evidence: SweepEvidence, reported: set[str]) -> Iterator[FaultFinding]:
    """Packets that a port with partition enforcement has dropped, one finding of each port."""
    for key in evidence.now.ports:
        peer = evidence.now.peers.get(key)
        numbers: dict[str, float | int | str] = {
            name: evidence.count(key, name) for name in CONSTRAINTS if evidence.count(key, name)
        }
        host = next(
            (end.node for end in (peer, key) if end and not evidence.now.is_switch(end.node)), None
        )
        if not numbers or host in reported:
            continue
        is_host = host is not None and peer is not None
        far = str(peer.node) if peer is not None else "its other end"
        ways = [f"{value} packets {CONSTRAINTS[name]} {far}" for name, value in numbers.items()]
        who = str(host) if is_host else "the hosts behind it"
        yield FaultFinding(
            FaultKind.PARTITION_DROPS,
            WARNING,
            evidence.node_suspect(host) if is_host and host is not None else FaultSuspect.port(key),
            f"{key} has dropped {' and '.join(ways)} for their P_Key",
            f"See which P_Key the programs of {who} use, and which partitions they are in.",
            numbers,
        )


def _identities(evidence: SweepEvidence) -> Iterator[FaultFinding]:
    for sentence, ports in evidence.now.duplicates:
        suspects = tuple(FaultSuspect.port(key) for key in ports) or (
            FaultSuspect.node("unknown", is_switch=False),
        )
        yield FaultFinding(
            FaultKind.DUPLICATE_GUID,
            ERROR,
            suspects[0],
            sentence,
            "Give one of the two adapters its own GUID again (its firmware was copied).",
            {},
            suspects[1:],
        )
    for key in evidence.now.silent:
        yield FaultFinding(
            FaultKind.NODE_LOST,
            ERROR,
            evidence.suspect_at(key),
            f"{key} has a link, and the node behind it answers nothing",
            "See whether that node's firmware runs.",
        )


def _reports(evidence: SweepEvidence) -> Iterator[FaultFinding]:
    for name, node in evidence.now.nodes.items():
        codes = {evidence.view(key).diag_code for key in evidence.ports_of.get(name, ())} - {0}
        sentences = [*node.reports, *(f"PortInfo:DiagCode is {code:#x}" for code in sorted(codes))]
        if sentences:
            yield FaultFinding(
                FaultKind.NODE_REPORT,
                ERROR,
                evidence.node_suspect(name),
                f"{name} reports a fault of its own: {'; '.join(sentences)}",
                "Look at its power supplies, fans and temperature, and at its vendor's log.",
                {"reports": len(sentences)},
            )
