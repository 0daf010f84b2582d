# SPDX-License-Identifier: Apache-2.0
"""Plants faults at random places of a fabric of 495 nodes, with background noise.

``trial`` brings the subnet up, plants one fault of each kind, sweeps twice, and says which were
found and which findings are false. ``test_planted_faults.py`` asserts bounds, and ``__main__.py``
writes the table of docs/diagnose.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from verbena.fabrics import Fabric
from verbena.manage.agents import ADAPTER, SWITCH, NodePort, Subnet, link_rate, subnet_of_fabric
from verbena.manage.agents.link_speeds import LinkSettings
from verbena.manage.codes import IbMtu, PortState, VirtualLanes
from verbena.manage.diagnose import (
    FabricSnapshot,
    FaultFinding,
    FaultKind,
    FaultSeverity,
    FlowTrouble,
    PortKey,
    SubnetAsker,
    diagnose,
    sweep_fabric,
)
from verbena.manage.sm import SmSettings, SubnetManager
from verbena.manage.smp_attributes import PortInfo

LEAVES, SPINES, HOSTS_PER_LEAF = 30, 15, 15
SECONDS = 60.0
RATE_GBPS = 100.0
WORDS = int(RATE_GBPS * 1e9 * SECONDS / 32)  # that a link carries between the sweeps
PAIRS = 8000
WORDS_OF_PACKET = 1040


def clos() -> Fabric:
    """30 leaves with 15 hosts each and 15 spines; switches have free ports."""
    made = Fabric("clos")
    for spine in range(SPINES):
        made.add_switch(f"a{spine}", ports=36)
    for leaf in range(LEAVES):
        made.add_switch(f"e{leaf}", ports=36)
        for number in range(HOSTS_PER_LEAF):
            host = made.add_host(f"h{leaf * HOSTS_PER_LEAF + number}")
            made.connect(f"e{leaf}", host, a_port=number + 1, b_port=1)
        for spine in range(SPINES):
            made.connect(f"e{leaf}", f"a{spine}", a_port=16 + spine, b_port=leaf + 1)
    return made


@dataclass
class Planted:
    """A fault, the kinds of finding that name it, and where a finding has to point."""

    name: str
    kinds: set[FaultKind]
    ports: set[PortKey] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)

    def is_named_by(self, finding: FaultFinding) -> bool:
        """Whether a finding has the right kind and place."""
        suspects = (finding.suspect, *finding.others)
        places = {key for each in suspects for key in each.ports}
        here = bool(places & self.ports) or any(each.name in self.nodes for each in suspects)
        return here and finding.kind in self.kinds


@dataclass
class Outcome:
    """Of one trial: each planted fault, and whether it was found; and findings of none."""

    found: dict[str, bool]
    false: list[FaultFinding]
    true: int
    notes: int


class Site:
    """The subnet, and what is still free for a fault: each place is used once."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.intended = clos()
        self.subnet = subnet_of_fabric(
            self.intended,
            adapter=replace(ADAPTER, additional_extended_counters=True),
            switch=replace(SWITCH, additional_extended_counters=True),
        )
        self.planted: list[Planted] = []
        self.between: list[Callable[[], None]] = []  # what happens between the sweeps
        self.flows: list[FlowTrouble] = []
        leaves = [f"e{number}" for number in range(1, LEAVES)]
        self.random.shuffle(leaves)
        self.leaves, self.shared = leaves[:14], leaves[14:]
        self.used = set[PortKey]()

    def leaf(self) -> str:
        """A leaf of its own for a fault, and not that of the host that sweeps."""
        return self.leaves.pop()

    def link(self, first: int, count: int, leaf: str = "") -> tuple[NodePort, NodePort]:
        """A link that has not been used, at one of these ports of a leaf."""
        while True:
            name = leaf or self.random.choice(self.shared)
            key = PortKey(name, first + self.random.randrange(count))
            port = self.subnet.node(name).ports[key.number]
            if key not in self.used and port.peer is not None:
                self.used.add(key)
                return port, port.peer

    def uplink(self, leaf: str = "") -> tuple[NodePort, NodePort]:
        """A link between a leaf and a spine: the port of the leaf, and the spine's."""
        return self.link(16, SPINES, leaf)

    def host_link(self, leaf: str = "") -> tuple[NodePort, NodePort]:
        """A link between a leaf and a host: the port of the leaf, and the host's."""
        return self.link(1, HOSTS_PER_LEAF, leaf)

    def any_link(self) -> tuple[NodePort, NodePort]:
        """Of either kind."""
        return self.uplink() if self.random.random() < 0.5 else self.host_link()

    def plant(self, name: str, kinds: set[FaultKind], *places: NodePort | str) -> None:
        """Note what has been planted, and where."""
        ports = {key_of(place) for place in places if isinstance(place, NodePort)}
        nodes = {place for place in places if isinstance(place, str)}
        self.planted.append(Planted(name, kinds, ports, nodes))

    def many(self, least: int, most: int) -> int:
        """A number between the two; each order of magnitude is as likely."""
        return int(least * (most / least) ** self.random.random() + 0.5)

    def later(self, what: Callable[[], None]) -> None:
        """Do it between the two sweeps."""
        self.between.append(what)


