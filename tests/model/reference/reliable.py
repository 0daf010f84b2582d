# SPDX-License-Identifier: Apache-2.0
"""Requests of a reliable connection (RC).

A request is carried out at the peer, in the order of posting, and completes when that is done. If
something is wrong, one side finds it, the request completes with the status that names it, and its
queue pair goes to ERR. No byte has moved then, except where this page says that the range is
forgotten. What is wrong on the requester's own side leaves the peer's queue pair as it was:

| Found by the requester | Status |
|------------------------|--------|
| an element of its list that its key does not open (READ, atomic: to write) | LOC_PROT_ERR |
| an atomic whose result has no 8 bytes to go to | LOC_LEN_ERR |
| a READ or atomic, though ``max_rd_atomic`` is 0 | LOC_QP_OP_ERR |
| no peer that listens to this queue pair | RETRY_EXC_ERR |
| no receive request at the peer | RNR_RETRY_EXC_ERR |

What the peer finds puts the peer's queue pair into ERR too, and a receive request that was in use
completes with a status of its own:

| Found by the peer | Requester's | Receive's |
|-------------------|-------------|-----------|
| an operation that its queue pair does not allow | REM_INV_REQ_ERR | |
| a READ or atomic, though ``max_dest_rd_atomic`` is 0 | REM_INV_REQ_ERR | |
| an atomic whose address is not a multiple of 8 | REM_INV_REQ_ERR | |
| a key that does not open the range | REM_ACCESS_ERR | |
| a message longer than the receive request | REM_INV_REQ_ERR | LOC_LEN_ERR |
| an element of the receive request that its key does not open | REM_OP_ERR | LOC_PROT_ERR |

Requests are carried out in order, but a READ or an atomic is answered later, and what follows it
does not wait for that, unless it has FENCE: a READ may see what a later request of the same row has
written, and a later request may send what was in memory before the READ's bytes came. INLINE data
is taken when it is posted, whatever FENCE says. (IBA's ordering rules for the send queue, and the
Fence Indicator: 10.8.3.3)

Where several things are wrong it is not specified which is found first. Elements of a receive
request that the message does not reach need not be looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .queues import Answer
from .regions import Data, Memory, span
from .words import Access, Place, Recv, Send, Sge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .queues import QueuePair
    from .world import World

READS = ("RDMA_READ", "ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD")
NEEDS = {
    "RDMA_WRITE": Access.REMOTE_WRITE,
    "RDMA_WRITE_WITH_IMM": Access.REMOTE_WRITE,
    "RDMA_READ": Access.REMOTE_READ,
    "ATOMIC_CMP_AND_SWP": Access.REMOTE_ATOMIC,
    "ATOMIC_FETCH_AND_ADD": Access.REMOTE_ATOMIC,
}


@dataclass(frozen=True)
class Finding:
    """How a request ends, who found it, and how the receive request in use ends."""

    status: str
    by_peer: bool = False
    receive: str = ""


DONE = Finding("SUCCESS")


def carry_out(world: World, qp: QueuePair, wr: Send) -> tuple[str, int | None]:
    """Its status, and the bytes that its completion counts."""
    peer = world.listener(qp)
    own = [Finding(status) for status in own_faults(world, qp, wr)]
    theirs = findings(world, peer, wr) if peer else [Finding("RETRY_EXC_ERR")]
    if own:
        theirs = [finding for finding in theirs if finding != DONE]
    finding = world.choices.one_of(*own, *theirs)
    if finding == DONE:
        assert peer is not None
        return "SUCCESS", succeed(world, qp, peer, wr)
    if peer is not None:
        leave_traces(world, qp, peer, wr, finding)
        if finding.by_peer:
            fail_peer(world, peer, finding)
    return finding.status, None


def own_faults(world: World, qp: QueuePair, wr: Send) -> list[str]:
    memory = world.memory(qp)
    faults = []
    need = Access.LOCAL_WRITE if wr.opcode in READS else Access(0)
    inline = "INLINE" in wr.flags
    if not inline and not all(
        memory.opens(sge.key, qp.pd, sge.place, sge.length, need) for sge in wr.sges
    ):
        faults.append("LOC_PROT_ERR")
    if wr.opcode.startswith("ATOMIC") and wr.length < 8:
        faults.append("LOC_LEN_ERR")
    if wr.opcode in READS and qp.reads == 0:
        faults.append("LOC_QP_OP_ERR")
    return faults


def findings(world: World, peer: QueuePair, wr: Send) -> list[Finding]:
    """What the peer may find; the first of these, if nothing is wrong, is DONE."""
    if wr.opcode.startswith("SEND"):
        return findings_of_send(world, peer, wr)
    found = []
    if not peer.access & NEEDS[wr.opcode] or (wr.opcode in READS and peer.answers == 0):
        found.append(Finding("REM_INV_REQ_ERR", by_peer=True))
    place, length = target(wr)
    if wr.opcode.startswith("ATOMIC") and place.offset % 8:
        found.append(Finding("REM_INV_REQ_ERR", by_peer=True))
    if not world.memory(peer).opens(wr.key, peer.pd, place, length, NEEDS[wr.opcode]):
        found.append(Finding("REM_ACCESS_ERR", by_peer=True))
    if wr.opcode == "RDMA_WRITE_WITH_IMM" and world.next_receive(peer) is None:
        found.append(Finding("RNR_RETRY_EXC_ERR"))
    return list(dict.fromkeys(found)) or [DONE]


def findings_of_send(world: World, peer: QueuePair, wr: Send) -> list[Finding]:
    recv = world.next_receive(peer)
    if recv is None:
        return [Finding("RNR_RETRY_EXC_ERR")]
    too_long = Finding("REM_INV_REQ_ERR", by_peer=True, receive="LOC_LEN_ERR")
    closed = Finding("REM_OP_ERR", by_peer=True, receive="LOC_PROT_ERR")
    opens = receive_opens(world.memory(peer), world.receive_pd(peer), recv, wr.length)
    found = [too_long] if wr.length > recv.length else []
    if not all(opens):
        found.append(closed)
    if wr.length <= recv.length and any(opens):
        found.insert(0, DONE)
    return found


def receive_opens(memory: Memory, pd: str, recv: Recv, length: int) -> set[bool]:
    """Whether the keys of a receive request open what a message of ``length`` bytes needs.

    Both, if only a part is closed that the message does not reach.
    """
    answers = set()
    for sge, used in filled(recv, length):
        whole = memory.opens(sge.key, pd, sge.place, sge.length, Access.LOCAL_WRITE)
        reached = memory.opens(sge.key, pd, sge.place, used, Access.LOCAL_WRITE)
        if not reached:
            return {False}
        answers |= {whole, reached}
    return answers or {True}


def target(wr: Send) -> tuple[Place, int]:
    """The peer's range."""
    assert wr.place is not None
    return wr.place, 8 if wr.opcode.startswith("ATOMIC") else wr.length


