# SPDX-License-Identifier: Apache-2.0
"""Messages of verbena.peers: sizes, back-pressure, loans, and tasks that are cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import verbena
from tests.peers.conftest import Together
from verbena.peers import Ended, PeerConnection, PeerConnectionEnded

SIZES = [0, 1, 4055, 4056, 4057, 70_000, (8 << 20) + 3]


def content(size: int) -> bytes:
    return np.random.default_rng(size).bytes(size)


def test_a_receive_is_a_coroutine(together: Together) -> None:
    """A task may run it; one that is cancelled, closed or never used takes no message."""

    async def use(conn: PeerConnection) -> list[bytes]:
        cancelled = asyncio.create_task(conn.recv())
        at_once = asyncio.create_task(conn.recv())
        at_once.cancel()
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, at_once, return_exceptions=True)
        assert cancelled.cancelled()
        assert at_once.cancelled()
        unused = conn.recv()
        unused.close()
        del unused
        await conn.send(b"go")
        receiving = asyncio.create_task(conn.recv())
        async with asyncio.TaskGroup() as group:
            second = group.create_task(conn.recv())
        async with conn.recv() as view:
            return [await receiving, second.result(), bytes(view), await conn.recv()]

    async def give(conn: PeerConnection) -> None:
        assert await conn.recv() == b"go"
        for number in range(4):
            await conn.send(bytes([number]))

    assert together(give, use)[1] == [bytes([number]) for number in range(4)]


async def echo(conn: PeerConnection) -> Ended | None:
    async for message in conn:
        await conn.send(message)
    return conn.closed


def test_any_size_comes_back(together: Together) -> None:
    async def ask(conn: PeerConnection) -> list[bool]:
        same = []
        for size in SIZES:
            await conn.send(content(size))
            same.append(await conn.recv() == content(size))
        return same

    assert together(echo, ask) == [Ended.PEER, [True] * len(SIZES)]


def test_messages_keep_their_order_and_wait_for_the_program(together: Together) -> None:
    """A side that does not receive gives four credits; the next message waits."""

    async def slow(conn: PeerConnection) -> list[int]:
        await asyncio.sleep(0.2)
        assert (await conn.recv())[:1] == b"\0"
        return [message[0] for message in [m async for m in conn]]

    async def fast(conn: PeerConnection) -> int:
        sent = 0

        async def send_all() -> None:
            nonlocal sent
            for number in range(40):
                await conn.send(bytes([number]) * (5000 if number % 7 == 5 else 9))
                sent += 1

        sending = asyncio.create_task(send_all())
        await asyncio.sleep(0.1)
        before = sent
        await sending
        return before

    assert together(slow, fast, slots=4) == [list(range(1, 40)), 4]


def test_normal_use_has_no_rnr(together: Together) -> None:
    async def count(conn: PeerConnection) -> int:
        total = 0
        async for message in conn:
            total += len(message)
            if not total % 7:
                await conn.send(b"7")
        return total

    async def flood(conn: PeerConnection) -> int:
        got = 0

        async def drain() -> None:
            nonlocal got
            async for _ in conn:
                got += 1

        draining = asyncio.create_task(drain())
        for _ in range(700):
            await conn.send(b"m")
        while got < 100:
            await asyncio.sleep(0.001)
        counters = conn._session.pd.context.counters() or {}
        draining.cancel()
        assert "rnr" in str(counters)
        return sum(
            value for group in counters.values() for name, value in group.items() if "rnr" in name
        )

    assert together(count, flood, slots=2) == [700, 0]


@pytest.mark.parametrize("by_array", [True, False])
def test_loans(together: Together, by_array: bool) -> None:
    async def borrow(conn: PeerConnection) -> Any:
        async with conn.recv() as small:
            first = bytes(small[:3])
        async with conn.recv() as large:
            total = int(np.frombuffer(large, "u1").sum())
        with pytest.raises(ValueError, match="released"):
            small[0]
        async with conn.recv() as kept:
            array = np.frombuffer(kept, "u1") if by_array else kept[1:]
        await conn.send(b"next")
        for _ in range(30):  # more than there are slots
            assert await conn.recv() == b"other"
        return first, total, array.tobytes()

    async def lend(conn: PeerConnection) -> None:
        await conn.send(b"abc")
        await conn.send(np.ones(10_000, "u1"))
        await conn.send(b"stays")
        assert await conn.recv() == b"next"
        for _ in range(30):
            await conn.send(b"other")

    assert together(borrow, lend, slots=1)[0] == (
        b"abc",
        10_000,
        b"stays" if by_array else b"tays",
    )


def test_small_messages_without_waiting_and_as_copies(together: Together) -> None:
    """In the order of all messages; a large one, and one without a credit, are not sent at once."""

    async def take(conn: PeerConnection) -> list[Any]:
        got = [await conn.recv_copy(), await conn.recv_copy()]
        assert got[0] is not None
        got[0][:1] = b"x"  # memory of its own
        large = await conn.recv_copy()
        return [*got, large, len(await conn.recv()), await conn.recv_copy(), await conn.recv()]

    async def give(conn: PeerConnection) -> list[Any]:
        sent = [conn.post_now(b"a", memoryview(b"b")), conn.post_now(b"")]
        sent += [conn.post_now(bytes(5000)), conn.post_now(b"no credit")]
        posted = await conn.post(bytes(5000))  # after the peer has taken the first two
        await posted
        await conn.send(b"c")
        await conn.send(b"d")
        return sent

    took, sent = together(take, give, slots=2)
    assert took == [b"xb", b"", None, 5000, b"c", b"d"]
    assert sent == [True, True, False, False]


def test_the_end_while_waiting_for_a_copy(together: Together) -> None:
    async def take(conn: PeerConnection) -> Any:
        with pytest.raises(PeerConnectionEnded) as caught:
            await conn.recv_copy()
        return caught.value.reason

    async def leave(conn: PeerConnection) -> bool:
        await conn.close()
        return conn.post_now(b"late")

    assert together(take, leave) == [Ended.PEER, False]


@pytest.mark.parametrize("size", [9, 200_000])
def test_a_cancelled_task_loses_nothing(together: Together, size: int) -> None:
    """Receives and sends are cancelled after each number of steps of the loop."""
    count = 60

    async def receive(conn: PeerConnection) -> list[int]:
        numbers: list[int] = []

        async def one() -> None:
            message = await conn.recv()
            numbers.append(int.from_bytes(message[:4], "little"))

        for steps in range(10_000):
            if len(numbers) == count:
                break
            task = asyncio.create_task(one())
            for _ in range(steps % 12):
                await asyncio.sleep(0 if steps % 24 < 12 else 1e-5)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await conn.send(b"done")
        return numbers

    async def send(conn: PeerConnection) -> int:
        for number in range(count):
            data = number.to_bytes(4, "little") + bytes(size - 4)
            await conn.send(data)
        assert await conn.recv() == b"done"
        return count

    assert together(receive, send, slots=4) == [list(range(count)), count]


def test_a_send_that_is_cancelled_arrives_once_or_never(together: Together) -> None:
    async def receive(conn: PeerConnection) -> list[int]:
        await asyncio.sleep(0.01)
        return [int.from_bytes(message[:4], "little") async for message in conn]

    async def send(conn: PeerConnection) -> list[int]:
        done = []
        for number in range(80):
            size = 5000 if number % 2 else 10
            task = asyncio.create_task(conn.send(number.to_bytes(4, "little") + bytes(size)))
            for _ in range(number % 9):
                await asyncio.sleep(0)
            task.cancel()
            if not isinstance(
                (await asyncio.gather(task, return_exceptions=True))[0], BaseException
            ):
                done.append(number)
        await conn.send((999).to_bytes(4, "little"))
        return done

    got, done = together(receive, send, slots=4)
    assert got == sorted(set(got))
    assert got[-1] == 999
    assert set(done) <= set(got)


def test_a_closed_connection_says_why(together: Together) -> None:
    async def leave(conn: PeerConnection) -> None:
        await conn.send(b"last")

    async def stay(conn: PeerConnection) -> Any:
        assert await conn.wait_closed() is Ended.PEER
        assert await conn.recv() == b"last"
        with pytest.raises(PeerConnectionEnded, match="the peer closed it") as caught:
            await conn.recv()
        with pytest.raises(ConnectionError, match="the peer closed it"):
            await conn.send(b"x")
        return caught.value.reason

    assert together(leave, stay)[1] is Ended.PEER


def test_wrong_things_to_send(together: Together) -> None:
    async def wrong(conn: PeerConnection) -> None:
        with pytest.raises(TypeError, match="buffer protocol nor DLPack"):
            await conn.send(7)
        with pytest.raises(ValueError, match="not one range of memory"):
            await conn.send(np.arange(10)[::2])
        with pytest.raises(TypeError, match="references to Python objects"):
            await conn.send(np.array([None]))

    assert together(echo, wrong)[0] is Ended.PEER


def test_a_large_message_that_was_fetched_before_a_small_one_is_received(
    together: Together,
) -> None:
    """Its sender is told once the small one is received, though no more messages come."""

    async def late(conn: PeerConnection) -> int:
        await asyncio.sleep(0.1)
        assert await conn.recv() == b"small"
        assert await conn.recv() == bytes(100_000)
        await conn.wait_closed()
        return 1

    async def send(conn: PeerConnection) -> bytes | None:
        await conn.send(b"small")
        await conn.send(bytes(100_000))
        return conn.peek_last()

    assert together(late, send) == [1, None]


def test_what_waits_and_who_is_told_of_the_end(together: Together) -> None:
    async def look(conn: PeerConnection) -> list[Any]:
        seen: list[Any] = []
        conn.call_when_closed(seen.append)
        await conn.wait_closed()
        seen.append(conn.peek_last())
        assert await conn.recv() == b"one"
        assert await conn.recv() == b"two"
        conn.call_when_closed(seen.append)
        return seen

    async def send(conn: PeerConnection) -> None:
        await conn.send(b"one")
        await conn.send(b"two")
        await conn.settle()

    assert together(look, send)[0] == [Ended.PEER, b"two", Ended.PEER]


def test_a_received_view_is_sent_on(together: Together) -> None:
    """Its memory was registered for receiving, and the peer has to read it."""

    async def send_back(conn: PeerConnection) -> None:
        for _ in range(2):
            async with conn.recv() as view:
                kept = np.asarray(view)
                await conn.send(kept)
        await conn.wait_closed()

    async def send(conn: PeerConnection) -> list[bool]:
        same = []
        for size in (100_000, 5_000_000):
            await conn.send(content(size))
            same.append(await conn.recv() == content(size))
        return same

    assert together(send_back, send)[1] == [True, True]


def test_a_free_port_is_one_at_every_address() -> None:
    """asyncio alone would choose one for IPv4, and another one for IPv6."""

    async def main() -> tuple[bytes, set[int]]:
        async with verbena.listen(0, via="socket") as listener:
            assert listener._server is not None
            ports = {each.getsockname()[1] for each in listener._server.sockets}
            connecting = verbena.connect(f"127.0.0.1:{listener.port}", via="socket")
            near, far = await asyncio.gather(connecting, listener.accept())
            async with near, far:
                await near.send(b"hello")
                return await far.recv(), ports - {listener.port}

    assert asyncio.run(main()) == (b"hello", set())


def test_times_of_messages_are_those_of_the_loop(together: Together) -> None:
    """The second message of a thousand bytes takes as long as the first, to the microsecond."""

    async def echo(conn: PeerConnection) -> None:
        async for message in conn:
            await conn.send(message)

    async def ask(conn: PeerConnection) -> list[float]:
        times = []
        for _ in range(3):
            begin = asyncio.get_running_loop().time()
            await conn.send(bytes(1000))
            await conn.recv()
            times.append(asyncio.get_running_loop().time() - begin)
        return times

    assert all(0 < took < 1 for took in together(echo, ask)[1])
