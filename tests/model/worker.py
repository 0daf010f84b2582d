# SPDX-License-Identifier: Apache-2.0
"""A process in which the core carries out what the model predicts.

python -m tests.model.worker DESCRIPTOR CARRIER

It reads lists of calls ``(party, name, arguments)`` and answers each list with a list of results. A
party has a device, arenas of memory, and objects by name. Addresses come as (arena, offset).
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from multiprocessing.connection import Connection
from typing import Any

from tests.sim.fabrics import star
from verbena import sim, verbs
from verbena.verbs import PlacementType, QPAttrMask, QPType, SendFlags, WROpcode

SIZE = 2048
MASK = 2**64 - 1
# path_mtu is 256 bytes, so that short messages have several packets. Both sides count from PSN.
MTU_256, PSN = 1, 77
FLUSH_SECONDS = 10
END_SECONDS = 20
FLUSH_FIELDS = ("extent", "placement")


class Party:
    def __init__(self) -> None:
        self.ctx = verbs.open_device()
        self.own_pd = self.ctx.alloc_pd()
        self.pages = mmap.mmap(-1, mmap.PAGESIZE)
        self.heap = self.own_pd.alloc(SIZE, 1)
        self.bases = {
            "own": ctypes.addressof(ctypes.c_char.from_buffer(self.pages)),
            "heap": self.heap.addr,
            "zero": 0,
        }
        self.dm = self.ctx.alloc_dm(SIZE)
        self.objects: dict[str, Any] = {}
        self.ahs: list[verbs.AH] = []
        self.attached: set[tuple[str, bytes]] = set()
        self.polled: list[tuple[Any, ...]] = []  # and not yet observed
        self.line_cq = self.ctx.create_cq(8)
        self.line: verbs.QP | None = None

    # ---- the connection that no program touches: what it carries has overtaken nothing ----

    def open_line(self) -> tuple[verbs.QPInfo, dict[str, int]]:
        if self.line is not None:
            self.line.close()
        self.line = self.own_pd.create_qp(send_cq=self.line_cq)
        return verbs.local_qp_info(self.line, psn=PSN)[0], self.bases

    def connect_line(self, peer: verbs.QPInfo) -> None:
        assert self.line is not None
        info, index = verbs.local_qp_info(self.line, psn=PSN)
        verbs.bring_up(self.line, info, peer, index)

    def barrier(self) -> None:
        """Everything that left before has arrived."""
        assert self.line is not None
        self.line.write([], 0, 0)
        for wc in self.line_cq.wait(1, 20) or [None]:
            if wc is None or not wc.is_success:
                raise RuntimeError(f"the idle connection failed: {wc}")

    def await_end(self) -> None:
        """Wait until this process knows that the peer was killed: its connections go to ERR."""
        assert self.line is not None
        deadline = time.monotonic() + END_SECONDS
        while self.line.state is not verbs.QPState.ERR:
            if time.monotonic() > deadline:
                raise RuntimeError("the peer was killed, and the line is not in ERR")
            time.sleep(0.0005)

    # ---- objects ----

    def fill(self, arena: str, offset: int, data: bytes) -> None:
        if arena == "dm":
            self.dm.copy_to(offset, data)
        else:
            ctypes.memmove(self.bases[arena] + offset, data, len(data))

    def alloc_pd(self, name: str) -> None:
        self.objects[name] = self.ctx.alloc_pd()

    def create_cq(self, name: str) -> None:
        self.objects[name] = self.ctx.create_cq(512)

    def resize_cq(self, name: str, entries: int) -> None:
        self.objects[name].resize(entries)

    def modify_srq(self, name: str, max_wr: int | None, limit: int | None) -> None:
        self.objects[name].modify(max_wr, limit)

    def size_of_srq(self, name: str) -> int:
        return int(self.objects[name].query().max_wr)

    def attach(self, name: str, group: bytes) -> None:
        self.objects[name].attach_mcast(group)
        self.attached.add((name, group))

    def detach(self, name: str, group: bytes) -> None:
        self.objects[name].detach_mcast(group)
        self.attached.discard((name, group))

    def reg_mr(self, name: str, pd: str, place: tuple[str, int], length: int, access: int) -> int:
        if place[0] == "dm":
            mr = self.objects[pd].reg_dm(self.dm, length, place[1], access)
        else:
            mr = self.objects[pd].reg_mr(self.address(place), length, access)
        self.objects[name] = mr
        return int(mr.lkey)

    def rereg_mr(self, name: str, pd: str | None, place: Any, length: int, access: Any) -> int:
        domain = self.objects[pd] if pd else None
        memory = {"addr": self.address(place), "length": length} if place else {}
        self.objects[name].reregister(pd=domain, access=access, **memory)
        return int(self.objects[name].lkey)

    def alloc_null_mr(self, name: str, pd: str) -> int:
        self.objects[name] = self.objects[pd].alloc_null_mr()
        return int(self.objects[name].lkey)

    def alloc_mw(self, name: str, pd: str, kind: int) -> int:
        self.objects[name] = self.objects[pd].alloc_mw(kind)
        return int(self.objects[name].rkey)

    def open_xrcd(self, name: str) -> None:
        self.objects[name] = self.ctx.open_xrcd()

    def create_srq(
        self, name: str, pd: str, max_wr: int, max_sge: int, xrcd: str | None, cq: str
    ) -> tuple[int, int, int]:
        """What it has room for, and an XRC SRQ's number."""
        domain = self.objects[pd]
        if xrcd:
            made = self.objects[xrcd].create_srq(domain, self.objects[cq], max_wr, max_sge)
        else:
            made = domain.create_srq(max_wr, max_sge)
        self.objects[name] = made
        attr = made.query()
        return attr.max_wr, attr.max_sge, made.srq_num if xrcd else 0

    def create_target(self, name: str, xrcd: str) -> None:
        self.objects[name] = self.objects[xrcd].create_qp()

    def create_qp(
        self, name: str, pd: str, kind: str, cqs: tuple[str, str], srq: str | None, fields: Any
    ) -> tuple[int, tuple[int, ...]]:
        qp = self.objects[pd].create_qp(
            qp_type=QPType[kind],
            send_cq=self.objects[cqs[0]],
            recv_cq=self.objects[cqs[1]],
            srq=self.objects[srq] if srq else None,
            **fields,
        )
        self.objects[name] = qp
        cap = qp.cap
        return qp.qp_num, (
            cap.max_send_wr,
            cap.max_recv_wr,
            cap.max_send_sge,
            cap.max_recv_sge,
            cap.max_inline_data,
        )

    def close(self, name: str) -> None:
        self.objects[name].close()
        del self.objects[name]
        self.attached = {(member, group) for member, group in self.attached if member != name}

    def clear(self) -> None:
        """Everything that a program has made, in an order that is allowed."""
        self.drop_ahs()
        self.polled.clear()
        for name, group in list(self.attached):
            self.detach(name, group)
        ranks = [verbs.QP, verbs.MW, verbs.SRQ, verbs.MR, verbs.CQ, verbs.XRCD, verbs.PD]
        for kind in ranks:
            for name in [n for n, made in self.objects.items() if isinstance(made, kind)]:
                self.close(name)

    # ---- states ----

    def info(self, name: str) -> verbs.QPInfo:
        return verbs.local_qp_info(self.objects[name], psn=PSN)[0]

    def modify(self, name: str, mask: list[str], fields: dict[str, Any]) -> None:
        self.objects[name].modify(mask_of(mask), **fields)

    def connect(self, name: str, to: str, peer: verbs.QPInfo, fields: dict[str, Any]) -> None:
        qp = self.objects[name]
        _, index = verbs.local_qp_info(qp, psn=PSN)
        qp.to_init(access=fields["access"])
        if to == "INIT":
            return
        qp.to_rtr(
            dest_qp_num=peer.qp_num,
            rq_psn=PSN,
            ah_attr=verbs.address_of(peer, index),
            path_mtu=MTU_256,
            max_dest_rd_atomic=fields["answers"],
            min_rnr_timer=1,
        )
        if to == "RTS":
            qp.to_rts(
                sq_psn=PSN,
                timeout=fields["timeout"],
                retry_cnt=fields["retry_cnt"],
                rnr_retry=1,
                max_rd_atomic=fields["reads"],
            )

    # ---- requests ----

    def address(self, place: tuple[str, int]) -> int:
        return (self.bases[place[0]] + place[1]) & MASK

    def sges(self, sges: list[tuple[tuple[str, int], int, int]]) -> list[verbs.SGE]:
        return [verbs.SGE(self.address(place), length, lkey) for place, length, lkey in sges]

    def post_recv(self, name: str, requests: list[tuple[int, Any]]) -> int:
        wrs = [verbs.RecvWR(wr_id, self.sges(sges)) for wr_id, sges in requests]
        self.objects[name].post_recv(wrs)
        return len(wrs)

    post_srq_recv = post_recv

    def post_send(self, name: str, requests: list[dict[str, Any]]) -> int:
        qp, posted = self.objects[name], 0
        for part in parts(requests):
            try:
                if part[0]["opcode"] == "FLUSH":
                    flush(qp, part[0])
                else:
                    qp.post_send([self.send_wr(qp, request) for request in part])
            except verbs.VerbsError as error:
                error.posted += posted
                raise
            posted += len(part)
        return posted

    def send_wr(self, qp: verbs.QP, request: dict[str, Any]) -> verbs.SendWR:
        fields = {word: value for word, value in request.items() if word not in FLUSH_FIELDS}
        to, peer = fields.pop("to"), {}
        taken_back = fields["rkey"]
        if to is not None:
            index = verbs.local_qp_info(qp)[1]
            if isinstance(to, bytes):
                ah = qp.pd.create_ah(dgid=to, sgid_index=index, is_global=True)
            else:
                ah = qp.pd.create_ah(verbs.address_of(to, index))
            self.ahs.append(ah)
            number = verbs.MULTICAST_QPN if isinstance(to, bytes) else to.qp_num
            peer = {"ah": ah, "remote_qpn": number}
            fields.pop("remote_addr")
        else:
            fields.pop("remote_qkey")
        flags = sum(SendFlags[flag] for flag in fields.pop("flags"))
        sges = self.sges(fields.pop("sges"))
        opcode = WROpcode[fields.pop("opcode")]
        made = verbs.SendWR(sg_list=sges, opcode=opcode, send_flags=flags, **peer, **fields)
        if opcode in (WROpcode.SEND_WITH_INV, WROpcode.LOCAL_INV):
            made.invalidate_rkey = taken_back
        return made

    def bind_mw(self, name: str, request: dict[str, Any], low: int | None) -> int:
        """The key that the window has then; of type 2 its low byte is ``low``."""
        qp, mw = self.objects[name], self.objects[request["window"]]
        rkey = None if low is None else mw.rkey & ~0xFF | low
        mr = self.objects[request["region"]] if request["region"] else None
        flags = sum(SendFlags[flag] for flag in request["flags"])
        where = (request["offset"], request["length"], request["access"])
        made = qp.bind_mw(mw, mr, *where, rkey=rkey, wr_id=request["wr_id"], flags=flags)
        return int(made)

    def drop_ahs(self) -> None:
        for ah in self.ahs:
            ah.close()
        self.ahs.clear()

    # ---- what can be seen ----

    def observe(self) -> tuple[Any, ...]:
        """What the CQs hold, the states of the QPs, the limits of the SRQs, and the arenas."""
        for name, cq in self.objects.items():
            if isinstance(cq, verbs.CQ):
                self.polled += [(name, *fields_of(wc)) for wc in cq.poll(64)]
        polled, self.polled = self.polled, []
        states = {n: qp.state.name for n, qp in self.objects.items() if isinstance(qp, verbs.QP)}
        srqs = {n: srq for n, srq in self.objects.items() if isinstance(srq, verbs.SRQ)}
        limits = {n: srq.query().srq_limit for n, srq in srqs.items()}
        return polled, states, self.arenas(), limits, self.reached(srqs)

    def arenas(self) -> dict[str, bytes]:
        found = {n: ctypes.string_at(self.bases[n], SIZE) for n in ("own", "heap")}
        return found | {"dm": self.dm.copy_from(0, SIZE)}

    def await_flush(self, name: str, wr_id: int) -> bool:
        """Whether it succeeds; polls nothing but its queue."""
        cq, deadline = self.objects[name].send_cq, time.monotonic() + FLUSH_SECONDS
        (cq_name,) = (n for n, made in self.objects.items() if made is cq)
        while time.monotonic() < deadline:
            found = cq.wait(1, 1)
            self.polled += [(cq_name, *fields_of(wc)) for wc in found]
            for wc in found:
                if wc.wr_id == wr_id:
                    return bool(wc.is_success)
        return False

    def reached(self, srqs: dict[str, Any]) -> list[str]:
        """The SRQs whose limits have been reached; all other events are read and dropped."""
        found = []
        while (event := self.ctx.get_async_event(0)) is not None:
            if event.event_type == verbs.EventType.SRQ_LIMIT_REACHED:
                found += [name for name, srq in srqs.items() if srq is event.element]
        return found


