# SPDX-License-Identifier: Apache-2.0
"""Where what programs send arrives by the tables of the subnet, and what it adds to the counters.

A ``DataFlow`` is what one queue pair sends to one address. ``judge`` says where its packets arrive
or where they are lost; ``charge`` adds packets to the counters of the ports on that way. Nothing
here knows the page by which programs see the result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from verbena.manage.agents import Drop, LidRoute, MadPacket, key_violated
from verbena.manage.agents.forwarding import FIRST_MULTICAST_LID
from verbena.manage.agents.lid_routes import walk
from verbena.manage.agents.lossy_links import (
    chance_of_loss,
    charge_lossy,
    charge_lossy_group,
    damaged_of,
    mean_loss_of_group,
    shared_out,
)
from verbena.manage.agents.multicast_routes import spread
from verbena.manage.agents.subnet_routes import blamed_counters
from verbena.manage.codes import PortState
from verbena.manage.smp_attributes import PortInfo

from .port_records import port_gids

if TYPE_CHECKING:
    from random import Random

    from verbena.manage.agents import NodePort, Subnet

__all__ = ["DataWay", "Judgement", "charge", "judge", "loss_sentence"]

MOST_VIOLATIONS = 0xFFFF
UC, UD, XRC_SEND = 3, 4, 9  # enum ibv_qp_type
UNANSWERED = (UC, UD)
READ, ATOMICS = 4, (5, 6)  # enum ibv_wr_opcode
# Words of 4 bytes. LRH, BTH and ICRC; GRH; DETH or XRCETH of each packet; what a request of an
# opcode has once: RETH, immediate data or IETH, AtomicETH without the 8 bytes that are its payload
# for the program, FETH; and what the acknowledgement of an atomic has beside AETH.
BARE, GRH = 6, 10
OF_EACH = {UD: 2, XRC_SEND: 1}
EXTRA = {0: 4, 1: 5, 3: 1, READ: 4, 5: 7 - 2, 6: 7 - 2, 9: 1, 14: 5, 15: 4}
ATOMIC_MORE = 2
Links = list[tuple["NodePort", "NodePort"]]


class DataWay(NamedTuple):
    """The address to which a queue pair sends, as struct vb_fabric_way has it.

    ``kind`` is the queue pair's type, and ``is_global`` says that the packets have a GRH with
    ``dgid``.
    """

    port: int
    dlid: int
    sl: int
    path_bits: int
    p_key_index: int
    kind: int
    is_global: int
    dgid: bytes
    qp: int
    dest_qp: int


@dataclass
class Judgement:
    """Where packets arrive: ``ends``, empty where they are lost, for ``problem`` at ``at``.

    ``links`` and ``back_links`` are passed on the way there and back. ``blamed`` are ports and
    their counters of a loss. ``came`` says that the request arrives, though its answer may not.
    """

    p_key: int
    ends: list[NodePort] = field(default_factory=list)
    links: Links = field(default_factory=list)
    back_links: Links = field(default_factory=list)
    blamed: list[tuple[NodePort, tuple[str, ...]]] = field(default_factory=list)
    problem: Drop | None = None
    at: NodePort | None = None
    came: bool = False
    loss: float = 0.0  # the chance that a request is lost on a lossy link, or its answer
    back: bool = False  # the problem is on the way back
    multicast: bool = False

    def fail(self, problem: Drop, at: NodePort | None, links: Links) -> Judgement:
        """Return this as a loss at a port, behind these links."""
        self.problem, self.at, self.ends = problem, at, []
        if at is not None:
            names = blamed_counters(problem, at, links)
            if names:
                self.blamed.append((at, names))
        return self


def judge(origin: NodePort, way: DataWay, *, moves: bool = False) -> Judgement:
    """Return where what a port sends to an address arrives now.

    ``moves``: a packet really goes, which makes ARMED ports ACTIVE.
    """
    result = _judge(origin, way, moves)
    if result.multicast:
        result.loss = mean_loss_of_group(result.links, result.ends)
    elif result.ends:
        result.loss = chance_of_loss(result.links + result.back_links)
    return result


def _judge(origin: NodePort, way: DataWay, moves: bool) -> Judgement:
    keys, at = origin.p_keys, 2 * way.p_key_index
    result = Judgement(keys[at] << 8 | keys[at + 1] if at < len(keys) else 0)
    if not result.p_key & 0x7FFF:
        return result.fail(Drop.P_KEY, None, [])
    if origin.state not in (PortState.ARMED, PortState.ACTIVE):
        return result.fail(Drop.PORT_NOT_ACTIVE, origin, [])
    if way.dlid >= FIRST_MULTICAST_LID:
        return _judge_group(origin, way, result, moves)
    if not way.dlid:
        return result.fail(Drop.NO_LID, None, [])
    there = walk(origin, way.dlid, sl=way.sl, p_key=result.p_key, moves=moves)
    result.links = there.charges
    if there.end is None:
        return result.fail(there.problem or Drop.NO_PATH, there.at, there.charges)
    end = there.end
    if end.find_p_key(result.p_key) is None:
        return result.fail(Drop.P_KEY, end, there.charges)
    if way.is_global and way.dgid not in port_gids(end):
        return result.fail(Drop.WRONG_PORT, end, there.charges)
    result.came = True
    if way.kind not in UNANSWERED and end is not origin:
        return _judge_answers(end, origin, way, result, moves)
    result.ends = [end]
    return result


def _judge_answers(
    end: NodePort, origin: NodePort, way: DataWay, result: Judgement, moves: bool
) -> Judgement:
    lids = origin.lids
    if not lids:
        return result.fail(Drop.NO_SOURCE, None, [])
    slid = lids[way.path_bits % len(lids)]
    back: LidRoute = walk(end, slid, sl=way.sl, p_key=result.p_key, moves=moves)
    result.back_links = back.charges
    if back.end is not origin:
        result.back = True
        return result.fail(back.problem or Drop.WRONG_PORT, back.at, back.charges)
    result.ends = [end]
    return result


def _judge_group(origin: NodePort, way: DataWay, result: Judgement, moves: bool) -> Judgement:
    """A group's datagrams reach the members at the port that sends them, too."""
    group = spread(origin, way.dlid, sl=way.sl, p_key=result.p_key, moves=moves)
    result.multicast = result.came = True
    result.links = group.links
    result.ends = [origin, *(end for end in group.ends if end.find_p_key(result.p_key) is not None)]
    for problem, at in group.lost:
        names = blamed_counters(problem, at, group.links)
        if names:
            result.blamed.append((at, names))
    return result


