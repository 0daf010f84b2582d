# SPDX-License-Identifier: Apache-2.0
"""A rank that dies, leaves, gives up or calls something else is named at all others."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.collectives.conftest import joined, on_hosts
from verbena import collectives
from verbena.collectives import (
    Group,
    GroupError,
    MismatchedCall,
    RankDied,
    RankGaveUp,
    RankLeft,
    RanksAbsent,
)
from verbena.collectives.links import LINK_OPTIONS

pytestmark = pytest.mark.over_roce
CHILD = str(Path(__file__).with_name("rank_child.py"))
BYTES = (8, 400_000)


def run_ranks(
    what: str, size: int, errors: int | None = None, **variables: str
) -> tuple[list[int], list[str]]:
    """Run ranks in processes of their own; their exit statuses and lines.

    ``errors``: as subprocess takes it for stderr; subprocess.STDOUT adds that to the lines.
    """
    base = os.environ | {"VERBENA_SIZE": str(size), "VERBENA_ADDRESS": "127.0.0.1:7170"}
    processes = [
        subprocess.Popen(
            [sys.executable, CHILD, what],
            env=base | variables | {"VERBENA_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        lines = [process.communicate(timeout=60)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], sorted("".join(lines).splitlines())


def test_ranks_in_processes() -> None:
    codes, lines = run_ranks("sum", 4)
    assert codes == [0] * 4
    assert lines == [f"rank {rank} of 4 is right" for rank in range(4)]


def test_over_roce_with_loss() -> None:
    codes, lines = run_ranks("sum", 3, VERBENA_CARRIER="roce", VERBENA_FAULT="drop 1%; seed 7")
    assert codes == [0] * 3
    assert lines == [f"rank {rank} of 3 is right" for rank in range(3)]


def test_a_process_that_dies_is_named_at_all_others() -> None:
    codes, lines = run_ranks("die", 5)
    assert codes == [0, 0, -9, 0, 0]
    assert lines == [f"{rank}: RankDied 2" for rank in (0, 1, 3, 4)]


def test_a_rank_that_does_not_catch_it_says_the_reason_alone() -> None:
    """Without the line of the native library that advises how to hear the reasons of failures."""
    codes, lines = run_ranks("die, uncaught", 3, subprocess.STDOUT)
    assert codes == [1, 1, -9]
    assert sum("RankDied: " in line for line in lines) == 2
    assert not [line for line in lines if line.startswith("verbena: ")]


async def failures(size: int, program: Any) -> list[Any]:
    """Run a program at all ranks; the exception of each, or what it returns."""
    async with asyncio.timeout(30):
        groups = await joined(size)
        return await asyncio.gather(*map(program, groups), return_exceptions=True)


@pytest.mark.parametrize("nbytes", BYTES)
@pytest.mark.parametrize(
    ("how", "expected"), [("abort", RankDied), ("leave", RankLeft), ("cancel", RankGaveUp)]
)
def test_the_rank_at_fault_is_named(nbytes: int, how: str, expected: type[GroupError]) -> None:
    """Also at ranks that do not talk to it in this call, and at later calls."""
    at_fault = 3

    async def program(group: Group) -> Any:
        mine = np.zeros(nbytes, np.uint8)
        async with group:
            await group.all_reduce(mine)
            if group.rank == at_fault and how != "cancel":
                await asyncio.sleep(0.1)
                if how == "abort":
                    raise KeyError("the program's own error")
                return None
            if group.rank == at_fault:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await group.all_reduce(mine)
            elif group.rank == 0 and how == "cancel":
                while group._links.failure is None:
                    await asyncio.sleep(0.01)
            with pytest.raises(GroupError) as first:
                await group.all_reduce(mine)
            with pytest.raises(GroupError) as second:
                await group.barrier()
            assert second.value is first.value
            raise first.value

    found = asyncio.run(failures(6, program))
    own = found.pop(at_fault)
    assert how == "leave" or isinstance(own, KeyError if how == "abort" else RankGaveUp)
    assert [(type(each), each.rank) for each in found] == [(expected, at_fault)] * 5
    assert str(at_fault) in str(found[0])


def test_different_calls() -> None:
    async def program(group: Group) -> None:
        async with group:
            if group.rank == 1:
                await group.all_reduce(np.zeros(3))
            else:
                await group.all_reduce(np.zeros(4))

    found = asyncio.run(failures(3, program))
    assert {type(each) for each in found} == {MismatchedCall}


def test_two_calls_at_a_time_are_refused() -> None:
    async def program(group: Group) -> None:
        async with group:
            first = asyncio.create_task(group.barrier())
            await asyncio.sleep(0)
            if group.rank == 0:
                with pytest.raises(RuntimeError, match="one call at a time"):
                    await group.barrier()
            await first

    async def main() -> None:
        groups = await joined(2)
        waiting = asyncio.create_task(program(groups[0]))
        await asyncio.sleep(0.05)
        await asyncio.gather(program(groups[1]), waiting)

    asyncio.run(main())


def test_ranks_that_do_not_come_are_named() -> None:
    async def main() -> list[Any]:
        return await asyncio.gather(
            collectives.join(0, 4, "127.0.0.1:7171", timeout=4),
            collectives.join(2, 4, "127.0.0.1:7171", timeout=2),  # sooner than rank 0 ends
            return_exceptions=True,
        )

    first, second = asyncio.run(main())
    assert isinstance(first, RanksAbsent)
    assert isinstance(second, RanksAbsent)
    assert "ranks that did not come: 1, 3" in str(first)


@pytest.mark.parametrize(("rank", "size", "text"), [(1, 3, "size 3"), (1, 2, "two programs")])
def test_a_rank_that_does_not_fit(rank: int, size: int, text: str) -> None:
    async def main() -> str:
        first, *others = [
            asyncio.ensure_future(collectives.join(*place, "127.0.0.1:7172", timeout=30))
            for place in [(0, 2 if size == 3 else 3), (1, 3), (rank, 3)]
        ]
        refused, _ = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        for task in (first, *others):
            task.cancel()
        await asyncio.gather(first, *others, return_exceptions=True)
        return str(refused.pop().exception())

    assert text in asyncio.run(main())


def test_a_rank_that_dies_on_a_simulated_host() -> None:
    async def program(group: Group) -> Any:
        await group.barrier()
        if group.rank == 2:
            group._links.abort()
            return None
        with pytest.raises(RankDied) as caught:
            await group.all_reduce(np.zeros(1000))
        return caught.value.rank

    assert on_hosts(4, program) == [2, 2, None, 2]


def test_a_rank_that_gives_up_between_a_header_and_its_part() -> None:
    """The header has taken the last credit, so that the part was never sent."""

    async def program(group: Group) -> int | None:
        if group.rank == 1:
            await asyncio.sleep(0.5)
        for _ in range(LINK_OPTIONS["slots"] - 1):
            await group.broadcast(np.zeros(8))
        try:
            async with asyncio.timeout(0.2 if group.rank == 0 else None):
                await group.broadcast(np.zeros(100_000))
        except TimeoutError:
            return None
        except RankGaveUp as error:
            return error.rank
        raise AssertionError("the call has ended as if nothing was wrong")

    assert on_hosts(2, program) == [None, 0]


def test_places_of_launchers() -> None:
    place = collectives.place_from_environment
    rank_of = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"}
    assert place(rank_of | {"VERBENA_ADDRESS": "n0:7"}) == collectives.Place(3, 8, "n0:7")
    torch = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "n0", "MASTER_PORT": "29500"}
    assert place(torch) == collectives.Place(1, 2, "n0:29500")
    assert place({"PMI_RANK": "0", "PMI_SIZE": "1"}).size == 1
    with pytest.raises(ValueError, match="no address of rank 0"):
        place(rank_of)
    with pytest.raises(ValueError, match="verbena launch"):
        place({})
    with pytest.raises(ValueError, match="rank is from 0"):
        place({"PMI_RANK": "4", "PMI_SIZE": "4", "VERBENA_ADDRESS": "n0:7"})
