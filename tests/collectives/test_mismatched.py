# SPDX-License-Identifier: Apache-2.0
"""Ranks that make different calls: all are told, whatever the calls' algorithms wait for."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from tests.collectives.conftest import joined, on_hosts
from verbena.collectives import Group, MismatchedCall, sync, watching
from verbena.collectives.watching import Watch, describe_calls, what_of

Call = Callable[[Group], Awaitable[Any]]
CALLS: dict[str, Call] = {
    "barrier": lambda group: group.barrier(),
    "broadcast": lambda group: group.broadcast(np.ones(3)),
    "broadcast from 1": lambda group: group.broadcast(np.ones(3), root=1),
    "reduce": lambda group: group.reduce(np.ones(3)),
    "all_reduce": lambda group: group.all_reduce(np.ones(3)),
    "large all_reduce": lambda group: group.all_reduce(np.ones(50_000)),
    "all_gather": lambda group: group.all_gather(np.ones(3)),
    "gather": lambda group: group.gather(np.ones(3)),
    "all_to_all": lambda group: group.all_to_all(np.ones((group.size, 2))),
}
LIMIT = 5.0


async def found(size: int, port: int, odd: int, calls: tuple[Call, Call]) -> list[str]:
    """Have one rank make the second call and the others the first; what each rank raises."""

    async def program(group: Group) -> str:
        try:
            async with asyncio.timeout(LIMIT), group:
                await calls[group.rank == odd](group)
                await group.barrier()  # for ranks that needed nothing in the first call
        except (MismatchedCall, TimeoutError) as error:
            return type(error).__name__
        return "nothing"

    return await asyncio.gather(*map(program, await joined(size, port)))


CASES = {
    2: [(names, index % 2) for index, names in enumerate(permutations(CALLS, 2))],
    3: [(names, index % 3) for index, names in enumerate(permutations(CALLS, 2))],
    5: [(names, index % 5) for index, names in enumerate(permutations(CALLS, 2))][::4],
}


@pytest.mark.parametrize("size", CASES)
def test_any_two_calls(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """The odd rank is another one for each two calls."""
    monkeypatch.setattr(watching, "_FIRST", 0.1)

    async def main() -> dict[Any, list[str]]:
        few = asyncio.Semaphore(40 // size)
        results = {}

        async def one(port: int, names: tuple[str, str], odd: int) -> None:
            async with few:
                calls = CALLS[names[0]], CALLS[names[1]]
                results[names, odd] = await found(size, port, odd, calls)

        async with asyncio.TaskGroup() as tasks:
            for index, case in enumerate(CASES[size]):
                tasks.create_task(one(7200 + index, *case))
        return results

    results = asyncio.run(main())
    assert len(results) == (18 if size == 5 else 72)
    assert {case: each for case, each in results.items() if set(each) != {"MismatchedCall"}} == {}


def test_both_calls_and_ranks_are_named_at_all_ranks() -> None:
    async def program(group: Group) -> str:
        async with group:
            with pytest.raises(MismatchedCall) as caught:
                await (group.barrier() if group.rank == 1 else group.all_reduce(np.ones(3)))
        return str(caught.value)

    async def main() -> list[str]:
        return await asyncio.gather(*map(program, await joined(3)))

    for text in asyncio.run(main()):
        assert "rank 1 called barrier, and rank" in text or "and rank 1 barrier" in text
        assert "all_reduce" in text


def test_a_rank_names_the_dtype_and_shape_of_its_own_call() -> None:
    async def program(group: Group) -> str:
        async with group:
            with pytest.raises(MismatchedCall) as caught:
                await group.all_reduce(np.ones(10 + group.rank, "f4" if group.rank else "f8"))
        return str(caught.value)

    async def main() -> list[str]:
        return await asyncio.gather(*map(program, await joined(2)))

    first, second = asyncio.run(main())
    assert "call of this rank, 0: all_reduce(" in first
    assert "<f8, (10,)" in first
    assert "<f4, (11,)" in second


def test_on_simulated_hosts() -> None:
    async def program(group: Group) -> type[Exception]:
        with pytest.raises(MismatchedCall) as caught:
            await (group.barrier() if group.rank == 1 else group.all_reduce(np.ones(3)))
        return caught.type

    assert on_hosts(3, program) == [MismatchedCall] * 3


def test_a_call_that_waits_for_nobody_is_told_of_later() -> None:
    """Also where the next call is the group's end, and where the calls' parts pass each other."""

    async def program(group: Group) -> str:
        try:
            async with group:
                if group.rank == 1:
                    await group.reduce(np.ones(3))
                else:
                    await group.broadcast(np.ones(3))
                await asyncio.sleep(0.1)
        except MismatchedCall as error:
            return str(error)
        return "nothing"

    async def main() -> list[str]:
        return await asyncio.gather(*map(program, await joined(2)))

    first, second = asyncio.run(main())
    assert "broadcast" in first
    assert "reduce" in first
    assert "broadcast" in second
    assert "reduce" in second


def test_a_part_that_lies_unread_tells_of_a_rank_that_computes() -> None:
    """A rank without asyncio hears nothing between its calls."""
    ended = threading.Event()

    def at(rank: int) -> str:
        try:
            with sync.join(rank, 3, "127.0.0.1:7193") as group:
                if rank == 2:  # sends to rank 0, and waits for nobody
                    group.gather(np.ones(3), root=0)
                    assert ended.wait(LIMIT)
                elif rank == 0:  # waits for rank 1 alone
                    group.broadcast(np.ones(3), root=1)
                else:
                    assert ended.wait(LIMIT)
                    group.barrier()
        except MismatchedCall as error:
            return str(error)
        finally:
            if rank == 0:
                ended.set()
        return "nothing"

    with ThreadPoolExecutor(3) as pool:
        texts = list(pool.map(at, range(3)))
    assert "rank 2 called gather, and rank 0 broadcast" in texts[0]
    assert texts[1:] == texts[:2]


def right(group: Group, name: str, result: Any) -> bool:
    """Whether a call of ``CALLS`` has returned what it has to."""
    size = group.size
    at_root = group.rank == 0
    expected: Any = {
        "barrier": None,
        "reduce": np.full(3, size) if at_root else None,
        "all_reduce": np.full(3, size),
        "large all_reduce": np.full(50_000, size),
        "all_gather": np.ones((size, 3)),
        "gather": np.ones((size, 3)) if at_root else None,
        "all_to_all": np.ones((size, 2)),
    }.get(name, np.ones(3))
    return np.array_equal(result, expected) if expected is not None else result is None


Turns = list[tuple[str, int, float]]


def draw(seed: int, size: int, most: float) -> Turns:
    """Draw calls, each with a rank that makes it so many seconds late, or 0."""
    chance = random.Random(seed)
    return [
        (
            chance.choice(list(CALLS)),
            chance.randrange(size),
            chance.choice((0, 0, chance.random() * most)),
        )
        for _ in range(40)
    ]


async def make(turns: Turns, group: Group) -> bool:
    """Make the calls of ``draw``; whether all results are right."""
    results = []
    for name, late, seconds in turns:
        if group.rank == late and seconds:
            await asyncio.sleep(seconds)
        results.append(right(group, name, await CALLS[name](group)))
    return all(results)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_no_call_is_refused_that_all_ranks_make(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Ranks are late, or a call ahead, and tell each other all the time."""
    monkeypatch.setattr(watching, "_FIRST", 0.001)
    turns = draw(size, size, 0.03)

    async def program(group: Group) -> bool:
        async with group:
            return await make(turns, group)

    async def main() -> list[bool]:
        return await asyncio.gather(*map(program, await joined(size)))

    assert asyncio.run(main()) == [True] * size


