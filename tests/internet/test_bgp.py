# SPDX-License-Identifier: Apache-2.0
"""BGP-4: its messages, the decision, its state machine, and what ends a session."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verbena.internet import Internet, PacketError
from verbena.internet.bgp import BgpSpeaker
from verbena.internet.bgp_messages import (
    BgpError,
    BgpFailure,
    BgpKeepalive,
    BgpMessage,
    BgpNotification,
    BgpOpen,
    BgpUpdate,
    MessageReader,
    PathAttributes,
    PathOrigin,
    encode_message,
    updates,
)
from verbena.internet.bgp_policy import Relation, is_valley_free
from verbena.internet.bgp_routes import BgpRoute, best_route, deciding_step
from verbena.internet.bgp_session import (
    BGP_PORT,
    BGP_TRANSITIONS,
    BgpEvent,
    BgpSettings,
    BgpState,
)
from verbena.internet.tcp_connection import TcpConnection

addresses = st.integers(0, 2**32 - 1).map(IPv4Address)
numbers = st.integers(1, 65535)
networks = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 32)).map(
    lambda pair: IPv4Network((pair[0] >> (32 - pair[1]) << (32 - pair[1]), pair[1]))
)
attributes = st.builds(
    PathAttributes,
    st.lists(numbers, max_size=300).map(tuple),
    addresses,
    st.sampled_from(PathOrigin),
    st.none() | st.integers(0, 2**32 - 1),
    st.lists(st.tuples(numbers, numbers), max_size=70).map(tuple),
)
many = st.lists(networks, max_size=20).map(tuple)
messages = st.one_of(
    st.builds(BgpOpen, numbers, st.just(0) | st.integers(3, 65535), addresses),
    st.builds(BgpUpdate, many, attributes, many),
    st.builds(BgpUpdate, many),
    st.builds(BgpNotification, st.integers(0, 255), st.integers(0, 255), st.binary(max_size=9)),
    st.just(BgpKeepalive()),
)


@settings(max_examples=40)
@given(st.lists(messages, max_size=5), st.data())
def test_messages_are_read_from_a_stream_cut_anywhere(
    sent: list[BgpMessage], data: st.DataObject
) -> None:
    stream = b"".join(map(encode_message, sent))
    reader, got = MessageReader(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        got += reader.feed(stream[:size])
        stream = stream[size:]
    assert got == sent


@given(messages, st.lists(st.tuples(st.integers(0, 4095), st.integers(0, 255)), max_size=4))
def test_damaged_messages_are_errors_of_bgp_and_nothing_else(
    message: BgpMessage, changes: list[tuple[int, int]]
) -> None:
    damaged = bytearray(encode_message(message))
    for at, value in changes:
        damaged[at % len(damaged)] = value
    with suppress(BgpError):
        list(MessageReader().feed(bytes(damaged)))


def test_an_update_is_split_before_it_is_too_long() -> None:
    path = PathAttributes(tuple(range(1, 400)), IPv4Address("10.0.0.1"))
    all_networks = [IPv4Network((at << 8, 24)) for at in range(2000)]
    told = list(updates(all_networks, {path: all_networks}))
    assert all(len(encode_message(one)) <= 4096 for one in told)
    assert [network for one in told for network in one.withdrawn] == all_networks
    assert [network for one in told for network in one.networks] == all_networks
    with pytest.raises(PacketError, match="at most 4096 bytes"):
        encode_message(BgpUpdate((), path, tuple(all_networks)))


def test_each_step_of_the_decision_decides_when_those_before_do_not() -> None:
    worst = BgpRoute(
        IPv4Network("10.0.0.0/8"),
        (1, 2, 3),
        IPv4Address("10.0.0.9"),
        100,
        origin=PathOrigin.INCOMPLETE,
        source=IPv4Address("10.0.0.9"),
        router=IPv4Address("10.0.0.9"),
        interior=True,
        cost=7,
    )
    better = [
        ("lowest address of the neighbour", {"source": IPv4Address("10.0.0.1")}),
        ("lowest router identifier", {"router": IPv4Address("10.0.0.1")}),
        ("nearest next hop", {"cost": 3}),
        ("from another system before the own one", {"interior": False}),
        ("lowest origin", {"origin": PathOrigin.INTERIOR}),
        ("shortest path", {"path": (4, 5)}),
        ("highest local preference", {"preference": 200}),
        ("the network is the own system's", {"source": None}),
    ]
    routes = [worst]
    for step, change in better:
        routes.append(replace(worst, **change))
        assert deciding_step(worst, routes[-1]) == step
        # It beats all that are better only in later steps.
        assert best_route(routes) == best_route(reversed(routes)) == routes[-1]
    assert best_route([]) is None
    assert deciding_step(worst, worst) == ""


def test_every_state_of_a_session_is_reached_and_left() -> None:
    reached = {following for (_, _), following in BGP_TRANSITIONS.items()}
    assert reached == set(BgpState)
    for state in BgpState:
        assert BGP_TRANSITIONS[state, BgpEvent.DOWN] is BgpState.IDLE


@pytest.mark.parametrize(
    ("steps", "free"),
    [
        ("up up peer down", True),
        ("up down", True),
        ("down", True),
        ("", True),
        ("down up", False),
        ("peer peer", False),
        ("peer up", False),
        ("down peer", False),
    ],
)
def test_a_way_without_valleys(steps: str, free: bool) -> None:
    kinds = {"up": Relation.PROVIDER, "peer": Relation.PEER, "down": Relation.CUSTOMER}
    assert is_valley_free([kinds[step] for step in steps.split()]) == free


def speaker_and_socket(
    hold_s: int = 90,
) -> tuple[Internet, BgpSpeaker, TcpConnection, list[BgpMessage]]:
    """A speaker of system 1 that waits for system 2, whose messages the test sends itself."""
    net = Internet()
    for name in ("other", "speaker"):
        net.router(name)
    net.link("other", "speaker", "192.0.2.0/31")
    times = BgpSettings(hold_s=hold_s)
    speaker = BgpSpeaker(net.node("speaker"), 1, net.random, settings=times)
    speaker.add_neighbour("192.0.2.0", 2, Relation.CUSTOMER)
    net.run(0.1)
    connection = net.node("other").tcp.connect(IPv4Address("192.0.2.1"), BGP_PORT)
    got: list[BgpMessage] = []
    reader = MessageReader()
    connection.on_data = lambda data: got.extend(reader.feed(data))
    net.run(0.1)
    return net, speaker, connection, got


GOOD_OPEN = BgpOpen(2, 30, IPv4Address("192.0.2.0"))


@pytest.mark.parametrize(
    ("bad", "answer"),
    [
        (encode_message(replace(GOOD_OPEN, system=3)), (2, 2)),
        (encode_message(replace(GOOD_OPEN, router=IPv4Address("192.0.2.1"))), (2, 3)),
        (encode_message(BgpKeepalive()), (5, 0)),
        (encode_message(BgpUpdate()), (5, 0)),
        (bytes(19), (1, 1)),
        (b"\xff" * 16 + b"\0\x12\4", (1, 2)),
        (b"\xff" * 16 + b"\0\x13\x09", (1, 3)),
    ],
)
def test_a_message_that_must_not_come_ends_the_session(bad: bytes, answer: tuple[int, int]) -> None:
    net, speaker, connection, got = speaker_and_socket()
    connection.write(bad)
    net.run(0.1)
    (neighbour,) = speaker.neighbours.values()
    assert neighbour.session.state is BgpState.IDLE
    assert isinstance(got[0], BgpOpen)
    assert got[1] == BgpNotification(*answer)


def test_routes_come_with_a_session_and_go_when_its_hold_time_is_over() -> None:
    net, speaker, connection, got = speaker_and_socket()
    (neighbour,) = speaker.neighbours.values()
    target = IPv4Network("10.2.0.0/16")
    for message in (GOOD_OPEN, BgpKeepalive()):
        connection.write(encode_message(message))
    net.run(0.1)
    assert neighbour.is_up
    next_hop = IPv4Address("192.0.2.0")
    for path in ((2,), (2, 1), (3,)):  # a good one; through system 1 itself; not the neighbour's
        update = BgpUpdate((), PathAttributes(path, next_hop), (target,))
        connection.write(encode_message(update))
        net.run(0.1)
        assert (target in speaker.best) == (path == (2,))
        assert (net.node("speaker").table.best(target) is not None) == (path == (2,))
    connection.write(encode_message(BgpUpdate((), PathAttributes((2,), next_hop), (target,))))
    net.run(29)
    assert target in speaker.best
    assert sum(isinstance(one, BgpKeepalive) for one in got) == 3  # each third of 30 s
    net.run(2)  # the smaller hold time is over
    assert got[-1] == BgpNotification(BgpFailure.HOLD_TIMER)
    assert speaker.best == {}
    assert net.node("speaker").table.best(target) is None


def test_a_stranger_is_sent_away() -> None:
    net = Internet()
    for name in ("other", "speaker"):
        net.router(name)
    net.link("other", "speaker", "192.0.2.0/31")
    BgpSpeaker(net.node("speaker"), 1, net.random)
    connection = net.node("other").tcp.connect(IPv4Address("192.0.2.1"), BGP_PORT)
    errors: list[OSError | None] = []
    connection.on_close = errors.append
    net.run(1)
    assert isinstance(errors[0], ConnectionResetError)
