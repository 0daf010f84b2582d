# SPDX-License-Identifier: Apache-2.0
"""``at_every_await``: a coroutine is cancelled at each of its suspensions, one run for each.

Tests of the asyncio rooms call it. Suspensions are those of the coroutine itself, whatever other
tasks do meanwhile, so none is left out; a check follows each run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from enum import Enum
from functools import partial
from typing import Any

Making = Callable[[], Coroutine[Any, Any, Any]]
_MOST = 300


class Moment(Enum):
    """When a suspended task is cancelled."""

    WAITING = "in the loop's next iteration, as a rule before what it waits for is there"
    WOKEN = "when what it waits for is there, and before the task goes on"


class _Interrupted:
    """Await ``work``; its task is cancelled at suspension number ``at``, counted from 0."""

    def __init__(self, work: Coroutine[Any, Any, Any], at: int, moment: Moment) -> None:
        self._work, self._at, self._moment = work, at, moment
        self.passed = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        resume: Callable[[], Any] = partial(steps.send, None)
        while True:
            try:
                waited = resume()
            except StopIteration as ended:
                return ended.value
            if self.passed == self._at:
                self._cancel(waited)
            self.passed += 1
            try:
                yield waited
            except BaseException as error:
                resume = partial(steps.throw, error)
            else:
                resume = partial(steps.send, None)

    def _cancel(self, waited: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        cancel = task.cancel
        if waited is None or self._moment is Moment.WAITING:  # None: sleep(0) waits for nothing
            asyncio.get_running_loop().call_soon(cancel)
        else:
            waited.add_done_callback(lambda _: cancel())


async def cancelled_at(work: Coroutine[Any, Any, Any], at: int, moment: Moment) -> bool:
    """Run work and cancel it at a suspension; return whether it has fewer. Raises its errors."""
    interrupted = _Interrupted(work, at, moment)

    async def run() -> None:
        await interrupted

    task = asyncio.ensure_future(run())
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
    return interrupted.passed <= at


async def at_every_await(make: Making, check: Callable[[], Awaitable[object]]) -> int:
    """Cancel what ``make`` gives at each suspension; return how many there were at most.

    ``check`` is awaited after each run, and after those that nothing interrupted.
    """
    most = 0
    for moment in Moment:
        at = 0
        while not await cancelled_at(make(), at, moment):
            await check()
            at += 1
            assert at < _MOST, f"{moment}: it does not end"
        await check()
        most = max(most, at)
    return most
