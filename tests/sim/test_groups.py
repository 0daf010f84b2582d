# SPDX-License-Identifier: Apache-2.0
"""What packets for a group reach, and trees of groups, over links that are given."""

from __future__ import annotations

import pytest

from verbena.sim.groups import Branches, Link, ProgramGroups, Trees, UnreachableError

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


def links_of(*cables: tuple[int, int, int, int], hosts: set[int]) -> list[list[Link]]:
    """Return the links of each node for cables: node, port, node, port."""
    made: list[list[Link]] = [[] for _ in range(1 + max(max(a, b) for a, _, b, _ in cables))]
    for a, a_port, b, b_port in cables:
        made[a].append((a_port, b, b_port, b in hosts))
        made[b].append((b_port, a, a_port, a in hosts))
    return [sorted(row) for row in made]


# Switches 0, 1 and 2 in a triangle, each with a host at port 0 (nodes 3, 4 and 5), and switch 6
# with host 7 apart. Two cables are between 0 and 1.
TRIANGLE = links_of(
    (0, 0, 3, 0),
    (1, 0, 4, 0),
    (2, 0, 5, 0),
    (0, 1, 1, 1),
    (0, 2, 1, 2),
    (1, 3, 2, 1),
    (2, 2, 0, 3),
    (6, 0, 7, 0),
    hosts={3, 4, 5, 7},
)


def test_a_tree_has_the_shortest_paths_from_the_first_members_switch() -> None:
    assert Trees(TRIANGLE).ports([3, 4, 5]) == {0: [0, 1, 3], 1: [0, 1], 2: [0, 2]}
    assert Trees(TRIANGLE).ports([4, 3]) == {1: [0, 1], 0: [0, 1], 2: [1]}


def test_a_switch_outside_of_the_tree_has_the_port_that_leads_there() -> None:
    assert Trees(TRIANGLE).ports([3]) == {0: [0], 1: [1], 2: [2]}


def test_links_on_the_way_are_in_the_tree_without_members_of_their_own() -> None:
    row = links_of((0, 0, 3, 0), (0, 1, 1, 0), (1, 1, 2, 0), (2, 1, 4, 0), hosts={3, 4})
    assert Trees(row).ports([3, 4]) == {0: [0, 1], 1: [0, 1], 2: [0, 1]}
    assert Trees(row).ports([]) == {}


def test_members_that_are_not_connected_have_no_tree() -> None:
    with pytest.raises(UnreachableError):
        Trees(TRIANGLE).ports([3, 7])


def test_members_without_a_switch_are_passed_over() -> None:
    wire = links_of((0, 0, 1, 0), (2, 0, 3, 0), hosts={1, 2, 3})
    assert Trees([*wire, []]).ports([2, 4, 1]) == {0: [0]}
    assert Trees([*wire, []]).ports([4]) == {}


class Fabric:
    """The tables of a world whose hosts are all in one network."""

    def __init__(self, links: list[list[Link]], nodes: list[int]) -> None:
        self._links, self._nodes = links, nodes
        self.names: dict[int, tuple[bytes, int | None]] = {}
        self.set: list[tuple[int, int, list[int]]] = []

    @property
    def size(self) -> tuple[int, int]:
        return len(self._links), sum(len(row) for row in self._links)

    def links(self) -> list[list[Link]]:
        return self._links

    def nodes(self) -> list[int]:
        return self._nodes

    def number(self, gid: bytes, host: int) -> int | None:
        there = (n for n, (one, first) in self.names.items() if one == gid and first is not None)
        return next(there, None)

    def name(self, number: int, gid: bytes, first: int | None) -> None:
        self.names[number] = gid, first

    def set_ports(self, number: int, node: int, ports: list[int]) -> None:
        self.set.append((number, node, ports))

    def taken(self) -> list[tuple[int, int, list[int]]]:
        """Return what was set since the last call."""
        taken, self.set = sorted(self.set), []
        return taken


def triangle() -> Fabric:
    return Fabric(TRIANGLE, [3, 4, 5, 7])


def test_only_switches_with_other_ports_are_set() -> None:
    fabric, groups = triangle(), ProgramGroups(2)
    groups.join(fabric, b"a", 0)
    assert fabric.taken() == [(0, 0, [0]), (0, 1, [1]), (0, 2, [2])]
    groups.join(fabric, b"a", 1)
    assert fabric.taken() == [(0, 0, [0, 1]), (0, 1, [0, 1])]
    groups.join(fabric, b"a", 1)
    assert fabric.taken() == []
    groups.leave(fabric, b"a", 0)  # the other member's switch becomes the root
    assert fabric.taken() == [(0, 0, [1]), (0, 1, [0]), (0, 2, [1])]
    assert fabric.names == {0: (b"a", 1)}
    groups.leave(fabric, b"a", 1)
    assert fabric.taken() == [(0, 0, []), (0, 1, []), (0, 2, [])]
    assert fabric.names == {0: (b"a", None)}


def test_who_is_no_member_does_not_leave() -> None:
    fabric, groups = triangle(), ProgramGroups(2)
    groups.leave(fabric, b"a", 0)
    groups.join(fabric, b"a", 0)
    fabric.taken()
    groups.leave(fabric, b"a", 1)
    assert fabric.taken() == []
    assert fabric.names == {0: (b"a", 0)}


def test_a_member_that_cannot_reach_the_others_is_refused() -> None:
    fabric, groups = triangle(), ProgramGroups(2)
    groups.join(fabric, b"a", 0)
    fabric.taken()
    with pytest.raises(UnreachableError):
        groups.join(fabric, b"a", 3)
    assert fabric.taken() == []
    groups.join(fabric, b"a", 2)  # the refused member is not in the way
    assert fabric.taken() == [(0, 0, [0, 3]), (0, 2, [0, 2])]


def test_numbers_of_groups_without_members_are_used_again() -> None:
    fabric, groups = triangle(), ProgramGroups(2)
    groups.join(fabric, b"a", 0)
    groups.join(fabric, b"b", 0)
    with pytest.raises(MemoryError):
        groups.join(fabric, b"c", 0)
    groups.leave(fabric, b"a", 0)
    groups.join(fabric, b"c", 1)
    assert fabric.names == {0: (b"c", 1), 1: (b"b", 0)}


def test_cables_that_are_added_are_in_the_next_tree() -> None:
    fabric, groups = triangle(), ProgramGroups(1)
    groups.join(fabric, b"a", 0)
    fabric._links = [list(row) for row in TRIANGLE]
    fabric._links[0].append((4, 6, 1, False))
    fabric._links[6].append((1, 0, 4, False))
    fabric.taken()
    groups.join(fabric, b"a", 3)
    assert fabric.taken() == [(0, 0, [0, 4]), (0, 6, [0, 1])]
