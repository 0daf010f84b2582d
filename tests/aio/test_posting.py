# SPDX-License-Identifier: Apache-2.0
"""What programs beside AsyncQP's own methods use: ``post``, ``reserve``, ``deliver``, ``withhold``,
and what an operation says of itself."""

from __future__ import annotations

import asyncio
import errno
import gc
import weakref
from typing import Any

import pytest

from tests.aio.conftest import AsyncEnds, MakeEnds, Run
from verbena import aio, verbs
from verbena.aio import TOKEN_BIT


def test_post_takes_any_method_of_the_qp(run: Run, ends: AsyncEnds) -> None:
    """A window is bound, used by the peer, and invalidated."""
    near, far = ends.near, ends.far
    mr = near.pd.alloc(64, verbs.AccessFlags.LOCAL_WRITE | verbs.AccessFlags.MW_BIND)
    window = near.pd.alloc_mw(2)

    async def program() -> tuple[str, str]:
        access = verbs.AccessFlags.REMOTE_WRITE
        wc = await ends.qp.post(
            near.qp.bind_mw, (window, mr), mw=window, mr=mr, length=32, access=access
        )
        far.fill(b"by a key")
        await ends.peer.write(far.mr, mr.addr, window.rkey, length=8)
        rkey = window.rkey
        invalidated = await ends.qp.post(near.qp.local_invalidate, window, rkey=rkey)
        with pytest.raises(verbs.CompletionError, match="remote access error"):
            await ends.peer.write(far.mr, mr.addr, rkey, length=8)
        return wc.opcode.name, invalidated.opcode.name

    assert run(program()) == ("BIND_MW", "LOCAL_INV")
    assert bytes(memoryview(mr)[:8]) == b"by a key"


def test_what_is_kept_lives_until_the_completion(run: Run, ends: AsyncEnds) -> None:
    class Kept:
        pass

    def posted() -> tuple[aio.Operation, weakref.ref[Kept]]:
        kept = Kept()  # no receive is posted: the SEND waits
        local = ends.near.mr
        return ends.qp.post(ends.near.qp.send, kept, local=local, length=8), weakref.ref(kept)

    async def program() -> weakref.ref[Kept]:
        operation, kept = posted()
        gc.collect()
        assert kept() is not None
        received = ends.peer.recv(ends.far.mr, 0, 8)
        await operation
        await received
        return kept

    kept = run(program())
    gc.collect()
    assert kept() is None


def test_post_waits_for_room(run: Run, make_ends: MakeEnds) -> None:
    ends = make_ends(max_send_wr=4)
    near, far = ends.near, ends.far

    async def program() -> tuple[int, int]:
        room = near.qp.cap.max_send_wr
        sent = [ends.qp.post(near.qp.send, None, local=near.mr, length=8) for _ in range(room + 3)]
        posted = sum(each.posted for each in sent)
        for operation in sent:
            await ends.peer.recv(far.mr, 0, 8)
            await operation
        return room - posted, sum(each.posted for each in sent) - room

    assert run(program()) == (0, 3)


def test_a_method_that_refuses_leaves_nothing_in_flight(run: Run, ends: AsyncEnds) -> None:
    async def program() -> None:
        for _ in range(2 * ends.near.qp.cap.max_send_wr):
            with pytest.raises(ValueError, match="leaves the MR"):
                ends.qp.post(ends.near.qp.send, None, local=ends.near.mr, length=1 << 30)
        await ends.qp.write(ends.near.mr, *ends.far.region(), length=8)

    run(program())


def test_post_after_the_end(ends: AsyncEnds) -> None:
    ends.near_cq.close()
    with pytest.raises(verbs.VerbsError) as caught:
        ends.qp.post(ends.near.qp.send, None, local=ends.near.mr, length=8)
    assert caught.value.errno == errno.ECANCELED


def test_reserved_room_is_the_programs_own(run: Run, make_ends: MakeEnds) -> None:
    """However many requests AsyncQP has, the program can post as many as it has reserved."""
    ends = make_ends(max_send_wr=8)
    near, far = ends.near, ends.far
    room = near.qp.cap.max_send_wr
    ends.qp.reserve(3)

    async def program() -> tuple[int, list[int]]:
        sent = [ends.qp.send(near.mr, length=8) for _ in range(2 * room)]
        posted = sum(each.posted for each in sent)
        for number in range(3):
            near.qp.send(near.mr, length=8, wr_id=number)
        receives = [ends.peer.recv(far.mr, 0, 8) for _ in range(room)]
        own = [(await anext(ends.near_cq)).wr_id for _ in range(3)]
        for _ in range(room + 3):
            receives.append(ends.peer.recv(far.mr, 0, 8))
        for operation in [*sent, *receives]:
            await operation
        return posted, own

    assert run(program()) == (room - 3, [0, 1, 2])


def test_reserving_all_room_is_refused(run: Run, make_ends: MakeEnds) -> None:
    ends = make_ends(max_send_wr=8)
    room = ends.near.qp.cap.max_send_wr
    for count in (room, room + 1):
        with pytest.raises(verbs.VerbsError, match=f"more than {count} requests") as caught:
            ends.qp.reserve(count)
        assert caught.value.errno == errno.EINVAL
    ends.qp.reserve(room - 1)

    async def program() -> None:
        for _ in range(3):
            await ends.qp.write(ends.near.mr, *ends.far.region(), length=8)

    run(program())


