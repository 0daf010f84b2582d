# SPDX-License-Identifier: Apache-2.0
"""Connections of verbena.cm with asyncio, both sides in this process."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cm.conftest import ADDRESSES, HOST, Run, identifiers, limited, messages, until
from verbena import aio, cm, verbs
from verbena.agent.client import describe_agent
from verbena.cm import connection
from verbena.manage.cm.refusals import CmRefusal
from verbena.manage.cm_messages import RejReason

pytestmark = pytest.mark.over_roce


@asynccontextmanager
async def pair(
    host: str = HOST, accept: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[tuple[cm.Connection, cm.Connection]]:
    """Both ends of a connection."""
    async with cm.listen(0) as listener, asyncio.TaskGroup() as group:
        connecting = group.create_task(connected(host, listener.port, **options))
        request = await listener.get_request()
        async with await request.accept(**accept or {}) as far, await connecting as near:
            yield near, far


async def connected(host: str, port: int, **options: Any) -> cm.Connection:
    return await cm.connect(host, port, **options)


async def write(near: cm.Connection, far: cm.Connection) -> None:
    source, target = near.pd.alloc(64), far.pd.alloc(64, verbs.AccessFlags(3))
    source.array()[:] = 7
    await near.aqp.write(source, target.addr, target.rkey)
    assert target.array().sum() == 7 * 64


async def exchange(near: cm.Connection, far: cm.Connection) -> None:
    memory, buffer = near.pd.alloc(16), far.pd.alloc(16)
    memory.array()[:5] = list(b"hello")
    receiving = far.aqp.recv(buffer)
    await near.aqp.send(memory, length=5)
    assert (await receiving).byte_len == 5
    assert bytes(memoryview(buffer)[:5]) == b"hello"


# ---- connections that are made -------------------------------------------------------------------


def test_both_ends(run: Run) -> None:
    async def program() -> None:
        said = {"private_data": b"welcome"}
        async with pair(private_data=b"hello", accept=said) as (near, far):
            assert far.private_data.rstrip(b"\0") == b"hello"
            assert near.private_data.rstrip(b"\0") == b"welcome"
            assert near.remote_address == far.local_address
            assert near.local_address == far.remote_address
            assert near.remote_address is not None
            assert near.remote_address.host == HOST
            assert near.closed is None
            assert far.closed is None
            await write(near, far)
            await write(far, near)
            await exchange(near, far)

    run(program())


@pytest.mark.parametrize("host", [*ADDRESSES, "localhost", "::1"])
def test_addresses(alone: None, host: str) -> None:
    async def program() -> None:
        async with pair(host) as (near, far):
            assert far.local_address == near.remote_address
            await exchange(near, far)

    asyncio.run(limited(program()))


def test_one_end_listens_for_one_address() -> None:
    async def program() -> None:
        async with cm.listen(0, HOST) as listener:
            assert listener.address == (HOST, listener.port)
            connecting = asyncio.create_task(connected(HOST, listener.port, source=HOST))
            request = await listener.get_request(10)
            assert request.remote_address is not None
            assert request.remote_address.host == HOST
            async with await request.accept(), await connecting:
                pass

    asyncio.run(limited(program()))


def test_the_caller_s_objects_are_used() -> None:
    async def program() -> None:
        with verbs.open_device() as context:
            pd = context.alloc_pd()
            acq = aio.AsyncCQ(context.create_cq(64, context.create_comp_channel()))
            srq = pd.create_srq()
            qp = pd.create_qp(send_cq=acq.cq)
            seen: list[verbs.QPState] = []
            near_options: dict[str, Any] = {"qp": qp, "prepare": lambda qp: seen.append(qp.state)}
            far_options: dict[str, Any] = {"pd": pd, "cq": acq, "srq": srq}
            async with pair(**near_options, accept=far_options) as (near, far):
                assert (near.qp, near.pd) == (qp, pd)
                with pytest.raises(verbs.VerbsError, match="no AsyncQP"):
                    print(near.aqp)
                assert seen == [verbs.QPState.INIT]
                assert (far.pd, far.acq, far.qp.srq) == (pd, acq, srq)
                assert near.context is context
                mr = pd.alloc(16)
                srq.recv(mr, wr_id=5)
                await aio.AsyncQP(qp, acq).send(mr, length=4)
                assert (await anext(aiter(acq))).wr_id == 5
            assert not qp.closed
            assert qp.state == verbs.QPState.ERR
            assert not srq.closed
            acq.close()

    asyncio.run(limited(program()))


def test_capacities_and_depths() -> None:
    async def program() -> None:
        cap = verbs.QPCap(7, 9, 2, 3, 32)
        accept: dict[str, Any] = {"responder_resources": 4}
        async with pair(cap=cap, initiator_depth=6, accept=accept) as (near, far):
            assert near.qp.cap.max_send_wr >= 7
            assert far.qp.query().max_dest_rd_atomic == 4
            assert near.qp.query().max_rd_atomic == 4

    asyncio.run(limited(program()))


def test_a_hundred_at_once(alone: None) -> None:
    async def program() -> None:
        async with cm.listen(0) as listener, asyncio.TaskGroup() as group:

            async def serve(request: cm.ConnectionRequest) -> None:
                number = int.from_bytes(request.private_data[:2], "big")
                async with await request.accept(private_data=bytes([number])) as far:
                    await far.wait_closed()

            async def listen() -> None:
                for _ in range(100):
                    group.create_task(serve(await listener.get_request()))

            async def connect(number: int) -> None:
                said = number.to_bytes(2, "big")
                async with cm.connect(HOST, listener.port, private_data=said) as near:
                    assert near.private_data[0] == number
                    await near.disconnect()

            group.create_task(listen())
            for number in range(100):
                group.create_task(connect(number))
        assert identifiers() == 0

    asyncio.run(limited(program()))


def test_several_loops_in_several_threads(alone: None) -> None:
    failures: list[BaseException] = []

    def thread() -> None:
        async def program() -> None:
            for _ in range(5):
                async with pair() as (near, far):
                    await exchange(near, far)

        try:
            asyncio.run(limited(program()))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=thread) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures
    assert identifiers() == 0


def test_another_loop_is_told() -> None:
    with asyncio.Runner() as first, asyncio.Runner() as second:

        async def listen() -> cm.Listener:
            return await cm.listen(0)

        listener = first.run(listen())
        with pytest.raises(RuntimeError, match="belongs to another event loop"):
            second.run(listener.get_request())
        listener.close()


def test_what_a_loop_leaves_open_is_closed_by_the_next(alone: None) -> None:
    async def forgetful() -> None:
        listener = await cm.listen(0)
        connecting = asyncio.create_task(connected(HOST, listener.port))
        await (await listener.get_request()).accept()
        await connecting

    async def program() -> None:
        async with cm.listen(0):
            assert identifiers() == 1

    asyncio.run(limited(forgetful()))
    assert identifiers() == 3
    asyncio.run(limited(program()))


# ---- the end of a connection ---------------------------------------------------------------------


def test_the_peer_disconnects(run: Run) -> None:
    async def program() -> None:
        async with pair() as (near, far):
            waiting = asyncio.create_task(far.wait_closed())
            assert await near.disconnect(10) is cm.Closed.HERE
            assert await waiting is cm.Closed.PEER
            assert near.closed is cm.Closed.HERE
            assert far.closed is cm.Closed.PEER
            assert far.qp.state == verbs.QPState.ERR
            assert await far.disconnect() is cm.Closed.PEER  # again changes nothing

    run(program())


def test_leaving_the_block_disconnects(alone: None) -> None:
    async def program() -> None:
        async with cm.listen(0) as listener:
            connecting = asyncio.create_task(connected(HOST, listener.port))
            far = await (await listener.get_request()).accept()
            async with await connecting as near:
                pass
            assert near.qp.closed
            assert near.closed is cm.Closed.HERE
            assert await far.wait_closed(10) is cm.Closed.PEER
            far.close()
        assert identifiers() == 0

    asyncio.run(limited(program()))


def test_a_wait_has_a_limit_and_can_be_cancelled() -> None:
    async def program() -> None:
        async with pair() as (near, far):
            with pytest.raises(cm.ConnectTimeout):
                await near.wait_closed(0.05)
            waiting = asyncio.create_task(near.wait_closed())
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await exchange(near, far)

    asyncio.run(limited(program()))


# ---- refusals ------------------------------------------------------------------------------------


def test_a_rejection_has_its_reason(run: Run) -> None:
    async def program() -> None:
        async with cm.listen(0) as listener:
            connecting = asyncio.create_task(connected(HOST, listener.port))
            request = await listener.get_request()
            request.reject(b"why")
            with pytest.raises(cm.Rejected, match="The program refused") as caught:
                await connecting
            assert caught.value.private_data.rstrip(b"\0") == b"why"
            assert caught.value.reason is RejReason.CONSUMER_REJECT
            assert isinstance(caught.value, ConnectionRefusedError)
            with pytest.raises(cm.ConnectionManagerError, match="was answered already"):
                request.reject()

    run(program())


def test_nobody_listens() -> None:
    async def program() -> None:
        with pytest.raises(cm.NoListener, match="Nothing listens") as caught:
            async with cm.connect(HOST, 1):
                pass
        assert caught.value.reason is RejReason.INVALID_SERVICE_ID
        assert caught.value.errno == errno.ECONNREFUSED
        with pytest.raises(cm.NoListener, match="Nothing listens"):
            await cm.resolve_datagram(HOST, 1)

    asyncio.run(limited(program()))


def test_addresses_that_are_refused() -> None:
    async def program() -> None:
        async with cm.listen(0, HOST) as listener:
            with pytest.raises(cm.AddressInUse) as caught:
                await cm.listen(listener.port)
            assert caught.value.reason is CmRefusal.WILDCARD_IN_USE
            assert caught.value.errno == errno.EADDRINUSE
        with pytest.raises(cm.NoSuchAddress, match="use an address of this host"):
            await cm.listen(0, "203.0.113.9")
        with pytest.raises(cm.NoSuchAddress, match=r"nowhere\.invalid"):
            await cm.connect("nowhere.invalid", 7174)

    asyncio.run(limited(program()))


def test_no_route_leads_there(alone: None) -> None:
    async def program() -> None:
        with pytest.raises(cm.Unreachable, match="No route leads to the address"):
            await cm.connect("203.0.113.9", 7174)

    asyncio.run(limited(program()))


def test_an_address_in_use(alone: None) -> None:
    async def program() -> None:
        async with cm.listen(0, ADDRESSES[0]) as listener:
            with pytest.raises(cm.AddressInUse) as caught:
                await cm.listen(listener.port, ADDRESSES[0])
            assert caught.value.reason is CmRefusal.PORT_IN_USE

    asyncio.run(limited(program()))


def test_the_backlog_counts_what_waits(alone: None) -> None:
    async def program() -> None:
        async with cm.listen(0, backlog=2) as listener, asyncio.TaskGroup() as group:
            before = identifiers()
            clients = [group.create_task(connected(HOST, listener.port)) for _ in range(4)]
            with_requests = before + len(clients) + 2
            await until(lambda: identifiers() == with_requests)
            await asyncio.sleep(0.3)  # the others have been repeated, and dropped again
            assert identifiers() == with_requests
            for _ in clients:  # those without room are repeated
                (await (await listener.get_request()).accept()).close()
            for each in clients:
                (await each).close()

    asyncio.run(limited(program()))


def test_private_data_that_is_too_long() -> None:
    async def program() -> None:
        async with cm.listen(0) as listener:
            for length in (57, 256):
                with pytest.raises(ValueError, match=f"has {length} bytes, and the message 56"):
                    await cm.connect(HOST, listener.port, private_data=bytes(length))

    asyncio.run(limited(program()))


def test_a_pd_of_another_device(alone: None) -> None:
    class Elsewhere(verbs.PD):  # type: ignore[misc]
        context = type("Context", (), {"device": type("Device", (), {"guid": 1})})

    async def program() -> None:
        async with cm.listen(0) as listener:
            options: Any = {"pd": Elsewhere.__new__(Elsewhere)}
            with pytest.raises(cm.Unreachable, match="by another device"):
                await cm.connect(HOST, listener.port, **options)
        assert identifiers() == 0

    asyncio.run(limited(program()))


# ---- time ----------------------------------------------------------------------------------------


def test_a_listener_that_does_not_answer(alone: None, run: Run) -> None:
    async def program() -> None:
        async with cm.listen(0) as listener:
            refusals = messages("cm_tx_msgs/rej")
            loop = asyncio.get_running_loop()
            begun = loop.time()
            with pytest.raises(cm.ConnectTimeout) as caught:
                await cm.connect(HOST, listener.port, timeout=0.3)
            assert isinstance(caught.value, TimeoutError)
            assert 0.3 <= loop.time() - begun < 5
            assert messages("cm_tx_msgs/rej") == refusals + 1
            request = await listener.get_request()
            with pytest.raises(cm.PeerGone, match=r"127.0.0.1:\d+: the peer has given up") as gone:
                await request.accept()
            assert isinstance(gone.value, ConnectionAbortedError)
        assert identifiers() == 0

    run(program())


def test_a_listener_that_accepts_and_gives_up_at_once(alone: None, run: Run) -> None:
    """Its REP and its REJ are both there when the side that connects goes on."""

    async def program() -> None:
        async with cm.listen(0) as listener:
            connecting = asyncio.ensure_future(cm.connect(HOST, listener.port))
            steps = (await listener.get_request()).accept().__await__()
            next(steps)  # the REP
            steps.close()  # the REJ
            with pytest.raises(cm.PeerGone, match="the peer accepted and gave up at once"):
                await connecting
        assert identifiers() == 0

    run(program())


def test_a_listener_at_another_address(alone: None) -> None:
    """Its port is there, so that the manager of its host refuses in the program's place."""

    async def main() -> None:
        async with cm.listen(0, host="127.0.0.1") as listener:
            with pytest.raises(cm.Rejected, match="or listens at another address of its host"):
                await cm.connect("::1", listener.port)

    asyncio.run(main())


