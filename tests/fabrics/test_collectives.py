# SPDX-License-Identifier: Apache-2.0
"""Collective operations: every part of every host arrives exactly once, in any order of events."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from verbena import fabrics
from verbena.fabrics import FabricError, Workload, collectives

Make = Callable[..., Workload]
HOSTS = [2, 3, 4, 5, 7, 8, 12, 13, 16, 21]
ALL_REDUCES = [
    fabrics.ring_all_reduce,
    fabrics.tree_all_reduce,
    fabrics.double_tree_all_reduce,
    fabrics.halving_doubling_all_reduce,
]
REDUCE_SCATTERS = [fabrics.ring_reduce_scatter, fabrics.recursive_halving_reduce_scatter]
ALL_GATHERS = [fabrics.ring_all_gather, fabrics.recursive_doubling_all_gather]
BROADCASTS = [fabrics.binomial_broadcast, fabrics.chain_broadcast, fabrics.double_tree_broadcast]
PIPELINES = [
    fabrics.tree_all_reduce,
    fabrics.double_tree_all_reduce,
    fabrics.chain_broadcast,
    fabrics.double_tree_broadcast,
]


def name(value: object) -> str:
    return getattr(value, "__name__", str(value))


def each(makes: list[Make]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("make", makes, ids=name)


@dataclass
class Memory:
    """``has[host][byte]``: the hosts whose contributions are in that byte of the host's buffer."""

    has: list[list[frozenset[int]]]

    @classmethod
    def own(cls, hosts: int, size: int) -> Memory:
        return cls([[frozenset([host])] * size for host in range(hosts)])

    def part(self, work: Workload, flow: int) -> list[int]:
        assert work.parts is not None
        size = len(self.has[0])
        offset, length = int(work.parts["offset"][flow]), int(work.flows["bytes"][flow])
        assert 0 <= offset < size
        assert length <= size
        return [byte % size for byte in range(offset, offset + length)]

    def sent(self, work: Workload, flow: int) -> list[frozenset[int]]:
        source = self.has[work.flows["src"][flow]]
        return [source[byte] for byte in self.part(work, flow)]

    def arrive(self, work: Workload, flow: int, data: list[frozenset[int]]) -> None:
        target = self.has[work.flows["dst"][flow]]
        for byte, what in zip(self.part(work, flow), data, strict=True):
            if work.parts["adds"][flow]:  # type: ignore[index]
                assert not target[byte] & what, f"flow {flow} adds something twice"
                target[byte] |= what
            else:
                target[byte] = what


def events(work: Workload, seed: int) -> Iterator[tuple[str, int]]:
    """Starts and ends of all flows, in any order that ``after`` allows."""
    draw = random.Random(seed)
    waits = np.bincount(work.after[:, 1], minlength=len(work)).tolist()
    then: dict[int, list[int]] = {}
    for first, second in work.after.tolist():
        then.setdefault(first, []).append(second)
    ready = [flow for flow in range(len(work)) if not waits[flow]]
    running: list[int] = []
    while ready or running:
        some = running if not ready or (running and draw.random() < 0.5) else ready
        at = draw.choice([0, -1, draw.randrange(len(some))])  # also the oldest, the newest
        flow = some.pop(at)
        if some is ready:
            running.append(flow)
            yield "start", flow
            continue
        yield "end", flow
        for other in then.get(flow, []):
            waits[other] -= 1
            if not waits[other]:
                ready.append(other)


def carried_out(work: Workload, memory: Memory, seed: int) -> Memory:
    """What is sent must not change while it is: the adapter may read it at any time."""
    under_way = {}
    count = 0
    for what, flow in events(work, seed):
        if what == "start":
            under_way[flow] = memory.sent(work, flow)
            continue
        assert memory.sent(work, flow) == under_way[flow], f"flow {flow}: changed on the way"
        memory.arrive(work, flow, under_way.pop(flow))
        count += 1
    assert count == len(work)
    return memory


