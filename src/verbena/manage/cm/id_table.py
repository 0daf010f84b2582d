# SPDX-License-Identifier: Apache-2.0
"""Identifiers by number, event channels, and which events are whose.

The parts of ``RdmaCm`` share one ``IdTable``. Events of a channel are read in the order in which
they happened. An event counts for its identifier when it is read, a connection request for its
listener, and one of a group also for the group: a program waits for so many acknowledgements.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from ..ip_cm import PortSpace
from .identifier import GroupMember, RdmaId
from .rdma_events import RdmaEvent, RdmaEventKind
from .refusals import CmError, CmRefusal

__all__ = ["IdTable"]

MOST_IDS = 65536  # librdmacm keeps a table of so many


class IdTable:
    """Numbers are the lowest that are free; identifiers and groups have tables of their own."""

    def __init__(self, random: Callable[[int], int]) -> None:
        self.ids: dict[int, RdmaId] = {}
        self.groups: dict[int, GroupMember] = {}
        self._random = random
        self._channels: dict[int, deque[tuple[int, RdmaEvent]]] = {}  # with the id that is charged
        self._unread: dict[int, int] = {}
        """How many unread events name an identifier, or are charged to it."""
        self.note_reads: Callable[[int], None] = lambda _: None
        """Called before a request is refused: events of the channel may have been read."""
        self.changed: set[int] = set()
        """Channels whose unread events are others than when this was cleared."""
        self._free: dict[str, list[int]] = {"id": [], "group": [], "channel": []}
        self._next = {"id": 0, "group": 0, "channel": 0}

    def number(self, kind: str) -> int:
        """Return the lowest free number of ids, groups or channels. Raises CmError."""
        free = self._free[kind]
        if free:
            return heapq.heappop(free)
        made = self._next[kind]
        if made >= MOST_IDS:
            raise CmError(CmRefusal.TOO_MANY_IDS)
        self._next[kind] = made + 1
        return made

    def give_back(self, kind: str, number: int) -> None:
        """A number is free again."""
        heapq.heappush(self._free[kind], number)

    # Channels.

    def open_channel(self) -> int:
        """Return a new channel without events."""
        channel = self.number("channel")
        self._channels[channel] = deque()
        return channel

    def close_channel(self, channel: int) -> None:
        """Forget a channel; its identifiers must be gone."""
        del self._channels[self.known_channel(channel)]
        self.give_back("channel", channel)

    def known_channel(self, channel: int) -> int:
        """Return the channel. Raises CmError if there is none."""
        if channel not in self._channels:
            raise CmError(CmRefusal.NO_SUCH_CHANNEL)
        return channel

    def pending(self, channel: int) -> int:
        """Return the number of events to be read."""
        events = self._channels.get(channel)
        return len(self._channels[self.known_channel(channel)] if events is None else events)

    def unread_events(self, channel: int, at: int, most: int) -> list[RdmaEvent]:
        """Return at most so many events behind ``at`` others; all of them stay."""
        events = self._channels[channel]
        return [event for _, event in islice(events, at, at + most)] if at < len(events) else []

    def names(self, channel: int, count: int, number: int, is_group: bool) -> bool:
        """Whether one of the next events names an identifier or is charged to it, or of a group."""
        for charged, event in islice(self._channels[channel], count):
            if event.group == number if is_group else number in (charged, event.id):
                return True
        return False

    def read_event(self, channel: int, at: int = 0) -> RdmaEvent | None:
        """Return the next event, or the one behind so many, and count it; None if there is none."""
        events = self._channels[self.known_channel(channel)]
        if at >= len(events):
            return None
        number, event = events[at]
        del events[at]
        self._was_read(number, event)
        return event

    def read_events(self, channel: int, count: int) -> None:
        """Count the next events of a channel, so many or all, as read."""
        events = self._channels[channel]
        for _ in range(min(count, len(events))):
            self._was_read(*events.popleft())

    def _was_read(self, charged: int, event: RdmaEvent) -> None:
        self._count(charged, event, -1)
        of = self.ids[charged]
        of.events_read += 1
        if event.kind is RdmaEventKind.CONNECT_REQUEST:
            of.backlog += 1
        if event.group is not None and (member := self.groups.get(event.group)) is not None:
            member.events_read += 1

    def report(self, of: RdmaId, event: RdmaEvent) -> None:
        """Queue an event of an identifier; one that no program knows yet has none."""
        if not of.context and event.kind is not RdmaEventKind.CONNECT_REQUEST:
            return
        charged = of.number if event.listener is None else event.listener
        channel = of.channel
        self._channels[channel].append((charged, event))
        self._count(charged, event, 1)
        self.changed.add(channel)

    def _count(self, charged: int, event: RdmaEvent, by: int) -> None:
        unread = self._unread
        unread[charged] = unread.get(charged, 0) + by
        if event.id != charged:
            unread[event.id] = unread.get(event.id, 0) + by

    def migrate(self, moved: RdmaId, channel: int) -> int:
        """Move an identifier and its unread events to another channel; return its events read."""
        self.known_channel(channel)
        if channel != moved.channel:
            events = self._channels[moved.channel]
            self._channels[channel].extend(e for e in events if e[0] == moved.number)
            self._channels[moved.channel] = deque(e for e in events if e[0] != moved.number)
            self.changed.update((moved.channel, channel))
            moved.channel = channel
        return moved.events_read

    def purge(self, number: int) -> list[int]:
        """Forget the unread events of an identifier; return the new ids among them, unheard of."""
        unheard: list[int] = []
        if not self._unread.get(number):
            return unheard
        for channel, events in self._channels.items():
            kept = deque[tuple[int, RdmaEvent]]()
            for charged, event in events:
                if number not in (charged, event.id):
                    kept.append((charged, event))
                    continue
                self._count(charged, event, -1)
                if event.listener == number:
                    unheard.append(event.id)
            if len(kept) < len(events):
                self._channels[channel] = kept
                self.changed.add(channel)
        return unheard

    def purge_group(self, handle: int) -> None:
        """Forget the unread events of a group."""
        for channel, events in self._channels.items():
            for charged, event in [each for each in events if each[1].group == handle]:
                self._count(charged, event, -1)
                events.remove((charged, event))
                self.changed.add(channel)

    # Identifiers.

    def new_id(self, channel: int, space: PortSpace, qp_kind: int, context: int) -> RdmaId:
        """Return a new identifier. Raises CmError."""
        self.known_channel(channel)
        number = self.number("id")
        made = RdmaId(number, channel, space, qp_kind, context, self._random(24))
        self.ids[number] = made
        return made

    def id(self, number: int) -> RdmaId:
        """Return an identifier. Raises CmError if there is none."""
        found = self.ids.get(number)
        if found is None:
            raise CmError(CmRefusal.NO_SUCH_ID, f"identifier {number}")
        return found

    def of_channel(self, channel: int) -> Iterator[RdmaId]:
        """Yield the identifiers of a channel."""
        return (each for each in list(self.ids.values()) if each.channel == channel)

    def remove(self, number: int) -> None:
        """Forget an identifier."""
        del self.ids[number]
        self.give_back("id", number)
