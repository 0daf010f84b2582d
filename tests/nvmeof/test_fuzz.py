# SPDX-License-Identifier: Apache-2.0
"""Capsules at random: the target refuses them or ends the queue, and other hosts notice nothing."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from pathlib import Path

import pytest

from tests.nvmeof.conftest import HOST, MIB, NQN, ChildTarget, connected, image, run
from tests.nvmeof.fuzzing import CORPUS, fuzz, fuzz_new_queue, random_capsule

pytestmark = pytest.mark.over_roce


@pytest.mark.parametrize("seed", [1])
def test_capsules_at_random(tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    async def main() -> None:
        with ChildTarget(image(tmp_path), MIB) as target:
            async with await connected(target.port) as controller:
                disk = controller.disks[2]
                fuzzing = asyncio.create_task(in_process(target.port, seed))
                draw, done = random.Random(seed), 0
                while not fuzzing.done():
                    at = draw.randrange(256) * 4096
                    await disk.read(at, 4096)
                    done += 1
                    await asyncio.sleep(0.001)
                assert await fuzzing > 3
                assert done > 100
                assert controller.reconnects == 0
                assert target.process.poll() is None
                assert target.tell("queues") >= 2

    run(main(), 90)


async def in_process(port: int, seed: int) -> int:
    """Run fuzzing.py in a process of its own; returns how many connections it made."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.nvmeof.fuzzing", HOST, str(port)),
        *("--seed", str(seed), "--seconds", "5"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return int(said.decode().split()[-2])


def test_fuzzing_in_the_same_process(tmp_path: Path) -> None:
    async def main() -> None:
        with ChildTarget(image(tmp_path), MIB) as target:
            assert await fuzz(HOST, target.port, NQN, 3, 2.0)
            assert target.process.poll() is None

    run(main())


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.bin")), ids=lambda path: path.stem)
def test_capsules_that_did_harm(tmp_path: Path, path: Path) -> None:
    async def main() -> None:
        with ChildTarget(image(tmp_path)) as target:
            await fuzz_new_queue(HOST, target.port, [path.read_bytes()])
            async with await connected(target.port) as controller:
                await controller.disks[1].read(0, 4096)

    run(main())


def test_the_capsules_differ() -> None:
    draw = random.Random(1)
    assert len({random_capsule(draw, 0, 0) for _ in range(100)}) > 90
