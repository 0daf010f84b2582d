# SPDX-License-Identifier: Apache-2.0
"""What Linux 6.1's soft-RoCE answered to messages made by hand: this side answers the same.

Each test is a row of a table that was made with ``rping -s`` in a guest; see docs/connections.md.
"""

from __future__ import annotations

from tests.manage.cm.dialogue import (
    ARRIVAL,
    CLIENT,
    PORT,
    SERVER,
    SERVER_GID,
    Server,
    message,
    only,
    request,
    sent_as,
    transaction,
)
from verbena.manage.cm import CmSettings, RdmaEventKind
from verbena.manage.cm_messages import (
    CmDrep,
    CmDreq,
    CmMra,
    CmRej,
    CmRep,
    CmRtu,
    RejOf,
    RejReason,
    SidrRep,
    SidrReq,
    SidrStatus,
)
from verbena.manage.codes import gid_of_address
from verbena.manage.ip_cm import IpCmHeader, PortSpace, service_id

LINUX = CmSettings(first_resend=0, thinking=0)


def header(source: str = CLIENT, destination: str = SERVER) -> IpCmHeader:
    return IpCmHeader.between(source, 40001, destination)


class TestRequests:
    def test_port_without_listener(self) -> None:
        sent = Server().hear(request(service_id=service_id(PortSpace.TCP, 9)))
        rej = only(sent, CmRej)
        assert (rej.reason, rej.message) == (RejReason.INVALID_SERVICE_ID, RejOf.REQ)
        assert (rej.ari_length, rej.local_comm_id, rej.remote_comm_id) == (0, 0, 0x5001)
        assert transaction(sent[0]) == 0x700000001

    def test_header_of_another_version(self) -> None:
        private = header().replace(minor_version=1).pack()
        rej = only(Server().hear(request(private_data=private)), CmRej)
        assert (rej.reason, rej.message) == (RejReason.CONSUMER_REJECT, RejOf.REQ)

    def test_gid_of_another(self) -> None:
        req = request()
        path = req.primary.replace(remote_gid=gid_of_address("192.0.2.77"))
        rej = only(Server().hear(req.replace(primary=path)), CmRej)
        assert rej.reason == RejReason.PRIMARY_REMOTE_GID
        assert (rej.ari_length, rej.ari[:16]) == (16, SERVER_GID)

    def test_destination_of_another(self) -> None:
        private = header(destination="192.0.2.77").pack()
        rej = only(Server().hear(request(private_data=private)), CmRej)
        assert rej.reason == RejReason.CONSUMER_REJECT

    def test_source_without_a_route_back(self) -> None:
        private = header(source="203.0.113.1").pack()
        rej = only(Server().hear(request(private_data=private)), CmRej)
        assert rej.reason == RejReason.CONSUMER_REJECT

    def test_good_one(self) -> None:
        server = Server()
        assert server.hear(request()) == []
        _, sent = server.accept(responder_resources=1, initiator_depth=1)
        rep = only(sent, CmRep)
        assert (rep.target_ack_delay, rep.responder_resources, rep.initiator_depth) == (15, 1, 1)
        assert rep.remote_comm_id == 0x5001
        assert transaction(sent[0]) == 0x700000001

    def test_again_while_the_rep_is_unanswered(self) -> None:
        server = Server()
        server.hear(request())
        server.accept()
        assert server.hear(request()) == []
        assert server.rdma.counters.duplicates["req"] == 1
        assert server.kinds() == []

    def test_same_qpn_and_another_comm_id(self) -> None:
        server = Server()
        server.hear(request())
        server.accept()
        rej = only(server.hear(request(local_comm_id=0x5002)), CmRej)
        assert rej.reason == RejReason.STALE_CONNECTION

    def test_no_rtu(self) -> None:
        server = Server(settings=LINUX)
        server.hear(request())
        _, first = server.accept()
        assert server.wait(4.0) == []
        assert [each.mad for each in server.wait(0.1)] == [first[0].mad]
        assert len(server.wait(4.096 * 3)) == 3
        assert server.rdma.counters.retries["rep"] == 4


