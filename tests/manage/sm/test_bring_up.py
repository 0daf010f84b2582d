# SPDX-License-Identifier: Apache-2.0
"""Subnets come up: every pair of ports has a way, by each engine, with LMC, and with lost SMPs."""

from __future__ import annotations

from random import Random

import pytest

from tests.manage.sm.asking import SaClient
from tests.manage.sm.managed import ManagedSubnet, problems_of
from verbena import fabrics
from verbena.fabrics import Fabric
from verbena.manage.agents import NodePort, PortEvent, Subnet, subnet_of_fabric
from verbena.manage.codes import SmState
from verbena.manage.sa_records import NodeRecord, PathRecord


def random_fabric(seed: int) -> Fabric:
    """Connected switches with random cables, some twice, and one or two ports at each host."""
    random = Random(seed)
    fabric = Fabric(f"random {seed}")
    switches = [fabric.add_switch(f"s{n}", ports=24) for n in range(random.randint(1, 7))]
    for number, switch in enumerate(switches[1:], 1):
        fabric.connect(switch, random.choice(switches[:number]), rate="4xEDR")
    for _ in range(random.randint(0, 2 * len(switches))):
        if len(switches) > 1:
            a, b = random.sample(switches, 2)
            fabric.connect(a, b, rate=random.choice(["4xEDR", "4xHDR", "1xEDR"]))
    for number in range(random.randint(2, 12)):
        host = fabric.add_host(f"h{number}", ports=2)
        for _ in range(random.randint(1, 2)):
            fabric.connect(host, random.choice(switches))
    return fabric


@pytest.mark.parametrize("seed", range(40))
def test_a_random_subnet_comes_up(seed: int) -> None:
    fabric = random_fabric(seed)
    managed = ManagedSubnet(fabric)
    random = Random(seed)
    manager = managed.add(fabric.hosts[0], lmc=random.choice([0, 0, 1, 2]))
    managed.run()
    assert manager.state == SmState.MASTER
    assert problems_of(managed) == []
    assert manager.problems == []
    found = {node.guid for node in manager.subnet.nodes.values()}
    assert found == {fabric.guid(name) for name in fabric.graph}


@pytest.mark.parametrize("seed", range(10))
def test_lost_smps_are_sent_again(seed: int) -> None:
    fabric = random_fabric(seed + 100)
    managed = ManagedSubnet(fabric, seed)
    managed.lose = lambda packet: managed.random.random() < 0.05
    managed.add(fabric.hosts[0], retries=6)
    managed.run(60)
    managed.lose = lambda packet: False
    managed.run(60)
    assert problems_of(managed) == []


ENGINES = [
    ("minhop", fabrics.clos2(8), {}),
    ("updn", fabrics.clos2(8), {}),
    ("updn", fabrics.ring(5), {"roots": ["s0"]}),
    ("ftree", fabrics.fat_tree(4), {}),
    ("dor", fabrics.torus((4, 4)), {}),
    ("sssp", fabrics.torus((3, 3)), {}),
    ("dfsssp", fabrics.torus((5, 5)), {}),
    ("dragonfly", fabrics.dragonfly(2, 4, 2), {}),
]
DEADLOCK_FREE = {"updn", "ftree", "dor", "dfsssp", "dragonfly"}


@pytest.mark.parametrize(("engine", "fabric", "options"), ENGINES)
@pytest.mark.parametrize("lmc", [0, 2])
def test_every_engine_routes(
    engine: str, fabric: Fabric, options: dict[str, object], lmc: int
) -> None:
    managed = ManagedSubnet(fabric)
    attributes = {
        fabric.guid(name): {
            key: value
            for key, value in fabric.graph.nodes[name].items()
            if key in ("group", "coordinate")
        }
        for name in fabric.switches
    }
    manager = managed.add(
        fabric.hosts[0], engine=engine, engine_options=options, node_attributes=attributes, lmc=lmc
    )
    managed.run()
    assert problems_of(managed, between_switches=engine not in ("updn", "ftree")) == []
    assert manager.problems == []
    assert manager.routes is not None
    assert manager.routes.routes.engine == engine
    if engine in DEADLOCK_FREE:
        assert fabrics.credit_loop(manager.routes.routes) is None


