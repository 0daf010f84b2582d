# SPDX-License-Identifier: Apache-2.0
"""The core, in one process or in two, spoken to in the model's words."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from tests.model.reference.queues import Cap
from tests.model.reference.words import Access, Bind, Completion, Place, Recv, Send, Sge
from tests.model.worker import PSN
from tests.support import ROOT
from verbena import verbs

Result = tuple[str | None, int]
ANSWER_SECONDS = 30
GROUPS = ipaddress.IPv6Address("ff0e::77:0:0:0")


@dataclass(frozen=True)
class Setting:
    """A carrier, and whether A and B are one process or two; on a simulated fabric they are one.

    ``timeout`` and ``retry_cnt`` decide how long a request to nobody takes. Packets need a time in
    which a busy machine answers for sure, and so does an ATOMIC_WRITE to what only the other
    process has mapped, as that one's service thread makes it.
    """

    carrier: str
    processes: int

    @property
    def timers(self) -> dict[str, int]:
        if self.carrier == "roce":
            return {"timeout": 15, "retry_cnt": 3}
        return {"timeout": 10 if self.processes == 1 else 14, "retry_cnt": 3}


class CoreFailed(Exception):
    """The core's process ended, does not answer, or raised something that is no errno."""


class Worker:
    def __init__(self, carrier: str) -> None:
        here, there = socket.socketpair()
        command = [sys.executable, "-m", "tests.model.worker", str(there.fileno()), carrier]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        if carrier != "sim":
            environment["VERBENA_CARRIER"] = carrier
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, pass_fds=[there.fileno()]
        )
        there.close()
        self.pipe = Connection(here.detach())

    def call(self, calls: list[tuple[Any, ...]]) -> list[Any]:
        try:
            self.pipe.send(calls)
            if not self.pipe.poll(ANSWER_SECONDS):
                raise CoreFailed(f"no answer to {calls[0][:2]} within {ANSWER_SECONDS} s")
            answers: list[Any] = self.pipe.recv()
        except (EOFError, OSError) as error:
            code = self.process.wait(10)
            raise CoreFailed(f"the process ended ({code}) in {calls[0][:2]}") from error
        return answers

    def end(self, *, kill: bool) -> None:
        if kill:
            self.process.send_signal(signal.SIGKILL)
        self.pipe.close()
        self.process.wait(20)


@dataclass
class Observed:
    """What polling and looking has shown."""

    completions: list[Completion] = field(default_factory=list)
    where: dict[int, str] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    memory: dict[str, dict[str, bytes]] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    reached: Counter[str] = field(default_factory=Counter)


