# SPDX-License-Identifier: Apache-2.0
"""Arguments of a type that a parameter of verbena.internet does not take."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.wrong_arguments import Parameter, parameters_of, refusal
from verbena.internet import Internet, InternetError

MODULES = [
    "verbena.internet",
    "verbena.internet.autonomous_systems",
    "verbena.internet.bgp_policy",
    "verbena.internet.distance_vector",
    "verbena.internet.link_state",
    "verbena.internet.tcp_sockets",
    "verbena.internet.udp_sockets",
]
RECORDS = {
    "Datagram", "Datagram.decode", "Distance", "Hop", "Message", "Message.decode",
    "PathMtu", "PingReply", "Route", "StoredLsa", "UdpArrival",
}  # fmt: skip
"""Made by the package, for its users to read."""
CALLED_BY_NODES = {
    "EthernetInterface.receive_frame", "EthernetInterface.transmit", "GaoRexford.offers",
    "GaoRexford.prefer", "Interface.is_broadcast", "Interface.receive_frame", "Interface.transmit",
    "Leak.offers", "LineSettings.serialization", "Node.check_address", "Node.complain",
    "Node.next_hop_is_silent", "Node.receive", "RankedPaths.offers", "RankedPaths.prefer",
    "RoutingTable.lookup", "RoutingTable.resolve", "TcpSockets.receive", "TcpSockets.receive_error",
    "TcpSockets.stop_listening", "UdpSockets.receive", "UdpSockets.receive_error",
    "UdpSockets.remove", "check_preference", "decode_message", "encode_response",
}  # fmt: skip


@pytest.mark.parametrize("one", parameters_of(MODULES, RECORDS | CALLED_BY_NODES), ids=str)
def test_an_argument_without_sense_is_named(one: Parameter) -> None:
    text = refusal(one, InternetError)
    assert f"{one.name} is nonsense, and not " in text


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda net: net.run(-1), "time goes on: -1 s are below 0"),
        (lambda net: net.run(float("inf")), "seconds is inf, and not a finite number"),
        (lambda net: net.run(1e30), r"time ends at 2\^63 ps, 9223372 s: 1e\+30 s more"),
        (lambda net: net.run_until(lambda: False, 1e30), r"time ends at 2\^63 ps"),
        (lambda net: net.converge(1.0, 1e30), r"time ends at 2\^63 ps"),
        (lambda net: net.ping("a", "b", count=0), "0 echoes of 56 bytes: at least one"),
        (lambda net: net.ping("a", "b", size=-1), "1 echoes of -1 bytes"),
        (lambda net: net.traceroute("a", "b", 256), "max_ttl is 256"),
        (lambda net: net.host(""), "a name that is not empty"),
        (lambda net: net.network("10.9.0.0/24", "a", 5), "members is 5, and not a text or a Node"),
        (lambda net: net.network("10.9.0.0/24", mbit=1), "no parameter mbit: there are mbps"),
    ],
)
def test_a_value_without_meaning_is_refused(call: Callable[[Internet], object], says: str) -> None:
    net = Internet()
    net.host("a"), net.host("b")
    with pytest.raises(InternetError, match=says):
        call(net)