def test_the_request_of_a_peer_that_has_gone_need_not_be_refused(alone: None) -> None:
    async def program() -> None:
        async with cm.listen(0) as listener:
            with pytest.raises(cm.ConnectTimeout, match="the peer has not answered"):
                await cm.connect(HOST, listener.port, timeout=0.3)
            (await listener.get_request()).reject(b"too late")
        assert identifiers() == 0

    asyncio.run(limited(program()))


def test_without_a_timeout_of_the_caller_s_the_default_counts(
    alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.3)

    async def program() -> None:
        async with cm.listen(0) as listener:
            with pytest.raises(cm.ConnectTimeout):
                await cm.connect(HOST, listener.port)
            waiting = asyncio.create_task(connected(HOST, listener.port, timeout=None))
            await asyncio.sleep(0.6)
            assert not waiting.done()
            waiting.cancel()

    asyncio.run(limited(program()))


def test_an_address_has_two_seconds_by_default() -> None:
    async def program() -> None:
        async with cm.create_id() as identifier:
            now = identifier.channel.time()
            assert identifier.step_seconds(None, None) == 2
            assert identifier.step_seconds(now + 10, None) == 2
            assert 9 < identifier.step_seconds(now + 10, timeout=10) <= 10

    asyncio.run(limited(program()))


