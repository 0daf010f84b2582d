# SPDX-License-Identifier: Apache-2.0
"""A frame for which a queue has no room is counted by its sender, the interface and the link."""

from __future__ import annotations

import pytest

from verbena.internet import Internet
from verbena.lan import Lan

SIZE = 60_000  # 41 fragments


def two_hosts(kind: str, queue: int) -> Internet:
    net = Internet(seed=1)
    one, two = net.host("client"), net.host("server")
    if kind == "link":
        net.link(one, two, name="between", queue=queue)
    elif kind == "network":
        net.network("10.0.0.0/24", "client", "server", name="between", queue=queue)
    else:
        lan = Lan(seed=1, agenda=net.agenda)
        hub = lan.hub()
        for name in ("client", "server"):
            lan.station(name, hub, queue=queue)
        net.lan_network("10.0.0.0/24", lan, ["client", "server"])
    return net


@pytest.mark.parametrize("kind", ["link", "network", "lan"])
@pytest.mark.parametrize(("queue", "whole"), [(100, 2), (200, 3)])
def test_fragments_without_room_are_counted(kind: str, queue: int, whole: int) -> None:
    net = two_hosts(kind, queue)
    client, server = net.node("client"), net.node("server")
    came: list[int] = []
    server.udp.open(lambda arrival: came.append(len(arrival.payload)), 7000)
    sender = client.udp.open(lambda arrival: None)
    sender.send(b"", server.address, 7000)  # so that both know each other's MAC addresses
    net.run(1)
    for _ in range(3):
        sender.send(bytes(SIZE), server.address, 7000)
    net.run(61)
    assert came == [0, *[SIZE] * whole]
    lost = client.counters["queue full"]
    assert lost == client.interfaces[0].dropped
    assert (lost > 0) is (whole < 3)
    assert server.counters["received"] == 1 + 3 * 41 - lost
    assert server.counters["incomplete"] == 3 - whole
    if kind != "lan":
        assert net.links["between"].dropped == lost
