# SPDX-License-Identifier: Apache-2.0
"""Memory windows.

A window's key opens a part of a region to peers, and may be taken back. It is bound by a request in
a send queue, which moves no byte and needs no peer, and which is carried out at its turn (IBA
10.6.7.2). What it opens is given by the window's range, access and domain; it is no local key.

| | Type 1 | Type 2 |
|-|--------|--------|
| Bound by | ``ibv_bind_mw`` | a request BIND_MW |
| Opens to | every queue pair of its domain | the queue pair that it was bound through |
| Its key | a new one with each binding | has a low byte of the program's choice |
| Bound again | at any time; its key is dead when the call returns | when it is not bound |
| Ended by | a binding of length 0 | LOCAL_INV, the peer's SEND_WITH_INV |
| | | reset or end of its queue pair |
| ZERO_BASED | EINVAL | its addresses count from 0 then |

A window is destroyed at any time, and its key is dead then; a request that would bind it, and is
not carried out yet, fails. A region to which a window is bound is neither closed nor registered
again: EBUSY.

A binding completes with MW_BIND_ERR, and its queue pair fails as with every other error, if one of
these is wrong. A window of type 1 is not bound then, one of type 2 is as it was.

| The window | The region |
|------------|------------|
| exists, in the queue pair's domain | exists, in the queue pair's domain |
| is not bound, if it is of type 2 | was registered with MW_BIND, and is not zero-based |
| gets a length, if it is of type 2 | has LOCAL_WRITE, if the window shall be written or changed |
| | contains the range |

For a length of 0 the region is not looked at. A binding of type 1 that waited while a later one
was posted has no effect. An invalidation needs a window of type 2 that is bound through this queue
pair, or it completes with LOC_QP_OP_ERR.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .regions import Range
from .words import Access, Bind

if TYPE_CHECKING:
    from .queues import QueuePair
    from .regions import Memory, Region

WRITES = Access.REMOTE_WRITE | Access.REMOTE_ATOMIC


@dataclass
class Binding(Range):
    """What a window is bound to, and for type 2 through which queue pair."""

    key: str
    region: str
    qp: str | None


@dataclass
class Window:
    pd: str
    type: int
    posted: str = ""  # the key of the last binding that was posted
    bound: Binding | None = None


def bind(memory: Memory, qp: QueuePair, wr: Bind) -> str:
    """The request's status."""
    window, region = memory.windows.get(wr.window), memory.regions.get(wr.region)
    if window is None or window.pd != qp.pd:
        return "MW_BIND_ERR"
    if window.type == 2 and (window.bound is not None or wr.length == 0):
        return "MW_BIND_ERR"
    if wr.length == 0:
        return "SUCCESS"
    if region is None or not can_be_opened(region, qp.pd, wr):
        return "MW_BIND_ERR"
    if window.type == 2 or window.posted == wr.key:
        through = qp.name if window.type == 2 else None
        place = region.lies(wr.place)
        window.bound = Binding(place, wr.length, wr.access, wr.key, wr.region, through)
    return "SUCCESS"


def can_be_opened(region: Region, pd: str, wr: Bind) -> bool:
    bindable = region.access & Access.MW_BIND and not region.access & Access.ZERO_BASED
    written = wr.access & WRITES and not region.access & Access.LOCAL_WRITE
    inside = region.contains(wr.place, wr.length)
    return bool(region.pd == pd and bindable and not written and inside)


def can_invalidate(memory: Memory, qp: QueuePair, key: str) -> bool:
    """Whether the key is that of a window of type 2, bound through this queue pair."""
    return any(
        window.bound is not None
        and (window.type, window.bound.key, window.bound.qp) == (2, key, qp.name)
        and window.pd == qp.pd
        for window in memory.windows.values()
    )


def invalidate(memory: Memory, qp: QueuePair, key: str) -> str:
    """A LOCAL_INV's status; the key opens nothing any more."""
    if not can_invalidate(memory, qp, key):
        return "LOC_QP_OP_ERR"
    for window in memory.windows.values():
        if window.bound is not None and window.bound.key == key:
            window.bound = None
    return "SUCCESS"


def unbind_all(memory: Memory, qp: QueuePair) -> None:
    """A queue pair that is reset, or gone: nothing is bound through it any more."""
    for window in memory.windows.values():
        if window.bound is not None and window.bound.qp == qp.name:
            window.bound = None


def covers(memory: Memory, region: str) -> bool:
    """Whether a window is bound to the region of this key."""
    return any(w.bound is not None and w.bound.region == region for w in memory.windows.values())
