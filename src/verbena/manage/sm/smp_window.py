# SPDX-License-Identifier: Apache-2.0
"""Directed-route requests of a subnet manager: how many are on the wire, timeouts and retries.

Discovery and sweeps call ``ask``; ``SubnetManager`` passes responses to ``receive`` and sends what
``pump`` returns. Every request ends with exactly one call of its ``done`` or of ``failed``. A
request is bytes from the beginning, since a sweep is tens of thousands of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any

from ..errors import MadError
from ..mad import MAD_BYTES

__all__ = ["SmpRequest", "SmpRoute", "SmpWindow"]

_LAYOUT = Struct("!IHBBIIHHIQ8s24s64s128s")
_HEAD_GET, _HEAD_SET = 0x01810101, 0x01810102
_PERMISSIVE = b"\xff\xff\xff\xff" + bytes(4)
_RESERVED = bytes(24)
_DIRECTED, _GET_RESP = 0x81, 0x81
NO_DATA = bytes(64)
MOST_HOPS = 63


class SmpRoute:
    """A directed route: ``ports`` by which a packet leaves the sender and each switch on its way.

    Raises MadError for more than 63 hops.
    """

    __slots__ = ("hops", "paths", "ports")

    def __init__(self, ports: tuple[int, ...] = ()) -> None:
        if len(ports) > MOST_HOPS:
            raise MadError(f"a directed route has at most {MOST_HOPS} hops, and not {len(ports)}")
        self.ports, self.hops = ports, len(ports)
        self.paths = bytes((0, *ports)).ljust(128, b"\0")  # the initial and the return path

    def beyond(self, port: int) -> SmpRoute:
        """Return the route to the neighbour behind a port of the node at its end."""
        return SmpRoute((*self.ports, port))


class SmpRequest:
    """A Get or Set. ``subject`` and ``detail`` are the asker's, who finds them in ``done``."""

    __slots__ = (
        *("attribute", "data", "deadline", "detail", "done", "is_set", "modifier", "number"),
        *("raw", "route", "subject", "tries"),
    )

    def __init__(
        self,
        route: SmpRoute,
        is_set: bool,
        attribute: int,
        modifier: int,
        data: bytes,
        done: Callable[[SmpRequest, bytes], None],
        subject: Any,
        detail: Any,
    ) -> None:
        self.route, self.is_set, self.attribute, self.modifier = route, is_set, attribute, modifier
        self.data, self.done, self.subject, self.detail = data, done, subject, detail
        self.raw = b""
        self.number = self.tries = 0
        self.deadline = 0.0

    def __repr__(self) -> str:
        method = "Set" if self.is_set else "Get"
        path = ",".join(map(str, (0, *self.route.ports)))
        return f"{method} {self.attribute:#06x}/{self.modifier:#x} along {path}"


