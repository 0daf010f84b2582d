# SPDX-License-Identifier: Apache-2.0
"""FLUSH.

A WRITE that has completed was received; it says nothing of where its bytes are: they may still be
on their way through the peer's bus and caches. A FLUSH asks for that. When it completes, what its
queue pair wrote and sent before has arrived in the range that it names, and stays as its placement
type says (IBA annex A19):

| Placement type | Where the bytes are | The peer's queue pair and region have |
|----------------|---------------------|---------------------------------------|
| GLOBAL | all of the peer's host sees them, without a poll before | FLUSH_GLOBAL |
| PERSISTENT | they outlive a loss of power | FLUSH_PERSISTENT |

A FLUSH may ask for both, and needs both then; for none it is refused when it is posted. Since no
region can have FLUSH_PERSISTENT here, nobody is promised what cannot be kept: such a FLUSH ends
with REM_ACCESS_ERR, or with REM_INV_REQ_ERR where the queue pair lacks the flag too.

It names a range of less than 2 GiB (2 GiB, which IBA 9.4.1 allows, is LOC_LEN_ERR), or selects the
whole region (or window) of its key, for which neither address nor length is looked at. The key is
always checked, also for a range of no bytes, which has to lie inside like any other, and may lie at
the end. A window's own flags count, not its region's. Only reliable connections, XRC among them,
have FLUSH.

It moves no byte: it has no elements, changes no memory, takes no receive request and needs no
LOCAL_WRITE. It is carried out in its turn, after all that was posted before it, and completes in
its turn. It is answered like a READ: ``max_rd_atomic`` and ``max_dest_rd_atomic`` count it, a later
request with FENCE waits for it, and with FENCE it waits for READs and atomics itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .regions import allows
from .words import Access, Place, Send

if TYPE_CHECKING:
    from .queues import QueuePair
    from .regions import Memory

LONGEST = 2**31 - 1


def is_malformed(wr: Send) -> bool:
    """Whether it promises nothing."""
    return not wr.placement


def is_too_long(wr: Send) -> bool:
    return wr.extent is not None and wr.extent > LONGEST


def needs(wr: Send) -> Access:
    """What the peer's queue pair and its region, or window, must grant."""
    need = Access(0)
    for promise in wr.placement:
        need |= Access[f"FLUSH_{promise}"]
    return need


def opened(memory: Memory, peer: QueuePair, wr: Send) -> bool:
    """Whether the key opens the range, or all that it names."""
    given = memory.given_to(peer.name, peer.pd, wr.key)
    if given is None or wr.place is None:
        return False
    place = given.start if wr.extent is None else wr.place
    return allows(given, place, wr.extent or 0, needs(wr))


def promised(memory: Memory, peer: QueuePair, wr: Send) -> tuple[Place, int]:
    """Where the bytes lie that one speaks of that has succeeded."""
    given = memory.given_to(peer.name, peer.pd, wr.key)
    assert given is not None
    assert wr.place is not None
    if wr.extent is None:
        return given.place, given.length
    return given.lies(wr.place), wr.extent
