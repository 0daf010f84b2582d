# SPDX-License-Identifier: Apache-2.0
"""Tiny requests and responses by UD: one queue pair at the server for all clients.

``DatagramWriter`` is a client's side, ``DatagramServer`` the server's. A datagram may be lost, so a
client sends its request again until it has the response; the server remembers what it has answered
until the client says, by the number of its oldest call, that it needs it no more. So each call runs
once. Whatever does not fit a datagram goes over the link.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from typing import Any

from verbena.verbs import (
    AH,
    MR,
    PD,
    QP,
    WC,
    QPState,
    QPType,
    RecvWR,
    SendFlags,
    VerbsError,
)
from verbena.verbs.here import place

from .client_calls import ClientCalls
from .errors import CallStatus
from .frames import FRAME, FRAME_SIZE, FrameKind
from .link import Link
from .poller import Poller
from .server_calls import ServerCalls

__all__ = ["DatagramServer", "DatagramWriter"]

_CLIENT = struct.Struct("<I")
_GRH = 40
_SIZE = 256  # bytes of a datagram, sent inline
DATAGRAM_ROOM = _SIZE - FRAME_SIZE - _CLIENT.size
_SLOT = 512
_QKEY = 0x1B7C
_SENT = 1 << 33
_RECEIVES = 1 << 32
_STEP = 16
_AGAIN, _AGAIN_MOST = 0.01, 1.0  # seconds
_REQUEST, _RESPONSE = int(FrameKind.REQUEST), int(FrameKind.RESPONSE)


class _Endpoint:
    """A UD queue pair with its receives, whose completions come to a poller (a PollTarget)."""

    def __init__(self, pd: PD, poller: Poller, cq: Any, port: int, receives: int) -> None:
        self._poller = poller
        self._region: MR = pd.alloc(receives * _SLOT)
        self._view = memoryview(self._region)
        self.qp: QP = pd.create_qp(
            send_cq=cq,
            qp_type=QPType.UD,
            max_send_wr=4 * _STEP,
            max_recv_wr=receives,
            max_inline_data=_SIZE,
        )
        self.qp.modify(qp_state=QPState.INIT, pkey_index=0, port_num=port, qkey=_QKEY)
        self._requests = [
            RecvWR(slot, self._region.sge(_SLOT, slot * _SLOT)) for slot in range(receives)
        ]
        self.qp.post_recv(self._requests)
        self.qp.modify(qp_state=QPState.RTR)
        self.qp.modify(qp_state=QPState.RTS, sq_psn=0)
        self._sent = 0
        self.qpn: int = self.qp.qp_num
        poller.targets[self.qpn] = self

    def must_hear(self) -> bool:
        """PollTarget: tasks wait for responses, and count as sleepers."""
        return False

    def post(self, data: bytes, ah: AH, qpn: int) -> None:
        """Send a datagram; without room in the send queue it is lost."""
        self._sent += 1
        flags = SendFlags.INLINE
        if not self._sent % _STEP:
            flags |= SendFlags.SIGNALED
        with suppress(VerbsError):
            self.qp.send(data, ah=ah, remote_qpn=qpn, remote_qkey=_QKEY, flags=flags, wr_id=_SENT)

    def completed(self, wc: WC) -> None:
        """Take a completion: PollTarget."""
        slot = wc.wr_id
        if slot >= _RECEIVES:
            return
        if wc.is_success:
            at = slot * _SLOT + _GRH
            length = wc.byte_len - _GRH
            if length >= FRAME_SIZE + _CLIENT.size:
                self.arrived(wc.src_qp, bytes(self._view[at : at + length]))
        with suppress(VerbsError):
            self.qp.post_recv(self._requests[slot])

    def arrived(self, sender: int, data: bytes) -> None:
        """A datagram has arrived."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the queue pair."""
        self._poller.targets.pop(self.qpn, None)
        self.qp.close()
        self._view.release()
        self._region.close()


def address_of_peer(link: Link) -> tuple[AH, int]:
    """Return an address handle for the peer of a link, and the port of this side."""
    attributes = link.qp.query().ah_attr
    assert attributes is not None
    return link.pd.create_ah(attributes), attributes.port_num


# ---- the client ----------------------------------------------------------------------------------