class TestEnd:
    def test_rtu_and_dreq(self) -> None:
        server = Server()
        server.hear(request())
        number, sent = server.accept()
        ours = message(sent[0]).local_comm_id
        assert server.hear(CmRtu(local_comm_id=0x5001, remote_comm_id=ours)) == []
        assert server.kinds() == [RdmaEventKind.ESTABLISHED]
        dreq = CmDreq(local_comm_id=0x5001, remote_comm_id=ours, remote_qpn=0x22)
        assert server.hear(dreq, tid=0x900000009) == []
        assert server.kinds() == [RdmaEventKind.DISCONNECTED]
        server.rdma.disconnect(number)
        sent = server.rdma.take_datagrams()
        drep = only(sent, CmDrep)
        assert (drep.local_comm_id, drep.remote_comm_id) == (ours, 0x5001)
        assert transaction(sent[0]) == 0x900000009

    def test_dreq_with_unknown_ids(self) -> None:
        dreq = CmDreq(local_comm_id=0x77, remote_comm_id=0x88, remote_qpn=5)
        drep = only(Server().hear(dreq), CmDrep)
        assert (drep.local_comm_id, drep.remote_comm_id) == (0x88, 0x77)


class TestDatagrams:
    def test_sidr_req_without_listener(self) -> None:
        wanted = SidrReq(request_id=7, service_id=service_id(PortSpace.UDP, PORT))
        reply = only(Server().hear(wanted), SidrRep)
        assert (reply.status, reply.request_id) == (SidrStatus.UNSUPPORTED, 7)
        assert reply.service_id == wanted.service_id


class TestBeyondTheTable:
    def test_linux_sends_no_mra_by_itself(self) -> None:
        server = Server(settings=LINUX)
        server.hear(request())
        assert server.wait(60) == []

    def test_again_while_the_program_thinks(self) -> None:
        server = Server(settings=LINUX)
        server.hear(request())
        for _ in range(2):
            mra = only(server.hear(request()), CmMra)
            assert (mra.remote_comm_id, mra.service_timeout) == (0x5001, 24)
        assert server.rdma.counters.duplicates["req"] == 2
        assert server.kinds() == [RdmaEventKind.CONNECT_REQUEST]

    def test_full_backlog_is_silence(self) -> None:
        server = Server()
        for number in range(5):
            req = request(local_comm_id=number + 1, local_qpn=number + 1)
            assert server.hear(req) == []
        assert server.kinds() == [RdmaEventKind.CONNECT_REQUEST] * 3
        assert server.hear(request(local_comm_id=5, local_qpn=5)) == []
        assert server.kinds() == [RdmaEventKind.CONNECT_REQUEST]

    def test_private_data_is_padded(self) -> None:
        server = Server()
        server.hear(request())
        event = server.rdma.read_event(server.channel)
        assert event is not None
        assert event.connection is not None
        assert event.connection.private_data == b"hello".ljust(56, b"\0")

    def test_depths_are_swapped(self) -> None:
        server = Server()
        server.hear(request(responder_resources=3, initiator_depth=5))
        event = server.rdma.read_event(server.channel)
        assert event is not None
        assert event.connection is not None
        wanted = (event.connection.responder_resources, event.connection.initiator_depth)
        assert wanted == (5, 3)

    def test_dreq_for_another_qp(self) -> None:
        server = Server()
        server.hear(request())
        _, sent = server.accept()
        ours = message(sent[0]).local_comm_id
        dreq = CmDreq(local_comm_id=0x5001, remote_comm_id=ours, remote_qpn=0x23)
        assert server.hear(dreq) == []
        assert server.kinds() == []

    def test_wrong_kind_of_qp(self) -> None:
        rej = only(Server().hear(request(transport=1)), CmRej)
        assert rej.reason == RejReason.CONSUMER_REJECT

    def test_other_p_key(self) -> None:
        rej = only(Server().hear(request(p_key=0x8001)), CmRej)
        assert rej.reason == RejReason.PRIMARY_REMOTE_GID

    def test_nothing_raises_for_a_strange_port(self) -> None:
        server = Server()
        strange = ARRIVAL.__class__(9, True)
        assert server.rdma.receive(sent_as(request()), strange, 0.0) is not None
        assert server.rdma.take_datagrams() == []
