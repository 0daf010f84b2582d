# SPDX-License-Identifier: Apache-2.0
"""verbena.collectives without asyncio: the same calls, which block.

    with sync.join(rank, size, "host:7174") as group:
        total = group.all_reduce(array)

Each group has an event loop of its own, which runs in the caller's thread during a call, and not in
between: a call is as fast as with asyncio.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar, Unpack

from numpy.typing import ArrayLike, NDArray

from verbena.cm.arguments import keywords
from verbena.peers import PeerOptions

from . import join as join_async
from .group import Group
from .links import LINK_OPTIONS
from .operators import Operator

__all__ = ["SyncGroup", "join"]

T = TypeVar("T")
Array = NDArray[Any]


class SyncGroup:
    """As ``Group``, with calls that block. One thread uses it."""

    def __init__(self, group: Group, loop: asyncio.AbstractEventLoop) -> None:
        self._group = group
        self._loop = loop
        self._called = threading.Lock()

    @property
    def rank(self) -> int:
        """The rank of this program, from 0."""
        return self._group.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._group.size

    def __repr__(self) -> str:
        return f"<SyncGroup: rank {self.rank} of {self.size}>"

    def barrier(self) -> None:
        """Wait until all ranks have called it."""
        self._run(self._group.barrier())

    def broadcast(self, array: Array, root: int = 0, *, algorithm: str | None = None) -> Array:
        """As Group.broadcast."""
        return self._run(self._group.broadcast(array, root, algorithm=algorithm))

    def reduce(
        self,
        array: ArrayLike,
        op: Operator = "sum",
        root: int = 0,
        *,
        algorithm: str | None = None,
    ) -> Array | None:
        """As Group.reduce."""
        return self._run(self._group.reduce(array, op, root, algorithm=algorithm))

    def all_reduce(
        self,
        array: ArrayLike,
        op: Operator = "sum",
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Array:
        """As Group.all_reduce."""
        return self._run(self._group.all_reduce(array, op, out=out, algorithm=algorithm))

    def reduce_scatter(
        self, array: ArrayLike, op: Operator = "sum", *, algorithm: str | None = None
    ) -> Array:
        """As Group.reduce_scatter."""
        return self._run(self._group.reduce_scatter(array, op, algorithm=algorithm))

    def all_gather(
        self, array: ArrayLike, *, out: Array | None = None, algorithm: str | None = None
    ) -> Array:
        """As Group.all_gather."""
        return self._run(self._group.all_gather(array, out=out, algorithm=algorithm))

    def gather(
        self, array: ArrayLike, root: int = 0, *, algorithm: str | None = None
    ) -> Array | None:
        """As Group.gather."""
        return self._run(self._group.gather(array, root, algorithm=algorithm))

    def scatter(
        self,
        parts: ArrayLike | None,
        out: Array,
        root: int = 0,
        *,
        algorithm: str | None = None,
    ) -> Array:
        """As Group.scatter."""
        return self._run(self._group.scatter(parts, out, root, algorithm=algorithm))

    def all_to_all(self, array: ArrayLike, *, algorithm: str | None = None) -> Array:
        """As Group.all_to_all."""
        return self._run(self._group.all_to_all(array, algorithm=algorithm))

    def leave(self) -> None:
        """Wait until the others have what was sent, and disconnect; as Group.leave."""
        self.__exit__(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if self._loop.is_closed():
            return
        try:
            self._run(self._group.__aexit__(kind, *error))
        finally:
            if not self._loop.is_running():  # another thread is in a call
                self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if not self._called.acquire(blocking=False):
            work.close()
            raise RuntimeError(
                "another thread is in a call of this group, which belongs to one thread: threads"
                " that call at once need a group each"
            )
        try:
            return run_in(self._loop, self._settled(work))
        finally:
            self._called.release()

    async def _settled(self, work: Coroutine[Any, Any, T]) -> T:
        result = await work
        await self._group.settle()
        return result


def run_in(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; an interruption cancels it, so that the other ranks are told."""
    task = loop.create_task(work)
    try:
        return loop.run_until_complete(task)
    except BaseException:
        if not task.done():
            task.cancel()
            loop.run_until_complete(asyncio.wait([task]))
        raise


@keywords(PeerOptions, **LINK_OPTIONS)
def join(
    rank: int | None = None,
    size: int | None = None,
    address: str | None = None,
    *,
    timeout: float | None = 60,
    **options: Unpack[PeerOptions],
) -> SyncGroup:
    """Join a group; as ``verbena.collectives.join``."""
    loop = asyncio.new_event_loop()
    try:
        group = run_in(loop, join_async(rank, size, address, timeout=timeout, **options))
    except BaseException:
        loop.close()
        raise
    return SyncGroup(group, loop)