def succeed(world: World, qp: QueuePair, peer: QueuePair, wr: Send) -> int | None:
    """What the request does; returns the bytes that came back, if any can."""
    here, there = world.memory(qp), world.memory(peer)
    if "FENCE" in wr.flags:
        for answer in qp.under_way:
            answer.fenced = True
    if wr.opcode not in READS:
        touched = send_or_write(world, qp, peer, wr)
        meet_answers(here, qp, touched)
        if sends_too_early(qp, wr):
            there.forgotten |= touched
        return None
    place, length = target(wr)
    old = there.read(place, length)
    here.scatter(wr.sges, old)
    if wr.opcode.startswith("ATOMIC"):
        there.write(place, after_atomic(wr, old))
        meet_answers(here, qp, span(place, length))
    goes_to = set().union(*(span(sge.place, sge.length) for sge in wr.sges))
    qp.under_way.append(Answer(span(place, length), goes_to, wr))
    return length


def send_or_write(world: World, qp: QueuePair, peer: QueuePair, wr: Send) -> set[tuple[str, int]]:
    """Returns the bytes that it may have changed at the peer."""
    data = world.memory(qp).gather(wr.sges)
    if wr.opcode.startswith("SEND"):
        recv = world.next_receive(peer)
        assert recv is not None
        world.deliver(peer, wr, data)
        return set().union(*(span(s.place, n) for s, n in filled(recv, len(data))))
    place, length = target(wr)
    world.memory(peer).write(place, data)
    if wr.opcode == "RDMA_WRITE_WITH_IMM":
        world.deliver_immediate(peer, wr)
    return span(place, length)


def filled(recv: Recv, length: int) -> Iterator[tuple[Sge, int]]:
    """The elements of a receive request, and how many bytes of a message come into each."""
    for sge in recv.sges:
        yield sge, min(length, sge.length)
        length -= min(length, sge.length)


def meet_answers(here: Memory, qp: QueuePair, touched: set[tuple[str, int]]) -> None:
    """An answer that is under way may have been read before these bytes changed, or after."""
    for answer in qp.under_way:
        if not answer.fenced and answer.source & touched:
            here.forget_list(answer.wr.sges, qp.pd)


def sends_too_early(qp: QueuePair, wr: Send) -> bool:
    """Whether what it sends is still on its way to its own memory."""
    source = set().union(*(span(sge.place, sge.length) for sge in wr.sges))
    inline = "INLINE" in wr.flags
    return any(source & a.target and (inline or not a.fenced) for a in qp.under_way)


def after_atomic(wr: Send, old: Data) -> Data:
    """What stands at the address afterwards: 64 bits in the host's byte order."""
    value = int.from_bytes(old.content, "little")
    if wr.opcode == "ATOMIC_FETCH_AND_ADD":
        value = (value + wr.compare_add) % 2**64
    elif value == wr.compare_add:
        value = wr.swap
    return Data(value.to_bytes(8, "little"), set(range(8)) if old.unknown else set())


def leave_traces(world: World, qp: QueuePair, peer: QueuePair, wr: Send, finding: Finding) -> None:
    """What may have changed although the request failed."""
    if wr.opcode.startswith("SEND"):
        leave_traces_of_send(world, peer, finding)
    elif wr.opcode.startswith("RDMA_WRITE"):
        forget_target(world, peer, wr)
    elif not finding.by_peer:
        world.memory(qp).forget_list(wr.sges, qp.pd)


def leave_traces_of_send(world: World, peer: QueuePair, finding: Finding) -> None:
    """A message that was begun has taken its receive request, and may have filled a part of it."""
    recv = world.next_receive(peer)
    if recv is None:
        return
    world.memory(peer).forget_list(recv.sges, world.receive_pd(peer))
    may_hold_one = not finding.by_peer and peer.srq and not peer.in_hand
    if may_hold_one and world.choices.one_of(False, True):
        peer.in_hand.append(world.take(peer))


def forget_target(world: World, peer: QueuePair, wr: Send) -> None:
    """Only what the WRITE was allowed to change."""
    place, length = target(wr)
    memory = world.memory(peer)
    need = Access.REMOTE_WRITE
    if length and peer.access & need and memory.opens(wr.key, peer.pd, place, length, need):
        memory.forget(place, length)


def fail_peer(world: World, peer: QueuePair, finding: Finding) -> None:
    if finding.receive:
        world.complete(peer.received(world.take(peer), finding.receive))
    world.fail(peer)