def key_of(port: NodePort) -> PortKey:
    return PortKey(port.node.name, port.number)


def vanished(port: NodePort, share: float) -> Callable[[], None]:
    """Packets that a port has sent, and that its peer has not received."""

    def count() -> None:
        packets = int(port.tally["xmit_packets"] * share)
        port.tally.sent(packets, packets * WORDS_OF_PACKET)

    return count


def counted(port: NodePort, name: str, more: int) -> Callable[[], None]:
    return lambda: port.tally.count(name, more)


# ---- faults before the subnet manager comes: cables ----------------------------------------------


def plant_cabling(site: Site) -> None:
    """Faults of cables and adapters that are there from the beginning."""
    subnet = site.subnet
    one, spine = site.uplink(site.leaf())
    second = subnet.node(one.node.name).ports[16 + (one.number - 16 + 7) % SPINES]
    other = second.peer
    assert other is not None
    for port in (one, second):
        subnet.disconnect(port.node.name, port.number)
    subnet.connect(one.node.name, one.number, other.node.name, other.number)
    subnet.connect(one.node.name, second.number, spine.node.name, spine.number)
    site.plant("swapped cables", {FaultKind.SWAPPED}, one, second)

    leaf, host = site.host_link()
    subnet.disconnect(leaf.node.name, leaf.number)
    subnet.connect(leaf.node.name, 33, host.node.name, 1)
    site.plant("cable in a wrong port", {FaultKind.WRONG_PORT}, host)

    leaf, spine = site.uplink()
    subnet.disconnect(leaf.node.name, leaf.number)
    site.plant("missing cable", {FaultKind.CABLE_MISSING}, leaf, spine)

    here, there = site.leaf(), site.leaf()
    subnet.connect(here, 35, there, 35)
    extra = subnet.node(here).ports[35]
    site.plant("additional cable", {FaultKind.CABLE_ADDED}, extra)

    leaf, host = site.host_link()
    host.set_rate(link_rate("4xFDR"))
    subnet.cut(leaf.node.name, leaf.number)
    subnet.restore(leaf.node.name, leaf.number)
    site.plant("slower adapter", {FaultKind.SLOWER_THAN_PEERS}, host, leaf)

    first, second_host = site.host_link()[1], site.host_link()[1]
    second_host.node.set_guid(int.from_bytes(first.guids[:8], "big") - 1)
    site.plant(
        "duplicate GUID",
        {FaultKind.DUPLICATE_GUID},
        *(port.peer for port in (first, second_host) if port.peer is not None),
    )


# ---- faults of settings, which the subnet manager has not made ---------------------------------


def plant_settings(site: Site) -> None:
    """Faults of settings, after the subnet manager has brought up the fabric."""
    one, other = site.any_link()
    for port in (one, other):
        port.set_active(LinkSettings(1, 4, 2))
    site.plant("narrow link", {FaultKind.NARROW_LINK}, one, other)

    one, other = site.any_link()
    for port in (one, other):
        port.set_active(LinkSettings(2, 4, 1))
    site.plant("slow link", {FaultKind.SLOW_LINK}, one, other)

    one, other = site.any_link()
    PortInfo.put(one.info, 0, link_speed_ext_enabled=1)
    one.extended_info[11] = 0
    for port in (one, other):
        port.set_active(LinkSettings(2, 4, 1))
    site.plant("rate limited by a setting", {FaultKind.RATE_LIMITED}, one)

    one, other = site.any_link()
    for port in (one, other):
        port.put_state(PortState.INIT)
    site.plant("link stays INIT", {FaultKind.NOT_ACTIVE}, one, other)

    one, other = site.any_link()
    PortInfo.put(site.random.choice((one, other)).info, 0, neighbor_mtu=IbMtu.BYTES_2048)
    site.plant("MTU of one end", {FaultKind.MTU}, one, other)

    one, other = site.any_link()
    PortInfo.put(site.random.choice((one, other)).info, 0, operational_vls=VirtualLanes.VL0)
    site.plant("lanes of one end", {FaultKind.LANES}, one, other)

    _, host = site.host_link()
    host.p_keys[:2] = (0x8000 | site.random.randrange(1, 0x7FFF)).to_bytes(2, "big")
    site.plant("wrong P_Key", {FaultKind.P_KEY}, host)

    switch = site.leaf()
    PortInfo.put(site.subnet.node(switch).ports[0].info, 0, diag_code=0x11)
    site.plant("switch reports a fault", {FaultKind.NODE_REPORT}, switch)