def sizes(way: DataWay, counts: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Return packets and words, from LRH to ICRC, that were sent and that came back.

    Those that lossy links lose are among them.

    ``counts`` are those of struct vb_fabric_flow: packets and words of payload of requests, and of
    responses to READs, requests by their opcodes, and how many times one was lost.
    """
    packets, responses, payload, response_payload, *requests, _ = counts
    reads = requests[READ]
    bare = BARE + (GRH if way.is_global else 0)
    words = payload + sum(more * requests[opcode] for opcode, more in EXTRA.items())
    each = bare + OF_EACH.get(way.kind, 0)
    sent = packets + reads
    if way.kind in UNANSWERED:
        return sent, words + sent * each, 0, 0
    answers = sum(requests) - reads
    back_words = response_payload + answers + ATOMIC_MORE * sum(requests[at] for at in ATOMICS)
    back_words += sum((reads, reads if responses > reads else 0))  # AETH of first and last
    back = responses + answers
    return sent, words + sent * each, back, back_words + back * bare


def charge(
    subnet: Subnet, way: DataWay, origin: NodePort, verdict: Judgement, counts: tuple[int, ...]
) -> None:
    """Count at the ports of a way what was sent, of which ``sizes`` says what ``counts`` are."""
    packets, words, back_packets, back_words = sizes(way, counts)
    if verdict.loss:
        _charge_lossy(subnet, way, verdict, counts)
        return
    if packets:
        subnet.charge(verdict.links, packets, words, multicast=verdict.multicast)
    lost = back_packets if verdict.back else packets
    for port, names in verdict.blamed:
        for name in names:
            port.tally.count(name, lost)
    if back_packets and verdict.came:
        subnet.charge(verdict.back_links, back_packets, back_words)
    if verdict.problem is Drop.P_KEY and verdict.at is not None and packets:
        _violated(verdict.at, way, origin, verdict.p_key, packets)


def _charge_lossy(
    subnet: Subnet, way: DataWay, verdict: Judgement, counts: tuple[int, ...]
) -> None:
    """Count what was sent on lossy links.

    The program has drawn which requests are lost, for a time-out. Which other packets of a longer
    one are, so that it goes on from there after a NAK, is drawn here: they are sent once more.
    """
    packets, words, back_packets, back_words = sizes(way, counts)
    random, times = subnet.random, counts[-1]
    if verdict.multicast:
        charge_lossy_group(verdict.links, packets, words, random)
        return
    damaged, back_damaged = _shared_out(verdict, times, random)
    if way.kind not in UNANSWERED and packets:
        middle = max(packets - sum(counts[4:-1]), 0)
        repeated = damaged_of(verdict.links, middle, random)
        damaged = [sum(pair) for pair in zip(damaged, repeated, strict=True)]
        words += sum(repeated) * words // packets
        packets += sum(repeated)
    charge_lossy(verdict.links, packets, words, damaged)
    arrived = max(back_packets - (times - sum(back_damaged)), 0)
    if arrived:
        charge_lossy(
            verdict.back_links, arrived, back_words * arrived // back_packets, back_damaged
        )


def _shared_out(verdict: Judgement, times: int, random: Random) -> tuple[list[int], list[int]]:
    """Return on which links of the way there, and back, so many losses were."""
    links = verdict.links + verdict.back_links
    chances, passes = [], 1.0
    for out, _ in links:
        chances.append(passes * out.loss)
        passes *= 1 - out.loss
    found = shared_out(times, chances, random)
    return found[: len(verdict.links)], found[len(verdict.links) :]


def _violated(end: NodePort, way: DataWay, origin: NodePort, p_key: int, packets: int) -> None:
    """A port counts packets with a P_Key that its table lacks, and sends one trap about them."""
    seen = PortInfo.get(end.info, "p_key_violations")
    PortInfo.put(end.info, 0, p_key_violations=min(seen + packets - 1, MOST_VIOLATIONS))
    packet = MadPacket(b"", end.number, way.dlid, origin.lid, way.dest_qp, way.qp, way.sl, p_key)
    key_violated(end, packet, Drop.P_KEY)


# ---- sentences -----------------------------------------------------------------------------------


def loss_sentence(
    subnet: Subnet, origin: NodePort, way: DataWay, verdict: Judgement, fabric: str
) -> str:
    """Return why nothing arrives, without a full stop."""
    source, target = f"LID {origin.lid}", f"LID {way.dlid}"
    if verdict.problem is None and verdict.loss:
        return f"between {source} and {target} the fabric {fabric} loses packets: {_lossy(verdict)}"
    if verdict.problem is None:
        return f"the fabric {fabric} leads from {source} to {target} now"
    if verdict.back:
        source, target = target, source
        begin = "the request arrives, and no acknowledgement comes back: "
    else:
        begin = ""
    why = _place(subnet, origin, way, verdict, target)
    return f"{begin}the fabric {fabric} has no route from {source} to {target}: {why}"


def _lossy(verdict: Judgement) -> str:
    """The links that lose packets, each by the port that sends, with how many."""
    found = {}
    for out, into in verdict.links + verdict.back_links:
        if out.loss:
            ends = sorted(f"{port.node.name}:{port.number}" for port in (out, into))
            found["-".join(ends)] = f"{100 * out.loss:.4g} %"
    return ", ".join(f"{text} on {ends}" for ends, text in found.items())


def _named(port: NodePort) -> str:
    return f"port {port.number} of {port.node.name}"


def _loop(at: NodePort, verdict: Judgement) -> str:
    """The switches of a loop, from the one to which the tables lead back."""
    links = verdict.back_links if verdict.back else verdict.links
    names = [out.node.name for out, _ in links] + [at.node.name]
    if at.node.name not in names[:-1]:
        return ""  # out by the port by which the packets have come
    return f", by {' and '.join(names[names.index(at.node.name) : -1][1:])}"


def _place(subnet: Subnet, origin: NodePort, way: DataWay, verdict: Judgement, target: str) -> str:
    problem, at = verdict.problem, verdict.at
    if problem is Drop.NO_LID:
        return "the address has no LID (dlid is 0), and packets on InfiniBand go by LIDs"
    if problem is Drop.NO_SOURCE:
        return f"{_named(origin)} has no LID, to which an acknowledgement could come"
    if problem is Drop.P_KEY and at is None:
        return f"entry {way.p_key_index} of the P_Key table at {_named(origin)} is empty"
    if at is None:
        assert problem is not None
        text = str(problem.value)
        return text[:1].lower() + text[1:].rstrip(".")
    if problem is Drop.NO_PATH:
        owner = "" if subnet.port_of_lid(way.dlid) or verdict.back else ", and no port has that LID"
        return f"switch {at.node.name} has no entry for it{owner}"
    if problem is Drop.LOOP:
        return f"the tables lead back to {at.node.name}{_loop(at, verdict)}"
    if problem is Drop.WRONG_PORT and way.is_global and at.has_lid(way.dlid):
        return f"{_named(at)} has that LID, and another GID than the address (grh.dgid)"
    if problem is Drop.WRONG_PORT:
        return f"the tables lead to {_named(at)}, which does not have {target}"
    if problem is Drop.P_KEY:
        return f"{_named(at)} does not have the P_Key {verdict.p_key:#06x}, and drops the packets"
    if problem is Drop.P_KEY_AT_SWITCH:
        return f"{_named(at)} enforces partitions, and does not have the P_Key {verdict.p_key:#06x}"
    if problem is Drop.VL_15:
        return f"the table SLtoVL of {_named(at)} drops service level {way.sl}"
    peer = at.peer
    if at.is_cut and peer is not None:
        return f"the link between {_named(at)} and {_named(peer)} is cut"
    return f"{_named(at)} is {PortState(at.state).name}"
