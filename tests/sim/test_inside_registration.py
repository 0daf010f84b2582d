# SPDX-License-Identifier: Apache-2.0
"""Programs on hosts with an inside pay for the memory that they register."""

from __future__ import annotations

import asyncio
import ctypes
from typing import Any

import pytest

from tests.sim.programs import echo, ping
from verbena import sim
from verbena.host.hca import HcaCosts
from verbena.sim.inside import Inside
from verbena.verbs import AccessFlags, open_device

GIGABIT = 10**9
PORT = 7471


def pair(inside: dict[str, Any] | None) -> tuple[sim.World, list[Inside]]:
    """Two hosts and a cable; ``inside`` of both, unless it is None."""
    world = sim.World(seed=1)
    for _ in range(2):
        world.add_host()
    world.connect(0, 0, 1, 0, rate=100 * GIGABIT, delay=500_000)
    return world, [] if inside is None else [world.inside(h, **inside) for h in ("h0", "h1")]


def now() -> int:
    return round(asyncio.get_running_loop().time() * 1e12)


def registered(
    inside: dict[str, Any] | None, length: int, access: AccessFlags = AccessFlags.LOCAL_WRITE
) -> tuple[int, list[Inside]]:
    """The ps until a program's first charge after it registered so many bytes has ended."""
    world, insides = pair(inside)

    async def program() -> int:
        with open_device().alloc_pd() as pd, pd.alloc(length, access):
            await sim.charge("own", cycles=0)
            return now()

    return sim.run({"h0": program}, world).returned["h0"], insides


def test_registration_costs_a_region_and_its_pages() -> None:
    costs = HcaCosts()
    size = 64 << 20
    took, insides = registered({}, size)
    seen = insides[0].counters()
    pages = size // 4096
    assert seen.cycles["registration"] == costs.registration
    assert seen.cycles["registration_page"] == costs.registration_page * pages
    assert took == seen.busy == pytest.approx((3000 + 2000 * pages) * 1000 / 3, abs=2)
    assert "kernel.registration_page" in insides[0].printed_costs()
    took, insides = registered({"kernel": {"registration": 10, "registration_page": 7}}, 4097)
    assert insides[0].counters().busy == took == 3333 + 4667
    large = {"hca": {"page": 2 << 20}}
    assert registered(large, size)[0] == pytest.approx(67_000 * 1000 / 3, abs=2)
    assert registered(None, size)[0] == 0


def test_pages_on_demand_are_not_pinned() -> None:
    assert registered({}, 64 << 20, AccessFlags.LOCAL_WRITE | AccessFlags.ON_DEMAND)[0] == 10**6


def test_a_region_that_is_registered_again() -> None:
    world, insides = pair({})
    memory = bytearray(3 * 4096)
    address = ctypes.addressof((ctypes.c_char * len(memory)).from_buffer(memory))

    async def program() -> list[int]:
        seen = []
        with open_device().alloc_pd() as pd, pd.reg_mr(address, 4096) as mr:
            for change in ({}, {"access": AccessFlags.REMOTE_READ}, {"length": 3 * 4096}):
                if "length" in change:
                    change["addr"] = address
                if change:
                    mr.reregister(**change)
                seen.append(insides[0].counters().cycles["registration_page"])
        return seen

    assert sim.run({"h0": program}, world).returned["h0"] == [2000, 2000, 4 * 2000]


def test_a_request_waits_for_the_registration_before_it() -> None:
    """As the processor does one after the other: here at both ends at once."""

    def took(cycles: int) -> float:
        world, _ = pair({"kernel": {"registration": cycles}})
        programs = {"h0": echo(PORT, 4, 64), "h1": ping("h0", PORT, 4, 64)}
        return sim.run(programs, world).finished["h1"]

    assert took(3_000_000) - took(0) == pytest.approx(1e-3, rel=0.02)