class Core:
    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.workers: dict[str, Worker] = {}
        self.bases: dict[str, dict[str, int]] = {}
        self.start_all()

    # ---- processes ----

    def start_all(self) -> None:
        first = Worker(self.setting.carrier)
        second = first if self.setting.processes == 1 else Worker(self.setting.carrier)
        self.workers = {"A": first, "B": second}
        for party in "AB":
            self.must(party, "open")
        self.meet()

    def meet(self) -> None:
        """Names mean nothing yet; the idle connection is made."""
        self.owner: dict[str, str] = {}
        self.keys: dict[str, int] = {}
        self.windows: dict[str, int] = {}  # the types of the windows
        self.numbers: dict[str, int] = {}  # of the XRC SRQs
        self.infos: dict[str, verbs.QPInfo] = {}
        lines = {}
        for party in "AB":
            lines[party], self.bases[party] = self.must(party, "open_line")
        self.must("A", "connect_line", lines["B"])
        self.must("B", "connect_line", lines["A"])

    def stop(self, *, kill: bool = False) -> None:
        for worker in set(self.workers.values()):
            worker.end(kill=kill)

    def clear(self, data: dict[tuple[str, str], bytes]) -> None:
        """As if nothing had been done: for the next program."""
        for party in "AB":
            self.must(party, "clear")
        self.owner.clear()
        self.keys.clear()
        self.windows.clear()
        self.numbers.clear()
        self.infos.clear()
        for (party, arena), content in data.items():
            self.must(party, "fill", arena, 0, content)

    def end(
        self, process: str, kill: bool, probes: tuple[tuple[str, int], ...], bound: list[str]
    ) -> None:
        """One of the two processes ends; ``bound`` were connected to it, and go to ERR.

        A process that ends by itself closes its queue pairs before. After a kill, a request that is
        carried out directly may still succeed, as one from before it, until the other process's
        service thread has noticed. So this waits for that.
        """
        self.workers[process].end(kill=kill)
        if kill and self.setting.carrier == "direct":
            self.must("B" if process == "A" else "A", "await_end")
        for name, wr_id in probes:
            error, _ = self.post_send(name, (Send(wr_id, "SEND"),), process)
            if error:
                raise CoreFailed(f"{name}, whose peer has ended, takes no request: {error}")
        for name in bound:
            self.must(self.owner[name], "modify", name, [], {"qp_state": verbs.QPState.ERR})

    def restart(self, process: str) -> None:
        owner, infos, names = self.owner, self.infos, (self.keys, self.windows, self.numbers)
        self.workers[process] = Worker(self.setting.carrier)
        self.must(process, "open")
        self.meet()
        gone = {name for name, where in owner.items() if where == process}
        self.owner = {n: where for n, where in owner.items() if n not in gone}
        self.keys, self.windows, self.numbers = names
        self.infos = infos

    def call(self, party: str, name: str, *args: Any) -> Any:
        (answer,) = self.workers[party].call([(party, name, args)])
        if answer[0] == "bug":
            raise CoreFailed(answer[1])
        return answer

    def must(self, party: str, name: str, *args: Any) -> Any:
        answer = self.call(party, name, *args)
        if answer[0] != "ok":
            raise CoreFailed(f"{name} failed with {answer[1]}")
        return answer[1]

    def result(self, party: str, name: str, *args: Any) -> Result:
        answer = self.call(party, name, *args)
        if answer[0] == "errno":
            return answer[1], answer[2]
        return None, answer[1] if isinstance(answer[1], int) else 0

    # ---- the model's calls ----

    def alloc_pd(self, process: str, name: str) -> Result:
        return self.made(name, self.result(process, "alloc_pd", name), process)

    def create_cq(self, process: str, name: str) -> Result:
        return self.made(name, self.result(process, "create_cq", name), process)

    def made(self, name: str, result: Result, process: str) -> Result:
        if result[0] is None:
            self.owner[name] = process
        return result[0], 0

    def reg_mr(self, name: str, pd: str, place: Place, length: int, access: Access) -> Result:
        process = self.owner[pd]
        args = (name, pd, (place.arena, place.offset), length, int(access))
        error, key = self.result(process, "reg_mr", *args)
        if error is None:
            name_number(self.keys, name, key)
        return self.made(name, (error, 0), process)

    def rereg_mr(
        self,
        name: str,
        key: str,
        pd: str | None,
        place: Place | None,
        length: int,
        access: Access | None,
    ) -> Result:
        at = (place.arena, place.offset) if place else None
        flags = None if access is None else int(access)
        error, number = self.result(self.owner[name], "rereg_mr", name, pd, at, length, flags)
        if error is None and place:
            name_number(self.keys, key, number)
        return error, 0

    def alloc_null_mr(self, name: str, pd: str) -> Result:
        process = self.owner[pd]
        name_number(self.keys, name, self.must(process, "alloc_null_mr", name, pd))
        return self.made(name, (None, 0), process)

    def alloc_mw(self, name: str, pd: str, kind: int) -> Result:
        process = self.owner[pd]
        self.must(process, "alloc_mw", name, pd, kind)
        self.windows[name] = kind
        return self.made(name, (None, 0), process)

    def open_xrcd(self, process: str, name: str) -> Result:
        self.must(process, "open_xrcd", name)
        return self.made(name, (None, 0), process)

    def create_srq(
        self, name: str, pd: str, max_wr: int, max_sge: int, xrcd: str | None = None, cq: str = ""
    ) -> tuple[int, int]:
        process = self.owner[pd]
        max_wr, max_sge, number = self.must(
            process, "create_srq", name, pd, max_wr, max_sge, xrcd, cq
        )
        name_number(self.numbers, name, number)
        self.owner[name] = process
        return max_wr, max_sge

    def create_target(self, name: str, xrcd: str) -> Result:
        process = self.owner[xrcd]
        self.must(process, "create_target", name, xrcd)
        self.infos[name] = self.must(process, "info", name)
        return self.made(name, (None, 0), process)

    def create_qp(
        self, name: str, pd: str, kind: str, cqs: tuple[str, str], srq: str | None, fields: Any
    ) -> Cap:
        process = self.owner[pd]
        args = (name, pd, kind, cqs, srq, fields)
        (answer,) = self.workers[process].call([(process, "create_qp", args)])
        if answer[0] != "ok":
            raise CoreFailed(f"create_qp failed: {answer[1]}")
        self.owner[name] = process
        self.infos[name] = self.must(process, "info", name)
        return Cap(*answer[1][1])

    def resize_cq(self, name: str, entries: int) -> Result:
        return self.result(self.owner[name], "resize_cq", name, entries)[0], 0

    def modify_srq(self, name: str, max_wr: int | None, limit: int | None) -> tuple[Result, int]:
        """And the size that it has then."""
        error, _ = self.result(self.owner[name], "modify_srq", name, max_wr, limit)
        return (error, 0), self.must(self.owner[name], "size_of_srq", name)

    def attach(self, name: str, group: str) -> Result:
        return self.result(self.owner[name], "attach", name, gid_of(group))[0], 0

    def detach(self, name: str, group: str) -> Result:
        return self.result(self.owner[name], "detach", name, gid_of(group))[0], 0

    def close(self, name: str) -> Result:
        error, _ = self.result(self.owner[name], "close", name)
        if error is None:
            del self.owner[name]
        return error, 0

    def modify(
        self, name: str, to: str, given: set[str], access: Access, qkey: int, now: str
    ) -> Result:
        values = self.timers_of(self.values(name, access, qkey))
        values["CUR_STATE"] = verbs.QPState[now]
        fields = {field: values[mask] for mask, field in FIELDS.items() if mask in given}
        fields["qp_state"] = verbs.QPState[to]
        return self.result(self.owner[name], "modify", name, sorted(given), fields)[0], 0

    def values(self, name: str, access: Access, qkey: int) -> dict[str, Any]:
        return {
            "PKEY_INDEX": 0,
            "PORT": 1,
            "ACCESS_FLAGS": int(access),
            "QKEY": qkey,
            "PATH_MTU": 1,
            "DEST_QPN": self.infos[name].qp_num,
            "RQ_PSN": PSN,
            "SQ_PSN": PSN,
            "RNR_RETRY": 1,
            "MAX_QP_RD_ATOMIC": 16,
            "MAX_DEST_RD_ATOMIC": 16,
            "MIN_RNR_TIMER": 1,
        }

    def timers_of(self, values: dict[str, Any]) -> dict[str, Any]:
        timers = self.setting.timers
        return values | {"TIMEOUT": timers["timeout"], "RETRY_CNT": timers["retry_cnt"]}

    def connect(
        self, name: str, to: str, peer: str, access: Access, reads: int, answers: int
    ) -> Result:
        fields = self.setting.timers | {"access": int(access), "reads": reads, "answers": answers}
        args = (name, to, self.infos[peer], fields)
        return self.result(self.owner[name], "connect", *args)

    def post_recv(self, name: str, requests: tuple[Recv, ...]) -> Result:
        process = self.owner[name]
        packed = [(recv.wr_id, self.sges(process, recv.sges)) for recv in requests]
        return self.result(process, "post_recv", name, packed)

    post_srq_recv = post_recv

    def post_send(self, name: str, requests: tuple[Send, ...], there: str) -> Result:
        process = self.owner[name]
        packed = [self.send(process, there, wr) for wr in requests]
        return self.result(process, "post_send", name, packed)

    def after_flush(self, name: str, wr_id: int, there: str) -> dict[str, bytes] | None:
        """The peer's arenas once the FLUSH has succeeded; the peer has not polled since."""
        if not self.must(self.owner[name], "await_flush", name, wr_id):
            return None
        arenas: dict[str, bytes] = self.must(there, "arenas")
        return arenas

    def bind_mw(self, name: str, request: Bind, offset: int) -> Result:
        """``offset`` is the range's in its region. A key's last digits are its low byte."""
        named = self.windows[request.window] == 2
        low = int(request.key.rpartition(":")[2]) if named else None
        packed = vars(request) | {"offset": offset, "access": int(request.access)}
        packed["region"] = request.region.partition(":")[0]
        error, key = self.result(self.owner[name], "bind_mw", name, packed, low)
        if error is None:
            name_number(self.keys, request.key, key)
        return error, 0

    def send(self, process: str, there: str, wr: Send) -> dict[str, Any]:
        place = wr.place or Place("own", 0)
        return {
            "wr_id": wr.wr_id,
            "opcode": wr.opcode,
            "sges": self.sges(process, wr.sges),
            "flags": wr.flags,
            "remote_addr": (self.bases[there][place.arena] + place.offset) % 2**64,
            "rkey": self.key(wr.key),
            "imm_data": wr.imm,
            "compare_add": wr.compare_add,
            "swap": wr.swap,
            "to": self.addressee(wr.to),
            "remote_qkey": wr.qkey,
            "remote_srqn": self.numbers.get(wr.srq, 0),
            "extent": wr.extent,
            "placement": wr.placement,
        }

    def addressee(self, to: str | None) -> verbs.QPInfo | bytes | None:
        if to is None or to in self.infos:
            return self.infos[to] if to else None
        return gid_of(to)

    def sges(self, process: str, sges: tuple[Sge, ...]) -> list[Any]:
        return [((s.place.arena, s.place.offset), s.length, self.key(s.key)) for s in sges]

    def key(self, name: str) -> int:
        """The number of a key; of NOTHING, one that was never given."""
        if name in self.keys:
            return self.keys[name]
        used = {key >> 8 for key in self.keys.values()}
        return next(index for index in range(0x5EED, 0x1000000) if index not in used) << 8

    def fill(self, process: str, place: Place, data: bytes) -> Result:
        self.must(process, "fill", place.arena, place.offset, data)
        return None, 0

    # ---- what can be seen ----

    def barrier(self) -> None:
        """What was sent before, and is not answered, has arrived."""
        for process in "AB":
            self.must(process, "barrier")

    def observe(self, into: Observed) -> None:
        names = {info.qp_num: name for name, info in self.infos.items()}
        keys = {number: name for name, number in self.keys.items()}
        for process in "AB":
            polled, states, arenas, limits, reached = self.must(process, "observe")
            into.limits.update(limits)
            into.reached.update(reached)
            into.memory[process] = arenas
            into.states.update(states)
            for cq, qp_num, wr_id, status, opcode, byte_len, imm, src, key in polled:
                qp = names.get(qp_num, f"QP {qp_num:#x}")
                sent = names.get(src) if src else None
                inv = None if key is None else keys.get(key, hex(key))
                args = (qp, "", wr_id, status, opcode, byte_len, imm, sent, inv)
                into.completions.append(Completion(*args))
                into.where[wr_id] = cq

    def settle_ahs(self) -> None:
        for process in "AB":
            self.must(process, "drop_ahs")


def name_number(names: dict[str, int], name: str, number: int) -> None:
    """A number that is given again belongs to its new name alone."""
    for old in [old for old, known in names.items() if known == number]:
        del names[old]
    names[name] = number


def gid_of(group: str) -> bytes:
    """Of a group by its name: no other program's, but for one that runs at the same time."""
    number = os.getpid() << 8 | int(group.removeprefix("group"))
    return (GROUPS + number).packed


FIELDS = {
    "CUR_STATE": "cur_qp_state",
    "PKEY_INDEX": "pkey_index",
    "PORT": "port_num",
    "ACCESS_FLAGS": "qp_access_flags",
    "QKEY": "qkey",
    "PATH_MTU": "path_mtu",
    "DEST_QPN": "dest_qp_num",
    "RQ_PSN": "rq_psn",
    "SQ_PSN": "sq_psn",
    "TIMEOUT": "timeout",
    "RETRY_CNT": "retry_cnt",
    "RNR_RETRY": "rnr_retry",
    "MAX_QP_RD_ATOMIC": "max_rd_atomic",
    "MAX_DEST_RD_ATOMIC": "max_dest_rd_atomic",
    "MIN_RNR_TIMER": "min_rnr_timer",
}
