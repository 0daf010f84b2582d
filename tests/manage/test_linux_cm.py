# SPDX-License-Identifier: Apache-2.0
"""Captures of Linux's connection manager over soft-RoCE: read, and written byte for byte."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import TypeVar

import pytest

from tests.manage.packets import CAPTURES, mads_of_capture
from verbena.manage.attribute_ids import CmMessageId, Method
from verbena.manage.cm_messages import (
    CM_MESSAGES,
    CmPath,
    CmRep,
    CmReq,
    CmTransport,
    SidrRep,
    SidrReq,
    SidrStatus,
    cm_timeout_ms,
)
from verbena.manage.codes import IbMtu, gid_of_address
from verbena.manage.ip_cm import IpCmHeader, PortSpace, service_id, service_port
from verbena.manage.mad import CmMad, parse_mad
from verbena.manage.record import Record

_R = TypeVar("_R", bound=Record)
MESSAGES = [
    pytest.param(mad, id=f"{capture.stem}-{number}")
    for capture in CAPTURES
    for number, mad in enumerate(mads_of_capture(capture))
]


def message(name: str, kind: type[_R]) -> tuple[CmMad, _R]:
    """The first message of a kind in a capture."""
    capture = next(path for path in CAPTURES if path.stem == f"cm-rxe-{name}")
    for raw in mads_of_capture(capture):
        mad = parse_mad(raw)
        if mad.attribute_id == kind.ATTRIBUTE:
            assert isinstance(mad, CmMad)
            return mad, mad.attribute(kind)
    raise AssertionError(f"{name} has no {kind.__name__}")


@pytest.mark.parametrize("raw", MESSAGES)
class TestEveryMessage:
    def test_same_bytes_from_its_fields_alone(self, raw: bytes) -> None:
        mad = parse_mad(raw)
        assert isinstance(mad, CmMad)
        kind = CM_MESSAGES[mad.attribute_id]
        values = mad.attribute(kind).values()
        header = {name: value for name, value in mad.values().items() if name != "data"}
        assert CmMad(**header).with_attribute(kind(**values)).pack() == raw

    def test_header(self, raw: bytes) -> None:
        mad = parse_mad(raw)
        assert (mad.class_version, mad.method, mad.status) == (2, Method.SEND, 0)


def test_there_are_as_many_as_ever() -> None:
    kinds = {parse_mad(param.values[0]).attribute_id for param in MESSAGES}
    assert kinds >= {
        *(CmMessageId.REQ, CmMessageId.REP, CmMessageId.RTU, CmMessageId.DREQ, CmMessageId.DREP),
        *(CmMessageId.SIDR_REQ, CmMessageId.SIDR_REP),
    }
    assert len(MESSAGES) >= 12


def test_req_of_rping() -> None:
    _, req = message("rping", CmReq)
    assert service_port(req.service_id) == (PortSpace.TCP, 7174)
    assert req.service_id == service_id(PortSpace.TCP, 7174)
    assert (req.responder_resources, req.initiator_depth) == (1, 1)
    assert (req.remote_cm_response_timeout, req.local_cm_response_timeout) == (20, 20)
    assert cm_timeout_ms(req.local_cm_response_timeout) == 4096
    assert req.transport is CmTransport.RC
    assert (req.retry_count, req.rnr_retry_count, req.max_cm_retries) == (7, 7, 15)
    assert (req.path_mtu, req.srq, req.p_key) == (IbMtu.BYTES_1024, False, 0xFFFF)
    path = req.primary
    assert (path.local_lid, path.remote_lid) == (0xFFFF, 0xFFFF)
    header = IpCmHeader.unpack(req.private_data)
    assert isinstance(header.source, ipaddress.IPv4Address)
    assert path.local_gid == gid_of_address(str(header.source))
    assert path.remote_gid == gid_of_address(str(header.destination))
    assert (path.hop_limit, path.packet_rate, path.local_ack_timeout) == (64, 0, 19)
    assert path.subnet_local is False
    assert req.alternate == CmPath()
    again = IpCmHeader.between(header.source, header.source_port, header.destination)
    assert again == header


def test_rep_of_rping() -> None:
    _, rep = message("rping", CmRep)
    assert (rep.target_ack_delay, rep.failover_accepted, rep.rnr_retry_count) == (15, 0, 7)


def test_sidr_of_udaddy() -> None:
    _, request = message("udaddy", SidrReq)
    assert service_port(request.service_id)[0] is PortSpace.UDP
    assert IpCmHeader.unpack(request.private_data).ip_version == 4
    _, reply = message("udaddy", SidrRep)
    assert reply.status is SidrStatus.VALID
    assert reply.qkey == 0x01234567
    assert reply.service_id == request.service_id


def test_captures_are_here() -> None:
    assert all(isinstance(path, Path) for path in CAPTURES)
    assert len(CAPTURES) >= 4
