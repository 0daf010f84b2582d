# SPDX-License-Identifier: Apache-2.0
"""Datagrams and groups with asyncio, and the steps of an Id."""

from __future__ import annotations

import asyncio

import pytest

from tests.cm.conftest import HOST, Run, identifiers, limited
from verbena import cm, verbs
from verbena.manage.cm.addresses import CmAddress
from verbena.manage.cm.rdma_events import RdmaConnectionParameters
from verbena.manage.cm_messages import SidrStatus

pytestmark = pytest.mark.over_roce


async def resolved(port: int, **options: bytes) -> cm.DatagramPeer:
    return await cm.resolve_datagram(HOST, port, **options)  # type: ignore[misc]


def test_both_ends(run: Run) -> None:
    async def program() -> None:
        async with cm.listen(0, datagram=True) as listener, asyncio.TaskGroup() as group:
            resolving = group.create_task(resolved(listener.port, private_data=b"you"))
            request = await listener.get_request()
            assert request.private_data.rstrip(b"\0") == b"you"
            async with (
                await request.accept_datagrams(private_data=b"here") as far,
                await resolving as near,
            ):
                assert near.private_data.rstrip(b"\0") == b"here"
                assert near.qpn == far.qp.qp_num
                buffer, mr = far.pd.alloc(128), near.pd.alloc(8)
                receiving = far.aqp.recv(buffer)
                await near.aqp.send(mr, length=5, **near.to)
                received = await receiving
                assert received.byte_len == 45
                with pytest.raises(ValueError, match="from its first datagram"):
                    print(far.to)
                with far.pd.create_ah_from_wc(received, buffer) as back:
                    answer = near.pd.alloc(128)
                    receiving = near.aqp.recv(answer)
                    await far.aqp.send(
                        buffer, 40, 5, ah=back, remote_qpn=received.src_qp, remote_qkey=near.qkey
                    )
                    assert (await receiving).byte_len == 45

    run(program())


def test_a_rejection(alone: None) -> None:
    async def program() -> None:
        async with cm.listen(0, datagram=True) as listener:
            resolving = asyncio.create_task(resolved(listener.port))
            (await listener.get_request()).reject()
            with pytest.raises(cm.Rejected) as caught:
                await resolving
            assert caught.value.reason is SidrStatus.REJECTED
        assert identifiers() == 0

    asyncio.run(limited(program()))


def test_a_group(run: Run) -> None:
    async def program() -> None:
        async with cm.join("239.88.1.3", source=HOST) as member:
            async with cm.join("239.88.1.3", source=HOST, send_only=True) as sender:
                buffer, mr = member.pd.alloc(128), sender.pd.alloc(8)
                receiving = member.aqp.recv(buffer)
                await sender.aqp.send(mr, length=6, **sender.to)
                assert (await receiving).byte_len == 46
            assert str(member.gid).endswith("ef58:0103")
            assert not member.lost

    run(program())


def test_an_ipv6_group_is_refused(alone: None) -> None:
    async def program() -> None:
        with pytest.raises(cm.ConnectionManagerError):
            await cm.join("ff05::1", source="fd00:88::1")
        assert identifiers() == 0

    asyncio.run(limited(program()))


def test_step_by_step(alone: None) -> None:
    async def program() -> None:
        async with cm.create_id() as listening, cm.create_id() as near:
            listening.bind(CmAddress.ip(HOST, 0))
            listening.listen()
            address = listening.local_address
            assert address is not None
            await near.resolve_addr(CmAddress.ip(HOST, address.port))
            await near.resolve_route()
            pd = near.default_pd(None)
            with pd.context.create_cq(8) as cq, pd.create_qp(send_cq=cq) as qp:
                near.bring(qp, verbs.QPState.INIT)
                near.connect(RdmaConnectionParameters(qpn=qp.qp_num, private_data=b"hi"))
                event = await listening.get_request(10)
                assert event.connection.qpn == qp.qp_num
                far = await cm.Id.adopt(listening.manager, event.number, datagram=False)
                with far, pd.create_qp(send_cq=cq) as other:
                    far.bring(other, verbs.QPState.INIT, verbs.QPState.RTR, verbs.QPState.RTS)
                    far.accept(RdmaConnectionParameters(qpn=other.qp_num))
                    await near.expect(cm.RdmaEventKind.CONNECT_RESPONSE)
                    near.bring(qp, *(verbs.QPState(each) for each in (1, 2, 3)))
                    near.accept()
                    assert (await far.next_event(10)).kind is cm.RdmaEventKind.ESTABLISHED
                    near.disconnect()
                    assert (await far.next_event(10)).kind is cm.RdmaEventKind.DISCONNECTED
                    far.disconnect()
                    assert (await near.next_event(10)).kind is cm.RdmaEventKind.DISCONNECTED
        assert identifiers() == 0

    asyncio.run(limited(program()))


def test_a_step_too_early() -> None:
    async def program() -> None:
        async with cm.create_id() as near:
            with pytest.raises(cm.ConnectionManagerError, match="wait for the event before it"):
                await near.resolve_route()
            with pytest.raises(cm.ConnectionManagerError, match="connect or accept first"):
                near.disconnect()
        with pytest.raises(cm.ConnectionManagerError, match="was closed here"):
            near.listen()

    asyncio.run(limited(program()))
