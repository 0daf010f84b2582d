# SPDX-License-Identifier: Apache-2.0
"""Values that an internet refuses: TTLs, ports, settings of protocols, networks, policies."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from verbena.internet import (
    AddressError,
    Internet,
    InternetError,
    MessageTooLongError,
    NoRouteError,
)
from verbena.internet.autonomous_systems import AutonomousSystems
from verbena.internet.bgp_policy import GaoRexford
from verbena.internet.distance_vector import DistanceVector, DistanceVectorSettings
from verbena.internet.link_state import LinkState, LinkStateSettings


def pair() -> Internet:
    net = Internet()
    net.link(net.router("a"), net.router("b"))
    return net


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda net: net.node("a").udp.open(print).send(b"", net.address_of("b"), 7, ttl=256),
         "a TTL of 256: a host sends 1 to 255"),
        (lambda net: net.node("a").udp.open(print).send(b"", net.address_of("b"), 7, ttl=0),
         "a TTL of 0"),
        (lambda net: net.node("a").tcp.connect(net.address_of("b"), 70000), "70000 is no port"),
        (lambda net: net.node("a").tcp.connect(net.address_of("b"), 7, own_port=70000),
         "70000 is no port"),
        (lambda net: net.node("a").tcp.connect(net.address_of("b"), 7, ttl=300), "a TTL of 300"),
        (lambda net: net.node("a").tcp.connect(net.address_of("b"), 7).write("x"),
         "data is 'x', and not bytes"),
        (lambda net: DistanceVectorSettings(update_s=0.0), "update_s is 0.0"),
        (lambda net: DistanceVectorSettings(update_s=-1), "update_s is -1"),
        (lambda net: DistanceVectorSettings(timeout_s=5), "longest pause .* is 35 s"),
        (lambda net: DistanceVectorSettings(garbage_s=-1), "garbage_s is -1"),
        (lambda net: LinkStateSettings(hello_s=0), "hello_s is 0"),
        (lambda net: LinkStateSettings(dead_s=10), "dead_s is 10"),
        (lambda net: LinkStateSettings(retransmit_s=0), "retransmit_s is 0"),
        (lambda net: LinkStateSettings(refresh_s=3600), "1 to 3599 s"),
        (lambda net: LinkStateSettings(spf_delay_ms=-1), "spf_delay_ms is -1"),
        (lambda net: GaoRexford(peer=-5), "peer is -5: a local preference"),
        (lambda net: GaoRexford(peer=1 << 40), "0 to 4294967295"),
        (lambda net: net.link("a", "b", delay_us=float("nan")), "link: delay_us is nan"),
        (lambda net: net.network("127.0.0.0/8", "a"), "is loopback"),
        (lambda net: net.network("0.0.0.0/8"), "means this network"),
        (lambda net: net.network("225.0.0.0/24"), "is multicast"),
        (lambda net: net.network("250.0.0.0/24"), "is reserved"),
        (lambda net: net.node("a").attach(net.links["a-b"].ports[0], "127.0.0.1/8"), "loopback"),
        (lambda net: net.network("10.9.0.0/24").attach(net.node("a"), mac=bytes(6)),
         "no MAC address"),
    ],
)  # fmt: skip
def test_a_value_is_refused_with_its_name(call: Callable[[Internet], Any], says: str) -> None:
    with pytest.raises(InternetError, match=says):
        call(pair())


def test_an_echo_that_must_not_be_cut_says_what_a_program_may_send() -> None:
    net = pair()
    with pytest.raises(MessageTooLongError, match="send at most 1472 bytes behind the 8"):
        net.ping("a", "b", size=2000, dont_fragment=True)
    assert net.ping("a", "b", size=1472, dont_fragment=True)[0].ok
    with pytest.raises(MessageTooLongError):
        net.ping("a", "b", size=1473, dont_fragment=True)


@pytest.mark.parametrize("kind", ["distance vector", "link state"])
def test_a_protocol_runs_once_on_interfaces_of_its_router(kind: str) -> None:
    net = pair()
    a, b, host = net.node("a"), net.node("b"), net.host("h")

    def made(node: Any) -> DistanceVector | LinkState:
        if kind == "link state":
            return LinkState(node, a.address)
        return DistanceVector(node, net.random)

    with pytest.raises(InternetError, match="h is a host"):
        made(host)
    protocol = made(a)
    protocol.add_interface(a.interfaces[0])
    with pytest.raises(InternetError, match=r"runs on a\.0 already"):
        protocol.add_interface(a.interfaces[0])
    with pytest.raises(InternetError, match=r"b\.0 is no interface of a, which has a\.0"):
        protocol.add_interface(b.interfaces[0])
    with pytest.raises(InternetError, match="a cost of 0: it is 1 to"):
        protocol.add_interface(a.interfaces[0], cost=0)


def test_a_closed_socket_sends_nothing_and_leaves_its_port_alone() -> None:
    net = pair()
    first = net.node("a").udp.open(print, 7)
    first.close()
    got: list[bytes] = []
    net.node("a").udp.open(lambda arrival: got.append(arrival.payload), 7)
    first.close()
    with pytest.raises(InternetError, match="UDP port 7 is closed"):
        first.send(b"", net.address_of("b"), 7)
    net.node("b").udp.open(print).send(b"hello", net.address_of("a"), 7)
    net.run(1)
    assert got == [b"hello"]


def test_a_policy_that_prefers_by_a_text_is_named() -> None:
    class Bad:
        def prefer(self, relation: object, path: object) -> Any:
            return "much"

        def offers(self, learnt: object, to: object) -> bool:
            return True

    net = Internet()
    systems = AutonomousSystems(net)
    for number, name in enumerate("ab", 1):
        net.network(f"10.{number}.0.0/24", net.router(name))
        systems.add(number, name, policy=Bad())
    systems.provide("a", "b")
    with pytest.raises(InternetError, match=r"Bad.prefer of system \d, path \d: 'much'"):
        net.converge()


def test_a_refused_connection_names_the_port_and_its_host() -> None:
    net = pair()
    errors: list[OSError | None] = []
    made = net.node("a").tcp.connect(net.address_of("b"), 81)
    made.on_close = errors.append
    net.run(1)
    assert isinstance(errors[0], ConnectionRefusedError)
    assert errors[0].errno == errno.ECONNREFUSED
    assert errors[0].strerror == f"nobody listens at TCP port 81 of {net.address_of('b')}"


def test_a_node_without_an_interface_is_told_to_get_one() -> None:
    net = pair()
    alone = net.host("alone")
    assert "has no interface, so connect it" in net.ping(alone, "a")[0].text
    with pytest.raises(NoRouteError, match="has no interface, so connect it"):
        net.traceroute(alone, "a")
    with pytest.raises(AddressError):
        net.address_of(alone)
