# SPDX-License-Identifier: Apache-2.0
"""Extended reliable connections (XRC).

An XRC initiator sends, an XRC target answers, and each request names the shared receive queue that
it is for: an XRC SRQ (IBA annex A14). A target has no queues of its own. Target and SRQ belong to
one XRC domain. Everything else is as with a reliable connection, and

- a request that names no SRQ, or one of another domain, is REM_INV_REQ_ERR (the annex leaves open
  which error it is), also if it takes no receive request;
- keys are looked up in the SRQ's protection domain, the peer's keys and those of its receive
  requests;
- what was received completes into the SRQ's completion queue, under the target's number.

A domain cannot be closed while a target or an SRQ is in it: EBUSY. An SRQ, and what it was made of,
is needed by no target. An SRQ that is closed takes its requests with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .queues import QueuePair
    from .words import Send
    from .world import World


def point(world: World, target: QueuePair, wr: Send) -> bool:
    """For this request the target is like a queue pair with that SRQ; False if it is not its."""
    srq = world.srqs.get(wr.srq)
    if srq is None or srq.xrcd != target.xrcd or world.owner[wr.srq] != target.process:
        return False
    target.srq, target.pd, target.recv_cq = wr.srq, srq.pd, srq.cq
    return True


def leave(world: World, srq: str) -> None:
    """An SRQ that is gone: what half a message had taken of it is gone too."""
    for qp in world.qps.values():
        if qp.kind == "XRC_RECV" and qp.srq == srq:
            qp.in_hand.clear()
            qp.srq = None