class Delivered:
    """What ``deliver`` calls, and what it was called with."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.ended = 0
        self.changed = asyncio.Event()

    def handle(self, wc: Any) -> None:
        self.seen.append(wc.wr_id)
        self.changed.set()

    def end(self) -> None:
        self.ended += 1
        self.changed.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.seen) < count:
                self.changed.clear()
                await self.changed.wait()


def test_completions_are_delivered_without_a_task_that_waits(run: Run, ends: AsyncEnds) -> None:
    """Those that had come before too, in order, and none of AsyncQP's own."""
    near, far = ends.near, ends.far

    def write(number: int) -> None:
        near.qp.write(near.mr, *far.region(), length=8, wr_id=number)

    async def program() -> list[int]:
        got = Delivered()
        for number in range(20):
            write(number)
        await ends.qp.write(near.mr, *far.region(), length=8)
        ends.near_cq.deliver(got.handle, got.end)
        for number in range(20, 40):
            write(number)
            if number % 3 == 0:
                await ends.qp.write(near.mr, *far.region(), length=8)
        await got.until(40)
        assert got.ended == 0
        return got.seen

    assert run(program()) == list(range(40))


def test_withheld_completions_are_for_the_iteration(run: Run, ends: AsyncEnds) -> None:
    near, far = ends.near, ends.far

    async def program() -> tuple[list[int], int, list[int]]:
        got = Delivered()
        ends.near_cq.deliver(got.handle, got.end)
        near.qp.write(near.mr, *far.region(), length=8, wr_id=1)
        await got.until(1)
        ends.near_cq.withhold()
        near.qp.write(near.mr, *far.region(), length=8, wr_id=2)
        taken = (await anext(ends.near_cq)).wr_id
        near.qp.write(near.mr, *far.region(), length=8, wr_id=3)
        await ends.qp.write(near.mr, *far.region(), length=8)
        again = Delivered()
        ends.near_cq.deliver(again.handle, again.end)
        await again.until(1)
        ends.near_cq.withhold()
        ends.near_cq.close()
        assert (got.ended, again.ended) == (0, 0)
        return got.seen, taken, again.seen

    assert run(program()) == ([1], 2, [3])


def test_delivering_ends_once(run: Run, ends: AsyncEnds) -> None:
    async def program() -> int:
        got = Delivered()
        ends.near_cq.deliver(got.handle, got.end)
        ends.near_cq.close()
        ends.near_cq.close()
        with pytest.raises(verbs.VerbsError) as caught:
            ends.near_cq.deliver(got.handle, got.end)
        assert caught.value.errno == errno.ECANCELED
        return got.ended

    assert run(program()) == 1


def test_an_overrun_ends_delivering(run: Run, make_ends: MakeEnds) -> None:
    ends = make_ends(max_send_wr=64, cqe=4)
    near, far = ends.near, ends.far

    async def program() -> tuple[int, int | None]:
        got = Delivered()
        ends.near_cq.deliver(got.handle, got.end)
        for number in range(near.cq.cqe + 8):
            near.qp.write(near.mr, *far.region(), length=8, wr_id=number)
        async with asyncio.timeout(10):
            while not got.ended:
                got.changed.clear()
                await got.changed.wait()
        with pytest.raises(verbs.VerbsError) as caught:
            await anext(ends.near_cq)
        return got.ended, caught.value.errno

    ended, number = run(program())
    assert ended == 1
    assert number not in (None, errno.ECANCELED)


def test_an_operation_says_what_it_is(run: Run, make_ends: MakeEnds) -> None:
    ends = make_ends(max_send_wr=4)
    near, far = ends.near, ends.far

    async def program() -> None:
        room = near.qp.cap.max_send_wr
        sent = [ends.qp.send(near.mr, length=8) for _ in range(room + 1)]
        *posted, queued = sent
        assert all(each.posted for each in posted)
        assert (queued.posted, queued.done) == (False, False)
        assert "waits for room in the send queue" in repr(queued)
        assert f"a request of {near.qp!r}" in repr(queued)
        received = ends.peer.recv(far.mr, 0, 8)
        assert all(each.token & TOKEN_BIT for each in [received, *sent])
        assert len({each.token for each in [received, *sent]}) == room + 2
        assert "a receive" in repr(received)
        wc = await received
        assert (received.done, wc.wr_id) == (True, received.token)
        assert "done, SUCCESS" in repr(received)
        for operation in sent:
            if not operation.done:
                ends.peer.recv(far.mr, 0, 8)
            await operation
        assert (queued.posted, queued.done) == (True, True)
        failing = ends.qp.write(near.mr, 0, 0xBAD, length=8)
        assert "on its way" in repr(failing) or failing.done
        with pytest.raises(verbs.CompletionError):
            await failing
        assert "done, REM_ACCESS_ERR" in repr(failing)

    run(program())
