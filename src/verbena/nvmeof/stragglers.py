# SPDX-License-Identifier: Apache-2.0
"""``Stragglers``: what stores still do for queues that have ended, by the host that asked for it.

A host that lost its connection sends a write again by the next one, and then may write the same
blocks anew. A store that had not done the first write could do it last. So the targets of a model
answer a host's Connect after everything that its earlier queues have begun is done, and a Preempt
and Abort of another host after what concerns the namespace is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any

from .commands import EVERY_NAMESPACE

__all__ = ["NO_NAMESPACE", "Stragglers", "all_done", "of_namespace"]

NO_NAMESPACE = 0  # work that uses no blocks


class Stragglers:
    """Work of stores, by host identifier."""

    def __init__(self) -> None:
        self._left: dict[bytes, dict[asyncio.Future[Any], int]] = {}

    def add(self, host_id: bytes, work: asyncio.Future[Any], nsid: int) -> None:
        """A queue of the host has ended while a store does this for a namespace."""
        self._left.setdefault(host_id, {})[work] = nsid
        work.add_done_callback(lambda done: self._remove(host_id, done))

    def _remove(self, host_id: bytes, work: asyncio.Future[Any]) -> None:
        left = self._left.get(host_id, {})
        left.pop(work, None)
        if not left:
            self._left.pop(host_id, None)

    def wait(self, host_id: bytes) -> Awaitable[None] | None:
        """Return what to wait for before the host is connected again; None if there is nothing."""
        left = self._left.get(host_id)
        return all_done(left) if left else None

    def left(self, host_id: bytes, nsid: int) -> list[asyncio.Future[Any]]:
        """Return the work of a host that uses blocks of a namespace."""
        return of_namespace(self._left.get(host_id, {}), nsid)


def of_namespace(work: dict[asyncio.Future[Any], int], nsid: int) -> list[asyncio.Future[Any]]:
    """Return what uses blocks of a namespace, or of every one."""
    return [each for each, used in work.items() if used in (nsid, EVERY_NAMESPACE)]


async def all_done(work: Iterable[asyncio.Future[Any]]) -> None:
    """Wait until all is done, or has failed."""
    left = list(work)
    if left:
        await asyncio.wait(left)
