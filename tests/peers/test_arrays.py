# SPDX-License-Identifier: Apache-2.0
"""Arrays of the peer: parts, dtypes, atomics, what is refused, and windows that end."""

from __future__ import annotations

import array as arrays
import asyncio
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.peers.conftest import Side, Together
from verbena.aio import AsyncQP
from verbena.peers import (
    Ended,
    PeerConnection,
    PeerConnectionEnded,
    PeerError,
    PeerMemoryRevoked,
    RemoteArray,
)
from verbena.peers.memory import RegionCache
from verbena.verbs import AccessFlags

POINT = np.dtype([("x", "f4"), ("n", "u2")])


def owner(made: Any, dtype: Any = "i8", seen: Any = None) -> Side:
    """A side that shares an array with the values of ``made`` and waits for the peer's end."""

    async def side(conn: PeerConnection) -> Any:
        values = np.asarray(made, dtype)
        mine = conn.array(values.shape, dtype)
        mine[...] = values
        await conn.send(pickle.dumps(conn.share(mine)))
        await conn.wait_closed()
        return mine.copy() if seen is None else seen(mine)

    return side


async def remote_of(conn: PeerConnection) -> RemoteArray:
    found = pickle.loads(await conn.recv())
    assert isinstance(found, RemoteArray)
    return found


@pytest.mark.parametrize("dtype", ["i8", "u1", "f2", "c16", ">i4", POINT], ids=str)
def test_get_and_put_parts(together: Together, dtype: Any) -> None:
    whole = np.zeros((10, 4), dtype)
    whole.view("u1")[...] = np.arange(whole.nbytes).reshape(10, -1)

    async def use(conn: PeerConnection) -> None:
        remote = await remote_of(conn)
        assert (remote.shape, remote.dtype, len(remote)) == ((10, 4), np.dtype(dtype), 10)
        assert (await remote.get()).tobytes() == whole.tobytes()
        into = np.zeros((3, 4), dtype)
        assert await remote[2:5].get(into) is into
        assert into.tobytes() == whole[2:5].tobytes()
        assert (await remote[3, 1:3].get()).tobytes() == whole[3, 1:3].tobytes()
        assert (await remote[-1, -1].get()).shape == ()
        assert (await remote[4:4].get()).size == 0
        await remote[9].put(whole[0])
        await remote[8:9].put(conn.array((1, 4), dtype))

    mine = together(owner(whole, dtype), use)[0]
    expected = whole.copy()
    expected[9], expected[8] = whole[0], np.zeros(4, dtype)
    assert mine.tobytes() == expected.tobytes()


