# SPDX-License-Identifier: Apache-2.0
"""A peer that is killed at a random moment: whatever is under way ends, and says so."""

from __future__ import annotations

import asyncio
import pickle
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verbena
from tests.carriers import live_carriers
from verbena.peers import PeerConnection, PeerConnectionEnded, RemoteArray

pytest_generate_tests = live_carriers
CHILD = str(Path(__file__).with_name("killed_child.py"))
LATEST = 0.15  # seconds after the start of the work

Work = Callable[[PeerConnection, RemoteArray, random.Random], Awaitable[Any]]


async def _send(conn: PeerConnection, remote: RemoteArray, rng: random.Random) -> None:
    await conn.send(rng.randbytes(rng.choice((5, 5000, 300_000))))


async def _receive(conn: PeerConnection, remote: RemoteArray, rng: random.Random) -> None:
    await conn.recv()


async def _get(conn: PeerConnection, remote: RemoteArray, rng: random.Random) -> None:
    await remote.get()


async def _put(conn: PeerConnection, remote: RemoteArray, rng: random.Random) -> None:
    await remote[:500].put(np.ones(500, "i8"))


async def _add(conn: PeerConnection, remote: RemoteArray, rng: random.Random) -> None:
    await remote[7].fetch_add(1)


WORKS: list[Work] = [_send, _receive, _get, _put, _add]


async def _for_ever(work: Work, *of: Any) -> None:
    while True:
        await work(*of)


async def _killed(via: Any, rng: random.Random) -> None:
    with subprocess.Popen([sys.executable, CHILD, via], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            port = int(child.stdout.readline())
            async with verbena.connect(f"127.0.0.1:{port}", via=via) as conn:
                remote = pickle.loads(await conn.recv())
                asyncio.get_running_loop().call_later(rng.uniform(0, LATEST), child.kill)
                working = [_for_ever(work, conn, remote, rng) for work in WORKS]
                async with asyncio.timeout(20):
                    ends = await asyncio.gather(*working, return_exceptions=True)
                assert conn.closed is not None
        finally:
            child.kill()
    assert [type(end) for end in ends] == [PeerConnectionEnded] * len(WORKS), ends


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("via", ["cm", "socket"])
def test_everything_under_way_ends(via: str, seed: int) -> None:
    asyncio.run(_killed(via, random.Random(seed)))
