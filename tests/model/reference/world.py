# SPDX-License-Identifier: Apache-2.0
"""The calls.

Two processes, A and B, each with memory and the objects that it made. A call returns an errno or
None, and what it leads to has happened when the next call is made: that is the order in which the
model is right, and in which it is asked.

When a process ends, its objects are gone. A reliable connection to it ends in ERR, by itself or
with the next request, which completes with RETRY_EXC_ERR or, if the queue pair was in ERR already,
with WR_FLUSH_ERR.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from . import lifetime, reliable, unreliable, windows
from .choice import Choices
from .posting import bind_refused, receive_refused, send_refused, shared_receive_refused
from .queues import Cap, QueuePair, SharedQueue
from .regions import Data, Memory, Region, change_error, registration_error
from .states import LISTENS, transition_error
from .windows import Window
from .words import Access, Bind, Completion, Place, Recv, Send

Result = tuple[str | None, int]
"""An errno or None, and how many requests of a list were accepted."""
OK: Result = (None, 0)


@dataclass
class World:
    processes: dict[str, Memory]
    choices: Choices = field(default_factory=Choices, compare=False)
    owner: dict[str, str] = field(default_factory=dict)
    qps: dict[str, QueuePair] = field(default_factory=dict)
    srqs: dict[str, SharedQueue] = field(default_factory=dict)
    completions: list[Completion] = field(default_factory=list)
    groups: dict[str, set[str]] = field(default_factory=dict)

    # ---- objects ----

    def alloc_pd(self, process: str, name: str) -> Result:
        self.owner[name] = process
        return OK

    def create_cq(self, process: str, name: str) -> Result:
        self.owner[name] = process
        return OK

    def resize_cq(self, name: str, entries: int) -> Result:
        """What it holds stays, in its order."""
        return ("EINVAL" if entries < 1 else None), 0

    def reg_mr(self, name: str, pd: str, place: Place, length: int, access: Access) -> Result:
        error = registration_error(place, length, access)
        if error is None:
            self.owner[name] = self.owner[pd]
            regions = self.processes[self.owner[pd]].regions
            regions[name] = Region(place, length, access, name, pd)
        return error, 0

    def rereg_mr(
        self,
        name: str,
        key: str,
        pd: str | None,
        place: Place | None,
        length: int,
        access: Access | None,
    ) -> Result:
        """What is None stays; with another ``place`` the region's key is ``key`` from now on."""
        memory = self.processes[self.owner[name]]
        old, was = next((k, one) for k, one in memory.regions.items() if one.name == name)
        now = Region(
            place or was.place,
            length if place else was.length,
            was.access if access is None else access,
            name,
            pd or was.pd,
        )
        covered = windows.covers(memory, old)
        faults = change_error(was, now.place, now.length, now.access, covered=covered)
        if faults:
            return self.choices.one_of(*sorted(faults)), 0
        del memory.regions[old]
        memory.regions[key if place else old] = now
        return OK

    def alloc_null_mr(self, name: str, pd: str) -> Result:
        self.owner[name] = self.owner[pd]
        self.processes[self.owner[pd]].nulls[name] = pd
        return OK

    def alloc_mw(self, name: str, pd: str, kind: int) -> Result:
        self.owner[name] = self.owner[pd]
        self.processes[self.owner[pd]].windows[name] = Window(pd, kind)
        return OK

    def open_xrcd(self, process: str, name: str) -> Result:
        self.owner[name] = process
        return OK

    def create_srq(
        self, name: str, pd: str, max_wr: int, max_sge: int, xrcd: str | None = None, cq: str = ""
    ) -> Result:
        """With ``xrcd`` an XRC SRQ, which completes into ``cq``."""
        self.owner[name] = self.owner[pd]
        self.srqs[name] = SharedQueue(pd, max_wr, max_sge, xrcd=xrcd, cq=cq)
        return OK

    def create_target(self, name: str, xrcd: str) -> Result:
        process = self.owner[name] = self.owner[xrcd]
        nothing = Cap(0, 0, 0, 0, 0)
        made = QueuePair(name, process, "XRC_RECV", "", "", "", None, nothing, False, xrcd=xrcd)
        self.qps[name] = made
        return OK

    def create_qp(
        self,
        name: str,
        pd: str,
        kind: str,
        send_cq: str,
        recv_cq: str,
        srq: str | None,
        cap: Cap,
        sig_all: bool,
    ) -> Result:
        process = self.owner[name] = self.owner[pd]
        made = QueuePair(name, process, kind, pd, send_cq, recv_cq, srq, cap, sig_all)
        self.qps[name] = made
        return OK

    def modify_srq(self, name: str, max_wr: int | None, limit: int | None, granted: int) -> Result:
        """Another size, of which ``granted`` came, and another limit. Requests are kept."""
        srq = self.srqs[name]
        size = srq.max_wr if max_wr is None else max_wr
        used = len(srq.receives) + sum(
            len(qp.in_hand) for qp in self.qps.values() if qp.srq == name
        )
        if (srq.limit if limit is None else limit) > size or (max_wr is not None and max_wr < 1):
            return "EINVAL", 0
        if size < used and self.choices.one_of(True, *([False] if granted >= used else [])):
            return "EINVAL", 0
        srq.max_wr = srq.max_wr if max_wr is None else granted
        srq.limit = srq.limit if limit is None else limit
        if limit is not None and len(srq.receives) < limit and self.choices.one_of(True, False):
            srq.reach()
        return OK

    def attach(self, name: str, group: str) -> Result:
        """Datagrams to the group reach the queue pair too. Being in it twice is being in it."""
        if self.qps[name].kind != "UD":
            return "EINVAL", 0
        self.groups.setdefault(group, set()).add(name)
        return OK

    def detach(self, name: str, group: str) -> Result:
        if name not in self.groups.get(group, ()):
            return "EINVAL", 0
        self.groups[group].remove(name)
        return OK

    def close(self, name: str) -> Result:
        return lifetime.close(self, name), 0

    def end(self, process: str, probes: tuple[tuple[str, int], ...]) -> Result:
        """A process ends, however it does, and what was connected to it is moved to ERR.

        ``probes`` are names of queue pairs that send something first, with the wr_id.
        """
        mine = {name for name, owner in self.owner.items() if owner == process}
        for name in mine:
            del self.owner[name]
            self.qps.pop(name, None)
            self.srqs.pop(name, None)
            for members in self.groups.values():
                members.discard(name)
        memory = self.processes[process]
        for keys in (memory.regions, memory.nulls, memory.windows):
            keys.clear()
        for name, wr_id in probes:
            status = self.choices.one_of("RETRY_EXC_ERR", "WR_FLUSH_ERR")
            self.complete(Completion(name, "send", wr_id, status))
        for qp in self.qps.values():
            if qp.peer is not None and qp.state != "RESET":
                self.fail(qp)
        return OK

    # ---- states ----

    def modify(self, name: str, to: str, given: set[str], access: Access, qkey: int) -> Result:
        """``access`` and ``qkey`` count if they are given."""
        qp = self.qps[name]
        error = transition_error(qp.kind, qp.state, to, given)
        if error is None:
            qp.access = access if "ACCESS_FLAGS" in given else qp.access
            qp.qkey = qkey if "QKEY" in given else qp.qkey
            qp.reads = 16 if "MAX_QP_RD_ATOMIC" in given else qp.reads
            qp.answers = 16 if "MAX_DEST_RD_ATOMIC" in given else qp.answers
            self.enter(qp, to)
        return error, 0

    def connect(
        self, name: str, to: str, peer: str, access: Access, reads: int, answers: int
    ) -> Result:
        """RESET to INIT, RTR or RTS, with the right attributes, towards ``peer``."""
        qp = self.qps[name]
        qp.peer, qp.access, qp.reads, qp.answers = peer, access, reads, answers
        qp.state = to
        return OK

    def enter(self, qp: QueuePair, state: str) -> None:
        if state == "ERR":
            self.fail(qp)
        elif state == "RESET":
            self.put_back(qp)
            windows.unbind_all(self.memory(qp), qp)
            qp.forget_all()
            qp.peer = None
        qp.state = state
        while qp.state == "RTS" and qp.waiting:
            self.run(qp, qp.waiting.popleft())

    def put_back(self, qp: QueuePair) -> None:
        """A shared request that half a message had taken is lost, or free again."""
        for recv in qp.in_hand:
            if qp.srq and self.choices.one_of(True, False):
                self.srqs[qp.srq].receives.append(recv)

    def fail(self, qp: QueuePair) -> None:
        """ERR, with everything flushed."""
        qp.state = "ERR"
        for completion in [*qp.flush_sends(), *qp.flush_receives()]:
            self.complete(completion)

    # ---- posting ----

    def post_recv(self, name: str, requests: tuple[Recv, ...]) -> Result:
        qp = self.qps[name]
        for posted, recv in enumerate(requests):
            error = receive_refused(self.choices, qp, recv)
            if error:
                return error, posted
            if qp.state == "ERR":
                qp.flushed += 1
                self.complete(qp.received(recv, "WR_FLUSH_ERR"))
            else:
                qp.receives.append(recv)
        return None, len(requests)

    def post_srq_recv(self, name: str, requests: tuple[Recv, ...]) -> Result:
        srq = self.srqs[name]
        for posted, recv in enumerate(requests):
            error = shared_receive_refused(self.choices, srq, recv)
            if error:
                return error, posted
            srq.receives.append(recv)
        return None, len(requests)

    def post_send(self, name: str, requests: tuple[Send, ...]) -> Result:
        qp = self.qps[name]
        for posted, wr in enumerate(requests):
            error = send_refused(self.choices, qp, wr)
            if error:
                return error, posted
            self.post(qp, wr)
        return None, len(requests)

    def bind_mw(self, name: str, request: Bind) -> Result:
        """Type 1: ``ibv_bind_mw``, which ends the binding that there is; type 2: a request."""
        qp = self.qps[name]
        window = self.memory(qp).windows[request.window]
        error = bind_refused(self.choices, qp, window, request)
        if error:
            return error, 0
        window.posted = request.key
        if window.type == 1:
            window.bound = None
        self.post(qp, request)
        return OK

    def post(self, qp: QueuePair, wr: Send | Bind) -> None:
        qp.unpolled += 1
        if qp.state == "SQD":
            qp.waiting.append(wr)
        else:
            self.run(qp, wr)

    def run(self, qp: QueuePair, wr: Send | Bind) -> None:
        """A request's turn has come."""
        status, byte_len = "WR_FLUSH_ERR", None
        reliably = qp.kind in ("RC", "XRC_SEND")
        if qp.state == "RTS":
            status, byte_len = self.carry_out(qp, wr, reliably=reliably)
        completed = qp.completed(wr, status, byte_len)
        qp.unsignalled = 0 if completed else qp.unsignalled + 1
        for completion in completed:
            self.complete(completion)
        if status not in ("SUCCESS", "WR_FLUSH_ERR"):
            if reliably:
                self.fail(qp)
            else:
                qp.state = "SQE"

    def carry_out(
        self, qp: QueuePair, wr: Send | Bind, *, reliably: bool
    ) -> tuple[str, int | None]:
        """Its status, and the bytes that its completion counts."""
        if isinstance(wr, Bind):
            return windows.bind(self.memory(qp), qp, wr), None
        if wr.opcode == "LOCAL_INV":
            return windows.invalidate(self.memory(qp), qp, wr.key), None
        return (reliable if reliably else unreliable).carry_out(self, qp, wr)

    def poll(self) -> list[Completion]:
        """All that has completed; the places in the send queues are free again."""
        for completion in self.completions:
            qp = self.qps.get(completion.qp)
            if qp and completion.queue == "send":
                qp.unpolled = qp.unsignalled + len(qp.waiting)
        for qp in self.qps.values():
            qp.under_way.clear()
            qp.flushed = 0
        for srq in self.srqs.values():
            srq.reached = 0
        polled, self.completions = self.completions, []
        return polled

    def fill(self, process: str, place: Place, data: bytes) -> Result:
        """The program writes into its own memory."""
        self.processes[process].write(place, Data(data))
        return OK

    # ---- what the transports ask ----

    def memory(self, qp: QueuePair) -> Memory:
        return self.processes[qp.process]

    def listens(self, qp: QueuePair) -> bool:
        return qp.state in LISTENS

    def listener(self, qp: QueuePair) -> QueuePair | None:
        """The queue pair that takes what this one sends."""
        peer = self.qps.get(qp.peer or "")
        return peer if peer and peer.peer == qp.name and self.listens(peer) else None

    def receive_pd(self, qp: QueuePair) -> str:
        """The protection domain in which the elements of a receive request are looked up."""
        return self.srqs[qp.srq].pd if qp.srq else qp.pd

    def next_receive(self, qp: QueuePair) -> Recv | None:
        if qp.in_hand:
            return qp.in_hand[0]
        queue = self.srqs[qp.srq].receives if qp.srq else qp.receives
        return queue[0] if queue else None

    def take(self, qp: QueuePair) -> Recv:
        if qp.in_hand:
            return qp.in_hand.pop(0)
        return self.srqs[qp.srq].take() if qp.srq else qp.receives.popleft()

    def deliver(self, qp: QueuePair, wr: Send, data: Data, src: str | None = None) -> None:
        """A message into the next receive request."""
        recv = self.take(qp)
        self.memory(qp).scatter(recv.sges, data)
        imm = wr.imm if wr.opcode == "SEND_WITH_IMM" else None
        inv = wr.key if wr.opcode == "SEND_WITH_INV" else None
        made = qp.received(recv, byte_len=len(data), imm=imm, src=src, invalidated=inv)
        self.complete(made)

    def deliver_immediate(self, qp: QueuePair, wr: Send) -> None:
        """RDMA_WRITE_WITH_IMM takes a receive request and leaves its memory alone."""
        self.complete(
            qp.received(self.take(qp), opcode="RECV_RDMA_WITH_IMM", byte_len=wr.length, imm=wr.imm)
        )

    def complete(self, completion: Completion) -> None:
        self.completions.append(completion)
