# SPDX-License-Identifier: Apache-2.0
"""Groups of ranks for the tests: all ranks in one process, live and on simulated hosts."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

from tests.support import own_network
from verbena import collectives, fabrics, sim
from verbena.agent.client import describe_agent
from verbena.collectives import Group

Program = Callable[[Group], Awaitable[Any]]


@pytest.fixture(autouse=True, scope="package")
def agent_ends() -> Iterator[None]:
    """Whatever agent the tests have started does not outlive their network."""
    yield
    described = describe_agent() if own_network() else None
    if described is not None:
        os.kill(described["pid"], signal.SIGKILL)


class Ranks:
    """Groups of each size, which are joined once and then make the calls of many examples."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._groups: dict[int, list[Group]] = {}

    def run(self, size: int, program: Program) -> list[Any]:
        """Run a program at all ranks, and return what each returns."""
        try:
            return self._runner.run(self._run(size, program))
        except BaseException:
            for group in self._groups.pop(size, ()):
                group.abort()
            raise

    async def _run(self, size: int, program: Program) -> list[Any]:
        async with asyncio.timeout(60):  # a busy machine takes 20 s for 4 s of processor time
            if size not in self._groups:
                self._groups[size] = await joined(size)
            async with asyncio.TaskGroup() as tasks:
                made = [tasks.create_task(program(group)) for group in self._groups[size]]
        return [task.result() for task in made]

    def close(self) -> None:
        """All leave."""

        async def leave() -> None:
            groups = [group for groups in self._groups.values() for group in groups]
            await asyncio.gather(*(group.leave() for group in groups))

        self._runner.run(leave())
        self._runner.close()


async def joined(size: int, port: int = 7180, **options: Any) -> list[Group]:
    """Join all ranks in this loop."""
    address = f"127.0.0.1:{port + size}"
    ranks = range(size)
    return await asyncio.gather(
        *(collectives.join(rank, size, address, timeout=20, **options) for rank in ranks)
    )


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    """Ranks of this process."""
    made = Ranks()
    yield made
    made.close()


def on_hosts(size: int, program: Program, **options: Any) -> list[Any]:
    """Run a program at ranks on hosts of a simulated fabric."""

    def at(rank: int) -> Callable[[], Coroutine[Any, Any, Any]]:
        async def run() -> Any:
            async with await collectives.join(rank, size, "h0:7174") as group:
                return await program(group)

        return run

    fabric = fabrics.ring(max(3, size), rate="100GbE", length_m=5)
    programs = {f"h{rank}": at(rank) for rank in range(size)}
    returned = sim.run(programs, fabric, **options).returned
    return [returned[f"h{rank}"] for rank in range(size)]
