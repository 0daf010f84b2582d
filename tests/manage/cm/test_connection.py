# SPDX-License-Identifier: Apache-2.0
"""The connection's state machine: times, repeated and late messages, and messages of strangers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.manage.cm.dialogue import (
    ARRIVAL,
    CLIENT_GID,
    CLIENT_GUID,
    SERVER_GID,
    Server,
    message,
    only,
    request,
    sent_as,
    transaction,
)
from verbena.manage.cm import (
    CmAccept,
    CmConnect,
    CmConnection,
    CmDevice,
    CmError,
    CmEventKind,
    CmPort,
    CmRefusal,
    CmRoute,
    CmSettings,
    CmState,
    InfinibandCm,
    MadArrival,
    RdmaEventKind,
    SidrQuestion,
)
from verbena.manage.cm.retransmission import Retransmission
from verbena.manage.cm.settings import ack_timeout_code, wait_seconds
from verbena.manage.cm_messages import (
    AprStatus,
    CmApr,
    CmDrep,
    CmDreq,
    CmLap,
    CmMra,
    CmRej,
    CmRep,
    CmReq,
    CmRtu,
    MraOf,
    RejOf,
    RejReason,
    SidrRep,
    SidrReq,
    SidrStatus,
)

LINUX = CmSettings(first_resend=0, thinking=0)
BACK = MadArrival(1, True, SERVER_GID, CLIENT_GID)
SERVICE = 0x1061C06
PEER = 0x900


class Client:
    """An InfinibandCm whose peer is played by hand."""

    def __init__(self, settings: CmSettings | None = None) -> None:
        device = CmDevice(CLIENT_GUID, (CmPort((CLIENT_GID,)),))
        self.cm = InfinibandCm(device, random.Random(4).getrandbits, settings)
        wanted = CmConnect(SERVICE, CmRoute(CLIENT_GID, SERVER_GID), qpn=0x11, starting_psn=5)
        self.connection = self.cm.connect(wanted)
        self.req = only(self.cm.take_datagrams(), CmReq)
        self.own = self.connection.local_id

    def hear(self, record: Any, tid: int = 9) -> list[Any]:
        self.cm.receive(sent_as(record, tid), BACK, self.cm.now)
        return [message(each) for each in self.cm.take_datagrams()]

    def run(self, seconds: float) -> list[tuple[float, Any]]:
        """Advance the time; return what is sent, and when."""
        end, found = self.cm.now + seconds, []
        while (when := self.cm.next_deadline()) is not None and when <= end:
            self.cm.tick(when)
            found += [(when, message(each)) for each in self.cm.take_datagrams()]
        self.cm.tick(end)
        return found

    def events(self) -> list[CmEventKind]:
        found = []
        while (event := self.cm.take_event()) is not None:
            found.append(event.kind)
        return found

    def rep(self, **changes: Any) -> CmRep:
        made = CmRep(
            local_comm_id=PEER,
            remote_comm_id=self.own,
            local_qpn=0x22,
            local_ca_guid=2,
            target_ack_delay=15,
        )
        return made.replace(**changes)

    def establish(self) -> None:
        self.hear(self.rep())
        self.connection.establish(b"ready")
        assert only(self.cm.take_datagrams(), CmRtu).private_data[:5] == b"ready"
        self.events()


class TestTimes:
    def test_as_linux_waits(self) -> None:
        client = Client(LINUX)
        sent = client.run(200)
        assert [when for when, each in sent if isinstance(each, CmReq)] == pytest.approx(
            [6.144 * number for number in range(1, 16)]
        )
        when, rej = sent[-1]
        assert when == pytest.approx(98.304)
        assert (rej.reason, rej.message) == (RejReason.TIMEOUT, RejOf.NONE)
        assert rej.ari[: rej.ari_length] == CLIENT_GUID.to_bytes(8, "big")
        assert client.events() == [CmEventKind.REQ_ERROR]
        assert client.connection.state is CmState.IDLE

    def test_earlier_and_with_the_same_patience(self) -> None:
        sent = Client().run(200)
        times = [when for when, each in sent if isinstance(each, CmReq)]
        assert times[:5] == pytest.approx([0.25, 0.75, 1.75, 3.75, 7.75])
        assert times[5] == pytest.approx(7.75 + 6.144)
        assert sent[-1][0] == pytest.approx(98.304)
        assert len(times) == 19

    def test_mra_is_honoured(self) -> None:
        client = Client()
        client.run(0.1)
        client.hear(CmMra(local_comm_id=PEER, remote_comm_id=client.own, service_timeout=24))
        assert client.connection.state is CmState.MRA_REQ_RECEIVED
        sent = client.run(100)
        assert sent[0][0] == pytest.approx(0.1 + 65.536 + 2.048)

    def test_mra_at_the_end_of_the_patience_extends_it(self) -> None:
        client = Client(LINUX)
        client.run(98)
        client.hear(CmMra(local_comm_id=PEER, remote_comm_id=client.own, service_timeout=20))
        assert client.events() == []
        client.run(4 + 0.5)
        assert client.events() == []
        client.run(10)
        assert client.events() == [CmEventKind.REQ_ERROR]

    def test_second_mra_is_a_duplicate_that_extends(self) -> None:
        client = Client()
        mra = CmMra(local_comm_id=PEER, remote_comm_id=client.own, service_timeout=20)
        client.hear(mra)
        client.run(4)
        client.hear(mra)
        assert client.cm.counters.duplicates["mra"] == 1
        assert client.run(4) == []

    def test_mras_without_end_are_not_endless(self) -> None:
        client = Client()
        mra = CmMra(local_comm_id=PEER, remote_comm_id=client.own, service_timeout=24)
        while client.connection.state is not CmState.IDLE:
            client.hear(mra)
            client.run(67)
        most = 98.304 + 15 * (65.536 + 2.048) + 6.144
        assert most - 100 < client.cm.now <= most

    def test_mra_when_the_program_thinks(self) -> None:
        server = Server()
        server.hear(request())
        sent = server.wait(3)
        mra = only(sent, CmMra)
        assert (mra.message, mra.service_timeout) == (MraOf.REQ, 24)
        assert server.wait(300) == []
        _, sent = server.accept()
        only(sent, CmRep)

    def test_mra_when_the_client_thinks(self) -> None:
        client = Client()
        client.hear(client.rep())
        sent = client.run(3)
        assert [(round(when, 3), each.message) for when, each in sent] == [(2.048, MraOf.REP)]
        assert client.connection.state is CmState.MRA_REP_SENT

    def test_timewait(self) -> None:
        client = Client()
        client.establish()
        client.connection.disconnect()
        client.cm.take_datagrams()
        client.hear(CmDrep(local_comm_id=PEER, remote_comm_id=client.own))
        assert client.events() == [CmEventKind.DREP_RECEIVED]
        client.run(2.04)
        assert client.events() == []
        client.run(0.01)
        assert client.events() == [CmEventKind.TIMEWAIT_EXIT]

    def test_unanswered_dreq(self) -> None:
        client = Client(LINUX)
        client.establish()
        client.connection.disconnect()
        client.run(98.2)
        assert client.events() == []
        client.run(0.2)
        assert client.events() == [CmEventKind.DREQ_ERROR]
        client.run(3)
        assert client.events() == [CmEventKind.TIMEWAIT_EXIT]

    def test_answer_that_waited_while_the_owner_slept(self) -> None:
        client = Client()
        client.cm.receive(sent_as(client.rep()), BACK, 500.0)
        assert client.events() == [CmEventKind.REP_RECEIVED]

    def test_time_that_runs_backwards_stands_still(self) -> None:
        client = Client()
        client.cm.tick(5)
        client.cm.tick(1)
        assert client.cm.now == 5

    def test_unanswered_sidr(self) -> None:
        client = Client(LINUX)
        client.cm.resolve(SidrQuestion(SERVICE, CmRoute(CLIENT_GID, SERVER_GID)))
        client.run(65.5)
        assert client.events() == []
        client.run(0.1)
        assert client.events() == [CmEventKind.SIDR_REQ_ERROR]
        assert client.cm.counters.retries["sidr_req"] == 15

    @pytest.mark.parametrize(
        ("code", "seconds"), [(0, 0.001), (8, 0.001), (18, 1.024), (20, 4.096), (24, 65.536)]
    )
    def test_time_codes(self, code: int, seconds: float) -> None:
        assert wait_seconds(code) == seconds

    @pytest.mark.parametrize(
        ("delay", "life", "code"),
        [
            (15, 18, 19),
            (18, 18, 20),
            (19, 18, 20),
            (20, 18, 21),
            (21, 18, 21),
            (0, 18, 19),
            (31, 31, 31),
        ],
    )
    def test_ack_timeout(self, delay: int, life: int, code: int) -> None:
        assert ack_timeout_code(delay, life) == code

    def test_patience_is_over_at_the_end_of_the_last_wait(self) -> None:
        schedule = Retransmission(10.0, 4.0, 0, CmSettings())
        assert schedule.next_at == 10.25
        while schedule.next_at < 14:
            schedule.repeated(schedule.next_at)
        assert schedule.next_at == 14
        assert schedule.is_exhausted(14)


class TestRepeated:
    def test_rep_gets_the_rtu_again(self) -> None:
        client = Client()
        client.establish()
        rtu = only_record(client.hear(client.rep()), CmRtu)
        assert rtu.private_data[:5] == b"ready"
        assert client.cm.counters.retries["rtu"] == 1
        assert client.cm.counters.duplicates["rep"] == 1

    def test_rep_gets_the_rejection_again(self) -> None:
        client = Client()
        client.hear(client.rep())
        client.connection.reject(private_data=b"no")
        first = only(client.cm.take_datagrams(), CmRej)
        assert only_record(client.hear(client.rep()), CmRej) == first
        assert client.events() == [CmEventKind.REP_RECEIVED]

    def test_rep_for_nobody_is_refused(self) -> None:
        client = Client()
        client.connection.close()
        client.cm.take_datagrams()
        rej = only_record(client.hear(client.rep()), CmRej)
        assert (rej.reason, rej.message) == (RejReason.INVALID_COMM_ID, RejOf.REP)
        assert (rej.remote_comm_id, rej.local_comm_id) == (PEER, client.own)

    def test_req_gets_the_rejection_again(self) -> None:
        server = Server()
        server.hear(request())
        event = server.rdma.read_event(server.channel)
        assert event is not None
        server.rdma.reject(event.id, b"busy")
        first = [each.mad for each in server.rdma.take_datagrams()]
        server.rdma.destroy_id(event.id)
        assert [each.mad for each in server.hear(request())] == first
        assert server.kinds() == []
        server.wait(9)
        assert server.hear(request()) == []
        assert server.kinds() == [RdmaEventKind.CONNECT_REQUEST]

    def test_req_in_timewait(self) -> None:
        server = Server()
        server.hear(request())
        number, sent = server.accept()
        ours = message(sent[0]).local_comm_id
        server.hear(CmRtu(local_comm_id=0x5001, remote_comm_id=ours))
        server.hear(CmDreq(local_comm_id=0x5001, remote_comm_id=ours, remote_qpn=0x22))
        server.rdma.disconnect(number)
        server.rdma.take_datagrams()
        rej = only(server.hear(request()), CmRej)
        assert rej.reason == RejReason.STALE_CONNECTION

    def test_dreq_in_timewait_and_after(self) -> None:
        client = Client()
        client.establish()
        dreq = CmDreq(local_comm_id=PEER, remote_comm_id=client.own, remote_qpn=0x11)
        assert client.hear(dreq, tid=77) == []
        assert client.hear(dreq, tid=77) == []
        client.connection.disconnect()
        assert transaction(client.cm.take_datagrams()[0]) == 77
        for seconds in (0, 3):
            client.run(seconds)
            only_record(client.hear(dreq, tid=77), CmDrep)
        assert client.events() == [CmEventKind.DREQ_RECEIVED, CmEventKind.TIMEWAIT_EXIT]
        assert client.cm.counters.duplicates["dreq"] == 3

    def test_rtu_and_rep_late(self) -> None:
        client = Client()
        client.establish()
        client.connection.disconnect()
        client.cm.take_datagrams()
        assert client.hear(client.rep()) == []
        assert client.hear(CmRtu(local_comm_id=PEER, remote_comm_id=client.own)) == []
        assert client.events() == []


class TestOthers:
    def test_stale_request_ends_the_old_connection(self) -> None:
        server = Server()
        server.hear(request())
        number, sent = server.accept()
        ours = message(sent[0]).local_comm_id
        server.hear(CmRtu(local_comm_id=0x5001, remote_comm_id=ours))
        rej, dreq = (message(each) for each in server.hear(request(local_comm_id=0x5002)))
        assert rej.reason == RejReason.STALE_CONNECTION
        assert (dreq.local_comm_id, dreq.remote_comm_id, dreq.remote_qpn) == (ours, 0x5001, 0x11)
        server.hear(CmDrep(local_comm_id=0x5001, remote_comm_id=ours))
        assert server.kinds() == [RdmaEventKind.ESTABLISHED, RdmaEventKind.DISCONNECTED]
        assert server.rdma.id(number).connection is not None

    def test_qpn_is_free_again_in_timewait(self) -> None:
        server = Server()
        server.hear(request())
        number, sent = server.accept()
        ours = message(sent[0]).local_comm_id
        server.hear(CmRtu(local_comm_id=0x5001, remote_comm_id=ours))
        server.hear(CmDreq(local_comm_id=0x5001, remote_comm_id=ours, remote_qpn=0x22))
        server.rdma.disconnect(number)
        server.rdma.take_datagrams()
        assert server.hear(request(local_comm_id=0x5002)) == []

    def test_stale_rep(self) -> None:
        client = Client()
        client.establish()
        wanted = CmConnect(SERVICE, CmRoute(CLIENT_GID, SERVER_GID), qpn=0x12, starting_psn=5)
        other = client.cm.connect(wanted)
        client.cm.take_datagrams()
        rep = client.rep(local_comm_id=PEER + 1, remote_comm_id=other.local_id)
        rej, dreq = client.hear(rep)
        assert (rej.reason, rej.message) == (RejReason.STALE_CONNECTION, RejOf.REP)
        assert isinstance(dreq, CmDreq)
        assert other.state is CmState.REQ_SENT
        assert client.connection.state is CmState.DREQ_SENT

    def test_rep_of_a_known_connection_is_a_duplicate(self) -> None:
        client = Client()
        client.establish()
        wanted = CmConnect(SERVICE, CmRoute(CLIENT_GID, SERVER_GID), qpn=0x12, starting_psn=5)
        other = client.cm.connect(wanted)
        client.cm.take_datagrams()
        assert client.hear(client.rep(remote_comm_id=other.local_id)) == []
        assert other.state is CmState.REQ_SENT

    def test_rep_of_another_connection_of_the_peer(self) -> None:
        client = Client()
        client.establish()
        assert client.hear(client.rep(local_comm_id=PEER + 1)) == []
        assert client.cm.counters.refused[CmRefusal.UNMATCHED] == 1

    @pytest.mark.parametrize(
        ("changes", "reason", "ari"),
        [
            ({"path_mtu": 6}, RejReason.INVALID_PATH_MTU, b"\5"),
            ({"path_mtu": 0}, RejReason.INVALID_PATH_MTU, b"\5"),
            ({"transport": 2}, RejReason.INVALID_TRANSPORT_TYPE, b""),
            ({"transport": 3}, RejReason.INVALID_TRANSPORT_TYPE, b""),
            ({"p_key": 0x1234}, RejReason.PRIMARY_REMOTE_GID, SERVER_GID),
        ],
    )
    def test_requests_that_cannot_be(self, changes: Any, reason: int, ari: bytes) -> None:
        rej = only(Server().hear(request(**changes)), CmRej)
        assert (rej.reason, rej.ari[: rej.ari_length]) == (reason, ari)

    def test_second_path(self) -> None:
        path = request().primary
        server = Server()
        assert server.hear(request(alternate=path)) == []
        other = request(alternate=path.replace(remote_gid=CLIENT_GID), local_comm_id=2)
        rej = only(server.hear(other.replace(local_qpn=2)), CmRej)
        assert rej.reason == RejReason.ALTERNATE_REMOTE_GID

    def test_limited_member_of_a_partition(self) -> None:
        assert Server().hear(request(p_key=0x7FFF)) == []

    def test_crossing_dreqs(self) -> None:
        client = Client()
        client.establish()
        client.connection.disconnect()
        client.cm.take_datagrams()
        dreq = CmDreq(local_comm_id=PEER, remote_comm_id=client.own, remote_qpn=0x11)
        only_record(client.hear(dreq), CmDrep)
        assert client.events() == [CmEventKind.DREQ_RECEIVED]
        assert client.connection.state is CmState.TIMEWAIT
        assert client.hear(CmDrep(local_comm_id=PEER, remote_comm_id=client.own)) == []
        assert client.events() == []

    def test_drep_when_the_program_has_not_answered(self) -> None:
        client = Client()
        client.establish()
        client.hear(CmDreq(local_comm_id=PEER, remote_comm_id=client.own, remote_qpn=0x11))
        client.hear(CmDrep(local_comm_id=PEER, remote_comm_id=client.own))
        assert client.connection.state is CmState.TIMEWAIT

    def test_lap_is_refused_politely(self) -> None:
        client = Client()
        lap = CmLap(local_comm_id=PEER, remote_comm_id=client.own, remote_qpn=0x11)
        client.establish()
        apr = only_record(client.hear(lap), CmApr)
        assert (apr.status, apr.remote_comm_id) == (AprStatus.UNSUPPORTED, PEER)
        apr = only_record(client.hear(lap.replace(remote_comm_id=1)), CmApr)
        assert apr.status == AprStatus.INVALID_COMM_ID
        assert client.hear(CmApr(local_comm_id=PEER, remote_comm_id=client.own)) == []

    @pytest.mark.parametrize("reason", [RejReason.STALE_CONNECTION, RejReason.NO_RESOURCES])
    @pytest.mark.parametrize("state", ["REQ_SENT", "REP_RECEIVED", "ESTABLISHED", "DREQ_SENT"])
    def test_rejections(self, state: str, reason: RejReason) -> None:
        client = Client()
        if state == "REP_RECEIVED":
            client.hear(client.rep())
        elif state != "REQ_SENT":
            client.establish()
            if state == "DREQ_SENT":
                client.connection.disconnect()
        assert client.connection.state.name == state
        client.events()
        of = RejOf.REQ if state == "REQ_SENT" else RejOf.NONE
        ids = {"local_comm_id": PEER, "remote_comm_id": client.own}
        client.hear(CmRej(**ids, reason=reason, message=of))
        assert client.events() == [CmEventKind.REJ_RECEIVED]
        waits = state != "REQ_SENT" or reason == RejReason.STALE_CONNECTION
        assert client.connection.state is (CmState.TIMEWAIT if waits else CmState.IDLE)

    def test_rejection_by_timeout_is_found_by_guid(self) -> None:
        server = Server()
        server.hear(request())
        guid = CLIENT_GUID.to_bytes(8, "big")
        rej = CmRej(local_comm_id=0x5001, message=2, reason=4, ari=guid, ari_length=8)
        server.accept()
        server.hear(rej.replace(ari=b"\1" * 8))
        assert server.kinds() == []
        server.hear(rej)
        assert server.kinds() == [RdmaEventKind.REJECTED]

    def test_crossing_requests_are_two_connections(self) -> None:
        server = Server()
        server.hear(request())
        wanted = CmConnect(SERVICE, CmRoute(SERVER_GID, CLIENT_GID), qpn=0x77, starting_psn=1)
        ours = server.rdma.cm.connect(wanted)
        number, sent = server.accept()
        assert [type(message(each)) for each in sent] == [CmReq, CmRep]
        rep = CmRep(local_comm_id=0x6001, remote_comm_id=ours.local_id, local_ca_guid=CLIENT_GUID)
        server.hear(rep.replace(local_qpn=0x12))
        assert ours.state is CmState.REP_RECEIVED
        assert server.rdma.id(number).connection is not None


class TestOrphans:
    def test_dreq_is_repeated_after_close(self) -> None:
        client = Client()
        client.establish()
        client.connection.close()
        only(client.cm.take_datagrams(), CmDreq)
        sent = client.run(20)
        assert len(sent) >= 5
        assert all(isinstance(each, CmDreq) for _, each in sent)
        assert client.events() == []
        assert client.cm.machines() == ()
        assert client.cm.next_deadline() is None

    def test_close_of_every_state(self) -> None:
        client = Client()
        client.connection.close()
        rej = only(client.cm.take_datagrams(), CmRej)
        assert (rej.reason, rej.ari_length) == (RejReason.TIMEOUT, 8)
        client = Client()
        client.hear(client.rep())
        client.connection.close()
        assert only(client.cm.take_datagrams(), CmRej).reason == RejReason.CONSUMER_REJECT
        client = Client()
        client.establish()
        client.hear(CmDreq(local_comm_id=PEER, remote_comm_id=client.own, remote_qpn=0x11))
        client.connection.close()
        only(client.cm.take_datagrams(), CmDrep)
        assert client.cm.machines() != ()
        client.run(3)
        assert client.cm.machines() == ()

    def test_comm_ids_rest(self) -> None:
        class Repeating:
            """A source that gives each number many times."""

            def __init__(self) -> None:
                self.count = 0

            def __call__(self, bits: int) -> int:
                self.count += 1
                return self.count // 3 % 40

        device = CmDevice(1, (CmPort((CLIENT_GID,)),))
        cm = InfinibandCm(device, Repeating())
        ended: dict[int, float] = {}
        for _ in range(200):
            wanted = CmConnect(SERVICE, CmRoute(CLIENT_GID, SERVER_GID), 1, 1)
            made = cm.connect(wanted)
            assert made.local_id
            assert cm.now - ended.get(made.local_id, -10) > 2
            made.close()
            ended[made.local_id] = cm.now
            cm.tick(cm.now + 0.2)


class TestCalls:
    def test_wrong_state(self) -> None:
        client = Client()
        calls = (
            lambda: client.connection.accept(CmAccept(1, 1)),
            lambda: client.connection.establish(),
            lambda: client.connection.disconnect(),
            lambda: client.connection.notify_established(),
            lambda: client.connection.delay(),
            lambda: client.connection.drop(),
        )
        for call in calls:
            with pytest.raises(CmError, match="in state REQ_SENT") as caught:
                call()
            assert caught.value.refusal is CmRefusal.WRONG_STATE
        assert client.connection.state is CmState.REQ_SENT

    def test_too_long_private_data_changes_nothing(self) -> None:
        client = Client()
        wanted = CmConnect(SERVICE, CmRoute(CLIENT_GID, SERVER_GID), 1, 1, private_data=bytes(93))
        with pytest.raises(CmError, match="private_data"):
            client.cm.connect(wanted)
        client.hear(client.rep())
        for call, most in (
            (client.connection.establish, 224),
            (client.connection.delay, 222),
            (lambda data: client.connection.reject(private_data=data), 148),
        ):
            with pytest.raises(CmError):
                call(bytes(most + 1))
        assert client.connection.state is CmState.REP_RECEIVED
        client.connection.delay(bytes(222))
        client.connection.establish(bytes(224))
        with pytest.raises(CmError):
            client.connection.disconnect(bytes(221))
        client.connection.disconnect(bytes(220))

    def test_refused_connect_leaves_nothing(self) -> None:
        client = Client()
        client.connection.close()
        with pytest.raises(CmError):
            client.cm.connect(CmConnect(SERVICE, CmRoute(CLIENT_GID, SERVER_GID), 1 << 24, 1))
        assert client.cm.machines() == ()

    def test_delay_sends_the_programs_data_again(self) -> None:
        client = Client()
        client.hear(client.rep())
        client.connection.delay(b"wait")
        assert only(client.cm.take_datagrams(), CmMra).private_data[:4] == b"wait"
        assert only_record(client.hear(client.rep()), CmMra).private_data[:4] == b"wait"

    def test_notify(self) -> None:
        server = Server()
        server.hear(request())
        number, _ = server.accept()
        server.rdma.notify(number, 4)
        assert server.kinds() == [RdmaEventKind.ESTABLISHED]
        with pytest.raises(CmError) as caught:
            server.rdma.notify(number, 4)
        assert caught.value.refusal is CmRefusal.ALREADY_CONNECTED
        with pytest.raises(CmError):
            server.rdma.notify(number, 7)

    def test_negotiation(self) -> None:
        client = Client()
        rep = client.rep(responder_resources=3, initiator_depth=2, rnr_retry_count=6)
        client.hear(rep)
        made = client.connection
        assert (made.initiator_depth, made.responder_resources) == (3, 2)
        assert (made.rnr_retry_count, made.ack_timeout, made.remote_qpn) == (6, 19, 0x22)

    def test_ack_delay_of_the_peer(self) -> None:
        client = Client()
        client.hear(client.rep(target_ack_delay=21))
        assert client.connection.ack_timeout == 21

    def test_times_and_retries_are_those_of_the_req(self) -> None:
        server = Server(settings=LINUX)
        server.hear(request(local_cm_response_timeout=18, max_cm_retries=2))
        server.accept()
        kinds = [type(message(each)) for each in server.wait(10)]
        assert kinds == [CmRep, CmRep, CmRej]
        assert server.kinds() == [RdmaEventKind.UNREACHABLE]

    def test_rejection_reasons(self) -> None:
        server = Server()
        server.hear(request())
        event = server.rdma.read_event(server.channel)
        assert event is not None
        with pytest.raises(CmError) as caught:
            server.rdma.reject(event.id, b"", 10)
        assert caught.value.refusal is CmRefusal.REASON
        server.rdma.reject(event.id, b"", 35)
        assert only(server.rdma.take_datagrams(), CmRej).reason == RejReason.VENDOR_OPTION


class TestResolution:
    def test_same_answer_to_the_same_question(self) -> None:
        client = Client()
        client.cm.listen(SERVICE)
        question = SidrReq(request_id=3, service_id=SERVICE)
        assert client.hear(question) == []
        assert client.hear(question) == []
        event = client.cm.take_event()
        assert event is not None
        event.subject.answer(SidrStatus.VALID, 5, 6, b"data")
        sent = client.cm.take_datagrams()
        first = only(sent, SidrRep)
        assert transaction(sent[0]) == 9
        assert (first.qpn, first.qkey, first.private_data[:4]) == (5, 6, b"data")
        event.subject.close()
        assert only_record(client.hear(question), SidrRep) == first
        assert client.cm.take_event() is None
        client.run(9)
        assert client.hear(question) == []
        assert client.events() == [CmEventKind.SIDR_REQ_RECEIVED]

    def test_only_so_many_answers_are_remembered(self) -> None:
        client = Client(CmSettings(most_answers=3))
        client.cm.listen(SERVICE)
        for number in range(1, 6):
            client.hear(SidrReq(request_id=number, service_id=SERVICE))
            event = client.cm.take_event()
            assert event is not None
            event.subject.close()
        client.cm.take_datagrams()
        for number, known in ((1, False), (2, False), (3, True), (5, True)):
            sent = client.hear(SidrReq(request_id=number, service_id=SERVICE))
            assert bool(sent) is known

    def test_late_reply(self) -> None:
        client = Client()
        asked = client.cm.resolve(SidrQuestion(SERVICE, CmRoute(CLIENT_GID, SERVER_GID)))
        client.cm.take_datagrams()
        reply = SidrRep(request_id=asked.local_id)
        client.hear(reply)
        client.hear(reply)
        assert client.events() == [CmEventKind.SIDR_REP_RECEIVED]
        assert client.cm.counters.refused[CmRefusal.UNEXPECTED] == 1

    def test_unlisten(self) -> None:
        client = Client()
        client.cm.listen(SERVICE)
        client.cm.listen(SERVICE)
        client.cm.unlisten(SERVICE)
        assert client.hear(SidrReq(request_id=3, service_id=SERVICE)) == []
        client.cm.unlisten(SERVICE)
        reply = only_record(client.hear(SidrReq(request_id=4, service_id=SERVICE)), SidrRep)
        assert reply.status == SidrStatus.UNSUPPORTED


def only_record(records: list[Any], kind: type[Any]) -> Any:
    assert [type(each) for each in records] == [kind]
    return records[0]


def test_answers_go_where_questions_come_from() -> None:
    server = Server()
    server.rdma.receive(sent_as(request(service_id=1)), ARRIVAL, 0.0)
    (sent,) = server.rdma.take_datagrams()
    assert (sent.to.dgid, sent.to.sgid, sent.to.has_grh) == (CLIENT_GID, SERVER_GID, True)


def test_every_machine_is_a_connection_here() -> None:
    assert all(isinstance(each, CmConnection) for each in Client().cm.machines())
