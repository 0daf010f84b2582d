# SPDX-License-Identifier: Apache-2.0
"""Awaiting completions and events."""

from __future__ import annotations

import asyncio
import errno
import gc
import threading
import time
import weakref
from typing import Any

import pytest

from tests.aio.conftest import AsyncEnds, MakeEnds, Run, Where
from tests.verbs.side import Side
from verbena import aio, verbs


async def close_later(acq: aio.AsyncCQ) -> None:
    await asyncio.sleep(0)
    acq.close()


def test_a_write_is_awaited(run: Run, ends: AsyncEnds) -> None:
    async def program() -> verbs.WC:
        ends.near.fill(b"written")
        return await ends.qp.write(ends.near.mr, *ends.far.region(), length=7)

    assert run(program()).opcode == verbs.WCOpcode.RDMA_WRITE
    assert ends.far.bytes_at(0, 7) == b"written"


def test_each_operation_is_awaited(run: Run, ends: AsyncEnds) -> None:
    near, far = ends.near, ends.far
    far.fill((5).to_bytes(8, "little"))
    near.fill(b"eight by", 16)

    async def program() -> list[str]:
        received = ends.peer.recv(far.mr, 64, 64)
        found = [
            await ends.qp.read(near.mr, *far.region(), length=8),
            await ends.qp.fetch_add(near.mr, *far.region(), 1),
            await ends.qp.compare_swap(near.mr, *far.region(), 6, 9),
            await ends.qp.atomic_write(near.mr, far.region()[0] + 8, far.region()[1], 16),
            await ends.qp.flush(*far.region(), 16),
            await ends.qp.flush(*far.region()),
            await ends.qp.send(near.mr, length=8, imm_data=3),
            await received,
        ]
        return [wc.opcode.name for wc in found]

    assert run(program()) == [
        *("RDMA_READ", "FETCH_ADD", "COMP_SWAP", "ATOMIC_WRITE", "FLUSH", "FLUSH", "SEND", "RECV")
    ]
    assert int.from_bytes(far.bytes_at(0, 8), "little") == 9
    assert far.bytes_at(8, 8) == b"eight by"


def test_a_datagram_is_awaited(run: Run) -> None:
    near, far = Side(qp_type="UD"), Side(qp_type="UD")
    for side in (near, far):
        verbs.bring_up_ud(side.qp, qkey=7)
    near.info()
    ah = near.pd.create_ah(verbs.address_of(far.info(), near.gid_index))
    with aio.AsyncCQ(near.cq) as near_cq, aio.AsyncCQ(far.cq) as far_cq:
        sender, receiver = aio.AsyncQP(near.qp, near_cq), aio.AsyncQP(far.qp, far_cq)

        async def program() -> int:
            near.fill(b"datagram")
            received = receiver.recv(far.mr, 0, 64)
            await sender.send(near.mr, 0, 8, ah=ah, remote_qpn=far.qp.qp_num, remote_qkey=7)
            return (await received).byte_len

        assert run(program()) == 40 + 8
        assert far.bytes_at(40, 8) == b"datagram"
    ah.close()
    near.close()
    far.close()


@pytest.mark.not_simulated("a world has one thread")
def test_an_await_wakes_up_for_a_completion_that_comes_later(run: Run, ends: AsyncEnds) -> None:
    async def program() -> int:
        received = asyncio.ensure_future(wait_for(ends.peer.recv(ends.far.mr)))
        await asyncio.sleep(0)
        assert not received.done()
        timer = threading.Timer(0.05, ends.near.qp.send, (ends.near.mr, 0, 8))
        timer.start()
        wc = await received
        timer.join()
        return wc.byte_len

    assert run(program()) == 8


async def wait_for(operation: aio.Operation) -> verbs.WC:
    return await operation


def test_an_iteration_gives_what_was_posted_otherwise(run: Run, ends: AsyncEnds) -> None:
    near, far = ends.near, ends.far

    async def program() -> list[int]:
        for number in range(40):
            near.qp.write(near.mr, *far.region(), length=8, wr_id=number)
        seen = []
        async for wc in ends.near_cq:
            seen.append(wc.wr_id)
            if len(seen) == 40:
                break
        return seen

    assert run(program()) == list(range(40))


