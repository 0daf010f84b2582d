# SPDX-License-Identifier: Apache-2.0
"""Rules of TCP that an exchange without trouble does not show, by segments made by hand.

``Peer`` speaks to one connection without a network, so that a test chooses every segment.
"""

from __future__ import annotations

from random import Random

import pytest

from verbena.host.clock import Agenda
from verbena.internet import Datagram, Internet, Protocol
from verbena.internet.tcp_connection import TcpConnection
from verbena.internet.tcp_segment import TcpFlag, TcpSegment
from verbena.internet.tcp_sender import TcpSender, TcpSettings
from verbena.internet.tcp_states import TcpState
from verbena.internet.timer import MILLISECOND, SECOND

OWN, MSS = 1000, 1000  # the first numbers of the peer, and the segments of both


class Peer:
    """A connection from a node's program, and the segments that it has sent to this peer."""

    def __init__(self, settings: TcpSettings | None = None) -> None:
        self.agenda = Agenda()
        self.sent: list[TcpSegment] = []
        self.got = bytearray()
        self.errors: list[OSError | None] = []
        settings = settings or TcpSettings(mss=MSS)
        self.connection = TcpConnection(
            self.agenda, (1, 2), 0, settings, self.sent.append, lambda: None, Random(1)
        )
        self.connection.on_data = self.got.extend
        self.connection.on_close = self.errors.append
        self.connection.open()

    def answer_syn(self, window: int = 65535) -> None:
        self.say(TcpFlag.SYN | TcpFlag.ACK, 1, OWN, window=window, mss=MSS)

    def say(
        self,
        flags: TcpFlag,
        acknowledgement: int,
        sequence: int,
        payload: bytes = b"",
        window: int = 65535,
        mss: int | None = None,
    ) -> None:
        self.connection.receive(
            TcpSegment(2, 1, sequence, acknowledgement, flags, window, payload, mss)
        )

    def acknowledge(self, number: int, window: int = 65535) -> None:
        self.say(TcpFlag.ACK, number, OWN + 1, window=window)

    def run(self, seconds: float) -> None:
        self.agenda.run_due(self.agenda.now + round(seconds * SECOND))

    @property
    def sender(self) -> TcpSender:
        assert self.connection.sender is not None
        return self.connection.sender


def connected(settings: TcpSettings | None = None, window: int = 65535) -> Peer:
    peer = Peer(settings)
    peer.answer_syn(window)
    peer.sent.clear()
    return peer


def test_what_was_written_before_leaves_before_what_on_open_writes() -> None:
    peer = Peer()
    peer.connection.write(b"first ")
    peer.connection.on_open = lambda: peer.connection.write(b"second")
    peer.answer_syn()
    peer.acknowledge(7)
    assert b"".join(one.payload for one in peer.sent) == b"first second"


def test_what_was_written_before_leaves_though_on_open_closes() -> None:
    peer = Peer()
    peer.connection.write(b"all")
    peer.connection.on_open = peer.connection.close
    peer.answer_syn()
    peer.acknowledge(4)
    numbers = [(one.sequence, one.payload, TcpFlag.FIN in one.flags) for one in peer.sent]
    assert (1, b"all", False) in numbers
    assert (4, b"", True) in numbers


def test_data_that_were_read_may_come_again_with_the_fin_after_a_close() -> None:
    peer = connected()
    peer.say(TcpFlag.ACK, 1, OWN + 1, b"data")
    peer.connection.write(b"mine")
    peer.connection.close()
    peer.say(TcpFlag.ACK | TcpFlag.FIN, 1, OWN + 1, b"data")
    assert peer.errors == []
    assert not any(TcpFlag.RST in one.flags for one in peer.sent)
    peer.say(TcpFlag.ACK, 6, OWN + 6)
    assert peer.connection.state is TcpState.TIME_WAIT
    assert peer.got == b"data"


