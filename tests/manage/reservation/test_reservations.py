# SPDX-License-Identifier: Apache-2.0
"""Reservations along paths: no link is given away twice, and every exchange costs what it says."""

from __future__ import annotations

from random import Random

import pytest

from tests.manage.sm.managed import ManagedSubnet
from verbena import fabrics
from verbena.fabrics import Fabric
from verbena.manage.agents import MadPacket, NodeAgent
from verbena.manage.reservation import (
    LinkBudgets,
    RefusalReason,
    ReservationAgent,
    ReservationKind,
)
from verbena.manage.reservation.messages import RESERVATION_CLASS

BANDWIDTH, BUFFER = ReservationKind.BANDWIDTH, ReservationKind.BUFFER


class ReservingSubnet:
    """A managed subnet with a reservation agent at each node."""

    def __init__(self, fabric: Fabric, **budgets: float) -> None:
        self.managed = ManagedSubnet(fabric)
        self.managed.add("h0")
        self.managed.run()
        self.subnet = self.managed.subnet
        self.lost = 0.0
        self.random = Random(1)
        self.count = 0
        self.agents = {name: self._agent(node) for name, node in self.subnet.nodes.items()}
        self.budgets = LinkBudgets(self.managed.masters[0], **budgets)  # type: ignore[arg-type]
        for name, node in self.subnet.nodes.items():
            self._attach(name, node)
        self.send("h0", self.budgets.program(self.now))
        self.count = 0

    @property
    def now(self) -> float:
        return self.managed.now

    def _agent(self, node: NodeAgent) -> ReservationAgent:
        end = node.end_ports()[0]

        def output(dlid: int) -> int | None:
            if node.forwarding is None:
                return end.number
            port = node.forwarding.output_port(dlid)
            return port if 0 < port < 255 else None

        return ReservationAgent(lambda: end.lid, lambda: end.master_sm_lid, output, port=end.number)

    def _attach(self, name: str, node: NodeAgent) -> None:
        manager = node.receivers.get(node.end_ports()[0].number)

        def receive(packet: MadPacket) -> None:
            if packet.mad[1] != RESERVATION_CLASS:
                assert manager is not None
                manager(packet)
                return
            if name == "h0":
                self.budgets.receive(packet, self.now)
            self.send(name, self.agents[name].receive(packet, self.now))

        self.subnet.attach(name, receive)

    def send(self, name: str, packets: list[MadPacket]) -> None:
        for packet in packets:
            self.count += 1
            if self.random.random() >= self.lost:
                self.subnet.inject(name, packet)

    def lid(self, name: str) -> int:
        return self.subnet.node(name).end_ports()[0].lid

    def reserve(
        self, one: str, other: str, amount: int, kind: ReservationKind = BANDWIDTH, lease: int = 60
    ) -> int:
        agent = self.agents[one]
        number, packets = agent.reserve(self.lid(other), kind, amount, self.now, lease=lease)
        self.send(one, packets)
        return number

    def release(self, one: str, number: int) -> None:
        self.send(one, self.agents[one].release(number, self.now))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.managed.run(0.1)
            for name, agent in self.agents.items():
                self.send(name, agent.tick(self.now))
            self.send("h0", self.budgets.tick(self.now))

    def links(self, one: str, other: str) -> list[tuple[str, int]]:
        """The output ports of the way that packets take."""
        way = self.subnet.path(self.lid(one), self.lid(other))
        return [(hop.node.name, hop.output_port) for hop in way.hops if hop.output_port]

    def used(self, kind: ReservationKind = BANDWIDTH) -> dict[tuple[str, int], int]:
        return {
            (name, port): agent.used(port, kind)
            for name, agent in self.agents.items()
            for port in agent.budgets
            if agent.used(port, kind)
        }


def test_the_cost_of_a_reservation() -> None:
    subnet = ReservingSubnet(fabrics.clos2(8))
    assert subnet.budgets.is_done
    assert subnet.budgets.sent == len(subnet.subnet.nodes)
    assert not subnet.budgets.silent
    number = subnet.reserve("h1", "h30", 1000)
    outcome = subnet.agents["h1"].outcomes[number]
    links = subnet.links("h1", "h30")
    assert outcome.granted
    assert outcome.links == len(links) == 4
    assert outcome.messages == subnet.count == 2 * len(links)
    assert outcome.free == 80000 - 1000
    assert str(outcome) == "4 links reserved (8 messages, 0.000000 s)"
    assert subnet.used() == dict.fromkeys(links, 1000)
    subnet.release("h1", number)
    assert subnet.used() == {}
    assert subnet.count == 4 * len(links)
    assert subnet.agents["h1"].outcomes[number].granted