def test_an_iteration_gives_failed_completions(run: Run, ends: AsyncEnds) -> None:
    async def program() -> str:
        ends.near.qp.write(ends.near.mr, 0, 0xBAD, length=8)
        return (await ends.near_cq.__anext__()).status.name

    assert run(program()) == "REM_ACCESS_ERR"


def test_an_iteration_ends_when_it_is_closed(run: Run, ends: AsyncEnds) -> None:
    async def program() -> list[verbs.WC]:
        closing = asyncio.ensure_future(close_later(ends.near_cq))
        seen = [wc async for wc in ends.near_cq]
        await closing
        return seen

    assert run(program()) == []


def test_nothing_is_missed_in_a_long_exchange(run: Run, ends: AsyncEnds) -> None:
    near, far = ends.near, ends.far
    rounds = 300

    async def ping() -> None:
        for number in range(rounds):
            answer = ends.qp.recv(near.mr, 0, 8)
            near.mr.store_u64(64, number)
            await ends.qp.send(near.mr, 64, 8)
            await answer
            assert near.mr.load_u64(0) == number + 1

    async def pong() -> None:
        question = ends.peer.recv(far.mr, 0, 8)
        for _ in range(rounds):
            await question
            far.mr.store_u64(64, far.mr.load_u64(0) + 1)
            question = ends.peer.recv(far.mr, 0, 8)
            await ends.peer.send(far.mr, 64, 8)

    async def program() -> None:
        await asyncio.gather(ping(), pong())

    run(program())


@pytest.mark.not_simulated("a world has one thread")
def test_nothing_is_missed_with_a_sender_in_another_thread(run: Run, ends: AsyncEnds) -> None:
    near, far = ends.near, ends.far
    count = 100

    def sender() -> None:
        for number in range(count):
            near.qp.send(near.mr, length=8)
            near.cq.wait(1, 10)
            if number % 10 == 0:
                time.sleep(0.002)

    async def program() -> int:
        operations = [ends.peer.recv(far.mr, 0, 8) for _ in range(count)]
        thread = threading.Thread(target=sender)
        thread.start()
        for operation in operations:
            await operation
        thread.join()
        return len(operations)

    assert run(program()) == count


def test_a_failed_request_raises_its_cause(run: Run, ends: AsyncEnds) -> None:
    async def program() -> None:
        await ends.qp.write(ends.near.mr, 0, 0xBAD, length=8)

    with pytest.raises(verbs.CompletionError, match="remote access error"):
        run(program())


def test_a_request_may_be_awaited_twice_and_late(run: Run, ends: AsyncEnds) -> None:
    async def program() -> bool:
        operation = ends.qp.write(ends.near.mr, *ends.far.region(), length=8)
        await ends.qp.write(ends.near.mr, *ends.far.region(), length=8)
        assert operation.done
        return await operation is await operation

    assert run(program())


def test_a_request_under_way_keeps_what_it_needs(run: Run, ends: AsyncEnds) -> None:
    """And nothing of it is left over when it has ended."""
    kept: list[weakref.ref[Any]] = []

    def receiver() -> tuple[aio.Operation, verbs.QP]:
        pair = [ends.near.pd.create_qp(send_cq=ends.near.cq) for _ in range(2)]
        verbs.connect_pair(*pair)
        mr = ends.near.pd.alloc(64, verbs.AccessFlags.LOCAL_WRITE)
        kept.extend(weakref.ref(one) for one in (mr, pair[0]))
        return aio.AsyncQP(pair[0], ends.near_cq).recv(mr), pair[1]

    async def program() -> None:
        received, qp = receiver()
        gc.collect()
        assert None not in [one() for one in kept]
        sent = aio.AsyncQP(qp, ends.near_cq).send(ends.near.mr, length=8)
        assert (await received).byte_len == 8
        await sent

    run(program())
    gc.collect()
    assert [one() for one in kept] == [None, None]


