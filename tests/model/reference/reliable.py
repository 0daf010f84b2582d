# SPDX-License-Identifier: Apache-2.0
"""Requests of a reliable connection (RC).

A request is carried out at the peer, in the order of posting, and completes when that is done. If
something is wrong, one side finds it, the request completes with the status that names it, and its
queue pair goes to ERR. No byte has moved then, except where this page says that the range is
forgotten. What is wrong on the requester's own side leaves the peer's queue pair as it was:

| Found by the requester | Status |
|------------------------|--------|
| an element of its list that its key does not open (READ, atomic: to write) | LOC_PROT_ERR |
| an atomic whose result has no 8 bytes to go to, an ATOMIC_WRITE of not 8 bytes | LOC_LEN_ERR |
| a READ, atomic or ATOMIC_WRITE, though ``max_rd_atomic`` is 0 | LOC_QP_OP_ERR |
| no peer that listens to this queue pair | RETRY_EXC_ERR |
| no receive request at the peer | RNR_RETRY_EXC_ERR |

What the peer finds puts the peer's queue pair into ERR too, and a receive request that was in use
completes with a status of its own:

| Found by the peer | Requester's | Receive's |
|-------------------|-------------|-----------|
| an operation that its queue pair does not allow | REM_INV_REQ_ERR | |
| a READ, atomic or ATOMIC_WRITE, though ``max_dest_rd_atomic`` is 0 | REM_INV_REQ_ERR | |
| an atomic or ATOMIC_WRITE at an address, or a place, of no multiple of 8 | REM_INV_REQ_ERR | |
| a key that does not open the range | REM_ACCESS_ERR | |
| a message longer than the receive request | REM_INV_REQ_ERR | LOC_LEN_ERR |
| an element of the receive request that its key does not open | REM_OP_ERR | LOC_PROT_ERR |
| a key to invalidate that is no window's of its own | REM_ACCESS_ERR | LOC_QP_OP_ERR |

A SEND_WITH_INV invalidates once its bytes are in place, so they may be there although it fails
(IBA 9.4.1.1.3). An ATOMIC_WRITE needs REMOTE_WRITE and changes its 8 bytes at once, or not at all
(annex A19).

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

from . import windows, xrc
from .queues import Answer
from .regions import Data, Memory, span
from .words import Access, Place, Recv, Send, Sge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .queues import QueuePair
    from .regions import Bytes
    from .world import World

READS = ("RDMA_READ", "ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD")
ANSWERED = (*READS, "ATOMIC_WRITE")  # what max_rd_atomic counts
NEEDS = {
    "ATOMIC_WRITE": Access.REMOTE_WRITE,
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
    if wr.opcode == "ATOMIC_WRITE" and wr.length > 8:
        faults.append("LOC_LEN_ERR")
    if wr.opcode in ANSWERED and qp.reads == 0:
        faults.append("LOC_QP_OP_ERR")
    return faults


def findings(world: World, peer: QueuePair, wr: Send) -> list[Finding]:
    """What the peer may find; the first of these, if nothing is wrong, is DONE."""
    if peer.kind == "XRC_RECV" and not xrc.point(world, peer, wr):
        return [Finding("REM_INV_REQ_ERR", by_peer=True)]
    if wr.opcode.startswith("SEND"):
        return findings_of_send(world, peer, wr)
    found = []
    if not peer.access & NEEDS[wr.opcode] or (wr.opcode in ANSWERED and peer.answers == 0):
        found.append(Finding("REM_INV_REQ_ERR", by_peer=True))
    place, _ = target(wr)
    lies, _ = reached(world.memory(peer), wr)
    if wr.opcode.startswith("ATOMIC") and (place.offset % 8 or lies.offset % 8):
        found.append(Finding("REM_INV_REQ_ERR", by_peer=True))
    if not opened(world, peer, wr):
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
        found.insert(0, end_of_send(world, peer, wr))
    return found


def end_of_send(world: World, peer: QueuePair, wr: Send) -> Finding:
    """Its bytes are in place."""
    inv = wr.opcode == "SEND_WITH_INV"
    if inv and not windows.can_invalidate(world.memory(peer), peer, wr.key):
        return Finding("REM_ACCESS_ERR", by_peer=True, receive="LOC_QP_OP_ERR")
    return DONE


def opened(world: World, peer: QueuePair, wr: Send) -> bool:
    """Whether the peer's key opens the peer's range."""
    memory, (place, length) = world.memory(peer), target(wr)
    return memory.opens_to(peer.name, peer.pd, wr.key, place, length, NEEDS[wr.opcode])


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
    """The peer's range, as the request names it."""
    assert wr.place is not None
    return wr.place, 8 if wr.opcode.startswith("ATOMIC") else wr.length


