# SPDX-License-Identifier: Apache-2.0
"""``Stragglers``: what stores still do for queues that have ended, by the host that asked for it.

A host that lost its connection sends a write again by the next one, and then may write the same
blocks anew. A store that had not done the first write could do it last. So a target answers a
host's Connect after everything that its earlier queues have begun is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

__all__ = ["Stragglers"]


class Stragglers:
    """Work of stores, by host identifier."""

    def __init__(self) -> None:
        self._left: dict[bytes, set[asyncio.Future[Any]]] = {}

    def add(self, host_id: bytes, work: asyncio.Future[Any]) -> None:
        """A queue of the host has ended while a store does this."""
        self._left.setdefault(host_id, set()).add(work)
        work.add_done_callback(lambda done: self._remove(host_id, done))

    def _remove(self, host_id: bytes, work: asyncio.Future[Any]) -> None:
        left = self._left.get(host_id, set())
        left.discard(work)
        if not left:
            self._left.pop(host_id, None)

    def wait(self, host_id: bytes) -> Awaitable[None] | None:
        """Return what to wait for before the host is connected again; None if there is nothing."""
        left = self._left.get(host_id)
        return _all_done(set(left)) if left else None


async def _all_done(work: set[asyncio.Future[Any]]) -> None:
    await asyncio.wait(work)
