# SPDX-License-Identifier: Apache-2.0
"""Random internets of networks of all kinds and of several autonomous systems with policies.

``mixed_systems`` makes one, ``fates`` sends packets through it, and ``broken_policies`` says which
ways were not allowed. Tests and row C35 of `make validate` call them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address
from itertools import pairwise
from random import Random

from verbena.internet import Datagram, Internet, MessageTooLongError, Node, UdpArrival
from verbena.internet.autonomous_systems import AutonomousSystems, Interior
from verbena.internet.bgp_policy import GaoRexford, Policy, Relation
from verbena.internet.ipv4 import Protocol
from verbena.lan import Cable, Hub, Lan, LearningSwitch

KINDS = ("cable", "hub", "switch", "ring of switches", "ethernet")
MTUS = (296, 576, 1500)
PORT = 7000
NOWHERE = IPv4Address("203.0.113.7")
_PORTS = [port.to_bytes(2, "big") for port in (PORT, PORT + 1)]
ANSWERS = {
    "time to live exceeded",
    "port unreachable",
    "network unreachable",
    "host unreachable",
    "fragmentation needed",
}


class Shunning(GaoRexford):
    """The policy of Gao and Rexford of a system that takes no path through some others."""

    def __init__(self, shunned: set[int]) -> None:
        super().__init__()
        self.shunned = shunned

    def prefer(self, relation: Relation, path: tuple[int, ...]) -> int | None:
        return None if self.shunned & set(path) else super().prefer(relation, path)


@dataclass
class Mixed:
    """The systems, what each shuns, and the kinds of the networks by their prefixes."""

    systems: AutonomousSystems
    shunned: dict[int, set[int]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)

    @property
    def net(self) -> Internet:
        return self.systems.net

    @property
    def hosts(self) -> list[Node]:
        return [node for node in self.net.nodes.values() if not node.forwards]

    def system_of(self, host: Node) -> int:
        """The number of the system in whose network a host is: the second byte of its address."""
        return host.address.packed[1]


@dataclass
class Fate:
    """What became of one packet: ``events`` are its arrival and its answers, ``walk`` the systems
    that it crossed, ``back`` those that the answer crossed, and ``errors`` how many ICMP errors
    were sent about it, whether or not they found a way back."""

    source: int
    to: IPv4Address
    events: list[str] = field(default_factory=list)
    walk: list[int] = field(default_factory=list)
    back: list[int] = field(default_factory=list)
    errors: int = 0

    @property
    def kind(self) -> str:
        """In words; a packet of which nothing was heard is "lost"."""
        if not self.events:
            return "an answer without a way back" if self.errors == 1 else "lost"
        if len(self.events) > 1:
            return "several fates: " + ", ".join(self.events)
        return self.events[0].split(",")[0]


def mixed_systems(
    seed: int, count: int, policy_of: Callable[[set[int]], Policy] = Shunning
) -> Mixed:
    """Systems 1 to ``count`` of one to three routers, whose providers have lower numbers.

    ``policy_of`` makes a system's policy of the numbers that it shuns.
    """
    net, random = Internet(seed), Random(seed)
    made = Mixed(AutonomousSystems(net))
    for number in range(1, count + 1):
        names = [f"r{number}{letter}" for letter in "abc"[: random.choice((1, 2, 3))]]
        for at, name in enumerate(names):
            net.router(name)
            hosts = [f"h{number}{'abc'[at]}{one}" for one in range(random.choice((1, 2)))]
            for host in hosts:
                net.host(host)
            _add_network(made, random, f"10.{number}.{at}.0/24", [name, *hosts])
        _join_inside(made, random, number, names)
        if random.random() < 0.3:
            made.shunned[number] = {
                random.choice([*range(1, number), *range(number + 1, count + 1)])
            }
        policy = policy_of(made.shunned.get(number, set()))
        made.systems.add(number, *names, interior=random.choice(list(Interior)), policy=policy)
    _join_systems(made.systems, random, count)
    net.converge()
    return made


def _add_network(made: Mixed, random: Random, prefix: str, members: list[str]) -> None:
    """A network of any kind, on which these nodes are."""
    kind, net = random.choice(KINDS), made.net
    made.kinds[prefix] = kind
    if kind == "ethernet":
        net.network(prefix, *members, mtu=random.choice(MTUS))
        return
    lan = Lan(random.getrandbits(32), net.agenda)
    media = _media(lan, kind)
    for member in members:
        at_m = random.uniform(0, 500) if kind == "cable" else None
        lan.station(member, random.choice(media), at_m=at_m)
    net.lan_network(prefix, lan, members)


def _media(lan: Lan, kind: str) -> Sequence[Cable | Hub | LearningSwitch]:
    """What the stations of a network may be connected to."""
    if kind == "cable":
        return [lan.cable(500)]
    if kind == "hub":
        return [lan.hub()]
    if kind == "switch":
        return [lan.switch("sw", spanning_tree=False)]
    ring = [lan.switch(f"sw{number}") for number in range(3)]
    for number in range(3):
        lan.connect(ring[number], ring[number - 1])
    return ring


def _join_inside(made: Mixed, random: Random, number: int, routers: list[str]) -> None:
    """The routers of a system have one more network together, or links in a row or a ring."""
    if len(routers) > 1 and random.random() < 0.5:
        _add_network(made, random, f"10.{number}.100.0/24", routers)
        return
    pairs = list(pairwise(routers)) + ([(routers[2], routers[0])] if len(routers) == 3 else [])
    for left, right in pairs:
        delay = random.uniform(10, 20_000)
        made.net.link(left, right, delay_us=delay, mtu=random.choice(MTUS))


def _join_systems(systems: AutonomousSystems, random: Random, count: int) -> None:
    """Each system has up to two providers, and some have peers."""
    for number in range(2, count + 1):
        some = min(number - 1, random.choice((0, 1, 1, 2, 2)))
        for provider in random.sample(range(1, number), some):
            for copy in range(random.choice((1, 1, 2))):
                _connect(systems, random, (provider, number), copy, is_peering=False)
    for _ in range(count // 2):
        left, right = random.sample(range(1, count + 1), 2)
        if (left, right) not in systems.relations:
            _connect(systems, random, (left, right), 0, is_peering=True)


def _connect(
    systems: AutonomousSystems, random: Random, ends: tuple[int, int], copy: int, is_peering: bool
) -> None:
    one, other = (random.choice(systems.systems[end].routers) for end in ends)
    join = systems.peer if is_peering else systems.provide
    delay, mtu = random.uniform(10, 50_000), random.choice(MTUS)
    join(one, other, name=f"{ends[0]}-{ends[1]}-{copy}", delay_us=delay, mtu=mtu)


class _Watch:
    """Notes the systems that the packet of this moment and its answer cross."""

    def __init__(self, made: Mixed) -> None:
        self.fate: Fate | None = None
        for one, other in made.systems.relations:
            for copy in range(2):
                link = made.net.links.get(f"{one}-{other}-{copy}")
                if link is not None:
                    link.taps.append(partial(self._see, (one, other)))

    def _see(self, ends: tuple[int, int], frame: bytes) -> None:
        datagram = Datagram.decode(frame)
        if self.fate is None or datagram.offset:
            return
        is_answer = datagram.protocol == Protocol.ICMP
        if not is_answer and datagram.protocol != Protocol.UDP:
            return
        if is_answer and not self.fate.back:
            self.fate.back.append(self.fate.walk[-1])
        walk = self.fate.back if is_answer else self.fate.walk
        if datagram.payload[2:4] in _PORTS or is_answer:
            assert walk[-1] in ends, "a packet appears in a system that it has not entered"
            walk.append(ends[0] if walk[-1] == ends[1] else ends[1])


def fates(made: Mixed, random: Random, count: int) -> list[Fate]:
    """Send so many packets of different sizes and TTLs between hosts, to addresses without a host,
    to closed ports, and to a network that nobody has; one after the other."""
    watch = _Watch(made)
    hosts = made.hosts
    found: list[Fate] = []

    def arrive(_: UdpArrival) -> None:
        found[-1].events.append("arrived")

    for host in hosts:
        host.udp.open(arrive, PORT)
    silent = [IPv4Address(int(host.address) & ~0xFF | 200) for host in hosts[:2]]
    for number in range(count):
        sender = random.choice(hosts)
        to = random.choice([host.address for host in hosts] + silent + [NOWHERE])
        source = made.system_of(sender)
        found.append(Fate(source, to, walk=[source]))
        watch.fate = found[-1]
        before = _errors(made.net)
        _send(sender, to, found[-1], random, number)
        made.net.run(4)  # longer than ARP tries
        found[-1].errors = _errors(made.net) - before
    return found


def _send(sender: Node, to: IPv4Address, fate: Fate, random: Random, number: int) -> None:
    socket = sender.udp.open(lambda _: None)
    socket.on_error = lambda message, _, __: fate.events.append(message.text)
    size = random.choice((4, 200, 1400, 4000))
    port, ttl = random.choice((PORT, PORT, PORT + 1)), random.choice((1, 2, 3, 5, 64, 64, 64, 64))
    may_not_break = size == 1400 and number % 2 == 0
    try:
        socket.send(bytes(size), to, port, ttl=ttl, dont_fragment=may_not_break)
    except MessageTooLongError:
        fate.events.append("fragmentation needed, as is known")


def _errors(net: Internet) -> int:
    return sum(node.counters["errors sent"] for node in net.nodes.values())


def unexplained(made: Mixed, all_fates: Sequence[Fate]) -> list[str]:
    """The kinds of fates that are neither an arrival nor an answer by ICMP.

    An answer has no way back only where a system shuns another one: a way without a valley has
    none backwards either.
    """
    known = ANSWERS | {"arrived"}
    if made.shunned:
        known.add("an answer without a way back")
    return [fate.kind for fate in all_fates if fate.kind not in known]


def broken_policies(made: Mixed, all_fates: Sequence[Fate]) -> list[str]:
    """What a packet or an answer did that the policies forbid, in words."""
    return [wrong for fate in all_fates for wrong in _wrongs(made, fate)]


def _wrongs(made: Mixed, fate: Fate) -> list[str]:
    found = []
    for walk in (fate.walk, fate.back):
        if len(set(walk)) < len(walk):
            found.append(f"the way {walk} goes in a circle")
        elif not made.systems.is_valley_free(walk):
            found.append(f"the way {walk} has a valley")
        for at, number in enumerate(walk):
            if made.shunned.get(number, set()) & set(walk[at + 1 :]):
                found.append(f"the way {walk} crosses what {number} shuns")
    if fate.kind == "arrived" and not _is_promised(made, fate):
        found.append(f"the way {fate.walk} is none that system {fate.source} has chosen")
    if fate.kind == "network unreachable" and fate.to != NOWHERE and _paths(made, fate):
        found.append(f"system {fate.source} has a path to {fate.to}, which is unreachable")
    return found


def _paths(made: Mixed, fate: Fate) -> set[tuple[int, ...]]:
    """The paths that the speakers of a packet's system have chosen, with that system itself."""
    speakers = made.systems.systems[fate.source].speakers.values()
    routes = [
        route for speaker in speakers for prefix, route in speaker.best.items() if fate.to in prefix
    ]
    return {(fate.source, *route.path) for route in routes}


def _is_promised(made: Mixed, fate: Fate) -> bool:
    return fate.to.packed[1] == fate.source or tuple(fate.walk) in _paths(made, fate)