def test_ranks_may_be_late_by_hours() -> None:
    """In virtual time."""
    turns = draw(1, 3, 10_000.0)
    assert on_hosts(3, lambda group: make(turns, group)) == [True] * 3


def test_notes_of_ranks_that_are_ahead_and_behind() -> None:
    seen: list[tuple[int, int, int]] = []

    async def main() -> None:
        watch = Watch(
            lambda note: None, lambda: False, lambda: None, lambda *what: seen.append(what)
        )
        watch.hear(4, 2 << 32 | 9)  # is compared when this rank makes its second call
        watch.begin(1, 5)
        watch.hear(3, 1 << 32 | 5)
        assert seen == []
        watch.begin(2, 8)
        assert seen == [(4, 9, 8)]
        watch.hear(3, 1 << 32 | 6)
        assert seen[1:] == [(3, 6, 5)]
        for number in range(3, 100):
            watch.begin(number, 8)
        watch.hear(3, 1 << 32 | 6)  # too long ago
        assert len(seen) == 2
        watch.stop()

    asyncio.run(main())


def test_what_calls_are_called() -> None:
    first, second = what_of("reduce", (1,), 0), what_of("reduce", (2,), 0)
    assert first != second
    assert "ranks 3 and 4 called reduce with different" in describe_calls(
        3, first, 4, second, "own"
    )
    gather = what_of("gather", (), 0)
    assert describe_calls(3, first, 4, gather, "own") == "rank 3 called reduce, and rank 4 gather"
    later = what_of("barrier", (), first), what_of("barrier", (), gather)
    assert describe_calls(3, later[0], 4, later[1], "own") == (
        "before barrier, rank 3 called reduce, and rank 4 gather"
    )
    assert what_of("barrier", (), later[0]) != what_of("barrier", (), later[1])
    assert "rank 3 called something else" in describe_calls(3, 15, 4, first, "own")