def test_more_requests_than_the_queue_holds_wait_their_turn(run: Run, make_ends: MakeEnds) -> None:
    ends = make_ends(max_send_wr=4)

    async def program() -> int:
        count = 10 * ends.near.qp.cap.max_send_wr
        operations = [ends.qp.fetch_add(ends.near.mr, *ends.far.region(), 1) for _ in range(count)]
        for operation in operations:
            await operation
        return count

    count = run(program())
    assert int.from_bytes(ends.far.bytes_at(0, 8), "little") == count


def test_requests_that_nobody_awaits_are_posted_all_the_same(run: Run, make_ends: MakeEnds) -> None:
    ends = make_ends(max_send_wr=4)

    async def program() -> None:
        for _ in range(4 * ends.near.qp.cap.max_send_wr):
            ends.qp.send(ends.near.mr, length=8)
        receives = 4 * ends.near.qp.cap.max_send_wr
        for _ in range(receives):
            await ends.peer.recv(ends.far.mr, 0, 8)

    run(program())


def test_a_cancelled_await_loses_nothing(run: Run, ends: AsyncEnds) -> None:
    near, far = ends.near, ends.far

    async def program() -> None:
        first, second = ends.peer.recv(far.mr, 0, 8), ends.peer.recv(far.mr, 8, 8)
        waiting = asyncio.ensure_future(wait_for(first))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        near.mr.store_u64(0, 1)
        await ends.qp.send(near.mr, 0, 8)
        near.mr.store_u64(0, 2)
        await ends.qp.send(near.mr, 0, 8)
        await second
        await first

    run(program())
    assert (far.mr.load_u64(0), far.mr.load_u64(8)) == (1, 2)


def test_a_cancelled_iteration_passes_its_completion_on(run: Run, ends: AsyncEnds) -> None:
    near, far = ends.near, ends.far

    async def next_id() -> int:
        return (await ends.near_cq.__anext__()).wr_id

    async def program() -> int:
        waiting = [asyncio.ensure_future(next_id()) for _ in range(2)]
        await asyncio.sleep(0)
        near.qp.write(near.mr, *far.region(), length=8, wr_id=7)
        ends.near_cq.poll()
        waiting[0].cancel()
        return await waiting[1]

    assert run(program()) == 7


def test_a_queued_request_that_is_cancelled_is_not_posted(run: Run, make_ends: MakeEnds) -> None:
    ends = make_ends(max_send_wr=4)
    near, far = ends.near, ends.far

    async def program() -> None:
        room = near.qp.cap.max_send_wr
        for _ in range(room):  # no receive is posted: they stay in the queue
            ends.qp.send(near.mr, 0, 8)
        queued = asyncio.ensure_future(wait_for(ends.qp.write(near.mr, *far.region(), 64, 8)))
        await asyncio.sleep(0)
        queued.cancel()
        with pytest.raises(asyncio.CancelledError):
            await queued
        for _ in range(room):
            await ends.peer.recv(far.mr, 512, 8)
        await ends.qp.write(near.mr, *far.region(), 128, 8)

    near.mr.store_u64(64, 1)
    near.mr.store_u64(128, 2)
    run(program())
    assert far.mr.load_u64(0) == 2


def test_a_queued_request_whose_coroutine_is_closed_is_not_posted(
    run: Run, make_ends: MakeEnds
) -> None:
    ends = make_ends(max_send_wr=4)

    async def program() -> None:
        sent = [ends.qp.send(ends.near.mr, 0, 8) for _ in range(ends.near.qp.cap.max_send_wr)]
        queued = ends.qp.send(ends.near.mr, 0, 8)
        waiting = wait_for(queued)
        waiting.send(None)
        waiting.close()
        assert queued.done
        with pytest.raises(verbs.VerbsError) as caught:
            await queued
        assert caught.value.errno == errno.ECANCELED
        for operation in sent:
            await ends.peer.recv(ends.far.mr, 512, 8)
            await operation

    run(program())


