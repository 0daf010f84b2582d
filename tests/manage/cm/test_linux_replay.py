# SPDX-License-Identifier: Apache-2.0
"""Captured connections of Linux, replayed with this side in either role.

The program's calls are made when its message is in the capture; the message that is then sent has
to be Linux's, byte for byte, but for communication IDs, transaction IDs and starting PSNs.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from tests.manage.cm.dialogue import message, sent_as
from tests.manage.cm.world import FakeHost
from tests.manage.packets import CAPTURES, mads_of_capture
from verbena.manage.cm import (
    AddressAnswer,
    CmAddress,
    CmDatagram,
    CmDevice,
    CmPort,
    LocalInterface,
    MadArrival,
    RdmaCm,
    RdmaConnectionParameters,
    RdmaEventKind,
)
from verbena.manage.cm_messages import (
    CmDrep,
    CmDreq,
    CmRep,
    CmReq,
    CmRtu,
    SidrRep,
    SidrReq,
)
from verbena.manage.codes import gid_of_address
from verbena.manage.ip_cm import IpCmHeader, PortSpace, service_port
from verbena.manage.record import Record

IDENTIFIERS = {"local_comm_id", "remote_comm_id", "request_id", "starting_psn"}


def conversations(capture: Path) -> list[list[Any]]:
    """The messages of each connection or resolution of a capture."""
    found: dict[int, list[Any]] = {}
    for raw in mads_of_capture(capture):
        record = message(raw)
        if isinstance(record, (SidrReq, SidrRep)):
            ids = {record.request_id}
        else:
            ids = {record.local_comm_id, getattr(record, "remote_comm_id", 0)}
        key = next((each for each in ids if each in found), record_id(record))
        found.setdefault(key, []).append(record)
    return [each for each in found.values() if isinstance(each[0], (CmReq, SidrReq))]


def record_id(record: Any) -> int:
    number: int = (
        record.request_id if isinstance(record, SidrReq | SidrRep) else (record.local_comm_id)
    )
    return number


def bare(record: Record) -> Record:
    """A message without what differs between two runs of Linux."""
    return record.replace(**dict.fromkeys(IDENTIFIERS & set(record.FIELDS), 0))


class Program:
    """One side of a conversation, with our rdma_cm below it."""

    def __init__(self, talk: list[Any], is_client: bool) -> None:
        self.is_client = is_client
        self.first = talk[0]
        header = IpCmHeader.unpack(self.first.private_data)
        ends = (str(header.source), str(header.destination))
        self.own, self.peer = ends if is_client else ends[::-1]
        self.own_port = header.source_port if is_client else service_port(talk[0].service_id)[1]
        self.space = PortSpace(service_port(talk[0].service_id)[0])
        guid = 1
        for record in talk:
            if isinstance(record, CmReq if is_client else CmRep):
                guid = record.local_ca_guid
        device = CmDevice(guid, (CmPort((gid_of_address(self.own),)),))
        self.rdma = RdmaCm(device, FakeHost(self.own), random.Random(3).getrandbits)
        self.channel = self.rdma.open_channel()
        self.number = self.rdma.create_id(self.channel, self.space)
        self.own_id = self.peer_id = 0
        if not is_client:
            self.rdma.bind(self.number, CmAddress.ip("0.0.0.0", self.own_port))
            self.rdma.listen(self.number)

    def speak(self, record: Any) -> list[CmDatagram]:
        """Make the call that leads to a message."""
        if isinstance(record, (CmReq, SidrReq)):
            self.resolve()
            self.rdma.connect(self.number, self.parameters(record, 36))
        elif isinstance(record, (CmRep, SidrRep)):
            event = self.rdma.read_event(self.channel)
            assert event is not None
            assert event.kind is RdmaEventKind.CONNECT_REQUEST
            self.number = event.id
            self.rdma.accept(self.number, self.parameters(record, 0))
        elif isinstance(record, CmRtu):
            self.rdma.accept(self.number)
        else:
            self.rdma.disconnect(self.number)
        return self.rdma.take_datagrams()

    def resolve(self) -> None:
        service = service_port(self.first.service_id)[1]
        self.rdma.bind(self.number, CmAddress.ip(self.own, self.own_port))
        self.rdma.resolve_address(self.number, CmAddress.ip(self.peer, service))
        local = LocalInterface(1, gid_of_address(self.own))
        answer = AddressAnswer(CmAddress.ip(self.own), local, gid_of_address(self.peer))
        self.rdma.address_resolved(self.number, answer)
        self.rdma.resolve_route(self.number)
        while self.rdma.read_event(self.channel):
            pass

    @staticmethod
    def parameters(record: Any, offset: int) -> RdmaConnectionParameters:
        data = record.private_data[offset:]
        if isinstance(record, (SidrReq, SidrRep)):
            return RdmaConnectionParameters(qpn=getattr(record, "qpn", 0), private_data=data)
        return RdmaConnectionParameters(
            qpn=record.local_qpn,
            private_data=data,
            responder_resources=record.responder_resources,
            initiator_depth=record.initiator_depth,
            flow_control=record.end_to_end_flow_control,
            retry_count=getattr(record, "retry_count", 0),
            rnr_retry_count=record.rnr_retry_count,
            srq=record.srq,
        )

    def hear(self, record: Any) -> None:
        """Give it Linux's message, with our communication ID in the place of Linux's."""
        changes = {}
        if isinstance(record, SidrRep):
            changes["request_id"] = self.own_id
        elif "remote_comm_id" in record.FIELDS:
            changes["remote_comm_id"] = self.own_id
        arrival = MadArrival(1, True, gid_of_address(self.peer), gid_of_address(self.own))
        assert self.rdma.receive(sent_as(record.replace(**changes)), arrival, 0.0) is None
        assert self.rdma.take_datagrams() == []


@pytest.mark.parametrize("is_client", [True, False], ids=["client", "server"])
@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_same_messages_as_linux(capture: Path, is_client: bool) -> None:
    for talk in conversations(capture):
        replay(talk, is_client)


def replay(talk: list[Any], is_client: bool) -> None:
    program = Program(talk, is_client)
    client_id = record_id(talk[0])
    for record in talk:
        by_client = isinstance(record, SidrReq) or (
            not isinstance(record, SidrRep) and record.local_comm_id == client_id
        )
        if by_client != is_client:
            program.hear(record)
            continue
        sent = [message(each) for each in program.speak(record)]
        assert [bare(each) for each in sent] == [bare(record)]
        program.own_id = program.own_id or record_id(sent[0])


def test_captures_have_what_is_replayed() -> None:
    kinds = {
        type(record)
        for capture in CAPTURES
        for record in itertools.chain.from_iterable(conversations(capture))
    }
    assert kinds == {CmReq, CmRep, CmRtu, CmDreq, CmDrep, SidrReq, SidrRep}
