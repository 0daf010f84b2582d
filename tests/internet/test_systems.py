# SPDX-License-Identifier: Apache-2.0
"""Routes between autonomous systems: policies, oscillation, losses, and what becomes of packets."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.internet.systems import GADGETS, gadget, random_systems, stable_state
from tests.native.test_tshark import FLAWS, run_tshark
from verbena.internet import Internet, NotConvergedError
from verbena.internet.autonomous_systems import AutonomousSystems
from verbena.internet.bgp_policy import Leak, Relation
from verbena.internet.bgp_session import BgpSettings, BgpState
from verbena.internet.errors import AddressError, InternetError
from verbena.internet.tcp_sender import TcpSettings

TARGET = IPv4Network("10.9.0.0/24")


def check_routes(systems: AutonomousSystems) -> None:
    """Every speaker has the path that the relations allow, and no other."""
    for number in systems.systems:
        expected = stable_state(systems.relations, number)
        for system in systems.systems.values():
            for speaker in system.speakers.values():
                for prefix in systems.systems[number].networks:
                    route = speaker.best.get(prefix)
                    found = None if route is None else (route.learnt, len(route.path))
                    assert found == expected.get(system.number), (system, prefix)
                    if route is not None:
                        assert systems.is_valley_free([system.number, *route.path])


def check_packets(systems: AutonomousSystems) -> None:
    """A packet crosses as many systems as its path says, or a router says that there is no way."""
    net = systems.net
    hosts = [node for node in net.nodes.values() if not node.forwards]
    for number in systems.systems:
        expected = stable_state(systems.relations, number)
        target = next(one for one in hosts if one.name == f"h{number}a")
        for host in (one for one in hosts if one is not target):
            here = int(host.name[1:-1])
            (reply,) = net.ping(host, target)
            if here not in expected or (here != number and not systems.systems[here].speakers):
                assert (reply.ok, reply.text) == (False, "network unreachable")
            elif number in stable_state(systems.relations, here) or here == number:
                crossed = systems.crossed(hop.sender for hop in net.traceroute(host, target))
                assert reply.ok
                assert len(crossed) == expected[here][1] + 1
                assert systems.is_valley_free(crossed)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**20), count=st.integers(2, 5))
def test_random_systems_find_the_paths_that_their_relations_allow(seed: int, count: int) -> None:
    systems = random_systems(seed, count)
    systems.net.converge()
    check_routes(systems)
    check_packets(systems)


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**20), silent=st.booleans())
def test_random_systems_find_other_paths_when_links_are_cut(seed: int, silent: bool) -> None:
    systems = random_systems(seed, 4)
    net = systems.net
    net.converge()
    first = [name for name in net.links if name.endswith("-0") and name[0].isdigit()]
    for name in first[:2]:
        net.links[name].cut(silent=silent)
        left, right = map(int, name.split("-")[:2])
        if f"{left}-{right}-1" not in net.links:
            del systems.relations[left, right], systems.relations[right, left]
    net.converge()
    check_routes(systems)
    check_packets(systems)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", GADGETS)
def test_a_bad_gadget_never_settles_and_the_others_do(name: str, seed: int) -> None:
    systems = gadget(name, seed)
    if name == "BAD GADGET":
        with pytest.raises(NotConvergedError):
            systems.net.converge(limit_s=900)
        return
    systems.net.converge()
    wishes = GADGETS[name]
    best = {}
    for number in wishes:
        (speaker,) = systems.systems[number].speakers.values()
        best[number] = list(speaker.best[TARGET].path)
    # Nobody can do better with what the others use.
    for number, paths in wishes.items():
        offered = [path for path in paths if len(path) == 1 or best[path[0]] == path[1:]]
        assert best[number] == offered[0]


def three(**line: object) -> tuple[Internet, AutonomousSystems]:
    """Two systems with one provider and a peering between them, one router each."""
    net = Internet(seed=4)
    systems = AutonomousSystems(net)
    for number, name in enumerate(("top", "left", "right"), 1):
        net.router(name)
        net.host(f"{name}-host")
        net.network(f"10.{number}.0.0/24", name, f"{name}-host")
        systems.add(number, name)
    systems.provide("top", "left", **line)
    systems.provide("top", "right", **line)
    systems.peer("left", "right", **line)
    net.converge()
    return net, systems


def test_a_peering_is_preferred_and_replaced_by_the_provider_when_it_is_cut() -> None:
    net, systems = three()

    def way() -> list[int]:
        hops = net.traceroute("left-host", "right-host")
        return systems.crossed(hop.sender for hop in hops)

    assert way() == [2, 3]
    net.links["left-right"].cut()
    assert net.converge() < 30
    assert way() == [2, 1, 3]
    net.links["left-right"].restore()
    net.converge()
    assert way() == [2, 3]
    net.links["left-right"].cut(silent=True)
    assert 60 <= net.converge() <= 90  # the hold time, less what passed since the last KEEPALIVE
    assert way() == [2, 1, 3]


def test_a_peer_is_no_transit_and_a_leak_makes_it_one() -> None:
    for policy, way in ((None, None), (Leak(), [1, 2, 3])):
        net = Internet(seed=4)
        systems = AutonomousSystems(net)
        for number, name in enumerate(("one", "between", "other"), 1):
            net.router(name)
            net.host(f"{name}-host")
            net.network(f"10.{number}.0.0/24", name, f"{name}-host")
            systems.add(number, name, policy=policy)
        systems.peer("one", "between")
        systems.peer("between", "other")
        net.converge()
        (speaker,) = systems.systems[1].speakers.values()
        route = speaker.best.get(IPv4Network("10.3.0.0/24"))
        assert (None if route is None else [1, *route.path]) == way
        assert way is None or not systems.is_valley_free(way)
        reply = net.ping("one-host", "other-host")[0]
        assert reply.ok == (way is not None)


def test_changes_within_the_interval_are_told_together() -> None:
    net, systems = three()
    (speaker,) = systems.systems[2].speakers.values()
    (top,) = systems.systems[1].speakers.values()
    peer = next(one for one in top.neighbours.values() if one.system == 2)
    before = peer.session.sent
    for at in range(20):
        top.node.add_static_route(f"10.77.{at}.0/24", net.node("top-host").address)
        top.originate(f"10.77.{at}.0/24")
        net.run(1)
    updates = peer.session.sent - before
    assert updates <= 3  # one at once, one after the interval, perhaps a KEEPALIVE
    net.run(60)
    assert peer.is_up
    assert sum(prefix.subnet_of(IPv4Network("10.77.0.0/16")) for prefix in speaker.best) == 20


def test_a_router_that_restarts_is_talked_to_again() -> None:
    net, systems = three()
    node = net.node("right")
    node.tcp.connections.clear()  # it has forgotten its connections
    (speaker,) = systems.systems[3].speakers.values()
    for neighbour in speaker.neighbours.values():
        neighbour.session.stop("a restart", tell=False)
    net.run(400)
    assert {one.session.state for one in speaker.neighbours.values()} == {BgpState.ESTABLISHED}
    check_routes(systems)


def test_mistakes_say_what_to_do() -> None:
    net, systems = three()
    with pytest.raises(InternetError, match="two systems have one relation"):
        systems.provide("left", "right")
    with pytest.raises(AddressError, match="there is a system 1 already"):
        systems.add(1, "top")
    net.router("new")
    with pytest.raises(AddressError, match="router of no system"):
        systems.peer("new", "top")
    with pytest.raises(InternetError, match="has no network"):
        systems.add(4, "new")
    net.network("10.4.0.0/24", "new")
    with pytest.raises(InternetError, match="'link state' and 'distance vector'"):
        systems.add(4, "new", interior="smoke signals")
    with pytest.raises(InternetError, match="is a host"):
        systems.add(4, "top-host")
    with pytest.raises(AddressError, match="1 to 65535"):
        systems.add(70000, "new")
    (speaker,) = systems.systems[1].speakers.values()
    with pytest.raises(InternetError, match="a hold time of 2 s"):
        BgpSettings(hold_s=2)
    with pytest.raises(InternetError, match="windows of 1 to 65535"):
        TcpSettings(window=100_000)
    with pytest.raises(AddressError, match="needs a relation"):
        speaker.add_neighbour("100.64.0.99", 77)
    with pytest.raises(AddressError, match="on none of its links"):
        speaker.add_neighbour("100.64.0.99", 77, Relation.PEER)


@pytest.mark.debian
def test_tshark_reads_the_sessions(tmp_path: Path, debian_program: Callable[[str], str]) -> None:
    program = debian_program("tshark")
    net, _ = three()
    file = tmp_path / "bgp.pcapng"
    with net.capture(file) as capture:
        net.links["left-right"].cut()
        net.run(60)
        net.links["left-right"].restore()
        net.run(120)
    rows = run_tshark(program, file, "-T", "fields", "-e", "_ws.col.Protocol")
    assert len(rows) == capture.frames
    kinds = run_tshark(program, file, "-Y", "bgp", "-T", "fields", "-e", "bgp.type")
    assert {kind for row in kinds for kind in row.split(",")} == {"1", "2", "3", "4"}
    paths = run_tshark(
        program,
        file,
        "-Y",
        "bgp.type == 2",
        "-T",
        "fields",
        "-e",
        "bgp.update.path_attribute.as_path_segment.as2",
    )
    assert "2" in {system for row in paths for system in row.replace("\t", ",").split(",")}
    # Segments of the cut connections are sent again, and reset at last: that is no flaw.
    assert (
        run_tshark(
            program, file, "-Y", f"({FLAWS}) && !tcp.analysis.flags && !tcp.flags.reset == 1"
        )
        == []
    )