def test_closing_fails_what_is_in_flight(run: Run, ends: AsyncEnds) -> None:
    async def program() -> None:
        operation = ends.peer.recv(ends.far.mr)
        closing = asyncio.ensure_future(close_later(ends.far_cq))
        with pytest.raises(verbs.VerbsError) as caught:
            await operation
        assert caught.value.errno == errno.ECANCELED
        await closing

    run(program())


def test_the_next_loop_goes_on(run: Run, ends: AsyncEnds) -> None:
    async def program() -> None:
        received = ends.peer.recv(ends.far.mr)
        asyncio.get_running_loop().call_soon(ends.near.qp.send, ends.near.mr, 0, 8)
        await received

    run(program())
    run(program())


@pytest.mark.not_simulated("a world has one thread, and its time passes at once")
def test_an_idle_queue_uses_no_cpu(run: Run, ends: AsyncEnds) -> None:
    async def program() -> float:
        waiting = asyncio.ensure_future(wait_for(ends.peer.recv(ends.far.mr)))
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        threading.Timer(0.3, loop.call_soon_threadsafe, (done.set,)).start()
        start = time.process_time()
        await done.wait()
        waiting.cancel()
        return time.process_time() - start

    assert run(program()) < 0.1


def test_a_queue_without_a_channel_is_refused() -> None:
    with verbs.open_device() as ctx, pytest.raises(verbs.VerbsError, match="channel"):
        aio.AsyncCQ(ctx.create_cq(4))


def test_a_foreign_queue_is_refused(ends: AsyncEnds) -> None:
    with pytest.raises(verbs.VerbsError, match="own CQs"):
        aio.AsyncQP(ends.near.qp, ends.far_cq)


def test_events_are_awaited(run: Run, ends: AsyncEnds) -> None:
    async def program() -> verbs.AsyncEvent:
        with aio.events(ends.far.ctx) as events:
            waiting = asyncio.ensure_future(events.__anext__())
            await asyncio.sleep(0)
            ends.near.qp.write(ends.near.mr, 0, 0xBAD, length=8)
            return await waiting

    event = run(program())
    assert event.event_type == verbs.EventType.QP_ACCESS_ERR
    assert event.element is ends.far.qp


def test_a_closed_stream_of_events_ends(run: Run, ends: AsyncEnds) -> None:
    async def program() -> list[verbs.AsyncEvent]:
        events = aio.events(ends.near.ctx)
        asyncio.get_running_loop().call_soon(events.close)
        return [event async for event in events]

    assert run(program()) == []


def test_connecting_over_streams(run: Run, where: Where) -> None:
    near = Side()
    with where.far():
        far = Side()

    async def program() -> None:
        accepted: asyncio.Future[verbs.QPInfo] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.set_result(await aio.connect_rc(far.qp, reader, writer))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            info = await aio.connect_rc(near.qp, reader, writer)
            assert info.qp_num == far.qp.qp_num
            assert (await accepted).qp_num == near.qp.qp_num
            writer.close()

    with near.ctx, far.ctx:
        run(program())
        assert near.state() == far.state() == "RTS"


def test_a_closed_context_ends_what_waits(run: Run, ends: AsyncEnds) -> None:
    async def program() -> list[Any]:
        waiting = [
            asyncio.ensure_future(wait_for(ends.peer.recv(ends.far.mr))),
            asyncio.ensure_future(all_of(ends.far_cq)),
            asyncio.ensure_future(all_of(aio.events(ends.far.ctx))),
        ]
        await asyncio.sleep(0)
        ends.far.ctx.close()
        async with asyncio.timeout(10):
            return await asyncio.gather(*waiting, return_exceptions=True)

    failed, *ended = run(program())
    assert isinstance(failed, verbs.VerbsError)
    assert failed.errno == errno.ECANCELED
    assert ended == [[], []]


async def all_of(iteration: Any) -> list[Any]:
    return [one async for one in iteration]


def test_a_closed_queue_posts_nothing(run: Run, ends: AsyncEnds) -> None:
    async def program() -> None:
        ends.near_cq.close()
        for post in (ends.qp.recv, ends.qp.send):
            with pytest.raises(verbs.VerbsError, match="closed"):
                await post(ends.near.mr)

    run(program())