class Tensor:
    """Has DLPack alone."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("way", [Tensor, memoryview, np.from_dlpack], ids=lambda way: way.__name__)
def test_what_others_make_of_an_array_is_shared_and_lent(together: Together, way: Any) -> None:
    """A tensor or a buffer over a part of conn.array is that part, for the peer, too."""

    async def own(conn: PeerConnection) -> Any:
        mine = conn.array(8, "i8")
        mine[...] = range(8)
        made = way(mine[2:6])
        await conn.send(pickle.dumps(conn.share(made)))
        async with conn.lend(made) as window:
            await conn.send(pickle.dumps(window))
            await conn.recv()
        with pytest.raises(ValueError, match="make it by conn"):
            conn.share(way(np.zeros(3)))
        with pytest.raises(ValueError, match="make it by conn"):  # it begins before the array
            conn.share(np.lib.stride_tricks.as_strided(np.from_dlpack(mine), (9,)))
        await conn.wait_closed()
        return mine.tolist()

    async def use(conn: PeerConnection) -> Any:
        remote, window = await remote_of(conn), await remote_of(conn)
        await remote[1].put(np.array([30]))
        got = (await window.get()).tolist()
        await conn.send(b"")
        return got

    mine, got = together(own, use)
    assert mine == [0, 1, 2, 30, 4, 5, 6, 7]
    assert got == [2, 30, 4, 5]


def test_objects_with_the_buffer_protocol_and_dlpack(together: Together) -> None:
    async def use(conn: PeerConnection) -> Any:
        remote = await remote_of(conn)
        await remote[0:2].put(arrays.array("q", [5, 6]))
        await remote[2:4].put(Tensor(np.array([7, 8])))
        into = bytearray(16)
        await remote[1:3].get(into)
        with pytest.raises(ValueError, match="read-only"):
            await remote[1:3].get(bytes(16))
        return np.frombuffer(into, "i8").tolist()

    mine, got = together(owner(np.zeros(4)), use)
    assert (mine.tolist(), got) == ([5, 6, 7, 8], [6, 7])


def test_atomics(together: Together) -> None:
    async def use(conn: PeerConnection) -> list[int]:
        remote = await remote_of(conn)
        return [
            await remote[1].fetch_add(5),
            await remote[1].fetch_add(-9),
            await remote[1].compare_swap(-2, 40),
            await remote[1].compare_swap(1, 50),
            await remote[0].compare_swap(-1, 3),
        ]

    async def misuse(conn: PeerConnection) -> None:
        remote = (await remote_of(conn))[0]
        for wrong in ("x", 1.5, None, True):
            with pytest.raises(TypeError, match="value is a whole number, and not"):
                await remote.fetch_add(wrong)  # type: ignore[arg-type]
        for big in (1 << 70, -(1 << 63) - 1):
            with pytest.raises(ValueError, match="an atomic is of 64 bits"):
                await remote.fetch_add(big)
            with pytest.raises(ValueError, match="new is"):
                await remote.compare_swap(0, big)

    together(owner([-1, 2]), misuse)
    mine, got = together(owner([-1, 2]), use)
    assert got == [2, 7, -2, 40, -1]
    assert mine.tolist() == [3, 40]


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.int32, np.int8, np.uint8])
def test_atomics_take_integers_of_numpy(kind: Callable[[int], Any], together: Together) -> None:
    async def use(conn: PeerConnection) -> list[int]:
        remote = await remote_of(conn)
        return [
            await remote[0].fetch_add(kind(4)),
            await remote[1].compare_swap(kind(2), kind(7)),
        ]

    mine, got = together(owner([-1, 2]), use)
    assert got == [-1, 2]
    assert mine.tolist() == [3, 7]


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.int8])
def test_atomics_take_negative_integers_of_numpy(
    kind: Callable[[int], Any], together: Together
) -> None:
    async def use(conn: PeerConnection) -> list[int]:
        remote = await remote_of(conn)
        return [
            await remote[0].compare_swap(kind(-1), kind(-5)),
            await remote[0].fetch_add(kind(-2)),
        ]

    mine, got = together(owner([-1]), use)
    assert got == [-1, -5]
    assert mine.tolist() == [-7]


def test_what_arrays_refuse(together: Together) -> None:
    async def use(conn: PeerConnection) -> None:
        remote = await remote_of(conn)
        with pytest.raises(IndexError, match="not one range of memory"):
            remote[::2]
        with pytest.raises(IndexError, match="not one range of memory"):
            remote[:, 1]
        with pytest.raises(IndexError, match="out of bounds"):
            remote[10]
        with pytest.raises(TypeError, match="integers and slices"):
            remote[[1, 2]]
        with pytest.raises(ValueError, match="take parts of one size"):
            await remote[1].put(np.zeros(3, "i4"))
        with pytest.raises(ValueError, match="strides"):
            await remote[1].put(np.zeros((2, 4), "i4")[:, 0])
        with pytest.raises(TypeError, match="is of int32, and the local array of float32"):
            await remote[1].put(np.zeros(4, "f4"))
        with pytest.raises(TypeError, match="is of int32, and the local array of uint32"):
            await remote[1].get(np.zeros(4, "u4"))
        await remote[1].put(np.ones(4, "f4").view("u1"))
        assert (await remote[1].get(bytearray(16))).view("f4").tolist() == [1, 1, 1, 1]
        with pytest.raises(TypeError, match="integers of 64 bits"):
            await remote[1, 1].fetch_add(1)
        with pytest.raises(TypeError, match="await its get"):
            np.asarray(remote)
        with pytest.raises(TypeError, match="for one item"):
            await RemoteArray(remote._session, remote._addr, 1, np.dtype("i8"), (2,)).fetch_add(1)
        with pytest.raises(TypeError, match="Python objects"):
            conn.array(3, object)
        with pytest.raises(ValueError, match="make it by conn"):
            conn.share(np.zeros(3))
        mine = conn.share(conn.array(3))
        with pytest.raises(PeerError, match="this array is of this process"):
            await mine.get()

    together(owner(np.zeros((4, 4)), "i4"), use)


def test_an_array_of_an_ended_connection_says_so(together: Together) -> None:
    async def use(conn: PeerConnection) -> RemoteArray:
        return await remote_of(conn)

    remote = together(owner([1, 2]), use)[1]
    with pytest.raises(PeerError):
        asyncio.run(remote.get())


# ---- windows -------------------------------------------------------------------------------------


def lender(write: bool) -> Side:
    async def side(conn: PeerConnection) -> list[int]:
        mine = conn.array(8, "i8")
        mine[...] = range(8)
        async with conn.lend(mine[2:4], write=write) as window:
            await conn.send(pickle.dumps(window))
            assert await conn.recv() == b"read"
        await conn.send(b"ended")
        await conn.wait_closed()
        return list(mine.tolist())

    return side


def test_a_window_of_nothing(together: Together) -> None:
    async def lend(conn: PeerConnection) -> Ended | None:
        mine = conn.array(8, "i8")
        with pytest.raises(TypeError, match="write is True or False, and not 5"):
            conn.lend(mine, write=5)  # type: ignore[arg-type]
        async with conn.lend(mine[1:1]) as window:
            await conn.send(pickle.dumps(window))
            assert await conn.recv() == b"read"
        await conn.send(b"ended")
        return conn.closed

    async def use(conn: PeerConnection) -> None:
        window = await remote_of(conn)
        assert (await window.get()).shape == (0,)
        await conn.send(b"read")
        assert await conn.recv() == b"ended"
        with pytest.raises(PeerMemoryRevoked):
            await window.get()
        assert conn.closed in (None, Ended.PEER)

    assert together(lend, use)[0] is None


def test_a_window_that_the_device_refuses(together: Together) -> None:
    """The device ends the queue pair, and each call says so."""

    async def lend(conn: PeerConnection) -> Ended | None:
        mine = conn.array(8, "i8")
        no_windows = conn._session.pd.alloc(64, AccessFlags.LOCAL_WRITE)
        with pytest.raises(PeerConnectionEnded, match="an access was refused"):
            await conn.lend(no_windows.array("i8", (8,))).__aenter__()
        with pytest.raises(PeerConnectionEnded, match="an access was refused"):
            await conn.lend(mine).__aenter__()
        return conn.closed

    async def use(conn: PeerConnection) -> None:
        await conn.wait_closed()

    assert together(lend, use)[0] is Ended.REFUSED


def test_a_window_ends_with_its_block(together: Together) -> None:
    async def use(conn: PeerConnection) -> None:
        window = await remote_of(conn)
        assert (await window.get()).tolist() == [2, 3]
        with pytest.raises(PeerError, match="write=True"):
            await window.put(np.zeros(2))
        await conn.send(b"read")
        assert await conn.recv() == b"ended"
        with pytest.raises(PeerMemoryRevoked, match="lend the array again"):
            await window.get()
        assert conn.closed is None

    together(lender(False), use)


def test_the_device_refuses_who_ignores_the_end(together: Together) -> None:
    async def use(conn: PeerConnection) -> Any:
        window = await remote_of(conn)
        await window[0].put(np.array([70]))
        await conn.send(b"read")
        assert await conn.recv() == b"ended"
        conn._session.revoked.clear()
        with pytest.raises(PeerError, match="refused the access"):
            await window[1].put(np.array([80]))
        return conn.closed

    mine, closed = together(lender(True), use)
    assert mine == [0, 1, 70, 3, 4, 5, 6, 7]
    assert closed is Ended.REFUSED


def test_the_owner_is_told_of_the_access_that_ended_the_connection(together: Together) -> None:
    async def lend(conn: PeerConnection) -> None:
        mine = conn.array(8, "i8")
        async with conn.lend(mine) as window:
            await conn.send(pickle.dumps(window))
        await conn.wait_closed()
        with pytest.raises(PeerConnectionEnded, match=r"The device says: rkey .* the READ asked"):
            await conn.recv()

    async def use(conn: PeerConnection) -> None:
        window = await remote_of(conn)
        await asyncio.sleep(0.1)
        conn._session.revoked.clear()
        with pytest.raises(PeerError, match="refused the access"):
            await window.get()

    together(lend, use)


def test_a_window_is_no_more_than_was_lent(together: Together) -> None:
    async def lend(conn: PeerConnection) -> None:
        mine = conn.array(8, "i8")
        async with conn.lend(mine[2:4]) as window:
            await conn.send(pickle.dumps(window))
            await conn.wait_closed()

    async def use(conn: PeerConnection) -> Any:
        window = await remote_of(conn)
        wider = RemoteArray(
            window._session, window._addr - 8, window._rkey, window.dtype, (1,), window.lent
        )
        with pytest.raises(PeerError, match="refused the access"):
            await wider.get()
        return conn.closed

    assert together(lend, use)[1] is Ended.REFUSED


# ---- registrations -------------------------------------------------------------------------------


def test_registrations_end_with_the_memory(together: Together) -> None:
    async def use(conn: PeerConnection) -> None:
        remote = await remote_of(conn)
        cache: RegionCache = conn._session.regions
        local = np.ones(4, "i8")
        await remote.put(local)
        await remote[1:].put(local[1:])
        assert len(cache) == 1
        del local
        assert len(cache) == 0
        await remote.get(bytearray(32))
        assert len(cache) == 0
        for _ in range(200):
            await remote.put(np.zeros(4, "i8"))
        kept = [np.zeros(4, "i8") for _ in range(200)]
        for each in kept:
            await remote.put(each)
        assert len(cache) <= 64

    together(owner(np.zeros(4)), use)


def test_cancelled_requests_keep_their_memory(together: Together) -> None:
    async def use(conn: PeerConnection) -> None:
        remote = await remote_of(conn)
        for steps in range(20):
            task = asyncio.create_task(remote.put(np.full(1 << 17, steps)))
            for _ in range(steps % 5):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await remote.put(np.full(1 << 17, 99))
        assert conn.closed is None

    assert set(together(owner(np.zeros(1 << 17)), use)[0].tolist()) == {99}


def test_a_window_is_invalidated_in_order_and_then_closed(
    together: Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the two alone would also revoke it: the first before later requests, the second for
    good."""
    posted = []
    plain = AsyncQP.post

    def post(aqp: AsyncQP, method: Any, kept: object, **options: Any) -> Any:
        posted.append(method.__name__)
        return plain(aqp, method, kept, **options)

    monkeypatch.setattr(AsyncQP, "post", post)

    async def lend(conn: PeerConnection) -> list[bool]:
        lending = conn.lend(conn.array(4))
        async with lending:
            mw = lending._mw
            assert mw is not None
            closed = [mw.closed]
        return [*closed, mw.closed]

    async def stay(conn: PeerConnection) -> None:
        await conn.wait_closed()

    assert together(stay, lend)[1] == [False, True]
    assert posted == ["bind_mw", "local_invalidate"]