def parts(requests: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """What one call each can post: a list takes no FLUSH."""
    for alone, part in groupby(requests, lambda request: request["opcode"] == "FLUSH"):
        together = list(part)
        yield from ([request] for request in together) if alone else [together]


def flush(qp: verbs.QP, request: dict[str, Any]) -> None:
    placement = sum(PlacementType[each] for each in request["placement"])
    flags = sum(SendFlags[flag] for flag in request["flags"])
    where = (request["remote_addr"], request["rkey"], request["extent"])
    how = {"wr_id": request["wr_id"], "flags": flags, "remote_srqn": request["remote_srqn"]}
    qp.flush(*where, placement=placement, **how)


def fields_of(wc: verbs.WC) -> tuple[Any, ...]:
    if not wc.is_success:
        return wc.qp_num, wc.wr_id, wc.status.name, "", None, None, None, None
    imm = wc.imm_data if wc.wc_flags & verbs.WCFlags.WITH_IMM else None
    key = wc.invalidated_rkey if wc.wc_flags & verbs.WCFlags.WITH_INV else None
    return wc.qp_num, wc.wr_id, "SUCCESS", wc.opcode.name, wc.byte_len, imm, wc.src_qp, key


def mask_of(names: list[str]) -> int:
    mask = int(QPAttrMask.STATE)
    for name in names:
        mask |= QPAttrMask[name]
    return mask


class Place:
    """Where both parties are: this machine."""

    def of(self, party: str) -> AbstractContextManager[object]:
        """Within it devices are the party's."""
        return nullcontext()

    def pass_time(self) -> None:
        """Somebody looks whether something has happened."""


class SimulatedFabric(Place):
    """Where each is on a host of its own; time passes while somebody looks."""

    LOOK = 1_000_000_000  # picoseconds

    def __init__(self) -> None:
        world = sim.World(seed=1)
        star(world, 2)
        self.hosts = sim.Hosts(world, ["A", "B"])

    def of(self, party: str) -> AbstractContextManager[object]:
        return self.hosts[party].here()

    def pass_time(self) -> None:
        world = self.hosts.world
        world.run(until=world.now + self.LOOK)


def answer(
    where: Place, parties: dict[str, Party], party: str, name: str, args: tuple[Any, ...]
) -> Any:
    """("ok", value), ("errno", name, posted), or ("bug", text)."""
    if name == "observe":
        where.pass_time()
    with where.of(party):
        return answer_of(parties, party, name, args)


def answer_of(parties: dict[str, Party], party: str, name: str, args: tuple[Any, ...]) -> Any:
    """("ok", value), ("errno", name, posted), or ("bug", text)."""
    try:
        if name == "open":
            parties[party] = Party()
            return "ok", None
        return "ok", getattr(parties[party], name)(*args)
    except verbs.VerbsError as error:
        return "errno", errno.errorcode.get(error.errno or 0, str(error.errno)), error.posted
    except Exception:
        return "bug", traceback.format_exc()


def serve(pipe: Connection, where: Place) -> None:
    parties: dict[str, Party] = {}
    while True:
        try:
            calls = pipe.recv()
        except EOFError:
            return
        pipe.send([answer(where, parties, *call) for call in calls])


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), SimulatedFabric() if sys.argv[2] == "sim" else Place())