def test_the_descriptor_of_a_closed_context_can_be_used_again(
    run: Run, make_ends: MakeEnds
) -> None:
    async def exchange(ends: AsyncEnds) -> None:
        received = asyncio.ensure_future(wait_for(ends.peer.recv(ends.far.mr)))
        await asyncio.sleep(0)
        await ends.qp.send(ends.near.mr, length=8)
        async with asyncio.timeout(10):
            await received

    async def program() -> set[int]:
        descriptors = []
        for _ in range(6):
            ends = make_ends()
            descriptors.append(ends.far.channel.fd)
            await exchange(ends)
            ends.near.ctx.close()
            ends.far.ctx.close()
        return set(descriptors)

    assert len(run(program())) < 6


def test_a_queued_request_that_makes_no_sense_fails_alone(run: Run, make_ends: MakeEnds) -> None:
    ends = make_ends(max_send_wr=4)
    near, far = ends.near, ends.far

    async def program() -> list[Any]:
        operations = [ends.qp.send(near.mr, 0, 8) for _ in range(near.qp.cap.max_send_wr)]
        operations.append(ends.qp.write(near.mr, *far.region(), -1))
        operations.append(ends.qp.write(near.mr, *far.region(), 0, 8))
        waiting = asyncio.gather(*map(wait_for, operations), return_exceptions=True)
        await asyncio.sleep(0)
        for _ in range(near.qp.cap.max_send_wr):
            ends.peer.recv(far.mr, 0, 8)
        async with asyncio.timeout(10):
            return await waiting

    *sent, wrong, written = run(program())
    assert isinstance(wrong, OverflowError)
    assert all(isinstance(wc, verbs.WC) for wc in [*sent, written])


@pytest.mark.not_simulated("its completions come apart, and each is taken before the next")
def test_a_queue_in_error_fails_what_waits(run: Run, make_ends: MakeEnds) -> None:
    ends = make_ends(cqe=2, max_send_wr=64)
    near, far = ends.near, ends.far

    async def program() -> list[Any]:
        operations = [ends.qp.recv(near.mr) for _ in range(3)]
        waiting = [asyncio.ensure_future(wait_for(one)) for one in operations]
        waiting.append(asyncio.ensure_future(all_of(ends.near_cq)))
        await asyncio.sleep(0)
        for _ in range(near.cq.cqe + 1):
            near.qp.write(near.mr, *far.region(), length=8)
        # By packets the loop would take each completion as it comes: no turn before the overrun.
        event = near.ctx.get_async_event(timeout=10)
        assert event is not None
        assert event.event_type is verbs.EventType.CQ_ERR
        async with asyncio.timeout(10):
            return await asyncio.gather(*waiting, return_exceptions=True)

    assert [one.errno for one in run(program())] == [errno.EIO] * 4


