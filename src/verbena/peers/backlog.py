# SPDX-License-Identifier: Apache-2.0
"""``Backlog``: what stands between peers that ask for a connection and the accepts of a listener.

Listeners call it, in their event loop. Each handshake is a task of its own, and not part of the
accept that began it: an accept that is cancelled leaves its handshake running, and the next accept
takes the connection. As many handshakes run at most as accepts wait, and as many as those have left
that were cancelled; so a program that accepts nothing has no connections.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from verbena.verbs import ConnectError, VerbsError

from .connection import PeerConnection
from .transport import Seat, Transport
from .wire import Hello

__all__ = ["Accept", "Asking", "Backlog"]

Accept = Callable[[Seat, Hello], Awaitable[Transport]]
Made = PeerConnection | BaseException


@dataclass(eq=False, slots=True)
class Asking:
    """A peer that asks for a connection: its hello, and how it is answered."""

    hello: Hello
    accept: Accept
    refuse: Callable[[], object]

    def refuse_if_cancelled(self, task: asyncio.Task[Any]) -> None:
        """Refuse it if the task that was to answer it was cancelled, perhaps before it began."""
        if task.cancelled():
            self.refuse_now()

    def refuse_now(self) -> None:
        """Refuse it, unless it was answered, or nobody is there any more."""
        with contextlib.suppress(OSError):
            self.refuse()


Connect = Callable[[Asking], Coroutine[Any, Any, PeerConnection]]


@dataclass(eq=False, slots=True)
class _Accepting:
    """An accept that waits. None is given to it when the listener has ended."""

    given: asyncio.Future[Made | None]
    connect: Connect


class Backlog:
    """Peers that ask, handshakes under way, and connections that no accept has taken yet."""

    def __init__(self) -> None:
        self._asking: deque[Asking] = deque()
        self._handshakes: set[asyncio.Task[PeerConnection]] = set()
        self._left = 0  # how many of the handshakes may run for accepts that were cancelled
        self._made: deque[Made] = deque()  # in the order in which the handshakes have ended
        self._accepts: deque[_Accepting] = deque()
        self._has_ended = False
        self._is_closed = False

    @property
    def has_asking(self) -> bool:
        """Whether a peer asks whose handshake has not begun."""
        return bool(self._asking)

    def offer(self, asking: Asking) -> None:
        """A peer asks; its handshake begins as soon as there is an accept for it."""
        if self._has_ended:
            asking.refuse_now()
            return
        self._asking.append(asking)
        self._go_on()

    def pop(self) -> Asking:
        """Return the first peer that asks, for a caller that makes the handshake itself."""
        return self._asking.popleft()

    async def take(self, connect: Connect) -> PeerConnection | None:
        """Wait for a connection that ``connect`` has made; None: the listener has ended.

        The first accept gets the first connection, and nothing is lost when one is cancelled.
        Raises what a handshake has raised that failed for a reason of this side.
        """
        waiting = _Accepting(asyncio.get_running_loop().create_future(), connect)
        self._accepts.append(waiting)
        self._go_on()
        try:
            made = await waiting.given
        except BaseException:
            self._leave(waiting)
            raise
        if not isinstance(made, BaseException):
            return made
        try:
            raise made
        finally:
            del made, waiting  # which the exception's traceback would refer to

    def give_back(self, made: Made) -> None:
        """Have the next accept take what an earlier one was given and has not used."""
        if self._is_closed:
            _drop(made)
            return
        self._made.appendleft(made)
        self._go_on()

    def _leave(self, waiting: _Accepting) -> None:
        """An accept was cancelled, perhaps in the moment in which it was given a connection."""
        given = waiting.given
        made = given.result() if given.done() and not given.cancelled() else None
        with contextlib.suppress(ValueError):
            self._accepts.remove(waiting)
        self._left = max(self._left, len(self._handshakes) - len(self._accepts))
        if made is not None:
            self.give_back(made)

    def _go_on(self) -> None:
        """Give what is made to those who wait, and begin handshakes for the others."""
        while self._accepts and (self._made or self._has_ended):
            given = self._accepts.popleft().given
            if not given.done():
                given.set_result(self._made.popleft() if self._made else None)
        while self._asking and len(self._handshakes) < len(self._accepts) + self._left:
            self._begin(self._asking.popleft(), self._accepts[0].connect)

    def _begin(self, asking: Asking, connect: Connect) -> None:
        task = asyncio.get_running_loop().create_task(connect(asking))
        self._handshakes.add(task)
        task.add_done_callback(partial(self._on_ended, asking))

    def _on_ended(self, asking: Asking, task: asyncio.Task[PeerConnection]) -> None:
        """Keep what a handshake has made, unless the peer has given up, or nobody wants it."""
        self._handshakes.discard(task)
        self._left = min(self._left, len(self._handshakes))
        asking.refuse_if_cancelled(task)
        if task.cancelled():  # by close(), or by the end of the loop, where nothing begins any more
            return
        error = task.exception()
        if error is not None:
            asking.refuse_now()
        if self._is_closed:
            _drop(error or task.result())
            return
        if error is None or _is_of_this_side(error):
            self._made.append(error or task.result())
        self._go_on()

    # ---- the end ----

    def end(self) -> None:
        """No more peers come. Accepts take what is made, and return None then."""
        self._has_ended = True
        for asking in self._asking:
            asking.refuse_now()
        self._asking.clear()
        self._go_on()

    def close(self) -> None:
        """End, and disconnect the peers that no accept has taken."""
        self._is_closed = True
        for task in self._handshakes:
            task.cancel()
        while self._made:
            _drop(self._made.popleft())
        self.end()

    def stay_with_parent(self) -> None:
        """In a forked child all of them are the parent's: they are forgotten, and not answered."""
        self._has_ended = self._is_closed = True
        for each in (self._asking, self._made, self._accepts, self._handshakes):
            each.clear()


def _drop(made: Made) -> None:
    if isinstance(made, PeerConnection):
        made.abort()


def _is_of_this_side(error: BaseException) -> bool:
    """Whether an accept raises it: not where the peer has given up, or cannot be reached."""
    if not isinstance(error, OSError):
        return True
    return isinstance(error, VerbsError) and not isinstance(error, ConnectError)
