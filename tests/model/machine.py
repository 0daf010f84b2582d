# SPDX-License-Identifier: Apache-2.0
"""Random programs: what Hypothesis draws, and how likely.

A rule asks the model what there is, so that most calls are right and reach deep; a draw of 0 stands
for the plainest variant, to which a failing program shrinks.
"""

from __future__ import annotations

from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.model.compare import Program
from tests.model.core import Setting
from tests.model.reference.posting import ATOMIC, RDMA
from tests.model.reference.queues import QueuePair
from tests.model.reference.states import RULES
from tests.model.reference.words import NOTHING, Access, Place, Recv, Send, Sge
from tests.model.worker import SIZE

EVERYTHING = Access(15)
ACCESSES = [EVERYTHING] * 24 + [Access(flags) for flags in range(16)]
LENGTHS = [8, 0, 1, 7, 28, 29, 64, 255, 256, 257, 600]
RANGES = [(0, 1024), (0, SIZE), (8, 64), (1024, 8), (1000, 600), (1, 300), (0, 0), (2040, 8)]
ATTRIBUTES = ["ACCESS_FLAGS", "QKEY", "SQ_PSN", "MIN_RNR_TIMER", "CUR_STATE", "PKEY_INDEX"]
ATTRIBUTES += ["MAX_DEST_RD_ATOMIC", "TIMEOUT", "DEST_QPN"]
STATES = ["RTS", "ERR", "RESET", "INIT", "RTR", "SQD", "SQE"]
OPCODES = [
    "SEND",
    "RDMA_WRITE",
    "RDMA_READ",
    "SEND_WITH_IMM",
    "RDMA_WRITE_WITH_IMM",
    *sorted(ATOMIC),
]
QKEYS = [1, 2]
GROUPS = ["group1", "group2"]
RARELY = [False] * 11 + [True]