def test_an_event_that_nobody_takes_costs_no_turns(
    run: Run, ends: AsyncEnds, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    wake = aio.EventStream._on_event

    def count(stream: aio.EventStream) -> None:
        calls.append(stream)
        wake(stream)

    monkeypatch.setattr(aio.EventStream, "_on_event", count)

    async def program() -> None:
        with aio.events(ends.far.ctx) as events:
            waiting = asyncio.ensure_future(events.__anext__())
            await asyncio.sleep(0)
            waiting.cancel()
            kept = overrun(ends.far)
            async with asyncio.timeout(20):  # it comes by itself, on a busy machine later
                while not calls:
                    await asyncio.sleep(1e-3)
            for _ in range(50):
                await asyncio.sleep(0)
            assert len(calls) == 1
            assert (await events.__anext__()).element is kept[0].send_cq

    run(program())


def overrun(side: Side) -> list[verbs.QP]:
    """Cause an event of the side's context, about the CQ of the QPs that are returned."""
    cq = side.ctx.create_cq(1)
    qps = [side.pd.create_qp(send_cq=cq) for _ in range(2)]
    verbs.connect_pair(*qps)
    for _ in range(cq.cqe + 1):
        qps[0].write(side.mr, side.mr.addr, side.mr.rkey, 0, 8)
    return qps


def test_a_shared_channel_is_refused() -> None:
    with verbs.open_device() as ctx:
        channel = ctx.create_comp_channel()
        first, second = ctx.create_cq(4, channel), ctx.create_cq(4, channel)
        with pytest.raises(verbs.VerbsError, match="another CQ"):
            aio.AsyncCQ(first)
        second.close()
        aio.AsyncCQ(first).close()


def test_operations_are_made_tasks(run: Run, ends: AsyncEnds) -> None:
    async def program() -> list[str]:
        async with asyncio.TaskGroup() as group:
            received = group.create_task(ends.peer.recv(ends.far.mr))
            sent = group.create_task(ends.qp.send(ends.near.mr, length=8), name="sent")
        return [received.result().opcode.name, sent.result().opcode.name, sent.get_name()]

    assert run(program()) == ["RECV", "SEND", "sent"]


def test_one_operation_serves_a_task_and_an_await(run: Run, ends: AsyncEnds) -> None:
    async def program() -> bool:
        operation = ends.peer.recv(ends.far.mr)
        task = asyncio.create_task(operation)
        await asyncio.sleep(0)
        ends.near.qp.send(ends.near.mr, length=8)
        wc = await operation
        again = asyncio.create_task(operation)
        return wc is await task is await again

    assert run(program())


def test_two_tasks_are_made_of_one_operation(run: Run, ends: AsyncEnds) -> None:
    async def program() -> bool:
        operation = ends.peer.recv(ends.far.mr)
        async with asyncio.TaskGroup() as group:
            both = [group.create_task(operation) for _ in range(2)]
            await asyncio.sleep(0)
            ends.near.qp.send(ends.near.mr, length=8)
        return both[0].result() is both[1].result()

    assert run(program())


def test_a_task_of_an_operation_that_fails_raises(run: Run, ends: AsyncEnds) -> None:
    async def program() -> None:
        await asyncio.create_task(ends.qp.write(ends.near.mr, 0, 0xDEAD, length=8))

    with pytest.raises(verbs.CompletionError):
        run(program())


def test_a_cancelled_task_leaves_the_request(run: Run, ends: AsyncEnds) -> None:
    async def program() -> int:
        operation = ends.peer.recv(ends.far.mr)
        task = asyncio.create_task(operation)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ends.near.qp.send(ends.near.mr, length=8)
        return (await operation).byte_len

    assert run(program()) == 8


def test_the_next_completion_is_made_a_task(run: Run, ends: AsyncEnds) -> None:
    async def program() -> int:
        waiting = asyncio.create_task(anext(ends.near_cq))
        await asyncio.sleep(0)
        ends.near.qp.write(ends.near.mr, *ends.far.region(), length=8, wr_id=5)
        return (await waiting).wr_id

    assert run(program()) == 5


def test_an_operation_that_is_closed_leaves_the_request(ends: AsyncEnds) -> None:
    """As a loop does with the tasks that are left when it ends."""
    operation = ends.peer.recv(ends.far.mr)
    operation.close()
    assert not operation.done


async def failure(operation: aio.Operation) -> int | None:
    """The errno of its failure; None when it succeeds."""
    try:
        await operation
    except verbs.VerbsError as error:
        return error.errno
    return None


def test_requests_wait_for_room_in_a_short_cq(run: Run, make_ends: MakeEnds) -> None:
    """The send queue has more room than the CQ, which does not overrun all the same."""
    ends = make_ends(cqe=16, max_send_wr=128)

    async def program() -> int:
        writes = [ends.qp.write(ends.near.mr, *ends.far.region(), length=8) for _ in range(100)]
        return len(await asyncio.gather(*writes))

    assert run(program()) == 100


def test_a_short_cq_serves_two_qps(run: Run) -> None:
    with verbs.open_device() as ctx:
        pd = ctx.alloc_pd()
        mr = pd.alloc(64, verbs.AccessFlags.LOCAL_WRITE | verbs.AccessFlags.REMOTE_WRITE)
        acq = aio.AsyncCQ(ctx.create_cq(8, ctx.create_comp_channel()))
        qps = [pd.create_qp(send_cq=acq.cq) for _ in range(2)]
        verbs.connect_pair(*qps)

        async def program() -> int:
            both = [aio.AsyncQP(qp, acq) for qp in qps]
            writes = [one.write(mr, mr.addr, mr.rkey) for _ in range(30) for one in both]
            return len(await asyncio.gather(*writes))

        assert run(program()) == 60


def test_closing_a_qp_ends_what_waits_for_it(run: Run, make_ends: MakeEnds) -> None:
    ends = make_ends()

    async def program() -> list[int | None]:
        received = ends.qp.recv(ends.near.mr)
        waiting = asyncio.create_task(failure(received))
        await asyncio.sleep(0)
        ends.near.qp.close()
        return [await waiting, await failure(received)]

    assert run(program()) == [errno.ECANCELED, errno.ECANCELED]


def test_closing_a_qp_ends_what_is_queued_for_it(run: Run, make_ends: MakeEnds) -> None:
    ends = make_ends(max_send_wr=2)

    async def program() -> list[int | None]:
        sends = [ends.qp.send(ends.near.mr, length=8) for _ in range(20)]
        ends.near.qp.close()
        return [await failure(one) for one in sends]

    assert set(run(program())) == {errno.ECANCELED}


def test_a_cq_is_no_async_cq(ends: AsyncEnds) -> None:
    with pytest.raises(TypeError, match="AsyncQP takes an AsyncCQ, and not CQ"):
        aio.AsyncQP(ends.near.qp, ends.near.cq)  # type: ignore[arg-type]


def test_a_second_async_cq_is_refused(ends: AsyncEnds) -> None:
    with pytest.raises(verbs.VerbsError, match="another AsyncCQ has this CQ") as caught:
        aio.AsyncCQ(ends.near.cq)
    assert caught.value.errno == errno.EBUSY
    ends.near_cq.close()
    with aio.AsyncCQ(ends.near.cq):
        pass


# ---- what never ends ----


async def notes_of(operation: aio.Operation) -> list[str]:
    """What the cancellation says that ends an ``await`` of it: the cause of a TimeoutError."""

    async def given_up() -> list[str]:
        try:
            await operation
        except asyncio.CancelledError as error:
            return list(getattr(error, "__notes__", ()))
        raise AssertionError("it ended")

    task = asyncio.create_task(given_up())
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    return await task


ENDLESS: dict[str, Any] = {"timeout": 0, "rnr_retry": 7}
GONE = (
    "QP {:#x} is connected to QP {:#x}, which can neither answer nor send: its process has that QP "
    "in RESET, or destroyed it"
)


@pytest.mark.direct_only("by packets a peer that is gone is known by its silence alone")
@pytest.mark.parametrize("name", ["recv", "send", "write", "read"])
@pytest.mark.parametrize("how", ["closed", "reset"])
def test_a_timeout_says_that_the_peers_qp_is_gone(
    run: Run, make_ends: MakeEnds, name: str, how: str
) -> None:
    """With timeout 0 nothing ever ends such a request, and nothing at all ends a receive."""
    ends = make_ends()
    ends.qp.qp.modify(qp_state=verbs.QPState.RESET)
    ends.near.connect(ends.far.info(), **ENDLESS)
    mine, theirs = ends.near.qp.qp_num, ends.far.qp.qp_num
    place = () if name in ("recv", "send") else ends.far.region()
    if how == "closed":
        ends.far.qp.close()
    else:
        ends.far.qp.modify(qp_state=verbs.QPState.RESET)

    async def program() -> list[str]:
        return await notes_of(getattr(ends.qp, name)(ends.near.mr, *place, length=8))

    assert run(program()) == [GONE.format(mine, theirs)]


@pytest.mark.not_simulated("there a peer is known by its packets alone")
def test_a_timeout_says_nothing_of_a_peer_that_is_there(run: Run, ends: AsyncEnds) -> None:
    async def program() -> list[str]:
        return await notes_of(ends.qp.recv(ends.near.mr, 0, 8))

    assert run(program()) == []
