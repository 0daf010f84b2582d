# SPDX-License-Identifier: Apache-2.0
"""Two hosts over a network that loses, repeats, delays and reorders, with programs at random.

Whatever happens, every call ends in an event within the documented time, no event comes twice, both
sides agree in the end, and nothing is left behind. A seed repeats its run exactly.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable

import pytest

from tests.manage.cm.world import Chances, Node, World
from verbena.manage.cm import (
    CmAddress,
    CmConnection,
    CmError,
    CmRefusal,
    CmSettings,
    CmState,
    IdState,
    RdmaConnectionParameters,
    RdmaEvent,
    RdmaEventKind,
)
from verbena.manage.ip_cm import PortSpace

E = RdmaEventKind
SEEDS = 3000
PATIENCE = 98.304  # (1 + MaxCMRetries) * 6.144 s
AFTER_MRA = 65.536 + 2.048 + 6.144  # the service timeout, the packet life, and a last attempt
LONGEST_THOUGHT = 8.0
DROPPED = {CmRefusal.UNMATCHED, CmRefusal.UNEXPECTED, CmRefusal.BACKLOG_FULL}
LINUX_TIMES = CmSettings(first_resend=0, thinking=0, closing_patience=98.304)
TOO_LATE = {CmRefusal.WRONG_STATE, CmRefusal.NO_CONNECTION, CmRefusal.ALREADY_CONNECTED}
ANSWERS = {E.CONNECT_RESPONSE, E.REJECTED, E.UNREACHABLE, E.ESTABLISHED}

# What may follow an event of an identifier; None is its beginning.
FOLLOWING: dict[E | None, set[E]] = {
    None: {E.ADDR_RESOLVED, E.ADDR_ERROR, E.ESTABLISHED, E.DISCONNECTED, E.REJECTED, E.UNREACHABLE},
    E.ADDR_RESOLVED: {E.ROUTE_RESOLVED},
    E.ROUTE_RESOLVED: {E.CONNECT_RESPONSE, E.REJECTED, E.UNREACHABLE, E.ESTABLISHED},
    E.CONNECT_RESPONSE: {E.DISCONNECTED, E.REJECTED},
    E.ESTABLISHED: {E.DISCONNECTED, E.REJECTED},
    E.DISCONNECTED: {E.TIMEWAIT_EXIT},
    E.REJECTED: set(),
    E.UNREACHABLE: set(),
    E.TIMEWAIT_EXIT: set(),
}


class Programs(World):
    """Programs on both hosts that connect, answer, wait and end as chance wants."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed=seed, settings=LINUX_TIMES if seed % 5 == 0 else None)
        rng = self.random
        self.chances = Chances(
            lost=rng.choice([0, 0.05, 0.15, 0.25]),
            repeated=rng.choice([0, 0.1, 0.3]),
            most_delay=rng.choice([0.0001, 0.01, 0.4, 1.5]),
        )
        self.outage = (0.0, 0.0)
        if rng.random() < 0.2:
            self.outage = (rng.uniform(0, 10), rng.choice([5.0, 30.0, 1000.0]))
        self.todo: list[tuple[float, int, Callable[[], None]]] = []
        self.delivered: Counter[str] = Counter()
        self.asked_at: dict[tuple[str, int], float] = {}
        self.history: dict[tuple[str, int], list[tuple[float, RdmaEvent]]] = defaultdict(list)
        self.gone: list[list[tuple[float, RdmaEvent]]] = []
        self.listeners: list[tuple[Node, int]] = []
        for node in self.nodes:
            for space in (PortSpace.TCP, PortSpace.UDP):
                number = node.rdma.create_id(node.channel, space)
                node.rdma.bind(number, CmAddress.ip("0.0.0.0", 7174))
                node.rdma.listen(number, rng.choice([1, 100]))
                self.listeners.append((node, number))
        for _ in range(rng.randint(1, 5)):
            self.later(rng.uniform(0, 3), self.begin)

    # Chance.

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.todo, (self.now + seconds, self.count, what))

    def soon(self) -> float:
        """Mostly at once, at times long enough for an MRA."""
        rng = self.random
        return rng.choice([0.0, 0.0, 0.001, rng.uniform(0, LONGEST_THOUGHT)])

    def after(self, seconds: float, node: Node, number: int, call: Callable[[], object]) -> None:
        """Make a call then, if the identifier still is the one of now; it may come too late."""
        of = node.rdma._table.ids.get(number)

        def act() -> None:
            if of is None or node.rdma._table.ids.get(number) is not of:
                return
            try:
                call()
            except CmError as error:
                if error.refusal not in TOO_LATE:
                    raise

        self.later(seconds, act)

    # What programs do.

    def begin(self) -> None:
        rng = self.random
        node, peer = rng.sample(self.nodes, 2) if rng.random() < 0.9 else [self.nodes[0]] * 2
        space = PortSpace.UDP if rng.random() < 0.2 else PortSpace.TCP
        number = node.rdma.create_id(node.channel, space)
        node.rdma.resolve_address(number, CmAddress.ip(peer.text, 7174))

    def destroy(self, node: Node, number: int) -> None:
        if number in {each for owner, each in self.listeners if owner is node}:
            return
        node.rdma.destroy_id(number)
        past = self.history.pop((node.text, number), None)
        self.asked_at.pop((node.text, number), None)
        if past:
            self.gone.append(past)

    def heard(self, node: Node, event: RdmaEvent) -> None:
        key = (node.text, event.id)
        if event.kind is not E.CONNECT_REQUEST:
            self.check_event(key, event)
            self.history[key].append((self.now, event))
        number, rdma = event.id, node.rdma
        match event.kind:
            case E.ADDR_RESOLVED:
                rdma.resolve_route(number)
            case E.ROUTE_RESOLVED:
                self.asked_at[key] = self.now
                rdma.connect(number, RdmaConnectionParameters(qpn=self.random.getrandbits(24)))
                if self.random.random() < 0.1:
                    self.after(
                        self.random.uniform(0, 3), node, number, lambda: self.destroy(node, number)
                    )
            case E.CONNECT_REQUEST:
                parameters = RdmaConnectionParameters(qpn=self.random.getrandbits(24))
                accept = lambda: rdma.accept(number, parameters)  # noqa: E731
                self.choose(node, number, accept, lambda: rdma.reject(number))
                self.meddle(node, number)
            case E.CONNECT_RESPONSE:
                accept = lambda: rdma.accept(number)  # noqa: E731
                self.choose(node, number, accept, lambda: rdma.reject(number))
                self.after(20, node, number, lambda: rdma.disconnect(number))
            case E.ESTABLISHED if rdma.id(number).connection is not None:
                end = lambda: rdma.disconnect(number)  # noqa: E731
                if self.random.random() < 0.7:
                    self.choose(node, number, end, end, delay=self.random.uniform(0, 5))
            case E.DISCONNECTED:
                self.after(self.soon(), node, number, lambda: rdma.disconnect(number))
            case E.REJECTED | E.UNREACHABLE | E.TIMEWAIT_EXIT if self.random.random() < 0.5:
                self.after(self.soon(), node, number, lambda: self.destroy(node, number))

    def notify(self, node: Node, number: int) -> None:
        """The QP received data: only if the peer may send."""
        own = node.rdma.id(number).connection
        machines = [each for other in self.nodes for each in other.rdma.cm.machines()]
        peer = next((m for m in machines if own is not None and m.local_id == own.remote_id), None)
        if peer is not None and peer.state is CmState.ESTABLISHED:
            node.rdma.notify(number, 4)

    def meddle(self, node: Node, number: int) -> None:
        """Do something unusual at some time, now and then."""
        chance, wait = self.random.random(), self.random.uniform(0, 4)
        calls: list[Callable[[], object]] = [
            lambda: self.notify(node, number),
            lambda: node.rdma.reject(number),
            lambda: node.rdma.disconnect(number),
            lambda: self.destroy(node, number),
        ]
        if chance < 0.2:
            self.after(wait, node, number, calls[int(chance * 20)])

    def choose(
        self,
        node: Node,
        number: int,
        usual: Callable[[], object],
        other: Callable[[], object],
        delay: float | None = None,
    ) -> None:
        chance = self.random.random()
        wait = self.soon() if delay is None else delay
        if chance < 0.8:
            self.after(wait, node, number, usual)
        elif chance < 0.9:
            self.after(wait, node, number, other)
        else:
            self.after(wait, node, number, lambda: self.destroy(node, number))

    # The network.

    def pump(self) -> None:
        while True:
            super().pump()
            if not self.todo or self.todo[0][0] > self.now:
                return
            heapq.heappop(self.todo)[2]()

    def next_time(self) -> float | None:
        times = [each for each in (super().next_time(),) if each is not None]
        if self.todo:
            times.append(self.todo[0][0])
        return min(times, default=None)

    def carry(self, to: Node, mad: bytes, arrival: object) -> None:
        if 0 <= self.now - self.outage[0] < self.outage[1]:
            return
        self.delivered[to.text] += 1
        super().carry(to, mad, arrival)  # type: ignore[arg-type]

    # What has to hold.

    def check_event(self, key: tuple[str, int], event: RdmaEvent) -> None:
        past = self.history[key]
        before = past[-1][1].kind if past else None
        assert event.kind in FOLLOWING[before], (before, event.kind)
        assert event.kind not in [each.kind for _, each in past]
        if event.kind in ANSWERS and key in self.asked_at:
            waited = self.now - self.asked_at[key]
            assert waited <= PATIENCE + AFTER_MRA + LONGEST_THOUGHT, event
        if event.kind is E.TIMEWAIT_EXIT:
            ended = next(when for when, each in past if each.kind is E.DISCONNECTED)
            assert self.now - ended >= 2.047

    def check_agreement(self) -> None:
        """Each connection that is established has an established one at the other end."""
        ends = {}
        for node in self.nodes:
            for machine in node.rdma.cm.machines():
                if isinstance(machine, CmConnection):
                    assert machine.state in (CmState.ESTABLISHED, CmState.IDLE), machine.state
                    if machine.state is CmState.ESTABLISHED:
                        ends[machine.local_id] = machine
        for machine in ends.values():
            assert machine.remote_id in ends
            other = ends[machine.remote_id]
            assert other.remote_id == machine.local_id
            assert (machine.local_qpn, machine.remote_qpn) == (other.remote_qpn, other.local_qpn)
            assert (machine.local_psn, machine.remote_psn) == (other.remote_psn, other.local_psn)

    def check_answers(self) -> None:
        """Nobody waits for ever."""
        for key in self.asked_at:
            kinds = {event.kind for _, event in self.history[key]}
            assert kinds & ANSWERS, (key, kinds)

    def check_counters(self) -> None:
        for node in self.nodes:
            counters = node.rdma.counters
            assert set(counters.refused) <= DROPPED, counters.refused
            looped = counters.received.total() - self.delivered[node.text]
            assert looped >= 0
            for name in counters.retries:
                assert counters.retries[name] <= counters.sent[name]
                assert counters.duplicates[name] <= counters.received[name]

    def end(self) -> None:
        for node in self.nodes:
            for number in sorted(node.rdma._table.ids):
                if number in node.rdma._table.ids:
                    node.rdma.destroy_id(number)
        self.run(200)
        for node in self.nodes:
            assert node.rdma.cm.machines() == ()
            assert node.rdma.next_deadline() is None
            assert not node.rdma.cm._keys
            assert not node.rdma._bindings._holders


def run(seed: int) -> Programs:
    world = Programs(seed)
    world.run(450)
    if world.outage[1] < CmSettings().closing_patience:
        world.check_agreement()
    world.check_answers()
    world.check_counters()
    world.end()
    return world


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(10))
def test_every_seed(part: int) -> None:
    for seed in range(part * SEEDS // 10, (part + 1) * SEEDS // 10):
        try:
            run(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def test_seeds_reach_every_event_and_most_rules() -> None:
    kinds: Counter[E] = Counter()
    for seed in range(60):
        world = run(seed)
        for past in [*world.history.values(), *world.gone]:
            kinds.update(event.kind for _, event in past)
    assert set(kinds) >= {
        *(E.ADDR_RESOLVED, E.ROUTE_RESOLVED, E.CONNECT_RESPONSE, E.ESTABLISHED),
        *(E.DISCONNECTED, E.TIMEWAIT_EXIT, E.REJECTED, E.UNREACHABLE),
    }


def test_a_seed_repeats_its_run() -> None:
    assert run(7).carried == run(7).carried


def test_identifiers_of_one_host_connect() -> None:
    world = Programs(0)
    assert all(node.rdma.id(number).state is IdState.LISTEN for node, number in world.listeners)