class Machine(RuleBasedStateMachine):
    setting: ClassVar[Setting]
    ends: ClassVar[bool] = False  # whether a process may end

    def __init__(self) -> None:
        super().__init__()
        self.do = Program(self.setting)
        self.counts: dict[str, int] = {}
        self.number = 0
        self.keys: dict[str, list[str]] = {"A": [], "B": []}  # also those of closed regions

    # ---- what there is ----

    @property
    def world(self) -> Any:
        return self.do.world

    def name(self, kind: str) -> str:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return f"{kind}{self.counts[kind]}"

    def wr_id(self) -> int:
        self.number += 1
        return self.number

    def owned(self, kind: str, process: str | None = None) -> list[str]:
        return [
            name
            for name, owner in self.world.owner.items()
            if name.rstrip("0123456789") == kind and process in (None, owner)
        ]

    def pick(self, data: st.DataObject, options: Any) -> Any:
        return data.draw(st.sampled_from(list(options)))

    # ---- objects ----

    @initialize(data=st.data(), scene=st.sampled_from(["", "", "shared", "group"]))
    def begin(self, data: st.DataObject, scene: str) -> None:
        """A connection that works, which a program may break; with a shared receive queue, or
        beside datagrams to a group."""
        for process in "AB":
            pd, cq = self.new_pd(process), self.new_cq(process)
            self.new_mr(pd, Place("own", 0), SIZE, EVERYTHING)
            srq = self.new_srq(data, pd) if scene == "shared" else None
            self.new_qp(process, pd, "RC", cq, cq, srq, 8, False)
            if scene == "group":
                self.new_qp(process, pd, "UD", cq, cq, None, 8, False)
        if scene == "group":
            self.set_up_group()
        else:
            self.join("qp1", "qp2", "RTS", "RTS", EVERYTHING, 16, 16)

    def new_srq(self, data: st.DataObject, pd: str) -> str:
        """With requests, and a limit."""
        name = self.name("srq")
        self.do.create_srq(name=name, pd=pd, max_wr=8, max_sge=2)
        requests = self.recvs(data, self.world.owner[pd], pd, 4)
        self.do.post_srq_recv(name=name, requests=requests)
        self.do.modify_srq(name=name, max_wr=None, limit=self.pick(data, [2, 3, 4]))
        return name

    def set_up_group(self) -> None:
        """qp2 and qp4 are in it."""
        self.join("qp1", "qp3", "RTS", "RTS", EVERYTHING, 16, 16)
        for name in ("qp2", "qp4"):
            self.bring_up(name)
            if self.setting.port == "direct":
                self.do.attach(name=name, group=GROUPS[0])

    def new_pd(self, process: str) -> str:
        name = self.name("pd")
        self.do.alloc_pd(process=process, name=name)
        return name

    def new_cq(self, process: str) -> str:
        name = self.name("cq")
        self.do.create_cq(process=process, name=name)
        return name

    def new_mr(self, pd: str, place: Place, length: int, access: Access) -> None:
        name = self.name("mr")
        error, _ = self.do.reg_mr(name=name, pd=pd, place=place, length=length, access=access)
        if error is None:
            self.keys[self.world.owner[pd]].append(name)

    def new_qp(
        self,
        process: str,
        pd: str,
        kind: str,
        send: str,
        recv: str,
        srq: str | None,
        room: int,
        sig_all: bool,
    ) -> None:
        self.do.create_qp(
            name=self.name("qp"),
            pd=pd,
            kind=kind,
            send_cq=send,
            recv_cq=recv,
            srq=srq,
            cap=(room, room, 2, 2, 64),
            sig_all=sig_all,
        )

    @rule(process=st.sampled_from("AB"), kind=st.sampled_from(["pd", "cq"]))
    def create(self, process: str, kind: str) -> None:
        self.new_pd(process) if kind == "pd" else self.new_cq(process)

    @rule(
        data=st.data(),
        place=st.sampled_from(["own", "heap"]),
        span=st.sampled_from(RANGES),
        access=st.sampled_from(ACCESSES),
    )
    def reg_mr(self, data: st.DataObject, place: str, span: Any, access: Access) -> None:
        if pds := self.owned("pd"):
            self.new_mr(self.pick(data, pds), Place(place, span[0]), span[1], access)

    @rule(data=st.data(), max_wr=st.sampled_from([8, 1, 2]))
    def create_srq(self, data: st.DataObject, max_wr: int) -> None:
        if pds := self.owned("pd"):
            name, pd = self.name("srq"), self.pick(data, pds)
            self.do.create_srq(name=name, pd=pd, max_wr=max_wr, max_sge=2)

    @rule(data=st.data(), entries=st.sampled_from([600, 1024, 512, 0]))
    def resize_cq(self, data: st.DataObject, entries: int) -> None:
        if names := self.owned("cq"):
            self.do.resize_cq(name=self.pick(data, names), entries=entries)

    @rule(
        data=st.data(),
        max_wr=st.sampled_from([None, None, 8, 16, 4, 2, 1, 0]),
        limit=st.sampled_from([None, 1, 2, 5, 0, 1 << 20]),
    )
    def modify_srq(self, data: st.DataObject, max_wr: int | None, limit: int | None) -> None:
        if names := self.owned("srq"):
            self.do.modify_srq(name=self.pick(data, names), max_wr=max_wr, limit=limit)

    @precondition(lambda self: self.setting.port == "direct")
    @rule(data=st.data(), group=st.sampled_from(GROUPS), leave=st.sampled_from(RARELY))
    def join_group(self, data: st.DataObject, group: str, leave: bool) -> None:
        """Mostly queue pairs that can; the third of three leaves again."""
        able = [n for n in self.owned("qp") if self.world.qps[n].kind == "UD"]
        names = able if able and data.draw(st.sampled_from([True, True, False])) else []
        names = names or self.owned("qp")
        if not names:
            return
        name, inside = self.pick(data, names), self.world.groups.get(group, ())
        if leave or name in inside or len(inside) >= 3:
            self.do.detach(name=name, group=group)
        else:
            self.do.attach(name=name, group=group)

    @rule(
        data=st.data(),
        kind=st.sampled_from(["RC", "UC", "UD"]),
        room=st.sampled_from([8, 2, 1]),
        sig_all=st.booleans(),
    )
    def create_qps(self, data: st.DataObject, kind: str, room: int, sig_all: bool) -> None:
        """One on each side, so that they can be connected."""
        for process in "AB":
            pds, cqs = self.owned("pd", process), self.owned("cq", process)
            if not pds or not cqs:
                return
            srq = self.pick(data, [None, *self.owned("srq", process)])
            pd = pds[0] if data.draw(st.booleans()) else self.pick(data, pds)
            send, recv = self.pick(data, cqs), self.pick(data, cqs)
            self.new_qp(process, pd, kind, send, recv, srq, room, sig_all)
        if data.draw(st.sampled_from([True, True, False])):
            a, b = (f"qp{self.counts['qp'] - 1}", f"qp{self.counts['qp']}")
            self.join(a, b, "RTS", "RTS", EVERYTHING, 16, 16)

    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        if names := [*self.world.owner]:
            self.do.close(name=self.pick(data, names))

    # ---- states ----

    def join(
        self, a: str, b: str, to_a: str, to_b: str, access: Access, reads: int, answers: int
    ) -> None:
        for name, peer, to in ((a, b, to_a), (b, a, to_b)):
            qp = self.world.qps[name]
            if qp.state != "RESET":
                self.modify_to(name, "RESET", set())
            if qp.kind == "UD":
                self.bring_up(name)
            else:
                self.do.connect(
                    name=name, to=to, peer=peer, access=access, reads=reads, answers=answers
                )

    def bring_up(self, name: str) -> None:
        self.modify_to(name, "INIT", {"PKEY_INDEX", "PORT", "QKEY"})
        self.modify_to(name, "RTR", set())
        self.modify_to(name, "RTS", {"SQ_PSN"})

    def modify_to(
        self, name: str, to: str, given: set[str], access: Access = EVERYTHING, qkey: int = 1
    ) -> None:
        self.do.modify(name=name, to=to, given=given, access=access, qkey=qkey)

    @rule(
        data=st.data(),
        reached=st.sampled_from(
            [("RTS", "RTS")] * 9 + [("RTS", "RTR"), ("RTS", "INIT"), ("INIT", "RTR")]
        ),
        access=st.sampled_from(ACCESSES),
        depth=st.sampled_from([(16, 16)] * 9 + [(1, 16), (0, 16), (16, 0)]),
    )
    def connect(self, data: st.DataObject, reached: Any, access: Access, depth: Any) -> None:
        a = self.owned("qp", "A")
        if not a:
            return
        first = self.pick(data, a)
        kind = self.world.qps[first].kind
        b = [name for name in self.owned("qp", "B") if self.world.qps[name].kind == kind]
        if b:
            self.disconnect(first)
            second = self.pick(data, b)
            self.disconnect(second)
            self.join(first, second, *reached, access, *depth)

    def disconnect(self, name: str) -> None:
        """Its former peer is reset too: who starts anew alone does not find the other's PSN."""
        for other, qp in list(self.world.qps.items()):
            if qp.peer == name or other == name:
                self.modify_to(other, "RESET", set())

    @rule(
        data=st.data(),
        to=st.sampled_from(STATES),
        access=st.sampled_from(ACCESSES),
        qkey=st.sampled_from(QKEYS),
    )
    def modify(self, data: st.DataObject, to: str, access: Access, qkey: int) -> None:
        names = self.owned("qp")
        if not names:
            return
        qp = self.world.qps[self.pick(data, names)]
        needed, optional = RULES[qp.kind].get((qp.state, to), (set(), set()))
        given = set(needed)
        extras = [a for a in ATTRIBUTES if a in optional]
        if extras and data.draw(st.booleans()):
            given.add(self.pick(data, extras))
        if data.draw(st.sampled_from(RARELY)):
            given ^= {self.pick(data, ATTRIBUTES)}
        if self.goes_on_alone(qp, to, given):
            return
        self.modify_to(qp.name, to, given, access, qkey)

    def goes_on_alone(self, qp: QueuePair, to: str, given: set[str]) -> bool:
        """Leaving INIT of a connected type is for ``connect``, which has the right attributes."""
        needs = RULES[qp.kind].get((qp.state, to), (set(), set()))[0]
        return "DEST_QPN" in needs and needs <= given

    # ---- requests ----

    def place_in(
        self, data: st.DataObject, process: str, key: str, length: int, *, wild: bool, step: int = 1
    ) -> Place:
        """Inside the region that the key names, or by all means not."""
        region = self.world.processes[process].regions.get(key)
        if region is None:
            return Place("own", 0)
        room = region.length - length
        if wild or room < 0:
            offset = self.pick(data, [room + 1, -1, 4, 1 << 30, 0])
        else:
            offset = self.pick(data, sorted({0, room // step * step, room // 2 // step * step}))
        return Place(region.place.arena, region.place.offset + offset)

    def key_of(
        self, data: st.DataObject, process: str, pd: str | None, length: int, *, wild: bool
    ) -> str:
        regions = self.world.processes[process].regions
        right = [
            name
            for name, region in regions.items()
            if pd in (None, region.pd) and region.length >= length and region.access == EVERYTHING
        ]
        if wild or not right:
            return str(self.pick(data, [NOTHING, *self.keys[process]]))
        return str(self.pick(data, right))

    def sge(self, data: st.DataObject, process: str, pd: str, length: int, *, wild: bool) -> Sge:
        key = self.key_of(data, process, pd, length, wild=wild)
        wild = wild and data.draw(st.booleans())
        return Sge(self.place_in(data, process, key, length, wild=wild), length, key)

    def sge_list(
        self, data: st.DataObject, process: str, pd: str, lengths: list[int]
    ) -> tuple[Sge, ...]:
        wild = data.draw(st.sampled_from(RARELY))
        count = self.pick(data, [1, 2, 0, 3] if wild else [1, 1, 1, 2])
        bad = data.draw(st.integers(0, count - 1)) if wild and count else -1
        return tuple(
            self.sge(data, process, pd, self.pick(data, lengths), wild=i == bad)
            for i in range(count)
        )

    def recvs(self, data: st.DataObject, process: str, pd: str, count: int) -> tuple[Recv, ...]:
        lengths = [600, 700, 640, *LENGTHS]
        return tuple(
            Recv(self.wr_id(), self.sge_list(data, process, pd, lengths)) for _ in range(count)
        )

    @rule(data=st.data(), count=st.sampled_from([1, 2, 3]))
    def post_recv(self, data: st.DataObject, count: int) -> None:
        if names := self.owned("qp"):
            qp = self.world.qps[self.pick(data, names)]
            requests = self.recvs(data, qp.process, qp.pd, count)
            self.do.post_recv(name=qp.name, requests=requests)

    @rule(data=st.data(), count=st.sampled_from([1, 2, 3]))
    def post_srq_recv(self, data: st.DataObject, count: int) -> None:
        if names := self.owned("srq"):
            name = self.pick(data, names)
            pd = self.world.srqs[name].pd
            requests = self.recvs(data, self.world.owner[name], pd, count)
            self.do.post_srq_recv(name=name, requests=requests)

    @rule(data=st.data(), count=st.sampled_from([1, 2, 3, 4]), receive=st.booleans())
    def post_send(self, data: st.DataObject, count: int, receive: bool) -> None:
        self.send(data, count, receive=receive)

    @rule(data=st.data(), rows=st.integers(1, 6))
    def post_rows(self, data: st.DataObject, rows: int) -> None:
        for _ in range(rows):
            self.send(data, self.pick(data, [1, 2, 3, 4]), receive=True)

    def send(self, data: st.DataObject, count: int, *, receive: bool) -> None:
        if not self.owned("qp"):
            return
        qp = self.sender(data)
        requests = tuple(self.send_request(data, qp) for _ in range(count))
        if receive:
            self.receive_for(data, qp, requests)
        self.do.post_send(name=qp.name, requests=requests)

    def sender(self, data: st.DataObject) -> QueuePair:
        """Mostly one that is connected; what is broken is connected again then."""
        names = self.owned("qp")
        name = str(self.pick(data, names))
        qp = self.world.qps[name]
        if qp.state in ("RTS", "SQD") or data.draw(st.sampled_from(RARELY)):
            return qp
        if qp.kind == "UD" or qp.peer in names:
            peer = qp.peer or name
            self.disconnect(name)
            if qp.kind == "UD":
                self.bring_up(name)
            else:
                self.join(*sorted([name, peer]), "RTS", "RTS", EVERYTHING, 16, 16)
        return self.world.qps[name]

    def receive_for(self, data: st.DataObject, qp: QueuePair, requests: tuple[Send, ...]) -> None:
        """A receive for each request that takes one, at whoever gets the first."""
        group = self.world.groups.get(requests[0].to or "", set())
        for name in sorted(group) or [requests[0].to or qp.peer or ""]:
            self.receive_at(data, self.world.qps.get(name), requests)

    def receive_at(
        self, data: st.DataObject, peer: QueuePair | None, requests: tuple[Send, ...]
    ) -> None:
        count = sum(wr.opcode.startswith("SEND") or wr.opcode.endswith("IMM") for wr in requests)
        if peer is None or peer.state == "RESET" or not count:
            return
        queue = self.world.srqs[peer.srq] if peer.srq else peer
        made = self.recvs(data, peer.process, self.world.receive_pd(peer), count)
        made = made[len(queue.receives) :]
        if made and peer.srq:
            self.do.post_srq_recv(name=peer.srq, requests=made)
        elif made:
            self.do.post_recv(name=peer.name, requests=made)

    def send_request(self, data: st.DataObject, qp: QueuePair) -> Send:
        right = [op for op in OPCODES if op in RDMA or qp.kind == "RC"]
        right = right if qp.kind != "UD" else ["SEND", "SEND_WITH_IMM"]
        wild = data.draw(st.sampled_from(RARELY))
        opcode = self.pick(data, OPCODES if wild else right)
        sges = self.sge_list(data, qp.process, qp.pd, LENGTHS)
        if opcode in ATOMIC:
            length = 4 if wild else 8
            sges = (self.sge(data, qp.process, qp.pd, length, wild=False),)
        flags = self.flags(data, sges, opcode in RDMA, wild=wild)
        if opcode == "RDMA_READ" and len(sges) > 1 and "SIGNALED" not in flags:
            flags = ("SIGNALED", *flags)  # where elements overlap, only its end says what is there
        fields: dict[str, Any] = {"flags": flags}
        if opcode not in ("SEND", "SEND_WITH_IMM"):
            fields |= self.target(data, qp, opcode, sum(sge.length for sge in sges))
        if opcode.endswith("IMM"):
            fields["imm"] = data.draw(st.integers(0, 2**32 - 1))
        if opcode in ATOMIC:
            fields |= {"compare_add": self.pick(data, [1, 2**63]), "swap": 7}
        if qp.kind == "UD":
            others = [n for n in self.owned("qp") if self.world.qps[n].kind == "UD"]
            joined = [group for group in GROUPS if self.world.groups.get(group)]
            fields |= {"to": self.pick(data, [*others, *joined, *joined])}
            fields |= {"qkey": self.pick(data, [1, 1, 1, 2, 1 << 31])}
        return Send(self.wr_id(), opcode, sges, **fields)

    def target(
        self, data: st.DataObject, qp: QueuePair, opcode: str, length: int
    ) -> dict[str, Any]:
        """The peer's range."""
        wild = data.draw(st.sampled_from(RARELY))
        there = "B" if qp.process == "A" else "A"
        peer = self.world.qps.get(qp.peer or "")
        length, step = (8, 8) if opcode in ATOMIC else (length, 1)
        key = self.key_of(data, there, peer.pd if peer else None, length, wild=wild)
        wild = wild and data.draw(st.booleans())
        return {
            "key": key,
            "place": self.place_in(data, there, key, length, wild=wild, step=step),
        }

    def flags(
        self, data: st.DataObject, sges: tuple[Sge, ...], sends: bool, *, wild: bool
    ) -> tuple[str, ...]:
        """INLINE reads the memory without asking: it must be there."""
        flags = self.pick(data, [("SIGNALED",)] * 4 + [(), ("FENCE", "SIGNALED"), ("SOLICITED",)])
        inside = all(
            sge.place.offset >= 0 and sge.place.offset + sge.length <= SIZE for sge in sges
        )
        fits = sends and sum(sge.length for sge in sges) <= 64
        inline = inside and (fits or wild) and data.draw(st.booleans())
        return (*flags, "INLINE") if inline else tuple(flags)

    @rule(
        process=st.sampled_from("AB"),
        arena=st.sampled_from(["own", "heap"]),
        offset=st.sampled_from([0, 1, 1000]),
        value=st.integers(0, 255),
    )
    def fill(self, process: str, arena: str, offset: int, value: int) -> None:
        self.do.fill(process=process, place=Place(arena, offset), data=bytes([value]) * 40)

    # ---- a process ends ----

    @precondition(lambda self: self.ends)
    @rule(process=st.sampled_from("AB"), kill=st.booleans())
    def end(self, process: str, kill: bool) -> None:
        probes = tuple(
            (qp.name, self.wr_id())
            for qp in self.world.qps.values()
            if qp.process != process
            and (qp.kind, qp.state) == ("RC", "RTS")
            and qp.peer is not None
            and qp.unpolled < qp.cap.send_wr
        )
        self.do.end(process=process, kill=kill, probes=probes)
        self.keys[process].clear()
