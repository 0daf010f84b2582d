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
from tests.model.reference.posting import ATOMIC, BARE, OPERATIONS, SENDING
from tests.model.reference.queues import QueuePair
from tests.model.reference.regions import Memory
from tests.model.reference.states import RULES
from tests.model.reference.words import NOTHING, Access, Bind, Place, Recv, Send, Sge
from tests.model.worker import SIZE

EVERYTHING = Access(15) | Access.FLUSH_GLOBAL
FLUSHES = Access.FLUSH_GLOBAL | Access.FLUSH_PERSISTENT
SOME = [Access(flags) for flags in range(16)] + [EVERYTHING & ~FLUSHES, Access.FLUSH_GLOBAL]
ACCESSES = [EVERYTHING] * 24 + SOME + [EVERYTHING | FLUSHES]
WHOLE = EVERYTHING | Access.MW_BIND
ZERO = Access.ZERO_BASED
REGIONS = [WHOLE] * 16 + [WHOLE | ZERO] * 6 + SOME + [WHOLE | Access.FLUSH_PERSISTENT]
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
    "ATOMIC_WRITE",
    "FLUSH",
    "SEND_WITH_INV",
    "LOCAL_INV",
]
PEER_KINDS = {"XRC_SEND": "XRC_RECV", "XRC_RECV": "XRC_SEND"}
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

    @initialize(
        data=st.data(), scene=st.sampled_from(["", "windows", "shared", "group", "xrc", "windows"])
    )
    def begin(self, data: st.DataObject, scene: str) -> None:
        """A connection that works, which a program may break; with windows, with a shared receive
        queue, beside datagrams to a group, or beside an XRC connection."""
        for process in "AB":
            pd, cq = self.new_pd(process), self.new_cq(process)
            self.new_mr(pd, Place("own", 0), SIZE, WHOLE)
            srq = self.new_srq(data, pd) if scene == "shared" else None
            self.new_qp(process, pd, "RC", cq, cq, srq, 8, False)
            if scene == "group":
                self.new_qp(process, pd, "UD", cq, cq, None, 8, False)
        if scene == "group":
            self.set_up_group()
        else:
            self.join("qp1", "qp2", "RTS", "RTS", EVERYTHING, 16, 16)
        if scene == "windows":
            for pd, qp, kind in (("pd1", "qp1", 2), ("pd2", "qp2", 2), ("pd2", "qp2", 1)):
                self.bind(data, qp, self.new_mw(pd, kind), wild=False)
        if scene == "xrc":
            self.new_xrc(data, "pd1", "pd2")

    def new_mw(self, pd: str, kind: int) -> str:
        name = self.name("mw")
        self.do.alloc_mw(name=name, pd=pd, kind=kind)
        return name

    def new_xrc(self, data: st.DataObject, pd: str, there: str) -> None:
        """A connected initiator in one domain, target and SRQs in another."""
        process, peer = self.world.owner[pd], self.world.owner[there]
        cq, far = self.owned("cq", process), self.owned("cq", peer)
        if not cq or not far or peer == process:
            return
        domain = self.name("xrcd")
        self.do.open_xrcd(process=peer, name=domain)
        for _ in range(2):
            self.new_xrc_srq(there, domain, self.pick(data, far), 8)
        self.new_qp(process, pd, "XRC_SEND", cq[0], cq[0], None, 8, False)
        initiator, target = f"qp{self.counts['qp']}", self.name("qp")
        self.do.create_target(name=target, xrcd=domain)
        self.join(initiator, target, "RTS", "RTS", EVERYTHING, 16, 16)

    def new_xrc_srq(self, pd: str, domain: str, cq: str, room: int) -> None:
        name = self.name("srq")
        self.do.create_srq(name=name, pd=pd, max_wr=room, max_sge=2, xrcd=domain, cq=cq)

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
            if self.setting.carrier == "direct":
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
            cap=(room, 0, 2, 0, 64) if kind == "XRC_SEND" else (room, room, 2, 2, 64),
            sig_all=sig_all,
        )

    @rule(data=st.data(), process=st.sampled_from("AB"), kind=st.sampled_from(["pd", "cq", "mr"]))
    def create(self, data: st.DataObject, process: str, kind: str) -> None:
        if kind == "pd":
            self.new_pd(process)
        elif kind == "cq":
            self.new_cq(process)
        elif pds := self.owned("pd", process):
            name = self.name("mr")
            self.do.alloc_null_mr(name=name, pd=self.pick(data, pds))
            self.keys[process].append(name)

    @rule(
        data=st.data(),
        place=st.sampled_from(["own", "heap", "own", "heap", "dm"]),
        span=st.sampled_from(RANGES),
        access=st.sampled_from(REGIONS),
    )
    def reg_mr(self, data: st.DataObject, place: str, span: Any, access: Access) -> None:
        if not (pds := self.owned("pd")):
            return
        if place == "dm":  # Python asks for device memory's flag by itself
            access |= ZERO
            access &= data.draw(st.sampled_from([EVERYTHING | ZERO] * 3 + [WHOLE | ZERO]))
        self.new_mr(self.pick(data, pds), Place(place, span[0]), span[1], access)

    @rule(
        data=st.data(),
        span=st.sampled_from([None, None, *RANGES]),
        access=st.sampled_from([None, *REGIONS]),
    )
    def rereg_mr(self, data: st.DataObject, span: Any, access: Access | None) -> None:
        """Mostly a region to which no window is bound."""
        process = data.draw(st.sampled_from("AB"))
        memory = self.world.processes[process]
        names = [(one.name, one.place.arena) for one in memory.regions.values()]
        if not names:
            return
        name, arena = self.pick(data, names)
        pd = self.pick(data, [None, *self.owned("pd", process)])
        if arena == "dm":  # which Python holds: it has no other memory
            span = None
        if pd is None and span is None and access is None:
            return
        place = Place(self.pick(data, ["own", "heap"]), span[0]) if span else None
        key, length = f"{name}:{self.wr_id()}", span[1] if span else 0
        fields = {"pd": pd, "place": place, "length": length, "access": access}
        error, _ = self.do.rereg_mr(name=name, key=key, **fields)
        if error is None and place:
            self.keys[process].append(key)

    # ---- windows ----

    @rule(
        data=st.data(),
        wild=st.sampled_from([False, False, False, True]),
        new=st.sampled_from([0, 2, 0, 1]),
    )
    def bind_mw(self, data: st.DataObject, wild: bool, new: int) -> None:
        """Mostly through a queue pair that takes it, and one of type 2 that is free."""
        if new and (pds := self.owned("pd")):
            self.new_mw(self.pick(data, pds), new)
        qps = [n for n in self.owned("qp") if wild or self.world.qps[n].state in ("RTS", "SQD")]
        if not qps:
            return
        qp = self.world.qps[self.pick(data, qps)]
        made = self.world.memory(qp).windows
        free = [n for n, w in made.items() if w.pd == qp.pd and (w.type == 1 or not w.bound)]
        if names := (free if free and not wild else list(made)):
            self.bind(data, qp.name, self.pick(data, names), wild=wild)

    def bind(self, data: st.DataObject, name: str, window: str, *, wild: bool) -> None:
        qp = self.world.qps[name]
        memory = self.world.memory(qp)
        low = self.number + 1 if memory.windows[window].type == 1 else self.pick(data, [1, 2, 3])
        key, access = f"{window}:{low}", EVERYTHING
        if memory.windows[window].type == 2 and data.draw(st.booleans()):
            access |= ZERO
        if wild or data.draw(st.sampled_from(RARELY)):
            access = self.pick(data, [access, access | FLUSHES, *SOME])
        where = self.part_of_region(data, memory, qp.pd, wild=wild)
        request = Bind(self.wr_id(), window, key, *where, access, self.plain_flags(data))
        error, _ = self.do.bind_mw(name=name, request=request)
        if error is None:
            self.keys[qp.process].append(key)

    def part_of_region(
        self, data: st.DataObject, memory: Memory, pd: str, *, wild: bool
    ) -> tuple[str, Place, int]:
        """What a window is bound to: a region's name or none, an address, a length."""
        names = [
            name
            for name, region in memory.regions.items()
            if wild or (region.pd == pd and region.access == WHOLE)
        ]
        if not names or (wild and data.draw(st.sampled_from(RARELY))):
            return "", Place("own", 0), 0
        name = self.pick(data, names)
        region = memory.regions[name]
        offset = self.pick(data, [0, 8, region.length // 2, *([region.length - 1] if wild else [])])
        room = max(region.length - offset, 0)
        length = self.pick(data, [room, min(room, 300), *([0, room + 1] if wild else [])])
        return name, Place(region.start.arena, region.start.offset + offset), length

    def can_be_taken_back(self, qp: QueuePair, opcode: str) -> list[str]:
        """The keys that a LOCAL_INV, or a SEND_WITH_INV, invalidates."""
        through = qp if opcode == "LOCAL_INV" else self.world.qps.get(qp.peer or "")
        if through is None:
            return []
        made = self.world.memory(through).windows.values()
        return [w.bound.key for w in made if w.bound is not None and w.bound.qp == through.name]

    # ---- XRC ----

    @rule(data=st.data(), room=st.sampled_from([8, 1, 2]))
    def create_xrc(self, data: st.DataObject, room: int) -> None:
        """A connection, or one SRQ more."""
        domains = self.owned("xrcd")
        if len(domains) < 3:
            here, there = self.pick(data, ["AB", "BA"])
            a, b = self.owned("pd", here), self.owned("pd", there)
            if a and b:
                self.new_xrc(data, self.pick(data, a), self.pick(data, b))
            return
        domain = self.pick(data, domains)
        process = self.world.owner[domain]
        pds, cqs = self.owned("pd", process), self.owned("cq", process)
        if pds and cqs:
            self.new_xrc_srq(self.pick(data, pds), domain, self.pick(data, cqs), room)

    # ---- more objects ----

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

    @precondition(lambda self: self.setting.carrier == "direct")
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
            srq = None if srq and self.world.srqs[srq].xrcd else srq
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
        kind = PEER_KINDS.get(kind, kind)
        b = [name for name in self.owned("qp", "B") if self.world.qps[name].kind == kind]
        if b:
            self.disconnect(first)
            second = self.pick(data, b)
            self.disconnect(second)
            if self.world.qps[first].kind == "XRC_RECV":
                first, second = second, first
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
        region = self.world.processes[process].named(key)
        if region is None:
            return Place("own", 0)
        room = region.length - length
        if wild or room < 0:
            offset = self.pick(data, [room + 1, -1, 4, 1 << 30, 0])
        else:
            offset = self.pick(data, sorted({0, room // step * step, room // 2 // step * step}))
        return Place(region.start.arena, region.start.offset + offset)

    def key_of(
        self, data: st.DataObject, process: str, pd: str | None, length: int, *, wild: bool
    ) -> str:
        regions = self.world.processes[process].regions
        right = [
            name
            for name, region in regions.items()
            if pd in (None, region.pd) and region.length >= length and is_whole(region.access)
        ]
        right += [null for null, of in self.world.processes[process].nulls.items() if of == pd]
        if wild or not right:
            return str(self.pick(data, [NOTHING, *self.keys[process]]))
        return str(self.pick(data, right))

    def remote_key_of(
        self, data: st.DataObject, process: str, peer: QueuePair | None, pd: str, length: int
    ) -> str:
        """More often a window's than a region's."""
        memory = self.world.processes[process]
        right = [
            window.bound.key
            for window in memory.windows.values()
            if window.bound is not None
            and window.pd == pd
            and window.bound.qp in (None, peer.name if peer else None)
            and window.bound.length >= length
        ]
        if not right or data.draw(st.sampled_from([False, False, True])):
            right = [
                name
                for name, region in memory.regions.items()
                if pd in ("", region.pd) and region.length >= length and is_whole(region.access)
            ]
        if not right:
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
        able = [name for name in names if self.world.qps[name].kind != "XRC_RECV"]
        if able and not data.draw(st.sampled_from(RARELY)):
            names = able
        name = str(self.pick(data, names))
        qp = self.world.qps[name]
        if qp.kind == "XRC_RECV":
            return qp
        if qp.state in ("RTS", "SQD") or data.draw(st.sampled_from(RARELY)):
            return qp
        if qp.kind == "UD" or qp.peer in self.world.qps:
            peer = qp.peer or name
            self.disconnect(name)
            if qp.kind == "UD":
                self.bring_up(name)
            else:
                self.join(name, peer, "RTS", "RTS", EVERYTHING, 16, 16)
        return self.world.qps[name]

    def receive_for(self, data: st.DataObject, qp: QueuePair, requests: tuple[Send, ...]) -> None:
        """A receive for each request that takes one, at whoever gets the first."""
        if qp.kind == "XRC_SEND":
            for wr in requests:
                self.receive_at_srq(data, wr)
            return
        group = self.world.groups.get(requests[0].to or "", set())
        for name in sorted(group) or [requests[0].to or qp.peer or ""]:
            self.receive_at(data, self.world.qps.get(name), requests)

    def receive_at(
        self, data: st.DataObject, peer: QueuePair | None, requests: tuple[Send, ...]
    ) -> None:
        count = sum(map(takes_receive, requests))
        if peer is None or peer.state == "RESET" or not count:
            return
        queue = self.world.srqs[peer.srq] if peer.srq else peer
        made = self.recvs(data, peer.process, self.world.receive_pd(peer), count)
        made = made[len(queue.receives) :]
        if made and peer.srq:
            self.do.post_srq_recv(name=peer.srq, requests=made)
        elif made:
            self.do.post_recv(name=peer.name, requests=made)

    def receive_at_srq(self, data: st.DataObject, wr: Send) -> None:
        srq = self.world.srqs.get(wr.srq)
        if srq is not None and takes_receive(wr):
            requests = self.recvs(data, self.world.owner[wr.srq], srq.pd, 1)
            self.do.post_srq_recv(name=wr.srq, requests=requests)

    def send_request(self, data: st.DataObject, qp: QueuePair) -> Send:
        right = [op for op in OPCODES if op in OPERATIONS.get(qp.kind, OPCODES)]
        right = [op for op in right if op[-3:] != "INV" or self.can_be_taken_back(qp, op)]
        right += [op for op in right if op.endswith("INV")] * 2
        wild = data.draw(st.sampled_from(RARELY))
        opcode = self.pick(data, OPCODES if wild else right)
        sges = self.sge_list(data, qp.process, qp.pd, LENGTHS)
        if opcode.startswith("ATOMIC"):
            length = self.pick(data, [4, 12]) if wild else 8
            sges = (self.sge(data, qp.process, qp.pd, length, wild=False),)
        sges = () if opcode in BARE else sges
        if qp.kind == "UD" and sum(sge.length for sge in sges) > 1000:
            sges = sges[:1]  # a datagram is one packet, of 1024 bytes on some networks
        flags = self.flags(data, sges, opcode in SENDING, wild=wild)
        if opcode == "RDMA_READ" and len(sges) > 1 and "SIGNALED" not in flags:
            flags = ("SIGNALED", *flags)  # where elements overlap, only its end says what is there
        fields: dict[str, Any] = {"flags": flags}
        if qp.kind == "XRC_SEND":
            fields["srq"] = self.srq_of(data, qp)
        if opcode.endswith("INV"):
            there = qp.process if opcode == "LOCAL_INV" else "AB"[qp.process == "A"]
            keys = [] if wild else self.can_be_taken_back(qp, opcode)
            fields["key"] = self.pick(data, keys or [NOTHING, *self.keys[there]])
        elif opcode not in ("SEND", "SEND_WITH_IMM"):
            length = sum(sge.length for sge in sges)
            if opcode == "FLUSH":
                fields |= self.promise(data, wild=wild)
                length = fields["extent"] or 0
            fields |= self.target(data, qp, opcode, length, fields.get("srq", NOTHING))
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

    def promise(self, data: st.DataObject, *, wild: bool) -> dict[str, Any]:
        """What a FLUSH is for."""
        extent = self.pick(data, [None, 2**31, 2**31 + 1] if wild else [None, *LENGTHS, 1024])
        kinds = [("GLOBAL", "PERSISTENT"), ("PERSISTENT",), ()] if wild else [("GLOBAL",)]
        return {"extent": extent, "placement": self.pick(data, [("GLOBAL",), *kinds])}

    def srq_of(self, data: st.DataObject, qp: QueuePair) -> str:
        """Mostly one that the target delivers to."""
        peer = self.world.qps.get(qp.peer or "")
        wild = data.draw(st.sampled_from(RARELY))
        srqs = [n for n, srq in self.world.srqs.items() if peer and srq.xrcd == peer.xrcd]
        named = [f"srq{n + 1}" for n in range(self.counts.get("srq", 0))]
        return str(self.pick(data, [NOTHING, *named] if wild or not srqs else srqs))

    def target(
        self, data: st.DataObject, qp: QueuePair, opcode: str, length: int, srq: str
    ) -> dict[str, Any]:
        """The peer's range."""
        wild = data.draw(st.sampled_from(RARELY))
        there = "B" if qp.process == "A" else "A"
        peer = self.world.qps.get(qp.peer or "")
        length, step = (8, 8) if opcode.startswith("ATOMIC") else (length, 1)
        pd = self.world.srqs[srq].pd if srq in self.world.srqs else peer.pd if peer else ""
        if wild:
            key = self.key_of(data, there, None, length, wild=True)
        else:
            key = self.remote_key_of(data, there, peer, pd, length)
        wild = wild and data.draw(st.booleans())
        return {
            "key": key,
            "place": self.place_in(data, there, key, length, wild=wild, step=step),
        }

    def flags(
        self, data: st.DataObject, sges: tuple[Sge, ...], sends: bool, *, wild: bool
    ) -> tuple[str, ...]:
        """INLINE reads the memory without asking: it must be there."""
        flags = self.plain_flags(data)
        inside = all(
            sge.place.arena in ("own", "heap")
            and sge.place.offset >= 0
            and sge.place.offset + sge.length <= SIZE
            for sge in sges
        )
        fits = sends and sum(sge.length for sge in sges) <= 64
        inline = inside and (fits or wild) and data.draw(st.booleans())
        return (*flags, "INLINE") if inline else flags

    def plain_flags(self, data: st.DataObject) -> tuple[str, ...]:
        variants = [("SIGNALED",)] * 4 + [(), ("FENCE", "SIGNALED"), ("SOLICITED",)]
        return tuple(self.pick(data, variants))

    @rule(
        process=st.sampled_from("AB"),
        arena=st.sampled_from(["own", "heap", "dm"]),
        offset=st.sampled_from([0, 1, 1000]),
        value=st.integers(0, 255),
    )
    def fill(self, process: str, arena: str, offset: int, value: int) -> None:
        offset = offset // 4 * 4 if arena == "dm" else offset  # IBV_DM's unit
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


def is_whole(access: Access) -> bool:
    return access & EVERYTHING == EVERYTHING


def takes_receive(wr: Send) -> bool:
    return wr.opcode.startswith("SEND") or wr.opcode.endswith("IMM")
