# SPDX-License-Identifier: Apache-2.0
"""Who waits for whom, of blocked ports that are given: the rules of ``World.blocked``."""

from __future__ import annotations

from verbena.sim.blocked import Blocked, waiting_ports


def port(node: int, number: int, to: int, at: int, *inputs: int) -> Blocked:
    return Blocked(node, number, to, at, frozenset(inputs))


def ring(count: int) -> list[Blocked]:
    """Port 1 of each node leads to port 2 of the next one, and its packets came by port 2."""
    return [port(node, 1, (node + 1) % count, 2, 2) for node in range(count)]


def test_without_blocked_ports_nobody_waits() -> None:
    assert waiting_ports([]) == []


def test_a_chain_begins_at_the_first_blocked_port_and_ends_where_nobody_waits() -> None:
    chain = [port(0, 1, 5, 3, 0), port(5, 2, 6, 1, 3), port(7, 0, 0, 0)]
    assert waiting_ports(chain) == [(0, 1), (5, 2)]


def test_a_cycle_is_named_without_the_ports_that_wait_for_it() -> None:
    before = [port(8, 0, 9, 0), port(9, 1, 2, 3, 0)]
    through = ring(4)
    through[2] = port(2, 1, 3, 2, 2, 3)
    assert waiting_ports(before + through) == [(2, 1), (3, 1), (0, 1), (1, 1)]


def test_a_cycle_counts_more_than_an_earlier_chain() -> None:
    assert waiting_ports([port(9, 0, 8, 0, 1), *ring(3)]) == [(0, 1), (1, 1), (2, 1)]


def test_a_port_waits_for_the_first_port_that_has_packets_of_it() -> None:
    """Of one switch, port 0 has packets of another input, and ports 2 and 3 both of this one."""
    first = port(0, 0, 1, 4)
    there = [port(1, 3, 5, 0, 4), port(1, 0, 6, 0, 1), port(1, 2, 7, 0, 1, 4)]
    assert waiting_ports([first, *there]) == [(0, 0), (1, 2)]


def test_cycles_of_any_length_are_found() -> None:
    assert len(waiting_ports(ring(3000))) == 3000
