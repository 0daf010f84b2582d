# SPDX-License-Identifier: Apache-2.0
"""A REQ whose listener has just closed waits for it to come back, as perftest's second one does."""

from __future__ import annotations

from tests.manage.cm.dialogue import CLIENT, PORT, SERVER, Server, message, only, request
from verbena.manage.cm import CmSettings, RdmaEventKind
from verbena.manage.cm.addresses import CmAddress
from verbena.manage.cm.routes import CmDatagram
from verbena.manage.cm.settings import LIVE_SETTINGS
from verbena.manage.cm_messages import CmRej, RejReason, SidrRep, SidrReq, SidrStatus
from verbena.manage.ip_cm import IpCmHeader, PortSpace, service_id


def listen(server: Server) -> None:
    server.listener = server.rdma.create_id(server.channel, PortSpace.TCP)
    server.rdma.bind(server.listener, CmAddress.ip("0.0.0.0", PORT))
    server.rdma.listen(server.listener, 3)


def closed_server(settings: CmSettings = LIVE_SETTINGS) -> Server:
    server = Server(settings=settings)
    server.rdma.destroy_id(server.listener)
    return server


def refusal(sent: list[CmDatagram]) -> RejReason:
    return RejReason(only(sent, CmRej).reason)


def test_a_listener_that_comes_back_has_the_request() -> None:
    server = closed_server()
    assert server.hear(request()) == []
    assert server.hear(request()) == []  # repeated meanwhile: it is one request
    assert server.wait(0.3) == []
    listen(server)
    assert server.kinds() == [RdmaEventKind.CONNECT_REQUEST]
    assert server.wait(1.0) == []


def test_one_that_does_not_has_its_request_refused_in_time() -> None:
    server = closed_server()
    assert server.hear(request()) == []
    assert server.rdma.next_deadline() == LIVE_SETTINGS.listener_patience
    assert refusal(server.wait(1.1)) is RejReason.INVALID_SERVICE_ID
    listen(server)
    assert server.kinds() == []


def test_perftest_s_second_is_shorter_than_the_memory() -> None:
    server = closed_server()
    server.wait(1.0)
    assert server.hear(request()) == []
    listen(server)
    assert server.kinds() == [RdmaEventKind.CONNECT_REQUEST]


def test_a_request_after_that_time_is_refused_at_once() -> None:
    server = closed_server()
    server.wait(3.1)
    assert refusal(server.hear(request())) is RejReason.INVALID_SERVICE_ID


def test_another_service_is_refused_at_once() -> None:
    server = closed_server()
    other = request(service_id=service_id(PortSpace.TCP, 9))
    assert refusal(server.hear(other)) is RejReason.INVALID_SERVICE_ID


def test_linux_refuses_at_once() -> None:
    server = closed_server(CmSettings())
    assert refusal(server.hear(request())) is RejReason.INVALID_SERVICE_ID


def test_there_is_an_end_to_what_is_kept() -> None:
    server = closed_server()
    sent = []
    for number in range(300):
        sent += server.hear(request(local_comm_id=number + 1, local_qpn=number + 1))
    assert len(sent) == 300 - 256
    assert len(server.wait(1.1)) == 256
    assert message(sent[0]).reason is RejReason.INVALID_SERVICE_ID


def test_another_listener_of_the_service_keeps_it_open() -> None:
    server = Server(settings=LIVE_SETTINGS)
    second = server.rdma.create_id(server.channel, PortSpace.TCP)
    server.rdma.bind(second, CmAddress.ip("192.0.2.2", PORT + 1))
    server.rdma.listen(second, 3)
    server.rdma.destroy_id(second)
    server.hear(request())
    assert server.kinds() == [RdmaEventKind.CONNECT_REQUEST]


def test_a_datagram_service_waits_for_its_listener_too() -> None:
    server = Server(settings=LIVE_SETTINGS, listens=False)
    number = server.rdma.create_id(server.channel, PortSpace.UDP)
    server.rdma.bind(number, CmAddress.ip("0.0.0.0", PORT))
    server.rdma.listen(number, 3)
    server.rdma.destroy_id(number)
    asked = SidrReq(
        request_id=7,
        service_id=service_id(PortSpace.UDP, PORT),
        private_data=IpCmHeader.between(CLIENT, 40001, SERVER).pack(),
    )
    assert server.hear(asked) == []
    refused = only(server.wait(1.1), SidrRep)
    assert refused.status == SidrStatus.UNSUPPORTED


def test_a_port_of_another_port_space_may_be_what_comes_back() -> None:
    server = closed_server()
    asked = SidrReq(
        request_id=7,
        service_id=service_id(PortSpace.UDP, PORT),
        private_data=IpCmHeader.between(CLIENT, 40001, SERVER).pack(),
    )
    assert server.hear(asked) == []
    number = server.rdma.create_id(server.channel, PortSpace.UDP)
    server.rdma.bind(number, CmAddress.ip("0.0.0.0", PORT))
    server.rdma.listen(number, 3)
    assert server.kinds() == [RdmaEventKind.CONNECT_REQUEST]