def test_a_full_link_refuses_and_says_where() -> None:
    subnet = ReservingSubnet(fabrics.dumbbell(3, 3, switch_rate="4xQDR"))
    left, right = ("h0", "h1", "h2"), ("h3", "h4", "h5")
    first = subnet.reserve(left[0], right[0], 20000)
    assert subnet.agents[left[0]].outcomes[first].granted
    second = subnet.reserve(left[1], right[1], 20000)
    outcome = subnet.agents[left[1]].outcomes[second]
    assert not outcome.granted
    assert outcome.reason is RefusalReason.LINK_FULL
    assert outcome.free == 25600 - 20000
    switch = next(
        node
        for node in subnet.subnet.nodes.values()
        if node.ports.get(0) and node.end_ports()[0].lid == outcome.lid
    )
    assert (switch.name, outcome.port) in subnet.links(left[1], right[1])
    assert "LINK_FULL: The link has less left than was asked for at LID" in str(outcome)
    assert subnet.used() == dict.fromkeys(subnet.links(left[0], right[0]), 20000)
    third = subnet.reserve(left[1], right[1], 5600)
    assert subnet.agents[left[1]].outcomes[third].granted
    subnet.release(left[0], first)
    assert subnet.used() == dict.fromkeys(subnet.links(left[1], right[1]), 5600)


def test_only_the_subnet_manager_sets_budgets() -> None:
    subnet = ReservingSubnet(fabrics.one_switch(3))
    before = dict(subnet.agents["s0"].budgets)
    stranger = LinkBudgets(subnet.managed.masters[0], share=9.0)
    subnet.send("h1", [each._replace(slid=subnet.lid("h1")) for each in stranger.program(0.0)])
    assert subnet.agents["s0"].budgets == before


def test_buffers_are_counted_apart() -> None:
    subnet = ReservingSubnet(fabrics.one_switch(4), buffer=16)
    assert subnet.agents["h1"].outcomes[subnet.reserve("h1", "h2", 10, BUFFER)].granted
    assert not subnet.agents["h1"].outcomes[subnet.reserve("h1", "h3", 10, BUFFER)].granted
    assert subnet.agents["h1"].outcomes[subnet.reserve("h1", "h3", 10)].granted


def test_a_lease_ends() -> None:
    subnet = ReservingSubnet(fabrics.clos2(4))
    number = subnet.reserve("h1", "h6", 500, lease=3)
    subnet.run(2)
    subnet.send("h1", subnet.agents["h1"].renew(number, subnet.now))
    subnet.run(2)
    assert subnet.used()
    subnet.run(2)
    assert subnet.used() == {}


def test_no_path_and_no_budget() -> None:
    subnet = ReservingSubnet(fabrics.one_switch(3))
    agent = subnet.agents["h1"]
    number, packets = agent.reserve(0x1234, BANDWIDTH, 5, subnet.now)
    subnet.send("h1", packets)
    assert agent.outcomes[number].reason is RefusalReason.NO_PATH
    subnet.agents["s0"].budgets.clear()
    number = subnet.reserve("h1", "h2", 5)
    assert agent.outcomes[number].reason is RefusalReason.NO_BUDGET
    assert subnet.used() == {}


@pytest.mark.parametrize("seed", range(12))
def test_with_lost_messages_nothing_is_given_twice_or_kept(seed: int) -> None:
    random = Random(seed)
    subnet = ReservingSubnet(fabrics.clos2(6))
    subnet.random, subnet.lost = random, 0.1
    hosts = [name for name in subnet.agents if name.startswith("h")]
    mine: dict[tuple[str, int], tuple[str, int]] = {}
    for _ in range(60):
        if mine and random.random() < 0.4:
            one, number = random.choice(list(mine))
            del mine[one, number]
            subnet.release(one, number)
        else:
            one, other = random.sample(hosts, 2)
            number = subnet.reserve(one, other, random.choice([1000, 20000, 50000]), lease=30)
            mine[one, number] = other, 0
        subnet.run(random.choice([0, 0, 1]))
        for agent in subnet.agents.values():
            for port, budget in agent.budgets.items():
                assert agent.used(port, BANDWIDTH) <= budget.bandwidth
    subnet.lost = 0
    subnet.run(5)
    for one, number in mine:
        assert number in subnet.agents[one].outcomes
    for one, number in list(mine):
        subnet.release(one, number)
    subnet.run(31)
    assert subnet.used() == {}
