# SPDX-License-Identifier: Apache-2.0
"""What ``connect`` and ``serve`` return before there is a client or server: to await, or to enter.

``make`` is called once it is awaited; a block that is left closes what was made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, TypeVar

__all__ = ["Opening"]

Made = TypeVar("Made", bound=AbstractAsyncContextManager[Any])


class Opening(Generic[Made]):
    """For ``async with``, or to await."""

    def __init__(self, make: Callable[[], Awaitable[Made]]) -> None:
        self._make = make
        self._made: Made | None = None

    def __await__(self) -> Generator[Any, Any, Made]:
        return self._make().__await__()

    async def __aenter__(self) -> Made:
        self._made = await self
        return self._made

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._made is not None
        await self._made.__aexit__(kind, error, trace)
