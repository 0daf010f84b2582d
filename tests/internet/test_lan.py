# SPDX-License-Identifier: Apache-2.0
"""Networks over cables, hubs and learning switches: ARP, collisions, learning, and cut wires."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from verbena.internet import AddressError, Internet, InternetError
from verbena.internet.link_state import LinkState
from verbena.lan import Lan


def hosts_on(kind: str, count: int = 4) -> tuple[Internet, Lan, Any]:
    """A network of hosts h0, h1 … at one cable, hub or switch."""
    net = Internet(seed=2)
    lan = Lan(seed=2, agenda=net.agenda)
    medium: Any = (
        lan.cable(500)
        if kind == "cable"
        else lan.hub()
        if kind == "hub"
        else lan.switch("sw", spanning_tree=False)
    )
    names = [f"h{number}" for number in range(count)]
    for number, name in enumerate(names):
        net.host(name)
        lan.station(name, medium, **({"at_m": 100 * number} if kind == "cable" else {}))
    net.lan_network("10.0.0.0/24", lan, names)
    return net, lan, medium


@pytest.mark.parametrize("kind", ["cable", "hub", "switch"])
def test_a_ping_asks_by_broadcast_and_reaches_its_host(kind: str) -> None:
    net, lan, medium = hosts_on(kind)
    first, second = net.ping("h0", "h3", count=2)
    assert [first.ok, second.ok] == [True, True]
    # A request and its answer: twice 576 bits of frame and preamble at 10 Mb/s, and the way.
    if kind != "switch":
        assert 2 * 57.6e6 < first.rtt_ps - second.rtt_ps < 2 * 57.6e6 + 30e6
    # Others have heard one request of ARP; a switch sends them nothing more.
    assert [lan.stations[name].counters.received for name in ("h1", "h2")] == [1, 1]
    if kind == "switch":
        assert (medium.flooded, medium.forwarded) == (1, 5)


@pytest.mark.parametrize("kind", ["cable", "hub"])
def test_connections_share_a_medium_and_collide_and_arrive_whole(kind: str) -> None:
    net, _, medium = hosts_on(kind)
    got = {number: bytearray() for number in (2, 3)}
    sent = {number: net.random.randbytes(60_000) for number in got}
    for number in got:
        net.node(f"h{number}").tcp.listen(
            lambda made, _, __, number=number: setattr(made, "on_data", got[number].extend),  # type: ignore[misc]
            7000,
        )
        address = net.node(f"h{number}").address
        net.node(f"h{number - 2}").tcp.connect(address, 7000).write(sent[number])
    assert net.run_until(lambda: all(len(one) == 60_000 for one in got.values()), 60)
    assert got == sent
    assert medium.collisions > 10
    # 120,000 bytes take 0.096 s at 10 Mb/s, without headers and collisions.
    assert 0.1 < net.now_s < 2


def test_a_ring_of_switches_carries_a_router_s_network_and_heals() -> None:
    net = Internet(seed=3)
    lan = Lan(agenda=net.agenda)
    switches = [lan.switch(name) for name in "abc"]
    wires = [lan.connect(switches[at], switches[at - 1]) for at in range(3)]
    for number, name in enumerate(("r", "h1", "h2")):
        (net.router if name == "r" else net.host)(name)
        lan.station(f"{name}-eth0", switches[number])
    net.lan_network("10.0.0.0/24", lan, {name: f"{name}-eth0" for name in ("r", "h1", "h2")})
    net.host("far")
    net.network("10.1.0.0/24", "r", "far")
    assert not net.ping("h1", "far")[0].ok  # ports forward after twice 15 s
    net.run(60)
    assert all(net.ping(one, "far")[0].ok for one in ("h1", "h2"))
    assert [hop.name for hop in net.traceroute("h2", "far")] == ["r", "far"]
    for wire in wires:
        assert wire is not None
        wire.cut()
        net.run(60)
        assert all(net.ping("h1", other)[0].ok for other in ("far", "h2"))
        wire.mend()
        net.run(60)
    # A host whose own wire is cut has an interface that is down.
    (interface,) = net.node("h1").interfaces
    lan.wires[-2].cut()
    assert not interface.up
    assert "h1 has no route to 10.1.0.2" in net.ping("h1", "far")[0].text
    lan.wires[-2].mend()
    net.run(60)
    assert net.ping("h1", "far")[0].ok


def test_routers_find_each_other_over_a_hub(tmp_path: Path) -> None:
    net = Internet(seed=5)
    lan = Lan(agenda=net.agenda)
    hub = lan.hub()
    names = ("r1", "r2", "r3")
    for number, name in enumerate(names):
        net.router(name)
        lan.station(name, hub)
        net.host(f"h{number}")
        net.network(f"10.{number}.0.0/24", name, f"h{number}")
    net.lan_network("192.0.2.0/24", lan, names, name="hub")
    for name in names:
        protocol = LinkState(net.node(name), net.node(name).address)
        for interface in net.node(name).interfaces:
            protocol.add_interface(interface)
    with net.capture(tmp_path / "hub.pcapng", ["hub"]) as capture:
        net.converge()
    assert capture.frames > 0
    assert net.ping("h0", "h2")[0].ok
    assert [hop.name for hop in net.traceroute("h0", "h2")] == ["r1", "r3", "h2"]


def test_mistakes_say_what_to_do() -> None:
    net, lan, _ = hosts_on("hub")
    net.host("new")
    with pytest.raises(InternetError, match="no station 'new'"):
        net.lan_network("10.1.0.0/24", lan, ["new"])
    with pytest.raises(InternetError, match="somebody else receives"):
        net.lan_network("10.1.0.0/24", lan, {"new": "h0"})
    lan.station("spare", lan.switch("sw"))
    with pytest.raises(InternetError, match="no station 'nobody'"):
        net.lan_network("10.1.0.0/24", lan, {"new": "spare", "h0": "nobody"})
    assert lan.stations["spare"].on_frame is None
    with pytest.raises(InternetError, match=r"Lan\(agenda=net.agenda\)"):
        net.lan_network("10.1.0.0/24", Lan(), ["new"])
    with pytest.raises(AddressError, match="name the station"):
        net.networks[0].attach(net.node("new"))
    with pytest.raises(InternetError, match="cut a wire"):
        net.links["10.0.0.0/24"].cut()
    with pytest.raises(AddressError, match="overlaps"):
        net.lan_network("10.0.0.0/25", lan, ["new"])
    assert list(net.links) == ["10.0.0.0/24"]
