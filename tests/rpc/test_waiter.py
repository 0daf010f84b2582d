# SPDX-License-Identifier: Apache-2.0
"""What the task of a call waits for: it goes on at once or soon, and once, whatever ends it."""

from __future__ import annotations

import asyncio
import asyncio.tasks
import selectors
import subprocess
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rpc.conftest import Sample
from verbena import rpc
from verbena.measure.rpc_peers import Measured
from verbena.rpc.waiter import CallWaiter

NAME: ContextVar[str] = ContextVar("name", default="none")
TASKS = [asyncio.Task, asyncio.tasks._PyTask]  # type: ignore[attr-defined]


@pytest.fixture(params=TASKS, ids=["task of C", "task of Python"])
def start(request: pytest.FixtureRequest) -> Callable[[Any], asyncio.Task[Any]]:
    """start(coroutine): a task of either implementation of asyncio."""

    def make(work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = request.param(work, loop=asyncio.get_running_loop())
        return task

    return make


async def waits(waiter: CallWaiter, said: list[str]) -> None:
    try:
        await waiter
        said.append("over")
    except asyncio.CancelledError as error:
        said.append(f"cancelled {error.args}")
        raise


def from_the_loop(what: Callable[[], Any]) -> asyncio.Future[Any]:
    """Call a function where no task runs, as the poller does."""
    loop = asyncio.get_running_loop()
    called = loop.create_future()
    loop.call_soon(lambda: called.set_result(what()))
    return called


def test_its_task_goes_on_before_resume_returns(start: Any) -> None:
    async def main() -> None:
        waiter = CallWaiter(asyncio.get_running_loop())
        said: list[str] = []
        task = start(waits(waiter, said))
        await asyncio.sleep(0)

        def resumed() -> list[str]:
            assert waiter.finish()
            assert not waiter.finish()
            assert said == []
            waiter.resume()
            return said.copy()

        assert await from_the_loop(resumed) == ["over"]
        assert task.done()
        waiter.resume()  # there is nobody any more
        assert not waiter.cancel()

    asyncio.run(main())


def test_it_has_the_context_of_its_task(start: Any) -> None:
    async def main() -> None:
        waiter = CallWaiter(asyncio.get_running_loop())
        seen: list[Any] = []

        async def work() -> None:
            NAME.set("of the task")
            await waiter
            seen.append((asyncio.current_task(), NAME.get()))

        task = start(work())
        await asyncio.sleep(0)
        waiter.finish()
        await from_the_loop(waiter.resume)
        assert seen == [(task, "of the task")]
        assert NAME.get() == "none"

    asyncio.run(main())


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_cancelled_task_is_cancelled_once(start: Any, is_finished: bool) -> None:
    """Also one whose waiter has ended, but that has not gone on yet."""

    async def main() -> None:
        waiter = CallWaiter(asyncio.get_running_loop())
        said: list[str] = []
        task = start(waits(waiter, said))
        await asyncio.sleep(0)
        if is_finished:
            waiter.finish()
        task.cancel("why")
        waiter.resume_soon()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert said == ["cancelled ('why',)"]
        assert waiter.done()

    asyncio.run(main())


def test_one_that_has_ended_is_not_waited_for() -> None:
    async def main() -> None:
        waiter = CallWaiter(asyncio.get_running_loop())
        waiter.finish()
        assert asyncio.isfuture(waiter)
        await waiter

    asyncio.run(main())


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["finish", "cancel", "resume", "soon", "turn"]), st.integers(0, 3)
        ),
        max_size=20,
    )
)
def test_each_task_ends_once(steps: list[tuple[str, int]]) -> None:
    """Whatever ends them, in whatever order, as with Futures."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        waiters = [CallWaiter(loop) for _ in range(4)]
        said: list[list[str]] = [[] for _ in waiters]
        tasks = [
            loop.create_task(waits(waiter, of)) for waiter, of in zip(waiters, said, strict=True)
        ]
        await asyncio.sleep(0)
        first: dict[int, str] = {}
        for step, number in steps:
            waiter = waiters[number]
            if step == "turn":
                await asyncio.sleep(0)
            elif step == "cancel":
                if tasks[number].cancel() and not said[number]:
                    first[number] = "cancelled"
            elif step == "finish":
                waiter.finish()
                first.setdefault(number, "over")
            elif waiter.done():
                await from_the_loop(waiter.resume if step == "resume" else waiter.resume_soon)
        for number, waiter in enumerate(waiters):
            waiter.finish()
            waiter.resume_soon()
            first.setdefault(number, "over")
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [len(each) for each in said] == [1] * 4
        assert {number: each[0].split()[0] for number, each in enumerate(said)} == first

    asyncio.run(main())


def test_a_task_that_ends_the_program_leaves_the_others() -> None:
    """SystemExit in one woken task: the tasks of the calls that ended with it go on as well."""

    async def one(client: rpc.Client, number: int) -> int:
        await client.add(number, 0)
        if number == 0:
            raise SystemExit(3)
        return number

    async def begin() -> tuple[Any, Any, list[Any]]:
        server = await rpc.serve(Sample(), "127.0.0.1:0", spin=0)
        client = await rpc.connect(f"127.0.0.1:{server.port}", Sample, spin=0)
        return server, client, [asyncio.ensure_future(one(client, each)) for each in range(8)]

    async def end(server: Any, client: Any, calls: list[Any]) -> list[int]:
        async with asyncio.timeout(10):
            got = await asyncio.gather(*calls[1:])
        await client.close()
        await server.close()
        return got

    with asyncio.Runner() as runner:
        server, client, calls = runner.run(begin())
        with pytest.raises(SystemExit):
            runner.run(asyncio.wait(calls))
        assert runner.run(end(server, client, calls)) == list(range(1, 8))
        assert isinstance(calls[0].exception(), SystemExit)


def test_a_woken_task_goes_on_in_the_iteration_of_its_event() -> None:
    """The loop does not ask the kernel once more between the response and the next request."""

    slept = turns = 0

    class Counting(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> Any:
            nonlocal slept, turns
            if timeout == 0:
                turns += 1  # something was to be called, and nothing to be waited for
            else:
                slept += 1
            return super().select(timeout)

    async def main(port: str) -> None:
        nonlocal turns
        async with rpc.connect(f"127.0.0.1:{port}", Measured, spin=0) as client:
            turns = number = 0
            before = slept
            while slept < before + 100:  # a response may be there before the client sleeps
                assert await client.head(b"%d" % number) == b"%d" % number
                number += 1
            assert turns < 50

    words = [sys.executable, "-m", "verbena.measure.rpc_peers", "verbena woken"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        port = child.stdout.readline().strip()
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(Counting())) as runner:
            runner.run(main(port))
        child.communicate(timeout=10)  # it serves until its stdin closes
