# SPDX-License-Identifier: Apache-2.0
"""What packets for a group reach, over links that are given."""

from __future__ import annotations

from verbena.sim.groups import Branches, Link

# Two switches, nodes 0 and 1, with two hosts each: 10, 11 and 12, 13. Port 2 is between them.
LINKS: dict[tuple[int, int], Link] = {
    (0, 0): (0, 10, 0, True),
    (0, 1): (1, 11, 0, True),
    (0, 2): (2, 1, 2, False),
    (1, 0): (0, 12, 0, True),
    (1, 1): (1, 13, 0, True),
    (1, 2): (2, 0, 2, False),
}


class Tables:
    """The ports of each switch of one group; counts how often they are asked for."""

    def __init__(self, ports: dict[int, list[int]], links: dict[tuple[int, int], Link]) -> None:
        self.ports, self.links, self.asked = ports, links, 0

    def ways(self, group: int, node: int, port: int) -> list[Link]:
        self.asked += 1
        return [self.links[node, out] for out in self.ports.get(node, [])]


def hosts(ports: dict[int, list[int]], source: int, link: Link | None) -> int | None:
    return Branches(Tables(ports, LINKS).ways).hosts(0, source, link)


def test_all_members_but_the_sender_are_reached() -> None:
    tree = {0: [0, 1, 2], 1: [0, 2]}
    assert hosts(tree, 10, (0, 0, 0, False)) == 2
    assert hosts(tree, 13, (0, 1, 1, False)) == 3


def test_a_sender_alone_reaches_nobody() -> None:
    assert hosts({0: [0]}, 10, (0, 0, 0, False)) == 0
    assert hosts({0: [0]}, 11, (0, 0, 1, False)) == 1
    assert hosts({}, 10, (0, 0, 0, False)) == 0
    assert hosts({0: [0]}, 10, None) == 0


def test_a_host_at_the_other_end_of_the_link_is_reached() -> None:
    assert hosts({}, 10, (0, 11, 0, True)) == 1


def test_two_links_between_switches_are_a_loop() -> None:
    links = LINKS | {(0, 3): (3, 1, 3, False), (1, 3): (3, 0, 3, False)}
    branches = Branches(Tables({0: [2, 3], 1: [0, 2, 3]}, links).ways)
    assert branches.hosts(0, 10, (0, 0, 0, False)) is None


def test_hosts_of_one_switch_share_a_search() -> None:
    tables = Tables({0: [0, 1, 2], 1: [0, 2]}, LINKS)
    branches = Branches(tables.ways)
    assert branches.hosts(0, 10, (0, 0, 0, False)) == 2
    assert branches.hosts(0, 11, (0, 0, 1, False)) == 2
    assert tables.asked == 2