class DatagramWriter(_Endpoint):
    """The client's side (a RequestPath)."""

    def __init__(self, link: Link, cq: Any) -> None:
        self._ah, port = address_of_peer(link)
        super().__init__(link.pd, link.poller, cq, port, 64)
        self.room = 0
        self._link = link
        self._calls: ClientCalls | None = None
        self._server = 0
        self._client = b""
        self._waiting: dict[int, tuple[bytes, float, float]] = {}  # frame, when again, then after
        self._timer: asyncio.TimerHandle | None = None
        self.repeated = 0

    def use(self, calls: ClientCalls, server: int, client: int, room: int) -> None:
        """The server has told its queue pair."""
        self._calls, self._server, self.room = calls, server, room
        self._client = _CLIENT.pack(client)

    def send(self, flags: int, method: int, call: int, count: int, data: bytes) -> bool:
        """Send a request, again and again until it is answered."""
        assert self._calls is not None
        oldest = next(iter(self._calls.pending))
        frame = FRAME.pack(
            *(_REQUEST, flags, method, oldest & 0xFFFFFFFF, call, count, len(data), 0)
        )
        whole = self._client + frame + data
        loop = asyncio.get_running_loop()
        self._waiting[call] = whole, loop.time() + _AGAIN, 2 * _AGAIN
        if self._timer is None:
            self._timer = loop.call_later(_AGAIN, self._tick)
        self.post(whole, self._ah, self._server)
        return True

    def _tick(self) -> None:
        self._timer = None
        if not self._waiting or self._link.ended is not None:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        for call, (whole, due, wait) in list(self._waiting.items()):
            if due <= now:
                self._waiting[call] = whole, now + wait, min(2 * wait, _AGAIN_MOST)
                self.repeated += 1
                self.post(whole, self._ah, self._server)
        soonest = min(due for _, due, _ in self._waiting.values())
        self._timer = loop.call_at(soonest, self._tick)

    def arrived(self, sender: int, data: bytes) -> None:
        if sender != self._server or self._calls is None:
            return
        at = _CLIENT.size
        kind, flags, status, _, call, count, length, _ = FRAME.unpack_from(data, at)
        start = at + FRAME_SIZE
        if kind == _RESPONSE:
            payload = data[start : start + length]
            self._calls.on_frame(kind, flags, status, call, count, payload)

    def forget(self, call: int) -> None:
        """The call has its response."""
        self._waiting.pop(call, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().close()
        self._ah.close()


# ---- the server ----------------------------------------------------------------------------------


class _Sender:
    """A client of the server's queue pair."""

    def __init__(self, calls: ServerCalls, qpn: int, ah: AH) -> None:
        self.calls = calls
        self.qpn = qpn
        self.ah = ah
        self.oldest = 0
        self.answers: dict[int, bytes | None] = {}


class DatagramServer(_Endpoint):
    """The server's side. Clients have random numbers, and send from the queue pair they named."""

    def __init__(self, pd: PD, poller: Poller, cq: Any, port: int) -> None:
        super().__init__(pd, poller, cq, port, 512)
        self._senders: dict[int, _Sender] = {}

    def add(self, link: Link, calls: ServerCalls, qpn: int) -> int:
        """Serve a client that sends from a queue pair; return its number."""
        here = place.get()
        number = 0
        while not number or number in self._senders:
            drawn = here.random_bytes(4) if here else _random_bytes()
            number = int.from_bytes(drawn, "little")
        ah, _ = address_of_peer(link)
        sender = self._senders[number] = _Sender(calls, qpn, ah)
        calls.on_unknown_cancel = lambda call: self._cancel_early(sender, call)
        return number

    def remove(self, number: int) -> None:
        """The client has gone."""
        gone = self._senders.pop(number, None)
        if gone is not None:
            gone.ah.close()

    def arrived(self, sender: int, data: bytes) -> None:
        (number,) = _CLIENT.unpack_from(data)
        known = self._senders.get(number)
        if known is None or known.qpn != sender:
            return
        at = _CLIENT.size
        kind, flags, method, oldest, call, count, length, _ = FRAME.unpack_from(data, at)
        if kind != _REQUEST or call < known.oldest:
            return
        self._prune(known, (call & ~0xFFFFFFFF) | oldest)
        if call in known.answers:
            answer = known.answers[call]
            if answer is not None:
                self.post(answer, known.ah, known.qpn)
            return
        known.answers[call] = None
        start = at + FRAME_SIZE
        payload = data[start : start + length]

        def respond(call: int, status: int, data: Any) -> bool:
            return self._respond(known, call, status, data)

        known.calls.request(flags, method, call, count, payload, respond)

    def _prune(self, known: _Sender, oldest: int) -> None:
        if oldest <= known.oldest:
            return
        known.oldest = oldest
        for call in [each for each in known.answers if each < oldest]:
            del known.answers[call]

    def _respond(self, known: _Sender, call: int, status: int, data: Any) -> bool:
        if type(data) is not bytes or len(data) > DATAGRAM_ROOM:
            return False
        frame = FRAME.pack(_RESPONSE, 0, status, 0, call, 0, len(data), 0)
        whole = bytes(_CLIENT.size) + frame + data
        if call in known.answers:
            known.answers[call] = whole
        self.post(whole, known.ah, known.qpn)
        return True

    def _cancel_early(self, known: _Sender, call: int) -> None:
        """A call is cancelled whose request has not arrived: it will not run."""
        if call >= known.oldest and call not in known.answers:
            known.answers[call] = None
            known.calls.fail(call, CallStatus.CANCELLED, "", None)


def _random_bytes() -> bytes:
    import os

    return os.urandom(4)