def test_an_answer_to_an_older_connection_is_reset() -> None:
    peer = Peer()
    peer.sent.clear()
    peer.say(TcpFlag.ACK, 777, 555)
    assert [(one.flags, one.sequence) for one in peer.sent] == [(TcpFlag.RST, 777)]
    assert peer.connection.state is TcpState.SYN_SENT
    peer.sent.clear()
    peer.say(TcpFlag.ACK | TcpFlag.RST, 777, 555)
    assert peer.sent == []


def test_answers_to_probes_of_a_shut_window_are_no_sign_of_loss() -> None:
    peer = connected(window=0)
    peer.connection.write(bytes(20 * MSS))
    threshold = peer.sender.threshold
    for _ in range(5):
        peer.run(70)
        peer.acknowledge(1, window=0)
    assert peer.sender.threshold == threshold
    peer.acknowledge(1, window=65535)
    assert peer.sender.next - peer.sender.una == 10 * MSS


def test_a_loss_after_a_window_was_shut_is_noticed_as_soon_as_before() -> None:
    peer = connected(window=0)
    peer.connection.write(bytes(MSS))
    for _ in range(12):
        peer.run(10)
        peer.acknowledge(1, window=0)
    peer.acknowledge(1)
    peer.sent.clear()
    peer.run(1.1)
    assert [one.sequence for one in peer.sent] == [1]


def test_a_peer_that_answers_no_probe_is_given_up() -> None:
    peer = connected(TcpSettings(mss=MSS, retries=4), window=0)
    peer.connection.write(b"data")
    for _ in range(20):
        peer.run(10)
        peer.acknowledge(1, window=0)
    assert peer.errors == []
    peer.run(600)
    assert [type(one) for one in peer.errors] == [TimeoutError]


def test_an_older_segment_changes_no_window() -> None:
    peer = connected()
    peer.connection.write(bytes(2 * MSS))
    peer.acknowledge(1 + 2 * MSS, window=500)
    peer.acknowledge(1 + MSS, window=9000)
    assert peer.sender.window == 500
    peer.say(TcpFlag.ACK, 1 + 2 * MSS, OWN + 1, b"later", window=400)
    peer.say(TcpFlag.ACK, 1 + 2 * MSS, OWN + 6, window=300)
    peer.say(TcpFlag.ACK, 1 + 2 * MSS, OWN + 1, window=8000)
    assert peer.sender.window == 300


def test_a_partial_acknowledgement_deflates_the_window() -> None:
    """RFC 6582, section 3.2, step 3: by what it acknowledges, less one segment."""
    peer = connected()
    peer.connection.write(bytes(30 * MSS))
    for _ in range(3):
        peer.acknowledge(1)
    before = peer.sender.congestion_window
    assert before == 8 * MSS
    peer.acknowledge(1 + 4 * MSS)
    assert peer.sender.congestion_window == before - 4 * MSS + MSS


def test_duplicates_of_what_a_timeout_sent_again_do_not_halve_the_window() -> None:
    """RFC 6582, section 3.2, step 2: only when more than ``recover`` is acknowledged."""
    peer = connected()
    peer.connection.write(bytes(10 * MSS))
    peer.run(1.1)
    window = 1
    for _ in range(9):
        peer.acknowledge(1 + window * MSS)
        window += 1
    threshold = peer.sender.threshold
    resent = peer.sender.resent
    for _ in range(3):
        peer.acknowledge(1 + 9 * MSS)
    assert (peer.sender.threshold, peer.sender.resent) == (threshold, resent)


def test_a_lost_syn_makes_the_first_flight_one_segment_and_the_timeout_three_seconds() -> None:
    """RFC 5681, section 3.1, and RFC 6298, section 5.7."""
    peer = Peer()
    peer.run(1.5)
    peer.answer_syn()
    peer.sent.clear()
    peer.connection.write(bytes(10 * MSS))
    assert [one.sequence for one in peer.sent] == [1]
    peer.run(2.9)
    assert len(peer.sent) == 1
    peer.run(0.2)
    assert [one.sequence for one in peer.sent] == [1, 1]