def reached(memory: Memory, wr: Send) -> tuple[Place, int]:
    """The peer's range, where it lies."""
    place, length = target(wr)
    return memory.lies(wr.key, place), length


def succeed(world: World, qp: QueuePair, peer: QueuePair, wr: Send) -> int | None:
    """What the request does; returns the bytes that came back, if any can."""
    here, there = world.memory(qp), world.memory(peer)
    if "FENCE" in wr.flags:
        for answer in qp.under_way:
            answer.fenced = True
    if wr.opcode not in READS:
        touched = send_or_write(world, qp, peer, wr)
        meet_answers(here, qp, touched)
        if sends_too_early(here, qp, wr):
            there.forgotten |= touched
        return None
    place, length = reached(there, wr)
    old = there.read(place, length)
    here.scatter(wr.sges, old)
    if wr.opcode.startswith("ATOMIC"):
        there.write(place, after_atomic(wr, old))
        meet_answers(here, qp, span(place, length))
    qp.under_way.append(Answer(span(place, length), here.places(wr.sges), wr))
    return length


def send_or_write(world: World, qp: QueuePair, peer: QueuePair, wr: Send) -> Bytes:
    """Returns the bytes that it may have changed at the peer."""
    data, there = sent(world.memory(qp), wr), world.memory(peer)
    if wr.opcode.startswith("SEND"):
        recv = world.next_receive(peer)
        assert recv is not None
        world.deliver(peer, wr, data)
        if wr.opcode == "SEND_WITH_INV":
            windows.invalidate(there, peer, wr.key)
        parts = filled(recv, len(data))
        return set().union(*(span(there.lies(s.key, s.place), n) for s, n in parts))
    place, length = reached(there, wr)
    there.write(place, data)
    if wr.opcode == "RDMA_WRITE_WITH_IMM":
        world.deliver_immediate(peer, wr)
    return span(place, length)


def sent(memory: Memory, wr: Send) -> Data:
    return memory.gather(wr.sges, inline="INLINE" in wr.flags)


def named(memory: Memory, wr: Send) -> Bytes:
    """The bytes that are sent."""
    if "INLINE" in wr.flags:
        return set().union(*(span(sge.place, sge.length) for sge in wr.sges))
    return memory.places(wr.sges)


def filled(recv: Recv, length: int) -> Iterator[tuple[Sge, int]]:
    """The elements of a receive request, and how many bytes of a message come into each."""
    for sge in recv.sges:
        yield sge, min(length, sge.length)
        length -= min(length, sge.length)


def meet_answers(here: Memory, qp: QueuePair, touched: Bytes) -> None:
    """An answer that is under way may have been read before these bytes changed, or after."""
    for answer in qp.under_way:
        if not answer.fenced and answer.source & touched:
            here.forget_list(answer.wr.sges, qp.pd)


def sends_too_early(here: Memory, qp: QueuePair, wr: Send) -> bool:
    """Whether what it sends is still on its way to its own memory."""
    source, inline = named(here, wr), "INLINE" in wr.flags
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
        if wr.opcode == "RDMA_WRITE_WITH_IMM" and finding.by_peer:
            begin(world, peer)
    elif wr.opcode in READS and not finding.by_peer:
        world.memory(qp).forget_list(wr.sges, qp.pd)


def leave_traces_of_send(world: World, peer: QueuePair, finding: Finding) -> None:
    """A message that was begun has taken its receive request, and may have filled a part of it."""
    recv = world.next_receive(peer)
    if recv is None:
        return
    world.memory(peer).forget_list(recv.sges, world.receive_pd(peer))
    if not finding.by_peer:
        begin(world, peer)


def begin(world: World, peer: QueuePair) -> None:
    """A message that fails may have taken a request of the SRQ, which is its queue pair's then."""
    waits = peer.srq and not peer.in_hand and world.next_receive(peer) is not None
    if waits and world.choices.one_of(False, True):
        peer.in_hand.append(world.take(peer))


def forget_target(world: World, peer: QueuePair, wr: Send) -> None:
    """Only what the WRITE was allowed to change."""
    place, length = reached(world.memory(peer), wr)
    if length and peer.access & Access.REMOTE_WRITE and opened(world, peer, wr):
        world.memory(peer).forget(place, length)


def fail_peer(world: World, peer: QueuePair, finding: Finding) -> None:
    if finding.receive:
        world.complete(peer.received(world.take(peer), finding.receive))
    world.fail(peer)
