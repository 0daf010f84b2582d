# SPDX-License-Identifier: Apache-2.0
"""The agenda of one or several computers: what their devices do later, in picoseconds.

A ``Computer`` of its own has one, and the computers of a ``Machines`` share one. Events of one
instant run in the order in which they were added.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, cast

from verbena._arguments import checked_class, is_whole
from verbena.host.errors import HostError, HostTypeError

if TYPE_CHECKING:
    from verbena.host.computer import Computer
    from verbena.host.core import Core

NEVER = 1 << 63
# Of events at one time, of which each was added by the one before: more have no end.
MOST_AT_ONCE = 100_000


class Cause:
    """A store to a device, which leads to events: that of a core by the instruction at an address,
    or of a program in Python, without a core."""

    __slots__ = ("address", "computer", "core")

    def __init__(
        self, computer: Computer | None = None, core: Core | None = None, address: int = 0
    ) -> None:
        self.computer, self.core, self.address = computer, core, address

    def origin(self) -> str:
        """The instruction, as "core 0 of 'left' at 0x1000: mov [rbx], rax"; empty without one."""
        if self.core is None or self.computer is None:
            return ""
        text = self.core.text(self.address).partition(";")[0].strip()
        return f"core {self.core.number} of {self.computer.name!r} at {self.address:#x}: {text}"

    def name_in(self, error: HostError) -> None:
        """Says in an error of what the store has led to which store that was, once. The error of a
        posted store comes while another instruction runs, and that one is then not named."""
        if error.has_place:
            return
        error.has_place = True
        if self.core is not None:
            error.place(self.core, self.address)
        if origin := self.origin():
            error.args = (f"{error} (begun by the store of {origin})",)

    def note_in(self, error: Exception) -> None:
        """Adds to an exception of a user's own code which store has led to it."""
        if origin := self.origin():
            error.add_note(f"begun by the store of {origin}")


class Event:
    """A call that is to be made; ``cancel`` takes it back."""

    __slots__ = ("call", "cause", "depth")

    def __init__(
        self, call: Callable[[], None], cause: Cause | None = None, depth: int = 0
    ) -> None:
        self.call: Callable[[], None] | None = call
        self.cause = cause
        self.depth = depth  # events of the same time that led to this one

    def cancel(self) -> None:
        """The call is not made; nothing if it was made already."""
        self.call = None


@checked_class(HostTypeError, but=("add", "run_due"))
class Agenda:
    """Calls and the time of each; ``now`` is that of the event that runs."""

    def __init__(self) -> None:
        self.now = 0
        self.runs = False  # an event runs: it is ``now``, wherever the cores are
        self.cause: Cause | None = None  # the store that led to what happens now
        # Makes the cause of the store that a core makes now to a device without a bus: most of
        # these lead to no event, and need none.
        self.storing: Callable[[], Cause] | None = None
        self._is_run = False
        self._depth = 0  # of the event that runs
        self._events: list[tuple[int, int, Event]] = []
        self._order = count()

    @property
    def is_run(self) -> bool:
        """Whether computers run by it now."""
        return self._is_run

    @property
    def next_at(self) -> int:
        """The time of the next event; ``NEVER`` if there is none."""
        while self._events and self._events[0][2].call is None:
            heapq.heappop(self._events)
        return self._events[0][0] if self._events else NEVER

    def add(self, at: int, call: Callable[[], None]) -> Event:
        """Runs ``call`` at a time that is not past, below 2^63 ps."""
        if not is_whole(at) or not self.now <= at < NEVER or not callable(call):
            raise self._refusal(at, call)
        cause = self.current_cause()
        event = Event(call, cause, self._depth + 1 if self.runs and at == self.now else 0)
        heapq.heappush(self._events, (at, next(self._order), event))
        return event

    def current_cause(self) -> Cause | None:
        """The store that led to what happens now, or that a core makes now; None: there is none."""
        if self.cause is None and self.storing is not None:
            return self.storing()
        return self.cause

    def _refusal(self, at: object, call: object) -> HostError:
        if is_whole(at) and callable(call) and cast(int, at) >= NEVER:
            return HostError(
                f"an event at {at} ps is behind the end of time, 2^63 ps, which are 106 days"
            )
        if is_whole(at) and callable(call):
            return HostError(f"an event at {at} ps is in the past: it is {self.now} ps")
        return HostTypeError(
            f"an event has a time in ps, a whole number, and a function without arguments: its "
            f"time is {at!r}, and its call is {call!r}"
        )

    @contextmanager
    def run_by(self, who: str) -> Iterator[None]:
        """While computers run by this agenda. HostError if they do already: a device or an event
        has asked for it."""
        if self._is_run:
            raise HostError(
                f"{who} runs already: what a device or an event does cannot run its computer; let "
                "it call later, by self.at(time, call)"
            )
        self._is_run = True
        try:
            yield
        finally:
            self._is_run = False

    def run_due(self, until: int) -> None:
        """Runs all events up to ``until``, and what they add up to then."""
        self.runs = True
        try:
            while self.next_at <= until:
                at, _, event = heapq.heappop(self._events)
                call, event.call = event.call, None
                self.now = max(self.now, at)
                if call is not None:
                    self.cause, self._depth = event.cause, event.depth
                    if event.depth > MOST_AT_ONCE:
                        raise _endless(call, at)
                    call()
        except HostError as error:
            if self.cause is not None:
                self.cause.name_in(error)
            raise
        except Exception as error:
            if self.cause is not None:
                self.cause.note_in(error)
            raise
        finally:
            self.runs = False
            self._depth = 0
            self.cause = None
        self.now = max(self.now, until)


def _endless(call: Callable[[], None], at: int) -> HostError:
    """The error of events that add each other without time passing."""
    call = getattr(call, "__wrapped__", call)  # a device's, which is called while it is mapped
    owner = getattr(call, "__self__", None)
    name = getattr(call, "__qualname__", repr(call))
    whose = "" if owner is None else f" of {owner!r}"
    return HostError(
        f"{name}{whose} was called at {at} ps by an event that was added at this same time, as "
        f"{MOST_AT_ONCE:,} before it were: time does not pass. Let events that repeat add a time, "
        "as in self.at(self.now + 1000, call)"
    )
