# SPDX-License-Identifier: Apache-2.0
"""A connection to which its program has no reference any more is closed, with a ResourceWarning."""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verbena
from verbena import fabrics, sim
from verbena.peers import Ended, PeerConnection, PeerConnectionEnded, PeerError, sync

WAYS = pytest.mark.parametrize("via", ["cm", "socket"])


@contextmanager
def warns(count: int = 1) -> Iterator[None]:
    """So many connections are found unclosed in the block."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield
    said = [str(each.message) for each in warned if "PeerConnection" in str(each.message)]
    assert len(said) == count, said
    for each in said:
        assert each.startswith("unclosed <PeerConnection with ")
        assert each.endswith(": open>: use `async with`, or close()")


async def pair(listener: Any, via: Any) -> tuple[PeerConnection, PeerConnection]:
    accepting = asyncio.create_task(listener.accept())
    near = await verbena.connect(f"127.0.0.1:{listener.port}", via=via)
    return near, await accepting


async def rest_of(conn: PeerConnection) -> tuple[list[int], Ended]:
    """Return the lengths of the messages that come, and why the connection ends."""
    async with asyncio.timeout(10):
        lengths = [len(message) async for message in conn]
        with pytest.raises(PeerConnectionEnded) as ended:
            await conn.recv()
    assert str(ended.value.reason) in str(ended.value)
    return lengths, ended.value.reason


@WAYS
@pytest.mark.over_roce
def test_the_peer_gets_what_was_sent_and_is_told(via: Any) -> None:
    async def main() -> None:
        async with verbena.listen("127.0.0.1:0", via=via) as listener:
            near, far = await pair(listener, via)
            async with far:
                await near.send(bytes(10))
                await near.send(bytes(100_000))
                posted = await near.post(bytes(20_000_000))  # is fetched when far receives
                del posted
                with warns():
                    del near
                assert await rest_of(far) == ([10, 100_000, 20_000_000], Ended.PEER)

    asyncio.run(main())


@WAYS
def test_descriptors_come_back(via: Any) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async def main() -> None:
        async with verbena.listen("127.0.0.1:0", via=via) as listener:
            with warns(20):
                near, far = await pair(listener, via)
                del near
                await far.wait_closed()
                before = descriptors()
                for _ in range(19):
                    near, far = await pair(listener, via)
                    del near
                    await far.wait_closed()
                await asyncio.sleep(0.2)
                assert descriptors() < before + 19
                del far  # which has ended, so that there is nothing to warn of

    asyncio.run(main())


@WAYS
def test_what_keeps_a_connection(via: Any) -> None:
    """Whatever waits, and blocks; not arrays, their names, or views that outlast their block."""

    async def main() -> None:
        async with verbena.listen("127.0.0.1:0", via=via) as listener:
            near, far = await pair(listener, via)
            async with far:
                waiting: Any = asyncio.ensure_future(near.recv())
                del near
                await asyncio.sleep(0.05)
                await far.send(b"here")
                assert await waiting == b"here"
                del waiting
                assert (await rest_of(far))[1] is Ended.PEER

            near, far = await pair(listener, via)
            async with far:
                waiting = asyncio.ensure_future(await near.post(bytes(20_000_000)))
                del near
                await asyncio.sleep(0.05)
                assert far.closed is None
                assert len(await far.recv()) == 20_000_000
                await waiting
                del waiting
                assert (await rest_of(far))[1] is Ended.PEER

            near, far = await pair(listener, via)
            async with far:
                await far.send(b"loan")
                async with near.recv() as view:
                    table = near.array(4)
                    async with near.lend(table) as window:
                        await near.send(pickle.dumps(window))
                        del near
                        remote = pickle.loads(await far.recv())
                        assert (await remote.get()).tolist() == [0.0] * 4
                    assert far.closed is None
                    name = remote, window
                    kept = np.asarray(view)
                assert bytes(kept) == b"loan"
                assert (await rest_of(far))[1] is Ended.PEER
                assert table.tolist() == [0.0] * 4
                del name

            near, far = await pair(listener, via)
            async with far:
                shared = far.array(4)
                await far.send(pickle.dumps(far.share(shared)))
                remote = pickle.loads(await near.recv())
                getting = asyncio.create_task(remote.get())
                await asyncio.sleep(0)
                del near
                assert (await getting).tolist() == [0.0] * 4
                del getting
                assert (await rest_of(far))[1] is Ended.PEER
                with pytest.raises(PeerError, match="no connection any more"):
                    await remote.get()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(main())


@WAYS
def test_a_loop_that_ends_at_once(via: Any) -> None:
    """The peer, in another thread's loop, is told; and one that outlasts its loop ends, too."""
    with ThreadPoolExecutor() as pool, sync.listen("127.0.0.1:0", via=via) as listener:

        async def connected() -> PeerConnection:
            return await verbena.connect(f"127.0.0.1:{listener.port}", via=via)

        async def main() -> None:
            await (await connected()).send(b"last")

        for work in (main, connected):
            accepting = pool.submit(listener.accept)
            with warns():
                asyncio.run(work())
            with accepting.result(10) as far:
                if work is main:
                    assert far.recv(timeout=5) == b"last"
                with pytest.raises(PeerConnectionEnded):
                    far.recv(timeout=5)


@WAYS
def test_without_asyncio(via: Any) -> None:
    with ThreadPoolExecutor() as pool, sync.listen("127.0.0.1:0", via=via) as listener:
        accepting = pool.submit(listener.accept)
        near = sync.connect(f"127.0.0.1:{listener.port}", via=via)
        with accepting.result(10) as far, warns():
            near.send(bytes(10))
            near.send(bytes(100_000))
            del near
            assert [len(message) for message in far] == [10, 100_000]
            assert far.closed is Ended.PEER

        accepting = pool.submit(listener.accept)
        near = sync.connect(f"127.0.0.1:{listener.port}", via=via)
        with accepting.result(10) as far, warns():
            waiting = pool.submit(near.recv, 5)
            del near
            threading.Event().wait(0.1)
            far.send(b"here")
            assert waiting.result() == b"here"
            del waiting
            assert list(far) == []


def _simulated(via: Any, is_in_cycle: bool) -> tuple[Any, dict[str, float]]:
    async def server() -> None:
        async with verbena.listen(":7174", via=via) as listener:
            conn: Any = await listener.accept()
            await conn.send(bytes(100_000))
            if is_in_cycle:
                cycle = [conn]
                cycle.append(cycle)
                del cycle
            # Forgotten as this returns

    async def client() -> Any:
        async with verbena.connect("h0:7174", via=via) as conn:
            assert len(await conn.recv()) == 100_000
            if is_in_cycle:
                await asyncio.sleep(1e-3)
                gc.collect()
            try:
                async with asyncio.timeout(1):
                    await conn.recv()
            except PeerConnectionEnded as error:
                return error.reason
            except TimeoutError:
                return None

    ran = sim.run({"h0": server, "h5": client}, fabrics.ring(6, rate="100GbE", length_m=5))
    return ran.returned["h5"], ran.finished


@WAYS
def test_a_simulated_program_that_returns(via: Any) -> None:
    with warns(2):
        runs = [_simulated(via, False) for _ in range(2)]
    assert runs[0] == runs[1]
    reason, finished = runs[0]
    assert reason is Ended.PEER
    assert finished["h5"] < 1e-3


@WAYS
def test_a_collection_does_not_change_a_simulation(via: Any) -> None:
    """One in a cycle ends when Python collects, which a simulation must not depend on."""
    gc.collect()
    with warns():
        reason, _ = _simulated(via, True)
    assert reason is None