def plant_routes(site: Site) -> None:
    """Faults of forwarding tables."""
    subnet = site.subnet
    hosts = [node for node in subnet.nodes.values() if not node.is_switch and node.name != "h0"]
    lids = [node.ports[1].lid for node in hosts if node.ports[1].lid]
    wanted = site.random.sample(lids, 3)
    leaf = site.leaf()
    for lid in wanted:
        put_output(subnet, leaf, lid, 255)
    site.plant("LID without a route", {FaultKind.NO_ROUTE}, leaf)

    leaf = site.leaf()
    below = {port.peer.lid for port in subnet.node(leaf).ports.values() if port.peer}
    lid = next(each for each in lids if each not in below and each not in wanted)
    spine = f"a{site.random.randrange(SPINES)}"
    put_output(subnet, leaf, lid, 16 + int(spine[1:]))
    put_output(subnet, spine, lid, int(leaf[1:]) + 1)
    site.plant("loop of tables", {FaultKind.ROUTE_LOOP}, leaf, spine)

    leaf = site.leaf()
    below = {port.peer.lid for port in subnet.node(leaf).ports.values() if port.peer}
    up = 16 + site.random.randrange(SPINES)
    for lid in lids:
        if lid not in below:
            put_output(subnet, leaf, lid, up)
    site.plant("unbalanced routes", {FaultKind.UNBALANCED}, subnet.node(leaf).ports[up])