def test_a_listener_that_closes_refuses_who_waits(alone: None) -> None:
    async def program() -> None:
        async with cm.listen(0) as listener:
            unread = asyncio.create_task(connected(HOST, listener.port))
            request = await listener.get_request()
            read = asyncio.create_task(connected(HOST, listener.port))
            await until(lambda: identifiers() >= 5)
            assert request.is_open
        for each in (unread, read):
            with pytest.raises(cm.Rejected):
                await each
        assert identifiers() == 0

    asyncio.run(limited(program()))


def test_the_iteration_ends_with_its_listener() -> None:
    async def program() -> None:
        async with cm.listen(0) as listener:

            async def requests() -> int:
                return len([each async for each in listener])

            task = asyncio.create_task(requests())
            await asyncio.sleep(0.05)
        assert await task == 0

    asyncio.run(limited(program()))


@pytest.fixture
def ipv6_alone(alone: None) -> Iterator[None]:
    """The system's default: listeners for every address of IPv6 take no IPv4."""
    setting = Path("/proc/sys/net/ipv6/bindv6only")
    described = describe_agent()
    if described is not None:  # it reads the setting when it starts
        os.kill(described["pid"], signal.SIGKILL)
    setting.write_text("1")
    yield
    setting.write_text("0")


def test_every_address_is_of_both_families(ipv6_alone: None) -> None:
    async def program() -> None:
        async with pair(HOST), pair(ADDRESSES[1]):
            pass

    asyncio.run(limited(program()))


def test_no_route_leads_to_the_address(alone: None) -> None:
    """The call is refused before any event."""

    async def program() -> None:
        with pytest.raises(cm.Unreachable, match="No route leads to the address") as caught:
            await cm.connect("203.0.113.9", 7174)
        assert caught.value.errno == errno.ENETUNREACH
        assert caught.value.reason is CmRefusal.NO_ROUTE

    asyncio.run(limited(program()))
