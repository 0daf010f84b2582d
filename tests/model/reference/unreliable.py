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
sender's own. One that goes to a multicast group reaches each of the queue pairs that are in it, the
sender too if it is, and each checks it by itself. In which order is not specified.
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

from .regions import Data
from .reliable import (
    NEEDS,
    forget_target,
    named,
    opened,
    own_faults,
    reached,
    receive_opens,
    sent,
)
from .words import Send

if TYPE_CHECKING:
    from .queues import QueuePair
    from .world import World

GRH = 40


def carry_out(world: World, qp: QueuePair, wr: Send) -> tuple[str, int | None]:
    """Its status; nothing comes back."""
    faults = own_faults(world, qp, wr)
    if qp.kind == "UC":
        peer = world.listener(qp)
        if peer is not None:
            arrive(world, qp, peer, wr, whole=not faults)
    elif not faults:
        arrive_at_all(world, qp, addressees(world, qp, wr), wr)
    return (faults[0] if faults else "SUCCESS"), None


def addressees(world: World, qp: QueuePair, wr: Send) -> list[QueuePair]:
    """The UD queue pairs that a datagram is for and that take it."""
    names = sorted(world.groups.get(wr.to or "", [wr.to or ""]))
    qkey = qp.qkey if wr.qkey >> 31 else wr.qkey
    found = [world.qps[name] for name in names if name in world.qps]
    return [one for one in found if one.kind == "UD" and world.listens(one) and one.qkey == qkey]


def arrive_at_all(world: World, qp: QueuePair, takers: list[QueuePair], wr: Send) -> None:
    """A copy for each. What two of them touch, or one and the sender's bytes, is not specified."""
    if len({taker.srq for taker in takers} - {None}) < sum(bool(taker.srq) for taker in takers):
        takers = list(world.choices.one_of(*permutations(takers)))
    touched = {(qp.process, *at) for at in named(world.memory(qp), wr)}
    filled, clash = [], False
    for taker in takers:
        recv = world.next_receive(taker)
        arrive(world, qp, taker, wr, whole=True)
        for sge in recv.sges if recv else ():
            bytes_of = {(taker.process, *at) for at in world.memory(taker).places((sge,))}
            clash |= bool(bytes_of & touched)
            touched |= bytes_of
        filled += [(taker, recv)] if recv else []
    if clash and len(takers) > 1:
        for taker, recv in filled:
            world.memory(taker).forget_list(recv.sges, world.receive_pd(taker))


def arrive(world: World, qp: QueuePair, peer: QueuePair, wr: Send, *, whole: bool) -> None:
    """The message at its receiver; without ``whole`` only a part of it may have left."""
    if wr.opcode.startswith("SEND"):
        arrive_send(world, qp, peer, wr, whole=whole)
        return
    if not peer.access & NEEDS[wr.opcode] or not opened(world, peer, wr):
        return
    if not whole or (wr.opcode == "RDMA_WRITE_WITH_IMM" and world.next_receive(peer) is None):
        forget_target(world, peer, wr)
        return
    place, _ = reached(world.memory(peer), wr)
    world.memory(peer).write(place, sent(world.memory(qp), wr))
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
        data = grh + sent(world.memory(qp), wr)
        world.deliver(peer, wr, data, src=qp.name if header else None)
        if memory is world.memory(qp) and named(memory, wr) & memory.places(recv.sges):
            # Copied onto itself: the order is not specified.
            memory.forget_list(recv.sges, pd)
        return
    memory.forget_list(recv.sges, pd)
    drop(world, peer, faults, whole=whole)


def drop(world: World, peer: QueuePair, faults: list[str], *, whole: bool) -> None:
    """What becomes of the receive request."""
    if whole and (peer.kind == "UD" or peer.srq):
        status = world.choices.one_of(*faults, "")
        if status:
            world.complete(peer.received(world.take(peer), status))
    elif not whole and peer.srq and not peer.in_hand and world.choices.one_of(False, True):
        peer.in_hand.append(world.take(peer))
