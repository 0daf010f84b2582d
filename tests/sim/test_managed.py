# SPDX-License-Identifier: Apache-2.0
"""Agents and subnet managers of simulated fabrics: what a manager sets is what packets find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verbena import fabrics
from verbena.manage.agents import MadPacket, subnet_of_fabric
from verbena.manage.attribute_ids import Method
from verbena.manage.codes import PortState, gid_from
from verbena.manage.mad import GENERAL_QKEY, PerformanceMad, SaMad
from verbena.manage.notices import TrapNumber
from verbena.manage.pma_counters import PortCountersExtended
from verbena.manage.sa_query import SaQuery
from verbena.manage.sa_records import PathRecord
from verbena.manage.sm import SmSettings, SubnetManager
from verbena.sim import World, build
from verbena.sim.build import MANAGED, build_bare
from verbena.sim.managed import AgentTimes, ManagedWorld
from verbena.sim.managers import NotBroughtUpError, SimulatedManager, bring_up

SECOND, MILLI, MICRO = 10**12, 10**9, 10**6


def clos(radix: int = 4) -> fabrics.Fabric:
    return fabrics.clos2(radix, rate="4xEDR", length_m=5)


def bare(
    fabric: fabrics.Fabric | None = None,
    settings: SmSettings | None = None,
    times: AgentTimes | None = None,
    errors: float = 0.0,
    **keywords: Any,
) -> tuple[World, ManagedWorld, SimulatedManager]:
    fabric = fabric or clos()
    world = World(framing="infiniband", **keywords)
    build_bare(world, fabric, bit_error_rate=errors)
    managed = ManagedWorld(world, fabric, times=times)
    return world, managed, SimulatedManager(managed, fabric.hosts[0], settings)


def tables(world: World, managed: ManagedWorld) -> dict[str, bytes]:
    hosts = len(managed.fabric.hosts)
    return {
        name: world.linear_block(hosts + number, 0)
        for number, name in enumerate(managed.fabric.switches)
    }


def all_reach_all(world: World, hosts: int, size: int = 4096) -> None:
    first = len(world.flows())
    pairs = [(a, b) for a in range(hosts) for b in range(hosts) if a != b]
    world.add_flows([a for a, _ in pairs], [b for _, b in pairs], size, world.now)
    world.run(world.now + SECOND)
    assert (world.flows()["state"][first:] == 2).all()


def test_a_bare_fabric_has_no_addresses_and_no_routes() -> None:
    world, managed, _ = bare()
    assert {world.address(node).lid for node in range(world.nodes)} == {0}
    assert {port.state for port in managed.agent("h0").ports.values()} == {PortState.INIT}
    with pytest.raises(ValueError, match="no way leads"):
        world.add_flows(0, 1, 1)


@pytest.mark.parametrize("engine", ["minhop", "updn"])
def test_what_the_manager_sets_is_what_it_sets_in_a_subnet_in_memory(engine: str) -> None:
    settings = SmSettings(engine=engine)
    world, managed, manager = bare(settings=settings)
    record = bring_up(manager)
    assert manager.is_up
    assert manager.manager.problems == []
    memory = subnet_of_fabric(managed.fabric)
    for name, agent in memory.nodes.items():
        for port in agent.end_ports():
            agent.set_guid(managed.agent(name).guid)
            agent.set_port_guid(port.number, managed.agent(name).end_port(port.number).guid)
    other = SubnetManager(memory.node("h0").ports[1].guid, settings)

    def send(packets: list[MadPacket]) -> None:
        for packet in packets:
            memory.inject("h0", packet)

    memory.attach("h0", lambda packet: send(other.receive(packet, 0.0)))
    send(other.start(0.0))
    assert other.sweeps == 1
    for name, agent in memory.nodes.items():
        for port in agent.end_ports():
            assert managed.agent(name).end_port(port.number).lid == port.lid
        if agent.forwarding is not None:
            mine = managed.agent(name).forwarding
            assert mine is not None
            assert agent.forwarding.linear_block(0) == mine.linear_block(0)
            # What the world forwards by is what the agent was told.
            own = bytearray(mine.linear_block(0))
            assert tables(world, managed)[name] == bytes(own)
    assert record.mads <= other.mads_sent  # which counts the light sweep behind it, too
    hosts = [world.address(node).lid for node in range(len(managed.fabric.hosts))]
    assert sorted(hosts) == sorted(memory.node(name).ports[1].lid for name in managed.fabric.hosts)
    all_reach_all(world, len(hosts))
    assert world.check() is None


def test_phases_follow_each_other_and_more_smps_at_once_take_less_time() -> None:
    times = []
    for most in (1, 4, 16):
        world, _, manager = bare(clos(8), SmSettings(most_smps=most))
        record = bring_up(manager)
        assert record.end == world.now
        assert list(record.phases.values()) == sorted(record.phases.values())
        assert record.discovered is not None
        assert record.tables_set is not None
        assert record.begin < record.discovered < record.tables_set < world.now
        times.append(world.now)
    assert times[0] > 2 * times[1] > 2 * times[2]


def test_the_time_of_one_request_after_the_other_is_that_of_its_parts() -> None:
    """A pair of hosts behind a switch: every SMP goes over one or two links, there and back."""
    fabric = fabrics.one_switch(2, rate="4xEDR", length_m=0)
    times = AgentTimes(answer=1000 * MICRO, forward=0, program=0)
    world, _, manager = bare(fabric, SmSettings(most_smps=1), times)
    record = bring_up(manager)
    links = 4 * 290 * 80
    assert record.mads * 1000 * MICRO <= world.now <= record.mads * (1000 * MICRO + links)


def test_runs_are_equal_for_any_number_of_threads() -> None:
    def run(threads: int) -> list[Any]:
        world, managed, manager = bare(threads=threads, errors=1e-6, seed=3)
        bring_up(manager)
        managed.set_link("e0", 3, False, world.now + MILLI)
        world.run(world.now + 100 * MILLI)
        return [manager.sweeps, manager.traps, world.links().tolist(), tables(world, managed)]

    first = run(1)
    assert first == run(2) == run(3)


def test_lost_smps_are_repeated() -> None:
    world, _, manager = bare(errors=2e-5, settings=SmSettings(timeout=0.001, retries=9), seed=1)
    record = bring_up(manager)
    assert record.repeated > 0
    assert world.links()["dropped_damaged"].sum() >= record.repeated
    assert manager.manager.problems == []


def test_a_manager_that_nobody_answers_gives_up() -> None:
    world, managed, manager = bare()
    managed.set_link("h0", 1, False, 0)
    with pytest.raises(NotBroughtUpError, match=r"the subnet is not up at 0\.5 s"):
        bring_up(manager, SECOND // 2)
    managed.set_link("h0", 1, True, world.now)
    world.run(world.now + 12 * SECOND)
    assert manager.is_up
    assert len(manager.manager.subnet.nodes) == 14


def test_a_dead_link_is_told_by_a_trap_and_new_routes_carry_the_flows() -> None:
    world, managed, manager = bare(clos(8), timeout=10, retry_count=7)
    bring_up(manager)
    hosts = len(managed.fabric.hosts)
    source = np.arange(hosts)
    world.add_flows(source, (source + 7) % hosts, 32 << 20, world.now)
    death = world.now + MILLI
    managed.kill("a1", death)
    assert world.run(world.now + SECOND) == "time"
    assert (world.flows()["state"] == 2).all()
    assert world.flows()["resent"].sum() > 0
    at, notice = manager.traps[0]
    assert notice.trap_number == TrapNumber.LINK_STATE
    assert death + 100 * MICRO < at < death + MILLI
    after = [sweep for sweep in manager.sweeps if sweep.begin >= death]
    assert after[0].begin == at
    assert len(manager.manager.subnet.nodes) == hosts + 11
    for name, agent in managed.agents.items():
        if name.startswith("e"):
            toward = next(
                port for port in agent.ports.values() if port.peer and port.peer.node.name == "a1"
            )
            assert toward.state == PortState.DOWN
            assert toward.number not in tables(world, managed)[name]


def test_without_traps_a_light_sweep_finds_it() -> None:
    quick = SmSettings(sweep_interval=0.01, timeout=0.001, retries=1)
    world, managed, manager = bare(settings=quick)
    bring_up(manager)
    for agent in managed.agents.values():
        agent.traps.notify = lambda *_: None  # type: ignore[method-assign]
    death = world.now + MILLI
    managed.set_link("e0", 3, False, death)
    world.run(world.now + 30 * MILLI)
    assert manager.traps == []
    later = [sweep for sweep in manager.sweeps if sweep.begin >= death]
    assert later
    assert later[0].begin < death + 13 * MILLI  # two tries of a request across it, too
    all_reach_all(world, len(managed.fabric.hosts))


def test_a_light_sweep_that_has_found_a_change_waits_for_nothing_else() -> None:
    patient = SmSettings(sweep_interval=0.01, timeout=0.2, retries=3)
    world, managed, manager = bare(settings=patient)
    bring_up(manager)
    for agent in managed.agents.values():
        agent.traps.notify = lambda *_: None  # type: ignore[method-assign]
    death = world.now + MILLI
    managed.kill("a0", death)  # which has no way to answer any more
    world.run(world.now + 30 * MILLI)
    later = [sweep for sweep in manager.sweeps if sweep.begin >= death]
    assert later
    assert later[0].begin < death + 13 * MILLI


def test_a_trap_during_a_light_sweep_begins_a_heavy_one_at_once() -> None:
    patient = SmSettings(sweep_interval=0.01, timeout=0.2, retries=3)
    world, managed, manager = bare(settings=patient)
    bring_up(manager)
    world.run(world.now + 5 * MILLI)
    due = manager.manager.next_deadline()
    assert due is not None
    death = int(due * SECOND) - MILLI // 20
    managed.kill("a0", death)  # whose neighbours notice after the light sweep has asked
    world.run(death + 5 * MILLI)
    assert manager.manager.light_sweeps
    later = [sweep for sweep in manager.sweeps if sweep.begin >= death]
    assert later
    assert later[0].begin < death + MILLI


def test_a_link_that_comes_back_carries_data_once_the_manager_has_made_it_active() -> None:
    world, managed, manager = bare()
    bring_up(manager)
    before = tables(world, managed)
    managed.set_link("e0", 3, False, world.now)
    world.run(world.now + 50 * MILLI)
    assert tables(world, managed) != before
    managed.set_link("e0", 3, True, world.now)
    world.run(world.now + 2 * SECOND)  # an equal trap keeps the distance of a repetition
    assert tables(world, managed) == before
    assert {port.state for port in managed.agent("e0").ports.values() if port.peer} == {4}


def test_ports_that_are_not_active_pass_no_data() -> None:
    world, managed, manager = bare()
    bring_up(manager)
    port = managed.agent("e0").ports[3]
    port.put_state(PortState.INIT)
    managed._changed[port.node] = None
    managed.settle()
    assert 3 not in tables(world, managed)["e0"]


def test_a_second_manager_stands_by_and_takes_over() -> None:
    quick = SmSettings(polling_timeout=0.02, polling_retries=1, timeout=0.001, retries=1)
    world, managed, manager = bare(settings=quick)
    second = SimulatedManager(managed, "h5", quick)
    bring_up(manager)
    second.start()
    world.run(world.now + 50 * MILLI)
    assert (manager.manager.state.name, second.manager.state.name) == ("MASTER", "STANDBY")
    managed.kill("h0", world.now)
    world.run(world.now + 300 * MILLI)
    assert second.manager.state.name == "MASTER"
    assert len(second.manager.subnet.nodes) == 13


def test_a_standby_does_not_repeat_a_poll_within_itself() -> None:
    patient = SmSettings(polling_timeout=0.02, polling_retries=1, timeout=0.2, retries=3)
    world, managed, manager = bare(settings=patient)
    second = SimulatedManager(managed, "h5", patient)
    bring_up(manager)
    second.start()
    world.run(world.now + 50 * MILLI)
    assert second.manager.state.name == "STANDBY"
    managed.kill("h0", world.now)
    world.run(world.now + 450 * MILLI)  # two polls that are not answered
    assert second.manager.state.name in ("DISCOVERING", "MASTER")


def asked(managed: ManagedWorld, world: World, host: str, packet: MadPacket) -> list[MadPacket]:
    port, got = managed.agent(host).ports[1], list[MadPacket]()

    def taker(packet: MadPacket) -> bool:
        got.append(packet)
        return True

    managed.attach(port, taker)
    managed.send(port, [packet])
    world.run(world.now + 10 * MILLI)
    managed.detach(port, taker)
    return got


def test_a_host_asks_subnet_administration_over_the_wire() -> None:
    world, managed, manager = bare()
    bring_up(manager)
    one, other = (managed.agent(name).ports[1] for name in ("h3", "h6"))
    prefix = manager.manager.settings.gid_prefix
    query = SaQuery.of(
        PathRecord, sgid=gid_from(prefix, one.guid), dgid=gid_from(prefix, other.guid), numb_path=1
    )
    assert gid_from(prefix, one.guid) == world.address(managed.node_of(one)).gid
    request = query.put_into(SaMad(transaction_id=9, method=Method.GET)).pack()
    packet = MadPacket(request, 1, one.master_sm_lid, one.lid, 1, 1, q_key=GENERAL_QKEY)
    (answer,) = asked(managed, world, "h3", packet)
    path = PathRecord.unpack(answer.mad, 56)
    assert (path.slid, path.dlid) == (one.lid, other.lid)
    assert path.mtu.payload == 4096


def test_performance_counters_are_those_of_the_links() -> None:
    world, managed, manager = bare()
    bring_up(manager)
    world.add_flows(0, 5, 1 << 20, world.now)
    world.run(world.now + 10 * MILLI)
    port = managed.agent("h0").ports[1]
    request = PerformanceMad(transaction_id=4, method=Method.GET).with_attribute(
        PortCountersExtended(port_select=1)
    )
    leaf = managed.agent("h5").ports[1]
    packet = MadPacket(request.pack(), 1, leaf.lid, port.lid, 1, 1, q_key=GENERAL_QKEY)
    (answer,) = asked(managed, world, "h0", packet)
    counters = PerformanceMad.unpack(answer.mad).attribute(PortCountersExtended)
    assert counters.rcv_packets >= 256
    assert counters.rcv_data >= (1 << 20) // 4


def test_a_fabric_that_was_managed_before_keeps_its_tables() -> None:
    fabric = clos()
    world = World(framing="infiniband")
    build(world, fabrics.route(fabric, "minhop"), MANAGED)
    hosts = len(fabric.hosts)
    before = [world.linear_block(node, 0) for node in range(hosts, world.nodes)]
    managed = ManagedWorld(world, fabric, bare=False)
    manager = SimulatedManager(managed, "h0", SmSettings(engine="minhop"))
    lids = [world.address(node).lid for node in range(world.nodes)]
    world.add_flows(range(1, hosts), 0, 8 << 20)
    bring_up(manager)
    assert manager.manager.problems == []
    assert [world.address(node).lid for node in range(world.nodes)] == lids
    world.run(world.now + SECOND)
    assert (world.flows()["state"] == 2).all()
    assert world.flows()["resent"].sum() == 0
    assert [len(table) for table in before] == [64] * len(fabric.switches)


def test_engines_with_lanes_set_the_tables_of_lanes() -> None:
    fabric = fabrics.ring(6, rate="4xEDR", length_m=5)
    world = World(framing="infiniband")
    lanes = [{"flow": "credits", "room": 16 << 10}] * 2
    build_bare(world, fabric, {"lanes": lanes, "management": 8192})
    managed = ManagedWorld(world, fabric)
    manager = SimulatedManager(managed, "h0", SmSettings(engine="dfsssp"))
    bring_up(manager)
    assert manager.manager.problems == []
    assert all(node.lanes for node in managed._nodes if not node.port)


def test_what_is_no_managed_fabric_is_refused() -> None:
    world, managed, _ = bare()
    with pytest.raises(ValueError, match="has no node 'x'"):
        managed.agent("x")
    with pytest.raises(ValueError, match="h0 has no link at port 2"):
        managed.set_link("h0", 2, False, 0)
    with pytest.raises(ValueError, match="the world has 0 nodes"):
        ManagedWorld(World(framing="infiniband"), clos())
    with pytest.raises(TypeError, match="the Fabric"):
        ManagedWorld(world, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="14 nodes already"):
        build_bare(world, clos())
