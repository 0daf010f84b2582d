# SPDX-License-Identifier: Apache-2.0
"""Management packets of nodes: which reach a node's function, when, and what becomes of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from verbena import fabrics, sim, verbs
from verbena.sim import World, build
from verbena.sim.doors import Mad, answer, arrive, leave

LINK: dict[str, Any] = {"rate": 100 * 10**9, "delay": 1_000_000}
LANE = {"flow": "credits", "room": 64 << 10}
SMP_TIME = 290 * 80  # of its bytes, in ps
NODE_INFO = 0x0011


def smp(*path: int, attribute: int = NODE_INFO, method: int = 1) -> bytes:
    made = bytearray(256)
    made[:4] = 1, 0x81, 1, method
    made[7] = len(path)
    made[16:18] = attribute.to_bytes(2, "big")
    made[32:36] = b"\xff" * 4
    made[129 : 129 + len(path)] = bytes(path)
    return bytes(made)


def line(lanes: bool = True, **keywords: Any) -> tuple[World, list[int], list[int]]:
    """Hosts 0 and 1, each behind a switch; the two switches are connected by their ports 2."""
    world = World(framing="infiniband", **keywords)
    hosts = [world.add_host() for _ in range(2)]
    kind: dict[str, Any] = {"lanes": [LANE], "management": 8192} if lanes else {}
    switches = [world.add_switch(3, **kind) for _ in range(2)]
    for host, switch in zip(hosts, switches, strict=True):
        world.connect(host, 0, switch, 1, **LINK)
    world.connect(switches[0], 2, switches[1], 2, **LINK)
    world.set_routes(switches[0], [1, 2])
    world.set_routes(switches[1], [2, 1])
    world.set_lids(switches, [10, 11])
    return world, hosts, switches


def serve_all(world: World, switches: list[int]) -> list[tuple[int, int, Mad]]:
    """Every node answers with its number. Returns what came for nodes, with the times."""
    seen: list[tuple[int, int, Mad]] = []

    def agent(world: World, node: int, packet: Mad) -> Mad | None:
        onward = arrive(packet, switch=node in switches)
        if onward is None or onward.port:
            return onward
        seen.append((world.now, node, onward))
        return None if packet.mad[3] & 0x80 else answer(onward, bytes([node]))

    for node in range(world.nodes):
        world.serve(node, agent)
    return seen


@pytest.mark.parametrize("lanes", [True, False])
@pytest.mark.parametrize(
    ("path", "node", "links"), [((1,), 2, 1), ((1, 2), 3, 2), ((1, 2, 1), 1, 3), ((1, 1), 0, 2)]
)
def test_a_directed_route_smp_reaches_its_node_and_returns(
    path: tuple[int, ...], node: int, links: int, lanes: bool
) -> None:
    world, hosts, switches = line(lanes)
    seen = serve_all(world, switches)
    world.send_mad(hosts[0], leave(smp(*path)))
    assert world.run() == "done"
    assert world.check(at_rest=True) is None
    hop = SMP_TIME + 1_000_000
    assert [(time, at) for time, at, _ in seen] == [(links * hop, node), (2 * links * hop, 0)]
    request, response = (packet.mad for _, _, packet in seen)
    assert request[6] == len(path) + 1
    assert response[6] == 0
    assert response[3] == 0x81
    assert response[4] == 0x80
    assert response[64] == node
    assert world.packets == {"sent": 2 * links, "delivered": 2 * links, "dropped": 0}


def test_a_set_is_answered_by_a_get_response() -> None:
    world, hosts, switches = line()
    seen = serve_all(world, switches)
    world.send_mad(hosts[0], leave(smp(1, method=2)))
    world.run()
    assert [packet.mad[3] for _, _, packet in seen] == [2, 0x81]


def test_the_return_path_is_where_it_came_in() -> None:
    world, hosts, switches = line()
    seen = serve_all(world, switches)
    world.send_mad(hosts[0], leave(smp(1, 2, 1)))
    world.run()
    assert seen[0][2].mad[193:197] == bytes([1, 2, 1, 0])


@pytest.mark.parametrize(
    ("path", "lost"), [((1, 1, 1), 0), ((1, 3), 1), ((1, 200), 1), ((1, 0), 0), ((1, 0, 2), 0)]
)
def test_a_path_through_a_host_or_nowhere_ends(path: tuple[int, ...], lost: int) -> None:
    world, hosts, switches = line()
    seen = serve_all(world, switches)
    world.send_mad(hosts[0], leave(smp(*path)))
    assert world.run() == "done"
    assert not seen
    assert world.mads_lost == lost


def test_mads_by_lid_reach_a_switch_and_its_answer_returns_on_a_data_lane() -> None:
    world, hosts, switches = line()
    seen = serve_all(world, switches)
    for first, second in zip(switches, [*switches][::-1], strict=True):
        world.set_lid_ports(first, [world.address(second).lid], 2)
    world.send_mad(hosts[0], Mad(bytes([1, 4, 1, 1]) + bytes(252), dlid=11, slid=1, qp=1, sl=2))
    world.send_mad(hosts[0], Mad(bytes([1, 1, 1, 1]) + bytes(252), dlid=11, slid=1))
    assert world.run() == "done"
    assert world.check(at_rest=True) is None
    got = {(node, packet.qp, packet.sl): packet for _, node, packet in seen}
    assert set(got) == {(3, 1, 2), (0, 1, 2), (3, 0, 0), (0, 0, 0)}
    assert (got[0, 1, 2].slid, got[0, 1, 2].dlid, got[0, 1, 2].mad[64]) == (11, 1, 3)
    assert got[3, 1, 2].qkey == 0x80010000
    assert got[3, 0, 0].qkey == 0


def test_nobody_takes_a_packet_without_a_function() -> None:
    world, hosts, switches = line()
    world.send_mad(hosts[0], leave(smp(1)))
    world.send_mad(hosts[0], Mad(bytes(256), dlid=2, slid=1, qp=1))
    world.send_mad(hosts[0], Mad(bytes(256), dlid=77, slid=1, qp=1))
    assert world.run() == "done"
    links = world.links()
    lost = links[links["dropped_route"] > 0]
    assert lost[["node", "port", "dropped_route"]].tolist() == [(2, 1, 2), (3, 1, 1)]
    seen = serve_all(world, switches)
    world.serve(switches[0], None)
    world.send_mad(hosts[0], leave(smp(1)))
    world.run()
    assert not seen
    assert world.links()["dropped_route"].sum() == 4


def test_lid_0_is_nobodys_not_even_a_switch_without_a_lid() -> None:
    world = World(framing="infiniband")
    host, switch = world.add_host(), world.add_switch(2, lanes=[LANE], management=8192)
    world.connect(host, 0, switch, 1, **LINK)
    seen = serve_all(world, [switch])
    world.send_mad(host, Mad(bytes(256), dlid=0, slid=1))
    assert world.run() == "done"
    assert not seen
    assert world.links()["dropped_route"].sum() == 1


def test_an_smp_passes_a_lane_that_is_blocked() -> None:
    world = World(framing="infiniband")
    a, b = world.add_host(), world.add_host()
    switch = world.add_switch(3, lanes=[LANE], management=8192)
    world.connect(a, 0, switch, 1, **LINK)
    world.connect(b, 0, switch, 2, rate=10**9, delay=1_000_000)
    world.set_routes(switch, [1, 2])
    world.add_flows(0, 1, 1 << 20)
    seen = serve_all(world, [switch])
    world.call_at(500_000_000, lambda world: world.send_mad(a, leave(smp(1))))
    assert world.run(until=600_000_000) == "time"
    assert world.links()["stalled"][0] > 100_000_000  # the host's lane has no credits
    begin = 500_000_000 + 1_000_000 + SMP_TIME
    assert begin <= seen[0][0] <= begin + 4138 * 80  # at most one packet was before it


def test_what_a_full_queue_of_vl15_does_not_take_is_lost() -> None:
    world, _hosts, switches = line()
    seen = serve_all(world, switches)
    for _ in range(100):
        world.send_mad(switches[0], Mad(smp(1, 2), port=2))
    assert world.run() == "done"
    full = world.links()["dropped_full"].sum()
    assert full == 100 - 1 - 8192 // 290
    assert not seen


def test_a_function_changes_tables_and_adds_flows_at_its_time() -> None:
    world, hosts, switches = line()

    def set_table(world: World, node: int, packet: Mad) -> None:
        world.set_linear_block(node, 0, packet.mad[64:128])
        world.add_flows(0, 1, 4096, world.now)

    world.set_linear_block(switches[0], 0, b"\xff" * 64)
    world.serve(switches[0], set_table)
    table = bytes([255, 1, 2]) + b"\xff" * 61
    request = Mad(bytes([1, 1, 1, 2]) + bytes(60) + table + bytes(128), dlid=10, slid=1)
    world.send_mad(hosts[0], request)
    assert world.run() == "done"
    assert world.flows()["start"].tolist() == [1_000_000 + SMP_TIME]
    assert world.flows()["state"].tolist() == [2]


def discovery(seed: int) -> tuple[list[Any], list[Any]]:
    fabric = fabrics.xgft([2, 2], [1, 2], rate="100GbE", length_m=3)
    world = World(seed, framing="infiniband")
    routes = fabrics.route(fabric, "minhop")
    build(world, routes, {"lanes": [LANE], "management": 8192})
    hosts = routes.tables.end_count
    seen = serve_all(world, list(range(hosts, world.nodes)))
    world.add_flows(np.arange(hosts), (np.arange(hosts) + 1) % hosts, 1 << 16)
    for path in ((1,), (1, 1), (1, 2), (1, 3), (1, 4), (1, 3, 1), (1, 3, 2), (1, 3, 2, 1)):
        world.send_mad(0, leave(smp(*path)))
    world.run()
    return [(time, node, packet.mad) for time, node, packet in seen], world.links().tolist()


def test_two_runs_are_equal_to_the_byte() -> None:
    first = discovery(1)
    assert len(first[0]) > 10
    assert first == discovery(1)


def test_data_is_not_changed_by_functions_that_take_nothing() -> None:
    def ends(served: bool) -> list[Any]:
        world, _, switches = line()
        if served:
            serve_all(world, switches)
        world.add_flows([0, 1], [1, 0], 1 << 20)
        world.run()
        return [*world.flows().tolist(), *world.links().tolist()]

    assert ends(True) == ends(False)


def test_functions_are_called_while_a_program_waits_in_a_blocking_call() -> None:
    world, hosts, switches = line()
    seen = serve_all(world, switches)
    host = next(iter(sim.Hosts(world)))
    with host.here(), verbs.open_device() as ctx:
        cq = ctx.create_cq(4)
        world.send_mad(hosts[1], leave(smp(1, 2)))
        assert cq.wait(1, timeout=20e-6) == []
    hop = SMP_TIME + 1_000_000
    assert [(time, node) for time, node, _ in seen] == [(2 * hop, 2), (4 * hop, 1)]


def test_the_exception_of_such_a_function_is_raised_by_the_next_run() -> None:
    world, hosts, switches = line()

    def fail(world: World, node: int, packet: Mad) -> None:
        raise KeyError(node)

    world.serve(switches[1], fail)
    host = next(iter(sim.Hosts(world)))
    with host.here(), verbs.open_device() as ctx:
        cq = ctx.create_cq(4)
        world.send_mad(hosts[1], leave(smp(1)))
        assert cq.wait(1, timeout=20e-6) == []
    with pytest.raises(KeyError, match="3"):
        world.run()


def test_an_exception_ends_the_run_which_goes_on() -> None:
    world, hosts, switches = line()

    def fail(world: World, node: int, packet: Mad) -> None:
        raise KeyError(node)

    world.serve(switches[0], fail)
    world.add_flows(0, 1, 1 << 20)
    world.send_mad(hosts[0], leave(smp(1)))
    with pytest.raises(KeyError, match="2"):
        world.run()
    assert world.now == 1_000_000 + SMP_TIME
    assert world.run() == "done"


def test_a_function_cannot_run_the_world() -> None:
    world, hosts, switches = line()
    world.serve(switches[0], lambda world, node, packet: world.run())  # type: ignore[arg-type]
    world.send_mad(hosts[0], leave(smp(1)))
    with pytest.raises(RuntimeError, match="cannot run the world"):
        world.run()


def call(name: str, *arguments: Any) -> Callable[[World], Any]:
    return lambda world: getattr(world, name)(*arguments)


@pytest.mark.parametrize(
    ("wrong", "error", "why"),
    [
        (call("serve", 9, print), ValueError, "there is no node 9"),
        (call("serve", 2, 3), TypeError, "function is 3, and not a function"),
        (call("send_mad", 0, b""), TypeError, "is a Mad, and not b''"),
        (call("send_mad", 0, Mad(bytes(255))), ValueError, "a MAD has 256 bytes"),
        (call("send_mad", 0, Mad(bytes(256), qp=2)), ValueError, "go to QP 0 and QP 1"),
        (call("send_mad", 0, Mad(bytes(256), dlid=1 << 16)), ValueError, "dlid is 65536"),
        (call("send_mad", 0, Mad(bytes(256), port=2)), ValueError, "a host's port is 1"),
        (call("send_mad", 2, Mad(bytes(256), port=3)), ValueError, "there is no port 3 of node 2"),
    ],
)
def test_wrong_use_is_refused(wrong: Callable[[World], Any], error: Any, why: str) -> None:
    world, *_ = line()
    with pytest.raises(error, match=why):
        wrong(world)


def test_only_infiniband_with_vl15_and_port_0_manages() -> None:
    world = World()
    world.add_host()
    with pytest.raises(ValueError, match="a host of Ethernet, which has no management packets"):
        world.serve(0, print)
    with pytest.raises(ValueError, match="a host of Ethernet"):
        world.send_mad(0, Mad(bytes(256)))
    world = World(framing="infiniband")
    host, switch = world.add_host(), world.add_switch(2, lanes=[LANE])
    world.connect(host, 0, switch, 0, **LINK)
    with pytest.raises(ValueError, match="port 0 of node 1 has a link"):
        world.serve(switch, print)
    with pytest.raises(ValueError, match=r"no VL15 .*management=8192"):
        world.send_mad(host, Mad(bytes(256)))
    lonely = world.add_host()
    world.send_mad(lonely, Mad(bytes(256)))
    assert world.mads_lost == 1


@pytest.mark.parametrize("wrong", [smp(), smp(*[1] * 64), bytes(256)])
def test_only_a_path_with_hops_leaves(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="1 to 63 hops"):
        leave(wrong)
