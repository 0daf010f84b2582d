# SPDX-License-Identifier: Apache-2.0
"""TCP between nodes: streams over lossy links, handshakes, ends, closed windows, and resets."""

from __future__ import annotations

import errno
from ipaddress import IPv4Address
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verbena.internet import Internet
from verbena.internet.tcp_connection import TcpConnection
from verbena.internet.tcp_sender import TcpSettings
from verbena.internet.tcp_states import TcpState

PORT = 7000


class End:
    """What one end has seen; it closes when its peer does, if it was told so."""

    def __init__(self, connection: TcpConnection, *, closes: bool = True) -> None:
        self.connection = connection
        self.got = bytearray()
        self.errors: list[OSError | None] = []
        self.opened = self.ended = 0
        self.closes = closes
        connection.on_open = self._open
        connection.on_data = self.got.extend
        connection.on_end = self._end
        connection.on_close = self.errors.append

    def _open(self) -> None:
        self.opened += 1

    def _end(self) -> None:
        self.ended += 1
        if self.closes:
            self.connection.close()


def pair(seed: int = 1, *, closes: bool = True, **line: Any) -> tuple[Internet, End, list[End]]:
    """A connection between two hosts; the listener's ends appear when SYNs come."""
    net = Internet(seed)
    for name in ("left", "right"):
        net.host(name)
    net.link("left", "right", **line)
    accepted: list[End] = []
    right = net.node("right").tcp
    right.listen(lambda made, _, __: accepted.append(End(made, closes=closes)), PORT)
    made = net.node("left").tcp.connect(net.node("right").address, PORT)
    return net, End(made), accepted


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    loss=st.sampled_from([0.0, 0.02, 0.1]),
    mtu=st.sampled_from([128, 296, 1500]),
    queue=st.sampled_from([1, 3, 100]),
    out=st.lists(st.integers(1, 5000), max_size=6),
    back=st.lists(st.integers(1, 5000), max_size=6),
    no_delay=st.booleans(),
)
def test_both_streams_arrive_whole_whatever_is_lost(
    seed: int,
    loss: float,
    mtu: int,
    queue: int,
    out: list[int],
    back: list[int],
    no_delay: bool,
) -> None:
    net, left, accepted = pair(seed, closes=False, loss=loss, mtu=mtu, queue=queue)
    sent = [net.random.randbytes(size) for size in out]
    returned = [net.random.randbytes(size) for size in back]
    for piece in sent:
        left.connection.write(piece)
    left.connection.end()
    net.run_until(lambda: bool(accepted and accepted[0].opened), 200)
    right = accepted[0]
    assert right.connection.sender is not None
    right.connection.sender.no_delay = no_delay
    for piece in returned:
        right.connection.write(piece)
        net.run(0.01)
    right.connection.end()
    net.run_until(lambda: bool(left.errors and right.errors), 20_000)
    assert bytes(right.got) == b"".join(sent)
    assert bytes(left.got) == b"".join(returned)
    assert (left.opened, right.opened, left.ended, right.ended) == (1, 1, 1, 1)
    assert right.errors == [None] or loss > 0
    assert not net.node("left").tcp.connections


def test_an_exchange_takes_the_states_and_round_trips_of_the_rfc() -> None:
    net, left, accepted = pair(delay_us=5000)
    states = [left.connection.state]
    net.run(0.0101)
    states.append(left.connection.state)
    left.connection.close()
    states.append(left.connection.state)
    net.run(0.0051)
    assert accepted[0].connection.state is TcpState.LAST_ACK
    net.run(0.006)
    states.append(left.connection.state)
    net.run(61)
    states.append(left.connection.state)
    assert states == ["SYN-SENT", "ESTABLISHED", "FIN-WAIT-1", "TIME-WAIT", "CLOSED"]
    assert left.errors == accepted[0].errors == [None]


def test_nobody_listens_or_nobody_is_there() -> None:
    net, left, _ = pair()
    refused = End(net.node("left").tcp.connect(net.node("right").address, PORT + 1))
    net.run(0.1)
    assert isinstance(refused.errors[0], ConnectionRefusedError)
    net.links["left-right"].cut(silent=True)
    begin = net.now_s
    late = End(net.node("left").tcp.connect(net.node("right").address, PORT))
    assert net.run_until(lambda: bool(late.errors), 200)
    assert isinstance(late.errors[0], TimeoutError)
    assert net.now_s - begin == pytest.approx(127)  # as Linux: 1 + 2 + … + 64 s
    assert left.errors == []


def behind_a_router() -> Internet:
    """left is in 10.1.0.0/24, right in 10.2.0.0/24, and a router in both."""
    net = Internet(1)
    router, left, right = net.router("router"), net.host("left"), net.host("right")
    net.network("10.1.0.0/24", router, left)
    net.network("10.2.0.0/24", router, right)
    right.tcp.listen(lambda made, _, __: None, PORT)
    return net


@pytest.mark.parametrize(
    ("address", "number", "after_s"),
    [
        ("10.9.0.1", errno.ENETUNREACH, 0),  # the router has no route
        ("10.2.0.77", errno.EHOSTUNREACH, 3),  # nobody answers the router's ARP
        ("10.1.0.77", errno.EHOSTUNREACH, 3),  # nobody answers the own one
    ],
)
def test_an_unreachable_peer_ends_a_connection_that_is_not_open(
    address: str, number: int, after_s: float
) -> None:
    net = behind_a_router()
    begin = net.now_s
    end = End(net.node("left").tcp.connect(IPv4Address(address), PORT))
    assert net.run_until(lambda: bool(end.errors), 200)
    assert [error and error.errno for error in end.errors] == [number]
    assert net.now_s - begin == pytest.approx(after_s, abs=0.01)


