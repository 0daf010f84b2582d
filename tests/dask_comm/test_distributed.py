# SPDX-License-Identifier: Apache-2.0
"""distributed over verbena://: clusters, and what its contract says besides its own tests."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed", reason="no package distributed; the extra dask has it")

from distributed import Client, LocalCluster
from distributed.comm import CommClosedError, connect, listen
from distributed.protocol import to_serialize

from tests.carriers import live_carriers
from verbena import dask_comm

pytest_generate_tests = live_carriers


@pytest.mark.over_roce
def test_a_cluster_computes_and_moves_arrays() -> None:
    with (
        LocalCluster(
            protocol="verbena://", n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        assert cluster.scheduler_address.startswith("verbena://")
        first, second = client.scheduler_info()["workers"]
        assert first.startswith("verbena://")
        parts = [
            client.submit(np.full, 1_000_000, value, workers=where, pure=False)
            for value, where in ((1.0, first), (2.0, second))
        ]
        total = client.submit(lambda a, b: a + b, *parts, workers=first)
        assert (total.result() == 3).all()
        assert sum(client.gather(client.map(lambda n: n * n, range(500)))) == 41_541_750
        scattered = client.scatter(np.arange(3_000_000), broadcast=True)
        assert client.submit(np.sum, scattered, workers=second).result() == 4_499_998_500_000
        client.restart()
        assert client.submit(sum, [1, 2]).result() == 3
    with pytest.raises(OSError):
        Client(cluster.scheduler_address, timeout=0.5)


@pytest.mark.over_roce
def test_a_shuffle_between_workers() -> None:
    array = pytest.importorskip("dask.array", reason="no package dask; the extra dask has it")
    with (
        LocalCluster(
            protocol="verbena://", n_workers=3, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        Client(cluster),
    ):
        made = array.random.default_rng(1).random((1500, 1500), chunks=(100, 1500))
        turned = made.rechunk((1500, 100), method="tasks")
        assert np.array_equal(turned.compute(), made.compute())


async def pair(**options: Any) -> tuple[Any, Any, Any]:
    accepted: asyncio.Queue[Any] = asyncio.Queue()
    listener = await listen("verbena://127.0.0.1", accepted.put, **options)
    near = await connect(listener.contact_address, **options)
    return near, await accepted.get(), listener


def test_messages_that_are_written_before_any_is_read() -> None:
    """Far more than credits, and large ones, in order."""

    async def main() -> None:
        near, far, listener = await pair()
        arrays = [np.full(size, size % 251, np.uint8) for size in (3, 20_000, 1_000_000) * 30]
        for array in arrays:
            await near.write({"a": to_serialize(array)})
        for array in arrays:
            got = (await far.read())["a"]
            assert got.flags.writeable
            assert np.array_equal(got, array)
        await asyncio.gather(near.close(), far.close())
        listener.stop()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_close_delivers_what_was_written() -> None:
    async def main() -> None:
        near, far, listener = await pair()
        for number in range(40):
            await near.write([number, to_serialize(np.full(50_000, number))])
        closing = asyncio.create_task(near.close())
        for number in range(40):
            got = await far.read()
            assert got[0] == number
            assert (got[1] == number).all()
        await closing
        with pytest.raises(CommClosedError):
            await far.read()
        assert far.closed()
        with pytest.raises(CommClosedError):
            await near.write(1)
        listener.stop()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_cancelled_read_closes_the_comm() -> None:
    async def main() -> None:
        near, far, listener = await pair()
        reading = asyncio.create_task(far.read())
        await asyncio.sleep(0.01)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert far.closed()
        with pytest.raises(CommClosedError):
            await near.read()
        listener.stop()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_comm_that_is_dropped_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        near, far, listener = await pair()
        del near
        gc.collect()
        with pytest.raises(CommClosedError):
            await far.read()
        listener.stop()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert "dangling" in caplog.text


def test_a_comm_that_is_dropped_delivers_what_was_written() -> None:
    """Also what the peer has to fetch, as a handler writes it that returns then."""

    async def main() -> None:
        near, far, listener = await pair()
        arrays = [np.full(size, 7, np.uint8) for size in (3, 20_000, 1_000_000, 5)]
        for array in arrays:
            await near.write(to_serialize(array))
        del near
        gc.collect()
        await asyncio.sleep(0.3)
        for array in arrays:
            assert np.array_equal(await far.read(), array)
        with pytest.raises(CommClosedError):
            await far.read()
        listener.stop()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_encryption_is_refused() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="does not encrypt"):
            await connect("verbena://127.0.0.1:1", require_encryption=True)

    asyncio.run(main())
    with pytest.raises(RuntimeError, match="does not encrypt"):
        listen("verbena://", None, require_encryption=True)


def nested(depth: int) -> list[Any]:
    return [nested(depth - 1)] if depth else []


@pytest.mark.parametrize(
    ("message", "is_short"),
    [
        ([{"op": "task-finished", "key": "x" * 80, "nbytes": 8, "ok": True, "y": None}] * 9, True),
        ({"data": b"x" * 200_000}, True),
        ({"data": b"x" * 300_000}, False),
        ([0] * 255, True),
        ([0] * 256, False),
        (nested(300), False),
        ({"array": to_serialize(np.ones(1))}, False),
        ({1, 2}, False),
    ],
)
def test_messages_of_few_plain_items_need_not_be_measured(message: Any, is_short: bool) -> None:
    """Others go to distributed, which asks how large they are: a thread serialises large ones."""
    assert (dask_comm._plain_items(message, dask_comm._PLAIN_ITEMS) >= 0) == is_short


def test_large_messages_are_serialised_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the loop goes on."""
    threads: list[int] = []

    class Seen:
        def __reduce__(self) -> tuple[Any, tuple[()]]:
            threads.append(threading.get_ident())
            return dict, ()

    monkeypatch.setattr("distributed.comm.utils.OFFLOAD_THRESHOLD", 1000)

    async def main() -> None:
        near, far, listener = await pair()
        await near.write([to_serialize(Seen()), to_serialize(b"x" * 5000)])
        assert (await far.read())[0] == {}
        await near.write([to_serialize(Seen())])
        assert (await far.read())[0] == {}
        await asyncio.gather(near.close(), far.close())
        listener.stop()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert [each == threading.get_ident() for each in threads] == [False, True]
