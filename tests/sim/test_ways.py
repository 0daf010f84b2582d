# SPDX-License-Identifier: Apache-2.0
"""Of several equal ways flows take one by a hash that is as good as chance, and packets that are
sprayed take each of them equally often, whatever takes turns with what."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.sim.fabrics import GIGABIT, LINK, MIB, finish
from verbena import fabrics
from verbena.sim import World, build

HOSTS = np.arange(1024)


def reversed_bits(hosts: NDArray[np.int64]) -> NDArray[np.int64]:
    return sum(((hosts >> bit) & 1) << (9 - bit) for bit in range(10))


# Sources and targets, and how many connections each pair has.
PATTERNS: dict[str, tuple[NDArray[np.int64], NDArray[np.int64], int]] = {
    "one host of each switch, 4 connections": (HOSTS[::8], (HOSTS[::8] + 512) % 1024, 4),
    "one host of each switch, 8 connections": (HOSTS[::8], (HOSTS[::8] + 512) % 1024, 8),
    "one host of each switch, 16 connections": (HOSTS[::8], (HOSTS[::8] + 512) % 1024, 16),
    "one host of each switch, 64 connections": (HOSTS[::8], (HOSTS[::8] + 512) % 1024, 64),
    "two hosts of each switch, 8 connections": (
        HOSTS[HOSTS % 8 < 2],
        (HOSTS[HOSTS % 8 < 2] + 512) % 1024,
        8,
    ),
    "shift by half": (HOSTS, (HOSTS + 512) % 1024, 1),
    "shift by half, 4 connections": (HOSTS, (HOSTS + 512) % 1024, 4),
    "shift by 100": (HOSTS, (HOSTS + 100) % 1024, 1),
    "bit reversal": (HOSTS, reversed_bits(HOSTS), 1),
    "permutation": (HOSTS, np.random.default_rng(1).permutation(1024), 1),
    "permutation, 4 connections": (HOSTS, np.random.default_rng(2).permutation(1024), 4),
    "to one switch": (HOSTS[128:], HOSTS[128:] % 8, 1),
}


def excess(counts: NDArray[np.uint64]) -> float:
    """How far chi2 of the rows is above what it is by chance, in its standard deviations.

    Of n balls in w places it is w - 1 in the mean, and has the variance 2 (w - 1) (1 - 1 / n).
    """
    counts = counts[counts.sum(axis=1) > 1].astype(float)
    balls, ways = counts.sum(axis=1), counts.shape[1]
    mean = balls / ways
    chi2 = (((counts - mean[:, None]) ** 2).sum(axis=1) / mean).sum()
    variance = (2 * (ways - 1) * (1 - 1 / balls)).sum()
    return float((chi2 - len(counts) * (ways - 1)) / np.sqrt(variance))


def test_flows_meet_on_ways_as_often_as_by_chance() -> None:
    """The birthday law, on the way from edges to aggregation and from there to the core."""
    routes = fabrics.route(fabrics.fat_tree(16, rate="100GbE", length_m=1), "ecmp")
    world = World(seed=5, framing="bare")
    build(world, routes)
    links = world.links()
    names = np.array([name[0] for name in routes.tables.names])
    ends = names[links["node"]], names[links["to_node"]]
    levels = [(ends[0] == a) & (ends[1] == b) for a, b in (("e", "a"), ("a", "c"))]
    seen = {}
    for name, (source, target, connections) in PATTERNS.items():
        other = source != target
        pairs = [np.repeat(hosts[other], connections) for hosts in (source, target)]
        before = world.links()["packets"]
        world.add_flows(*pairs, 256, world.now, transport="uc")
        finish(world)
        sent = world.links()["packets"] - before
        for level, at in zip(("edges", "aggregation"), levels, strict=True):
            assert at.sum() == 1024  # 8 of each of 128 switches
            seen[name, level] = excess(sent[at].reshape(128, 8))
    far = {place: round(value, 1) for place, value in seen.items() if abs(value) > 4}
    assert not far, far
    assert abs(sum(seen.values())) / np.sqrt(len(seen)) < 4


# ---- packets that are sprayed --------------------------------------------------------------------


def sprayed(ways: int, wide: int = 100 * GIGABIT, seed: int = 1, **given: Any) -> tuple[World, Any]:
    """Four hosts on each of two switches, with so many cables between them; and the rows of the
    links by which the first switch sends to the second."""
    world = World(seed, timeout=8, **given.pop("world", {}))
    nodes = [world.add_switch(4 + ways, balance="packet", **given) for _ in range(2)]
    for node in nodes:
        for port in range(4):
            world.connect(world.add_host(), 0, node, port, **LINK)
    for port in range(4, 4 + ways):
        world.connect(nodes[0], port, nodes[1], port, **{**LINK, "rate": wide})
    across = [list(range(4, 4 + ways))] * 4
    own = [[port] + [-1] * (ways - 1) for port in range(4)]
    world.set_routes(nodes[0], own + across)
    world.set_routes(nodes[1], across + own)
    links = world.links()
    return world, np.flatnonzero((links["node"] == nodes[0]) & (links["to_node"] == nodes[1]))


def alternating(world: World, sizes: list[int], count: int = 8000) -> None:
    """Host 0 sends datagrams of these sizes to hosts of the other switch, one of each in turn."""
    for number, size in enumerate(sizes):
        world.add_flows(0, 4 + number, count * size, message=size, transport="ud")


def write_and_answer(world: World) -> None:
    """Data of one flow and acknowledgements of another go the same way, one of each in turn."""
    world.add_flows([0, 5], [4, 1], 16 * MIB)


def two_and_two(world: World) -> None:
    world.add_flows([0, 1, 6, 7], [4, 5, 2, 3], 8 * MIB)


MIXES: dict[str, Any] = {
    "data beside acknowledgements": write_and_answer,
    "two flows each way": two_and_two,
    "one flow": lambda world: world.add_flows(0, 4, 16 * MIB, transport="uc"),
    "large and small in turn": lambda world: alternating(world, [4096, 64]),
    "a small one after three large ones": lambda world: alternating(world, [4096, 4096, 4096, 64]),
    "three sizes": lambda world: alternating(world, [4096, 64, 1024]),
    "sizes of two targets in any order": lambda world: [
        world.add_flows(source, 4 + source, 4000 * size, message=size, transport="ud")
        for source, size in enumerate((4096, 64, 1024, 4096))
    ],
}


@pytest.mark.parametrize("ways", [2, 3, 4, 8])
@pytest.mark.parametrize("mix", MIXES)
def test_sprayed_packets_load_all_ways_alike(mix: str, ways: int) -> None:
    world, rows = sprayed(ways)
    MIXES[mix](world)
    finish(world)
    sent = world.links()[rows]
    share = sent["bytes"] / sent["bytes"].sum() * ways
    packets = int(sent["packets"].sum())
    large = sent["bytes"].sum() / 4200  # chance makes no more difference than with so many, alone
    assert packets > 4000
    assert np.abs(share - 1).max() < 4.5 * np.sqrt((ways - 1) / large), share


@pytest.mark.parametrize("sizes", list(permutations([4096, 64])))
def test_small_packets_in_between_lose_nothing_of_the_large(sizes: list[int]) -> None:
    """100 Gb/s over two ways of 60: there is room for all, on both together alone."""
    alone, _ = sprayed(2, 60 * GIGABIT, buffer=128 << 10)
    alone.add_flows(0, 4, 6000 * 4096, message=4096, transport="ud")
    beside, _ = sprayed(2, 60 * GIGABIT, buffer=128 << 10)
    alternating(beside, list(sizes), 6000)
    for world in (alone, beside):
        finish(world)
        assert world.links()["dropped_full"].sum() <= 2


def test_a_sprayed_flow_has_no_way_of_its_own() -> None:
    """Of two flows whose packets take turns each loses half by the way that is down, and not one
    all and the other none."""
    world, rows = sprayed(2)
    down = world.links()[rows[0]]
    world.set_link(down["node"], down["port"], up=False, at=0)
    alternating(world, [2048, 2048])
    finish(world)
    flows = world.flows()
    assert np.abs(flows["lost"] / flows["bytes"] - 0.5).max() < 0.025
