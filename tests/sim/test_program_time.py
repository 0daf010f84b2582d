# SPDX-License-Identifier: Apache-2.0
"""asyncio's sleeps, timeouts and locks in virtual time: they end in time and take no real time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.sim.fabrics import star
from verbena import sim, verbs

HOUR = 3600.0


def world() -> sim.World:
    made = sim.World()
    star(made, 2)
    return made


def now() -> float:
    return asyncio.get_running_loop().time()


def run(program: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return sim.run({"h0": program}, world()).returned["h0"]


async def after(seconds: float, value: Any = None) -> Any:
    await asyncio.sleep(seconds)
    return value


def test_timeouts_end_when_they_say() -> None:
    async def program() -> list[float]:
        seen = []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2 * HOUR):
                await asyncio.sleep(9 * HOUR)
        seen.append(now())
        async with asyncio.timeout_at(3 * HOUR) as limit:
            limit.reschedule(5 * HOUR)
            await asyncio.sleep(2 * HOUR)
        seen.append(now())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), HOUR)
        seen.append(now())
        assert await asyncio.wait_for(after(HOUR, "in time"), 2 * HOUR) == "in time"
        return [*seen, now()]

    begin = time.monotonic()
    assert run(program) == [2 * HOUR, 4 * HOUR, 5 * HOUR, 6 * HOUR]
    assert time.monotonic() - begin < HOUR


def test_short_times_are_exact() -> None:
    async def program() -> float:
        for _ in range(1000):
            await asyncio.sleep(1e-9)
        return now()

    assert run(program) == pytest.approx(1e-6, rel=1e-3)


def test_timers_fire_in_their_order() -> None:
    async def program() -> list[int]:
        loop, seen = asyncio.get_running_loop(), []
        done = loop.create_future()
        for number in (5, 3, 9, 1, 7):
            loop.call_later(number, seen.append, number)
        loop.call_later(4, seen.append, 4).cancel()
        loop.call_at(now() + 10, done.set_result, None)
        await done
        return seen

    assert run(program) == [1, 3, 5, 7, 9]


def test_a_queue_hands_over_and_holds_back() -> None:
    async def program() -> tuple[list[int], float]:
        queue: asyncio.Queue[int] = asyncio.Queue(2)
        seen = []

        async def consume() -> None:
            while True:
                seen.append(await queue.get())
                await asyncio.sleep(1)
                queue.task_done()

        consumer = asyncio.create_task(consume())
        for number in range(6):
            await queue.put(number)
        put = now()
        await queue.join()
        consumer.cancel()
        assert put == 3
        return seen, now()

    assert run(program) == (list(range(6)), 6)


def test_a_group_ends_with_its_last_or_its_first_failure() -> None:
    async def program() -> list[float]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(after(n, n)) for n in (3, 1, 2)]
        assert [task.result() for task in tasks] == [3, 1, 2]
        ended = [now()]

        async def fail() -> None:
            await asyncio.sleep(1)
            raise LookupError("not here")

        async def group_that_fails() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(after(HOUR))
                group.create_task(fail())

        with pytest.raises(ExceptionGroup) as caught:
            await group_that_fails()
        assert [type(error) for error in caught.value.exceptions] == [LookupError]
        return [*ended, now()]

    assert run(program) == [3, 4]


def test_gather_wait_and_as_completed() -> None:
    async def program() -> float:
        assert await asyncio.gather(after(2, "a"), after(1, "b")) == ["a", "b"]
        tasks = [asyncio.create_task(after(n, n)) for n in (3, 1, 2)]
        assert [await one for one in asyncio.as_completed(tasks)] == [1, 2, 3]
        slow, quick = asyncio.create_task(after(HOUR)), asyncio.create_task(after(1))
        done, left = await asyncio.wait([slow, quick], return_when=asyncio.FIRST_COMPLETED)
        assert (done, left) == ({quick}, {slow})
        slow.cancel()
        return now()

    assert run(program) == 6


def test_events_locks_and_conditions_wake_who_waits() -> None:
    async def program() -> list[tuple[str, float]]:
        event, lock, seen = asyncio.Event(), asyncio.Lock(), []
        room = asyncio.Semaphore(2)

        async def waits(name: str) -> None:
            await event.wait()
            async with room:
                async with lock:
                    await asyncio.sleep(1)
                seen.append((name, now()))

        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(waits(name))
            asyncio.get_running_loop().call_later(5, event.set)
        return seen

    assert run(program) == [("a", 6), ("b", 7), ("c", 8)]


def test_hosts_share_one_clock_and_context_goes_with_tasks() -> None:
    async def program() -> tuple[float, str | None]:
        await asyncio.sleep(1)
        task = asyncio.create_task(after(1))
        await task
        return now(), task.get_name().partition("/")[0]

    returned = sim.run({"h0": program, "h1": program}, world()).returned
    assert returned == {"h0": (2, "h0"), "h1": (2, "h1")}


def test_who_goes_round_with_sleep_0_lets_time_pass_at_last() -> None:
    flag = []

    async def round_and_round() -> float:
        while not flag:
            await asyncio.sleep(0)
        return now()

    async def set_flag() -> None:
        await asyncio.sleep(HOUR)
        flag.append(1)

    done = sim.run({"h0": round_and_round, "h1": set_flag}, world())
    assert done.returned["h0"] == HOUR

    async def for_ever() -> None:
        while True:
            await asyncio.sleep(0)

    ended = sim.run({"h0": for_ever}, world(), until=3)
    assert (ended.returned, ended.now) == ({}, 3)


def test_many_turns_at_one_instant_take_no_time_while_nothing_is_to_happen() -> None:
    async def program() -> float:
        for _ in range(25_000):
            await asyncio.sleep(0)
        return now()

    assert run(program) == 0


def test_a_running_loop_is_named_and_a_thread_helps() -> None:
    async def notebook() -> Any:
        with pytest.raises(RuntimeError, match=r"await asyncio.to_thread\(sim.run"):
            sim.run({}, world())
        return await asyncio.to_thread(run, lambda: after(1, "ran"))

    assert asyncio.run(notebook()) == "ran"


@pytest.mark.parametrize("until", [-1, float("nan")])
def test_an_end_in_the_past_is_refused(until: float) -> None:
    with pytest.raises(ValueError, match="until is"):
        sim.run({"h0": lambda: after(1)}, world(), until=until)


def test_what_computes_or_sleeps_for_real_takes_no_virtual_time() -> None:
    async def program() -> float:
        time.sleep(0.01)
        sum(range(100_000))
        return now()

    assert run(program) == 0


def test_a_reader_that_leaves_its_event_does_not_stop_the_clock() -> None:
    """Its descriptor stays readable, so it is called again and again, as by any event loop."""

    async def program() -> float:
        called = []
        with verbs.open_device() as ctx:
            pd, channel = ctx.alloc_pd(), ctx.create_comp_channel()
            cq = ctx.create_cq(4, channel)
            qp, far, mr = pd.create_qp(send_cq=cq), pd.create_qp(send_cq=cq), pd.alloc(64, 15)
            cq.req_notify()
            verbs.connect_pair(qp, far)
            asyncio.get_running_loop().add_reader(channel.fd, called.append, 1)
            qp.write(mr, mr.addr, mr.rkey)
            await asyncio.sleep(1e-3)
            assert len(called) > 1
        return now()

    assert run(program) == pytest.approx(1e-3)
