# SPDX-License-Identifier: Apache-2.0
"""The loop of simulated hosts does what asyncio documents of every event loop."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.sim.fabrics import star
from verbena import sim
from verbena.sim.lacking import Lacking
from verbena.sim.loop import Loop

Errors = list[dict[str, Any]]


@pytest.fixture
def loop() -> Iterator[Loop]:
    world = sim.World()
    star(world, 2)
    made = Loop(sim.Hosts(world))
    yield made
    made.close()


@pytest.fixture
def errors(loop: Loop) -> Errors:
    """What the exception handler is told."""
    told: Errors = []
    loop.set_exception_handler(lambda loop, context: told.append(context))
    return told


async def nothing() -> None:
    pass


def raises() -> None:
    raise LookupError("not here")


# ---- callbacks and timers ------------------------------------------------------------------------


def test_timers_of_one_time_keep_their_order(loop: Loop) -> None:
    seen: list[int] = []
    timers = [loop.call_at(1, seen.append, number) for number in range(500)]
    for number in range(500):
        if number % 3:
            timers[number].cancel()
    loop.call_at(1, loop.stop)
    loop.run_forever()
    assert seen == list(range(0, 500, 3))


def test_handles_have_their_documented_methods(loop: Loop) -> None:
    where = contextvars.ContextVar("where", default="elsewhere")
    context = contextvars.copy_context()
    context.run(where.set, "here")
    seen: list[str] = []
    soon = loop.call_soon(lambda: seen.append(where.get()), context=context)
    later = loop.call_later(2.5, lambda: seen.append(where.get()))
    dropped = loop.call_later(1, seen.append, "never")
    dropped.cancel()
    loop.call_later(3, loop.stop)
    loop.run_forever()
    later.cancel()  # too late
    assert seen == ["here", "elsewhere"]
    assert soon.get_context() is context
    assert (later.when(), soon.cancelled(), dropped.cancelled()) == (2.5, False, True)
    assert repr(dropped) == "<Timer: cancelled>"


def test_cancelled_timers_take_no_room(loop: Loop) -> None:
    async def program() -> int:
        for _ in range(1000):
            await asyncio.wait_for(nothing(), 3600)
            loop.call_later(3600, print).cancel()
        return len(loop._timers.heap)

    assert loop.run_until_complete(program()) < 250


@pytest.mark.parametrize(("seconds", "due"), [(-math.inf, True), (-1, True), (math.inf, False)])
def test_times_without_end(loop: Loop, seconds: float, due: bool) -> None:
    seen: list[bool] = []
    loop.call_later(seconds, seen.append, True)
    loop.run_until_complete(asyncio.sleep(1))
    assert bool(seen) == due


def test_what_is_no_time_is_refused(loop: Loop) -> None:
    with pytest.raises(ValueError, match="NaN"):
        loop.call_later(math.nan, print)
    with pytest.raises(TypeError, match="None"):
        loop.call_later(None, print)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="None"):
        loop.call_at(None, print)  # type: ignore[arg-type]


# ---- running and stopping ------------------------------------------------------------------------


def test_stop_ends_after_the_callbacks_that_are_ready(loop: Loop) -> None:
    seen: list[str] = []
    loop.call_soon(loop.stop)
    loop.call_soon(loop.call_soon, seen.append, "next time")
    loop.call_soon(seen.append, "this time")
    loop.run_forever()
    assert seen == ["this time"]
    loop.stop()
    loop.run_forever()
    assert seen == ["this time", "next time"]


def test_a_loop_is_used_in_its_order(loop: Loop) -> None:
    async def inside() -> None:
        with pytest.raises(RuntimeError, match="already running"):
            loop.run_forever()
        with pytest.raises(RuntimeError, match="close a running"):
            loop.close()

    async def beside() -> None:
        with pytest.raises(RuntimeError, match="another loop is running"):
            loop.run_forever()

    loop.run_until_complete(inside())
    asyncio.run(beside())
    loop.call_soon(loop.stop)
    with pytest.raises(RuntimeError, match="before Future completed"):
        loop.run_until_complete(loop.create_future())
    assert repr(loop) == "<Loop running=False closed=False debug=False>"
    loop.close()
    loop.close()
    for call in (loop.call_soon, lambda what: loop.call_later(1, what)):
        with pytest.raises(RuntimeError, match="is closed"):
            call(print)
    with pytest.raises(RuntimeError, match="is closed"):
        loop.run_forever()


def test_an_interrupt_leaves_the_loop_as_it_is(loop: Loop) -> None:
    async def interrupted() -> None:
        raise KeyboardInterrupt

    seen: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(interrupted())
    loop.call_later(1, seen.append, "ran")
    loop.call_later(2, loop.stop)
    loop.run_forever()
    assert seen == ["ran"]


def test_an_open_loop_is_told_of() -> None:
    world = sim.World()
    star(world, 2)
    loop = Loop(sim.Hosts(world))
    with pytest.warns(ResourceWarning, match="unclosed event loop <Loop running=False"):
        loop.__del__()
    assert loop.is_closed()


# ---- tasks ---------------------------------------------------------------------------------------


def test_a_factory_makes_the_tasks(loop: Loop) -> None:
    made = []

    def factory(loop: Any, coro: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(options)
        return asyncio.Task(coro, loop=loop, **options)

    context = contextvars.copy_context()
    loop.set_task_factory(factory)
    assert loop.get_task_factory() is factory
    task = loop.create_task(nothing(), name="mine", context=context)
    loop.run_until_complete(task)
    assert (made, task.get_name()) == ([{"context": context}], "mine")
    with pytest.raises(TypeError, match="callable"):
        loop.set_task_factory(3)
    loop.set_task_factory(None)
    loop.run_until_complete(nothing())
    assert len(made) == 1


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="Python has no eager tasks; 3.12 brings them"
)
def test_eager_tasks_begin_at_once(loop: Loop) -> None:
    async def program() -> list[str]:
        seen = []

        async def one() -> None:
            seen.append("first")

        loop.set_task_factory(asyncio.eager_task_factory)
        task = asyncio.create_task(one())
        seen.append("second")
        await task
        return seen

    assert loop.run_until_complete(program()) == ["first", "second"]


# ---- errors --------------------------------------------------------------------------------------


def test_the_handler_is_told_of_errors(loop: Loop, errors: Errors) -> None:
    handle = loop.call_soon(raises)
    loop.run_until_complete(asyncio.sleep(1))
    assert len(errors) == 1
    assert errors[0]["handle"] is handle
    assert isinstance(errors[0]["exception"], LookupError)
    assert errors[0]["message"].startswith("Exception in callback <Callback: <function raises")
    with pytest.raises(TypeError, match="callable"):
        loop.set_exception_handler(3)  # type: ignore[arg-type]


def test_errors_without_a_handler_are_logged(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    loop.call_exception_handler({"message": "it broke", "part": "wheel"})
    loop.call_soon(raises)
    loop.run_until_complete(asyncio.sleep(1))
    assert caplog.records[0].getMessage() == "it broke\npart: 'wheel'"
    assert "Exception in callback" in caplog.text
    assert "LookupError: not here" in caplog.text


def test_a_handler_that_fails_is_logged(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    loop.set_exception_handler(lambda loop, context: raises())
    loop.call_soon(raises)
    loop.run_until_complete(asyncio.sleep(1))
    assert "Unhandled error in exception handler" in caplog.text


def test_a_handler_runs_in_the_context_of_the_callback(loop: Loop) -> None:
    where = contextvars.ContextVar("where", default="elsewhere")
    context = contextvars.copy_context()
    context.run(where.set, "here")
    seen: list[str] = []
    loop.set_exception_handler(lambda loop, told: seen.append(where.get()))
    loop.call_soon(raises, context=context)
    loop.run_until_complete(asyncio.sleep(1))
    assert seen == ["here"]


# ---- the debug mode ------------------------------------------------------------------------------


def test_the_debug_mode_refuses_what_is_no_callback(loop: Loop) -> None:
    loop.set_debug(True)
    with pytest.raises(TypeError, match="coroutines cannot be used"):
        loop.call_soon(nothing)
    with pytest.raises(TypeError, match="callable"):
        loop.call_later(1, 3)
    coroutine = nothing()
    with pytest.raises(TypeError, match="coroutines cannot be used"):
        loop.call_soon(coroutine)
    coroutine.close()


def test_the_debug_mode_tells_where_a_callback_comes_from(loop: Loop, errors: Errors) -> None:
    loop.set_debug(True)
    loop.call_soon(raises)
    loop.run_until_complete(asyncio.sleep(1))
    assert errors[0]["source_traceback"][-1].line == "loop.call_soon(raises)"


def test_the_debug_mode_knows_the_origin_of_coroutines(loop: Loop) -> None:
    async def program() -> list[bool]:
        seen = []
        for debug in (True, False):
            loop.set_debug(debug)
            coroutine = nothing()
            seen.append(coroutine.cr_origin is not None)
            await coroutine
        return seen

    assert loop.run_until_complete(program()) == [True, False]
    assert sys.get_coroutine_origin_tracking_depth() == 0


def test_the_debug_mode_tells_of_slow_callbacks(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    """A callback is slow in virtual time: only what blocks the whole world takes any."""
    loop.set_debug(True)
    loop.slow_callback_duration = 0.5
    loop.call_soon(loop.hosts.world.run, 10**12)
    loop.call_soon(time.sleep, 0.01)
    with caplog.at_level(logging.WARNING, "asyncio"):
        loop.run_until_complete(asyncio.sleep(1))
    assert [record.getMessage()[-22:] for record in caplog.records] == [",)> took 1.000 seconds"]


def test_other_threads_are_refused(loop: Loop) -> None:
    caught: list[BaseException] = []

    def elsewhere() -> None:
        for call in (loop.call_soon, loop.call_soon_threadsafe):
            try:
                call(print)
            except (RuntimeError, sim.NotSimulated) as error:
                caught.append(error)

    async def program() -> None:
        thread = threading.Thread(target=elsewhere)
        thread.start()  # the test is no program on a simulated host
        thread.join()

    loop.set_debug(True)
    loop.run_until_complete(program())
    assert [str(error)[:16] for error in caught] == ["Non-thread-safe ", "call_soon_thread"]


# ---- asynchronous generators ---------------------------------------------------------------------


def test_generators_end_with_the_loop(loop: Loop, errors: Errors) -> None:
    ended = []

    async def numbers(fails: bool) -> Any:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(1)
            ended.append(loop.time())
            if fails:
                raises()

    async def program() -> list[Any]:
        kept = [numbers(False), numbers(True)]
        for one in kept:
            await anext(one)
        return kept

    kept = loop.run_until_complete(program())
    loop.run_until_complete(loop.shutdown_asyncgens())
    assert ended == [1, 1]
    assert [told["asyncgen"] for told in errors] == [kept[1]]

    async def late() -> list[int]:
        return [one async for one in single()]

    async def single() -> Any:
        yield 1

    with pytest.warns(ResourceWarning, match=r"after loop.shutdown_asyncgens"):
        assert loop.run_until_complete(late()) == [1]


# ---- all of it -----------------------------------------------------------------------------------


def test_every_method_of_a_loop_is_there_or_refused() -> None:
    """A version of Python that adds a method to loops is seen here."""
    public = {name for name in vars(asyncio.AbstractEventLoop) if not name.startswith("_")}
    missing = {
        name for name in public if getattr(Loop, name) is getattr(asyncio.AbstractEventLoop, name)
    }
    assert missing == set()
    assert issubclass(Loop, Lacking)
