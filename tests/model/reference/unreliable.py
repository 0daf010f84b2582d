# SPDX-License-Identifier: Apache-2.0
"""Requests of the unreliable types (UC, UD).

A request completes when it has left; nobody says what became of it. If something is wrong on the
requester's own side it completes with LOC_PROT_ERR, and the queue pair goes to SQE. What does not
find everything right at the receiver is dropped there without a word: no receive request, a wrong
key, an operation that the queue pair does not allow, another Q_Key. On one host, and with buffers
that are not full, nothing else gets lost.

A message that is too long for its receive request, or whose receive request its keys do not open,
is dropped too. Its request serves the next message (UC), or completes with LOC_LEN_ERR or
LOC_PROT_ERR: which is not specified for UD, and for a request from a shared receive queue. What it
names may be partly filled.

A datagram (UD) arrives behind 40 bytes for the GRH. A Q_Key with its highest bit set stands for the
sender's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .regions import Data, span
from .reliable import NEEDS, forget_target, own_faults, receive_opens, target
from .words import Recv, Send

if TYPE_CHECKING:
    from .queues import QueuePair
    from .world import World

GRH = 40


def carry_out(world: World, qp: QueuePair, wr: Send) -> tuple[str, int | None]:
    """Its status; nothing comes back."""
    peer = world.listener(qp) if qp.kind == "UC" else addressee(world, qp, wr)
    faults = own_faults(world, qp, wr)
    if peer is not None and (not faults or qp.kind == "UC"):
        arrive(world, qp, peer, wr, whole=not faults)
    return (faults[0] if faults else "SUCCESS"), None


def addressee(world: World, qp: QueuePair, wr: Send) -> QueuePair | None:
    """The UD queue pair that a datagram is for, if it takes it."""
    found = world.qps.get(wr.to or "")
    qkey = qp.qkey if wr.qkey >> 31 else wr.qkey
    takes = found is not None and found.kind == "UD" and world.listens(found)
    return found if takes and found is not None and found.qkey == qkey else None


def arrive(world: World, qp: QueuePair, peer: QueuePair, wr: Send, *, whole: bool) -> None:
    """The message at its receiver; without ``whole`` only a part of it may have left."""
    if wr.opcode.startswith("SEND"):
        arrive_send(world, qp, peer, wr, whole=whole)
        return
    place, length = target(wr)
    need = NEEDS[wr.opcode]
    if not peer.access & need:
        return
    if not world.memory(peer).opens(wr.key, peer.pd, place, length, need):
        return
    if not whole or (wr.opcode == "RDMA_WRITE_WITH_IMM" and world.next_receive(peer) is None):
        forget_target(world, peer, wr)
        return
    world.memory(peer).write(place, world.memory(qp).gather(wr.sges))
    if wr.opcode == "RDMA_WRITE_WITH_IMM":
        world.deliver_immediate(peer, wr)


def arrive_send(world: World, qp: QueuePair, peer: QueuePair, wr: Send, *, whole: bool) -> None:
    recv = world.next_receive(peer)
    if recv is None:
        return
    memory, pd = world.memory(peer), world.receive_pd(peer)
    header = GRH if qp.kind == "UD" else 0
    length = header + wr.length
    opens = receive_opens(memory, pd, recv, length)
    faults = ["LOC_LEN_ERR"] if length > recv.length else []
    faults += [] if all(opens) else ["LOC_PROT_ERR"]
    arrives = whole and length <= recv.length and any(opens)
    if arrives and (all(opens) or world.choices.one_of(True, False)):
        grh = Data(bytes(header), set(range(header)))
        data = grh + world.memory(qp).gather(wr.sges)
        world.deliver(peer, wr, data, src=qp.name if header else None)
        if memory is world.memory(qp) and overlap(wr, recv):
            memory.forget_list(recv.sges, pd)
        return
    memory.forget_list(recv.sges, pd)
    drop(world, peer, faults, whole=whole)


def overlap(wr: Send, recv: Recv) -> bool:
    """Whether a datagram to its own process is copied onto itself: the order is not specified."""
    source = set().union(*(span(sge.place, sge.length) for sge in wr.sges))
    return any(source & span(sge.place, sge.length) for sge in recv.sges)


def drop(world: World, peer: QueuePair, faults: list[str], *, whole: bool) -> None:
    """What becomes of the receive request."""
    if whole and (peer.kind == "UD" or peer.srq):
        status = world.choices.one_of(*faults, "")
        if status:
            world.complete(peer.received(world.take(peer), status))
    elif not whole and peer.srq and not peer.in_hand and world.choices.one_of(False, True):
        peer.in_hand.append(world.take(peer))
