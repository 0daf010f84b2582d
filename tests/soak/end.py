# SPDX-License-Identifier: Apache-2.0
"""One end of a talk: its objects, and the account of what was posted and what completed."""

from __future__ import annotations

import ctypes
import errno
import select
import socket as sockets
import time
from collections import Counter
from typing import Any

from tests.soak.memory import Block
from tests.soak.plan import Talk
from verbena import verbs

ACCESS = verbs.connect.ALL_ACCESS
GRH = 40
PATIENCE = 60.0  # seconds: whatever takes longer hangs
LOOK = 2.0  # seconds between looks at whether the partner is still there
DYING = 5.0  # seconds that a process which is killed takes until its sockets are closed
RECV = 1 << 32  # added to the wr_id of a receive request


class PartnerGone(Exception):
    """The socket to the partner is closed: it was killed, or it failed and says so itself."""


class Failed(Exception):
    """Something that must never be."""


class Account:
    """Each request completes once, sends in the order in which they were posted."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.sends: list[int] = []
        self.receives: Counter[int] = Counter()
        self.statuses: Counter[str] = Counter()
        self.bad: set[str] = set()

    def settle(self, wc: verbs.WC) -> None:
        self.statuses[wc.status.name] += 1
        if not wc.is_success:
            self.bad.add(wc.status.name)
        if wc.wr_id >= RECV:
            if self.receives[wc.wr_id] != 1:
                raise Failed(f"receive {wc.wr_id - RECV} completed, which was not posted: {wc}")
            del self.receives[wc.wr_id]
        elif not self.sends or self.sends.pop(0) != wc.wr_id:
            raise Failed(f"send {wc.wr_id} completed out of order: {wc}")


class End:
    """A queue pair and what it needs; both sides make the same from the plan."""

    def __init__(self, talk: Talk, side: str, ctx: verbs.Context) -> None:
        self.talk, self.side = talk, side
        self.account = Account(talk)
        self.ctx = verbs.open_device("verbena0") if talk.own_device else ctx
        self.closed_qp = False
        self._posted = 0
        self._make()

    def _make(self) -> None:
        talk = self.talk
        self.pd = self.ctx.alloc_pd()
        self.channel = self.ctx.create_comp_channel() if talk.channel else None
        self.cq = self.ctx.create_cq(4 * talk.depth + 16, self.channel)
        self.srq = self.pd.create_srq(talk.depth) if talk.srq else None
        self.qp = self.pd.create_qp(
            send_cq=self.cq,
            qp_type=verbs.QPType[talk.qp_type],
            max_send_wr=talk.depth,
            max_recv_wr=talk.depth,
            srq=self.srq,
        )
        self.slot = (talk.length + GRH + 63) // 64 * 64
        size = 2 * talk.depth * self.slot
        self.block = Block(size) if talk.memory == "own" else None
        if self.block:
            self.mr = self.pd.reg_mr(self.block.addr, size, ACCESS)
        else:
            self.mr = self.pd.alloc(size, ACCESS)

    # ---- memory: `depth` slots for what is sent, then as many for what is received ----

    def place(self, message: int, received: bool = False) -> int:
        depth = self.talk.depth
        return (message % depth + depth * received) * self.slot

    def store(self, offset: int, data: bytes) -> None:
        self._view()[offset : offset + len(data)] = data

    def load(self, offset: int, length: int) -> bytes:
        return bytes(self._view()[offset : offset + length])

    def _view(self) -> memoryview:
        if not self.block:
            return memoryview(self.mr)
        if not self.block.mapped:
            raise Failed("the plan uses memory that it has unmapped")
        whole = (ctypes.c_ubyte * self.block.size).from_address(self.block.addr)
        return memoryview(whole).cast("B")

    # ---- the partner ----

    def connect(self, socket: sockets.socket) -> None:
        self.socket = socket
        try:
            if self.talk.qp_type == "UD":
                self._connect_datagrams()
            else:
                verbs.connect_rc(self.qp, socket, timeout=17)
            region = self.mr.addr.to_bytes(8, "big") + self.mr.rkey.to_bytes(4, "big")
            told = self.exchange(region)
        except verbs.ConnectError as error:
            if error.errno == errno.ETIMEDOUT:
                raise Failed("the partner does not connect") from error
            raise PartnerGone from error
        self.remote = int.from_bytes(told[:8], "big"), int.from_bytes(told[8:], "big")

    def _connect_datagrams(self) -> None:
        info, gid_index = verbs.local_qp_info(self.qp)
        verbs.connect.bring_up_ud(self.qp)
        remote = verbs.QPInfo.from_bytes(self.exchange(info.to_bytes()))
        address = verbs.connect.address_of(remote, gid_index)
        self.ah, self.remote_qpn = self.pd.create_ah(address), remote.qp_num

    def exchange(self, data: bytes) -> bytes:
        """Sends ``data``, returns as many bytes of the partner's."""
        try:
            self.socket.sendall(data)
            received = b""
            while len(received) < len(data):
                part = self.socket.recv(len(data) - len(received))
                if not part:
                    raise PartnerGone
                received += part
        except TimeoutError as error:
            raise Failed("the partner says nothing") from error
        except ConnectionError as error:
            raise PartnerGone from error
        return received

    def meet(self) -> None:
        self.exchange(b".")

    def raise_if_partner_died(self) -> None:
        """A process that is killed loses its memory some time before its sockets are closed.

        What it said before, for the next ``meet``, can still be waiting in the socket.
        """
        hung_up = select.poll()
        hung_up.register(self.socket, select.POLLRDHUP)
        if hung_up.poll(1000 * DYING):
            raise PartnerGone

    def partner_spoke(self) -> bool:
        """Whether it waits for this side at the next ``meet``, or is gone."""
        return self._heard() is not None

    def _is_forsaken(self) -> bool:
        """Waits for messages of a partner that is gone, which nothing tells it.

        By packets nobody hears of a death but who sends, and an SRQ's receives are not flushed. A
        request of its own ends in error, which it waits for.
        """
        if self.account.sends or not (self.talk.packets or self.talk.srq):
            return False
        return self._heard() == b""

    def _heard(self) -> bytes | None:
        """The next byte of the partner's, which stays there; empty: it is gone; None: nothing."""
        self.socket.setblocking(False)
        try:
            return self.socket.recv(1, sockets.MSG_PEEK)
        except BlockingIOError:
            return None
        except ConnectionError:
            return b""
        finally:
            self.socket.settimeout(PATIENCE)

    # ---- requests ----

    def post(self, opcode: str, message: int, length: int, **options: Any) -> None:
        """A signalled request on the slot of ``message``; VerbsError(ENOMEM): the queue is full."""
        offset = self.place(message, received=opcode in ("read", "fetch_add"))
        number = self._posted
        calls = {
            "send": lambda: self.qp.send(self.mr, offset, length, wr_id=number, **options),
            "write": lambda: self.qp.write(
                self.mr, *self.remote_place(message), offset, length, wr_id=number, **options
            ),
            "read": lambda: self.qp.read(
                self.mr, *self.remote_place(message, False), offset, length, wr_id=number
            ),
            "fetch_add": lambda: self.qp.fetch_add(self.mr, *self.remote, 1, offset, wr_id=number),
        }
        calls[opcode]()
        self._posted += 1
        self.account.sends.append(number)

    def remote_place(self, message: int, received: bool = True) -> tuple[int, int]:
        return self.remote[0] + self.place(message, received), self.remote[1]

    def datagram_options(self) -> dict[str, Any]:
        if self.talk.qp_type != "UD":
            return {}
        return {"ah": self.ah, "remote_qpn": self.remote_qpn, "remote_qkey": 0x11111111}

    def post_recv(self, message: int) -> None:
        target = self.srq if self.srq is not None else self.qp
        wr_id = RECV + message
        self.account.receives[wr_id] += 1
        try:
            target.recv(self.mr, self.place(message, True), self.slot, wr_id=wr_id)
        except BaseException:
            del self.account.receives[wr_id]
            raise

    def take(self, timeout: float = PATIENCE, must: bool = True) -> list[verbs.WC]:
        """What completed, at least one unless ``must`` is false."""
        end = time.monotonic() + timeout
        done = self.cq.wait(1, min(timeout, LOOK))
        while not done and time.monotonic() < end:
            if must and self._is_forsaken():
                raise PartnerGone
            done = self.cq.wait(1, min(end - time.monotonic(), LOOK))
        if not done and must:
            raise Failed(f"nothing completes; {self.describe()}")
        done += self.cq.poll()
        for wc in done:
            self.account.settle(wc)
        return done

    def describe(self) -> str:
        state = "closed" if self.closed_qp else self.qp.state.name
        account = self.account
        return (
            f"side {self.side}, {state}, {len(account.sends)} sends and "
            f"{account.receives.total()} receives outstanding, {dict(account.statuses)}"
        )

    # ---- the end ----

    def drain(self) -> None:
        """To ERR: all that was posted completes now, and once."""
        if self.closed_qp:
            return
        self.qp.modify(qp_state=verbs.QPState.ERR)
        end = time.monotonic() + PATIENCE
        account = self.account
        while account.sends or (account.receives and self.srq is None):
            self.take(timeout=0.1, must=False)
            if time.monotonic() > end:
                raise Failed(f"requests were lost; {self.describe()}")
        if done := self.cq.poll():
            for wc in done:
                account.settle(wc)

    def close_qp(self) -> None:
        self.closed_qp = True
        self.qp.close()

    def close(self) -> None:
        if self.talk.own_device:
            self.ctx.close()
        else:
            for thing in (self.qp, self.srq, self.cq, self.channel, self.mr):
                if thing is not None:
                    thing.close()
            if self.talk.qp_type == "UD" and hasattr(self, "ah"):
                self.ah.close()
            self.pd.close()
        if self.block:
            self.block.unmap()


def is_full(error: verbs.VerbsError) -> bool:
    return error.errno == errno.ENOMEM
