# SPDX-License-Identifier: Apache-2.0
"""Messages of several segments for a program that does RMPP itself, over umad."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import pytest

from tests.subnet_process.test_fabric_server import HEADER, Clock, Umad
from verbena import fabrics
from verbena.manage.attribute_ids import Method, SaAttribute
from verbena.manage.mad import RmppMad, SaMad
from verbena.manage.rmpp import RmppStatus, RmppType
from verbena.manage.rmpp_receiver import ReceiverState, RmppReceiver
from verbena.manage.rmpp_sender import RmppSender
from verbena.subnet_process.running import LiveFabric, make_fabric
from verbena.subnet_process.umad_device import LONG_FOLLOWS

SUBN_ADM = 0x03
RECORDS = 14  # nodes, of 112 bytes each
SEGMENTS = 8


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def live(clock: Clock) -> Iterator[LiveFabric]:
    made = make_fabric(fabrics.clos2(4), f"segments{os.getpid()}", sm_host="h0", clock=clock)
    yield made
    assert made.server.failures == 0
    made.server.close()


def long_one(umad: Umad) -> bytes | None:
    """A message with a memfd, which is announced by one of a byte."""
    assert umad.receive() == LONG_FOLLOWS
    return umad.receive()


def segments(umad: Umad) -> list[bytes]:
    """The MADs that can be read now."""
    found = []
    while (raw := umad.receive()) is not None:
        assert struct.unpack_from("=II", raw)[1] == 0, "a request has come back"
        found.append(raw[HEADER:])
    return found


def ask(umad: Umad, rmpp: int) -> int:
    agent = umad.register(SUBN_ADM, version=2, rmpp=rmpp)
    query = SaMad(
        method=Method.GET_TABLE, attribute_id=SaAttribute.NODE_RECORD, transaction_id=7
    ).pack()
    umad.write(agent, query, timeout=1000, retries=3, lid=1, qp=1)
    return agent


def test_a_program_that_acknowledges(live: LiveFabric, clock: Clock) -> None:
    """One segment comes before the first ACK, and the others by the window."""
    umad = Umad(live, "h3")
    agent = ask(umad, rmpp=0)
    receiver = RmppReceiver(clock.now, window=3)
    arrived = []
    for _ in range(20):
        found = segments(umad)
        arrived.append(len(found))
        answers = [packet for each in found for packet in receiver.receive(each, clock.now)]
        for packet in answers:
            umad.write(agent, packet, timeout=0, retries=0, lid=1, qp=1)
        if receiver.state is ReceiverState.COMPLETE:
            break
    assert receiver.state is ReceiverState.COMPLETE
    assert arrived[0] == 1
    assert max(arrived) <= 3
    assert sum(arrived) == SEGMENTS
    assert len(receiver.message) == 56 + RECORDS * 112
    clock.now += 100
    umad.turn()
    assert segments(umad) == []


def test_a_program_that_is_silent(live: LiveFabric, clock: Clock) -> None:
    """Segments come again, and at last an ABORT."""
    umad = Umad(live, "h3")
    ask(umad, rmpp=0)
    found = segments(umad)
    for _ in range(100):
        clock.now += 1
        umad.turn()
        found += segments(umad)
    kinds = [RmppMad.unpack(each).rmpp_type for each in found]
    assert kinds.count(RmppType.DATA) > 2
    assert kinds[-1] == RmppType.ABORT
    assert RmppMad.unpack(found[-1]).rmpp_status == RmppStatus.TOO_MANY_RETRIES
    assert {RmppMad.unpack(each).segment_number for each in found[:-1]} == {1}


def test_a_program_that_stops(live: LiveFabric, clock: Clock) -> None:
    """A reader without room for more ends the transfer by a STOP; nothing comes behind it."""
    umad = Umad(live, "h3")
    agent = ask(umad, rmpp=0)
    receiver = RmppReceiver(clock.now, most_bytes=300)
    came = 0
    while receiver.state is ReceiverState.RECEIVING:
        found = segments(umad)
        assert found
        came += len(found)
        answers = [packet for each in found for packet in receiver.receive(each, clock.now)]
        for packet in answers:
            umad.write(agent, packet, timeout=0, retries=0, lid=1, qp=1)
    assert receiver.state is ReceiverState.FAILED
    clock.now += 100
    umad.turn()
    assert segments(umad) == []


def test_the_kernels_rmpp_gives_the_whole(live: LiveFabric, clock: Clock) -> None:
    """Beside it: an agent with rmpp_version 1."""
    umad = Umad(live, "h3")
    ask(umad, rmpp=1)
    raw = long_one(umad)
    assert raw is not None
    assert struct.unpack_from("=5I", raw)[4] == HEADER + 56 + RECORDS * 112


def test_a_request_of_several_segments(live: LiveFabric, clock: Clock) -> None:
    """A program sends one to an agent whose RMPP the kernel does: it gets it as one."""
    server, client = Umad(live, "h5"), Umad(live, "h3")
    server.register(SUBN_ADM, version=2, methods=1 << Method.GET_MULTI, rmpp=1)
    agent = client.register(SUBN_ADM, version=2, rmpp=0)
    mad = SaMad(method=Method.GET_MULTI, attribute_id=SaAttribute.NODE_RECORD, transaction_id=9)
    message = mad.pack()[:56] + bytes(range(256)) * 4
    sender = RmppSender(message)
    lid = live.live.host("h5").ports[1].lid
    to_send = sender.start(clock.now)
    for _ in range(20):
        for packet in to_send:
            client.write(agent, packet, timeout=0, retries=0, lid=lid, qp=1)
        to_send = [p for each in segments(client) for p in sender.receive(each, clock.now)]
    got = long_one(server)
    assert got is not None
    assert struct.unpack_from("=5I", got)[4] == HEADER + len(message)
