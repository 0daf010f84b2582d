# SPDX-License-Identifier: Apache-2.0
"""How ranks that wait for each other in different calls find out.

The algorithms of two calls may have other pairs of ranks, so that every rank waits and nothing
comes. A rank that waits in a call for ``_FIRST`` seconds therefore tells all others which call it
is in, and each compares that with its own call of the same number. ``Links`` owns a ``Watch``; a
call that does not wait so long costs it no message.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import Any

from .choosing import ALGORITHMS

__all__ = ["Watch", "describe_call", "describe_calls", "what_of"]

_FIRST = 0.25  # seconds in a call until the others are told; then twice as long each time
_TELLINGS = 10  # about a call: a note is lost where a connection is, and comes back
_KEPT = 64  # calls of this rank that are compared with what others tell
_NAMES = ("no call", *ALGORITHMS)
_INDEX = {name: index for index, name in enumerate(_NAMES)}
_NAME_BITS, _NAME_MASK, _NAMES_MASK = 4, 15, 255
_U32 = (1 << 32) - 1


def what_of(call: str, about: tuple[Any, ...], before: int) -> int:
    """Return 32 bits that ranks have in common whose calls up to this one are the same.

    ``before`` is that of the call before, or 0. The lowest bits say the names of both calls; the
    rest is a checksum of all calls so far, so that a call which differed shows in later ones too.
    """
    checksum = zlib.crc32(repr((call, about)).encode(), before) & ~_NAMES_MASK
    return checksum | (before & _NAME_MASK) << _NAME_BITS | _INDEX[call]


def describe_calls(rank: int, what: int, other: int, its: int, own: str) -> str:
    """Return how the calls of two ranks differ, which are at ``what`` and at ``its``.

    ``own`` is the call of this rank: where only arrays differ, each rank says what its own are.
    """
    first, second = _name_of(what), _name_of(its)
    if first != second:
        return f"rank {rank} called {first}, and rank {other} {second}"
    earlier, its_earlier = _name_of(what >> _NAME_BITS), _name_of(its >> _NAME_BITS)
    if earlier != its_earlier:
        return f"before {first}, rank {rank} called {earlier}, and rank {other} {its_earlier}"
    return (
        f"ranks {rank} and {other} called {first} with different arrays, root, operator or"
        f" algorithm, or a call before it differed (the last call of this rank, {own})"
    )


def describe_call(name: str, *about: Any) -> str:
    """Return a call with its algorithm, root or operator, dtype and shape: "reduce(tree, 0, …)"."""
    return f"{name}({', '.join(map(str, about))})"


def _name_of(what: int) -> str:
    index = what & _NAME_MASK
    return _NAMES[index] if index < len(_NAMES) else "something else"


class Watch:
    """Compares the calls of this rank with those that others say they wait in.

    ``tell`` gives a note of 64 bits to all other ranks; ``is_waiting`` says whether this rank is in
    a call, and ``look`` looks at what has come and was not received; ``found(rank, what, own)`` is
    called when a rank has made a different call.
    """

    def __init__(
        self,
        tell: Callable[[int], object],
        is_waiting: Callable[[], bool],
        look: Callable[[], object],
        found: Callable[[int, int, int], object],
    ) -> None:
        self._tell = tell
        self._is_waiting = is_waiting
        self._look_at_rest = look
        self._found = found
        self._calls = [0] * _KEPT  # what they are, by number
        self._number = 0
        self._seen = 0  # the number at the last look
        self._told = 0  # how often the others were told of it
        self._heard: dict[int, tuple[int, int]] = {}  # of ranks that are ahead: number, what
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def begin(self, number: int, what: int) -> None:
        """This rank begins a call."""
        self._calls[number % _KEPT] = what
        self._number = number
        if self._heard:
            self._compare_all()
        if self._timer is None or self._told:
            self._look_in(_FIRST)

    def hear(self, rank: int, note: int) -> None:
        """A rank has told which call it is in."""
        number, what = note >> 32, note & _U32
        if number > self._number:
            self._heard[rank] = number, what
        elif number > self._number - _KEPT and self._calls[number % _KEPT] != what:
            self._found(rank, what, self._calls[number % _KEPT])

    def tell(self) -> None:
        """Tell the others which call this rank has made last, if it has made one."""
        if 0 < self._number <= _U32:
            self._tell(self._number << 32 | self._calls[self._number % _KEPT])

    def stop(self) -> None:
        """Look no more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _compare_all(self) -> None:
        for rank, (number, what) in list(self._heard.items()):
            if number <= self._number:
                del self._heard[rank]
                self.hear(rank, number << 32 | what)

    def _look_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if seconds == _FIRST:
            self._told = 0
        if self._is_stopped:
            return
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._is_waiting():
            return
        if self._number != self._seen:
            self._seen = self._number
            self._look_in(_FIRST)
            return
        self._look_at_rest()
        if self._told < _TELLINGS and not self._is_stopped:
            self.tell()
            self._told += 1
            self._look_in(_FIRST * 2**self._told)
