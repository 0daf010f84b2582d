# SPDX-License-Identifier: Apache-2.0
"""The coroutine of a call without items, which says so to ``async for``.

``Client`` makes one for each call, which takes a quarter of a microsecond.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, NoReturn

__all__ = ["UnaryCall"]


class UnaryCall(Coroutine[Any, Any, Any]):
    """A call of a method without items: a coroutine, and ``async for`` over it is told what to do.

    Python's own coroutines have no ``__aiter__``: its message names no method, and a warning about
    a coroutine that nobody awaited follows.
    """

    __slots__ = ("_name", "_work")

    def __init__(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        self._work = work
        self._name = name

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()

    def send(self, value: Any) -> Any:
        """Take the next step."""
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """Take the next step with an exception."""
        return self._work.throw(*error)

    def close(self) -> None:
        """End it, whether it has begun or not."""
        self._work.close()

    def __aiter__(self) -> NoReturn:
        """Raise TypeError."""
        self._work.close()
        raise TypeError(
            f"{self._name} returns no items but one result: await client.{self._name}(…), and not"
            " async for"
        )
