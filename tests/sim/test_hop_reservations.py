# SPDX-License-Identifier: Apache-2.0
"""Bandwidth is reserved hop by hop before data flow, and its cost is messages and time."""

from __future__ import annotations

import pytest

from tests.sim.test_managed import MICRO, bare, clos
from verbena.manage.reservation import RefusalReason
from verbena.sim import World
from verbena.sim.managed import ManagedWorld
from verbena.sim.managers import bring_up
from verbena.sim.reservations import HopReservations

GIGA = 10**9
GRANTED_AFTER = 40_385_600  # ps


def reserving(share: float = 0.8) -> tuple[World, ManagedWorld, HopReservations]:
    world, managed, manager = bare(clos(4))
    bring_up(manager)
    made = HopReservations(manager, share=share)
    made.start()
    world.run(world.now + 10**10)
    assert made.budgets.is_done
    assert made.budgets.silent == set()
    return world, managed, made


def test_a_path_is_reserved_before_the_flow_begins() -> None:
    world, _, made = reserving()
    begin, before = world.now, made.messages
    asked = made.flow("h1", "h6", 8 << 20, 40 * GIGA)
    assert asked.outcome is None
    world.run(begin + 10**10)
    assert asked.outcome is not None
    assert asked.outcome.granted
    # Four links, and two messages for each; the agents take 5 us for one.
    assert (asked.outcome.links, asked.outcome.messages) == (4, 8)
    assert made.messages == before + 8
    assert asked.granted_at is not None
    assert 8 * 5 * MICRO < asked.granted_at - begin < 8 * 5 * MICRO + 20 * MICRO
    flow = world.flows()[asked.flow]
    assert flow["start"] == asked.granted_at
    rate = 8 * (8 << 20) / ((int(flow["finish"]) - int(flow["start"])) / 1e12)
    assert 0.9 * 40 * GIGA < rate < 40 * GIGA
    assert made.reserved("h1", 1) == 40 * GIGA
    made.release(asked)
    world.run(world.now + 10**9)
    assert made.reserved("h1", 1) == 0


def test_a_link_never_gives_more_than_its_budget() -> None:
    world, _, made = reserving()
    first = made.flow("h1", "h6", 1 << 20, 60 * GIGA)
    second = made.flow("h3", "h6", 1 << 20, 60 * GIGA)
    world.run(world.now + 10**10)
    outcomes = [each.outcome for each in (first, second)]
    assert [each is not None and each.granted for each in outcomes] == [True, False]
    assert outcomes[1] is not None
    assert outcomes[1].reason is RefusalReason.LINK_FULL
    assert second.flow is None
    assert made.reserved("h3", 1) == 0
    made.release(first)
    world.run(world.now + 10**9)
    third = made.flow("h3", "h6", 1 << 20, 60 * GIGA)
    world.run(world.now + 10**10)
    assert third.outcome is not None
    assert third.outcome.granted


def test_lost_messages_are_repeated_and_a_dead_path_is_refused() -> None:
    world, managed, made = reserving()
    managed.set_link("h6", 1, False, world.now)
    asked = made.flow("h1", "h6", 1 << 20, GIGA)
    world.run(world.now + 3 * 10**12)
    assert asked.outcome is not None
    assert not asked.outcome.granted
    assert made.reserved("h1", 1) == 0


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_do_not_depend_on_threads(threads: int) -> None:
    world, _, manager = bare(clos(4), threads=threads)
    bring_up(manager)
    made = HopReservations(manager)
    made.start()
    world.run(world.now + 10**10)
    asked = made.flow("h1", "h6", 1 << 20, GIGA)
    begin = world.now
    world.run(begin + 10**10)
    assert asked.granted_at is not None
    assert asked.granted_at - begin == GRANTED_AFTER
