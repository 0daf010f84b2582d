# SPDX-License-Identifier: Apache-2.0
"""What the tests of verbena.nvmeof share: a target and a host in one loop, or two processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from tests.nvmeof.restarts import KilledAndRestarted
from tests.support import own_network
from verbena import nvmeof
from verbena.agent.client import describe_agent

HOST = "127.0.0.1"
NQN = "nqn.2026-01.org.example:disk0"
MIB = 1 << 20
CHILD = str(Path(__file__).with_name("target_child.py"))


@pytest.fixture(autouse=True, scope="package")
def agent_ends() -> Iterator[None]:
    """Whatever agent the tests have started does not outlive their network."""
    yield
    described = describe_agent() if own_network() else None
    if described is not None:
        os.kill(described["pid"], signal.SIGKILL)


def run(program: Coroutine[Any, Any, Any], seconds: float = 60) -> Any:
    """Run a program on a loop, for a limited time."""

    async def limited() -> Any:
        async with asyncio.timeout(seconds):
            return await program

    return asyncio.run(limited())


@asynccontextmanager
async def serving(
    *stores: nvmeof.Store, block_size: int = 4096, **options: Any
) -> AsyncIterator[tuple[nvmeof.Target, nvmeof.Subsystem]]:
    """A target with these stores, in this loop."""
    model = nvmeof.TargetModel()
    subsystem = nvmeof.Subsystem(NQN)
    for store in stores:
        subsystem.add(store, block_size)
    model.add(subsystem)
    async with nvmeof.Target(model, host=HOST, port=0, **options) as target:
        yield target, subsystem


async def connected(target: nvmeof.Target | int, **options: Any) -> nvmeof.HostController:
    """A host of the target."""
    port = target if isinstance(target, int) else target.port
    return await nvmeof.connect(HOST, NQN, port, nvmeof.HostOptions(**options))


@asynccontextmanager
async def pair(
    *stores: nvmeof.Store, **options: Any
) -> AsyncIterator[tuple[nvmeof.HostController, nvmeof.Subsystem, nvmeof.Target]]:
    """A target, and a host that is connected to it."""
    async with (
        serving(*stores) as (target, subsystem),
        await connected(target, **options) as controller,
    ):
        yield controller, subsystem, target


class ChildTarget(KilledAndRestarted):
    """target_child.py; ``carrier`` is how its host reaches it."""

    def __init__(
        self,
        *files: object,
        port: int = 0,
        carrier: str | None = None,
        enter: Sequence[str] = (),
    ) -> None:
        self._enter = enter  # what to put before the command
        self.files, self.port, self.carrier = [str(each) for each in files], port, carrier
        self.process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        environment = dict(os.environ)
        if self.carrier is not None:
            environment["VERBENA_CARRIER"] = self.carrier
        process = subprocess.Popen(
            [*self._enter, sys.executable, CHILD, HOST, str(self.port), *self.files],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        self.port = int(process.stdout.readline())
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()


def image(tmp_path: Path, size: int = 16 * MIB) -> Path:
    """A file for a disk."""
    path = tmp_path / "disk.img"
    with path.open("wb") as file:
        file.truncate(size)
    return path
