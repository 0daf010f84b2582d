# SPDX-License-Identifier: Apache-2.0
"""Streams of items, at the side that receives them and at the side that sends them.

A call has an ``Inflow``, an ``Outflow``, or both, at each of its two sides. ``WINDOW`` items may be
on their way or unread; the receiver grants more when its program takes them. Large items stay with
the sender beyond ``STREAM_AHEAD`` bytes that are unread, and ``ITEMS_AHEAD`` of all streams of a
link, until the program asks for them: streams that nobody reads stop no others. A task that is
cancelled in ``take`` loses no item.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from .bulk import Fetch, nbytes_of
from .codecs import Decode, Encode
from .frames import FrameKind
from .link import Link
from .strategies import RequestWay, Strategies, request_way

__all__ = ["ITEMS_AHEAD", "STREAM_AHEAD", "WINDOW", "FlowEnded", "Inflow", "Outflow"]

WINDOW = 16
STREAM_AHEAD = 4 << 20
"""Bytes of a stream's items that are fetched before the program asks; one item may have more."""
ITEMS_AHEAD = 64 << 20
"""The same of all streams of a link."""


class FlowEnded(Exception):
    """There are no more items, and no error."""


class Inflow:
    """Items that have arrived, in order."""

    def __init__(self, link: Link, call: int, decode: Decode) -> None:
        self._link = link
        self._call = call
        self._decode = decode
        self._items: deque[Any] = deque()
        self._later: deque[Fetch] = deque()  # those of the items whose fetch has not begun
        self._ahead = 0
        self._takers = 0  # tasks in ``take``
        self._waiters: list[asyncio.Future[None]] = []
        self._end: BaseException | None = None
        self._taken = 0

    def put(self, payload: Any) -> None:
        """An item has arrived, or what will be one when it was fetched."""
        if self._end is not None:
            if type(payload) is Fetch:
                self._link.drop(payload)
            return
        if len(self._items) >= WINDOW:
            raise ValueError("the peer sends more items than it was granted")
        self._items.append(payload)
        if type(payload) is Fetch:
            payload.then = self._fetched
            self._later.append(payload)
            self._fetch_ahead()
        self._link.poller.wake_all(self._waiters)

    def _fetch_ahead(self) -> None:
        """Fetch items as far as they may lie here unread, and the first one if it is awaited."""
        while self._later:
            fetch = self._later[0]
            is_awaited = self._takers > 0 and fetch is self._items[0]
            if not is_awaited and not self._may_hold(fetch.length):
                return
            self._later.popleft()
            self._count(fetch.length)
            self._link.fetch(fetch)

    def _may_hold(self, nbytes: int) -> bool:
        of_all = self._link.items_ahead
        return (not self._ahead or self._ahead + nbytes <= STREAM_AHEAD) and (
            not of_all or of_all + nbytes <= ITEMS_AHEAD
        )

    def _count(self, nbytes: int) -> None:
        self._ahead += nbytes
        self._link.items_ahead += nbytes

    def _fetched(self, fetch: Fetch) -> None:
        del fetch
        self._link.poller.wake_all(self._waiters)

    def end(self, reason: BaseException) -> None:
        """No more items come, since ``reason``; those that are there can still be taken."""
        if self._end is None:
            self._end = reason
            self._link.poller.wake_all(self._waiters)

    @property
    def is_empty(self) -> bool:
        """Whether no item lies here."""
        return not self._items

    def drop(self) -> None:
        """Nobody will take what is here."""
        self.end(FlowEnded())
        for each in self._items:
            if type(each) is Fetch:
                self._link.drop(each)
        self._items.clear()
        self._later.clear()
        self._count(-self._ahead)

    def _is_there(self) -> bool:
        if not self._items:
            return self._end is not None
        first = self._items[0]
        return type(first) is not Fetch or first.is_ready or self._link.ended is not None

    def _reason(self) -> BaseException:
        """Return why no more items come. A FlowEnded is new: its traceback refers to who takes,
        who refers to this."""
        end = self._end
        return FlowEnded() if end is None or isinstance(end, FlowEnded) else end

    async def take(self) -> Any:
        """Wait for the next item. Raises FlowEnded, or the error that ended the stream."""
        self._takers += 1
        try:
            if self._later:
                self._fetch_ahead()
            await self._link.poller.until(self._is_there, self._waiters)
        finally:
            self._takers -= 1
        if not self._items:
            raise self._reason()
        first = self._items[0]
        if type(first) is Fetch:
            if not first.is_ready:
                self.drop()
                raise self._reason()
            item = self._decode(first.view())
            self._count(-first.length)
            self._link.release(first)
        else:
            item = self._decode(first)
        self._items.popleft()
        if self._later:
            self._fetch_ahead()
        self._taken += 1
        if self._taken >= WINDOW // 2 and self._end is None:
            self._link.send(FrameKind.GRANT, 0, 0, self._call, self._taken, b"")
            self._taken = 0
        return item


class Outflow:
    """Sends items as far as they are granted."""

    def __init__(self, link: Link, call: int, encode: Encode, plan: Strategies) -> None:
        self._link = link
        self._call = call
        self._encode = encode
        self._plan = plan
        self._room = WINDOW
        self._waiters: list[asyncio.Future[None]] = []
        self._end: Callable[[], BaseException] | None = None

    def granted(self, count: int) -> None:
        """The peer takes so many more."""
        self._room += count
        self._link.poller.wake_all(self._waiters)

    def end(self, reason: Callable[[], BaseException]) -> None:
        """The peer takes no more, since the exception that ``reason`` makes."""
        if self._end is None:
            self._end = reason
            self._link.poller.wake_all(self._waiters)

    async def send(self, item: Any) -> None:
        """Send an item, as soon as it is granted; if cancelled before that, nothing is sent."""
        data = self._encode(item)
        await self._link.poller.until(
            lambda: self._room > 0 or self._end is not None, self._waiters
        )
        if self._end is not None:
            raise self._end()
        size = nbytes_of(data)
        self._link.check_size(size)
        self._room -= 1
        if size <= self._link.room:
            self._link.send(FrameKind.ITEM, 0, 0, self._call, 0, data)
        elif request_way(self._plan, size, 0, 0) is RequestWay.INLINE:
            self._link.send_parts(FrameKind.ITEM, 0, 0, self._call, 0, data)
        else:
            self._link.send_fetch(FrameKind.ITEM, 0, 0, self._call, 0, data, _nothing)


def _nothing() -> None:
    """The encoded item is kept by the offer until it was read."""