def test_a_reset_in_time_wait_is_no_error() -> None:
    peer = connected()
    peer.connection.close()
    peer.say(TcpFlag.ACK | TcpFlag.FIN, 2, OWN + 1)
    assert peer.connection.state is TcpState.TIME_WAIT
    peer.say(TcpFlag.RST, 0, OWN + 2)
    assert peer.errors == [None]


def test_a_fin_that_comes_again_restarts_time_wait() -> None:
    peer = connected()
    peer.connection.close()
    peer.say(TcpFlag.ACK | TcpFlag.FIN, 2, OWN + 1)
    peer.run(50)
    peer.say(TcpFlag.ACK | TcpFlag.FIN, 2, OWN + 1)
    peer.run(50)
    assert peer.errors == []
    peer.run(11)
    assert peer.errors == [None]


def test_a_program_that_comes_back_from_the_same_port_ends_the_old_connection() -> None:
    """RFC 9293, section 3.5.1: a half-open connection is discovered."""
    net = Internet()
    one, other = net.host("one"), net.host("other")
    link = net.link("one", "other")
    accepted: list[TcpConnection] = []
    other.tcp.listen(lambda made, _, __: accepted.append(made), 80)
    first = one.tcp.connect(other.address, 80, own_port=5000)
    net.run(1)
    link.cut(silent=True)
    first.abort()
    net.run(1)
    link.restore()
    second = one.tcp.connect(other.address, 80, own_port=5000)
    net.run(5)
    assert second.state is TcpState.ESTABLISHED
    assert [made.state for made in accepted] == [TcpState.CLOSED, TcpState.ESTABLISHED]


def test_many_overlapping_segments_take_no_more_than_the_window() -> None:
    peer = connected()
    for at in range(2000):
        peer.say(TcpFlag.ACK, 1, OWN + 2 + at, bytes(MSS))
    assert peer.connection._gaps.size <= 65535
    peer.say(TcpFlag.ACK, 1, OWN + 1, b"\0")
    peer.run(0.1)
    assert len(peer.got) == 2000 + MSS
    assert peer.agenda.now == 100 * MILLISECOND


@pytest.mark.parametrize(("ahead", "connections"), [(-2, 1), (9, 2)])
def test_only_a_new_syn_ends_time_wait(ahead: int, connections: int) -> None:
    """RFC 6191: an old one is answered as any segment that does not belong here."""
    net = Internet()
    one, other = net.host("one"), net.host("other")
    net.link("one", "other")
    accepted: list[TcpConnection] = []
    other.tcp.listen(lambda made, _, __: accepted.append(made), 80)
    made = one.tcp.connect(other.address, 80, own_port=5000)
    made.on_end = made.close
    net.run(1)
    accepted[0].close()
    net.run(1)
    assert accepted[0].state is TcpState.TIME_WAIT
    syn = TcpSegment(5000, 80, accepted[0].next + ahead, 0, TcpFlag.SYN, 100)
    data = syn.encode(one.address, other.address)
    other.tcp.receive(Datagram(Protocol.TCP, one.address, other.address, data), None)
    net.run(1)
    assert len(accepted) == connections


@pytest.mark.parametrize("what", ["close", "abort", "write and end"])
def test_a_listener_may_end_a_connection_at_once(what: str) -> None:
    net = Internet()
    one, other = net.host("one"), net.host("other")
    net.link("one", "other")

    def accept(made: TcpConnection, *_: object) -> None:
        if what == "write and end":
            made.write(b"no room")
            made.end()
        else:
            getattr(made, what)()

    other.tcp.listen(accept, 80)
    made = one.tcp.connect(other.address, 80)
    got = bytearray()
    errors: list[OSError | None] = []
    made.on_data, made.on_end, made.on_close = got.extend, made.close, errors.append
    net.run(100)
    assert [type(error) for error in errors] == [
        ConnectionRefusedError if what == "abort" else type(None)
    ]
    assert got == (b"no room" if "write" in what else b"")
    assert not one.tcp.connections
    assert not other.tcp.connections
