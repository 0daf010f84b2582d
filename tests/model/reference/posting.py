# SPDX-License-Identifier: Apache-2.0
"""Posting: what a call refuses at once.

``post_send`` and ``post_recv`` take a list of requests and stop at the first that they refuse;
those before it are posted. A request is refused with EINVAL if the state takes none (see the
states), if it has more elements than the queue was made for, and with ENOMEM if the queue is full
(ibv_post_send(3), ibv_post_recv(3)). A queue pair with a shared receive queue takes no receives of
its own.

A send request is also refused with EINVAL if its operation does not suit the type, or if it asks
for INLINE with more bytes than the queue pair grants, or for an operation that sends none. To
BIND_MW and LOCAL_INV this flag means nothing.

| Operation                            | RC, XRC_SEND | UC | UD |
|--------------------------------------|--------------|----|----|
| SEND, with IMM                       | x            | x  | x  |
| RDMA_WRITE, with IMM                 | x            | x  |    |
| BIND_MW, LOCAL_INV                   | x            | x  |    |
| RDMA_READ, atomics, SEND_WITH_INV    | x            |    |    |

An XRC target takes no requests at all, and an XRC initiator no receives. A binding of type 1 that
asks for ZERO_BASED is refused too (see the windows).

A place in a queue becomes free when the completion of its request, or of a later one, was polled.
Whether it is free earlier is not specified, nor which of two errors is returned.
"""

from __future__ import annotations

from .choice import Choices
from .queues import QueuePair, SharedQueue
from .states import SENDS
from .windows import Window
from .words import Access, Bind, Recv, Send

ALL = {"SEND", "SEND_WITH_IMM"}
RDMA = ALL | {"RDMA_WRITE", "RDMA_WRITE_WITH_IMM"}
ATOMIC = {"ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD"}
SENDING = RDMA | {"SEND_WITH_INV", "ATOMIC_WRITE"}
LOCAL = {"LOCAL_INV"}
RELIABLE = SENDING | {"RDMA_READ"} | ATOMIC | LOCAL
OPERATIONS = {"RC": RELIABLE, "XRC_SEND": RELIABLE, "UC": RDMA | LOCAL, "UD": ALL}


def is_malformed(qp: QueuePair, wr: Send) -> bool:
    if wr.opcode not in OPERATIONS[qp.kind] or len(wr.sges) > qp.cap.send_sge:
        return True
    if wr.opcode in LOCAL:
        return False
    return "INLINE" in wr.flags and (wr.opcode not in SENDING or wr.length > qp.cap.inline)


def send_refused(choices: Choices, qp: QueuePair, wr: Send) -> str | None:
    """The errno of a send request that is not accepted."""
    if qp.kind == "XRC_RECV":
        return "EINVAL"
    return refused(choices, qp, wrong=qp.state not in SENDS or is_malformed(qp, wr))


def bind_refused(choices: Choices, qp: QueuePair, window: Window, wr: Bind) -> str | None:
    """The errno of a binding that is not accepted."""
    if qp.kind in ("UD", "XRC_RECV"):
        return "EINVAL"
    zero_based = window.type == 1 and bool(wr.access & Access.ZERO_BASED)
    return refused(choices, qp, wrong=qp.state not in SENDS or zero_based)


def refused(choices: Choices, qp: QueuePair, *, wrong: bool) -> str | None:
    """One that is wrong, or for which there is no room."""
    faults = ["EINVAL"] if wrong else []
    if len(qp.waiting) >= qp.cap.send_wr:
        faults.append("ENOMEM")
    elif qp.unpolled >= qp.cap.send_wr:
        return choices.one_of("ENOMEM", *(faults or [None]))
    return choices.one_of(*faults) if faults else None


def receive_refused(choices: Choices, qp: QueuePair, recv: Recv) -> str | None:
    """The errno of a receive request that is not accepted."""
    if qp.state == "RESET" or qp.srq is not None or qp.kind.startswith("XRC"):
        return "EINVAL"
    faults = []
    if len(recv.sges) > qp.cap.recv_sge:
        faults.append("EINVAL")
    if len(qp.receives) >= qp.cap.recv_wr:
        faults.append("ENOMEM")
    elif qp.flushed >= qp.cap.recv_wr:
        return choices.one_of("ENOMEM", *(faults or [None]))
    return choices.one_of(*faults) if faults else None


def shared_receive_refused(choices: Choices, srq: SharedQueue, recv: Recv) -> str | None:
    """The same, of a shared receive queue."""
    faults = []
    if len(recv.sges) > srq.max_sge:
        faults.append("EINVAL")
    if len(srq.receives) >= srq.max_wr:
        faults.append("ENOMEM")
    return choices.one_of(*faults) if faults else None