def test_further_lids_take_further_ways() -> None:
    managed = ManagedSubnet(fabrics.clos2(8))
    managed.add("h0", lmc=2)
    managed.run()
    one, other = (managed.subnet.node(name).ports[1] for name in ("h1", "h30"))
    spines = {managed.subnet.path(one.lid, lid).hops[2].node.name for lid in other.lids}
    assert spines == {"a0", "a1", "a2", "a3"}


def test_a_new_master_lets_clients_register_again() -> None:
    managed = ManagedSubnet(fabrics.clos2(8))
    manager = managed.add("h0", priority=1)
    managed.run()
    asked: list[str] = []

    def happened(port: NodePort, event: PortEvent) -> None:
        if event is PortEvent.CLIENT_REREGISTER:
            asked.append(port.node.name)

    managed.subnet.on_port_event = happened
    manager.request_sweep()
    managed.run()
    assert asked == []
    managed.add("h9", priority=2)
    managed.run(15)
    assert set(asked) >= {name for name in managed.subnet.nodes if name.startswith("h")}


def test_nothing_is_set_again() -> None:
    managed = ManagedSubnet(fabrics.clos2(8))
    manager = managed.add("h0")
    managed.run()
    managed.keep = True
    manager.request_sweep()
    managed.run()
    assert manager.sweeps == 2
    assert {packet.mad[3] for _, packet in managed.sent} == {1}


def test_a_second_manager_program_keeps_the_lids() -> None:
    fabric = fabrics.clos2(8)
    subnet = subnet_of_fabric(fabric)
    managed = ManagedSubnet(subnet)
    managed.add("h3")
    managed.run()
    lids = {name: node.end_ports()[0].lid for name, node in subnet.nodes.items()}
    managed.stop("h3")
    managed.add("h20")
    managed.run()
    assert {name: node.end_ports()[0].lid for name, node in subnet.nodes.items()} == lids
    assert problems_of(managed) == []


def test_two_hosts_and_a_cable() -> None:
    managed = ManagedSubnet(fabrics.pair())
    managed.add("h0", lmc=1)
    managed.run()
    assert problems_of(managed) == []
    assert managed.masters[0].problems == []
    client = SaClient(managed, "h1")
    paths = {(path.slid, path.dlid) for path in client.table(PathRecord)}
    assert paths == {(2, 2), (3, 3), (4, 4), (5, 5), (2, 4), (3, 5), (4, 2), (5, 3)}


def test_a_host_without_a_link_manages_itself() -> None:
    subnet = Subnet()
    subnet.add_adapter("alone")
    managed = ManagedSubnet(subnet)
    manager = managed.add("alone")
    managed.run(30)
    assert manager.state == SmState.MASTER
    assert manager.lid == 1
    assert manager.problems == []


def test_routes_longer_than_a_packet_can_have() -> None:
    fabric = fabrics.chain(70, 1)
    managed = ManagedSubnet(fabric)
    manager = managed.add("h0")
    managed.run(2)
    assert len(manager.subnet.switches) == 63
    assert any("at most 63 hops" in each for each in manager.problems)


def test_a_manager_on_a_switch() -> None:
    managed = ManagedSubnet(fabrics.clos2(8))
    managed.add("e3")
    managed.run()
    assert problems_of(managed) == []
    client = SaClient(managed, "h9")
    assert len(client.table(NodeRecord)) == len(managed.subnet.nodes)
    managed.subnet.cut("e0", 5)
    managed.run(5)
    assert problems_of(managed) == []


def test_an_m_key_protects_the_ports() -> None:
    managed = ManagedSubnet(fabrics.clos2(8))
    managed.add("h0", m_key=0x1234, m_key_protect_bits=2, m_key_lease_period=60)
    managed.run()
    assert problems_of(managed) == []
    managed.stop("h0")
    stranger = managed.add("h5", retries=0)
    managed.run(3)
    assert stranger.state != SmState.MASTER or len(stranger.subnet.nodes) < 3
    managed.stop("h5")
    managed.add("h6", m_key=0x1234, m_key_protect_bits=2)
    managed.run(5)
    assert problems_of(managed) == []
