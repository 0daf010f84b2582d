# SPDX-License-Identifier: Apache-2.0
"""How much of a switch's buffer flows can reserve."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.sim.fabrics import MIB, World, star
from verbena.sim.promises import ANSWER, reservable


def test_two_acknowledgements_of_each_link_find_room() -> None:
    assert reservable(100_000, 4, [], []) == 100_000 - 8 * ANSWER
    assert reservable(100_000, 4, [], [0.0, 2.0]) == 100_000 - 8 * ANSWER


def test_the_least_share_of_a_lane_admits_two_acknowledgements() -> None:
    assert reservable(100_000, 4, [], [1.0, 0.125]) == 100_000 - 16 * ANSWER
    assert reservable(100_000, 8, [], [0.125]) == 100_000 - 16 * ANSWER
    assert reservable(100_000, 4, [], [0.001]) == 0


def test_lanes_with_pauses_may_fill_up_to_their_threshold_at_each_link() -> None:
    assert reservable(100_000, 4, [8192, 4096], []) == 100_000 - 8 * ANSWER - 4 * 12288
    assert reservable(10_000, 4, [8192], [1.0]) == 0


def most(world: World) -> int:
    with pytest.raises(ValueError, match=r"at most [0-9]+ bytes can be promised") as caught:
        world.add_flows(0, 1, MIB, reserve_buffer=MIB)
    return int(str(caught.value).split("at most ")[1].split()[0])


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ({"flow": "lossy"}, {"flow": "lossy", "alpha": 0.01}, 28_000),
        ({"flow": "lossy", "alpha": 0.02}, {"flow": "credits", "room": 8192}, 14_000),
        ({"flow": "lossy", "alpha": 0.02}, {"flow": "pauses", "alpha": 0.01}, 14_000),
        ({"flow": "lossy"}, {"flow": "pauses", "stop": 5000, "go": 2500}, 6 * ANSWER + 3 * 5000),
    ],
)
def test_shares_of_lossy_lanes_and_thresholds_of_pauses_count(
    first: dict[str, Any], second: dict[str, Any], kept: int
) -> None:
    world = World()
    star(world, 3, lanes=[first, second], buffer=MIB)
    assert most(world) == MIB - kept


def test_links_that_are_added_after_a_reservation_count() -> None:
    world = World()
    center = world.add_switch(4, buffer=MIB)
    for port in range(2):
        world.connect(world.add_host(), 0, center, port, rate=10**10, delay=0)
    world.set_routes(center, [0, 1])
    assert most(world) == MIB - 4 * ANSWER
    world.connect(world.add_switch(1), 0, center, 2, rate=10**10, delay=0)
    assert most(world) == MIB - 6 * ANSWER


def test_the_smallest_buffer_of_a_route_counts() -> None:
    world = World()
    nodes = [world.add_switch(2, buffer=size * MIB) for size in (3, 1, 2)]
    world.connect(world.add_host(), 0, nodes[0], 0, rate=10**10, delay=0)
    world.connect(world.add_host(), 0, nodes[2], 1, rate=10**10, delay=0)
    for left, right in itertools.pairwise(nodes):
        world.connect(left, 1, right, 0, rate=10**10, delay=0)
    for node in nodes:
        world.set_routes(node, [0, 1])
    assert most(world) == MIB - 4 * ANSWER