def test_an_unreachable_peer_does_not_end_an_open_connection() -> None:
    net = behind_a_router()
    end = End(net.node("left").tcp.connect(net.node("right").address, PORT))
    net.run(1)
    told: list[str] = []
    net.node("left").listen_icmp(lambda message, _: told.append(message.text))
    net.links["10.2.0.0/24"].cut()
    end.connection.write(b"hello")
    net.run(5)
    assert "network unreachable" in told
    assert (end.opened, end.errors) == (1, [])


def test_a_reader_that_pauses_stops_the_sender_and_gets_everything() -> None:
    net, left, accepted = pair()
    net.run(0.1)
    right = accepted[0]
    right.connection.pause()
    data = net.random.randbytes(300_000)
    left.connection.write(data)
    left.connection.end()
    net.run(30)
    assert right.got == b""
    assert left.connection.sender is not None
    assert left.connection.sender.unacknowledged == len(data) - 65535
    right.connection.resume()
    assert net.run_until(lambda: bool(right.errors), 100)
    assert right.got == data


def test_a_side_whose_window_is_shut_sees_the_peer_s_open() -> None:
    """The peer has probed the shut window, so that its acknowledgements are beyond it."""
    net, left, accepted = pair(closes=False)
    net.run(1)
    right = accepted[0]
    data = [net.random.randbytes(200_000) for _ in range(2)]
    for end, sent in zip((left, right), data, strict=True):
        end.connection.pause()
        end.connection.write(sent)
    net.run(100)
    for end in (left, right):
        assert end.connection.sender is not None
        assert end.connection.sender.window == 0
        # Nothing beyond the window was promised, and a byte of it was asked for.
        assert end.connection.sender.highest == end.connection.sender.una + 1
        assert end.connection.sender.unacknowledged == 200_000 - 65_535
    right.connection.resume()
    net.run(100)
    assert (left.got, right.got) == (b"", data[0])
    left.connection.resume()
    net.run(100)
    assert left.got == data[1]


def test_nagle_and_a_delayed_acknowledgement_wait_40_ms() -> None:
    def times(no_delay: bool) -> float:
        net, left, accepted = pair(delay_us=100)
        net.run(0.1)
        assert left.connection.sender is not None
        left.connection.sender.no_delay = no_delay
        begin = net.now_s
        for _ in range(2):
            left.connection.write(b"x" * 100)
        net.run_until(lambda: len(accepted[0].got) == 200, 10)
        return net.now_s - begin

    assert times(no_delay=True) == pytest.approx(0.0001, rel=0.1)
    assert times(no_delay=False) == pytest.approx(0.0403, rel=0.01)


def test_an_abort_resets_the_peer_and_a_stray_segment_is_refused() -> None:
    net, left, accepted = pair()
    net.run(0.1)
    accepted[0].connection.abort()
    net.run(0.1)
    assert isinstance(left.errors[0], ConnectionResetError)
    with pytest.raises(BrokenPipeError):
        left.connection.write(b"more")
    net, left, accepted = pair()
    net.run(0.1)
    net.node("right").tcp.connections.clear()  # as after a restart
    left.connection.write(b"anybody?")
    net.run(1)
    assert isinstance(left.errors[0], ConnectionResetError)


def test_a_silent_peer_is_given_up_after_its_retries() -> None:
    net = Internet()
    for name in ("left", "right"):
        net.host(name)
    net.link("left", "right")
    net.node("right").tcp.listen(lambda made, _, __: None, PORT)
    few = TcpSettings(retries=3)
    left = End(net.node("left").tcp.connect(net.node("right").address, PORT, settings=few))
    net.run(1)
    net.links["left-right"].cut(silent=True)
    left.connection.write(b"anybody?")
    begin = net.now_s
    assert net.run_until(lambda: bool(left.errors), 1000)
    assert isinstance(left.errors[0], TimeoutError)
    assert net.now_s - begin == pytest.approx(1 + 2 + 4 + 8)  # no round trip was measured


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_what_was_written_before_a_close_arrives_though_the_connection_was_not_open(
    loss: float,
) -> None:
    net, left, accepted = pair(delay_us=5000, loss=loss)
    sent = net.random.randbytes(5000)
    left.connection.write(sent)
    left.connection.close()
    assert left.errors == []
    net.run(600)
    assert bytes(accepted[0].got) == sent
    assert (accepted[0].ended, accepted[0].errors, left.errors) == (1, [None], [None])
    assert left.opened == 0  # nothing is left to do for the program that has closed it


def test_a_close_before_the_connection_is_open_says_what_could_not_be_sent() -> None:
    net, left, _ = pair()
    net.node("right").tcp.stop_listening(PORT)
    left.connection.write(b"hello")
    left.connection.close()
    net.run(600)
    assert [type(error) for error in left.errors] == [ConnectionRefusedError]
    net, left, _ = pair()
    net.links["left-right"].cut(silent=True)
    left.connection.write(b"hello")
    left.connection.close()
    net.run(600)
    assert [type(error) for error in left.errors] == [TimeoutError]


def test_a_close_before_the_connection_is_open_forgets_it_if_nothing_was_written() -> None:
    net, left, _ = pair()
    left.connection.close()
    assert left.errors == [None]
    assert left.connection.state is TcpState.CLOSED
    assert not net.node("left").tcp.connections


def test_a_connection_s_text_has_its_ports_and_its_state() -> None:
    net, left, _ = pair()
    own, peer = left.connection.ports[0], net.address_of("right")
    text = f"<TCP connection from port {own} to port {PORT} of {peer}: "
    assert repr(left.connection) == text + "SYN-SENT>"
    net.run(1)
    assert repr(left.connection) == text + "ESTABLISHED>"
