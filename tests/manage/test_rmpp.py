# SPDX-License-Identifier: Apache-2.0
"""RMPP: the packets of a message, each rule of both ends, and transfers over a bad network."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from tests.manage.channel import Channel, Faults
from verbena.manage import MadError
from verbena.manage.attribute_ids import Method, MgmtClass
from verbena.manage.mad import DirectedSmp, RmppMad, SaHeader, SaMad, VendorMad
from verbena.manage.rmpp import (
    RmppFlags,
    RmppStatus,
    RmppType,
    class_header_bytes,
    control_packet,
    is_rmpp,
    segments,
)
from verbena.manage.rmpp_receiver import ReceiverState, RmppReceiver
from verbena.manage.rmpp_sender import RmppSender, SenderState
from verbena.manage.rmpp_transfers import RmppOutcome, RmppTransfers, TransferKey

SA_DATA, SA_HEADER = 200, 56


def sa_message(length: int, tid: int = 7, method: int = Method.GET_TABLE_RESP) -> bytes:
    """A table of subnet administration with so many bytes of data."""
    header = SaMad(method=Method(method), transaction_id=tid, attribute_id=0x35, sm_key=5)
    data = random.Random(length).randbytes(length)
    return header.pack()[:SA_HEADER] + data


def read(packet: bytes) -> RmppMad:
    return RmppMad.unpack(packet)


def ack(segment: int, window_last: int, tid: int = 7) -> bytes:
    return control_packet(
        sa_message(0, tid), RmppType.ACK, segment=segment, window_last=window_last
    )


class TestSegments:
    @pytest.mark.parametrize("length", [0, 1, 199, 200, 201, 400, 1234])
    def test_of_subnet_administration(self, length: int) -> None:
        message = sa_message(length)
        made = [read(packet) for packet in segments(message)]
        count = max(1, (length + 199) // 200)
        assert [mad.segment_number for mad in made] == list(range(1, count + 1))
        assert all(mad.rmpp_type == RmppType.DATA for mad in made)
        assert all(len(mad.pack()) == 256 for mad in made)
        first, last = made[0], made[-1]
        assert bool(first.rmpp_flags & RmppFlags.FIRST)
        assert [mad for mad in made if mad.rmpp_flags & RmppFlags.LAST] == [last]
        assert last.payload_length == length - (count - 1) * 200 + 20
        if count > 1:
            assert first.payload_length == length + 20 * count
            assert all(mad.payload_length == 0 for mad in made[1:-1])
        data = b"".join(mad.pack()[SA_HEADER:] for mad in made)
        assert data[:length] == message[SA_HEADER:]
        assert not any(data[length:])

    def test_of_a_vendor(self) -> None:
        header = VendorMad(mgmt_class=MgmtClass(0x32), oui=0x1405).pack()[:40]
        made = segments(header + bytes(217))
        assert len(made) == 2
        assert read(made[1]).payload_length == 1 + 4
        assert VendorMad.unpack(made[1]).oui == 0x1405

    def test_refused(self) -> None:
        with pytest.raises(MadError, match="class 0x81 has no RMPP"):
            segments(DirectedSmp().pack())
        for message in (b"", bytes(35), sa_message(0)[:40]):
            with pytest.raises(MadError):
                segments(message)

    def test_is_rmpp(self) -> None:
        assert is_rmpp(segments(sa_message(1))[0])
        assert not is_rmpp(SaMad().pack())
        assert not is_rmpp(DirectedSmp(m_key=(1 << 64) - 1).pack())
        assert not is_rmpp(b"")


class TestSender:
    def test_one_segment(self) -> None:
        sender = RmppSender(sa_message(10))
        assert len(sender.start(5.0)) == 1
        assert sender.timer() == 7.0
        assert sender.receive(ack(1, 1), 5.1) == []
        assert sender.state is SenderState.DONE
        assert sender.timer() is None

    def test_the_window_opens(self) -> None:
        sender = RmppSender(sa_message(200 * 10))
        assert [read(p).segment_number for p in sender.start(0)] == [1]
        assert [read(p).segment_number for p in sender.receive(ack(1, 4), 1)] == [2, 3, 4]
        assert sender.receive(ack(1, 4), 1) == []  # it came twice
        assert sender.timer() == 3
        assert [read(p).segment_number for p in sender.receive(ack(3, 4), 2)] == []
        assert sender.timer() == 4
        assert [read(p).segment_number for p in sender.receive(ack(4, 99), 3)] == [*range(5, 11)]
        assert sender.receive(ack(3, 4), 3.5) == []  # an older one
        assert sender.receive(ack(10, 99), 4) == []
        assert sender.state is SenderState.DONE

    def test_sends_again(self) -> None:
        sender = RmppSender(sa_message(200 * 5), retries=2, ack_timeout=1.0)
        sender.start(0)
        sender.receive(ack(1, 3), 0)
        assert sender.expire(0.9) == []
        assert [read(p).segment_number for p in sender.expire(1.0)] == [2, 3]
        assert [read(p).segment_number for p in sender.expire(2.0)] == [2, 3]
        # Progress gives all retries back.
        assert sender.receive(ack(2, 3), 2.5) == []
        assert [read(p).segment_number for p in sender.expire(3.5)] == [3]
        assert [read(p).segment_number for p in sender.expire(4.5)] == [3]
        (last,) = sender.expire(5.5)
        assert (read(last).rmpp_type, read(last).rmpp_status) == (RmppType.ABORT, 126)
        assert read(last).method == Method.GET_TABLE_RESP
        assert (sender.state, sender.status) == (SenderState.FAILED, RmppStatus.TOO_MANY_RETRIES)
        assert sender.timer() is None
        assert sender.expire(99) == []
        assert sender.receive(ack(5, 5), 99) == []

    @pytest.mark.parametrize(
        ("packet", "status"),
        [
            (ack(3, 2), RmppStatus.WINDOW_TOO_SMALL),
            (ack(4, 9), RmppStatus.SEGMENT_TOO_BIG),
            (ack(6, 9), RmppStatus.SEGMENT_TOO_BIG),
            (read(ack(1, 1)).replace(rmpp_status=1).pack(), RmppStatus.ILLEGAL_STATUS),
            (read(ack(1, 1)).replace(rmpp_version=2).pack(), RmppStatus.UNSUPPORTED_VERSION),
            (read(ack(1, 1)).replace(rmpp_type=9).pack(), RmppStatus.BAD_TYPE),
            (segments(sa_message(0))[0], RmppStatus.BAD_TYPE),
        ],
    )
    def test_wrong_packets(self, packet: bytes, status: RmppStatus) -> None:
        sender = RmppSender(sa_message(200 * 5))
        sender.start(0)
        sender.receive(ack(1, 3), 0)
        (abort,) = sender.receive(packet, 0)
        assert (read(abort).rmpp_type, read(abort).rmpp_status) == (RmppType.ABORT, status)
        assert (sender.state, sender.status) == (SenderState.FAILED, status)

    @pytest.mark.parametrize(
        ("kind", "status", "expected"),
        [
            (RmppType.STOP, 1, 1),
            (RmppType.STOP, 2, 124),
            (RmppType.ABORT, 118, 118),
            (RmppType.ABORT, 127, 127),
            (RmppType.ABORT, 1, 124),
            (RmppType.ABORT, 200, 124),
        ],
    )
    def test_the_peer_ends_it(self, kind: RmppType, status: int, expected: int) -> None:
        sender, receiver = RmppSender(sa_message(500)), RmppReceiver(0)
        (first,) = sender.start(0)
        receiver.receive(first, 0)
        packet = control_packet(sa_message(0), kind, status=status)
        for machine in (sender, receiver):
            assert machine.receive(packet, 0) == []
            assert machine.status == expected
        assert sender.state is SenderState.FAILED
        assert receiver.state is ReceiverState.FAILED

    def test_cancel(self) -> None:
        sender = RmppSender(sa_message(500))
        sender.start(0)
        assert read(sender.cancel()[0]).rmpp_status == RmppStatus.UNSPECIFIED
        assert sender.cancel() == []

    def test_turned(self) -> None:
        """A double-sided transfer (IBA 13.6.4): ACK of segment 0 gives the answer a window."""
        sender = RmppSender(sa_message(10, method=Method.GET_MULTI), turn_window=5)
        sender.start(0)
        for now in (1.0, 2.0):  # the receiver may ask again
            (turning,) = sender.receive(ack(1, 1), now)
            assert (read(turning).segment_number, read(turning).payload_length) == (0, 5)
            assert read(turning).method == Method.GET_MULTI
        assert sender.state is SenderState.DONE
        assert sender.timer() == 11.0
        assert sender.expire(11.0) == []
        assert sender.timer() is None

    def test_a_turned_answer_of_one_segment(self) -> None:
        sender = RmppSender(sa_message(10), window=5)
        sender.start(0)
        assert sender.receive(ack(1, 1), 0) == []
        assert sender.state is SenderState.DONE

    def test_no_window(self) -> None:
        for make in (
            lambda: RmppSender(sa_message(1), window=0),
            lambda: RmppReceiver(0, window=0),
        ):
            with pytest.raises(MadError):
                make()


class TestReceiver:
    def packets(self, count: int = 5) -> list[bytes]:
        return segments(sa_message(200 * count - 10))

    def test_in_order(self) -> None:
        receiver, packets = RmppReceiver(0, window=2), self.packets(5)
        replies = [[read(reply) for reply in receiver.receive(packet, 0)] for packet in packets]
        shown = [[(mad.segment_number, mad.payload_length) for mad in reply] for reply in replies]
        assert shown == [[(1, 3)], [], [(3, 5)], [], [(5, 5)]]
        assert all(mad.method == Method.GET_TABLE_RESP ^ 0x80 for reply in replies for mad in reply)
        assert receiver.state is ReceiverState.COMPLETE
        assert receiver.message[SA_HEADER:] == sa_message(990)[SA_HEADER:]
        assert SaHeader.unpack(receiver.message).sm_key == 5
        assert receiver.timer() == 30.0
        assert receiver.expire(30.0) == []
        assert receiver.state is ReceiverState.FORGOTTEN

    def test_out_of_order_and_twice(self) -> None:
        receiver, packets = RmppReceiver(0, window=4), self.packets(5)
        assert len(receiver.receive(packets[0], 0)) == 1
        for number in (4, 2, 2, 3, 4):
            assert receiver.receive(packets[number], 0) == []
        (again,) = receiver.receive(packets[0], 0)
        assert (read(again).segment_number, read(again).payload_length) == (1, 5)
        (last,) = receiver.receive(packets[1], 0)
        assert read(last).segment_number == 5
        assert receiver.message[SA_HEADER:] == sa_message(990)[SA_HEADER:]
        assert receiver.receive(packets[2], 0) == [last]

    def test_beyond_the_window(self) -> None:
        receiver, packets = RmppReceiver(0, window=1), self.packets(5)
        receiver.receive(packets[0], 0)
        assert receiver.receive(packets[3], 0) == []
        assert receiver.state is ReceiverState.RECEIVING

    @pytest.mark.parametrize(
        ("change", "status"),
        [
            ({"rmpp_status": 3}, RmppStatus.ILLEGAL_STATUS),
            ({"rmpp_flags": 3}, RmppStatus.INCONSISTENT_FIRST),
            ({"segment_number": 0}, RmppStatus.INCONSISTENT_FIRST),
            ({"segment_number": 1}, RmppStatus.INCONSISTENT_FIRST),
            ({"rmpp_flags": 5, "payload_length": 19}, RmppStatus.INCONSISTENT_LAST),
            ({"rmpp_flags": 5, "payload_length": 221}, RmppStatus.INCONSISTENT_LAST),
            ({"rmpp_flags": 5, "payload_length": 100}, RmppStatus.INCONSISTENT_LAST),
            ({"rmpp_version": 0}, RmppStatus.UNSUPPORTED_VERSION),
            ({"rmpp_type": 0}, RmppStatus.BAD_TYPE),
            ({"rmpp_type": 2}, RmppStatus.BAD_TYPE),
        ],
    )
    def test_wrong_packets(self, change: dict[str, Any], status: RmppStatus) -> None:
        receiver, packets = RmppReceiver(0), self.packets(5)
        receiver.receive(packets[0], 0)
        receiver.receive(packets[3], 0)
        (abort,) = receiver.receive(read(packets[1]).replace(**change).pack(), 0)
        assert (read(abort).rmpp_type, read(abort).rmpp_status) == (RmppType.ABORT, status)
        assert (receiver.state, receiver.status) == (ReceiverState.FAILED, status)
        assert receiver.receive(packets[2], 1) == [abort]  # had it been lost
        assert receiver.receive(ack(1, 1), 1) == []

    def test_behind_the_last(self) -> None:
        receiver, packets = RmppReceiver(0), self.packets(5)
        receiver.receive(packets[0], 0)
        receiver.receive(packets[4], 0)
        (abort,) = receiver.receive(read(packets[3]).replace(segment_number=6).pack(), 0)
        assert read(abort).rmpp_status == RmppStatus.INCONSISTENT_LAST

    def test_too_long(self) -> None:
        receiver = RmppReceiver(0, most_bytes=600)
        replies = [reply for packet in self.packets(5) for reply in receiver.receive(packet, 0)]
        assert (read(replies[-1]).rmpp_type, read(replies[-1]).rmpp_status) == (RmppType.STOP, 1)
        assert receiver.status == RmppStatus.RESOURCES_EXHAUSTED

    def test_too_slow(self) -> None:
        receiver = RmppReceiver(0, transfer_timeout=40)
        receiver.receive(self.packets(5)[0], 0)
        assert receiver.expire(39) == []
        (abort,) = receiver.expire(40)
        assert read(abort).rmpp_status == RmppStatus.TOTAL_TIME_TOO_LONG

    def test_turned(self) -> None:
        receiver = RmppReceiver(0)
        receiver.receive(segments(sa_message(10, method=Method.GET_MULTI))[0], 0)
        assert receiver.turn_window == 1
        turning = control_packet(sa_message(0), RmppType.ACK, window_last=9, to_sender=False)
        assert receiver.receive(turning, 0) == []
        assert receiver.turn_window == 9


class TestTransfers:
    def test_a_mad_without_rmpp_is_passed_on(self) -> None:
        plain = SaMad(attribute_id=0x35).pack()
        assert RmppTransfers().receive("peer", plain, 0) == RmppOutcome(received=[("peer", plain)])

    def test_the_same_message_twice(self) -> None:
        transfers = RmppTransfers()
        transfers.send("peer", sa_message(500), 0)
        with pytest.raises(MadError, match="is under way to peer"):
            transfers.send("peer", sa_message(500), 0)
        transfers.send("another peer", sa_message(500), 0)
        transfers.send("peer", sa_message(500, tid=8), 0)
        assert len(list(transfers.keys())) == 3

    def test_packets_of_no_transfer(self) -> None:
        transfers = RmppTransfers()
        for packet in (ack(1, 1), segments(sa_message(999))[2]):
            assert transfers.receive("peer", packet, 0) == RmppOutcome()
        assert transfers.timer() is None
        with pytest.raises(MadError):
            transfers.receive("peer", bytes(255), 0)

    def test_too_many_at_once(self) -> None:
        transfers = RmppTransfers(most_receivers=2)
        first = [segments(sa_message(500, tid=tid))[0] for tid in range(3)]
        for packet in first[:2]:
            assert len(transfers.receive("peer", packet, 0).packets) == 1
        ((_, stop),) = transfers.receive("peer", first[2], 0).packets
        assert (read(stop).rmpp_type, read(stop).rmpp_status) == (RmppType.STOP, 1)

    def test_cancel(self) -> None:
        transfers = RmppTransfers()
        transfers.send("peer", sa_message(500), 0)
        (key,) = transfers.keys()
        outcome = transfers.cancel(key)
        assert outcome.failed == [(key, RmppStatus.UNSPECIFIED)]
        assert transfers.cancel(key) == RmppOutcome()

    def test_double_sided(self) -> None:
        """A request of several segments, turned, and its answer with the window of the turn."""
        request = sa_message(700, method=Method.GET_MULTI)
        answer = sa_message(900, method=Method.GET_MULTI_RESP)
        asker, answerer = RmppTransfers(window=8), RmppTransfers(window=8)
        packets = asker.send("b", request, 0, turn_window=4).packets
        got = RmppOutcome()
        while packets:
            _, packet = packets.pop(0)
            back = answerer.receive("a", packet, 0)
            got.received += back.received
            for _, reply in back.packets:
                packets += asker.receive("b", reply, 0).packets
        ((_, message),) = got.received
        assert message[SA_HEADER:] == request[SA_HEADER:]
        first = answerer.send("a", answer, 0).packets
        assert [read(packet).segment_number for _, packet in first] == [1, 2, 3, 4]


class End:
    """An agent at a bad network: what it has received and how its transfers ended."""

    def __init__(self, **settings: Any) -> None:
        self.transfers = RmppTransfers(**settings)
        self.outcome = RmppOutcome()

    def take(self, outcome: RmppOutcome) -> list[tuple[Any, bytes]]:
        self.outcome.received += outcome.received
        self.outcome.sent += outcome.sent
        self.outcome.failed += outcome.failed
        return outcome.packets

    def receive(self, peer: str, packet: bytes, now: float) -> list[tuple[Any, bytes]]:
        return self.take(self.transfers.receive(peer, packet, now))

    def wake(self, now: float) -> list[tuple[Any, bytes]]:
        return self.take(self.transfers.expire(now))


def exchange(seed: int) -> tuple[list[bytes], End, End]:
    """Some messages at once from a to b, through faults of the seed's choice."""
    rng = random.Random(seed)
    loss = rng.choice([0, 0, 0.05, 0.2, 0.5])
    faults = Faults(loss, rng.choice([0, 0.2]), 0.01, rng.choice([0, 0.05, 3.0]))
    window = rng.choice([1, 2, 5, 64])
    a, b = (End(window=window, retries=rng.choice([1, 3, 7])) for _ in range(2))
    channel = Channel(
        rng,
        faults,
        {"a": a.receive, "b": b.receive},
        {"a": a.transfers.timer, "b": b.transfers.timer},
        {"a": a.wake, "b": b.wake},
    )
    messages = [sa_message(rng.randrange(rng.choice([1, 400, 6000]) + 1), tid) for tid in range(3)]
    for message in messages:
        channel.send("a", a.take(a.transfers.send("b", message, channel.now)))
    channel.run(until=1000)
    return messages, a, b