def put_output(subnet: Subnet, switch: str, lid: int, port: int) -> None:
    """Change an entry of a switch's linear forwarding table."""
    table = subnet.node(switch).forwarding
    assert table is not None
    block = bytearray(table.linear_block(lid // 64))
    block[lid % 64] = port
    table.set_linear_block(lid // 64, bytes(block))
    subnet.routing_changed()


# ---- faults that counters show -------------------------------------------------------------------


def plant_errors(site: Site) -> None:
    """Faults of links that count, between the sweeps."""
    one, other = site.any_link()
    for port in (one, other):
        site.later(counted(port, "symbol_errors", site.many(20, 5000)))
    site.plant("bad cable", {FaultKind.BAD_CABLE, FaultKind.ONE_DIRECTION}, one, other)

    one, other = site.any_link()
    at = site.random.choice((one, other))
    site.later(counted(at, "symbol_errors", site.many(40, 5000)))
    site.later(counted(at, "rcv_errors", site.many(5, 500)))
    site.plant("bad transmitter or receiver", {FaultKind.ONE_DIRECTION}, one, other)

    one, other = site.any_link()
    for port in (one, other):
        site.later(counted(port, "link_error_recovery", site.many(2, 60)))
    site.plant("link retrains", {FaultKind.LINK_RETRAINS}, one, other)

    one, other = site.any_link()
    downs = site.many(1, 20)
    for port in (one, other):
        site.later(counted(port, "link_downed", downs))
    site.plant("link flaps", {FaultKind.LINK_FLAPS, FaultKind.LINK_ONCE_DOWN}, one, other)

    one, other = site.any_link()
    site.later(counted(one, "local_link_integrity_errors", site.many(3, 14)))
    site.plant("link integrity", {FaultKind.LINK_INTEGRITY}, one, other)

    one, other = site.any_link()
    site.later(counted(other, "excessive_buffer_overrun_errors", site.many(3, 14)))
    site.plant("buffer overruns", {FaultKind.BUFFER_OVERRUN}, other)

    one, other = site.any_link()
    site.later(vanished(one, site.random.uniform(0.0005, 0.02)))
    site.plant("packets vanish on a link", {FaultKind.SILENT_LOSS}, one, other)

    one, other = site.any_link()
    one.node.profile = replace(one.node.profile, additional_extended_counters=False)
    one.tally.count("symbol_errors", 70_000)
    site.plant("full counter", {FaultKind.COUNTER_FULL}, one)


def plant_losses(site: Site) -> None:
    """Faults without a counter of their own, and links and nodes that go away."""
    subnet = site.subnet
    one, other = site.uplink()
    site.later(partial(subnet.cut, one.node.name, one.number))
    lost = {FaultKind.LINK_LOST, FaultKind.CABLE_MISSING}
    site.plant("link goes down", lost, one, other)

    _, host = site.host_link()
    site.later(partial(subnet.remove, host.node.name))
    gone = {FaultKind.NODE_LOST, FaultKind.NODE_MISSING}
    site.plant("host goes away", gone, host.node.name)

    bad, other = site.uplink()
    pairs_with_losses(site, bad if site.random.random() < 0.5 else other)
    site.plant("path loses packets", {FaultKind.PATH_LOSS}, bad, other)

    leaf, host = site.host_link(site.leaf())
    share = site.random.uniform(0.03, 0.9)
    ups = [subnet.node(leaf.node.name).ports[number].peer for number in range(16, 16 + SPINES)]
    site.later(counted(leaf, "xmit_wait", int(WORDS * share)))
    for up in ups:
        assert up is not None
        site.later(counted(up, "xmit_wait", int(WORDS * site.random.uniform(0.05, 0.3))))
    site.plant("slow receiver", {FaultKind.SLOW_RECEIVER}, host.node.name)


def pairs_with_losses(site: Site, bad: NodePort) -> None:
    """Random pairs of hosts, of which those that cross a port's link lose packets."""
    subnet = site.subnet
    hosts = [node for node in subnet.nodes.values() if not node.is_switch]
    share = site.many(1, 100) / 10_000
    for _ in range(PAIRS):
        one, other = site.random.sample(hosts, 2)
        sent = site.many(10_000, 1_000_000)
        route = subnet.path(one.ports[1].lid, other.ports[1].lid)
        lost = site.random.choice((0,) * 50 + (1, 2, 3))
        if any(out is bad for out, _ in route.charges):
            lost += round(sent * share)
        site.flows.append(FlowTrouble(one.name, other.name, lost, sent))


# ---- noise ---------------------------------------------------------------------------------------


def poisson(random: Random, mean: float) -> int:
    """A number of events that come independently."""
    count, time = 0, random.expovariate(1.0)
    while time < mean:
        count += 1
        time += random.expovariate(1.0)
    return count


def traffic(site: Site) -> None:
    """Between the sweeps: data on every link, symbol errors of a BER of 1e-12, short waits."""
    normal = RATE_GBPS * 1e9 * SECONDS * 1e-12
    for node in site.subnet.nodes.values():
        for port in node.ports.values():
            if port.peer is None or not port.is_up:
                continue
            rate = port.settings("active").rate
            assert rate is not None
            could = int(WORDS * rate.gbps / RATE_GBPS)
            words = int(could * site.random.uniform(0.01, 0.4))
            packets = words // WORDS_OF_PACKET
            port.tally.sent(packets, words)
            # The two ends are not read at the same moment.
            skew = 1 + site.random.uniform(-3e-4, 3e-4)
            port.peer.tally.received(int(packets * skew), words)
            port.tally.count("xmit_wait", int(could * site.random.uniform(0, 0.03)))
            port.tally.count("symbol_errors", poisson(site.random, normal))


def old_errors(site: Site) -> None:
    """What counters have from before: it belongs to nobody any more."""
    for node in site.subnet.nodes.values():
        for port in node.ports.values():
            if port.peer is not None:
                port.tally.count("symbol_errors", site.many(1, 3000))
                port.tally.count("link_downed", site.random.randrange(4))


def older_rack(site: Site) -> None:
    """A rack whose hosts are of an older generation, which is no fault."""
    leaf = site.leaf()
    for number in range(1, HOSTS_PER_LEAF + 1):
        host = site.subnet.node(leaf).ports[number].peer
        assert host is not None
        host.set_rate(link_rate("4xFDR"))
        site.subnet.cut(leaf, number)
        site.subnet.restore(leaf, number)


def noise(site: Site) -> None:
    """Harmless things that look like faults: incast at three hosts, restarted hosts, discards."""
    subnet = site.subnet
    for _ in range(3):
        leaf, _ = site.host_link(site.leaf())
        words = int(WORDS * 0.58)
        leaf.tally.sent(words // WORDS_OF_PACKET, words)
        assert leaf.peer is not None
        leaf.peer.tally.received(words // WORDS_OF_PACKET, words)
        missing = max(0, int(WORDS * 0.97) - leaf.tally["xmit_data"])
        leaf.tally.sent(missing // WORDS_OF_PACKET, missing)
        leaf.peer.tally.received(missing // WORDS_OF_PACKET, missing)
        for number in range(16, 16 + SPINES):
            up = subnet.node(leaf.node.name).ports[number].peer
            if up is not None:
                up.tally.count("xmit_wait", int(WORDS * site.random.uniform(0.1, 0.6)))
    hosts = [name for name, node in subnet.nodes.items() if not node.is_switch]
    for name in site.random.sample(hosts, 6):
        peer = subnet.node(name).ports[1].peer
        if peer is not None:
            peer.tally.count("link_downed", 1)
    for name in site.random.sample(hosts, 20):
        subnet.node(name).ports[1].tally.count("xmit_discards", site.random.randrange(1, 9))


def bring_up(subnet: Subnet) -> None:
    """Let our subnet manager set the fabric up from h0, and end."""
    manager = SubnetManager(subnet.node("h0").ports[1].guid, SmSettings(engine="updn"))

    def send(packets: list) -> None:  # type: ignore[type-arg]
        for packet in packets:
            subnet.inject("h0", packet)

    subnet.attach("h0", lambda packet: send(manager.receive(packet, subnet.now)))
    send(manager.start(subnet.now))
    subnet.attach("h0", None)


def sweeps(site: Site) -> tuple[FabricSnapshot, FabricSnapshot]:
    """Sweep, let a minute pass, and sweep again."""
    asker = SubnetAsker(site.subnet, "h0")
    before = sweep_fabric(asker, 0.0)
    traffic(site)
    noise(site)
    for what in site.between:
        what()
    now = sweep_fabric(asker, SECONDS)
    now.flows = site.flows
    return before, now


def trial(seed: int) -> Outcome:
    """Plant one fault of each kind at random places, and compare what is found."""
    site = Site(seed)
    plant_cabling(site)
    older_rack(site)
    bring_up(site.subnet)
    old_errors(site)
    plant_errors(site)
    plant_losses(site)
    plant_settings(site)
    plant_routes(site)
    before, now = sweeps(site)
    findings = [
        each
        for each in diagnose(now, before, intended=site.intended)
        if each.severity > FaultSeverity.NOTE
    ]
    found = {
        planted.name: any(planted.is_named_by(each) for each in findings)
        for planted in site.planted
    }
    false = [
        each for each in findings if not any(planted.is_named_by(each) for planted in site.planted)
    ]
    notes = len(diagnose(now, before, intended=site.intended)) - len(findings)
    return Outcome(found, false, len(findings) - len(false), notes)


def table(outcomes: list[Outcome]) -> str:
    """Return the table of the documentation."""
    planted: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for outcome in outcomes:
        for name, is_found in outcome.found.items():
            planted[name] += 1
            found[name] += is_found
    lines = ["| Planted | found | of |", "| --- | --: | --: |"]
    lines += [f"| {name} | {found[name]} | {planted[name]} |" for name in planted]
    true, false = sum(each.true for each in outcomes), sum(len(each.false) for each in outcomes)
    recall = sum(found.values()) / sum(planted.values())
    lines += [
        f"| **all** | **{sum(found.values())}** | **{sum(planted.values())}** |",
        "",
        f"Recall is {recall:.3f}, and precision {true / (true + false):.3f}: {false} of"
        f" {true + false} findings were of nothing that had been planted.",
    ]
    return "\n".join(lines)


BEGIN = "<!-- table: made by python -m tests.manage.diagnose -->\n"
END = "<!-- end of table -->"


def page_with(page: str, made: str) -> str:
    """Return the page with the table between its marks replaced."""
    head, found, rest = page.partition(BEGIN)
    _, closed, tail = rest.partition(END)
    assert found, "the page has no table's beginning"
    assert closed, "the page has no table's end"
    return f"{head}{found}\n{made}\n\n{closed}{tail}"
