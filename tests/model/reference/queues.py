# SPDX-License-Identifier: Apache-2.0
"""Queue pairs, receive queues and completions.

Every request that was accepted completes once, or is dropped by RESET or with its queue pair. A
successful send request has a completion only if it was posted SIGNALED, or if its queue pair was
made so; a failed or flushed one always has.

The completions of one queue come in the order of its requests. Between the two queues of a queue
pair, and between queue pairs, there is no order, also in one completion queue.

A queue pair in ERR flushes: its send queue and its own receive queue complete with WR_FLUSH_ERR.
The requests of a shared receive queue belong to nobody until one is taken, and stay.

A shared receive queue with a limit has the event SRQ_LIMIT_REACHED once, when fewer requests are
left than the limit says; then it has none any more. Whether a limit above what waits already is
reached at once, or with the next request that is taken, is not specified.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from .words import Access, Bind, Completion, Recv, Send

NO_ACCESS = Access(0)


@dataclass
class Cap:
    """What a queue pair was granted: at least what was asked."""

    send_wr: int
    recv_wr: int
    send_sge: int
    recv_sge: int
    inline: int


@dataclass
class SharedQueue:
    """A shared receive queue."""

    pd: str
    max_wr: int
    max_sge: int
    receives: deque[Recv] = field(default_factory=deque)
    limit: int = 0  # none
    reached: int = 0  # events that were not read yet
    xrcd: str | None = None  # an XRC SRQ: its domain, and where its requests complete
    cq: str = ""

    def take(self) -> Recv:
        recv = self.receives.popleft()
        if len(self.receives) < self.limit:
            self.reach()
        return recv

    def reach(self) -> None:
        self.limit = 0
        self.reached += 1


@dataclass
class Answer:
    """A READ or atomic that is under way: the peer's bytes, and where they go to."""

    source: set[tuple[str, int]]
    target: set[tuple[str, int]]
    wr: Send
    fenced: bool = False  # a later request has waited for it


@dataclass
class QueuePair:
    name: str
    process: str
    kind: str
    pd: str
    send_cq: str
    recv_cq: str
    srq: str | None
    cap: Cap
    sig_all: bool
    state: str = "RESET"
    peer: str | None = None
    access: Access = NO_ACCESS
    qkey: int = 0
    reads: int = 16  # how many READs and atomics it may have under way, and may answer
    answers: int = 16
    receives: deque[Recv] = field(default_factory=deque)
    waiting: deque[Send | Bind] = field(default_factory=deque)  # posted in SQD
    under_way: list[Answer] = field(default_factory=list)
    in_hand: list[Recv] = field(default_factory=list)  # of the SRQ: taken by half a message
    unpolled: int = 0  # requests since the last one whose completion was polled
    flushed: int = 0  # receive requests whose completion was not yet polled
    unsignalled: int = 0  # requests since the last one that has a completion
    xrcd: str | None = None  # an XRC target's domain

    def completed(
        self, wr: Send | Bind, status: str, byte_len: int | None = None
    ) -> list[Completion]:
        """The completion of a send request, if it has one."""
        if status != "SUCCESS":
            return [Completion(self.name, "send", wr.wr_id, status)]
        if "SIGNALED" not in wr.flags and not self.sig_all:
            return []
        kind = {
            "SEND_WITH_IMM": "SEND",
            "SEND_WITH_INV": "SEND",
            "RDMA_WRITE_WITH_IMM": "RDMA_WRITE",
            "ATOMIC_CMP_AND_SWP": "COMP_SWAP",
            "ATOMIC_FETCH_AND_ADD": "FETCH_ADD",
        }.get(wr.opcode, wr.opcode)
        return [Completion(self.name, "send", wr.wr_id, status, kind, byte_len)]

    def received(
        self,
        recv: Recv,
        status: str = "SUCCESS",
        *,
        opcode: str = "RECV",
        byte_len: int = 0,
        imm: int | None = None,
        src: str | None = None,
        invalidated: str | None = None,
    ) -> Completion:
        """The completion of a receive request."""
        queue = self.srq if self.srq and self.kind == "XRC_RECV" else "recv"
        if status != "SUCCESS":
            return Completion(self.name, queue, recv.wr_id, status)
        details = (byte_len, imm, src, invalidated)
        return Completion(self.name, queue, recv.wr_id, status, opcode, *details)

    def flush_sends(self) -> list[Completion]:
        flushed = [Completion(self.name, "send", wr.wr_id, "WR_FLUSH_ERR") for wr in self.waiting]
        self.waiting.clear()
        return flushed

    def flush_receives(self) -> list[Completion]:
        flushed = [self.received(r, "WR_FLUSH_ERR") for r in [*self.in_hand, *self.receives]]
        self.in_hand.clear()
        self.receives.clear()
        return flushed

    def forget_all(self) -> None:
        """RESET: the queues are emptied without a completion."""
        self.waiting.clear()
        self.receives.clear()
        self.in_hand.clear()
        self.unpolled = self.unsignalled = self.flushed = 0