@pytest.mark.parametrize("block", range(10))
def test_a_bad_network(block: int) -> None:
    """Each transfer ends on both sides; what arrives is what was sent, once, or nothing is."""
    complete = failed = 0
    for seed in range(block * 200, block * 200 + 200):
        messages, a, b = exchange(seed)
        sent = {key.transaction_id for key in a.outcome.sent}
        refused = {key.transaction_id for key, _ in a.outcome.failed}
        assert sent | refused == {0, 1, 2}, seed
        assert not sent & refused, seed
        received: dict[int, bytes] = {}
        for _, message in b.outcome.received:
            assert received.setdefault(SaHeader.get(message, "transaction_id"), message) is message
        assert sent <= set(received), seed
        for tid, message in received.items():
            assert message[SA_HEADER:] == messages[tid][SA_HEADER:], seed
        assert a.transfers.timer() is None, seed
        assert b.transfers.timer() is None, seed
        complete, failed = complete + len(sent), failed + len(refused)
    assert complete > 300
    assert failed > 0


def test_the_receiver_ends_a_transfer_whose_sender_has_gone() -> None:
    receiver = RmppReceiver(0)
    receiver.receive(segments(sa_message(999))[0], 0)
    assert receiver.timer() == 40
    assert len(receiver.expire(40)) == 1