def owner(hosts: int, size: int) -> list[int]:
    """[size]: the host whose chunk a byte is in."""
    return [host for host in range(hosts)
            for _ in range((host + 1) * size // hosts - host * size // hosts)]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("hosts", HOSTS)
@each(ALL_REDUCES)
def test_an_all_reduce_adds_everything_once_everywhere(make: Make, hosts: int, seed: int) -> None:
    size = 2 * hosts + 3
    work = make(hosts, size, **({"chunk": 5} if make in PIPELINES else {}))
    work.check(hosts)
    memory = carried_out(work, Memory.own(hosts, size), seed)
    assert {part for buffer in memory.has for part in buffer} == {frozenset(range(hosts))}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("hosts", HOSTS)
@each(REDUCE_SCATTERS)
def test_a_reduce_scatter_leaves_each_host_its_sum(make: Make, hosts: int, seed: int) -> None:
    size = 3 * hosts + 1
    memory = carried_out(make(hosts, size), Memory.own(hosts, size), seed)
    for byte, host in enumerate(owner(hosts, size)):
        assert memory.has[host][byte] == frozenset(range(hosts))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("hosts", HOSTS)
@each(ALL_GATHERS)
def test_an_all_gather_brings_each_chunk_everywhere(make: Make, hosts: int, seed: int) -> None:
    size = 3 * hosts + 1
    own = owner(hosts, size)
    begin = [[frozenset([host])] * size for host in range(hosts)]
    memory = carried_out(make(hosts, size), Memory(begin), seed)
    for buffer in memory.has:
        assert buffer == [frozenset([host]) for host in own]


@pytest.mark.parametrize("root", [0, 1])
@pytest.mark.parametrize("hosts", HOSTS)
@each(BROADCASTS)
def test_a_broadcast_reaches_every_host_once(make: Make, hosts: int, root: int) -> None:
    size = 23
    more = {"chunk": 5} if make in PIPELINES else {}
    work = make(hosts, size, root=root, **more)
    work.check(hosts)
    assert work.bytes == (hosts - 1) * size  # nobody gets a byte twice
    for seed in range(3):
        memory = carried_out(work, Memory.own(hosts, size), seed)
        assert {part for buffer in memory.has for part in buffer} == {frozenset([root])}


def test_the_order_that_a_flow_needs_is_found_out() -> None:
    """The tests above can fail: without what one flow waits for, or with another offset."""

    def is_right(work: Workload) -> bool:
        try:
            made = [carried_out(work, Memory.own(8, 64), seed) for seed in range(20)]
        except AssertionError:
            return False
        every = {part for memory in made for buffer in memory.has for part in buffer}
        return every == {frozenset(range(8))}

    work = fabrics.halving_doubling_all_reduce(8, 64)
    assert is_right(work)
    assert not is_right(Workload("loose", work.flows, work.after[:-8], work.parts))
    assert work.parts is not None
    work.parts["offset"][3] = 0
    with pytest.raises(AssertionError, match=r"twice|changed on the way"):
        carried_out(work, Memory.own(8, 64), 0)


@pytest.mark.parametrize("hosts", [8, 9, 64])
def test_two_trees_share_the_load(hosts: int) -> None:
    """Who is inside of one tree is a leaf of the other; only a root may be inside of both."""
    trees = collectives._two_trees(hosts)
    inside = [set(parent[parent >= 0].tolist()) for parent in trees]
    assert len(inside[0] & inside[1]) <= 1
    for parent in trees:
        assert (parent < 0).sum() == 1
        assert np.bincount(parent[parent >= 0]).max() == 2
        depth = 0
        at = np.arange(hosts)
        while (at >= 0).any():
            at = np.where(at >= 0, parent[at], -1)
            depth += 1
        assert depth <= hosts.bit_length() + 1
    work = fabrics.double_tree_all_reduce(hosts, 1 << 20)
    for end in ("src", "dst"):
        load = np.bincount(work.flows[end], work.flows["bytes"].astype(float))
        assert load.max() <= 2 * (1 << 20) * (1 if hosts % 2 == 0 else 1.26)


@each(PIPELINES)
def test_chunks_have_the_size_that_was_asked(make: Make) -> None:
    work = make(6, 100_000, chunk=1000)
    assert work.flows["bytes"].max() <= 1000
    usual = make(6, 64 << 20)
    assert (usual.flows["bytes"] >= 64 << 13).all()
    assert len(make(6, 5000).flows) < 6 * 4 + 1
    with pytest.raises(FabricError, match="too few or too small: chunk"):
        make(6, 100, chunk=0)


@pytest.mark.parametrize("hosts", [2, 7, 16, 33])
def test_the_number_of_flows_is_known_beforehand(hosts: int) -> None:
    for make in (*ALL_REDUCES, *REDUCE_SCATTERS, *ALL_GATHERS, *BROADCASTS):
        made = len(make(hosts, 1 << 20))
        assert made <= collectives.flow_count(name(make), hosts, 1 << 20) <= 3 * made + 8


def test_chunks_of_a_huge_all_reduce_add_up() -> None:
    made = fabrics.ring_all_reduce(16, (1 << 60) + 5).flows["bytes"].reshape(-1, 16)
    assert [sum(step) for step in made.tolist()] == [(1 << 60) + 5] * 30


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fabrics.ring_all_reduce(8, 7), "ring all-reduce: too few or too small: size"),
        (lambda: fabrics.ring_all_reduce(10**4, 10**9), "199980000 flows are more than"),
        (lambda: fabrics.tree_all_reduce(10**9, 1), "flows are more than"),
        (lambda: fabrics.double_tree_all_reduce(10**9, 2), "flows are more than"),
        (lambda: fabrics.double_tree_all_reduce(4, 1), "too few or too small: size"),
        (lambda: fabrics.halving_doubling_all_reduce(10**9, 10**9), "flows are more than"),
        (lambda: fabrics.chain_broadcast(10**9, 5), "flows are more than"),
        (lambda: fabrics.chain_broadcast(100, 10**9, chunk=1), "flows are more than"),
        (lambda: fabrics.binomial_broadcast(4, 5, root=4), "root 4 is none of 4 hosts"),
        (lambda: fabrics.binomial_broadcast(4, 5, root=-1), "too small: root"),
        (lambda: fabrics.ring_all_gather(1, 5), "too few or too small: hosts"),
    ],
)
def test_a_collective_that_makes_no_sense_is_refused(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(FabricError, match=message):
        make()
