# SPDX-License-Identifier: Apache-2.0
"""That the runs of these tests are checked: conftest.py puts CheckedWorld in World's place."""

from __future__ import annotations

import pytest

from tests.sim.fabrics import MIB, MICROSECOND, CheckedWorld, star
from verbena.sim import World


def overrun(world: World) -> World:
    """Two hosts into one, with no room for what comes after a pause."""
    lane = {"flow": "pauses", "stop": 16 << 10, "go": 8 << 10, "spare": 0}
    star(world, 3, lanes=[lane])
    world.add_flows([0, 1], 2, MIB)
    world.run(until=1000 * MICROSECOND)
    return world


def test_a_run_that_breaks_a_promise_fails_its_test() -> None:
    with pytest.raises(AssertionError, match="its headroom is too small"):
        overrun(World(framing="bare"))


def test_where_that_is_looked_at_it_does_not() -> None:
    world = CheckedWorld(framing="bare")
    world.may_overrun = True
    assert "headroom" in (overrun(world).check() or "")
