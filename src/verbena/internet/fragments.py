# SPDX-License-Identifier: Apache-2.0
"""Fragmentation and reassembly of IPv4 (RFC 791, section 3.2; timeout of RFC 1122, 3.3.2).

Nodes cut a datagram that exceeds a link's MTU, and only the destination puts it together. A
fragment that overlaps another one differently discards them all. Bytes of two datagrams are mixed
only where a sender's identifications come round within the timeout (RFC 4963).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from verbena.host.clock import Agenda
from verbena.internet.errors import MessageTooLongError
from verbena.internet.ipv4 import MAX_DATAGRAM, Datagram, FragmentKey, Protocol, copied_options
from verbena.internet.timer import SECOND, Timer

REASSEMBLY_TIMEOUT = 60 * SECOND
# Bytes of incomplete datagrams that a node keeps; beyond it the oldest one is discarded.
REASSEMBLY_BYTES = 4 << 20


# Of transports with a header of one size, which the program did not give.
TRANSPORT_HEADERS: dict[int, int] = {Protocol.ICMP: 8, Protocol.UDP: 8}


def _most_bytes(datagram: Datagram, mtu: int) -> str:
    """What a program may send, which does not know of its transport's header."""
    headers = TRANSPORT_HEADERS.get(datagram.protocol, 0)
    most = mtu - datagram.header_length - headers
    named = f" behind the {headers} bytes of its {Protocol(datagram.protocol).name} header"
    return f"send at most {most} bytes{named if headers else ''}"


def fragments(datagram: Datagram, mtu: int) -> list[Datagram]:
    """The datagram in pieces of at most ``mtu`` bytes; itself if it fits.

    Raises MessageTooLongError if it does not fit and must not be fragmented.
    """
    if datagram.length <= mtu:
        return [datagram]
    if datagram.dont_fragment:
        raise MessageTooLongError(
            f"{datagram.length} bytes exceed the MTU of {mtu}, and the datagram says don't "
            f"fragment: {_most_bytes(datagram, mtu)}",
            mtu,
        )
    pieces: list[Datagram] = []
    at = 0
    options = datagram.options
    while at < len(datagram.payload):
        room = (mtu - 20 - len(options)) // 8 * 8
        part = datagram.payload[at : at + room]
        more = datagram.more_fragments or at + len(part) < len(datagram.payload)
        if at + len(part) == len(datagram.payload):
            more = datagram.more_fragments
        pieces.append(
            replace(
                datagram,
                payload=part,
                offset=datagram.offset + at,
                more_fragments=more,
                options=options,
            )
        )
        at += len(part)
        options = copied_options(datagram.options)
    return pieces


@dataclass(slots=True)
class Incomplete:
    """The fragments of one datagram that have come; ``size`` is known from the last one."""

    timer: Timer
    parts: dict[int, Datagram] = field(default_factory=dict)
    size: int | None = None
    held: int = 0
    header: int = 20  # of the first fragment, which is that of the whole
    room: int = 0  # with the fragments' headers


class Reassembler:
    """Puts the fragments for one node together.

    ``on_timeout`` is called with the first fragment of a datagram that stays incomplete, and only
    if that one has come, since an error message quotes it.
    """

    def __init__(
        self,
        agenda: Agenda,
        on_timeout: Callable[[Datagram], None],
        timeout: int = REASSEMBLY_TIMEOUT,
    ) -> None:
        self._agenda = agenda
        self._on_timeout = on_timeout
        self._timeout = timeout
        self._waiting: dict[FragmentKey, Incomplete] = {}
        self._held = 0
        self.discarded = 0

    def add(self, part: Datagram) -> Datagram | None:
        """The whole datagram if this fragment completes it."""
        if not part.is_fragment:
            return part
        if not part.payload:
            self.discarded += 1
            return None
        key = part.fragment_key
        waiting = self._waiting.get(key) or self._begin(key)
        if not self._insert(waiting, part):
            self._discard(key)
            return None
        if waiting.size is not None and waiting.held == waiting.size:
            return self._complete(key)
        while self._held > REASSEMBLY_BYTES:
            self._discard(next(iter(self._waiting)))
        return None

    def _begin(self, key: FragmentKey) -> Incomplete:
        waiting = Incomplete(Timer(self._agenda, lambda: self._expire(key)))
        waiting.timer.start(self._timeout)
        self._waiting[key] = waiting
        return waiting

    def _insert(self, waiting: Incomplete, part: Datagram) -> bool:
        """False if the fragment contradicts those before."""
        end = part.offset + len(part.payload)
        if part.offset == 0:
            waiting.header = part.header_length
        last = max(end, *(one.offset + len(one.payload) for one in waiting.parts.values()), 0)
        if last + waiting.header > MAX_DATAGRAM or (part.more_fragments and end % 8):
            return False
        if not part.more_fragments:
            if waiting.size not in (None, end):
                return False
            waiting.size = end
        same = waiting.parts.get(part.offset)
        if same is not None:
            return same.payload == part.payload
        if waiting.size is not None and last > waiting.size:
            return False
        for one in waiting.parts.values():
            if part.offset < one.offset + len(one.payload) and one.offset < end:
                return False
        waiting.parts[part.offset] = part
        waiting.held += len(part.payload)
        waiting.room += part.length
        self._held += part.length
        return True

    def _complete(self, key: FragmentKey) -> Datagram:
        waiting = self._remove(key)
        ordered = [waiting.parts[offset] for offset in sorted(waiting.parts)]
        whole = b"".join(part.payload for part in ordered)
        return replace(ordered[0], payload=whole, more_fragments=False)

    def _remove(self, key: FragmentKey) -> Incomplete:
        waiting = self._waiting.pop(key)
        waiting.timer.stop()
        self._held -= waiting.room
        return waiting

    def _discard(self, key: FragmentKey) -> Incomplete:
        self.discarded += 1
        return self._remove(key)

    def _expire(self, key: FragmentKey) -> None:
        first = self._discard(key).parts.get(0)
        if first is not None:
            self._on_timeout(first)
