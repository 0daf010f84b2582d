# SPDX-License-Identifier: Apache-2.0
"""One end of a connection, in this process or in another.

Every argument and result of a Side's methods can be pickled, so that a test drives the far end in
the same words whether it is a Side or the proxy of one in a child process.
"""

from __future__ import annotations

import multiprocessing
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from verbena import verbs
from verbena.verbs import AccessFlags, QPType
from verbena.verbs.here import place

DEVICE = "verbena0"
ALL = (
    AccessFlags.LOCAL_WRITE
    | AccessFlags.REMOTE_WRITE
    | AccessFlags.REMOTE_READ
    | AccessFlags.REMOTE_ATOMIC
    | AccessFlags.FLUSH_GLOBAL
)


@dataclass(frozen=True)
class Done:
    """A completion, as plain values."""

    wr_id: int
    status: str
    opcode: str
    byte_len: int
    imm_data: int | None
    qp_num: int
    src_qp: int
    text: str

    @property
    def ok(self) -> bool:
        return self.status == "SUCCESS"


def done(wc: verbs.WC) -> Done:
    text = ""
    try:
        wc.raise_for_status()
    except verbs.CompletionError as error:
        text = str(error)
    ok = wc.is_success
    return Done(
        wr_id=wc.wr_id,
        status=wc.status.name,
        opcode=wc.opcode.name if ok else "",
        byte_len=wc.byte_len if ok else 0,
        imm_data=wc.imm_data if ok and wc.wc_flags & verbs.WCFlags.WITH_IMM else None,
        qp_num=wc.qp_num,
        src_qp=wc.src_qp if ok else 0,
        text=text,
    )


def allocate(pd: verbs.PD, kind: str, nbytes: int, access: int) -> verbs.MR:
    """A region of Verbena's memory, or of the program's own."""
    if kind == "alloc":
        return pd.alloc(nbytes, access)
    return pd.reg_mr(np.zeros(nbytes, "u1"), access)


class Side:
    """A context with one of everything, and a QP in RESET."""

    def __init__(
        self,
        *,
        qp_type: str = "RC",
        kind: str = "alloc",
        nbytes: int = 4096,
        access: int = ALL,
        cqe: int = 256,
        srq: int = 0,
        **caps: Any,
    ) -> None:
        self.kind = kind
        self.access = access
        self.ctx = verbs.open_device(None if place.get() else DEVICE)
        self.pd = self.ctx.alloc_pd()
        self.channel = self.ctx.create_comp_channel()
        self.cq = self.ctx.create_cq(cqe, self.channel)
        self.srq = self.pd.create_srq(srq) if srq else None
        self.qp = self.pd.create_qp(send_cq=self.cq, qp_type=QPType[qp_type], srq=self.srq, **caps)
        self.mr = allocate(self.pd, kind, nbytes, access)
        self.gid_index = 0
        self.remote: verbs.QPInfo | None = None

    def info(self) -> verbs.QPInfo:
        info, self.gid_index = verbs.local_qp_info(self.qp, psn=77)
        return info

    def connect(self, remote: verbs.QPInfo, **options: Any) -> None:
        self.remote = remote
        if self.qp.qp_type == QPType.UD:
            verbs.bring_up_ud(self.qp)
        else:
            verbs.bring_up(self.qp, self.info(), remote, self.gid_index, **options)

    def region(self) -> tuple[int, int]:
        """Address and rkey of its memory."""
        return self.mr.addr, self.mr.rkey

    def fill(self, data: bytes, offset: int = 0) -> None:
        memoryview(self.mr)[offset : offset + len(data)] = data

    def bytes_at(self, offset: int, length: int) -> bytes:
        return bytes(memoryview(self.mr)[offset : offset + length])

    def post_recv(self, offset: int = 0, length: int | None = None, wr_id: int = 0) -> None:
        target = self.srq if self.srq is not None else self.qp
        target.recv(self.mr, offset, length, wr_id=wr_id)

    def wait(self, n: int = 1, timeout: float = 10) -> list[Done]:
        return [done(wc) for wc in self.cq.wait(n, timeout)]

    def fail_after_a_message(self) -> None:
        """Poll until a request has ended, and move the QP to ERR at once."""
        while not self.cq.poll(1):
            pass
        self.set_state("ERR")

    def attach_mcast(self, group: bytes) -> None:
        self.qp.attach_mcast(group)

    def detach_mcast(self, group: bytes) -> None:
        self.qp.detach_mcast(group)

    def arm_limit(self, limit: int) -> None:
        assert self.srq is not None
        self.srq.modify(srq_limit=limit)

    def limit(self) -> int:
        assert self.srq is not None
        return self.srq.query().srq_limit

    def next_event(self, timeout: float = 10) -> str | None:
        event = self.ctx.get_async_event(timeout)
        return event.event_type.name if event else None

    def next_event_text(self) -> str:
        event = self.ctx.get_async_event(10)
        assert event is not None
        return event.text

    def state(self) -> str:
        return self.qp.state.name

    def set_state(self, name: str) -> None:
        self.qp.modify(qp_state=verbs.QPState[name])

    def replace_region(self, access: int, nbytes: int = 4096, other_pd: bool = False) -> None:
        """New memory with ``access``, in the QP's PD or in another."""
        pd = self.ctx.alloc_pd() if other_pd else self.pd
        self.mr = allocate(pd, self.kind, nbytes, access)

    def close_region(self) -> None:
        self.mr.close()

    def close_qp(self) -> None:
        self.qp.close()

    def close(self) -> None:
        self.ctx.close()


class Host:
    """A child process in which Sides live."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=serve, args=(there,), daemon=True)
        self._process.start()
        there.close()

    def make(self, **options: Any) -> RemoteSide:
        return RemoteSide(self, self.call(None, "", options))

    def call(self, side: int | None, name: str, options: dict[str, Any], *args: Any) -> Any:
        self._here.send((side, name, args, options))
        if not self._here.poll(60):
            raise TimeoutError(f"the child did not answer {name or 'make'} within 60 s")
        value, error = self._here.recv()
        if error is not None:
            raise error
        return value

    def stop(self) -> None:
        self._here.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


class RemoteSide:
    """A Side in a Host; its methods are called there."""

    def __init__(self, host: Host, number: int) -> None:
        self._host = host
        self._number = number

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **options: self._host.call(self._number, name, options, *args)


def serve(pipe: Connection) -> None:
    """The child's main: makes Sides and calls their methods until the pipe is closed."""
    sides: list[Side] = []
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        pipe.send(answer(sides, *request))


def answer(
    sides: list[Side], number: int | None, name: str, args: Any, options: Any
) -> tuple[Any, Exception | None]:
    try:
        if number is None:
            sides.append(Side(**options))
            return len(sides) - 1, None
        return getattr(sides[number], name)(*args, **options), None
    except Exception as error:
        return None, RuntimeError(f"in the child: {error}\n{traceback.format_exc()}")