@settings(max_examples=200, deadline=None)
@given(strategies.lists(strategies.binary(min_size=256, max_size=256), max_size=6))
def test_any_bytes(packets: list[bytes]) -> None:
    transfers = RmppTransfers()
    transfers.send("peer", sa_message(999), 0)
    machines = [RmppReceiver(0), RmppSender(sa_message(999))]
    machines[0].receive(segments(sa_message(999))[0], 0)
    for packet in packets:
        plausible = sa_message(0)[:24] + packet[24:]
        for each in (packet, plausible, bytes([1, 3, 2, 0x12]) + plausible[4:]):
            outcome = transfers.receive("peer", each, 1)
            assert all(len(made) == 256 for _, made in outcome.packets)
            for machine in machines:
                try:
                    machine.receive(each, 1)
                except MadError:
                    assert each[1] != MgmtClass.SUBN_ADM


@pytest.mark.parametrize("number", range(256))
def test_header_of_every_class(number: int) -> None:
    try:
        assert class_header_bytes(number) in (40, 56, 64)
    except MadError:
        assert not MgmtClass(number).has_rmpp


def test_keys_tell_transfers_apart() -> None:
    key = TransferKey("peer", 7, MgmtClass.SUBN_ADM, 2, Method.GET_TABLE_RESP)
    transfers = RmppTransfers()
    transfers.send("peer", sa_message(500), 0)
    assert list(transfers.keys()) == [key]