class SmpWindow:
    """The requests that wait, and those that are on the wire.

    ``failed(request, reason)`` is called when no response came to any try, or one with an error.
    ``sent`` counts MADs, retries included; ``retried`` and ``timed_out`` are counts as well.
    """

    def __init__(
        self,
        most: int,
        timeout: float,
        retries: int,
        m_key: int,
        failed: Callable[[SmpRequest, str], None],
    ) -> None:
        self.most, self.timeout, self.retries, self.m_key = most, timeout, retries, m_key
        self.failed = failed
        self.sent = self.retried = self.timed_out = 0
        self._waiting: deque[SmpRequest] = deque()
        self._again: list[SmpRequest] = []
        # In the order of their deadlines, since the timeout is the same for all.
        self._on_wire: dict[int, SmpRequest] = {}
        self._number = 0

    @property
    def is_idle(self) -> bool:
        """No request waits for anything."""
        return not self._on_wire and not self._waiting and not self._again

    def get(
        self,
        route: SmpRoute,
        attribute: int,
        modifier: int,
        done: Callable[[SmpRequest, bytes], None],
        subject: Any = None,
        detail: Any = None,
        *,
        once: bool = False,
    ) -> None:
        """Ask for an attribute; ``done(request, mad)`` gets the response's 256 bytes.

        ``once``: it is not repeated, since the asker asks again by itself.
        """
        request = SmpRequest(route, False, attribute, modifier, NO_DATA, done, subject, detail)
        if once:
            request.tries = self.retries
        self._waiting.append(request)

    def set(
        self,
        route: SmpRoute,
        attribute: int,
        modifier: int,
        data: bytes,
        done: Callable[[SmpRequest, bytes], None],
        subject: Any = None,
        detail: Any = None,
    ) -> None:
        """Set an attribute, given as its bytes; shorter data is filled up with zeros."""
        self._waiting.append(
            SmpRequest(route, True, attribute, modifier, data, done, subject, detail)
        )

    def drop(self, subject: Any) -> None:
        """Forget all requests about a subject; neither ``done`` nor ``failed`` is called."""
        self._waiting = deque(each for each in self._waiting if each.subject is not subject)
        self._again = [each for each in self._again if each.subject is not subject]
        gone = [number for number, each in self._on_wire.items() if each.subject is subject]
        for number in gone:
            del self._on_wire[number]

    def clear(self) -> None:
        """Forget all requests."""
        self._waiting.clear()
        self._again.clear()
        self._on_wire.clear()

    def pump(self, now: float) -> list[bytes]:
        """Return the MADs that are to be sent now."""
        on_wire, deadline = self._on_wire, now + self.timeout
        sent = []
        if self._again:
            for request in self._again:
                request.deadline = deadline
                on_wire[request.number] = request
                sent.append(request.raw)
            self._again.clear()
        waiting, pack, m_key = self._waiting, _LAYOUT.pack, self.m_key
        while waiting and len(on_wire) < self.most:
            request = waiting.popleft()
            self._number = number = self._number + 1 & 0xFFFFFFFF or 1
            route = request.route
            request.raw = pack(
                _HEAD_SET if request.is_set else _HEAD_GET,
                0,
                0,
                route.hops,
                0,
                number,
                request.attribute,
                0,
                request.modifier,
                m_key,
                _PERMISSIVE,
                _RESERVED,
                request.data,
                route.paths,
            )
            request.number = number
            request.deadline = deadline
            on_wire[number] = request
            sent.append(request.raw)
        self.sent += len(sent)
        return sent

    def receive(self, mad: bytes) -> bool:
        """Take a response; return whether it answers a request that is on the wire."""
        number = int.from_bytes(mad[12:16], "big")
        request = self._on_wire.get(number)
        if (
            request is None
            or len(mad) != MAD_BYTES
            or mad[1] != _DIRECTED
            or mad[3] != _GET_RESP
            # AttributeID, the reserved bytes and AttributeModifier
            or mad[16:24] != request.raw[16:24]
        ):
            return False
        del self._on_wire[number]
        status = (mad[4] << 8 | mad[5]) & 0x7FFF
        if not status:
            request.done(request, mad)
        elif status & 3 == 1 and request.tries < self.retries:
            self._retry(request)
        else:
            self.failed(request, f"status {status:#06x}")
        return True

    def _retry(self, request: SmpRequest) -> None:
        request.tries += 1
        self.retried += 1
        self._again.append(request)

    def tick(self, now: float) -> None:
        """Retry or give up what had no response until now."""
        late = []
        for request in self._on_wire.values():
            if request.deadline > now:
                break
            late.append(request)
        for request in late:
            # An earlier failure may have dropped this one.
            if self._on_wire.pop(request.number, None) is None:
                continue
            if request.tries < self.retries:
                self._retry(request)
            else:
                self.timed_out += 1
                self.failed(request, "no response")

    def next_deadline(self) -> float | None:
        """Return when ``tick`` has something to do, or None."""
        for request in self._on_wire.values():
            return request.deadline
        return None
